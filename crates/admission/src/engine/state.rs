//! Quota and who holds it: what decisions are made against.

use std::collections::BTreeMap;

use slicegate_placement::{Reach, Topologies};
use slicegate_preemption::{Holder, LocalQueueUsage, WorkloadRef, World};
use slicegate_quota::{Amount, FlavorResourceId, Forest, Mark, Names, NodeId};
use slicegate_workload::{
    ClusterQueueSpec, Key, LimitRangeSummary, LocalQueueSpec, PreemptionPolicy, StopPolicy, Timestamp,
};

use super::afs::Ledger;
use super::ids::{LocalQueueId, WorkloadId};
use super::record::{Holding, Records};
use super::slices::Slices;
use super::tally::Tally;
use crate::InactiveReason;
use crate::slices::{Inventory, InventoryMark};

/// A ClusterQueue.
#[derive(Clone, Debug)]
pub(super) struct ClusterQueue {
    pub(super) spec: ClusterQueueSpec,
    /// Everything that keeps it from admitting.
    pub(super) inactive: Vec<InactiveReason>,
    /// Workloads that hold its quota.
    pub(super) holders: Vec<WorkloadRef>,
    /// How many of them have pods that are not ready.
    pub(super) not_ready: usize,
    /// What they hold together.
    pub(super) tally: Tally,
}

impl ClusterQueue {
    pub(super) fn is_active(&self) -> bool {
        self.inactive.is_empty()
    }
}

/// Whether a LocalQueue's namespace may use its ClusterQueue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum NamespaceFact {
    /// There is no such namespace.
    #[default]
    Missing,
    /// The ClusterQueue does not serve it.
    Mismatch,
    /// It may.
    Served,
}

/// A LocalQueue, one that workloads name but that does not exist included.
#[derive(Clone, Debug)]
pub(super) struct LocalQueue {
    pub(super) key: Key,
    pub(super) spec: Option<LocalQueueSpec>,
    /// The ClusterQueue its workloads wait in: `None` if it does not exist, is stopped or leads nowhere.
    pub(super) target: Option<NodeId>,
    pub(super) namespace: NamespaceFact,
    /// All workloads that name it, however far they are.
    pub(super) members: Vec<WorkloadId>,
    /// What they hold together, by ClusterQueue.
    pub(super) tallies: BTreeMap<NodeId, Tally>,
    /// Past usage.
    pub(super) ledger: Ledger,
}

impl LocalQueue {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            spec: None,
            target: None,
            namespace: NamespaceFact::Missing,
            members: Vec::new(),
            tallies: BTreeMap::new(),
            ledger: Ledger::default(),
        }
    }

    /// Whether workloads pass through it.
    pub(super) fn is_open(&self) -> bool {
        self.spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None)
    }
}

/// What is known of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Namespace {
    /// Its labels; `None` if only its limit ranges were told.
    pub(super) labels: Option<BTreeMap<Box<str>, Box<str>>>,
    pub(super) limits: LimitRangeSummary,
}

/// Quota, workloads and queues.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) names: Names,
    pub(super) forest: Forest,
    /// Nodes by flavor, and what of them is in use.
    pub(super) topologies: Topologies,
    /// Slices of TPUs, and what of them is in use.
    pub(super) inventory: Inventory,
    /// The slices that a what-if is about: [`World::places`] says whether they can be had.
    pub(super) asked: Slices,
    pub(super) records: Records,
    /// By index of node.
    pub(super) queues: Vec<Option<ClusterQueue>>,
    pub(super) local_queues: Vec<LocalQueue>,
    pub(super) local_queue_ids: BTreeMap<Key, LocalQueueId>,
    pub(super) namespaces: BTreeMap<Box<str>, Namespace>,
    /// Workloads whose quota is given away in the cycle that is running, by index; and which they are.
    pub(super) claimed: Vec<bool>,
    pub(super) claims: Vec<WorkloadRef>,
    /// Those of them that hold places.
    pub(super) claimed_places: Vec<WorkloadRef>,
    /// The slices that they hold.
    pub(super) claimed_slices: Slices,
    /// What they use: by root of the tree, ClusterQueue and pair.
    pub(super) claimed_usage: BTreeMap<(NodeId, NodeId, FlavorResourceId), Amount>,
    /// Whether past usage of LocalQueues orders victims of one ClusterQueue.
    pub(super) usage_orders_victims: bool,
    pub(super) now: Timestamp,
}

impl State {
    pub(super) fn queue(&self, node: NodeId) -> Option<&ClusterQueue> {
        self.queues.get(node.index())?.as_ref()
    }

    pub(super) fn queue_mut(&mut self, node: NodeId) -> Option<&mut ClusterQueue> {
        self.queues.get_mut(node.index())?.as_mut()
    }

    pub(super) fn local_queue(&self, id: LocalQueueId) -> Option<&LocalQueue> {
        self.local_queues.get(id.index())
    }

    /// The number of a LocalQueue, new if nobody named it yet.
    pub(super) fn intern_local_queue(&mut self, key: &Key) -> LocalQueueId {
        if let Some(&id) = self.local_queue_ids.get(key) {
            return id;
        }
        let id = LocalQueueId::from_index(self.local_queues.len());
        self.local_queues.push(LocalQueue::new(key.clone()));
        self.local_queue_ids.insert(key.clone(), id);
        id
    }

    // ----- who holds quota -----------------------------------------------------------------------------------------

    /// Counts a workload's quota.
    pub(super) fn hold(&mut self, id: WorkloadId, mut holding: Holding) {
        self.release(id);
        let node = holding.node;
        let Some(queue) = self.queues.get_mut(node.index()).and_then(Option::as_mut) else { return };
        holding.position = u32::try_from(queue.holders.len()).unwrap_or(u32::MAX);
        queue.holders.push(reference(id));
        queue.not_ready = queue.not_ready.saturating_add(usize::from(!holding.pods_ready));
        queue.tally.add(&holding);
        if let Some(local) = self.local_queues.get_mut(holding.queue.index()) {
            local.tallies.entry(node).or_default().add(&holding);
        }
        let mut large = Vec::new();
        for &(pair, amount) in &holding.usage {
            let before = self.forest.may_saturate(node, pair, amount);
            self.forest.add_usage(node, pair, amount);
            if before || self.forest.may_saturate(node, pair, amount) {
                large.push(pair);
            }
        }
        for held in &holding.places {
            self.topologies.add(&held.usage, Reach::Node);
        }
        if !holding.slices.is_empty() {
            self.inventory.hold(&holding.slices);
        }
        if let Some(record) = self.records.get_mut(id) {
            record.holding = Some(Box::new(holding));
        }
        self.count_anew(node, &large);
    }

    /// Sets usage to the sum of what is held, where adding and removing saturated.
    fn count_anew(&mut self, node: NodeId, pairs: &[FlavorResourceId]) {
        for &pair in pairs {
            self.forest.set_usage(node, pair, self.held_in(node, pair));
        }
    }

    /// The sum of what workloads hold in a ClusterQueue. Whoever holds an unlimited amount makes it unlimited; otherwise it does
    /// not depend on the order of the holders, even where it saturates.
    pub(super) fn held_in(&self, node: NodeId, pair: FlavorResourceId) -> Amount {
        let holders = self.queue(node).map(|q| q.holders.as_slice()).unwrap_or_default();
        let amounts = holders
            .iter()
            .filter_map(|&w| self.holding(w))
            .flat_map(|h| &h.usage)
            .filter(|(p, _)| *p == pair)
            .map(|(_, amount)| *amount);
        let mut sum = 0_i128;
        for amount in amounts {
            if amount.is_unlimited() {
                return amount;
            }
            sum = sum.saturating_add(amount.value().into());
        }
        Amount::new(i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Stops counting a workload's quota; what it held, if anything.
    pub(super) fn release(&mut self, id: WorkloadId) -> Option<Box<Holding>> {
        let holding = self.records.get_mut(id)?.holding.take()?;
        let node = holding.node;
        let mut large = Vec::new();
        for &(pair, amount) in &holding.usage {
            if self.forest.may_saturate(node, pair, amount) {
                large.push(pair);
            }
            self.forest.remove_usage(node, pair, amount);
        }
        for held in &holding.places {
            self.topologies.take_away(&held.usage, Reach::Node);
        }
        if !holding.slices.is_empty() {
            self.inventory.release(&holding.slices);
        }
        self.forest.bump_generation(node);
        if let Some(queue) = self.queues.get_mut(node.index()).and_then(Option::as_mut) {
            let position = holding.position as usize;
            if queue.holders.get(position) == Some(&reference(id)) {
                queue.holders.swap_remove(position);
                let moved = queue.holders.get(position).copied();
                if let Some(moved) = moved.and_then(|m| self.records.get_mut(WorkloadId::from_index(m.index())))
                    && let Some(other) = &mut moved.holding
                {
                    other.position = holding.position;
                }
            }
            queue.not_ready = queue.not_ready.saturating_sub(usize::from(!holding.pods_ready));
            queue.tally.take(&holding);
        }
        self.count_anew(node, &large);
        self.uncount(&holding);
        Some(holding)
    }

    /// Takes a holding out of the sums of its LocalQueue.
    fn uncount(&mut self, holding: &Holding) {
        let Some(local) = self.local_queues.get_mut(holding.queue.index()) else { return };
        if let Some(tally) = local.tallies.get_mut(&holding.node) {
            tally.take(holding);
            if tally.reserving == 0 {
                local.tallies.remove(&holding.node);
            }
        }
    }

    /// Counts what a workload holds for the LocalQueue that it names now.
    pub(super) fn follow_queue(&mut self, id: WorkloadId) {
        let Some(record) = self.records.get_mut(id) else { return };
        let Some(mut holding) = record.holding.take() else { return };
        let queue = record.queue;
        self.uncount(&holding);
        holding.queue = queue;
        if let Some(local) = self.local_queues.get_mut(queue.index()) {
            local.tallies.entry(holding.node).or_default().add(&holding);
        }
        if let Some(record) = self.records.get_mut(id) {
            record.holding = Some(holding);
        }
    }

    // ----- claims of a cycle ---------------------------------------------------------------------------------------

    /// Whether a workload's quota was given away in this cycle.
    pub(super) fn is_claimed(&self, workload: WorkloadRef) -> bool {
        self.claimed.get(workload.index()).copied().unwrap_or(false)
    }

    /// Gives a workload's quota away for the rest of the cycle.
    pub(super) fn claim(&mut self, workload: WorkloadRef) {
        if self.is_claimed(workload) {
            return;
        }
        if self.claimed.len() <= workload.index() {
            self.claimed.resize(workload.index().saturating_add(1), false);
        }
        if let Some(slot) = self.claimed.get_mut(workload.index()) {
            *slot = true;
        }
        self.claims.push(workload);
        let record = self.records.get(WorkloadId::from_index(workload.index()));
        let Some(holding) = record.and_then(|r| r.holding.as_deref()) else { return };
        if !holding.places.is_empty() {
            self.claimed_places.push(workload);
        }
        self.claimed_slices.extend_from_slice(&holding.slices);
        let root = self.forest.root(holding.node);
        for &(pair, amount) in &holding.usage {
            let sum = self.claimed_usage.entry((root, holding.node, pair)).or_default();
            *sum = sum.plus(amount);
        }
    }

    /// Stops counting what was claimed, quota in the tree of a ClusterQueue and places anywhere, within a what-if.
    pub(super) fn remove_claimed(&mut self, cluster_queue: NodeId) {
        let Self { forest, claimed_usage, claimed_places, claimed_slices, topologies, inventory, records, .. } = self;
        inventory.give_back(claimed_slices);
        let claimed = claimed_places.iter().filter_map(|w| records.get(WorkloadId::from_index(w.index())));
        for held in claimed.filter_map(|r| r.holding.as_deref()).flat_map(|h| &h.places) {
            topologies.take_away(&held.usage, Reach::Flavor);
        }
        let root = forest.root(cluster_queue);
        let first = (root, NodeId::from_index(0), FlavorResourceId::from_index(0));
        for (&(_, node, pair), &amount) in claimed_usage.range(first..).take_while(|((r, ..), _)| *r == root) {
            forest.remove_usage(node, pair, amount);
        }
    }

    /// Ends the cycle's claims.
    pub(super) fn clear_claims(&mut self) {
        self.claimed_usage.clear();
        self.claimed_places.clear();
        self.claimed_slices.clear();
        for workload in std::mem::take(&mut self.claims) {
            if let Some(slot) = self.claimed.get_mut(workload.index()) {
                *slot = false;
            }
        }
    }

    /// Takes workloads that were claimed in the tree of a ClusterQueue out of sight: neither their usage counts nor can they be
    /// chosen. Undone by [`State::show`].
    pub(super) fn hide_claims(&mut self, cluster_queue: NodeId) -> Hidden {
        let mark = self.checkpoint();
        self.remove_claimed(cluster_queue);
        let root = self.forest.root(cluster_queue);
        let first = (root, NodeId::from_index(0), FlavorResourceId::from_index(0));
        let nodes =
            self.claimed_usage.range(first..).take_while(|((r, ..), _)| *r == root).map(|(&(_, node, _), _)| node);
        let mut lists = BTreeMap::new();
        for node in nodes {
            if lists.contains_key(&node) {
                continue;
            }
            let Some(queue) = self.queues.get_mut(node.index()).and_then(Option::as_mut) else { continue };
            let seen = queue.holders.iter().copied().filter(|w| !self.claimed.get(w.index()).is_some_and(|c| *c));
            let seen = seen.collect();
            lists.insert(node, std::mem::replace(&mut queue.holders, seen));
        }
        Hidden { mark, lists }
    }

    /// Keeps workloads from being chosen as victims. Undone by [`State::show`].
    pub(super) fn hide(&mut self, workloads: &[WorkloadRef]) -> Hidden {
        let mark = self.checkpoint();
        let mut lists = BTreeMap::new();
        for &workload in workloads {
            let Some(node) = self.holding(workload).map(|h| h.node) else { continue };
            let Some(queue) = self.queues.get_mut(node.index()).and_then(Option::as_mut) else { continue };
            lists.entry(node).or_insert_with(|| queue.holders.clone());
            queue.holders.retain(|w| *w != workload);
        }
        Hidden { mark, lists }
    }

    /// Brings back what was taken out of sight.
    pub(super) fn show(&mut self, hidden: Hidden) {
        self.rollback(hidden.mark);
        for (node, holders) in hidden.lists {
            if let Some(queue) = self.queues.get_mut(node.index()).and_then(Option::as_mut) {
                queue.holders = holders;
            }
        }
    }

    fn holding(&self, workload: WorkloadRef) -> Option<&Holding> {
        self.records.get(WorkloadId::from_index(workload.index()))?.holding.as_deref()
    }
}

/// A state to return to.
#[must_use]
pub(super) struct Checkpoint {
    forest: Mark,
    topologies: slicegate_placement::Mark,
    inventory: InventoryMark,
}

/// What [`State::hide_claims`] or [`State::hide`] took out of sight.
#[must_use]
pub(super) struct Hidden {
    mark: Checkpoint,
    lists: BTreeMap<NodeId, Vec<WorkloadRef>>,
}

/// A workload as the planner numbers it.
pub(super) fn reference(id: WorkloadId) -> WorkloadRef {
    WorkloadRef::from_index(id.index())
}

impl World for State {
    type Checkpoint = Checkpoint;

    fn forest(&self) -> &Forest {
        &self.forest
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn forest_mut(&mut self) -> &mut Forest {
        &mut self.forest
    }

    fn workloads(&self, cluster_queue: NodeId) -> &[WorkloadRef] {
        self.queue(cluster_queue).map_or(&[], |q| &q.holders)
    }

    fn workload(&self, workload: WorkloadRef) -> Holder<'_> {
        let record = self.records.get(WorkloadId::from_index(workload.index()));
        let holding = record.and_then(|r| r.holding.as_deref());
        let (Some(record), Some(holding)) = (record, holding) else {
            return Holder {
                cluster_queue: NodeId::from_index(0),
                priority: 0,
                queued_at: self.now,
                reserved_at: self.now,
                evicted: false,
                local_queue: None,
                usage: &[],
                uid: "",
            };
        };
        Holder {
            cluster_queue: holding.node,
            priority: record.priority(),
            queued_at: record.queued_at,
            reserved_at: holding.reserved_at.unwrap_or(self.now),
            evicted: record.is_evicted(),
            local_queue: self.local_queue_usage(record.queue),
            usage: &holding.usage,
            uid: &record.uid,
        }
    }

    fn policy(&self, cluster_queue: NodeId) -> PreemptionPolicy {
        self.queue(cluster_queue).map_or_else(PreemptionPolicy::default, |q| q.spec.preemption)
    }

    fn remove(&mut self, workload: WorkloadRef) {
        let Self { records, forest, topologies, inventory, .. } = self;
        let Some(record) = records.get(WorkloadId::from_index(workload.index())) else { return };
        let Some(holding) = &record.holding else { return };
        for &(pair, amount) in &holding.usage {
            forest.remove_usage(holding.node, pair, amount);
        }
        for held in &holding.places {
            topologies.take_away(&held.usage, Reach::Flavor);
        }
        inventory.give_back(&holding.slices);
    }

    fn restore(&mut self, workload: WorkloadRef) {
        let Self { records, forest, topologies, inventory, .. } = self;
        let Some(record) = records.get(WorkloadId::from_index(workload.index())) else { return };
        let Some(holding) = &record.holding else { return };
        for &(pair, amount) in &holding.usage {
            forest.add_usage(holding.node, pair, amount);
        }
        for held in &holding.places {
            topologies.add(&held.usage, Reach::Flavor);
        }
        inventory.take(&holding.slices);
    }

    fn places(&mut self) -> bool {
        self.inventory.fits(&self.asked)
    }

    fn checkpoint(&mut self) -> Checkpoint {
        Checkpoint { forest: self.forest.mark(), topologies: self.topologies.mark(), inventory: self.inventory.mark() }
    }

    fn rollback(&mut self, checkpoint: Checkpoint) {
        self.forest.rollback(checkpoint.forest);
        self.topologies.rollback(checkpoint.topologies);
        self.inventory.rollback(checkpoint.inventory);
    }
}

impl State {
    /// The usage of a LocalQueue, if it orders victims.
    pub(super) fn local_queue_usage(&self, id: LocalQueueId) -> Option<LocalQueueUsage> {
        if !self.usage_orders_victims {
            return None;
        }
        let queue = u32::try_from(id.index()).unwrap_or(u32::MAX);
        Some(LocalQueueUsage { queue, usage: self.local_queue(id).map(|q| q.ledger.usage) })
    }
}
