//! What is used and what is free.

use super::{Cell, Forest, Limits, NodeKind};
use crate::{Amount, FlavorResourceId, NodeId};

/// A position in the undo journal. See [`Forest::mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Mark {
    position: usize,
    /// How many marks were open before.
    depth: usize,
    epoch: u64,
}

impl Forest {
    /// The limits configured at the node itself.
    pub fn limits(&self, id: NodeId, pair: FlavorResourceId) -> Limits {
        let config = self.nodes[id.index()].config.as_ref();
        config.and_then(|config| config.limits.get(&pair)).copied().unwrap_or_default()
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
        self.cell(id, pair).map_or(Amount::ZERO, Cell::local_available)
    }

    /// What is free at the node, borrowing included. Negative at a Cohort that is over its quota; at a ClusterQueue 0 then.
    pub fn available(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        let Some((tree, column)) = self.place(id, pair) else { return Amount::ZERO };
        let cell = |id| self.cell_at(tree, column, id);
        let free = self.carry_down(
            id,
            |root| cell(root).subtree.minus(cell(root).usage),
            |node, above| cell(node).local_available().plus(above.min(cell(node).borrowable())),
        );
        if self.kind(id) == NodeKind::ClusterQueue { free.or_zero() } else { free }
    }

    /// What the node could use if nothing else were running.
    pub fn potential(&self, id: NodeId, pair: FlavorResourceId) -> Amount {
        let Some((tree, column)) = self.place(id, pair) else { return Amount::ZERO };
        let cell = self.cell_at(tree, column, id);
        if self.kind(id) == NodeKind::Cohort {
            return cell.potential;
        }
        cell.potential_below(self.parent(id).map(|parent| self.cell_at(tree, column, parent).potential))
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

    /// Whether `amount` more fits the quota of the node's subtree, and how much of it the node's parent has to provide.
    pub fn fits_in_quota(&self, id: NodeId, pair: FlavorResourceId, amount: Amount) -> (bool, Amount) {
        let cell = self.cell(id, pair).copied().unwrap_or_default();
        (cell.subtree >= cell.usage.plus(amount), amount.minus(cell.local_available()).or_zero())
    }

    /// The first pair of which a ClusterQueue has less available than asked for, `None` if all of it fits. Pairs are tested one
    /// by one, as if the others were not asked for.
    pub fn first_shortage(
        &self,
        cluster_queue: NodeId,
        usage: impl IntoIterator<Item = (FlavorResourceId, Amount)>,
    ) -> Option<FlavorResourceId> {
        usage.into_iter().find(|&(pair, amount)| self.available(cluster_queue, pair) < amount).map(|(pair, _)| pair)
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

    /// Adds usage at a ClusterQueue and, as far as it exceeds what a node keeps for itself, at its ancestors.
    ///
    /// A negative amount is removed.
    pub fn add_usage(&mut self, id: NodeId, pair: FlavorResourceId, amount: Amount) {
        if amount < Amount::ZERO {
            return self.remove_usage(id, pair, Amount::ZERO.minus(amount));
        }
        if amount == Amount::ZERO {
            return;
        }
        let Some((tree, column)) = self.ensure_place(id, pair) else { return };
        let (mut at, mut rest) = (id, amount);
        loop {
            let (free, parent) = {
                let cell = self.cell_mut(tree, column, at, pair);
                let free = cell.local_available();
                cell.usage = cell.usage.plus(rest);
                (free, self.parent(at))
            };
            match parent {
                Some(parent) if rest > free => (at, rest) = (parent, rest.minus(free)),
                _ => return,
            }
        }
    }

    /// The inverse of [`Forest::add_usage`].
    pub fn remove_usage(&mut self, id: NodeId, pair: FlavorResourceId, amount: Amount) {
        if amount < Amount::ZERO {
            return self.add_usage(id, pair, Amount::ZERO.minus(amount));
        }
        if amount == Amount::ZERO {
            return;
        }
        let Some((tree, column)) = self.ensure_place(id, pair) else { return };
        let (mut at, mut rest) = (id, amount);
        loop {
            let (stored, parent) = {
                let cell = self.cell_mut(tree, column, at, pair);
                let stored = cell.usage.minus(cell.local);
                cell.usage = cell.usage.minus(rest);
                (stored, self.parent(at))
            };
            match parent {
                Some(parent) if stored > Amount::ZERO => (at, rest) = (parent, rest.min(stored)),
                _ => return,
            }
        }
    }

    /// Whether usage at the node or above it, or `amount`, is so large that sums of it may have saturated, after which adding and
    /// removing are no inverses any more. See [`Forest::set_usage`].
    pub fn may_saturate(&self, id: NodeId, pair: FlavorResourceId, amount: Amount) -> bool {
        const LARGE: u64 = 1 << 62;
        let large = |a: Amount| a.value().unsigned_abs() >= LARGE;
        large(amount) || std::iter::once(id).chain(self.ancestors(id)).any(|node| large(self.usage(node, pair)))
    }

    /// Sets what a ClusterQueue uses, whatever it was, and computes the usage of the Cohorts of its tree anew.
    pub fn set_usage(&mut self, cluster_queue: NodeId, pair: FlavorResourceId, amount: Amount) {
        let Some((index, column)) = self.ensure_place(cluster_queue, pair) else { return };
        self.cell_mut(index, column, cluster_queue, pair).usage = amount;
        // The journal does not know what the Cohorts were.
        self.epoch = self.epoch.saturating_add(1);
        let mut tree = std::mem::take(&mut self.trees[index]);
        self.sum_usage(&mut tree);
        self.trees[index] = tree;
    }

    /// Starts recording changes of usage, to be undone by [`Forest::rollback`] or kept by [`Forest::keep`]. Marks nest; an outer
    /// one takes the inner ones with it.
    pub fn mark(&mut self) -> Mark {
        let mark = Mark { position: self.journal.len(), depth: self.recording, epoch: self.epoch };
        self.recording = self.recording.saturating_add(1);
        mark
    }

    /// Undoes every change of usage since the mark.
    pub fn rollback(&mut self, mark: Mark) {
        // If trees were laid out anew since, what is recorded of Cohorts is of no use, but it follows from the ClusterQueues.
        let stale = mark.epoch != self.epoch;
        while self.journal.len() > mark.position {
            let Some((id, pair, usage)) = self.journal.pop() else { break };
            if stale && self.kind(id) == NodeKind::Cohort {
                continue;
            }
            let tree = self.nodes[id.index()].tree;
            let Some(column) = self.trees.get(tree).and_then(|t| t.column(pair)) else { continue };
            let offset = self.nodes[id.index()].offset;
            self.trees[tree].cells[offset + column].usage = usage;
        }
        if stale {
            let mut trees = std::mem::take(&mut self.trees);
            for tree in &mut trees {
                self.sum_usage(tree);
            }
            self.trees = trees;
        }
        self.recording = self.recording.min(mark.depth);
    }

    /// Keeps the changes since the mark. They are still undone by an outer mark.
    pub fn keep(&mut self, mark: Mark) {
        self.recording = self.recording.min(mark.depth);
        if self.recording == 0 {
            self.journal.clear();
        }
    }

    /// A cell that is about to change; what it was is recorded.
    fn cell_mut(&mut self, tree: usize, column: usize, id: NodeId, pair: FlavorResourceId) -> &mut Cell {
        let cell = &mut self.trees[tree].cells[self.nodes[id.index()].offset + column];
        if self.recording > 0 {
            self.journal.push((id, pair, cell.usage));
        }
        cell
    }

    /// The tree of a node and the column of a pair. A pair that no configuration of the tree names gets one, which is rare and
    /// costs a new layout.
    fn ensure_place(&mut self, id: NodeId, pair: FlavorResourceId) -> Option<(usize, usize)> {
        let find = |forest: &Self| {
            let tree = forest.nodes.get(id.index())?.tree;
            Some((tree, forest.trees.get(tree)?.column(pair)?))
        };
        find(self).or_else(|| {
            self.nodes.get(id.index()).filter(|node| node.alive)?;
            self.lay_out(Some((id, pair)));
            find(self)
        })
    }
}
