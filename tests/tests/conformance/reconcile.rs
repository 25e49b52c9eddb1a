//! Reconciles: one pass over a job, a Workload or its ProvisioningRequests.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read fails")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use slicegate_admission::WaitForPodsReady;
use slicegate_api::{Kind, Object, ObjectRef, convert, kueue};
use slicegate_controller::checks::{entries, is_needed};
use slicegate_controller::{
    Change, Configuration, Controller, EventRecord, Operation, Pass, Write, WriteError, WriteOutcome,
};
use slicegate_workload::{Key, Timestamp};

use crate::fixtures::{gates, object, objects, pruned, same, seconds, selector, time};
use crate::report::{Outcome, Report};

/// A controller and the objects that it works on.
struct Stage {
    controller: Controller,
    objects: BTreeMap<ObjectRef, Object>,
    events: Vec<EventRecord>,
    now: Timestamp,
    /// What the API server refuses.
    faults: Faults,
    /// Whether the controller of Jobs takes notice of what is written.
    notices: bool,
}

/// Writes that fail.
#[derive(Default)]
struct Faults {
    create: Option<Kind>,
    status: bool,
    text: String,
}

impl Faults {
    fn new(case: &Value) -> Self {
        let faults = &case["apiServerFaults"];
        let create = faults["create"].as_str().and_then(|name| Kind::ALL.iter().copied().find(|k| k.as_str() == name));
        let text = faults["error"].as_str().or(faults["statusPatchError"].as_str()).unwrap_or_default().to_owned();
        Self { create, status: faults["statusPatchError"].is_string(), text }
    }

    fn hits(&self, operation: &Operation) -> Option<WriteError> {
        let object = operation.object();
        match operation {
            Operation::Create(_) if self.create == Some(object.kind) => {
                Some(if self.text.ends_with("already exists") {
                    WriteError::AlreadyExists(object)
                } else {
                    WriteError::Invalid { object, why: self.text.clone() }
                })
            }
            Operation::UpdateStatus(_) if self.status => Some(WriteError::Invalid { object, why: self.text.clone() }),
            _ => None,
        }
    }
}

impl Stage {
    fn new(case: &Value) -> Self {
        let config = &case["config"];
        let mut configuration = Configuration::default();
        let gate = |name: &str, default: bool| config["featureGates"][name].as_bool().unwrap_or(default);
        configuration.engine.gates = gates(case);
        configuration.assign_queue_labels_for_pods = gate("AssignQueueLabelsForPods", true);
        configuration.finish_orphaned_workloads = gate("FinishOrphanedWorkloads", true);
        configuration.cleanup_provisioning_requests_on_eviction = gate("CleanupProvisioningRequestsOnEviction", true);
        configuration.manage_jobs_without_queue_name = config["manageJobsWithoutQueueName"] == true;
        configuration.managed_jobs_namespace_selector =
            selector(config["managedJobsNamespaceSelector"].as_str().unwrap_or_default());
        for key in config["labelKeysToCopy"].as_array().into_iter().flatten() {
            configuration.label_keys_to_copy.push(key.as_str().unwrap().into());
        }
        configuration.retention_after_finished_seconds = config["retentionAfterFinishedSeconds"].as_i64();
        configuration.retention_after_deactivated_seconds =
            config["retention"]["afterDeactivatedByKueue"].as_str().map(seconds);
        let wait = &config["waitForPodsReady"];
        if *wait == json!(true) {
            configuration.engine.wait_for_pods_ready = Some(WaitForPodsReady::default());
        } else if wait.is_object() {
            let number = |key: &str| wait[key].as_i64();
            let small = |key: &str| number(key).map(|n| i32::try_from(n).unwrap());
            configuration.engine.wait_for_pods_ready = Some(WaitForPodsReady {
                timeout_seconds: number("timeoutSeconds").unwrap_or(300),
                recovery_timeout_seconds: number("recoveryTimeoutSeconds"),
                backoff_limit_count: small("backoffLimitCount"),
                backoff_base_seconds: small("backoffBaseSeconds").unwrap_or(60),
                backoff_max_seconds: small("backoffMaxSeconds").unwrap_or(3600),
                ..WaitForPodsReady::default()
            });
        }
        let now = time(&config["now"]);
        let mut stage = Self {
            controller: Controller::new(configuration),
            objects: BTreeMap::new(),
            events: Vec::new(),
            now,
            faults: Faults::new(case),
            notices: false,
        };
        for mut object in objects(case) {
            let kind = object.kind().as_str();
            if case["terminating"].as_array().is_some_and(|t| t.iter().any(|k| k == kind)) {
                object.metadata_mut().deletion_timestamp = Some(convert::time_to_api(now));
            }
            stage.objects.insert(object.reference(), object);
        }
        for object in stage.objects.values() {
            stage.controller.observe(now, Change::Applied(object.clone()));
        }
        stage
    }

    /// Looks at an object and performs what the controller asks for. Returns how many writes that were.
    fn pass(&mut self, pass: Pass<'_>) -> usize {
        let effects = self.controller.pass(self.now, pass);
        self.events.extend(effects.events);
        let count = effects.writes.len();
        for write in effects.writes {
            let result = self.perform(&write);
            self.controller.complete(self.now, WriteOutcome { id: write.id, result });
        }
        let effects = self.controller.pass(self.now, Pass::Outcomes);
        self.events.extend(effects.events);
        count
    }

    /// The Workloads that there are.
    fn workloads(&self) -> Vec<Key> {
        let all = self.objects.keys().filter(|r| r.kind == Kind::Workload);
        all.map(|r| Key::new(r.namespace.clone(), r.name.clone())).collect()
    }

    fn perform(&mut self, write: &Write) -> Result<Option<Object>, WriteError> {
        if let Some(error) = self.faults.hits(&write.operation) {
            return Err(error);
        }
        let reference = write.operation.object();
        let result = match &write.operation {
            Operation::Create(o) => Some(o.clone()),
            Operation::Update(o) => Some(self.part(&reference, o, false)),
            Operation::UpdateStatus(o) => Some(self.part(&reference, o, true)),
            Operation::Delete { .. } => None,
        };
        let gone = |o: &Object| {
            let metadata = o.metadata();
            metadata.deletion_timestamp.is_some() && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        };
        let result = result.filter(|o| !gone(o)).map(|o| if self.notices { noticed(&o) } else { o });
        match &result {
            Some(object) => drop(self.objects.insert(reference, object.clone())),
            None => drop(self.objects.remove(&reference)),
        }
        Ok(result)
    }

    fn part(&self, reference: &ObjectRef, new: &Object, status: bool) -> Object {
        let (mut old, mut new) = (self.objects[reference].to_json().unwrap(), new.to_json().unwrap());
        if status {
            old["status"] = new["status"].take();
            reference.kind.read(old).unwrap()
        } else {
            new["status"] = old["status"].take();
            if new["status"].is_null() {
                new.as_object_mut().unwrap().remove("status");
            }
            reference.kind.read(new).unwrap()
        }
    }

    fn events(&self) -> Value {
        self.events
            .iter()
            .map(|e| {
                let object = if e.object.namespace.is_empty() {
                    e.object.name.to_string()
                } else {
                    format!("{}/{}", e.object.namespace, e.object.name)
                };
                json!({"message": e.note, "object": object, "reason": e.reason, "type": format!("{:?}", e.kind)})
            })
            .collect::<Vec<_>>()
            .into()
    }
}

/// An object without what does not matter: times, names of Workloads, and what an API server sets.
fn plain(mut value: Value, is_job: bool) -> Value {
    let kind = value["kind"].clone();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for key in ["ownerReferences", "creationTimestamp", "uid", "generation", "deletionTimestamp"] {
            metadata.remove(key);
        }
        if is_job {
            metadata.remove("annotations");
        }
        if kind == "Workload" {
            metadata.remove("name");
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.retain(|_, v| v != "");
            }
        }
    }
    if let Some(spec) = value["spec"].as_object_mut()
        && kind == "Workload"
    {
        if spec.get("active") == Some(&json!(true)) {
            spec.remove("active");
        }
        if spec.get("priority") == Some(&json!(0)) {
            spec.remove("priority");
        }
    }
    if let Some(status) = value["status"].as_object_mut() {
        for key in ["conditions", "admissionChecks"] {
            if let Some(list) = status.get_mut(key).and_then(Value::as_array_mut) {
                for item in list.iter_mut() {
                    let item = item.as_object_mut().unwrap();
                    item.remove("lastTransitionTime");
                    item.remove("observedGeneration");
                }
                list.sort_by_key(|c| c["type"].as_str().map(str::to_owned));
            }
        }
        if let Some(state) = status.get_mut("requeueState").and_then(Value::as_object_mut) {
            state.remove("requeueAt");
        }
    }
    pruned(&value)
}

fn compare(what: &str, got: &Value, want: &Value) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}\n   got {got}\n  want {want}")) }
}

fn all(objects: &BTreeMap<ObjectRef, Object>, kind: Kind) -> Value {
    let list: Vec<Value> =
        objects.values().filter(|o| o.kind() == kind).map(|o| plain(o.to_json().unwrap(), false)).collect();
    sorted(list)
}

fn sorted(mut list: Vec<Value>) -> Value {
    list.sort_by_key(ToString::to_string);
    list.into()
}

fn jobs(stage: &Stage, job: &ObjectRef, expect: &Value) -> Result<(), String> {
    let mut got = stage.objects.get(job).map_or(Value::Null, |o| plain(o.to_json().unwrap(), true));
    if stage.notices
        && let Some(status) = got["status"].as_object_mut()
    {
        status.remove("conditions");
    }
    let want = expect.get("job").map_or(Value::Null, |j| plain(object(j).to_json().unwrap(), true));
    compare("job", &got, &want)?;
    let want = expect["workloads"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|w| plain(object(w).to_json().unwrap(), false))
        .collect();
    compare("workloads", &all(&stage.objects, Kind::Workload), &sorted(want))?;
    compare("events", &pruned(&stage.events()), &pruned(&expect.get("events").cloned().unwrap_or_else(|| json!([]))))
}

/// A Job after its controller took notice that it is suspended.
fn noticed(object: &Object) -> Object {
    let mut value = object.to_json().unwrap();
    if object.kind() == Kind::Job && value["spec"]["suspend"] == true {
        value["status"]["conditions"] = json!([{"type": "Suspended", "status": "True"}]);
    }
    object.kind().read(value).unwrap()
}

/// How many passes what Kueue does at once may take: each writes an object at most once.
const PASSES: usize = 8;

/// Looks at a job until it is as expected or nothing changes any more.
fn reconcile_job(case: &Value, kind: Kind, notices: bool) -> Result<(), String> {
    let mut stage = Stage::new(case);
    stage.notices = notices;
    let (namespace, name) = case["key"].as_str().unwrap().split_once('/').unwrap();
    let job = ObjectRef::new(kind, namespace, name);
    let mut last = Ok(());
    let gone = !stage.objects.contains_key(&job);
    for _ in 0..PASSES {
        let mut writes = stage.pass(Pass::Job(&job));
        // The Workloads of a job that is gone are looked at one by one.
        if gone {
            for key in stage.workloads() {
                writes += stage.pass(Pass::Workload(&key));
            }
        }
        last = jobs(&stage, &job, &case["expect"]);
        if last.is_ok() || writes == 0 {
            break;
        }
    }
    last
}

/// Runs the suites of the folder `jobs` that reconcile.
pub(crate) fn of_jobs(corpus: &Path, kind: &str, report: &mut Report) {
    for (suite, of) in
        [("job-reconcile", Kind::Job), ("jobset-reconcile", Kind::JobSet), ("raycluster-reconcile", Kind::RayCluster)]
    {
        report.suite(corpus, kind, suite, |case| {
            let result = reconcile_job(case, of, false);
            // The same, and the Job's own controller does its part.
            if result.is_err() && of == Kind::Job && reconcile_job(case, of, true).is_ok() {
                return Outcome::Differs(NOT_NOTICED.to_owned());
            }
            result.into()
        });
    }
    report.suite(corpus, kind, "priority-class-reconcile", |case| {
        let mut stage = Stage::new(case);
        for key in stage.workloads() {
            stage.pass(Pass::Workload(&key));
        }
        let got: serde_json::Map<String, Value> =
            stage.controller.workloads().map(|w| (w.key.to_string(), w.spec.priority.into())).collect();
        same(&got.into(), &case["expect"]["priorities"])
    });
}

/// Why the pods of a Job are not as they were at once.
const NOT_NOTICED: &str =
    "the template of a Job is restored once the controller of Jobs took notice that it is suspended";

/// Why the ClusterQueue of some cases is inactive although it exists.
const UNKNOWN_QUEUE: &str = "a ClusterQueue that exists is known: there is no cache that could lack it";

fn reconcile_workload(case: &Value, prepare: impl Fn(&mut Value)) -> Result<(), String> {
    let mut case = case.clone();
    prepare(&mut case);
    let mut stage = Stage::new(&case);
    let key = case["objects"].as_array().unwrap().iter().find(|o| o["kind"] == "Workload").unwrap();
    let key =
        Key::new(key["metadata"]["namespace"].as_str().unwrap_or_default(), key["metadata"]["name"].as_str().unwrap());
    let reference = ObjectRef::new(Kind::Workload, key.namespace.clone(), key.name.clone());
    let want = case["expect"].get("workload").map_or(Value::Null, |w| plain(object(w).to_json().unwrap(), false));
    let events = pruned(&case["expect"].get("events").cloned().unwrap_or_else(|| json!([])));
    let mut last = Ok(());
    for _ in 0..PASSES {
        let writes = stage.pass(Pass::Workload(&key));
        let got = stage.objects.get(&reference).map_or(Value::Null, |o| plain(o.to_json().unwrap(), false));
        last = compare("workload", &got, &want).and_then(|()| compare("events", &pruned(&stage.events()), &events));
        if last.is_ok() || writes == 0 {
            break;
        }
    }
    last
}

/// Runs the suites of the folder `checks` that reconcile.
pub(crate) fn of_workloads(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "workload-reconcile", |case| {
        let result = reconcile_workload(case, |_| {});
        // The same with a queue that is stopped differs in nothing else.
        let inactive = |case: &Value| case["expect"]["workload"].to_string().contains("is inactive");
        if result.is_err() && inactive(case) {
            let stopped = reconcile_workload(case, |case| {
                let all = case["objects"].as_array_mut().into_iter().flatten();
                all.filter(|o| o["kind"] == "ClusterQueue").for_each(|o| o["spec"]["stopPolicy"] = "Hold".into());
            });
            if stopped.is_ok() {
                return Outcome::Differs(UNKNOWN_QUEUE.to_owned());
            }
        }
        result.into()
    });
    report.suite(corpus, kind, "provisioning-reconcile", reconcile_capacity);
    report.suite(corpus, kind, "provisioning-is-needed", |case| {
        let config: kueue::ProvisioningRequestConfig =
            serde_json::from_value(case["provisioningRequestConfig"].clone()).unwrap();
        match (is_needed(&workload(case), &config.spec), case["expect"].get("error")) {
            (Ok(needed), None) => same(&needed.into(), &case["expect"]["needed"]),
            (Err(error), Some(want)) => same(&error.to_string().into(), want),
            other => Err(format!("{other:?}")),
        }
    });
    report.suite(corpus, kind, "provisioning-merge-podsets", |case| {
        let config = kueue::ProvisioningRequestConfigSpec {
            pod_set_merge_policy: case["podSetMergePolicy"].as_str().map(str::to_owned),
            ..kueue::ProvisioningRequestConfigSpec::default()
        };
        let workload = workload(case);
        let got: Vec<Value> = entries(&workload, &config)
            .map_err(|e| e.to_string())?
            .iter()
            .map(|e| json!({"name": workload.spec.pod_sets[e.first].name, "count": e.count}))
            .collect();
        same(&got.into(), &case["expect"]["podSets"])
    });
    report.suite(corpus, kind, "provisioning-check-active", |case| {
        let stage = Stage::new(case);
        let check = stage.objects.values().find_map(|o| match o {
            Object::AdmissionCheck(c) => Some(c.clone()),
            _ => None,
        });
        let check = check.unwrap();
        let ours = check.spec.controller_name == slicegate_controller::keys::PROVISIONING_CONTROLLER;
        let got = ours.then(|| stage.controller.provisioning_active(&check, stage.now));
        let mut got = serde_json::to_value(got).unwrap();
        if let Some(o) = got.as_object_mut() {
            o.remove("lastTransitionTime");
        }
        same(&got, &case["expect"]["condition"])
    });
    report.suite(corpus, kind, "provisioning-active-request", |case| {
        let stage = Stage::new(case);
        let mut got = serde_json::Map::new();
        for key in stage.workloads() {
            let workload = &stage.objects[&ObjectRef::new(Kind::Workload, key.namespace.clone(), key.name.clone())];
            let Object::Workload(workload) = workload else { continue };
            for check in &workload.status.admission_checks {
                if let Some(request) = stage.controller.provisioning_request(&key, &check.name) {
                    got.insert(check.name.clone(), request.into());
                }
            }
        }
        same(&got.into(), &case["expect"]["requests"])
    });
}

fn workload(case: &Value) -> kueue::Workload {
    serde_json::from_value(case["workload"].clone()).unwrap()
}

fn reconcile_capacity(case: &Value) -> Result<(), String> {
    // Labels are all that counts of metadata, and the fixtures leave out a restart policy at will.
    let shown = |object: &Object| {
        let mut value = plain(object.to_json().unwrap(), false);
        value["metadata"] = value["metadata"]["labels"].take();
        if let Some(spec) = value.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
            spec.remove("restartPolicy");
        }
        pruned(&value)
    };
    let mut stage = Stage::new(case);
    let (namespace, name) = case["key"].as_str().unwrap().split_once('/').unwrap();
    let key = Key::new(namespace, name);
    let want = case["expect"]["objects"].as_array().into_iter().flatten().map(|o| shown(&object(o))).collect();
    let want = sorted(want);
    let events = pruned(&case["expect"].get("events").cloned().unwrap_or_else(|| json!([])));
    let mut last = Ok(());
    for _ in 0..PASSES {
        let writes = stage.pass(Pass::Capacity(&key));
        let kinds = [Kind::Workload, Kind::ProvisioningRequest, Kind::PodTemplate];
        let got = stage.objects.values().filter(|o| kinds.contains(&o.kind())).map(shown).collect();
        last =
            compare("objects", &sorted(got), &want).and_then(|()| compare("events", &pruned(&stage.events()), &events));
        if last.is_ok() || writes == 0 {
            break;
        }
    }
    last
}
