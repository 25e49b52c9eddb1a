//! What the schemas of Kueue's own kinds say, and what the API server says about names and labels.

use std::collections::BTreeSet;

use super::{FindingKind, Findings, labels, names};
use crate::path::Path;
use crate::{Kind, Object, kueue};

pub(super) fn check(object: &Object, out: &mut Findings) {
    metadata(object, out);
    match object {
        Object::ClusterQueue(o) => cluster_queue(&o.spec, out),
        Object::Cohort(o) => resource_groups(&o.spec.resource_groups, out),
        Object::LocalQueue(o) => {
            let path = Path::ROOT.field("spec");
            present(path.field("clusterQueue"), &o.spec.cluster_queue, names::dns_subdomain, out);
            out.word(path.field("stopPolicy"), o.spec.stop_policy.as_deref(), STOP_POLICIES);
            super::cluster_queue::fair_sharing(path, o.spec.fair_sharing.as_ref(), out);
        }
        Object::ResourceFlavor(o) => flavor(&o.spec, out),
        Object::Topology(o) => topology(&o.spec, out),
        Object::AdmissionCheck(o) => admission_check(&o.spec, out),
        Object::ProvisioningRequestConfig(o) => provisioning(&o.spec, out),
        Object::Workload(o) => workload(&o.spec, out),
        _ => {}
    }
}

const STOP_POLICIES: &[&str] = &["None", "Hold", "HoldAndDrain"];

/// A text that must be there and fit a rule.
fn present(path: Path<'_>, text: &str, rule: fn(&str) -> Result<(), String>, out: &mut Findings) {
    if text.is_empty() { out.required(path, "must be there") } else { out.name(path, text, rule) }
}

fn range(path: Path<'_>, found: usize, fewest: usize, most: usize, out: &mut Findings) {
    if found < fewest {
        out.invalid(path, format!("has {found} entries; at least {fewest} is needed"));
    }
    out.at_most(path, found, most);
}

fn length(path: Path<'_>, text: &str, most: usize, out: &mut Findings) {
    if text.chars().count() > most {
        out.add(path, FindingKind::TooLong, format!("has more than {most} characters"));
    }
}

fn metadata(object: &Object, out: &mut Findings) {
    let meta = object.metadata();
    let path = Path::ROOT.field("metadata");
    if let Some(name) = meta.name.as_deref().filter(|n| !n.is_empty()) {
        let rule = if object.kind() == Kind::Namespace { names::dns_label } else { names::dns_subdomain };
        out.name(path.field("name"), name, rule);
    }
    if let Some(namespace) = meta.namespace.as_deref().filter(|n| !n.is_empty()) {
        out.name(path.field("namespace"), namespace, names::dns_label);
    }
    if let Some(map) = &meta.labels {
        labels::labels(path.field("labels"), map, out);
    }
    if let Some(map) = &meta.annotations {
        labels::annotations(path.field("annotations"), map, out);
    }
}

fn resource_groups(groups: &[kueue::ResourceGroup], out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let path = path.field("resourceGroups");
    out.at_most(path, groups.len(), 16);
    for (i, group) in groups.iter().enumerate() {
        let path = path.index(i);
        range(path.field("coveredResources"), group.covered_resources.len(), 1, 64, out);
        let path = path.field("flavors");
        range(path, group.flavors.len(), 1, 64, out);
        for (j, flavor) in group.flavors.iter().enumerate() {
            let path = path.index(j);
            let path = path.field("resources");
            range(path, flavor.resources.len(), 1, 64, out);
            if flavor.resources.len() != group.covered_resources.len() {
                out.invalid(
                    path,
                    format!(
                        "has {} resources; it needs the {} of coveredResources, in their order",
                        flavor.resources.len(),
                        group.covered_resources.len()
                    ),
                );
            }
        }
    }
}

fn cluster_queue(spec: &kueue::ClusterQueueSpec, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    resource_groups(&spec.resource_groups, out);
    out.word(path.field("queueingStrategy"), spec.queueing_strategy.as_deref(), &["BestEffortFIFO", "StrictFIFO"]);
    out.word(path.field("stopPolicy"), spec.stop_policy.as_deref(), STOP_POLICIES);
    if let Some(fungibility) = &spec.flavor_fungibility {
        let path = path.field("flavorFungibility");
        let when = &["MayStopSearch", "TryNextFlavor"];
        out.word(path.field("whenCanBorrow"), fungibility.when_can_borrow.as_deref(), when);
        out.word(path.field("whenCanPreempt"), fungibility.when_can_preempt.as_deref(), when);
        let preferences = &["BorrowingOverPreemption", "PreemptionOverBorrowing"];
        out.word(path.field("preference"), fungibility.preference.as_deref(), preferences);
    }
    if let Some(preemption) = &spec.preemption {
        let path = path.field("preemption");
        let reclaim = &["Never", "LowerPriority", "Any"];
        out.word(path.field("reclaimWithinCohort"), preemption.reclaim_within_cohort.as_deref(), reclaim);
        let within = &["Never", "LowerPriority", "LowerOrNewerEqualPriority"];
        out.word(path.field("withinClusterQueue"), preemption.within_cluster_queue.as_deref(), within);
        if let Some(borrow) = &preemption.borrow_within_cohort {
            let path = path.field("borrowWithinCohort");
            out.word(path.field("policy"), borrow.policy.as_deref(), &["Never", "LowerPriority"]);
        }
    }
    if let Some(strategy) = &spec.admission_checks_strategy {
        let path = path.field("admissionChecksStrategy");
        let path = path.field("admissionChecks");
        range(path, strategy.admission_checks.len(), 1, 64, out);
        let mut seen = BTreeSet::new();
        for (i, rule) in strategy.admission_checks.iter().enumerate() {
            let path = path.index(i);
            if rule.name.is_empty() {
                out.required(path.field("name"), "must be there");
            }
            length(path.field("name"), &rule.name, 316, out);
            out.at_most(path.field("onFlavors"), rule.on_flavors.len(), 64);
            if !seen.insert(&rule.name) {
                out.duplicate(path.field("name"), &rule.name);
            }
        }
    }
    if let Some(scope) = &spec.admission_scope {
        let modes = &["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"];
        out.word(path.field("admissionScope").field("admissionMode"), Some(&scope.admission_mode), modes);
    }
    if let Some(policy) = &spec.concurrent_admission_policy {
        let path = path.field("concurrentAdmissionPolicy");
        let path = path.field("migration");
        out.word(path.field("mode"), Some(&policy.migration.mode), &["TryPreferredFlavors", "RetainFirstAdmission"]);
    }
}

fn flavor(spec: &kueue::ResourceFlavorSpec, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    out.at_most(path.field("nodeLabels"), spec.node_labels.len(), 8);
    out.at_most(path.field("nodeTaints"), spec.node_taints.len(), 8);
    labels::tolerations(path.field("tolerations"), &spec.tolerations, out);
    if let Some(topology) = spec.topology_name.as_deref().filter(|t| !t.is_empty()) {
        out.name(path.field("topologyName"), topology, names::dns_subdomain);
        if spec.node_labels.is_empty() {
            out.invalid(path, "a flavor with topologyName needs at least one of nodeLabels");
        }
    }
}

fn topology(spec: &kueue::TopologySpec, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let path = path.field("levels");
    range(path, spec.levels.len(), 1, 16, out);
    let mut seen = BTreeSet::new();
    for (i, level) in spec.levels.iter().enumerate() {
        let path = path.index(i);
        let path = path.field("nodeLabel");
        present(path, &level.node_label, names::qualified, out);
        if !seen.insert(&level.node_label) {
            out.duplicate(path, &level.node_label);
        }
        let last = i.saturating_add(1) == spec.levels.len();
        if level.node_label == "kubernetes.io/hostname" && !last {
            out.invalid(path, "kubernetes.io/hostname can only be the last level");
        }
    }
}

fn admission_check(spec: &kueue::AdmissionCheckSpec, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    if spec.controller_name.is_empty() {
        out.required(path.field("controllerName"), "must be there");
    }
    length(path.field("controllerName"), &spec.controller_name, 253, out);
    if let Some(parameters) = &spec.parameters {
        let path = path.field("parameters");
        present(path.field("apiGroup"), &parameters.api_group, names::dns_subdomain, out);
        for (field, text) in [("kind", &parameters.kind), ("name", &parameters.name)] {
            if text.is_empty() {
                out.required(path.field(field), "must be there");
            }
            length(path.field(field), text, 63, out);
        }
    }
}

fn provisioning(spec: &kueue::ProvisioningRequestConfigSpec, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    present(path.field("provisioningClassName"), &spec.provisioning_class_name, names::dns_subdomain, out);
    out.at_most(path.field("parameters"), spec.parameters.len(), 100);
    for (key, value) in &spec.parameters {
        length(path.field("parameters").key(key), value, 255, out);
    }
    out.at_most(path.field("managedResources"), spec.managed_resources.len(), 100);
    let mut seen = BTreeSet::new();
    for (i, resource) in spec.managed_resources.iter().enumerate() {
        if !seen.insert(resource) {
            out.duplicate(path.field("managedResources").index(i), resource);
        }
    }
    let policies = &["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"];
    out.word(path.field("podSetMergePolicy"), spec.pod_set_merge_policy.as_deref(), policies);
    if let Some(updates) = &spec.pod_set_updates {
        let path = path.field("podSetUpdates");
        let path = path.field("nodeSelector");
        out.at_most(path, updates.node_selector.len(), 8);
        for (i, selector) in updates.node_selector.iter().enumerate() {
            present(path.index(i).field("key"), &selector.key, names::qualified, out);
        }
    }
}

fn workload(spec: &kueue::WorkloadSpec, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let sets = path.field("podSets");
    range(sets, spec.pod_sets.len(), 1, 18, out);
    let mut seen = BTreeSet::new();
    for (i, set) in spec.pod_sets.iter().enumerate() {
        let path = sets.index(i);
        out.name(path.field("name"), &set.name, names::dns_label);
        if !seen.insert(&set.name) {
            out.duplicate(path.field("name"), &set.name);
        }
        if set.count < 0 {
            out.invalid(path.field("count"), "must be 0 or more");
        }
        if let Some(fewest) = set.min_count {
            if fewest < 1 {
                out.invalid(path.field("minCount"), "must be 1 or more");
            }
            if fewest > set.count {
                out.invalid(path.field("minCount"), format!("must not be more than the {} pods of count", set.count));
            }
        }
    }
    if !spec.queue_name.is_empty() {
        out.name(path.field("queueName"), &spec.queue_name, names::dns_subdomain);
    }
    if spec.maximum_execution_time_seconds.is_some_and(|s| s < 1) {
        out.invalid(path.field("maximumExecutionTimeSeconds"), "must be 1 or more");
    }
    if let Some(class) = &spec.priority_class_ref {
        let path = path.field("priorityClassRef");
        out.word(path.field("group"), Some(&class.group), &["kueue.x-k8s.io", "scheduling.k8s.io"]);
        out.word(path.field("kind"), Some(&class.kind), &["WorkloadPriorityClass", "PriorityClass"]);
        present(path.field("name"), &class.name, names::dns_subdomain, out);
        if (class.group == kueue::GROUP) != (class.kind == "WorkloadPriorityClass") {
            out.invalid(path, "WorkloadPriorityClass is of kueue.x-k8s.io, PriorityClass of scheduling.k8s.io");
        }
    }
    if spec.priority_class_ref.is_some() && spec.priority.is_none() {
        out.required(path.field("priority"), "must be there together with priorityClassRef");
    }
    out.at_most(path.field("preemptionGates"), spec.preemption_gates.len(), 8);
}
