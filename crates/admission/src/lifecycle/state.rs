//! Where a workload stands.

use slicegate_workload::{
    ConditionType, GatePosition, PreemptionGate, Timestamp, Workload, WorkloadSpec, WorkloadStatus,
};

use crate::Gates;

/// The annotation that lists gates which keep a workload out of its queue.
pub const ADMISSION_GATE_ANNOTATION: &str = "kueue.x-k8s.io/admission-gated-by";
/// The label that holds the unique id of the job.
pub const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

/// How far a workload got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// It holds no quota.
    Pending,
    /// It holds quota but may not run yet.
    QuotaReserved,
    /// It may run.
    Admitted,
    /// It is done.
    Finished,
}

impl Phase {
    /// The word that Kueue's tools and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::QuotaReserved => "quotaReserved",
            Self::Admitted => "admitted",
            Self::Finished => "finished",
        }
    }
}

/// How far the workload got.
pub fn phase(status: &WorkloadStatus) -> Phase {
    let c = &status.conditions;
    if c.is_true(&ConditionType::Finished) {
        Phase::Finished
    } else if c.is_true(&ConditionType::Admitted) {
        Phase::Admitted
    } else if c.is_true(&ConditionType::QuotaReserved) {
        Phase::QuotaReserved
    } else {
        Phase::Pending
    }
}

/// Whether the workload is being evicted, or was and holds no quota since.
pub fn is_evicted(status: &WorkloadStatus) -> bool {
    status.conditions.is_true(&ConditionType::Evicted)
}

/// Whether its job was scaled to zero.
pub fn is_on_hold(status: &WorkloadStatus) -> bool {
    status
        .conditions
        .get(&ConditionType::QuotaReserved)
        .is_some_and(|c| c.status == slicegate_workload::Status::False && &*c.reason == "OnHold")
}

/// The gates that keep the workload out of its queue, as the annotation names them.
pub fn admission_gate<'a>(workload: &'a Workload, gates: &Gates) -> Option<&'a str> {
    if !gates.admission_gated_by {
        return None;
    }
    workload.annotations.get(ADMISSION_GATE_ANNOTATION).map(|v| &**v).filter(|v| !v.is_empty())
}

/// Whether the workload may enter a queue.
pub fn is_admissible(workload: &Workload, gates: &Gates) -> bool {
    let c = &workload.status.conditions;
    admission_gate(workload, gates).is_none()
        && !c.is_true(&ConditionType::Finished)
        && workload.spec.active
        && !c.is_true(&ConditionType::QuotaReserved)
        && !is_on_hold(&workload.status)
        && !c.is_true(&ConditionType::WaitingForReplacementPods)
}

/// Whether the workload's quota counts: reserved, active and not finished.
pub fn holds_quota(workload: &Workload) -> bool {
    let c = &workload.status.conditions;
    c.is_true(&ConditionType::QuotaReserved) && workload.spec.active && !c.is_true(&ConditionType::Finished)
}

/// Whether one of the gates in the spec is closed; a gate without a state is.
pub fn has_closed_preemption_gate(spec: &WorkloadSpec, status: &WorkloadStatus) -> bool {
    spec.preemption_gates.iter().any(|name| {
        status.preemption_gates.iter().find(|g| g.name == *name).is_none_or(|g| g.position == GatePosition::Closed)
    })
}

/// Gives every gate of the spec a state, closed at first, and drops those that the spec no longer names. Returns whether
/// anything changed.
pub fn sync_preemption_gates(spec: &WorkloadSpec, status: &mut WorkloadStatus, now: Timestamp) -> bool {
    let before = status.preemption_gates.len();
    status.preemption_gates.retain(|g| spec.preemption_gates.contains(&g.name));
    let mut changed = status.preemption_gates.len() != before;
    for name in &spec.preemption_gates {
        if !status.preemption_gates.iter().any(|g| g.name == *name) {
            status.preemption_gates.push(PreemptionGate {
                name: name.clone(),
                position: GatePosition::Closed,
                last_transition: now.truncated(),
            });
            changed = true;
        }
    }
    changed
}
