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
