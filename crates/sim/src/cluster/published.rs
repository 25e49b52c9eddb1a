//! What the controller is told of node pools: a ConfigMap, as an admin of a real cluster would keep it.

use std::collections::BTreeMap;

use slicegate_api::nodepool::{NodePool, NodePoolAutoscaling};
use slicegate_api::{ConfigMap, Kind, Object, ObjectMeta, ObjectRef, extension};

use crate::defaults::annotation;
use crate::world::World;

/// Where the ConfigMap is.
const NAMESPACE: &str = "kube-system";
/// Its name.
const NAME: &str = "slicegate-node-pools";
/// The key of its data.
const KEY: &str = "node-pools.json";

/// The NodePool documents so far, and whether anybody wants to know them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    documents: BTreeMap<String, NodePool>,
    wanted: bool,
}

impl World {
    /// Remembers a NodePool document.
    pub(crate) fn note_node_pool(&mut self, document: &NodePool) {
        self.published.documents.insert(document.name.clone(), document.clone());
        self.publish_node_pools();
    }

    /// Remembers that the limits of a pool's autoscaling are others, in nodes over all of its zones.
    pub(crate) fn note_pool_limits(&mut self, name: &str, least: u32, most: u32) {
        let Some(document) = self.published.documents.get_mut(name) else { return };
        let count = |n: u32| Some(i32::try_from(n).unwrap_or(i32::MAX));
        document.autoscaling = Some(NodePoolAutoscaling {
            enabled: true,
            total_min_node_count: count(least),
            total_max_node_count: count(most),
            ..NodePoolAutoscaling::default()
        });
        self.publish_node_pools();
    }

    /// Node pools are published as soon as a ResourceFlavor asks for whole slices; until then nobody reads them.
    pub(crate) fn note_flavor(&mut self, flavor: &Object) {
        let asks = annotation(flavor.metadata(), extension::WHOLE_SLICES) == Some("true");
        if asks && !self.published.wanted {
            self.published.wanted = true;
            self.publish_node_pools();
        }
    }

    fn publish_node_pools(&mut self) {
        if !self.published.wanted || self.published.documents.is_empty() {
            return;
        }
        let documents: Vec<&NodePool> = self.published.documents.values().collect();
        let Ok(text) = serde_json::to_string(&documents) else { return };
        let metadata = ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some([(extension::NODE_POOLS.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let map: Object =
            ConfigMap { metadata, data: Some([(KEY.to_owned(), text)].into()), ..ConfigMap::default() }.into();
        if let Err(error) = self.store.apply(&map, map.clone()) {
            let key = ObjectRef::new(Kind::ConfigMap, NAMESPACE, NAME);
            self.warn(format!("{key} with the node pools could not be written: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::pool::Pool;
    use serde_json::json;

    /// The controller reads the same pools that are simulated.
    #[test]
    fn simulated_pools_are_what_the_controller_reads() {
        for document in [
            json!({"name": "a", "config": {"machineType": "ct5lp-hightpu-4t"}, "placementPolicy": {"tpuTopology": "2x4"},
                "autoscaling": {"enabled": true, "maxNodeCount": 2}}),
            json!({"name": "b", "config": {"machineType": "ct6e-standard-8t", "spot": true, "labels": {"x": "y"},
                "taints": [{"key": "t", "value": "v", "effect": "NO_EXECUTE"}]}, "locations": ["z-a", "z-b"],
                "autoscaling": {"enabled": true, "maxNodeCount": 3}}),
            json!({"name": "c", "config": {"machineType": "ct6e-standard-4t", "flexStart": true},
                "placementPolicy": {"tpuTopology": "4x4"}, "queuedProvisioning": {"enabled": true},
                "autoscaling": {"enabled": true, "totalMaxNodeCount": 4}}),
        ] {
            let document: NodePool = serde_json::from_value(document).unwrap();
            let read = slicegate_controller::node_pool(&document).unwrap().unwrap();
            let simulated = Pool::from_document(&document, &mut Vec::new());
            assert_eq!(read.labels, simulated.labels, "{}", document.name);
            let sorted = |mut taints: Vec<slicegate_workload::Taint>| {
                taints.sort_by(|a, b| a.key.cmp(&b.key));
                taints
            };
            assert_eq!(sorted(read.taints), sorted(simulated.taints), "{}", document.name);
            assert_eq!(read.max_nodes, simulated.autoscaling.map(|(_, most)| most));
            assert_eq!(read.shape.chips_per_host(), simulated.chips);
        }
    }
}
