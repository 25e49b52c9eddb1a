//! Everything as JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json as value};
use slicegate_api::ObjectRef;
use slicegate_controller::{Change, EventType};
use slicegate_workload::Timestamp;

use crate::simulation::Outcome;
use crate::store::api_time;
use crate::verdict::Verdict;

fn time(at: Timestamp) -> Value {
    serde_json::to_value(api_time(at)).unwrap_or_default()
}

pub(super) fn reference(object: &ObjectRef) -> Value {
    let mut named = value!({"kind": object.kind.as_str(), "name": &*object.name});
    if !object.namespace.is_empty() {
        named["namespace"] = (&*object.namespace).into();
    }
    named
}

/// Every version of every object, a line of JSON each: `{"t": seconds since the start, "type": "ADDED", "kind": plural,
/// "object": {...}}`.
pub fn recording(outcome: &Outcome) -> String {
    let mut known = BTreeSet::new();
    let mut text = String::new();
    for revision in outcome.history.revisions() {
        let (object, gone) = match &revision.change {
            Change::Applied(object) => (object, false),
            Change::Deleted(object) => (object, true),
        };
        let key = object.reference();
        let kind = match (gone, known.contains(&key)) {
            (true, _) => "DELETED",
            (false, true) => "MODIFIED",
            (false, false) => "ADDED",
        };
        if gone {
            known.remove(&key);
        } else {
            known.insert(key.clone());
        }
        let micros = revision.time.micros_since(outcome.start);
        let at = format!("{}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000);
        let object = object.to_json().unwrap_or_default();
        let plural = key.kind.plural();
        let _ = writeln!(text, "{{\"t\":{at},\"type\":\"{kind}\",\"kind\":\"{plural}\",\"object\":{object}}}");
    }
    text
}

/// The outcome of a simulation: `start`, `end`, `timeline`, `verdicts`, `events`, `warnings`, the `report` on how well the chips
/// were used, and the final `objects`.
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
                Verdict::Deleted { at } => ("deleted", Some(*at)),
                Verdict::NotApplied => ("notApplied", None),
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
        "stopped": outcome.stopped,
        "timeline": timeline,
        "verdicts": verdicts,
        "warnings": outcome.warnings,
        "events": events,
        "report": super::report::json(outcome),
        "objects": objects,
    })
}
