//! Whether a ClusterQueue admits workloads.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_flavor::FlavorTable;
use slicegate_quota::Names;
use slicegate_workload::{ClusterQueueSpec, StopPolicy, TopologySpec};

use super::CheckSpec;
use crate::{Activity, InactiveReason};

/// The controller of MultiKueue checks.
pub(super) const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";
/// The controller of provisioning checks.
pub(super) const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

/// What the activity of ClusterQueues depends on.
pub(super) struct Facts<'a> {
    pub(super) names: &'a Names,
    pub(super) flavors: &'a FlavorTable,
    pub(super) checks: &'a BTreeMap<Box<str>, CheckSpec>,
    pub(super) topologies: &'a BTreeMap<Box<str>, TopologySpec>,
    pub(super) topology_aware: bool,
}

/// Everything that keeps a ClusterQueue from admitting; nothing if it admits.
pub(super) fn inactive(spec: &ClusterQueueSpec, facts: &Facts<'_>) -> Vec<InactiveReason> {
    if spec.deleting {
        return vec![InactiveReason::Terminating];
    }
    let mut reasons = Vec::new();
    if spec.stop_policy != StopPolicy::None {
        reasons.push(InactiveReason::Stopped);
    }
    if let Some(why) = &spec.invalid {
        reasons.push(InactiveReason::Invalid(why.clone()));
    }
    let flavors: BTreeSet<&str> = spec.resource_groups.iter().flat_map(|g| &g.flavors).map(|f| &*f.name).collect();
    let exists = |name: &str| facts.names.flavor(name).and_then(|id| facts.flavors.get(id));
    // In the order in which the spec names them, each once.
    let mut missing: Vec<Box<str>> = Vec::new();
    for flavor in spec.resource_groups.iter().flat_map(|g| &g.flavors) {
        if exists(&flavor.name).is_none() && !missing.contains(&flavor.name) {
            missing.push(flavor.name.clone());
        }
    }
    if !missing.is_empty() {
        reasons.push(InactiveReason::FlavorNotFound(missing));
    }

    let mut checks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for rule in &spec.admission_checks {
        let on = checks.entry(&rule.name).or_default();
        on.extend(rule.on_flavors.iter().map(|f| &**f));
        if rule.on_flavors.is_empty() {
            on.extend(&flavors);
        }
    }
    let (mut not_found, mut not_active): (Vec<Box<str>>, Vec<Box<str>>) = (Vec::new(), Vec::new());
    let (mut multi, mut per_flavor): (Vec<Box<str>>, Vec<Box<str>>) = (Vec::new(), Vec::new());
    let mut provisioning: Vec<Box<str>> = Vec::new();
    for (&name, on) in &checks {
        let Some(check) = facts.checks.get(name) else {
            not_found.push(name.into());
            continue;
        };
        if !check.active {
            not_active.push(name.into());
        }
        if &*check.controller == MULTI_KUEUE {
            multi.push(name.into());
            if *on != flavors {
                per_flavor.push(name.into());
            }
        }
        if &*check.controller == PROVISIONING {
            provisioning.push(name.into());
        }
    }
    if !not_found.is_empty() {
        reasons.push(InactiveReason::AdmissionCheckNotFound(not_found));
    }
    if !not_active.is_empty() {
        reasons.push(InactiveReason::AdmissionCheckInactive(not_active));
    }
    let has_multi = !multi.is_empty();
    if multi.len() > 1 {
        reasons.push(InactiveReason::MultipleMultiKueueAdmissionChecks(multi.clone()));
    }
    if !per_flavor.is_empty() {
        reasons.push(InactiveReason::MultiKueueAdmissionCheckAppliedPerFlavor(per_flavor));
    }
    if let Some(first) = multi.first()
        && !provisioning.is_empty()
    {
        reasons.push(InactiveReason::MultiKueueWithProvisioningRequest(first.clone(), provisioning));
    }
    if facts.topology_aware && !has_multi {
        let lost = flavors.iter().filter_map(|name| exists(name)).find_map(|flavor| {
            let topology = flavor.topology.as_ref()?;
            (!facts.topologies.contains_key(topology)).then(|| (topology.clone(), flavor.name.clone()))
        });
        if let Some((topology, flavor)) = lost {
            reasons.push(InactiveReason::TopologyNotFound(topology, flavor));
        }
    }
    reasons
}

/// The condition `Active` of a ClusterQueue.
pub(super) fn activity(reasons: &[InactiveReason]) -> Activity {
    let Some(first) = reasons.first() else {
        return Activity { active: true, reason: "Ready", message: "Can admit new workloads".into() };
    };
    if *first == InactiveReason::Terminating {
        return Activity {
            active: false,
            reason: "Terminating",
            message: "Can't admit new workloads; clusterQueue is terminating".into(),
        };
    }
    let texts: Vec<String> = reasons.iter().map(text).collect();
    Activity {
        active: false,
        reason: word(first),
        message: format!("Can't admit new workloads: {}.", texts.join(", ")).into(),
    }
}

/// The same of one that is in or below a cycle of Cohorts.
pub(super) fn cyclic() -> Activity {
    let message = "Can't admit new workloads: is in or below a cycle of Cohorts.".into();
    Activity { active: false, reason: "CohortCycle", message }
}

fn word(reason: &InactiveReason) -> &'static str {
    match reason {
        InactiveReason::Terminating => "Terminating",
        InactiveReason::Stopped => "Stopped",
        InactiveReason::Invalid(_) => "Invalid",
        InactiveReason::FlavorNotFound(_) => "FlavorNotFound",
        InactiveReason::AdmissionCheckNotFound(_) => "AdmissionCheckNotFound",
        InactiveReason::AdmissionCheckInactive(_) => "AdmissionCheckInactive",
        InactiveReason::MultipleMultiKueueAdmissionChecks(_) => "MultipleMultiKueueAdmissionChecks",
        InactiveReason::MultiKueueAdmissionCheckAppliedPerFlavor(_) => "MultiKueueAdmissionCheckAppliedPerFlavor",
        InactiveReason::MultiKueueWithProvisioningRequest(..) => "MultiKueueWithProvisioningRequest",
        InactiveReason::TopologyNotFound(..) => "TopologyNotFound",
    }
}

fn text(reason: &InactiveReason) -> String {
    match reason {
        InactiveReason::Terminating => "is terminating".to_owned(),
        InactiveReason::Stopped => "is stopped".to_owned(),
        InactiveReason::Invalid(why) => why.to_string(),
        InactiveReason::FlavorNotFound(names) => format!("references missing ResourceFlavor(s): {}", names.join(",")),
        InactiveReason::AdmissionCheckNotFound(names) => {
            format!("references missing AdmissionCheck(s): {}", names.join(","))
        }
        InactiveReason::AdmissionCheckInactive(names) => {
            format!("references inactive AdmissionCheck(s): {}", names.join(","))
        }
        InactiveReason::MultipleMultiKueueAdmissionChecks(names) => format!(
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
            names.join(",")
        ),
        InactiveReason::MultiKueueAdmissionCheckAppliedPerFlavor(names) => {
            format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {}", names.join(","))
        }
        InactiveReason::MultiKueueWithProvisioningRequest(multi, provisioning) => {
            format!(
                "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {multi}, {}",
                provisioning.join(", ")
            )
        }
        InactiveReason::TopologyNotFound(topology, flavor) => {
            format!("there is no Topology \"{topology}\" for TAS flavor \"{flavor}\"")
        }
    }
}
