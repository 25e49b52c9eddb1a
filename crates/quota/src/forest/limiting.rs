//! Which node of the forest limits, and by what.

use super::Forest;
use crate::{Amount, FlavorResourceId, NodeId};

/// By what a node limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitKind {
    /// By the quota of everything below it; the node is the root of the tree.
    Quota {
        /// The quota of its subtree.
        quota: Amount,
        /// What is used of it.
        usage: Amount,
    },
    /// By how much its subtree may take from above.
    BorrowingLimit {
        /// The limit.
        limit: Amount,
        /// What its subtree uses beyond its own quota already; negative if it uses less.
        borrowed: Amount,
    },
}

/// What limits an amount at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The amount, as [`Forest::available`] or [`Forest::potential`] says; not raised to 0 at a ClusterQueue.
    pub amount: Amount,
    /// The node that limits: the one asked about or one above it.
    pub node: NodeId,
    /// By what.
    pub kind: LimitKind,
}

impl Forest {
    /// What makes [`Forest::available`] no larger than it is. Of several nodes that limit equally, the uppermost.
    pub fn available_limit(&self, id: NodeId, pair: FlavorResourceId) -> Limit {
        self.limit(id, pair, true)
    }

    /// What makes [`Forest::potential`] no larger than it is. Of several nodes that limit equally, the uppermost.
    pub fn potential_limit(&self, id: NodeId, pair: FlavorResourceId) -> Limit {
        self.limit(id, pair, false)
    }

    fn limit(&self, id: NodeId, pair: FlavorResourceId, used: bool) -> Limit {
        let cell = |id| {
            let mut cell = self.cell(id, pair).copied().unwrap_or_default();
            if !used {
                cell.usage = Amount::ZERO;
            }
            cell
        };
        self.carry_down(
            id,
            |root| {
                let c = cell(root);
                let kind = LimitKind::Quota { quota: c.subtree, usage: c.usage };
                Limit { amount: c.subtree.minus(c.usage), node: root, kind }
            },
            |node, above| {
                let c = cell(node);
                let limit = c.borrowable();
                if limit < above.amount {
                    let borrowed = c.usage.minus(c.local).or_zero().minus(c.subtree.minus(c.local));
                    let kind = LimitKind::BorrowingLimit { limit: c.borrowing, borrowed };
                    Limit { amount: c.local_available().plus(limit), node, kind }
                } else {
                    Limit { amount: c.local_available().plus(above.amount), ..above }
                }
            },
        )
    }
}
