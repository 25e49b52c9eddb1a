//! Reserving quota.

use slicegate_workload::{Admission, ConditionType, Status, WorkloadStatus};

use super::At;

/// Gives the workload quota. Conditions that told of an earlier loss of it become false and keep their message behind
/// `Previously: `.
pub fn set_quota_reservation(status: &mut WorkloadStatus, admission: Admission, at: At) {
    let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
    status.admission = Some(admission);
    status.resource_requests.clear();
    at.set(status, ConditionType::QuotaReserved, Status::True, "QuotaReserved", &message);
    for kind in [ConditionType::Evicted, ConditionType::Preempted, ConditionType::BlockedOnPreemptionGates] {
        let Some(old) = status.conditions.get(&kind).filter(|c| c.status == Status::True) else { continue };
        let message = format!("Previously: {}", old.message);
        at.set(status, kind, Status::False, "QuotaReserved", &message);
    }
}
