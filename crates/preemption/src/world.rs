//! What a plan is made against.

use slicegate_quota::{Amount, FlavorResourceId, Forest, Names, NodeId};
use slicegate_workload::{PreemptionPolicy, Timestamp};

/// A workload that holds quota, as the [`World`] numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkloadRef(u32);

impl WorkloadRef {
    /// The reference with this index.
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The position in arrays indexed by workload.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The LocalQueue of a workload and its usage, where admission fair sharing is on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LocalQueueUsage {
    /// The LocalQueue, by any numbering.
    pub queue: u32,
    /// Its usage divided by its weight; `None` if it is not known.
    pub usage: Option<f64>,
}

/// A workload that holds quota, as far as choosing victims is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// Where its usage is counted.
    pub cluster_queue: NodeId,
    /// Its effective priority: priority class and boost together.
    pub priority: i64,
    /// The time by which it is ordered in its queue.
    pub queued_at: Timestamp,
    /// When it was given its quota; the present time if it does not say.
    pub reserved_at: Timestamp,
    /// Whether it is being evicted already.
    pub evicted: bool,
    /// Its LocalQueue; only with admission fair sharing.
    pub local_queue: Option<LocalQueueUsage>,
    /// What it uses. A pair whose amount is zero still makes it a candidate for that pair.
    pub usage: &'a [(FlavorResourceId, Amount)],
    /// Its unique id: the last tie-break. Workloads that share one are taken in the order of their references.
    pub uid: &'a str,
}

/// The state against which preemption is planned: a quota forest and the workloads that hold its quota.
///
/// A plan changes the world while it searches and leaves it as it was. [`MemoryWorld`](crate::MemoryWorld) is a world that
/// stands alone.
pub trait World {
    /// A state to return to.
    type Checkpoint;

    /// The quota forest.
    fn forest(&self) -> &Forest;

    /// The names behind the forest's ids.
    fn names(&self) -> &Names;

    /// The quota forest, for adding the usage of the workload that preempts.
    fn forest_mut(&mut self) -> &mut Forest;

    /// The workloads that hold quota in a ClusterQueue, those already evicted included, in any order. The answer need not
    /// change when one is removed.
    fn workloads(&self, cluster_queue: NodeId) -> &[WorkloadRef];

    /// One workload.
    fn workload(&self, workload: WorkloadRef) -> Holder<'_>;

    /// The preemption policy of a ClusterQueue.
    fn policy(&self, cluster_queue: NodeId) -> PreemptionPolicy;

    /// Takes away what the workload uses: quota and places.
    fn remove(&mut self, workload: WorkloadRef);

    /// Undoes [`World::remove`].
    fn restore(&mut self, workload: WorkloadRef);

    /// Whether the pods that ask for a place find one now. Called only for requests with
    /// [`Request::placed`](crate::Request::placed), and only when quota suffices.
    fn places(&mut self) -> bool {
        true
    }

    /// Remembers the present state.
    fn checkpoint(&mut self) -> Self::Checkpoint;

    /// Returns to a state, exactly.
    fn rollback(&mut self, checkpoint: Self::Checkpoint);
}
