//! What a JobSet does when a Job fails.

use std::sync::Arc;

use serde_json::Value;
use slicegate_api::Job;
use slicegate_api::jobset::FailurePolicy;
use slicegate_workload::Timestamp;

use super::jobset::replicated_job;
use crate::store::sim_time;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The JobSet fails.
    Fail,
    /// All Jobs are made anew, unless that was done too often.
    Restart,
    /// All Jobs are made anew, which does not count.
    RestartAndIgnoreMaxRestarts,
}

/// A decision on a failed Job.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Decision {
    pub(crate) action: Action,
    /// The rule that says so; `None` where none applies.
    pub(crate) rule: Option<String>,
    /// The first Job that failed, of those that the rule is about.
    pub(crate) job: String,
    /// Why it failed.
    pub(crate) reason: String,
}

fn failed_at(job: &Job) -> (Option<Timestamp>, &str, &str) {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let failed = conditions.into_iter().find(|c| c.type_ == "Failed" && c.status == "True");
    failed.map_or((None, "", ""), |c| {
        let (reason, message) = (c.reason.as_deref(), c.message.as_deref());
        (c.last_transition_time.as_ref().map(sim_time), reason.unwrap_or_default(), message.unwrap_or_default())
    })
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    rule.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The Job that failed first; of several at one moment the first in order.
fn first<'a>(jobs: impl Iterator<Item = &'a Arc<Job>>) -> Option<&'a Arc<Job>> {
    jobs.min_by_key(|job| failed_at(job).0)
}

/// What the failure policy says of failed Jobs: the first rule, in order, that applies to any of them; else a restart.
/// `None` if no Job has failed.
///
/// A rule applies to Jobs of its `targetReplicatedJobs` (all if it names none) that failed for one of its
/// `onJobFailureReasons` (any if it names none) with a message that one of its `onJobFailureMessagePatterns` matches.
pub(crate) fn decide(policy: &FailurePolicy, failed: &[Arc<Job>]) -> Option<Decision> {
    let decision = |job: &Arc<Job>, action, rule: Option<&Value>| Decision {
        action,
        rule: rule.map(|rule| rule.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()),
        job: job.metadata.name.clone().unwrap_or_default(),
        reason: failed_at(job).1.to_owned(),
    };
    for rule in policy.other.get("rules").and_then(Value::as_array).into_iter().flatten() {
        let targets = texts(rule, "targetReplicatedJobs");
        let reasons = texts(rule, "onJobFailureReasons");
        let patterns = texts(rule, "onJobFailureMessagePatterns");
        let found = first(failed.iter().filter(|job| {
            let (_, reason, message) = failed_at(job);
            (targets.is_empty() || targets.contains(&replicated_job(job)))
                && (reasons.is_empty() || reasons.contains(&reason))
                && (patterns.is_empty()
                    || patterns
                        .iter()
                        .any(|p| regex_lite::Regex::new(p).is_ok_and(|pattern| pattern.is_match(message))))
        }));
        if let Some(job) = found {
            let action = match rule.get("action").and_then(Value::as_str) {
                Some("FailJobSet") => Action::Fail,
                Some("RestartJobSetAndIgnoreMaxRestarts" | "RestartJobAndIgnoreMaxRestarts") => {
                    Action::RestartAndIgnoreMaxRestarts
                }
                _ => Action::Restart,
            };
            return Some(decision(job, action, Some(rule)));
        }
    }
    first(failed.iter()).map(|job| decision(job, Action::Restart, None))
}

/// An action of the policy that makes one Job anew, if it has one: such are taken for restarts of the whole JobSet.
pub(crate) fn restarts_one_job(policy: &FailurePolicy) -> Option<&str> {
    let rules = policy.other.get("rules").and_then(Value::as_array).into_iter().flatten();
    let mut actions = rules.filter_map(|rule| rule.get("action").and_then(Value::as_str));
    actions.find(|action| matches!(*action, "RestartJob" | "RestartJobAndIgnoreMaxRestarts"))
}

/// The name of the Job that failed first.
pub(crate) fn first_failed(failed: &[Arc<Job>]) -> Option<String> {
    first(failed.iter()).map(|job| job.metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(name: &str, group: &str, second: u32, reason: &str, message: &str) -> Arc<Job> {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        let job = json!({
            "metadata": {"name": name, "labels": {"jobset.sigs.k8s.io/replicatedjob-name": group}},
            "status": {"conditions": [
                {"type": "Failed", "status": "True", "reason": reason, "message": message, "lastTransitionTime": time}
            ]}
        });
        Arc::new(serde_json::from_value(job).unwrap())
    }

    fn told(rules: &Value, failed: &[Arc<Job>]) -> (Action, Option<String>, String) {
        let policy: FailurePolicy = serde_json::from_value(json!({"maxRestarts": 3, "rules": rules})).unwrap();
        let decision = decide(&policy, failed).unwrap();
        (decision.action, decision.rule, decision.job)
    }

    #[test]
    fn the_first_rule_that_applies_decides() {
        let failed = [
            job("w-1", "worker", 5, "BackoffLimitExceeded", ""),
            job(
                "d-0",
                "driver",
                9,
                "PodFailurePolicy",
                "Container c for pod default/d failed with exit code 3 matching",
            ),
            job("w-0", "worker", 7, "PodFailurePolicy", ""),
        ];
        let rules = json!([
            {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
            {"name": "host", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"],
             "targetReplicatedJobs": ["worker"]},
            {"name": "any", "action": "FailJobSet"}
        ]);
        let (restart, ignore) = (Action::Restart, Action::RestartAndIgnoreMaxRestarts);
        assert_eq!(told(&rules, &failed), (ignore, Some("host".to_owned()), "w-0".to_owned()));
        assert_eq!(told(&rules, &failed[..2]), (Action::Fail, Some("any".to_owned()), "w-1".to_owned()));
        assert_eq!(told(&json!([]), &failed), (restart, None, "w-1".to_owned()), "the first to fail");
        let by_message =
            json!([{"name": "code", "action": "FailJobSet", "onJobFailureMessagePatterns": ["exit code (3|4) "]}]);
        assert_eq!(told(&by_message, &failed), (Action::Fail, Some("code".to_owned()), "d-0".to_owned()));
        assert_eq!(told(&by_message, &failed[..1]), (restart, None, "w-1".to_owned()));
    }

    #[test]
    fn restarts_of_one_job_are_known() {
        let of = |action: &str| -> FailurePolicy {
            serde_json::from_value(json!({"maxRestarts": 1, "rules": [{"name": "a", "action": action}]})).unwrap()
        };
        assert_eq!(restarts_one_job(&of("RestartJob")), Some("RestartJob"));
        assert_eq!(restarts_one_job(&of("RestartJobAndIgnoreMaxRestarts")), Some("RestartJobAndIgnoreMaxRestarts"));
        assert_eq!(restarts_one_job(&of("RestartJobSet")), None);
    }
}
