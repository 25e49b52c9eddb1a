//! Starting and stopping jobs.

use k8s_openapi::api::core::v1::PodSchedulingGate;
use slicegate_admission::lifecycle::{self, At, FinishReason};
use slicegate_api::{Object, ObjectRef, kueue};
use slicegate_workload::{Key, Timestamp, Workload};

use super::job::JobView;
use crate::controller::{Controller, event};
use crate::io::{EventType, Operation, field_manager};
use crate::jobs::batch::ending_since;
use crate::jobs::rayjob::SUBMITTER;
use crate::jobs::{Integration, JobError, Stop, annotation, as_job, as_job_mut};
use crate::keys;
use crate::podset::PodSetInfo;
use crate::writes::Then;

impl Controller {
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
                // Pods beyond those that were granted wait at a gate. A webhook puts it into new jobs; where there is none,
                // it is put there now. The pod that submits the program of a RayJob is never one too many.
                if assignment.name != SUBMITTER {
                    info.scheduling_gates.push(PodSchedulingGate { name: keys::ELASTIC_GATE.to_owned() });
                }
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

    /// Takes the next step towards a stopped job whose pods are as they were. Returns whether there is none left to take.
    pub(super) fn stop_job(&mut self, view: &JobView, workload: Option<&Key>, message: &str) -> bool {
        // What has ended stays as it is, and has nothing left to stop.
        if view.finished.is_some() {
            return true;
        }
        if self.store.is_locked(&view.reference) {
            return false;
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
            Stop::Done | Stop::Waiting => {}
            Stop::Changed => self.write(field_manager::JOB, Operation::Update(object), then),
            Stop::StatusChanged => self.write(field_manager::JOB, Operation::UpdateStatus(object), then),
        }
        step == Stop::Done
    }

    /// Whether no pod of an earlier start of the job runs or will: it is suspended, whoever makes its pods has taken notice, and so
    /// it is with the jobs that it is made of. If it were started before, these pods would run on as they were made.
    pub(super) fn has_stopped(&self, view: &JobView) -> bool {
        let settled = |object: &Object| as_job(object).is_none_or(Integration::has_settled);
        let part_stopped = |part: &ObjectRef| {
            self.store.get(part).is_none_or(|object| {
                as_job(object).is_none_or(|job| {
                    job.finished().is_some() || job.is_suspended() && !job.is_active() && job.has_settled()
                })
            })
        };
        view.suspended
            && !view.active
            && settled(&view.object)
            && self.store.owned(view.object.uid()).iter().all(part_stopped)
    }

    /// Starts the job of an admitted Workload.
    pub(super) fn start_job(&mut self, now: Timestamp, view: &JobView, key: &Key) {
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

    /// Ends a stop that was begun - a batch Job is stopped in several steps - and only then does `next`. An elastic job may have run
    /// as another slice, whose marks its pods still carry if somebody else suspended it.
    pub(super) fn settle_or(
        &mut self,
        now: Timestamp,
        view: &JobView,
        key: &Key,
        next: impl Fn(&mut Self, Timestamp, &JobView, &Key),
    ) {
        let may_be_another_slice = view.elastic && matches!(view.object, Object::Job(_));
        let stops = may_be_another_slice || is_yet_to_stop(&view.object);
        if !stops || self.stop_job(view, Some(key), "") {
            next(self, now, view, key);
        }
    }

    /// Stops the job of an evicted Workload; once nothing of it runs any more the quota is given back.
    pub(super) fn stop_evicted(
        &mut self,
        now: Timestamp,
        view: &JobView,
        key: &Key,
        workload: &Workload,
        evicted: &slicegate_workload::Condition,
    ) {
        let is_as_it_was = self.stop_job(view, Some(key), &evicted.message);
        let gates = self.config.engine.gates;
        let at = At { now, generation: workload.generation };
        // Before, what it asks for is what was put into it.
        if is_as_it_was
            && self.has_stopped(view)
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
}

/// Whether a suspended job is still as it was started: a batch Job is stopped in several steps, and its pods are made as they
/// were in the last one.
pub(super) fn is_yet_to_stop(object: &Object) -> bool {
    let started = matches!(object, Object::Job(job)
        if job.status.as_ref().is_some_and(|s| s.start_time.is_some()) || ending_since(job).is_some());
    started || is_stopping(object)
}

/// Whether a stop was begun - a batch Job is stopped in several steps - and is not done.
pub(super) fn is_stopping(object: &Object) -> bool {
    matches!(object, Object::Job(job) if annotation(&job.metadata, keys::STOPPING).is_some())
}

/// Whether the text may be the value of a label that is a DNS label.
pub(super) fn is_dns_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| plain(b) || b == b'-')
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
}
