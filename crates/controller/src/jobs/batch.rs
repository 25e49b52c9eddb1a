//! `batch/v1` Jobs.

use slicegate_admission::Gates;
use slicegate_api::{Job, ObjectMeta, PodTemplateSpec, kueue};

use super::{Finished, Integration, JobContext, JobError, Stop, annotation, expect_infos, may_have_run};
use crate::keys;
use crate::podset::{self, PodSetInfo};
use crate::topology_request::{PodIndex, topology_request};

/// The name of the only pod set.
const POD_SET: &str = "main";
/// Labels that the Job controller puts into the pod template by itself.
const GENERATED_LABELS: [&str; 3] = ["batch.kubernetes.io/controller-uid", "controller-uid", "job-name"];

fn spec(job: &Job) -> slicegate_api::JobSpec {
    job.spec.clone().unwrap_or_default()
}

fn parallelism(job: &Job) -> i32 {
    job.spec.as_ref().and_then(|s| s.parallelism).unwrap_or(1)
}

fn completions(job: &Job) -> Option<i32> {
    job.spec.as_ref().and_then(|s| s.completions)
}

fn pods_count(job: &Job) -> i32 {
    let parallelism = parallelism(job);
    completions(job).map_or(parallelism, |c| c.min(parallelism))
}

fn min_parallelism(job: &Job, gates: &Gates) -> Option<i32> {
    if !gates.partial_admission {
        return None;
    }
    annotation(&job.metadata, keys::JOB_MIN_PARALLELISM)?.parse().ok()
}

fn completions_follow(job: &Job) -> bool {
    annotation(&job.metadata, keys::JOB_COMPLETIONS_EQUAL_PARALLELISM) == Some("true")
}

fn set_parallelism(job: &mut Job, count: i32) {
    let follow = completions_follow(job);
    let spec = job.spec.get_or_insert_default();
    spec.parallelism = Some(count);
    if follow {
        spec.completions = Some(count);
    }
}

fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a k8s_openapi::api::batch::v1::JobCondition> {
    job.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == kind && c.status == "True")
}

/// Since when it is decided how the job ends, while the controller of Jobs has yet to say that it has ended.
pub(crate) fn ending_since(job: &Job) -> Option<slicegate_api::Time> {
    let decided = ["SuccessCriteriaMet", "FailureTarget"].iter().find_map(|kind| condition(job, kind))?;
    decided.last_transition_time.clone().or_else(|| job.metadata.creation_timestamp.clone())
}

/// Removes the labels that the Job controller generates: they differ from Job to Job and are no part of the request.
pub fn clean_labels(template: &mut PodTemplateSpec) {
    if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
        labels.retain(|key, _| !GENERATED_LABELS.contains(&key.as_str()));
    }
}

/// How many indexes of an Indexed Job are finished: those in either list of ranges that are below `completions`. A range that
/// cannot be read is passed over.
pub fn terminal_indexes(completed: &str, failed: &str, completions: i32) -> i32 {
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for part in completed.split(',').chain(failed.split(',')) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
        let last = last.min(completions.saturating_sub(1));
        if first >= 0 && first <= last {
            ranges.push((first, last));
        }
    }
    ranges.sort_unstable();
    let mut count = 0_i32;
    let mut next = 0;
    for (first, last) in ranges {
        let first = first.max(next);
        if first <= last {
            count = count.saturating_add(last - first).saturating_add(1);
            next = last.saturating_add(1);
        }
    }
    count
}

impl Integration for Job {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn group(&self) -> &'static str {
        "batch"
    }

    fn is_suspended(&self) -> bool {
        self.spec.as_ref().and_then(|s| s.suspend).unwrap_or(false)
    }

    fn suspend(&mut self) {
        self.spec.get_or_insert_default().suspend = Some(true);
    }

    fn pod_sets(&self, context: &JobContext<'_>) -> Result<Vec<kueue::PodSet>, JobError> {
        let gates = context.gates;
        let mut template = spec(self).template;
        clean_labels(&mut template);
        let count = pods_count(self);
        let topology_request = if gates.topology_aware_scheduling {
            let index = PodIndex { label: Some(keys::JOB_COMPLETION_INDEX), sub_group: None };
            topology_request(&template, index, gates.tas_multi_layer_topology)?
        } else {
            None
        };
        let min_count = min_parallelism(self, gates);
        Ok(vec![kueue::PodSet { name: POD_SET.to_owned(), template, count, min_count, topology_request }])
    }

    fn run(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Result<(), JobError> {
        self.spec.get_or_insert_default().suspend = Some(false);
        expect_infos(1, infos)?;
        let [info] = infos else { return Ok(()) };
        if min_parallelism(self, context.gates).is_some() {
            set_parallelism(self, info.count);
        }
        let elastic = context.gates.elastic_jobs_via_workload_slices;
        podset::merge_into(&mut self.spec.get_or_insert_default().template, info, elastic)?;
        Ok(())
    }

    fn restore(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> bool {
        let [info] = infos else { return false };
        let mut changed = false;
        if min_parallelism(self, context.gates).is_some() && parallelism(self) != info.count {
            set_parallelism(self, info.count);
            changed = true;
        }
        let template = &mut self.spec.get_or_insert_default().template;
        let mut info = info.clone();
        if let Some(labels) = template.metadata.as_ref().and_then(|m| m.labels.as_ref()) {
            for key in GENERATED_LABELS {
                if let Some(value) = labels.get(key) {
                    info.labels.insert(key.to_owned(), value.clone());
                }
            }
        }
        podset::restore(template, &info) || changed
    }

    /// A Job's pod template may change only while it is suspended and was never started: it is suspended first, then its start
    /// time is taken back once its pods are being deleted, then its pods are made as they were.
    fn stop(&mut self, infos: &[PodSetInfo], context: &JobContext<'_>) -> Stop {
        if let Some(since) = ending_since(self) {
            // Its last pods ended while it was being stopped. The API server lets only a job end that has started.
            let suspended = self.is_suspended();
            let status = self.status.get_or_insert_default();
            if suspended && status.start_time.is_none() {
                status.start_time = Some(since);
                return Stop::StatusChanged;
            }
            return Stop::Waiting;
        }
        if !self.is_suspended() {
            self.suspend();
            // Where nothing is to be restored it is stopped with that.
            if !infos.is_empty() {
                let annotations = self.metadata.annotations.get_or_insert_default();
                annotations.insert(keys::STOPPING.to_owned(), "true".to_owned());
            }
            return Stop::Changed;
        }
        // The API server takes other pods only then, and whoever writes the status before is in the way of who deletes the pods.
        let begun = self.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(keys::STOPPING));
        if begun && self.is_active() && condition(self, "Suspended").is_none() {
            return Stop::Waiting;
        }
        if let Some(status) = &mut self.status
            && status.start_time.is_some()
        {
            status.start_time = None;
            return Stop::StatusChanged;
        }
        let mut changed = self.restore(infos, context);
        if let Some(annotations) = &mut self.metadata.annotations {
            changed |= annotations.remove(keys::STOPPING).is_some();
            if annotations.is_empty() {
                self.metadata.annotations = None;
            }
        }
        if changed { Stop::Changed } else { Stop::Done }
    }

    fn is_active(&self) -> bool {
        self.status.as_ref().and_then(|s| s.active).unwrap_or(0) != 0
    }

    /// Of one whose last pods have ended before it took notice the controller of Jobs never says that it is suspended.
    fn has_settled(&self) -> bool {
        let managed_by = self.spec.as_ref().and_then(|s| s.managed_by.as_deref());
        !may_have_run(&self.metadata, managed_by)
            || condition(self, "Suspended").is_some()
            || ending_since(self).is_some()
    }

    fn pods_ready(&self) -> bool {
        let status = self.status.clone().unwrap_or_default();
        let uncounted = status
            .uncounted_terminated_pods
            .and_then(|u| u.succeeded)
            .map_or(0, |s| i32::try_from(s.len()).unwrap_or(i32::MAX));
        let done = status.succeeded.unwrap_or(0).saturating_add(status.ready.unwrap_or(0)).saturating_add(uncounted);
        done >= pods_count(self)
    }

    fn finished(&self) -> Option<Finished> {
        ["Complete", "Failed"].iter().find_map(|kind| {
            condition(self, kind)
                .map(|c| Finished { success: *kind == "Complete", message: c.message.clone().unwrap_or_default() })
        })
    }

    fn reclaimable_pods(&self) -> Vec<kueue::ReclaimablePod> {
        let parallelism = parallelism(self);
        let status = self.status.clone().unwrap_or_default();
        let completions = completions(self).unwrap_or(parallelism);
        let indexed = self.spec.as_ref().and_then(|s| s.completion_mode.as_deref()) == Some("Indexed");
        let terminal = if indexed {
            let text = |ranges: Option<String>| ranges.unwrap_or_default();
            terminal_indexes(&text(status.completed_indexes), &text(status.failed_indexes), completions)
        } else {
            status.succeeded.unwrap_or(0)
        };
        if parallelism == 1 || terminal == 0 {
            return Vec::new();
        }
        let remaining = completions.saturating_sub(terminal).max(0);
        if remaining >= parallelism {
            return Vec::new();
        }
        vec![kueue::ReclaimablePod { name: POD_SET.to_owned(), count: parallelism.saturating_sub(remaining) }]
    }
}
