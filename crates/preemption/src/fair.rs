//! The search with fair sharing: from whoever has more than its share.

use std::cmp::{Ordering, Reverse};

use slicegate_quota::{FlavorResourceId, NodeId, NodeKind, Share};
use slicegate_workload::{FairSharingStrategy, ReclaimPolicy, Timestamp};

use crate::candidate::{self, Candidate, Class, Policy as _};
use crate::classical::{collect_own, retain};
use crate::fits::{Shortage, add, fits, fits_in_addition, take_off};
use crate::lazy::Lazy;
use crate::share::{self, Shares};
use crate::{FairSharing, Guard, Reason, Request, Target, WorkloadRef, World};

/// The candidates of one ClusterQueue, best victim first.
#[derive(Debug, Default)]
struct Queue {
    node: Option<NodeId>,
    candidates: Lazy<Candidate>,
    /// The position of the next candidate.
    next: usize,
    /// Those that the first strategy passed over.
    retry: Vec<Candidate>,
    next_retry: usize,
}

/// A victim that was taken because of its ClusterQueue's share.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The position among the targets.
    target: usize,
    workload: WorkloadRef,
    cluster_queue: NodeId,
    /// The node on the preemptor's side whose share was compared.
    own_side: NodeId,
    /// The victim's place in the order of service, if it is behind the preemptor's.
    behind: Option<Rank>,
}

/// The children of a Cohort from which victims may still be taken, as heaps with the best first.
#[derive(Debug, Default)]
struct Ranking {
    queues: Vec<NodeId>,
    cohorts: Vec<NodeId>,
}

/// Buffers of the search.
#[derive(Debug, Default)]
pub(crate) struct Fair {
    queues: Vec<Queue>,
    used: usize,
    /// The position in `queues`, by index of node.
    queue_of: Vec<Option<usize>>,
    /// Cohorts below which nothing is left, by index of node.
    pruned: Vec<bool>,
    rankings: Vec<Ranking>,
    rankings_used: usize,
    /// The position in `rankings`, by index of node.
    ranking_of: Vec<Option<usize>>,
    above_own: Vec<bool>,
    shares: Shares,
    cohorts: Vec<NodeId>,
    claims: Vec<Claim>,
    kept: Vec<bool>,
    shortage: Shortage,
}

impl Fair {
    /// Finds victims and appends them to `targets`; leaves the world as it was.
    pub(crate) fn search<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        config: &FairSharing,
        request: &Request<'_>,
        targets: &mut Vec<Target>,
    ) {
        self.collect(world, request);
        if self.used == 0 {
            return;
        }
        let start = world.checkpoint();
        self.shortage.reset(world, request);
        add(world, request);
        let (first, second) = strategies(config);
        let found = self.run_first(world, config, first, request, targets)
            || (second && self.run_second(world, request, targets));
        if found {
            self.give_back(world, config, request, targets);
        } else {
            targets.clear();
        }
        world.rollback(start);
    }

    fn collect<W: World + ?Sized>(&mut self, world: &W, request: &Request<'_>) {
        let forest = world.forest();
        let own = request.preemptor.cluster_queue;
        let policy = world.policy(own);
        self.prepare(world, own);

        let mut offered = Vec::new();
        collect_own(world, request, policy.within_cluster_queue, |c| offered.push(c));
        for c in offered {
            self.push(own, c);
        }
        if policy.reclaim_within_cohort == ReclaimPolicy::Never || forest.parent(own).is_none() {
            return;
        }
        let root = forest.root(own);
        self.cohorts.clear();
        self.cohorts.push(root);
        while let Some(cohort) = self.cohorts.pop() {
            for child in forest.children(cohort) {
                if forest.kind(child) == NodeKind::Cohort {
                    self.cohorts.push(child);
                } else if child != own && is_borrowing_any(world, child, request.preempting) {
                    self.collect_other(world, request, policy.reclaim_within_cohort, child, root);
                }
            }
        }
    }

    fn prepare<W: World + ?Sized>(&mut self, world: &W, own: NodeId) {
        let forest = world.forest();
        self.used = 0;
        self.queue_of.clear();
        self.queue_of.resize(forest.node_count(), None);
        self.above_own.clear();
        self.above_own.resize(forest.node_count(), false);
        for node in forest.ancestors(own) {
            self.above_own[node.index()] = true;
        }
        self.claims.clear();
        self.shares.reset(forest.node_count());
    }

    fn collect_other<W: World + ?Sized>(
        &mut self,
        world: &W,
        request: &Request<'_>,
        policy: ReclaimPolicy,
        cluster_queue: NodeId,
        root: NodeId,
    ) {
        let allowed = |h: &crate::Holder<'_>| policy.allows(&request.preemptor, h.priority, h.queued_at);
        candidate::collect(world, cluster_queue, request.preempting, allowed, |workload, holder| {
            let mut c = Candidate::new(workload, holder, Class::Priority, root);
            c.reason = Reason::InCohortFairSharing;
            self.push(cluster_queue, c);
        });
    }

    fn push(&mut self, cluster_queue: NodeId, c: Candidate) {
        let position = self.queue_of.get(cluster_queue.index()).copied().flatten().unwrap_or_else(|| {
            let position = self.used;
            self.used += 1;
            if self.queues.len() <= position {
                self.queues.push(Queue::default());
            }
            let queue = &mut self.queues[position];
            queue.node = Some(cluster_queue);
            queue.candidates.clear();
            queue.next = 0;
            queue.retry.clear();
            queue.next_retry = 0;
            self.queue_of[cluster_queue.index()] = Some(position);
            position
        });
        self.queues[position].candidates.push(c);
    }

    fn run_first<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        config: &FairSharing,
        strategy: FairSharingStrategy,
        request: &Request<'_>,
        targets: &mut Vec<Target>,
    ) -> bool {
        let own = request.preemptor.cluster_queue;
        let forest = world.forest();
        let entitled = config.reclaim_within_nominal
            && request.preempting.iter().all(|&p| forest.usage(own, p) <= forest.nominal(own, p));
        self.restart(world);
        while let Some(at) = self.next_queue(world, own, Pass::First) {
            let Some(cluster_queue) = self.queues[at].node else { continue };
            if cluster_queue == own || entitled {
                let Some(c) = self.pop(world, at) else { continue };
                let reason = if cluster_queue == own { Reason::InClusterQueue } else { Reason::InCohortReclamation };
                world.remove(c.workload);
                if self.taken(world, &c, reason, request, targets) {
                    return true;
                }
                continue;
            }
            let (own_side, other_side) = sides(world, own, cluster_queue);
            let new = self.shares.get(world, own_side);
            let old = self.shares.get(world, other_side);
            if new.is_infinite() && !old.is_infinite() {
                while let Some(c) = self.pop(world, at) {
                    self.queues[at].retry.push(c);
                }
                continue;
            }
            while let Some(c) = self.pop(world, at) {
                world.remove(c.workload);
                let after = share::current(world, other_side);
                if !may_preempt(strategy, &new, &old, &after) {
                    world.restore(c.workload);
                    self.queues[at].retry.push(c);
                    continue;
                }
                if self.taken(world, &c, Reason::InCohortFairSharing, request, targets) {
                    return true;
                }
                break;
            }
        }
        false
    }

    /// The second strategy takes at most one victim more of every ClusterQueue, of those that the first passed over.
    fn run_second<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        request: &Request<'_>,
        targets: &mut Vec<Target>,
    ) -> bool {
        let own = request.preemptor.cluster_queue;
        self.restart(world);
        while let Some(at) = self.next_queue(world, own, Pass::Second) {
            let queue = &mut self.queues[at];
            let (Some(cluster_queue), Some(&c)) = (queue.node, queue.retry.get(queue.next_retry)) else {
                continue;
            };
            queue.next_retry = queue.retry.len();
            let (own_side, other_side) = sides(world, own, cluster_queue);
            let new = self.shares.get(world, own_side);
            let old = self.shares.get(world, other_side);
            if new < old {
                world.remove(c.workload);
                if self.taken(world, &c, Reason::InCohortFairSharing, request, targets) {
                    return true;
                }
            }
        }
        false
    }

    fn pop<W: World + ?Sized>(&mut self, world: &W, at: usize) -> Option<Candidate> {
        let queue = &mut self.queues[at];
        let c = queue.candidates.get(queue.next, |a, b| candidate::compare(world, a, b))?;
        queue.next += 1;
        Some(c)
    }

    /// Notes a victim that was removed; whether the request fits now.
    fn taken<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        c: &Candidate,
        reason: Reason,
        request: &Request<'_>,
        targets: &mut Vec<Target>,
    ) -> bool {
        self.shares.forget(world, c.cluster_queue);
        if reason == Reason::InCohortFairSharing {
            let (target, workload, cluster_queue) = (targets.len(), c.workload, c.cluster_queue);
            let own_side = request.preemptor.cluster_queue;
            self.claims.push(Claim { target, workload, cluster_queue, own_side, behind: None });
        }
        targets.push(Target { workload: c.workload, reason });
        self.shortage.is_covered_with(world, request, c.workload) && fits_in_addition(world, request)
    }

    // ----- the order of ClusterQueues -------------------------------------------------------------------------------

    fn restart<W: World + ?Sized>(&mut self, world: &W) {
        self.pruned.clear();
        self.pruned.resize(world.forest().node_count(), false);
        self.rankings_used = 0;
        self.ranking_of.clear();
        self.ranking_of.resize(world.forest().node_count(), None);
    }

    /// The ClusterQueue to take the next victim from: from the root down, always into the child with the highest share.
    fn next_queue<W: World + ?Sized>(&mut self, world: &W, own: NodeId, pass: Pass) -> Option<usize> {
        let forest = world.forest();
        if forest.parent(own).is_none() {
            let at = self.queue_of.get(own.index()).copied().flatten()?;
            return self.head(world, at, pass).map(|_| at);
        }
        let root = forest.root(own);
        while !self.pruned[root.index()] {
            let mut cohort = root;
            loop {
                match self.best_child(world, own, cohort, pass) {
                    Best::ClusterQueue(node) => return self.queue_of[node.index()],
                    Best::Cohort(child) => cohort = child,
                    Best::Nothing => {
                        self.pruned[cohort.index()] = true;
                        break;
                    }
                }
            }
        }
        None
    }

    /// The best child of a Cohort, a ClusterQueue or a Cohort. Only what was on the way down last time can have changed since,
    /// and that was the best then: so each kind is a heap of which no more than the first is ever out of place.
    fn best_child<W: World + ?Sized>(&mut self, world: &W, own: NodeId, cohort: NodeId, pass: Pass) -> Best {
        let at = self.ranking(world, own, cohort, pass);
        let mut ranking = std::mem::take(&mut self.rankings[at]);
        let queue = self.settle(world, own, &mut ranking.queues, pass);
        let inner = self.settle(world, own, &mut ranking.cohorts, pass);
        self.rankings[at] = ranking;
        match (queue, inner) {
            (None, None) => Best::Nothing,
            (Some(queue), Some(cohort)) if self.shares.get(world, cohort) < self.shares.get(world, queue) => {
                Best::ClusterQueue(queue)
            }
            (_, Some(cohort)) => Best::Cohort(cohort),
            (Some(queue), None) => Best::ClusterQueue(queue),
        }
    }

    /// The ranking of a Cohort's children, made when first asked for.
    fn ranking<W: World + ?Sized>(&mut self, world: &W, own: NodeId, cohort: NodeId, pass: Pass) -> usize {
        if let Some(at) = self.ranking_of[cohort.index()] {
            return at;
        }
        let at = self.rankings_used;
        self.rankings_used += 1;
        if self.rankings.len() <= at {
            self.rankings.push(Ranking::default());
        }
        self.ranking_of[cohort.index()] = Some(at);
        let mut ranking = std::mem::take(&mut self.rankings[at]);
        ranking.queues.clear();
        ranking.cohorts.clear();
        let forest = world.forest();
        for child in forest.children(cohort) {
            if self.is_out(world, own, child, pass) {
                continue;
            }
            match forest.kind(child) {
                NodeKind::ClusterQueue => ranking.queues.push(child),
                NodeKind::Cohort => ranking.cohorts.push(child),
            }
        }
        for heap in [&mut ranking.queues, &mut ranking.cohorts] {
            for i in (0..heap.len() / 2).rev() {
                self.sift_down(world, heap, i, pass);
            }
        }
        self.rankings[at] = ranking;
        at
    }

    /// Whether nothing more is to be had below a node.
    fn is_out<W: World + ?Sized>(&mut self, world: &W, own: NodeId, node: NodeId, pass: Pass) -> bool {
        if self.pruned[node.index()] {
            return true;
        }
        if world.forest().kind(node) == NodeKind::Cohort {
            return !self.above_own[node.index()] && !self.shares.get(world, node).is_borrowing();
        }
        let has_candidates = self.queue_of[node.index()].is_some_and(|at| self.head(world, at, pass).is_some());
        !has_candidates || (node != own && !self.shares.get(world, node).is_borrowing())
    }

    /// Puts the first of a heap into its place, drops it if it is out, and returns the first then.
    fn settle<W: World + ?Sized>(
        &mut self,
        world: &W,
        own: NodeId,
        heap: &mut Vec<NodeId>,
        pass: Pass,
    ) -> Option<NodeId> {
        while let Some(&first) = heap.first() {
            let out = self.is_out(world, own, first, pass);
            if out {
                heap.swap_remove(0);
            }
            self.sift_down(world, heap, 0, pass);
            if !out {
                break;
            }
        }
        heap.first().copied()
    }

    fn sift_down<W: World + ?Sized>(&mut self, world: &W, heap: &mut [NodeId], mut at: usize, pass: Pass) {
        loop {
            let mut best = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if let (Some(&c), Some(&b)) = (heap.get(child), heap.get(best))
                    && self.is_better(world, c, b, pass)
                {
                    best = child;
                }
            }
            if best == at {
                return;
            }
            heap.swap(at, best);
            at = best;
        }
    }

    /// Whether victims are taken from one child of a Cohort rather than from another of the same kind: the one with the larger
    /// share; of ClusterQueues with equal shares the one whose next candidate is the better victim, of Cohorts the later one.
    fn is_better<W: World + ?Sized>(&mut self, world: &W, a: NodeId, b: NodeId, pass: Pass) -> bool {
        let order = self.shares.get(world, a).cmp(&self.shares.get(world, b));
        if order != Ordering::Equal {
            return order.is_gt();
        }
        let heads =
            |fair: &mut Self, node: NodeId| fair.queue_of[node.index()].and_then(|at| fair.head(world, at, pass));
        match (heads(self, a), heads(self, b)) {
            (Some(x), Some(y)) => candidate::compare(world, &x, &y).is_lt(),
            _ => world.forest().name(a) > world.forest().name(b),
        }
    }

    /// The candidate that a queue would yield next.
    fn head<W: World + ?Sized>(&mut self, world: &W, at: usize, pass: Pass) -> Option<Candidate> {
        let queue = &mut self.queues[at];
        match pass {
            Pass::First => queue.candidates.get(queue.next, |a, b| candidate::compare(world, a, b)),
            Pass::Second => queue.retry.get(queue.next_retry).copied(),
        }
    }

    // ----- giving back ----------------------------------------------------------------------------------------------

    fn give_back<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        config: &FairSharing,
        request: &Request<'_>,
        targets: &mut Vec<Target>,
    ) {
        if config.guard == Guard::On {
            self.rank_claims(world, request);
        } else {
            self.claims.clear();
        }
        take_off(world, request);
        self.kept.clear();
        self.kept.resize(targets.len(), true);
        for i in (0..targets.len().saturating_sub(1)).rev() {
            let workload = targets[i].workload;
            world.restore(workload);
            if fits(world, request, true) && self.may_return(world, request, workload) {
                self.kept[i] = false;
            } else {
                world.remove(workload);
            }
        }
        retain(targets, &self.kept);
    }

    /// Notes where every victim that was taken by share would be in the order of service, should it come back; forgets those
    /// that would go before the preemptor anyway.
    fn rank_claims<W: World + ?Sized>(&mut self, world: &mut W, request: &Request<'_>) {
        let own = request.preemptor.cluster_queue;
        for i in 0..self.claims.len() {
            let claim = self.claims[i];
            let (own_side, other_side) = sides(world, own, claim.cluster_queue);
            let ours = self.rank(world, request, own_side);
            world.restore(claim.workload);
            let victim = world.workload(claim.workload);
            let theirs = Rank {
                borrowing: world.forest().is_borrowing_on(other_side, victim.usage),
                share: share::current(world, other_side),
                priority: Reverse(victim.priority),
                queued_at: victim.queued_at,
            };
            world.remove(claim.workload);
            let behind = (ours < theirs).then_some(theirs);
            self.claims[i] = Claim { own_side, behind, ..claim };
        }
        self.claims.retain(|c| c.behind.is_some());
    }

    /// The preemptor's place in the order of service, its usage being counted.
    fn rank<W: World + ?Sized>(&mut self, world: &W, request: &Request<'_>, own_side: NodeId) -> Rank {
        Rank {
            borrowing: world.forest().is_borrowing_on(own_side, request.needed),
            share: self.shares.get(world, own_side),
            priority: Reverse(request.preemptor.priority),
            queued_at: request.preemptor.queued_at,
        }
    }

    /// Whether the preemptor stays before all victims that were taken by share, with one victim put back.
    fn may_return<W: World + ?Sized>(&mut self, world: &mut W, request: &Request<'_>, workload: WorkloadRef) -> bool {
        let cluster_queue = world.workload(workload).cluster_queue;
        // Only usage on the preemptor's side counts against it.
        let concerned = |world: &W, side: NodeId| {
            side == cluster_queue || world.forest().ancestors(cluster_queue).any(|n| n == side)
        };
        if !self.claims.iter().any(|c| concerned(world, c.own_side)) {
            return true;
        }
        add(world, request);
        self.shares.forget(world, cluster_queue);
        let mut goes_first = true;
        for i in 0..self.claims.len() {
            let claim = self.claims[i];
            if claim.workload != workload && self.kept[claim.target] && concerned(world, claim.own_side) {
                let ours = self.rank(world, request, claim.own_side);
                goes_first &= claim.behind.is_none_or(|theirs| ours < theirs);
            }
        }
        take_off(world, request);
        if !goes_first {
            self.shares.forget(world, cluster_queue);
        }
        goes_first
    }
}

/// A place in the order in which fair sharing serves workloads: whoever borrows nothing that it asks for goes first, then the
/// smaller share, then the higher priority, then the older one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    borrowing: bool,
    share: Share,
    priority: Reverse<i64>,
    queued_at: Timestamp,
}

/// The ClusterQueues from which fair sharing would take victims for a workload of `own`, one entry a victim, with usage as it
/// is: from the root of the tree down, always into the child with the highest share.
///
/// All workloads of `cluster_queues` are candidates. Usage does not change from step to step. `gives_up` is asked at each step,
/// counted from 0, whether the ClusterQueue is to be passed over from then on instead of giving up one more workload.
pub fn order_cluster_queues<W: World + ?Sized>(
    world: &W,
    own: NodeId,
    cluster_queues: &[NodeId],
    gives_up: impl Fn(usize) -> bool,
) -> Vec<NodeId> {
    let mut fair = Fair::default();
    fair.prepare(world, own);
    for &node in cluster_queues {
        let class = if node == own { Class::Own } else { Class::Priority };
        for &workload in world.workloads(node) {
            fair.push(node, Candidate::new(workload, &world.workload(workload), class, node));
        }
    }
    fair.restart(world);
    let mut order = Vec::new();
    while let Some(at) = fair.next_queue(world, own, Pass::First) {
        if gives_up(order.len()) {
            while fair.pop(world, at).is_some() {}
        } else {
            fair.pop(world, at);
        }
        order.extend(fair.queues[at].node);
    }
    order
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    First,
    Second,
}

enum Best {
    ClusterQueue(NodeId),
    Cohort(NodeId),
    Nothing,
}

/// The first strategy, and whether there is a second one: that is always `LessThanInitialShare`.
fn strategies(config: &FairSharing) -> (FairSharingStrategy, bool) {
    match config.strategies.as_slice() {
        [] => (FairSharingStrategy::LessThanOrEqualToFinalShare, true),
        [first] => (*first, false),
        [first, ..] => (*first, true),
    }
}

fn may_preempt(strategy: FairSharingStrategy, new: &Share, old: &Share, after: &Share) -> bool {
    match strategy {
        FairSharingStrategy::LessThanOrEqualToFinalShare => new <= after,
        FairSharingStrategy::LessThanInitialShare => new < old,
    }
}

fn is_borrowing_any<W: World + ?Sized>(world: &W, cluster_queue: NodeId, pairs: &[FlavorResourceId]) -> bool {
    let forest = world.forest();
    pairs.iter().any(|&p| forest.usage(cluster_queue, p) > forest.nominal(cluster_queue, p))
}

/// The nodes just below the lowest common Cohort of two ClusterQueues, on either side: those whose shares compare.
fn sides<W: World + ?Sized>(world: &W, a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    let forest = world.forest();
    let mut side_a = a;
    for above in forest.ancestors(a) {
        let mut side_b = b;
        for other in forest.ancestors(b) {
            if other == above {
                return (side_a, side_b);
            }
            side_b = other;
        }
        side_a = above;
    }
    (side_a, b)
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{PreemptionPolicy, WithinClusterQueuePolicy};

    use super::*;
    use crate::Config;
    use crate::testing::{ANY, Field, all};

    const FINAL: FairSharingStrategy = FairSharingStrategy::LessThanOrEqualToFinalShare;
    const INITIAL: FairSharingStrategy = FairSharingStrategy::LessThanInitialShare;

    fn config(strategies: &[FairSharingStrategy]) -> Config {
        let fair = FairSharing { strategies: strategies.to_vec(), ..FairSharing::default() };
        Config { fair_sharing: Some(fair) }
    }

    fn victims(field: &Field, priority: i64, amount: i64) -> Vec<(String, Reason)> {
        field.victims(&config(&[]), "q", priority, amount)
    }

    #[test]
    fn the_one_with_the_larger_share_gives_up() {
        let f = Field::new()
            .queue("q", "all", 0, ANY)
            .queue("greedy", "all", 0, ANY)
            .queue("modest", "all", 0, ANY)
            .queue("idle", "all", 9, ANY)
            .running("g1", "greedy", 5, 2)
            .running("g2", "greedy", 5, 2)
            .running("g3", "greedy", 5, 2)
            .running("m1", "modest", 5, 2)
            .running("m2", "modest", 5, 1);
        assert_eq!(victims(&f, 5, 2), all(Reason::InCohortFairSharing, &["g1"]));
        // With 4, q would have as much as greedy after one victim, and more after two.
        assert_eq!(victims(&f, 5, 4), []);
    }

    #[test]
    fn strategies_compare_with_the_share_after_or_before() {
        // q would have 1 above its quota; b has 2 above it, and none without its only workload.
        let field = |b: i64| {
            Field::new()
                .queue("q", "all", 2, ANY)
                .queue("b", "all", 2, ANY)
                .queue("idle", "all", 2, ANY)
                .running("q1", "q", 5, 2)
                .running("b1", "b", 5, b)
        };
        let on_b = all(Reason::InCohortFairSharing, &["b1"]);
        assert_eq!(field(4).victims(&config(&[FINAL]), "q", 5, 1), []);
        assert_eq!(field(4).victims(&config(&[INITIAL]), "q", 5, 1), on_b);
        assert_eq!(field(4).victims(&config(&[FINAL, INITIAL]), "q", 5, 1), on_b);
        assert_eq!(field(4).victims(&config(&[]), "q", 5, 1), on_b, "both are the default");
        // Equal shares: the final one may be equal, the initial one may not.
        let twins = Field::new()
            .queue("q", "all", 0, ANY)
            .queue("b", "all", 0, ANY)
            .queue("idle", "all", 4, ANY)
            .running("b1", "b", 5, 2)
            .running("b2", "b", 5, 2);
        assert_eq!(twins.victims(&config(&[FINAL]), "q", 5, 2), on_b);
        assert_eq!(twins.victims(&config(&[INITIAL]), "q", 5, 4), []);
    }

    #[test]
    fn the_second_strategy_takes_one_victim_of_a_queue() {
        let f = Field::new()
            .queue("q", "all", 0, ANY)
            .queue("b", "all", 2, ANY)
            .queue("idle", "all", 6, ANY)
            .running("b1", "b", 5, 4)
            .running("b2", "b", 5, 4);
        assert_eq!(victims(&f, 5, 4), all(Reason::InCohortFairSharing, &["b1"]));
        // Two victims would make room, and either alone would be just.
        assert_eq!(victims(&f, 5, 5), []);
    }

    #[test]
    fn within_its_own_quota_a_queue_reclaims_whatever_the_shares() {
        let f = Field::new().queue("q", "all", 4, ANY).queue("b", "all", 4, ANY).running("b1", "b", 5, 8);
        assert_eq!(victims(&f, 5, 4), all(Reason::InCohortReclamation, &["b1"]));
        let by_share = FairSharing { reclaim_within_nominal: false, ..FairSharing::default() };
        let by_share = Config { fair_sharing: Some(by_share) };
        assert_eq!(f.victims(&by_share, "q", 5, 4), all(Reason::InCohortFairSharing, &["b1"]));
    }

    #[test]
    fn without_a_weight_one_takes_only_from_others_without() {
        let field = |weight| {
            Field::new()
                .weighted("q", "all", 0, ANY, 0)
                .weighted("b", "all", 0, ANY, weight)
                .queue("idle", "all", 8, ANY)
                .running("b1", "b", 5, 4)
                .running("b2", "b", 5, 4)
        };
        assert_eq!(victims(&field(0), 5, 4), all(Reason::InCohortFairSharing, &["b1"]));
        assert_eq!(victims(&field(1), 5, 4), []);
    }

    #[test]
    fn the_own_queue_gives_up_without_a_cohort() {
        let f = Field::new().queue("q", "", 4, ANY).running("low", "q", -1, 4);
        assert_eq!(victims(&f, 0, 4), all(Reason::InClusterQueue, &["low"]));
    }

    #[test]
    fn shares_compare_just_below_the_lowest_common_cohort() {
        // Alone, b has much; but its cohort has less than that of q.
        let f = Field::new()
            .cohort("root", "", 8)
            .cohort("left", "root", 0)
            .cohort("right", "root", 4)
            .queue("q", "left", 0, ANY)
            .queue("twin", "left", 0, ANY)
            .queue("b", "right", 0, ANY)
            .running("t1", "twin", 5, 5)
            .running("b1", "b", 5, 3)
            .running("b2", "b", 5, 4);
        assert_eq!(victims(&f, 5, 1), all(Reason::InCohortFairSharing, &["t1"]));
    }

    /// A preemptor that takes a victim of its own queue to look modest, then one of another queue, and then gives the own
    /// one back: with it the other would have been spared. Whoever was preempted has the smaller share, comes back first,
    /// and is preempted again.
    #[test]
    fn a_plan_does_not_rest_on_a_share_that_it_raises_again() {
        let lower = PreemptionPolicy { within_cluster_queue: WithinClusterQueuePolicy::LowerPriority, ..ANY };
        let f = Field::new()
            .weighted("other", "root", 40, ANY, 2)
            .queue("q", "root", 10, lower)
            .queue("full", "root", 80, ANY)
            .running("a1", "other", 5, 30)
            .running("a2", "other", 0, 15)
            .running("own", "q", -10, 5)
            .running("c", "full", 50, 80);
        let with = |guard| Config { fair_sharing: Some(FairSharing { guard, ..FairSharing::default() }) };
        let shared = ("a2".to_owned(), Reason::InCohortFairSharing);
        let own = ("own".to_owned(), Reason::InClusterQueue);
        assert_eq!(f.victims(&with(Guard::Off), "q", 100, 10), std::slice::from_ref(&shared));
        assert_eq!(f.victims(&with(Guard::On), "q", 100, 10), [shared, own]);
    }

    #[test]
    fn the_guard_lets_go_of_what_changes_no_comparison() {
        // The own victim is not needed, and other is far above its share either way.
        let f = Field::new()
            .queue("other", "root", 0, ANY)
            .queue("q", "root", 10, ANY)
            .queue("idle", "root", 30, ANY)
            .running("a1", "other", 5, 15)
            .running("a2", "other", 5, 19)
            .running("own", "q", -10, 6);
        for guard in [Guard::On, Guard::Off] {
            let config = Config { fair_sharing: Some(FairSharing { guard, ..FairSharing::default() }) };
            let got = f.victims(&config, "q", 100, 10);
            assert_eq!(got, all(Reason::InCohortFairSharing, &["a1"]), "{guard:?}");
        }
    }
}
