//! The short way to change one ClusterQueue: only its own cells and those above are touched.
//!
//! Queues come one by one when a controller starts. Laying out the tree for each would cost the square of their number.

use super::{Cell, Forest, NOWHERE, NodeKind, NodeQuota};
use crate::{Amount, FlavorResourceId, NodeId};

/// Sums within this range are exact whatever the order of the parts; beyond it the whole tree is summed again.
const EXACT: std::ops::RangeInclusive<i64> = 0..=i64::MAX / 2;

fn exact(amount: Amount) -> Option<i64> {
    EXACT.contains(&amount.value()).then_some(amount.value())
}

/// `sum` with one of its parts replaced.
fn replace_part(sum: Amount, old: Amount, new: Amount) -> Option<Amount> {
    let sum = exact(sum)?.checked_sub(exact(old)?)?.checked_add(exact(new)?)?;
    exact(Amount::new(sum)).map(Amount::new)
}

impl Cell {
    const fn lent(&self) -> Amount {
        self.subtree.minus(self.local)
    }

    const fn over_local(&self) -> Amount {
        self.usage.minus(self.local).or_zero()
    }
}

impl Forest {
    /// Applies a new configuration of a ClusterQueue, which its node holds already, without a layout; `old` is the one before.
    /// Returns whether that was possible: the queue is new or stays where it is, its tree has a column for each of its pairs, and
    /// no pair of it goes. Otherwise nothing is changed.
    pub(super) fn change_leaf(&mut self, id: NodeId, old: Option<&NodeQuota>, up: Option<NodeId>) -> bool {
        let node = &self.nodes[id.index()];
        let (Some(parent), Some(config)) = (up, &node.config) else { return false };
        let tree_index = self.nodes[parent.index()].tree;
        let Some(tree) = self.trees.get(tree_index) else { return false };
        let is_new = node.tree == NOWHERE && node.up.is_none();
        let stays = node.up == up && node.tree == tree_index;
        let shrinks = old.is_some_and(|old| old.limits.keys().any(|pair| !config.limits.contains_key(pair)));
        if node.kind != NodeKind::ClusterQueue
            || !(is_new || stays)
            || shrinks
            || self.nodes[parent.index()].cyclic
            || self.configuring > 0
            || self.recording > 0
            || !self.dirty.is_empty()
        {
            return false;
        }

        let width = tree.columns.len();
        let offset = if is_new { tree.cells.len() } else { node.offset };
        let blank = Cell { borrowing: Amount::UNLIMITED, ..Cell::default() };
        let mut changes: Vec<(usize, Cell)> = Vec::new();
        let mut columns = Vec::new();
        for (&pair, limits) in &config.limits {
            let Some(column) = tree.column(pair) else { return false };
            let before = tree.cells.get(offset + column).copied().unwrap_or(blank);
            let after = Cell {
                nominal: limits.nominal,
                subtree: limits.nominal,
                borrowing: limits.borrowing.unwrap_or(Amount::UNLIMITED),
                local: limits.lending.map_or(Amount::ZERO, |lending| limits.nominal.minus(lending).or_zero()),
                known: true,
                ..before
            };
            changes.push((offset + column, after));
            if self.change_above(tree_index, column, pair, parent, (before, after), &mut changes).is_none() {
                return false;
            }
            columns.push(column);
        }

        if is_new {
            let root = self.nodes[parent.index()].root;
            self.move_below(id, up);
            let node = &mut self.nodes[id.index()];
            (node.tree, node.offset, node.root, node.parent, node.cyclic) = (tree_index, offset, root, up, false);
        }
        let mut tree = std::mem::take(&mut self.trees[tree_index]);
        if is_new {
            tree.order.push(id);
            tree.cells.resize(offset + width, blank);
        }
        for (index, cell) in changes {
            tree.cells[index] = cell;
        }
        self.sum_potentials(&mut tree, &columns);
        tree.generation = tree.generation.saturating_add(1);
        self.trees[tree_index] = tree;
        self.update_heights_above(id);
        true
    }

    /// Appends the changes at the ancestors that follow from a change of one cell below; `None` if a sum is not exact.
    fn change_above(
        &self,
        tree: usize,
        column: usize,
        pair: FlavorResourceId,
        parent: NodeId,
        below: (Cell, Cell),
        changes: &mut Vec<(usize, Cell)>,
    ) -> Option<()> {
        let cells = &self.trees.get(tree)?.cells;
        let (mut before, mut after) = below;
        let mut at = Some(parent);
        while let Some(id) = at {
            let index = self.nodes[id.index()].offset + column;
            let old = *cells.get(index)?;
            let subtree = replace_part(old.subtree, before.lent(), after.lent())?;
            let usage = replace_part(old.usage, before.over_local(), after.over_local())?;
            let lending = self.limits(id, pair).lending;
            let local = lending.map_or(Amount::ZERO, |lending| subtree.minus(lending).or_zero());
            let new = Cell { subtree, usage, local, known: true, ..old };
            changes.push((index, new));
            (before, after) = (old, new);
            at = self.parent(id);
        }
        Some(())
    }
}
