//! Finding flavors and victims for one workload.

use std::collections::BTreeMap;

use slicegate_flavor::{
    Assignment, LastTried, Mode, NoTopology, PodSetRequest, PodSetResult, Possibility, PreemptionOracle,
    ReplacedPodSet, Seed, SeedFlavor, Simulated, SlicesMissing, WorkloadRequest, search_counts,
};
use slicegate_preemption::{LocalQueueUsage, Planner, Preemptor, Request, Target, WorkloadRef, World as _};
use slicegate_quota::{Amount, FlavorId, FlavorResourceId, Forest, NodeId, ResourceId};
use slicegate_workload::{ConditionType, Key};

use super::Engine;
use super::ids::WorkloadId;
use super::placing::{Desk, Scene, Wants, WantsOf, leaving};
use super::slices::{SliceFacts, Slices};
use super::state::{State, reference};

/// The flavors that a nomination chose, by pod set.
pub(super) type Nominated = Vec<Vec<(ResourceId, FlavorId)>>;

/// Flavors and victims.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) assignment: Assignment,
    pub(super) targets: Vec<Target>,
    /// Whether there would be victims if it were not for places.
    pub(super) quota_alone: bool,
    /// The slice that is replaced.
    pub(super) slice: Option<WorkloadRef>,
    /// Whole slices that it takes.
    pub(super) slices: Slices,
    /// Whether the scan of flavors went on where the one before was interrupted, and did not see the first of them.
    pub(super) resumed: bool,
}

struct Oracle<'a> {
    state: &'a mut State,
    planner: &'a mut Planner,
    config: &'a slicegate_preemption::Config,
    preemptor: Preemptor,
    /// What victims were last looked for.
    searched: &'a mut Option<(FlavorResourceId, Amount)>,
    /// What is needed to ask for whole slices, if the ClusterQueue has flavors that do.
    slices: Option<SliceFacts<'a>>,
    /// The slice that is replaced.
    replaced: Option<WorkloadRef>,
}

impl Oracle<'_> {
    /// Looks at the state without the slice that is replaced.
    fn without_replaced<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let Some(replaced) = self.replaced else { return look(self) };
        let mark = self.state.inventory.mark();
        self.state.leave_slices(replaced);
        let seen = look(self);
        self.state.inventory.rollback(mark);
        seen
    }
}

fn simulated(answer: slicegate_preemption::Simulation) -> Simulated {
    let possibility = match answer.possibility {
        slicegate_preemption::Possibility::NoCandidates => Possibility::NoCandidates,
        slicegate_preemption::Possibility::Preempt => Possibility::Preempt,
        slicegate_preemption::Possibility::Reclaim => Possibility::Reclaim,
    };
    Simulated { possibility, level: answer.level }
}

impl PreemptionOracle for Oracle<'_> {
    fn forest(&self) -> &Forest {
        &self.state.forest
    }

    fn simulate(&mut self, pair: FlavorResourceId, amount: Amount) -> Simulated {
        *self.searched = Some((pair, amount));
        simulated(self.planner.simulate(self.state, self.config, &self.preemptor, pair, amount))
    }

    fn slices(&mut self, flavor: FlavorId, members: &[usize], given: &[PodSetResult]) -> Option<SlicesMissing> {
        let facts = self.slices?;
        self.without_replaced(|oracle| facts.missing(oracle.state, flavor, members, given))
    }

    fn simulate_with_slices(&mut self, pair: FlavorResourceId, amount: Amount) -> Simulated {
        *self.searched = None;
        self.without_replaced(|o| simulated(o.planner.simulate_placed(o.state, o.config, &o.preemptor, pair, amount)))
    }
}

/// What a pod set of a slice that is replaced, or of a workload looked at again, was given.
pub(super) struct Held {
    name: Box<str>,
    count: i32,
    requests: Vec<(ResourceId, i64)>,
    flavors: Vec<(ResourceId, FlavorId)>,
    seeds: Vec<SeedFlavor>,
    pub(super) topology: Option<slicegate_workload::TopologyAssignment>,
    delayed: Option<slicegate_flavor::DelayedTopology>,
    /// Whether a node of the topology assignment failed.
    pub(super) unhealthy: bool,
}

impl Engine {
    /// Finds flavors for a workload in its ClusterQueue and, if only preemption can make room, victims. Remembers how far the
    /// scan of flavors came. With `nominated` only those flavors are considered.
    pub(super) fn assign(&mut self, id: WorkloadId, node: NodeId, nominated: Option<&Nominated>) -> Option<Assigned> {
        let generation = self.state.forest.generation(node);
        let cycle = i64::try_from(self.cycles).unwrap_or(i64::MAX);
        let gates = self.config.gates;
        let record = self.state.records.get_mut(id)?;
        let hash =
            gates.scheduling_equivalence_hashing.then(|| u64::try_from(record.class.index()).unwrap_or(u64::MAX));
        let preserve = gates.flavor_fungibility_preserve_scan_progress;
        let last = record.last.take().filter(|l| !l.is_outdated(generation, cycle, hash, preserve));
        let shape_id = record.shape;
        let holds = record.holding.is_some();
        let failed = record.status.rest().unhealthy_nodes.first().cloned();
        let has_unhealthy_nodes = failed.is_some();
        let elastic = gates.elastic_jobs_via_workload_slices && record.extras.as_ref().is_some_and(|e| e.elastic);
        let replaces = record.extras.as_ref().and_then(|e| e.replaces.clone()).filter(|_| elastic_gate(&gates));
        let preemptor = Preemptor {
            cluster_queue: node,
            priority: record.priority(),
            queued_at: record.queued_at,
            local_queue: self.usage_as_preemptor(id, node),
        };
        let slice = replaces.and_then(|key| self.slice_in(node, &key));
        let old = slice.map(|s| self.held(WorkloadId::from_index(s.index()))).unwrap_or_default();
        let seeds = if holds { self.held(id) } else { BTreeMap::new() };
        let allowed = self.allowed_flavors(id);
        self.shapes.get_mut(shape_id)?.refresh(&self.flavors);

        let shape = self.shapes.get(shape_id)?;
        let view = self.views.get(node.index())?.as_ref()?;
        let none = Vec::new();
        let pod_sets: Vec<PodSetRequest<'_>> = shape
            .pod_sets
            .iter()
            .zip(shape.pod_sets())
            .enumerate()
            .map(|(i, (resolved, pod_set))| {
                let replaced = old.get(&pod_set.name);
                let seed = seeds.get(&pod_set.name);
                // A workload that is looked at again keeps what it holds, whatever its spec says by now.
                let (count, requests) = match seed {
                    Some(held) => (held.count, &held.requests),
                    None => (resolved.count, &resolved.requests),
                };
                PodSetRequest {
                    count,
                    min_count: pod_set.min_count,
                    requests,
                    group: resolved.group,
                    eligibility: &resolved.eligibility,
                    topology: resolved.topology,
                    pod_resources: &resolved.pod_resources,
                    seed: seed.map(|held| Seed {
                        flavors: &held.seeds,
                        topology: held.topology.as_ref(),
                        unhealthy: held.unhealthy,
                        delayed: held.delayed,
                    }),
                    replaces: replaced.map(|held| ReplacedPodSet {
                        count: held.count,
                        requests: &held.requests,
                        flavors: &held.flavors,
                    }),
                    nominated: nominated.and_then(|n| n.get(i)).unwrap_or(&none),
                }
            })
            .collect();
        let request = WorkloadRequest {
            pod_sets: &pod_sets,
            last: last.as_deref(),
            pinned: nominated.is_some(),
            allowed_flavors: allowed.as_deref(),
            replaces_slice: slice.is_some(),
            elastic,
            has_unhealthy_nodes,
        };
        // Where no flavor has a topology there is nothing to place.
        let topologies = &self.state.topologies;
        let has_places = !topologies.is_empty()
            && view.groups.iter().flat_map(|g| &g.flavors).any(|f| topologies.tree(f.flavor).is_some());
        let wants = match (self.state.records.get(id), self.state.queue(node)) {
            (Some(record), Some(queue)) if has_places => Some(Wants::new(WantsOf {
                record,
                shape,
                queue: &queue.spec,
                checks: &self.checks,
                names: &self.state.names,
                failed: failed.as_deref(),
                seeds: &seeds,
                old: &old,
                slice,
                gates,
                features: self.features,
            })),
            _ => None,
        };
        let is_sliced = |f: FlavorId| self.flavors.get(f).is_some_and(|f| f.whole_slices);
        let has_slices = self.slices_on && view.groups.iter().flat_map(|g| &g.flavors).any(|f| is_sliced(f.flavor));
        let slices = has_slices.then_some(SliceFacts { shape, flavors: &self.flavors });
        let tools = &mut self.tools;
        let mut search = Search {
            wants: wants.as_ref(),
            slice,
            slices,
            replaced: slice,
            state: &mut self.state,
            assigner: &mut tools.assigner,
            planner: &mut tools.planner,
            config: &self.preemption,
            order: &self.order,
            view,
            request: &request,
            preemptor,
            searched: None,
            quota_alone: false,
        };
        let (assignment, targets) = search.run(gates.partial_admission);
        let quota_alone = search.quota_alone && targets.is_empty();
        let taken = slices.map(|facts| facts.of_assignment(&mut self.state, &assignment.pod_sets)).unwrap_or_default();
        let dropped = assignment.mode != Mode::Fit && targets.is_empty();
        if let Some(record) = self.state.records.get_mut(id) {
            // With every flavor tried, the next scan starts over as it does without a memory.
            record.last = assignment.has_pending().then(|| {
                let flavors = assignment.last_tried();
                Box::new(LastTried { flavors, generation, cycle, hash })
            });
        }
        // [quirk] A slice is only given up in favour of its successor if that fits or has victims.
        let slice = slice.filter(|_| !dropped);
        Some(Assigned { assignment, targets, quota_alone, slice, slices: taken, resumed: last.is_some() })
    }

    /// The workload of this key, if it holds quota of the ClusterQueue that it may hand on: one that is evicted gives its quota
    /// back for others.
    pub(super) fn slice_in(&self, node: NodeId, key: &Key) -> Option<WorkloadRef> {
        let id = self.state.records.find(key)?;
        let record = self.state.records.get(id)?;
        let evicted = record.status.conditions.is_true(&ConditionType::Evicted);
        let holding = record.holding.as_ref()?;
        (holding.node == node && !evicted).then(|| reference(id))
    }

    /// What a workload that holds quota was given, by pod set.
    fn held(&mut self, id: WorkloadId) -> BTreeMap<Box<str>, Held> {
        let Some(record) = self.state.records.get(id) else { return BTreeMap::new() };
        let workload = self.rebuild(record);
        let totals = workload.admitted_totals(&self.requests);
        let assignments = workload.status.admission.iter().flat_map(|a| &a.pod_set_assignments);
        let names = &mut self.state.names;
        let unhealthy = &workload.status.unhealthy_nodes;
        let mut all = BTreeMap::new();
        for (totals, assignment) in totals.iter().zip(assignments) {
            let mut held = Held {
                name: totals.name.clone(),
                count: totals.count,
                requests: totals.requests.iter().map(|(r, q)| (names.intern_resource(r), q)).collect(),
                flavors: Vec::new(),
                seeds: Vec::new(),
                topology: assignment.topology_assignment.clone(),
                delayed: assignment.delayed_topology_pending.map(|pending| {
                    if pending {
                        slicegate_flavor::DelayedTopology::Pending
                    } else {
                        slicegate_flavor::DelayedTopology::Ready
                    }
                }),
                unhealthy: assignment
                    .topology_assignment
                    .as_ref()
                    .is_some_and(|t| t.domains.iter().any(|d| d.values.last().is_some_and(|v| unhealthy.contains(v)))),
            };
            for (resource, flavor) in &totals.flavors {
                let pair = names.intern(flavor, resource);
                let (flavor, resource) = names.flavor_resource(pair);
                held.flavors.push((resource, flavor));
                held.seeds.push(SeedFlavor { resource, flavor, pair });
            }
            all.insert(held.name.clone(), held);
        }
        self.order.extend(&self.state.names);
        all
    }

    /// The flavors that an annotation restricts a workload to, ascending.
    fn allowed_flavors(&self, id: WorkloadId) -> Option<Vec<FlavorId>> {
        if !self.config.gates.concurrent_admission {
            return None;
        }
        let text = self.state.records.get(id)?.extras.as_ref()?.allowed_flavors.as_ref()?;
        let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
        let mut ids: Vec<FlavorId> = names.filter_map(|n| self.state.names.flavor(n)).collect();
        ids.sort_unstable();
        Some(ids)
    }

    fn usage_as_preemptor(&self, id: WorkloadId, node: NodeId) -> Option<LocalQueueUsage> {
        if !self.orders_by_usage(node) {
            return None;
        }
        self.state.local_queue_usage(self.state.records.get(id)?.queue)
    }
}

fn elastic_gate(gates: &crate::Gates) -> bool {
    gates.elastic_jobs_via_workload_slices
}

struct Search<'a, 'b> {
    /// What is to be placed, if the ClusterQueue has flavors with topologies.
    wants: Option<&'a Wants<'a>>,
    /// The slice that is replaced, while its places count.
    slice: Option<WorkloadRef>,
    /// What is needed to ask for whole slices, if the ClusterQueue has flavors that do.
    slices: Option<SliceFacts<'a>>,
    /// The workload slice that is replaced, whose slices of hardware it takes over.
    replaced: Option<WorkloadRef>,
    state: &'a mut State,
    assigner: &'a mut slicegate_flavor::Assigner,
    planner: &'a mut Planner,
    config: &'a slicegate_preemption::Config,
    order: &'a slicegate_flavor::ResourceOrder,
    view: &'a slicegate_flavor::ClusterQueueView,
    request: &'a WorkloadRequest<'b>,
    preemptor: Preemptor,
    searched: Option<(FlavorResourceId, Amount)>,
    /// Whether there would have been victims if it were not for places.
    quota_alone: bool,
}

impl Search<'_, '_> {
    /// All pods, or as many as can be had; with the places that pods will have once victims are gone, so that nobody takes them.
    fn run(&mut self, partial: bool) -> (Assignment, Vec<Target>) {
        let Some(slice) = self.wants.and_then(|w| w.slice) else { return self.run_with_places(partial) };
        // Pods of the slice that is replaced keep their places; they count as those of this workload.
        let mark = self.state.checkpoint();
        self.state.leave_places(slice);
        self.slice = None;
        let found = self.run_with_places(partial);
        self.state.rollback(mark);
        found
    }

    fn run_with_places(&mut self, partial: bool) -> (Assignment, Vec<Target>) {
        let (mut assignment, targets) = self.search(partial);
        let replaces = self.request.pod_sets.iter().any(|p| p.seed.is_some_and(|s| s.unhealthy));
        if assignment.mode == Mode::Preempt
            && !replaces
            && let Some(wants) = self.wants
        {
            let requests = wants.of_assignment(self.view, self.request, self.state, &mut assignment);
            if assignment.mode == Mode::Preempt && !requests.is_empty() {
                let slice = self.slice.filter(|_| !targets.is_empty());
                wants.place_later(self.state, &requests, leaving(&targets, slice), &mut assignment);
            }
        }
        (assignment, targets)
    }

    fn search(&mut self, partial: bool) -> (Assignment, Vec<Target>) {
        let mut full = self.assign(None);
        if full.mode == Mode::Fit {
            return (full, Vec::new());
        }
        if full.mode == Mode::Preempt {
            let targets = self.targets(&mut full);
            if !targets.is_empty() {
                return (full, targets);
            }
        }
        let counts: Vec<(i32, i32)> =
            self.request.pod_sets.iter().map(|p| (p.count, p.min_count.unwrap_or(p.count))).collect();
        if partial && counts.iter().any(|(count, min)| count > min) {
            let found = search_counts(&counts, |counts| {
                let mut reduced = self.assign(Some(counts));
                match reduced.mode {
                    Mode::Fit => return Some((reduced, Vec::new())),
                    Mode::Preempt => {
                        let targets = self.targets(&mut reduced);
                        if !targets.is_empty() {
                            return Some((reduced, targets));
                        }
                    }
                    Mode::NoFit | Mode::DeferredFit => {}
                }
                self.assigner.recycle(reduced);
                None
            });
            if let Some(found) = found {
                self.assigner.recycle(full);
                return found;
            }
        }
        (full, Vec::new())
    }

    fn assign(&mut self, counts: Option<&[i32]>) -> Assignment {
        // Flavors are chosen by quota alone: what preemption could do is asked without looking at places.
        let mut topologies = std::mem::take(&mut self.state.topologies);
        let mut oracle = Oracle {
            state: self.state,
            planner: self.planner,
            config: self.config,
            preemptor: self.preemptor,
            searched: &mut self.searched,
            slices: self.slices,
            replaced: self.replaced,
        };
        let assigner = &mut *self.assigner;
        let assignment = match self.wants {
            Some(wants) => {
                let mut desk = Desk { wants, topologies: &mut topologies };
                assigner.assign(self.order, self.view, self.request, counts, &mut oracle, &mut desk)
            }
            None => assigner.assign(self.order, self.view, self.request, counts, &mut oracle, &mut NoTopology),
        };
        self.state.topologies = topologies;
        assignment
    }

    fn targets(&mut self, assignment: &mut Assignment) -> Vec<Target> {
        let Some(facts) = self.slices else { return self.targets_beside(assignment) };
        self.state.asked = facts.of_assignment(self.state, &assignment.pod_sets);
        let mark = self.state.inventory.mark();
        if let Some(replaced) = self.replaced {
            self.state.leave_slices(replaced);
        }
        let targets = self.targets_beside(assignment);
        self.state.inventory.rollback(mark);
        self.state.asked.clear();
        targets
    }

    /// Victims, given what is asked of slices.
    fn targets_beside(&mut self, assignment: &mut Assignment) -> Vec<Target> {
        let needed = assignment.needed(self.request);
        let preempting = assignment.preempting();
        let (state, config, preemptor) = (&mut *self.state, self.config, self.preemptor);
        if let Some(wants) = self.wants {
            let places = wants.of_assignment(self.view, self.request, state, assignment);
            if !places.is_empty() {
                self.searched = None;
                let request = Request { preemptor, needed: &needed, preempting: &preempting, placed: true };
                let found = self.planner.targets(&mut Scene::new(state, wants, &places), config, &request);
                if !found.is_empty() {
                    return found.to_vec();
                }
                // For the explanation.
                let request = Request { placed: false, ..request };
                self.quota_alone |= !self.planner.targets(state, config, &request).is_empty();
                return Vec::new();
            }
        }
        if let ([one], [pair]) = (needed.as_slice(), preempting.as_slice())
            && one.0 == *pair
            && self.searched == Some(*one)
        {
            // The assigner asked the same question last.
            return self.planner.last().to_vec();
        }
        self.searched = None;
        let placed = !state.asked.is_empty();
        let request = Request { preemptor, needed: &needed, preempting: &preempting, placed };
        self.planner.targets(state, config, &request).to_vec()
    }
}
