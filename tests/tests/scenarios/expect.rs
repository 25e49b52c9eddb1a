//! What must hold of workloads.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_workload::{ConditionType, Stage, Status, Workload};

use crate::scenario::{Expect, Flavors, Preemption, Requeue};

/// Finds a workload by its name in a scenario.
type Find<'a> = dyn Fn(&str) -> Option<&'a Workload> + 'a;

/// All that differs, a line each. `start` is the second from which times count.
pub(super) fn workloads<'a>(
    expect: &Expect,
    find: &Find<'a>,
    all: impl Iterator<Item = &'a Workload>,
    start: i64,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut named = BTreeSet::new();
    let mut about = |name: &str, differs: &dyn Fn(&Workload) -> Option<String>| match find(name) {
        None => wrong.push(format!("there is no {name}")),
        Some(workload) => {
            named.insert(&workload.key);
            wrong.extend(differs(workload).map(|why| format!("{name} {why}")));
        }
    };
    for (name, flavors) in &expect.admitted {
        about(name, &|w| runs(w, flavors));
    }
    for (name, node) in &expect.node {
        about(name, &|w| {
            let given = w.status.admission.iter().flat_map(|a| &a.pod_set_assignments);
            let domains = given.filter_map(|p| p.topology_assignment.as_ref()).flat_map(|t| &t.domains);
            let nodes: BTreeSet<&str> = domains.filter_map(|d| d.values.last()).map(|v| &**v).collect();
            (nodes != BTreeSet::from([node.as_str()])).then(|| format!("is on the nodes {nodes:?}"))
        });
    }
    for (name, flavors) in &expect.quota_reserved {
        about(name, &|w| reserves(w, flavors));
    }
    for (name, class) in &expect.pending {
        about(name, &|w| waits(w, class));
    }
    for name in &expect.evicting {
        about(name, &|w| {
            let leaving = w.is_evicted() && w.has_quota_reservation();
            (!leaving).then(|| format!("is not about to leave: {:?}", w.status.conditions))
        });
    }
    for (name, reason) in &expect.evicted {
        about(name, &|w| {
            let evicted = w.status.conditions.get(&ConditionType::Evicted);
            let right = evicted.is_some_and(|c| *c.reason == **reason);
            (!right).then(|| format!("was not evicted for that reason: {evicted:?}"))
        });
    }
    for name in &expect.deactivated {
        about(name, &|w| {
            let idle = !w.spec.active && !w.has_quota_reservation();
            (!idle).then(|| format!("is active or holds quota: {:?}", w.status.conditions))
        });
    }
    for (name, requeue) in &expect.requeue {
        about(name, &|w| {
            let state = w.status.requeue_state.as_ref();
            let got = state.and_then(|s| {
                let at = s.requeue_at?.seconds().saturating_sub(start);
                Some(Requeue { count: s.count, at })
            });
            (got != *requeue).then(|| format!("was put back like this: {got:?}"))
        });
    }
    for (name, part) in &expect.message {
        about(name, &|w| {
            let message = w.status.conditions.get(&ConditionType::QuotaReserved).map_or("", |c| &c.message);
            (!message.contains(part.as_str())).then(|| format!("says: {message}"))
        });
    }
    if !expect.partial {
        let rest = all.filter(|w| !w.is_finished() && !named.contains(&w.key));
        wrong.extend(rest.map(|w| format!("{} is not mentioned", w.key)));
    }
    wrong
}

/// All that differs of the preemptions since the last time, and of their number since the start.
pub(super) fn preemptions(expect: &Expect, since: &[Preemption], count: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    if since != expect.preemptions {
        wrong.push(format!("preemptions are {since:#?}"));
    }
    if count != expect.preemption_count {
        wrong.push(format!("there were {count} preemptions"));
    }
    wrong
}

fn runs(workload: &Workload, flavors: &Flavors) -> Option<String> {
    if !workload.is_admitted() || workload.is_evicted() || workload.is_finished() {
        return Some(format!("does not run: {:?}", workload.status.conditions));
    }
    on(workload, flavors)
}

fn reserves(workload: &Workload, flavors: &Flavors) -> Option<String> {
    if workload.stage() != Stage::QuotaReserved || workload.is_evicted() {
        return Some(format!("does not merely hold quota: {:?}", workload.status.conditions));
    }
    on(workload, flavors)
}

fn on(workload: &Workload, flavors: &Flavors) -> Option<String> {
    let assignments = workload.status.admission.iter().flat_map(|a| &a.pod_set_assignments);
    let assigned: Vec<BTreeMap<String, String>> = assignments
        .filter(|a| a.count != Some(0))
        .map(|a| a.flavors.iter().map(|(r, f)| (r.to_string(), f.to_string())).collect())
        .collect();
    let right = assigned.iter().all(|of_pod_set| match flavors {
        Flavors::One(flavor) => !of_pod_set.is_empty() && of_pod_set.values().all(|f| f == flavor),
        Flavors::Each(each) => of_pod_set == each,
    });
    (!right || assigned.is_empty()).then(|| format!("is on {assigned:?}"))
}

fn waits(workload: &Workload, class: &str) -> Option<String> {
    if workload.stage() != Stage::Pending {
        return Some(format!("does not wait: {:?}", workload.status.conditions));
    }
    let condition = workload.status.conditions.get(&ConditionType::QuotaReserved);
    let reason = condition.filter(|c| c.status == Status::False).map(|c| &*c.reason);
    // Nothing is written to a workload that was not looked at yet.
    let reason = reason.unwrap_or("PendingEvaluation");
    (reason != class).then(|| format!("waits because of {reason}: {condition:?}"))
}
