//! `SG02xx`: preemption and priorities.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_controller::keys;
use slicegate_manifest::Severity;

use super::{list, rule};
use crate::model::{Job, Model, label, name};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0201", Note, "Reclaiming from a cohort that the queue is not in",
        why: "the policy has no effect: without a cohort nobody has borrowed anything that could be taken back",
        source: "Kueue docs, preemption",
        look: reclaim_without_cohort,
    },
    rule! {
        "SG0202", Note, "Preempting while borrowing, without a cohort to borrow from",
        why: "the policy has no effect: a queue without a cohort never borrows",
        source: "Kueue docs, preemption",
        look: borrow_without_cohort,
    },
    rule! {
        "SG0203", Note, "Preemption of lower priorities where all have the same",
        why: "nobody is ever preempted: every job of the queue has the same priority",
        source: "Kueue docs, preemption",
        look: one_level,
    },
    rule! {
        "SG0204", Warning, "A priority class whose name contradicts its value",
        why: "jobs without a class have the default priority, so that the class does the opposite of what its name says",
        source: "Kubernetes docs, PriorityClass; Google's multislice tutorial",
        look: contradictory_class,
    },
    rule! {
        "SG0205", Warning, "More than one global default among the PriorityClasses",
        why: "the one with the lowest value counts, whatever was meant",
        source: "Kubernetes docs, PriorityClass",
        look: defaults,
    },
    rule! {
        "SG0206", Warning, "Pods of one job with different priority classes",
        why: "a job has one priority in its queue, that of the first pod template that names a class",
        source: "Kueue docs, workload priority",
        look: several_classes,
    },
    rule! {
        "SG0207", Warning, "A priority threshold that is below everything",
        why: "only workloads at or below the threshold may be preempted while borrowing, and there are none",
        source: "Kueue apis/kueue/v1beta2, BorrowWithinCohort",
        look: threshold,
    },
];

fn is_set(policy: Option<&String>) -> bool {
    policy.is_some_and(|p| !p.is_empty() && p != "Never")
}

fn reclaim_without_cohort(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in model.queues.iter().filter(|q| q.cohort().is_none()) {
        let policy = queue.object.spec.preemption.as_ref().and_then(|p| p.reclaim_within_cohort.as_ref());
        if is_set(policy) {
            let message = format!("ClusterQueue {} is in no cohort, so there is nothing to reclaim", queue.name());
            let help = "remove reclaimWithinCohort, or name the cohort in spec.cohortName";
            out.report(queue.document, "spec.preemption.reclaimWithinCohort", message, help);
        }
    }
}

fn borrow_without_cohort(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in model.queues.iter().filter(|q| q.cohort().is_none()) {
        let policy = queue.object.spec.preemption.as_ref().and_then(|p| p.borrow_within_cohort.as_ref());
        if is_set(policy.and_then(|p| p.policy.as_ref())) {
            let message = format!("ClusterQueue {} is in no cohort and never borrows", queue.name());
            let help = "remove borrowWithinCohort, or name the cohort in spec.cohortName";
            out.report(queue.document, "spec.preemption.borrowWithinCohort.policy", message, help);
        }
    }
}

/// The priority of jobs that name no class.
fn default_priority(model: &Model<'_>) -> i32 {
    model.classes.iter().filter(|c| c.global_default == Some(true)).map(|c| c.value).min().unwrap_or(0)
}

/// The priority of a job; `None` if its class is not known.
fn priority(job: &Job<'_>, model: &Model<'_>) -> Option<i32> {
    if let Some(class) = label(job.metadata(), keys::PRIORITY_CLASS).filter(|c| !c.is_empty()) {
        return model.workload_classes.iter().rfind(|c| name(&c.metadata) == class).map(|c| c.value);
    }
    let class = job.groups.iter().find_map(|g| g.template?.spec.as_ref()?.priority_class_name.as_deref());
    match class.filter(|c| !c.is_empty()) {
        Some(class) => model.classes.iter().rfind(|c| name(&c.metadata) == class).map(|c| c.value),
        None => Some(default_priority(model)),
    }
}

fn one_level(model: &Model<'_>, out: &mut Sink<'_>) {
    // Classes that nobody uses yet will be used.
    let values: BTreeSet<i32> = model
        .classes
        .iter()
        .map(|c| c.value)
        .chain(model.workload_classes.iter().map(|c| c.value))
        .chain([default_priority(model)])
        .collect();
    if values.len() > 1 {
        return;
    }
    for queue in &model.queues {
        let policy = queue.object.spec.preemption.as_ref().and_then(|p| p.within_cluster_queue.as_deref());
        if policy != Some("LowerPriority") {
            continue;
        }
        let priorities: Vec<Option<i32>> = model.jobs_of(queue).map(|job| priority(job, model)).collect();
        let Some(Some(first)) = priorities.first() else { continue };
        if priorities.len() > 1 && priorities.iter().all(|p| *p == Some(*first)) {
            let message = format!("all {} jobs of this queue have priority {first}", priorities.len());
            let help =
                "give some a class with the label kueue.x-k8s.io/priority-class, or use LowerOrNewerEqualPriority";
            out.report(queue.document, "spec.preemption.withinClusterQueue", message, help);
        }
    }
}

const LOW: [&str; 12] = [
    "low",
    "lower",
    "lowest",
    "lowprio",
    "lowpriority",
    "background",
    "preemptible",
    "scavenger",
    "idle",
    "opportunistic",
    "besteffort",
    "filler",
];
const HIGH: [&str; 9] =
    ["high", "higher", "highest", "highprio", "highpriority", "urgent", "critical", "important", "prod"];

fn contradictory_class(model: &Model<'_>, out: &mut Sink<'_>) {
    let default = default_priority(model);
    // Where every job has a class, the classes among themselves may well begin at any value.
    let severity = if model.jobs.iter().any(|job| !has_class(job)) { Severity::Warning } else { Severity::Note };
    let classes = model.classes.iter().filter(|c| c.global_default != Some(true));
    let classes = classes.map(|c| (c.document, name(&c.metadata), c.value));
    let of_workloads = model.workload_classes.iter().map(|c| (c.document, name(&c.metadata), c.value));
    for (document, class, value) in classes.chain(of_workloads) {
        let has =
            |words: &[&str]| class.split(['-', '.', '_']).any(|part| words.contains(&part.to_lowercase().as_str()));
        let (word, bound) = match (has(&LOW), has(&HIGH)) {
            (true, false) if value > default => ("outranks", "below"),
            (false, true) if value < default => ("ranks below", "above"),
            _ => continue,
        };
        let message = format!("{class} ({value}) {word} every job without a class ({default})");
        let help = format!("set value {bound} {default}, give the other jobs a class too, or choose another name");
        out.report_as(severity, document, "value", message, help);
    }
}

/// Whether a job names a priority class of either kind.
fn has_class(job: &Job<'_>) -> bool {
    label(job.metadata(), keys::PRIORITY_CLASS).is_some_and(|c| !c.is_empty())
        || job.groups.iter().any(|g| {
            let class = g.template.and_then(|t| t.spec.as_ref()?.priority_class_name.as_deref());
            class.is_some_and(|c| !c.is_empty())
        })
}

fn defaults(model: &Model<'_>, out: &mut Sink<'_>) {
    let mut by_name = BTreeMap::new();
    for class in model.classes.iter().filter(|c| c.global_default == Some(true)) {
        by_name.insert(name(&class.metadata), class);
    }
    let Some(first) = by_name.values().min_by_key(|c| c.value) else { return };
    for class in by_name.values().filter(|c| by_name.len() > 1 && name(&c.metadata) != name(&first.metadata)) {
        let message =
            format!("{} is a global default as well, and lower: it is the one that counts", name(&first.metadata));
        out.report(class.document, "globalDefault", message, "leave globalDefault: true on one PriorityClass");
    }
}

fn several_classes(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        if job.queue.is_none() || label(job.metadata(), keys::PRIORITY_CLASS).is_some_and(|c| !c.is_empty()) {
            continue;
        }
        let mut first = None;
        for group in &job.groups {
            let class = group.template.and_then(|t| t.spec.as_ref()?.priority_class_name.as_deref());
            let Some(class) = class.filter(|c| !c.is_empty()) else { continue };
            match first {
                None => first = Some(class),
                Some(counts) if counts != class => {
                    let message =
                        format!("the job's priority is that of {counts}; {class} does not count in the queue");
                    let help = "name one class in all pod templates, or use the label kueue.x-k8s.io/priority-class";
                    out.report(job.document, &format!("{}.spec.priorityClassName", group.path), message, help);
                }
                Some(_) => {}
            }
        }
    }
}

fn threshold(model: &Model<'_>, out: &mut Sink<'_>) {
    let values = model.classes.iter().map(|c| c.value).chain(model.workload_classes.iter().map(|c| c.value));
    let lowest = values.chain([default_priority(model)]).min().unwrap_or(0);
    for queue in model.queues.iter().filter(|q| q.cohort().is_some()) {
        let borrow = queue.object.spec.preemption.as_ref().and_then(|p| p.borrow_within_cohort.as_ref());
        let Some(threshold) = borrow.and_then(|b| b.max_priority_threshold).filter(|t| *t < lowest) else { continue };
        let classes = list(model.classes.iter().map(|c| name(&c.metadata)));
        let known = if classes.is_empty() { String::new() } else { format!(" (classes: {classes})") };
        let message = format!("no workload has a priority of {threshold} or less; the lowest is {lowest}{known}");
        let help = format!("set maxPriorityThreshold to {lowest} or more");
        out.report(queue.document, "spec.preemption.borrowWithinCohort.maxPriorityThreshold", message, help);
    }
}
