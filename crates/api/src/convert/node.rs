//! Nodes, and what pods use of them.

use std::collections::BTreeMap;

use slicegate_placement::Node;
use slicegate_workload::Requests;

use super::pod::{pod_spec_at, resource_list_at};
use super::scheduling::taint_at;
use super::{Result, boxed_optional};
use crate::path::Path;

/// A node, as pods are placed on it. It is ready if its condition `Ready` is `True`; a node without that condition is not.
///
/// # Errors
/// If a quantity or the effect of a taint cannot be read. The path starts at the node.
pub fn node(node: &crate::Node) -> Result<Node> {
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|s| s.taints.as_deref()).unwrap_or_default().iter().enumerate();
    let root = Path::ROOT.field("spec");
    let path = root.field("taints");
    let taints = taints.map(|(i, taint)| taint_at(path.index(i), taint)).collect::<Result<_>>()?;
    let none = BTreeMap::new();
    let allocatable = node.status.as_ref().and_then(|s| s.allocatable.as_ref()).unwrap_or(&none);
    let root = Path::ROOT.field("status");
    let path = root.field("allocatable");
    Ok(Node {
        name: node.metadata.name.as_deref().unwrap_or_default().into(),
        labels: boxed_optional(node.metadata.labels.as_ref()),
        taints,
        ready: node_ready(node) == Some(true),
        unschedulable: spec.and_then(|s| s.unschedulable).unwrap_or(false),
        allocatable: Requests::from(&resource_list_at(path, allocatable)?),
    })
}

/// The condition `Ready` of a node; `None` if it has none. A status of `Unknown` is not ready.
pub fn node_ready(node: &crate::Node) -> Option<bool> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.status == "True")
}

/// What a pod that runs uses of its node, the slot for the pod itself not counted.
///
/// # Errors
/// If a quantity cannot be read. The path starts at the pod.
pub fn pod_requests(pod: &crate::Pod) -> Result<Requests> {
    let Some(spec) = &pod.spec else { return Ok(Requests::new()) };
    Ok(Requests::from(&pod_spec_at(Path::ROOT.field("spec"), spec)?.requests()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<Node> {
        node(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_node_is_ready_only_if_it_says_so() {
        let ready = |status: Value| read(json!({"metadata": {"name": "n"}, "status": status})).unwrap().ready;
        let condition = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
        assert!(ready(condition("True")));
        assert!(!ready(condition("False")));
        assert!(!ready(condition("Unknown")));
        assert!(!ready(json!({})));
        let bare = |v: Value| node_ready(&serde_json::from_value(v).unwrap());
        assert_eq!(bare(json!({"metadata": {}})), None);
        assert_eq!(bare(json!({"metadata": {}, "status": condition("Unknown")})), Some(false));
    }

    #[test]
    fn what_is_on_a_node_is_read() {
        let n = read(json!({"metadata": {"name": "n", "labels": {"rack": "r"}},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "1500m", "pods": "110", "google.com/tpu": "4"}}}))
        .unwrap();
        assert_eq!((&*n.name, n.unschedulable, n.taints.len(), &*n.labels["rack"]), ("n", true, 1, "r"));
        assert_eq!(["cpu", "pods", "google.com/tpu"].map(|r| n.allocatable.get(r)), [Some(1500), Some(110), Some(4)]);
    }

    #[test]
    fn mistakes_are_named_with_their_field() {
        let e = read(json!({"metadata": {}, "spec": {"taints": [{"key": "k", "effect": "Never"}]}})).unwrap_err();
        assert_eq!(&*e.path, "spec.taints[0].effect");
        let e = read(json!({"metadata": {}, "status": {"allocatable": {"cpu": "many"}}})).unwrap_err();
        assert_eq!(&*e.path, "status.allocatable[cpu]");
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}});
        let e = pod_requests(&serde_json::from_value(pod).unwrap()).unwrap_err();
        assert_eq!(&*e.path, "spec.containers[0].resources.requests[cpu]");
    }

    #[test]
    fn a_pod_without_a_spec_uses_nothing() {
        assert!(pod_requests(&crate::Pod::default()).unwrap().is_empty());
    }
}
