//! What a workload that waits says about itself.

use slicegate_workload::{ConditionType, Status, Workload, WorkloadStatus};

use super::{At, sync_admitted};
use crate::Gates;

/// How a queue stands, for a workload that waits in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum QueueFact {
    /// It takes workloads.
    #[default]
    Active,
    /// It does not.
    Inactive,
    /// It does not exist.
    Missing,
}

/// What is known about a workload that waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingFacts {
    /// Its LocalQueue.
    pub local_queue: QueueFact,
    /// The ClusterQueue that the LocalQueue leads to.
    pub cluster_queue: QueueFact,
    /// The name of that ClusterQueue.
    pub cluster_queue_name: Box<str>,
    /// Why its namespace or its requests forbid it to be admitted.
    pub inadmissible: Option<Box<str>>,
    /// The reason recorded for workloads just like it, if it is parked with them without having been looked at.
    pub parked_with: Option<Box<str>>,
}

/// Sets QuotaReserved to false with this reason and message and brings `Admitted` in line. Returns whether anything changed.
pub fn set_pending(status: &mut WorkloadStatus, reason: &str, message: &str, at: At, gates: &Gates) -> bool {
    let mut changed = at.set(status, ConditionType::QuotaReserved, Status::False, reason, message);
    changed |= sync_admitted(status, at, gates);
    changed
}

/// Brings the condition QuotaReserved of a workload without quota in line with what keeps it waiting. What the scheduler
/// wrote stays unless something weightier applies. Returns whether anything changed.
pub fn sync_pending(
    workload: &Workload,
    status: &mut WorkloadStatus,
    facts: &PendingFacts,
    at: At,
    gates: &Gates,
) -> bool {
    let queue = &workload.spec.queue_name;
    let cluster_queue = &facts.cluster_queue_name;
    let legacy = !gates.unadmitted_workloads_observability;
    let old = status.conditions.get(&ConditionType::QuotaReserved);
    let old_reason = old.filter(|c| c.status == Status::False).map(|c| c.reason.clone());
    let old_reason = old_reason.as_deref();
    let mut set = |reason: &str, old: &str, message: &str| {
        set_pending(status, if legacy { old } else { reason }, message, at, gates)
    };
    if !workload.spec.active {
        return set("Deactivated", "Pending", "The workload is deactivated");
    }
    if workload.is_on_hold() {
        return false;
    }
    match facts.local_queue {
        QueueFact::Missing => {
            return set("Misconfigured", "Inadmissible", &format!("LocalQueue {queue} doesn't exist"));
        }
        QueueFact::Inactive => return set("Suspended", "Inadmissible", &format!("LocalQueue {queue} is inactive")),
        QueueFact::Active => {}
    }
    match facts.cluster_queue {
        QueueFact::Missing => {
            return set("Misconfigured", "Inadmissible", &format!("ClusterQueue {cluster_queue} doesn't exist"));
        }
        QueueFact::Inactive => {
            return set("Suspended", "Inadmissible", &format!("ClusterQueue {cluster_queue} is inactive"));
        }
        QueueFact::Active => {}
    }
    if let Some(why) = &facts.inadmissible {
        return set("Misconfigured", "Inadmissible", why);
    }
    if let Some(gate) = workload.admission_gated_by().filter(|_| gates.admission_gated_by) {
        return set("AdmissionGated", "AdmissionGated", &format!("Admission is gated by: {gate}"));
    }
    if legacy {
        return false;
    }
    if let Some(reason) = &facts.parked_with
        && matches!(old_reason, None | Some("Deactivated" | "PendingEvaluation" | "Suspended" | "Pending"))
    {
        let message = "Bypassed scheduling evaluation because an equivalent workload recently failed";
        return set(reason, reason, message);
    }
    match old_reason {
        Some(
            "NoMatchingFlavor"
            | "WaitingForQuota"
            | "ExceedsMaxQuota"
            | "TopologyPlacementFailed"
            | "WaitingForPreemptedWorkloads"
            | "WaitingForPodsReady"
            | "PendingEvaluation",
        ) => false,
        None if !gates.unadmitted_workloads_explicit_status => false,
        _ => set("PendingEvaluation", "Pending", "Workload is pending evaluation in the scheduling queue"),
    }
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{ADMISSION_GATED_BY, Timestamp};

    use super::*;

    const AT: At = At { now: Timestamp::from_seconds(0), generation: 1 };

    fn told(workload: &Workload, facts: &PendingFacts) -> Option<(String, String)> {
        let mut status = workload.status.clone();
        sync_pending(workload, &mut status, facts, AT, &Gates::default());
        let condition = status.conditions.get(&ConditionType::QuotaReserved)?;
        Some((condition.reason.to_string(), condition.message.to_string()))
    }

    #[test]
    fn the_weightiest_reason_is_told() {
        let mut workload = Workload::default();
        workload.spec.queue_name = "lq".into();
        let mut facts = PendingFacts { cluster_queue_name: "cq".into(), ..PendingFacts::default() };
        let tell = |w: &Workload, f: &PendingFacts| told(w, f).unwrap();
        assert_eq!(told(&workload, &facts), None, "a fresh workload is not stamped");
        workload.annotations.insert(ADMISSION_GATED_BY.into(), "example.com/gate".into());
        assert_eq!(tell(&workload, &facts).1, "Admission is gated by: example.com/gate");
        facts.inadmissible = Some("requests above limits".into());
        assert_eq!(tell(&workload, &facts), ("Misconfigured".into(), "requests above limits".into()));
        facts.cluster_queue = QueueFact::Inactive;
        assert_eq!(tell(&workload, &facts), ("Suspended".into(), "ClusterQueue cq is inactive".into()));
        facts.cluster_queue = QueueFact::Missing;
        assert_eq!(tell(&workload, &facts), ("Misconfigured".into(), "ClusterQueue cq doesn't exist".into()));
        facts.local_queue = QueueFact::Inactive;
        assert_eq!(tell(&workload, &facts), ("Suspended".into(), "LocalQueue lq is inactive".into()));
        facts.local_queue = QueueFact::Missing;
        assert_eq!(tell(&workload, &facts), ("Misconfigured".into(), "LocalQueue lq doesn't exist".into()));
        workload.spec.active = false;
        assert_eq!(tell(&workload, &facts).0, "Deactivated");
    }

    #[test]
    fn what_a_cycle_wrote_stays() {
        let mut workload = Workload::default();
        let facts = PendingFacts { parked_with: Some("ExceedsMaxQuota".into()), ..PendingFacts::default() };
        set_pending(&mut workload.status, "WaitingForQuota", "short", AT, &Gates::default());
        assert_eq!(told(&workload, &facts), Some(("WaitingForQuota".into(), "short".into())));
        set_pending(&mut workload.status, "Suspended", "stopped", AT, &Gates::default());
        assert_eq!(told(&workload, &facts).unwrap().0, "ExceedsMaxQuota");
        assert_eq!(told(&workload, &PendingFacts::default()).unwrap().0, "PendingEvaluation");
    }
}
