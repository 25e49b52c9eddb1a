//! Tells what happens to workloads, from the changes of their objects.

use std::collections::BTreeMap;

use slicegate_api::kueue::Workload;
use slicegate_api::{Condition, Object, ObjectRef};
use slicegate_controller::Note;
use slicegate_workload::Timestamp;

use crate::store::controller_of;
use crate::timeline::{Entry, EntryKind};
use crate::world::World;

/// What was last told of each workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrator {
    seen: BTreeMap<ObjectRef, Seen>,
    said: Said,
}

/// The last entry of the timeline at one moment, by object and kind: a moment may have very many.
#[derive(Clone, Debug, Default)]
struct Said {
    moment: Timestamp,
    /// How many entries of the timeline were looked at.
    read: usize,
    last: BTreeMap<(ObjectRef, EntryKind), usize>,
}

impl Said {
    /// Where the timeline last told this of the object at this moment. The timeline only grows.
    fn find(&mut self, timeline: &[Entry], now: Timestamp, object: &ObjectRef, kind: EntryKind) -> Option<usize> {
        if self.moment != now {
            self.last.clear();
            self.moment = now;
        }
        for (i, entry) in timeline.iter().enumerate().skip(self.read).filter(|(_, entry)| entry.time == now) {
            if let Some(object) = &entry.object {
                self.last.insert((object.clone(), entry.kind), i);
            }
        }
        self.read = timeline.len();
        self.last.get(&(object.clone(), kind)).copied()
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Seen {
    reserved: bool,
    waiting_for: String,
    admitted: bool,
    evicted: Option<String>,
    requeued: bool,
    active: bool,
    checks: BTreeMap<String, (String, String)>,
}

fn get<'a>(workload: &'a Workload, kind: &str) -> Option<&'a Condition> {
    workload.status.conditions.iter().find(|c| c.type_ == kind)
}

fn is_true(workload: &Workload, kind: &str) -> bool {
    get(workload, kind).is_some_and(|c| c.status == "True")
}

/// Which pod set got which flavors, and how much: `slice on vlp-24 (24 google.com/tpu)`.
fn assignment(workload: &Workload) -> String {
    let Some(admission) = &workload.status.admission else { return String::new() };
    let sets = admission.pod_set_assignments.iter().map(|set| {
        let mut by_flavor: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (resource, flavor) in &set.flavors {
            let usage = set.resource_usage.get(resource).map_or("?", |q| q.0.as_str());
            by_flavor.entry(flavor).or_default().push(format!("{usage} {resource}"));
        }
        let flavors: Vec<String> =
            by_flavor.iter().map(|(flavor, usage)| format!("{flavor} ({})", usage.join(", "))).collect();
        if flavors.is_empty() { set.name.clone() } else { format!("{} on {}", set.name, flavors.join(" and ")) }
    });
    sets.collect::<Vec<_>>().join("; ")
}

/// What a note of the controller's is about.
fn kind_of(text: &str) -> EntryKind {
    let text = text.trim_start();
    for (start, kind) in [
        ("is preempted", EntryKind::Preempted),
        ("is evicted", EntryKind::Evicted),
        ("is back in its queue", EntryKind::Requeued),
        ("is admitted", EntryKind::Admitted),
        ("has quota reserved", EntryKind::QuotaReserved),
        ("admission check", EntryKind::Check),
        ("is deactivated", EntryKind::Deactivated),
        ("waits", EntryKind::Waiting),
        ("asks for more", EntryKind::Waiting),
        ("has no flavor", EntryKind::Waiting),
        ("has quota, but", EntryKind::Waiting),
        ("would have to preempt", EntryKind::Waiting),
        ("cannot be admitted", EntryKind::Waiting),
        ("fits once", EntryKind::Waiting),
    ] {
        if text.starts_with(start) {
            return kind;
        }
    }
    EntryKind::Note
}

impl World {
    /// Tells what a change of a workload means.
    pub(crate) fn narrate(&mut self, object: &Object, gone: bool) {
        let Object::Workload(workload) = object else { return };
        let key = object.reference();
        if gone {
            self.narrator.seen.remove(&key);
            return;
        }
        let job = controller_of(object)
            .and_then(|owner| {
                let kind = slicegate_api::Kind::ALL.iter().copied().find(|kind| kind.as_str() == owner.kind)?;
                Some(ObjectRef::new(kind, &*key.namespace, owner.name.as_str()))
            })
            .unwrap_or_else(|| key.clone());
        let new = !self.narrator.seen.contains_key(&key);
        let was = self.narrator.seen.get(&key).cloned().unwrap_or(Seen { active: true, ..Seen::default() });
        let mut lines: Vec<(EntryKind, String)> = Vec::new();
        if new {
            let pods = workload.spec.pod_sets.iter().map(|set| format!("{} x {}", set.name, set.count));
            let pods: Vec<String> = pods.collect();
            let queue = &workload.spec.queue_name;
            let text = format!("workload {} created in queue {queue}: {}", key.name, pods.join(", "));
            lines.push((EntryKind::WorkloadCreated, text));
        }
        let now = Self::seen(workload, &was);
        let over = is_true(workload, "Finished");
        if now.evicted.is_some() && now.evicted != was.evicted {
            let evicted = get(workload, "Evicted");
            let reason = evicted.map_or("", |c| c.reason.as_str());
            let message = evicted.map_or("", |c| c.message.as_str());
            let kind = if reason == "Preempted" { EntryKind::Preempted } else { EntryKind::Evicted };
            let what = if reason == "Preempted" { "preempted" } else { "evicted" };
            lines.push((kind, format!("{what} ({reason}): {message}")));
        }
        for (name, (state, message)) in &now.checks {
            let before = was.checks.get(name);
            if before.map(|(state, _)| state) != Some(state) && !(state == "Pending" && before.is_none()) {
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                lines.push((EntryKind::Check, format!("check {name} is {}{message}", state.to_lowercase())));
            }
        }
        if now.admitted && !was.admitted {
            let queue = workload.status.admission.as_ref().map_or("", |a| a.cluster_queue.as_str());
            lines.push((EntryKind::Admitted, format!("admitted by {queue}: {}", assignment(workload))));
        } else if now.reserved && !was.reserved {
            let queue = workload.status.admission.as_ref().map_or("", |a| a.cluster_queue.as_str());
            let text = format!("quota reserved in {queue}: {}; waits for its admission checks", assignment(workload));
            lines.push((EntryKind::QuotaReserved, text));
        }
        if now.requeued && !was.requeued {
            lines.push((EntryKind::Requeued, "back in its queue".to_owned()));
        }
        // Right after an eviction the condition repeats its message.
        let repeats = get(workload, "Evicted")
            .is_some_and(|c| now.waiting_for.starts_with(c.message.as_str()) && !c.message.is_empty());
        let waits = !now.reserved && !now.waiting_for.is_empty() && now.waiting_for != was.waiting_for;
        if !over && now.active && waits && !repeats {
            lines.push((EntryKind::Waiting, format!("waits: {}", now.waiting_for)));
        }
        if was.active && !now.active {
            lines.push((
                EntryKind::Deactivated,
                "deactivated: it stays out of the queue until it is activated again".to_owned(),
            ));
        }
        self.narrator.seen.insert(key, now);
        for (kind, text) in lines {
            self.tell(&job, kind, text);
        }
    }

    /// Adds a line about a workload, unless the controller said the same at this moment: of what it decided the controller
    /// knows why, of admissions the object has the numbers.
    fn tell(&mut self, job: &ObjectRef, kind: EntryKind, text: String) {
        let now = self.now;
        let said = self.narrator.said.find(&self.timeline, now, job, kind);
        let said = said.and_then(|i| self.timeline.get_mut(i));
        match (said, kind) {
            (Some(entry), EntryKind::Admitted | EntryKind::QuotaReserved | EntryKind::Check) => entry.text = text,
            // The controller names who holds the quota; how much is short is in the object.
            (Some(entry), EntryKind::Waiting)
                if text.contains("more needed")
                    && entry.text.starts_with("waits for quota")
                    && !entry.text.contains(" needed") =>
            {
                let holders = entry.text.split_once("; ").map_or(String::new(), |(_, rest)| format!("; {rest}"));
                entry.text = format!("{text}{holders}");
            }
            (Some(_), EntryKind::Waiting | EntryKind::Preempted | EntryKind::Evicted | EntryKind::Requeued) => {}
            _ => self.say(Some(job.clone()), kind, text),
        }
    }

    /// Adds a note of the controller's.
    pub(crate) fn note(&mut self, note: Note) {
        let workload = note.workload;
        let object = note
            .job
            .unwrap_or_else(|| ObjectRef::new(slicegate_api::Kind::Workload, workload.namespace, workload.name));
        let subject = format!("{} {}", object.kind, object.name);
        let text = note.text.strip_prefix(&subject).map_or(note.text.as_str(), |rest| rest.trim_start_matches(':'));
        let (kind, text) = (kind_of(text), text.trim_start().to_owned());
        let entry = Entry { time: self.now, object: Some(object), kind, text, details: note.details };
        let same = |last: &Entry| last.time == entry.time && last.object == entry.object && last.kind == kind;
        if matches!(kind, EntryKind::Requeued) && self.timeline.last().is_some_and(same) {
            return;
        }
        self.timeline.push(entry);
    }

    fn seen(workload: &Workload, was: &Seen) -> Seen {
        let reserved = is_true(workload, "QuotaReserved");
        let evicted = get(workload, "Evicted").filter(|c| c.status == "True");
        let waiting = get(workload, "QuotaReserved").filter(|c| c.status == "False").map(|c| c.message.clone());
        let requeued = !reserved && is_true(workload, "Requeued");
        let checks = workload.status.admission_checks.iter();
        Seen {
            reserved,
            waiting_for: waiting.unwrap_or_else(|| was.waiting_for.clone()),
            admitted: is_true(workload, "Admitted"),
            evicted: evicted.map(|c| {
                let time = serde_json::to_string(&c.last_transition_time).unwrap_or_default();
                format!("{} {}", c.reason, time)
            }),
            requeued,
            active: workload.spec.active != Some(false),
            checks: checks.map(|check| (check.name.clone(), (check.state.clone(), check.message.clone()))).collect(),
        }
    }
}
