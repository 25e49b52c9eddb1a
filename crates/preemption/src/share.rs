//! Dominant resource shares, kept as long as they hold.

use std::cmp::Ordering;

use slicegate_quota::{Amount, NodeId, ResourceId};

use crate::World;

/// The share of a node: how much of what its cohort lends it borrows, by its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) borrowing: bool,
    borrowed: u128,
    lendable: u128,
    weight: u64,
}

impl Share {
    const NONE: Self = Self { borrowing: false, borrowed: 0, lendable: 1, weight: 1 };

    /// A node of no weight that borrows.
    pub(crate) fn is_infinite(&self) -> bool {
        self.weight == 0 && self.borrowed > 0
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => compare_ratios((self.borrowed, self.lendable), (other.borrowed, other.lendable)),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_ratios(self.weighted(), other.weighted()),
        }
    }

    fn weighted(&self) -> (u128, u128) {
        if self.borrowed == 0 { (0, 1) } else { (self.borrowed, self.lendable.saturating_mul(u128::from(self.weight))) }
    }
}

/// Compares two fractions exactly, by their continued fractions: no product overflows.
fn compare_ratios(x: (u128, u128), y: (u128, u128)) -> Ordering {
    let (mut x, mut y) = (x, y);
    let mut reversed = false;
    loop {
        let (x_rest, y_rest) = (x.0 % x.1.max(1), y.0 % y.1.max(1));
        let order = match (x.0 / x.1.max(1)).cmp(&(y.0 / y.1.max(1))) {
            Ordering::Equal if x_rest > 0 && y_rest > 0 => {
                // Equal whole parts: compare the inverses of the rests the other way round.
                (x, y) = ((x.1, x_rest), (y.1, y_rest));
                reversed = !reversed;
                continue;
            }
            Ordering::Equal => x_rest.cmp(&y_rest),
            other => other,
        };
        return if reversed { order.reverse() } else { order };
    }
}

/// The shares of a search, each computed when first asked for and again only after a change below its node.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    known: Vec<Option<Share>>,
    borrowed: Vec<(ResourceId, Amount)>,
}

impl Shares {
    pub(crate) fn reset(&mut self, nodes: usize) {
        self.known.clear();
        self.known.resize(nodes, None);
    }

    /// Forgets the shares of a ClusterQueue, whose usage has changed, and of the Cohorts above.
    pub(crate) fn forget<W: World + ?Sized>(&mut self, world: &W, cluster_queue: NodeId) {
        let mut at = Some(cluster_queue);
        while let Some(node) = at {
            if let Some(slot) = self.known.get_mut(node.index()) {
                *slot = None;
            }
            at = world.forest().parent(node);
        }
    }

    pub(crate) fn get<W: World + ?Sized>(&mut self, world: &W, node: NodeId) -> Share {
        if let Some(Some(share)) = self.known.get(node.index()) {
            return *share;
        }
        let share = self.compute(world, node);
        if let Some(slot) = self.known.get_mut(node.index()) {
            *slot = Some(share);
        }
        share
    }

    /// The share as it is now, without remembering it.
    pub(crate) fn compute<W: World + ?Sized>(&mut self, world: &W, node: NodeId) -> Share {
        let (forest, names) = (world.forest(), world.names());
        let Some(parent) = forest.parent(node) else { return Share::NONE };
        self.borrowed.clear();
        for pair in forest.pairs(node) {
            let over = forest.usage(node, pair).minus(forest.subtree_quota(node, pair));
            if over > Amount::ZERO {
                let (_, resource) = names.flavor_resource(pair);
                match self.borrowed.iter_mut().find(|(r, _)| *r == resource) {
                    Some((_, sum)) => *sum = sum.plus(over),
                    None => self.borrowed.push((resource, over)),
                }
            }
        }
        if self.borrowed.is_empty() {
            return Share::NONE;
        }
        let root = forest.root(node);
        let mut best = Share { borrowing: true, borrowed: 0, lendable: 1, weight: forest.weight(node).nanos() };
        for &(resource, borrowed) in &self.borrowed {
            let lendable = forest
                .pairs(root)
                .filter(|&pair| names.flavor_resource(pair).1 == resource)
                .fold(Amount::ZERO, |sum, pair| sum.plus(forest.potential(parent, pair)));
            let (Ok(borrowed), Ok(lendable)) = (u128::try_from(borrowed.value()), u128::try_from(lendable.value()))
            else {
                continue;
            };
            if lendable > 0 && compare_ratios((borrowed, lendable), (best.borrowed, best.lendable)).is_gt() {
                best.borrowed = borrowed;
                best.lendable = lendable;
            }
        }
        best
    }
}
