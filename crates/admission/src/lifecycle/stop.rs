//! Stopped queues.

use slicegate_workload::{ConditionType, StopPolicy, WorkloadStatus};

use super::{EvictionReason, EvictionStep};

/// A queue of a workload that holds quota.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StopFacts {
    /// The stop policy of its LocalQueue; `None` if that is missing or being deleted.
    pub local_queue: Option<StopPolicy>,
    /// The stop policy of the ClusterQueue it is counted in; `None` if that is missing or being deleted.
    pub cluster_queue: Option<StopPolicy>,
}

/// What a stopped queue means for a workload that holds quota.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopStep {
    /// Nothing.
    None,
    /// Give the quota back, with this reason and message for QuotaReserved.
    Release {
        /// The reason.
        reason: &'static str,
        /// The message.
        message: Box<str>,
    },
    /// Evict it.
    Evict(EvictionStep),
}

/// What stopped queues mean for the workload. LocalQueues count first.
pub fn stop_step(queue: &str, status: &WorkloadStatus, facts: &StopFacts, granular: bool) -> StopStep {
    let is_true = |kind| status.conditions.is_true(&kind);
    let admitted = is_true(ConditionType::Admitted);
    if is_true(ConditionType::Finished) || !(admitted || is_true(ConditionType::QuotaReserved)) {
        return StopStep::None;
    }
    let cluster_queue = status.admission.as_ref().map_or("", |a| &a.cluster_queue);
    let queues = [
        ("LocalQueue", queue, facts.local_queue, EvictionReason::LocalQueueStopped),
        ("ClusterQueue", cluster_queue, facts.cluster_queue, EvictionReason::ClusterQueueStopped),
    ];
    for (kind, name, policy, eviction) in queues {
        if admitted {
            if policy == Some(StopPolicy::HoldAndDrain) && !status.conditions.is_true(&ConditionType::Evicted) {
                return StopStep::Evict(EvictionStep {
                    reason: eviction,
                    cause: Box::default(),
                    message: format!("The {kind} is stopped").into(),
                });
            }
            continue;
        }
        let (reason, what) = match policy {
            Some(StopPolicy::None) => continue,
            Some(StopPolicy::Hold | StopPolicy::HoldAndDrain) => ("Suspended", "is stopped"),
            None => ("Misconfigured", "is terminating or missing"),
        };
        return StopStep::Release {
            reason: if granular { reason } else { "Inadmissible" },
            message: format!("{kind} {name} {what}").into(),
        };
    }
    StopStep::None
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{Admission, Timestamp};

    use super::*;
    use crate::Gates;
    use crate::lifecycle::{At, set_quota_reservation, sync_admitted};

    const AT: At = At { now: Timestamp::from_seconds(0), generation: 1 };

    fn facts(local_queue: Option<StopPolicy>, cluster_queue: Option<StopPolicy>) -> StopFacts {
        StopFacts { local_queue, cluster_queue }
    }

    #[test]
    fn what_runs_is_drained_and_what_does_not_gives_its_quota_back() {
        use StopPolicy::{Hold, HoldAndDrain, None as Open};
        let mut status = WorkloadStatus::default();
        assert_eq!(stop_step("lq", &status, &facts(None, None), true), StopStep::None, "it holds nothing");
        set_quota_reservation(&mut status, Admission { cluster_queue: "cq".into(), ..Admission::default() }, AT);
        let release = |reason, message: &str| StopStep::Release { reason, message: message.into() };
        for (local, cluster, want) in [
            (Some(Open), Some(Open), StopStep::None),
            (Some(Hold), Some(Hold), release("Suspended", "LocalQueue lq is stopped")),
            (Some(Open), Some(HoldAndDrain), release("Suspended", "ClusterQueue cq is stopped")),
            (Some(Open), None, release("Misconfigured", "ClusterQueue cq is terminating or missing")),
        ] {
            assert_eq!(stop_step("lq", &status, &facts(local, cluster), true), want);
        }
        assert_eq!(
            stop_step("lq", &status, &facts(None, Some(Open)), false),
            release("Inadmissible", "LocalQueue lq is terminating or missing")
        );
        sync_admitted(&mut status, AT, &Gates::default());
        assert_eq!(stop_step("lq", &status, &facts(Some(Hold), None), true), StopStep::None, "it may run on");
        let drained = stop_step("lq", &status, &facts(Some(Open), Some(HoldAndDrain)), true);
        let StopStep::Evict(step) = drained else { panic!("{drained:?}") };
        assert_eq!((step.reason, &*step.message), (EvictionReason::ClusterQueueStopped, "The ClusterQueue is stopped"));
    }
}
