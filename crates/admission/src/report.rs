//! What the engine tells about queues.

use slicegate_quota::Amount;
use slicegate_workload::{Key, ResourceList, Timestamp};

/// Why a ClusterQueue admits nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum InactiveReason {
    /// It is being deleted.
    Terminating,
    /// Its stop policy.
    Stopped,
    /// Its spec breaks a rule: which one.
    Invalid(Box<str>),
    /// Flavors that do not exist.
    FlavorNotFound(Vec<Box<str>>),
    /// Admission checks that do not exist.
    AdmissionCheckNotFound(Vec<Box<str>>),
    /// Admission checks that are not active.
    AdmissionCheckInactive(Vec<Box<str>>),
    /// More than one MultiKueue check.
    MultipleMultiKueueAdmissionChecks(Vec<Box<str>>),
    /// A MultiKueue check for some flavors only.
    MultiKueueAdmissionCheckAppliedPerFlavor(Vec<Box<str>>),
    /// A MultiKueue check beside one for provisioning: the names of both.
    MultiKueueWithProvisioningRequest(Box<str>, Vec<Box<str>>),
    /// A flavor whose topology does not exist: topology, then flavor.
    TopologyNotFound(Box<str>, Box<str>),
}

/// Whether a queue admits workloads: the condition `Active` as data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Activity {
    /// The value of the condition.
    pub active: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: Box<str>,
}

/// Usage of one resource of one flavor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlavorUsage {
    /// The flavor.
    pub flavor: Box<str>,
    /// The resource.
    pub resource: Box<str>,
    /// What is used, in canonical units.
    pub total: Amount,
    /// What of it is borrowed.
    pub borrowed: Amount,
}

/// A fair share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Share(pub i64);

/// A ClusterQueue now.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterQueueReport {
    /// Whether it admits workloads.
    pub activity: Activity,
    /// Everything that keeps it from admitting workloads.
    pub inactive: Vec<InactiveReason>,
    /// Workloads that wait, parked ones included.
    pub pending: usize,
    /// Those of them that wait for a change.
    pub inadmissible: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Those of them that may run.
    pub admitted: usize,
    /// Quota held, by flavor and resource in the order of the resource groups.
    pub reservation: Vec<FlavorUsage>,
    /// Quota held by workloads that may run.
    pub usage: Vec<FlavorUsage>,
    /// Its share, weighted, in thousandths, rounded up.
    pub weighted_share: Share,
}

/// A LocalQueue now.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalQueueReport {
    /// Whether it takes workloads.
    pub activity: Activity,
    /// Workloads that wait.
    pub pending: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Those of them that may run.
    pub admitted: usize,
    /// Quota held, by flavor and resource of its ClusterQueue.
    pub reservation: Vec<FlavorUsage>,
    /// Quota held by workloads that may run.
    pub usage: Vec<FlavorUsage>,
    /// Past usage that counts for admission fair sharing, divided by the weight; `None` if that is off.
    pub fair_sharing_usage: Option<f64>,
    /// Decayed past usage by resource, and when it was last sampled: what the status keeps over a restart.
    pub consumed: Option<(ResourceList, Timestamp)>,
}

/// A Cohort now.
#[derive(Clone, PartialEq, Debug)]
pub struct CohortReport {
    /// Its share, weighted, in thousandths, rounded up.
    pub weighted_share: Share,
    /// Quota of its subtree and usage, by flavor and resource.
    pub subtree: Vec<(FlavorUsage, Amount)>,
    /// Whether it is in or below a cycle and so cannot be used.
    pub cyclic: bool,
}

/// A workload in line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingWorkload {
    /// The workload.
    pub workload: Key,
    /// Its LocalQueue.
    pub local_queue: Key,
    /// Its effective priority.
    pub priority: i64,
    /// How many of its ClusterQueue are before it.
    pub position_in_cluster_queue: usize,
    /// How many of its LocalQueue are before it.
    pub position_in_local_queue: usize,
    /// Whether it waits for a change and is not looked at until then.
    pub parked: bool,
}
