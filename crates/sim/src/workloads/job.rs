//! The Job controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::{Affinity, PodStatus};
use serde_json::json;
use slicegate_api::{Job, Kind, LabelSelector, Object, ObjectMeta, ObjectRef, Pod, Time};
use slicegate_workload::Timestamp;

use super::pod_failures::{PodFailures, failed_indexes, why_failed};
use crate::cluster::{EXCLUSIVE_TOPOLOGY, JOB_KEY, JOBSET_PRIORITY, is_over, is_running};
use crate::defaults::{annotation, complete_pod, complete_template};
use crate::names;
use crate::store::{api_time, controller_of, owner_reference, pack, sim_time};
use crate::timeline::EntryKind;
use crate::world::{Event, World};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn job_condition(kind: &str, status: bool, reason: &str, message: &str, time: &Time) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time.clone()),
        last_transition_time: Some(time.clone()),
    }
}

pub(crate) fn has(status: &JobStatus, kind: &str) -> Option<bool> {
    status.conditions.iter().flatten().find(|c| c.type_ == kind).map(|c| c.status == "True")
}

fn set(status: &mut JobStatus, new: JobCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) if old.status == new.status => {}
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

fn nonzero(n: usize) -> Option<i32> {
    (n > 0).then(|| i32::try_from(n).unwrap_or(i32::MAX))
}

/// Numbers as the Job controller writes sets of them: `0-2,5`.
pub(crate) fn ranges(indexes: &BTreeSet<i32>) -> Option<String> {
    let mut parts: Vec<(i32, i32)> = Vec::new();
    for index in indexes {
        match parts.last_mut() {
            Some((_, end)) if end.saturating_add(1) == *index => *end = *index,
            _ => parts.push((*index, *index)),
        }
    }
    // Two neighbours are listed, longer runs are ranges.
    let text = |(a, b): &(i32, i32)| match b - a {
        0 => a.to_string(),
        1 => format!("{a},{b}"),
        _ => format!("{a}-{b}"),
    };
    (!parts.is_empty()).then(|| parts.iter().map(text).collect::<Vec<_>>().join(","))
}

pub(crate) fn index_of(pod: &Pod) -> Option<i32> {
    annotation(&pod.metadata, INDEX)?.parse().ok()
}

/// Completes a new Job as the API server does: selector, labels of its pods, defaults of their template.
pub(crate) fn complete_job(job: &mut Job, uid: &str) {
    let name = job.metadata.name.clone().unwrap_or_default();
    let Some(spec) = &mut job.spec else { return };
    spec.completion_mode.get_or_insert_with(|| "NonIndexed".to_owned());
    if spec.parallelism.is_none() && spec.completions.is_none() {
        spec.completions = Some(1);
    }
    let limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    spec.backoff_limit.get_or_insert(limit);
    spec.parallelism.get_or_insert(1);
    spec.manual_selector.get_or_insert(false);
    spec.pod_replacement_policy.get_or_insert_with(|| "TerminatingOrFailed".to_owned());
    spec.suspend.get_or_insert(false);
    spec.selector.get_or_insert_with(|| LabelSelector {
        match_labels: Some(BTreeMap::from([("batch.kubernetes.io/controller-uid".to_owned(), uid.to_owned())])),
        ..LabelSelector::default()
    });
    let labels = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    for (key, value) in [("controller-uid", uid), ("job-name", name.as_str())] {
        labels.insert(key.to_owned(), value.to_owned());
        labels.insert(format!("batch.kubernetes.io/{key}"), value.to_owned());
    }
    complete_template(&mut spec.template);
}

/// The pods of a Job, counted.
#[derive(Default)]
struct Count {
    active: usize,
    ready: usize,
    succeeded: usize,
    failed: usize,
    terminating: usize,
    taken: BTreeSet<i32>,
    done: BTreeSet<i32>,
}

impl Count {
    fn of(pods: &[(ObjectRef, Arc<Pod>)]) -> Self {
        let mut count = Self::default();
        for (_, pod) in pods {
            let index = index_of(pod);
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Succeeded") {
                count.succeeded += 1;
                count.done.extend(index);
            } else if phase == Some("Failed") {
                // Counted by their own book.
            } else if pod.metadata.deletion_timestamp.is_some() {
                count.terminating += 1;
                // A pod that is going keeps its index until it is gone.
                count.taken.extend(index);
            } else {
                count.active += 1;
                count.taken.extend(index);
                count.ready += usize::from(is_running(pod));
            }
        }
        count
    }
}

/// The numbers in a text such as `0-2,5`.
fn in_ranges(text: &str, index: i32) -> bool {
    text.split(',').any(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<i32>().ok();
        number(low).zip(number(high)).is_some_and(|(low, high)| (low..=high).contains(&index))
    })
}

/// Whether a rule of the Job's success policy is met.
fn success_policy_met(spec: &slicegate_api::JobSpec, count: &Count) -> bool {
    spec.success_policy.iter().flat_map(|policy| &policy.rules).any(|rule| {
        let listed = |index: &&i32| rule.succeeded_indexes.as_deref().is_none_or(|text| in_ranges(text, **index));
        let done = count.done.iter().filter(listed).count();
        let wanted = match (rule.succeeded_count, rule.succeeded_indexes.as_deref()) {
            (Some(count), _) => usize::try_from(count).unwrap_or(usize::MAX),
            (None, Some(text)) => (0..spec.completions.unwrap_or(0)).filter(|index| in_ranges(text, *index)).count(),
            (None, None) => usize::MAX,
        };
        done >= wanted
    })
}

impl World {
    /// Makes a Job, completed.
    pub(crate) fn create_job(&mut self, mut job: Job) {
        let key = ObjectRef::new(
            Kind::Job,
            job.metadata.namespace.clone().unwrap_or_default(),
            job.metadata.name.clone().unwrap_or_default(),
        );
        let uid = self.store.next_uid(&key);
        complete_job(&mut job, &uid);
        // JobSet makes its Jobs Indexed; the API server takes such a Job only with completions.
        let indexed = job
            .spec
            .as_ref()
            .is_some_and(|s| s.completion_mode.as_deref() == Some("Indexed") && s.completions.is_none());
        if indexed {
            let above = controller_of(&Object::Job(Arc::new(job))).map(|owner| owner.name.clone());
            let top = above.map(|name| ObjectRef::new(Kind::JobSet, &*key.namespace, name));
            let top = top.filter(|top| self.store.get(top).is_some()).unwrap_or_else(|| key.clone());
            let why = format!("{key} is refused: completions must be set, for its completionMode is Indexed");
            if self.hopeless.insert(top.clone(), why.clone()).is_none() {
                self.say(Some(top), EntryKind::Refused, why);
            }
            return;
        }
        if let Some(meta) = job.spec.as_mut().and_then(|spec| spec.template.metadata.as_mut()) {
            pack(meta);
        }
        job.status.get_or_insert_default();
        let _ = self.store.create(job.into());
    }

    /// Brings a Job and its pods in line. Its failure is told first by `FailureTarget`, and is final when its pods have stopped.
    pub(crate) fn sync_job(&mut self, key: &ObjectRef) {
        let Some(Object::Job(job)) = self.store.get(key) else { return };
        let current = job.clone();
        let job = job.clone();
        let Some(spec) = &current.spec else { return };
        if job.metadata.deletion_timestamp.is_some()
            || spec.managed_by.as_deref().is_some_and(|m| m != "kubernetes.io/job-controller")
        {
            return;
        }
        let mut status = job.status.clone().unwrap_or_default();
        if has(&status, "Complete") == Some(true) || has(&status, "Failed") == Some(true) {
            return;
        }
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let pods = self.pods_of(&uid);
        self.count_finished(&pods);
        let failures = self.failures.get(uid.as_str()).cloned().unwrap_or_default();
        let time = api_time(self.now);
        let suspend = spec.suspend == Some(true);
        let was_suspended = has(&status, "Suspended");
        let mut count = Count::of(&pods);
        count.failed = usize::try_from(failures.counted).unwrap_or(usize::MAX);
        let indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
        let completions = spec.completions.and_then(|n| usize::try_from(n).ok());
        status.uncounted_terminated_pods.get_or_insert_with(UncountedTerminatedPods::default);
        let mut retry = None;
        let failing = has(&status, "FailureTarget") == Some(true);
        let succeeding = has(&status, "SuccessCriteriaMet") == Some(true);
        if failing || succeeding {
            self.stop_pods(&pods, &mut count, usize::MAX);
        } else if suspend {
            self.told_running.remove(key);
            self.gauge.job_lost(key);
            self.stop_pods(&pods, &mut count, usize::MAX);
            status.start_time = None;
            set(&mut status, job_condition("Suspended", true, "JobSuspended", "Job suspended", &time));
        } else {
            if was_suspended == Some(true) {
                set(&mut status, job_condition("Suspended", false, "JobResumed", "Job resumed", &time));
            }
            if status.start_time.is_none() {
                status.start_time = Some(time.clone());
                if let Some(seconds) = spec.active_deadline_seconds {
                    self.queue.schedule(self.now.plus_seconds(seconds.max(0)), Event::JobRetry { job: key.clone() });
                }
            }
            retry = self.create_pods(&job, &pods, &mut count, &failures);
            let left = completions.map_or(parallelism, |n| n.saturating_sub(count.succeeded).min(parallelism));
            if count.active > left && !(completions.is_none() && count.succeeded > 0) {
                let excess = count.active - left;
                self.stop_pods(&pods, &mut count, excess);
            }
        }
        status.active = nonzero(count.active);
        status.ready = Some(i32::try_from(count.ready).unwrap_or(i32::MAX));
        status.terminating = Some(i32::try_from(count.terminating).unwrap_or(i32::MAX));
        status.succeeded = nonzero(count.succeeded);
        status.failed = nonzero(count.failed);
        status.failed_indexes = failed_indexes(spec, &failures);
        if indexed {
            status.completed_indexes = ranges(&count.done);
        }
        let enough = match completions {
            Some(n) => count.succeeded >= n,
            None => count.succeeded > 0 && count.active == 0,
        };
        let by_policy = success_policy_met(spec, &count);
        let why = if failing || succeeding { None } else { why_failed(spec, &status, &failures, &pods, self.now) };
        if failing {
            if count.active == 0 && count.terminating == 0 {
                let target = status.conditions.iter().flatten().find(|c| c.type_ == "FailureTarget").cloned();
                let text = |text: Option<String>| text.unwrap_or_default();
                let (reason, message) = target.map(|c| (text(c.reason), text(c.message))).unwrap_or_default();
                set(&mut status, job_condition("Failed", true, &reason, &message, &time));
                self.job_over(key, &job, EntryKind::Failed, &message);
                self.expire(key, spec.ttl_seconds_after_finished);
            }
        } else if let Some((reason, message)) = why.filter(|_| !suspend) {
            set(&mut status, job_condition("FailureTarget", true, reason, &message, &time));
            self.dirty.jobs.insert(key.clone());
        } else if !suspend && (enough || by_policy || succeeding) {
            let reached = "Reached expected number of succeeded pods";
            if succeeding {
                if count.active > 0 || count.terminating > 0 {
                    self.put_job_status(job, status);
                    return;
                }
                status.completion_time = Some(time.clone());
                set(&mut status, job_condition("Complete", true, "CompletionsReached", reached, &time));
                self.job_over(key, &job, EntryKind::Finished, "finished: reached expected number of succeeded pods");
                self.expire(key, spec.ttl_seconds_after_finished);
            } else {
                let (reason, reached) = if enough {
                    ("CompletionsReached", reached)
                } else {
                    ("SuccessPolicy", "Matched rules at index 0")
                };
                set(&mut status, job_condition("SuccessCriteriaMet", true, reason, reached, &time));
                self.dirty.jobs.insert(key.clone());
            }
        }
        let wanted = completions.map_or(parallelism, |n| n.min(parallelism));
        if !suspend && !failing && wanted > 0 && count.ready + count.succeeded >= wanted {
            self.tell_job_running(key, &job, &pods);
        }
        if let Some(at) = retry
            && self.retrying.insert(key.clone())
        {
            self.queue.schedule(at, Event::JobRetry { job: key.clone() });
        }
        self.put_job_status(job, status);
    }

    fn put_job_status(&mut self, mut job: Arc<Job>, status: JobStatus) {
        if job.status.as_ref() != Some(&status) {
            Arc::make_mut(&mut job).status = Some(status);
            self.store.put(Object::Job(job));
        }
    }

    /// Stops pods that the Job no longer wants, those of the highest indexes first: they do not count as failed.
    fn stop_pods(&mut self, pods: &[(ObjectRef, Arc<Pod>)], count: &mut Count, most: usize) {
        let mut alive: Vec<_> =
            pods.iter().filter(|(_, pod)| !is_over(pod) && pod.metadata.deletion_timestamp.is_none()).collect();
        alive.sort_by_key(|(_, pod)| std::cmp::Reverse(index_of(pod)));
        for (key, pod) in alive.into_iter().take(most) {
            self.untracked.insert(pod.metadata.uid.as_deref().unwrap_or_default().into());
            self.untrack(key);
            self.store.delete(key);
            count.active = count.active.saturating_sub(1);
            count.ready = count.ready.saturating_sub(usize::from(is_running(pod)));
            count.terminating += usize::from(self.store.get(key).is_some());
        }
    }

    /// Nobody but the Job itself owns it: it is the user's.
    fn is_own(job: &Arc<Job>) -> bool {
        controller_of(&Object::Job(job.clone())).is_none()
    }

    fn job_over(&mut self, key: &ObjectRef, job: &Arc<Job>, kind: EntryKind, text: &str) {
        if kind == EntryKind::Finished {
            self.gauge.job_done(key);
        } else {
            self.gauge.job_lost(key);
        }
        if Self::is_own(job) {
            self.say(Some(key.clone()), kind, text.to_owned());
        }
    }

    fn tell_job_running(&mut self, key: &ObjectRef, job: &Arc<Job>, pods: &[(ObjectRef, Arc<Pod>)]) {
        if Self::is_own(job) && self.told_running.insert(key.clone()) {
            let text = format!("running: {}", self.running_pods(pods));
            self.say(Some(key.clone()), EntryKind::Running, text);
        }
    }

    /// Pods that are over and counted need no finalizer any more.
    fn count_finished(&mut self, pods: &[(ObjectRef, Arc<Pod>)]) {
        for (key, pod) in pods {
            if is_over(pod) && pod.metadata.finalizers.is_some() {
                if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed") {
                    self.pod_failed(key, pod);
                }
                self.untrack(key);
            }
        }
    }

    fn untrack(&mut self, key: &ObjectRef) {
        let Some(Object::Pod(pod)) = self.store.get(key) else { return };
        if pod.metadata.finalizers.is_some() {
            let mut pod = pod.clone();
            Arc::make_mut(&mut pod).metadata.finalizers = None;
            self.store.put(Object::Pod(pod));
        }
    }

    /// Makes the pods that are missing. Answers when to try again: followers are refused while their leader has no node, and
    /// pods that failed are replaced after a while.
    fn create_pods(
        &mut self,
        job: &Arc<Job>,
        pods: &[(ObjectRef, Arc<Pod>)],
        count: &mut Count,
        failures: &PodFailures,
    ) -> Option<Timestamp> {
        let spec = job.spec.as_ref()?;
        let indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
        let completions = spec.completions.and_then(|n| usize::try_from(n).ok());
        let left = completions.map_or(parallelism, |n| n.saturating_sub(count.succeeded));
        let wanted = if completions.is_none() && count.succeeded > 0 { 0 } else { parallelism.min(left) };
        if count.active >= wanted {
            return None;
        }
        if let Some(at) = failures.not_before().filter(|at| *at > self.now) {
            return Some(at);
        }
        let later = self.now.plus_micros(self.settings.follower_delay);
        let mut missing = wanted - count.active;
        let own = Object::Job(job.clone()).reference();
        if self.is_too_large(&own, i64::try_from(missing).unwrap_or(i64::MAX), "pods at once") {
            return None;
        }
        if !indexed {
            for _ in 0..missing.saturating_sub(count.terminating) {
                self.create_pod(job, None, None, 0);
                count.active += 1;
            }
            return None;
        }
        let topology = annotation(&job.metadata, EXCLUSIVE_TOPOLOGY).map(ToOwned::to_owned);
        let leader = pods.iter().find(|(_, pod)| index_of(pod) == Some(0) && pod.metadata.deletion_timestamp.is_none());
        let mut refused = false;
        let mut domain = None;
        if let (Some(topology), Some((_, leader))) = (&topology, leader) {
            let placed = leader.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let node = placed.and_then(|name| self.nodes.by_name.get(name)).and_then(|id| self.nodes.node(*id));
            let value = node.and_then(|node| node.labels.get(topology.as_str())).map(ToString::to_string);
            let created = leader.metadata.creation_timestamp.as_ref().map(sim_time).unwrap_or_default();
            let early = self.now < created.plus_micros(self.settings.follower_delay);
            if let (Some(value), false) = (value, early) {
                domain = Some((topology.clone(), value));
            } else {
                refused = early;
            }
        }
        for index in 0..i32::try_from(completions.unwrap_or(0)).unwrap_or(i32::MAX) {
            if missing == 0 {
                break;
            }
            if count.done.contains(&index) || count.taken.contains(&index) || failures.failed_indexes.contains(&index) {
                continue;
            }
            if topology.is_some() && index != 0 && domain.is_none() {
                refused |= leader.is_none();
                break;
            }
            self.create_pod(job, Some(index), domain.as_ref().filter(|_| index != 0), failures.of_index(index));
            count.active += 1;
            missing -= 1;
        }
        refused.then_some(later)
    }

    fn create_pod(&mut self, job: &Arc<Job>, index: Option<i32>, domain: Option<&(String, String)>, failures: u32) {
        let Some(spec) = &job.spec else { return };
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let prefix = index.map_or_else(|| format!("{name}-"), |index| format!("{name}-{index}-"));
        self.pods_made += 1;
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let suffix = names::suffix(&["pod", uid, &prefix, &self.pods_made.to_string()]);
        let mut meta = spec.template.metadata.clone().unwrap_or_default();
        let mut pod = spec.template.spec.clone().unwrap_or_default();
        let priority = self.priority_of(pod.priority_class_name.as_deref());
        complete_pod(&mut pod, priority);
        if let Some(index) = index {
            for list in [&mut meta.labels, &mut meta.annotations] {
                list.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
            }
            if spec.backoff_limit_per_index.is_some() {
                let annotations = meta.annotations.get_or_insert_default();
                annotations.insert("batch.kubernetes.io/job-index-failure-count".to_owned(), failures.to_string());
            }
            pod.hostname.get_or_insert_with(|| prefix.trim_end_matches('-').to_owned());
            let env: k8s_openapi::api::core::v1::EnvVar = serde_json::from_value(json!({
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}}
            }))
            .unwrap_or_default();
            for container in &mut pod.containers {
                container.env.get_or_insert_default().push(env.clone());
            }
        }
        if let Some(topology) = annotation(&meta, EXCLUSIVE_TOPOLOGY).map(ToOwned::to_owned) {
            let key = annotation(&meta, JOB_KEY).unwrap_or_default().to_owned();
            meta.labels.get_or_insert_default().insert(JOBSET_PRIORITY.to_owned(), priority.to_string());
            if index == Some(0) {
                let affinity = pod.affinity.get_or_insert_default();
                add_exclusive_affinity(affinity, &topology, &key, priority);
            }
        }
        if let Some((key, value)) = domain {
            pod.node_selector.get_or_insert_default().insert(key.clone(), value.clone());
        }
        let qos = qos_class(&pod);
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}{suffix}")),
                generate_name: Some(prefix),
                namespace: job.metadata.namespace.clone(),
                finalizers: Some(vec![TRACKING.to_owned()]),
                owner_references: Some(vec![owner_reference(&Object::Job(job.clone()))]),
                ..meta
            },
            spec: Some(pod),
            status: Some(PodStatus {
                phase: Some("Pending".to_owned()),
                qos_class: Some(qos.to_owned()),
                ..PodStatus::default()
            }),
        };
        let _ = self.store.create(pod.into());
    }
}

/// The affinity that JobSet's webhook gives to leaders of exclusive placement.
fn add_exclusive_affinity(affinity: &mut Affinity, topology: &str, key: &str, priority: i32) {
    let own = json!([{
        "labelSelector": {"matchExpressions": [{"key": JOB_KEY, "operator": "In", "values": [key]}]},
        "namespaceSelector": {},
        "topologyKey": topology
    }]);
    let others = json!([{
        "labelSelector": {"matchExpressions": [
            {"key": JOB_KEY, "operator": "Exists"},
            {"key": JOB_KEY, "operator": "NotIn", "values": [key]},
            {"key": JOBSET_PRIORITY, "operator": "In", "values": [priority.to_string()]}
        ]},
        "namespaceSelector": {},
        "topologyKey": topology
    }]);
    let required = |terms| json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    affinity.pod_affinity = serde_json::from_value(required(own)).ok();
    affinity.pod_anti_affinity = serde_json::from_value(required(others)).ok();
}

/// The quality of service of a pod: only cpu and memory count.
pub(crate) fn qos_class(pod: &slicegate_api::PodSpec) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let resources = container.resources.clone().unwrap_or_default();
        let requests = resources.requests.unwrap_or_default();
        let limits = resources.limits.unwrap_or_default();
        for name in ["cpu", "memory"] {
            let (request, limit) = (requests.get(name), limits.get(name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        let text = |list: &[i32]| ranges(&list.iter().copied().collect());
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[0, 1]).as_deref(), Some("0,1"));
        assert_eq!(text(&[0, 1, 2, 5, 7, 8]).as_deref(), Some("0-2,5,7,8"));
    }

    #[test]
    fn chips_do_not_make_a_quality_of_service() {
        let pod = |value| serde_json::from_value(value).unwrap();
        let tpu = pod(json!({"containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": "4"}}}]}));
        assert_eq!(qos_class(&tpu), "BestEffort");
        let some = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}));
        assert_eq!(qos_class(&some), "Burstable");
        let all = json!({"cpu": "1", "memory": "1Gi"});
        let all = pod(json!({"containers": [{"name": "c", "resources": {"requests": all, "limits": all}}]}));
        assert_eq!(qos_class(&all), "Guaranteed");
    }
}
