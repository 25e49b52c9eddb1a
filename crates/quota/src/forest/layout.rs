//! From configuration to trees: who is whose parent, which cells there are, and all that depends on configuration alone.

use std::ops::Range;

use super::{Cell, Forest, NO_COLUMN, NOWHERE, NodeKind, Tree};
use crate::{Amount, FlavorResourceId, NodeId};

/// Usage of a ClusterQueue that is carried over from one layout to the next.
struct Kept {
    node: NodeId,
    pair: FlavorResourceId,
    usage: Amount,
}

impl Forest {
    /// Lays out anew every tree with a node that was touched, and the tree of `extra` with one pair more.
    pub(super) fn lay_out(&mut self, extra: Option<(NodeId, FlavorResourceId)>) {
        self.epoch = self.epoch.saturating_add(1);
        let mut seeds = std::mem::take(&mut self.dirty);
        seeds.extend(extra.map(|(id, _)| id));

        let mut order = Vec::new();
        let mut components: Vec<(Range<usize>, bool)> = Vec::new();
        for &seed in &seeds {
            if self.nodes[seed.index()].alive && self.nodes[seed.index()].epoch != self.epoch {
                let begin = order.len();
                let cyclic = self.collect_component(seed, &mut order);
                components.push((begin..order.len(), cyclic));
            }
        }
        let mut kept = Vec::new();
        let mut old_trees = Vec::new();
        seeds.retain(|&id| !self.living(id));
        for &id in order.iter().chain(&seeds) {
            self.keep_usage(id, &mut kept);
            self.nodes[id.index()].generation = self.generation(id);
            let tree = std::mem::replace(&mut self.nodes[id.index()].tree, NOWHERE);
            if tree != NOWHERE {
                old_trees.push(tree);
            }
        }
        old_trees.sort_unstable();
        old_trees.dedup();
        for &tree in &old_trees {
            self.trees[tree] = Tree::default();
        }
        self.free_trees.append(&mut old_trees);

        for (range, cyclic) in &components {
            for id in &order[range.clone()] {
                let node = &mut self.nodes[id.index()];
                node.cyclic = *cyclic;
                node.parent = if *cyclic { None } else { node.up };
            }
        }
        let mut kept = kept.as_slice();
        for (range, cyclic) in components {
            if cyclic {
                for id in &order[range] {
                    self.build_tree(std::slice::from_ref(id), &mut kept, extra);
                }
            } else {
                self.build_tree(&order[range], &mut kept, extra);
            }
        }
        if extra.is_none() {
            for id in order {
                let node = &mut self.nodes[id.index()];
                node.generation = node.generation.saturating_add(1);
            }
        }
    }

    /// Appends all nodes that hang together with one, parents first; whether their way up ends in a cycle.
    fn collect_component(&mut self, seed: NodeId, order: &mut Vec<NodeId>) -> bool {
        let mut top = seed;
        let mut steps = 0;
        while let Some(up) = self.nodes[top.index()].up {
            top = up;
            steps += 1;
            if steps > self.nodes.len() {
                // By now this node is in the cycle itself, and everything that leads there is below it.
                break;
            }
        }
        let mut next = order.len();
        self.nodes[top.index()].epoch = self.epoch;
        order.push(top);
        while let Some(&id) = order.get(next) {
            next += 1;
            for i in 0..self.nodes[id.index()].below.len() {
                let child = self.nodes[id.index()].below[i];
                let node = &mut self.nodes[child.index()];
                if node.epoch != self.epoch {
                    node.epoch = self.epoch;
                    order.push(child);
                }
            }
        }
        self.nodes[top.index()].up.is_some()
    }

    fn keep_usage(&self, id: NodeId, kept: &mut Vec<Kept>) {
        let node = &self.nodes[id.index()];
        let Some(tree) = self.trees.get(node.tree) else { return };
        if node.kind == NodeKind::ClusterQueue && node.alive {
            let cells = tree.cells.get(node.offset..).unwrap_or_default();
            // Inside a what-if even what is not used now may have to be restored.
            let all = self.recording > 0;
            let used = tree.columns.iter().zip(cells).filter(|(_, cell)| all || cell.usage != Amount::ZERO);
            kept.extend(used.map(|(&pair, cell)| Kept { node: id, pair, usage: cell.usage }));
        }
    }

    /// Builds one tree of these nodes, parents first. The kept usage of its nodes comes first in `kept` and is taken off.
    fn build_tree(&mut self, order: &[NodeId], kept: &mut &[Kept], extra: Option<(NodeId, FlavorResourceId)>) {
        let Some(&root) = order.first() else { return };
        let index = self.free_trees.pop().unwrap_or_else(|| {
            self.trees.push(Tree::default());
            self.trees.len() - 1
        });
        for &id in order {
            let node = &mut self.nodes[id.index()];
            (node.tree, node.root) = (index, root);
        }
        let mine = kept.iter().take_while(|k| self.nodes[k.node.index()].tree == index).count();
        let (mine, rest) = kept.split_at(mine);
        *kept = rest;

        let own = order.iter().filter_map(|id| self.nodes[id.index()].config.as_ref());
        let own = own.flat_map(|config| config.limits.keys().copied());
        let extra = extra.filter(|(id, _)| self.nodes[id.index()].tree == index).map(|(_, pair)| pair);
        let is_inner = |id: &NodeId| self.nodes[id.index()].kind == NodeKind::Cohort;
        let inner = order.iter().copied().filter(is_inner).collect();
        let mut tree = Tree { order: order.to_vec(), inner, ..Tree::default() };
        tree.set_columns(own.chain(mine.iter().map(|k| k.pair)).chain(extra));

        let width = tree.columns.len();
        tree.cells = vec![Cell { borrowing: Amount::UNLIMITED, ..Cell::default() }; width * order.len()];
        for (row, &id) in order.iter().enumerate() {
            self.nodes[id.index()].offset = row * width;
        }
        for &id in order {
            let node = &self.nodes[id.index()];
            for (&pair, limits) in node.config.iter().flat_map(|config| &config.limits) {
                let Some(column) = tree.column(pair) else { continue };
                let cell = &mut tree.cells[node.offset + column];
                cell.nominal = limits.nominal;
                cell.subtree = limits.nominal;
                cell.borrowing = limits.borrowing.unwrap_or(Amount::UNLIMITED);
                cell.known = true;
            }
        }
        for k in mine {
            if let Some(column) = tree.column(k.pair) {
                tree.cells[self.nodes[k.node.index()].offset + column].usage = k.usage;
            }
        }
        self.sum_quotas(&mut tree, width);
        self.sum_usage(&mut tree);
        for &id in order.iter().rev() {
            self.nodes[id.index()].height = self.height_from_children(id);
        }
        self.trees[index] = tree;
    }

    /// Computes subtree quotas and local quotas from the leaves up, and potentials.
    fn sum_quotas(&self, tree: &mut Tree, width: usize) {
        for &id in tree.order.iter().rev() {
            let node = &self.nodes[id.index()];
            for (&pair, limits) in node.config.iter().flat_map(|config| &config.limits) {
                if let (Some(lending), Some(column)) = (limits.lending, tree.column(pair)) {
                    let cell = &mut tree.cells[node.offset + column];
                    cell.local = cell.subtree.minus(lending).or_zero();
                }
            }
            let Some(parent) = node.parent else { continue };
            let above = self.nodes[parent.index()].offset;
            for column in 0..width {
                let cell = tree.cells[node.offset + column];
                let above = &mut tree.cells[above + column];
                above.subtree = above.subtree.plus(cell.subtree.minus(cell.local));
                above.known |= cell.known;
            }
        }
        self.sum_potentials(tree, &(0..width).collect::<Vec<_>>());
    }

    /// Computes the potentials of some columns from the root down.
    pub(super) fn sum_potentials(&self, tree: &mut Tree, columns: &[usize]) {
        for &id in &tree.inner {
            let node = &self.nodes[id.index()];
            let above = node.parent.map(|parent| self.nodes[parent.index()].offset);
            for &column in columns {
                let from_above = above.map(|above| tree.cells[above + column].potential);
                let cell = &mut tree.cells[node.offset + column];
                cell.potential = cell.potential_below(from_above);
            }
        }
    }

    /// Computes the usage of Cohorts from that of the ClusterQueues.
    pub(super) fn sum_usage(&self, tree: &mut Tree) {
        let width = tree.columns.len();
        let cells = &mut tree.cells;
        for &id in &tree.order {
            let node = &self.nodes[id.index()];
            if node.kind == NodeKind::Cohort {
                for cell in &mut cells[node.offset..node.offset + width] {
                    cell.usage = Amount::ZERO;
                }
            }
        }
        for &id in tree.order.iter().rev() {
            let node = &self.nodes[id.index()];
            let Some(parent) = node.parent else { continue };
            let above = self.nodes[parent.index()].offset;
            for column in 0..width {
                let cell = &cells[node.offset + column];
                let over = cell.usage.minus(cell.local).or_zero();
                cells[above + column].usage = cells[above + column].usage.plus(over);
            }
        }
    }

    fn height_from_children(&self, id: NodeId) -> u32 {
        self.children(id).map(|child| self.nodes[child.index()].height.saturating_add(1)).max().unwrap_or(0)
    }

    pub(super) fn update_heights_above(&mut self, id: NodeId) {
        let mut at = self.parent(id);
        while let Some(node) = at {
            let height = self.height_from_children(node);
            if self.nodes[node.index()].height == height {
                break;
            }
            self.nodes[node.index()].height = height;
            at = self.parent(node);
        }
    }
}

impl Tree {
    /// Sets the columns to these pairs, each once, ascending.
    fn set_columns(&mut self, pairs: impl Iterator<Item = FlavorResourceId>) {
        for pair in pairs {
            if self.column_of.len() <= pair.index() {
                self.column_of.resize(pair.index() + 1, NO_COLUMN);
            }
            self.column_of[pair.index()] = 0;
        }
        let used = self.column_of.iter_mut().enumerate().filter(|(_, column)| **column != NO_COLUMN);
        for (column, (pair, slot)) in used.enumerate() {
            *slot = u32::try_from(column).unwrap_or(NO_COLUMN);
            self.columns.push(FlavorResourceId::from_index(pair));
        }
    }
}
