//! Who may be a victim, and who goes first.

use std::cmp::Ordering;

use slicegate_quota::{FlavorResourceId, NodeId};
use slicegate_workload::{ReclaimPolicy, Timestamp, WithinClusterQueuePolicy};

use crate::lazy::Lazy;
use crate::{Holder, LocalQueueUsage, Preemptor, Reason, WorkloadRef, World};

/// A workload that may become a victim, with what its rank depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) workload: WorkloadRef,
    pub(crate) cluster_queue: NodeId,
    pub(crate) class: Class,
    pub(crate) reason: Reason,
    /// It may be taken only by a request that does not borrow.
    pub(crate) without_borrowing: bool,
    /// The lowest Cohort above both it and the preemptor; its own ClusterQueue if that is the preemptor's.
    pub(crate) common: NodeId,
    evicted: bool,
    own: bool,
    priority: i64,
    reserved_at: Timestamp,
    local_queue: Option<LocalQueueUsage>,
}

/// Whence a candidate comes. Candidates that are not yet evicted are offered class by class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// It uses quota to which the preemptor has the better claim by its place in the tree.
    Hierarchy,
    /// It is of another ClusterQueue, and yields by priority.
    Priority,
    /// It is of the preemptor's own ClusterQueue.
    Own,
}

impl Candidate {
    pub(crate) fn new(workload: WorkloadRef, holder: &Holder<'_>, class: Class, common: NodeId) -> Self {
        Self {
            workload,
            cluster_queue: holder.cluster_queue,
            class,
            reason: if class == Class::Own { Reason::InClusterQueue } else { Reason::InCohortReclamation },
            without_borrowing: false,
            common,
            evicted: holder.evicted,
            own: class == Class::Own,
            priority: holder.priority,
            reserved_at: holder.reserved_at,
            local_queue: holder.local_queue,
        }
    }
}

/// The order in which candidates are preempted: those already being evicted, then other ClusterQueues before the own, then
/// (with admission fair sharing, within one ClusterQueue) LocalQueues that used more, then lower priority, then those that
/// got their quota later, then the smaller unique id.
pub(crate) fn compare<W: World + ?Sized>(world: &W, a: &Candidate, b: &Candidate) -> Ordering {
    b.evicted
        .cmp(&a.evicted)
        .then_with(|| a.own.cmp(&b.own))
        .then_with(|| compare_local_queues(a, b))
        .then_with(|| a.priority.cmp(&b.priority))
        .then_with(|| b.reserved_at.cmp(&a.reserved_at))
        .then_with(|| world.workload(a.workload).uid.cmp(world.workload(b.workload).uid))
        .then_with(|| a.workload.cmp(&b.workload))
}

/// Workloads in the order in which a workload of `cluster_queue` would preempt them, best victim first, if it may preempt
/// them all:
///
/// 1. those that are being evicted already: they cost nothing more,
/// 2. those of other ClusterQueues before those of the own,
/// 3. within one ClusterQueue, with admission fair sharing, those whose LocalQueue used more,
/// 4. lower priority,
/// 5. those that got their quota later,
/// 6. the smaller unique id.
pub fn order_candidates<W: World + ?Sized>(
    world: &W,
    cluster_queue: NodeId,
    workloads: &[WorkloadRef],
) -> Vec<WorkloadRef> {
    let mut lazy = Lazy::default();
    for &workload in workloads {
        let holder = world.workload(workload);
        let class = if holder.cluster_queue == cluster_queue { Class::Own } else { Class::Priority };
        lazy.push(Candidate::new(workload, &holder, class, cluster_queue));
    }
    (0..workloads.len()).filter_map(|i| lazy.get(i, |a, b| compare(world, a, b))).map(|c| c.workload).collect()
}

/// [`compare`], with the classes of the search without fair sharing: evicted candidates class by class, then the others.
pub(crate) fn compare_by_class<W: World + ?Sized>(world: &W, a: &Candidate, b: &Candidate) -> Ordering {
    b.evicted.cmp(&a.evicted).then_with(|| a.class.cmp(&b.class)).then_with(|| compare(world, a, b))
}

fn compare_local_queues(a: &Candidate, b: &Candidate) -> Ordering {
    if a.cluster_queue != b.cluster_queue {
        return Ordering::Equal;
    }
    match (a.local_queue, b.local_queue) {
        (Some(x), Some(y)) if x.queue != y.queue => match (x.usage, y.usage) {
            (Some(x), Some(y)) => y.total_cmp(&x),
            _ => Ordering::Equal,
        },
        _ => Ordering::Equal,
    }
}

/// Whether the workload was assigned any of the pairs; how much of it does not matter.
pub(crate) fn uses(holder: &Holder<'_>, pairs: &[FlavorResourceId]) -> bool {
    holder.usage.iter().any(|(pair, _)| pairs.contains(pair))
}

/// A relation between the preemptor and a workload that it may preempt.
pub trait Policy {
    /// Whether the preemptor may preempt a workload of this priority that was queued at this time.
    fn allows(self, preemptor: &Preemptor, priority: i64, queued_at: Timestamp) -> bool;
}

impl Policy for ReclaimPolicy {
    fn allows(self, preemptor: &Preemptor, priority: i64, _queued_at: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::LowerPriority => preemptor.priority > priority,
            Self::Any => true,
        }
    }
}

impl Policy for WithinClusterQueuePolicy {
    /// Of two workloads of the same priority only the one that was queued strictly later may be preempted.
    fn allows(self, preemptor: &Preemptor, priority: i64, queued_at: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::LowerPriority => preemptor.priority > priority,
            Self::LowerOrNewerEqualPriority => {
                preemptor.priority > priority || (preemptor.priority == priority && preemptor.queued_at < queued_at)
            }
        }
    }
}

/// Appends the workloads of one ClusterQueue that use any of the pairs and that the policy lets the preemptor have.
pub(crate) fn collect<W: World + ?Sized>(
    world: &W,
    cluster_queue: NodeId,
    pairs: &[FlavorResourceId],
    allowed: impl Fn(&Holder<'_>) -> bool,
    mut push: impl FnMut(WorkloadRef, &Holder<'_>),
) {
    for &workload in world.workloads(cluster_queue) {
        let holder = world.workload(workload);
        if allowed(&holder) && uses(&holder, pairs) {
            push(workload, &holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ANY, Field};

    /// The order of all workloads of a field for a preemptor of queue `q`.
    fn order(field: &Field) -> Vec<String> {
        let (world, refs) = field.world();
        let order = order_candidates(&world, field.node("q"), &refs);
        order.into_iter().map(|w| world.workload(w).uid.to_owned()).collect()
    }

    fn field() -> Field {
        Field::new().queue("q", "all", 10, ANY).queue("other", "all", 10, ANY)
    }

    #[test]
    fn evicted_workloads_come_first() {
        let f = field().running("a", "other", 0, 1).running("b", "q", 9, 1).with(|w| w.evicted = true);
        assert_eq!(order(&f), ["b", "a"]);
    }

    #[test]
    fn other_queues_come_before_the_own() {
        let f = field().running("a", "q", 0, 1).running("b", "other", 9, 1);
        assert_eq!(order(&f), ["b", "a"]);
    }

    #[test]
    fn lower_priority_then_later_quota_then_smaller_uid() {
        let late = |w: &mut crate::MemoryWorkload| w.reserved_at = Timestamp::from_seconds(5);
        let f = field()
            .running("d", "q", 1, 1)
            .running("c", "q", 0, 1)
            .running("b", "q", 0, 1)
            .running("a", "q", 1, 1)
            .with(late);
        assert_eq!(order(&f), ["b", "c", "a", "d"]);
    }

    #[test]
    fn of_one_queue_those_whose_local_queue_used_more() {
        let used = |queue, usage| {
            move |w: &mut crate::MemoryWorkload| {
                w.local_queue = Some(LocalQueueUsage { queue, usage });
            }
        };
        let f =
            field().running("a", "q", 0, 1).with(used(0, Some(0.5))).running("b", "q", 9, 1).with(used(1, Some(2.0)));
        assert_eq!(order(&f), ["b", "a"]);
        // Unknown usage, the same LocalQueue, or another ClusterQueue: priorities decide.
        let f = field().running("a", "q", 0, 1).with(used(0, None)).running("b", "q", 9, 1).with(used(1, Some(2.0)));
        assert_eq!(order(&f), ["a", "b"]);
        let f =
            field().running("a", "q", 0, 1).with(used(0, Some(0.5))).running("b", "q", 9, 1).with(used(0, Some(2.0)));
        assert_eq!(order(&f), ["a", "b"]);
        let f = field()
            .queue("third", "all", 1, ANY)
            .running("a", "other", 0, 1)
            .with(used(0, Some(0.5)))
            .running("b", "third", 9, 1)
            .with(used(1, Some(2.0)));
        assert_eq!(order(&f), ["a", "b"]);
    }

    #[test]
    fn policies_compare_priority_and_time() {
        let f = field();
        let preemptor = Preemptor { queued_at: Timestamp::from_seconds(10), ..f.preemptor("q", 5) };
        let at = Timestamp::from_seconds;
        assert!(!ReclaimPolicy::Never.allows(&preemptor, 0, at(99)));
        assert!(ReclaimPolicy::LowerPriority.allows(&preemptor, 4, at(0)));
        assert!(!ReclaimPolicy::LowerPriority.allows(&preemptor, 5, at(99)));
        assert!(ReclaimPolicy::Any.allows(&preemptor, 9, at(0)));
        assert!(!WithinClusterQueuePolicy::Never.allows(&preemptor, 0, at(99)));
        assert!(WithinClusterQueuePolicy::LowerPriority.allows(&preemptor, 4, at(0)));
        assert!(!WithinClusterQueuePolicy::LowerPriority.allows(&preemptor, 5, at(99)));
        let newer = WithinClusterQueuePolicy::LowerOrNewerEqualPriority;
        assert!(newer.allows(&preemptor, 4, at(0)));
        assert!(newer.allows(&preemptor, 5, at(11)));
        assert!(!newer.allows(&preemptor, 5, at(10)), "equally old");
        assert!(!newer.allows(&preemptor, 6, at(11)));
    }
}
