//! `SG08xx`: topology-aware placement.

use std::collections::BTreeSet;

use slicegate_api::kueue;
use slicegate_controller::keys;
use slicegate_tpu::{RESOURCE as TPU, taint};
use slicegate_workload::{Taint, TaintEffect, Toleration, first_untolerated};

use super::{list, meant, rule};
use crate::model::{Doc, Group, Job, Model, annotation, name};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0801", Warning, "A Topology without a level for hosts",
        why: "free capacity is summed up over many nodes: what fits in sum may fit on no node",
        source: "Kueue docs, topology-aware scheduling",
        look: no_hosts,
    },
    rule! {
        "SG0802", Warning, "A topology level that the queue's flavors do not have",
        why: "no flavor can be assigned, and the job waits for ever",
        source: "Kueue docs, topology-aware scheduling",
        look: unknown_level,
    },
    rule! {
        "SG0803", Warning, "A topology request in a queue without topologies",
        why: "no flavor of the queue has topologyName, so that none can be assigned and the job waits for ever",
        source: "Kueue docs, topology-aware scheduling",
        look: no_topology,
    },
    rule! {
        "SG0804", Warning, "Pods that do not make up whole slices",
        why: "the pods that are left over are not placed",
        source: "Kueue docs, topology-aware scheduling: podset-slice-size",
        look: left_over,
    },
    rule! {
        "SG0805", Warning, "Slices in a wider domain than the pods together",
        why: "a slice lies within the domain of all pods: its level must be the same or a lower one",
        source: "Kueue docs, topology-aware scheduling",
        look: order,
    },
    rule! {
        "SG0806", Warning, "Exclusive placement beside topology-aware placement",
        why: "two placements decide independently: what Kueue chose may be taken when JobSet's anti-affinity is looked at",
        source: "JobSet docs, exclusive placement; cluster-toolkit drops one of the two",
        look: two_placements,
    },
    rule! {
        "SG0807", Warning, "A topology request on the job instead of its pods",
        why: "Kueue reads it from the pod templates, so that the pods are placed anywhere",
        source: "Kueue docs, topology-aware scheduling",
        look: of_job,
    },
    rule! {
        "SG0808", Note, "A flavor of TPU nodes with a topology that does not tolerate their taint",
        why: "places are sought for pods as the job describes them, before GKE adds the toleration: nodes with the taint are left out",
        source: "GKE docs, TPUs in GKE; Kueue docs, topology-aware scheduling",
        look: taint_of_chips,
    },
];

const HOSTNAME: &str = "kubernetes.io/hostname";

fn no_hosts(model: &Model<'_>, out: &mut Sink<'_>) {
    for topology in &model.topologies {
        let levels = &topology.object.spec.levels;
        let Some(last) = levels.last().filter(|l| l.node_label != HOSTNAME) else { continue };
        let index = levels.len().saturating_sub(1);
        let message = format!("the lowest level is {}, which holds several nodes", last.node_label);
        let help = format!("add `- nodeLabel: {HOSTNAME}` as the last level");
        out.report(topology.document, &format!("spec.levels[{index}].nodeLabel"), message, help);
    }
}

/// The Topologies of the flavors of a job's queue; `None` if the queue or any of its flavors is not known.
fn topologies<'a>(model: &Model<'a>, job: &Job<'a>) -> Option<Vec<Doc<'a, kueue::Topology>>> {
    let queue = model.queue_of(job).filter(|q| !q.redefined)?;
    let mut all = Vec::new();
    for flavor in queue.spec.resource_groups.iter().flat_map(|g| &g.flavors) {
        let Some(topology) = model.flavor(&flavor.name)?.spec.topology.as_deref() else { continue };
        all.push(*model.topologies.iter().rfind(|t| name(&t.metadata) == topology)?);
    }
    Some(all)
}

const LEVELS: [&str; 3] = [keys::REQUIRED_TOPOLOGY, keys::PREFERRED_TOPOLOGY, keys::SLICE_REQUIRED_TOPOLOGY];

fn groups<'m, 'a>(model: &'m Model<'a>) -> impl Iterator<Item = (&'m Job<'a>, &'m Group<'a>)> {
    model.jobs.iter().flat_map(|job| job.groups.iter().map(move |group| (job, group)))
}

fn path(group: &Group<'_>, key: &str) -> String {
    format!("{}.metadata.annotations[{key}]", group.path)
}

fn unknown_level(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let asked: Vec<(&str, &str)> = LEVELS.iter().filter_map(|k| Some((*k, group.annotation(k)?))).collect();
        if asked.is_empty() {
            continue;
        }
        let Some(topologies) = topologies(model, job).filter(|t| !t.is_empty()) else { continue };
        let levels: BTreeSet<&str> =
            topologies.iter().flat_map(|t| &t.object.spec.levels).map(|l| l.node_label.as_str()).collect();
        for (key, level) in asked.into_iter().filter(|(_, level)| !levels.contains(level)) {
            let message = format!("no Topology of the queue's flavors has the level {level}");
            let help = match meant(level, levels.iter().copied()) {
                Some(other) => format!("did you mean {other}?"),
                None => format!("there are {}", list(levels.iter().copied())),
            };
            out.report(job.document, &path(group, key), message, help);
        }
    }
}

fn no_topology(model: &Model<'_>, out: &mut Sink<'_>) {
    let all = [LEVELS.as_slice(), &[keys::UNCONSTRAINED_TOPOLOGY, keys::SLICE_CONSTRAINTS]].concat();
    for (job, group) in groups(model) {
        let Some(key) = all.iter().find(|k| group.annotation(k).is_some()) else { continue };
        if topologies(model, job).is_some_and(|t| t.is_empty())
            && let Some(queue) = model.queue_of(job)
        {
            let message = format!("no flavor of ClusterQueue {} has a topology", queue.name());
            let help = "set topologyName in the flavor, or remove the annotation";
            out.report(job.document, &path(group, key), message, help);
        }
    }
}

fn left_over(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let Some(size) = group.annotation(keys::SLICE_SIZE).and_then(|s| s.parse::<i64>().ok()) else { continue };
        let rest = group.count.checked_rem(size).unwrap_or(0);
        // More than there are is a finding of the reader.
        if rest != 0 && size <= group.count {
            let message = format!("{} pods are not a multiple of {size}: {rest} would not be placed", group.count);
            let help = "choose a size that divides the number of pods";
            out.report(job.document, &path(group, keys::SLICE_SIZE), message, help);
        }
    }
}

fn order(model: &Model<'_>, out: &mut Sink<'_>) {
    for (job, group) in groups(model) {
        let outer = LEVELS.iter().take(2).find_map(|k| group.annotation(k));
        let (Some(outer), Some(inner)) = (outer, group.annotation(keys::SLICE_REQUIRED_TOPOLOGY)) else { continue };
        for topology in topologies(model, job).into_iter().flatten() {
            let at = |level: &str| topology.object.spec.levels.iter().position(|l| l.node_label == level);
            if let (Some(o), Some(i)) = (at(outer), at(inner))
                && i < o
            {
                let message = format!("{inner} is above {outer} in Topology {}", name(&topology.metadata));
                let help = format!("name {outer} or a level below it");
                out.report(job.document, &path(group, keys::SLICE_REQUIRED_TOPOLOGY), message, help);
                break;
            }
        }
    }
}

fn of_job(model: &Model<'_>, out: &mut Sink<'_>) {
    let all = [LEVELS.as_slice(), &[keys::UNCONSTRAINED_TOPOLOGY, keys::SLICE_SIZE, keys::SLICE_CONSTRAINTS]].concat();
    for job in &model.jobs {
        for key in all.iter().filter(|k| annotation(job.metadata(), k).is_some()) {
            // Whoever writes it in both places means the pods.
            if job.groups.iter().any(|g| g.annotation(key).is_some()) {
                continue;
            }
            let message = format!("{key} is on the {} and on none of its pod templates", job.kind());
            let at = job.groups.iter().find(|g| !g.path.is_empty()).map_or("", |g| g.path.as_str());
            let help = format!("write it below {at}.metadata.annotations");
            out.report(job.document, &format!("metadata.annotations[{key}]"), message, help);
        }
    }
}

fn two_placements(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        if annotation(job.metadata(), super::shapes::EXCLUSIVE).is_none() {
            continue;
        }
        let asks = |g: &Group<'_>| LEVELS.iter().any(|k| g.annotation(k).is_some());
        if job.groups.iter().any(asks) {
            let message = "pods of this JobSet are placed by Kueue's topology as well".to_owned();
            let help = "remove the annotation, or the topology annotations of the pod templates";
            out.report(job.document, &format!("metadata.annotations[{}]", super::shapes::EXCLUSIVE), message, help);
        }
    }
}

fn taint_of_chips(model: &Model<'_>, out: &mut Sink<'_>) {
    let taint = [Taint { key: taint::TPU.key.into(), value: taint::TPU.value.into(), effect: TaintEffect::NoSchedule }];
    for flavor in &model.flavors {
        let Some(topology) = flavor.spec.topology.as_deref() else { continue };
        // Taints are looked at only where the lowest level is the host.
        let topology = model.topologies.iter().rfind(|t| name(&t.metadata) == topology);
        let hosts = topology.and_then(|t| t.object.spec.levels.last()).is_some_and(|l| l.node_label == HOSTNAME);
        let untolerated = |pod: &[Toleration]| first_untolerated(&taint, &[&flavor.spec.tolerations, pod]).is_some();
        if !hosts || !untolerated(&[]) {
            continue;
        }
        let queues = model.queues.iter().filter(|q| {
            let mut groups = q.spec.resource_groups.iter().filter(|g| g.covered_resources.iter().any(|r| &**r == TPU));
            groups.any(|g| g.flavors.iter().any(|f| f.name == flavor.spec.name))
        });
        let jobs = queues.flat_map(|q| model.jobs_of(q));
        let lacking = jobs.flat_map(|job| job.groups.iter().map(move |g| (job, g)));
        let Some((job, _)) = lacking.filter(|(_, g)| g.chips() > 0).find(|(_, g)| untolerated(&g.pod.tolerations))
        else {
            continue;
        };
        // Nodes that are told of may not have it.
        let mut pools = model.pools.iter().filter(|p| p.chips > 0 && p.object.is_none()).peekable();
        if pools.peek().is_some() && !pools.any(|p| p.taints.iter().any(|t| *t.key == *taint::TPU.key)) {
            continue;
        }
        let message = format!(
            "{} {} uses TPUs, and neither its pods nor the flavor tolerate {}",
            job.kind(),
            job.name(),
            taint::TPU
        );
        let help =
            format!("add `- {{key: {TPU}, operator: Exists, effect: NoSchedule}}` to the tolerations of the flavor");
        out.report(flavor.document, "spec.topologyName", message, help);
    }
}
