//! The question and its answer.

use slicegate_quota::{Amount, FlavorResourceId, NodeId};
use slicegate_workload::{FairSharingStrategy, Timestamp};

use crate::{LocalQueueUsage, WorkloadRef};

/// A workload that may preempt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Preemptor {
    /// Where it wants to run.
    pub cluster_queue: NodeId,
    /// Its effective priority.
    pub priority: i64,
    /// The time by which it is ordered in its queue.
    pub queued_at: Timestamp,
    /// Its LocalQueue; only with admission fair sharing.
    pub local_queue: Option<LocalQueueUsage>,
}

/// What a workload needs and does not find free.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The workload.
    pub preemptor: Preemptor,
    /// What it needs of every pair it was assigned, ascending by pair.
    pub needed: &'a [(FlavorResourceId, Amount)],
    /// The pairs that can only be had by preemption.
    pub preempting: &'a [FlavorResourceId],
    /// Whether it also needs places: [`World::places`](crate::World::places) is asked then.
    pub placed: bool,
}

/// Why a workload is a victim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// It yields to a workload of its own ClusterQueue.
    InClusterQueue,
    /// It uses quota that the preemptor is entitled to.
    InCohortReclamation,
    /// Its ClusterQueue has more than its fair share.
    InCohortFairSharing,
    /// It yields to a workload that itself borrows.
    InCohortReclaimWhileBorrowing,
}

/// A victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The workload.
    pub workload: WorkloadRef,
    /// Why.
    pub reason: Reason,
}

/// How victims are chosen. The default is without fair sharing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Fair sharing; `None` for priorities and nominal quotas alone.
    pub fair_sharing: Option<FairSharing>,
}

/// How victims are chosen under fair sharing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FairSharing {
    /// The strategies, in order; only the first two count.
    pub strategies: Vec<FairSharingStrategy>,
    /// Whether a ClusterQueue that stays within its nominal quota may reclaim without regard to shares (Kueue's gate
    /// `FairSharingPreemptWithinNominal`).
    pub reclaim_within_nominal: bool,
    /// What keeps a plan from contradicting itself.
    pub guard: Guard,
}

/// Whether giving victims back may undo what made the others victims.
///
/// Fair sharing may take a victim of the preemptor's own ClusterQueue first, which lowers the preemptor's share, then one of
/// another ClusterQueue because of that share, and then give the first one back. The other then has the smaller share, is served
/// first when it comes back, and is preempted again, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guard {
    /// A victim is given back only if the preemptor still goes before every victim that was taken by share, should that one
    /// come back: by not borrowing what it asks for, by its share, its priority, its age.
    #[default]
    On,
    /// As Kueue does: victims are given back wherever the request fits without them. For those who break circles themselves,
    /// or want Kueue's plans exactly.
    Off,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            strategies: vec![
                FairSharingStrategy::LessThanOrEqualToFinalShare,
                FairSharingStrategy::LessThanInitialShare,
            ],
            reclaim_within_nominal: true,
            guard: Guard::On,
        }
    }
}

/// What could be had for one pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Possibility {
    /// No set of victims makes room.
    NoCandidates,
    /// Some victims would be of the own ClusterQueue.
    Preempt,
    /// All victims would be of other ClusterQueues.
    Reclaim,
}

/// The answer to a what-if for one pair and amount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simulation {
    /// Whether and where victims could be found.
    pub possibility: Possibility,
    /// How far up the cohort tree the ClusterQueue would have to borrow then; see
    /// [`Forest::level`](slicegate_quota::Forest::level).
    pub level: u32,
}
