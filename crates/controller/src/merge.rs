//! Changes to the status of a workload, brought together from different hands.

use slicegate_workload::{CheckStatus, Conditions, WorkloadStatus};

fn pick<T: Clone + PartialEq>(base: &T, mine: &T, theirs: &T) -> T {
    if mine == base { theirs.clone() } else { mine.clone() }
}

/// What `mine` changed since `base`, on top of `theirs`. Conditions and checks are compared one by one, everything else as a
/// whole.
pub(crate) fn status(base: &WorkloadStatus, mine: &WorkloadStatus, theirs: &WorkloadStatus) -> WorkloadStatus {
    if base == theirs {
        return mine.clone();
    }
    WorkloadStatus {
        admission: pick(&base.admission, &mine.admission, &theirs.admission),
        conditions: conditions(&base.conditions, &mine.conditions, &theirs.conditions),
        admission_checks: checks(&base.admission_checks, &mine.admission_checks, &theirs.admission_checks),
        requeue_state: pick(&base.requeue_state, &mine.requeue_state, &theirs.requeue_state),
        reclaimable_pods: pick(&base.reclaimable_pods, &mine.reclaimable_pods, &theirs.reclaimable_pods),
        resource_requests: pick(&base.resource_requests, &mine.resource_requests, &theirs.resource_requests),
        accumulated_past_execution_time_seconds: pick(
            &base.accumulated_past_execution_time_seconds,
            &mine.accumulated_past_execution_time_seconds,
            &theirs.accumulated_past_execution_time_seconds,
        ),
        evictions: pick(&base.evictions, &mine.evictions, &theirs.evictions),
        unhealthy_nodes: pick(&base.unhealthy_nodes, &mine.unhealthy_nodes, &theirs.unhealthy_nodes),
        cluster_name: pick(&base.cluster_name, &mine.cluster_name, &theirs.cluster_name),
        nominated_cluster_names: pick(
            &base.nominated_cluster_names,
            &mine.nominated_cluster_names,
            &theirs.nominated_cluster_names,
        ),
        preemption_gates: pick(&base.preemption_gates, &mine.preemption_gates, &theirs.preemption_gates),
    }
}

fn conditions(base: &Conditions, mine: &Conditions, theirs: &Conditions) -> Conditions {
    let mut all = theirs.clone();
    for condition in base {
        if mine.get(&condition.kind).is_none() {
            all.remove(&condition.kind);
        }
    }
    for condition in mine {
        if base.get(&condition.kind) != Some(condition) {
            all.remove(&condition.kind);
            all.set(condition.clone());
        }
    }
    // Conditions keep the places they had.
    let order = |c: &slicegate_workload::Condition| theirs.iter().position(|t| t.kind == c.kind).unwrap_or(usize::MAX);
    let mut sorted: Vec<_> = all.iter().cloned().collect();
    sorted.sort_by_key(order);
    sorted.into_iter().collect()
}

fn checks(base: &[CheckStatus], mine: &[CheckStatus], theirs: &[CheckStatus]) -> Vec<CheckStatus> {
    fn find<'a>(list: &'a [CheckStatus], name: &str) -> Option<&'a CheckStatus> {
        list.iter().find(|c| &*c.name == name)
    }
    let mut all: Vec<CheckStatus> =
        theirs.iter().filter(|c| find(base, &c.name).is_none() || find(mine, &c.name).is_some()).cloned().collect();
    for check in mine {
        if find(base, &check.name) == Some(check) {
            continue;
        }
        match all.iter_mut().find(|c| c.name == check.name) {
            Some(there) => *there = check.clone(),
            None => all.push(check.clone()),
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{CheckState, Condition, ConditionType, Status, Timestamp};

    use super::*;

    fn condition(kind: ConditionType, status: Status) -> Condition {
        Condition {
            kind,
            status,
            reason: "R".into(),
            message: Box::default(),
            last_transition: Timestamp::from_seconds(1),
            observed_generation: 1,
        }
    }

    #[test]
    fn both_hands_count() {
        let mut base = WorkloadStatus::default();
        base.conditions.set(condition(ConditionType::QuotaReserved, Status::False));
        base.admission_checks = vec![CheckStatus { name: "a".into(), ..CheckStatus::default() }];
        let mut mine = base.clone();
        mine.conditions.set(condition(ConditionType::QuotaReserved, Status::True));
        mine.admission_checks.clear();
        let mut theirs = base.clone();
        theirs.conditions.set(condition(ConditionType::PodsReady, Status::True));
        theirs.admission_checks[0].state = CheckState::Ready;
        theirs.admission_checks.push(CheckStatus { name: "b".into(), ..CheckStatus::default() });
        let merged = status(&base, &mine, &theirs);
        assert!(merged.conditions.is_true(&ConditionType::QuotaReserved));
        assert!(merged.conditions.is_true(&ConditionType::PodsReady));
        let names: Vec<&str> = merged.admission_checks.iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["b"]);
        let kinds: Vec<&str> = merged.conditions.iter().map(|c| c.kind.as_str()).collect();
        assert_eq!(kinds, ["QuotaReserved", "PodsReady"]);
    }
}
