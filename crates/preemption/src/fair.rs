//! The search with fair sharing: from whoever has more than its share.

use std::cmp::Ordering;

use slicegate_quota::{FlavorResourceId, NodeId, NodeKind, Share};
use slicegate_workload::{FairSharingStrategy, ReclaimPolicy};

use crate::candidate::{self, Candidate, Class, Policy as _};
use crate::classical::{collect_own, give_back};
use crate::fits::{add, fits_in_addition};
use crate::lazy::Lazy;
use crate::share::{self, Shares};
use crate::{FairSharing, Guard, Reason, Request, Target, World};

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

/// A victim whose taking rests on a comparison of shares.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The position among the targets.
    target: usize,
    workload: crate::WorkloadRef,
    cluster_queue: NodeId,
    strategy: FairSharingStrategy,
    /// Whether the comparison holds for the whole plan.
    holds: bool,
}

/// Buffers of the search.
#[derive(Debug, Default)]
pub(crate) struct Fair {
    queues: Vec<Queue>,
    used: usize,
    /// The position in `queues`, by index of node.
    queue_of: Vec<Option<usize>>,
    /// By index of node.
    pruned: Vec<bool>,
    above_own: Vec<bool>,
    shares: Shares,
    cohorts: Vec<NodeId>,
    claims: Vec<Claim>,
    kept: Vec<bool>,
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
                self.take(world, &c, reason, targets);
                if fits_in_addition(world, request) {
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
                self.taken(world, &c, Reason::InCohortFairSharing, Some(strategy), targets);
                if fits_in_addition(world, request) {
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
                let strategy = FairSharingStrategy::LessThanInitialShare;
                self.taken(world, &c, Reason::InCohortFairSharing, Some(strategy), targets);
                if fits_in_addition(world, request) {
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

    fn take<W: World + ?Sized>(&mut self, world: &mut W, c: &Candidate, reason: Reason, targets: &mut Vec<Target>) {
        world.remove(c.workload);
        self.taken(world, c, reason, None, targets);
    }

    /// Notes a victim that was removed.
    fn taken<W: World + ?Sized>(
        &mut self,
        world: &W,
        c: &Candidate,
        reason: Reason,
        strategy: Option<FairSharingStrategy>,
        targets: &mut Vec<Target>,
    ) {
        self.shares.forget(world, c.cluster_queue);
        if let Some(strategy) = strategy {
            let (target, workload, cluster_queue) = (targets.len(), c.workload, c.cluster_queue);
            self.claims.push(Claim { target, workload, cluster_queue, strategy, holds: false });
        }
        targets.push(Target { workload: c.workload, reason });
    }

    // ----- the order of ClusterQueues -------------------------------------------------------------------------------

    fn restart<W: World + ?Sized>(&mut self, world: &W) {
        self.pruned.clear();
        self.pruned.resize(world.forest().node_count(), false);
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
                    Best::ClusterQueue(at) => return Some(at),
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

    fn best_child<W: World + ?Sized>(&mut self, world: &W, own: NodeId, cohort: NodeId, pass: Pass) -> Best {
        let forest = world.forest();
        let mut best_queue: Option<(usize, Share, Candidate)> = None;
        let mut best_cohort: Option<(NodeId, Share)> = None;
        for child in forest.children(cohort) {
            if self.pruned[child.index()] {
                continue;
            }
            if forest.kind(child) == NodeKind::Cohort {
                let share = self.shares.get(world, child);
                if !share.is_borrowing() && !self.above_own[child.index()] {
                    self.pruned[child.index()] = true;
                } else if best_cohort.is_none_or(|(_, best)| share >= best) {
                    best_cohort = Some((child, share));
                }
                continue;
            }
            let at = self.queue_of[child.index()];
            let Some((at, head)) = at.and_then(|at| Some((at, self.head(world, at, pass)?))) else {
                self.pruned[child.index()] = true;
                continue;
            };
            let share = self.shares.get(world, child);
            if !share.is_borrowing() && child != own {
                self.pruned[child.index()] = true;
                continue;
            }
            let better = best_queue.is_none_or(|(_, best, best_head)| match share.cmp(&best) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => candidate::compare(world, &head, &best_head).is_lt(),
            });
            if better {
                best_queue = Some((at, share, head));
            }
        }
        match (best_queue, best_cohort) {
            (None, None) => Best::Nothing,
            (Some((at, share, _)), Some((_, cohort))) if cohort < share => Best::ClusterQueue(at),
            (_, Some((cohort, _))) => Best::Cohort(cohort),
            (Some((at, ..)), None) => Best::ClusterQueue(at),
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
        let own = request.preemptor.cluster_queue;
        if config.guard == Guard::Off || self.claims.is_empty() {
            give_back(world, targets, &mut self.kept, |world| fits_in_addition(world, request));
            return;
        }
        for i in 0..self.claims.len() {
            let claim = self.claims[i];
            self.claims[i].holds = self.is_just(world, own, &claim);
        }
        self.kept.clear();
        self.kept.resize(targets.len(), true);
        for i in (0..targets.len().saturating_sub(1)).rev() {
            let workload = targets[i].workload;
            let cluster_queue = world.workload(workload).cluster_queue;
            world.restore(workload);
            self.shares.forget(world, cluster_queue);
            let returns = fits_in_addition(world, request)
                && (0..self.claims.len()).all(|c| {
                    let claim = self.claims[c];
                    claim.target == i || !claim.holds || !self.kept[claim.target] || self.is_just(world, own, &claim)
                });
            if returns {
                self.kept[i] = false;
            } else {
                world.remove(workload);
                self.shares.forget(world, cluster_queue);
            }
        }
        let mut at = 0;
        targets.retain(|_| {
            at += 1;
            self.kept[at - 1]
        });
    }

    /// Whether the comparison of shares that made a workload a victim holds for the plan as a whole.
    fn is_just<W: World + ?Sized>(&mut self, world: &mut W, own: NodeId, claim: &Claim) -> bool {
        let (own_side, other_side) = sides(world, own, claim.cluster_queue);
        let new = self.shares.get(world, own_side);
        match claim.strategy {
            FairSharingStrategy::LessThanOrEqualToFinalShare => {
                let after = self.shares.get(world, other_side);
                new <= after
            }
            FairSharingStrategy::LessThanInitialShare => {
                world.restore(claim.workload);
                let old = share::current(world, other_side);
                world.remove(claim.workload);
                new < old
            }
        }
    }
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
    ClusterQueue(usize),
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
