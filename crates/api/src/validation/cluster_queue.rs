//! ClusterQueues and Cohorts, by their webhooks.

use std::collections::BTreeSet;

use slicegate_quota::Quantity;

use super::{FindingKind, Findings, Rules, labels, names};
use crate::path::Path;
use crate::{kueue, kueue::ResourceGroup};

/// The most flavors, and the most resources, of all groups together.
const MAX_TOTAL: usize = 256;
/// The most flavors times resources of one group.
const MAX_COMBINATIONS: usize = 512;

/// What differs between the two kinds.
struct Owner {
    /// Whether there is anybody to borrow from or lend to.
    has_parent: bool,
    /// What the parent is called.
    parent: &'static str,
    /// Whether it must own what it lends.
    lends_only_its_own: bool,
}

pub(super) fn cluster_queue(queue: &kueue::ClusterQueue, out: &mut Findings) {
    checked(queue, None, out);
}

/// A change of a ClusterQueue: it must be right as it is now, but for rules of checks that were wrong before and stay as they
/// are.
pub(super) fn cluster_queue_update(
    old: &kueue::ClusterQueue,
    new: &kueue::ClusterQueue,
    rules: &Rules,
    out: &mut Findings,
) {
    checked(new, Some(old).filter(|_| !rules.reject_invalid_on_flavors), out);
    if old.spec.concurrent_admission_policy != new.spec.concurrent_admission_policy {
        out.immutable(Path::ROOT.field("spec").field("concurrentAdmissionPolicy"));
    }
}

fn checked(queue: &kueue::ClusterQueue, old: Option<&kueue::ClusterQueue>, out: &mut Findings) {
    let spec = &queue.spec;
    let path = Path::ROOT.field("spec");
    let has_parent = spec.cohort_name.as_deref().is_some_and(|c| !c.is_empty());
    let owner = Owner { has_parent, parent: "cohortName", lends_only_its_own: true };
    resource_groups(path.field("resourceGroups"), &spec.resource_groups, &owner, out);
    if let Some(selector) = &spec.namespace_selector {
        labels::selector(path.field("namespaceSelector"), selector, out);
    }
    if let Some(cohort) = spec.cohort_name.as_deref().filter(|c| !c.is_empty()) {
        out.name(path.field("cohortName"), cohort, names::dns_subdomain);
    }
    if let Some(preemption) = &spec.preemption {
        let never = |p: Option<&str>| matches!(p, None | Some("" | "Never"));
        let borrow = preemption.borrow_within_cohort.as_ref().and_then(|b| b.policy.as_deref());
        if never(preemption.reclaim_within_cohort.as_deref()) && !never(borrow) {
            out.invalid(
                path.field("preemption"),
                "borrowWithinCohort can only preempt when reclaimWithinCohort is not Never",
            );
        }
    }
    if let Some(fungibility) = spec.flavor_fungibility.as_ref().filter(|f| f.preference.is_some()) {
        let next = |p: &Option<String>, default| p.as_deref().unwrap_or(default) == "TryNextFlavor";
        if !next(&fungibility.when_can_borrow, "MayStopSearch") || !next(&fungibility.when_can_preempt, "TryNextFlavor")
        {
            out.invalid(
                path.field("flavorFungibility").field("preference"),
                "needs both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
            );
        }
    }
    fair_sharing(path, spec.fair_sharing.as_ref(), out);
    admission_checks(path, spec, old.map(|o| &o.spec), out);
    concurrent_admission(path, spec, out);
}

pub(super) fn cohort(cohort: &kueue::Cohort, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let has_parent = cohort.spec.parent_name.as_deref().is_some_and(|p| !p.is_empty());
    let owner = Owner { has_parent, parent: "parentName", lends_only_its_own: false };
    if let Some(parent) = cohort.spec.parent_name.as_deref().filter(|p| !p.is_empty()) {
        out.name(path.field("parentName"), parent, names::dns_subdomain);
    }
    resource_groups(path.field("resourceGroups"), &cohort.spec.resource_groups, &owner, out);
    fair_sharing(path, cohort.spec.fair_sharing.as_ref(), out);
}

fn resource_groups(path: Path<'_>, groups: &[ResourceGroup], owner: &Owner, out: &mut Findings) {
    let totals = [
        ("flavors", groups.iter().map(|g| g.flavors.len()).sum::<usize>()),
        ("covered resources", groups.iter().map(|g| g.covered_resources.len()).sum()),
    ];
    for (what, total) in totals {
        if total > MAX_TOTAL {
            out.invalid(path, format!("all groups together have {total} {what}; at most {MAX_TOTAL} are allowed"));
        }
    }
    let mut resources = BTreeSet::new();
    let mut flavors = BTreeSet::new();
    for (i, group) in groups.iter().enumerate() {
        let path = path.index(i);
        let combinations = group.flavors.len().saturating_mul(group.covered_resources.len());
        if combinations > MAX_COMBINATIONS {
            out.invalid(
                path,
                format!("flavors times resources are {combinations}; at most {MAX_COMBINATIONS} are allowed"),
            );
        }
        for (j, resource) in group.covered_resources.iter().enumerate() {
            let path = path.field("coveredResources");
            let path = path.index(j);
            out.name(path, resource, names::qualified);
            if !resources.insert(resource) {
                out.duplicate(path, resource);
            }
        }
        let path = path.field("flavors");
        for (j, flavor) in group.flavors.iter().enumerate() {
            let path = path.index(j);
            out.name(path.field("name"), &flavor.name, names::dns_subdomain);
            if !flavors.insert(&flavor.name) {
                out.duplicate(path.field("name"), &flavor.name);
            }
            quotas(path, flavor, &group.covered_resources, owner, out);
        }
    }
}

fn quotas(path: Path<'_>, flavor: &kueue::FlavorQuotas, covered: &[String], owner: &Owner, out: &mut Findings) {
    let path = path.field("resources");
    for (i, (quota, expected)) in flavor.resources.iter().zip(covered).enumerate() {
        let path = path.index(i);
        if quota.name != *expected {
            out.invalid(path.field("name"), format!("coveredResources has {expected:?} in this place; keep its order"));
        }
        let nominal = amount(path.field("nominalQuota"), &quota.nominal_quota, out);
        let limits = [("borrowingLimit", &quota.borrowing_limit), ("lendingLimit", &quota.lending_limit)];
        for (field, limit) in limits {
            let Some(limit) = limit else { continue };
            let path = path.field(field);
            let value = amount(path, limit, out);
            if !owner.has_parent {
                out.invalid(path, format!("must not be there without {}", owner.parent));
            }
            if field == "lendingLimit"
                && owner.lends_only_its_own
                && let (Some(value), Some(nominal)) = (value, nominal)
                && value > nominal
            {
                out.invalid(path, "must not be more than nominalQuota");
            }
        }
    }
}

/// What cannot be read is reported elsewhere.
fn amount(path: Path<'_>, quantity: &crate::Quantity, out: &mut Findings) -> Option<Quantity> {
    let value: Quantity = quantity.0.parse().ok()?;
    if value.nanos() < 0 {
        out.invalid(path, "must be 0 or more");
    }
    Some(value)
}

/// A weight is nothing or more than a billionth.
pub(super) fn fair_sharing(path: Path<'_>, sharing: Option<&kueue::FairSharing>, out: &mut Findings) {
    let Some(Ok(weight)) = sharing.and_then(|s| s.weight.as_ref()).map(|w| w.0.parse::<Quantity>()) else { return };
    let path = path.field("fairSharing");
    let path = path.field("weight");
    if weight.nanos() < 0 {
        out.invalid(path, "must be 0 or more");
    } else if weight.nanos() == 1 {
        out.invalid(path, "must be 0 or more than 1n");
    }
}

fn flavors(spec: &kueue::ClusterQueueSpec) -> Vec<&str> {
    spec.resource_groups.iter().flat_map(|g| &g.flavors).map(|f| f.name.as_str()).collect()
}

fn admission_checks(
    path: Path<'_>,
    spec: &kueue::ClusterQueueSpec,
    old: Option<&kueue::ClusterQueueSpec>,
    out: &mut Findings,
) {
    let Some(strategy) = &spec.admission_checks_strategy else { return };
    let flavors = flavors(spec);
    let before = old.filter(|o| self::flavors(o) == flavors).and_then(|o| o.admission_checks_strategy.as_ref());
    let path = path.field("admissionChecksStrategy");
    let path = path.field("admissionChecks");
    for (i, rule) in strategy.admission_checks.iter().enumerate() {
        if before.is_some_and(|b| b.admission_checks.contains(rule)) {
            continue;
        }
        let path = path.index(i);
        let path = path.field("onFlavors");
        for (j, flavor) in rule.on_flavors.iter().enumerate() {
            if !flavors.contains(&flavor.as_str()) {
                let detail = format!("{flavor:?} is no flavor of this ClusterQueue; it has {}", list(&flavors));
                out.add(path.index(j), FindingKind::NotSupported, detail);
            }
        }
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn concurrent_admission(path: Path<'_>, spec: &kueue::ClusterQueueSpec, out: &mut Findings) {
    let Some(policy) = &spec.concurrent_admission_policy else { return };
    let groups = path.field("resourceGroups");
    if spec.queueing_strategy.as_deref() == Some("StrictFIFO") {
        out.invalid(path.field("queueingStrategy"), "cannot be StrictFIFO together with concurrentAdmissionPolicy");
    }
    match spec.resource_groups.as_slice() {
        [group] if group.flavors.len() > 16 => {
            out.invalid(
                groups.index(0).field("flavors"),
                "has more than the 16 flavors that concurrentAdmissionPolicy allows",
            );
        }
        [_] => {}
        _ => out.invalid(groups, "must be exactly one group together with concurrentAdmissionPolicy"),
    }
    let Some(constraints) = &policy.migration.constraints else { return };
    let path = path.field("concurrentAdmissionPolicy");
    let path = path.field("migration");
    let path = path.field("constraints");
    if !matches!(policy.migration.mode.as_str(), "" | "TryPreferredFlavors") {
        out.forbidden(path, "may only be there when mode is TryPreferredFlavors");
    }
    if let Some(last) = constraints.last_acceptable_flavor_name.as_deref() {
        let flavors: Vec<&str> =
            spec.resource_groups.iter().flat_map(|g| &g.flavors).map(|f| f.name.as_str()).collect();
        if !flavors.contains(&last) {
            out.invalid(
                path.field("lastAcceptableFlavorName"),
                format!("{last:?} is no flavor of this ClusterQueue; it has {}", list(&flavors)),
            );
        }
    }
}
