//! A job and its Workload.

use std::collections::BTreeMap;
use std::sync::Arc;

use slicegate_admission::lifecycle::{self, At, FinishReason};
use slicegate_api::{Kind, Object, ObjectMeta, ObjectRef, OwnerReference, kueue};
use slicegate_workload::{CheckState, ConditionType, Key, Status, Timestamp, Workload};

use super::slices::Choice;
use crate::controller::{Controller, Then, event};
use crate::io::{EventType, Operation, field_manager};
use crate::jobs::{Finished, Integration, JobContext, JobError, Stop, annotation, as_job, as_job_mut, label};
use crate::names;
use crate::owner::{is_queued, managed_ancestor};
use crate::podset::{self, PodSetInfo};
use crate::priority::{self, PriorityError};
use crate::store::{key_of, workload_ref};
use crate::{keys, owner};

/// What a reconcile of a job knows about it.
pub(super) struct JobView {
    pub(super) reference: ObjectRef,
    pub(super) object: Object,
    pub(super) pod_sets: Vec<kueue::PodSet>,
    pub(super) elastic: bool,
    pub(super) suspended: bool,
    pub(super) active: bool,
    pub(super) finished: Option<Finished>,
}

impl Controller {
    /// Runs `f` with what jobs need to know of their surroundings.
    pub(super) fn with_context<T>(&self, namespace: &str, f: impl FnOnce(&JobContext<'_>) -> T) -> T {
        let ray_cluster = |name: &str| self.store.ray_cluster(namespace, name);
        f(&JobContext { gates: &self.config.engine.gates, ray_cluster: &ray_cluster })
    }

    /// The Workloads that a job controls.
    fn workloads_of(&self, job: &Object) -> Vec<Key> {
        self.store
            .owned_by(job.uid(), Kind::Workload)
            .into_iter()
            .filter(|r| r.namespace.as_ref() == job.namespace())
            .filter(|r| {
                let owner = self.store.get(r).and_then(|o| crate::store::owner_ref(o.metadata()));
                owner.is_some_and(|o| o == job.reference())
            })
            .map(|r| key_of(&r))
            .collect()
    }

    fn namespace_is_managed(&self, namespace: &str) -> bool {
        let mut labels: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
        if let Some(object) = self.store.get(&ObjectRef::new(Kind::Namespace, "", namespace)) {
            for (key, value) in object.metadata().labels.iter().flatten() {
                labels.insert(key.as_str().into(), value.as_str().into());
            }
        }
        labels.insert("kubernetes.io/metadata.name".into(), namespace.into());
        self.config.managed_jobs_namespace_selector.matches(&labels)
    }

    /// Brings a job and its Workload in line with one another.
    pub(crate) fn reconcile_job(&mut self, now: Timestamp, reference: &ObjectRef) {
        if self.store.is_locked(reference) {
            return;
        }
        // The Workloads of a job that is gone are looked at one by one.
        let Some(object) = self.store.get(reference).cloned() else { return };
        let Some(job) = as_job(&object) else { return };
        if object.metadata().deletion_timestamp.is_some() {
            for key in self.workloads_of(&object) {
                self.orphan(now, &key);
            }
            return;
        }
        let without_queue = self.config.manage_jobs_without_queue_name;
        if job.skip() || !self.namespace_is_managed(object.namespace()) {
            return;
        }
        match managed_ancestor(&self.store, &object, without_queue) {
            Ok(None) => {}
            Ok(Some(ancestor)) => return self.reconcile_child(&object, &ancestor),
            Err(owner::OwnerError::TooLong) => {
                let text = "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
                self.out.events.push(event(reference, EventType::Warning, "JobNestingTooDeep", text));
                return;
            }
            // A missing owner may yet appear; it marks the job then.
            Err(_) => return,
        }
        if !is_queued(&object, without_queue) {
            return;
        }
        let pod_sets = self.with_context(object.namespace(), |context| job.pod_sets(context));
        let mut pod_sets = match pod_sets {
            Ok(pod_sets) => pod_sets,
            Err(error) => {
                let note = error.to_string();
                self.out.events.push(event(reference, EventType::Warning, "ErrWorkloadCompose", note));
                return;
            }
        };
        podset::sanitize(&mut pod_sets);
        let view = JobView {
            reference: reference.clone(),
            pod_sets,
            elastic: job.is_elastic(&self.config.engine.gates),
            suspended: job.is_suspended(),
            active: job.is_active(),
            finished: job.finished(),
            object: object.clone(),
        };
        let Some(key) = self.ensure_one_workload(now, &view) else { return };
        self.reconcile_with_workload(now, &view, &key);
    }

    /// A job whose owner is managed runs only while its owner may.
    fn reconcile_child(&mut self, child: &Object, ancestor: &ObjectRef) {
        let Some(job) = as_job(child) else { return };
        if job.is_suspended() || job.finished().is_some() {
            return;
        }
        let workload = self.workload_of(ancestor);
        let may_run = if job.is_elastic(&self.config.engine.gates) {
            workload.is_some_and(|w| !w.is_evicted())
        } else {
            workload.is_some_and(Workload::is_admitted)
        };
        // The owner itself may not be managed yet, but was just started by whoever made it: it will be stopped.
        if may_run {
            return;
        }
        let mut object = child.clone();
        let Some(job) = as_job_mut(&mut object) else { return };
        job.suspend();
        let note = "Kueue managed child job suspended";
        let then = Then::event(event(&child.reference(), EventType::Normal, "Suspended", note));
        self.write(field_manager::JOB, Operation::Update(object), then);
    }

    /// Finds the one Workload that stands for the job and removes others; makes one if there is none. `None` if there is
    /// nothing to go on with now.
    fn ensure_one_workload(&mut self, now: Timestamp, view: &JobView) -> Option<Key> {
        let mut all = self.workloads_of(&view.object);
        all.sort_by_key(|k| self.fed.workloads.get(k).map(|w| (w.created, w.uid.clone())));
        if view.elastic
            && let Choice::Made(choice) = self.choose_slice(now, view, &all)
        {
            return choice;
        }
        let (matching, mut others): (Vec<Key>, Vec<Key>) = all.into_iter().partition(|k| self.is_equivalent(view, k));
        let mut matching = matching.into_iter();
        let found = matching.next();
        others.splice(0..0, matching);
        let mut update = None;
        if found.is_none()
            && view.suspended
            && let Some(first) = others.first().cloned()
            && self
                .fed
                .workloads
                .get(&first)
                .is_some_and(|w| !w.has_quota_reservation() && !w.is_finished() && !w.deleting)
        {
            others.remove(0);
            update = Some(first);
        }
        if found.is_none() && !view.suspended && view.finished.is_none() {
            let (workload, text) = match others.as_slice() {
                [one] => {
                    (Some(one.clone()), "No matching Workload; restoring pod templates according to existent Workload")
                }
                _ => (None, "Missing Workload; unable to restore pod templates"),
            };
            self.stop_job(view, workload.as_ref(), text);
        }
        // A finished job keeps the Workload that tells of its end.
        if found.is_none() && view.finished.is_some() {
            let last = others.last().cloned();
            return last.or(update);
        }
        for key in &others {
            self.delete_workload(view, key);
        }
        if let Some(key) = update {
            self.update_workload(view, &key);
            return None;
        }
        if found.is_some() {
            return found;
        }
        // A job must be known to be suspended first: else it would run on as it is once its Workload is admitted.
        if others.is_empty() && view.suspended && (!view.active || view.elastic) {
            self.create_workload(view, None);
        }
        None
    }

    /// Whether the Workload asks for what the job asks for.
    fn is_equivalent(&self, view: &JobView, key: &Key) -> bool {
        let Some(workload) = self.store.workload(key) else { return false };
        let limit = max_execution_time(view.object.metadata());
        if workload.spec.maximum_execution_time_seconds != limit {
            return false;
        }
        let Some(known) = self.fed.workloads.get(key) else { return false };
        let admitted = known.is_admitted();
        if known.has_quota_reservation()
            && let Ok(infos) = self.start_infos(workload)
        {
            let elastic = self.config.engine.gates.elastic_jobs_via_workload_slices;
            let running: Option<Vec<kueue::PodSet>> = workload
                .spec
                .pod_sets
                .iter()
                .zip(&infos)
                .map(|(pod_set, info)| {
                    let mut pod_set = pod_set.clone();
                    podset::merge_into(&mut pod_set.template, info, elastic).ok()?;
                    // With partial admission fewer pods run than were asked for.
                    if pod_set.min_count.is_some() {
                        pod_set.count = info.count;
                    }
                    Some(pod_set)
                })
                .collect();
            if running.is_some_and(|r| same_pod_sets(&view.pod_sets, &r, admitted)) {
                return true;
            }
            return view.suspended && same_pod_sets(&view.pod_sets, &workload.spec.pod_sets, false);
        }
        same_pod_sets(&view.pod_sets, &workload.spec.pod_sets, false)
    }

    /// The priority of the job's Workload; an Event tells of a class that is missing.
    fn priority_of(&mut self, view: &JobView) -> Option<priority::Priority> {
        match priority::resolve(view.object.metadata(), &view.pod_sets, &self.store) {
            Ok(priority) => Some(priority),
            Err(PriorityError::WorkloadPriorityClass(name)) => {
                let note = format!("WorkloadPriorityClass {name:?} not found");
                self.out.events.push(event(&view.reference, EventType::Warning, "WorkloadPriorityClassNotFound", note));
                None
            }
            Err(error @ PriorityError::PriorityClass(_)) => {
                let note = error.to_string();
                self.out.events.push(event(&view.reference, EventType::Warning, "ErrWorkloadCompose", note));
                None
            }
        }
    }

    /// The name of the job's Workload.
    fn workload_name(&self, view: &JobView) -> String {
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
        let Some(priority) = self.priority_of(view) else { return };
        let namespace = view.object.namespace().to_owned();
        let name = self.workload_name(view);
        let reference = ObjectRef::new(Kind::Workload, namespace.as_str(), name.as_str());
        if self.store.is_locked(&reference) || self.store.get(&reference).is_some() {
            return;
        }
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
                pod_sets: view.pod_sets.clone(),
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
        let then = Then::event(event(&view.reference, EventType::Normal, "CreatedWorkload", note));
        self.write(field_manager::JOB, Operation::Create(workload.into()), then);
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

    /// Deletes a Workload that does not stand for its job any more, and then lets it go.
    fn delete_workload(&mut self, view: &JobView, key: &Key) {
        let reference = workload_ref(key);
        if self.store.is_locked(&reference) {
            return;
        }
        let Some(workload) = self.store.workload(key).cloned() else { return };
        if workload.metadata.deletion_timestamp.is_some() {
            self.drop_finalizer(&workload);
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

    /// What is put into the pods of an admitted Workload, one for every pod set.
    pub(super) fn start_infos(&self, workload: &kueue::Workload) -> Result<Vec<PodSetInfo>, JobError> {
        let gates = &self.config.engine.gates;
        let Some(admission) = &workload.status.admission else { return Ok(Vec::new()) };
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let slice = annotation(&workload.metadata, keys::WORKLOAD_SLICE_NAME);
        let elastic = gates.elastic_jobs_via_workload_slices;
        let mut infos = Vec::with_capacity(admission.pod_set_assignments.len());
        for (i, assignment) in admission.pod_set_assignments.iter().enumerate() {
            let pod_set = workload.spec.pod_sets.get(i);
            let mut info = PodSetInfo::from_assignment(
                assignment,
                pod_set.map(|p| &p.template),
                pod_set.map_or(0, |p| p.count),
                gates.topology_aware_scheduling,
                |flavor| self.store.flavor(flavor),
            )?;
            if gates.topology_aware_scheduling {
                info.annotations.insert(keys::WORKLOAD.to_owned(), name.to_owned());
            }
            if elastic && let Some(slice) = slice {
                info.annotations.insert(keys::WORKLOAD_SLICE_NAME.to_owned(), slice.to_owned());
            }
            info.labels.insert(keys::POD_SET.to_owned(), assignment.name.clone());
            if self.config.assign_queue_labels_for_pods {
                if is_dns_label(&admission.cluster_queue) {
                    info.labels.insert(keys::CLUSTER_QUEUE_NAME.to_owned(), admission.cluster_queue.clone());
                }
                info.labels.insert(keys::LOCAL_QUEUE_NAME.to_owned(), workload.spec.queue_name.clone());
            }
            for check in &workload.status.admission_checks {
                for update in check.pod_set_updates.iter().filter(|u| u.name == assignment.name) {
                    info.merge(&PodSetInfo::from_update(update), elastic)
                        .map_err(|conflict| JobError::CheckConflict { check: check.name.clone(), conflict })?;
                }
            }
            infos.push(info);
        }
        Ok(infos)
    }

    /// Takes the next step towards a stopped job whose pods are as they were.
    pub(super) fn stop_job(&mut self, view: &JobView, workload: Option<&Key>, message: &str) {
        if self.store.is_locked(&view.reference) {
            return;
        }
        let infos: Vec<PodSetInfo> = workload
            .and_then(|key| self.store.workload(key))
            .map(|w| w.spec.pod_sets.iter().map(PodSetInfo::from_pod_set).collect())
            .unwrap_or_default();
        let mut object = view.object.clone();
        let step = self.with_context(view.object.namespace(), |context| {
            as_job_mut(&mut object).map_or(Stop::Done, |job| job.stop(&infos, context))
        });
        let mut then = Then::default();
        if !view.suspended {
            then.events.push(event(&view.reference, EventType::Normal, "Stopped", message));
        }
        match step {
            Stop::Done => {}
            Stop::Changed => self.write(field_manager::JOB, Operation::Update(object), then),
            Stop::StatusChanged => self.write(field_manager::JOB, Operation::UpdateStatus(object), then),
        }
    }

    /// Starts the job of an admitted Workload.
    fn start_job(&mut self, now: Timestamp, view: &JobView, key: &Key) {
        let Some(workload) = self.store.workload(key).cloned() else { return };
        let mut object = view.object.clone();
        let result = self.start_infos(&workload).and_then(|infos| {
            self.with_context(view.object.namespace(), |context| {
                as_job_mut(&mut object).map_or(Ok(()), |job| job.run(&infos, context))
            })
        });
        match result {
            Ok(()) => {
                let queue = workload.status.admission.as_ref().map_or("", |a| a.cluster_queue.as_str());
                let note = format!("Admitted by clusterQueue {queue}");
                let then = Then::event(event(&view.reference, EventType::Normal, "Started", note));
                self.write(field_manager::JOB, Operation::Update(object), then);
            }
            // The flavor may come back; it marks the job then.
            Err(JobError::Flavor(_)) => {}
            Err(error) => {
                let Some(known) = self.fed.workloads.get(key) else { return };
                let at = At { now, generation: known.generation };
                if let Some(plan) = self.plan(key) {
                    lifecycle::finish(&mut plan.status, FinishReason::FailedToStart, &error.to_string(), at);
                }
            }
        }
    }

    /// Goes on with a job and the Workload that stands for it.
    fn reconcile_with_workload(&mut self, now: Timestamp, view: &JobView, key: &Key) {
        let reference = workload_ref(key);
        if self.store.is_locked(&reference) {
            return;
        }
        let (Some(object), Some(workload)) = (self.store.workload(key).cloned(), self.fed.workloads.get(key).cloned())
        else {
            return;
        };
        let note = format!("Workload '{key}' is declared finished");
        let declared = event(&view.reference, EventType::Normal, "FinishedWorkload", note);
        if workload.is_finished() {
            if self.drop_finalizer(&object) && self.told_finished.insert(key.clone()) {
                self.out.events.push(declared);
            }
            return;
        }
        if workload.deleting {
            self.stop_job(view, Some(key), "Workload is deleted");
            self.drop_finalizer(&object);
            return;
        }
        let gates = self.config.engine.gates;
        let at = At { now, generation: workload.generation };
        let job = as_job(&view.object);
        if let Some(finished) = &view.finished {
            let reason = if finished.success { FinishReason::Succeeded } else { FinishReason::Failed };
            if let Some(plan) = self.plan(key) {
                lifecycle::finish(&mut plan.status, reason, &finished.message, at);
                plan.manager = field_manager::JOB;
                plan.then.events.push(declared);
                self.told_finished.insert(key.clone());
            }
            return;
        }
        if job.is_some_and(Integration::on_hold) && !workload.is_on_hold() {
            if let Some(plan) = self.plan(key) {
                plan.status.admission = None;
                lifecycle::set_pending(&mut plan.status, "OnHold", "Job is on hold", at, &gates);
            }
            self.stop_job(view, Some(key), "Job is on hold");
            return;
        }
        let mut synced = self.sync_priority(view, key, &object);
        if view.elastic {
            for slice in self.other_slices(view, key) {
                if let Some(object) = self.store.workload(&slice).cloned() {
                    synced |= self.sync_priority(view, &slice, &object);
                }
            }
        }
        if synced {
            return;
        }
        if gates.reclaimable_pods
            && workload.has_quota_reservation()
            && !workload.is_evicted()
            && let Some(job) = job
        {
            let pods: Vec<slicegate_workload::ReclaimablePods> = job
                .reclaimable_pods()
                .into_iter()
                .map(|p| slicegate_workload::ReclaimablePods { name: p.name.into(), count: p.count })
                .collect();
            let shrinks = workload
                .status
                .reclaimable_pods
                .iter()
                .any(|old| pods.iter().find(|p| p.name == old.name).is_none_or(|p| p.count < old.count));
            if pods != workload.status.reclaimable_pods
                && !shrinks
                && let Some(plan) = self.plan(key)
            {
                plan.status.reclaimable_pods = pods;
                plan.manager = field_manager::RECLAIMABLE_PODS;
                return;
            }
        }
        if self.config.engine.wait_for_pods_ready.is_some()
            && let Some(job) = job
        {
            let ready = job.pods_ready();
            if let Some(plan) = self.plan(key)
                && sync_pods_ready(&workload, &mut plan.status, ready, at)
            {
                plan.manager = field_manager::JOB;
                return;
            }
        }
        if let Some(evicted) =
            workload.status.conditions.get(&ConditionType::Evicted).filter(|c| c.status == Status::True).cloned()
        {
            self.stop_evicted(now, view, key, &workload, &evicted);
            return;
        }
        if view.suspended {
            if workload.is_admitted() {
                self.settle_or(now, view, key, Self::start_job);
                return;
            }
            if workload.has_quota_reservation() {
                self.tell_checks(view, key, &workload);
            }
            let queue = label(view.object.metadata(), keys::QUEUE_NAME).unwrap_or_default();
            if object.spec.queue_name != queue && !workload.has_quota_reservation() {
                let mut new = (*object).clone();
                queue.clone_into(&mut new.spec.queue_name);
                self.write(field_manager::JOB, Operation::Update(new.into()), Then::default());
            }
            self.settle_or(now, view, key, |_, _, _, _| {});
            return;
        }
        let may_run = workload.is_admitted() || view.elastic && self.runs_as_another_slice(view, key);
        if !may_run {
            self.stop_job(view, Some(key), "Not admitted by cluster queue");
        }
    }

    /// Ends a stop that was begun - a batch Job is stopped in several steps - and only then does `next`.
    fn settle_or(
        &mut self,
        now: Timestamp,
        view: &JobView,
        key: &Key,
        next: impl Fn(&mut Self, Timestamp, &JobView, &Key),
    ) {
        let unsettled = match &view.object {
            Object::Job(job) => {
                annotation(&job.metadata, keys::STOPPING).is_some()
                    || job.status.as_ref().is_some_and(|s| s.start_time.is_some())
            }
            _ => false,
        };
        if unsettled {
            self.stop_job(view, Some(key), "");
        } else {
            next(self, now, view, key);
        }
    }

    /// Stops the job of an evicted Workload; once nothing of it runs any more the quota is given back.
    fn stop_evicted(
        &mut self,
        now: Timestamp,
        view: &JobView,
        key: &Key,
        workload: &Workload,
        evicted: &slicegate_workload::Condition,
    ) {
        self.stop_job(view, Some(key), &evicted.message);
        let gates = self.config.engine.gates;
        let at = At { now, generation: workload.generation };
        let stopped = view.suspended && !view.active;
        if stopped
            && workload.has_quota_reservation()
            && let Some(plan) = self.plan(key)
        {
            lifecycle::release(workload, &mut plan.status, at, &gates);
            plan.manager = field_manager::ADMISSION;
        }
        if let Some(seconds) = self.config.retention_after_deactivated_seconds
            && evicted.reason.starts_with("DeactivatedDueTo")
            && !workload.spec.active
        {
            let due = evicted.last_transition.plus_seconds(seconds);
            if due > now {
                self.wake(&view.reference, due);
            } else if !self.store.is_locked(&view.reference) {
                let note = "Deleted job: deactivation retention period expired";
                let then = Then::event(event(&view.reference, EventType::Normal, "Deleted", note));
                let uid = view.object.uid().into();
                self.write(field_manager::JOB, Operation::Delete { object: view.reference.clone(), uid }, then);
            }
        }
    }

    /// Makes the Workload's priority that of the class that the job names now. Returns whether that takes a write.
    pub(super) fn sync_priority(&mut self, view: &JobView, key: &Key, object: &Arc<kueue::Workload>) -> bool {
        let Some(name) = label(view.object.metadata(), keys::PRIORITY_CLASS).filter(|n| !n.is_empty()) else {
            return false;
        };
        let old = object.spec.priority_class_ref.as_ref();
        let known = old.is_some_and(|c| c.kind == "WorkloadPriorityClass" && c.name == name);
        let foreign = old.is_some_and(|c| c.kind != "WorkloadPriorityClass");
        let reserved = self.fed.workloads.get(key).is_some_and(|w| w.has_quota_reservation());
        if known || foreign || old.is_none() && reserved {
            return false;
        }
        if self.store.is_locked(&workload_ref(key)) {
            return false;
        }
        let Some(priority) = self.priority_of(view) else { return false };
        let mut new = (**object).clone();
        new.spec.priority_class_ref = priority.class_ref();
        new.spec.priority = Some(priority.value);
        let note = format!("Updated workload priority class: {key}");
        let then = Then::event(event(&view.reference, EventType::Normal, "UpdatedWorkload", note));
        self.write(field_manager::JOB, Operation::Update(new.into()), then);
        true
    }

    /// Tells the owner of a job what its admission checks say.
    fn tell_checks(&mut self, view: &JobView, key: &Key, workload: &Workload) {
        let texts: Vec<String> = workload
            .status
            .admission_checks
            .iter()
            .filter(|c| c.state == CheckState::Pending && !c.message.is_empty())
            .map(|c| format!("{}: {}", c.name, c.message))
            .collect();
        let text = texts.join("; ");
        if text.is_empty() || self.told_checks.get(key) == Some(&text) {
            return;
        }
        self.out.events.push(event(&view.reference, EventType::Normal, "UpdatedAdmissionCheck", text.clone()));
        self.told_checks.insert(key.clone(), text);
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

fn max_execution_time(job: &ObjectMeta) -> Option<i32> {
    label(job, keys::MAX_EXEC_TIME_SECONDS)?.parse().ok().filter(|&seconds| seconds > 0)
}

/// Whether two lists of pod sets ask for the same pods: counts, containers and, unless `but_tolerations`, tolerations.
fn same_pod_sets(a: &[kueue::PodSet], b: &[kueue::PodSet], but_tolerations: bool) -> bool {
    let same = |a: &kueue::PodSet, b: &kueue::PodSet| {
        let default = slicegate_api::PodSpec::default();
        let (x, y) = (a.template.spec.as_ref().unwrap_or(&default), b.template.spec.as_ref().unwrap_or(&default));
        a.count == b.count
            && (but_tolerations
                || x.tolerations.as_deref().unwrap_or_default() == y.tolerations.as_deref().unwrap_or_default())
            && x.init_containers.as_deref().unwrap_or_default() == y.init_containers.as_deref().unwrap_or_default()
            && x.containers == y.containers
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// The condition PodsReady of a workload.
fn sync_pods_ready(workload: &Workload, status: &mut slicegate_workload::WorkloadStatus, ready: bool, at: At) -> bool {
    let old = status.conditions.get(&ConditionType::PodsReady).cloned();
    let was_ready = old.as_ref().is_some_and(|c| c.status == Status::True);
    let recovering = old.as_ref().is_some_and(|c| c.status == Status::False && &*c.reason == "WaitForRecovery");
    let recovered = old.as_ref().is_some_and(|c| c.status == Status::True && &*c.reason == "Recovered");
    let (value, reason, message) = if !workload.is_admitted() {
        (Status::False, "WaitForStart", "Not all pods are ready or succeeded")
    } else if ready {
        let reason = if recovering || recovered { "Recovered" } else { "Started" };
        (Status::True, reason, "All pods reached readiness and the workload is running")
    } else if was_ready || recovering {
        (Status::False, "WaitForRecovery", "At least one pod has failed, waiting for recovery")
    } else {
        (Status::False, "WaitForStart", "Not all pods are ready or succeeded")
    };
    // A new generation alone is no news.
    if old.is_some_and(|c| c.status == value && &*c.reason == reason && &*c.message == message) {
        return false;
    }
    at.set(status, ConditionType::PodsReady, value, reason, message)
}

/// Whether the text may be the value of a label that is a DNS label.
fn is_dns_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| plain(b) || b == b'-')
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
}
