//! Everything as JSON.

use serde_json::{Value, json as value};
use slicegate_api::ObjectRef;
use slicegate_controller::EventType;
use slicegate_workload::Timestamp;

use crate::simulation::Outcome;
use crate::store::api_time;
use crate::verdict::Verdict;

fn time(at: Timestamp) -> Value {
    serde_json::to_value(api_time(at)).unwrap_or_default()
}

fn reference(object: &ObjectRef) -> Value {
    let mut named = value!({"kind": object.kind.as_str(), "name": &*object.name});
    if !object.namespace.is_empty() {
        named["namespace"] = (&*object.namespace).into();
    }
    named
}

/// The outcome of a simulation: `start`, `end`, `timeline`, `verdicts`, `events`, `warnings` and the final `objects`.
pub fn json(outcome: &Outcome) -> Value {
    let seconds = |at: Timestamp| at.micros_since(outcome.start) / 1_000_000;
    let timeline: Vec<Value> = outcome
        .timeline
        .iter()
        .map(|entry| {
            value!({
                "time": time(entry.time),
                "elapsedSeconds": seconds(entry.time),
                "object": entry.object.as_ref().map(reference),
                "kind": entry.kind.as_str(),
                "text": entry.text,
                "details": entry.details,
            })
        })
        .collect();
    let verdicts: Vec<Value> = outcome
        .verdicts
        .iter()
        .map(|verdict| {
            let (word, at) = match &verdict.verdict {
                Verdict::Finished { at } => ("finished", *at),
                Verdict::Failed => ("failed", None),
                Verdict::Running => ("running", None),
                Verdict::Admitted => ("admitted", None),
                Verdict::QuotaReserved => ("quotaReserved", None),
                Verdict::Evicted => ("evicted", None),
                Verdict::NeverAdmitted => ("neverAdmitted", None),
                Verdict::NotQueued => ("notQueued", None),
            };
            value!({"job": reference(&verdict.job), "verdict": word, "at": at.map(time), "why": verdict.why})
        })
        .collect();
    let events: Vec<Value> = outcome
        .events
        .iter()
        .map(|recorded| {
            let event = &recorded.event;
            let kind = match event.kind {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            };
            value!({
                "time": time(recorded.time),
                "object": reference(&event.object),
                "type": kind,
                "reason": &*event.reason,
                "note": &*event.note,
            })
        })
        .collect();
    let objects: Vec<Value> = outcome.objects.values().filter_map(|object| object.to_json().ok()).collect();
    value!({
        "start": time(outcome.start),
        "end": time(outcome.end),
        "timeline": timeline,
        "verdicts": verdicts,
        "warnings": outcome.warnings,
        "events": events,
        "objects": objects,
    })
}
