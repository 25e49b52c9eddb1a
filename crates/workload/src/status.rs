//! Where a workload stands: questions that its conditions and annotations answer.

use crate::{Condition, ConditionType, GatePosition, Timestamp, Workload};

/// The annotation that keeps a workload out of its queue as long as it is not empty.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// The annotation with a number that is added to the priority.
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// The annotation that names the flavors a workload may use, separated by commas.
pub const ALLOWED_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";

/// The word for where a workload stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// It waits.
    Pending,
    /// It holds quota but may not run yet.
    QuotaReserved,
    /// It may run.
    Admitted,
    /// It is over.
    Finished,
}

impl Stage {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::QuotaReserved => "quotaReserved",
            Self::Admitted => "admitted",
            Self::Finished => "finished",
        }
    }
}

/// From when an evicted workload waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RequeuingTimestamp {
    /// Since it was evicted.
    #[default]
    Eviction,
    /// Since it was created.
    Creation,
}

/// What decides since when a workload waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOrder {
    /// For workloads that were evicted because their pods were not ready in time.
    pub requeuing_timestamp: RequeuingTimestamp,
    /// Whether priority decides between ClusterQueues of a cohort. Without it a workload that was reclaimed while borrowing waits
    /// since then.
    pub priority_sorting_within_cohort: bool,
}

impl Default for QueueOrder {
    fn default() -> Self {
        Self { requeuing_timestamp: RequeuingTimestamp::default(), priority_sorting_within_cohort: true }
    }
}

impl Workload {
    fn has(&self, kind: &ConditionType) -> bool {
        self.status.conditions.is_true(kind)
    }

    fn true_for(&self, kind: &ConditionType, reason: &str) -> Option<&Condition> {
        self.status.conditions.get(kind).filter(|c| c.status == crate::Status::True && *c.reason == *reason)
    }

    /// Whether it may run at all.
    pub fn is_active(&self) -> bool {
        self.spec.active
    }

    /// Whether it is over.
    pub fn is_finished(&self) -> bool {
        self.has(&ConditionType::Finished)
    }

    /// Whether it holds quota.
    pub fn has_quota_reservation(&self) -> bool {
        self.has(&ConditionType::QuotaReserved)
    }

    /// Whether it counts against quota: it holds a reservation, is active and not finished.
    pub fn has_active_quota_reservation(&self) -> bool {
        self.has_quota_reservation() && self.is_active() && !self.is_finished()
    }

    /// Whether it may run.
    pub fn is_admitted(&self) -> bool {
        self.has(&ConditionType::Admitted)
    }

    /// Whether it is to stop.
    pub fn is_evicted(&self) -> bool {
        self.has(&ConditionType::Evicted)
    }

    /// Whether it was put aside until somebody takes it up again.
    pub fn is_on_hold(&self) -> bool {
        let reserved = self.status.conditions.get(&ConditionType::QuotaReserved);
        reserved.is_some_and(|c| c.status == crate::Status::False && *c.reason == *"OnHold")
    }

    /// Who keeps it out of its queue, if anybody does.
    pub fn admission_gated_by(&self) -> Option<&str> {
        self.annotations.get(ADMISSION_GATED_BY).map(|v| &**v).filter(|v| !v.is_empty())
    }

    /// Whether it may enter a queue. `admission_gates` says whether [`Workload::admission_gated_by`] is heeded.
    pub fn is_admissible(&self, admission_gates: bool) -> bool {
        let gated = admission_gates && self.admission_gated_by().is_some();
        !gated
            && !self.is_finished()
            && self.is_active()
            && !self.has_quota_reservation()
            && !self.is_on_hold()
            && !self.has(&ConditionType::WaitingForReplacementPods)
    }

    /// Where it stands, in a word.
    pub fn stage(&self) -> Stage {
        if self.is_finished() {
            Stage::Finished
        } else if self.is_admitted() {
            Stage::Admitted
        } else if self.has_quota_reservation() {
            Stage::QuotaReserved
        } else {
            Stage::Pending
        }
    }

    /// Whether a gate keeps it from preempting: one that is not known to be open.
    pub fn has_closed_preemption_gate(&self) -> bool {
        self.spec.preemption_gates.iter().any(|name| {
            let gate = self.status.preemption_gates.iter().find(|gate| gate.name == *name);
            gate.is_none_or(|gate| gate.position == GatePosition::Closed)
        })
    }

    /// The priority by which it is compared. With `boost` the annotation of that name is added; what is not a number counts as 0.
    pub fn effective_priority(&self, boost: bool) -> i64 {
        let boost = self.annotations.get(PRIORITY_BOOST).filter(|_| boost).and_then(|v| v.parse::<i32>().ok());
        i64::from(self.spec.priority).saturating_add(i64::from(boost.unwrap_or(0)))
    }

    /// Since when it waits in its queue.
    pub fn queue_order_timestamp(&self, order: QueueOrder) -> Timestamp {
        if order.requeuing_timestamp == RequeuingTimestamp::Eviction
            && let Some(evicted) = self.true_for(&ConditionType::Evicted, "PodsReadyTimeout")
        {
            return evicted.last_transition;
        }
        if let Some(evicted) = self.true_for(&ConditionType::Evicted, "AdmissionCheck") {
            return evicted.last_transition;
        }
        if !order.priority_sorting_within_cohort
            && let Some(preempted) = self.true_for(&ConditionType::Preempted, "InCohortReclaimWhileBorrowing")
        {
            // Just behind the workload that took its quota.
            return preempted.last_transition.plus_micros(1_000);
        }
        self.created
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PreemptionGate, Status};

    fn with(kind: ConditionType, status: Status, reason: &str) -> Workload {
        let mut workload = Workload { created: Timestamp::from_seconds(10), ..Workload::default() };
        workload.status.conditions.set(Condition {
            kind,
            status,
            reason: reason.into(),
            message: "".into(),
            last_transition: Timestamp::from_seconds(20),
            observed_generation: 0,
        });
        workload
    }

    #[test]
    fn stages_follow_from_conditions() {
        assert_eq!(Workload::default().stage(), Stage::Pending);
        assert_eq!(with(ConditionType::QuotaReserved, Status::True, "x").stage(), Stage::QuotaReserved);
        assert_eq!(with(ConditionType::Admitted, Status::True, "x").stage(), Stage::Admitted);
        assert_eq!(with(ConditionType::Finished, Status::True, "x").stage(), Stage::Finished);
        assert_eq!(with(ConditionType::Finished, Status::False, "x").stage(), Stage::Pending);
    }

    #[test]
    fn each_obstacle_keeps_a_workload_out_of_its_queue() {
        assert!(Workload::default().is_admissible(true));
        for (workload, what) in [
            (with(ConditionType::Finished, Status::True, "x"), "finished"),
            (with(ConditionType::QuotaReserved, Status::True, "x"), "reserved"),
            (with(ConditionType::QuotaReserved, Status::False, "OnHold"), "on hold"),
            (with(ConditionType::WaitingForReplacementPods, Status::True, "x"), "waiting for pods"),
        ] {
            assert!(!workload.is_admissible(true), "{what}");
        }
        assert!(with(ConditionType::QuotaReserved, Status::False, "Pending").is_admissible(true));
        let mut inactive = Workload::default();
        inactive.spec.active = false;
        assert!(!inactive.is_admissible(true));
        let mut gated = Workload::default();
        gated.annotations.insert(ADMISSION_GATED_BY.into(), "".into());
        assert!(gated.is_admissible(true), "an empty gate is no gate");
        gated.annotations.insert(ADMISSION_GATED_BY.into(), "somebody".into());
        assert!(!gated.is_admissible(true));
        assert!(gated.is_admissible(false));
    }

    #[test]
    fn a_boost_counts_only_if_it_is_a_number_and_wanted() {
        let mut workload = Workload::default();
        workload.spec.priority = i32::MAX;
        for (text, want) in [("10", 2_147_483_657), ("-3", 2_147_483_644), ("ten", 2_147_483_647), ("", 2_147_483_647)]
        {
            workload.annotations.insert(PRIORITY_BOOST.into(), text.into());
            assert_eq!(workload.effective_priority(true), want, "{text}");
            assert_eq!(workload.effective_priority(false), 2_147_483_647, "{text}");
        }
    }

    #[test]
    fn some_evictions_move_a_workload_back() {
        let eviction = QueueOrder::default();
        let creation = QueueOrder { requeuing_timestamp: RequeuingTimestamp::Creation, ..eviction };
        let unsorted = QueueOrder { priority_sorting_within_cohort: false, ..eviction };
        let at = Timestamp::from_seconds;
        let timeout = with(ConditionType::Evicted, Status::True, "PodsReadyTimeout");
        assert_eq!(timeout.queue_order_timestamp(eviction), at(20));
        assert_eq!(timeout.queue_order_timestamp(creation), at(10));
        let check = with(ConditionType::Evicted, Status::True, "AdmissionCheck");
        assert_eq!(check.queue_order_timestamp(creation), at(20));
        let past = with(ConditionType::Evicted, Status::False, "AdmissionCheck");
        assert_eq!(past.queue_order_timestamp(eviction), at(10));
        let reclaimed = with(ConditionType::Preempted, Status::True, "InCohortReclaimWhileBorrowing");
        assert_eq!(reclaimed.queue_order_timestamp(eviction), at(10));
        assert_eq!(reclaimed.queue_order_timestamp(unsorted), at(20).plus_micros(1_000));
    }

    #[test]
    fn a_gate_is_closed_until_it_is_known_to_be_open() {
        let mut workload = Workload::default();
        assert!(!workload.has_closed_preemption_gate());
        workload.spec.preemption_gates = vec!["g".into()];
        assert!(workload.has_closed_preemption_gate());
        let gate = |position| PreemptionGate { name: "g".into(), position, ..PreemptionGate::default() };
        workload.status.preemption_gates = vec![gate(GatePosition::Open)];
        assert!(!workload.has_closed_preemption_gate());
        workload.status.preemption_gates = vec![gate(GatePosition::Closed)];
        assert!(workload.has_closed_preemption_gate());
    }
}
