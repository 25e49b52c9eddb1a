//! A quota forest, flavors and names out of a case's objects.

use std::collections::BTreeMap;

use serde_json::Value;
use slicegate_flavor::FlavorTable;
use slicegate_quota::{Forest, Names, NodeId};
use slicegate_tests::objects;
use slicegate_workload::ClusterQueueSpec;

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
            forest.set_cohort(&spec.name, spec.node_quota(&mut names));
        }
        for object in objects::of_kind(all, "ClusterQueue") {
            let spec = objects::cluster_queue(object).map_err(|e| e.to_string())?;
            let node = forest.set_cluster_queue(&spec.name, spec.node_quota(&mut names));
            queues.insert(spec.name.clone(), (node, spec));
        }
        Ok(Self { names, forest, flavors, queues })
    }

    pub(crate) fn queue(&self, name: &str) -> Result<&(NodeId, ClusterQueueSpec), String> {
        self.queues.get(name).ok_or_else(|| format!("no ClusterQueue {name}"))
    }
}
