//! The search without fair sharing: by priority and by who owns the quota.

use slicegate_quota::{Amount, FlavorResourceId, Forest, NodeId, NodeKind};
use slicegate_workload::{BorrowWithinCohort, ReclaimPolicy, WithinClusterQueuePolicy};

use crate::candidate::{self, Candidate, Class, Policy as _};
use crate::fits::fits;
use crate::lazy::Lazy;
use crate::{Reason, Request, Target, World};

/// Buffers of the search.
#[derive(Debug, Default)]
pub(crate) struct Classical {
    candidates: Lazy<Candidate>,
    remaining: Vec<(FlavorResourceId, Amount)>,
    cohorts: Vec<NodeId>,
    kept: Vec<bool>,
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
            if fits(world, request, allow_borrowing) {
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
pub(crate) fn give_back<W: World + ?Sized>(
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
    let mut at = 0;
    targets.retain(|_| {
        at += 1;
        kept[at - 1]
    });
}
