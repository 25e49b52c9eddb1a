//! `SG065x`: RayJobs and RayClusters.

use slicegate_api::Object;
use slicegate_api::ray::WorkerGroupSpec;
use slicegate_flavor::Verdict;
use slicegate_manifest::Severity;
use slicegate_tpu::RESOURCE as TPU;

use super::{list, plural, rule};
use crate::model::{Group, Job, Model};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0651", Error, "A queued RayJob that keeps its cluster",
        why: "Kueue refuses it: the quota would be held after the job has ended",
        source: "Kueue pkg/controller/jobs/rayjob, webhook",
    },
    rule! {
        "SG0652", Error, "Autoscaling of a queued Ray cluster that is not elastic",
        why: "Kueue refuses it: pods would come and go without quota",
        source: "Kueue pkg/controller/jobs/raycluster, webhook",
    },
    rule! {
        "SG0653", Error, "A RayJob with a name that is too long",
        why: "names of the cluster and of its Services are made from it; KubeRay refuses more than 47 characters",
        source: "KubeRay ray-operator, validation of RayJobs",
    },
    rule! {
        "SG0654", Warning, "A queued RayJob that waits for a person",
        why: "in InteractiveMode the cluster holds its quota until somebody submits something",
        source: "KubeRay docs, submissionMode",
        look: interactive,
    },
    rule! {
        "SG0655", Warning, "An elastic job that can never grow",
        why: "it is admitted at its first size and stays so: a larger size must come from the flavor that it has already",
        source: "Kueue docs, elastic workloads: a new slice keeps the flavors of the old one",
        look: never_grows,
    },
    rule! {
        "SG0656", Warning, "An elastic Ray cluster that does not scale",
        why: "nothing changes its size: autoscaling is off, or no group may have other numbers of replicas",
        source: "Kueue docs, elastic workloads; KubeRay docs, autoscaling",
        look: does_not_scale,
    },
    rule! {
        "SG0657", Warning, "Replicas outside of minReplicas and maxReplicas",
        why: "KubeRay brings the number within the bounds, while Kueue counts the number that is written",
        source: "KubeRay ray-operator, desired replicas of a worker group",
        look: bounds,
    },
];

fn workers<'a>(job: &Job<'a>) -> impl Iterator<Item = (String, &'a WorkerGroupSpec, usize)> {
    let ray = job.ray();
    // The head is the first pod set.
    ray.into_iter().flat_map(|(cluster, at)| {
        let groups = cluster.worker_group_specs.iter().enumerate();
        groups.map(move |(i, group)| (format!("{at}.workerGroupSpecs[{i}]"), group, i.saturating_add(1)))
    })
}

fn interactive(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| j.queue.is_some()) {
        let Object::RayJob(ray) = job.object else { continue };
        if ray.spec.submission_mode.as_deref() == Some("InteractiveMode") {
            let message = format!("RayJob {} holds {} until a job is submitted by hand", job.name(), holds(job));
            let help = "use K8sJobMode, or a RayCluster that you delete when you are done";
            out.report(job.document, "spec.submissionMode", message, help);
        }
    }
}

fn holds(job: &Job<'_>) -> String {
    match super::jobs::chips(job) {
        0 => "its quota".to_owned(),
        chips => format!("quota of {}", plural(chips, "chip")),
    }
}

/// Pods of a worker group at its largest.
fn largest(group: &WorkerGroupSpec) -> Option<i64> {
    let most = i64::from(group.max_replicas.filter(|m| *m < i32::MAX)?);
    Some(most.saturating_mul(i64::from(group.num_of_hosts.unwrap_or(1).max(1))))
}

fn scales(job: &Job<'_>) -> bool {
    job.is_elastic() && job.ray().is_some_and(|(cluster, _)| cluster.enable_in_tree_autoscaling == Some(true))
}

/// What a pod set can have of TPUs in the flavors that suit it: those with room for the largest size, and those without.
fn room<'m>(model: &'m Model<'_>, job: &Job<'_>, pods: &Group<'_>, most: i64) -> Option<(usize, Vec<(&'m str, i64)>)> {
    let queue = model.queues.get(job.cluster_queue?).filter(|q| !q.redefined)?;
    let (_, covered) = queue.group_of(TPU)?;
    let mut enough = 0_usize;
    let mut short = Vec::new();
    for name in covered.flavors.iter().map(|f| &*f.name) {
        if model.flavor(name).is_none_or(|f| f.suits(&pods.pod) != Verdict::Suits) {
            continue;
        }
        let wanted = pods.one(TPU).saturating_mul(most);
        match model.quota.of(queue.name(), name, TPU) {
            Some(there) if there < pods.all(TPU) => {}
            Some(there) if there < wanted => short.push((name, there)),
            _ => enough = enough.saturating_add(1),
        }
    }
    Some((enough, short))
}

fn never_grows(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| scales(j)) {
        for (at, group, index) in workers(job) {
            let Some(pods) = job.groups.get(index).filter(|g| g.chips() > 0) else { continue };
            let Some(most) = largest(group).filter(|m| *m > pods.count) else { continue };
            let Some((enough, short)) = room(model, job, pods, most) else { continue };
            if short.is_empty() {
                continue;
            }
            let texts: Vec<String> = short.iter().map(|(name, there)| format!("{name} ({there})")).collect();
            let wanted = pods.one(TPU).saturating_mul(most);
            let (severity, message) = if enough == 0 {
                (
                    Severity::Warning,
                    format!("{wanted} chips are more than any flavor has: {}", list(texts.iter().map(String::as_str))),
                )
            } else {
                let flavors = list(texts.iter().map(String::as_str));
                (Severity::Note, format!("once admitted to {flavors} it never has {wanted} chips"))
            };
            let help = "raise the quota of the flavor, or lower maxReplicas";
            out.report_as(severity, job.document, &format!("{at}.maxReplicas"), message, help);
        }
    }
}

fn does_not_scale(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in model.jobs.iter().filter(|j| j.is_elastic()) {
        let Some((cluster, _)) = job.ray() else { continue };
        let path = format!("metadata.annotations[{}]", slicegate_controller::keys::ELASTIC_JOB);
        if cluster.enable_in_tree_autoscaling != Some(true) {
            // A RayCluster may be scaled by hand.
            if matches!(job.object, Object::RayJob(_)) {
                let message = "enableInTreeAutoscaling is not set".to_owned();
                out.report(job.document, &path, message, "set it to true, or remove the annotation");
            }
        } else if workers(job).all(|(_, g, _)| g.max_replicas.is_some_and(|max| g.min_replicas.unwrap_or(0) >= max)) {
            let message = "minReplicas is maxReplicas in every worker group".to_owned();
            out.report(job.document, &path, message, "raise maxReplicas of a group, or remove the annotation");
        }
    }
}

fn bounds(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        for (at, group, _) in workers(job) {
            let Some(replicas) = group.replicas else { continue };
            let (min, max) = (group.min_replicas.unwrap_or(0), group.max_replicas.unwrap_or(i32::MAX));
            if min > max {
                let message = format!("minReplicas {min} is more than maxReplicas {max}");
                out.report(job.document, &format!("{at}.minReplicas"), message, format!("set it to {max} or less"));
            } else if replicas < min {
                let message = format!("replicas is {replicas}, and minReplicas {min}");
                out.report(job.document, &format!("{at}.replicas"), message, format!("set it to {min} or more"));
            } else if replicas > max {
                let message = format!("replicas is {replicas}, and maxReplicas {max}");
                out.report(job.document, &format!("{at}.replicas"), message, format!("set it to {max} or less"));
            }
        }
    }
}
