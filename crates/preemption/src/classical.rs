//! The search without fair sharing: by priority and by who owns the quota.

use slicegate_quota::{Amount, FlavorResourceId, Forest, NodeId, NodeKind};
use slicegate_workload::{BorrowWithinCohort, ReclaimPolicy, WithinClusterQueuePolicy};

use crate::candidate::{self, Candidate, Class, Policy as _};
use crate::fits::{Shortage, fits};
use crate::lazy::Lazy;
use crate::{Reason, Request, Target, World};

/// Buffers of the search.
#[derive(Debug, Default)]
pub(crate) struct Classical {
    candidates: Lazy<Candidate>,
    remaining: Vec<(FlavorResourceId, Amount)>,
    cohorts: Vec<NodeId>,
    kept: Vec<bool>,
    shortage: Shortage,
}

impl Classical {
    /// Finds victims and appends them to `targets`; leaves the world as it was.
    pub(crate) fn search<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        request: &Request<'_>,
        targets: &mut Vec<Target>,
    ) {
        let own = request.preemptor.cluster_queue;
        let policy = world.policy(own);
        let borrowing = policy.borrow_within_cohort.filter(|b| b.lower_priority);
        self.candidates.clear();
        self.collect_own(world, request, policy.within_cluster_queue);
        if policy.reclaim_within_cohort != ReclaimPolicy::Never {
            self.collect_cohort(world, request, policy.reclaim_within_cohort, borrowing);
        }
        if self.candidates.is_empty() {
            return;
        }
        let any_of = |class: &[Class]| self.candidates.items().any(|c| class.contains(&c.class));
        let forest = world.forest();
        let under_nominal = request.preempting.iter().all(|&p| forest.usage(own, p) < forest.nominal(own, p));
        let attempts: &[bool] =
            if !any_of(&[Class::Hierarchy, Class::Priority]) || (borrowing.is_none() && !under_nominal) {
                &[true]
            } else if borrowing.is_none() && !any_of(&[Class::Hierarchy]) {
                &[false, true]
            } else {
                &[true, false]
            };
        for &allow_borrowing in attempts {
            let start = world.checkpoint();
            self.shortage.reset(world, request);
            let found = self.attempt(world, request, allow_borrowing, targets);
            world.rollback(start);
            if found {
                return;
            }
            targets.clear();
        }
    }

    fn attempt<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        request: &Request<'_>,
        allow_borrowing: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        for i in 0.. {
            let Some(c) = self.candidates.get(i, |a, b| candidate::compare_by_class(world, a, b)) else { break };
            if !is_legal(world.forest(), &c, request.preempting, allow_borrowing) {
                continue;
            }
            world.remove(c.workload);
            targets.push(Target { workload: c.workload, reason: c.reason });
            let may_fit = self.shortage.is_covered_with(world, request, c.workload);
            if may_fit && fits(world, request, allow_borrowing) {
                give_back(world, targets, &mut self.kept, |world| fits(world, request, allow_borrowing));
                return true;
            }
        }
        false
    }

    fn collect_own<W: World + ?Sized>(&mut self, world: &W, request: &Request<'_>, policy: WithinClusterQueuePolicy) {
        collect_own(world, request, policy, |c| self.candidates.push(c));
    }

    /// Walks up from the ClusterQueue, and from every Cohort down to the ClusterQueues not seen before. Once the request
    /// would fit the quota of what was passed, all further victims use quota that belongs on this side of the tree.
    fn collect_cohort<W: World + ?Sized>(
        &mut self,
        world: &W,
        request: &Request<'_>,
        policy: ReclaimPolicy,
        borrowing: Option<BorrowWithinCohort>,
    ) {
        let forest = world.forest();
        let own = request.preemptor.cluster_queue;
        self.remaining.clear();
        self.remaining.extend_from_slice(request.needed);
        let mut advantage = take_local(forest, own, &mut self.remaining);
        let mut below = own;
        for root in forest.ancestors(own) {
            let class = if advantage { Class::Hierarchy } else { Class::Priority };
            self.cohorts.clear();
            self.cohorts.push(root);
            while let Some(cohort) = self.cohorts.pop() {
                for child in forest.children(cohort) {
                    if child == below || child == own || forest.is_within_nominal(child, request.preempting) {
                        continue;
                    }
                    if forest.kind(child) == NodeKind::Cohort {
                        self.cohorts.push(child);
                        continue;
                    }
                    let allowed = |h: &crate::Holder<'_>| policy.allows(&request.preemptor, h.priority, h.queued_at);
                    candidate::collect(world, child, request.preempting, allowed, |workload, holder| {
                        let mut c = Candidate::new(workload, holder, class, root);
                        if class == Class::Priority {
                            let may_borrow = borrowing.is_some_and(|b| {
                                holder.priority < request.preemptor.priority
                                    && b.max_priority_threshold.is_none_or(|t| holder.priority <= i64::from(t))
                            });
                            if may_borrow {
                                c.reason = Reason::InCohortReclaimWhileBorrowing;
                            } else {
                                c.without_borrowing = true;
                            }
                        }
                        self.candidates.push(c);
                    });
                }
            }
            advantage |= take_local(forest, root, &mut self.remaining);
            below = root;
        }
    }
}

/// Offers the workloads of the own ClusterQueue that the policy lets the preemptor have.
pub(crate) fn collect_own<W: World + ?Sized>(
    world: &W,
    request: &Request<'_>,
    policy: WithinClusterQueuePolicy,
    mut push: impl FnMut(Candidate),
) {
    if policy == WithinClusterQueuePolicy::Never {
        return;
    }
    let own = request.preemptor.cluster_queue;
    let allowed = |h: &crate::Holder<'_>| policy.allows(&request.preemptor, h.priority, h.queued_at);
    candidate::collect(world, own, request.preempting, allowed, |workload, holder| {
        push(Candidate::new(workload, holder, Class::Own, own));
    });
}

/// Whether the request fits the node's quota on top of its usage; takes off it what the node would keep to itself.
fn take_local(forest: &Forest, node: NodeId, remaining: &mut [(FlavorResourceId, Amount)]) -> bool {
    let mut all = true;
    for (pair, amount) in remaining {
        all &= forest.subtree_quota(node, *pair) >= forest.usage(node, *pair).plus(*amount);
        *amount = amount.minus(forest.local_available(node, *pair)).or_zero();
    }
    all
}

/// Whether a candidate may still be taken: a ClusterQueue that is down to its own quota is left alone, and so is one below a
/// Cohort that is.
fn is_legal(forest: &Forest, c: &Candidate, preempting: &[FlavorResourceId], allow_borrowing: bool) -> bool {
    if c.class == Class::Own {
        return true;
    }
    if (allow_borrowing && c.without_borrowing) || forest.is_within_nominal(c.cluster_queue, preempting) {
        return false;
    }
    forest.ancestors(c.cluster_queue).take_while(|&n| n != c.common).all(|n| !forest.is_within_nominal(n, preempting))
}

/// Gives victims back, the latest first, wherever the request fits without them. The last one is needed: it completed the
/// set. `may_return` is asked with the victim put back.
fn give_back<W: World + ?Sized>(
    world: &mut W,
    targets: &mut Vec<Target>,
    kept: &mut Vec<bool>,
    mut may_return: impl FnMut(&mut W) -> bool,
) {
    kept.clear();
    kept.resize(targets.len(), true);
    for i in (0..targets.len().saturating_sub(1)).rev() {
        world.restore(targets[i].workload);
        if may_return(world) {
            kept[i] = false;
        } else {
            world.remove(targets[i].workload);
        }
    }
    retain(targets, kept);
}

/// Drops the targets that are not kept.
pub(crate) fn retain(targets: &mut Vec<Target>, kept: &[bool]) {
    let mut kept = kept.iter();
    targets.retain(|_| kept.next().copied().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use slicegate_quota::{Amount, Mark, Names};
    use slicegate_workload::{PreemptionPolicy, Timestamp};

    use super::*;
    use crate::testing::{ANY, Field, WHILE_BORROWING, all};
    use crate::{Config, Holder, MemoryWorld, Planner, WorkloadRef};

    fn victims(field: &Field, priority: i64, amount: i64) -> Vec<(String, Reason)> {
        field.victims(&Config::default(), "q", priority, amount)
    }

    #[test]
    fn the_own_queue_gives_up_its_least_important_workloads_without_a_cohort_too() {
        let f = Field::new()
            .queue("q", "", 6, ANY)
            .running("low", "q", -1, 2)
            .running("mid", "q", 0, 2)
            .running("high", "q", 1, 2);
        assert_eq!(victims(&f, 1, 2), all(Reason::InClusterQueue, &["low"]));
        assert_eq!(victims(&f, 1, 4), all(Reason::InClusterQueue, &["low", "mid"]));
        assert_eq!(victims(&f, 1, 5), [], "the third is not lower");
        assert_eq!(victims(&f, -1, 1), []);
    }

    #[test]
    fn what_turns_out_to_be_spare_is_given_back() {
        let f = Field::new().queue("q", "", 10, ANY).running("small", "q", -2, 2).running("large", "q", -1, 8);
        assert_eq!(victims(&f, 0, 8), all(Reason::InClusterQueue, &["large"]));
        assert_eq!(victims(&f, 0, 9), all(Reason::InClusterQueue, &["large", "small"]));
    }

    #[test]
    fn only_users_of_the_scarce_pair_are_taken_even_of_none_of_it() {
        let mut other = Names::new();
        let (_, foreign) = (other.intern("default", "cpu"), other.intern("other", "cpu"));
        let f = Field::new()
            .queue("q", "", 4, ANY)
            .running("foreign", "q", -9, 0)
            .with(|w| w.usage = vec![(foreign, Amount::new(1))])
            .running("nothing", "q", -9, 0)
            .with(|w| w.reserved_at = Timestamp::from_seconds(-1))
            .running("some", "q", -1, 4);
        // It is looked at, but of no use, and so given back.
        assert_eq!(victims(&f, 0, 4), all(Reason::InClusterQueue, &["some"]));
        let f = Field::new().queue("q", "", 0, ANY).running("nothing", "q", -1, 0);
        assert_eq!(victims(&f, 0, 0), all(Reason::InClusterQueue, &["nothing"]));
    }

    #[test]
    fn quota_is_reclaimed_from_those_who_borrow_it_and_from_nobody_else() {
        let f = Field::new()
            .queue("q", "all", 4, ANY)
            .queue("borrower", "all", 4, ANY)
            .queue("modest", "all", 4, ANY)
            .running("b1", "borrower", 9, 4)
            .running("b2", "borrower", 9, 4)
            .running("m", "modest", 0, 4);
        assert_eq!(victims(&f, 0, 4), all(Reason::InCohortReclamation, &["b1"]));
        // Once down to its own quota, the borrower is left alone.
        assert_eq!(victims(&f, 0, 5), []);
    }

    #[test]
    fn reclaiming_by_priority_takes_lower_ones_only() {
        let lower = PreemptionPolicy { reclaim_within_cohort: ReclaimPolicy::LowerPriority, ..ANY };
        let never = PreemptionPolicy { reclaim_within_cohort: ReclaimPolicy::Never, ..ANY };
        let field =
            |policy| Field::new().queue("q", "all", 4, policy).queue("b", "all", 4, ANY).running("b1", "b", 5, 8);
        assert_eq!(victims(&field(lower), 5, 4), []);
        assert_eq!(victims(&field(lower), 6, 4), all(Reason::InCohortReclamation, &["b1"]));
        assert_eq!(victims(&field(never), 6, 4), []);
    }

    #[test]
    fn below_a_cohort_within_its_quota_nobody_is_taken() {
        let field = |inner| {
            Field::new()
                .cohort("root", "", 0)
                .cohort("inner", "root", inner)
                .queue("q", "root", 4, ANY)
                .queue("b", "inner", 0, ANY)
                .running("b1", "b", 0, 4)
                .running("b2", "b", 0, 4)
        };
        assert_eq!(victims(&field(4), 0, 4), all(Reason::InCohortReclamation, &["b1"]));
        assert_eq!(victims(&field(8), 0, 8), [], "all of it is the inner cohort's own");
    }

    #[test]
    fn a_cohort_lying_nearer_has_the_better_claim() {
        // `near` and `q` share the quota of `inner`, of which `near` uses too much; `far` borrows from the root.
        let f = Field::new()
            .cohort("root", "", 4)
            .cohort("inner", "root", 0)
            .queue("q", "inner", 4, ANY)
            .queue("near", "inner", 0, ANY)
            .queue("far", "root", 0, ANY)
            .running("n", "near", 5, 4)
            .running("f", "far", 9, 4);
        assert_eq!(victims(&f, 0, 4), all(Reason::InCohortReclamation, &["n"]));
        assert_eq!(victims(&f, 0, 5), [], "it would borrow, and the policy does not allow that");
    }

    #[test]
    fn while_borrowing_only_lower_priorities_up_to_the_threshold_are_taken() {
        let field = |policy| {
            Field::new()
                .queue("q", "all", 1, policy)
                .queue("b", "all", 7, ANY)
                .queue("idle", "all", 2, ANY)
                .running("b1", "b", 3, 8)
        };
        let threshold = |t| PreemptionPolicy {
            borrow_within_cohort: Some(BorrowWithinCohort { lower_priority: true, max_priority_threshold: Some(t) }),
            ..ANY
        };
        assert_eq!(victims(&field(ANY), 4, 5), []);
        assert_eq!(victims(&field(WHILE_BORROWING), 4, 5), all(Reason::InCohortReclaimWhileBorrowing, &["b1"]));
        assert_eq!(victims(&field(WHILE_BORROWING), 3, 5), []);
        assert_eq!(victims(&field(threshold(3)), 4, 5), all(Reason::InCohortReclaimWhileBorrowing, &["b1"]));
        assert_eq!(victims(&field(threshold(2)), 4, 5), []);
        // A request within the own quota is not held to that.
        let reclaim = field(threshold(2)).running("own", "q", -1, 0);
        let more = reclaim.running("b2", "b", 3, 2);
        assert_eq!(victims(&more, 0, 1), all(Reason::InCohortReclamation, &["b1"]));
    }

    #[test]
    fn at_its_quota_a_queue_may_still_borrow_by_taking_its_own() {
        // Without borrowing the own workload alone is not enough; the first attempt would take the other queue's.
        let f = Field::new()
            .queue("q", "all", 4, ANY)
            .queue("b", "all", 4, ANY)
            .running("own", "q", -1, 4)
            .running("b1", "b", 0, 3)
            .running("b2", "b", 0, 1);
        assert_eq!(victims(&f, 0, 4), all(Reason::InClusterQueue, &["own"]));
    }

    #[test]
    fn a_workload_that_is_going_anyway_goes_first() {
        let f = Field::new()
            .queue("q", "all", 4, ANY)
            .queue("b", "all", 4, ANY)
            .running("b1", "b", -9, 4)
            .running("own", "q", -1, 4)
            .with(|w| w.evicted = true);
        assert_eq!(victims(&f, 0, 4), all(Reason::InClusterQueue, &["own"]));
    }

    /// A world in which pods find places only when a certain workload is gone.
    struct Crowded {
        inner: MemoryWorld,
        in_the_way: WorkloadRef,
        gone: bool,
    }

    impl World for Crowded {
        type Checkpoint = (Mark, bool);

        fn forest(&self) -> &Forest {
            self.inner.forest()
        }

        fn names(&self) -> &Names {
            self.inner.names()
        }

        fn forest_mut(&mut self) -> &mut Forest {
            self.inner.forest_mut()
        }

        fn workloads(&self, cluster_queue: NodeId) -> &[WorkloadRef] {
            self.inner.workloads(cluster_queue)
        }

        fn workload(&self, workload: WorkloadRef) -> Holder<'_> {
            self.inner.workload(workload)
        }

        fn policy(&self, cluster_queue: NodeId) -> PreemptionPolicy {
            self.inner.policy(cluster_queue)
        }

        fn remove(&mut self, workload: WorkloadRef) {
            self.gone |= workload == self.in_the_way;
            self.inner.remove(workload);
        }

        fn restore(&mut self, workload: WorkloadRef) {
            self.gone &= workload != self.in_the_way;
            self.inner.restore(workload);
        }

        fn places(&mut self) -> bool {
            self.gone
        }

        fn checkpoint(&mut self) -> Self::Checkpoint {
            (self.inner.checkpoint(), self.gone)
        }

        fn rollback(&mut self, (mark, gone): Self::Checkpoint) {
            self.inner.rollback(mark);
            self.gone = gone;
        }
    }

    #[test]
    fn places_count_if_the_request_needs_them() {
        let f = Field::new().queue("q", "", 9, ANY).running("a", "q", -2, 1).running("b", "q", -1, 1);
        for (placed, want) in [(false, "a"), (true, "b")] {
            let (inner, refs) = f.world();
            let mut world = Crowded { inner, in_the_way: refs[1], gone: false };
            let needed = [(f.pair, Amount::new(1))];
            let preempting = [f.pair];
            let preemptor = f.preemptor("q", 0);
            let request = Request { preemptor, needed: &needed, preempting: &preempting, placed };
            let mut planner = Planner::new();
            let targets = planner.targets(&mut world, &Config::default(), &request).to_vec();
            let uids: Vec<&str> = targets.iter().map(|t| world.workload(t.workload).uid).collect();
            assert_eq!(uids, [want]);
        }
    }
}
