//! Pools and nodes for tests.

use slicegate_placement::Node;
use slicegate_tpu::{RESOURCE, SliceShape, node_labels, taint};
use slicegate_workload::{Taint, TaintEffect};

use super::NodePool;

pub(crate) fn pool(name: &str, machine: &str, topology: &str, max_nodes: Option<u32>) -> NodePool {
    let shape = SliceShape::parse(machine, topology).unwrap();
    let tpu = taint::TPU;
    NodePool {
        name: name.into(),
        shape,
        labels: node_labels(shape, name).map(|(key, value)| (key.into(), value.into())).collect(),
        taints: vec![Taint { key: tpu.key.into(), value: tpu.value.into(), effect: TaintEffect::NoSchedule }],
        max_nodes,
    }
}

/// A ready node of a pool.
pub(crate) fn host(name: &str, pool: &NodePool) -> Node {
    let mut labels = pool.labels.clone();
    labels.insert("kubernetes.io/hostname".into(), name.into());
    Node {
        name: name.into(),
        labels,
        taints: pool.taints.clone(),
        ready: true,
        allocatable: [(RESOURCE, i64::from(pool.shape.chips_per_host()))].into_iter().collect(),
        ..Node::default()
    }
}
