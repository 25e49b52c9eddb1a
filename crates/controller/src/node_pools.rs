//! Node pools, read from ConfigMaps: with them, slices count that are not there but can be provisioned.

use std::collections::BTreeMap;

use slicegate_admission::NodePool;
use slicegate_api::nodepool::{self, NodeTaint};
use slicegate_api::{ConfigMap, ObjectMeta, ObjectRef, extension};
use slicegate_tpu::{MachineType, SliceShape, label, node_labels, taint};
use slicegate_workload::{Labels, Taint, TaintEffect, Timestamp};

use crate::controller::{Controller, event};
use crate::io::EventType;

/// What was read from ConfigMaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePools {
    maps: BTreeMap<ObjectRef, Map>,
}

/// A ConfigMap that was seen, pools or not.
#[derive(Clone, Debug, Default)]
struct Map {
    version: u64,
    pools: BTreeMap<Box<str>, NodePool>,
}

/// Why a node pool cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NodePoolError {
    /// The text is no NodePool, and no list of them.
    #[error("data[{key}] is no NodePool and no list of NodePools in JSON: {why}")]
    Json {
        /// The key in the ConfigMap's data.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// Machine type and topology make no slice.
    #[error("node pool {name}: {why}")]
    Slice {
        /// The pool.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}

/// The TPU node pool that a NodePool document describes; `None` if its machines have no TPUs.
///
/// Labels and taints are those that GKE gives to its nodes, with those of the document. The most nodes are the upper limit of its
/// autoscaling over all of its zones; a pool without autoscaling does not grow.
///
/// # Errors
/// If the machine type does not make such slices.
pub fn node_pool(document: &nodepool::NodePool) -> Result<Option<NodePool>, NodePoolError> {
    let Ok(machine) = document.config.machine_type.parse::<MachineType>() else { return Ok(None) };
    let topology = document.placement_policy.as_ref().and_then(|p| p.tpu_topology.as_deref());
    let shape = match (topology, machine.single_host_topology()) {
        (Some(topology), _) => SliceShape::parse(machine.name(), topology),
        (None, Some(topology)) => SliceShape::new(machine, topology),
        (None, None) => {
            let why =
                format!("{machine} makes slices of several hosts only; name one with placementPolicy.tpuTopology");
            return Err(NodePoolError::Slice { name: document.name.clone(), why });
        }
    };
    let shape = shape.map_err(|e| NodePoolError::Slice { name: document.name.clone(), why: e.to_string() })?;
    let mut labels: Labels =
        node_labels(shape, &document.name).map(|(key, value)| (key.into(), value.into())).collect();
    let mut taints = vec![no_schedule(&taint::TPU)];
    labels.extend(document.config.labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
    taints.extend(document.config.taints.iter().map(read_taint));
    let mut mark = |key: &str, value: &str| labels.insert(key.into(), value.into());
    if document.config.flex_start == Some(true) {
        mark(label::FLEX_START, "true");
        mark(label::PROVISIONING, "flex-start");
    } else if document.config.spot == Some(true) {
        mark(label::SPOT, "true");
        mark(label::PROVISIONING, "spot");
        taints.push(no_schedule(&taint::SPOT));
    } else {
        mark(label::PROVISIONING, "standard");
    }
    if document.queued_provisioning.as_ref().is_some_and(|q| q.enabled) {
        mark(label::QUEUED, "true");
        taints.push(no_schedule(&taint::QUEUED));
    }
    Ok(Some(NodePool { name: document.name.as_str().into(), shape, labels, taints, max_nodes: max_nodes(document) }))
}

fn max_nodes(document: &nodepool::NodePool) -> Option<u32> {
    let limits = document.autoscaling.as_ref().filter(|a| a.enabled)?;
    let count = |n: i32| u32::try_from(n).unwrap_or(0);
    let zones = u32::try_from(document.locations.len()).unwrap_or(u32::MAX).max(1);
    let most = limits.total_max_node_count.map(count);
    // GKE's own limit where none is set.
    Some(most.unwrap_or_else(|| limits.max_node_count.map_or(1_000, |n| count(n).saturating_mul(zones))))
}

fn no_schedule(taint: &slicegate_tpu::Taint) -> Taint {
    Taint { key: taint.key.into(), value: taint.value.into(), effect: TaintEffect::NoSchedule }
}

fn read_taint(taint: &NodeTaint) -> Taint {
    let effect = match taint.effect.as_str() {
        "PREFER_NO_SCHEDULE" | "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NO_EXECUTE" | "NoExecute" => TaintEffect::NoExecute,
        _ => TaintEffect::NoSchedule,
    };
    Taint { key: taint.key.as_str().into(), value: taint.value.as_str().into(), effect }
}

fn is_marked(meta: &ObjectMeta) -> bool {
    meta.labels.iter().flatten().any(|(key, value)| key == extension::NODE_POOLS && value == "true")
}

/// The pools of a ConfigMap, and what of it could not be read.
fn read(map: &ConfigMap) -> (BTreeMap<Box<str>, NodePool>, Vec<NodePoolError>) {
    let mut pools = BTreeMap::new();
    let mut errors = Vec::new();
    for (key, text) in map.data.iter().flatten() {
        let documents = if text.trim_start().starts_with('[') {
            serde_json::from_str::<Vec<nodepool::NodePool>>(text)
        } else {
            serde_json::from_str::<nodepool::NodePool>(text).map(|document| vec![document])
        };
        match documents {
            Ok(documents) => {
                for document in documents {
                    match node_pool(&document) {
                        Ok(Some(pool)) => _ = pools.insert(pool.name.clone(), pool),
                        Ok(None) => {}
                        Err(error) => errors.push(error),
                    }
                }
            }
            Err(why) => errors.push(NodePoolError::Json { key: key.clone(), why: why.to_string() }),
        }
    }
    (pools, errors)
}

impl Controller {
    /// Takes in a ConfigMap, which may hold node pools, or that it is gone.
    pub(crate) fn observe_config_map(&mut self, now: Timestamp, map: &ConfigMap, gone: bool) {
        let meta = &map.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let reference =
            ObjectRef::new(slicegate_api::Kind::ConfigMap, meta.namespace.as_deref().unwrap_or_default(), name);
        let is_marked = is_marked(meta);
        if !is_marked && !self.node_pools.maps.contains_key(&reference) {
            return;
        }
        let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
        let known = self.node_pools.maps.entry(reference.clone()).or_default();
        if version < known.version {
            return;
        }
        let (pools, errors) = if gone || !is_marked { (BTreeMap::new(), Vec::new()) } else { read(map) };
        for error in errors {
            self.out.events.push(event(&reference, EventType::Warning, "Invalid", error.to_string()));
        }
        known.version = version;
        let before = std::mem::replace(&mut known.pools, pools.clone());
        if before == pools {
            return;
        }
        // Should two ConfigMaps describe one pool, the last of them by name counts.
        let described = |name: &str| self.node_pools.maps.values().filter_map(|m| m.pools.get(name)).next_back();
        for name in before.keys().chain(pools.keys()) {
            match described(name).cloned() {
                Some(pool) => self.engine.set_node_pool(now, pool),
                None => self.engine.remove_node_pool(now, name),
            }
        }
        self.touched = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(value: serde_json::Value) -> nodepool::NodePool {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pool_has_the_labels_and_taints_of_gke() {
        let pool = node_pool(&document(json!({
            "name": "dws", "config": {"machineType": "ct6e-standard-4t", "flexStart": true, "labels": {"team": "red"}},
            "placementPolicy": {"tpuTopology": "4x4"}, "queuedProvisioning": {"enabled": true},
            "autoscaling": {"enabled": true, "maxNodeCount": 4}
        })));
        let pool = pool.unwrap().unwrap();
        let get = |key: &str| pool.labels.get(key).map(|v| &**v);
        assert_eq!(get("cloud.google.com/gke-nodepool"), Some("dws"));
        assert_eq!(get("cloud.google.com/gke-tpu-topology"), Some("4x4"));
        assert_eq!(get("cloud.google.com/gke-queued"), Some("true"));
        assert_eq!(get("cloud.google.com/gke-provisioning"), Some("flex-start"));
        assert_eq!(get("team"), Some("red"));
        let taints: Vec<&str> = pool.taints.iter().map(|t| &*t.key).collect();
        assert_eq!(taints, ["google.com/tpu", "cloud.google.com/gke-queued"]);
        assert_eq!((pool.max_nodes, pool.shape.hosts()), (Some(4), 4));
    }

    #[test]
    fn limits_are_of_all_zones() {
        let size = |autoscaling: serde_json::Value| {
            max_nodes(&document(json!({"name": "p", "locations": ["a", "b"], "autoscaling": autoscaling})))
        };
        assert_eq!(size(json!({"enabled": true, "maxNodeCount": 3})), Some(6));
        assert_eq!(size(json!({"enabled": true, "maxNodeCount": 3, "totalMaxNodeCount": 4})), Some(4));
        assert_eq!(size(json!({"enabled": true})), Some(1_000));
        assert_eq!(size(json!({"enabled": false, "maxNodeCount": 3})), None);
    }

    #[test]
    fn what_is_no_slice_is_said() {
        let error = |config: serde_json::Value, policy: serde_json::Value| {
            node_pool(&document(json!({"name": "p", "config": config, "placementPolicy": policy}))).unwrap_err()
        };
        assert_eq!(
            error(json!({"machineType": "ct5lp-hightpu-4t"}), json!({"tpuTopology": "4x6"})).to_string(),
            "node pool p: 4x6 is not a v5e topology; did you mean 4x8?"
        );
        assert_eq!(
            error(json!({"machineType": "ct3p-hightpu-4t"}), json!({})).to_string(),
            "node pool p: ct3p-hightpu-4t makes slices of several hosts only; name one with placementPolicy.tpuTopology"
        );
        let cpu = document(json!({"name": "p", "config": {"machineType": "n2-standard-16"}}));
        assert_eq!(node_pool(&cpu).unwrap(), None);
    }

    #[test]
    fn one_or_many_pools_are_read_from_a_map() {
        let text = |value: serde_json::Value| value.to_string();
        let one = json!({"name": "a", "config": {"machineType": "ct6e-standard-8t"}});
        let many = json!([{"name": "b", "config": {"machineType": "ct6e-standard-1t"}}, {"name": "cpu"}]);
        let data = [("one", text(one)), ("many", text(many)), ("bad", "{".to_owned())];
        let map = ConfigMap {
            data: Some(data.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ..ConfigMap::default()
        };
        let (pools, errors) = read(&map);
        assert_eq!(pools.keys().map(|k| &**k).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().starts_with("data[bad] is no NodePool and no list of NodePools in JSON: "));
    }
}
