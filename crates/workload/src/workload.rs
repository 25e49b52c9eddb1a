//! A workload: what a job asks for and how far it got.

use std::collections::BTreeMap;

use slicegate_quota::Quantity;

use crate::{Conditions, Key, PodSpec, ResourceList, Timestamp, Toleration, TopologyAssignment, TopologyRequest};

/// Pods of one shape.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSet {
    /// Its name within the workload.
    pub name: Box<str>,
    /// How many pods.
    pub count: i32,
    /// The fewest pods that are of use.
    pub min_count: Option<i32>,
    /// One of the pods.
    pub pod: PodSpec,
    /// Where they are to lie.
    pub topology_request: Option<TopologyRequest>,
    /// If each Job of the pods has a node pool to itself, as with JobSet's exclusive topology: how many pods a Job has. The
    /// Workload object does not say it; its owner does.
    pub pods_per_pool: Option<u32>,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadSpec {
    /// The LocalQueue, in the workload's namespace.
    pub queue_name: Box<str>,
    /// The pods.
    pub pod_sets: Vec<PodSet>,
    /// The value of the priority class.
    pub priority: i32,
    /// The priority class as `group/kind/name`, empty if there is none.
    pub priority_class: Box<str>,
    /// Whether it may run at all.
    pub active: bool,
    /// How long it may run.
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that must open before it may preempt.
    pub preemption_gates: Vec<Box<str>>,
}

impl Default for WorkloadSpec {
    fn default() -> Self {
        Self {
            queue_name: Box::default(),
            pod_sets: Vec::new(),
            priority: 0,
            priority_class: Box::default(),
            active: true,
            maximum_execution_time_seconds: None,
            preemption_gates: Vec::new(),
        }
    }
}

/// What a pod set got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSetAssignment {
    /// The pod set.
    pub name: Box<str>,
    /// The flavor by resource.
    pub flavors: BTreeMap<Box<str>, Box<str>>,
    /// What all its pods use together, by resource.
    pub resource_usage: ResourceList,
    /// How many pods; may be fewer than asked for.
    pub count: Option<i32>,
    /// Where they lie.
    pub topology_assignment: Option<TopologyAssignment>,
    /// A placement that waits for admission checks: `Some(true)` is pending, `Some(false)` is done.
    pub delayed_topology_pending: Option<bool>,
}

/// Quota that a workload holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Admission {
    /// Where it is counted.
    pub cluster_queue: Box<str>,
    /// What each pod set got.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// The state of an admission check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum CheckState {
    /// Not decided.
    #[default]
    Pending,
    /// Passed.
    Ready,
    /// Failed for now.
    Retry,
    /// Failed for good.
    Rejected,
}

impl CheckState {
    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Retry => "Retry",
            Self::Rejected => "Rejected",
        }
    }
}

/// Changes to the pods of a pod set that a check asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSetUpdate {
    /// The pod set.
    pub name: Box<str>,
    /// Labels to add.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Annotations to add.
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// Selectors to add.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// Tolerations to add.
    pub tolerations: Vec<Toleration>,
}

/// One admission check of a workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckStatus {
    /// The check.
    pub name: Box<str>,
    /// How it stands.
    pub state: CheckState,
    /// When `state` last changed.
    pub last_transition: Timestamp,
    /// What its controller says.
    pub message: Box<str>,
    /// How long to wait before another try.
    pub requeue_after_seconds: Option<i32>,
    /// How often it was tried again.
    pub retry_count: Option<i32>,
    /// What it changes.
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// Back-off of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequeueState {
    /// How often it was put back.
    pub count: Option<i32>,
    /// When it may compete again.
    pub requeue_at: Option<Timestamp>,
}

/// Pods that will not run again and need no quota.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReclaimablePods {
    /// The pod set.
    pub name: Box<str>,
    /// How many.
    pub count: i32,
}

/// How often a workload was evicted for a reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EvictionCount {
    /// The reason.
    pub reason: Box<str>,
    /// What lies behind it; often empty.
    pub underlying_cause: Box<str>,
    /// How often.
    pub count: i32,
}

/// What a pod set is charged, shown while the workload waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSetRequests {
    /// The pod set.
    pub name: Box<str>,
    /// Totals by resource.
    pub resources: BTreeMap<Box<str>, Quantity>,
}

/// Whether a preemption gate lets a workload preempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum GatePosition {
    /// It does not.
    #[default]
    Closed,
    /// It does.
    Open,
}

/// The state of a preemption gate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PreemptionGate {
    /// The gate.
    pub name: Box<str>,
    /// How it stands.
    pub position: GatePosition,
    /// When that changed.
    pub last_transition: Timestamp,
}

/// How far a workload got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkloadStatus {
    /// The quota it holds.
    pub admission: Option<Admission>,
    /// Its conditions.
    pub conditions: Conditions,
    /// Its admission checks, by name.
    pub admission_checks: Vec<CheckStatus>,
    /// Its back-off.
    pub requeue_state: Option<RequeueState>,
    /// Pods that need no quota any more.
    pub reclaimable_pods: Vec<ReclaimablePods>,
    /// What it is charged, shown while it waits.
    pub resource_requests: Vec<PodSetRequests>,
    /// Seconds it ran in earlier attempts.
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Evictions by reason.
    pub evictions: Vec<EvictionCount>,
    /// Nodes of its assignment that failed.
    pub unhealthy_nodes: Vec<Box<str>>,
    /// The cluster it was dispatched to.
    pub cluster_name: Option<Box<str>>,
    /// The clusters it may be dispatched to.
    pub nominated_cluster_names: Vec<Box<str>>,
    /// The state of its preemption gates.
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A workload as the API holds it, without what does not matter for admission.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// Namespace and name.
    pub key: Key,
    /// The unique id; may be empty.
    pub uid: Box<str>,
    /// When it was created.
    pub created: Timestamp,
    /// The generation of its spec.
    pub generation: i64,
    /// Its labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Its annotations.
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// Whether a single Pod owns it.
    pub owned_by_pod: bool,
    /// The unique id of the Workload that owns it: it is one of several variants of that (concurrent admission).
    pub variant_of: Option<Box<str>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What is asked for.
    pub spec: WorkloadSpec,
    /// How far it got.
    pub status: WorkloadStatus,
}
