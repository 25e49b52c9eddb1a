//! `SG03xx`: names of other objects.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::{Kind, convert, kueue};
use slicegate_controller::keys;
use slicegate_manifest::{Document, Severity};

use super::{article, list, meant, rule};
use crate::model::{Model, label, name, namespace};
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0301", Warning, "A LocalQueue that leads nowhere",
        why: "jobs of this queue wait for ever",
        source: "Kueue docs, LocalQueue",
        look: local_queues,
    },
    rule! {
        "SG0302", Warning, "A job whose queue does not exist",
        why: "the job stays suspended and waits for ever",
        source: "Kueue docs, running jobs",
        look: queues_of_jobs,
    },
    rule! {
        "SG0303", Warning, "A priority class that does not exist",
        why: "no Workload is made for the job, or no pod, until there is one",
        source: "Kueue docs, workload priority; Kubernetes docs, PriorityClass",
        look: classes_of_jobs,
    },
    rule! {
        "SG0304", Warning, "A ClusterQueue with a flavor that does not exist",
        why: "the queue is inactive and admits nothing",
        source: "Kueue docs, ClusterQueue",
        look: flavors_of_queues,
    },
    rule! {
        "SG0305", Warning, "A ClusterQueue with an admission check that does not exist",
        why: "the queue is inactive and admits nothing",
        source: "Kueue docs, admission checks",
        look: checks_of_queues,
    },
    rule! {
        "SG0306", Warning, "A flavor with a Topology that does not exist",
        why: "every queue with this flavor is inactive",
        source: "Kueue docs, topology-aware scheduling",
        look: topologies_of_flavors,
    },
    rule! {
        "SG0307", Warning, "An admission check with parameters that do not exist",
        why: "the check is inactive, and so is every queue that names it",
        source: "Kueue docs, provisioning",
        look: parameters_of_checks,
    },
    rule! {
        "SG0308", Error, "Cohorts in a circle",
        why: "nothing in or below the circle is admitted until it is broken up",
        source: "Kueue docs, Cohort",
        look: circles,
    },
    rule! {
        "SG0309", Note, "A ClusterQueue that is alone in its cohort",
        why: "a cohort shares quota between its members: with one there is nothing to borrow or to lend",
        source: "Kueue docs, Cohort",
        look: alone,
    },
    rule! {
        "SG0310", Warning, "A ClusterQueue that serves no namespace",
        why: "without namespaceSelector no workload is ever admitted",
        source: "Kueue docs, ClusterQueue: a selector that is left out selects nothing",
        look: no_namespace,
    },
    rule! {
        "SG0311", Warning, "A LocalQueue in a namespace that its ClusterQueue does not serve",
        why: "jobs of this queue wait for ever",
        source: "Kueue docs, ClusterQueue",
        look: other_namespace,
    },
    rule! {
        "SG0312", Note, "A ClusterQueue without a LocalQueue",
        why: "jobs name LocalQueues, so that none can use its quota",
        source: "Kueue docs, LocalQueue",
        look: no_local_queue,
    },
    rule! {
        "SG0313", Note, "A flavor that no queue uses",
        why: "its capacity is not handed out",
        source: "Kueue docs, ResourceFlavor",
        look: unused_flavors,
    },
];

/// A name that some object gives.
struct Reference<'a> {
    document: &'a Document,
    path: String,
    kind: Kind,
    namespace: &'a str,
    name: &'a str,
}

/// Says so if nothing has the name. Unless the manifests are `complete` as far as this is concerned, it may exist elsewhere.
fn look_up(model: &Model<'_>, reference: &Reference<'_>, complete: bool, out: &mut Sink<'_>) {
    let Reference { document, path, kind, namespace, name } = reference;
    if name.is_empty() || model.has(*kind, namespace, name) {
        return;
    }
    let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
    let there: Vec<&str> = model.names_of(*kind, namespace).into_iter().flatten().copied().collect();
    let help = match meant(name, there.iter().copied()) {
        Some(other) => format!("did you mean {other}?"),
        None if there.is_empty() => format!("add {} {kind} {name}{place} to the manifests", article(*kind)),
        None => format!("the manifests have {kind} {}{place}", list(there.iter().copied())),
    };
    if complete {
        out.report(document, path, format!("there is no {kind} {name}{place}"), help);
    } else {
        let message = format!("{kind} {name}{place} is not among these manifests");
        out.report_as(
            Severity::Note,
            document,
            path,
            message,
            "check it together with the queues, or see that it exists",
        );
    }
}

fn local_queues(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in &model.local_queues {
        let reference = Reference {
            document: queue.document,
            path: "spec.clusterQueue".to_owned(),
            kind: Kind::ClusterQueue,
            namespace: "",
            name: &queue.object.spec.cluster_queue,
        };
        look_up(model, &reference, true, out);
    }
}

fn queues_of_jobs(model: &Model<'_>, out: &mut Sink<'_>) {
    let mut elsewhere: BTreeMap<&str, &str> = BTreeMap::new();
    for queue in &model.local_queues {
        elsewhere.insert(name(&queue.object.metadata), namespace(&queue.object.metadata));
    }
    for job in &model.jobs {
        let Some(queue) = job.queue else { continue };
        let path = format!("metadata.labels[{}]", keys::QUEUE_NAME);
        match elsewhere.get(queue) {
            Some(other) if !model.has(Kind::LocalQueue, job.namespace, queue) => {
                let message = format!("LocalQueue {queue} is in namespace {other}, the job in {}", job.namespace);
                let applied = match job.metadata().namespace {
                    Some(_) => String::new(),
                    None => format!(" or apply it with `-n {other}`,"),
                };
                let help =
                    format!("write `namespace: {other}` in the job,{applied} or add a LocalQueue to {}", job.namespace);
                out.report(job.document, &path, message, help);
            }
            _ => {
                let reference = Reference {
                    document: job.document,
                    path,
                    kind: Kind::LocalQueue,
                    namespace: job.namespace,
                    name: queue,
                };
                look_up(model, &reference, model.has_kueue_objects, out);
            }
        }
    }
}

fn classes_of_jobs(model: &Model<'_>, out: &mut Sink<'_>) {
    for job in &model.jobs {
        if let Some(class) = label(job.metadata(), keys::PRIORITY_CLASS) {
            let reference = Reference {
                document: job.document,
                path: format!("metadata.labels[{}]", keys::PRIORITY_CLASS),
                kind: Kind::WorkloadPriorityClass,
                namespace: "",
                name: class,
            };
            look_up(model, &reference, model.has_kueue_objects, out);
        }
        for group in &job.groups {
            let class = group.template.and_then(|t| t.spec.as_ref()?.priority_class_name.as_deref());
            let Some(class) = class.filter(|c| !c.starts_with("system-")) else { continue };
            let reference = Reference {
                document: job.document,
                path: format!("{}.spec.priorityClassName", group.path),
                kind: Kind::PriorityClass,
                namespace: "",
                name: class,
            };
            look_up(model, &reference, model.has_kueue_objects, out);
        }
    }
}

fn flavors_of_queues(model: &Model<'_>, out: &mut Sink<'_>) {
    let of_queues = model.queues.iter().map(|q| (q.document, &q.object.spec.resource_groups));
    let of_cohorts = model.cohorts.iter().map(|c| (c.document, &c.object.spec.resource_groups));
    for (document, groups) in of_queues.chain(of_cohorts) {
        for (g, group) in groups.iter().enumerate() {
            for (f, flavor) in group.flavors.iter().enumerate() {
                let reference = Reference {
                    document,
                    path: format!("spec.resourceGroups[{g}].flavors[{f}].name"),
                    kind: Kind::ResourceFlavor,
                    namespace: "",
                    name: &flavor.name,
                };
                look_up(model, &reference, true, out);
            }
        }
    }
}

fn checks_of_queues(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in &model.queues {
        let rules = queue.object.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
        for (c, check) in rules.enumerate() {
            let at = format!("spec.admissionChecksStrategy.admissionChecks[{c}]");
            let named = format!("{at}.name");
            // In v1beta1 the check itself is the name.
            let path = if queue.document.positions.has(&named) { named } else { at };
            let reference = Reference {
                document: queue.document,
                path,
                kind: Kind::AdmissionCheck,
                namespace: "",
                name: &check.name,
            };
            look_up(model, &reference, true, out);
        }
    }
}

fn topologies_of_flavors(model: &Model<'_>, out: &mut Sink<'_>) {
    for flavor in &model.flavors {
        let reference = Reference {
            document: flavor.document,
            path: "spec.topologyName".to_owned(),
            kind: Kind::Topology,
            namespace: "",
            name: flavor.object.spec.topology_name.as_deref().unwrap_or_default(),
        };
        look_up(model, &reference, true, out);
    }
}

fn parameters_of_checks(model: &Model<'_>, out: &mut Sink<'_>) {
    for check in &model.checks {
        let Some(parameters) = &check.object.spec.parameters else { continue };
        if parameters.kind == Kind::ProvisioningRequestConfig.as_str() && parameters.api_group == kueue::GROUP {
            let reference = Reference {
                document: check.document,
                path: "spec.parameters.name".to_owned(),
                kind: Kind::ProvisioningRequestConfig,
                namespace: "",
                name: &parameters.name,
            };
            look_up(model, &reference, true, out);
        }
    }
}

fn circles(model: &Model<'_>, out: &mut Sink<'_>) {
    let parents: BTreeMap<&str, &str> = model
        .cohorts
        .iter()
        .filter_map(|c| Some((name(&c.object.metadata), c.object.spec.parent_name.as_deref()?)))
        .collect();
    for cohort in model.cohorts.iter().filter(|c| model.quota.is_cyclic(name(&c.metadata))) {
        let own = name(&cohort.object.metadata);
        let mut way = vec![own];
        let mut seen = BTreeSet::new();
        let mut at = own;
        while let Some(parent) = parents.get(at).filter(|p| seen.insert(**p)) {
            way.push(parent);
            at = parent;
            if at == own {
                break;
            }
        }
        // Those below a circle are not part of it.
        if at == own && way.len() > 1 {
            let message = format!("the parents of this Cohort lead back to it: {}", list(way));
            let help = "let one Cohort of the circle have no parentName, or one outside of it";
            out.report(cohort.document, "spec.parentName", message, help);
        }
    }
}

fn alone(model: &Model<'_>, out: &mut Sink<'_>) {
    let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for queue in &model.queues {
        if let Some(cohort) = queue.cohort() {
            members.entry(cohort).or_default().insert(queue.name());
        }
    }
    for cohort in &model.cohorts {
        known.insert(name(&cohort.object.metadata));
        known.extend(cohort.object.spec.parent_name.as_deref());
    }
    let all: BTreeSet<&str> = members.keys().copied().chain(known.iter().copied()).collect();
    for queue in &model.queues {
        let Some(cohort) = queue.cohort() else { continue };
        if known.contains(cohort) || members.get(cohort).is_none_or(|m| m.len() != 1) {
            continue;
        }
        let others = all.iter().copied().filter(|c| *c != cohort);
        let message = format!("ClusterQueue {} is the only member of cohort {cohort}", queue.name());
        match meant(cohort, others) {
            Some(other) => {
                let help = format!("did you mean {other}?");
                out.report_as(Severity::Warning, queue.document, "spec.cohortName", message, help);
            }
            None => out.report(queue.document, "spec.cohortName", message, "put other queues into it, or remove it"),
        }
    }
}

fn no_namespace(model: &Model<'_>, out: &mut Sink<'_>) {
    for queue in model.queues.iter().filter(|q| q.object.spec.namespace_selector.is_none()) {
        let message = format!("ClusterQueue {} has no namespaceSelector and serves no namespace", queue.name());
        out.report(queue.document, "metadata.name", message, "write `namespaceSelector: {}` for all namespaces");
    }
}

fn other_namespace(model: &Model<'_>, out: &mut Sink<'_>) {
    const NAME: &str = "kubernetes.io/metadata.name";
    for local in &model.local_queues {
        let Some(queue) = model.queue(&local.object.spec.cluster_queue) else { continue };
        let Some(selector) = queue.object.spec.namespace_selector.as_ref() else { continue };
        let Ok(selector) = convert::label_selector(selector) else { continue };
        let space = namespace(&local.object.metadata);
        let mut labels = slicegate_workload::Labels::new();
        labels.insert(NAME.into(), space.into());
        match model.namespaces.get(space) {
            Some(meta) => {
                labels.extend(meta.labels.iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
            }
            // Its labels are not known.
            None if selector.match_labels.keys().any(|k| **k != *NAME)
                || selector.match_expressions.iter().any(|e| *e.key != *NAME) =>
            {
                continue;
            }
            None => {}
        }
        if !selector.matches(&labels) {
            let message = format!("ClusterQueue {} does not serve namespace {space}", queue.name());
            let help = "change the ClusterQueue's namespaceSelector, or the labels of the namespace";
            out.report(local.document, "spec.clusterQueue", message, help);
        }
    }
}

fn no_local_queue(model: &Model<'_>, out: &mut Sink<'_>) {
    if model.local_queues.is_empty() {
        return;
    }
    for queue in model.queues.iter().filter(|q| q.local_queues == 0 && !q.redefined) {
        let message = format!("no LocalQueue leads to ClusterQueue {}", queue.name());
        let help = format!("add a LocalQueue with `clusterQueue: {}` to a namespace", queue.name());
        out.report(queue.document, "metadata.name", message, help);
    }
}

fn unused_flavors(model: &Model<'_>, out: &mut Sink<'_>) {
    let of_queues = model.queues.iter().flat_map(|q| &q.object.spec.resource_groups);
    let of_cohorts = model.cohorts.iter().flat_map(|c| &c.object.spec.resource_groups);
    let groups = of_queues.chain(of_cohorts);
    let used: BTreeSet<&str> = groups.flat_map(|g| &g.flavors).map(|f| f.name.as_str()).collect();
    if used.is_empty() {
        return;
    }
    for flavor in &model.flavors {
        let own = name(&flavor.object.metadata);
        if !used.contains(own) {
            let message = format!("no ClusterQueue or Cohort has quota of flavor {own}");
            out.report(flavor.document, "metadata.name", message, "give a queue quota of it, or remove it");
        }
    }
}
