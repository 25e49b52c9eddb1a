//! Cubes: node pools of 4x4x4 chips from which slices are formed as they are needed (GKE dynamic slicing).
//!
//! Nodes of such a pool carry the label `cloud.google.com/gke-accelerator-topology-mode`. Others say where in the fabric a node
//! is: its block, its cube, and the smaller parts of the cube that can be slices of their own. Those labels serve as levels of
//! a topology. For every part there is a label with its health, which follows the hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_tpu::{SubSlices, Topology, label};

use super::PoolId;
use super::pool::Pool;
use super::slices::health::{DEGRADED, HEALTHY, INCOMPLETE, UNHEALTHY};
use crate::world::World;

/// Names a part: the cube by its pool, smaller ones by their shape and number in it.
fn part_id(pool: &Pool, shape: Topology, part: u32) -> String {
    if shape == Topology::CUBE { pool.name.to_string() } else { format!("{}-{shape}-{part}", pool.name) }
}

impl Pool {
    /// The ways to cut the cube of this pool into parts of whole hosts: by the shapes that have labels.
    fn cuts(&self) -> Vec<SubSlices> {
        let Some(slice) = self.slice.filter(|_| self.is_cube()) else { return Vec::new() };
        let shapes = SubSlices::shapes_of(slice).filter(|shape| label::partition_id(*shape).is_some());
        shapes.filter_map(|shape| SubSlices::new(slice, shape).ok()).filter(|cut| cut.is_host_aligned()).collect()
    }

    /// The labels of the node that is the worker of this number in the cube.
    pub(crate) fn labels_of_worker(&self, worker: u32) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for cut in self.cuts() {
            let Some(part) = (0..cut.count()).find(|part| cut.workers_of(*part).any(|of| of == worker)) else {
                continue;
            };
            if let (Some(id), Some(state)) = (label::partition_id(cut.part()), label::partition_state(cut.part())) {
                labels.insert(id.to_owned(), part_id(self, cut.part(), part));
                labels.insert(state.to_owned(), HEALTHY.to_owned());
            }
        }
        labels
    }

    /// Says in which block and sub-block a cube stands, unless the document does.
    pub(crate) fn place_cube(&mut self) {
        if self.is_cube() {
            self.labels.entry(label::TOPOLOGY_BLOCK.into()).or_insert_with(|| "block-0".into());
            let name = self.name.clone();
            self.labels.entry(label::TOPOLOGY_SUBBLOCK.into()).or_insert(name);
        }
    }
}

impl World {
    /// Brings the health of a cube's parts up to date.
    pub(crate) fn update_partitions(&mut self, id: PoolId) {
        let pool = self.nodes.pool(id);
        let cuts = pool.cuts();
        // What each host is in, by the labels of its node.
        let mut there: BTreeMap<Box<str>, usize> = BTreeMap::new();
        let mut broken: BTreeSet<Box<str>> = BTreeSet::new();
        for node in pool.nodes.iter().filter_map(|id| self.nodes.node(*id)) {
            for part in cuts.iter().filter_map(|cut| node.labels.get(label::partition_id(cut.part())?)) {
                let count = there.entry(part.clone()).or_default();
                *count = count.saturating_add(1);
                if node.down || !node.ready {
                    broken.insert(part.clone());
                }
            }
        }
        let mut changes: Vec<(ObjectRef, Vec<(&'static str, &'static str)>)> = Vec::new();
        for node in pool.nodes.iter().filter_map(|id| self.nodes.node(*id)) {
            let states = cuts.iter().filter_map(|cut| {
                let part = node.labels.get(label::partition_id(cut.part())?)?;
                let state = if there.get(part).copied() != Some(cut.workers_of(0).count()) {
                    INCOMPLETE
                } else if broken.contains(part) {
                    UNHEALTHY
                } else if node.labels.get(label::partition_state(cut.part())?).is_some_and(|was| **was == *DEGRADED) {
                    // Nothing here repairs links; who says that they are broken says when they are not.
                    DEGRADED
                } else {
                    HEALTHY
                };
                Some((label::partition_state(cut.part())?, state))
            });
            changes.push((ObjectRef::new(Kind::Node, "", node.name.clone()), states.collect()));
        }
        for (key, states) in changes {
            let Some(Object::Node(node)) = self.store.get(&key) else { continue };
            let mut node = node.clone();
            let labels = Arc::make_mut(&mut node).metadata.labels.get_or_insert_default();
            for (key, state) in states {
                labels.insert(key.to_owned(), state.to_owned());
            }
            self.store.put(Object::Node(node));
        }
    }
}
