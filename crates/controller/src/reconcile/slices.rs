//! Elastic jobs: a job whose size changes is a chain of Workloads, each of which replaces the one before.

use slicegate_admission::lifecycle::{self, At, FinishReason};
use slicegate_api::kueue;
use slicegate_workload::{ConditionType, Key, Status, Timestamp, Workload};

use super::job::JobView;
use crate::controller::Controller;
use crate::io::{Operation, field_manager};
use crate::store::workload_ref;
use crate::writes::Then;

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

/// Whether a slice ended since another one took its place, or since it stood for nothing any more.
pub(super) fn is_past(workload: &Workload) -> bool {
    let finished = workload.status.conditions.get(&ConditionType::Finished).filter(|c| c.status == Status::True);
    let past = [FinishReason::WorkloadSliceReplaced, FinishReason::OutOfSync];
    finished.is_some_and(|c| past.iter().any(|reason| reason.as_str() == &*c.reason))
}

impl Controller {
    /// Takes slices that are past out of a list of the Workloads of an elastic job, and lets them go: they stay as a record, but
    /// whoever deletes them may.
    pub(super) fn let_past_slices_go(&mut self, all: &mut Vec<Key>) {
        let (past, rest) = std::mem::take(all)
            .into_iter()
            .partition::<Vec<Key>, _>(|key| self.fed.workloads.get(key).is_some_and(|w| is_past(w)));
        *all = rest;
        self.let_go(&past);
    }

    /// Removes the finalizers of Workloads.
    pub(super) fn let_go(&mut self, all: &[Key]) {
        for key in all {
            if let Some(object) = self.store.workload(key).cloned()
                && !self.store.is_locked(&workload_ref(key))
            {
                self.drop_finalizer(&object);
            }
        }
    }

    /// Chooses the slice that an elastic job is compared with, and makes it follow the size of the job.
    pub(super) fn choose_slice(&mut self, now: Timestamp, view: &JobView, all: &[Key]) -> Choice {
        let known: Vec<std::sync::Arc<Workload>> =
            all.iter().filter_map(|k| self.fed.workloads.get(k).cloned()).filter(|w| !w.is_finished()).collect();
        // A slice that is evicted keeps its quota until nothing of the job runs any more; until then it stands for the job. So
        // does one that is deleted while it holds quota.
        if view.finished.is_none()
            && let Some(ends) = known.iter().find(|w| w.has_quota_reservation() && (w.is_evicted() || w.deleting))
        {
            return Choice::Made(Some(ends.key.clone()));
        }
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
        // A job that was not started yet starts as the slice that is admitted, and grows from there.
        if view.suspended
            && let Some(running) = chain.running.as_ref().filter(|r| **r != selected)
            && self.fed.workloads.get(running).is_some_and(|w| w.is_admitted())
        {
            return Choice::Made(chain.running);
        }
        let known = self.store.workload(&selected).cloned().zip(self.fed.workloads.get(&selected).cloned());
        let Some((object, workload)) = known else { return Choice::None };
        if workload.deleting && chain.running.is_some() {
            // Somebody does not want the job to grow like this; it runs on, and asks anew.
            self.let_go(&[selected]);
            return Choice::Made(chain.running);
        }
        match compare(&view.pod_sets, &object.spec.pod_sets) {
            Sizes::Different => Choice::None,
            Sizes::Equal => Choice::Made(Some(selected)),
            Sizes::Larger if workload.has_quota_reservation() => {
                if self.sync_priority(view, &selected, &object) {
                    return Choice::Made(None);
                }
                if chain.running.is_none() {
                    self.create_workload(view, Some(&selected));
                }
                Choice::Made(Some(selected))
            }
            Sizes::Smaller | Sizes::Larger => {
                if self.store.is_locked(&workload_ref(&selected)) {
                    return Choice::Made(None);
                }
                let mut new = (*object).clone();
                follow(&mut new.spec.pod_sets, &view.pod_sets);
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

    /// Whether a job may run on although this slice is not admitted: another one is, or this one took quota over from one that
    /// was and waits for its checks. Pods that were added wait at their gate.
    pub(super) fn runs_as_another_slice(&self, view: &JobView, key: &Key, workload: &Workload) -> bool {
        let took_over = || {
            let old = lifecycle::replaced_slice(workload).and_then(|old| self.fed.workloads.get(&old));
            workload.has_quota_reservation() && old.is_some_and(|old| is_past(old) && !old.is_evicted())
        };
        let other = |w: &std::sync::Arc<Workload>| w.is_admitted() && !w.is_evicted();
        self.other_slices(view, key).iter().filter_map(|k| self.fed.workloads.get(k)).any(other) || took_over()
    }

    /// Whether a job runs on other flavors than those that a slice was given.
    pub(super) fn runs_elsewhere(&self, view: &JobView, slice: &kueue::Workload) -> bool {
        let Some(admission) = &slice.status.admission else { return false };
        admission.pod_set_assignments.iter().any(|assignment| {
            let pod_set = view.pod_sets.iter().find(|p| p.name == assignment.name);
            let there = pod_set.and_then(|p| p.template.spec.as_ref()?.node_selector.as_ref());
            let flavors = assignment.flavors.values().filter_map(|flavor| self.store.flavor(flavor));
            let mut labels = flavors.flat_map(|flavor| &flavor.spec.node_labels);
            labels.any(|(label, value)| there.and_then(|t| t.get(label)).is_some_and(|t| t != value))
        })
    }
}

/// Gives pod sets the sizes of others of the same names.
pub(super) fn follow(pod_sets: &mut [kueue::PodSet], sizes: &[kueue::PodSet]) {
    for pod_set in pod_sets {
        if let Some(wanted) = sizes.iter().find(|s| s.name == pod_set.name) {
            pod_set.count = wanted.count;
        }
    }
}
