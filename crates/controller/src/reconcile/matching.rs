//! Which Workload stands for a job.

use slicegate_api::{Kind, Object, ObjectMeta, kueue};
use slicegate_workload::{Key, Timestamp};

use super::job::JobView;
use super::prebuilt::prebuilt_name;
use super::slices::Choice;
use super::start::is_yet_to_stop;
use crate::controller::Controller;
use crate::jobs::label;
use crate::keys;
use crate::podset;
use crate::store::{key_of, owner_ref};

impl Controller {
    /// The Workloads that a job controls.
    pub(super) fn workloads_of(&self, job: &Object) -> Vec<Key> {
        self.store
            .owned_by(job.uid(), Kind::Workload)
            .into_iter()
            .filter(|r| r.namespace.as_ref() == job.namespace())
            .filter(|r| {
                let owner = self.store.get(r).and_then(|o| owner_ref(o.metadata()));
                owner.is_some_and(|o| o == job.reference())
            })
            .map(|r| key_of(&r))
            .collect()
    }

    /// Finds the one Workload that stands for the job and removes others; makes one if there is none. `None` if there is
    /// nothing to go on with now.
    pub(super) fn ensure_one_workload(&mut self, now: Timestamp, view: &JobView) -> Option<Key> {
        if let Some(name) = prebuilt_name(view.object.metadata()) {
            return self.prebuilt_workload(now, view, name);
        }
        let mut all = self.workloads_of(&view.object);
        if all.is_empty() && self.take_back(view) {
            return None;
        }
        all.sort_by_key(|k| self.fed.workloads.get(k).map(|w| (w.created, w.uid.clone())));
        if view.elastic {
            self.let_past_slices_go(&mut all);
            if let Choice::Made(choice) = self.choose_slice(now, view, &all) {
                return choice;
            }
            // All that is left of a job that has ended tells of its end.
            if view.finished.is_some()
                && let Some(last) = all.pop()
            {
                self.let_go(&all);
                return Some(last);
            }
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
            self.delete_workload(view, key, found.is_some());
        }
        if let Some(key) = update {
            // A stop that was begun is ended first: what the job asks for now is what was put into it.
            if !is_yet_to_stop(&view.object) || self.stop_job(view, Some(&key), "") {
                self.update_workload(view, &key);
            }
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
    pub(super) fn is_equivalent(&self, view: &JobView, key: &Key) -> bool {
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
        // What was put in by flavors that are gone is not known any more.
        same_pod_sets(&view.pod_sets, &workload.spec.pod_sets, admitted)
    }
}

pub(super) fn max_execution_time(job: &ObjectMeta) -> Option<i32> {
    label(job, keys::MAX_EXEC_TIME_SECONDS)?.parse().ok().filter(|&seconds| seconds > 0)
}

/// Whether two lists of pod sets ask for the same pods: counts, containers and, unless `but_tolerations`, tolerations.
pub(super) fn same_pod_sets(a: &[kueue::PodSet], b: &[kueue::PodSet], but_tolerations: bool) -> bool {
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
