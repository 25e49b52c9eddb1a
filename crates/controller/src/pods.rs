//! Pods, as far as they matter: those that wait at a gate, those that are placed by topology, and what others use of nodes.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::Pod;
use slicegate_workload::Key;

use crate::jobs::{annotation, label};
use crate::keys;
use crate::podset::asks_for_topology;

/// Whether the pod has ended.
pub(crate) fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Whether the pod has ended or is about to.
pub(crate) fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || is_over(pod)
}

/// The node that the pod is bound to.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
}

/// What the pod demands of the label of its node.
pub(crate) fn selected<'a>(pod: &'a Pod, label: &str) -> Option<&'a str> {
    pod.spec.as_ref()?.node_selector.as_ref()?.get(label).map(String::as_str)
}

/// Whether a gate holds the pod.
pub(crate) fn has_gate(pod: &Pod, gate: &str) -> bool {
    let gates = pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|g| g.name == gate)
}

/// Whether the pod's place is decided by topology; all others count against the nodes that they run on.
pub(crate) fn is_placed(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(asks_for_topology)
}

/// The pod set that the pod belongs to.
pub(crate) fn pod_set(pod: &Pod) -> Option<&str> {
    label(&pod.metadata, keys::POD_SET)
}

fn key(pod: &Pod, name: &str) -> Option<Key> {
    let value = annotation(&pod.metadata, name).filter(|v| !v.is_empty())?;
    Some(Key::new(pod.metadata.namespace.as_deref().unwrap_or_default(), value))
}

/// The Workload that the pod was made for, if its place is decided by topology.
pub(crate) fn workload_of(pod: &Pod) -> Option<Key> {
    pod_set(pod)?;
    if is_placed(pod) || has_gate(pod, keys::TOPOLOGY_GATE) { key(pod, keys::WORKLOAD) } else { None }
}

/// The first Workload of the elastic job that the pod belongs to.
pub(crate) fn slice_of(pod: &Pod) -> Option<Key> {
    pod_set(pod)?;
    key(pod, keys::WORKLOAD_SLICE_NAME)
}

/// Whether two states of a pod are the same to whoever opens gates and watches nodes.
pub(crate) fn same(a: &Pod, b: &Pod) -> bool {
    let facts = |pod: &Pod| {
        let gate = |name| has_gate(pod, name);
        (gate(keys::TOPOLOGY_GATE), gate(keys::ELASTIC_GATE), is_leaving(pod))
    };
    facts(a) == facts(b)
        && node_of(a) == node_of(b)
        && a.spec.as_ref().map(|s| &s.node_selector) == b.spec.as_ref().map(|s| &s.node_selector)
        && a.metadata.labels == b.metadata.labels
        && a.metadata.annotations == b.metadata.annotations
}

/// The pods of Workloads, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodIndex {
    by_workload: BTreeMap<Key, BTreeSet<Box<str>>>,
    by_slice: BTreeMap<Key, BTreeSet<Box<str>>>,
}

impl PodIndex {
    /// Takes a pod in.
    pub(crate) fn insert(&mut self, pod: &Pod) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if let Some(key) = workload_of(pod) {
            self.by_workload.entry(key).or_default().insert(name.into());
        }
        if let Some(key) = slice_of(pod) {
            self.by_slice.entry(key).or_default().insert(name.into());
        }
    }

    /// Takes a pod out, given as it was when it was taken in.
    pub(crate) fn remove(&mut self, pod: &Pod) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        take(&mut self.by_workload, workload_of(pod), name);
        take(&mut self.by_slice, slice_of(pod), name);
    }

    /// The names of the pods of a Workload that are placed by topology, in order.
    pub(crate) fn of_workload(&self, workload: &Key) -> impl Iterator<Item = &str> {
        self.by_workload.get(workload).into_iter().flatten().map(|n| &**n)
    }

    /// The names of the pods of an elastic job, whose first Workload this is, in order.
    pub(crate) fn of_slice(&self, first: &Key) -> impl Iterator<Item = &str> {
        self.by_slice.get(first).into_iter().flatten().map(|n| &**n)
    }
}

fn take(index: &mut BTreeMap<Key, BTreeSet<Box<str>>>, key: Option<Key>, name: &str) {
    let Some(key) = key else { return };
    let Some(names) = index.get_mut(&key) else { return };
    names.remove(name);
    if names.is_empty() {
        index.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn placed(name: &str, annotations: &Value) -> Pod {
        pod(json!({"metadata": {"name": name, "namespace": "ns", "annotations": annotations,
            "labels": {"kueue.x-k8s.io/podset": "main"}}}))
    }

    #[test]
    fn only_pods_of_workloads_are_remembered() {
        let workload = Key::new("ns", "wl");
        let tas =
            placed("b", &json!({"kueue.x-k8s.io/workload": "wl", "kueue.x-k8s.io/podset-required-topology": "r"}));
        let plain = placed("c", &json!({"kueue.x-k8s.io/workload": "wl"}));
        let elastic =
            placed("a", &json!({"kueue.x-k8s.io/workload": "wl2", "kueue.x-k8s.io/workload-slice-name": "wl"}));
        let mut index = PodIndex::default();
        for pod in [&tas, &plain, &elastic, &tas] {
            index.insert(pod);
        }
        assert_eq!(index.of_workload(&workload).collect::<Vec<_>>(), ["b"]);
        assert_eq!(index.of_slice(&workload).collect::<Vec<_>>(), ["a"]);
        for pod in [&tas, &plain, &elastic] {
            index.remove(pod);
        }
        assert!(index.by_workload.is_empty() && index.by_slice.is_empty());
    }

    #[test]
    fn a_gate_alone_makes_a_pod_wait_for_its_place() {
        let gated =
            pod(json!({"metadata": {"name": "a", "namespace": "ns", "labels": {"kueue.x-k8s.io/podset": "main"},
            "annotations": {"kueue.x-k8s.io/workload": "wl"}},
            "spec": {"containers": [], "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}}));
        assert_eq!(workload_of(&gated), Some(Key::new("ns", "wl")));
        assert!(!is_placed(&gated));
        assert_eq!(slice_of(&gated), None);
    }

    #[test]
    fn what_does_not_matter_is_no_change() {
        let at = |node: Option<&str>, phase: &str, ip: &str| {
            pod(json!({"metadata": {"name": "a"}, "spec": {"containers": [], "nodeName": node},
                "status": {"phase": phase, "podIP": ip}}))
        };
        assert!(same(&at(None, "Pending", ""), &at(None, "Pending", "10.0.0.1")));
        assert!(same(&at(Some("n"), "Pending", ""), &at(Some("n"), "Running", "")));
        assert!(!same(&at(None, "Pending", ""), &at(Some("n"), "Pending", "")));
        assert!(!same(&at(Some("n"), "Running", ""), &at(Some("n"), "Failed", "")));
    }
}
