//! The quota forest: its nodes and how they hang together.

mod layout;
mod leaf;
mod limiting;
mod share;
mod usage;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{Amount, FlavorResourceId, NodeId};

pub use limiting::{Limit, LimitKind};
pub use share::Share;
pub use usage::Mark;

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

/// One (flavor, resource) at one node.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    nominal: Amount,
    /// Own quota and what the children share.
    subtree: Amount,
    /// The part of `subtree` that is never lent to the parent.
    local: Amount,
    /// The borrowing limit; unlimited if there is none.
    borrowing: Amount,
    /// What the node could use if nothing were running. Only at Cohorts; that of a ClusterQueue follows from its parent's.
    potential: Amount,
    usage: Amount,
    /// Whether this node or one below it names the pair.
    known: bool,
}

impl Cell {
    /// What the node could use if nothing were running, given the same of its parent.
    fn potential_below(&self, above: Option<Amount>) -> Amount {
        above.map_or(self.subtree, |above| self.local.plus(above).min(self.subtree.plus(self.borrowing)))
    }

    /// What is free of the part that is not lent.
    const fn local_available(&self) -> Amount {
        self.local.minus(self.usage).or_zero()
    }

    /// What the borrowing limit leaves to be taken from above; unlimited without one.
    const fn borrowable(&self) -> Amount {
        if self.borrowing.is_unlimited() {
            return Amount::UNLIMITED;
        }
        let stored = self.subtree.minus(self.local);
        let used_beyond_local = self.usage.minus(self.local).or_zero();
        stored.minus(used_beyond_local).plus(self.borrowing)
    }
}

#[derive(Clone, Debug)]
struct Node {
    name: Box<str>,
    kind: NodeKind,
    /// `None` for an implicit cohort, one that is only named by its members.
    config: Option<NodeQuota>,
    /// Whether the node exists. One that does not keeps its identifier, should it come back.
    alive: bool,
    /// Inactive ClusterQueues are not seen by [`Forest::children`].
    active: bool,
    /// The node that the configuration names as parent.
    up: Option<NodeId>,
    /// The nodes that name this one, in ascending order of kind and name.
    below: Vec<NodeId>,

    // What follows is derived by `layout`.
    /// `up`, unless the node is cyclic.
    parent: Option<NodeId>,
    root: NodeId,
    /// The tree that holds the node's cells, `NOWHERE` before the first layout, and where they begin.
    tree: usize,
    offset: usize,
    height: u32,
    /// In or below a cycle of cohorts: cannot be used.
    cyclic: bool,
    generation: u64,
    /// The last layout that looked at the node.
    epoch: u64,
}

const NOWHERE: usize = usize::MAX;

#[derive(Clone, Debug, Default)]
struct Tree {
    /// The pairs that occur in the tree, ascending.
    columns: Vec<FlavorResourceId>,
    /// Column by pair index; `NO_COLUMN` where the pair does not occur.
    column_of: Vec<u32>,
    /// The nodes, parents first.
    order: Vec<NodeId>,
    /// The Cohorts among them, parents first.
    inner: Vec<NodeId>,
    /// A row of columns a node.
    cells: Vec<Cell>,
    /// Counts changes to the tree since its layout. The generation of a node is this and its own.
    generation: u64,
}

const NO_COLUMN: u32 = u32::MAX;

impl Tree {
    fn column(&self, pair: FlavorResourceId) -> Option<usize> {
        match self.column_of.get(pair.index()) {
            Some(&column) if column != NO_COLUMN => Some(column as usize),
            _ => None,
        }
    }
}

/// A forest of ClusterQueues under Cohorts with exact accounting of quota.
///
/// Usage enters at a ClusterQueue and rises to its ancestors only where it exceeds what the node keeps for itself.
/// Questions ([`Forest::available`], [`Forest::level`], ...) walk from the node to its root; nothing is hashed, allocated or
/// cloned. A what-if takes a [`Forest::mark`], changes usage and is undone by [`Forest::rollback`].
///
/// A change of the configuration recomputes the trees it touches, and only those; that of a ClusterQueue alone mostly just its own
/// row and those above. To change much at once use [`Forest::configure`], which recomputes once.
///
/// Every [`NodeId`] must be of this forest; one of another makes the functions that take it panic or answer for the wrong node.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    nodes: Vec<Node>,
    cluster_queues: BTreeMap<Box<str>, NodeId>,
    cohorts: BTreeMap<Box<str>, NodeId>,
    trees: Vec<Tree>,
    /// Trees that are not in use.
    free_trees: Vec<usize>,
    /// Nodes whose trees are out of date.
    dirty: Vec<NodeId>,
    /// How many [`Forest::configure`] are going on.
    configuring: usize,
    /// Counts layouts.
    epoch: u64,
    journal: Vec<(NodeId, FlavorResourceId, Amount)>,
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

    /// Removes a node: a ClusterQueue with its usage; a Cohort that still has members stays, without quota and without a parent.
    pub fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        if !node.alive || (node.kind == NodeKind::Cohort && node.config.is_none()) {
            return;
        }
        node.config = None;
        self.move_below(id, None);
        let node = &mut self.nodes[id.index()];
        if node.kind == NodeKind::ClusterQueue || node.below.is_empty() {
            (node.alive, node.active) = (false, true);
        }
        self.touch(id);
        self.settle();
    }

    /// Runs many changes of the configuration and brings the forest up to date once, at the end.
    ///
    /// Until then only names and identifiers can be relied on: nodes that are new have no quota yet, and the others still have
    /// what they had.
    pub fn configure<R>(&mut self, changes: impl FnOnce(&mut Self) -> R) -> R {
        self.configuring = self.configuring.saturating_add(1);
        let result = changes(self);
        self.configuring = self.configuring.saturating_sub(1);
        self.settle();
        result
    }

    /// Shows or hides a ClusterQueue in [`Forest::children`]. Its quota and its usage count either way.
    pub fn set_active(&mut self, id: NodeId, active: bool) {
        if let Some(node) = self.nodes.get_mut(id.index())
            && node.active != active
        {
            node.active = active;
            self.update_heights_above(id);
        }
    }

    fn set(&mut self, kind: NodeKind, name: &str, quota: NodeQuota) -> NodeId {
        let id = self.intern(kind, name);
        let up = quota.parent.as_deref().map(|parent| {
            let parent = self.intern(NodeKind::Cohort, parent);
            self.nodes[parent.index()].alive = true;
            parent
        });
        let node = &mut self.nodes[id.index()];
        let old = node.config.replace(quota);
        let (was_alive, new) = (node.alive, node.config.as_ref());
        node.alive = true;
        // Only a Cohort counts as changed whatever is set.
        let same = |a: &NodeQuota, b: &NodeQuota| a.parent == b.parent && a.limits == b.limits;
        let unchanged = kind == NodeKind::ClusterQueue
            && was_alive
            && old.as_ref().zip(new).is_some_and(|(old, new)| same(old, new));
        if !unchanged && !self.change_leaf(id, old.as_ref(), up) {
            self.move_below(id, up);
            self.touch(id);
            self.settle();
        }
        id
    }

    fn intern(&mut self, kind: NodeKind, name: &str) -> NodeId {
        let names = match kind {
            NodeKind::ClusterQueue => &mut self.cluster_queues,
            NodeKind::Cohort => &mut self.cohorts,
        };
        if let Some(&id) = names.get(name) {
            return id;
        }
        let id = NodeId::from_index(self.nodes.len());
        names.insert(name.into(), id);
        self.nodes.push(Node {
            name: name.into(),
            kind,
            config: None,
            alive: false,
            active: true,
            up: None,
            below: Vec::new(),
            parent: None,
            root: id,
            tree: NOWHERE,
            offset: 0,
            height: 0,
            cyclic: false,
            generation: 0,
            epoch: 0,
        });
        id
    }

    /// Hangs a node below another Cohort. The one it was below vanishes if only its members named it and this was the last.
    fn move_below(&mut self, id: NodeId, up: Option<NodeId>) {
        let old = self.nodes[id.index()].up;
        if old == up {
            return;
        }
        self.nodes[id.index()].up = up;
        if let Some(old) = old {
            let node = &mut self.nodes[old.index()];
            node.below.retain(|&child| child != id);
            if node.config.is_none() && node.below.is_empty() {
                node.alive = false;
            }
            self.touch(old);
        }
        if let Some(up) = up {
            let key = |id: NodeId| (self.nodes[id.index()].kind, &*self.nodes[id.index()].name);
            let at = self.nodes[up.index()].below.partition_point(|&child| key(child) < key(id));
            self.nodes[up.index()].below.insert(at, id);
        }
    }

    fn touch(&mut self, id: NodeId) {
        self.dirty.push(id);
    }

    /// Brings the trees that were touched up to date, unless more changes are to come.
    fn settle(&mut self) {
        if self.configuring == 0 && !self.dirty.is_empty() {
            self.lay_out(None);
        }
    }

    // ----- structure -----------------------------------------------------------------------------------------------

    fn living(&self, id: NodeId) -> bool {
        self.nodes[id.index()].alive
    }

    /// A ClusterQueue by name.
    pub fn cluster_queue(&self, name: &str) -> Option<NodeId> {
        self.cluster_queues.get(name).copied().filter(|&id| self.living(id))
    }

    /// A Cohort by name, configured or only named.
    pub fn cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied().filter(|&id| self.living(id))
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
        self.nodes[id.index()].below.iter().copied().filter(move |child| {
            let child = &self.nodes[child.index()];
            child.active && child.parent == Some(id)
        })
    }

    /// The nodes in use, ClusterQueues first, each in order of name.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.cluster_queues.values().chain(self.cohorts.values()).copied().filter(|&id| self.living(id))
    }

    /// Whether the node is in or below a cycle of Cohorts. Such nodes stand alone and must not be used: they can neither borrow
    /// nor admit.
    pub fn is_cyclic(&self, id: NodeId) -> bool {
        self.nodes[id.index()].cyclic
    }

    /// The weight for fair sharing.
    pub fn weight(&self, id: NodeId) -> Weight {
        self.nodes[id.index()].config.as_ref().map_or_else(Weight::default, |c| c.weight)
    }

    /// Counts how often the quotas that the node can draw on were recomputed.
    pub fn generation(&self, id: NodeId) -> u64 {
        let node = &self.nodes[id.index()];
        let of_tree = self.trees.get(node.tree).map_or(0, |tree| tree.generation);
        node.generation.saturating_add(of_tree)
    }

    /// Counts one more change of what the node can draw on, such as a workload that left it.
    pub fn bump_generation(&mut self, id: NodeId) {
        if let Some(n) = self.nodes.get_mut(id.index()) {
            n.generation = n.generation.saturating_add(1);
        }
    }

    /// The length of the longest way down from the node; 0 for a ClusterQueue. Inactive ClusterQueues do not count.
    pub fn height(&self, id: NodeId) -> u32 {
        self.nodes[id.index()].height
    }

    /// An upper bound of [`NodeId::index`], for arrays indexed by node.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The pairs that occur anywhere in the node's tree, ascending.
    pub fn tree_pairs(&self, id: NodeId) -> &[FlavorResourceId] {
        self.trees.get(self.nodes[id.index()].tree).map_or(&[], |tree| &tree.columns)
    }

    /// The pairs for which the node or one below it has quota, ascending.
    pub fn pairs(&self, id: NodeId) -> impl Iterator<Item = FlavorResourceId> + '_ {
        self.known_cells(id).map(|(pair, _)| pair)
    }

    /// The cells of a node with the pairs for which it or one below it has quota.
    fn known_cells(&self, id: NodeId) -> impl Iterator<Item = (FlavorResourceId, &Cell)> + '_ {
        let node = &self.nodes[id.index()];
        let tree = self.trees.get(node.tree);
        let columns = tree.map_or(&[][..], |tree| &tree.columns);
        let cells = tree.and_then(|tree| tree.cells.get(node.offset..)).unwrap_or_default();
        columns.iter().copied().zip(cells).filter(|(_, cell)| cell.known)
    }

    /// The tree of a node and the column of a pair in it; `None` if the pair does not occur there.
    fn place(&self, id: NodeId, pair: FlavorResourceId) -> Option<(&Tree, usize)> {
        let tree = self.trees.get(self.nodes[id.index()].tree)?;
        Some((tree, tree.column(pair)?))
    }

    /// The cell of a node whose tree and column are known.
    fn cell_at<'a>(&self, tree: &'a Tree, column: usize, id: NodeId) -> &'a Cell {
        &tree.cells[self.nodes[id.index()].offset + column]
    }

    fn cell(&self, id: NodeId, pair: FlavorResourceId) -> Option<&Cell> {
        self.place(id, pair).map(|(tree, column)| self.cell_at(tree, column, id))
    }

    /// Carries a value from the root down to a node: `start` at the root, then `step` at every node below it.
    fn carry_down<T>(&self, id: NodeId, start: impl FnOnce(NodeId) -> T, mut step: impl FnMut(NodeId, T) -> T) -> T {
        // Deeper forests than this are possible, but not met; they pay for a list.
        const SHALLOW: usize = 16;
        let mut shallow = [id; SHALLOW];
        let mut deep = Vec::new();
        let (mut at, mut depth) = (id, 0);
        while let Some(parent) = self.parent(at) {
            match shallow.get_mut(depth) {
                Some(slot) => *slot = at,
                None => deep.push(at),
            }
            depth += 1;
            at = parent;
        }
        let mut value = start(at);
        for &node in deep.iter().rev().chain(shallow[..depth.min(SHALLOW)].iter().rev()) {
            value = step(node, value);
        }
        value
    }
}
