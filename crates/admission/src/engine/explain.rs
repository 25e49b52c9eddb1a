//! Saying why.

use slicegate_flavor::{Assignment, Attempt, Mode, PodSetResult, Reason, SliceShortage};
use slicegate_preemption::{Target, World as _};
use slicegate_quota::{Amount, FlavorId, FlavorResourceId, LimitKind, NodeId, ResourceId};
use slicegate_workload::{ConditionType, Key, Stage, Status, Timestamp};

use super::Engine;
use super::cycle::{Candidate, Step};
use super::ids::WorkloadId;
use super::queue::Place;
use crate::{
    Blocker, Cause, Explanation, FlavorExplanation, Inadmissible, Outcome, PodSetExplanation, ResourceExplanation,
    ResourceLimit, Verdict, message,
};

/// How many workloads in the way are named.
const NAMED_HOLDERS: usize = 8;

impl Engine {
    /// Why a workload waits: what a cycle would decide about it if it were alone and its turn had come; where that is that it
    /// fits, but others took the room in the last cycle, that is said. `None` if it is not known. Changes nothing.
    pub fn why(&mut self, now: Timestamp, workload: &Key) -> Option<Explanation> {
        self.state.now = now;
        let id = self.state.records.find(workload)?;
        let record = self.state.records.get(id)?;
        if record.holding.is_some() || record.phase == Stage::Finished {
            return Some(Explanation::default());
        }
        let plain = |verdict, cause| Some(Explanation { verdict, cause, ..Explanation::default() });
        if !record.active {
            return plain(Verdict::Change, Cause::Deactivated);
        }
        let queue = self.state.local_queue(record.queue)?;
        let name = format!("LocalQueue {}", queue.key.name);
        if queue.spec.is_none() {
            return plain(Verdict::Change, Cause::QueueInactive { name: name.into(), why: "does not exist".into() });
        }
        if !queue.is_open() {
            return plain(Verdict::AskAdmin, Cause::QueueInactive { name: name.into(), why: "is stopped".into() });
        }
        let Some(node) = queue.target else {
            let cluster_queue = queue.spec.as_ref().map(|s| s.cluster_queue.clone()).unwrap_or_default();
            let name = format!("ClusterQueue {cluster_queue}").into();
            return plain(Verdict::AskAdmin, Cause::QueueInactive { name, why: "does not exist".into() });
        };
        if !record.admissible {
            return plain(Verdict::Wait, Cause::NotAdmissible);
        }
        if matches!(self.places.get(id), Place::Waiting(_)) {
            return plain(Verdict::Wait, Cause::Backoff);
        }
        if let Some(activity) = self.activity_of(node).filter(|a| !a.active) {
            let name: Box<str> = format!("ClusterQueue {}", self.state.forest.name(node)).into();
            let mut explanation = Explanation {
                verdict: Verdict::AskAdmin,
                cause: Cause::QueueInactive { name, why: activity.message },
                ..Explanation::default()
            };
            explanation.blockers.push(Blocker::Queue(self.state.forest.name(node).into()));
            return Some(explanation);
        }

        self.settle_topologies();
        self.state.inventory.settle();
        let last = self.state.records.get(id)?.last.clone();
        let mut candidate = Candidate::new(id, node, None);
        self.nominate(&mut candidate);
        if let Some(record) = self.state.records.get_mut(id) {
            record.last = last;
        }
        if candidate.assignment.is_none() {
            return Some(self.explain(&candidate));
        }
        let mut explanation = self.explain_alone(&candidate);
        if matches!(explanation.cause, Cause::Queued { .. }) && self.was_overtaken(id) {
            explanation.cause = Cause::Overtaken;
        }
        Some(explanation)
    }

    /// Whether the last cycle that looked at a workload found that it would have fitted alone.
    fn was_overtaken(&self, id: WorkloadId) -> bool {
        let Some(record) = self.state.records.get(id) else { return false };
        let told = record.status.conditions.get(&ConditionType::QuotaReserved);
        told.is_some_and(|c| c.status == Status::False && c.message.starts_with(message::NO_LONGER_FITS))
    }

    /// Why a candidate would come out as it would if nobody else were decided about.
    fn explain_alone(&self, c: &Candidate) -> Explanation {
        let Some(assignment) = &c.assignment else { return Explanation::default() };
        let mut explanation = self.numbers(c.id, c.node, assignment);
        (explanation.verdict, explanation.cause) = match assignment.mode {
            Mode::Fit | Mode::DeferredFit => (Verdict::Wait, Cause::Queued { ahead: self.ahead_of(c.id, c.node) }),
            Mode::Preempt if !c.targets.is_empty() => {
                explanation.blockers.extend(c.targets.iter().filter_map(|&t| self.named(t)));
                (Verdict::Wait, Cause::Preempting { victims: c.targets.len() })
            }
            Mode::Preempt => (Verdict::Wait, without_slices(&explanation).unwrap_or_else(|| self.no_candidates(c))),
            Mode::NoFit => no_fit(assignment, &explanation),
        };
        if explanation.cause == Cause::WaitingForQuota {
            let holders = self.holders_in_the_way(c.node, assignment);
            explanation.blockers.extend(holders.into_iter().map(Blocker::Workload));
        }
        explanation
    }

    /// Why an entry of a cycle came out as it did.
    pub(super) fn explain(&self, c: &Candidate) -> Explanation {
        let mut explanation = match &c.assignment {
            Some(assignment) if c.step != Step::Assumed => self.numbers(c.id, c.node, assignment),
            _ => Explanation::default(),
        };
        (explanation.verdict, explanation.cause) = match &c.outcome {
            Outcome::Admitted { .. } => (Verdict::Admitted, Cause::Admitted),
            Outcome::Preempting { victims } => {
                explanation.blockers.extend(victims.iter().map(|v| Blocker::Workload(v.workload.clone())));
                (Verdict::Wait, Cause::Preempting { victims: victims.len() })
            }
            Outcome::Deferred => (Verdict::Wait, Cause::Deferred),
            Outcome::NoFit => match &c.assignment {
                Some(assignment) => no_fit(assignment, &explanation),
                None => (Verdict::Wait, Cause::WaitingForQuota),
            },
            Outcome::NoCandidates => {
                (Verdict::Wait, without_slices(&explanation).unwrap_or_else(|| self.no_candidates(c)))
            }
            Outcome::Skipped(_) | Outcome::Migrating | Outcome::SecondPassFailed => (Verdict::Wait, Cause::Overtaken),
            Outcome::Inadmissible(why) => {
                if let Inadmissible::ClusterQueueInactive { cluster_queue }
                | Inadmissible::ClusterQueueMissing { cluster_queue } = why
                {
                    explanation.blockers.push(Blocker::Queue(cluster_queue.clone()));
                }
                inadmissible(why)
            }
            Outcome::Gated => (Verdict::Wait, Cause::Gated),
            Outcome::WaitingForPodsReady | Outcome::Postponed => (Verdict::Wait, Cause::WaitingForPodsReady),
            Outcome::Evicted | Outcome::Dropped => (Verdict::Wait, Cause::Queued { ahead: 0 }),
        };
        explanation
    }

    /// What a candidate waits for that finds nobody to preempt.
    fn no_candidates(&self, c: &Candidate) -> Cause {
        let results = c.assignment.iter().flat_map(|a| &a.pod_sets);
        if results.flat_map(|r| &r.reasons).any(|r| matches!(r, Reason::Placement { .. })) {
            return Cause::WaitingForPlaces;
        }
        if !c.quota_alone {
            return Cause::WaitingForQuota;
        }
        let mut asked = self.pod_sets(c.id).iter().filter_map(|p| p.topology_request.as_ref());
        Cause::PlacesNotFreed { level: asked.find_map(|t| t.required.clone()) }
    }

    /// The numbers behind an assignment: every flavor that was tried, with its quota.
    fn numbers(&self, id: WorkloadId, node: NodeId, assignment: &Assignment) -> Explanation {
        let mut explanation = Explanation::default();
        // What the slice that is replaced hands on need not be free.
        let (grows, handed_on) = self.handed_on(id, node);
        explanation.grows = grows;
        // What pod sets before take of the same flavors.
        let mut before: Vec<(FlavorResourceId, Amount)> = Vec::new();
        before.extend(handed_on.iter().map(|&(pair, amount)| (pair, Amount::ZERO.minus(amount))));
        for result in &assignment.pod_sets {
            let flavors: Vec<FlavorExplanation> =
                result.attempts.iter().map(|attempt| self.flavor_numbers(node, result, attempt, &before)).collect();
            for resource in flavors.iter().flat_map(|f| f.resources.iter().map(move |r| (f, r))) {
                let (flavor, numbers) = resource;
                let limiting = match &numbers.limit {
                    ResourceLimit::None | ResourceLimit::Undeclared => continue,
                    ResourceLimit::Quota { node }
                    | ResourceLimit::Borrowing { node }
                    | ResourceLimit::MaximumQuota { node }
                    | ResourceLimit::MaximumBorrowing { node } => node,
                };
                let blocker = Blocker::Limit {
                    node: limiting.clone(),
                    flavor: flavor.flavor.clone(),
                    resource: numbers.resource.clone(),
                };
                if !explanation.blockers.contains(&blocker) {
                    explanation.blockers.push(blocker);
                }
            }
            let name = self.pod_set_name(id, result.pod_set).into();
            let places = result.reasons.iter().find_map(|reason| match reason {
                Reason::Placement { message } => Some(message.clone()),
                _ => None,
            });
            let mut explained = PodSetExplanation { name, flavors, places };
            for reason in &result.reasons {
                if let Reason::Undeclared { resource } = reason {
                    explained.flavors.push(self.undeclared(result, *resource));
                }
            }
            explanation.pod_sets.push(explained);
            for &(resource, amount) in &result.requests {
                if let Some(choice) = result.flavor(resource) {
                    before.push((choice.pair, Amount::new(amount)));
                }
            }
        }
        explanation
    }

    /// The slice that a workload replaces, and what that uses.
    fn handed_on(&self, id: WorkloadId, node: NodeId) -> (Option<Key>, Vec<(FlavorResourceId, Amount)>) {
        let none = (None, Vec::new());
        let replaces = self.state.records.get(id).and_then(|r| r.extras.as_ref()?.replaces.as_ref());
        let Some(key) = replaces.filter(|_| self.config.gates.elastic_jobs_via_workload_slices) else { return none };
        let Some(old) = self.slice_in(node, key) else { return none };
        let record = self.state.records.get(WorkloadId::from_index(old.index()));
        let usage = record.and_then(|r| r.holding.as_ref()).map(|h| h.usage.clone()).unwrap_or_default();
        (Some(key.clone()), usage)
    }

    fn flavor_numbers(
        &self,
        node: NodeId,
        result: &PodSetResult,
        attempt: &Attempt,
        before: &[(FlavorResourceId, Amount)],
    ) -> FlavorExplanation {
        let catalogue = self.catalogue();
        let mismatch = attempt.reasons.iter().find(|r| {
            !matches!(
                r,
                Reason::Insufficient { .. }
                    | Reason::ExceedsPotential { .. }
                    | Reason::Undeclared { .. }
                    | Reason::Slices { .. }
            )
        });
        let slices = attempt.reasons.iter().find_map(|r| match r {
            Reason::Slices { shortage, .. } => Some(SliceShortage::clone(shortage)),
            _ => None,
        });
        let mut resources = Vec::new();
        if mismatch.is_none() {
            for &(resource, amount) in &result.requests {
                let Some(pair) = self.pair_in_view(node, attempt.flavor, resource) else { continue };
                let taken = before.iter().filter(|(p, _)| *p == pair).fold(Amount::ZERO, |sum, (_, a)| sum.plus(*a));
                resources.push(self.resource_numbers(node, pair, resource, taken.plus(Amount::new(amount)).or_zero()));
            }
        }
        FlavorExplanation {
            flavor: self.state.names.flavor_name(attempt.flavor).into(),
            chosen: result.flavors.iter().any(|f| f.flavor == attempt.flavor),
            mismatch: mismatch.map(|r| catalogue.reason(r).into()),
            slices,
            resources,
        }
    }

    /// The pair of a flavor and a resource, if the ClusterQueue has quota for it.
    fn pair_in_view(&self, node: NodeId, flavor: FlavorId, resource: ResourceId) -> Option<FlavorResourceId> {
        let view = self.views.get(node.index())?.as_ref()?;
        let (group, position) = view.place(resource)?;
        view.groups.get(group)?.flavors.iter().find(|f| f.flavor == flavor)?.pairs.get(position).copied()
    }

    fn resource_numbers(
        &self,
        node: NodeId,
        pair: FlavorResourceId,
        resource: ResourceId,
        needed: Amount,
    ) -> ResourceExplanation {
        let forest = &self.state.forest;
        let available = forest.available(node, pair);
        let maximum = forest.potential(node, pair);
        let nominal = forest.nominal(node, pair);
        let used = forest.usage(node, pair);
        let name = |n: NodeId| -> Box<str> { forest.name(n).into() };
        let limit = if needed > maximum {
            let limit = forest.potential_limit(node, pair);
            match limit.kind {
                LimitKind::Quota { .. } => ResourceLimit::MaximumQuota { node: name(limit.node) },
                LimitKind::BorrowingLimit { .. } => ResourceLimit::MaximumBorrowing { node: name(limit.node) },
            }
        } else if needed > available {
            let limit = forest.available_limit(node, pair);
            match limit.kind {
                LimitKind::Quota { .. } => ResourceLimit::Quota { node: name(limit.node) },
                LimitKind::BorrowingLimit { .. } => ResourceLimit::Borrowing { node: name(limit.node) },
            }
        } else {
            ResourceLimit::None
        };
        ResourceExplanation {
            resource: self.state.names.resource_name(resource).into(),
            needed,
            available,
            maximum,
            nominal,
            used,
            borrowed: used.minus(nominal).or_zero(),
            limit,
        }
    }

    fn undeclared(&self, result: &PodSetResult, resource: ResourceId) -> FlavorExplanation {
        let needed = result.requests.iter().find(|(r, _)| *r == resource).map_or(0, |(_, amount)| *amount);
        FlavorExplanation {
            flavor: "any flavor".into(),
            chosen: false,
            mismatch: None,
            slices: None,
            resources: vec![ResourceExplanation {
                resource: self.state.names.resource_name(resource).into(),
                needed: Amount::new(needed),
                available: Amount::ZERO,
                maximum: Amount::ZERO,
                nominal: Amount::ZERO,
                used: Amount::ZERO,
                borrowed: Amount::ZERO,
                limit: ResourceLimit::Undeclared,
            }],
        }
    }

    /// How many of a ClusterQueue are served before a workload, parked ones aside.
    fn ahead_of(&self, id: WorkloadId, node: NodeId) -> usize {
        use super::queue::Order as _;
        let Some(queue) = self.pending_queue(node) else { return 0 };
        let order = self.service_order(node);
        let local = |id: WorkloadId| self.state.records.get(id).map(|r| r.queue);
        queue
            .active()
            .filter(|&other| {
                let by_usage = match (local(other), local(id)) {
                    (Some(x), Some(y)) => order.compare_queues(x, y),
                    _ => std::cmp::Ordering::Equal,
                };
                other != id && by_usage.then_with(|| order.compare(other, id)).is_lt()
            })
            .count()
    }

    fn named(&self, target: Target) -> Option<Blocker> {
        let record = self.state.records.get(WorkloadId::from_index(target.workload.index()))?;
        Some(Blocker::Workload(record.key.clone()))
    }

    /// Workloads that use what is short: those of the ClusterQueue first, then others of its tree, largest first.
    fn holders_in_the_way(&self, node: NodeId, assignment: &Assignment) -> Vec<Key> {
        let short: Vec<FlavorResourceId> = assignment
            .pod_sets
            .iter()
            .flat_map(|p| p.attempts.iter().flat_map(|a| &a.reasons))
            .filter_map(|reason| match reason {
                Reason::Insufficient { flavor, resource, .. } => self.state.names.pair(*flavor, *resource),
                _ => None,
            })
            .collect();
        let root = self.state.forest.root(node);
        let mut found: Vec<(bool, std::cmp::Reverse<Amount>, &Key)> = Vec::new();
        for other in self.state.forest.nodes().filter(|&n| self.state.forest.root(n) == root) {
            for &holder in self.state.workloads(other) {
                let Some(record) = self.state.records.get(WorkloadId::from_index(holder.index())) else { continue };
                let Some(holding) = &record.holding else { continue };
                let used = holding.usage.iter().filter(|(p, _)| short.contains(p));
                let sum = used.fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount));
                if sum > Amount::ZERO {
                    found.push((other != node, std::cmp::Reverse(sum), &record.key));
                }
            }
        }
        // Only the first are of interest.
        if found.len() > NAMED_HOLDERS {
            found.select_nth_unstable(NAMED_HOLDERS);
            found.truncate(NAMED_HOLDERS);
        }
        found.sort_unstable();
        found.into_iter().map(|(_, _, key)| key.clone()).collect()
    }
}

/// The verdict on an assignment that does not fit.
fn no_fit(assignment: &Assignment, explanation: &Explanation) -> (Verdict, Cause) {
    use slicegate_flavor::NoFitReason;
    match assignment.no_fit {
        Some(NoFitReason::WaitingForQuota) => (Verdict::Wait, Cause::WaitingForQuota),
        Some(NoFitReason::TopologyPlacementFailed) => match worst_shortage(explanation) {
            Some(verdict) => (verdict, Cause::WholeSlicesMissing),
            None => (Verdict::Wait, Cause::TopologyPlacementFailed),
        },
        Some(NoFitReason::ExceedsMaxQuota) => {
            let resources = explanation.pod_sets.iter().flat_map(|p| &p.flavors).flat_map(|f| &f.resources);
            let raisable = resources.into_iter().any(|r| matches!(r.limit, ResourceLimit::MaximumBorrowing { .. }));
            (if raisable { Verdict::AskAdmin } else { Verdict::Never }, Cause::ExceedsMaxQuota)
        }
        // The pods run already, so there is a flavor for them; it has no room for more.
        Some(NoFitReason::NoMatchingFlavor) | None if explanation.grows.is_some() => {
            (Verdict::Wait, Cause::WaitingForQuota)
        }
        Some(NoFitReason::NoMatchingFlavor) | None => {
            let missing = assignment
                .pod_sets
                .iter()
                .flat_map(|p| &p.attempts)
                .flat_map(|a| &a.reasons)
                .any(|r| matches!(r, Reason::FlavorNotFound { .. } | Reason::TopologyUnknown { .. }));
            (if missing { Verdict::AskAdmin } else { Verdict::Change }, Cause::NoMatchingFlavor)
        }
    }
}

/// The verdict where whole slices are missing, on the flavor for which it is best; `None` if they are not what is missing.
fn worst_shortage(explanation: &Explanation) -> Option<Verdict> {
    let flavors = explanation.pod_sets.iter().flat_map(|p| &p.flavors);
    let verdicts = flavors.filter_map(|f| f.slices.as_ref()).map(|shortage| match shortage {
        SliceShortage::Short(counts) if !counts.exceeds_total() => Verdict::Wait,
        SliceShortage::NoSlice { .. } => Verdict::Change,
        SliceShortage::Short(_) | SliceShortage::NoPool { .. } => Verdict::AskAdmin,
    });
    verdicts.min()
}

/// What a workload waits for that could only be had by preemption and finds no victims, if quota suffices and whole slices are
/// what is missing.
fn without_slices(explanation: &Explanation) -> Option<Cause> {
    let flavors = || explanation.pod_sets.iter().flat_map(|p| &p.flavors).filter(|f| f.chosen);
    let has_quota = flavors().flat_map(|f| &f.resources).all(|r| r.limit == ResourceLimit::None);
    worst_shortage(explanation).filter(|_| has_quota).map(|_| Cause::WholeSlicesMissing)
}

fn inadmissible(why: &Inadmissible) -> (Verdict, Cause) {
    let inactive = |cluster_queue: &str, why: &str| Cause::QueueInactive {
        name: format!("ClusterQueue {cluster_queue}").into(),
        why: why.into(),
    };
    match why {
        Inadmissible::FailedChecks => (Verdict::Wait, Cause::FailedChecks),
        Inadmissible::ClusterQueueInactive { cluster_queue } => {
            (Verdict::AskAdmin, inactive(cluster_queue, "is inactive"))
        }
        Inadmissible::ClusterQueueMissing { cluster_queue } => {
            (Verdict::AskAdmin, inactive(cluster_queue, "does not exist"))
        }
        Inadmissible::NamespaceMissing { namespace } => {
            (Verdict::AskAdmin, Cause::Invalid { why: format!("namespace {namespace} does not exist").into() })
        }
        Inadmissible::NamespaceMismatch => {
            (Verdict::AskAdmin, Cause::Invalid { why: "its ClusterQueue does not serve its namespace".into() })
        }
        Inadmissible::Resources { message } => (Verdict::Change, Cause::Invalid { why: message.clone() }),
    }
}
