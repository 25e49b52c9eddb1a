//! What orders workloads in a queue.

use slicegate_workload::{Condition, ConditionType, Status, Timestamp, Workload, WorkloadStatus};

use crate::{Gates, RequeuingTimestamp};

/// The annotation that raises or lowers a workload's priority.
const PRIORITY_BOOST_ANNOTATION: &str = "kueue.x-k8s.io/priority-boost";

/// The priority of the workload's class, and the boost that its annotation adds, if the gate allows one. Their sum is what
/// counts.
pub fn effective_priority(workload: &Workload, gates: &Gates) -> (i32, i32) {
    let boost = if gates.priority_boost {
        workload.annotations.get(PRIORITY_BOOST_ANNOTATION).and_then(|v| v.parse::<i32>().ok()).unwrap_or(0)
    } else {
        0
    };
    (workload.spec.priority, boost)
}

/// The time from which the workload waits: its creation, or its eviction if that was for pods that did not become ready or
/// for an admission check.
pub fn queue_order_time(
    created: Timestamp,
    status: &WorkloadStatus,
    requeuing: RequeuingTimestamp,
    gates: &Gates,
) -> Timestamp {
    let is_true = |kind: &ConditionType| -> Option<&Condition> {
        status.conditions.get(kind).filter(|c| c.status == Status::True)
    };
    if let Some(evicted) = is_true(&ConditionType::Evicted) {
        if requeuing == RequeuingTimestamp::Eviction && &*evicted.reason == "PodsReadyTimeout" {
            return evicted.last_transition;
        }
        if &*evicted.reason == "AdmissionCheck" {
            return evicted.last_transition;
        }
    }
    if !gates.priority_sorting_within_cohort
        && let Some(preempted) = is_true(&ConditionType::Preempted)
        && &*preempted.reason == "InCohortReclaimWhileBorrowing"
    {
        return preempted.last_transition.plus_micros(1000);
    }
    created
}

/// Whether a change of priority class or value lets others that are parked be looked at again. Only classes of Kueue's own
/// kind count.
pub fn priority_changed(old: &Workload, new: &Workload, gates: &Gates) -> bool {
    let boost_changed = effective_priority(old, gates).1 != effective_priority(new, gates).1;
    let class = &*new.spec.priority_class;
    if !class.starts_with("kueue.x-k8s.io/WorkloadPriorityClass/") {
        return boost_changed;
    }
    class != &*old.spec.priority_class || old.spec.priority != new.spec.priority || boost_changed
}
