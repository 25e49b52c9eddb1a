//! The nodes of the cluster, the pods on them, and the trees that are made of them.
//!
//! A tree is made anew only when a node of its flavor, the flavor or its topology changed, and not before a cycle needs it.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_placement::{Node, OtherPods, PodRequest, Reach};
use slicegate_quota::{FlavorId, NodeId};
use slicegate_workload::{ClusterQueueSpec, FlavorSpec, Key, Requests, Timestamp, TopologySpec};

use super::Engine;
use super::ids::WorkloadId;
use super::record::{HeldPlaces, Holding};

/// How long after places were given up workloads of other trees are looked at again.
const NODE_BATCH_SECONDS: i64 = 60;

/// Nodes and pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// In any order.
    nodes: Vec<Node>,
    /// The position of each node by name.
    positions: BTreeMap<Box<str>, usize>,
    /// Pods without a place given by topology-aware placement.
    others: OtherPods,
    /// Flavors whose trees are to be made anew.
    stale: BTreeSet<FlavorId>,
}

impl Cluster {
    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(*self.positions.get(name)?)
    }

    fn insert(&mut self, node: Node) -> Option<Node> {
        if let Some(&at) = self.positions.get(&node.name) {
            return self.nodes.get_mut(at).map(|slot| std::mem::replace(slot, node));
        }
        self.positions.insert(node.name.clone(), self.nodes.len());
        self.nodes.push(node);
        None
    }

    fn remove(&mut self, name: &str) -> Option<Node> {
        let at = self.positions.remove(name)?;
        if at >= self.nodes.len() {
            return None;
        }
        let node = self.nodes.swap_remove(at);
        if let Some(moved) = self.nodes.get(at)
            && let Some(position) = self.positions.get_mut(&moved.name)
        {
            *position = at;
        }
        Some(node)
    }
}

impl Engine {
    /// Adds or updates a node. Pods of workloads that ask for a topology are placed on nodes that are ready, take new pods, have
    /// the labels of the flavor (`spec.nodeLabels`) and a value for every level of its topology; other nodes count for nothing.
    ///
    /// Nodes of TPU slices also tell which slices are whole; see [`Engine::set_node_pool`].
    ///
    /// A node that is as it was changes nothing. Otherwise parked workloads of all ClusterQueues are looked at again if the node
    /// is, or was, of a flavor with a topology, as in Kueue.
    ///
    /// ```
    /// use slicegate_admission::{Config, Engine};
    /// use slicegate_placement::Node;
    /// use slicegate_workload::Timestamp;
    ///
    /// let mut engine = Engine::new(Config::new());
    /// engine.set_node(Timestamp::from_seconds(0), Node {
    ///     name: "host-0".into(),
    ///     labels: [("kubernetes.io/hostname".into(), "host-0".into())].into(),
    ///     ready: true,
    ///     allocatable: [("google.com/tpu", 4), ("pods", 110)].into_iter().collect(),
    ///     ..Node::default()
    /// });
    /// ```
    pub fn set_node(&mut self, now: Timestamp, node: Node) {
        self.state.now = now;
        if self.cluster.node(&node.name) == Some(&node) {
            return;
        }
        if self.state.inventory.set_node(&node) {
            self.slices_changed(now);
        }
        let name = node.name.clone();
        let old = self.cluster.insert(node);
        self.node_changed(now, old.as_ref(), &name);
    }

    /// Removes a node. Workloads with pods on it keep their places; whoever drives the engine lists the node among
    /// `status.unhealthyNodes` of the workloads, and the next cycle replaces it.
    pub fn remove_node(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        if self.state.inventory.remove_node(name) {
            self.slices_changed(now);
        }
        if let Some(old) = self.cluster.remove(name) {
            self.node_changed(now, Some(&old), name);
        }
    }

    /// Counts a pod that runs on a node without a place given by topology-aware placement: bound to a node, not ended, and
    /// without any of the annotations `kueue.x-k8s.io/podset-*-topology`. `requests` are those of the whole pod, in milli-units of
    /// cpu and whole units of everything else; the pod itself (resource `pods`) is added. A pod that was known is counted where
    /// and as it is now. The node need not be known yet.
    pub fn set_other_pod(&mut self, now: Timestamp, pod: &Key, node: &str, requests: Requests) {
        self.state.now = now;
        let key = pod.to_string();
        let before = self.cluster.others.get(&key);
        if before.is_some_and(|p| *p.node == *node && p.requests == requests) {
            return;
        }
        let shrinks =
            |old: &Requests| old.iter().any(|(resource, amount)| amount > requests.get(resource).unwrap_or(0));
        let frees = before.is_some_and(|p| *p.node != *node || shrinks(&p.requests));
        let after = PodRequest::new(&requests, &mut self.state.names);
        let before = self.cluster.others.insert(&key, node, requests);
        self.state.topologies.add_other(node, &after);
        if let Some(before) = before {
            self.other_pod_left(now, &before.node, &before.requests, frees);
        }
        self.order.extend(&self.state.names);
    }

    /// Stops counting a pod that [`Engine::set_other_pod`] counted: it ended, was deleted or was given a place. Parked workloads
    /// of ClusterQueues that use a flavor of its node are looked at again.
    pub fn remove_other_pod(&mut self, now: Timestamp, pod: &Key) {
        self.state.now = now;
        if let Some(before) = self.cluster.others.remove(&pod.to_string()) {
            self.other_pod_left(now, &before.node, &before.requests, true);
        }
    }

    fn other_pod_left(&mut self, now: Timestamp, node: &str, requests: &Requests, frees: bool) {
        let before = PodRequest::new(requests, &mut self.state.names);
        self.state.topologies.remove_other(node, &before);
        let Some(node) = self.cluster.node(node).filter(|_| frees) else { return };
        let flavors: Vec<Box<str>> =
            self.topology_flavors().filter(|(_, f, t)| node.is_of(f, t)).map(|(_, f, _)| f.name.clone()).collect();
        if flavors.is_empty() {
            return;
        }
        self.flush_where(now, |spec| uses_any(spec, |name| flavors.iter().any(|f| **f == *name)));
    }

    /// Flavors with a topology that is known.
    fn topology_flavors(&self) -> impl Iterator<Item = (FlavorId, &FlavorSpec, &TopologySpec)> + '_ {
        self.flavors.iter().filter_map(|(id, flavor)| {
            let flavor = flavor?;
            Some((id, flavor, self.topologies.get(flavor.topology.as_ref()?)?))
        })
    }

    fn node_changed(&mut self, now: Timestamp, old: Option<&Node>, name: &str) {
        let new = self.cluster.node(name);
        let mut concerns = false;
        let mut stale = Vec::new();
        for (id, flavor, topology) in self.topology_flavors() {
            let is_of = |node: &Node| node.is_of(flavor, topology);
            let (was, is) = (old.filter(|n| is_of(n)), new.filter(|n| is_of(n)));
            concerns |= was.is_some() || is.is_some();
            if was.is_some_and(Node::is_available) || is.is_some_and(Node::is_available) {
                stale.push(id);
            }
        }
        self.cluster.stale.extend(stale);
        if concerns {
            self.flush_where(now, |_| true);
        }
    }

    /// Takes in that a flavor that has or had a topology changed.
    pub(super) fn topology_flavor_changed(&mut self, now: Timestamp, flavor: FlavorId) {
        self.cluster.stale.insert(flavor);
        self.flush_where(now, |_| true);
    }

    /// Takes in that a topology appeared, changed or went.
    pub(super) fn topology_changed(&mut self, now: Timestamp, topology: &str) {
        let of_topology = |f: &FlavorSpec| f.topology.as_deref() == Some(topology);
        let flavors: Vec<(FlavorId, Box<str>)> = self
            .flavors
            .iter()
            .filter_map(|(id, f)| f.filter(|f| of_topology(f)).map(|f| (id, f.name.clone())))
            .collect();
        self.cluster.stale.extend(flavors.iter().map(|(id, _)| *id));
        self.refresh_activity(now, |spec| uses_any(spec, |name| flavors.iter().any(|(_, f)| **f == *name)));
    }

    /// Lets parked workloads of ClusterQueues that admit be looked at again.
    fn flush_where(&mut self, now: Timestamp, of: impl Fn(&ClusterQueueSpec) -> bool) {
        let concerned = |n: &NodeId| self.state.queue(*n).is_some_and(|q| of(&q.spec));
        let nodes: Vec<NodeId> = self.active_nodes().filter(concerned).collect();
        for node in nodes {
            self.configuration_changed(now, node);
        }
    }

    /// Takes in that a workload gave up what it held. Its own tree is looked at again as for quota; others that wait for room on
    /// the same nodes follow later, which Kueue leaves to chance.
    pub(super) fn places_left(&mut self, now: Timestamp, holding: &Holding) {
        if holding.places.is_empty() || self.node_flush.is_some() {
            return;
        }
        let root = self.state.forest.root(holding.node);
        let waits = |n: &NodeId| {
            self.state.forest.root(*n) != root && self.pending_queue(*n).is_some_and(|q| q.parked().next().is_some())
        };
        if self.nodes_with_topologies().any(|n| waits(&n)) {
            self.node_flush = Some(now.plus_seconds(NODE_BATCH_SECONDS));
        }
    }

    /// Lets workloads that wait for room on nodes be looked at again, if it is time.
    pub(super) fn flush_nodes_due(&mut self, now: Timestamp) {
        if self.node_flush.is_none_or(|due| due > now) {
            return;
        }
        self.node_flush = None;
        let nodes: Vec<NodeId> = self.nodes_with_topologies().collect();
        for node in nodes {
            self.request_flush(now, node);
        }
    }

    /// ClusterQueues that admit and have a flavor with a topology.
    fn nodes_with_topologies(&self) -> impl Iterator<Item = NodeId> + '_ {
        let has_tree =
            |name: &str| self.state.names.flavor(name).is_some_and(|f| self.state.topologies.tree(f).is_some());
        self.active_nodes().filter(move |&n| self.state.queue(n).is_some_and(|q| uses_any(&q.spec, has_tree)))
    }

    // ----- trees ---------------------------------------------------------------------------------------------------

    /// Makes trees anew where something changed, and counts what is placed. No what-if may be open.
    pub(super) fn settle_topologies(&mut self) {
        if self.cluster.stale.is_empty() {
            return;
        }
        let is_on = self.config.gates.topology_aware_scheduling;
        for id in std::mem::take(&mut self.cluster.stale) {
            let flavor = self.flavors.get(id).filter(|_| is_on);
            let topology = flavor.and_then(|f| self.topologies.get(f.topology.as_ref()?));
            let state = &mut self.state;
            match (flavor, topology) {
                (Some(flavor), Some(topology)) => {
                    let Cluster { nodes, others, .. } = &self.cluster;
                    state.topologies.set(flavor, topology, nodes, others, &mut state.names);
                }
                _ => state.topologies.remove(id),
            }
        }
        self.order.extend(&self.state.names);
        let topologies = &mut self.state.topologies;
        topologies.clear_usage();
        for held in self.state.records.holdings_mut().flat_map(|h| &mut h.places) {
            held.usage = topologies.usage(held.flavor, &held.assignment, &held.request);
            topologies.add(&held.usage, Reach::Node);
        }
    }

    /// The places that a workload holds by its status.
    pub(super) fn held_places(&mut self, id: WorkloadId) -> Vec<HeldPlaces> {
        let Some(record) = self.state.records.get(id) else { return Vec::new() };
        let given = record.status.rest().admission.iter().flat_map(|a| &a.pod_set_assignments);
        let mut all = Vec::new();
        for given in given {
            let Some(assignment) = &given.topology_assignment else { continue };
            let shape = self.shapes.get(record.shape);
            let resolved = shape.and_then(|s| s.pod_sets().iter().zip(&s.pod_sets).find(|(p, _)| p.name == given.name));
            let request = if let Some((_, resolved)) = resolved {
                resolved.pod_request.clone()
            } else {
                let one = Requests::from(&given.resource_usage).divided_by(i64::from(given.count.unwrap_or(0)));
                PodRequest::new(&one, &mut self.state.names)
            };
            // Flavors without a topology have no leaves to count on.
            let flavors: BTreeSet<&str> = given.flavors.values().map(|f| &**f).collect();
            for name in flavors {
                let flavor = self.state.names.intern_flavor(name);
                if self.flavors.get(flavor).is_some_and(|f| f.topology.is_none()) {
                    continue;
                }
                let usage = self.state.topologies.usage(flavor, assignment, &request);
                all.push(HeldPlaces { flavor, assignment: assignment.clone(), request: request.clone(), usage });
            }
        }
        all
    }
}

fn uses_any(spec: &ClusterQueueSpec, flavor: impl Fn(&str) -> bool) -> bool {
    spec.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| flavor(&f.name))
}
