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

#[cfg(test)]
mod tests {
    use slicegate_workload::{RequeueState, Timestamp};

    use super::*;
    use crate::lifecycle::EvictionReason;

    const AT: At = At { now: Timestamp::from_seconds(0), generation: 1 };

    #[test]
    fn a_deactivation_names_its_cause_and_starts_over() {
        let mut workload = Workload::default();
        workload.status.requeue_state = Some(RequeueState { count: Some(3), requeue_at: None });
        workload.status.accumulated_past_execution_time_seconds = Some(7);
        assert!(!should_deactivate(&workload));
        set_deactivation_target(&mut workload.status, &DeactivationCause::MaximumExecutionTimeExceeded, AT);
        assert!(should_deactivate(&workload));
        assert_eq!(workload.status.accumulated_past_execution_time_seconds, None);
        let (step, changed) = deactivate(&mut workload.status, AT);
        let step = step.unwrap();
        assert!(changed);
        assert_eq!(step.condition_reason(), "DeactivatedDueToMaximumExecutionTimeExceeded");
        assert_eq!(&*step.message, "The workload is deactivated due to exceeding the maximum execution time");
        assert_eq!(workload.status.requeue_state, None);
        assert!(!should_deactivate(&workload));
    }

    #[test]
    fn an_earlier_eviction_keeps_its_reason() {
        let mut status = WorkloadStatus::default();
        let step = EvictionStep {
            reason: EvictionReason::PodsReadyTimeout,
            cause: "WaitForStart".into(),
            message: "too slow".into(),
        };
        evict(&mut status, &step, AT);
        status.requeue_state = Some(RequeueState::default());
        assert_eq!(deactivate(&mut status, AT), (None, true));
        assert_eq!(&*status.conditions.get(&ConditionType::Evicted).unwrap().reason, "PodsReadyTimeout");
        assert_eq!(deactivate(&mut status, AT), (None, false));
    }
}
