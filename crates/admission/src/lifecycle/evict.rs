//! Taking quota away.

use slicegate_workload::{
    CheckState, ConditionType, EvictionCount, GatePosition, Stage, Status, Timestamp, Workload, WorkloadStatus,
};

use super::{At, checks::reset_checks, sync_admitted};
use crate::{Event, EventType, Gates, PreemptionReason};

/// Why a workload is evicted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EvictionReason {
    /// Another workload takes its place.
    Preempted,
    /// Its pods did not become ready in time.
    PodsReadyTimeout,
    /// An admission check wants another try.
    AdmissionCheck,
    /// Its ClusterQueue was stopped.
    ClusterQueueStopped,
    /// Its LocalQueue was stopped.
    LocalQueueStopped,
    /// A node failed and there is no other.
    NodeFailures,
    /// It was deactivated.
    Deactivated,
    /// It moves to a better flavor.
    FlavorMigration,
    /// It was evicted on the cluster that manages this one.
    EvictedOnManagerCluster,
}

impl EvictionReason {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preempted => "Preempted",
            Self::PodsReadyTimeout => "PodsReadyTimeout",
            Self::AdmissionCheck => "AdmissionCheck",
            Self::ClusterQueueStopped => "ClusterQueueStopped",
            Self::LocalQueueStopped => "LocalQueueStopped",
            Self::NodeFailures => "NodeFailures",
            Self::Deactivated => "Deactivated",
            Self::FlavorMigration => "FlavorMigration",
            Self::EvictedOnManagerCluster => "EvictedOnManagerCluster",
        }
    }
}

/// An eviction to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvictionStep {
    /// Why.
    pub reason: EvictionReason,
    /// What lies behind it; may be empty.
    pub cause: Box<str>,
    /// The message of the condition `Evicted`.
    pub message: Box<str>,
}

impl EvictionStep {
    /// The reason of the condition `Evicted`: a deactivation names its cause.
    pub fn condition_reason(&self) -> String {
        if self.reason == EvictionReason::Deactivated && !self.cause.is_empty() {
            format!("DeactivatedDueTo{}", self.cause)
        } else {
            self.reason.as_str().to_owned()
        }
    }
}

/// Marks the workload as evicted. Its quota stays until [`release`]; its checks start over and its gates close.
pub fn evict(status: &mut WorkloadStatus, step: &EvictionStep, at: At) {
    at.set(status, ConditionType::Evicted, Status::True, &step.condition_reason(), &step.message);
    status.cluster_name = None;
    status.nominated_cluster_names.clear();
    reset_checks(status, at.now);
    status.unhealthy_nodes.clear();
    if let Some(old) = status.conditions.get(&ConditionType::BlockedOnPreemptionGates)
        && old.status == Status::True
    {
        let message = format!("Previously: {}", old.message);
        let reason = old.reason.clone();
        at.set(status, ConditionType::BlockedOnPreemptionGates, Status::False, &reason, &message);
    }
    for gate in &mut status.preemption_gates {
        if gate.position == GatePosition::Open {
            gate.position = GatePosition::Closed;
            gate.last_transition = at.now.truncated();
        }
    }
    let reason = step.reason.as_str();
    match status.evictions.iter_mut().find(|e| &*e.reason == reason && e.underlying_cause == step.cause) {
        Some(e) => e.count = e.count.saturating_add(1),
        None => status.evictions.push(EvictionCount {
            reason: reason.into(),
            underlying_cause: step.cause.clone(),
            count: 1,
        }),
    }
}

/// [`evict`] for the sake of another workload, which also sets the condition `Preempted`.
pub fn preempt(status: &mut WorkloadStatus, reason: PreemptionReason, message: &str, at: At) {
    let step = EvictionStep { reason: EvictionReason::Preempted, cause: Box::default(), message: message.into() };
    evict(status, &step, at);
    at.set(status, ConditionType::Preempted, Status::True, reason.as_str(), message);
}

/// The event that tells of an eviction.
pub fn eviction_event(workload: &Workload, step: &EvictionStep) -> Event {
    Event {
        object: workload.key.clone(),
        kind: EventType::Normal,
        reason: format!("EvictedDueTo{}", step.condition_reason()).into(),
        note: crate::message::note(&step.message),
    }
}

/// Gives the quota of an evicted workload back, once nothing of its job runs any more: the condition `Requeued` tells whether
/// it competes again at once, the reservation goes, and checks that were refused since the eviction start over: they would keep
/// it out of its queue for ever. Returns whether anything changed; a workload that is not evicted
/// stays as it is.
pub fn release(workload: &Workload, status: &mut WorkloadStatus, at: At, gates: &Gates) -> bool {
    let Some(evicted) = status.conditions.get(&ConditionType::Evicted).filter(|c| c.status == Status::True) else {
        return false;
    };
    let (reason, message) = (evicted.reason.clone(), evicted.message.clone());
    let at_once = matches!(&*reason, "Preempted" | "NodeFailures")
        && !(gates.skip_reassignment_for_pod_owned_workloads && workload.owned_by_pod);
    let value = if at_once { Status::True } else { Status::False };
    let mut changed = at.set(status, ConditionType::Requeued, value, &reason, &message);
    if status.conditions.is_true(&ConditionType::QuotaReserved) || status.admission.is_some() {
        let word = if gates.unadmitted_workloads_observability { "PendingEvaluation" } else { "Pending" };
        changed |= at.set(status, ConditionType::QuotaReserved, Status::False, word, &message);
        status.admission = None;
        if status.admission_checks.iter().any(|c| matches!(c.state, CheckState::Retry | CheckState::Rejected)) {
            reset_checks(status, at.now);
        }
        changed |= sync_admitted(status, at, gates);
    }
    changed
}

/// The ClusterQueue that a workload was evicted from, the reason, and the seconds it took from the eviction to the loss of
/// quota, when `new` is the first state without it.
pub fn eviction_pending_latency(old: &Workload, new: &Workload, now: Timestamp) -> Option<(Box<str>, Box<str>, i64)> {
    if new.stage() != Stage::Pending || !matches!(old.stage(), Stage::QuotaReserved | Stage::Admitted) {
        return None;
    }
    let evicted = new.status.conditions.get(&ConditionType::Evicted).filter(|c| c.status == Status::True)?;
    let queue = old.status.admission.as_ref().map(|a| a.cluster_queue.clone()).filter(|q| !q.is_empty())?;
    Some((queue, evicted.reason.clone(), now.micros_since(evicted.last_transition) / 1_000_000))
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{Admission, CheckStatus, PreemptionGate};

    use super::*;
    use crate::lifecycle::set_quota_reservation;

    fn at(seconds: i64) -> At {
        At { now: Timestamp::from_seconds(seconds), generation: 1 }
    }

    fn running() -> Workload {
        let mut workload = Workload::default();
        let admission = Admission { cluster_queue: "cq".into(), ..Admission::default() };
        set_quota_reservation(&mut workload.status, admission, at(0));
        sync_admitted(&mut workload.status, at(0), &Gates::default());
        workload
    }

    #[test]
    fn quota_is_held_until_the_job_has_stopped() {
        let mut workload = running();
        preempt(&mut workload.status, PreemptionReason::InClusterQueue, "make room", at(5));
        assert!(workload.has_quota_reservation() && workload.is_evicted());
        let mut status = workload.status.clone();
        assert!(release(&workload, &mut status, at(9), &Gates::default()));
        assert_eq!(status.admission, None);
        let told = |kind| status.conditions.get(&kind).map(|c| (c.status, &*c.reason, &*c.message));
        assert_eq!(told(ConditionType::QuotaReserved), Some((Status::False, "PendingEvaluation", "make room")));
        assert_eq!(told(ConditionType::Requeued), Some((Status::True, "Preempted", "make room")));
        assert!(status.conditions.is_false(&ConditionType::Admitted));
        assert_eq!(status.accumulated_past_execution_time_seconds, Some(9));
        workload.status = status;
        let mut again = workload.status.clone();
        assert!(!release(&workload, &mut again, at(12), &Gates::default()), "nothing is left to give back");
    }

    /// Somebody answers a check while the eviction is under way.
    #[test]
    fn a_check_that_is_refused_during_an_eviction_starts_over() {
        for state in [CheckState::Retry, CheckState::Rejected] {
            let mut workload = running();
            preempt(&mut workload.status, PreemptionReason::InClusterQueue, "make room", at(5));
            workload.status.admission_checks =
                vec![CheckStatus { name: "check".into(), state, ..CheckStatus::default() }];
            let mut status = workload.status.clone();
            release(&workload, &mut status, at(9), &Gates::default());
            assert_eq!(status.admission_checks[0].state, CheckState::Pending, "{state:?}");
        }
    }

    #[test]
    fn a_workload_of_a_single_pod_does_not_come_back_by_itself() {
        let mut workload = Workload { owned_by_pod: true, ..running() };
        preempt(&mut workload.status, PreemptionReason::InClusterQueue, "make room", at(5));
        let mut status = workload.status.clone();
        release(&workload, &mut status, at(9), &Gates::default());
        assert!(status.conditions.is_false(&ConditionType::Requeued));
    }

    #[test]
    fn an_eviction_counts_and_closes_gates() {
        let mut status = running().status;
        status.cluster_name = Some("worker".into());
        status.unhealthy_nodes = vec!["n".into()];
        status.preemption_gates = vec![PreemptionGate { position: GatePosition::Open, ..PreemptionGate::default() }];
        let step = EvictionStep {
            reason: EvictionReason::Deactivated,
            cause: "AdmissionCheck".into(),
            message: "The workload is deactivated".into(),
        };
        evict(&mut status, &step, at(1));
        evict(&mut status, &step, at(2));
        assert_eq!(&*status.conditions.get(&ConditionType::Evicted).unwrap().reason, "DeactivatedDueToAdmissionCheck");
        let count = &status.evictions[0];
        assert_eq!((&*count.reason, &*count.underlying_cause, count.count), ("Deactivated", "AdmissionCheck", 2));
        assert_eq!((status.cluster_name, status.unhealthy_nodes.len()), (None, 0));
        assert_eq!(status.preemption_gates[0].position, GatePosition::Closed);
        assert_eq!(&*eviction_event(&Workload::default(), &step).reason, "EvictedDueToDeactivatedDueToAdmissionCheck");
    }

    #[test]
    fn the_next_reservation_puts_an_eviction_behind() {
        let mut status = running().status;
        preempt(&mut status, PreemptionReason::InCohortReclamation, "make room", at(5));
        set_quota_reservation(&mut status, Admission::default(), at(20));
        for kind in [ConditionType::Evicted, ConditionType::Preempted] {
            let condition = status.conditions.get(&kind).unwrap();
            assert_eq!((condition.status, &*condition.message), (Status::False, "Previously: make room"));
        }
    }
}
