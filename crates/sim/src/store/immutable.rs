//! What may not be changed once an object is there.

use slicegate_api::jobset::{JobSet, ReplicatedJob};
use slicegate_api::{Job, Object, PodTemplateSpec};

/// The field that was changed and may not be, if there is one. What Kueue has a say in is checked elsewhere.
pub(crate) fn changed(old: &Object, new: &Object) -> Option<String> {
    match (old, new) {
        (Object::JobSet(a), Object::JobSet(b)) => jobset(a, b),
        (Object::Job(a), Object::Job(b)) => job(a, b),
        _ => None,
    }
}

/// By the API server: what a Job runs stays, but for what says where its pods may run as long as it was never started.
fn job(old: &Job, new: &Job) -> Option<String> {
    let (a, b) = (old.spec.as_ref()?, new.spec.as_ref()?);
    if a.completion_mode != b.completion_mode {
        return Some("spec.completionMode".to_owned());
    }
    if a.selector != b.selector {
        return Some("spec.selector".to_owned());
    }
    let indexed = b.completion_mode.as_deref() == Some("Indexed");
    if a.completions != b.completions && !(indexed && b.completions == b.parallelism) {
        return Some("spec.completions".to_owned());
    }
    let started = old.status.as_ref().is_some_and(|s| s.start_time.is_some());
    let (mut a_template, mut b_template) = (a.template.clone(), b.template.clone());
    if a.suspend == Some(true) && !started {
        forget_injected(&mut a_template);
        forget_injected(&mut b_template);
    }
    (a_template != b_template).then(|| "spec.template".to_owned())
}

/// By JobSet's webhook: what decides over its Jobs stays, but for what Kueue injects into the pods of a suspended one.
fn jobset(old: &JobSet, new: &JobSet) -> Option<String> {
    let suspended = old.spec.suspend == Some(true) || new.spec.suspend == Some(true);
    let fixed = |jobs: &[ReplicatedJob]| -> Vec<ReplicatedJob> {
        let mut jobs = jobs.to_vec();
        if suspended {
            let templates = jobs.iter_mut().filter_map(|job| job.template.spec.as_mut());
            templates.for_each(|spec| forget_injected(&mut spec.template));
        }
        jobs
    };
    if fixed(&old.spec.replicated_jobs) != fixed(&new.spec.replicated_jobs) {
        return Some("spec.replicatedJobs".to_owned());
    }
    if old.spec.network != new.spec.network {
        return Some("spec.network".to_owned());
    }
    if old.spec.failure_policy != new.spec.failure_policy {
        return Some("spec.failurePolicy".to_owned());
    }
    if old.spec.managed_by != new.spec.managed_by {
        return Some("spec.managedBy".to_owned());
    }
    let policies = ["successPolicy", "startupPolicy"];
    policies
        .into_iter()
        .find(|key| old.spec.other.get(*key) != new.spec.other.get(*key))
        .map(|key| format!("spec.{key}"))
}

fn forget_injected(template: &mut PodTemplateSpec) {
    let meta = template.metadata.get_or_insert_default();
    meta.labels = None;
    meta.annotations = None;
    if let Some(spec) = &mut template.spec {
        spec.node_selector = None;
        spec.tolerations = None;
        spec.scheduling_gates = None;
    }
}
