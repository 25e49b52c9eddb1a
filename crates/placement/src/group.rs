//! Placing the pod sets that are placed together.

use std::ops::Range;

use slicegate_workload::{TopologyAssignment, TopologyDomain};

use crate::assignment::{pod_count, truncate};
use crate::counts::{Question, fill};
use crate::leaves::Filter;
use crate::order::Queue;
use crate::request::{Plan, merge_updates};
use crate::search::{Found, Need, Search, Shortage};
use crate::topologies::Entry;
use crate::{
    Counts, Exclusions, Failure, Features, LayerFit, PlacementUsage, PodRequest, PodSetRequest, Profile, Topologies,
    Tree, Unit,
};

/// Memory that searches use again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    counts: Vec<Counts>,
    queue: Queue,
}

/// Where the pods of a pod set go.
pub(crate) struct Placed {
    /// All of them.
    pub(crate) whole: TopologyAssignment,
    /// Those that later pod sets must see as placed.
    pub(crate) added: TopologyAssignment,
}

impl Placed {
    fn new(assignment: TopologyAssignment) -> Self {
        Self { added: assignment.clone(), whole: assignment }
    }
}

type Results = Vec<(usize, Result<Placed, Failure>)>;

impl Topologies {
    /// Places the members of a group: workers and, if there is a second member, their leader. Further members are not placed.
    // [quirk] As Kueue does.
    pub(crate) fn place_group(
        &mut self,
        position: usize,
        requests: &[PodSetRequest<'_>],
        group: &[usize],
        usage: PlacementUsage,
    ) -> Results {
        if group.iter().any(|&i| requests[i].replacement.is_some()) {
            return self.replace_nodes(position, requests, group, usage);
        }
        let (Some(&first), second) = (group.first(), group.get(1).copied()) else { return Vec::new() };
        let (workers, leader) = match second {
            Some(second) if requests[second].count > requests[first].count => (second, Some(first)),
            _ => (first, second),
        };
        let (of_workers, of_leader) = (&requests[workers], leader.map(|i| &requests[i]));
        let result = match self.place_elastic(position, of_workers, of_leader, usage) {
            Some(result) => result,
            None => self.place_anew(position, of_workers, of_leader, usage),
        };
        let mut results = Results::new();
        match result {
            Ok((placed, led)) => {
                results.push((workers, Ok(Placed::new(placed))));
                results.extend(leader.map(|i| (i, Ok(Placed::new(led)))));
            }
            Err(failure) => {
                results.extend(leader.map(|i| (i, Err(failure.clone()))));
                results.push((workers, Err(failure)));
            }
        }
        results
    }

    /// Places all pods: workers and, if there is one, the leader.
    fn place_anew(
        &mut self,
        position: usize,
        workers: &PodSetRequest<'_>,
        leader: Option<&PodSetRequest<'_>>,
        usage: PlacementUsage,
    ) -> Result<(TopologyAssignment, TopologyAssignment), Failure> {
        let plan = self.plan(position, workers)?;
        let one = leader.map(|l| l.pod_request);
        let found = self.find(position, workers, workers.count, one, &plan, None, usage)?;
        let tree = &self.entries[position].tree;
        Ok((assignment(tree, &found.workers), assignment(tree, &found.leaders)))
    }

    /// Understands what a pod set asks of the topology.
    pub(crate) fn plan(&self, position: usize, request: &PodSetRequest<'_>) -> Result<Plan, Failure> {
        let Some(entry) = self.entries.get(position) else { return Err(Failure::NoTopology) };
        Plan::new(&entry.tree, request.topology, self.features.multi_layer)
    }

    /// Finds leaves for so many workers and a leader. Workers decide which leaves are looked at.
    // [quirk] As Kueue does.
    pub(crate) fn find(
        &mut self,
        position: usize,
        workers: &PodSetRequest<'_>,
        count: i32,
        leader: Option<&PodRequest>,
        plan: &Plan,
        within: Option<Range<u32>>,
        usage: PlacementUsage,
    ) -> Result<Found, Failure> {
        let Self { features, entries, work, .. } = self;
        let entry = &entries[position];
        let tree = &entry.tree;
        let selector = merge_updates(workers.name, workers.pod, workers.updates)?;
        let mut tolerations = vec![workers.pod.tolerations.as_slice(), &entry.tolerations];
        tolerations.extend(workers.updates.iter().map(|u| u.tolerations.as_slice()));
        let filter = tree
            .has_host_leaves()
            .then(|| Filter::new(&entry.labels, workers.pod, &selector, &tolerations, features.preferred_affinity));
        let question = Question {
            tree,
            capacity: &entry.capacity,
            usage,
            plan,
            workers: workers.pod_request,
            leader,
            filter: filter.as_ref(),
            within,
        };
        let excluded = fill(&question, &mut work.counts);
        let profile = profile(*features, plan);
        let mut search = Search {
            tree,
            plan,
            profile,
            affinity: features.preferred_affinity,
            counts: &mut work.counts,
            queue: &mut work.queue,
        };
        let need = Need { pods: count, leaders: i32::from(leader.is_some()) };
        let balance = features.balanced && !plan.required && !plan.unconstrained;
        search.run(need, balance).map_err(|shortage| failure(entry, plan, &work.counts, count, shortage, excluded))
    }

    /// Places an elastic workload that keeps the pods it has; `None` if it has none, or some of their domains are gone.
    fn place_elastic(
        &mut self,
        position: usize,
        workers: &PodSetRequest<'_>,
        leader: Option<&PodSetRequest<'_>>,
        usage: PlacementUsage,
    ) -> Option<Result<(TopologyAssignment, TopologyAssignment), Failure>> {
        if !self.features.elastic {
            return None;
        }
        let old = workers.previous?;
        let old_leader = match leader {
            Some(leader) => Some((leader, leader.previous?)),
            None => None,
        };
        let tree = &self.entries.get(position)?.tree;
        let stale = |assignment: &TopologyAssignment| tree.stale_domain(assignment).is_some();
        if stale(old) || old_leader.is_some_and(|(_, a)| stale(a)) {
            return None;
        }
        let led = match old_leader {
            Some((leader, old)) if pod_count(old) < leader.count => return None,
            Some((leader, old)) => truncate(old, leader.count),
            None => TopologyAssignment::default(),
        };
        let more = workers.count.saturating_sub(pod_count(old));
        if more <= 0 {
            let kept = if more < 0 { truncate(old, workers.count) } else { old.clone() };
            return Some(Ok((kept, led)));
        }
        let mark = self.mark();
        self.assume(position, old, workers.pod_request, usage);
        if let Some((leader, _)) = old_leader {
            self.assume(position, &led, leader.pod_request, usage);
        }
        let result = self
            .plan(position, workers)
            .and_then(|plan| self.find(position, workers, more, None, &plan, None, usage))
            .map(|found| (joined(&self.entries[position].tree, old, &found.workers), led));
        self.rollback(mark);
        Some(result)
    }
}

/// In which order domains are taken.
pub(crate) const fn profile(features: Features, plan: &Plan) -> Profile {
    if plan.unconstrained && features.mixed_profile { Profile::LeastFreeCapacity } else { Profile::BestFit }
}

/// Leaves as an assignment, in the order of their values from the top.
pub(crate) fn assignment(tree: &Tree, leaves: &[(u32, i32)]) -> TopologyAssignment {
    let domain = |&(leaf, count): &(u32, i32)| TopologyDomain { values: tree.assignment_values(leaf), count };
    TopologyAssignment { levels: tree.assignment_levels(), domains: leaves.iter().map(domain).collect() }
}

/// An assignment and leaves found for more pods together, in the order of their values from the top. Domains of the assignment
/// that are not in the tree are left out.
pub(crate) fn joined(tree: &Tree, assignment: &TopologyAssignment, found: &[(u32, i32)]) -> TopologyAssignment {
    let old = assignment.domains.iter();
    let old = old.filter_map(|d| Some((tree.leaf_domain(tree.find_leaf(&d.values)?), d.count)));
    let mut leaves: Vec<(u32, i32)> = old.chain(found.iter().copied()).collect();
    leaves.sort_unstable_by_key(|(leaf, _)| *leaf);
    leaves.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    self::assignment(tree, &leaves)
}

/// A shortage as it is told.
fn failure(
    entry: &Entry,
    plan: &Plan,
    counts: &[Counts],
    count: i32,
    shortage: Shortage,
    excluded: Exclusions,
) -> Failure {
    let tree = &entry.tree;
    let level = |level: usize| tree.levels().get(level).cloned().unwrap_or_default();
    let fit = match shortage {
        Shortage::NoDomains { level: l } => return Failure::NoDomains(level(l)),
        Shortage::Fits(fit) => fit,
    };
    let topology = tree.name().into();
    if plan.layers.len() < 2 {
        let unit = if plan.slice_size == 1 { Unit::Pod } else { Unit::Slice };
        return Failure::NoFit { topology, fit: i64::from(fit), needed: plan.slices(count), unit, excluded };
    }
    let at = |domain: u32| counts.get(domain as usize).copied().unwrap_or_default();
    let best = tree.level_range(plan.level).rev().max_by_key(|d| at(*d).slices);
    let fits = |layer: usize, size: i32| {
        let Some(best) = best else { return 0 };
        let below = tree.below(best..best.saturating_add(1), layer.saturating_sub(plan.level));
        below.map(|d| i64::from(at(d).pods.checked_div(size).unwrap_or(0))).fold(0, i64::saturating_add)
    };
    let layers = plan.layers.iter().map(|&(layer, size)| LayerFit {
        level: level(layer),
        fit: fits(layer, size),
        needed: count.checked_div(size).unwrap_or(0),
    });
    Failure::NoLayersFit { topology, layers: layers.collect(), excluded }
}
