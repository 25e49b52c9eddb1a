//! Slices formed of partitions: what GKE's slice controller does with Slice objects.
//!
//! A Slice names partitions of cubes. Once all of them are whole, healthy, in one block and in no other Slice, it is formed,
//! which takes its time; its nodes then carry its name and its topology. It has failed for good as soon as one of its
//! partitions breaks. When it is deleted it is dissolved at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_api::slice::{Slice, state};
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_tpu::{SuperSlice, Topology, label};

use super::NodeId;
use crate::duration::words;
use crate::store::api_time;
use crate::timeline::EntryKind;
use crate::workloads::{condition, set_condition};
use crate::world::{Event, World};

/// The states of a partition: values of its label on nodes.
pub(crate) mod health {
    pub(crate) const HEALTHY: &str = "HEALTHY";
    /// A cube has lost links, but can be used.
    pub(crate) const DEGRADED: &str = "DEGRADED";
    /// A host of the part does not work.
    pub(crate) const UNHEALTHY: &str = "UNHEALTHY";
    /// A host of the part is not there.
    pub(crate) const INCOMPLETE: &str = "INCOMPLETE";
}

/// Slices and whom they wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    /// The admission checks that form slices.
    pub(crate) checks: BTreeSet<Box<str>>,
    /// Workloads to look at.
    pub(crate) dirty: BTreeSet<ObjectRef>,
    /// Workloads whose slices go when their pods are gone.
    pub(crate) closing: BTreeSet<ObjectRef>,
    /// Slices, by uid, whose failure was answered already.
    pub(crate) spent: BTreeSet<Box<str>>,
    /// How many Slices were made for each workload.
    pub(crate) made: BTreeMap<ObjectRef, usize>,
    /// Whether Slices or nodes changed since the Slices were looked at.
    pub(crate) changed: bool,
}

/// The nodes of each partition, by the label of its shape and its name.
type Index = BTreeMap<(&'static str, Box<str>), Vec<NodeId>>;

/// Whether a Slice in this state has its partitions to itself.
fn holds(state: &str) -> bool {
    is_formed(state) || state == state::ACTIVATING
}

/// Whether a Slice in this state can be used.
pub(crate) fn is_formed(state: &str) -> bool {
    matches!(state, state::ACTIVE | state::ACTIVE_DEGRADED)
}

/// The shape of the partitions of a Slice and how many it should have.
fn parts(slice: &Slice) -> Option<(Topology, u32)> {
    SuperSlice::partitions_of(slice.spec.topology.parse().ok()?).ok()
}

/// Hosts of a shape of whole hosts.
pub(crate) fn hosts_of(shape: Topology) -> usize {
    usize::try_from(shape.chips() / 4).unwrap_or(usize::MAX)
}

/// What the partitions of a Slice allow.
enum Fitness {
    /// It can be formed or go on.
    Whole { degraded: bool },
    /// It cannot, for this reason, but may later.
    NotNow(String),
    /// It never can.
    Never(String),
}

fn slice_ref(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Slice, "", name)
}

impl World {
    fn all_slices(&self) -> Vec<Arc<Slice>> {
        let all = self.store.of_kind(Kind::Slice).filter_map(|(_, object)| match object {
            Object::Slice(slice) => Some(slice.clone()),
            _ => None,
        });
        all.collect()
    }

    /// The nodes of the partitions that Slices are made of.
    fn partitions(&self, slices: &[Arc<Slice>]) -> Index {
        let keys: BTreeSet<&'static str> =
            slices.iter().filter_map(|slice| label::partition_id(parts(slice)?.0)).collect();
        let mut index = Index::new();
        if keys.is_empty() {
            return index;
        }
        let cubes = self.nodes.pools.iter().filter(|pool| pool.is_cube());
        for id in cubes.flat_map(|pool| pool.nodes.iter()) {
            let Some(node) = self.nodes.node(*id) else { continue };
            for key in &keys {
                if let Some(part) = node.labels.get(*key) {
                    index.entry((key, part.clone())).or_default().push(*id);
                }
            }
        }
        index
    }

    /// The nodes of a Slice that are there.
    pub(crate) fn nodes_of_slice(&self, slice: &Arc<Slice>) -> Vec<NodeId> {
        slice_nodes(slice, &self.partitions(std::slice::from_ref(slice)))
    }

    /// What the partitions of a Slice allow, whoever else has them.
    fn fitness(&self, slice: &Slice, index: &Index) -> Fitness {
        let wrong = |what: String| Fitness::Never(what);
        let Some((shape, count)) = parts(slice) else {
            return wrong(format!("no slice has the topology {:?}", slice.spec.topology));
        };
        let (Some(id), Some(state)) = (label::partition_id(shape), label::partition_state(shape)) else {
            return wrong(format!("no partition has the shape {shape}"));
        };
        let ids = &slice.spec.partition_ids;
        if u32::try_from(ids.len()) != Ok(count) {
            return wrong(format!("{} needs {count} partition(s), not {}", slice.spec.topology, ids.len()));
        }
        let mut degraded = false;
        let mut block: Option<Option<Box<str>>> = None;
        for part in ids {
            let nodes = index.get(&(id, part.as_str().into())).map_or(&[][..], Vec::as_slice);
            if nodes.len() != hosts_of(shape) {
                return Fitness::NotNow(format!("partition {part} has {} of {} nodes", nodes.len(), hosts_of(shape)));
            }
            for node in nodes.iter().filter_map(|id| self.nodes.node(*id)) {
                let health = node.labels.get(state).map_or(health::HEALTHY, |state| state);
                match health {
                    health::HEALTHY => {}
                    health::DEGRADED => degraded = true,
                    _ => return Fitness::NotNow(format!("partition {part} is {health}")),
                }
                let own = node.labels.get(label::TOPOLOGY_BLOCK).cloned();
                if *block.get_or_insert_with(|| own.clone()) != own {
                    return wrong("its partitions are not in one block".to_owned());
                }
            }
        }
        Fitness::Whole { degraded }
    }

    /// Looks at all Slices and what they are made of.
    pub(crate) fn sync_slices(&mut self) {
        let slices = self.all_slices();
        let index = self.partitions(&slices);
        let mut taken: BTreeMap<NodeId, Box<str>> = BTreeMap::new();
        // One that has failed keeps its partitions until it is deleted: there may be pods on them.
        for slice in slices.iter().filter(|slice| holds(slice.state()) || slice.state() == state::FAILED) {
            let name: Box<str> = slice.metadata.name.as_deref().unwrap_or_default().into();
            taken.extend(slice_nodes(slice, &index).into_iter().map(|id| (id, name.clone())));
        }
        for slice in &slices {
            let fitness = self.fitness(slice, &index);
            match (slice.state(), fitness) {
                (state::FAILED | state::DEACTIVATING | state::INCOMPLETE, _)
                | (state::ACTIVATING, Fitness::Whole { .. }) => {}
                (_, Fitness::Never(why)) => self.slice_failed(slice, &why),
                (now, Fitness::Whole { degraded }) if is_formed(now) => {
                    let new = if degraded { state::ACTIVE_DEGRADED } else { state::ACTIVE };
                    self.set_slice(slice, new, "");
                }
                (now, Fitness::NotNow(why)) if holds(now) => self.slice_failed(slice, &why),
                (_, Fitness::NotNow(why)) => self.set_slice(slice, state::CREATION_FAILED, &why),
                (_, Fitness::Whole { .. }) => {
                    let nodes = slice_nodes(slice, &index);
                    if let Some(other) = nodes.iter().find_map(|id| taken.get(id)) {
                        let why = format!("its nodes are in use by Slice {other}");
                        self.set_slice(slice, state::CREATION_FAILED, &why);
                        continue;
                    }
                    let name: Box<str> = slice.metadata.name.as_deref().unwrap_or_default().into();
                    taken.extend(nodes.into_iter().map(|id| (id, name.clone())));
                    self.set_slice(slice, state::ACTIVATING, "");
                    let uid: Box<str> = slice.metadata.uid.as_deref().unwrap_or_default().into();
                    let at = self.now.plus_micros(self.settings.slice_formation);
                    self.queue.schedule(at, Event::SliceFormed { slice: name, uid });
                }
            }
        }
        self.label_slices();
    }

    /// Forming a Slice is done.
    pub(crate) fn slice_formed(&mut self, name: &str, uid: &str) {
        let Some(Object::Slice(slice)) = self.store.get(&slice_ref(name)) else { return };
        let slice = slice.clone();
        if slice.metadata.uid.as_deref() != Some(uid) || slice.state() != state::ACTIVATING {
            return;
        }
        let index = self.partitions(std::slice::from_ref(&slice));
        match self.fitness(&slice, &index) {
            Fitness::Whole { degraded } => {
                let new = if degraded { state::ACTIVE_DEGRADED } else { state::ACTIVE };
                self.set_slice(&slice, new, "");
                let text = format!(
                    "Slice {name} is {new} after {}: {} of {}",
                    words(self.settings.slice_formation),
                    slice.spec.topology,
                    slice.spec.partition_ids.join(", ")
                );
                let job = self.job_of_slice(&slice);
                self.say(job, EntryKind::Slice, text);
            }
            Fitness::NotNow(why) | Fitness::Never(why) => self.slice_failed(&slice, &why),
        }
    }

    fn slice_failed(&mut self, slice: &Arc<Slice>, why: &str) {
        self.set_slice(slice, state::FAILED, why);
        let job = self.job_of_slice(slice);
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        self.say(job, EntryKind::Slice, format!("Slice {name} has failed: {why}"));
    }

    fn set_slice(&mut self, slice: &Arc<Slice>, state: &str, why: &str) {
        let ready = is_formed(state);
        let mut changed = slice.clone();
        let new = condition("Ready", ready, state, why, &api_time(self.now));
        let old = slice.status.conditions.iter().find(|c| c.type_ == "Ready");
        if old.is_some_and(|old| old.reason == new.reason && old.message == new.message) {
            return;
        }
        set_condition(&mut Arc::make_mut(&mut changed).status.conditions, new);
        self.store.put(Object::Slice(changed));
    }

    /// Puts the name and the topology of their Slice on nodes, and takes them off again.
    fn label_slices(&mut self) {
        let slices = self.all_slices();
        let index = self.partitions(&slices);
        let mut of: BTreeMap<NodeId, &Arc<Slice>> = BTreeMap::new();
        for slice in slices.iter().filter(|slice| is_formed(slice.state())) {
            of.extend(slice_nodes(slice, &index).into_iter().map(|id| (id, slice)));
        }
        let mut changes = Vec::new();
        for pool in self.nodes.pools.iter().filter(|pool| pool.is_cube()) {
            let own = pool.labels.get(label::TOPOLOGY).map(ToString::to_string);
            for id in &pool.nodes {
                let Some(node) = self.nodes.node(*id) else { continue };
                let slice = of.get(id);
                let name = slice.and_then(|slice| slice.metadata.name.clone());
                let topology = slice.map(|slice| slice.spec.topology.clone()).or_else(|| own.clone());
                changes.push((ObjectRef::new(Kind::Node, "", node.name.clone()), name, topology));
            }
        }
        for (key, name, topology) in changes {
            let Some(Object::Node(node)) = self.store.get(&key) else { continue };
            let have = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
            if have(label::SLICE) == name.as_ref() && have(label::TOPOLOGY) == topology.as_ref() {
                continue;
            }
            let mut node = node.clone();
            let labels = Arc::make_mut(&mut node).metadata.labels.get_or_insert_default();
            for (key, value) in [(label::SLICE, name), (label::TOPOLOGY, topology)] {
                match value {
                    Some(value) => _ = labels.insert(key.to_owned(), value),
                    None => _ = labels.remove(key),
                }
            }
            self.store.put(Object::Node(node));
        }
    }

    /// Everything about Slices that does not hold and should.
    pub(crate) fn check_slices(&self, found: &mut Vec<crate::simulation::Violation>) {
        use crate::simulation::Violation;
        let slices = self.all_slices();
        let index = self.partitions(&slices);
        let mut taken: BTreeMap<NodeId, &Arc<Slice>> = BTreeMap::new();
        let name_of = |slice: &Arc<Slice>| slice.metadata.name.clone().unwrap_or_default();
        for slice in slices.iter().filter(|slice| holds(slice.state())) {
            let nodes = slice_nodes(slice, &index);
            let formed = is_formed(slice.state());
            let name = name_of(slice);
            let whole = nodes.iter().filter_map(|id| self.nodes.node(*id)).filter(|node| {
                let has = |key: &str, value: &str| node.labels.get(key).is_some_and(|have| **have == *value);
                !formed || has(label::SLICE, &name) && has(label::TOPOLOGY, &slice.spec.topology)
            });
            let whole = whole.count();
            let hosts = parts(slice).map_or(0, |(shape, count)| {
                hosts_of(shape).saturating_mul(usize::try_from(count).unwrap_or(usize::MAX))
            });
            if whole != hosts {
                found.push(Violation::PartialSlice { slice: name.as_str().into(), nodes: whole, hosts });
            }
            for id in nodes {
                if let Some(other) = taken.insert(id, slice)
                    && let Some(node) = self.nodes.node(id)
                {
                    let slices = vec![name_of(other), name.clone()];
                    found.push(Violation::SharedPartition { node: node.name.clone(), slices });
                }
            }
        }
        for node in self.nodes.pools.iter().flat_map(|pool| pool.nodes.iter()).filter_map(|id| self.nodes.node(*id)) {
            let Some(name) = node.labels.get(label::SLICE) else { continue };
            let formed = slices.iter().any(|slice| *name_of(slice) == **name && is_formed(slice.state()));
            if !formed && self.nodes.pool(node.pool).is_cube() {
                found.push(Violation::PartialSlice { slice: name.clone(), nodes: 1, hosts: 0 });
            }
        }
    }
}

/// The nodes of a Slice that are there, in order of its partitions.
fn slice_nodes(slice: &Slice, index: &Index) -> Vec<NodeId> {
    let Some(key) = parts(slice).and_then(|(shape, _)| label::partition_id(shape)) else { return Vec::new() };
    let ids = slice.spec.partition_ids.iter();
    ids.filter_map(|part| index.get(&(key, part.as_str().into()))).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Settings;
    use crate::simulation::Violation;
    use serde_json::json;

    /// What is wrong in a world of one cube with these Slices: how many nodes are shared, and which Slices are not whole.
    fn violations(slices: &[(&str, &str, &str, &str)]) -> (usize, Vec<(String, usize, usize)>) {
        let mut world = World::new(Settings::default(), false);
        let pool = serde_json::from_value(json!({
            "name": "a", "initialNodeCount": 16, "placementPolicy": {"tpuTopology": "4x4x4"},
            "config": {"machineType": "tpu7x-standard-4t",
                       "labels": {"cloud.google.com/gke-accelerator-topology-mode": "PROVISION_ONLY"}}
        }));
        world.add_node_pool(&pool.unwrap());
        for (name, topology, id, state) in slices {
            let ready = json!({"type": "Ready", "status": "True", "reason": state, "message": "",
                               "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let slice = Kind::Slice.read(json!({
                "metadata": {"name": name}, "spec": {"type": "tpu7x", "topology": topology, "partitionIds": [id]},
                "status": {"conditions": [ready]}
            }));
            world.store.create(slice.unwrap()).unwrap();
        }
        let mut found = Vec::new();
        world.check_slices(&mut found);
        let shared = found.iter().filter(|violation| matches!(violation, Violation::SharedPartition { .. })).count();
        let partial = found.iter().filter_map(|violation| match violation {
            Violation::PartialSlice { slice, nodes, hosts } => Some((slice.to_string(), *nodes, *hosts)),
            _ => None,
        });
        (shared, partial.collect())
    }

    #[test]
    fn shared_and_partial_slices_are_found() {
        let first = ("first", "4x4x4", "a", state::ACTIVATING);
        let half = |state| ("half", "2x4x4", "a-2x4x4-0", state);
        assert_eq!(violations(&[first]), (0, Vec::new()));
        assert_eq!(violations(&[first, half(state::CREATION_FAILED)]), (0, Vec::new()));
        assert_eq!(violations(&[first, half(state::ACTIVATING)]), (8, Vec::new()));
        // Its nodes do not carry its name.
        assert_eq!(violations(&[half(state::ACTIVE)]), (0, vec![("half".to_owned(), 0, 8)]));
        assert_eq!(violations(&[("b", "4x4x4", "b", state::ACTIVATING)]), (0, vec![("b".to_owned(), 0, 16)]));
    }
}
