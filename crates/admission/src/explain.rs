//! Why a workload waits, as data.

use slicegate_quota::Amount;
use slicegate_workload::Key;

/// Who can change that a workload waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Verdict {
    /// Nobody needs to: it was admitted.
    #[default]
    Admitted,
    /// Time: it starts once others make room.
    Wait,
    /// Its owner: another request, toleration, selector or queue would do.
    Change,
    /// An admin: quota, flavors, checks or a stopped queue stand in its way.
    AskAdmin,
    /// Nothing in this cluster's configuration can hold it.
    Never,
}

/// The reason in one word, with its numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// It was admitted.
    #[default]
    Admitted,
    /// It waits in its queue and was not looked at yet.
    Queued,
    /// It makes room by preemption; so many victims are leaving.
    Preempting(usize),
    /// It fits once those that others preempt are gone.
    Deferred,
    /// Quota is short now.
    WaitingForQuota,
    /// Quota is short for ever.
    ExceedsMaxQuota,
    /// No flavor takes its pods, or no flavor has the resource.
    NoMatchingFlavor,
    /// Quota is free, but its pods find no place together.
    TopologyPlacementFailed,
    /// Another workload of this cycle took the room.
    OvertakenInCycle,
    /// Preemption is gated.
    Gated,
    /// Pods of others must become ready first.
    WaitingForPodsReady,
    /// A queue or ClusterQueue is stopped, missing or misconfigured.
    QueueInactive {
        /// Which one.
        name: Box<str>,
        /// What is wrong with it.
        why: Box<str>,
    },
    /// The namespace, its limits or the workload's own limits forbid it.
    Invalid {
        /// What is wrong.
        why: Box<str>,
    },
    /// Its back-off is not over.
    Backoff,
    /// It is not active.
    Deactivated,
}

/// Something that stands in the way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Blocker {
    /// A workload that holds quota in the way.
    Workload(Key),
    /// A workload ahead in the queue.
    Ahead(Key),
    /// A limit of a ClusterQueue or Cohort.
    Limit {
        /// The ClusterQueue or Cohort.
        node: Box<str>,
        /// The flavor.
        flavor: Box<str>,
        /// The resource.
        resource: Box<str>,
    },
    /// A ClusterQueue or LocalQueue.
    Queue(Box<str>),
}

/// Which limit a request meets first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceLimit {
    /// It fits.
    None,
    /// What the tree of this root holds together is used up.
    Quota {
        /// The Cohort or ClusterQueue.
        node: Box<str>,
    },
    /// This node may not borrow more.
    Borrowing {
        /// The ClusterQueue or Cohort.
        node: Box<str>,
    },
    /// More than everything that could ever be free.
    Maximum {
        /// The node whose limit it is.
        node: Box<str>,
    },
    /// The ClusterQueue has no quota for the resource.
    Undeclared,
}

/// One resource in one flavor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceExplanation {
    /// The resource.
    pub resource: Box<str>,
    /// What is asked for, other pod sets of the workload included.
    pub needed: Amount,
    /// What is free, borrowing included.
    pub available: Amount,
    /// What could be free if nothing ran.
    pub maximum: Amount,
    /// The ClusterQueue's own quota.
    pub nominal: Amount,
    /// What the ClusterQueue uses.
    pub used: Amount,
    /// What it uses beyond its own quota.
    pub borrowed: Amount,
    /// What stands in the way.
    pub limit: ResourceLimit,
}

/// One flavor that was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlavorExplanation {
    /// The flavor.
    pub flavor: Box<str>,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why its nodes do not take the pods, if so.
    pub mismatch: Option<Box<str>>,
    /// Its quota.
    pub resources: Vec<ResourceExplanation>,
}

/// One pod set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodSetExplanation {
    /// The pod set.
    pub name: Box<str>,
    /// The flavors that were tried, in order.
    pub flavors: Vec<FlavorExplanation>,
}

/// Why a workload waits, or that it does not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// Who can change it.
    pub verdict: Verdict,
    /// The reason.
    pub cause: Cause,
    /// The numbers.
    pub pod_sets: Vec<PodSetExplanation>,
    /// What stands in the way.
    pub blockers: Vec<Blocker>,
}
