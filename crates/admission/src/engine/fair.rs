//! The order of entries under fair sharing: a tournament in each tree of Cohorts.
//!
//! At every Cohort the members' candidates are ranked by how the members would stand with them. What is decided about one
//! ClusterQueue changes how it and the Cohorts above it stand, and nobody else: so after each decision one rank a level is
//! computed anew.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use slicegate_quota::{Forest, NodeId, NodeKind, Share};
use slicegate_workload::Timestamp;

use super::cycle::Candidate;
use super::state::State;
use crate::Gates;

/// How a member of a Cohort ranks with its candidate, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    /// The candidate preempted for itself before (if that counts).
    preempts: Reverse<bool>,
    /// The member would borrow what the candidate asks for (if that counts).
    borrows: bool,
    /// The member's share with the candidate.
    share: Share,
    /// The candidate's priority (if that counts).
    priority: Reverse<i64>,
    queued_at: Timestamp,
    /// The position of the member in its Cohort.
    position: usize,
}

/// A member of a Cohort in the running.
#[derive(Clone, Copy, Debug)]
struct Member {
    node: NodeId,
    /// The ClusterQueue whose entry is its candidate.
    candidate: NodeId,
}

/// Entries that are not decided yet.
#[derive(Debug)]
pub(super) struct Tournament {
    /// One entry a ClusterQueue.
    ///
    /// `[quirk]` Of two entries of one ClusterQueue only the later one takes part.
    remaining: BTreeMap<NodeId, usize>,
    /// The ClusterQueues by name, and how many of them are done with.
    order: Vec<NodeId>,
    done: usize,
    /// The members of each Cohort that have a candidate, by rank; and the rank of each.
    ranked: BTreeMap<NodeId, BTreeMap<Rank, Member>>,
    ranks: BTreeMap<NodeId, Rank>,
    /// The last winner, whose decision is not accounted for yet.
    decided: Option<NodeId>,
}

impl Tournament {
    pub(super) fn new(candidates: &[Candidate], entries: &[usize], forest: &Forest) -> Self {
        let remaining: BTreeMap<NodeId, usize> = entries.iter().map(|&i| (candidates[i].node, i)).collect();
        let mut order: Vec<NodeId> = remaining.keys().copied().collect();
        order.sort_by(|a, b| forest.name(*a).cmp(forest.name(*b)));
        Self { remaining, order, done: 0, ranked: BTreeMap::new(), ranks: BTreeMap::new(), decided: None }
    }

    /// The entry to decide next. The one before must have been decided.
    pub(super) fn next(&mut self, state: &mut State, candidates: &[Candidate], gates: &Gates) -> Option<usize> {
        if let Some(decided) = self.decided.take() {
            self.account_for(decided, state, candidates, gates);
        }
        let first = loop {
            let node = *self.order.get(self.done)?;
            if self.remaining.contains_key(&node) {
                break node;
            }
            self.done = self.done.saturating_add(1);
        };
        let root = state.forest.root(first);
        if root == first {
            return self.remaining.remove(&first);
        }
        if !self.ranked.contains_key(&root) {
            self.rank_all(root, state, candidates, gates);
        }
        let winner = self.best(root).unwrap_or(first);
        self.decided = Some(winner);
        self.remaining.remove(&winner)
    }

    fn best(&self, cohort: NodeId) -> Option<NodeId> {
        Some(self.ranked.get(&cohort)?.first_key_value()?.1.candidate)
    }

    /// The candidate of a member: its own entry, or the best of a Cohort.
    fn candidate_of(&self, member: NodeId, forest: &Forest) -> Option<NodeId> {
        match forest.kind(member) {
            NodeKind::ClusterQueue => self.remaining.contains_key(&member).then_some(member),
            NodeKind::Cohort => self.best(member),
        }
    }

    /// Ranks everybody below a Cohort.
    fn rank_all(&mut self, cohort: NodeId, state: &mut State, candidates: &[Candidate], gates: &Gates) {
        self.ranked.insert(cohort, BTreeMap::new());
        let members: Vec<NodeId> = state.forest.children(cohort).collect();
        for (position, member) in members.into_iter().enumerate() {
            if state.forest.kind(member) == NodeKind::Cohort {
                self.rank_all(member, state, candidates, gates);
            }
            self.rank(cohort, member, position, state, candidates, gates);
        }
    }

    fn rank(
        &mut self,
        cohort: NodeId,
        member: NodeId,
        position: usize,
        state: &mut State,
        candidates: &[Candidate],
        gates: &Gates,
    ) {
        let Some(node) = self.candidate_of(member, &state.forest) else { return };
        let Some(candidate) = self.remaining.get(&node).and_then(|&i| candidates.get(i)) else { return };
        let Some(record) = state.records.get(candidate.id) else { return };
        let State { forest, names, .. } = state;
        let mark = forest.mark();
        for &(pair, amount) in candidate.usage() {
            forest.add_usage(node, pair, amount);
        }
        let share = forest.share(member, &[], names);
        let borrows = gates.fair_sharing_prioritize_non_borrowing && forest.is_borrowing_on(member, candidate.usage());
        forest.rollback(mark);
        let rank = Rank {
            preempts: Reverse(gates.prioritize_preemptor_workloads && candidate.is_preemptor),
            borrows,
            share,
            priority: Reverse(if gates.priority_sorting_within_cohort { record.priority() } else { 0 }),
            queued_at: record.queued_at,
            position,
        };
        self.ranks.insert(member, rank);
        self.ranked.entry(cohort).or_default().insert(rank, Member { node: member, candidate: node });
    }

    /// Ranks a ClusterQueue that was decided about, and the Cohorts above it, anew.
    fn account_for(&mut self, decided: NodeId, state: &mut State, candidates: &[Candidate], gates: &Gates) {
        let mut member = decided;
        while let Some(cohort) = state.forest.parent(member) {
            if let Some(rank) = self.ranks.remove(&member) {
                let removed = self.ranked.get_mut(&cohort).and_then(|members| members.remove(&rank));
                debug_assert!(removed.is_some_and(|m| m.node == member), "a member stands where its rank says");
                self.rank(cohort, member, rank.position, state, candidates, gates);
            }
            member = cohort;
        }
    }
}
