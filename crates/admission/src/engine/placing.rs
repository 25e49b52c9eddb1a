//! Finding places for the pods of one workload.

use std::collections::BTreeMap;

use slicegate_flavor::{
    Assignment, ClusterQueueView, Features, LevelSupport, PlacementFailure, PlacementRequest, PlacementUsage, Placer,
    PodSetResult, WorkloadRequest, additional_domains, placement_requests,
};
use slicegate_placement::{Placement, PodRequest, PodSetRequest, Reach, Replacement, Topologies, Usage};
use slicegate_preemption::{Holder, Target, WorkloadRef, World};
use slicegate_quota::{FlavorId, Forest, Names, NodeId};
use slicegate_workload::{CheckState, ClusterQueueSpec, PodSet, PodSetUpdate, PreemptionPolicy, TopologyAssignment};

use super::activity::{MULTI_KUEUE, PROVISIONING};
use super::assign::Held;
use super::ids::WorkloadId;
use super::record::Record;
use super::shape::Shape;
use super::state::{Checkpoint, State};
use super::{CheckSpec, Engine};
use crate::Gates;

/// A pod set as it is to be placed.
struct Pods<'a> {
    spec: &'a PodSet,
    request: &'a PodRequest,
    /// What its checks change about the pods.
    updates: Vec<PodSetUpdate>,
    /// Where the pods of the slice lie that is replaced.
    previous: Option<&'a TopologyAssignment>,
    replacement: Option<Replacement<'a>>,
}

/// For which flavors placing is put off until checks are ready.
enum Delay {
    Never,
    Always,
    For(Vec<FlavorId>),
}

/// What finding places needs to know of a workload, beside what the assigner says.
pub(super) struct Wants<'a> {
    pods: Vec<Pods<'a>>,
    delay: Delay,
    /// The slice that is replaced, if its pods keep their places.
    pub(super) slice: Option<WorkloadRef>,
    features: Features,
}

/// What [`Wants::new`] looks at.
#[derive(Clone, Copy)]
pub(super) struct WantsOf<'a, 'r> {
    pub(super) record: &'r Record,
    pub(super) shape: &'a Shape,
    pub(super) queue: &'r ClusterQueueSpec,
    pub(super) checks: &'r BTreeMap<Box<str>, CheckSpec>,
    pub(super) names: &'r Names,
    /// The node that failed.
    pub(super) failed: Option<&'a str>,
    /// What it was given before, by pod set.
    pub(super) seeds: &'a BTreeMap<Box<str>, Held>,
    /// What the slice that it replaces was given, by pod set.
    pub(super) old: &'a BTreeMap<Box<str>, Held>,
    pub(super) slice: Option<WorkloadRef>,
    pub(super) gates: Gates,
    pub(super) features: Features,
}

impl<'a> Wants<'a> {
    pub(super) fn new(of: WantsOf<'a, '_>) -> Self {
        let WantsOf { record, shape, queue, checks, names, failed, seeds, old, slice, gates, features } = of;
        let status = record.status.rest();
        let ready: Vec<&PodSetUpdate> = status
            .admission_checks
            .iter()
            .filter(|c| c.state == CheckState::Ready)
            .flat_map(|c| &c.pod_set_updates)
            .collect();
        let failed = failed.filter(|_| gates.tas_failed_node_replacement);
        let keep = gates.skip_reassignment_for_pod_owned_workloads && record.owned_by_pod;
        let elastic = gates.elastic_jobs_via_workload_slices_with_tas;
        let pods = shape.pod_sets().iter().zip(&shape.pod_sets).map(|(spec, resolved)| {
            let seed = seeds.get(&spec.name).filter(|held| held.unhealthy);
            let existing = seed.and_then(|held| held.topology.as_ref());
            Pods {
                spec,
                request: &resolved.pod_request,
                updates: ready.iter().filter(|u| u.name == spec.name).map(|&u| u.clone()).collect(),
                previous: old.get(&spec.name).filter(|_| elastic).and_then(|held| held.topology.as_ref()),
                replacement: failed.zip(existing).map(|(node, existing)| Replacement { node, existing, keep }),
            }
        });
        Self {
            pods: pods.collect(),
            delay: Delay::new(queue, checks, names, record.holding.is_some()),
            slice: slice.filter(|_| elastic),
            features,
        }
    }

    fn requests(&self, requests: &[PlacementRequest]) -> Vec<PodSetRequest<'_>> {
        let known = requests.iter().filter_map(|r| Some((r, self.pods.get(r.pod_set)?)));
        known
            .map(|(r, pods)| {
                let topology = pods.spec.topology_request.as_ref();
                PodSetRequest {
                    name: &pods.spec.name,
                    count: r.count,
                    pod_request: pods.request,
                    pod: &pods.spec.pod,
                    updates: &pods.updates,
                    topology: topology.filter(|_| !r.implied),
                    group: topology.and_then(|t| t.pod_set_group_name.as_deref()),
                    flavor: r.flavor,
                    previous: pods.previous,
                    replacement: pods.replacement,
                }
            })
            .collect()
    }

    /// The pod sets of an assignment that are to be placed.
    pub(super) fn of_assignment(
        &self,
        view: &ClusterQueueView,
        workload: &WorkloadRequest<'_>,
        state: &mut State,
        assignment: &mut Assignment,
    ) -> Vec<PlacementRequest> {
        let desk = Desk { wants: self, topologies: &mut state.topologies };
        placement_requests(view, workload, self.features, &desk, assignment)
    }

    /// Gives the assignment the places that its pods would have: once the victims are gone, or in an empty cluster if there are
    /// none. Pods for which there are none stay without.
    pub(super) fn place_later(
        &self,
        state: &mut State,
        requests: &[PlacementRequest],
        victims: impl Iterator<Item = WorkloadRef>,
        assignment: &mut Assignment,
    ) {
        let mark = state.checkpoint();
        let mut usage = slicegate_placement::PlacementUsage::Empty;
        for victim in victims {
            usage = slicegate_placement::PlacementUsage::Current;
            state.remove(victim);
        }
        let places = state.topologies.place(&self.requests(requests), usage);
        state.rollback(mark);
        for (request, place) in requests.iter().zip(places) {
            let result = assignment.pod_sets.iter_mut().find(|r| r.pod_set == request.pod_set);
            if let (Some(result), Placement::Placed(place)) = (result, place) {
                result.topology = Some(place);
            }
        }
    }
}

impl Delay {
    fn new(queue: &ClusterQueueSpec, checks: &BTreeMap<Box<str>, CheckSpec>, names: &Names, holds: bool) -> Self {
        let mut flavors = Vec::new();
        for rule in &queue.admission_checks {
            match checks.get(&rule.name).map(|c| &*c.controller) {
                Some(MULTI_KUEUE) => return Self::Always,
                Some(PROVISIONING) if !holds && rule.on_flavors.is_empty() => {
                    let all = queue.resource_groups.iter().flat_map(|g| &g.flavors);
                    flavors.extend(all.filter_map(|f| names.flavor(&f.name)));
                }
                Some(PROVISIONING) if !holds => flavors.extend(rule.on_flavors.iter().filter_map(|f| names.flavor(f))),
                _ => {}
            }
        }
        if flavors.is_empty() { Self::Never } else { Self::For(flavors) }
    }
}

/// Finds places as the assigner asks for them.
pub(super) struct Desk<'a> {
    pub(super) wants: &'a Wants<'a>,
    pub(super) topologies: &'a mut Topologies,
}

impl Placer for Desk<'_> {
    fn has_topology(&self, flavor: FlavorId) -> bool {
        self.topologies.tree(flavor).is_some()
    }

    fn supports(&self, flavor: FlavorId, pod_set: usize) -> LevelSupport {
        let request = self.wants.pods.get(pod_set).and_then(|p| p.spec.topology_request.as_ref());
        let Some(tree) = self.topologies.tree(flavor) else { return LevelSupport::Unknown };
        if request.is_none_or(|r| tree.supports(r)) { LevelSupport::Supported } else { LevelSupport::MissingLevel }
    }

    fn is_delayed(&self, flavor: FlavorId, _pod_set: usize) -> bool {
        match &self.wants.delay {
            Delay::Never => false,
            Delay::Always => true,
            Delay::For(flavors) => flavors.contains(&flavor),
        }
    }

    fn place(
        &mut self,
        requests: &[PlacementRequest],
        usage: PlacementUsage,
    ) -> Result<Vec<TopologyAssignment>, PlacementFailure> {
        let usage = match usage {
            PlacementUsage::Current => slicegate_placement::PlacementUsage::Current,
            PlacementUsage::Empty => slicegate_placement::PlacementUsage::Empty,
        };
        let placements = self.topologies.place(&self.wants.requests(requests), usage);
        let failed = requests.iter().zip(&placements).find_map(|(r, p)| Some((r, p.failure()?)));
        if let Some((request, failure)) = failed {
            let (pod_set, flavor) = (request.pod_set, request.flavor);
            return Err(PlacementFailure { pod_set, flavor, message: failure.to_string().into() });
        }
        let assignment = |placement: Placement| match placement {
            Placement::Placed(assignment) => assignment,
            Placement::Failed(_) | Placement::Untried => TopologyAssignment::default(),
        };
        Ok(placements.into_iter().map(assignment).collect())
    }
}

/// The state, and pods that are to find places in it.
pub(super) struct Scene<'a> {
    pub(super) state: &'a mut State,
    wanted: Vec<PodSetRequest<'a>>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(state: &'a mut State, wants: &'a Wants<'a>, requests: &[PlacementRequest]) -> Self {
        Self { state, wanted: wants.requests(requests) }
    }
}

impl World for Scene<'_> {
    type Checkpoint = Checkpoint;

    fn forest(&self) -> &Forest {
        self.state.forest()
    }

    fn names(&self) -> &Names {
        self.state.names()
    }

    fn forest_mut(&mut self) -> &mut Forest {
        self.state.forest_mut()
    }

    fn workloads(&self, cluster_queue: NodeId) -> &[WorkloadRef] {
        self.state.workloads(cluster_queue)
    }

    fn workload(&self, workload: WorkloadRef) -> Holder<'_> {
        self.state.workload(workload)
    }

    fn policy(&self, cluster_queue: NodeId) -> PreemptionPolicy {
        self.state.policy(cluster_queue)
    }

    fn remove(&mut self, workload: WorkloadRef) {
        self.state.remove(workload);
    }

    fn restore(&mut self, workload: WorkloadRef) {
        self.state.restore(workload);
    }

    fn places(&mut self) -> bool {
        if !self.state.places() {
            return false;
        }
        let placements = self.state.topologies.place(&self.wanted, slicegate_placement::PlacementUsage::Current);
        placements.iter().all(|p| p.assignment().is_some())
    }

    fn checkpoint(&mut self) -> Checkpoint {
        self.state.checkpoint()
    }

    fn rollback(&mut self, checkpoint: Checkpoint) {
        self.state.rollback(checkpoint);
    }
}

impl Engine {
    /// What the pods of an assignment take of nodes, beyond what the workload holds already.
    pub(super) fn places_of(&self, id: WorkloadId, assignment: &Assignment) -> Vec<Usage> {
        let Some(record) = self.state.records.get(id) else { return Vec::new() };
        let Some(shape) = self.shapes.get(record.shape) else { return Vec::new() };
        let topologies = &self.state.topologies;
        let mut all = Vec::new();
        for PodSetResult { pod_set, topology, flavors, .. } in &assignment.pod_sets {
            let Some(topology) = topology else { continue };
            let (Some(spec), Some(resolved)) = (shape.pod_sets().get(*pod_set), shape.pod_sets.get(*pod_set)) else {
                continue;
            };
            let given = record.holding.as_ref().and(record.status.rest().admission.as_ref());
            let given = given.and_then(|a| a.pod_set_assignments.iter().find(|p| p.name == spec.name));
            let held = given.and_then(|p| p.topology_assignment.as_ref());
            let domains = additional_domains(topology, held);
            let net = TopologyAssignment { levels: topology.levels.clone(), domains };
            let mut flavors: Vec<FlavorId> = flavors.iter().map(|c| c.flavor).collect();
            flavors.sort_unstable();
            flavors.dedup();
            flavors.retain(|f| topologies.tree(*f).is_some());
            all.extend(flavors.into_iter().map(|f| topologies.usage(f, &net, &resolved.pod_request)));
        }
        all
    }
}

impl State {
    /// Stops counting the places of a workload, within a what-if.
    pub(super) fn leave_places(&mut self, workload: WorkloadRef) {
        let Self { records, topologies, .. } = self;
        let record = records.get(WorkloadId::from_index(workload.index()));
        for held in record.and_then(|r| r.holding.as_deref()).iter().flat_map(|h| &h.places) {
            topologies.take_away(&held.usage, Reach::Node);
        }
    }

    /// Counts pods for the rest of a what-if.
    pub(super) fn add_places(&mut self, places: &[Usage]) {
        for usage in places {
            self.topologies.add(usage, Reach::Flavor);
        }
    }

    /// The inverse of [`State::add_places`].
    pub(super) fn take_places_away(&mut self, places: &[Usage]) {
        for usage in places {
            self.topologies.take_away(usage, Reach::Flavor);
        }
    }

    /// Whether planned pods fit beside those that are counted.
    pub(super) fn has_places(&self, places: &[Usage]) -> bool {
        places.iter().all(|usage| self.topologies.check(usage).is_ok())
    }
}

/// The workloads that leave for an assignment.
pub(super) fn leaving(targets: &[Target], slice: Option<WorkloadRef>) -> impl Iterator<Item = WorkloadRef> + '_ {
    targets.iter().map(|t| t.workload).chain(slice)
}
