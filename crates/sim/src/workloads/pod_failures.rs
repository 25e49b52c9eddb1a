//! Pods of Jobs that failed, and what that means for their Job.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{JobStatus, PodFailurePolicyRule};
use slicegate_api::{Job, JobSpec, Kind, Object, ObjectRef, Pod};
use slicegate_workload::Timestamp;

use super::job::{has, index_of, ranges};
use crate::cluster::is_over;
use crate::cluster::kubelet::restarts_of;
use crate::store::{controller_of, sim_time};
use crate::world::World;

/// The first delay before a pod that failed is replaced, and the longest.
const BACK_OFF: i64 = 10_000_000;
const LONGEST_BACK_OFF: i64 = 360_000_000;

/// The pods of one Job that failed. Those that its pod failure policy ignores, and those it deleted itself, do not count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PodFailures {
    /// How many.
    pub(crate) counted: u32,
    /// When the last one did.
    last: Option<Timestamp>,
    /// How many of each completion index.
    by_index: BTreeMap<i32, u32>,
    /// Completion indexes that are given up.
    pub(crate) failed_indexes: BTreeSet<i32>,
    /// The message, if one of them ended the Job.
    ends_job: Option<String>,
}

impl PodFailures {
    /// When the next pod may be made: each failure doubles the wait.
    pub(crate) fn not_before(&self) -> Option<Timestamp> {
        let doubled = BACK_OFF.saturating_mul(1 << self.counted.saturating_sub(1).min(6));
        self.last.filter(|_| self.counted > 0).map(|last| last.plus_micros(doubled.min(LONGEST_BACK_OFF)))
    }

    /// The failures of one completion index, as pods tell them.
    pub(crate) fn of_index(&self, index: i32) -> u32 {
        self.by_index.get(&index).copied().unwrap_or(0)
    }
}

/// What a rule of a pod failure policy says of a pod, if it applies: the words for it.
fn applies(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let meta = &pod.metadata;
    let name =
        format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    if let Some(codes) = &rule.on_exit_codes {
        return status.container_statuses.iter().flatten().find_map(|container| {
            let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
            let named = codes.container_name.as_deref().is_none_or(|name| name == container.name);
            let listed = codes.values.contains(&code) == (codes.operator != "NotIn");
            (code != 0 && named && listed)
                .then(|| format!("Container {} for pod {name} failed with exit code {code}", container.name))
        });
    }
    rule.on_pod_conditions.iter().flatten().find_map(|pattern| {
        let wanted = if pattern.status.is_empty() { "True" } else { pattern.status.as_str() };
        let found = status.conditions.iter().flatten().any(|c| c.type_ == pattern.type_ && c.status == wanted);
        found.then(|| format!("Pod {name} has condition {}", pattern.type_))
    })
}

/// Why a Job fails: the reason of its condition, and the message.
pub(crate) type Reason = (&'static str, String);

/// Why a Job with these pods fails, if it does.
pub(crate) fn why_failed(
    spec: &JobSpec,
    status: &JobStatus,
    failures: &PodFailures,
    pods: &[(ObjectRef, std::sync::Arc<Pod>)],
    now: Timestamp,
) -> Option<Reason> {
    if let Some(message) = &failures.ends_job {
        return Some(("PodFailurePolicy", message.clone()));
    }
    let limit = i64::from(spec.backoff_limit.unwrap_or(6));
    let starts_again = spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref()) == Some("OnFailure");
    let restarts: i64 = if starts_again {
        let alive = pods.iter().filter(|(_, pod)| !is_over(pod) && pod.metadata.deletion_timestamp.is_none());
        alive.map(|(_, pod)| i64::from(restarts_of(pod))).fold(0, i64::saturating_add)
    } else {
        0
    };
    // Restarts reach the limit, failed pods exceed it; none are allowed by a limit of 0.
    if i64::from(failures.counted) > limit || restarts >= limit.max(1) {
        return Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit".to_owned()));
    }
    let started = status.start_time.as_ref().map(sim_time);
    if let (Some(started), Some(seconds)) = (started, spec.active_deadline_seconds)
        && now >= started.plus_seconds(seconds)
    {
        return Some(("DeadlineExceeded", "Job was active longer than specified deadline".to_owned()));
    }
    spec.backoff_limit_per_index?;
    let failed = &failures.failed_indexes;
    let count = i32::try_from(failed.len()).unwrap_or(i32::MAX);
    if spec.max_failed_indexes.is_some_and(|most| count > most) {
        return Some((
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes".to_owned(),
        ));
    }
    let completions = usize::try_from(spec.completions.unwrap_or(0)).unwrap_or(0);
    let done: BTreeSet<i32> = pods
        .iter()
        .filter(|(_, pod)| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded"))
        .filter_map(|(_, pod)| index_of(pod))
        .collect();
    (!failed.is_empty() && failed.union(&done).count() >= completions)
        .then(|| ("FailedIndexes", "Job has failed indexes".to_owned()))
}

/// The failed indexes as the status of a Job shows them.
pub(crate) fn failed_indexes(spec: &JobSpec, failures: &PodFailures) -> Option<String> {
    spec.backoff_limit_per_index?;
    Some(ranges(&failures.failed_indexes).unwrap_or_default())
}

/// Whether a Job is stopping its pods because it has failed, or has gone itself.
fn is_ending(job: &Job) -> bool {
    job.metadata.deletion_timestamp.is_some()
        || job.status.as_ref().is_some_and(|status| {
            ["FailureTarget", "SuccessCriteriaMet", "Failed", "Complete"]
                .iter()
                .any(|kind| has(status, kind) == Some(true))
        })
}

impl World {
    /// A pod failed: its Job counts it as its pod failure policy says.
    pub(crate) fn pod_failed(&mut self, key: &ObjectRef, pod: &Pod) {
        let object = Object::Pod(std::sync::Arc::new(pod.clone()));
        let Some(owner) = controller_of(&object) else { return };
        let job_key = ObjectRef::new(Kind::Job, &*key.namespace, owner.name.as_str());
        let Some(Object::Job(job)) = self.store.get(&job_key) else { return };
        if job.metadata.uid.as_deref() != Some(owner.uid.as_str()) || is_ending(job) {
            return;
        }
        let Some(spec) = &job.spec else { return };
        let mut action = "Count";
        let mut message = None;
        for (number, rule) in spec.pod_failure_policy.iter().flat_map(|policy| policy.rules.iter().enumerate()) {
            if let Some(why) = applies(rule, pod) {
                action = rule.action.as_str();
                message = Some(format!("{why} matching {action} rule at index {number}"));
                break;
            }
        }
        let action = action.to_owned();
        let per_index = spec.backoff_limit_per_index;
        let index = index_of(pod);
        self.dirty.jobs.insert(job_key);
        self.gauge.pod_lost(key);
        let now = self.now;
        let failures = self.failures.entry(owner.uid.as_str().into()).or_default();
        match action.as_str() {
            "Ignore" => return,
            "FailJob" => failures.ends_job = message,
            _ => {}
        }
        failures.counted = failures.counted.saturating_add(1);
        failures.last = Some(now);
        let (Some(limit), Some(index)) = (per_index, index) else { return };
        let count = failures.by_index.entry(index).or_default();
        *count = count.saturating_add(1);
        if action == "FailIndex" || i64::from(*count) > i64::from(limit) {
            failures.failed_indexes.insert(index);
        }
    }

    /// Whether pods of a Job that are deleted count as failed.
    pub(crate) fn counts_deleted(&self, pod: &Pod) -> bool {
        let object = Object::Pod(std::sync::Arc::new(pod.clone()));
        let owner = controller_of(&object).filter(|owner| owner.kind == "Job");
        owner.is_some() && !self.untracked.contains(pod.metadata.uid.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: serde_json::Value) -> PodFailurePolicyRule {
        serde_json::from_value(value).unwrap()
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "status": {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                                       "state": {"terminated": {"exitCode": 42}}}]
            }
        }))
        .unwrap()
    }

    #[test]
    fn rules_apply_to_exit_codes_and_conditions() {
        let codes = |operator: &str, values: &[i32], container: Option<&str>| {
            rule(json!({"action": "FailJob",
                        "onExitCodes": {"operator": operator, "values": values, "containerName": container}}))
        };
        assert!(applies(&codes("In", &[1, 42], None), &pod()).unwrap().ends_with("failed with exit code 42"));
        assert_eq!(applies(&codes("In", &[1], None), &pod()), None);
        assert_eq!(applies(&codes("NotIn", &[42], None), &pod()), None);
        assert!(applies(&codes("NotIn", &[1], Some("c")), &pod()).is_some());
        assert_eq!(applies(&codes("NotIn", &[1], Some("other")), &pod()), None);
        let condition = |status: &str| {
            rule(json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": status}]}))
        };
        assert_eq!(
            applies(&condition("True"), &pod()).as_deref(),
            Some("Pod default/p has condition DisruptionTarget")
        );
        assert_eq!(applies(&condition("False"), &pod()), None);
    }

    #[test]
    fn the_wait_doubles_and_has_an_end() {
        let at = |counted| PodFailures { counted, last: Some(Timestamp::from_seconds(100)), ..PodFailures::default() };
        assert_eq!(PodFailures::default().not_before(), None);
        assert_eq!(at(1).not_before(), Some(Timestamp::from_seconds(110)));
        assert_eq!(at(3).not_before(), Some(Timestamp::from_seconds(140)));
        assert_eq!(at(60).not_before(), Some(Timestamp::from_seconds(460)));
    }

    #[test]
    fn restarts_reach_the_limit_that_failed_pods_exceed() {
        let spec = |limit: i32| -> JobSpec {
            serde_json::from_value(
                json!({"backoffLimit": limit, "template": {"spec": {"restartPolicy": "OnFailure", "containers": []}}}),
            )
            .unwrap()
        };
        let mut again = pod();
        let status = again.status.as_mut().unwrap();
        status.phase = Some("Running".to_owned());
        status.container_statuses.as_mut().unwrap()[0].restart_count = 1;
        let pods = [(ObjectRef::new(Kind::Pod, "default", "p"), std::sync::Arc::new(again))];
        let why = |limit, failures: &PodFailures, pods: &[_]| {
            why_failed(&spec(limit), &JobStatus::default(), failures, pods, Timestamp::from_seconds(0))
                .map(|(reason, _)| reason)
        };
        let none = PodFailures::default();
        assert_eq!(why(0, &none, &pods), Some("BackoffLimitExceeded"));
        assert_eq!(why(1, &none, &pods), Some("BackoffLimitExceeded"));
        assert_eq!(why(2, &none, &pods), None);
        let one = PodFailures { counted: 1, ..PodFailures::default() };
        assert_eq!(why(0, &one, &[]), Some("BackoffLimitExceeded"));
        assert_eq!(why(1, &one, &[]), None);
    }
}
