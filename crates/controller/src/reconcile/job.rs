//! A job and its Workload.

use std::sync::Arc;

use slicegate_admission::lifecycle::{self, At, FinishReason};
use slicegate_api::defaulting::has_queue;
use slicegate_api::owner::{OwnerError, managed_ancestor};
use slicegate_api::{Kind, Object, ObjectRef, kueue};
use slicegate_workload::{CheckState, ConditionType, Key, Status, Timestamp, Workload};

use crate::controller::{Controller, event};
use crate::io::{EventType, Operation, field_manager};
use crate::jobs::{Finished, Integration, JobContext, annotation, as_job, as_job_mut, label};
use crate::keys;
use crate::podset;
use crate::reconcile::prebuilt::prebuilt_name;
use crate::store::workload_ref;
use crate::writes::Then;

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

    fn namespace_is_managed(&self, namespace: &str) -> bool {
        self.policy.manages_namespace(namespace, self.store.get(&ObjectRef::new(Kind::Namespace, "", namespace)))
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
        if !self.policy.frameworks.contains(&reference.kind) || !self.namespace_is_managed(object.namespace()) {
            return;
        }
        if job.skip() {
            if has_queue(object.metadata()) {
                self.complain_of_rules(&object);
            }
            return;
        }
        match managed_ancestor(&object, &self.policy, &|owner| self.store.get(owner).cloned()) {
            Ok(None) => {}
            Ok(Some(ancestor)) => return self.reconcile_child(&object, &ancestor),
            Err(OwnerError::TooLong) => {
                let text = "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
                return self.complain(reference, "JobNestingTooDeep", text.to_owned());
            }
            // A missing owner may yet appear; it marks the job then.
            Err(_) => return,
        }
        let is_queued = self.policy.manage_jobs_without_queue_name || has_queue(object.metadata());
        if !is_queued && !self.left_its_queue(&object) {
            return;
        }
        let pod_sets = self.with_context(object.namespace(), |context| job.pod_sets(context));
        let mut pod_sets = match pod_sets {
            Ok(pod_sets) => pod_sets,
            Err(error) => return self.complain(reference, "ErrWorkloadCompose", error.to_string()),
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
        if !is_queued && self.withdraw(&view) {
            return;
        }
        let Some(key) = self.ensure_one_workload(now, &view) else { return };
        self.reconcile_with_workload(now, &view, &key);
    }

    /// Whether a job without a queue had one before: a Workload that was made for it has not ended.
    fn left_its_queue(&self, job: &Object) -> bool {
        prebuilt_name(job.metadata()).is_none() && !self.live_workloads_of(job).is_empty()
    }

    fn live_workloads_of(&self, job: &Object) -> Vec<Key> {
        let is_live = |key: &Key| self.fed.workloads.get(key).is_some_and(|w| !w.is_finished());
        self.workloads_of(job).into_iter().filter(is_live).collect()
    }

    /// Takes a job that left its queue out of it. One that runs does so on its quota until it ends or is stopped; what waits, or was
    /// stopped, waits for nothing any more. Returns whether nothing else is to be done.
    fn withdraw(&mut self, view: &JobView) -> bool {
        let all = self.live_workloads_of(&view.object);
        let has_quota = all.iter().any(|key| self.fed.workloads.get(key).is_some_and(|w| w.has_quota_reservation()));
        if view.finished.is_some() || !view.suspended || has_quota && !self.has_stopped(view) {
            return false;
        }
        for key in &all {
            self.delete_workload(view, key, false);
        }
        true
    }

    /// A job whose owner is managed runs only while its owner may.
    fn reconcile_child(&mut self, child: &Object, ancestor: &ObjectRef) {
        let Some(job) = as_job(child) else { return };
        if job.is_suspended() || job.finished().is_some() {
            return;
        }
        // While an elastic owner asks for another size, it runs as the slice that it has, whatever becomes of the new one.
        let elastic = job.is_elastic(&self.config.engine.gates);
        let may_run = self.current_workloads(ancestor).any(|w| if elastic { !w.is_evicted() } else { w.is_admitted() });
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
            let lets_go = workload.deleting || !self.config.keep_finalizer_of_finished;
            if lets_go && self.drop_finalizer(&object) && self.told_finished.insert(key.clone()) {
                self.out.events.push(declared);
            }
            return;
        }
        if workload.deleting {
            // What its pods were like before is written in the Workload alone.
            if self.stop_job(view, Some(key), "Workload is deleted") {
                self.drop_finalizer(&object);
            }
            return;
        }
        let gates = self.config.engine.gates;
        let at = At { now, generation: workload.generation };
        // Somebody else may have said so.
        let admitted = workload.is_admitted() && workload.status.admission.is_some();
        let job = as_job(&view.object);
        if let Some(finished) = &view.finished {
            let reason = if finished.success { FinishReason::Succeeded } else { FinishReason::Failed };
            // A slice that waits would be given what the one that runs frees: it ends first.
            let waiting = if view.elastic { self.other_slices(view, key) } else { Vec::new() };
            for slice in &waiting {
                if let Some(plan) = self.plan(slice) {
                    lifecycle::finish(&mut plan.status, reason, &finished.message, at);
                    plan.manager = field_manager::JOB;
                }
            }
            if !waiting.is_empty() {
                return;
            }
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
        if synced || gates.admission_gated_by && self.sync_gates(view, &object) {
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
            // The size of an elastic job may have become less than what it no longer needed.
            let shrinks = !view.elastic
                && workload
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
            if admitted {
                // Pods of an earlier start go before others come.
                if self.has_stopped(view) {
                    self.settle_or(now, view, key, Self::start_job);
                }
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
        let may_run = admitted || view.elastic && self.runs_as_another_slice(view, key, &workload);
        if !may_run {
            self.stop_job(view, Some(key), "Not admitted by cluster queue");
        } else if admitted && view.elastic && self.runs_elsewhere(view, &object) {
            self.stop_job(view, Some(key), "Admitted on other flavors than those it runs on");
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

    /// Takes those gates off a Workload that are not on its job any more: who opens a gate does so on the job. Returns whether that
    /// takes a write.
    fn sync_gates(&mut self, view: &JobView, object: &Arc<kueue::Workload>) -> bool {
        let Some(held) = annotation(&object.metadata, keys::ADMISSION_GATED_BY).filter(|held| !held.is_empty()) else {
            return false;
        };
        let job = view.object.metadata();
        let wanted = annotation(job, keys::ADMISSION_GATED_BY).unwrap_or_default();
        let stays = |gate: &&str| wanted.split(',').any(|other| other.trim() == gate.trim());
        // Whoever made a Workload that a job only uses gates it themselves.
        if held.split(',').all(|gate| stays(&gate)) || prebuilt_name(job).is_some() {
            return false;
        }
        let left = held.split(',').filter(stays).collect::<Vec<_>>().join(",");
        let mut new = (**object).clone();
        let annotations = new.metadata.annotations.get_or_insert_default();
        if left.is_empty() {
            annotations.remove(keys::ADMISSION_GATED_BY);
        } else {
            annotations.insert(keys::ADMISSION_GATED_BY.to_owned(), left);
        }
        self.write(field_manager::JOB, Operation::Update(new.into()), Then::default());
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
