//! One scheduling cycle: heads, nomination, order, decisions, and putting back what was not admitted.

use slicegate_flavor::{Assignment, Mode};
use slicegate_preemption::{Target, WorkloadRef};
use slicegate_quota::{Amount, FlavorResourceId, NodeId};
use slicegate_workload::{CheckState, Timestamp};

use super::Engine;
use super::fair::Tournament;
use super::ids::WorkloadId;
use super::state::NamespaceFact;
use crate::{Cycle, Inadmissible, Outcome};

/// How far an entry came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It was not chosen.
    NotNominated,
    /// It was passed over.
    Skipped,
    /// It needs preemption, which is gated.
    Gated,
    /// It was chosen, but admission waits.
    Nominated,
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
    FailedAfterNomination,
    NoFit,
    NoCandidates,
    PendingPreemption,
    PendingMigration,
    NamespaceMismatch,
}

/// A workload that a cycle looks at.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: WorkloadId,
    pub(super) node: NodeId,
    /// For a workload that holds quota already: how often it was looked at.
    pub(super) second_pass: Option<u32>,
    pub(super) assignment: Option<Assignment>,
    pub(super) targets: Vec<Target>,
    /// The slice that it replaces, while that holds quota in the same ClusterQueue.
    pub(super) slice: Option<WorkloadRef>,
    /// The quota it needs beyond what it holds.
    pub(super) usage: Vec<(FlavorResourceId, Amount)>,
    pub(super) step: Step,
    pub(super) requeue: Requeue,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) outcome: Outcome,
    /// The slice that is finished once the admission is written.
    pub(super) finishes: Option<WorkloadRef>,
}

impl Candidate {
    pub(super) fn mode(&self) -> Mode {
        self.assignment.as_ref().map_or(Mode::NoFit, |a| a.mode)
    }

    pub(super) fn borrowing(&self) -> u32 {
        self.assignment.as_ref().map_or(0, |a| a.borrowing)
    }

    fn inadmissible(mut self, why: Inadmissible, reason: &'static str, message: impl Into<String>) -> Self {
        if why == Inadmissible::NamespaceMismatch {
            self.requeue = Requeue::NamespaceMismatch;
        }
        self.outcome = Outcome::Inadmissible(why);
        self.reason = reason;
        self.message = message.into();
        self
    }
}

impl Engine {
    /// Runs one scheduling cycle.
    pub fn cycle(&mut self, now: Timestamp) -> Cycle {
        self.tick(now);
        let mut cycle = Cycle::default();
        if self.is_waiting_for_pods() {
            return cycle;
        }
        self.waits_for_pods = false;
        let heads = self.heads(now);
        if heads.is_empty() {
            return cycle;
        }
        self.cycles = self.cycles.saturating_add(1);
        cycle.number = self.cycles;
        let mut candidates: Vec<Candidate> = heads.into_iter().map(|head| self.nominate(head)).collect();

        // Everything below changes quota only for as long as the cycle runs; what is given for good is counted at its end.
        let mark = slicegate_preemption::World::checkpoint(&mut self.state);
        let mut decided: Vec<usize> = Vec::with_capacity(candidates.len());
        let (mut entries, rest): (Vec<usize>, Vec<usize>) =
            (0..candidates.len()).partition(|&i| candidates[i].assignment.is_some());
        if self.config.fair_sharing.is_some() {
            let mut tournament = Tournament::new(&candidates, &entries, self.state.forest.node_count());
            while let Some(i) = tournament.next(&mut self.state, &candidates, &self.config, |c| self_preempts(self_view(c))) {
                self.process(now, &mut candidates[i], &mut cycle);
                decided.push(i);
            }
            decided.extend(entries.iter().copied().filter(|i| !decided.contains(i)).collect::<Vec<_>>());
        } else {
            self.sort(&mut entries, &candidates);
            for i in entries {
                self.process(now, &mut candidates[i], &mut cycle);
                decided.push(i);
            }
        }
        slicegate_preemption::World::rollback(&mut self.state, mark);
        self.state.clear_claims();
        decided.extend(rest);

        for i in decided {
            self.conclude(now, &mut candidates[i], &mut cycle);
        }
        cycle
    }
}
