//! What must be true of the objects, whatever the controllers know.

use std::collections::BTreeMap;

use slicegate_api::{Condition, Kind, Object, kueue};

use super::actors;
use super::server::{Capacity, Server};
use super::setup::RESOURCE;

/// Whether a condition of an API object holds.
pub(super) fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}

/// Whether a workload is done with.
pub(super) fn is_finished(workload: &kueue::Workload) -> bool {
    is_true(&workload.status.conditions, "Finished")
}

/// Whether a workload has quota that counts.
pub(super) fn counts(workload: &kueue::Workload) -> bool {
    workload.status.admission.is_some()
        && is_true(&workload.status.conditions, "QuotaReserved")
        && !is_finished(workload)
        && workload.spec.active != Some(false)
}

fn name(workload: &kueue::Workload) -> &str {
    workload.metadata.name.as_deref().unwrap_or_default()
}

/// A workload has all of its assignment or none of it, and says so.
pub(super) fn workload(workload: &kueue::Workload) -> Result<(), String> {
    let reserved = is_true(&workload.status.conditions, "QuotaReserved");
    let admitted = is_true(&workload.status.conditions, "Admitted");
    let name = name(workload);
    let Some(admission) = &workload.status.admission else {
        if reserved && !is_finished(workload) {
            return Err(format!("{name} has quota and no assignment"));
        }
        return Ok(());
    };
    if !reserved && !is_finished(workload) {
        return Err(format!("{name} has an assignment and no quota"));
    }
    if admitted && !reserved && !is_finished(workload) {
        return Err(format!("{name} is admitted and has no quota"));
    }
    let assigned: Vec<&str> = admission.pod_set_assignments.iter().map(|p| p.name.as_str()).collect();
    let wanted: Vec<&str> = workload.spec.pod_sets.iter().map(|p| p.name.as_str()).collect();
    if assigned != wanted {
        return Err(format!("{name} asks for {wanted:?} and is given {assigned:?}"));
    }
    for part in &admission.pod_set_assignments {
        if !part.flavors.contains_key(RESOURCE) || !part.resource_usage.contains_key(RESOURCE) {
            return Err(format!("{name}: pod set {} is admitted without a flavor", part.name));
        }
    }
    Ok(())
}

/// What is forbidden to happen to an object.
pub(super) fn transition(before: &Object, after: &Object) -> Result<(), String> {
    let reference = after.reference();
    if actors::is_unnoticed(before) && !actors::is_suspended(after) {
        return Err(format!("{reference} is started before its controller took notice that it was suspended"));
    }
    match (before, after) {
        (Object::Workload(old), Object::Workload(new)) => {
            if is_finished(old) && !is_finished(new) {
                return Err(format!("{reference} was finished and is not any more"));
            }
            if let (Some(a), Some(b)) = (&old.status.admission, &new.status.admission)
                && a != b
            {
                return Err(format!("{reference} gets a second assignment"));
            }
            if new.status.admission.is_some() && old.status.admission.is_none() && new.spec.active == Some(false) {
                return Err(format!("{reference} is admitted although it is not active"));
            }
        }
        (Object::Job(old), Object::Job(new)) => {
            let suspended = |job: &slicegate_api::Job| job.spec.as_ref().and_then(|s| s.suspend) == Some(true);
            let active = old.status.as_ref().and_then(|s| s.active).unwrap_or(0);
            if suspended(old) && !suspended(new) && active > 0 {
                return Err(format!("{reference} is started while {active} of its pods still run"));
            }
        }
        (Object::JobSet(old), Object::JobSet(new)) => {
            let active: i32 = old.status.replicated_jobs_status.iter().map(|s| s.active).sum();
            if old.spec.suspend == Some(true) && new.spec.suspend != Some(true) && active > 0 {
                return Err(format!("{reference} is started while {active} of its Jobs still run"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn owner(object: &Object) -> Option<&str> {
    crate::store::controller_of(object).map(|o| o.uid.as_str())
}

/// The workload that a slice of an elastic job replaces.
pub(super) fn replaced(workload: &kueue::Workload) -> Option<&str> {
    let annotations = workload.metadata.annotations.as_ref()?;
    annotations.get("kueue.x-k8s.io/workload-slice-replacement-for")?.rsplit('/').next()
}

/// Nothing is admitted twice: of the workloads of a job one has quota; with elastic jobs the one that it replaces, too, until
/// that is finished.
pub(super) fn one_workload(server: &Server, admitted: &Object) -> Result<(), String> {
    let Some(job) = owner(admitted) else { return Ok(()) };
    let Object::Workload(new) = admitted else { return Ok(()) };
    for other in server.store.owned_by(job) {
        let Some(Object::Workload(w)) = server.store.get(other) else { continue };
        if w.metadata.name != new.metadata.name && counts(w) && replaced(new) != w.metadata.name.as_deref() {
            return Err(format!("{} is admitted while {} of the same job has quota", name(new), name(w)));
        }
    }
    Ok(())
}

/// What a workload takes of each flavor, and in which ClusterQueue; `None` if a number cannot be read.
pub(super) fn usage(workload: &kueue::Workload) -> Option<(String, BTreeMap<String, i64>)> {
    let admission = workload.status.admission.as_ref()?;
    let mut used = BTreeMap::new();
    for part in &admission.pod_set_assignments {
        let flavor = part.flavors.get(RESOURCE)?;
        let total: i64 = part.resource_usage.get(RESOURCE)?.0.parse().ok()?;
        let count = i64::from(part.count?);
        // A smaller slice of an elastic job needs less than it was given.
        let pods = i64::from(workload.spec.pod_sets.iter().find(|p| p.name == part.name)?.count);
        let done = workload.status.reclaimable_pods.iter().find(|r| r.name == part.name).map_or(0, |r| r.count);
        let left = (pods - i64::from(done)).max(0);
        *used.entry(flavor.clone()).or_insert(0) += (total * left).checked_div(count).unwrap_or(0);
    }
    Some((admission.cluster_queue.clone(), used))
}

/// What is used, by ClusterQueue and flavor. A slice that is replaced counts no more once its replacement does.
pub(super) fn used(server: &Server) -> BTreeMap<(String, String), i64> {
    let mut all = BTreeMap::new();
    let replaced: Vec<&str> = server.workloads().filter(|w| counts(w)).filter_map(|w| replaced(w)).collect();
    for workload in server.workloads().filter(|w| counts(w) && !replaced.contains(&name(w))) {
        let Some((queue, used)) = usage(workload) else { continue };
        for (flavor, amount) in used {
            *all.entry((queue.clone(), flavor)).or_insert(0) += amount;
        }
    }
    all
}

/// [`within`] the quotas that were known at some time.
pub(super) fn within_any(server: &Server, admitted: &Object, known: &[Capacity]) -> Result<(), String> {
    let mut result = Ok(());
    for capacity in known.iter().rev() {
        let now = within(server, admitted, capacity);
        if now.is_ok() {
            return now;
        }
        result = result.and(now);
    }
    result
}

/// The ClusterQueue of what was admitted uses no more than its quota and what it may borrow, and all of its cohort together no
/// more than their quotas, of the flavors that it was given more of than what it replaces. What is held in a ClusterQueue that
/// is gone counts for nothing until that is back.
fn within(server: &Server, admitted: &Object, capacity: &Capacity) -> Result<(), String> {
    let Object::Workload(workload) = admitted else { return Ok(()) };
    let Some((into, mut given)) = usage(workload) else { return Err("its usage cannot be read".to_owned()) };
    let old = replaced(workload).and_then(|old| server.workloads().find(|w| name(w) == old && counts(w)));
    if let Some((queue, held)) = old.and_then(|old| usage(old))
        && queue == into
    {
        given.retain(|flavor, amount| held.get(flavor).is_none_or(|held| held < amount));
    }
    let mut together: BTreeMap<(bool, String), (i64, i64)> = BTreeMap::new();
    let used = used(server);
    let concerns = |queue: &str, flavor: &str| (queue == "c") == (into == "c") && given.contains_key(flavor);
    for ((queue, flavor), amount) in used.iter().filter(|((q, f), _)| concerns(q, f)) {
        if *queue != into && !capacity.keys().any(|(known, _)| known == queue) {
            continue;
        }
        let Some((nominal, borrowing)) = capacity.get(&(queue.clone(), flavor.clone())) else {
            return Err(format!("ClusterQueue {queue} uses {amount} of flavor {flavor}, which it does not have"));
        };
        if *queue == into && borrowing.is_some_and(|limit| *amount > nominal + limit) {
            return Err(format!(
                "ClusterQueue {queue} uses {amount} of flavor {flavor}, quota {nominal}, {borrowing:?} borrowed"
            ));
        }
        together.entry((queue == "c", flavor.clone())).or_default().0 += amount;
    }
    for ((queue, flavor), (nominal, _)) in capacity.iter().filter(|((q, f), _)| concerns(q, f)) {
        together.entry((queue == "c", flavor.clone())).or_default().1 += nominal;
    }
    for ((_, flavor), (amount, nominal)) in together {
        if amount > nominal {
            return Err(format!(
                "{amount} of flavor {flavor} are promised, there are {nominal}: {used:?} of {capacity:?}"
            ));
        }
    }
    Ok(())
}

/// The quotas that somebody knows of.
pub(super) fn capacity<'a>(queues: impl Iterator<Item = &'a Object>) -> Capacity {
    let mut all = Capacity::new();
    for object in queues {
        let Object::ClusterQueue(queue) = object else { continue };
        for quotas in queue.spec.resource_groups.iter().flat_map(|g| &g.flavors) {
            for quota in &quotas.resources {
                let number = |q: &slicegate_api::Quantity| q.0.parse::<i64>().ok();
                let Some(nominal) = number(&quota.nominal_quota) else { continue };
                let limit = quota.borrowing_limit.as_ref().and_then(number);
                let queue = object.name().to_owned();
                all.insert((queue, quotas.name.clone()), (nominal, limit));
            }
        }
    }
    all
}

/// The objects of the kinds that hold jobs.
pub(super) const JOBS: [Kind; 2] = [Kind::Job, Kind::JobSet];

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slicegate_workload::Timestamp;

    use super::super::setup::{QUOTAS, Setup, read};
    use super::*;

    /// A workload that holds so much of flavor `std`.
    fn holder(name: &str, queue: &str, pods: i64, replaces: Option<&str>) -> Object {
        let mut document = json!({"kind": "Workload", "metadata": {"name": name, "namespace": "default"},
            "spec": {"queueName": queue, "active": true, "podSets": [{"name": "main", "count": pods, "template": {"spec": {
                "containers": [{"name": "c", "resources": {"requests": {RESOURCE: "1"}}}]}}}]},
            "status": {
                "admission": {"clusterQueue": queue, "podSetAssignments": [{"name": "main", "count": pods,
                    "flavors": {RESOURCE: "std"}, "resourceUsage": {RESOURCE: pods.to_string()}}]},
                "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        if let Some(old) = replaces {
            document["metadata"]["annotations"] =
                json!({"kueue.x-k8s.io/workload-slice-replacement-for": format!("default/{old}")});
        }
        read(document).unwrap()
    }

    fn server(holders: &[Object]) -> Server {
        let mut server = Server::new(Timestamp::from_seconds(0));
        for object in Setup::default().objects().iter().chain(holders) {
            server.create(object.clone());
            let mut there = server.store.get(&object.reference()).unwrap().clone();
            if let (Object::Workload(w), Object::Workload(wanted)) = (&mut there, object) {
                std::sync::Arc::make_mut(w).status = wanted.status.clone();
                server.put(there);
            }
        }
        server
    }

    fn quotas(but: &str) -> Capacity {
        let all = QUOTAS.iter().filter(|(queue, _)| *queue != but);
        all.flat_map(|(queue, quotas)| {
            quotas
                .iter()
                .map(|(flavor, nominal, limit)| (((*queue).to_owned(), (*flavor).to_owned()), (*nominal, *limit)))
        })
        .collect()
    }

    #[test]
    fn quotas_are_kept() {
        // ClusterQueues a and b share eight of the flavor, and b may borrow two of a's four.
        let holders = [holder("x", "a", 3, None), holder("y", "b", 5, None)];
        let fits = |new: Object, known: &str| {
            let all: Vec<Object> = holders.iter().cloned().chain([new.clone()]).collect();
            within_any(&server(&all), &new, &[quotas(known)])
        };
        assert_eq!(within_any(&server(&holders), &holders[1], &[quotas("")]), Ok(()));
        assert!(fits(holder("z", "a", 1, None), "").unwrap_err().starts_with("9 of flavor std are promised"));
        assert!(fits(holder("z", "b", 2, None), "").unwrap_err().contains("ClusterQueue b uses 7 of flavor std"));
        assert_eq!(fits(holder("z", "c", 5, None), ""), Ok(()), "another tree");
        // A slice asks for what it has more than the one that it replaces.
        assert_eq!(fits(holder("z", "a", 3, Some("x")), ""), Ok(()));
        assert!(fits(holder("z", "a", 4, Some("x")), "").is_err());
        // What is held in a ClusterQueue that is gone is out of the tree, and nothing is admitted there.
        assert_eq!(fits(holder("z", "a", 1, None), "b"), Ok(()));
        assert!(fits(holder("z", "b", 1, None), "b").unwrap_err().ends_with("which it does not have"));
        // It is enough that there was room at some time since it was decided.
        let late = holder("z", "a", 1, None);
        let all: Vec<Object> = holders.iter().cloned().chain([late.clone()]).collect();
        let mut more = quotas("");
        more.insert(("a".to_owned(), "std".to_owned()), (5, None));
        assert_eq!(within_any(&server(&all), &late, &[quotas(""), more.clone(), quotas("")]), Ok(()));
        assert!(within_any(&server(&all), &late, &[quotas(""), quotas("")]).is_err());
    }

    #[test]
    fn of_a_job_one_workload_is_admitted() {
        let owned = |mut object: Object| {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true});
            object.metadata_mut().owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
            object
        };
        let (x, y) = (owned(holder("x", "a", 1, None)), owned(holder("y", "a", 1, None)));
        let next = owned(holder("y", "a", 2, Some("x")));
        assert!(one_workload(&server(&[x.clone(), y.clone()]), &y).is_err());
        assert_eq!(one_workload(&server(&[x, next.clone()]), &next), Ok(()));
    }
}
