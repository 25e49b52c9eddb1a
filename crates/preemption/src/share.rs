//! Dominant resource shares, kept as long as they hold.

use slicegate_quota::{NodeId, Share};

use crate::World;

/// The shares of a search, each computed when first asked for and again only after a change below its node.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    known: Vec<Option<Share>>,
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
        let share = current(world, node);
        if let Some(slot) = self.known.get_mut(node.index()) {
            *slot = Some(share);
        }
        share
    }
}

/// The share as it is now, without remembering it.
pub(crate) fn current<W: World + ?Sized>(world: &W, node: NodeId) -> Share {
    world.forest().share(node, &[], world.names())
}
