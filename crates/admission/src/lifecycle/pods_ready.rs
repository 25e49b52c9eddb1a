//! Pods that do not become ready.

use slicegate_workload::{ConditionType, Status, Timestamp, Workload};

use super::{DeactivationCause, EvictionReason, EvictionStep};
use crate::WaitForPodsReady;

/// What the workload's pods are waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PodsReadyCause {
    /// Their first start.
    WaitForStart,
    /// A restart after one was lost.
    WaitForRecovery,
}

impl PodsReadyCause {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WaitForStart => "WaitForStart",
            Self::WaitForRecovery => "WaitForRecovery",
        }
    }
}

/// What the workload's pods are waited for and until when; `None` if they are not.
pub fn pods_ready_timeout(
    workload: &Workload,
    config: Option<&WaitForPodsReady>,
) -> Option<(PodsReadyCause, Timestamp)> {
    let config = config?;
    let status = &workload.status;
    if !workload.spec.active || status.conditions.is_true(&ConditionType::Evicted) {
        return None;
    }
    let admitted = status.conditions.get(&ConditionType::Admitted).filter(|c| c.status == Status::True)?;
    let ready = status.conditions.get(&ConditionType::PodsReady);
    match ready {
        Some(c) if c.status == Status::True => None,
        Some(c) if &*c.reason == "WaitForRecovery" => {
            let timeout = config.recovery_timeout_seconds.filter(|&s| s > 0)?;
            Some((PodsReadyCause::WaitForRecovery, c.last_transition.plus_seconds(timeout)))
        }
        None | Some(_) => {
            let known = ready.is_none_or(|c| matches!(&*c.reason, "WaitForStart" | "PodsReady"));
            known.then(|| (PodsReadyCause::WaitForStart, admitted.last_transition.plus_seconds(config.timeout_seconds)))
        }
    }
}

/// What is to be done about pods that are not ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PodsReadyStep {
    /// Nothing.
    None,
    /// Look again then.
    Wait(Timestamp),
    /// Evict the workload, after [`update_requeue_state`](super::update_requeue_state).
    Evict(EvictionStep),
    /// Deactivate it: it was put back too often.
    Deactivate(DeactivationCause),
}

/// What is to be done about the workload's pods.
pub fn pods_ready_step(workload: &Workload, config: Option<&WaitForPodsReady>, now: Timestamp) -> PodsReadyStep {
    let (Some((cause, until)), Some(config)) = (pods_ready_timeout(workload, config), config) else {
        return PodsReadyStep::None;
    };
    if until > now {
        return PodsReadyStep::Wait(until);
    }
    let count = workload.status.requeue_state.and_then(|s| s.count).unwrap_or(0);
    if config.backoff_limit_count.is_some_and(|limit| count.saturating_add(1) > limit) {
        return PodsReadyStep::Deactivate(DeactivationCause::RequeuingLimitExceeded);
    }
    PodsReadyStep::Evict(EvictionStep {
        reason: EvictionReason::PodsReadyTimeout,
        cause: cause.as_str().into(),
        message: format!("Exceeded the PodsReady timeout {}", workload.key).into(),
    })
}

#[cfg(test)]
mod tests {
    use slicegate_workload::RequeueState;

    use super::*;
    use crate::lifecycle::At;

    #[test]
    fn too_many_tries_end_in_deactivation() {
        let mut workload = Workload::default();
        let at = At { now: Timestamp::from_seconds(0), generation: 1 };
        at.set(&mut workload.status, ConditionType::Admitted, Status::True, "Admitted", "");
        let config =
            WaitForPodsReady { timeout_seconds: 10, backoff_limit_count: Some(1), ..WaitForPodsReady::default() };
        let step = |w: &Workload, now| pods_ready_step(w, Some(&config), Timestamp::from_seconds(now));
        assert_eq!(step(&workload, 9), PodsReadyStep::Wait(Timestamp::from_seconds(10)));
        let PodsReadyStep::Evict(eviction) = step(&workload, 10) else { panic!("it is not evicted") };
        assert_eq!((eviction.reason, &*eviction.cause), (EvictionReason::PodsReadyTimeout, "WaitForStart"));
        workload.status.requeue_state = Some(RequeueState { count: Some(1), requeue_at: None });
        assert_eq!(step(&workload, 10), PodsReadyStep::Deactivate(DeactivationCause::RequeuingLimitExceeded));
    }
}
