//! Scenarios on a controller with an API server in memory.
//!
//! When things have settled the invariants of the engine are checked and that no usage is negative; the controller, asked
//! again, may not want anything. Nobody who holds quota is admitted somewhere else.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slicegate_admission::WaitForPodsReady;
use slicegate_admission::lifecycle::{At, FinishReason, finish, release};
use slicegate_api::{Kind, Object, ObjectRef, convert};
use slicegate_controller::{Change, Configuration, Controller, Operation, Write, WriteError, WriteOutcome};
use slicegate_quota::Amount;
use slicegate_workload::{ConditionType, Key, RequeuingTimestamp, Timestamp, Workload, WorkloadStatus};

use crate::expect;
use crate::scenario::{self, Config, Create, Edit, Expect, NAMESPACE, Preemption, START, Scenario, Step};

/// More rounds than this before things settle are a fault.
const MOST_ROUNDS: usize = 200;

type Result<T = ()> = std::result::Result<T, String>;

struct Cluster {
    controller: Controller,
    now: Timestamp,
    /// The API server.
    objects: BTreeMap<ObjectRef, Object>,
    /// As they were made.
    written: BTreeMap<ObjectRef, Object>,
    version: u64,
    uids: u64,
    changes: Vec<Change>,
    /// When the last workload was made.
    last_create: Option<Timestamp>,
    wake_at: Option<Timestamp>,
    preemptions: Vec<Preemption>,
    preemption_count: usize,
    /// Everything that was written.
    trace: Vec<String>,
}

/// Plays a scenario twice.
pub(super) fn play(scenario: &Scenario, objects: &str) -> Result {
    let objects = scenario::objects(objects)?;
    let once = || -> Result<Vec<String>> {
        let mut cluster = Cluster::new(&objects, &scenario.script.config)?;
        for (number, step) in scenario.script.steps.iter().enumerate() {
            cluster.step(step).and_then(|()| cluster.check()).map_err(|why| step.failed(number, &why))?;
        }
        Ok(cluster.trace)
    };
    let (first, second) = (once()?, once()?);
    if first == second { Ok(()) } else { Err(format!("not the same twice:\n{first:#?}\n{second:#?}")) }
}

fn configuration(config: &Config) -> Configuration {
    let mut configuration = Configuration::default();
    configuration.engine.ignore_undeclared_resources = config.ignore_undeclared_resources;
    configuration.engine.wait_for_pods_ready = config.wait_for_pods_ready.map(|pods| WaitForPodsReady {
        timeout_seconds: pods.timeout,
        requeuing_timestamp: RequeuingTimestamp::Eviction,
        backoff_base_seconds: pods.backoff_base_seconds,
        backoff_max_seconds: pods.backoff_max_seconds,
        backoff_limit_count: Some(pods.backoff_limit_count),
        ..WaitForPodsReady::default()
    });
    configuration
}

fn json_of(object: &Object) -> Result<Value> {
    object.to_json().map_err(|e| e.to_string())
}

/// Drops fields that hold nothing: they mean the same as none.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, v| v.as_object().is_none_or(|f| !f.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn parse(text: &str) -> Result<ObjectRef> {
    let mut words: Vec<&str> = text.split(' ').collect();
    let kind = Kind::ALL.iter().find(|k| k.as_str() == words[0]).ok_or_else(|| format!("no kind {text}"))?;
    let name = words.pop().unwrap_or_default();
    let (namespace, name) = name.split_once('/').unwrap_or((if kind.is_namespaced() { NAMESPACE } else { "" }, name));
    Ok(ObjectRef::new(*kind, namespace, name))
}

impl Cluster {
    fn new(objects: &[Object], config: &Config) -> Result<Self> {
        let mut cluster = Self {
            controller: Controller::new(configuration(config)),
            now: Timestamp::from_seconds(START),
            objects: BTreeMap::new(),
            written: BTreeMap::new(),
            version: 0,
            uids: 0,
            changes: Vec::new(),
            last_create: None,
            wake_at: None,
            preemptions: Vec::new(),
            preemption_count: 0,
            trace: Vec::new(),
        };
        if !objects.iter().any(|o| o.kind() == Kind::Namespace && o.name() == NAMESPACE) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
            cluster.make(scenario::object(&namespace)?)?;
        }
        for object in objects {
            if object.kind() == Kind::ClusterQueue {
                cluster.make(scenario::object(&json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "LocalQueue",
                    "metadata": {"name": format!("lq-{}", object.name()), "namespace": NAMESPACE},
                    "spec": {"clusterQueue": object.name()},
                }))?)?;
            }
            cluster.make(object.clone())?;
        }
        cluster.deliver();
        Ok(cluster)
    }

    fn step(&mut self, step: &Step) -> Result {
        match step {
            Step::Create(create) => self.create(create)?,
            Step::Settle => self.settle()?,
            Step::At(seconds) => self.wait_until(Timestamp::from_seconds(START).plus_seconds(*seconds))?,
            Step::Apply(value) => self.make(scenario::object(value)?).map(drop)?,
            Step::Edit(edit) => self.edit(edit)?,
            Step::Finish(names) => names.iter().try_for_each(|name| {
                self.change_status(name, |workload, status, at| {
                    workload.is_admitted() && finish(status, FinishReason::Succeeded, "Done", at)
                })
            })?,
            Step::Expect(expect) => return self.expect(expect),
            Step::Cycle | Step::HoldEvictions | Step::CompleteEviction(_) => {
                return Err("the controller decides about that itself".into());
            }
        }
        self.deliver();
        Ok(())
    }

    // ----- the API server --------------------------------------------------------------------------------------------

    fn make(&mut self, mut object: Object) -> Result<Object> {
        let reference = object.reference();
        if self.objects.contains_key(&reference) {
            return Err(format!("{reference} is made twice"));
        }
        self.uids += 1;
        let metadata = object.metadata_mut();
        metadata.uid = Some(format!("uid-{}", self.uids));
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(convert::time_to_api(self.now.truncated()));
        self.written.insert(reference, object.clone());
        Ok(self.store(object))
    }

    fn store(&mut self, mut object: Object) -> Object {
        self.version += 1;
        object.metadata_mut().resource_version = Some(self.version.to_string());
        let metadata = object.metadata();
        if metadata.deletion_timestamp.is_some() && metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.objects.remove(&object.reference());
            self.changes.push(Change::Deleted(object.clone()));
            let owned = |o: &&Object| o.metadata().owner_references.iter().flatten().any(|r| r.uid == object.uid());
            for reference in self.objects.values().filter(owned).map(Object::reference).collect::<Vec<_>>() {
                self.delete(&reference);
            }
        } else {
            self.objects.insert(object.reference(), object.clone());
            self.changes.push(Change::Applied(object.clone()));
        }
        object
    }

    fn delete(&mut self, reference: &ObjectRef) {
        let Some(mut object) = self.objects.get(reference).cloned() else { return };
        if object.metadata().deletion_timestamp.is_none() {
            object.metadata_mut().deletion_timestamp = Some(convert::time_to_api(self.now.truncated()));
            self.store(object);
        }
    }

    /// Stores an object of which everything but the status changed, or the status alone.
    fn replace(&mut self, old: &Object, new: &Object, status: bool) -> Result<Object> {
        let (before, mut after) = (json_of(old)?, json_of(new)?);
        if status {
            let new_status = after["status"].take();
            after = before.clone();
            after["status"] = new_status;
        } else {
            after["status"] = before["status"].clone();
        }
        if before["spec"] != after["spec"] {
            after["metadata"]["generation"] = (old.metadata().generation.unwrap_or(0) + 1).into();
        }
        if let Some(fields) = after.as_object_mut() {
            fields.retain(|_, v| !v.is_null());
        }
        let object = old.kind().read(after).map_err(|e| e.to_string())?;
        self.observe_workload(old, &object)?;
        Ok(self.store(object))
    }

    fn perform(&mut self, write: &Write) -> Result<std::result::Result<Option<Object>, WriteError>> {
        let reference = write.operation.object();
        self.trace.push(format!("{:?}", write.operation));
        let old = self.objects.get(&reference).cloned();
        Ok(Ok(match (&write.operation, old) {
            (Operation::Create(_), Some(_)) => return Ok(Err(WriteError::AlreadyExists(reference))),
            (Operation::Create(object), None) => Some(self.make(object.clone())?),
            (_, None) => return Ok(Err(WriteError::NotFound(reference))),
            (Operation::Delete { .. }, Some(_)) => {
                self.delete(&reference);
                self.objects.get(&reference).cloned()
            }
            (Operation::Update(new) | Operation::UpdateStatus(new), Some(old)) => {
                if old.metadata().resource_version != new.metadata().resource_version {
                    return Ok(Err(WriteError::Conflict(reference)));
                }
                let status = matches!(write.operation, Operation::UpdateStatus(_));
                let stored = self.replace(&old, new, status)?;
                self.objects.contains_key(&reference).then_some(stored)
            }
        }))
    }

    fn deliver(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            self.controller.observe(self.now, change);
        }
    }

    /// Counts preemptions, and sees to it that nobody is admitted twice.
    fn observe_workload(&mut self, old: &Object, new: &Object) -> Result {
        if new.kind() != Kind::Workload {
            return Ok(());
        }
        let (old, new) = (scenario::workload(old)?, scenario::workload(new)?);
        if old.has_quota_reservation() && new.has_quota_reservation() && old.status.admission != new.status.admission {
            return Err(format!("{} is admitted twice", new.key));
        }
        let preempted = |w: &Workload| w.status.conditions.is_true(&ConditionType::Preempted);
        if let Some(condition) = new.status.conditions.get(&ConditionType::Preempted)
            && preempted(&new)
            && !preempted(&old)
        {
            let by = self.controller.workloads().find(|w| condition.message.contains(&format!("UID: {},", w.uid)));
            self.preemptions.push(Preemption {
                by: by.map(|w| w.key.name.to_string()).unwrap_or_default(),
                of: new.key.name.to_string(),
                reason: condition.reason.to_string(),
            });
            self.preemption_count += 1;
        }
        Ok(())
    }

    // ----- what happens ----------------------------------------------------------------------------------------------

    fn create(&mut self, create: &Create) -> Result {
        if let Some(last) = self.last_create {
            self.now = self.now.max(last.plus_seconds(1));
        }
        self.last_create = Some(self.now);
        self.make(create.object()?).map(drop)
    }

    /// Kind and name as they are meant: the Workload of a job is named like the job.
    fn resolve(&self, text: &str) -> Result<ObjectRef> {
        let reference = parse(text)?;
        if reference.kind == Kind::Workload
            && !self.objects.contains_key(&reference)
            && let Some(key) = self.find(&reference.name).map(|w| &w.key)
        {
            return Ok(ObjectRef::new(Kind::Workload, key.namespace.clone(), key.name.clone()));
        }
        Ok(reference)
    }

    fn find(&self, name: &str) -> Option<&Workload> {
        let own = self.controller.workloads().find(|w| *w.key.name == *name);
        own.or_else(|| self.controller.workload_of(&ObjectRef::new(Kind::JobSet, NAMESPACE, name)))
    }

    fn edit(&mut self, edit: &Edit) -> Result {
        let reference = self.resolve(&edit.of)?;
        let old = self.objects.get(&reference).cloned().ok_or_else(|| format!("there is no {reference}"))?;
        let now = convert::time_to_api(self.now.truncated());
        let now = serde_json::to_value(now).map_err(|e| e.to_string())?;
        let value = edit.value.to_string().replace("\"NOW\"", &now.to_string());
        let value: Value = serde_json::from_str(&value).map_err(|e| e.to_string())?;
        let mut new = json_of(&old)?;
        let (parent, last) = edit.at.rsplit_once('/').ok_or("not a JSON pointer")?;
        let mut place = &mut new;
        for name in parent.split('/').skip(1) {
            place = match name.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[name],
            };
        }
        match (last, last.parse::<usize>()) {
            ("-", _) => match place {
                Value::Array(items) => items.push(value),
                other => *other = json!([value]),
            },
            (_, Ok(index)) => place[index] = value,
            (name, _) => place[name] = value,
        }
        let status = edit.at.starts_with("/status");
        let new = reference.kind.read(new).map_err(|e| e.to_string())?;
        self.replace(&old, &new, status).map(drop)
    }

    /// Changes the status of a workload as its job would.
    fn change_status(&mut self, name: &str, change: impl FnOnce(&Workload, &mut WorkloadStatus, At) -> bool) -> Result {
        let workload = self.find(name).cloned().ok_or_else(|| format!("there is no {name}"))?;
        let mut status = workload.status.clone();
        if !change(&workload, &mut status, At { now: self.now, generation: workload.generation }) {
            return Err(format!("{name} does not run"));
        }
        let Key { namespace, name } = workload.key.clone();
        let reference = ObjectRef::new(Kind::Workload, namespace, name);
        let Some(old) = self.objects.get(&reference).cloned() else { return Err(format!("there is no {reference}")) };
        let Object::Workload(object) = &old else { return Err(format!("{reference} is none")) };
        let mut new = (**object).clone();
        new.status = convert::status_to_api(&status);
        self.replace(&old, &new.into(), true).map(drop)
    }

    /// Lets time pass; the controller is called whenever it wanted to be.
    fn wait_until(&mut self, until: Timestamp) -> Result {
        while let Some(wake) = self.wake_at.filter(|w| *w <= until) {
            if wake <= self.now {
                return Err("the controller wants to be called again at once".into());
            }
            self.now = wake;
            self.settle()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    fn settle(&mut self) -> Result {
        for _ in 0..MOST_ROUNDS {
            let effects = self.controller.reconcile(self.now);
            self.wake_at = effects.wake_at;
            let busy = !effects.writes.is_empty();
            for write in effects.writes {
                let result = self.perform(&write)?;
                self.controller.complete(self.now, WriteOutcome { id: write.id, result });
            }
            self.deliver();
            if busy {
                continue;
            }
            // Workloads without a job stop at once.
            let stopped: Vec<String> = self
                .controller
                .workloads()
                .filter(|w| w.is_evicted() && w.has_quota_reservation() && self.controller.job_of(&w.key).is_none())
                .map(|w| w.key.name.to_string())
                .collect();
            if self.take_notice()? {
                self.deliver();
                continue;
            }
            if stopped.is_empty() {
                let again = self.controller.reconcile(self.now);
                return if again.writes.is_empty() {
                    Ok(())
                } else {
                    Err(format!("the controller is not content: {:?}", again.writes))
                };
            }
            let gates = self.controller.configuration().engine.gates;
            for name in stopped {
                self.change_status(&name, |workload, status, at| release(workload, status, at, &gates))?;
            }
            self.deliver();
        }
        Err(format!("not settled after {MOST_ROUNDS} rounds"))
    }

    /// What JobSet's controller does: it says that a JobSet is suspended, or no longer is. Returns whether it had to.
    fn take_notice(&mut self) -> Result<bool> {
        let job_sets: Vec<Object> = self.objects.values().filter(|o| o.kind() == Kind::JobSet).cloned().collect();
        let mut noticed = false;
        for old in job_sets {
            let mut new = json_of(&old)?;
            let conditions = new["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
            let suspended = new["spec"]["suspend"] == true;
            if is("Completed") || is("Failed") || is("Suspended") == suspended {
                continue;
            }
            noticed = true;
            let mut all: Vec<Value> = conditions.iter().filter(|c| c["type"] != "Suspended").cloned().collect();
            all.push(json!({"type": "Suspended", "status": if suspended { "True" } else { "False" }, "reason": "s",
                "message": "", "lastTransitionTime": convert::time_to_api(self.now.truncated())}));
            new["status"]["conditions"] = all.into();
            let new = old.kind().read(new).map_err(|e| e.to_string())?;
            self.replace(&old, &new, true)?;
        }
        Ok(noticed)
    }

    // ----- what must hold --------------------------------------------------------------------------------------------

    fn check(&self) -> Result {
        self.controller.engine().check().map_err(|e| e.to_string())?;
        for queue in self.objects.keys().filter(|r| r.kind == Kind::ClusterQueue) {
            let Some(report) = self.controller.engine().cluster_queue(&queue.name) else { continue };
            if let Some(usage) = report.reservation.iter().chain(&report.usage).find(|u| u.total < Amount::ZERO) {
                return Err(format!("{queue} uses less than nothing: {usage:?}"));
            }
        }
        Ok(())
    }

    fn expect(&mut self, expect: &Expect) -> Result {
        let mut wrong = expect::workloads(expect, &|name| self.find(name), self.controller.workloads(), START);
        wrong.extend(expect::preemptions(expect, &self.preemptions, self.preemption_count));
        for field in &expect.fields {
            let reference = self.resolve(&field.of)?;
            let object = self.objects.get(&reference).map(json_of).transpose()?;
            let value = object.as_ref().and_then(|o| o.pointer(&field.at)).unwrap_or(&Value::Null);
            if *value != field.is {
                wrong.push(format!("{reference}, {}: {value}", field.at));
            }
        }
        for text in &expect.as_written {
            let reference = self.resolve(text)?;
            let spec = |objects: &BTreeMap<ObjectRef, Object>| -> Result<Value> {
                let object = objects.get(&reference).ok_or_else(|| format!("there is no {reference}"))?;
                let mut spec = json_of(object)?["spec"].take();
                drop_empty(&mut spec);
                Ok(spec)
            };
            let (written, is) = (spec(&self.written)?, spec(&self.objects)?);
            if written != is {
                wrong.push(format!("{reference} is not as it was written:\n{written:#}\n{is:#}"));
            }
        }
        let names: Vec<(String, String)> = expect.why.clone().into_iter().collect();
        for (name, part) in names {
            let key = self.find(&name).map(|w| w.key.clone()).ok_or_else(|| format!("there is no {name}"))?;
            let why = self.controller.engine_mut().why(self.now, &key).map(|e| e.to_string()).unwrap_or_default();
            if !why.contains(&part) {
                wrong.push(format!("{name} is said to wait because: {why}"));
            }
        }
        self.preemptions.clear();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}
