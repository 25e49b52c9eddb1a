//! `SG06xx`: jobs of every kind; those about Ray are next door.

use slicegate_api::{Job as ApiJob, JobTemplateSpec, Kind, Object, jobset::JobSet};
use slicegate_controller::keys;
use slicegate_manifest::{Severity, is_slip};
use slicegate_tpu::RESOURCE as TPU;

use super::rule;
use crate::model::{Job, Model, annotation, label, name};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0601", Warning, "A queue name given as an annotation",
        why: "Kueue reads a label: the job is not queued, and starts without quota",
        source: "Kueue docs, running jobs",
        look: queue_annotation,
    },
    rule! {
        "SG0602", Warning, "A queue name on the pod template instead of the job",
        why: "Kueue reads the label of the job: it is not queued, and starts without quota",
        source: "Kueue docs, running jobs",
        look: queue_of_template,
    },
    rule! {
        "SG0603", Warning, "A TPU job without a queue beside jobs and queues of Kueue",
        why: "it takes TPUs that the quota has promised to others",
        source: "Kueue docs, manageJobsWithoutQueueName",
        look: no_queue,
    },
    rule! {
        "SG0604", Warning, "A suspended job that nobody resumes",
        why: "a suspended job is started by Kueue if it has a queue, and by nobody if it has none",
        source: "Kueue docs, running jobs",
        look: suspended,
    },
    rule! {
        "SG0605", Error, "A JobSet whose pods would have names that are too long",
        why: "JobSet's webhook refuses it: names of Jobs and pods have at most 63 characters",
        source: "JobSet pkg/webhooks",
    },
    rule! {
        "SG0606", Error, "More groups of pods than a Workload has pod sets",
        why: "a Workload has at most 18 pod sets, so that none can be made and the job stays suspended",
        source: "Kueue apis/kueue/v1beta2, WorkloadSpec",
    },
    rule! {
        "SG0607", Warning, "A multislice job that does not restart",
        why: "the first host that fails ends the whole job, and hosts of many slices fail often",
        source: "JobSet docs, failure policy; GKE docs, TPU multislice",
        look: no_restarts,
    },
    rule! {
        "SG0608", Note, "Single workers of a slice that are tried again alone",
        why: "a worker that comes back finds the others waiting for the old one; the whole slice has to restart",
        source: "Google's multislice tutorial: backoffLimit 0 with a failure policy of the JobSet",
        look: backoff,
    },
    rule! {
        "SG0609", Warning, "A multi-host slice in a Job that is not Indexed",
        why: "GKE numbers TPU workers by completion index; without one they do not find each other",
        source: "GKE docs, TPUs in GKE; Kubernetes docs, Indexed Jobs",
        look: not_indexed,
    },
    rule! {
        "SG0610", Warning, "TPU workers without names by which they find each other",
        why: "workers of a multi-host slice connect by host names, which need a headless Service and a subdomain",
        source: "GKE docs, TPUs in GKE; JobSet docs, network",
        look: no_names,
    },
    rule! {
        "SG0611", Warning, "A TPU slice that may be admitted in part",
        why: "a slice with some of its workers does not start, but holds quota",
        source: "Kueue docs, partial admission; GKE docs, TPUs in GKE",
        look: partial,
    },
    rule! {
        "SG0612", Warning, "A label or annotation of Kueue that is misspelt",
        why: "Kueue does not know it, so that it has no effect",
        source: "Kueue docs, labels and annotations",
        look: misspelt,
    },
];

/// Whether the job itself says where it queues.
fn has_label(job: &Job<'_>) -> bool {
    label(job.metadata(), keys::QUEUE_NAME).is_some_and(|q| !q.is_empty())
}

fn queue_annotation(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| !has_label(j)) {
        if let Some(queue) = annotation(job.metadata(), keys::QUEUE_NAME) {
            let message = format!("queue {queue} is named in an annotation, and {} has no such label", job.name());
            let help = format!("write {} below metadata.labels", keys::QUEUE_NAME);
            out.report(job.document, &format!("metadata.annotations[{}]", keys::QUEUE_NAME), message, help);
        }
    }
}

fn queue_of_template(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| !has_label(j)) {
        for group in &job.groups {
            let meta = group.template.and_then(|t| t.metadata.as_ref());
            let Some(queue) = meta.and_then(|m| label(m, keys::QUEUE_NAME)) else { continue };
            let message = format!("queue {queue} is named on pods, and the {} itself names none", job.kind());
            let help = format!("write {} below metadata.labels of the {}", keys::QUEUE_NAME, job.kind());
            let path = format!("{}.metadata.labels[{}]", group.path, keys::QUEUE_NAME);
            out.report(job.document, &path, message, help);
            break;
        }
    }
}

/// Whether the queue is named in a place where Kueue does not look.
fn misplaced(job: &Job<'_>) -> bool {
    let of_template = |g: &crate::model::Group<'_>| {
        g.template.and_then(|t| t.metadata.as_ref()).is_some_and(|m| label(m, keys::QUEUE_NAME).is_some())
    };
    annotation(job.metadata(), keys::QUEUE_NAME).is_some() || job.groups.iter().any(of_template)
}

fn is_suspended(job: &Job<'_>) -> bool {
    match job.object {
        Object::Job(o) => o.spec.as_ref().and_then(|s| s.suspend),
        Object::JobSet(o) => o.spec.suspend,
        Object::RayJob(o) => o.spec.suspend,
        Object::RayCluster(o) => o.spec.suspend,
        _ => None,
    }
    .unwrap_or(false)
}

/// Whether another controller made the object.
fn is_owned(job: &Job<'_>) -> bool {
    job.metadata().owner_references.as_ref().is_some_and(|o| !o.is_empty())
}

fn no_queue(model: &Model<'_>, out: &mut Sink<'_>) {
    // Without queues among the manifests, nothing is known of how jobs are queued.
    if model.local_queues.is_empty() {
        return;
    }
    for job in model.jobs.iter().filter(|j| j.queue.is_none() && j.uses_tpus()) {
        let prebuilt = label(job.metadata(), keys::PREBUILT_WORKLOAD).is_some();
        if misplaced(job) || is_owned(job) || is_suspended(job) || prebuilt {
            continue;
        }
        let queues = model.local_queues.iter().filter(|q| crate::model::namespace(&q.metadata) == job.namespace);
        let names: Vec<&str> = queues.map(|q| name(&q.object.metadata)).collect();
        let message = format!("{} {} asks for TPUs and names no queue", job.kind(), job.name());
        let example = names.first().copied().unwrap_or("QUEUE");
        let help = format!("add the label {}: {example}", keys::QUEUE_NAME);
        out.report(job.document, "metadata.name", message, help);
    }
}

fn suspended(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| j.queue.is_none() && is_suspended(j) && !misplaced(j) && !is_owned(j)) {
        if label(job.metadata(), keys::PREBUILT_WORKLOAD).is_some() {
            continue;
        }
        let message = format!("{} {} is suspended and names no queue", job.kind(), job.name());
        let help = format!("add the label {}, or remove suspend", keys::QUEUE_NAME);
        out.report(job.document, "spec.suspend", message, help);
    }
}

fn job_set<'a>(job: &Job<'a>) -> Option<&'a JobSet> {
    match job.object {
        Object::JobSet(set) => Some(set),
        _ => None,
    }
}

fn no_restarts(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        let Some(set) = job_set(job) else { continue };
        let slices = |g: &crate::model::Group<'_>| {
            let multi = g.slice().is_some_and(slicegate_tpu::SliceShape::is_multi_host);
            if multi { g.slices.as_ref().map_or(0, |s| s.count) } else { 0 }
        };
        let slices = job.groups.iter().fold(0_i64, |sum, g| sum.saturating_add(slices(g)));
        let restarts = set.spec.failure_policy.as_ref().and_then(|p| p.max_restarts).unwrap_or(0);
        // Rules may restart without end.
        let rules = set.spec.failure_policy.as_ref().is_some_and(|p| p.other.contains_key("rules"));
        if slices > 1 && restarts <= 0 && !rules {
            let message = format!("one failed host ends all {slices} slices for good");
            let help = "set spec.failurePolicy.maxRestarts to the number of failures that the job may survive";
            let path = "spec.failurePolicy.maxRestarts";
            let path = if job.document.positions.has(path) { path } else { "metadata.name" };
            out.report(job.document, path, message, help);
        }
    }
}

/// The Jobs of a job, with the field of each spec and the index of its pod set.
fn templates<'a>(job: &Job<'a>) -> Vec<(usize, String, &'a slicegate_api::JobSpec)> {
    let of_template = |t: &'a JobTemplateSpec| t.spec.as_ref();
    match job.object {
        Object::Job(o) => {
            let o: &ApiJob = o;
            o.spec.iter().map(|s| (0, "spec".to_owned(), s)).collect()
        }
        Object::JobSet(o) => {
            let jobs = o.spec.replicated_jobs.iter().enumerate();
            jobs.filter_map(|(i, r)| {
                Some((i, format!("spec.replicatedJobs[{i}].template.spec"), of_template(&r.template)?))
            })
            .collect()
        }
        _ => Vec::new(),
    }
}

/// Jobs whose pods are the workers of a multi-host slice.
fn multi_host<'m, 'a>(
    model: &'m Model<'a>,
) -> impl Iterator<Item = (&'m Job<'a>, slicegate_tpu::SliceShape, String, &'a slicegate_api::JobSpec)> {
    model.jobs.iter().flat_map(|job| {
        templates(job).into_iter().filter_map(move |(i, at, spec)| {
            let slice = job.groups.get(i)?.slice().filter(|s| s.is_multi_host())?;
            Some((job, slice, at, spec))
        })
    })
}

fn backoff(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, slice, at, spec) in multi_host(model) {
        let limit = spec.backoff_limit.unwrap_or(6);
        let path = format!("{at}.backoffLimit");
        if limit <= 0 || !job.document.positions.has(&path) {
            continue;
        }
        let message = format!(
            "up to {} of one worker of a {} slice",
            if limit == 1 { "1 retry".to_owned() } else { format!("{limit} retries") },
            slice.topology()
        );
        let help = if job.kind() == Kind::JobSet {
            "set backoffLimit to 0 and failurePolicy.maxRestarts of the JobSet instead"
        } else {
            "set backoffLimit to 0, or use a JobSet, which restarts the whole slice"
        };
        out.report(job.document, &path, message, help);
    }
}

fn not_indexed(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, slice, at, spec) in multi_host(model) {
        let mode = spec.completion_mode.as_deref();
        let indexed = match job.kind() {
            // JobSet fills it in.
            Kind::JobSet => matches!(mode, None | Some("Indexed")),
            _ => mode == Some("Indexed"),
        };
        if !indexed {
            let message = format!("the {} workers of a {} slice are not numbered", slice.hosts(), slice.topology());
            let path = format!("{at}.completionMode");
            let path = if job.document.positions.has(&path) { path } else { "metadata.name".to_owned() };
            out.report(job.document, &path, message, "set completionMode to Indexed");
        }
    }
}

fn no_names(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, slice, at, spec) in multi_host(model) {
        let message = format!("the {} workers of a {} slice have no host names", slice.hosts(), slice.topology());
        if let Some(set) = job_set(job) {
            if set.spec.network.as_ref().and_then(|n| n.enable_dns_hostnames) == Some(false) {
                let path = "spec.network.enableDNSHostnames";
                out.report(job.document, path, message, "remove enableDNSHostnames or set it to true");
            }
        } else {
            let pod = spec.template.spec.as_ref();
            if pod.and_then(|p| p.subdomain.as_deref()).unwrap_or_default().is_empty() {
                let path = format!("{at}.template.spec");
                let help = "add a headless Service and set subdomain to its name, or use a JobSet, which makes both";
                out.report(job.document, &path, message, help);
            }
        }
    }
}

fn partial(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, slice, ..) in multi_host(model) {
        if annotation(job.metadata(), keys::JOB_MIN_PARALLELISM).is_some() && job.kind() == Kind::Job {
            let message = format!("a {} slice needs all of its {} workers", slice.topology(), slice.hosts());
            let path = format!("metadata.annotations[{}]", keys::JOB_MIN_PARALLELISM);
            out.report_as(
                Severity::Warning,
                job.document,
                &path,
                message,
                format!("remove {}", keys::JOB_MIN_PARALLELISM),
            );
        }
    }
}

/// Labels and annotations that people give to jobs and pod templates.
const GIVEN: [&str; 14] = [
    keys::QUEUE_NAME,
    keys::PRIORITY_CLASS,
    keys::MAX_EXEC_TIME_SECONDS,
    keys::PREBUILT_WORKLOAD,
    keys::ELASTIC_JOB,
    keys::JOB_MIN_PARALLELISM,
    keys::JOB_COMPLETIONS_EQUAL_PARALLELISM,
    keys::REQUIRED_TOPOLOGY,
    keys::PREFERRED_TOPOLOGY,
    keys::UNCONSTRAINED_TOPOLOGY,
    keys::SLICE_REQUIRED_TOPOLOGY,
    keys::SLICE_SIZE,
    keys::SLICE_CONSTRAINTS,
    keys::POD_SET_GROUP,
];

/// The key of Kueue that was meant by one that it does not know.
fn meant_key(key: &str) -> Option<&'static str> {
    let (domain, name) = key.split_once('/')?;
    let find = |is: &dyn Fn(&str) -> bool| {
        GIVEN.iter().copied().find(|known| known.split_once('/').is_some_and(|(_, name)| is(name)))
    };
    if domain == slicegate_api::kueue::GROUP {
        // Others that Kueue has, or will have, are further from these than a slip.
        return if GIVEN.contains(&key) { None } else { find(&|known| is_slip(name, known)) };
    }
    // A domain that ends in Kueue's is of something that extends it.
    domain.strip_prefix("kueue").filter(|rest| rest.starts_with(['.', '-']))?;
    find(&|known| name == known)
}

fn misspelt(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        let of_pods = job.groups.iter().filter(|g| !g.path.is_empty());
        let of_pods = of_pods.filter_map(|g| Some((format!("{}.", g.path), g.template?.metadata.as_ref()?)));
        for (at, meta) in std::iter::once((String::new(), job.metadata())).chain(of_pods) {
            for (field, map) in [("labels", &meta.labels), ("annotations", &meta.annotations)] {
                for key in map.iter().flat_map(|m| m.keys()) {
                    let Some(known) = meant_key(key) else { continue };
                    let path = format!("{at}metadata.{field}[{key}]");
                    out.report(job.document, &path, format!("Kueue knows no {key}"), format!("did you mean {known}?"));
                }
            }
        }
    }
}

/// Chips of a job, for rules of other modules.
pub(super) fn chips(job: &Job<'_>) -> i64 {
    job.groups.iter().fold(0_i64, |sum, g| sum.saturating_add(g.all(TPU)))
}
