//! The JobSet controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use slicegate_api::jobset::{JobSet, ReplicatedJob, ReplicatedJobStatus};
use slicegate_api::{Job, Kind, Object, ObjectMeta, ObjectRef};

use super::failure_policy::{Action, decide, first_failed, restarts_one_job};
use super::{condition, is_true, set_condition};
use crate::cluster::EXCLUSIVE_TOPOLOGY;
use crate::defaults::{annotation, label};
use crate::names;
use crate::plan::Propagation;
use crate::store::{api_time, owner_reference};
use crate::timeline::EntryKind;
use crate::world::{Event, World};

const PREFIX: &str = "jobset.sigs.k8s.io/";
const ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";

fn replicas(job: &ReplicatedJob) -> i32 {
    job.replicas.unwrap_or(1).max(0)
}

fn pods_of_job(job: &Job) -> i32 {
    let spec = job.spec.as_ref();
    let parallelism = spec.and_then(|spec| spec.parallelism).unwrap_or(1);
    spec.and_then(|spec| spec.completions).map_or(parallelism, |completions| completions.min(parallelism))
}

fn job_condition(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == kind && c.status == "True")
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

pub(crate) fn replicated_job(job: &Job) -> &str {
    label(&job.metadata, REPLICATED_JOB).unwrap_or_default()
}

/// Child Jobs by how far they got.
#[derive(Default)]
struct Children {
    active: Vec<Arc<Job>>,
    succeeded: Vec<Arc<Job>>,
    failed: Vec<Arc<Job>>,
    previous: Vec<Arc<Job>>,
}

impl Children {
    fn all(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.active.iter().chain(&self.succeeded).chain(&self.failed)
    }

    fn statuses(&self, jobset: &JobSet) -> Vec<ReplicatedJobStatus> {
        let status = |group: &ReplicatedJob| {
            let count = |jobs: &[Arc<Job>], keep: &dyn Fn(&Job) -> bool| {
                let n = jobs.iter().filter(|job| replicated_job(job) == group.name && keep(job)).count();
                i32::try_from(n).unwrap_or(i32::MAX)
            };
            let of = |job: &Job| job.status.clone().unwrap_or_default();
            ReplicatedJobStatus {
                name: group.name.clone(),
                ready: count(&self.active, &|job| {
                    of(job).succeeded.unwrap_or(0).saturating_add(of(job).ready.unwrap_or(0)) >= pods_of_job(job)
                }),
                succeeded: count(&self.succeeded, &|_| true),
                failed: count(&self.failed, &|_| true),
                active: count(&self.active, &|job| of(job).active.unwrap_or(0) > 0),
                suspended: count(&self.active, &|job| is_suspended(job)),
            }
        };
        jobset.spec.replicated_jobs.iter().map(status).collect()
    }
}

impl World {
    /// Brings a JobSet and its Jobs in line.
    pub(crate) fn sync_jobset(&mut self, key: &ObjectRef) {
        let Some(Object::JobSet(jobset)) = self.store.get(key) else { return };
        let mut jobset = jobset.clone();
        if jobset.metadata.deletion_timestamp.is_some() || jobset.spec.managed_by.as_deref().is_some_and(foreign) {
            return;
        }
        let uid = jobset.metadata.uid.clone().unwrap_or_default();
        let attempt = jobset.status.restarts.unwrap_or(0);
        let mut children = Children::default();
        for job in self.jobs_of(&uid) {
            let of: i32 = label(&job.metadata, ATTEMPT).and_then(|n| n.parse().ok()).unwrap_or(0);
            if of < attempt {
                children.previous.push(job);
            } else if job_condition(&job, "Complete") {
                children.succeeded.push(job);
            } else if job_condition(&job, "Failed") {
                children.failed.push(job);
            } else {
                children.active.push(job);
            }
        }
        if is_true(&jobset.status.conditions, "Completed") || is_true(&jobset.status.conditions, "Failed") {
            for job in &children.active {
                self.store.delete(&Object::Job(job.clone()).reference());
            }
            return;
        }
        for job in &children.previous {
            if job.metadata.deletion_timestamp.is_none() {
                self.store.delete_as(&Object::Job(job.clone()).reference(), Propagation::Foreground);
            }
        }
        let suspend = jobset.spec.suspend == Some(true);
        let time = api_time(self.now);
        let before = jobset.clone();
        // The object is copied only if its status changes.
        let statuses = children.statuses(&before);
        if before.status.restarts != Some(attempt) || before.status.replicated_jobs_status != statuses {
            let status = &mut Arc::make_mut(&mut jobset).status;
            status.restarts = Some(attempt);
            status.replicated_jobs_status = statuses;
        }
        if !children.failed.is_empty() {
            self.jobset_failed(key, &mut jobset, &children.failed);
        } else if succeeded(&before, &children) {
            let status = &mut Arc::make_mut(&mut jobset).status;
            let done = "jobset completed successfully";
            set_condition(&mut status.conditions, condition("Completed", true, "AllJobsCompleted", done, &time));
            status.terminal_state = Some("Completed".to_owned());
            self.gauge.job_done(key);
            self.say(Some(key.clone()), EntryKind::Finished, format!("finished: {done}"));
            self.expire(key, before.spec.ttl_seconds_after_finished);
        } else {
            let mut conditions = jobset.status.conditions.clone();
            let was_suspended = conditions.iter().find(|c| c.type_ == "Suspended").map(|c| c.status == "True");
            if suspend {
                let new = condition("Suspended", true, "SuspendedJobs", "jobset is suspended", &time);
                set_condition(&mut conditions, new);
                self.gauge.job_lost(key);
                self.told_running.remove(key);
            } else if was_suspended == Some(true) {
                let new = condition("Suspended", false, "ResumeJobs", "jobset is resumed", &time);
                set_condition(&mut conditions, new);
            }
            if conditions != jobset.status.conditions {
                Arc::make_mut(&mut jobset).status.conditions = conditions;
            }
            self.tell_jobset_running(key, &jobset, &children);
        }
        let restarted = jobset.status.restarts != Some(attempt);
        let over = is_true(&jobset.status.conditions, "Completed") || is_true(&jobset.status.conditions, "Failed");
        // The next attempt may have to wait until all of the last is gone.
        let policy = before.spec.failure_policy.as_ref().and_then(|policy| policy.other.get("restartStrategy"));
        let blocked = policy.and_then(Value::as_str) == Some("BlockingRecreate") && !children.previous.is_empty();
        if !over && !restarted && !blocked {
            self.create_jobs(&before, &children, attempt);
            self.suspend_or_resume(&before, &children, suspend);
        }
        if jobset.status != before.status {
            self.store.put(Object::JobSet(jobset));
        }
    }

    fn tell_jobset_running(&mut self, key: &ObjectRef, jobset: &JobSet, children: &Children) {
        let wanted: i32 = jobset.spec.replicated_jobs.iter().map(replicas).fold(0, i32::saturating_add);
        let statuses = &jobset.status.replicated_jobs_status;
        let up = statuses.iter().fold(0, |n: i32, s| n.saturating_add(s.ready).saturating_add(s.succeeded));
        if jobset.spec.suspend == Some(true) || wanted == 0 || up < wanted || !self.told_running.insert(key.clone()) {
            return;
        }
        let mut pods = Vec::new();
        for job in children.all() {
            pods.extend(self.pods_of(job.metadata.uid.as_deref().unwrap_or_default()));
        }
        let jobs = if wanted == 1 { "Job" } else { "Jobs" };
        let text = format!("running: {wanted} {jobs}, {}", self.running_pods(&pods));
        self.say(Some(key.clone()), EntryKind::Running, text);
    }

    fn jobset_failed(&mut self, key: &ObjectRef, jobset: &mut Arc<JobSet>, failed: &[Arc<Job>]) {
        let time = api_time(self.now);
        let policy = jobset.spec.failure_policy.clone();
        let decision = policy.as_ref().and_then(|policy| decide(policy, failed));
        if let Some(action) = policy.as_ref().and_then(restarts_one_job) {
            self.warn(format!(
                "{key}: its failure policy has the action {action}, which makes one Job anew; here all Jobs of the JobSet start \
                 again"
            ));
        }
        let first = first_failed(failed).unwrap_or_default();
        let (reason, message) = match (policy, decision) {
            (Some(policy), Some(decision)) => {
                let most = policy.max_restarts.unwrap_or(0);
                let status = &mut Arc::make_mut(jobset).status;
                let done = status.restarts_count_towards_max.unwrap_or(0);
                let job = &decision.job;
                let counts = decision.action == Action::Restart;
                if decision.action == Action::RestartAndIgnoreMaxRestarts || counts && done < most {
                    let restarts = status.restarts.unwrap_or(0).saturating_add(1);
                    status.restarts = Some(restarts);
                    let done = done.saturating_add(i32::from(counts));
                    status.restarts_count_towards_max = Some(done);
                    let by = decision.rule.map_or(String::new(), |rule| format!(", by rule {rule}"));
                    let how = if counts {
                        format!("{done} of {most} restarts{by}")
                    } else {
                        format!("restart {restarts}, which does not count{by}")
                    };
                    let text = format!("Job {job} failed: the JobSet starts again ({how})");
                    self.told_running.remove(key);
                    self.gauge.job_lost(key);
                    self.say(Some(key.clone()), EntryKind::Restarted, text);
                    return;
                }
                let (reason, what) = if decision.action == Action::Fail {
                    ("FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action")
                } else {
                    ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
                };
                (reason, format!("{what} (first failed job: {job})"))
            }
            _ => ("FailedJobs", format!("jobset failed due to one or more job failures (first failed job: {first})")),
        };
        let status = &mut Arc::make_mut(jobset).status;
        set_condition(&mut status.conditions, condition("Failed", true, reason, &message, &time));
        status.terminal_state = Some("Failed".to_owned());
        self.gauge.job_lost(key);
        self.say(Some(key.clone()), EntryKind::Failed, message);
    }

    fn create_jobs(&mut self, jobset: &Arc<JobSet>, children: &Children, attempt: i32) {
        let namespace = jobset.metadata.namespace.as_deref().unwrap_or_default();
        let name = jobset.metadata.name.as_deref().unwrap_or_default();
        let global: i32 = jobset.spec.replicated_jobs.iter().map(replicas).fold(0, i32::saturating_add);
        let own = ObjectRef::new(Kind::JobSet, namespace, name);
        if self.is_too_large(&own, i64::from(global), "Jobs") {
            return;
        }
        let mut global_index = 0_i32;
        let mut missing = Vec::new();
        let later = later_groups(jobset, children);
        for group in &jobset.spec.replicated_jobs {
            let wait = later.contains(group.name.as_str()) || !dependencies_met(group, jobset, children);
            for index in 0..replicas(group) {
                let job = format!("{name}-{}-{index}", group.name);
                let key = ObjectRef::new(Kind::Job, namespace, job.as_str());
                if !wait && self.store.get(&key).is_none() {
                    missing.push((group, index, global_index, job));
                }
                global_index = global_index.saturating_add(1);
            }
        }
        for (group, index, global_index, job_name) in missing {
            let key = names::job_key(namespace, &job_name);
            let group_name = group.other.get("groupName").and_then(Value::as_str).unwrap_or("default");
            let in_group = |other: &&ReplicatedJob| {
                other.other.get("groupName").and_then(Value::as_str).unwrap_or("default") == group_name
            };
            let group_replicas: i32 =
                jobset.spec.replicated_jobs.iter().filter(in_group).map(replicas).fold(0, i32::saturating_add);
            let before: i32 = jobset
                .spec
                .replicated_jobs
                .iter()
                .take_while(|other| other.name != group.name)
                .filter(in_group)
                .map(replicas)
                .fold(0, i32::saturating_add);
            let values = [
                ("global-replicas", global.to_string()),
                ("group-name", group_name.to_owned()),
                ("group-replicas", group_replicas.to_string()),
                ("job-global-index", global_index.to_string()),
                ("job-group-index", before.saturating_add(index).to_string()),
                ("job-index", index.to_string()),
                ("job-key", key),
                ("jobset-name", name.to_owned()),
                ("jobset-uid", jobset.metadata.uid.clone().unwrap_or_default()),
                ("replicatedjob-name", group.name.clone()),
                ("replicatedjob-replicas", replicas(group).to_string()),
                ("restart-attempt", attempt.to_string()),
            ];
            let stamped: BTreeMap<String, String> =
                values.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect();
            let mut annotations = stamped.clone();
            let of_group = group.template.metadata.as_ref();
            let exclusive = annotation(&jobset.metadata, EXCLUSIVE_TOPOLOGY)
                .or_else(|| of_group.and_then(|meta| annotation(meta, EXCLUSIVE_TOPOLOGY)));
            if let Some(topology) = exclusive {
                annotations.insert(EXCLUSIVE_TOPOLOGY.to_owned(), topology.to_owned());
            }
            let with = |own: Option<&BTreeMap<String, String>>, stamped: &BTreeMap<String, String>| {
                let mut all = own.cloned().unwrap_or_default();
                all.extend(stamped.clone());
                Some(all)
            };
            let mut spec = group.template.spec.clone().unwrap_or_default();
            spec.suspend = Some(jobset.spec.suspend == Some(true));
            let pod_meta = spec.template.metadata.get_or_insert_default();
            pod_meta.labels = with(pod_meta.labels.as_ref(), &stamped);
            pod_meta.annotations = with(pod_meta.annotations.as_ref(), &annotations);
            let network = jobset.spec.network.as_ref();
            if network.and_then(|network| network.enable_dns_hostnames).unwrap_or(true)
                && let Some(pod) = &mut spec.template.spec
            {
                let subdomain = network.and_then(|network| network.subdomain.clone());
                pod.subdomain.get_or_insert_with(|| subdomain.unwrap_or_else(|| name.to_owned()));
            }
            let job = Job {
                metadata: ObjectMeta {
                    name: Some(job_name),
                    namespace: Some(namespace.to_owned()),
                    labels: with(of_group.and_then(|meta| meta.labels.as_ref()), &stamped),
                    annotations: with(of_group.and_then(|meta| meta.annotations.as_ref()), &annotations),
                    owner_references: Some(vec![owner_reference(&Object::JobSet(jobset.clone()))]),
                    ..ObjectMeta::default()
                },
                spec: Some(spec),
                ..Job::default()
            };
            self.create_job(job);
        }
    }

    fn suspend_or_resume(&mut self, jobset: &JobSet, children: &Children, suspend: bool) {
        let later = later_groups(jobset, children);
        for job in &children.active {
            if is_suspended(job) == suspend || (!suspend && later.contains(replicated_job(job))) {
                continue;
            }
            let mut job = job.clone();
            let group = jobset.spec.replicated_jobs.iter().find(|group| group.name == replicated_job(&job));
            let changed = Arc::make_mut(&mut job);
            let Some(spec) = &mut changed.spec else { continue };
            spec.suspend = Some(suspend);
            if !suspend {
                if let Some(status) = &mut changed.status {
                    status.start_time = None;
                }
                if let Some(from) = group.and_then(|group| group.template.spec.as_ref()) {
                    merge_template(&mut spec.template, &from.template);
                }
            }
            self.store.put(Object::Job(job));
        }
    }

    /// Deletes a finished object when its time to live is over.
    pub(crate) fn expire(&mut self, key: &ObjectRef, ttl: Option<i32>) {
        let Some(ttl) = ttl else { return };
        let uid = self.store.get(key).map(|object| object.uid().into()).unwrap_or_default();
        let at = self.now.plus_seconds(i64::from(ttl.max(0)));
        self.queue.schedule(at, Event::Expire { object: key.clone(), uid });
    }
}

fn foreign(manager: &str) -> bool {
    manager != "jobset.sigs.k8s.io/jobset-controller"
}

/// What a resumed Job takes over from the JobSet's template: what Kueue injected there.
fn merge_template(into: &mut slicegate_api::PodTemplateSpec, from: &slicegate_api::PodTemplateSpec) {
    if let Some(meta) = &from.metadata {
        let own = into.metadata.get_or_insert_default();
        for (list, more) in [(&mut own.labels, &meta.labels), (&mut own.annotations, &meta.annotations)] {
            if let Some(more) = more {
                list.get_or_insert_default().extend(more.clone());
            }
        }
    }
    if let (Some(own), Some(spec)) = (&mut into.spec, &from.spec) {
        if let Some(selector) = &spec.node_selector {
            own.node_selector.get_or_insert_default().extend(selector.clone());
        }
        own.tolerations.clone_from(&spec.tolerations);
        own.scheduling_gates.clone_from(&spec.scheduling_gates);
    }
}

/// Whether the success policy is met.
fn succeeded(jobset: &JobSet, children: &Children) -> bool {
    let policy = jobset.spec.other.get("successPolicy");
    let any = policy.and_then(|p| p.get("operator")).and_then(Value::as_str) == Some("Any");
    let targets: Vec<&str> = policy
        .and_then(|p| p.get("targetReplicatedJobs"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let counts = |name: &str| targets.is_empty() || targets.contains(&name);
    let done = children.succeeded.iter().filter(|job| counts(replicated_job(job))).count();
    let wanted: i32 = jobset
        .spec
        .replicated_jobs
        .iter()
        .filter(|group| counts(&group.name))
        .map(replicas)
        .fold(0, i32::saturating_add);
    let done = i32::try_from(done).unwrap_or(i32::MAX);
    wanted > 0 && if any { done > 0 } else { done >= wanted }
}

/// The replicated jobs whose turn has not come: with startup in order, those after the first that has not started as a whole.
fn later_groups<'a>(jobset: &'a JobSet, children: &Children) -> BTreeSet<&'a str> {
    let order =
        jobset.spec.other.get("startupPolicy").and_then(|p| p.get("startupPolicyOrder")).and_then(Value::as_str);
    if order != Some("InOrder") || jobset.spec.suspend == Some(true) {
        return BTreeSet::new();
    }
    let statuses = children.statuses(jobset);
    let started = |group: &&ReplicatedJob| {
        let status = statuses.iter().find(|status| status.name == group.name);
        status.is_some_and(|s| s.ready.saturating_add(s.succeeded).saturating_add(s.failed) >= replicas(group))
    };
    jobset.spec.replicated_jobs.iter().skip_while(started).skip(1).map(|group| group.name.as_str()).collect()
}

/// Whether the replicated jobs that one depends on are as far as it needs.
fn dependencies_met(group: &ReplicatedJob, jobset: &JobSet, children: &Children) -> bool {
    let Some(Value::Array(list)) = group.other.get("dependsOn") else { return true };
    let statuses = children.statuses(jobset);
    list.iter().all(|dependency| {
        let name = dependency.get("name").and_then(Value::as_str).unwrap_or_default();
        let complete = dependency.get("status").and_then(Value::as_str) == Some("Complete");
        let wanted = jobset.spec.replicated_jobs.iter().find(|group| group.name == name).map_or(0, replicas);
        statuses.iter().find(|status| status.name == name).is_none_or(|status| {
            let ready = status.succeeded.saturating_add(if complete { 0 } else { status.ready });
            ready >= wanted
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Settings;
    use serde_json::json;

    fn world(replicated: &Value, restarts: i32) -> (World, ObjectRef) {
        let mut world = World::new(Settings::default(), true);
        let object = Kind::JobSet
            .read(json!({"metadata": {"name": "a"}, "spec": {
                "failurePolicy": {"maxRestarts": restarts}, "replicatedJobs": replicated}}))
            .unwrap();
        let object = crate::defaults::complete(object);
        let key = world.store.create(object).unwrap().reference();
        settle(&mut world);
        (world, key)
    }

    fn settle(world: &mut World) {
        loop {
            for change in world.store.take_changes() {
                world.dispatch(&change);
            }
            if !world.work() {
                break;
            }
        }
    }

    fn group(name: &str, replicas: i32, more: &Value) -> Value {
        let mut group = json!({"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 1, "completions": 1,
            "template": {"spec": {"containers": [{"name": "c"}]}}}}});
        group.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        group
    }

    fn end_job(world: &mut World, name: &str, kind: &str) {
        let key = ObjectRef::new(Kind::Job, "default", name);
        let Some(Object::Job(job)) = world.store.get(&key) else { panic!("no {name}") };
        let mut job = job.clone();
        let condition = serde_json::from_value(json!({"type": kind, "status": "True"})).unwrap();
        Arc::make_mut(&mut job).status.get_or_insert_default().conditions = Some(vec![condition]);
        world.store.put(Object::Job(job));
        settle(world);
    }

    fn jobset(world: &World, key: &ObjectRef) -> Arc<JobSet> {
        let Some(Object::JobSet(jobset)) = world.store.get(key) else { panic!() };
        jobset.clone()
    }

    fn job_names(world: &World) -> Vec<String> {
        world.store.of_kind(Kind::Job).map(|(key, _)| key.name.to_string()).collect()
    }

    #[test]
    fn being_suspended_is_no_failure() {
        let (mut world, key) = world(&json!([group("w", 2, &json!({}))]), 1);
        for suspend in [true, false].repeat(20) {
            let Some(Object::JobSet(jobset)) = world.store.get(&key).cloned() else { panic!("no {key}") };
            let mut jobset = (*jobset).clone();
            jobset.spec.suspend = Some(suspend);
            world.store.put(jobset.into());
            settle(&mut world);
        }
        let Some(Object::JobSet(jobset)) = world.store.get(&key) else { panic!("no {key}") };
        assert_eq!((jobset.status.restarts.unwrap_or(0), &jobset.status.terminal_state), (0, &None));
    }

    #[test]
    fn a_failed_job_starts_the_jobset_again_until_it_may_not() {
        let (mut world, key) = world(&json!([group("w", 2, &json!({}))]), 1);
        let first = world.store.get(&ObjectRef::new(Kind::Job, "default", "a-w-0")).unwrap().uid().to_owned();
        end_job(&mut world, "a-w-1", "Failed");
        let status = jobset(&world, &key).status.clone();
        assert_eq!((status.restarts, status.restarts_count_towards_max), (Some(1), Some(1)));
        assert_eq!(job_names(&world), ["a-w-0", "a-w-1"]);
        let again = world.store.get(&ObjectRef::new(Kind::Job, "default", "a-w-0")).unwrap();
        assert_ne!(again.uid(), first, "every Job is made anew");
        assert_eq!(label(again.metadata(), ATTEMPT), Some("1"));
        end_job(&mut world, "a-w-0", "Failed");
        let status = jobset(&world, &key).status.clone();
        assert_eq!(status.terminal_state.as_deref(), Some("Failed"));
        let failed = status.conditions.iter().find(|c| c.type_ == "Failed").unwrap();
        assert_eq!(failed.reason, "ReachedMaxRestarts");
        assert!(failed.message.ends_with("(first failed job: a-w-0)"));
    }

    #[test]
    fn a_dependent_waits() {
        let depends = json!({"dependsOn": [{"name": "driver", "status": "Complete"}]});
        let (mut world, _) = world(&json!([group("driver", 1, &json!({})), group("worker", 2, &depends)]), 0);
        assert_eq!(job_names(&world), ["a-driver-0"]);
        end_job(&mut world, "a-driver-0", "Complete");
        assert_eq!(job_names(&world), ["a-driver-0", "a-worker-0", "a-worker-1"]);
    }

    #[test]
    fn success_can_depend_on_some_jobs_only() {
        let (mut world, key) = world(&json!([group("driver", 1, &json!({})), group("worker", 2, &json!({}))]), 0);
        let mut object = jobset(&world, &key);
        let policy = json!({"operator": "All", "targetReplicatedJobs": ["driver"]});
        Arc::make_mut(&mut object).spec.other.insert("successPolicy".to_owned(), policy);
        world.store.put(Object::JobSet(object));
        settle(&mut world);
        end_job(&mut world, "a-driver-0", "Complete");
        assert_eq!(jobset(&world, &key).status.terminal_state.as_deref(), Some("Completed"));
        assert_eq!(job_names(&world), ["a-driver-0"], "the workers are stopped");
    }

    #[test]
    fn jobs_are_labelled_by_their_place() {
        let (world, _) = world(&json!([group("driver", 1, &json!({})), group("worker", 2, &json!({}))]), 0);
        let job = world.store.get(&ObjectRef::new(Kind::Job, "default", "a-worker-1")).unwrap();
        let of = |key: &str| label(job.metadata(), &format!("{PREFIX}{key}")).unwrap().to_owned();
        assert_eq!(of("global-replicas"), "3");
        assert_eq!(of("job-global-index"), "2");
        assert_eq!(of("job-index"), "1");
        assert_eq!(of("replicatedjob-replicas"), "2");
        assert_eq!(of("group-name"), "default");
        assert_eq!(of("job-key"), names::job_key("default", "a-worker-1"));
    }
}
