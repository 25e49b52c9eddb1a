//! Tells what happens to workloads, from the changes of their objects.

use std::collections::BTreeMap;

use slicegate_api::kueue::Workload;
use slicegate_api::{Condition, Object, ObjectRef};

use crate::store::controller_of;
use crate::timeline::EntryKind;
use crate::world::World;

/// What was last told of each workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrator {
    seen: BTreeMap<ObjectRef, Seen>,
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
        if !over && now.active && !now.reserved && !now.waiting_for.is_empty() && now.waiting_for != was.waiting_for {
            lines.push((EntryKind::Waiting, format!("waits: {}", now.waiting_for)));
        }
        if was.active && !now.active {
            lines.push((EntryKind::Deactivated, "deactivated: it stays out of the queue until it is activated again".to_owned()));
        }
        self.narrator.seen.insert(key, now);
        for (kind, text) in lines {
            self.say(Some(job.clone()), kind, text);
        }
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
