//! The simulated cluster: nodes and what runs on them.

pub(crate) mod autoscaler;
pub(crate) mod cube;
pub(crate) mod dws;
pub(crate) mod failure;
pub(crate) mod kubelet;
pub(crate) mod machine;
pub(crate) mod pool;
pub(crate) mod preemption;
pub(crate) mod published;
pub(crate) mod scheduler;
pub(crate) mod shape;
pub(crate) mod slice_check;
pub(crate) mod slice_webhook;
pub(crate) mod slices;

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::{ObjectRef, Pod};
use slicegate_quota::Quantity;
use slicegate_workload::{Labels, ResourceList, Taint, Timestamp};

use crate::defaults::{TPU, annotation, label};
use pool::Pool;
use shape::Shape;

/// Number of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PoolId(pub(crate) usize);

/// Number of a node. Numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId(pub(crate) usize);

/// Number of a shape of pods.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClassId(pub(crate) usize);

/// The annotation that gives each Job of a JobSet a topology domain of its own.
pub(crate) const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// The label and annotation that tells Jobs apart.
pub(crate) const JOB_KEY: &str = "jobset.sigs.k8s.io/job-key";
/// The label with the priority that exclusive placement looks at.
pub(crate) const JOBSET_PRIORITY: &str = "jobset.sigs.k8s.io/priority";
/// On pods: the ProvisioningRequest whose nodes they use.
pub(crate) const CONSUME: [&str; 2] = [
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
];

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) name: Box<str>,
    pub(crate) pool: PoolId,
    pub(crate) labels: Labels,
    pub(crate) used: ResourceList,
    pub(crate) pods: BTreeSet<ObjectRef>,
    /// The pod that has its chips.
    pub(crate) chip_user: Option<ObjectRef>,
    /// Since when it has had no pod.
    pub(crate) idle_since: Option<Timestamp>,
    /// Whether its kubelet answers.
    pub(crate) ready: bool,
    /// Whether it or another host of its slice is broken: what runs on it stands still.
    pub(crate) down: bool,
    /// Whether it is drained: it takes no new pods.
    pub(crate) cordoned: bool,
    /// Whether its object says that it takes no new pods.
    pub(crate) unschedulable: bool,
    /// Its taints, if they are not those of its pool.
    pub(crate) taints: Option<Vec<Taint>>,
    /// The pod for which others were sent away, and its rank.
    pub(crate) nominated: Option<(i64, ObjectRef)>,
}

impl NodeState {
    /// Whether new pods may come.
    pub(crate) fn is_open(&self) -> bool {
        self.ready && !self.down && !self.cordoned && !self.unschedulable
    }
}

/// Pods that lie in one topology domain together and share it with none of the same scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Gang {
    pub(crate) topology: Box<str>,
    pub(crate) scope: Box<str>,
    pub(crate) key: Box<str>,
    /// Whether the pod looks for a domain itself; followers of a JobSet are sent to that of their leader.
    pub(crate) seeks: bool,
    /// Nodes that must be free in the domain for the first pod.
    pub(crate) nodes: usize,
}

/// A shape of pods and the pools that match it.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) shape: Shape,
    pub(crate) chips: i64,
    pub(crate) pools: Vec<PoolId>,
    pub(crate) seen: u64,
}

/// A pod's place in the queue of the scheduler: higher priority first, then older.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) rank: i64,
    pub(crate) order: u64,
    pub(crate) pod: ObjectRef,
}

#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) class: ClassId,
    pub(crate) place: Place,
    pub(crate) gang: Option<Gang>,
}

#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) node: NodeId,
    pub(crate) class: ClassId,
    pub(crate) gang: Option<(Gang, Box<str>)>,
    /// Its rank: the lower, the more important.
    pub(crate) rank: i64,
}

/// How many pods, by a name.
type Counts = BTreeMap<Box<str>, u32>;
/// Counts by key, by scope.
type ByScope = BTreeMap<Box<str>, BTreeMap<Box<str>, Counts>>;

/// Nodes, pools, and the pods on them or waiting for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) pools: Vec<Pool>,
    /// Nodes by number; those that went leave a gap.
    pub(crate) slots: Vec<Option<NodeState>>,
    pub(crate) by_name: BTreeMap<Box<str>, NodeId>,
    pub(crate) classes: Vec<Class>,
    class_of: BTreeMap<Shape, ClassId>,
    pub(crate) waiting: BTreeMap<ClassId, BTreeSet<Place>>,
    pub(crate) pending: BTreeMap<ObjectRef, Pending>,
    pub(crate) placed: BTreeMap<ObjectRef, Placed>,
    /// Topology key, then domain, then scope, then key: how many pods.
    occupied: BTreeMap<Box<str>, ByScope>,
    /// Scope, then key, then domain: how many pods.
    homes: ByScope,
    /// Pools whose nodes or free chips changed since they were last measured.
    pub(crate) touched: BTreeSet<PoolId>,
    /// Grows when pools come, so that classes look again.
    epoch: u64,
    order: u64,
    /// The nodes where room was made for pods.
    pub(crate) nominations: BTreeMap<ObjectRef, NodeId>,
    /// How many pods of each rank are on nodes.
    pub(crate) ranks: BTreeMap<i64, u32>,
    /// Whether pods that found no node should look again.
    pub(crate) retry: bool,
    /// Classes with pods that have not looked yet.
    pub(crate) fresh: BTreeSet<ClassId>,
    /// Whether the autoscaler has something to look at.
    pub(crate) grow: bool,
}

fn pod_rank(pod: &Pod) -> i64 {
    -i64::from(pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0))
}

/// The gang of a pod of a JobSet with exclusive placement.
pub(crate) fn gang_of(pod: &Pod) -> Option<Gang> {
    let meta = &pod.metadata;
    let topology = annotation(meta, EXCLUSIVE_TOPOLOGY)?;
    let key = label(meta, JOB_KEY)?;
    let leader = annotation(meta, "batch.kubernetes.io/job-completion-index") == Some("0");
    let priority = label(meta, JOBSET_PRIORITY).unwrap_or("0");
    Some(Gang {
        topology: topology.into(),
        scope: format!("jobset/{priority}").into(),
        key: key.into(),
        seeks: leader,
        nodes: 1,
    })
}

impl Nodes {
    pub(crate) fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.0]
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.slots.get(id.0)?.as_ref()
    }

    pub(crate) fn add_pool(&mut self, pool: Pool) -> PoolId {
        self.pools.push(pool);
        self.epoch += 1;
        self.retry = true;
        PoolId(self.pools.len() - 1)
    }

    pub(crate) fn pool_named(&self, name: &str) -> Option<PoolId> {
        self.pools.iter().position(|pool| *pool.name == *name).map(PoolId)
    }

    pub(crate) fn add_node(&mut self, pool: PoolId, name: Box<str>, now: Timestamp) -> NodeId {
        let id = NodeId(self.slots.len());
        self.touched.insert(pool);
        let of = &mut self.pools[pool.0];
        let mut labels = of.labels.clone();
        labels.entry("kubernetes.io/hostname".into()).or_insert_with(|| name.clone());
        of.nodes.insert(id);
        if of.chips > 0 {
            of.free.insert(id);
        }
        self.by_name.insert(name.clone(), id);
        self.slots.push(Some(NodeState {
            name,
            pool,
            labels,
            used: ResourceList::new(),
            pods: BTreeSet::new(),
            chip_user: None,
            idle_since: Some(now),
            ready: true,
            down: false,
            cordoned: false,
            unschedulable: false,
            taints: None,
            nominated: None,
        }));
        self.retry = true;
        id
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) -> Option<NodeState> {
        let node = self.slots.get_mut(id.0)?.take()?;
        self.touched.insert(node.pool);
        let pool = &mut self.pools[node.pool.0];
        pool.nodes.remove(&id);
        pool.free.remove(&id);
        self.by_name.remove(&node.name);
        Some(node)
    }

    /// The class of a shape, with the pools that match it today.
    pub(crate) fn class(&mut self, shape: Shape) -> ClassId {
        let id = if let Some(id) = self.class_of.get(&shape) {
            *id
        } else {
            let id = ClassId(self.classes.len());
            self.class_of.insert(shape.clone(), id);
            let chips = shape.request(TPU).value();
            self.classes.push(Class { shape, chips, pools: Vec::new(), seen: u64::MAX });
            id
        };
        self.refresh(id);
        id
    }

    pub(crate) fn refresh(&mut self, id: ClassId) {
        let class = &mut self.classes[id.0];
        if class.seen == self.epoch {
            return;
        }
        class.seen = self.epoch;
        let shape = &class.shape;
        class.pools = self
            .pools
            .iter()
            .enumerate()
            .filter(|(_, pool)| pool.matches(shape) && pool.could_hold(shape))
            .map(|(i, _)| PoolId(i))
            .collect();
    }

    /// Takes up a pod that waits for a node.
    pub(crate) fn enqueue(&mut self, key: ObjectRef, pod: &Pod, gang: Option<Gang>) {
        if self.pending.contains_key(&key) || self.placed.contains_key(&key) {
            return;
        }
        let Some(spec) = &pod.spec else { return };
        let consumes = CONSUME.iter().any(|name| annotation(&pod.metadata, name).is_some());
        let class = self.class(Shape::of(spec, consumes));
        let place = Place { rank: pod_rank(pod), order: self.order, pod: key.clone() };
        self.order += 1;
        self.waiting.entry(class).or_default().insert(place.clone());
        self.fresh.insert(class);
        self.pending.insert(key, Pending { class, place, gang });
    }

    pub(crate) fn dequeue(&mut self, key: &ObjectRef) -> Option<Pending> {
        let pending = self.pending.remove(key)?;
        if !self.nominations.is_empty()
            && let Some(id) = self.nominations.remove(key)
            && let Some(node) = self.slots.get_mut(id.0).and_then(Option::as_mut)
        {
            node.nominated = None;
            self.retry = true;
        }
        if let Some(places) = self.waiting.get_mut(&pending.class) {
            places.remove(&pending.place);
            if places.is_empty() {
                self.waiting.remove(&pending.class);
            }
        }
        Some(pending)
    }

    fn occupants(&self, gang: &Gang, domain: &str) -> Option<&Counts> {
        self.occupied.get(&gang.topology)?.get(domain)?.get(&gang.scope)
    }

    /// Whether pods of another gang lie in a domain, whatever their scope.
    fn is_shared(&self, gang: &Gang, domain: &str) -> bool {
        let scopes = self.occupied.get(&gang.topology).and_then(|domains| domains.get(domain));
        scopes.is_some_and(|scopes| scopes.values().any(|keys| keys.keys().any(|key| *key != gang.key)))
    }

    fn home(&self, gang: &Gang) -> Option<&Counts> {
        self.homes.get(&gang.scope)?.get(&gang.key)
    }

    fn count(&mut self, gang: &Gang, domain: &str, more: bool) {
        let by_scope = self.occupied.entry(gang.topology.clone()).or_default().entry(domain.into()).or_default();
        let keys = by_scope.entry(gang.scope.clone()).or_default();
        step(keys, &gang.key, more);
        if keys.is_empty() {
            by_scope.remove(&gang.scope);
        }
        let by_key = self.homes.entry(gang.scope.clone()).or_default();
        let domains = by_key.entry(gang.key.clone()).or_default();
        step(domains, domain, more);
        if domains.is_empty() {
            by_key.remove(&gang.key);
        }
    }

    /// Puts a pod on a node.
    pub(crate) fn bind(&mut self, key: &ObjectRef, pending: Pending, id: NodeId) {
        let chips = self.classes[pending.class.0].chips;
        let Some(node) = self.slots.get_mut(id.0).and_then(Option::as_mut) else { return };
        let pool = node.pool;
        for (name, nanos) in &self.classes[pending.class.0].shape.requests {
            let used = node.used.entry(name.clone()).or_default();
            *used = used.plus(Quantity::from_nanos(*nanos));
        }
        node.pods.insert(key.clone());
        node.idle_since = None;
        self.pools[pool.0].used = true;
        if chips > 0 {
            self.touched.insert(pool);
            node.chip_user = Some(key.clone());
            self.pools[pool.0].free.remove(&id);
        }
        let gang = pending.gang.and_then(|gang| {
            let domain = node.labels.get(&gang.topology)?.clone();
            Some((gang, domain))
        });
        if let Some((gang, domain)) = &gang {
            self.count(gang, domain, true);
        }
        let rank = pending.place.rank;
        *self.ranks.entry(rank).or_insert(0) += 1;
        self.placed.insert(key.clone(), Placed { node: id, class: pending.class, gang, rank });
    }

    /// Takes a pod off its node. Answers the node's pool if the node has nothing left to do.
    pub(crate) fn release(&mut self, key: &ObjectRef, now: Timestamp) -> Option<PoolId> {
        let placed = self.placed.remove(key)?;
        if let Some(count) = self.ranks.get_mut(&placed.rank) {
            *count = count.saturating_sub(1);
        }
        if let Some((gang, domain)) = &placed.gang {
            self.count(gang, domain, false);
        }
        self.retry = true;
        let node = self.slots.get_mut(placed.node.0)?.as_mut()?;
        for (name, nanos) in &self.classes[placed.class.0].shape.requests {
            if let Some(used) = node.used.get_mut(name) {
                *used = used.minus(Quantity::from_nanos(*nanos));
            }
        }
        node.pods.remove(key);
        if node.chip_user.as_ref() == Some(key) {
            node.chip_user = None;
            self.touched.insert(node.pool);
            if !node.cordoned {
                self.pools[node.pool.0].free.insert(placed.node);
            }
        }
        if node.pods.is_empty() {
            node.idle_since = Some(now);
            return Some(node.pool);
        }
        None
    }

    /// The node a pod is on.
    pub(crate) fn node_of(&self, pod: &ObjectRef) -> Option<&NodeState> {
        self.node(self.placed.get(pod)?.node)
    }
}

fn step(counts: &mut Counts, key: &str, more: bool) {
    if more {
        *counts.entry(key.into()).or_insert(0) += 1;
    } else if let Some(n) = counts.get_mut(key) {
        *n = n.saturating_sub(1);
        if *n == 0 {
            counts.remove(key);
        }
    }
}

/// Whether a pod is over.
pub(crate) fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Whether a pod runs, as far as one knows: that of a node that does not answer is not counted.
pub(crate) fn is_running(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let unready = |c: &k8s_openapi::api::core::v1::PodCondition| c.type_ == "Ready" && c.status != "True";
    status.phase.as_deref() == Some("Running") && !status.conditions.iter().flatten().any(unready)
}
