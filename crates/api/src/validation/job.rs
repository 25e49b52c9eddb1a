//! Jobs, by Kueue's webhooks for them.

use std::collections::BTreeSet;

use super::foreign::MAX_POD_SETS;
use super::topology::{PREFERRED, PodGroup, REQUIRED, groups, is_bool, parse_bool};
use super::update::JobChange;
use super::{FindingKind, Findings, Rules, names};
use crate::path::Path;
use crate::{Job, JobSpec, Kind, ObjectMeta, jobset, ray};

const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const MAX_EXEC_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
const STOPPING: &str = "kueue.x-k8s.io/stopping";
const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
const EQUAL_COMPLETIONS: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref().and_then(|l| l.get(key)).map(String::as_str)
}

pub(super) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str)
}

/// Whether the object's owner opted into workload slices.
pub(super) fn is_elastic(meta: &ObjectMeta, rules: &Rules) -> bool {
    rules.elastic_jobs && annotation(meta, ELASTIC) == Some("true")
}

/// Checks what jobs of every kind have in common.
pub fn job_metadata(kind: Kind, metadata: &ObjectMeta, rules: &Rules) -> Vec<super::Finding> {
    let mut out = Findings::default();
    self::metadata(kind, metadata, rules, &mut out);
    out.0
}

pub(super) fn metadata(kind: Kind, meta: &ObjectMeta, rules: &Rules, out: &mut Findings) {
    let path = Path::ROOT.field("metadata");
    let (labels, annotations) = (path.field("labels"), path.field("annotations"));
    if let Some(queue) = label(meta, QUEUE_NAME) {
        out.name(labels.key(QUEUE_NAME), queue, names::dns_subdomain);
    }
    prebuilt(meta, rules, out);
    if let Some(text) = label(meta, MAX_EXEC_TIME) {
        let path = labels.key(MAX_EXEC_TIME);
        match text.parse::<i64>() {
            Err(_) => out.invalid(path, format!("{text:?} is no number of seconds")),
            Ok(seconds) if seconds <= 0 => out.invalid(path, "must be more than 0"),
            Ok(_) => {}
        }
    }
    if is_elastic(meta, rules) && !matches!(kind, Kind::Job | Kind::RayJob | Kind::RayCluster | Kind::Pod) {
        out.forbidden(annotations.key(ELASTIC), format!("elastic jobs of kind {kind} are not supported"));
    }
    gated_by(meta, rules, out);
}

/// The name of a Workload that is there already, from an annotation or a label.
pub(super) fn prebuilt(meta: &ObjectMeta, rules: &Rules, out: &mut Findings) {
    let path = Path::ROOT.field("metadata");
    let by_annotation = annotation(meta, PREBUILT).filter(|_| rules.identifier_annotations);
    if let Some(workload) = by_annotation {
        out.name(path.field("annotations").key(PREBUILT), workload, names::dns_subdomain);
    } else if let Some(workload) = label(meta, PREBUILT) {
        out.name(path.field("labels").key(PREBUILT), workload, names::dns_subdomain);
    }
}

/// What may change in the metadata of a job. What names look like is checked elsewhere.
pub(super) fn metadata_update(change: &JobChange<'_>, rules: &Rules, out: &mut Findings) {
    let (old, new) = (change.old, change.new);
    let path = Path::ROOT.field("metadata");
    let (labels, annotations) = (path.field("labels"), path.field("annotations"));
    let text = |meta, key| label(meta, key).unwrap_or_default();
    let (was, is) = (text(old, QUEUE_NAME), text(new, QUEUE_NAME));
    if was != is {
        let path = labels.key(QUEUE_NAME);
        if !change.is_suspended {
            out.invalid(path, "cannot be changed while the job is not suspended");
        }
        if is.is_empty() && change.default_queue {
            out.invalid(path, "cannot be removed in a namespace that has a LocalQueue named default");
        }
    }
    let prebuilt = |meta| {
        let by_annotation = annotation(meta, PREBUILT).filter(|_| rules.identifier_annotations);
        by_annotation.or_else(|| label(meta, PREBUILT)).unwrap_or_default()
    };
    if !change.is_suspended && prebuilt(old) != prebuilt(new) {
        let by_annotation = |meta| rules.identifier_annotations && annotation(meta, PREBUILT).is_some();
        let of = if by_annotation(new) || by_annotation(old) { annotations } else { labels };
        out.invalid(of.key(PREBUILT), "cannot be changed while the job is not suspended");
    }
    let suspended = change.was_suspended && change.is_suspended;
    if !suspended && text(old, MAX_EXEC_TIME) != text(new, MAX_EXEC_TIME) {
        out.invalid(labels.key(MAX_EXEC_TIME), "cannot be changed while the job is not suspended");
    }
    match (text(old, PRIORITY_CLASS), text(new, PRIORITY_CLASS)) {
        ("", "") => {}
        ("", _) if !change.is_suspended => {
            out.invalid(labels.key(PRIORITY_CLASS), "cannot be added while the job is not suspended");
        }
        (_, "") => out.invalid(labels.key(PRIORITY_CLASS), "cannot be removed, only changed"),
        _ => {}
    }
    if is_elastic(old, rules) != is_elastic(new, rules) {
        out.immutable(annotations.key(ELASTIC));
    }
    gated_by_update(old, new, rules, out);
}

/// Gates can only be removed once an object is there.
pub(super) fn gated_by_update(old: &ObjectMeta, new: &ObjectMeta, rules: &Rules, out: &mut Findings) {
    if !rules.admission_gated_by {
        return;
    }
    let gates = |meta| -> BTreeSet<&str> {
        annotation(meta, GATED_BY).unwrap_or_default().split(',').map(str::trim).filter(|g| !g.is_empty()).collect()
    };
    let (old, new) = (gates(old), gates(new));
    let path = Path::ROOT.field("metadata");
    let path = path.field("annotations");
    let path = path.key(GATED_BY);
    if let Some(gate) = new.difference(&old).next() {
        out.forbidden(
            path,
            format!("{gate:?} cannot be added: gates are set when the object is made and only removed later"),
        );
    }
}

pub(super) fn gated_by(meta: &ObjectMeta, rules: &Rules, out: &mut Findings) {
    let Some(gates) = annotation(meta, GATED_BY).filter(|g| rules.admission_gated_by && !g.is_empty()) else { return };
    let path = Path::ROOT.field("metadata");
    let path = path.field("annotations");
    let path = path.key(GATED_BY);
    let mut seen = BTreeSet::new();
    for gate in gates.split(',').map(str::trim) {
        if gate.len() > 63 {
            out.add(path, FindingKind::TooLong, "a gate's name has at most 63 characters");
        } else {
            out.name(path, gate, names::domain_prefixed_path);
        }
        if !seen.insert(gate) {
            out.invalid(path, format!("the gate {gate:?} is here twice"));
        }
    }
}

/// Pods that run at once.
fn pods(spec: &JobSpec) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1);
    spec.completions.map_or(parallelism, |completions| completions.min(parallelism))
}

pub(super) fn job(job: &Job, rules: &Rules, out: &mut Findings) {
    sized_job(job, false, rules, out);
}

/// `reduced`: the job may have been admitted in part, so that no more than its fewest pods are left in it.
fn sized_job(job: &Job, reduced: bool, rules: &Rules, out: &mut Findings) {
    let meta = &job.metadata;
    metadata(Kind::Job, meta, rules, out);
    let Some(spec) = &job.spec else { return };
    let annotations = Path::ROOT.field("metadata");
    let annotations = annotations.field("annotations");
    if let Some(text) = annotation(meta, MIN_PARALLELISM) {
        let path = annotations.key(MIN_PARALLELISM);
        match text.parse::<i32>() {
            Err(_) => out.invalid(path, format!("{text:?} is no number")),
            Ok(fewest) if fewest <= 0 || fewest >= pods(spec).saturating_add(i32::from(reduced)) => {
                out.invalid(path, format!("must be more than 0 and less than the {} pods of the job", pods(spec)));
            }
            Ok(_) => {}
        }
        if is_elastic(meta, rules) {
            out.invalid(path, "an elastic job cannot be admitted in part");
        }
    }
    let root = Path::ROOT.field("spec");
    if let Some(text) = annotation(meta, EQUAL_COMPLETIONS) {
        let path = annotations.key(EQUAL_COMPLETIONS);
        if !is_bool(text) {
            out.invalid(path, format!("{text:?} is neither true nor false"));
        } else if parse_bool(text) == Some(true) {
            if spec.completion_mode.as_deref() != Some("Indexed") {
                out.invalid(path, "is only for jobs with completionMode Indexed");
            }
            if spec.completions.unwrap_or(1) != spec.parallelism.unwrap_or(1) {
                out.invalid(root.field("completions"), format!("must be equal to parallelism, by {EQUAL_COMPLETIONS}"));
            }
        }
    }
    let template = root.field("template");
    let path = template.field("metadata");
    let template = spec.template.metadata.as_ref().and_then(|m| m.annotations.as_ref());
    if is_elastic(meta, rules) && rules.topology_aware_scheduling {
        for key in [REQUIRED, PREFERRED] {
            if template.is_some_and(|a| a.contains_key(key)) {
                out.forbidden(path.field("annotations").field(key), "is not supported for elastic jobs");
            }
        }
    }
    groups(&[PodGroup { path, annotations: template, count: pods(spec) }], rules, out);
}

/// A change of a Job: it must be right as it is now, and its size is fixed while it runs if it can be admitted in part.
pub(super) fn job_update(old: &Job, new: &Job, rules: &Rules, default_queue: bool, out: &mut Findings) {
    let suspended = |job: &Job| job.spec.as_ref().and_then(|s| s.suspend) == Some(true);
    let parallelism = |job: &Job| job.spec.as_ref().and_then(|s| s.parallelism).unwrap_or(1);
    let stopping = |job: &Job| annotation(&job.metadata, STOPPING).is_some();
    let reduced = !suspended(new) || !suspended(old) || stopping(old) || stopping(new);
    sized_job(new, reduced, rules, out);
    if !suspended(old) {
        if annotation(&old.metadata, MIN_PARALLELISM).is_some() && parallelism(old) != parallelism(new) {
            out.forbidden(
                Path::ROOT.field("spec").field("parallelism"),
                format!("cannot be changed while a job with {MIN_PARALLELISM} is not suspended"),
            );
        }
        let follow = |job| annotation(job, EQUAL_COMPLETIONS).is_some_and(|text| parse_bool(text) == Some(true));
        if follow(&old.metadata) != follow(&new.metadata) {
            let path = Path::ROOT.field("metadata");
            let path = path.field("annotations");
            out.forbidden(path.key(EQUAL_COMPLETIONS), "cannot be changed while the job is not suspended");
        }
    }
    metadata_update(
        &JobChange {
            old: &old.metadata,
            new: &new.metadata,
            was_suspended: suspended(old),
            is_suspended: suspended(new),
            default_queue,
        },
        rules,
        out,
    );
}

/// A change of a JobSet.
pub(super) fn job_set_update(
    old: &jobset::JobSet,
    new: &jobset::JobSet,
    rules: &Rules,
    default_queue: bool,
    out: &mut Findings,
) {
    let change = JobChange {
        old: &old.metadata,
        new: &new.metadata,
        was_suspended: old.spec.suspend == Some(true),
        is_suspended: new.spec.suspend == Some(true),
        default_queue,
    };
    prebuilt(change.new, rules, out);
    metadata_update(&change, rules, out);
    job_set_spec(new, rules, out);
}

/// A change of a RayJob that is managed, or was.
pub(super) fn ray_job_update(
    old: &ray::RayJob,
    new: &ray::RayJob,
    rules: &Rules,
    default_queue: bool,
    out: &mut Findings,
) {
    if !(is_managed(&new.metadata, rules) || rules.ray_updates && is_managed(&old.metadata, rules)) {
        return;
    }
    let change = JobChange {
        old: &old.metadata,
        new: &new.metadata,
        was_suspended: old.spec.suspend == Some(true),
        is_suspended: new.spec.suspend == Some(true),
        default_queue,
    };
    metadata_update(&change, rules, out);
    ray_job(new, rules, out);
}

/// A change of a RayCluster that is managed, or was.
pub(super) fn ray_cluster_update(
    old: &ray::RayCluster,
    new: &ray::RayCluster,
    rules: &Rules,
    default_queue: bool,
    out: &mut Findings,
) {
    if !(is_managed(&new.metadata, rules) || rules.ray_updates && is_managed(&old.metadata, rules)) {
        return;
    }
    let change = JobChange {
        old: &old.metadata,
        new: &new.metadata,
        was_suspended: old.spec.suspend == Some(true),
        is_suspended: new.spec.suspend == Some(true),
        default_queue,
    };
    metadata_update(&change, rules, out);
    ray_cluster(new, rules, out);
}

pub(super) fn job_set(job_set: &jobset::JobSet, rules: &Rules, out: &mut Findings) {
    metadata(Kind::JobSet, &job_set.metadata, rules, out);
    job_set_spec(job_set, rules, out);
}

fn job_set_spec(job_set: &jobset::JobSet, rules: &Rules, out: &mut Findings) {
    let spec = Path::ROOT.field("spec");
    let jobs = spec.field("replicatedJobs");
    let mut names = BTreeSet::new();
    // Paths are linked upwards, so each level needs a place of its own.
    let levels: Vec<_> = (0..job_set.spec.replicated_jobs.len()).map(|i| jobs.index(i)).collect();
    let levels: Vec<_> = levels.iter().map(|p| p.field("template")).collect();
    let levels: Vec<_> = levels.iter().map(|p| p.field("spec")).collect();
    let levels: Vec<_> = levels.iter().map(|p| p.field("template")).collect();
    let mut templates = Vec::new();
    for (i, (replicated, level)) in job_set.spec.replicated_jobs.iter().zip(&levels).enumerate() {
        if !names.insert(&replicated.name) {
            out.duplicate(jobs.index(i).field("name"), &replicated.name);
        }
        let Some(spec) = &replicated.template.spec else { continue };
        templates.push(PodGroup {
            path: level.field("metadata"),
            annotations: spec.template.metadata.as_ref().and_then(|m| m.annotations.as_ref()),
            count: replicated.replicas.unwrap_or(1).saturating_mul(pods(spec)),
        });
    }
    groups(&templates, rules, out);
}

fn is_managed(meta: &ObjectMeta, rules: &Rules) -> bool {
    rules.manage_jobs_without_queue_name || label(meta, QUEUE_NAME).is_some_and(|q| !q.is_empty())
}

pub(super) fn ray_job(job: &ray::RayJob, rules: &Rules, out: &mut Findings) {
    let meta = &job.metadata;
    let spec = &job.spec;
    let path = Path::ROOT.field("spec");
    let cluster_path = path.field("rayClusterSpec");
    if is_managed(meta, rules) {
        match (&spec.ray_cluster_spec, spec.cluster_selector.is_empty()) {
            (Some(cluster), none_selected) => {
                if spec.shutdown_after_job_finishes != Some(true) {
                    out.invalid(
                        path.field("shutdownAfterJobFinishes"),
                        "must be true: its quota is freed when the job ends",
                    );
                }
                if !none_selected {
                    out.invalid(path.field("clusterSelector"), "must not be there: the job gets a cluster of its own");
                }
                cluster_rules(cluster_path, cluster, is_elastic(meta, rules), out);
            }
            (None, true) => out.required(cluster_path, "a job without clusterSelector needs a cluster of its own"),
            // It runs on a cluster that has its own quota.
            (None, false) => {}
        }
    }
    metadata(Kind::RayJob, meta, rules, out);
    let submitter = spec.submitter_pod_template.as_ref().map(|template| {
        let annotations = template.metadata.as_ref().and_then(|m| m.annotations.as_ref());
        (path.field("submitterPodTemplate"), annotations)
    });
    let submitter = submitter.as_ref().map(|(path, annotations)| PodGroup {
        path: path.field("metadata"),
        annotations: *annotations,
        count: 1,
    });
    match &spec.ray_cluster_spec {
        Some(cluster) => cluster_topology(cluster_path, cluster, submitter, rules, out),
        None => groups(submitter.as_slice(), rules, out),
    }
}

pub(super) fn ray_cluster(cluster: &ray::RayCluster, rules: &Rules, out: &mut Findings) {
    let meta = &cluster.metadata;
    let path = Path::ROOT.field("spec");
    let elastic = is_elastic(meta, rules);
    if is_managed(meta, rules) {
        cluster_rules(path, &cluster.spec, elastic, out);
        if elastic
            && cluster.spec.enable_in_tree_autoscaling == Some(true)
            && cluster.spec.managed_by.as_deref() == Some("kueue.x-k8s.io/multikueue")
        {
            out.forbidden(
                path.field("enableInTreeAutoscaling"),
                "is not supported for clusters that MultiKueue manages",
            );
        }
    }
    metadata(Kind::RayCluster, meta, rules, out);
    cluster_topology(path, &cluster.spec, None, rules, out);
}

/// Checks the Ray cluster of a managed object, whose spec is at `path`.
pub fn ray_cluster_spec(path: &str, cluster: &ray::RayClusterSpec, elastic: bool) -> Vec<super::Finding> {
    let mut out = Findings::default();
    cluster_rules(Path::ROOT.field(path), cluster, elastic, &mut out);
    out.0
}

fn cluster_rules(path: Path<'_>, cluster: &ray::RayClusterSpec, elastic: bool, out: &mut Findings) {
    if cluster.enable_in_tree_autoscaling == Some(true) && !elastic {
        out.invalid(
            path.field("enableInTreeAutoscaling"),
            format!("a managed cluster can only scale by itself with the annotation {ELASTIC}: \"true\""),
        );
    }
    let path = path.field("workerGroupSpecs");
    // The head is a pod set too.
    if cluster.worker_group_specs.len().saturating_add(1) > MAX_POD_SETS {
        out.at_most(path, cluster.worker_group_specs.len(), MAX_POD_SETS - 1);
    }
    for (i, group) in cluster.worker_group_specs.iter().enumerate() {
        if group.group_name == "head" {
            out.forbidden(path.index(i).field("groupName"), "\"head\" is the name of the head group");
        }
    }
}

fn cluster_topology(
    path: Path<'_>,
    cluster: &ray::RayClusterSpec,
    submitter: Option<PodGroup<'_>>,
    rules: &Rules,
    out: &mut Findings,
) {
    let head = path.field("headGroupSpec");
    let head = head.field("template");
    let workers = path.field("workerGroupSpecs");
    let levels: Vec<_> = (0..cluster.worker_group_specs.len()).map(|i| workers.index(i)).collect();
    let levels: Vec<_> = levels.iter().map(|p| p.field("template")).collect();
    let mut all = vec![PodGroup {
        path: head.field("metadata"),
        annotations: cluster.head_group_spec.template.metadata.as_ref().and_then(|m| m.annotations.as_ref()),
        count: 1,
    }];
    for (group, level) in cluster.worker_group_specs.iter().zip(&levels) {
        let hosts = group.num_of_hosts.filter(|h| *h > 0).unwrap_or(1);
        all.push(PodGroup {
            path: level.field("metadata"),
            annotations: group.template.metadata.as_ref().and_then(|m| m.annotations.as_ref()),
            count: group.replicas.unwrap_or(1).saturating_mul(hosts),
        });
    }
    all.extend(submitter);
    groups(&all, rules, out);
}
