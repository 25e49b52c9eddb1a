//! Which slices could be formed of the chips that are free.

use std::collections::BTreeMap;

use slicegate_tpu::{Accelerator, SuperSlice, label};

use super::Formable;
use crate::cluster::pool::{Growth, Pool};
use crate::cluster::{Nodes, PoolId};

/// What one pool adds.
#[derive(Clone, Debug, Default)]
struct PoolSpace {
    available: i64,
    free: i64,
    formable: i64,
    largest: Option<Formable>,
    /// The block of a cube that is whole and free.
    free_cube: Option<Box<str>>,
}

/// What all pools add up to, kept up to date pool by pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pools: BTreeMap<PoolId, PoolSpace>,
    pub(super) available: i64,
    pub(super) free: i64,
    pub(super) formable: i64,
    slices: BTreeMap<Formable, u32>,
    cubes: BTreeMap<Box<str>, u32>,
}

fn space_of(pool: &Pool, nodes: &Nodes) -> PoolSpace {
    let chips = i64::from(pool.chips);
    let mut space = PoolSpace::default();
    if chips == 0 {
        return space;
    }
    let mut free_nodes: i64 = 0;
    for id in &pool.nodes {
        let Some(node) = nodes.node(*id) else { continue };
        if node.ready && !node.down {
            space.available = space.available.saturating_add(chips);
            if node.chip_user.is_none() && !node.cordoned {
                free_nodes = free_nodes.saturating_add(1);
            }
        }
    }
    space.free = free_nodes.saturating_mul(chips);
    let Some(slice) = pool.slice else { return space };
    let hosts = match pool.growth {
        Growth::Whole { hosts } => i64::from(hosts),
        Growth::ByNode => 1,
    };
    if free_nodes >= hosts && i64::from(slice.hosts()) == hosts {
        space.formable = (free_nodes / hosts).saturating_mul(hosts).saturating_mul(chips);
        space.largest =
            Some(Formable { chips: slice.chips(), accelerator: slice.accelerator(), topology: slice.topology() });
        if pool.is_cube() {
            space.free_cube = Some(pool.labels.get(label::TOPOLOGY_BLOCK).cloned().unwrap_or_default());
        }
    }
    space
}

impl Space {
    /// Looks at a pool again.
    pub(super) fn update(&mut self, id: PoolId, nodes: &Nodes) {
        let new = space_of(nodes.pool(id), nodes);
        let old = self.pools.insert(id, new.clone()).unwrap_or_default();
        self.available = self.available.saturating_add(new.available).saturating_sub(old.available);
        self.free = self.free.saturating_add(new.free).saturating_sub(old.free);
        self.formable = self.formable.saturating_add(new.formable).saturating_sub(old.formable);
        step(&mut self.slices, old.largest, new.largest);
        step(&mut self.cubes, old.free_cube, new.free_cube);
    }

    /// The largest slice that could be formed: that of a pool, or one joined of the free cubes of a block.
    pub(super) fn largest(&self) -> Option<Formable> {
        let cubes = self.cubes.values().copied().max().unwrap_or(0);
        let joined = SuperSlice::all().filter(|slice| slice.cubes() <= cubes).map(|slice| {
            // Of several with so many cubes, the one nearest to a cube.
            let [x, _, z] = slice.topology().extent().dims();
            (slice.cubes(), std::cmp::Reverse(z.saturating_sub(x)), slice.topology())
        });
        let joined = if cubes > 1 { joined.max() } else { None };
        let joined = joined.map(|(.., topology)| Formable {
            chips: topology.chips(),
            accelerator: Accelerator::Tpu7x,
            topology,
        });
        self.slices.last_key_value().map(|(slice, _)| *slice).max(joined)
    }
}

fn step<K: Ord>(counts: &mut BTreeMap<K, u32>, old: Option<K>, new: Option<K>) {
    if old == new {
        return;
    }
    if let Some(new) = new {
        let count = counts.entry(new).or_default();
        *count = count.saturating_add(1);
    }
    if let Some(old) = old
        && let Some(count) = counts.get_mut(&old)
    {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&old);
        }
    }
}
