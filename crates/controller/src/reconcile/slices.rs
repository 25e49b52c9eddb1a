//! Elastic jobs: a job whose size changes is a chain of Workloads, each of which replaces the one before.

use slicegate_admission::lifecycle::{self, At};
use slicegate_api::kueue;
use slicegate_workload::{Key, Timestamp, Workload};

use super::job::JobView;
use crate::controller::{Controller, Then};
use crate::io::{Operation, field_manager};
use crate::store::workload_ref;

/// What came of choosing a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// There is none that fits the job at all: it is to be treated like any other job.
    None,
    /// This one stands for the job now; with `None` it must first be written.
    Made(Option<Key>),
}

/// How the sizes of a job and of a Workload compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sizes {
    /// They are about other pod sets.
    Different,
    /// They are the same.
    Equal,
    /// The job has fewer pods, and nowhere more.
    Smaller,
    /// The job has more pods somewhere.
    Larger,
}

fn compare(job: &[kueue::PodSet], workload: &[kueue::PodSet]) -> Sizes {
    if job.len() != workload.len() || job.iter().zip(workload).any(|(j, w)| j.name != w.name) {
        return Sizes::Different;
    }
    if job.iter().zip(workload).any(|(j, w)| j.count > w.count) {
        Sizes::Larger
    } else if job.iter().zip(workload).any(|(j, w)| j.count < w.count) {
        Sizes::Smaller
    } else {
        Sizes::Equal
    }
}

impl Controller {
    /// Chooses the slice that an elastic job is compared with, and makes it follow the size of the job.
    pub(super) fn choose_slice(&mut self, now: Timestamp, view: &JobView, all: &[Key]) -> Choice {
        let known: Vec<std::sync::Arc<Workload>> =
            all.iter().filter_map(|k| self.fed.workloads.get(k).cloned()).filter(|w| !w.is_finished()).collect();
        let slices: Vec<&Workload> = known.iter().map(AsRef::as_ref).collect();
        let chain = lifecycle::normalize_slices(&slices);
        for end in &chain.finish {
            let Some(workload) = self.fed.workloads.get(&end.workload) else { continue };
            let at = At { now, generation: workload.generation };
            if let Some(plan) = self.plan(&end.workload) {
                lifecycle::finish(&mut plan.status, end.reason, end.message, at);
            }
        }
        let Some(selected) = chain.selected else { return Choice::None };
        if view.finished.is_some() {
            // The end of the job is the end of all its slices; the one that runs tells of it.
            return Choice::Made(Some(chain.running.unwrap_or(selected)));
        }
        let known = self.store.workload(&selected).cloned().zip(self.fed.workloads.get(&selected).cloned());
        let Some((object, workload)) = known else { return Choice::None };
        match compare(&view.pod_sets, &object.spec.pod_sets) {
            Sizes::Different => Choice::None,
            Sizes::Equal => Choice::Made(Some(selected)),
            Sizes::Larger if workload.has_quota_reservation() => {
                if self.sync_priority(view, &selected, &object) {
                    return Choice::Made(None);
                }
                if !workload.is_evicted() && chain.running.is_none() {
                    self.create_workload(view, Some(&selected));
                }
                Choice::Made(Some(selected))
            }
            Sizes::Smaller | Sizes::Larger => {
                if self.store.is_locked(&workload_ref(&selected)) {
                    return Choice::Made(None);
                }
                let mut new = (*object).clone();
                for (there, wanted) in new.spec.pod_sets.iter_mut().zip(&view.pod_sets) {
                    there.count = wanted.count;
                }
                self.write(field_manager::JOB, Operation::Update(new.into()), Then::default());
                Choice::Made(None)
            }
        }
    }

    /// The unfinished slices of a job but for this one.
    pub(super) fn other_slices(&self, view: &JobView, key: &Key) -> Vec<Key> {
        self.store
            .owned_by(view.object.uid(), slicegate_api::Kind::Workload)
            .iter()
            .map(crate::store::key_of)
            .filter(|k| k != key && self.fed.workloads.get(k).is_some_and(|w| !w.is_finished()))
            .collect()
    }

    /// Whether another slice of the job than this one may run.
    pub(super) fn runs_as_another_slice(&self, view: &JobView, key: &Key) -> bool {
        self.other_slices(view, key)
            .iter()
            .filter_map(|k| self.fed.workloads.get(k))
            .any(|w| w.is_admitted() && !w.is_evicted())
    }
}
