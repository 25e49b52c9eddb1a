//! Whole slices in the engine: node pools, who holds how many slices, and what that means for others.

use slicegate_flavor::{PodSetResult, SlicesMissing};
use slicegate_preemption::WorkloadRef;
use slicegate_quota::FlavorId;
use slicegate_tpu::RESOURCE;
use slicegate_workload::{ClusterQueueSpec, Key, Timestamp};

use super::Engine;
use super::ids::WorkloadId;
use super::shape::Shape;
use super::state::State;
use crate::slices::{DemandId, SlicePods};
use crate::{NodePool, PoolReport};

/// Slices by what they are needed for.
pub(super) type Slices = Vec<(DemandId, u32)>;

impl Engine {
    /// Adds or updates a TPU node pool, as it is configured: with it, slices count that are not there but can be provisioned.
    /// Pools that have nodes are known from those ([`Engine::set_node`]) without it.
    ///
    /// It matters to ResourceFlavors that ask for whole slices
    /// ([`FlavorSpec::whole_slices`](slicegate_workload::FlavorSpec::whole_slices)), and to no others.
    ///
    /// ```
    /// use slicegate_admission::{Config, Engine, NodePool};
    /// use slicegate_tpu::{SliceShape, node_labels};
    /// use slicegate_workload::Timestamp;
    ///
    /// let mut engine = Engine::new(Config::new());
    /// let shape = SliceShape::parse("ct6e-standard-4t", "4x4")?;
    /// engine.set_node_pool(Timestamp::from_seconds(0), NodePool {
    ///     name: "slice-0".into(),
    ///     shape,
    ///     labels: node_labels(shape, "slice-0").map(|(key, value)| (key.into(), value.into())).collect(),
    ///     taints: Vec::new(),
    ///     max_nodes: Some(4),
    /// });
    /// assert_eq!(engine.node_pools()[0].coming, 1);
    /// # Ok::<(), slicegate_tpu::SliceError>(())
    /// ```
    pub fn set_node_pool(&mut self, now: Timestamp, pool: NodePool) {
        self.state.now = now;
        if self.state.inventory.set_pool(pool) {
            self.slices_changed(now);
        }
    }

    /// Forgets what was configured of a node pool. Its nodes stay until they are removed.
    pub fn remove_node_pool(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        if self.state.inventory.remove_pool(name) {
            self.slices_changed(now);
        }
    }

    /// Every TPU node pool that is known, by name, with the state of its slices and the workloads that hold them. Workloads count
    /// if their ResourceFlavor asks for whole slices.
    pub fn node_pools(&mut self) -> Vec<PoolReport> {
        let State { inventory, records, .. } = &mut self.state;
        let all = records.iter().filter_map(|(_, r)| Some((&r.key, r.holding.as_deref()?.slices.as_slice())));
        let (keys, slices): (Vec<&Key>, Vec<_>) = all.filter(|(_, s)| !s.is_empty()).unzip();
        inventory.deal_out(&slices, |holder| keys.get(holder).copied())
    }

    /// How many slices a workload holds of pods sets in flavors that ask for whole slices.
    pub fn slices_held(&self, workload: &Key) -> u32 {
        let record = self.state.records.find(workload).and_then(|id| self.state.records.get(id));
        let slices = record.and_then(|r| r.holding.as_deref()).map(|h| h.slices.as_slice()).unwrap_or_default();
        slices.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Slices that workloads hold although they are not there as a whole: hardware broke, or pools were taken away.
    pub fn slices_missing(&mut self) -> u64 {
        self.state.inventory.overcommitted()
    }

    /// Lets workloads be looked at again that may use whole slices.
    pub(super) fn slices_changed(&mut self, now: Timestamp) {
        if self.slices_on {
            let nodes = self.sliced_nodes();
            for node in nodes {
                self.configuration_changed(now, node);
            }
        }
    }

    /// After slices may have become free: other trees may wait for the same ones.
    pub(super) fn wake_for_slices(&mut self, now: Timestamp) {
        if self.slices_on && self.state.inventory.take_freed() {
            let nodes = self.sliced_nodes();
            for node in nodes {
                self.request_flush(now, node);
            }
        }
    }

    /// ClusterQueues that admit and use a flavor that asks for whole slices.
    fn sliced_nodes(&self) -> Vec<slicegate_quota::NodeId> {
        let is_sliced = |name: &str| {
            let flavor = self.state.names.flavor(name).and_then(|id| self.flavors.get(id));
            flavor.is_some_and(|f| f.whole_slices)
        };
        let uses =
            |spec: &ClusterQueueSpec| spec.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| is_sliced(&f.name));
        self.active_nodes().filter(|&n| self.state.queue(n).is_some_and(|q| uses(&q.spec))).collect()
    }

    /// Takes in that a flavor changed: what workloads hold is counted anew if that concerns whole slices.
    pub(super) fn sliced_flavor_changed(&mut self, before: bool, after: bool) {
        self.slices_on = self.flavors.iter().any(|(_, f)| f.is_some_and(|f| f.whole_slices));
        if !before && !after {
            return;
        }
        let ids: Vec<WorkloadId> =
            self.state.records.iter().filter(|(_, r)| r.holding.is_some()).map(|(id, _)| id).collect();
        for id in ids {
            let slices = self.held_slices(id);
            let Some(holding) = self.state.records.get_mut(id).and_then(|r| r.holding.as_deref_mut()) else { continue };
            let old = std::mem::replace(&mut holding.slices, slices);
            self.state.inventory.release(&old);
            let held = self.state.records.get(id).and_then(|r| r.holding.as_deref());
            if let Some(holding) = held {
                self.state.inventory.hold(&holding.slices);
            }
        }
    }

    /// The slices that a workload holds by its status.
    pub(super) fn held_slices(&mut self, id: WorkloadId) -> Slices {
        if !self.slices_on {
            return Vec::new();
        }
        let Some(record) = self.state.records.get(id) else { return Vec::new() };
        let totals = self.rebuild(record).admitted_totals(&self.requests);
        let Some(shape) = self.shapes.get(record.shape) else { return Vec::new() };
        let mut slices = Vec::new();
        for total in &totals {
            let flavor = total.flavors.iter().find(|(r, _)| r.as_ref() == RESOURCE).map(|(_, f)| f);
            let flavor = flavor.and_then(|name| self.state.names.flavor(name)).and_then(|id| self.flavors.get(id));
            let pod_set = shape.pod_sets().iter().find(|p| p.name == total.name);
            let (Some(flavor), Some(pod_set)) = (flavor.filter(|f| f.whole_slices), pod_set) else { continue };
            let pods = SlicePods { pod: &pod_set.pod, count: total.count, flavor };
            // What makes no slice was admitted before anybody asked for whole ones.
            slices.extend(self.state.inventory.demand(&pods).ok().flatten());
        }
        slices
    }
}

/// What is needed to tell how many slices pod sets take.
#[derive(Clone, Copy)]
pub(super) struct SliceFacts<'a> {
    pub(super) shape: &'a Shape,
    pub(super) flavors: &'a slicegate_flavor::FlavorTable,
}

impl State {
    /// Stops counting the slices of a workload, within a what-if.
    pub(super) fn leave_slices(&mut self, workload: WorkloadRef) {
        let Self { records, inventory, .. } = self;
        let record = records.get(WorkloadId::from_index(workload.index()));
        if let Some(holding) = record.and_then(|r| r.holding.as_deref()) {
            inventory.give_back(&holding.slices);
        }
    }
}

impl SliceFacts<'_> {
    fn pods(&self, result: &PodSetResult, flavor: FlavorId) -> Option<SlicePods<'_>> {
        let flavor = self.flavors.get(flavor).filter(|f| f.whole_slices)?;
        let pod_set = self.shape.pod_sets().get(result.pod_set)?;
        Some(SlicePods { pod: &pod_set.pod, count: result.count, flavor })
    }

    /// The slices of what pod sets were given; those of members are in `flavor`.
    fn ask(
        &self,
        state: &mut State,
        given: &[PodSetResult],
        members: &[usize],
        flavor: Option<FlavorId>,
    ) -> Result<Slices, (slicegate_flavor::SliceShortage, usize)> {
        let tpu = state.names.resource(RESOURCE);
        let mut ask = Slices::new();
        for (i, result) in given.iter().enumerate() {
            let own = || result.flavors.iter().find(|c| Some(c.resource) == tpu).map(|c| c.flavor);
            let chosen = if members.contains(&result.pod_set) { flavor } else { own() };
            let Some(pods) = chosen.and_then(|f| self.pods(result, f)) else { continue };
            if let Some((id, n)) = state.inventory.demand(&pods).map_err(|shortage| (shortage, i))? {
                match ask.iter_mut().find(|(other, _)| *other == id) {
                    Some((_, sum)) => *sum = sum.saturating_add(n),
                    None => ask.push((id, n)),
                }
            }
        }
        Ok(ask)
    }

    /// The slices that an assignment takes.
    pub(super) fn of_assignment(&self, state: &mut State, given: &[PodSetResult]) -> Slices {
        self.ask(state, given, &[], None).unwrap_or_default()
    }

    /// What is missing for members to lie on whole slices of a flavor. What is asked is kept for what-ifs.
    pub(super) fn missing(
        &self,
        state: &mut State,
        flavor: FlavorId,
        members: &[usize],
        given: &[PodSetResult],
    ) -> Option<SlicesMissing> {
        let spec = self.flavors.get(flavor).filter(|f| f.whole_slices)?;
        let resource = state.names.resource(RESOURCE)?;
        let (shortage, if_others_left) = match self.ask(state, given, members, Some(flavor)) {
            Ok(ask) if ask.is_empty() || state.inventory.fits(&ask) => return None,
            Ok(ask) => {
                let pods = given.iter().find(|r| members.contains(&r.pod_set)).and_then(|r| self.pods(r, flavor))?;
                let shortage = state.inventory.shortage(&ask, &pods, spec)?;
                let alone = state.inventory.fits_alone(&ask);
                state.asked = ask;
                (shortage, alone)
            }
            Err((shortage, _)) => (shortage, false),
        };
        Some(SlicesMissing { resource, if_others_left, shortage })
    }
}
