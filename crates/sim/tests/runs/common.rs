//! A controller for tests: chips are handed out first come, first served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use slicegate_api::{Condition, Kind, Object, ObjectRef, PodTemplateSpec, Time};
use slicegate_controller::{Change, Effects, Operation, Write, WriteId, WriteOutcome};
use slicegate_sim::{Admission, Input, Item, NoFiles, Options, Outcome, Simulation};
use slicegate_workload::Timestamp;

/// Admits jobs in order of creation as long as chips are left; evicts as told.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    pub(crate) chips: i64,
    /// Node selector to inject.
    pub(crate) selector: BTreeMap<String, String>,
    /// Evict this job at this second (once); it queues again at the end.
    pub(crate) evict: Option<(i64, ObjectRef)>,
    /// Pods are to consume this ProvisioningRequest class: one is made for each job.
    pub(crate) provision: bool,
    pub(crate) objects: BTreeMap<ObjectRef, Object>,
    pub(crate) queue: Vec<ObjectRef>,
    pub(crate) admitted: BTreeSet<ObjectRef>,
    pub(crate) writes: u64,
    pub(crate) failed_writes: Vec<String>,
}

fn condition(kind: &str, status: bool, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(k8s_openapi::jiff::Timestamp::from_second(now.seconds()).unwrap()),
        observed_generation: None,
    }
}

fn templates(object: &Object) -> Vec<(String, i64, PodTemplateSpec)> {
    match object {
        Object::JobSet(j) => {
            let group = |g: &slicegate_api::jobset::ReplicatedJob| {
                let spec = g.template.spec.clone().unwrap();
                let pods = i64::from(g.replicas.unwrap_or(1)) * i64::from(spec.parallelism.unwrap_or(1));
                (g.name.clone(), pods, spec.template)
            };
            j.spec.replicated_jobs.iter().map(group).collect()
        }
        Object::Job(j) => {
            let spec = j.spec.clone().unwrap();
            vec![("main".to_owned(), i64::from(spec.parallelism.unwrap_or(1)), spec.template)]
        }
        Object::RayJob(j) => {
            let cluster = j.spec.ray_cluster_spec.clone().unwrap();
            let mut all = vec![("head".to_owned(), 1, cluster.head_group_spec.template)];
            all.extend(cluster.worker_group_specs.into_iter().map(|g| {
                let pods = i64::from(g.replicas.unwrap_or(1)) * i64::from(g.num_of_hosts.unwrap_or(1));
                (g.group_name, pods, g.template)
            }));
            all
        }
        _ => Vec::new(),
    }
}

fn chips_of(template: &PodTemplateSpec) -> i64 {
    let json = serde_json::to_value(template).unwrap();
    let containers = json["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let one = |c: &Value| c["resources"]["limits"]["google.com/tpu"].as_str().map_or(0, |s| s.parse().unwrap());
    containers.iter().map(one).sum()
}

fn chips(object: &Object) -> i64 {
    templates(object).iter().map(|(_, pods, template)| pods * chips_of(template)).sum()
}

fn is_queued_job(object: &Object) -> bool {
    let queued = object.metadata().labels.as_ref().is_some_and(|l| l.contains_key("kueue.x-k8s.io/queue-name"));
    let owned = object.metadata().owner_references.as_ref().is_some_and(|o| !o.is_empty());
    queued && !owned && matches!(object.kind(), Kind::JobSet | Kind::Job | Kind::RayJob)
}

fn is_over(object: &Object) -> bool {
    let json = object.to_json().unwrap();
    let status = &json["status"];
    let over = |c: &Value| {
        c["status"] == "True" && ["Completed", "Complete", "Failed"].contains(&c["type"].as_str().unwrap_or_default())
    };
    status["conditions"].as_array().is_some_and(|all| all.iter().any(over))
        || ["Complete", "Failed"].contains(&status["jobDeploymentStatus"].as_str().unwrap_or_default())
}

fn with_suspend(mut object: Object, suspend: bool, edit: &dyn Fn(&mut PodTemplateSpec)) -> Object {
    match &mut object {
        Object::JobSet(j) => {
            let j = Arc::make_mut(j);
            j.spec.suspend = Some(suspend);
            j.spec.replicated_jobs.iter_mut().for_each(|g| edit(&mut g.template.spec.as_mut().unwrap().template));
        }
        Object::Job(j) => {
            let spec = Arc::make_mut(j).spec.as_mut().unwrap();
            spec.suspend = Some(suspend);
            edit(&mut spec.template);
        }
        Object::RayJob(j) => {
            let spec = &mut Arc::make_mut(j).spec;
            spec.suspend = Some(suspend);
            let cluster = spec.ray_cluster_spec.as_mut().unwrap();
            cluster.worker_group_specs.iter_mut().for_each(|g| edit(&mut g.template));
        }
        _ => {}
    }
    object
}

impl Fifo {
    pub(crate) fn with_chips(chips: i64) -> Self {
        Self { chips, ..Self::default() }
    }

    fn workload(job: &ObjectRef) -> ObjectRef {
        let name = format!("{}-{}", job.kind.as_str().to_lowercase(), job.name);
        ObjectRef::new(Kind::Workload, &*job.namespace, name)
    }

    fn write(&mut self, effects: &mut Effects, operation: Operation) {
        self.writes += 1;
        effects.writes.push(Write { id: WriteId(self.writes), manager: "test", operation });
    }

    fn set(&self, key: &ObjectRef, new: Vec<Condition>, admission: Option<Value>) -> Operation {
        let Some(Object::Workload(w)) = self.objects.get(key) else { panic!("no {key}") };
        let mut w = w.clone();
        let status = &mut Arc::make_mut(&mut w).status;
        for condition in new {
            status.conditions.retain(|c| c.type_ != condition.type_);
            status.conditions.push(condition);
        }
        // What is finished keeps what it was given.
        if !status.conditions.iter().any(|c| c.type_ == "Finished") {
            status.admission = admission.map(|a| serde_json::from_value(a).unwrap());
        }
        Operation::UpdateStatus(Object::Workload(w))
    }
}

impl Admission for Fifo {
    fn observe(&mut self, _: Timestamp, change: Change) {
        match change {
            Change::Applied(object) => {
                let key = object.reference();
                if is_queued_job(&object)
                    && !self.queue.contains(&key)
                    && !self.admitted.contains(&key)
                    && !is_over(&object)
                {
                    self.queue.push(key.clone());
                }
                self.objects.insert(key, object);
            }
            Change::Deleted(object) => {
                let key = object.reference();
                self.objects.remove(&key);
                self.queue.retain(|k| *k != key);
                self.admitted.remove(&key);
            }
        }
    }

    fn complete(&mut self, _: Timestamp, outcome: WriteOutcome) {
        match outcome.result {
            Ok(Some(object)) => {
                self.objects.insert(object.reference(), object);
            }
            Ok(None) => {}
            Err(error) => self.failed_writes.push(error.to_string()),
        }
    }

    fn reconcile(&mut self, now: Timestamp) -> Effects {
        let mut effects = Effects::default();
        let jobs: Vec<ObjectRef> = self.queue.clone();
        for job in &jobs {
            if !self.objects.contains_key(&Self::workload(job)) {
                let object = &self.objects[job];
                let sets: Vec<Value> = templates(object)
                    .into_iter()
                    .map(|(name, count, template)| json!({"name": name, "count": count, "template": template}))
                    .collect();
                let workload = Kind::Workload
                    .read(json!({
                        "metadata": {"name": Self::workload(job).name, "namespace": job.namespace, "ownerReferences": [{
                            "apiVersion": job.kind.api_version(), "kind": job.kind.as_str(), "name": job.name,
                            "uid": object.uid(), "controller": true
                        }]},
                        "spec": {"queueName": "q", "podSets": sets}
                    }))
                    .unwrap();
                self.write(&mut effects, Operation::Create(workload));
            }
        }
        if !effects.writes.is_empty() {
            return effects;
        }
        for job in self.admitted.clone() {
            if self.objects.get(&job).is_some_and(is_over) {
                self.admitted.remove(&job);
                let operation =
                    self.set(&Self::workload(&job), vec![condition("Finished", true, "Succeeded", "done", now)], None);
                self.write(&mut effects, operation);
                return effects;
            }
        }
        if let Some((at, job)) = self.evict.clone() {
            let start = 1_767_225_600;
            if now.seconds() >= start + at && self.admitted.contains(&job) {
                self.evict = None;
                self.admitted.remove(&job);
                self.queue.push(job.clone());
                let message = "Preempted to accommodate another workload";
                let conditions = vec![
                    condition("QuotaReserved", false, "Pending", "waits after preemption", now),
                    condition("Admitted", false, "NoReservation", "no reservation", now),
                    condition("Evicted", true, "Preempted", message, now),
                    condition("Requeued", true, "Preempted", message, now),
                ];
                let operation = self.set(&Self::workload(&job), conditions, None);
                self.write(&mut effects, operation);
                let object = with_suspend(self.objects[&job].clone(), true, &|_| ());
                self.write(&mut effects, Operation::Update(object));
                // Others go first once.
                return effects;
            }
            effects.wake_at = Some(Timestamp::from_seconds(start + at)).filter(|wake| *wake > now);
        }
        let used: i64 = self.admitted.iter().filter_map(|job| self.objects.get(job)).map(chips).sum();
        let mut left = self.chips - used;
        for job in jobs {
            let needs = chips(&self.objects[&job]);
            let workload = Self::workload(&job);
            if needs > left {
                let Some(Object::Workload(w)) = self.objects.get(&workload) else { continue };
                let message = format!("{} more needed", needs - left);
                if !w.status.conditions.iter().any(|c| c.type_ == "QuotaReserved" && c.message == message) {
                    let operation =
                        self.set(&workload, vec![condition("QuotaReserved", false, "Pending", &message, now)], None);
                    self.write(&mut effects, operation);
                }
                continue;
            }
            if self.provision && !self.provisioned(&job, &mut effects) {
                left -= needs;
                continue;
            }
            left -= needs;
            self.queue.retain(|k| *k != job);
            self.admitted.insert(job.clone());
            let sets: Vec<Value> = templates(&self.objects[&job])
                .into_iter()
                .map(|(name, pods, template)| {
                    let usage = (pods * chips_of(&template)).to_string();
                    json!({"name": name, "flavors": {"google.com/tpu": "f"}, "resourceUsage": {"google.com/tpu": usage}})
                })
                .collect();
            let conditions = vec![
                condition("QuotaReserved", true, "QuotaReserved", "reserved", now),
                condition("Admitted", true, "Admitted", "admitted", now),
                condition("Evicted", false, "QuotaReserved", "", now),
                condition("Requeued", false, "QuotaReserved", "", now),
            ];
            let admission = json!({"clusterQueue": "cq", "podSetAssignments": sets});
            let operation = self.set(&workload, conditions, Some(admission));
            self.write(&mut effects, operation);
            let selector = self.selector.clone();
            let request = self.provision.then(|| format!("{}-pr", job.name));
            let object = with_suspend(self.objects[&job].clone(), false, &|template| {
                template.spec.get_or_insert_default().node_selector.get_or_insert_default().extend(selector.clone());
                if let Some(request) = &request {
                    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
                    annotations.insert("autoscaling.x-k8s.io/consume-provisioning-request".to_owned(), request.clone());
                }
            });
            self.write(&mut effects, Operation::Update(object));
        }
        effects
    }
}

impl Fifo {
    /// Whether the ProvisioningRequest of a job is provisioned; makes it first.
    fn provisioned(&mut self, job: &ObjectRef, effects: &mut Effects) -> bool {
        let name = format!("{}-pr", job.name);
        let key = ObjectRef::new(Kind::ProvisioningRequest, &*job.namespace, name.as_str());
        let Some(Object::ProvisioningRequest(request)) = self.objects.get(&key) else {
            let sets = templates(&self.objects[job]);
            let (_, count, mut template) = sets.into_iter().find(|(_, _, t)| chips_of(t) > 0).unwrap();
            let selector = self.selector.clone();
            template.spec.get_or_insert_default().node_selector.get_or_insert_default().extend(selector);
            let pod_template = Kind::PodTemplate
                .read(json!({"metadata": {"name": format!("ppt-{name}"), "namespace": job.namespace}, "template": template}))
                .unwrap();
            self.write(effects, Operation::Create(pod_template));
            let request = Kind::ProvisioningRequest
                .read(json!({
                    "metadata": {"name": name, "namespace": job.namespace, "ownerReferences": [{
                        "apiVersion": job.kind.api_version(), "kind": job.kind.as_str(), "name": job.name,
                        "uid": self.objects[job].uid(), "controller": true
                    }]},
                    "spec": {"provisioningClassName": "queued-provisioning.gke.io",
                             "podSets": [{"podTemplateRef": {"name": format!("ppt-{name}")}, "count": count}]}
                }))
                .unwrap();
            self.write(effects, Operation::Create(request));
            return false;
        };
        request.status.conditions.iter().any(|c| c.type_ == "Provisioned" && c.status == "True")
    }
}

pub(crate) fn item(value: Value) -> Item {
    let kind = value["kind"].as_str().unwrap();
    match kind {
        "NodePool" => Item::NodePool(serde_json::from_value(value).unwrap()),
        "Scenario" => Item::Scenario(serde_json::from_value(value).unwrap()),
        _ => {
            let kind = Kind::ALL.iter().find(|k| k.as_str() == kind).unwrap();
            Item::Object(kind.read(value).unwrap())
        }
    }
}

pub(crate) fn pool(name: &str, machine: &str, topology: &str, nodes: i64) -> Item {
    item(json!({
        "kind": "NodePool", "name": name, "initialNodeCount": nodes, "config": {"machineType": machine},
        "placementPolicy": {"tpuTopology": topology}
    }))
}

pub(crate) fn scaling_pool(name: &str, machine: &str, topology: &str, most: i64, queued: bool) -> Item {
    item(json!({
        "kind": "NodePool", "name": name, "config": {"machineType": machine, "flexStart": queued},
        "placementPolicy": {"tpuTopology": topology}, "queuedProvisioning": {"enabled": queued},
        "autoscaling": {"enabled": true, "minNodeCount": 0, "maxNodeCount": most}
    }))
}

pub(crate) fn jobset(name: &str, slices: i64) -> Item {
    item(json!({
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
        },
        "spec": {"failurePolicy": {"maxRestarts": 4}, "replicatedJobs": [{"name": "slice", "replicas": slices, "template": {
            "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": {
                "nodeSelector": {
                    "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                    "cloud.google.com/gke-tpu-topology": "2x4"
                },
                "containers": [{"name": "c", "image": "python:3.8", "resources": {"limits": {"google.com/tpu": "4"}}}]
            }}}
        }}]}
    }))
}

pub(crate) fn rayjob(name: &str) -> Item {
    item(json!({
        "kind": "RayJob",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "q"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
        "spec": {"shutdownAfterJobFinishes": true, "entrypoint": "python train.py", "rayClusterSpec": {
            "enableInTreeAutoscaling": true,
            "headGroupSpec": {"template": {"spec": {"nodeSelector": {"cloud.google.com/gke-nodepool": "default-pool"},
                "containers": [{"name": "head", "image": "ray", "resources": {
                    "requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}}]}}},
            "workerGroupSpecs": [{"groupName": "tpu-group", "replicas": 1, "minReplicas": 1, "maxReplicas": 2, "numOfHosts": 4,
                "template": {"spec": {
                    "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"},
                                    {"key": "cloud.google.com/gke-queued", "operator": "Exists", "effect": "NoSchedule"}],
                    "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
                                     "cloud.google.com/gke-tpu-topology": "4x4"},
                    "containers": [{"name": "worker", "image": "ray", "resources": {
                        "limits": {"cpu": "8", "memory": "16Gi", "google.com/tpu": "4"}}}]}}}]
        }}
    }))
}

pub(crate) fn simulation(items: Vec<Item>, fifo: Fifo) -> Simulation<Fifo> {
    Simulation::with(Input { items, options: Options::default() }, &NoFiles, fifo).unwrap()
}

/// Runs to the end, checking the invariants after every event.
pub(crate) fn run(items: Vec<Item>, fifo: Fifo) -> Outcome {
    let mut simulation = simulation(items, fifo);
    while simulation.step() {
        assert_eq!(simulation.check(), Ok(()), "at {:?}", simulation.now());
    }
    assert_eq!(simulation.admission().failed_writes, Vec::<String>::new());
    simulation.finish()
}

pub(crate) fn lines(outcome: &Outcome) -> Vec<String> {
    let line = |e: &slicegate_sim::Entry| {
        let at = slicegate_sim::Elapsed(e.time.micros_since(outcome.start));
        let object = e.object.as_ref().map_or(String::new(), |o| format!("{}/{} ", o.kind, o.name));
        format!("{at} {object}{}", e.text)
    };
    outcome.timeline.iter().map(line).collect()
}
