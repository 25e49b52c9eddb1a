//! The quota forest: quotas, usage and what is free.

use std::collections::BTreeMap;

use crate::{Amount, FlavorResourceId, NodeId};

/// The quota of one (flavor, resource) at one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The node's own quota.
    pub nominal: Amount,
    /// How much the node's subtree may take from its parent beyond its own quota; `None`: no limit.
    pub borrowing: Option<Amount>,
    /// How much of its quota the node lends to its parent; `None`: all.
    pub lending: Option<Amount>,
}

/// A fair-sharing weight as an exact decimal, in billionths. The default is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Weight(u64);

impl Weight {
    /// A weight of this many billionths.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The weight in billionths.
    pub const fn nanos(self) -> u64 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1_000_000_000)
    }
}

/// What a node of the forest is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeKind {
    /// A leaf, the place where workloads are counted.
    ClusterQueue,
    /// An inner node, whose members share unused quota.
    Cohort,
}

/// The configuration of one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeQuota {
    /// The name of the parent Cohort, which need not have been configured itself.
    pub parent: Option<Box<str>>,
    /// Quotas by (flavor, resource).
    pub limits: BTreeMap<FlavorResourceId, Limits>,
    /// The weight for fair sharing.
    pub weight: Weight,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    nominal: Amount,
    borrowing: Option<Amount>,
    lending: Option<Amount>,
    /// Own quota and what the children share.
    subtree: Amount,
    /// The part of `subtree` that is never lent to the parent.
    local: Amount,
    usage: Amount,
    /// Whether this node or one below it names the pair.
    known: bool,
    /// Whether this node's own configuration names the pair.
    own: bool,
}

#[derive(Clone, Debug)]
struct Node {
    name: Box<str>,
    kind: NodeKind,
    /// `None` for an implicit cohort, one that is only named by its members.
    config: Option<NodeQuota>,
    parent: Option<NodeId>,
    /// In ascending order of kind and name.
    children: Vec<NodeId>,
    root: NodeId,
    /// Where the node's cells begin, and in which tree.
    base: usize,
    tree: usize,
    height: u32,
    /// Part of a cycle of cohorts, or below one: cannot be used.
    cyclic: bool,
    /// Inactive ClusterQueues are not seen by [`Forest::children`].
    active: bool,
    generation: u64,
    /// Usage of a ClusterQueue survives changes of the configuration.
    alive: bool,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    /// The pairs that occur in the tree, ascending.
    columns: Vec<FlavorResourceId>,
    /// Column by pair index; `NONE` where the pair does not occur.
    column_of: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// A position in the undo journal. See [`Forest::mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Mark(usize);

/// A forest of ClusterQueues under Cohorts with exact accounting of quota.
///
/// Usage enters at a ClusterQueue and rises to its ancestors only where it exceeds what the node keeps for itself.
/// Questions ([`Forest::available`], [`Forest::level`], ...) walk from the node to its root; nothing is hashed or cloned.
/// A what-if takes a [`Forest::mark`], changes usage and is undone by [`Forest::rollback`].
#[derive(Clone, Debug, Default)]
pub struct Forest {
    nodes: Vec<Node>,
    by_name: BTreeMap<(NodeKind, Box<str>), NodeId>,
    trees: Vec<Tree>,
    cells: Vec<Cell>,
    journal: Vec<(usize, Amount)>,
    recording: usize,
}

impl Forest {
    /// A forest without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    // ----- configuration -------------------------------------------------------------------------------------------

    /// Adds a ClusterQueue or replaces its configuration. Its usage stays.
    pub fn set_cluster_queue(&mut self, name: &str, quota: NodeQuota) -> NodeId {
        self.set(NodeKind::ClusterQueue, name, quota)
    }

    /// Adds a Cohort or replaces its configuration. A cohort that others only name gets a configuration by this.
    pub fn set_cohort(&mut self, name: &str, quota: NodeQuota) -> NodeId {
        self.set(NodeKind::Cohort, name, quota)
    }

    /// Removes a node. A Cohort that still has members stays, without quota and without a parent.
    pub fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        node.config = None;
        if node.kind == NodeKind::ClusterQueue {
            node.alive = false;
            self.by_name.remove(&(NodeKind::ClusterQueue, self.nodes[id.index()].name.clone()));
        }
        self.rebuild();
    }

    /// Shows or hides a ClusterQueue in [`Forest::children`]. Its quota and its usage count either way.
    pub fn set_active(&mut self, id: NodeId, active: bool) {
        if let Some(node) = self.nodes.get_mut(id.index())
            && node.active != active
        {
            node.active = active;
            self.compute_heights();
        }
    }

    // ----- structure -----------------------------------------------------------------------------------------------

    /// A ClusterQueue by name.
    pub fn cluster_queue(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(&(NodeKind::ClusterQueue, name.into())).copied()
    }

    /// A Cohort by name, configured or only named.
    pub fn cohort(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(&(NodeKind::Cohort, name.into())).copied()
    }

    /// The name of a node.
    pub fn name(&self, id: NodeId) -> &str {
        &self.nodes[id.index()].name
    }

    /// Whether the node is a ClusterQueue or a Cohort.
    pub fn kind(&self, id: NodeId) -> NodeKind {
        self.nodes[id.index()].kind
    }

    /// The node above.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.nodes[id.index()].parent
    }

    /// The uppermost node of the tree; the node itself if it has no parent.
    pub fn root(&self, id: NodeId) -> NodeId {
        self.nodes[id.index()].root
    }

    /// The nodes above, nearest first.
    pub fn ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.parent(id), move |&n| self.parent(n))
    }

    /// The members of a Cohort: active ClusterQueues, then Cohorts, each in order of name.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes[id.index()].children.iter().copied().filter(move |c| self.nodes[c.index()].active)
    }

    /// The nodes in use, ClusterQueues first, each in order of name.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.by_name.values().copied()
    }

    /// Whether the node is in or below a cycle of Cohorts. Such nodes can neither borrow nor admit.
    pub fn is_cyclic(&self, id: NodeId) -> bool {
        self.nodes[id.index()].cyclic
    }

    /// The weight for fair sharing.
    pub fn weight(&self, id: NodeId) -> Weight {
        self.nodes[id.index()].config.as_ref().map_or_else(Weight::default, |c| c.weight)
    }

    /// Counts how often the quotas that the node can draw on were recomputed.
    pub fn generation(&self, id: NodeId) -> u64 {
        self.nodes[id.index()].generation
    }

    /// Counts one more change of what the node can draw on, such as a workload that left it.
    pub fn bump_generation(&mut self, id: NodeId) {
        if let Some(n) = self.nodes.get_mut(id.index()) {
            n.generation = n.generation.saturating_add(1);
        }
    }

    /// The length of the longest way down from the node; 0 for a ClusterQueue.
    pub fn height(&self, id: NodeId) -> u32 {
        self.nodes[id.index()].height
    }

    /// An upper bound of [`NodeId::index`], for arrays indexed by node.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The pairs that occur anywhere in the node's tree, ascending.
    pub fn tree_pairs(&self, id: NodeId) -> &[FlavorResourceId] {
        &self.trees[self.nodes[id.index()].tree].columns
    }

    /// The pairs for which the node or one below it has quota, ascending.
    pub fn pairs(&self, id: NodeId) -> impl Iterator<Item = FlavorResourceId> + '_ {
        let node = &self.nodes[id.index()];
        let columns = &self.trees[node.tree].columns;
        columns.iter().enumerate().filter(move |(i, _)| self.cells[node.base + i].known).map(|(_, &p)| p)
    }

    // ----- quota and usage -----------------------------------------------------------------------------------------

    /// The limits configured at the node itself.
    pub fn limits(&self, id: NodeId, pair: FlavorResourceId) -> Limits {
        self.cell(id, pair).map_or_else(Limits::default, |c| Limits {
            nominal: c.nominal,
            borrowing: c.borrowing,
            lending: c.lending,
        })
    }

    /// The quota configured at the node itself.
    pub fn nominal(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        self.cell(id, pair).map_or(Amount::ZERO, |c| c.nominal)
    }

    /// The node's own quota and what its children lend.
    pub fn subtree_quota(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        self.cell(id, pair).map_or(Amount::ZERO, |c| c.subtree)
    }

    /// What is used: at a ClusterQueue all of it, at a Cohort what exceeds the quota its children keep for themselves.
    pub fn usage(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        self.cell(id, pair).map_or(Amount::ZERO, |c| c.usage)
    }

    /// What is still free of the quota that the node does not lend.
    pub fn local_available(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        self.cell(id, pair).map_or(Amount::ZERO, |c| c.local.minus(c.usage).or_zero())
    }

    /// What is free at the node, borrowing included. Negative at a Cohort that is over its quota; at a ClusterQueue 0 then.
    pub fn available(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        let raw = self.available_unclamped(id, pair);
        if self.kind(id) == NodeKind::ClusterQueue { raw.or_zero() } else { raw }
    }

    fn available_unclamped(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        let zero = Cell::default();
        let c = self.cell(id, pair).unwrap_or(&zero);
        let Some(parent) = self.parent(id) else { return c.subtree.minus(c.usage) };
        let mut above = self.available_unclamped(parent, pair);
        if let Some(limit) = c.borrowing {
            let stored = c.subtree.minus(c.local);
            let used_beyond_local = c.usage.minus(c.local).or_zero();
            above = above.min(stored.minus(used_beyond_local).plus(limit));
        }
        c.local.minus(c.usage).or_zero().plus(above)
    }

    /// What the node could use if nothing else were running.
    pub fn potential(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        let zero = Cell::default();
        let c = self.cell(id, pair).unwrap_or(&zero);
        let Some(parent) = self.parent(id) else { return c.subtree };
        let all = c.local.plus(self.potential(parent, pair));
        match c.borrowing {
            Some(limit) => all.min(c.subtree.plus(limit)),
            None => all,
        }
    }

    /// Whether the node would be above its own quota with `extra` more: a ClusterQueue is held against its nominal quota,
    /// a Cohort against its subtree's.
    pub fn is_borrowing_with(&self, id: NodeId, pair: FlavorResourceId, extra: Amount) -> bool {
        let Some(c) = self.cell(id, pair) else { return extra > Amount::ZERO };
        let quota = if self.kind(id) == NodeKind::ClusterQueue { c.nominal } else { c.subtree };
        quota < c.usage.plus(extra)
    }

    /// Whether the node's usage is within its subtree's quota for every one of the pairs.
    pub fn is_within_nominal(&self, id: NodeId, pairs: &[FlavorResourceId]) -> bool {
        pairs.iter().all(|&p| self.cell(id, p).is_none_or(|c| c.subtree >= c.usage))
    }

    /// How far up the tree one has to go to find `amount`: 0 without borrowing, else the height of the lowest Cohort whose
    /// subtree holds it; and whether that is less than the whole tree, so that others' use above could be reclaimed.
    pub fn level(&self, cluster_queue: NodeId, pair: FlavorResourceId, amount: Amount) -> (u32, bool) {
        let has_parent = self.parent(cluster_queue).is_some();
        if !has_parent || !self.is_borrowing_with(cluster_queue, pair, amount) {
            return (0, has_parent);
        }
        let mut remaining = amount.minus(self.local_available(cluster_queue, pair));
        let mut top = cluster_queue;
        for c in self.ancestors(cluster_queue) {
            if !self.is_borrowing_with(c, pair, remaining) {
                return (self.height(c), self.parent(c).is_some());
            }
            remaining = remaining.minus(self.local_available(c, pair));
            top = c;
        }
        (self.height(top), false)
    }

    // ----- changing usage ------------------------------------------------------------------------------------------

    /// Adds usage at a node and, as far as it exceeds what the node keeps for itself, at its ancestors.
    pub fn add_usage(&mut self, id: NodeId, pair: FlavorResourceId, amount: Amount) {
        let Some(index) = self.ensure_cell(id, pair) else { return };
        let free = self.local_available(id, pair);
        self.put(index, self.cells[index].usage.plus(amount));
        if let Some(parent) = self.parent(id)
            && amount > free
        {
            self.add_usage(parent, pair, amount.minus(free));
        }
    }

    /// The inverse of [`Forest::add_usage`].
    pub fn remove_usage(&mut self, id: NodeId, pair: FlavorResourceId, amount: Amount) {
        let Some(index) = self.ensure_cell(id, pair) else { return };
        let stored = self.cells[index].usage.minus(self.cells[index].local);
        self.put(index, self.cells[index].usage.minus(amount));
        if let Some(parent) = self.parent(id)
            && stored > Amount::ZERO
        {
            self.remove_usage(parent, pair, amount.min(stored));
        }
    }

    /// Starts recording changes of usage, to be undone by [`Forest::rollback`] or kept by [`Forest::keep`]. Marks nest.
    pub fn mark(&mut self) -> Mark {
        self.recording = self.recording.saturating_add(1);
        Mark(self.journal.len())
    }

    /// Undoes every change of usage since the mark.
    pub fn rollback(&mut self, mark: Mark) {
        while self.journal.len() > mark.0 {
            if let Some((index, usage)) = self.journal.pop()
                && let Some(cell) = self.cells.get_mut(index)
            {
                cell.usage = usage;
            }
        }
        self.recording = self.recording.saturating_sub(1);
    }

    /// Keeps the changes since the mark. They are still undone by an outer mark.
    pub fn keep(&mut self, _mark: Mark) {
        self.recording = self.recording.saturating_sub(1);
        if self.recording == 0 {
            self.journal.clear();
        }
    }

    fn put(&mut self, index: usize, usage: Amount) {
        if self.recording > 0 {
            self.journal.push((index, self.cells[index].usage));
        }
        self.cells[index].usage = usage;
    }

    // ----- layout --------------------------------------------------------------------------------------------------

    fn cell(&self, id: NodeId, pair: FlavorResourceId) -> Option<&Cell> {
        let node = &self.nodes[id.index()];
        match self.trees[node.tree].column_of.get(pair.index()) {
            Some(&column) if column != NONE => self.cells.get(node.base + column as usize),
            _ => None,
        }
    }

    fn cell_index(&self, id: NodeId, pair: FlavorResourceId) -> Option<usize> {
        let node = &self.nodes[id.index()];
        match self.trees[node.tree].column_of.get(pair.index()) {
            Some(&column) if column != NONE => Some(node.base + column as usize),
            _ => None,
        }
    }

    /// The cell of a pair; a pair that no configuration of the tree names gets one, which is rare and costs a new layout.
    fn ensure_cell(&mut self, id: NodeId, pair: FlavorResourceId) -> Option<usize> {
        self.nodes.get(id.index())?;
        if let Some(index) = self.cell_index(id, pair) {
            return Some(index);
        }
        debug_assert!(
            self.recording == 0 || self.journal.is_empty(),
            "a new pair cannot enter a tree inside a what-if"
        );
        let mut extra = vec![Vec::new(); self.nodes.len()];
        extra[id.index()].push(pair);
        self.layout(&extra);
        self.cell_index(id, pair)
    }

    fn set(&mut self, kind: NodeKind, name: &str, quota: NodeQuota) -> NodeId {
        let id = self.node_named(kind, name);
        self.nodes[id.index()].config = Some(quota);
        self.rebuild();
        id
    }

    fn node_named(&mut self, kind: NodeKind, name: &str) -> NodeId {
        if let Some(&id) = self.by_name.get(&(kind, name.into())) {
            return id;
        }
        let id = NodeId::from_index(self.nodes.len());
        self.nodes.push(Node {
            name: name.into(),
            kind,
            config: None,
            parent: None,
            children: Vec::new(),
            root: id,
            base: 0,
            tree: 0,
            height: 0,
            cyclic: false,
            active: true,
            generation: 0,
            alive: true,
        });
        self.by_name.insert((kind, name.into()), id);
        id
    }

    /// Recomputes structure, sums and usage of the whole forest from the configuration and the usage of ClusterQueues.
    fn rebuild(&mut self) {
        // Implicit cohorts come and go with their members.
        let named: Vec<Box<str>> =
            self.nodes.iter().filter(|n| n.alive).filter_map(|n| n.config.as_ref()?.parent.clone()).collect();
        for name in &named {
            self.node_named(NodeKind::Cohort, name);
        }
        for i in 0..self.nodes.len() {
            let parent = self.nodes[i].config.as_ref().and_then(|c| c.parent.clone());
            self.nodes[i].parent =
                parent.and_then(|p| self.by_name.get(&(NodeKind::Cohort, p)).copied()).filter(|_| self.nodes[i].alive);
            self.nodes[i].children.clear();
            self.nodes[i].cyclic = false;
        }
        self.mark_cycles();
        let order: Vec<NodeId> = self.by_name.values().copied().collect();
        for &id in &order {
            if let Some(p) = self.nodes[id.index()].parent {
                self.nodes[p.index()].children.push(id);
            }
        }
        let gone: Vec<NodeId> = order
            .iter()
            .copied()
            .filter(|id| {
                let n = &self.nodes[id.index()];
                n.kind == NodeKind::Cohort && n.config.is_none() && n.children.is_empty()
            })
            .collect();
        for id in gone {
            self.nodes[id.index()].alive = false;
            let name = self.nodes[id.index()].name.clone();
            self.by_name.remove(&(NodeKind::Cohort, name));
        }
        for i in 0..self.nodes.len() {
            let id = NodeId::from_index(i);
            let mut root = id;
            while let Some(p) = self.nodes[root.index()].parent {
                root = p;
            }
            self.nodes[i].root = root;
        }
        self.compute_heights();
        let none = vec![Vec::new(); self.nodes.len()];
        self.layout(&none);
    }

    /// Cuts every node whose way up enters a cycle off from its parent, and remembers that it did.
    fn mark_cycles(&mut self) {
        let n = self.nodes.len();
        let cyclic: Vec<bool> = (0..n)
            .map(|i| {
                let mut at = Some(NodeId::from_index(i));
                for _ in 0..=n {
                    match at {
                        None => return false,
                        Some(id) => at = self.nodes[id.index()].parent,
                    }
                }
                true
            })
            .collect();
        for (node, cyclic) in self.nodes.iter_mut().zip(cyclic) {
            node.cyclic = cyclic;
            if cyclic {
                node.parent = None;
            }
        }
    }

    fn compute_heights(&mut self) {
        for node in &mut self.nodes {
            node.height = 0;
        }
        // A height rises from every active leaf; the forest is shallow.
        for i in 0..self.nodes.len() {
            if !self.nodes[i].active || !self.nodes[i].alive {
                continue;
            }
            let mut height = self.nodes[i].height;
            let mut at = self.nodes[i].parent;
            while let Some(p) = at {
                height = height.saturating_add(1);
                if self.nodes[p.index()].height >= height {
                    break;
                }
                self.nodes[p.index()].height = height;
                at = self.nodes[p.index()].parent;
            }
        }
    }

    /// Lays the cells of every tree out anew, keeping the usage of ClusterQueues.
    fn layout(&mut self, extra: &[Vec<FlavorResourceId>]) {
        let n = self.nodes.len();
        let kept: Vec<Vec<(FlavorResourceId, Amount)>> = (0..n)
            .map(|i| {
                let node = &self.nodes[i];
                if node.kind != NodeKind::ClusterQueue || !node.alive || self.trees.is_empty() || self.cells.is_empty()
                {
                    return Vec::new();
                }
                let Some(tree) = self.trees.get(node.tree) else { return Vec::new() };
                tree.columns
                    .iter()
                    .enumerate()
                    .filter_map(|(c, &p)| {
                        let usage = self.cells.get(node.base + c)?.usage;
                        (usage != Amount::ZERO).then_some((p, usage))
                    })
                    .collect()
            })
            .collect();

        let mut tree_of_root = vec![usize::MAX; n];
        let mut trees: Vec<Tree> = Vec::new();
        for i in 0..n {
            if !self.nodes[i].alive {
                continue;
            }
            let root = self.nodes[i].root.index();
            if tree_of_root[root] == usize::MAX {
                tree_of_root[root] = trees.len();
                trees.push(Tree::default());
            }
            let columns = &mut trees[tree_of_root[root]].columns;
            if let Some(config) = &self.nodes[i].config {
                columns.extend(config.limits.keys());
            }
            columns.extend(kept[i].iter().map(|&(p, _)| p));
            columns.extend(extra[i].iter());
        }
        if trees.is_empty() {
            trees.push(Tree::default());
        }
        for tree in &mut trees {
            tree.columns.sort_unstable();
            tree.columns.dedup();
            let width = tree.columns.last().map_or(0, |p| p.index().saturating_add(1));
            tree.column_of = vec![NONE; width];
            for (c, p) in tree.columns.iter().enumerate() {
                tree.column_of[p.index()] = u32::try_from(c).unwrap_or(NONE);
            }
        }
        let mut base = 0_usize;
        for i in 0..n {
            let tree = if self.nodes[i].alive { tree_of_root[self.nodes[i].root.index()] } else { 0 };
            self.nodes[i].tree = tree;
            self.nodes[i].base = base;
            base = base.saturating_add(trees[tree].columns.len());
        }
        self.trees = trees;
        self.cells = vec![Cell::default(); base];
        self.journal.clear();

        // Own quotas.
        for i in 0..n {
            let Some(config) = self.nodes[i].config.clone() else { continue };
            for (pair, limits) in config.limits {
                if let Some(index) = self.cell_index(NodeId::from_index(i), pair) {
                    let cell = &mut self.cells[index];
                    cell.nominal = limits.nominal;
                    cell.borrowing = limits.borrowing;
                    cell.lending = limits.lending;
                    cell.subtree = limits.nominal;
                    cell.known = true;
                    cell.own = true;
                }
            }
        }
        // Usage of the leaves, then sums, children before parents.
        for (i, usages) in kept.into_iter().enumerate() {
            for (pair, usage) in usages {
                if let Some(index) = self.cell_index(NodeId::from_index(i), pair) {
                    self.cells[index].usage = usage;
                }
            }
        }
        for id in self.children_first() {
            let node = &self.nodes[id.index()];
            let (base, width) = (node.base, self.trees[node.tree].columns.len());
            let parent_base = node.parent.map(|p| self.nodes[p.index()].base);
            for c in 0..width {
                let cell = &mut self.cells[base + c];
                cell.local = cell.lending.map_or(Amount::ZERO, |l| cell.subtree.minus(l).or_zero());
                let (lent, over, known) =
                    (cell.subtree.minus(cell.local), cell.usage.minus(cell.local).or_zero(), cell.known);
                if let Some(parent_base) = parent_base {
                    let above = &mut self.cells[parent_base + c];
                    above.subtree = above.subtree.plus(lent);
                    above.usage = above.usage.plus(over);
                    above.known |= known;
                }
            }
        }
        for node in &mut self.nodes {
            node.generation = node.generation.saturating_add(1);
        }
    }

    /// Every node, each after all nodes below it.
    fn children_first(&self) -> Vec<NodeId> {
        let mut order: Vec<(usize, NodeId)> = (0..self.nodes.len())
            .filter(|&i| self.nodes[i].alive)
            .map(|i| {
                let id = NodeId::from_index(i);
                (self.ancestors(id).count(), id)
            })
            .collect();
        order.sort_by_key(|&(depth, id)| (std::cmp::Reverse(depth), id));
        order.into_iter().map(|(_, id)| id).collect()
    }
}
