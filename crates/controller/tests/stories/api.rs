//! A small API server in memory, and a controller that lives on it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slicegate_api::{Kind, Object, ObjectRef, convert};
use slicegate_controller::{
    Change, Configuration, Controller, EventRecord, Note, Operation, Write, WriteError, WriteOutcome,
};
use slicegate_workload::{ConditionType, Key, Timestamp, Workload};

/// 2026-01-01T00:00:00Z.
pub(super) const START: i64 = 1_767_225_600;

/// The objects, as an API server keeps them.
#[derive(Default)]
pub(super) struct Api {
    pub(super) objects: BTreeMap<ObjectRef, Object>,
    version: u64,
    uids: u64,
    now: Timestamp,
    /// What happened since it was last asked.
    pub(super) changes: Vec<Change>,
}

fn spec(object: &Object) -> Value {
    let mut value = object.to_json().unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.remove("status");
    fields.remove("metadata");
    value
}

fn with_part(base: &Object, from: &Object, status: bool) -> Object {
    let (mut to, source) = (base.to_json().unwrap(), from.to_json().unwrap());
    if status {
        to["status"] = source.get("status").cloned().unwrap_or_else(|| json!({}));
    } else {
        let old = to.get("status").cloned();
        to = source;
        match old {
            Some(status) => to["status"] = status,
            None => drop(to.as_object_mut().unwrap().remove("status")),
        }
    }
    base.kind().read(to).unwrap()
}

impl Api {
    pub(super) fn store(&mut self, mut object: Object) -> Object {
        self.version += 1;
        object.metadata_mut().resource_version = Some(self.version.to_string());
        let reference = object.reference();
        let doomed = object.metadata().deletion_timestamp.is_some()
            && object.metadata().finalizers.as_ref().is_none_or(Vec::is_empty);
        if doomed {
            self.objects.remove(&reference);
            self.changes.push(Change::Deleted(object.clone()));
            self.collect(object.uid());
        } else {
            self.objects.insert(reference, object.clone());
            self.changes.push(Change::Applied(object.clone()));
        }
        object
    }

    /// Removes what the object that is gone controlled.
    fn collect(&mut self, uid: &str) {
        let owned: Vec<ObjectRef> = self
            .objects
            .values()
            .filter(|o| o.metadata().owner_references.iter().flatten().any(|r| r.uid == uid))
            .map(Object::reference)
            .collect();
        for reference in owned {
            self.delete(&reference);
        }
    }

    pub(super) fn create(&mut self, mut object: Object) -> Result<Object, WriteError> {
        if self.objects.contains_key(&object.reference()) {
            return Err(WriteError::AlreadyExists(object.reference()));
        }
        self.uids += 1;
        let metadata = object.metadata_mut();
        metadata.uid = Some(format!("uid-{}", self.uids));
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(convert::time_to_api(self.now.truncated()));
        Ok(self.store(object))
    }

    pub(super) fn delete(&mut self, reference: &ObjectRef) {
        let Some(object) = self.objects.get(reference) else { return };
        let mut object = object.clone();
        if object.metadata().deletion_timestamp.is_none() {
            object.metadata_mut().deletion_timestamp = Some(convert::time_to_api(self.now.truncated()));
            self.store(object);
        }
    }

    pub(super) fn perform(&mut self, write: &Write) -> Result<Option<Object>, WriteError> {
        let reference = write.operation.object();
        match &write.operation {
            Operation::Create(object) => self.create(object.clone()).map(Some),
            Operation::Delete { uid, .. } => {
                let there = self.objects.get(&reference).filter(|o| uid.is_empty() || o.uid() == &**uid);
                if there.is_none() {
                    return Err(WriteError::NotFound(reference));
                }
                self.delete(&reference);
                Ok(self.objects.get(&reference).cloned())
            }
            Operation::Update(new) | Operation::UpdateStatus(new) => {
                let Some(old) = self.objects.get(&reference) else { return Err(WriteError::NotFound(reference)) };
                if old.metadata().resource_version != new.metadata().resource_version {
                    return Err(WriteError::Conflict(reference));
                }
                let status = matches!(write.operation, Operation::UpdateStatus(_));
                let mut object = with_part(old, new, status);
                if !status && spec(old) != spec(&object) {
                    let generation = old.metadata().generation.unwrap_or(0) + 1;
                    object.metadata_mut().generation = Some(generation);
                }
                assert!(object != *old, "a write that changes nothing: {write:?}");
                let stored = self.store(object);
                Ok(self.objects.contains_key(&reference).then_some(stored))
            }
        }
    }
}

/// Decides the fate of a write before it reaches the server.
type Fault = Box<dyn FnMut(&Write) -> Option<WriteError>>;

/// A controller, its API server, and what it said.
pub(super) struct World {
    pub(super) api: Api,
    pub(super) controller: Controller,
    pub(super) now: Timestamp,
    pub(super) events: Vec<EventRecord>,
    pub(super) notes: Vec<Note>,
    pub(super) writes: Vec<Write>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) fault: Fault,
    /// Every report is made twice, the older ones again after the newer.
    pub(super) noisy: bool,
    /// The watches are late: nothing is reported, and the answers to writes of Workloads are lost.
    pub(super) deaf: bool,
    /// The controllers of jobs are away: nobody takes notice that a job is suspended.
    pub(super) away: bool,
}

impl World {
    pub(super) fn new(configuration: Configuration) -> Self {
        let now = Timestamp::from_seconds(START);
        let mut world = Self {
            api: Api { now, ..Api::default() },
            controller: Controller::new(configuration),
            now,
            events: Vec::new(),
            notes: Vec::new(),
            writes: Vec::new(),
            wake_at: None,
            fault: Box::new(|_| None),
            noisy: false,
            deaf: false,
            away: false,
        };
        world.put(json!({"kind": "Namespace", "metadata": {"name": "default"}}));
        world
    }

    /// Makes an object.
    pub(super) fn put(&mut self, value: Value) -> ObjectRef {
        let kind = Kind::ALL.iter().find(|k| Some(k.as_str()) == value["kind"].as_str()).unwrap();
        let mut object = kind.read(value).unwrap();
        if kind.is_namespaced() && object.metadata().namespace.is_none() {
            object.metadata_mut().namespace = Some("default".to_owned());
        }
        let object = self.api.create(object).unwrap();
        self.deliver();
        object.reference()
    }

    /// Changes an object as somebody else would.
    pub(super) fn edit(&mut self, reference: &ObjectRef, change: impl FnOnce(&mut Value)) {
        let old = self.api.objects[reference].clone();
        let mut value = old.to_json().unwrap();
        change(&mut value);
        let mut object = reference.kind.read(value).unwrap();
        if spec(&old) != spec(&object) {
            object.metadata_mut().generation = Some(old.metadata().generation.unwrap_or(0) + 1);
        }
        self.api.store(object);
        self.deliver();
    }

    pub(super) fn delete(&mut self, reference: &ObjectRef) {
        self.api.delete(reference);
        self.deliver();
    }

    pub(super) fn deliver(&mut self) {
        if self.deaf {
            return;
        }
        let changes = std::mem::take(&mut self.api.changes);
        if self.noisy {
            for change in changes.iter().chain(changes.iter().rev()) {
                self.controller.observe(self.now, change.clone());
            }
        } else {
            for change in changes {
                self.controller.observe(self.now, change);
            }
        }
    }

    /// One call of the controller; its writes are performed. Returns how many there were.
    pub(super) fn step(&mut self) -> usize {
        let effects = self.controller.reconcile(self.now);
        self.events.extend(effects.events);
        self.notes.extend(effects.notes);
        self.wake_at = effects.wake_at;
        let count = effects.writes.len();
        for write in effects.writes {
            let result = match (self.fault)(&write) {
                Some(error) => Err(error),
                None => self.api.perform(&write),
            };
            let object = write.operation.object();
            let result = if self.deaf && object.kind == Kind::Workload {
                Err(WriteError::Unavailable { object, why: "connection closed".to_owned() })
            } else {
                result
            };
            let outcome = WriteOutcome { id: write.id, result };
            self.writes.push(write);
            self.controller.complete(self.now, outcome);
        }
        self.deliver();
        count
    }

    /// The controller dies after so many of its writes, and another takes its place.
    pub(super) fn crash(&mut self, after: usize) {
        let effects = self.controller.reconcile(self.now);
        for write in effects.writes.into_iter().take(after) {
            // Nobody is left to hear how it went.
            let _ = self.api.perform(&write);
            self.writes.push(write);
        }
        self.restart(self.controller.configuration().clone());
    }

    /// Another controller takes over.
    pub(super) fn restart(&mut self, configuration: Configuration) {
        self.api.changes.clear();
        self.controller = Controller::new(configuration);
        for object in self.api.objects.values() {
            self.controller.observe(self.now, Change::Applied(object.clone()));
        }
    }

    /// What the controllers of jobs do once they see that a job without pods is suspended, or no longer is: they say so. Returns
    /// whether there was something to say.
    pub(super) fn take_notice(&mut self) -> bool {
        let kinds = [Kind::Job, Kind::JobSet, Kind::RayCluster];
        let jobs: Vec<ObjectRef> = self.api.objects.keys().filter(|r| kinds.contains(&r.kind)).cloned().collect();
        let mut noticed = false;
        for reference in jobs {
            let job = self.json(&reference);
            let groups = job["status"]["replicatedJobsStatus"].as_array().cloned().unwrap_or_default();
            let active = |status: &Value| status["active"].as_i64().unwrap_or(0) > 0;
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
            if ["Complete", "Completed", "Failed"].into_iter().any(is)
                || active(&job["status"])
                || groups.iter().any(active)
            {
                continue;
            }
            let suspended = job["spec"]["suspend"] == true;
            // Of one that never ran there is nothing to say.
            if job["metadata"]["generation"] == 1 {
                continue;
            }
            if reference.kind == Kind::RayCluster {
                let told = job["status"]["state"] == "suspended";
                if suspended != told {
                    noticed = true;
                    self.edit(&reference, |v| v["status"]["state"] = if suspended { "suspended" } else { "" }.into());
                }
            } else if suspended != is("Suspended") {
                noticed = true;
                let others = conditions.iter().filter(|c| c["type"] != "Suspended").cloned();
                let told = json!({"type": "Suspended", "status": if suspended { "True" } else { "False" },
                    "reason": "s", "message": "", "lastTransitionTime": convert::time_to_api(self.now.truncated())});
                let all: Vec<Value> = others.chain([told]).collect();
                self.edit(&reference, |v| v["status"]["conditions"] = all.into());
            }
        }
        noticed
    }

    /// Lets the controller work until it is content, and checks that it then stays so.
    #[track_caller]
    pub(super) fn settle(&mut self) {
        for _ in 0..100 {
            if self.step() == 0 {
                let again = self.controller.reconcile(self.now);
                assert!(again.writes.is_empty(), "not content: {:?}", again.writes);
                self.controller.engine().check().unwrap();
                if self.away || !self.take_notice() {
                    return;
                }
            }
        }
        panic!("it never comes to rest: {:?}", self.writes.iter().rev().take(4).collect::<Vec<_>>());
    }

    pub(super) fn advance(&mut self, seconds: i64) {
        self.now = self.now.plus_seconds(seconds);
        self.api.now = self.now;
    }

    /// Waits until the controller wants to be called again.
    #[track_caller]
    pub(super) fn sleep(&mut self) {
        let wake = self.wake_at.expect("nothing to wait for");
        assert!(wake > self.now, "it wants to be called again at once");
        self.now = wake;
        self.api.now = wake;
        self.settle();
    }

    pub(super) fn json(&self, reference: &ObjectRef) -> Value {
        self.api.objects[reference].to_json().unwrap()
    }

    /// The workload of a job.
    #[track_caller]
    pub(super) fn workload(&self, job: &ObjectRef) -> &Workload {
        self.controller.workload_of(job).expect("a workload")
    }

    pub(super) fn has(&self, job: &ObjectRef, kind: &ConditionType) -> bool {
        self.workload(job).status.conditions.is_true(kind)
    }

    pub(super) fn key(&self, job: &ObjectRef) -> Key {
        self.workload(job).key.clone()
    }

    /// The reasons of the Events about an object, in order.
    pub(super) fn reasons(&self, object: &ObjectRef) -> Vec<&str> {
        self.events.iter().filter(|e| e.object == *object).map(|e| &*e.reason).collect()
    }

    /// The lines told about a workload.
    pub(super) fn told(&self, workload: &Key) -> Vec<&str> {
        self.notes.iter().filter(|n| n.workload == *workload).map(|n| n.text.as_str()).collect()
    }
}

/// Quota of one flavor and one resource, and a LocalQueue that leads to it.
pub(super) fn queue(world: &mut World, flavor_labels: &Value, quota: i64, preemption: &Value) {
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "vlp"}, "spec": {"nodeLabels": flavor_labels}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": preemption,
        "resourceGroups": [{"coveredResources": ["google.com/tpu"], "flavors": [
            {"name": "vlp", "resources": [{"name": "google.com/tpu", "nominalQuota": quota.to_string()}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
}

/// A JobSet of so many slices of two hosts with four chips each.
pub(super) fn jobset(name: &str, slices: i64, priority_class: Option<&str>) -> Value {
    let mut pod = json!({"containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": "4"}}}],
        "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"}});
    if let Some(class) = priority_class {
        pod["priorityClassName"] = class.into();
    }
    json!({"kind": "JobSet", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": {
            "parallelism": 2, "completions": 2, "template": {"spec": pod}}}}]}})
}

/// Sets how many Jobs of a JobSet are active and done.
pub(super) fn progress(world: &mut World, jobset: &ObjectRef, active: i64, succeeded: i64) {
    world.edit(jobset, |v| {
        v["status"]["replicatedJobsStatus"] =
            json!([{"name": "slice", "active": active, "ready": active, "succeeded": succeeded}]);
    });
}

/// Ends a JobSet.
pub(super) fn complete(world: &mut World, jobset: &ObjectRef, condition: &str) {
    let now = convert::time_to_api(world.now.truncated());
    world.edit(jobset, |v| {
        v["status"]["replicatedJobsStatus"] = json!([{"name": "slice", "active": 0}]);
        v["status"]["conditions"] = json!([{"type": condition, "status": "True", "reason": "AllJobsCompleted",
            "message": "jobset completed successfully", "lastTransitionTime": now}]);
    });
}
