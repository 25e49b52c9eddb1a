//! The order of entries under fair sharing: a tournament in each tree of Cohorts, held anew before every entry.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use slicegate_quota::{Forest, NodeId, NodeKind, Share};

use super::cycle::Candidate;
use super::state::State;
use crate::Gates;

/// How an entry stands at one Cohort above it, if it were admitted.
#[derive(Clone, Copy, Debug)]
struct Standing {
    cohort: NodeId,
    /// The share of the member of that Cohort that the entry is in.
    share: Share,
    /// Whether that member would borrow what the entry asks for.
    borrows: bool,
}

/// Entries that are not decided yet.
#[derive(Debug)]
pub(super) struct Tournament {
    /// One entry a ClusterQueue, by name of the ClusterQueue.
    ///
    /// `[quirk]` Of two entries of one ClusterQueue only the later one takes part.
    remaining: BTreeMap<NodeId, usize>,
    order: Vec<NodeId>,
    /// How the entries stand, by ClusterQueue, as far as that is known and still true.
    standings: BTreeMap<NodeId, Vec<Standing>>,
}

impl Tournament {
    pub(super) fn new(candidates: &[Candidate], entries: &[usize], forest: &Forest) -> Self {
        let remaining: BTreeMap<NodeId, usize> = entries.iter().map(|&i| (candidates[i].node, i)).collect();
        let mut order: Vec<NodeId> = remaining.keys().copied().collect();
        order.sort_by(|a, b| forest.name(*a).cmp(forest.name(*b)));
        Self { remaining, order, standings: BTreeMap::new() }
    }

    /// The entry to decide next.
    pub(super) fn next(&mut self, state: &mut State, candidates: &[Candidate], gates: &Gates) -> Option<usize> {
        let first = *self.order.first()?;
        let winner = if state.forest.parent(first).is_none() {
            first
        } else {
            let root = state.forest.root(first);
            self.bring_up_to_date(state, candidates, root);
            let (standings, entries) = (&self.standings, &self.remaining);
            let round = Round { forest: &state.forest, state, candidates, gates, standings, entries };
            round.winner(root).unwrap_or(first)
        };
        self.order.retain(|n| *n != winner);
        self.forget_near(&state.forest, winner);
        self.remaining.remove(&winner)
    }

    /// Forgets how entries stand that a decision about one ClusterQueue changes: those that are with it in a Cohort below the
    /// root. What the decision adds counts at that ClusterQueue and above it, and nobody stands by the root's share.
    fn forget_near(&mut self, forest: &Forest, decided: NodeId) {
        let above: Vec<NodeId> = forest.ancestors(decided).filter(|&n| forest.parent(n).is_some()).collect();
        if above.is_empty() {
            return;
        }
        self.standings.retain(|&node, _| !forest.ancestors(node).any(|n| above.contains(&n)));
    }

    /// Computes how the remaining entries of a tree stand at the Cohorts above them.
    fn bring_up_to_date(&mut self, state: &mut State, candidates: &[Candidate], root: NodeId) {
        let State { forest, names, .. } = state;
        for (&node, &i) in &self.remaining {
            if forest.root(node) != root || self.standings.contains_key(&node) {
                continue;
            }
            let usage = candidates[i].usage();
            let mark = forest.mark();
            for &(pair, amount) in usage {
                forest.add_usage(node, pair, amount);
            }
            let mut member = node;
            let mut list = Vec::new();
            while let Some(cohort) = forest.parent(member) {
                let share = forest.share(member, &[], names);
                list.push(Standing { cohort, share, borrows: forest.is_borrowing_on(member, usage) });
                member = cohort;
            }
            forest.rollback(mark);
            self.standings.insert(node, list);
        }
    }
}

struct Round<'a> {
    forest: &'a Forest,
    state: &'a State,
    candidates: &'a [Candidate],
    gates: &'a Gates,
    standings: &'a BTreeMap<NodeId, Vec<Standing>>,
    entries: &'a BTreeMap<NodeId, usize>,
}

impl Round<'_> {
    /// The ClusterQueue whose entry wins among those below a Cohort.
    fn winner(&self, cohort: NodeId) -> Option<NodeId> {
        let mut best: Option<NodeId> = None;
        for child in self.forest.children(cohort) {
            let candidate = match self.forest.kind(child) {
                NodeKind::Cohort => self.winner(child),
                NodeKind::ClusterQueue => self.entries.contains_key(&child).then_some(child),
            };
            let Some(candidate) = candidate else { continue };
            best = match best {
                Some(best) if self.compare(candidate, best, cohort) != Ordering::Less => Some(best),
                _ => Some(candidate),
            };
        }
        best
    }

    fn standing(&self, node: NodeId, cohort: NodeId) -> Option<&Standing> {
        self.standings.get(&node)?.iter().find(|s| s.cohort == cohort)
    }

    /// Compares two entries at a Cohort: the one to be decided first is less.
    fn compare(&self, a: NodeId, b: NodeId, cohort: NodeId) -> Ordering {
        let entry = |node: NodeId| self.entries.get(&node).and_then(|&i| self.candidates.get(i));
        let (Some(first), Some(second)) = (entry(a), entry(b)) else { return Ordering::Equal };
        let mut order = Ordering::Equal;
        if self.gates.prioritize_preemptor_workloads {
            order = second.is_preemptor.cmp(&first.is_preemptor);
        }
        if let (Some(left), Some(right)) = (self.standing(a, cohort), self.standing(b, cohort)) {
            if self.gates.fair_sharing_prioritize_non_borrowing {
                order = order.then(left.borrows.cmp(&right.borrows));
            }
            order = order.then(left.share.cmp(&right.share));
        }
        let record = |candidate: &Candidate| self.state.records.get(candidate.id);
        let (Some(left), Some(right)) = (record(first), record(second)) else { return order };
        if self.gates.priority_sorting_within_cohort {
            order = order.then(right.priority().cmp(&left.priority()));
        }
        order.then(left.queued_at.cmp(&right.queued_at))
    }
}
