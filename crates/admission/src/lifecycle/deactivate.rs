//! Deactivation.

use slicegate_workload::{ConditionType, Status, Workload, WorkloadStatus};

use super::{At, EvictionReason, EvictionStep, evict};

/// Why a workload is to be deactivated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeactivationCause {
    /// An admission check rejected it.
    AdmissionCheck {
        /// The message, from [`check_verdict`](super::check_verdict).
        message: Box<str>,
    },
    /// It was put back too often.
    RequeuingLimitExceeded,
    /// It ran too long.
    MaximumExecutionTimeExceeded,
}

/// Marks the workload for deactivation; the next step sets `spec.active` to false. Returns whether anything changed.
pub fn set_deactivation_target(status: &mut WorkloadStatus, cause: &DeactivationCause, at: At) -> bool {
    let (reason, message): (&str, &str) = match cause {
        DeactivationCause::AdmissionCheck { message } => ("AdmissionCheck", message),
        DeactivationCause::RequeuingLimitExceeded => {
            ("RequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries")
        }
        DeactivationCause::MaximumExecutionTimeExceeded => {
            status.accumulated_past_execution_time_seconds = None;
            ("MaximumExecutionTimeExceeded", "exceeding the maximum execution time")
        }
    };
    at.set(status, ConditionType::DeactivationTarget, Status::True, reason, message)
}

/// Whether `spec.active` is to be set to false.
pub fn should_deactivate(workload: &Workload) -> bool {
    workload.spec.active && workload.status.conditions.is_true(&ConditionType::DeactivationTarget)
}

/// What becomes of a workload that is not active: it is evicted, unless it is already, and starts over if it is activated
/// again. Returns the eviction, if there is one, and whether anything changed.
pub fn deactivate(status: &mut WorkloadStatus, at: At) -> (Option<EvictionStep>, bool) {
    let target =
        status.conditions.get(&ConditionType::DeactivationTarget).filter(|c| c.status == Status::True).cloned();
    let mut changed = status.conditions.remove(&ConditionType::DeactivationTarget);
    changed |= status.requeue_state.take().is_some();
    if status.conditions.is_true(&ConditionType::Evicted) {
        return (None, changed);
    }
    let mut message = String::from("The workload is deactivated");
    let mut cause = Box::default();
    if let Some(target) = target {
        message.push_str(" due to ");
        message.push_str(&target.message);
        cause = target.reason;
    }
    let step = EvictionStep { reason: EvictionReason::Deactivated, cause, message: message.into() };
    evict(status, &step, at);
    (Some(step), true)
}
