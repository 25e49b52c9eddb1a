//! Admission checks.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_workload::{
    Admission, AdmissionCheckRule, CheckState, CheckStatus, ClusterQueueSpec, ConditionType, RequeueState, Status,
    Timestamp, WorkloadStatus,
};

/// The checks of a ClusterQueue that a workload must pass: with quota those for one of its flavors, without it those for
/// every flavor of the ClusterQueue.
pub fn required_checks(queue: &ClusterQueueSpec, admission: Option<&Admission>) -> BTreeSet<Box<str>> {
    if queue.admission_checks.is_empty() {
        return BTreeSet::new();
    }
    let all: BTreeSet<&str> = queue.resource_groups.iter().flat_map(|g| g.flavors.iter().map(|f| &*f.name)).collect();
    let assigned: Option<BTreeSet<&str>> =
        admission.map(|a| a.pod_set_assignments.iter().flat_map(|p| p.flavors.values().map(|f| &**f)).collect());
    let mut merged: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for AdmissionCheckRule { name, on_flavors } in &queue.admission_checks {
        let flavors = merged.entry(name).or_default();
        if on_flavors.is_empty() {
            flavors.extend(&all);
        } else {
            flavors.extend(on_flavors.iter().map(|f| &**f));
        }
    }
    let applies = |flavors: &BTreeSet<&str>| match &assigned {
        Some(assigned) => flavors.intersection(assigned).next().is_some(),
        None => all.is_subset(flavors),
    };
    merged.iter().filter(|(_, flavors)| applies(flavors)).map(|(&name, _)| name.into()).collect()
}

/// Whether every one of these checks has a state.
pub fn checks_cover(states: &[CheckStatus], required: &BTreeSet<Box<str>>) -> bool {
    required.iter().all(|name| states.iter().any(|s| s.name == *name))
}

/// Gives every required check a state, pending at first, drops the others and sorts by name. Returns whether anything
/// changed.
pub fn sync_checks(states: &mut Vec<CheckStatus>, required: &BTreeSet<Box<str>>, now: Timestamp) -> bool {
    let before = states.len();
    states.retain(|s| required.contains(&s.name));
    let mut changed = states.len() != before;
    for name in required {
        if !states.iter().any(|s| s.name == *name) {
            states.push(CheckStatus { name: name.clone(), last_transition: now.truncated(), ..CheckStatus::default() });
            changed = true;
        }
    }
    states.sort_by(|a, b| a.name.cmp(&b.name));
    changed
}

/// What the checks ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckVerdict {
    /// Nothing: all are pending or ready.
    None,
    /// The workload is to be deactivated.
    Rejected {
        /// The message of the condition `DeactivationTarget`.
        message: Box<str>,
    },
    /// The workload is to be evicted and tried again.
    Retry {
        /// The message of the condition `Evicted`.
        message: Box<str>,
    },
}

/// What the states of the checks ask for. A rejection outweighs a retry.
pub fn check_verdict(status: &WorkloadStatus) -> CheckVerdict {
    if let Some(message) = list(status, CheckState::Rejected) {
        CheckVerdict::Rejected { message: message.into() }
    } else if let Some(message) = list(status, CheckState::Retry) {
        CheckVerdict::Retry { message: format!("Evicted due to {message}").into() }
    } else {
        CheckVerdict::None
    }
}

fn list(status: &WorkloadStatus, state: CheckState) -> Option<String> {
    let mut found: Vec<&CheckStatus> = status.admission_checks.iter().filter(|c| c.state == state).collect();
    if found.is_empty() {
        return None;
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let plural = if found.len() > 1 { "s" } else { "" };
    let parts: Vec<String> =
        found
            .iter()
            .map(|c| {
                if c.message.is_empty() { format!("\"{}\"", c.name) } else { format!("\"{}\" ({})", c.name, c.message) }
            })
            .collect();
    Some(format!("AdmissionCheck{plural} in {} state: {}", state.as_str(), parts.join("; ")))
}

/// The latest time before which a check that wants another try does not want it.
pub fn latest_retry(status: &WorkloadStatus) -> Option<Timestamp> {
    status
        .admission_checks
        .iter()
        .filter(|c| c.state == CheckState::Retry && c.last_transition > Timestamp::MIN)
        .filter_map(|c| c.requeue_after_seconds.map(|s| c.last_transition.plus_seconds(i64::from(s))))
        .max()
}

/// Moves the end of the back-off to where the checks want it, never back. Returns whether it moved.
pub fn apply_retry_delay(status: &mut WorkloadStatus, now: Timestamp) -> bool {
    let Some(until) = latest_retry(status).filter(|&t| t > now) else { return false };
    let state = status.requeue_state.get_or_insert(RequeueState::default());
    if state.requeue_at.is_some_and(|old| old >= until) {
        return false;
    }
    state.requeue_at = Some(until);
    true
}

/// Sets every decided check back to pending, as an eviction does.
pub(super) fn reset_checks(status: &mut WorkloadStatus, now: Timestamp) {
    for check in &mut status.admission_checks {
        if check.state == CheckState::Pending {
            continue;
        }
        check.retry_count = if check.state == CheckState::Retry {
            Some(check.retry_count.unwrap_or(0).saturating_add(1))
        } else {
            None
        };
        check.message = format!("Reset to Pending after eviction. Previously: {}", check.state.as_str()).into();
        check.state = CheckState::Pending;
        check.last_transition = now.truncated();
        check.pod_set_updates.clear();
    }
}

/// Sets checks that want another try back to pending where the try is already on its way: a check may ask for one after the
/// eviction that another check asked for, or after quota was given back since a queue was stopped, and nobody would answer it.
/// Returns whether there were any.
pub fn restart_late_checks(status: &mut WorkloadStatus, now: Timestamp) -> bool {
    let quota = status.conditions.get(&ConditionType::QuotaReserved).map(|c| c.status);
    // One that says nothing of its quota yet was not given any.
    let gave_back =
        quota == Some(Status::False) || quota.is_none() && status.conditions.is_true(&ConditionType::Evicted);
    let waits = gave_back && status.admission_checks.iter().any(|c| c.state == CheckState::Retry);
    if waits {
        reset_checks(status, now);
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, state: CheckState, message: &str, after: Option<i32>) -> CheckStatus {
        CheckStatus {
            name: name.into(),
            state,
            message: message.into(),
            last_transition: Timestamp::from_seconds(100),
            requeue_after_seconds: after,
            ..CheckStatus::default()
        }
    }

    fn status(checks: Vec<CheckStatus>) -> WorkloadStatus {
        WorkloadStatus { admission_checks: checks, ..WorkloadStatus::default() }
    }

    #[test]
    fn a_rejection_outweighs_a_retry() {
        let retry = check("b", CheckState::Retry, "", None);
        let both = status(vec![retry.clone(), check("a", CheckState::Rejected, "no", None)]);
        let message = r#"AdmissionCheck in Rejected state: "a" (no)"#.into();
        assert_eq!(check_verdict(&both), CheckVerdict::Rejected { message });
        let two = status(vec![retry, check("a", CheckState::Retry, "later", None)]);
        let message = r#"Evicted due to AdmissionChecks in Retry state: "a" (later); "b""#.into();
        assert_eq!(check_verdict(&two), CheckVerdict::Retry { message });
        assert_eq!(check_verdict(&status(vec![check("a", CheckState::Ready, "", None)])), CheckVerdict::None);
    }

    #[test]
    fn a_delay_moves_only_forward() {
        let mut status =
            status(vec![check("a", CheckState::Retry, "", Some(60)), check("b", CheckState::Retry, "", Some(30))]);
        let now = Timestamp::from_seconds(110);
        assert!(apply_retry_delay(&mut status, now));
        assert_eq!(status.requeue_state.unwrap().requeue_at, Some(Timestamp::from_seconds(160)));
        assert_eq!(status.requeue_state.unwrap().count, None, "a check is not a failed try");
        status.requeue_state = Some(RequeueState { count: None, requeue_at: Some(Timestamp::from_seconds(500)) });
        assert!(!apply_retry_delay(&mut status, now));
        assert!(!apply_retry_delay(&mut status, Timestamp::from_seconds(200)), "that time has passed");
    }

    #[test]
    fn an_eviction_starts_checks_over() {
        let mut status = status(vec![
            check("a", CheckState::Retry, "later", Some(60)),
            check("b", CheckState::Ready, "", None),
            check("c", CheckState::Pending, "working", None),
        ]);
        status.admission_checks[0].retry_count = Some(1);
        reset_checks(&mut status, Timestamp::from_seconds(200));
        let told: Vec<(&str, Option<i32>)> =
            status.admission_checks.iter().map(|c| (&*c.message, c.retry_count)).collect();
        assert_eq!(
            told,
            [
                ("Reset to Pending after eviction. Previously: Retry", Some(2)),
                ("Reset to Pending after eviction. Previously: Ready", None),
                ("working", None),
            ]
        );
        assert!(status.admission_checks.iter().all(|c| c.state == CheckState::Pending));
        assert_eq!(status.admission_checks[0].requeue_after_seconds, Some(60));
    }
}
