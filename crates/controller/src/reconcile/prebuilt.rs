//! Workloads that somebody else made, for a job to use.

use slicegate_admission::lifecycle::{self, At, FinishReason};
use slicegate_api::owner::controller_of;
use slicegate_api::{Object, ObjectMeta};
use slicegate_workload::{Key, Timestamp};

use super::job::JobView;
use crate::controller::Controller;
use crate::jobs::{annotation, label};
use crate::keys;

/// The reason of the Event about a job that is to use a Workload that it cannot have.
const NOT_FOUND: &str = "WorkloadNotFound";

/// The name of the Workload that a job is to use instead of one of its own: from its annotation, else from its label.
pub(crate) fn prebuilt_name(job: &ObjectMeta) -> Option<&str> {
    let named = annotation(job, keys::PREBUILT_WORKLOAD).or_else(|| label(job, keys::PREBUILT_WORKLOAD));
    named.filter(|name| !name.is_empty())
}

impl Controller {
    /// The Workload that a job is to use, once it is the job's own. Without one the job is stopped: it never gets another.
    pub(super) fn prebuilt_workload(&mut self, now: Timestamp, view: &JobView, name: &str) -> Option<Key> {
        let key = Key::new(view.object.namespace(), name);
        let Some(workload) = self.store.workload(&key).cloned() else {
            let note = format!("Workload {key}, which the job is to use, is not there; create it");
            return self.without_workload(view, Some(note));
        };
        match controller_of(&workload.metadata) {
            Some(owner) if owner.uid != view.object.uid() => {
                let note = format!("Workload {key}, which the job is to use, is that of {} {}", owner.kind, owner.name);
                return self.without_workload(view, Some(note));
            }
            Some(_) => {}
            None => {
                self.make_its_own(view, &workload);
                return None;
            }
        }
        if self.is_equivalent(view, &key) {
            return Some(key);
        }
        let at = At { now, generation: workload.metadata.generation.unwrap_or_default() };
        if let Some(plan) = self.plan(&key) {
            let message = "The prebuilt workload is out of sync with its user job";
            lifecycle::finish(&mut plan.status, FinishReason::OutOfSync, message, at);
        }
        self.without_workload(view, None)
    }

    fn without_workload(&mut self, view: &JobView, why: Option<String>) -> Option<Key> {
        if view.finished.is_none() {
            match why {
                // One that runs is stopped first, and told so.
                Some(note) if view.suspended => self.complain(&view.reference, NOT_FOUND, note),
                _ => self.settle_complaint(&view.reference, NOT_FOUND),
            }
            self.stop_job(view, None, "missing workload");
        }
        None
    }

    /// Marks the jobs that wait for a Workload that nobody controls yet.
    pub(crate) fn mark_users_of(&mut self, workload: &Object) {
        for kind in crate::jobs::KINDS {
            let waits = |job: &&Object| {
                job.namespace() == workload.namespace() && prebuilt_name(job.metadata()) == Some(workload.name())
            };
            let waiting: Vec<_> = self.store.all(kind).filter(waits).map(Object::reference).collect();
            self.dirty.extend(waiting);
        }
    }
}
