//! The condition `Admitted`.

use slicegate_workload::{CheckState, ConditionType, Status, WorkloadStatus};

use super::At;
use crate::Gates;

/// Brings the condition `Admitted` in line with the reservation, the admission checks and the topology. When it becomes
/// false, the seconds it was true are added to the accumulated execution time. Returns whether it changed.
pub fn sync_admitted(status: &mut WorkloadStatus, at: At, gates: &Gates) -> bool {
    let granular = gates.unadmitted_workloads_observability;
    let reserved = status.conditions.is_true(&ConditionType::QuotaReserved);
    let checks_ready = status.admission_checks.iter().all(|c| c.state == CheckState::Ready);
    let topology_pending = status.admission.as_ref().is_some_and(|a| {
        a.pod_set_assignments
            .iter()
            .any(|p| p.topology_assignment.is_none() && p.delayed_topology_pending == Some(true))
    });
    let should = reserved && checks_ready && !topology_pending;
    let old = status.conditions.get(&ConditionType::Admitted);
    let was = old.is_some_and(|c| c.status == Status::True);
    if should {
        if was {
            return false;
        }
        return at.set(status, ConditionType::Admitted, Status::True, "Admitted", "The workload is admitted");
    }
    if granular {
        let stamped = old.is_some() || status.conditions.get(&ConditionType::QuotaReserved).is_some();
        if !stamped && !gates.unadmitted_workloads_explicit_status {
            return false;
        }
    } else if !was {
        return false;
    }
    let (reason, message) = match (reserved, checks_ready) {
        (false, false) if !granular => {
            ("NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready")
        }
        (false, _) => ("NoReservation", "The workload has no reservation"),
        (true, false) if granular => ("UnsatisfiedAdmissionChecks", "The workload has not all checks ready"),
        (true, false) => ("UnsatisfiedChecks", "The workload has not all checks ready"),
        (true, true) => ("PendingDelayedTopologyRequests", "There are pending delayed topology requests"),
    };
    if was && let Some(old) = old {
        let seconds = at.now.micros_since(old.last_transition) / 1_000_000;
        let past = status.accumulated_past_execution_time_seconds.unwrap_or(0);
        status.accumulated_past_execution_time_seconds =
            Some(past.saturating_add(i32::try_from(seconds.max(0)).unwrap_or(i32::MAX)));
    }
    at.set(status, ConditionType::Admitted, Status::False, reason, message)
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{CheckStatus, Timestamp};

    use super::*;

    fn at(seconds: i64) -> At {
        At { now: Timestamp::from_seconds(seconds), generation: 1 }
    }

    fn reserved() -> WorkloadStatus {
        let mut status = WorkloadStatus::default();
        at(0).set(&mut status, ConditionType::QuotaReserved, Status::True, "QuotaReserved", "");
        status
    }

    #[test]
    fn losing_a_check_takes_the_admission_back_and_counts_the_time() {
        let mut status = reserved();
        assert!(sync_admitted(&mut status, at(10), &Gates::default()));
        assert!(!sync_admitted(&mut status, at(11), &Gates::default()), "it is admitted already");
        status.admission_checks.push(CheckStatus { name: "check".into(), ..CheckStatus::default() });
        assert!(sync_admitted(&mut status, at(25), &Gates::default()));
        let admitted = status.conditions.get(&ConditionType::Admitted).unwrap();
        assert_eq!((admitted.status, &*admitted.reason), (Status::False, "UnsatisfiedAdmissionChecks"));
        assert_eq!(status.accumulated_past_execution_time_seconds, Some(15));
    }

    #[test]
    fn a_fresh_workload_is_not_stamped_unless_asked_for() {
        let mut status = WorkloadStatus::default();
        assert!(!sync_admitted(&mut status, at(0), &Gates::default()));
        let explicit = Gates { unadmitted_workloads_explicit_status: true, ..Gates::default() };
        assert!(sync_admitted(&mut status, at(0), &explicit));
    }

    #[test]
    fn a_time_that_is_too_long_is_as_long_as_can_be() {
        let mut status = WorkloadStatus::default();
        let beginning = At { now: Timestamp::MIN, generation: 1 };
        beginning.set(&mut status, ConditionType::Admitted, Status::True, "Admitted", "");
        sync_admitted(&mut status, at(0), &Gates::default());
        assert_eq!(status.accumulated_past_execution_time_seconds, Some(i32::MAX));
    }
}
