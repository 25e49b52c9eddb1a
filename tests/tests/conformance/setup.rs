//! A quota forest, flavors and names out of a case's objects.

use std::collections::BTreeMap;

use serde_json::Value;
use slicegate_flavor::FlavorTable;
use slicegate_quota::{Amount, Forest, Limits, Names, NodeId, NodeQuota, Weight};
use slicegate_tests::objects;
use slicegate_workload::{ClusterQueueSpec, ResourceGroup};

/// What a case is about.
pub(crate) struct Setup {
    pub(crate) names: Names,
    pub(crate) forest: Forest,
    pub(crate) flavors: FlavorTable,
    pub(crate) queues: BTreeMap<Box<str>, (NodeId, ClusterQueueSpec)>,
}

impl Setup {
    pub(crate) fn new(all: &Value) -> Result<Self, String> {
        let mut names = Names::new();
        let mut forest = Forest::new();
        let mut flavors = FlavorTable::new();
        let mut queues = BTreeMap::new();
        for object in objects::of_kind(all, "ResourceFlavor") {
            let flavor = objects::flavor(object).map_err(|e| e.to_string())?;
            let id = names.intern_flavor(&flavor.name);
            flavors.set(id, flavor);
        }
        for object in objects::of_kind(all, "Cohort") {
            let spec = objects::cohort(object).map_err(|e| e.to_string())?;
            let quota = node_quota(&spec.resource_groups, spec.parent.as_deref(), spec.fair_weight, &mut names);
            forest.set_cohort(&spec.name, quota);
        }
        for object in objects::of_kind(all, "ClusterQueue") {
            let spec = objects::cluster_queue(object).map_err(|e| e.to_string())?;
            let quota = node_quota(&spec.resource_groups, spec.cohort.as_deref(), spec.fair_weight, &mut names);
            let node = forest.set_cluster_queue(&spec.name, quota);
            queues.insert(spec.name.clone(), (node, spec));
        }
        Ok(Self { names, forest, flavors, queues })
    }

    pub(crate) fn queue(&self, name: &str) -> Result<&(NodeId, ClusterQueueSpec), String> {
        self.queues.get(name).ok_or_else(|| format!("no ClusterQueue {name}"))
    }
}

fn node_quota(groups: &[ResourceGroup], parent: Option<&str>, weight: Weight, names: &mut Names) -> NodeQuota {
    let mut quota = NodeQuota { parent: parent.map(Into::into), weight, ..NodeQuota::default() };
    for group in groups {
        for flavor in &group.flavors {
            for (resource, amounts) in &flavor.resources {
                let amount = |q| Amount::from_quantity(resource, q);
                let limits = Limits {
                    nominal: amount(amounts.nominal),
                    borrowing: amounts.borrowing_limit.map(amount),
                    lending: amounts.lending_limit.map(amount),
                };
                quota.limits.insert(names.intern(&flavor.name, resource), limits);
            }
        }
    }
    quota
}
