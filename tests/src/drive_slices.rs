//! Node pools for random events, and pods that need whole slices of them.

use std::collections::BTreeMap;

use slicegate_admission::{Engine, NodePool};
use slicegate_placement::Node;
use slicegate_tpu::{RESOURCE, SliceShape, label, node_labels};
use slicegate_workload::{FlavorSpec, PodSet, Timestamp};

use super::Input;

const POOLS: u8 = 5;
/// Of one host, of two and of four.
const TOPOLOGIES: [&str; 3] = ["2x2", "2x4", "4x4"];

/// What is there.
#[derive(Default)]
pub(super) struct Hardware {
    pools: BTreeMap<Box<str>, NodePool>,
    nodes: BTreeMap<Box<str>, Node>,
}

fn pool(n: u8, topology: &str, max_nodes: Option<u32>) -> Option<NodePool> {
    let name = format!("p{n}");
    let shape = SliceShape::parse("ct5lp-hightpu-4t", topology).ok()?;
    Some(NodePool {
        labels: node_labels(shape, &name).map(|(key, value)| (key.into(), value.into())).collect(),
        name: name.into(),
        shape,
        taints: Vec::new(),
        max_nodes,
    })
}

fn host(pool: &NodePool, number: u32) -> Node {
    Node {
        name: format!("{}-{number}", pool.name).into(),
        labels: pool.labels.clone(),
        ready: true,
        allocatable: [(RESOURCE, 4), ("cpu", 4_000), ("pods", 15)].into_iter().collect(),
        ..Node::default()
    }
}

/// The first flavor counts chips only, the others share all pools and ask for whole slices.
pub(super) fn flavor(n: u8, flavor: FlavorSpec) -> FlavorSpec {
    FlavorSpec {
        node_labels: [(label::ACCELERATOR.into(), "tpu-v5-lite-podslice".into())].into(),
        whole_slices: n > 0,
        ..flavor
    }
}

impl Hardware {
    /// Pools of every size, with all of their nodes or with none of them.
    pub(super) fn start(&mut self, now: Timestamp, engine: &mut Engine) {
        for n in 0..POOLS {
            let topology = TOPOLOGIES[usize::from(n) % TOPOLOGIES.len()];
            let most = SliceShape::parse("ct5lp-hightpu-4t", topology).map_or(1, SliceShape::hosts);
            let Some(pool) = pool(n, topology, (n == 4).then_some(most)) else { continue };
            if n < 4 {
                for number in 0..most {
                    self.nodes.insert(format!("p{n}-{number}").into(), host(&pool, number));
                }
            } else {
                self.pools.insert(pool.name.clone(), pool);
            }
        }
        self.tell(now, engine);
    }

    /// Tells an engine everything.
    pub(super) fn tell(&self, now: Timestamp, engine: &mut Engine) {
        self.pools.values().for_each(|pool| engine.set_node_pool(now, pool.clone()));
        self.nodes.values().for_each(|node| engine.set_node(now, node.clone()));
    }

    /// A node comes, breaks, is repaired or goes, or what is configured of a pool changes. Says what happened.
    pub(super) fn event(&mut self, input: &mut Input<'_>, now: Timestamp, engine: &mut Engine) -> String {
        let n = input.below(POOLS);
        let name = format!("p{n}");
        match input.below(8) {
            0 => {
                self.pools.remove(name.as_str());
                engine.remove_node_pool(now, &name);
                format!("forget node pool {name}")
            }
            1 | 2 => {
                // Of a pool that changes its topology, nodes and configuration disagree.
                let most = input.pick(&[None, Some(0), Some(1), Some(2), Some(4), Some(6)]);
                let Some(pool) = pool(n, input.pick(&TOPOLOGIES), most) else { return String::new() };
                self.pools.insert(pool.name.clone(), pool.clone());
                engine.set_node_pool(now, pool.clone());
                format!("{pool:?}")
            }
            3 => {
                let node = format!("{name}-{}", input.below(4));
                self.nodes.remove(node.as_str());
                engine.remove_node(now, &node);
                format!("remove node {node}")
            }
            4 => {
                self.nodes.retain(|_, node| node.labels.get(label::NODE_POOL).is_none_or(|p| **p != *name));
                for number in 0..4 {
                    engine.remove_node(now, &format!("{name}-{number}"));
                }
                format!("remove all nodes of {name}")
            }
            kind => {
                let like =
                    self.nodes.values().find(|node| node.labels.get(label::NODE_POOL).is_some_and(|p| **p == *name));
                let topology = like.and_then(|node| node.labels.get(label::TOPOLOGY)).map_or_else(
                    || TOPOLOGIES[usize::from(n) % TOPOLOGIES.len()],
                    |topology| TOPOLOGIES.into_iter().find(|t| **t == **topology).unwrap_or("2x4"),
                );
                // Now and then a node says something else than the others of its pool.
                let topology = if input.one_in(16) { input.pick(&TOPOLOGIES) } else { topology };
                let Some(pool) = pool(n, topology, None) else { return String::new() };
                let mut node = host(&pool, u32::from(input.below(4)));
                node.ready = kind != 5;
                node.unschedulable = kind == 6 && input.one_in(2);
                self.nodes.insert(node.name.clone(), node.clone());
                engine.set_node(now, node.clone());
                format!("{node:?}")
            }
        }
    }
}

/// Lets pods need chips, mostly of whole hosts, and slices of some topology or pool.
pub(super) fn ask(pod_set: &mut PodSet, input: &mut Input<'_>) {
    if input.one_in(4) {
        return;
    }
    let chips = slicegate_quota::Quantity::from_units(if input.one_in(16) { 2 } else { 4 });
    for container in &mut pod_set.pod.containers {
        container.resources.requests.insert(RESOURCE.into(), chips);
    }
    let selector = &mut pod_set.pod.node_selector;
    if !input.one_in(5) {
        selector.insert(label::TOPOLOGY.into(), input.pick(&TOPOLOGIES).into());
    }
    if input.one_in(5) {
        selector.insert(label::NODE_POOL.into(), format!("p{}", input.below(POOLS)).into());
    }
    if input.one_in(3) {
        pod_set.pods_per_pool = Some(u32::from(input.pick(&[1_u8, 1, 2, 4])));
    }
}
