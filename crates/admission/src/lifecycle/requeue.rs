//! Coming back into the queue.

use slicegate_workload::{
    ConditionType, Conditions, RequeueState, Status, StopPolicy, Timestamp, Workload, WorkloadStatus,
};

use super::At;
use crate::{Gates, WaitForPodsReady};

/// Whether the workload may compete, as far as its back-off is concerned. Times are compared in whole seconds.
pub fn backoff_expired(status: &WorkloadStatus, now: Timestamp) -> bool {
    may_compete(&status.conditions, status.requeue_state, now)
}

pub(crate) fn may_compete(conditions: &Conditions, state: Option<RequeueState>, now: Timestamp) -> bool {
    !conditions.is_false(&ConditionType::Requeued)
        && state.and_then(|s| s.requeue_at).is_none_or(|at| now.truncated() >= at.truncated())
}

/// The wait before try number `count` (from 1), in microseconds: the base, doubled every time, not above the longest, and up
/// to a ten-thousandth more, by the workload's id, so that workloads that failed together do not come back together.
pub fn backoff_micros(count: i32, uid: &str, config: &WaitForPodsReady) -> i64 {
    let base = i64::from(config.backoff_base_seconds).saturating_mul(1_000_000);
    let max = i64::from(config.backoff_max_seconds).saturating_mul(1_000_000);
    let mut wait = base;
    for _ in 1..count.max(1) {
        wait = wait.saturating_mul(2).min(max);
        if wait >= max {
            break;
        }
    }
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in uid.bytes().chain(count.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let millionths = i64::try_from(hash % 100).unwrap_or(0);
    wait.saturating_add((wait / 1_000_000).saturating_mul(millionths))
}

/// Moves the end of the back-off to `until`, unless it is later already, and counts the try if `increment`. Returns whether
/// anything changed.
pub fn set_requeue_state(status: &mut WorkloadStatus, until: Timestamp, increment: bool) -> bool {
    let old = status.requeue_state;
    let mut state = old.unwrap_or_default();
    if state.requeue_at.is_none_or(|at| at < until) {
        state.requeue_at = Some(until);
    }
    if increment {
        state.count = Some(state.count.unwrap_or(0).saturating_add(1));
    }
    status.requeue_state = Some(state);
    old != Some(state)
}

/// Counts one more try after pods did not become ready, and sets the end of the wait before it.
pub fn update_requeue_state(status: &mut WorkloadStatus, uid: &str, config: &WaitForPodsReady, now: Timestamp) {
    let count = status.requeue_state.and_then(|s| s.count).unwrap_or(0).saturating_add(1);
    let until = now.plus_micros(backoff_micros(count, uid, config));
    set_requeue_state(status, until.truncated(), true);
}

/// How the queues of a workload stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequeueFacts {
    /// The stop policy of its ClusterQueue, if that exists.
    pub cluster_queue: Option<StopPolicy>,
    /// The stop policy of its LocalQueue, if that exists.
    pub local_queue: Option<StopPolicy>,
}

/// What becomes of a workload that was put aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requeue {
    /// Nothing.
    None,
    /// It waits until then.
    Wait(Timestamp),
    /// Its status changed: it may compete again.
    Changed,
}

/// Lets a workload that was put aside compete again once what it waited for has happened.
pub fn requeue(
    workload: &Workload,
    status: &mut WorkloadStatus,
    facts: RequeueFacts,
    at: At,
    gates: &Gates,
) -> Requeue {
    if !workload.spec.active || status.conditions.is_true(&ConditionType::Finished) {
        return Requeue::None;
    }
    let waiting = status.requeue_state.and_then(|s| s.requeue_at).filter(|&t| t.truncated() > at.now.truncated());
    let blocked = status.conditions.get(&ConditionType::Requeued).filter(|c| c.status == Status::False);
    let Some(blocked) = blocked else {
        if let Some(until) = waiting {
            return Requeue::Wait(until);
        }
        if status.requeue_state.is_some_and(|s| s.requeue_at.is_some())
            && workload.is_admissible(gates.admission_gated_by)
        {
            clear_requeue_at(status);
            return Requeue::Changed;
        }
        return Requeue::None;
    };
    let (reason, message) = match &*blocked.reason {
        "PodsReadyTimeout" | "AdmissionCheck" => {
            if let Some(until) = waiting {
                return Requeue::Wait(until);
            }
            clear_requeue_at(status);
            ("BackoffFinished", "The workload backoff was finished")
        }
        "ClusterQueueStopped" if facts.cluster_queue == Some(StopPolicy::None) => {
            ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped")
        }
        "LocalQueueStopped" if facts.local_queue == Some(StopPolicy::None) => {
            ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped")
        }
        // Kueue takes only the bare word here, so that a workload deactivated for a cause stays blocked for ever.
        reason if reason.starts_with("Deactivated") => ("Reactivated", "The workload was reactivated"),
        _ => return waiting.map_or(Requeue::None, Requeue::Wait),
    };
    at.set(status, ConditionType::Requeued, Status::True, reason, message);
    Requeue::Changed
}

fn clear_requeue_at(status: &mut WorkloadStatus) {
    if let Some(state) = &mut status.requeue_state {
        state.requeue_at = None;
        if *state == RequeueState::default() {
            status.requeue_state = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> At {
        At { now: Timestamp::from_seconds(seconds), generation: 1 }
    }

    fn blocked(reason: &str) -> Workload {
        let mut workload = Workload::default();
        at(0).set(&mut workload.status, ConditionType::Requeued, Status::False, reason, "");
        workload
    }

    fn step(workload: &Workload, facts: RequeueFacts, seconds: i64) -> (Requeue, WorkloadStatus) {
        let mut status = workload.status.clone();
        (requeue(workload, &mut status, facts, at(seconds), &Gates::default()), status)
    }

    fn reason(status: &WorkloadStatus) -> &str {
        &status.conditions.get(&ConditionType::Requeued).unwrap().reason
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let config = WaitForPodsReady { backoff_max_seconds: 300, ..WaitForPodsReady::default() };
        let seconds: Vec<i64> = (1..=5).map(|n| backoff_micros(n, "uid", &config) / 1_000_000).collect();
        assert_eq!(seconds, [60, 120, 240, 300, 300]);
        // Two that failed together do not come back together, but nearly.
        let spread: Vec<i64> = ["a", "b", "c"].map(|uid| backoff_micros(5, uid, &config)).into();
        assert!(spread.iter().all(|&w| (300_000_000..300_030_000).contains(&w)), "{spread:?}");
        assert!(spread[0] != spread[1] || spread[1] != spread[2]);
        assert!(backoff_micros(i32::MAX, "uid", &config) < 301_000_000);
    }

    #[test]
    fn the_first_wait_is_the_base_even_if_that_is_longer() {
        let config =
            WaitForPodsReady { backoff_base_seconds: 90, backoff_max_seconds: 60, ..WaitForPodsReady::default() };
        assert_eq!(backoff_micros(1, "uid", &config) / 1_000_000, 90);
    }

    #[test]
    fn a_backoff_ends() {
        let mut workload = blocked("PodsReadyTimeout");
        workload.status.requeue_state =
            Some(RequeueState { count: Some(2), requeue_at: Some(Timestamp::from_seconds(60)) });
        assert_eq!(step(&workload, RequeueFacts::default(), 59).0, Requeue::Wait(Timestamp::from_seconds(60)));
        let (what, status) = step(&workload, RequeueFacts::default(), 60);
        assert_eq!((what, reason(&status)), (Requeue::Changed, "BackoffFinished"));
        assert_eq!(status.requeue_state, Some(RequeueState { count: Some(2), requeue_at: None }));
        assert!(!backoff_expired(&workload.status, Timestamp::from_seconds(100)), "the condition outweighs the time");
        assert!(backoff_expired(&status, Timestamp::from_seconds(60)));
    }

    #[test]
    fn a_restarted_queue_lets_its_workloads_go() {
        let stopped = RequeueFacts { cluster_queue: Some(StopPolicy::Hold), local_queue: None };
        let started = RequeueFacts { cluster_queue: Some(StopPolicy::None), local_queue: Some(StopPolicy::None) };
        let workload = blocked("ClusterQueueStopped");
        assert_eq!(step(&workload, stopped, 1).0, Requeue::None);
        assert_eq!(reason(&step(&workload, started, 1).1), "ClusterQueueRestarted");
        assert_eq!(reason(&step(&blocked("LocalQueueStopped"), started, 1).1), "LocalQueueRestarted");
    }

    #[test]
    fn a_reactivated_workload_competes_again() {
        for word in ["Deactivated", "DeactivatedDueToAdmissionCheck"] {
            let workload = blocked(word);
            assert_eq!(reason(&step(&workload, RequeueFacts::default(), 1).1), "Reactivated");
            let mut inactive = workload;
            inactive.spec.active = false;
            assert_eq!(step(&inactive, RequeueFacts::default(), 1).0, Requeue::None);
        }
    }
}
