//! Node pools and their slices.

use std::collections::BTreeMap;

use slicegate_placement::Node;
use slicegate_tpu::{Accelerator, SliceShape, Topology, label, taint};
use slicegate_workload::{Labels, Taint, TaintEffect};

/// Taints with this prefix come and go with a node's state.
const NODE_STATE_TAINTS: &str = "node.kubernetes.io/";
/// The label that only one node has.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A TPU node pool as it is configured, whether or not it has nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePool {
    /// Its name: the value of `cloud.google.com/gke-nodepool` on its nodes.
    pub name: Box<str>,
    /// The shape of its slices.
    pub shape: SliceShape,
    /// Labels of its nodes, those of GKE included.
    pub labels: Labels,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// The most nodes that autoscaling or a queued request brings it to; `None` if it stays as large as it is.
    pub max_nodes: Option<u32>,
}

/// What makes two slices equal: machine types that differ in name only count as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Shape {
    pub(crate) accelerator: Accelerator,
    pub(crate) topology: Topology,
    pub(crate) chips_per_host: u32,
    /// Nodes of a slice.
    pub(crate) hosts: u32,
}

impl From<SliceShape> for Shape {
    fn from(slice: SliceShape) -> Self {
        Self {
            accelerator: slice.accelerator(),
            topology: slice.topology(),
            chips_per_host: slice.chips_per_host(),
            hosts: slice.hosts(),
        }
    }
}

impl Shape {
    pub(super) fn chips(self) -> u32 {
        self.topology.chips()
    }
}

/// A node of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Host {
    usable: bool,
    /// Whether it was ever seen usable: one that was not is still coming up.
    was_usable: bool,
}

/// How many slices of a pool are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct States {
    /// Whole: every node is there, ready and takes pods.
    pub(super) whole: u32,
    /// Not there, or coming up; they can be provisioned.
    pub(super) coming: u32,
    /// A node of theirs is missing, not ready, cordoned or about to be taken away.
    pub(super) broken: u32,
}

impl States {
    /// Slices that jobs can be given.
    pub(super) fn usable(self) -> u32 {
        self.whole.saturating_add(self.coming)
    }
}

/// A pool and its nodes.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    /// What is configured, if that is known.
    config: Option<NodePool>,
    hosts: BTreeMap<Box<str>, Host>,
    /// Labels and taints of a node.
    sample: Option<(Labels, Vec<Taint>)>,
    /// Labels and taints of its nodes, as configured and as seen.
    facts: (Labels, Vec<Taint>),
    /// Whether its one slice has been whole since it last had no node.
    was_whole: bool,
    /// Of its hosts.
    n_usable: u32,
    n_lost: u32,
}

/// What a change of nodes does to a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Nothing,
    /// How many slices are in which state may be another.
    Counts,
    /// Which pods it takes may be another, too.
    Facts,
}

/// A node as a pool sees it.
pub(super) struct Seen {
    pub(super) pool: Box<str>,
    pub(super) shape: Shape,
}

impl Seen {
    /// The pool of a node and the shape of its slice; `None` for a node that is part of no slice that is known here. Nodes of
    /// pools whose slices are formed later (dynamic slices) are none either: topology-aware placement finds those.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let get = |key: &str| node.labels.get(key).map(|value| &**value);
        let (accelerator, topology) = (get(label::ACCELERATOR)?, get(label::TOPOLOGY)?);
        if get(label::TOPOLOGY_MODE).is_some() {
            return None;
        }
        let chips = node.allocatable.get(slicegate_tpu::RESOURCE).and_then(|n| u32::try_from(n).ok());
        let chips = chips.filter(|&n| n > 0).or_else(|| get(label::ACCELERATOR_COUNT)?.parse().ok());
        let shape: Shape = SliceShape::from_selector(accelerator, topology, Some(chips?)).ok()?.into();
        let pool = match get(label::NODE_POOL) {
            Some(pool) => pool,
            // A slice of one host needs no pool to be told from others.
            None if shape.hosts == 1 => &node.name,
            None => return None,
        };
        Some(Self { pool: pool.into(), shape })
    }
}

/// Whether pods can be put on a node and stay.
fn is_usable(node: &Node) -> bool {
    let leaving = |t: &Taint| *t.key == *taint::IMPENDING_TERMINATION_KEY;
    let unfit = |t: &Taint| t.key.starts_with(NODE_STATE_TAINTS) && t.effect != TaintEffect::PreferNoSchedule;
    node.is_available() && !node.taints.iter().any(|t| leaving(t) || unfit(t))
}

impl Pool {
    pub(super) fn new(name: Box<str>, shape: Shape) -> Self {
        Self {
            name,
            shape,
            config: None,
            hosts: BTreeMap::new(),
            sample: None,
            facts: (Labels::new(), Vec::new()),
            was_whole: false,
            n_usable: 0,
            n_lost: 0,
        }
    }

    /// Whether nothing is known of it any more.
    pub(super) fn is_empty(&self) -> bool {
        self.config.is_none() && self.hosts.is_empty()
    }

    pub(super) fn config(&self) -> Option<&NodePool> {
        self.config.as_ref()
    }

    pub(super) fn configure(&mut self, config: Option<NodePool>) {
        if let Some(config) = &config
            && self.hosts.is_empty()
        {
            self.shape = config.shape.into();
        }
        self.config = config;
        self.describe();
    }

    /// Takes in a node.
    pub(super) fn set_host(&mut self, node: &Node, shape: Shape) -> Change {
        let usable = is_usable(node);
        let before = self.hosts.get(&node.name).copied();
        let host = Host { usable, was_usable: usable || before.is_some_and(|h| h.was_usable) };
        let mut change = Change::Nothing;
        if before != Some(host) {
            change = Change::Counts;
            self.uncount(before);
            self.n_usable = self.n_usable.saturating_add(u32::from(host.usable));
            self.n_lost = self.n_lost.saturating_add(u32::from(!host.usable && host.was_usable));
            self.hosts.insert(node.name.clone(), host);
            self.note_whole();
        }
        if self.shape != shape {
            self.shape = shape;
            change = Change::Facts;
        }
        // The pool is known by the labels of its first node: all have the same but for their names.
        if self.hosts.first_key_value().is_some_and(|(first, _)| *first == node.name) {
            let mut labels = node.labels.clone();
            labels.remove(HOSTNAME);
            let lasting =
                |t: &&Taint| !t.key.starts_with(NODE_STATE_TAINTS) && *t.key != *taint::IMPENDING_TERMINATION_KEY;
            let sample = Some((labels, node.taints.iter().filter(lasting).cloned().collect()));
            if sample != self.sample {
                self.sample = sample;
                self.describe();
                change = Change::Facts;
            }
        }
        change
    }

    /// Takes a node out.
    pub(super) fn remove_host(&mut self, name: &str) -> Change {
        let Some(host) = self.hosts.remove(name) else { return Change::Nothing };
        self.uncount(Some(host));
        if !self.hosts.is_empty() {
            return Change::Counts;
        }
        self.was_whole = false;
        self.sample = None;
        if let Some(config) = &self.config {
            self.shape = config.shape.into();
        }
        self.describe();
        Change::Facts
    }

    fn describe(&mut self) {
        let config = self.config.as_ref();
        let mut labels = config.map(|c| c.labels.clone()).unwrap_or_default();
        let taints = match &self.sample {
            Some((seen, taints)) => {
                labels.extend(seen.iter().map(|(k, v)| (k.clone(), v.clone())));
                taints.clone()
            }
            None => config.map(|c| c.taints.clone()).unwrap_or_default(),
        };
        self.facts = (labels, taints);
    }

    fn uncount(&mut self, host: Option<Host>) {
        let Some(host) = host else { return };
        self.n_usable = self.n_usable.saturating_sub(u32::from(host.usable));
        self.n_lost = self.n_lost.saturating_sub(u32::from(!host.usable && host.was_usable));
    }

    fn note_whole(&mut self) {
        self.was_whole |= self.n_usable >= self.shape.hosts;
    }

    /// How many slices are in which state.
    pub(super) fn states(&self) -> States {
        let n_hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let most = self.config.as_ref().and_then(|c| c.max_nodes);
        if self.shape.hosts == 1 {
            let new = n_hosts.saturating_sub(self.n_usable).saturating_sub(self.n_lost);
            let (coming, broken) =
                if most.is_some() { (new, self.n_lost) } else { (0, self.n_lost.saturating_add(new)) };
            let more = most.map_or(0, |most| most.saturating_sub(n_hosts));
            return States { whole: self.n_usable, coming: coming.saturating_add(more), broken };
        }
        let grows = most.is_some_and(|most| most >= self.shape.hosts);
        if self.n_usable >= self.shape.hosts {
            States { whole: 1, ..States::default() }
        } else if grows && !self.was_whole && self.n_lost == 0 {
            States { coming: 1, ..States::default() }
        } else {
            // A pool that cannot grow and has no node is no slice at all.
            States { broken: u32::from(n_hosts > 0), ..States::default() }
        }
    }

    /// The labels and taints of its nodes: as configured, and as seen.
    pub(super) fn facts(&self) -> (&Labels, &[Taint]) {
        (&self.facts.0, &self.facts.1)
    }

    /// Its nodes, by name.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(|name| &**name)
    }

    /// What is counted, counted again.
    pub(super) fn check(&self) -> Result<(), String> {
        let count = |of: &dyn Fn(&Host) -> bool| u32::try_from(self.hosts.values().filter(|h| of(h)).count()).ok();
        let lost = |h: &Host| !h.usable && h.was_usable;
        if count(&|h| h.usable) != Some(self.n_usable) || count(&lost) != Some(self.n_lost) {
            return Err(format!("node pool {} has counted its nodes wrongly", self.name));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{host, pool};
    use super::*;

    fn states(pool: &Pool) -> (u32, u32, u32) {
        let States { whole, coming, broken } = pool.states();
        (whole, coming, broken)
    }

    fn set(pool: &mut Pool, node: &Node) {
        pool.set_host(node, Seen::of(node).unwrap().shape);
        pool.check().unwrap();
    }

    #[test]
    fn a_multi_host_pool_is_whole_coming_or_broken() {
        let config = pool("p", "ct5lp-hightpu-4t", "2x4", Some(2));
        let mut pool = Pool::new("p".into(), config.shape.into());
        assert_eq!(states(&pool), (0, 0, 0), "it cannot grow");
        pool.configure(Some(config.clone()));
        assert_eq!(states(&pool), (0, 1, 0), "it can be provisioned");
        let mut a = host("a", &config);
        let b = host("b", &config);
        a.ready = false;
        set(&mut pool, &a);
        assert_eq!(states(&pool), (0, 1, 0), "its nodes are coming up");
        set(&mut pool, &b);
        a.ready = true;
        set(&mut pool, &a);
        assert_eq!(states(&pool), (1, 0, 0));
        a.ready = false;
        set(&mut pool, &a);
        assert_eq!(states(&pool), (0, 0, 1), "a node failed");
        a.ready = true;
        a.unschedulable = true;
        set(&mut pool, &a);
        assert_eq!(states(&pool), (0, 0, 1), "a node is cordoned");
        assert_eq!(pool.remove_host("a"), Change::Counts);
        assert_eq!(states(&pool), (0, 0, 1), "a node is gone");
        assert_eq!(pool.remove_host("b"), Change::Facts);
        assert_eq!(pool.remove_host("b"), Change::Nothing);
        assert_eq!(states(&pool), (0, 1, 0), "all are gone, and it can be provisioned anew");
    }

    #[test]
    fn a_pool_that_cannot_grow_has_what_it_has() {
        let config = pool("p", "ct5lp-hightpu-4t", "2x4", None);
        let mut pool = Pool::new("p".into(), config.shape.into());
        set(&mut pool, &host("a", &config));
        assert_eq!(states(&pool), (0, 0, 1), "half a slice");
        set(&mut pool, &host("b", &config));
        assert_eq!(states(&pool), (1, 0, 0));
    }

    #[test]
    fn each_node_of_a_single_host_pool_is_a_slice() {
        let config = pool("p", "ct6e-standard-8t", "2x4", Some(4));
        let mut pool = Pool::new("p".into(), config.shape.into());
        pool.configure(Some(config.clone()));
        assert_eq!(states(&pool), (0, 4, 0));
        let mut a = host("a", &config);
        set(&mut pool, &a);
        set(&mut pool, &Node { ready: false, ..host("b", &config) });
        assert_eq!(states(&pool), (1, 3, 0));
        a.ready = false;
        set(&mut pool, &a);
        assert_eq!(states(&pool), (0, 3, 1));
    }

    #[test]
    fn nodes_about_to_be_taken_away_break_their_slice() {
        let config = pool("p", "ct5p-hightpu-4t", "2x2x1", None);
        let mut node = host("a", &config);
        assert!(is_usable(&node));
        let taint = |key: &str| Taint { key: key.into(), value: Box::default(), effect: TaintEffect::NoSchedule };
        node.taints = vec![taint("cloud.google.com/impending-node-termination")];
        assert!(!is_usable(&node));
        node.taints = vec![taint("node.kubernetes.io/unreachable")];
        assert!(!is_usable(&node));
        node.taints = vec![taint("google.com/tpu")];
        assert!(is_usable(&node));
    }

    #[test]
    fn only_nodes_of_fixed_slices_are_seen() {
        let config = pool("p", "tpu7x-standard-4t", "4x4x4", None);
        let node = host("a", &config);
        let seen = Seen::of(&node).unwrap();
        assert_eq!((&*seen.pool, seen.shape.hosts), ("p", 16));
        let mut dynamic = node.clone();
        dynamic.labels.insert(label::TOPOLOGY_MODE.into(), "PROVISION_ONLY".into());
        assert!(Seen::of(&dynamic).is_none());
        let mut alone = node;
        alone.labels.remove(label::NODE_POOL);
        assert!(Seen::of(&alone).is_none(), "nobody knows with whom it makes a slice");
        let mut single = host("b", &pool("q", "ct6e-standard-8t", "2x4", None));
        single.labels.remove(label::NODE_POOL);
        assert_eq!(&*Seen::of(&single).unwrap().pool, "b");
    }
}
