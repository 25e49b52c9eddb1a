//! The controllers of RayJob and RayCluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};
use slicegate_api::ray::{RayCluster, RayClusterSpec, RayJob, WorkerGroupSpec};
use slicegate_api::{Job, Kind, Object, ObjectMeta, ObjectRef, Pod, PodTemplateSpec, Time};
use slicegate_quota::Quantity;

use super::job::qos_class;
use super::{condition, set_condition};
use crate::cluster::shape::pod_spec;
use crate::cluster::{Gang, is_running};
use crate::defaults::{TPU, complete_pod, complete_template, label};
use crate::names;
use crate::store::{api_time, controller_of, owner_reference};
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// The label that the pods of one multi-host replica share.
pub(crate) const REPLICA_NAME: &str = "ray.io/worker-group-replica-name";
const REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
const HOST_INDEX: &str = "ray.io/replica-host-index";
const CLUSTER: &str = "ray.io/cluster";
const GROUP: &str = "ray.io/group";
const NODE_TYPE: &str = "ray.io/node-type";
const FINALIZER: &str = "ray.io/rayjob-finalizer";
const SUCCEEDED_MESSAGE: &str = "Job finished successfully.";

fn hosts(group: &WorkerGroupSpec) -> i32 {
    group.num_of_hosts.unwrap_or(1).max(1)
}

fn wanted_replicas(group: &WorkerGroupSpec) -> i32 {
    if group.suspend == Some(true) {
        return 0;
    }
    let low = group.min_replicas.unwrap_or(0).max(0);
    let high = group.max_replicas.unwrap_or(i32::MAX).max(low);
    group.replicas.unwrap_or(1).clamp(low, high)
}

fn text(value: Option<&String>) -> &str {
    value.map(String::as_str).unwrap_or_default()
}

impl World {
    fn rayjob(&self, key: &ObjectRef) -> Option<Arc<RayJob>> {
        match self.store.get(key) {
            Some(Object::RayJob(job)) => Some(job.clone()),
            _ => None,
        }
    }

    /// Takes a RayJob one step on.
    pub(crate) fn sync_rayjob(&mut self, key: &ObjectRef) {
        let Some(mut job) = self.rayjob(key) else { return };
        if !job.spec.cluster_selector.is_empty() {
            self.warn(format!("{key}: clusterSelector is not simulated; the job stays as it is"));
            return;
        }
        if job.metadata.deletion_timestamp.is_some() {
            Arc::make_mut(&mut job).metadata.finalizers = None;
            let _ = self.store.write(slicegate_controller::Operation::Update(Object::RayJob(job)));
            return;
        }
        let time = api_time(self.now);
        let suspend = job.spec.suspend == Some(true);
        match job.status.job_deployment_status.as_deref().unwrap_or_default() {
            "" => self.rayjob_start(job, &time),
            "Initializing" => {
                if suspend {
                    self.set_rayjob_status(job, "Suspending");
                } else {
                    self.rayjob_initialize(key, job);
                }
            }
            "Running" => {
                if suspend {
                    self.set_rayjob_status(job, "Suspending");
                } else {
                    self.rayjob_run(key, job, &time);
                }
            }
            "Suspending" => {
                self.told_running.remove(key);
                self.gauge.job_lost(key);
                let name = job.status.ray_cluster_name.clone().unwrap_or_default();
                self.store.delete(&Self::beside(key, Kind::RayCluster, &name));
                self.store.delete(&Self::beside(key, Kind::Job, &key.name));
                let status = &mut Arc::make_mut(&mut job).status;
                status.job_deployment_status = Some("Suspended".to_owned());
                status.ray_cluster_name = None;
                status.job_id = None;
                status.job_status = None;
                status.message = None;
                status.other.remove("dashboardURL");
                status.other.insert("rayClusterStatus".to_owned(), empty_cluster_status());
                self.store.put(Object::RayJob(job));
            }
            "Retrying" => {
                // The next attempt has a cluster and a submitter of its own; the old ones go first.
                let name = job.status.ray_cluster_name.clone().unwrap_or_default();
                let (cluster, submitter) =
                    (Self::beside(key, Kind::RayCluster, &name), Self::beside(key, Kind::Job, &key.name));
                self.store.delete(&cluster);
                self.store.delete(&submitter);
                let status = &mut Arc::make_mut(&mut job).status;
                status.job_deployment_status = None;
                status.job_status = None;
                status.message = None;
                self.store.put(Object::RayJob(job));
            }
            "Suspended" if !suspend => {
                Arc::make_mut(&mut job).status.job_deployment_status = None;
                self.store.put(Object::RayJob(job));
            }
            _ => {}
        }
    }

    fn beside(key: &ObjectRef, kind: Kind, name: &str) -> ObjectRef {
        ObjectRef::new(kind, &*key.namespace, name)
    }

    fn set_rayjob_status(&mut self, mut job: Arc<RayJob>, status: &str) {
        Arc::make_mut(&mut job).status.job_deployment_status = Some(status.to_owned());
        self.store.put(Object::RayJob(job));
    }

    fn rayjob_start(&mut self, mut job: Arc<RayJob>, time: &Time) {
        let name = job.metadata.name.clone().unwrap_or_default();
        let uid = job.metadata.uid.clone().unwrap_or_default();
        if job.metadata.finalizers.as_ref().is_none_or(|list| !list.iter().any(|f| f == FINALIZER)) {
            Arc::make_mut(&mut job).metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
            if let Some(Object::RayJob(put)) = self.store.put(Object::RayJob(job.clone())) {
                job = put;
            }
        }
        self.pods_made += 1;
        let salt = self.pods_made.to_string();
        let status = &mut Arc::make_mut(&mut job).status;
        status.job_deployment_status = Some("Initializing".to_owned());
        status.job_id = Some(format!("{name}-{}", names::suffix(&["rayjob", &uid, &salt])));
        status.ray_cluster_name = Some(format!("{name}-{}", names::suffix(&["raycluster", &uid, &salt])));
        status.start_time = Some(time.clone());
        for key in ["failed", "succeeded"] {
            status.other.entry(key.to_owned()).or_insert_with(|| 0.into());
        }
        status.other.insert("rayClusterStatus".to_owned(), empty_cluster_status());
        status.other.insert("rayJobInfo".to_owned(), json!({}));
        self.store.put(Object::RayJob(job));
    }

    fn rayjob_initialize(&mut self, key: &ObjectRef, mut job: Arc<RayJob>) {
        let name = job.status.ray_cluster_name.clone().unwrap_or_default();
        let cluster_key = Self::beside(key, Kind::RayCluster, &name);
        let Some(Object::RayCluster(cluster)) = self.store.get(&cluster_key) else {
            self.create_ray_cluster(&job, &name);
            return;
        };
        if cluster.status.state.as_deref() != Some("ready") {
            return;
        }
        let cluster_status = serde_json::to_value(&cluster.status).unwrap_or_default();
        let address = format!("{name}-head-svc.{}.svc.cluster.local:8265", key.namespace);
        let mode = job.spec.submission_mode.as_deref().unwrap_or("K8sJobMode").to_owned();
        if mode == "K8sJobMode" {
            let submitter = Self::beside(key, Kind::Job, &key.name);
            if self.store.get(&submitter).is_none() {
                self.create_submitter(&job, &address);
            }
        } else {
            let run_time = self.run_time_of(&Object::RayJob(job.clone()));
            let uid: Box<str> = job.metadata.uid.as_deref().unwrap_or_default().into();
            let id: Box<str> = text(job.status.job_id.as_ref()).into();
            let event = Event::RayDone { job: key.clone(), uid, id };
            self.queue.schedule(self.now.plus_micros(run_time), event);
        }
        let status = &mut Arc::make_mut(&mut job).status;
        status.job_deployment_status = Some("Running".to_owned());
        status.job_status = Some(if mode == "K8sJobMode" { "PENDING" } else { "RUNNING" }.to_owned());
        status.other.insert("dashboardURL".to_owned(), address.into());
        status.other.insert("rayClusterStatus".to_owned(), cluster_status);
        self.store.put(Object::RayJob(job));
    }

    fn rayjob_run(&mut self, key: &ObjectRef, mut job: Arc<RayJob>, time: &Time) {
        if job.spec.submission_mode.as_deref().unwrap_or("K8sJobMode") != "K8sJobMode" {
            return;
        }
        let submitter = Self::beside(key, Kind::Job, &key.name);
        let Some(Object::Job(run)) = self.store.get(&submitter) else { return };
        let run = run.clone();
        let over = |kind: &str| {
            run.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == kind && c.status == "True")
        };
        if over("Complete") {
            self.rayjob_over(key, job, time, Ok(()));
        } else if over("Failed") {
            self.rayjob_over(key, job, time, Err("Job failed."));
        } else if run.status.as_ref().and_then(|s| s.ready).unwrap_or(0) > 0
            && job.status.job_status.as_deref() != Some("RUNNING")
        {
            let status = &mut Arc::make_mut(&mut job).status;
            status.job_status = Some("RUNNING".to_owned());
            status.message = Some("Job is currently running.".to_owned());
            self.store.put(Object::RayJob(job));
        }
    }

    /// The program of a RayJob that has no submitter ended.
    pub(crate) fn ray_done(&mut self, key: &ObjectRef, uid: &str, id: &str) {
        let Some(job) = self.rayjob(key) else { return };
        let same = job.metadata.uid.as_deref() == Some(uid) && job.status.job_id.as_deref() == Some(id);
        if same && job.status.job_deployment_status.as_deref() == Some("Running") {
            let time = api_time(self.now);
            self.rayjob_over(key, job, &time, Ok(()));
        }
    }

    /// A pod of a Ray cluster failed. The cluster replaces it, a multi-host replica as a whole; the program of a RayJob that ran
    /// on it fails, for Ray Train starts nothing again unless it is told to.
    pub(crate) fn ray_pod_failed(&mut self, key: &ObjectRef, pod: &Pod) {
        let namespace = text(pod.metadata.namespace.as_ref());
        let Some(cluster) = label(&pod.metadata, CLUSTER) else { return };
        let cluster = ObjectRef::new(Kind::RayCluster, namespace, cluster);
        let Some(object) = self.store.get(&cluster) else { return };
        let uid = object.uid().to_owned();
        let above = controller_of(object).filter(|owner| owner.kind == "RayJob");
        let above = above.map(|owner| Self::beside(&cluster, Kind::RayJob, &owner.name));
        self.store.delete(key);
        if let Some(replica) = label(&pod.metadata, REPLICA_NAME) {
            for (key, other) in self.pods_of(&uid) {
                if label(&other.metadata, REPLICA_NAME) == Some(replica) && !crate::cluster::is_over(&other) {
                    self.store.delete(&key);
                }
            }
        }
        self.told_running.remove(&cluster);
        self.dirty.ray_clusters.insert(cluster);
        let Some(key) = above else { return };
        let Some(job) = self.rayjob(&key) else { return };
        if job.status.job_deployment_status.as_deref() == Some("Running") {
            let time = api_time(self.now);
            let why = format!("Job failed: pod {} of its Ray cluster was lost.", text(pod.metadata.name.as_ref()));
            self.rayjob_over(&key, job, &time, Err(&why));
        }
    }

    /// The program of a RayJob ended, or failed: it is then tried again, with a new cluster, as its backoffLimit allows.
    fn rayjob_over(&mut self, key: &ObjectRef, mut job: Arc<RayJob>, time: &Time, result: Result<(), &str>) {
        let well = result.is_ok();
        if well {
            self.gauge.job_done(key);
        } else {
            self.gauge.job_lost(key);
        }
        let id = job.status.job_id.clone().unwrap_or_default();
        let cluster = job.status.ray_cluster_name.clone().unwrap_or_default();
        let start = job.status.start_time.clone();
        let status = &mut Arc::make_mut(&mut job).status;
        status.job_deployment_status = Some(if well { "Complete" } else { "Failed" }.to_owned());
        status.job_status = Some(if well { "SUCCEEDED" } else { "FAILED" }.to_owned());
        status.message = Some(result.err().unwrap_or(SUCCEEDED_MESSAGE).to_owned());
        status.end_time = Some(time.clone());
        let count = if well { "succeeded" } else { "failed" };
        let times = status.other.get(count).and_then(Value::as_i64).unwrap_or(0).saturating_add(1);
        status.other.insert(count.to_owned(), times.into());
        let limit = job.spec.other.get("backoffLimit").and_then(Value::as_i64).unwrap_or(0);
        let status = &mut Arc::make_mut(&mut job).status;
        if !well && times <= limit {
            status.job_deployment_status = Some("Retrying".to_owned());
            status.end_time = None;
            let text = format!("Job '{id}' failed: the RayJob starts again ({times} of {limit} retries)");
            self.told_running.remove(key);
            self.say(Some(key.clone()), EntryKind::Restarted, text);
            self.store.put(Object::RayJob(job));
            return;
        }
        let shown = |time: &Time| serde_json::to_value(time).unwrap_or_default();
        let info = json!({"startTime": start.as_ref().map(shown), "endTime": shown(time)});
        status.other.insert("rayJobInfo".to_owned(), info);
        if well {
            self.say(Some(key.clone()), EntryKind::Submitter, format!("Job '{id}' succeeded"));
        } else {
            self.say(Some(key.clone()), EntryKind::Failed, format!("Job '{id}' failed"));
        }
        let shutdown = job.spec.shutdown_after_job_finishes == Some(true);
        self.store.put(Object::RayJob(job));
        if shutdown {
            self.store.delete(&Self::beside(key, Kind::RayCluster, &cluster));
        }
    }

    fn create_ray_cluster(&mut self, job: &Arc<RayJob>, name: &str) {
        let mut labels = job.metadata.labels.clone().unwrap_or_default();
        labels.insert("ray.io/originated-from-cr-name".to_owned(), text(job.metadata.name.as_ref()).to_owned());
        labels.insert("ray.io/originated-from-crd".to_owned(), "RayJob".to_owned());
        let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        let mut spec = job.spec.ray_cluster_spec.clone().unwrap_or_default();
        spec.suspend = None;
        let cluster = RayCluster {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: job.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: Some(annotations).filter(|a| !a.is_empty()),
                owner_references: Some(vec![owner_reference(&Object::RayJob(job.clone()))]),
                ..ObjectMeta::default()
            },
            spec,
            ..RayCluster::default()
        };
        let _ = self.store.create(cluster.into());
    }

    fn create_submitter(&mut self, job: &Arc<RayJob>, address: &str) {
        let name = text(job.metadata.name.as_ref());
        let id = text(job.status.job_id.as_ref());
        let entrypoint = text(job.spec.entrypoint.as_ref());
        let image = job
            .spec
            .ray_cluster_spec
            .as_ref()
            .and_then(|spec| spec.head_group_spec.template.spec.as_ref())
            .and_then(|spec| spec.containers.first())
            .and_then(|container| container.image.clone())
            .unwrap_or_default();
        let args = format!(
            "if ! ray job status --address http://{address} {id} >/dev/null 2>&1 ; then ray job submit --address \
             http://{address} --no-wait --submission-id {id} -- {entrypoint} ; fi ; ray job logs --address \
             http://{address} --follow {id}"
        );
        let mut template = job.spec.submitter_pod_template.clone().unwrap_or_else(|| {
            serde_json::from_value(json!({"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "ray-job-submitter",
                    "image": image,
                    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
                }]
            }}))
            .unwrap_or_default()
        });
        if let Some(container) = template.spec.as_mut().and_then(|spec| spec.containers.first_mut())
            && container.command.is_none()
        {
            container.command = Some(["/bin/bash", "-ce", "--"].map(ToOwned::to_owned).to_vec());
            container.args = Some(vec![args]);
            let env = json!([
                {"name": "PYTHONUNBUFFERED", "value": "1"},
                {"name": "RAY_DASHBOARD_ADDRESS", "value": address},
                {"name": "RAY_JOB_SUBMISSION_ID", "value": id}
            ]);
            container
                .env
                .get_or_insert_default()
                .extend(serde_json::from_value::<Vec<k8s_openapi::api::core::v1::EnvVar>>(env).unwrap_or_default());
        }
        let labels = [
            ("app.kubernetes.io/created-by", "kuberay-operator"),
            ("ray.io/originated-from-cr-name", name),
            ("ray.io/originated-from-crd", "RayJob"),
        ];
        let submitter = Job {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: job.metadata.namespace.clone(),
                labels: Some(labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()),
                owner_references: Some(vec![owner_reference(&Object::RayJob(job.clone()))]),
                ..ObjectMeta::default()
            },
            spec: Some(slicegate_api::JobSpec {
                backoff_limit: Some(2),
                completions: Some(1),
                parallelism: Some(1),
                template,
                ..slicegate_api::JobSpec::default()
            }),
            ..Job::default()
        };
        self.create_job(submitter);
    }

    /// Brings a RayCluster and its pods in line.
    pub(crate) fn sync_ray_cluster(&mut self, key: &ObjectRef) {
        let Some(Object::RayCluster(cluster)) = self.store.get(key) else { return };
        let mut cluster = cluster.clone();
        if cluster.metadata.deletion_timestamp.is_some() {
            return;
        }
        let uid = cluster.metadata.uid.clone().unwrap_or_default();
        let time = api_time(self.now);
        if cluster.spec.suspend == Some(true) {
            for (pod, _) in self.pods_of(&uid) {
                self.store.delete(&pod);
            }
            let status = &mut Arc::make_mut(&mut cluster).status;
            status.state = Some("suspended".to_owned());
            status.available_worker_replicas = None;
            let new = condition("RayClusterSuspended", true, "RayClusterSuspended", "", &time);
            set_condition(&mut status.conditions, new);
            self.gauge.job_lost(key);
            self.told_running.remove(key);
            self.store.put(Object::RayCluster(cluster));
            return;
        }
        self.create_ray_pods(&cluster);
        let pods = self.pods_of(&uid);
        let spec = &cluster.spec;
        let worker = |pod: &Pod| label(&pod.metadata, NODE_TYPE) == Some("worker");
        let head = pods.iter().find(|(_, pod)| !worker(pod));
        let head_ready = head.is_some_and(|(_, pod)| is_running(pod));
        let ready = pods.iter().filter(|(_, pod)| worker(pod) && is_running(pod)).count();
        let ready = i32::try_from(ready).unwrap_or(i32::MAX);
        let pods_wanted = |count: &dyn Fn(&WorkerGroupSpec) -> i32| {
            spec.worker_group_specs
                .iter()
                .fold(0, |sum: i32, group| sum.saturating_add(count(group).saturating_mul(hosts(group))))
        };
        let wanted = pods_wanted(&wanted_replicas);
        let all = head_ready && ready >= wanted;
        let before = cluster.status.clone();
        let desired = desired(spec);
        let (low, high) = (
            pods_wanted(&|group| group.min_replicas.unwrap_or(0)),
            pods_wanted(&|group| group.max_replicas.unwrap_or(i32::MAX)),
        );
        let name = text(cluster.metadata.name.as_ref()).to_owned();
        let head_name = head.map(|(key, _)| key.name.to_string());
        let generation = cluster.metadata.generation;
        let status = &mut Arc::make_mut(&mut cluster).status;
        let (head_reason, head_true) = if head_ready { ("HeadPodRunningAndReady", true) } else { ("Unknown", false) };
        set_condition(&mut status.conditions, condition("HeadPodReady", head_true, head_reason, "", &time));
        let provisioned = status.conditions.iter().any(|c| c.type_ == "RayClusterProvisioned" && c.status == "True");
        if all {
            let message = "All Ray Pods are ready for the first time";
            let new = condition("RayClusterProvisioned", true, "AllPodRunningAndReadyFirstTime", message, &time);
            set_condition(&mut status.conditions, new);
        } else if !provisioned {
            let message = "RayCluster Pods are being provisioned for first time";
            let new = condition("RayClusterProvisioned", false, "RayClusterPodsProvisioning", message, &time);
            set_condition(&mut status.conditions, new);
        }
        for kind in ["RayClusterSuspended", "RayClusterSuspending"] {
            set_condition(&mut status.conditions, condition(kind, false, kind, "", &time));
        }
        if all {
            status.state = Some("ready".to_owned());
            let since = serde_json::to_value(&time).unwrap_or_default();
            status.other.entry("stateTransitionTimes".to_owned()).or_insert_with(|| json!({"ready": since}));
        }
        status.desired_worker_replicas = Some(wanted);
        status.available_worker_replicas = (ready > 0).then_some(ready);
        let other = &mut status.other;
        if ready > 0 {
            other.insert("readyWorkerReplicas".to_owned(), ready.into());
        }
        for (key, quantity) in [("CPU", "cpu"), ("GPU", "nvidia.com/gpu"), ("Memory", "memory"), ("TPU", TPU)] {
            let shown = desired.get(quantity).map_or_else(|| "0".to_owned(), ToString::to_string);
            other.insert(format!("desired{key}"), shown.into());
        }
        other.insert("minWorkerReplicas".to_owned(), low.into());
        other.insert("maxWorkerReplicas".to_owned(), high.into());
        other.insert("observedGeneration".to_owned(), generation.into());
        other.insert(
            "endpoints".to_owned(),
            json!({"client": "10001", "dashboard": "8265", "gcs-server": "6379", "metrics": "8080"}),
        );
        other.insert("head".to_owned(), json!({"podName": head_name, "serviceName": format!("{name}-head-svc")}));
        if cluster.status == before {
            return;
        }
        if all && self.told_running.insert(key.clone()) {
            let on = self.on_pools(pods.iter().filter(|(_, pod)| worker(pod)).map(|(key, _)| key));
            let owner = controller_of(&Object::RayCluster(cluster.clone()))
                .filter(|owner| owner.kind == "RayJob")
                .map(|owner| Self::beside(key, Kind::RayJob, &owner.name));
            let at_head = self.on_pools(pods.iter().filter(|(_, pod)| !worker(pod)).map(|(key, _)| key));
            let place = if on == at_head { String::new() } else { at_head };
            let text = format!("running: Ray cluster {name} is ready, head{place} and {ready} workers{on}");
            self.say(Some(owner.unwrap_or_else(|| key.clone())), EntryKind::Running, text);
        }
        let last = serde_json::to_value(&time).unwrap_or_default();
        Arc::make_mut(&mut cluster).status.other.insert("lastUpdateTime".to_owned(), last);
        self.store.put(Object::RayCluster(cluster));
    }

    fn create_ray_pods(&mut self, cluster: &Arc<RayCluster>) {
        let uid = text(cluster.metadata.uid.as_ref());
        let pods = self.pods_of(uid);
        let name = text(cluster.metadata.name.as_ref()).to_owned();
        let alive = |pod: &Pod| !crate::cluster::is_over(pod) && pod.metadata.deletion_timestamp.is_none();
        let in_group = |group: &str, pod: &Pod| alive(pod) && label(&pod.metadata, GROUP) == Some(group);
        let of_group = |group: &str| pods.iter().filter(|(_, pod)| in_group(group, pod)).count();
        if of_group("headgroup") == 0 {
            let mut template = cluster.spec.head_group_spec.template.clone();
            if cluster.spec.enable_in_tree_autoscaling == Some(true)
                && let Some(spec) = &mut template.spec
            {
                let resources = cluster.spec.autoscaler_options.as_ref().and_then(|o| o.resources.clone());
                let image = spec.containers.first().and_then(|c| c.image.clone());
                let mut container: k8s_openapi::api::core::v1::Container = serde_json::from_value(json!({
                    "name": "autoscaler",
                    "image": image,
                    "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}}
                }))
                .unwrap_or_default();
                if resources.is_some() {
                    container.resources = resources;
                }
                spec.containers.push(container);
            }
            self.create_ray_pod(cluster, &template, &format!("{name}-head-"), "headgroup", "head", &[]);
        }
        for group in &cluster.spec.worker_group_specs {
            let hosts = hosts(group);
            let wanted = wanted_replicas(group).saturating_mul(hosts);
            let have = i32::try_from(of_group(&group.group_name)).unwrap_or(i32::MAX);
            let own = Object::RayCluster(cluster.clone()).reference();
            if self.is_too_large(&own, i64::from(wanted), "workers") {
                return;
            }
            // Replicas that were lost come back under their numbers.
            let replica_of = |pod: &Pod| label(&pod.metadata, REPLICA_INDEX).and_then(|n| n.parse::<i32>().ok());
            let here = pods.iter().filter(|(_, pod)| in_group(&group.group_name, pod));
            let there: BTreeSet<i32> = here.filter_map(|(_, pod)| replica_of(pod)).collect();
            let missing = (0..wanted).filter(|number| hosts == 1 || !there.contains(&(number / hosts)));
            let count = usize::try_from(wanted.saturating_sub(have)).unwrap_or(0);
            for number in missing.take(count) {
                let (replica, host) = (number / hosts, number % hosts);
                let mut labels = Vec::new();
                if hosts > 1 {
                    let suffix = names::suffix(&["replica", uid, &group.group_name, &replica.to_string()]);
                    labels.push((REPLICA_NAME, format!("{}-{suffix}", group.group_name)));
                    labels.push((REPLICA_INDEX, replica.to_string()));
                    labels.push((HOST_INDEX, host.to_string()));
                }
                let prefix = format!("{name}-{}-worker-", group.group_name);
                self.create_ray_pod(cluster, &group.template, &prefix, &group.group_name, "worker", &labels);
            }
        }
    }

    fn create_ray_pod(
        &mut self,
        cluster: &Arc<RayCluster>,
        template: &PodTemplateSpec,
        prefix: &str,
        group: &str,
        node_type: &str,
        more: &[(&str, String)],
    ) {
        self.pods_made += 1;
        let name = text(cluster.metadata.name.as_ref());
        let uid = text(cluster.metadata.uid.as_ref());
        let suffix = names::suffix(&["pod", uid, prefix, &self.pods_made.to_string()]);
        let mut template = template.clone();
        complete_template(&mut template);
        let mut meta = template.metadata.unwrap_or_default();
        let mut spec = template.spec.unwrap_or_default();
        let priority = self.priority_of(spec.priority_class_name.as_deref());
        complete_pod(&mut spec, priority);
        let labels = meta.labels.get_or_insert_default();
        for (key, value) in [
            ("app.kubernetes.io/created-by", "kuberay-operator"),
            ("app.kubernetes.io/name", "kuberay"),
            (CLUSTER, name),
            (GROUP, group),
            ("ray.io/identifier", &format!("{name}-{node_type}")),
            ("ray.io/is-ray-node", "yes"),
            (NODE_TYPE, node_type),
        ] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        for (key, value) in more {
            labels.insert((*key).to_owned(), value.clone());
        }
        if node_type == "head" {
            meta.annotations.get_or_insert_default().insert("ray.io/ft-enabled".to_owned(), "false".to_owned());
        }
        let qos = qos_class(&spec);
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}{suffix}")),
                generate_name: Some(prefix.to_owned()),
                namespace: cluster.metadata.namespace.clone(),
                owner_references: Some(vec![owner_reference(&Object::RayCluster(cluster.clone()))]),
                ..meta
            },
            spec: Some(spec),
            status: Some(PodStatus {
                phase: Some("Pending".to_owned()),
                qos_class: Some(qos.to_owned()),
                ..PodStatus::default()
            }),
        };
        let _ = self.store.create(pod.into());
    }

    /// The gang of a worker of a multi-host replica: its pods lie in one node pool, which they share with no other replica.
    pub(crate) fn ray_gang(&self, pod: &Pod) -> Option<Gang> {
        let replica = label(&pod.metadata, REPLICA_NAME)?;
        let (cluster, group) = (label(&pod.metadata, CLUSTER)?, label(&pod.metadata, GROUP)?);
        let namespace = text(pod.metadata.namespace.as_ref());
        let hosts = match self.store.get(&ObjectRef::new(Kind::RayCluster, namespace, cluster)) {
            Some(Object::RayCluster(cluster)) => {
                cluster.spec.worker_group_specs.iter().find(|g| g.group_name == group).map_or(1, hosts)
            }
            _ => 1,
        };
        Some(Gang {
            topology: slicegate_tpu::label::NODE_POOL.into(),
            scope: "ray".into(),
            key: format!("{namespace}/{cluster}/{replica}").into(),
            seeks: true,
            nodes: usize::try_from(hosts).unwrap_or(1),
        })
    }
}

fn empty_cluster_status() -> Value {
    json!({"desiredCPU": "0", "desiredGPU": "0", "desiredMemory": "0", "desiredTPU": "0", "head": {}})
}

/// What the pods of a cluster ask for together, without the autoscaler.
fn desired(spec: &RayClusterSpec) -> BTreeMap<Box<str>, Quantity> {
    let mut total: BTreeMap<Box<str>, Quantity> = BTreeMap::new();
    let mut add = |template: &PodTemplateSpec, count: i32| {
        let requests = template.spec.as_ref().map(|spec| pod_spec(spec).requests()).unwrap_or_default();
        for (name, quantity) in requests {
            let sum = total.entry(name).or_insert_with(|| quantity.minus(quantity));
            *sum = sum.plus(quantity.times(i64::from(count)));
        }
    };
    add(&spec.head_group_spec.template, 1);
    for group in &spec.worker_group_specs {
        add(&group.template, wanted_replicas(group).saturating_mul(hosts(group)));
    }
    total
}
