//! What may not be changed once an object is there.

use slicegate_api::jobset::{JobSet, ReplicatedJob};
use slicegate_api::{ObjectMeta, PodTemplateSpec};

use slicegate_api::Object;

use crate::defaults::{QUEUE_NAME, label};

/// The field that was changed and may not be, if there is one.
pub(crate) fn changed(old: &Object, new: &Object) -> Option<String> {
    if let (Object::LocalQueue(a), Object::LocalQueue(b)) = (old, new)
        && a.spec.cluster_queue != b.spec.cluster_queue
    {
        return Some("spec.clusterQueue".to_owned());
    }
    if let (Object::JobSet(a), Object::JobSet(b)) = (old, new)
        && let Some(field) = jobset(a, b)
    {
        return Some(field);
    }
    let queue = |meta: &ObjectMeta| label(meta, QUEUE_NAME).map(ToOwned::to_owned);
    let runs = is_suspended(new) == Some(false);
    (runs && queue(old.metadata()) != queue(new.metadata()))
        .then(|| format!("metadata.labels[{QUEUE_NAME}] of a job that is not suspended"))
}

/// Whether a job is suspended; nothing for what is no job.
fn is_suspended(object: &Object) -> Option<bool> {
    let suspend = match object {
        Object::Job(o) => o.spec.as_ref().and_then(|spec| spec.suspend),
        Object::JobSet(o) => o.spec.suspend,
        Object::RayJob(o) => o.spec.suspend,
        Object::RayCluster(o) => o.spec.suspend,
        _ => return None,
    };
    Some(suspend == Some(true))
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
