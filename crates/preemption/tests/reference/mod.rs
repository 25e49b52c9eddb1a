//! The rules of preemption written down once more, as plainly as possible: whole lists are sorted, every question is asked of a
//! forest built from nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use slicegate_preemption::{MemoryWorkload, MemoryWorld, Preemptor, Reason, WorkloadRef, World as _};
use slicegate_quota::{Amount, FlavorResourceId, Forest, Limits, Names, NodeId, NodeKind, NodeQuota, Share, Weight};
use slicegate_workload::{FairSharingStrategy, PreemptionPolicy, ReclaimPolicy, Timestamp, WithinClusterQueuePolicy};

#[derive(Clone, Debug)]
pub(crate) struct Quota {
    pub(crate) nominal: i64,
    pub(crate) borrowing: Option<i64>,
    pub(crate) lending: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cohort {
    pub(crate) parent: Option<usize>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) weight: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) parent: Option<usize>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) weight: u64,
    pub(crate) policy: PreemptionPolicy,
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) queue: usize,
    pub(crate) priority: i64,
    pub(crate) queued: i64,
    pub(crate) reserved: i64,
    pub(crate) evicted: bool,
    pub(crate) usage: Vec<Option<i64>>,
    pub(crate) uid: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) cohorts: Vec<Cohort>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) incoming: Workload,
    pub(crate) preempting: Vec<usize>,
}

pub(crate) type Gone = BTreeSet<usize>;

impl Case {
    fn names() -> (Names, Vec<FlavorResourceId>) {
        let mut names = Names::new();
        let pairs = vec![names.intern("x", "cpu"), names.intern("y", "cpu"), names.intern("x", "tpu")];
        (names, pairs)
    }

    /// The pairs of usages that are there.
    fn amounts(usage: &[Option<i64>]) -> Vec<(FlavorResourceId, Amount)> {
        let (_, pairs) = Self::names();
        usage.iter().zip(pairs).filter_map(|(u, p)| u.map(|u| (p, Amount::new(u)))).collect()
    }

    /// The forest with the usage of all workloads but those that are gone, and with that of the incoming one if wanted.
    pub(crate) fn forest(&self, gone: &Gone, with_incoming: bool) -> Forest {
        let (_, pairs) = Self::names();
        let quota = |parent: Option<usize>, quotas: &[Quota], weight: u64| NodeQuota {
            parent: parent.map(|p| format!("c{p}").into()),
            limits: pairs
                .iter()
                .zip(quotas)
                .map(|(&pair, q)| {
                    let limits = Limits {
                        nominal: Amount::new(q.nominal),
                        borrowing: q.borrowing.map(Amount::new),
                        lending: q.lending.map(Amount::new),
                    };
                    (pair, limits)
                })
                .collect::<BTreeMap<_, _>>(),
            weight: Weight::from_nanos(weight * 500_000_000),
        };
        let mut forest = Forest::new();
        for (i, c) in self.cohorts.iter().enumerate() {
            forest.set_cohort(&format!("c{i}"), quota(c.parent, &c.quotas, c.weight));
        }
        for (i, q) in self.queues.iter().enumerate() {
            forest.set_cluster_queue(&format!("q{i}"), quota(q.parent, &q.quotas, q.weight));
        }
        let add = |w: &Workload, forest: &mut Forest| {
            let node = node(forest, w.queue);
            for (pair, amount) in Self::amounts(&w.usage) {
                forest.add_usage(node, pair, amount);
            }
        };
        for (i, w) in self.workloads.iter().enumerate() {
            if !gone.contains(&i) {
                add(w, &mut forest);
            }
        }
        if with_incoming {
            add(&self.incoming, &mut forest);
        }
        forest
    }

    pub(crate) fn world(&self) -> (MemoryWorld, Vec<WorkloadRef>) {
        let none: Gone = (0..self.workloads.len()).collect();
        let mut world = MemoryWorld::new(self.forest(&none, false), Self::names().0);
        for (i, q) in self.queues.iter().enumerate() {
            let id = node(world.forest(), i);
            world.set_policy(id, q.policy);
        }
        let refs = self
            .workloads
            .iter()
            .map(|w| {
                let cluster_queue = node(world.forest(), w.queue);
                world.add(MemoryWorkload {
                    cluster_queue,
                    priority: w.priority,
                    queued_at: Timestamp::from_seconds(w.queued),
                    reserved_at: Timestamp::from_seconds(w.reserved),
                    evicted: w.evicted,
                    local_queue: None,
                    usage: Self::amounts(&w.usage),
                    uid: w.uid.as_str().into(),
                })
            })
            .collect();
        (world, refs)
    }

    pub(crate) fn request(&self, _world: &mut MemoryWorld) -> (Vec<(FlavorResourceId, Amount)>, Vec<FlavorResourceId>) {
        (Self::amounts(&self.incoming.usage), self.preempting_pairs())
    }

    fn preempting_pairs(&self) -> Vec<FlavorResourceId> {
        let (_, pairs) = Self::names();
        self.preempting.iter().map(|&p| pairs[p]).collect()
    }

    pub(crate) fn preemptor(&self, world: &MemoryWorld) -> Preemptor {
        Preemptor {
            cluster_queue: node(world.forest(), self.incoming.queue),
            priority: self.incoming.priority,
            queued_at: Timestamp::from_seconds(self.incoming.queued),
            local_queue: None,
        }
    }

    /// Whether the incoming workload fits once these are gone.
    pub(crate) fn fits(&self, gone: &Gone, borrowing: bool) -> bool {
        let forest = self.forest(gone, false);
        let own = node(&forest, self.incoming.queue);
        Self::amounts(&self.incoming.usage).into_iter().all(|(pair, amount)| {
            amount <= forest.available(own, pair) && (borrowing || !forest.is_borrowing_with(own, pair, amount))
        })
    }

    fn order(&self, list: &mut [usize]) {
        list.sort_by_key(|&w| {
            let w = &self.workloads[w];
            (!w.evicted, w.queue == self.incoming.queue, w.priority, Reverse(w.reserved), w.uid.clone())
        });
    }

    fn concerned(&self, w: usize) -> bool {
        self.preempting.iter().any(|&p| self.workloads[w].usage[p].is_some())
    }

    fn own_candidates(&self) -> Vec<usize> {
        let policy = self.queues[self.incoming.queue].policy.within_cluster_queue;
        let allowed = |w: &Workload| match policy {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => w.priority < self.incoming.priority,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => {
                w.priority < self.incoming.priority
                    || (w.priority == self.incoming.priority && self.incoming.queued < w.queued)
            }
        };
        (0..self.workloads.len())
            .filter(|&w| {
                let it = &self.workloads[w];
                it.queue == self.incoming.queue && allowed(it) && self.concerned(w)
            })
            .collect()
    }

    /// Whether a workload of another queue may be had.
    fn may_reclaim(&self, w: usize) -> bool {
        let allowed = match self.queues[self.incoming.queue].policy.reclaim_within_cohort {
            ReclaimPolicy::Never => false,
            ReclaimPolicy::LowerPriority => self.workloads[w].priority < self.incoming.priority,
            ReclaimPolicy::Any => true,
        };
        allowed && self.workloads[w].queue != self.incoming.queue && self.concerned(w)
    }

    fn named(&self, plan: &[(usize, Reason)]) -> BTreeSet<(String, Reason)> {
        plan.iter().map(|&(w, reason)| (self.workloads[w].uid.clone(), reason)).collect()
    }
}

fn node(forest: &Forest, queue: usize) -> NodeId {
    forest.cluster_queue(&format!("q{queue}")).unwrap()
}

/// A node and all above it.
fn way_up(forest: &Forest, node: NodeId) -> Vec<NodeId> {
    std::iter::once(node).chain(forest.ancestors(node)).collect()
}

/// A candidate of the search without fair sharing.
struct Offer {
    workload: usize,
    common: Option<NodeId>,
    reason: Reason,
    only_without_borrowing: bool,
}

/// The plan without fair sharing.
pub(crate) fn classical(case: &Case) -> BTreeSet<(String, Reason)> {
    let start = case.forest(&Gone::new(), false);
    let own = node(&start, case.incoming.queue);
    let pairs = case.preempting_pairs();
    let policy = case.queues[case.incoming.queue].policy;
    let borrow = policy.borrow_within_cohort.filter(|b| b.lower_priority);

    // Where the request would fit on the way up, given what the nodes passed keep to themselves.
    let mut needed = Case::amounts(&case.incoming.usage);
    let mut fits_up_to = Vec::new();
    let mut any = false;
    for n in way_up(&start, own) {
        any |= needed.iter().all(|&(p, a)| start.subtree_quota(n, p) >= start.usage(n, p).plus(a));
        for (p, a) in &mut needed {
            *a = a.minus(start.local_available(n, *p)).or_zero();
        }
        fits_up_to.push(any);
    }

    let mut lists: [Vec<Offer>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    for w in 0..case.workloads.len() {
        if !case.may_reclaim(w) {
            continue;
        }
        let theirs = node(&start, case.workloads[w].queue);
        let ours = way_up(&start, own);
        let Some(common) = way_up(&start, theirs).into_iter().find(|n| ours.contains(n)) else { continue };
        let between = way_up(&start, theirs).into_iter().take_while(|n| *n != common);
        if between.into_iter().any(|n| start.is_within_nominal(n, &pairs)) {
            continue;
        }
        let position = ours.iter().position(|n| *n == common).unwrap();
        if fits_up_to[position - 1] {
            lists[0].push(Offer {
                workload: w,
                common: Some(common),
                reason: Reason::InCohortReclamation,
                only_without_borrowing: false,
            });
            continue;
        }
        let priority = case.workloads[w].priority;
        let while_borrowing = borrow.is_some_and(|b| {
            priority < case.incoming.priority && b.max_priority_threshold.is_none_or(|t| priority <= i64::from(t))
        });
        let reason = if while_borrowing { Reason::InCohortReclaimWhileBorrowing } else { Reason::InCohortReclamation };
        lists[1].push(Offer { workload: w, common: Some(common), reason, only_without_borrowing: !while_borrowing });
    }
    for w in case.own_candidates() {
        lists[2].push(Offer {
            workload: w,
            common: None,
            reason: Reason::InClusterQueue,
            only_without_borrowing: false,
        });
    }
    let from_cohort = !lists[0].is_empty() || !lists[1].is_empty();
    let from_hierarchy = !lists[0].is_empty();
    let mut evicted = Vec::new();
    let mut live = Vec::new();
    for list in lists {
        let mut order: Vec<usize> = list.iter().map(|o| o.workload).collect();
        case.order(&mut order);
        let mut list: BTreeMap<usize, Offer> = list.into_iter().map(|o| (o.workload, o)).collect();
        for w in order {
            let offer = list.remove(&w).unwrap();
            if case.workloads[w].evicted { evicted.push(offer) } else { live.push(offer) }
        }
    }
    let sequence: Vec<Offer> = evicted.into_iter().chain(live).collect();

    let under = pairs.iter().all(|&p| start.usage(own, p) < start.nominal(own, p));
    let attempts: Vec<bool> = if !from_cohort || (borrow.is_none() && !under) {
        vec![true]
    } else if borrow.is_none() && !from_hierarchy {
        vec![false, true]
    } else {
        vec![true, false]
    };
    for borrowing in attempts {
        let mut plan: Vec<(usize, Reason)> = Vec::new();
        for offer in &sequence {
            let gone: Gone = plan.iter().map(|p| p.0).collect();
            let forest = case.forest(&gone, false);
            if let Some(common) = offer.common {
                let theirs = node(&forest, case.workloads[offer.workload].queue);
                let way = way_up(&forest, theirs);
                let down = way.iter().take_while(|n| **n != common).any(|&n| forest.is_within_nominal(n, &pairs));
                if down || (borrowing && offer.only_without_borrowing) {
                    continue;
                }
            }
            plan.push((offer.workload, offer.reason));
            if case.fits(&plan.iter().map(|p| p.0).collect(), borrowing) {
                give_back(&mut plan, |gone| case.fits(gone, borrowing));
                return case.named(&plan);
            }
        }
    }
    BTreeSet::new()
}

fn give_back(plan: &mut Vec<(usize, Reason)>, fits: impl Fn(&Gone) -> bool) {
    for i in (0..plan.len() - 1).rev() {
        let rest: Gone = plan.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, p)| p.0).collect();
        if fits(&rest) {
            plan.remove(i);
        }
    }
}

/// The nodes below the lowest common cohort.
fn sides(forest: &Forest, a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    let (ours, theirs) = (way_up(forest, a), way_up(forest, b));
    let common = *ours.iter().find(|n| theirs.contains(n)).unwrap();
    let below = |way: &[NodeId]| *way.iter().take_while(|n| **n != common).last().unwrap();
    (below(&ours), below(&theirs))
}

struct Fair<'a> {
    case: &'a Case,
    names: Names,
    plan: Vec<(usize, Reason)>,
    /// What is left to offer, by queue.
    left: BTreeMap<usize, Vec<usize>>,
    retry: BTreeMap<usize, Vec<usize>>,
    /// Victims that were taken by share.
    claims: Vec<usize>,
}

impl Fair<'_> {
    fn forest(&self, also: Option<usize>) -> Forest {
        let gone: Gone = self.plan.iter().map(|p| p.0).chain(also).collect();
        self.case.forest(&gone, true)
    }

    fn done(&self) -> bool {
        self.case.fits(&self.plan.iter().map(|p| p.0).collect(), true)
    }

    fn share(&self, forest: &Forest, node: NodeId) -> Share {
        forest.share(node, &[], &self.names)
    }

    /// The queue to take from next.
    fn next(&self, pruned: &mut BTreeSet<NodeId>) -> Option<usize> {
        let forest = self.forest(None);
        let own_queue = self.case.incoming.queue;
        let own = node(&forest, own_queue);
        let queue_of = |n: NodeId| (0..self.case.queues.len()).find(|&q| node(&forest, q) == n).unwrap();
        let has = |q: usize| self.left.get(&q).is_some_and(|l| !l.is_empty());
        if forest.parent(own).is_none() {
            return has(own_queue).then_some(own_queue);
        }
        let root = forest.root(own);
        let ours: Vec<NodeId> = forest.ancestors(own).collect();
        'again: while !pruned.contains(&root) {
            let mut cohort = root;
            loop {
                let mut queue: Option<(usize, Share)> = None;
                let mut inner: Option<(NodeId, Share)> = None;
                for child in forest.children(cohort) {
                    if pruned.contains(&child) {
                        continue;
                    }
                    let share = self.share(&forest, child);
                    if forest.kind(child) == NodeKind::Cohort {
                        if !share.is_borrowing() && !ours.contains(&child) {
                            pruned.insert(child);
                        } else if inner.is_none_or(|(_, best)| share >= best) {
                            inner = Some((child, share));
                        }
                        continue;
                    }
                    let q = queue_of(child);
                    if !has(q) || (!share.is_borrowing() && child != own) {
                        pruned.insert(child);
                        continue;
                    }
                    let better = queue.is_none_or(|(other, best)| {
                        let mut heads = [self.left[&q][0], self.left[&other][0]];
                        self.case.order(&mut heads);
                        share > best || (share == best && heads[0] == self.left[&q][0])
                    });
                    if better {
                        queue = Some((q, share));
                    }
                }
                match (queue, inner) {
                    (None, None) => {
                        pruned.insert(cohort);
                        continue 'again;
                    }
                    (Some((q, share)), other) if other.is_none_or(|(_, s)| s < share) => return Some(q),
                    (_, Some((next, _))) => cohort = next,
                    (Some((q, _)), None) => return Some(q),
                }
            }
        }
        None
    }

    fn first(&mut self, strategy: FairSharingStrategy, entitled: bool) -> bool {
        let mut pruned = BTreeSet::new();
        while let Some(queue) = self.next(&mut pruned) {
            let mine = queue == self.case.incoming.queue;
            if mine || entitled {
                let w = self.left.get_mut(&queue).unwrap().remove(0);
                self.plan.push((w, if mine { Reason::InClusterQueue } else { Reason::InCohortReclamation }));
                if self.done() {
                    return true;
                }
                continue;
            }
            let forest = self.forest(None);
            let (ours, theirs) = sides(&forest, node(&forest, self.case.incoming.queue), node(&forest, queue));
            let (new, old) = (self.share(&forest, ours), self.share(&forest, theirs));
            if new.is_infinite() && !old.is_infinite() {
                let rest = std::mem::take(self.left.get_mut(&queue).unwrap());
                self.retry.entry(queue).or_default().extend(rest);
                continue;
            }
            while !self.left[&queue].is_empty() {
                let w = self.left.get_mut(&queue).unwrap().remove(0);
                let without = self.forest(Some(w));
                let after = self.share(&without, theirs);
                let taken = match strategy {
                    FairSharingStrategy::LessThanOrEqualToFinalShare => new <= after,
                    FairSharingStrategy::LessThanInitialShare => new < old,
                };
                if taken {
                    self.plan.push((w, Reason::InCohortFairSharing));
                    self.claims.push(w);
                    if self.done() {
                        return true;
                    }
                    break;
                }
                self.retry.entry(queue).or_default().push(w);
            }
        }
        false
    }

    fn second(&mut self) -> bool {
        self.left = std::mem::take(&mut self.retry);
        let mut pruned = BTreeSet::new();
        while let Some(queue) = self.next(&mut pruned) {
            let w = self.left.remove(&queue).unwrap()[0];
            let forest = self.forest(None);
            let (ours, theirs) = sides(&forest, node(&forest, self.case.incoming.queue), node(&forest, queue));
            if self.share(&forest, ours) < self.share(&forest, theirs) {
                self.plan.push((w, Reason::InCohortFairSharing));
                self.claims.push(w);
                if self.done() {
                    return true;
                }
            }
        }
        false
    }

    /// Whether the preemptor, with these victims altogether, is served before one of them that comes back, as that one would
    /// stand if all others of the plan stayed away.
    fn is_first(&self, gone: &Gone, all: &Gone, victim: usize) -> bool {
        let back: Gone = all.iter().copied().filter(|&v| v != victim).collect();
        let (without, with) = (self.case.forest(gone, true), self.case.forest(&back, true));
        let v = &self.case.workloads[victim];
        let p = &self.case.incoming;
        let (ours, theirs) = sides(&without, node(&without, p.queue), node(&without, v.queue));
        let borrows = |forest: &Forest, n, w: &Workload| forest.is_borrowing_on(n, &Case::amounts(&w.usage));
        let us = (borrows(&without, ours, p), self.share(&without, ours), Reverse(p.priority), p.queued);
        let them = (borrows(&with, theirs, v), self.share(&with, theirs), Reverse(v.priority), v.queued);
        us < them
    }
}

/// The plan with fair sharing.
pub(crate) fn fair(
    case: &Case,
    strategies: &[FairSharingStrategy],
    within_nominal: bool,
    guarded: bool,
) -> BTreeSet<(String, Reason)> {
    let start = case.forest(&Gone::new(), false);
    let own = node(&start, case.incoming.queue);
    let pairs = case.preempting_pairs();
    let mut left: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for w in 0..case.workloads.len() {
        let theirs = node(&start, case.workloads[w].queue);
        let borrows = pairs.iter().any(|&p| start.usage(theirs, p) > start.nominal(theirs, p));
        let together = start.parent(own).is_some() && start.root(own) == start.root(theirs);
        if case.may_reclaim(w) && borrows && together {
            left.entry(case.workloads[w].queue).or_default().push(w);
        }
    }
    left.insert(case.incoming.queue, case.own_candidates());
    for list in left.values_mut() {
        case.order(list);
    }
    let with = case.forest(&Gone::new(), true);
    let entitled = within_nominal && pairs.iter().all(|&p| with.usage(own, p) <= with.nominal(own, p));
    let first = *strategies.first().unwrap_or(&FairSharingStrategy::LessThanOrEqualToFinalShare);
    let second = strategies.len() != 1;
    let mut search =
        Fair { case, names: Case::names().0, plan: Vec::new(), left, retry: BTreeMap::new(), claims: Vec::new() };
    if !(search.first(first, entitled) || (second && search.second())) {
        return BTreeSet::new();
    }
    let all: Gone = search.plan.iter().map(|p| p.0).collect();
    let behind: Vec<usize> =
        search.claims.iter().copied().filter(|&v| guarded && search.is_first(&all, &all, v)).collect();
    let mut plan = search.plan.clone();
    give_back(&mut plan, |gone| {
        case.fits(gone, true) && behind.iter().all(|&v| !gone.contains(&v) || search.is_first(gone, &all, v))
    });
    case.named(&plan)
}
