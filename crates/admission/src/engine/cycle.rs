//! One scheduling cycle: heads, nomination, order, decisions, and putting back what was not admitted.

use slicegate_flavor::{Assignment, Catalogue, Mode};
use slicegate_placement::Usage;
use slicegate_preemption::{Target, WorkloadRef, World as _};
use slicegate_quota::{Amount, FlavorResourceId, NodeId};
use slicegate_workload::{PodSet, Timestamp, WorkloadStatus};

use super::Engine;
use super::fair::Tournament;
use super::ids::WorkloadId;
use super::slices::Slices;
use super::state::NamespaceFact;
use super::workloads::has_failed_checks;
use crate::{Cycle, Event, Inadmissible, Outcome, StatusWrite};

/// How far an entry came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It was not chosen.
    NotNominated,
    /// It was passed over.
    Skipped,
    /// It needs preemption, which is gated.
    Gated,
    /// It was not looked at, since admission waits.
    Postponed,
    /// It was given quota.
    Assumed,
    /// It was evicted.
    Evicted,
    /// Nothing is to be done about it.
    Dropped,
}

/// Why an entry goes back into its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Requeue {
    Generic,
    NoFit,
    NoCandidates,
    PendingPreemption,
    PendingMigration,
    NamespaceMismatch,
    /// It was ready to be admitted, but admission waits.
    AtOnce,
}

/// A workload that a cycle looks at.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: WorkloadId,
    pub(super) node: NodeId,
    /// For a workload that holds quota already: how often it was looked at.
    pub(super) second_pass: Option<u32>,
    /// Whether it preempted for itself in an earlier cycle and has not changed since.
    pub(super) is_preemptor: bool,
    pub(super) assignment: Option<Assignment>,
    /// What its pods take of nodes beyond what it holds.
    pub(super) places: Vec<Usage>,
    /// Whole slices that it takes.
    pub(super) slices: Slices,
    pub(super) targets: Vec<Target>,
    /// Whether there would be victims if it were not for places.
    pub(super) quota_alone: bool,
    /// Whether its scan of flavors did not see the first of them.
    pub(super) resumed: bool,
    /// The slice that it replaces, while that holds quota in the same ClusterQueue.
    pub(super) slice: Option<WorkloadRef>,
    pub(super) step: Step,
    pub(super) requeue: Requeue,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) outcome: Outcome,
    /// What it was given.
    pub(super) admitted: Option<Box<Admitted>>,
}

/// What an entry that was given quota comes to.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) status: WorkloadStatus,
    pub(super) events: Vec<Event>,
    /// The slice that is finished once the admission is written.
    pub(super) then: Option<StatusWrite>,
}

impl Candidate {
    pub(super) fn new(id: WorkloadId, node: NodeId, second_pass: Option<u32>) -> Self {
        Self {
            id,
            node,
            second_pass,
            is_preemptor: false,
            assignment: None,
            places: Vec::new(),
            slices: Slices::new(),
            targets: Vec::new(),
            quota_alone: false,
            resumed: false,
            slice: None,
            step: Step::NotNominated,
            requeue: Requeue::Generic,
            reason: "PendingEvaluation",
            message: String::new(),
            outcome: Outcome::Dropped,
            admitted: None,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.assignment.as_ref().map_or(Mode::NoFit, |a| a.mode)
    }

    pub(super) fn borrowing(&self) -> u32 {
        self.assignment.as_ref().map_or(0, |a| a.borrowing)
    }

    /// The quota it needs beyond what it holds.
    pub(super) fn usage(&self) -> &[(FlavorResourceId, Amount)] {
        match &self.assignment {
            Some(assignment) if self.second_pass.is_none() => &assignment.usage,
            _ => &[],
        }
    }
}

impl Engine {
    /// Runs one scheduling cycle.
    pub fn cycle(&mut self, now: Timestamp) -> Cycle {
        self.tick(now);
        let mut cycle = Cycle::default();
        // Workloads that hold quota are looked at all the same: theirs may be the pods that are waited for.
        self.waits_for_pods = self.is_waiting_for_pods();
        self.admitted_in_cycle = 0;
        self.kept_free.clear();
        self.kept_places.clear();
        self.kept_slices.clear();
        self.given_places.clear();
        self.given_slices.clear();
        let heads = self.heads(now);
        if heads.is_empty() {
            return cycle;
        }
        self.settle_topologies();
        self.state.inventory.settle();
        self.cycles = self.cycles.saturating_add(1);
        cycle.number = self.cycles;
        cycle.entries.reserve_exact(heads.len());
        let mut candidates = heads;
        for candidate in &mut candidates {
            self.nominate(candidate);
        }

        // From here to the end of the cycle quota is given away and reserved in a what-if: what is given for good is counted
        // when the what-if is undone.
        let mark = self.state.checkpoint();
        let mut order: Vec<usize> = (0..candidates.len()).filter(|&i| candidates[i].assignment.is_some()).collect();
        let mut decided: Vec<usize> = Vec::with_capacity(candidates.len());
        if self.config.fair_sharing.is_some() {
            let mut tournament = Tournament::new(&candidates, &order, &self.state.forest);
            let gates = self.config.gates;
            while let Some(i) = tournament.next(&mut self.state, &candidates, &gates) {
                self.process(now, &mut candidates[i], &mut cycle);
                decided.push(i);
            }
        } else {
            self.sort(&mut order, &candidates);
            for i in order {
                self.process(now, &mut candidates[i], &mut cycle);
                decided.push(i);
            }
        }
        self.state.rollback(mark);
        self.state.clear_claims();

        let mut is_decided = vec![false; candidates.len()];
        for &i in &decided {
            is_decided[i] = true;
        }
        decided.extend((0..candidates.len()).filter(|&i| !is_decided[i]));
        for i in decided {
            self.conclude(now, &mut candidates[i], &mut cycle);
            if let Some(assignment) = candidates[i].assignment.take() {
                self.tools.assigner.recycle(assignment);
            }
        }
        cycle
    }

    /// The ClusterQueues that admit, by name.
    pub(super) fn active_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.state.forest.nodes().filter(|&n| self.state.queue(n).is_some_and(super::state::ClusterQueue::is_active))
    }

    /// Whether a cycle found that admission has to wait, and it still has to.
    pub(super) fn is_waiting_for_pods(&self) -> bool {
        self.waits_for_pods && self.has_pods_that_are_not_ready()
    }

    pub(super) fn has_pods_that_are_not_ready(&self) -> bool {
        self.state.queues.iter().flatten().any(|q| q.not_ready > 0)
    }

    fn heads(&mut self, now: Timestamp) -> Vec<Candidate> {
        let second_pass = self.take_second_pass(now);
        let nodes: Vec<NodeId> = if self.waits_for_pods {
            Vec::new()
        } else {
            self.active_nodes().filter(|&n| self.pending_queue(n).is_some_and(|q| q.active_len() > 0)).collect()
        };
        let mut heads = Vec::with_capacity(nodes.len().saturating_add(second_pass.len()));
        for (id, iteration) in second_pass {
            let node = self.state.records.get(id).and_then(|r| r.holding.as_ref()).map(|h| h.node);
            heads.extend(node.map(|node| Candidate::new(id, node, Some(iteration))));
        }
        for node in nodes {
            let popped = self.with_queue(node, |queue, places, order| {
                let id = queue.pop(places, order);
                (id, queue.preemptor)
            });
            let Some((Some(id), preemptor)) = popped else { continue };
            let Some(record) = self.state.records.get_mut(id) else { continue };
            record.evaluated_generation = record.generation;
            let mut head = Candidate::new(id, node, None);
            head.is_preemptor = preemptor.is_some_and(|p| p.workload == id && p.generation == record.generation);
            heads.push(head);
        }
        heads
    }

    /// Looks at one head as if it were alone.
    pub(super) fn nominate(&mut self, c: &mut Candidate) {
        let Some(record) = self.state.records.get(c.id) else {
            c.step = Step::Dropped;
            return;
        };
        if c.second_pass.is_none() && record.holding.is_some() {
            c.step = Step::Dropped;
            return;
        }
        let mut refuse = |why: Inadmissible, reason: &'static str, message: String| {
            if why == Inadmissible::NamespaceMismatch {
                c.requeue = Requeue::NamespaceMismatch;
            }
            (c.outcome, c.reason, c.message) = (Outcome::Inadmissible(why), reason, message);
        };
        if has_failed_checks(&record.status) {
            let message = "The workload has failed admission checks".to_owned();
            return refuse(Inadmissible::FailedChecks, "PendingEvaluation", message);
        }
        let Some(queue) = self.state.queue(c.node) else {
            let name: Box<str> = self.state.forest.name(c.node).into();
            let message = format!("ClusterQueue {name} not found");
            return refuse(Inadmissible::ClusterQueueMissing { cluster_queue: name }, "Misconfigured", message);
        };
        if !queue.is_active() || self.state.forest.is_cyclic(c.node) {
            let name: Box<str> = self.state.forest.name(c.node).into();
            let message = format!("ClusterQueue {name} is inactive");
            return refuse(Inadmissible::ClusterQueueInactive { cluster_queue: name }, "Suspended", message);
        }
        match self.state.local_queue(record.queue).map(|q| q.namespace) {
            Some(NamespaceFact::Served) => {}
            Some(NamespaceFact::Mismatch) => {
                let message = "workload namespace doesn't match ClusterQueue selector".to_owned();
                return refuse(Inadmissible::NamespaceMismatch, "Misconfigured", message);
            }
            Some(NamespaceFact::Missing) | None => {
                let namespace = record.key.namespace.clone();
                let message =
                    format!("workload namespace \"{namespace}\" does not exist: namespaces \"{namespace}\" not found");
                return refuse(Inadmissible::NamespaceMissing { namespace }, "Misconfigured", message);
            }
        }
        if let Some(invalid) = self.shapes.get(record.shape).and_then(|s| s.invalid.clone()) {
            let message = invalid.to_string();
            return refuse(Inadmissible::Resources { message: invalid }, "Misconfigured", message);
        }
        self.evaluate(c, None);
    }

    /// Finds flavors and victims for a candidate, and puts into words why it does not fit.
    pub(super) fn evaluate(&mut self, c: &mut Candidate, nominated: Option<&super::assign::Nominated>) {
        let spared = self.spare(c.id, c.node);
        let assigned = self.assign(c.id, c.node, nominated);
        self.state.show(spared);
        let Some(assigned) = assigned else {
            c.step = Step::Dropped;
            return;
        };
        c.message = self.catalogue().message(&assigned.assignment, |i| self.pod_set_name(c.id, i));
        c.places = self.places_of(c.id, &assigned.assignment);
        if let Some(before) = c.assignment.replace(assigned.assignment) {
            self.tools.assigner.recycle(before);
        }
        // Who holds slices already keeps them.
        c.slices = if c.second_pass.is_none() { assigned.slices } else { Slices::new() };
        c.targets = assigned.targets;
        c.quota_alone = assigned.quota_alone;
        c.resumed = assigned.resumed;
        c.slice = assigned.slice;
    }

    /// Sorts candidates into the order in which they are decided without fair sharing.
    fn sort(&self, order: &mut [usize], candidates: &[Candidate]) {
        let gates = &self.config.gates;
        order.sort_by(|&i, &j| {
            let (a, b) = (&candidates[i], &candidates[j]);
            let ordering = b.second_pass.is_some().cmp(&a.second_pass.is_some());
            let ordering = if gates.prioritize_preemptor_workloads {
                ordering.then_with(|| b.is_preemptor.cmp(&a.is_preemptor))
            } else {
                ordering
            };
            let ordering = ordering.then_with(|| a.borrowing().cmp(&b.borrowing()));
            let (Some(x), Some(y)) = (self.state.records.get(a.id), self.state.records.get(b.id)) else {
                return ordering;
            };
            let ordering = if gates.priority_sorting_within_cohort {
                ordering.then_with(|| y.priority().cmp(&x.priority()))
            } else {
                ordering
            };
            ordering
                .then_with(|| x.queued_at.cmp(&y.queued_at))
                .then_with(|| x.uid.cmp(&y.uid))
                .then_with(|| x.key.cmp(&y.key))
        });
    }

    pub(super) fn catalogue(&self) -> Catalogue<'_> {
        Catalogue { names: &self.state.names, flavors: &self.flavors }
    }

    /// The pod sets of a workload.
    pub(super) fn pod_sets(&self, id: WorkloadId) -> &[PodSet] {
        self.state
            .records
            .get(id)
            .and_then(|r| self.shapes.get(r.shape))
            .map(super::shape::Shape::pod_sets)
            .unwrap_or_default()
    }

    pub(super) fn pod_set_name(&self, id: WorkloadId, index: usize) -> &str {
        self.pod_sets(id).get(index).map_or("", |p| &p.name)
    }
}
