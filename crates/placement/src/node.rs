//! Nodes, and what pods outside of topology-aware placement use of them.

use std::collections::BTreeMap;

use slicegate_workload::{FlavorSpec, Labels, Requests, Taint, TopologySpec};

/// The resource that counts pods.
pub(crate) const PODS: &str = "pods";

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Its name.
    pub name: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether its `Ready` condition is true.
    pub ready: bool,
    /// Whether it takes no new pods (it is cordoned).
    pub unschedulable: bool,
    /// What pods may use of it. The resource `pods` is a limit like any other: without it no pod fits.
    pub allocatable: Requests,
}

impl Node {
    /// Whether the node is of a flavor with a topology: it has the flavor's labels and a value for every level.
    pub fn is_of(&self, flavor: &FlavorSpec, topology: &TopologySpec) -> bool {
        let value = |key: &str| self.labels.get(key).map_or("", |v| v);
        flavor.node_labels.iter().all(|(key, wanted)| value(key) == &**wanted)
            && topology.levels.iter().all(|level| self.labels.contains_key(level))
    }

    /// Whether pods can be put on the node now.
    pub const fn is_available(&self) -> bool {
        self.ready && !self.unschedulable
    }
}

/// A pod of [`OtherPods`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OtherPod {
    /// The node that it runs on.
    pub node: Box<str>,
    /// What it requests, without the pod itself.
    pub requests: Requests,
}

/// The pods that run on nodes without a place given by topology-aware placement.
///
/// They are known by a key (namespace and name, a uid). The shell decides which pods those are: the ones that are bound to a
/// node, have not ended, and were not placed here.
///
/// ```
/// use slicegate_placement::OtherPods;
/// use slicegate_workload::Requests;
///
/// let requests: Requests = [("cpu", 500)].into_iter().collect();
/// let mut pods = OtherPods::new();
/// pods.insert("kube-system/dns", "node-a", requests.clone());
/// pods.insert("kube-system/dns", "node-b", requests);
/// assert!(pods.usage("node-a").is_none(), "it moved");
/// assert_eq!(pods.usage("node-b").and_then(|u| u.get("pods")), Some(1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct OtherPods {
    /// By key.
    pods: BTreeMap<Box<str>, OtherPod>,
    /// Sum and number of pods by node.
    nodes: BTreeMap<Box<str>, (Requests, usize)>,
}

impl OtherPods {
    /// No pods.
    pub fn new() -> Self {
        Self::default()
    }

    /// A pod by its key.
    pub fn get(&self, key: &str) -> Option<&OtherPod> {
        self.pods.get(key)
    }

    /// Counts a pod on a node. A pod that was known is counted where and as it is now; what it was is returned.
    pub fn insert(&mut self, key: &str, node: &str, requests: Requests) -> Option<OtherPod> {
        let before = self.remove(key);
        let (sum, count) = self.nodes.entry(node.into()).or_default();
        sum.add_all(&requests);
        sum.add(PODS, 1);
        *count = count.saturating_add(1);
        self.pods.insert(key.into(), OtherPod { node: node.into(), requests });
        before
    }

    /// Forgets a pod: it ended, was deleted or lost its node. `None` if it was not known.
    pub fn remove(&mut self, key: &str) -> Option<OtherPod> {
        let pod = self.pods.remove(key)?;
        if let Some((sum, count)) = self.nodes.get_mut(&pod.node) {
            sum.subtract_all(&pod.requests);
            sum.add(PODS, -1);
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.nodes.remove(&pod.node);
            }
        }
        Some(pod)
    }

    /// What the pods of a node use together; `None` if it has none.
    pub fn usage(&self, node: &str) -> Option<&Requests> {
        self.nodes.get(node).map(|(sum, _)| sum)
    }

    /// Nodes with pods and what those use, in order of the nodes' names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Requests)> {
        self.nodes.iter().map(|(node, (sum, _))| (&**node, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_is_missing_reads_as_empty_but_a_level_must_be_there() {
        let flavor = FlavorSpec { node_labels: [("pool".into(), "".into())].into(), ..FlavorSpec::default() };
        let topology = |level: &str| TopologySpec { name: "t".into(), levels: vec![level.into()] };
        let node = Node { labels: [("rack".into(), "".into())].into(), ..Node::default() };
        assert!(node.is_of(&flavor, &topology("rack")));
        assert!(!node.is_of(&flavor, &topology("block")));
    }

    #[test]
    fn the_last_pod_takes_the_entry_of_its_node_along() {
        let cpu = |n| [("cpu", n)].into_iter().collect::<Requests>();
        let mut pods = OtherPods::new();
        pods.insert("a", "n", cpu(1));
        pods.insert("b", "n", cpu(2));
        pods.insert("a", "n", cpu(5));
        assert_eq!(pods.usage("n").and_then(|u| u.get("cpu")), Some(7));
        pods.remove("b");
        pods.remove("b");
        assert_eq!(pods.usage("n").and_then(|u| u.get("pods")), Some(1));
        pods.remove("a");
        assert_eq!(pods.iter().count(), 0);
    }
}
