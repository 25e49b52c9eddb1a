//! Workloads as they are made, changed and let go for their jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use slicegate_admission::lifecycle::{self, At, FinishReason};
use slicegate_api::owner::controller_of;
use slicegate_api::{Kind, Object, ObjectMeta, ObjectRef, OwnerReference, kueue};
use slicegate_workload::{Key, Timestamp};

use super::job::JobView;
use super::matching::max_execution_time;
use super::start::is_stopping;
use crate::controller::{Controller, event};
use crate::io::{EventType, Operation, field_manager};
use crate::jobs::{annotation, as_job, label};
use crate::priority::{self, PriorityError};
use crate::store::workload_ref;
use crate::writes::Then;
use crate::{keys, names};

/// So many Workloads of one generation of an elastic job are tried.
const MOST_NAMES: u32 = 100;

impl Controller {
    /// The priority of the job's Workload; an Event tells of a class that is missing.
    pub(super) fn priority_of(&mut self, view: &JobView) -> Option<priority::Priority> {
        let about = &view.reference;
        match priority::resolve(view.object.metadata(), &view.pod_sets, &self.store) {
            Ok(priority) => {
                self.settle_complaint(about, "WorkloadPriorityClassNotFound");
                self.settle_complaint(about, "ErrWorkloadCompose");
                Some(priority)
            }
            Err(PriorityError::WorkloadPriorityClass(name)) => {
                let note = format!("WorkloadPriorityClass {name:?} not found");
                self.complain(about, "WorkloadPriorityClassNotFound", note);
                None
            }
            Err(error @ PriorityError::PriorityClass(_)) => {
                self.complain(about, "ErrWorkloadCompose", error.to_string());
                None
            }
        }
    }

    /// The name of the job's next Workload. An elastic job has one for each generation, and more if those ended already.
    pub(super) fn workload_name(&self, view: &JobView) -> String {
        let is_past = |name: &str| {
            let key = Key::new(view.object.namespace(), name);
            view.elastic && self.fed.workloads.get(&key).is_some_and(|w| super::slices::is_past(w))
        };
        let mut name = self.numbered_name(view, 0);
        for number in 1..=MOST_NAMES {
            if !is_past(&name) {
                break;
            }
            name = self.numbered_name(view, number);
        }
        name
    }

    fn numbered_name(&self, view: &JobView, number: u32) -> String {
        let metadata = view.object.metadata();
        let generation = metadata.generation.unwrap_or_default();
        let extra = match &view.object {
            Object::RayJob(job) if view.elastic => {
                let cluster = job
                    .status
                    .ray_cluster_name
                    .as_deref()
                    .and_then(|name| self.store.ray_cluster(view.object.namespace(), name));
                cluster
                    .and_then(|c| c.metadata.generation)
                    .map_or_else(|| generation.to_string(), |of_cluster| format!("{generation}_{of_cluster}"))
            }
            _ => generation.to_string(),
        };
        let extra = if number == 0 { extra } else { format!("{extra}_{number}") };
        names::workload(names::Owner {
            kind: view.object.kind().as_str(),
            group: as_job(&view.object).map_or("", |j| j.group()),
            name: view.object.name(),
            uid: (!self.config.legacy_names).then(|| view.object.uid()),
            extra: view.elastic.then_some(extra.as_str()),
            short: self.config.short_workload_names,
        })
    }

    /// Makes the Workload of a job, or a slice that replaces another.
    pub(super) fn create_workload(&mut self, view: &JobView, replaces: Option<&Key>) {
        // The name of an elastic job's Workload changes with the job: a second one could be made while the first is on its way.
        if view.elastic && self.makes_workload_of(view.object.uid()) {
            return;
        }
        let Some(priority) = self.priority_of(view) else { return };
        let namespace = view.object.namespace().to_owned();
        let name = self.workload_name(view);
        let reference = ObjectRef::new(Kind::Workload, namespace.as_str(), name.as_str());
        if self.store.is_locked(&reference) {
            // It may be gone already, so that nobody else has the job looked at again.
            if let Some(until) = self.store.blocked_until(&reference) {
                self.wake(&view.reference, until);
            }
            return;
        }
        if let Some(other) = self.store.get(&reference) {
            let uid = view.object.uid();
            if controller_of(other.metadata()).is_none_or(|owner| owner.uid != uid) {
                let note =
                    format!("Error creating Workload {namespace}/{name}: there is another one of this name; delete it");
                self.taken_names.insert(reference, view.reference.clone());
                self.complain(&view.reference, "FailedCreate", note);
            }
            return;
        }
        self.complain_of_rules(&view.object);
        let job = view.object.metadata();
        let uid = view.object.uid();
        let mut labels = BTreeMap::new();
        // A label holds at most 63 characters.
        if uid.len() <= 63 {
            labels.insert(keys::JOB_UID.to_owned(), uid.to_owned());
        }
        for key in &self.config.label_keys_to_copy {
            if let Some(value) = label(job, key) {
                labels.insert(key.to_string(), value.to_owned());
            }
        }
        let mut annotations: BTreeMap<String, String> = job
            .annotations
            .iter()
            .flatten()
            .filter(|(key, _)| key.starts_with(keys::PROVISIONING_PREFIX) || *key == keys::ADMISSION_GATED_BY)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if view.elastic {
            annotations.insert(keys::ELASTIC_JOB.to_owned(), "true".to_owned());
            let first = replaces.and_then(|old| {
                let old = self.store.workload(old)?;
                let own = old.metadata.name.as_deref();
                annotation(&old.metadata, keys::WORKLOAD_SLICE_NAME).or(own).map(ToOwned::to_owned)
            });
            annotations.insert(keys::WORKLOAD_SLICE_NAME.to_owned(), first.unwrap_or_else(|| name.clone()));
            if let Some(old) = replaces {
                annotations.insert(keys::WORKLOAD_SLICE_REPLACEMENT_FOR.to_owned(), old.to_string());
            }
        }
        // The template of a job that runs holds what it was started with; the slice that it runs as knows how it was before.
        let mut pod_sets = view.pod_sets.clone();
        if let Some(old) = replaces.and_then(|old| self.store.workload(old)) {
            pod_sets.clone_from(&old.spec.pod_sets);
            super::slices::follow(&mut pod_sets, &view.pod_sets);
        }
        let workload = kueue::Workload {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                labels: Some(labels),
                annotations: (!annotations.is_empty()).then_some(annotations),
                finalizers: Some(vec![keys::RESOURCE_IN_USE.to_owned()]),
                owner_references: Some(vec![controlled_by(&view.object)]),
                ..ObjectMeta::default()
            },
            spec: kueue::WorkloadSpec {
                pod_sets,
                queue_name: label(job, keys::QUEUE_NAME).unwrap_or_default().to_owned(),
                priority_class_ref: priority.class_ref(),
                priority: Some(priority.value),
                active: Some(true),
                maximum_execution_time_seconds: max_execution_time(job),
                preemption_gates: Vec::new(),
            },
            status: kueue::WorkloadStatus::default(),
        };
        let note = format!("Created Workload: {namespace}/{name}");
        let failed = format!("Error creating Workload {namespace}/{name}");
        let then = Then {
            events: vec![event(&view.reference, EventType::Normal, "CreatedWorkload", note)],
            on_failure: Some((view.reference.clone(), "FailedCreate", failed)),
            ..Then::default()
        };
        self.write(field_manager::JOB, Operation::Create(workload.into()), then);
    }

    /// Takes back the Workload that was made for a job and that somebody made nobody's. Returns whether there is one.
    pub(super) fn take_back(&mut self, view: &JobView) -> bool {
        let key = Key::new(view.object.namespace(), self.workload_name(view));
        let Some(workload) = self.store.workload(&key).cloned() else { return false };
        let uid = view.object.uid();
        let is_its_own = match label(&workload.metadata, keys::JOB_UID) {
            Some(of) => of == uid,
            None => !self.config.legacy_names,
        };
        if !is_its_own || controller_of(&workload.metadata).is_some() || workload.metadata.deletion_timestamp.is_some()
        {
            return false;
        }
        self.make_its_own(view, &workload);
        true
    }

    /// Makes a job the owner of a Workload that is nobody's.
    pub(super) fn make_its_own(&mut self, view: &JobView, workload: &Arc<kueue::Workload>) {
        let mut new = (**workload).clone();
        let uid = view.object.uid();
        new.metadata.owner_references.get_or_insert_default().push(controlled_by(&view.object));
        if uid.len() <= 63 {
            new.metadata.labels.get_or_insert_default().insert(keys::JOB_UID.to_owned(), uid.to_owned());
        }
        let new: Object = new.into();
        if !self.store.is_locked(&new.reference()) {
            self.write(field_manager::JOB, Operation::Update(new), Then::default());
        }
    }

    /// Makes a Workload without quota ask for what its job asks for now.
    pub(super) fn update_workload(&mut self, view: &JobView, key: &Key) {
        if self.store.is_locked(&workload_ref(key)) {
            return;
        }
        let Some(priority) = self.priority_of(view) else { return };
        let Some(workload) = self.store.workload(key) else { return };
        let mut new = (**workload).clone();
        new.spec.pod_sets.clone_from(&view.pod_sets);
        label(view.object.metadata(), keys::QUEUE_NAME).unwrap_or_default().clone_into(&mut new.spec.queue_name);
        new.spec.priority_class_ref = priority.class_ref();
        new.spec.priority = Some(priority.value);
        new.spec.maximum_execution_time_seconds = max_execution_time(view.object.metadata());
        if new == **workload {
            return;
        }
        let note = format!("Updated not matching Workload for suspended job: {key}");
        let then = Then::event(event(&view.reference, EventType::Normal, "UpdatedWorkload", note));
        self.write(field_manager::JOB, Operation::Update(new.into()), then);
    }

    /// Deletes a Workload that does not stand for its job any more, and then lets it go. `replaced` is whether another one does.
    pub(super) fn delete_workload(&mut self, view: &JobView, key: &Key, replaced: bool) {
        let reference = workload_ref(key);
        if self.store.is_locked(&reference) {
            return;
        }
        let Some(workload) = self.store.workload(key).cloned() else { return };
        if workload.metadata.deletion_timestamp.is_some() {
            // A job that is being stopped, that somebody else suspended, or that still runs as it was admitted learns from it
            // what its pods were like before.
            let started = self.fed.workloads.get(key).is_some_and(|w| w.is_admitted());
            let restores = is_stopping(&view.object) || started && (view.suspended || !replaced);
            if !restores || self.stop_job(view, Some(key), "") {
                self.drop_finalizer(&workload);
            }
            return;
        }
        let note = format!("Deleted not matching Workload: {key}");
        let then = Then::event(event(&view.reference, EventType::Normal, "DeletedWorkload", note));
        let uid = workload.metadata.uid.clone().unwrap_or_default().into();
        self.write(field_manager::JOB, Operation::Delete { object: reference, uid }, then);
    }

    /// Removes the finalizer of a Workload. Returns whether that takes a write.
    pub(super) fn drop_finalizer(&mut self, workload: &Arc<kueue::Workload>) -> bool {
        let has = |f: &String| f == keys::RESOURCE_IN_USE;
        if !workload.metadata.finalizers.iter().flatten().any(has) {
            return false;
        }
        let mut new = (**workload).clone();
        if let Some(finalizers) = &mut new.metadata.finalizers {
            finalizers.retain(|f| !has(f));
            if finalizers.is_empty() {
                new.metadata.finalizers = None;
            }
        }
        self.write(field_manager::JOB, Operation::Update(new.into()), Then::default());
        true
    }

    /// Finishes a Workload whose job is gone and lets it go.
    pub(super) fn orphan(&mut self, now: Timestamp, key: &Key) {
        if self.store.is_locked(&workload_ref(key)) {
            return;
        }
        let (Some(object), Some(known)) = (self.store.workload(key).cloned(), self.fed.workloads.get(key).cloned())
        else {
            return;
        };
        if known.is_finished() || known.deleting || !self.config.finish_orphaned_workloads {
            self.drop_finalizer(&object);
            return;
        }
        let at = At { now, generation: known.generation };
        if let Some(plan) = self.plan(key) {
            let message = "The workload's owner no longer exists";
            lifecycle::finish(&mut plan.status, FinishReason::OwnerNotFound, message, at);
        }
    }
}

/// A reference that makes `owner` the controller of another object.
pub(crate) fn controlled_by(owner: &Object) -> OwnerReference {
    OwnerReference {
        api_version: owner.kind().api_version().to_owned(),
        kind: owner.kind().as_str().to_owned(),
        name: owner.name().to_owned(),
        uid: owner.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
