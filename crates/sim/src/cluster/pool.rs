//! Node pools: GKE's rules for sizes, labels and taints.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::nodepool::NodePool;
use slicegate_api::{Node, convert};
use slicegate_tpu::{MachineType, SliceShape, label, taint};
use slicegate_workload::{Labels, ResourceList, Taint, TaintEffect, first_untolerated};

use super::NodeId;
use super::machine::{Machine, machine};
use super::shape::Shape;
use crate::defaults::TPU;

/// Where a pool came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// A document.
    Given,
    /// Made from what pods select, as Autopilot does.
    Made,
    /// A single Node object of a document.
    Node,
}

/// How a pool grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Growth {
    /// Node by node.
    ByNode,
    /// All nodes or none: one multi-host slice.
    Whole {
        /// Its nodes.
        hosts: u32,
    },
}

/// A pool and its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: Box<str>,
    pub(crate) origin: Origin,
    pub(crate) growth: Growth,
    /// Labels of every node, but for the host name.
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: ResourceList,
    /// Chips on each node.
    pub(crate) chips: u32,
    /// The slice that the pool, or each of its nodes, is.
    pub(crate) slice: Option<SliceShape>,
    /// Whether its size follows demand, and within which bounds.
    pub(crate) autoscaling: Option<(u32, u32)>,
    /// Whether it serves ProvisioningRequests only.
    pub(crate) queued: bool,
    pub(crate) initial: u32,
    pub(crate) zones: Vec<String>,
    pub(crate) nodes: BTreeSet<NodeId>,
    /// Nodes on their way, by the number of the scale-up.
    pub(crate) upcoming: BTreeMap<u64, u32>,
    /// Nodes without a pod that uses chips.
    pub(crate) free: BTreeSet<NodeId>,
    /// How many nodes it has had, for their names.
    pub(crate) made: u64,
    /// The ProvisioningRequest that holds it.
    pub(crate) booked: Option<slicegate_api::ObjectRef>,
    /// How often its nodes came and went without a single pod, the last times in a row.
    pub(crate) fruitless: u32,
    /// Whether it has had a pod since it grew.
    pub(crate) used: bool,
    /// Nodes under repair, by the number under which they are on their way.
    pub(crate) in_repair: BTreeMap<u64, Vec<Node>>,
    /// Whether its slice is broken for good.
    pub(crate) out_of_order: bool,
}

/// Something about a pool that had to be taken otherwise than written.
pub(crate) type Remark = String;

/// Whether nodes of one pool may differ in a label: it is then looked for on the nodes.
pub(crate) fn is_of_node(key: &str) -> bool {
    const KEYS: [&str; 4] = [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        label::PROVISIONING_REQUEST,
    ];
    const STARTS: [&str; 3] =
        ["cloud.google.com/gke-tpu-partition-", "cloud.google.com/gke-tpu-slice", "cloud.google.com/gce-topology-"];
    KEYS.contains(&key) || STARTS.iter().any(|start| key.starts_with(start))
}

fn count(value: Option<i32>) -> Option<u32> {
    value.map(|n| u32::try_from(n).unwrap_or(0))
}

fn insert(labels: &mut Labels, key: &str, value: &str) {
    labels.insert(key.into(), value.into());
}

fn of_tpu(taint: slicegate_tpu::Taint) -> Taint {
    Taint { key: taint.key.into(), value: taint.value.into(), effect: TaintEffect::NoSchedule }
}

impl Pool {
    /// The pool that a NodePool document describes.
    pub(crate) fn from_document(document: &NodePool, remarks: &mut Vec<Remark>) -> Self {
        let name = document.name.as_str();
        let config = &document.config;
        let topology = document.placement_policy.as_ref().and_then(|p| p.tpu_topology.as_deref());
        let size = machine(&config.machine_type).unwrap_or_else(|error| {
            remarks.push(format!("NodePool {name}: {error}"));
            Machine::FALLBACK
        });
        let mut pool = Self::empty(name, Origin::Given, size);
        if let Ok(tpu) = config.machine_type.parse::<MachineType>() {
            let slice = match topology {
                Some(topology) => match SliceShape::parse(&config.machine_type, topology) {
                    Ok(slice) => Some(slice),
                    Err(error) => {
                        remarks.push(format!("NodePool {name}: {error}"));
                        None
                    }
                },
                None => tpu.single_host_topology().and_then(|topology| SliceShape::new(tpu, topology).ok()),
            };
            pool.make_tpu(tpu, slice, topology);
        }
        for (key, value) in &config.labels {
            insert(&mut pool.labels, key, value);
        }
        for taint in &config.taints {
            let effect = match taint.effect.as_str() {
                "PREFER_NO_SCHEDULE" | "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
                "NO_EXECUTE" | "NoExecute" => TaintEffect::NoExecute,
                _ => TaintEffect::NoSchedule,
            };
            pool.taints.push(Taint { key: taint.key.as_str().into(), value: taint.value.as_str().into(), effect });
        }
        pool.place_cube();
        pool.queued = document.queued_provisioning.as_ref().is_some_and(|q| q.enabled);
        let (flex, spot) = (config.flex_start == Some(true), config.spot == Some(true));
        pool.mark(flex, spot);
        if !document.locations.is_empty() {
            pool.zones.clone_from(&document.locations);
        }
        let zones = u32::try_from(pool.zones.len()).unwrap_or(u32::MAX).max(1);
        pool.initial = count(document.initial_node_count).unwrap_or(0).saturating_mul(zones);
        if let Some(limits) = document.autoscaling.as_ref().filter(|a| a.enabled) {
            let low = count(limits.total_min_node_count)
                .unwrap_or_else(|| count(limits.min_node_count).unwrap_or(0).saturating_mul(zones));
            let high = count(limits.total_max_node_count)
                .unwrap_or_else(|| count(limits.max_node_count).map_or(1_000, |n| n.saturating_mul(zones)));
            pool.autoscaling = Some((low, high));
        }
        if let Growth::Whole { hosts } = pool.growth {
            if pool.initial != 0 && pool.initial != hosts {
                remarks.push(format!(
                    "NodePool {name}: a slice of {} has {hosts} nodes, so the pool has {hosts} or none, not {}; it starts with {hosts}",
                    topology.unwrap_or_default(),
                    pool.initial
                ));
                pool.initial = hosts;
            }
            if let Some((_, high)) = pool.autoscaling
                && high < hosts
            {
                remarks.push(format!(
                    "NodePool {name}: at most {high} nodes are allowed, but the slice needs {hosts}: it can never grow; \
                     set maxNodeCount to {hosts}"
                ));
            }
        }
        pool
    }

    fn empty(name: &str, origin: Origin, size: Machine) -> Self {
        let mut labels = Labels::new();
        insert(&mut labels, label::NODE_POOL, name);
        Self {
            name: name.into(),
            origin,
            growth: Growth::ByNode,
            labels,
            taints: Vec::new(),
            allocatable: size.allocatable(),
            chips: size.chips,
            slice: None,
            autoscaling: None,
            queued: false,
            initial: 0,
            zones: vec!["us-central1-a".to_owned()],
            nodes: BTreeSet::new(),
            upcoming: BTreeMap::new(),
            free: BTreeSet::new(),
            made: 0,
            booked: None,
            fruitless: 0,
            used: false,
            in_repair: BTreeMap::new(),
            out_of_order: false,
        }
    }

    fn make_tpu(&mut self, machine: MachineType, slice: Option<SliceShape>, topology: Option<&str>) {
        insert(&mut self.labels, label::ACCELERATOR, machine.accelerator().label());
        let chips = machine.chips();
        insert(&mut self.labels, label::ACCELERATOR_COUNT, &chips.to_string());
        let shown = slice.map(|slice| slice.topology().to_string());
        if let Some(topology) = shown.as_deref().or(topology) {
            insert(&mut self.labels, label::TOPOLOGY, topology);
        }
        self.taints.push(of_tpu(taint::TPU));
        self.slice = slice;
        let hosts = slice.map_or(1, SliceShape::hosts);
        if hosts > 1 {
            self.growth = Growth::Whole { hosts };
        }
    }

    fn mark(&mut self, flex: bool, spot: bool) {
        let how = if flex {
            insert(&mut self.labels, label::FLEX_START, "true");
            "flex-start"
        } else if spot {
            insert(&mut self.labels, label::SPOT, "true");
            self.taints.push(of_tpu(taint::SPOT));
            "spot"
        } else {
            "standard"
        };
        insert(&mut self.labels, label::PROVISIONING, how);
        if self.queued {
            insert(&mut self.labels, label::QUEUED, "true");
            self.taints.push(of_tpu(taint::QUEUED));
        }
    }

    /// A single Node of a document.
    pub(crate) fn from_node_object(node: &Node) -> Self {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let labels = node.metadata.labels.iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref()));
        let allocatable = allocatable.and_then(|list| convert::resource_list(list).ok()).unwrap_or_default();
        Self::from_node(name, labels, super::shape::taints(node), allocatable)
    }

    fn from_node(name: &str, labels: Labels, taints: Vec<Taint>, allocatable: ResourceList) -> Self {
        let chips = allocatable.get(TPU).map_or(0, |q| u32::try_from(q.value()).unwrap_or(0));
        Self { labels, taints, allocatable, chips, initial: 1, ..Self::empty(name, Origin::Node, Machine::FALLBACK) }
    }

    /// A pool made for pods of this shape, as Autopilot makes them; `None` if no machine serves them.
    pub(crate) fn for_shape(name: &str, shape: &Shape, queued: bool) -> Option<Self> {
        let chips = shape.request(TPU).value();
        let mut pool = if chips > 0 {
            let get = |key: &str| shape.selector.get(key).map(|value| &**value);
            let chips = u32::try_from(chips).ok()?;
            let slice = SliceShape::from_selector(get(label::ACCELERATOR)?, get(label::TOPOLOGY)?, Some(chips)).ok()?;
            let machine = slice.machine_type();
            let size = super::machine::machine(machine.name()).ok()?;
            let mut pool = Self::empty(name, Origin::Made, size);
            pool.make_tpu(machine, Some(slice), None);
            pool
        } else {
            Self::empty(name, Origin::Made, Machine { cpus: 16, memory_mib: 64 * 1024, chips: 0 })
        };
        pool.queued = queued;
        pool.mark(queued, false);
        for (key, value) in &shape.selector {
            if !key.starts_with("kubernetes.io/") {
                pool.labels.insert(key.clone(), value.clone());
            }
        }
        let most = match pool.growth {
            Growth::Whole { hosts } => hosts,
            Growth::ByNode => 1_000,
        };
        pool.autoscaling = Some((0, most));
        pool.matches(shape).then_some(pool).filter(|pool| pool.could_hold(shape))
    }

    /// Whether nodes of the pool may differ in a label. The slices of cubes come and go, and with them the topology.
    fn differs_by_node(&self, key: &str) -> bool {
        is_of_node(key) || key == label::TOPOLOGY && self.is_cube()
    }

    /// Whether its nodes have the labels that pods of this shape select; those that differ from node to node may be any.
    pub(crate) fn has_labels(&self, shape: &Shape) -> bool {
        let of_pool = self.origin == Origin::Node;
        let own = |key: &str| !of_pool && self.differs_by_node(key);
        shape.selector.iter().all(|(key, value)| own(key) || self.labels.get(key).is_some_and(|have| have == value))
    }

    /// Whether labels and taints of the pool's nodes let pods of this shape in.
    pub(crate) fn matches(&self, shape: &Shape) -> bool {
        let of_pool = self.origin == Origin::Node;
        let own = |key: &str| !of_pool && self.differs_by_node(key);
        let looks_at_nodes = |affinity: &slicegate_workload::NodeAffinity| {
            affinity
                .required
                .iter()
                .flatten()
                .any(|term| !term.match_fields.is_empty() || term.match_expressions.iter().any(|r| own(&r.key)))
        };
        self.has_labels(shape)
            && shape
                .affinity
                .as_ref()
                .is_none_or(|affinity| looks_at_nodes(affinity) || affinity.required_matches(&self.labels, None))
            && first_untolerated(&self.taints, &[&shape.tolerations]).is_none()
            && (!self.queued || shape.consumes)
    }

    /// Whether an empty node of the pool could hold a pod of this shape.
    pub(crate) fn could_hold(&self, shape: &Shape) -> bool {
        let chips = shape.request(TPU);
        if chips.nanos() > 0 && chips.value() != i64::from(self.chips) {
            return false;
        }
        shape
            .requests
            .iter()
            .all(|(name, nanos)| *nanos <= 0 || self.allocatable.get(name).is_some_and(|have| *nanos <= have.nanos()))
    }

    /// How many nodes it has or will have.
    pub(crate) fn target(&self) -> u32 {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.upcoming.values().fold(nodes, |sum, n| sum.saturating_add(*n))
    }

    /// Whether it is a cube from which GKE makes slices as they are needed: its hosts are repaired one by one.
    pub(crate) fn is_cube(&self) -> bool {
        self.labels.contains_key(label::TOPOLOGY_MODE)
    }

    /// Why a pool without nodes will never have any, if so.
    pub(crate) fn never_grows(&self) -> Option<String> {
        let name = &self.name;
        let hosts = if let Growth::Whole { hosts } = self.growth { hosts } else { 1 };
        if self.out_of_order {
            return Some(format!("node pool {name} has lost a host for good"));
        }
        if self.target() > 0 || self.queued || self.origin == Origin::Node {
            return None;
        }
        match self.autoscaling {
            None => Some(format!("node pool {name} has no nodes, and its autoscaling is off")),
            Some((_, most)) if most < hosts => {
                Some(format!("node pool {name} has no nodes and needs {hosts}, but may have {most} at most"))
            }
            Some(_) => None,
        }
    }

    /// How many nodes the next scale-up would add; 0 if it cannot grow.
    pub(crate) fn next_growth(&self) -> u32 {
        if self.out_of_order {
            return 0;
        }
        let Some((_, most)) = self.autoscaling else { return 0 };
        match self.growth {
            Growth::Whole { hosts } => {
                if self.target() == 0 && hosts <= most {
                    hosts
                } else {
                    0
                }
            }
            Growth::ByNode => u32::from(self.target() < most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(value: serde_json::Value) -> (Pool, Vec<Remark>) {
        let mut remarks = Vec::new();
        let pool = Pool::from_document(&serde_json::from_value(value).unwrap(), &mut remarks);
        (pool, remarks)
    }

    #[test]
    fn a_multi_host_pool_is_whole_or_absent() {
        let (pool, remarks) = pool(json!({
            "name": "p", "config": {"machineType": "ct5lp-hightpu-4t"}, "placementPolicy": {"tpuTopology": "2x4"},
            "autoscaling": {"enabled": true, "maxNodeCount": 2}
        }));
        assert_eq!(remarks, Vec::<String>::new());
        assert_eq!(pool.growth, Growth::Whole { hosts: 2 });
        assert_eq!(pool.next_growth(), 2);
        let get = |key: &str| pool.labels.get(key).map(ToString::to_string);
        assert_eq!(get("cloud.google.com/gke-nodepool").as_deref(), Some("p"));
        assert_eq!(get("cloud.google.com/gke-tpu-accelerator").as_deref(), Some("tpu-v5-lite-podslice"));
        assert_eq!(get("cloud.google.com/gke-tpu-topology").as_deref(), Some("2x4"));
        assert_eq!(get("cloud.google.com/gke-accelerator-count").as_deref(), Some("4"));
        assert_eq!(pool.taints.len(), 1);
    }

    #[test]
    fn a_single_host_pool_grows_node_by_node() {
        let (pool, _) = pool(json!({
            "name": "p", "config": {"machineType": "ct5lp-hightpu-8t"}, "placementPolicy": {"tpuTopology": "2x4"},
            "locations": ["a", "b"], "autoscaling": {"enabled": true, "minNodeCount": 1, "maxNodeCount": 2}
        }));
        assert_eq!(pool.growth, Growth::ByNode);
        assert_eq!(pool.autoscaling, Some((2, 4)), "limits are per zone");
        assert_eq!(pool.next_growth(), 1);
    }

    #[test]
    fn queued_flex_pools_are_marked_and_kept_for_those_who_consume() {
        let (pool, _) = pool(json!({
            "name": "dws", "config": {"machineType": "ct6e-standard-4t", "flexStart": true},
            "placementPolicy": {"tpuTopology": "4x4"}, "queuedProvisioning": {"enabled": true}
        }));
        assert_eq!(&*pool.labels["cloud.google.com/gke-queued"], "true");
        assert_eq!(&*pool.labels["cloud.google.com/gke-flex-start"], "true");
        let spec = |consumes| {
            let spec = serde_json::from_value(json!({
                "containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": "4"}}}],
                "tolerations": [{"operator": "Exists"}]
            }))
            .unwrap();
            Shape::of(&spec, consumes)
        };
        assert!(pool.matches(&spec(true)));
        assert!(!pool.matches(&spec(false)));
    }

    #[test]
    fn odd_sizes_are_remarked_on() {
        let (pool, remarks) = pool(json!({
            "name": "p", "config": {"machineType": "ct5lp-hightpu-4t"}, "placementPolicy": {"tpuTopology": "4x4"},
            "initialNodeCount": 3, "autoscaling": {"enabled": true, "maxNodeCount": 3}
        }));
        assert_eq!(pool.initial, 4);
        assert_eq!(remarks.len(), 2);
    }

    #[test]
    fn a_pod_must_ask_for_all_chips_of_a_node() {
        let (pool, _) = pool(json!({"name": "p", "config": {"machineType": "ct5lp-hightpu-4t"}}));
        let shape = |chips: u32| {
            let spec = serde_json::from_value(json!({
                "containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": chips.to_string()}}}]
            }))
            .unwrap();
            Shape::of(&spec, false)
        };
        assert!(pool.could_hold(&shape(4)));
        assert!(!pool.could_hold(&shape(1)));
        assert!(pool.could_hold(&shape(0)));
    }
}
