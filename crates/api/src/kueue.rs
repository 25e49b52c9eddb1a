//! `kueue.x-k8s.io/v1beta2`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Condition, LabelSelector, ObjectMeta, PodTemplateSpec, Quantity, Taint, Time, Toleration};

/// The API group.
pub const GROUP: &str = "kueue.x-k8s.io";
/// The version in which objects are held.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

// ----- Workload --------------------------------------------------------------------------------------------------------

/// What a job asks for and how far it got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: WorkloadSpec,
    /// How far it got.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: WorkloadStatus,
}

/// What is asked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// Groups of equal pods.
    #[serde(default)]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queue_name: String,
    /// The priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether it may run; absent means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// How long it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that must open before it may preempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A reference to a priority class.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityClassRef {
    /// `kueue.x-k8s.io` or `scheduling.k8s.io`.
    pub group: String,
    /// `WorkloadPriorityClass` or `PriorityClass`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A preemption gate.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// Its name.
    pub name: String,
}

/// Pods of one shape.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Its name; absent means `main`.
    #[serde(default = "main_pod_set")]
    pub name: String,
    /// The pods.
    #[serde(default)]
    pub template: PodTemplateSpec,
    /// How many; absent means 1.
    #[serde(default = "one")]
    pub count: i32,
    /// The fewest that are of use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// Where they are to lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

fn main_pod_set() -> String {
    "main".to_owned()
}

const fn one() -> i32 {
    1
}

/// How the pods of a pod set are to lie to one another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// One domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// One domain of this level if possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// The label with a pod's index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// The label with the index of a pod's sub-group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// How many sub-groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets placed together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// The level in which a slice of pods lies together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods a slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_size: Option<i32>,
    /// Slices within slices.
    #[serde(default, rename = "podsetSliceRequiredTopologyConstraints", skip_serializing_if = "Vec::is_empty")]
    pub pod_set_slice_required_topology_constraints: Vec<SliceTopologyConstraint>,
}

/// A slice of pods and the level in which it lies together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceTopologyConstraint {
    /// The level.
    pub topology: String,
    /// Pods a slice.
    pub size: i32,
}

/// How far a workload got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// The quota it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// Its back-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Pods that need no quota any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// Its admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What it is charged, shown while it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds it ran in earlier attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Evictions by reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Clusters it may be dispatched to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nominated_cluster_names: Vec<String>,
    /// The cluster it was dispatched to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Failed nodes of its assignment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// The state of its preemption gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// Quota that a workload holds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// Where it is counted.
    pub cluster_queue: String,
    /// What each pod set got.
    #[serde(default)]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// The pod set.
    #[serde(default = "main_pod_set")]
    pub name: String,
    /// Flavor by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// What all its pods use together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// How many pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Where they lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// `Pending` or `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<String>,
}

/// Where the pods of a pod set lie, in compact form.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignment {
    /// Node labels, coarsest first.
    pub levels: Vec<String>,
    /// Runs of domains.
    #[serde(default)]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A run of domains.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSlice {
    /// How many domains.
    pub domain_count: i32,
    /// Their values, by level.
    pub values_per_level: Vec<LevelValues>,
    /// Their pods.
    pub pod_counts: PodCounts,
}

/// The values of one level: one for all domains, or one each.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LevelValues {
    /// One for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// One each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<IndividualValues>,
}

/// Values that share their beginning and end.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndividualValues {
    /// The beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// What lies between.
    #[serde(default)]
    pub roots: Vec<String>,
}

/// Pods by domain: one count for all, or one each.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// One for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<i32>,
    /// One each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<Vec<i32>>,
}

/// Back-off.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often it was put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// When it may compete again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods that need no quota any more.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// The pod set.
    pub name: String,
    /// How many.
    pub count: i32,
}

/// An admission check of a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// The check.
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    pub state: String,
    /// When `state` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// What its controller says.
    #[serde(default)]
    pub message: String,
    /// How long to wait before another try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i32>,
    /// How often it was tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// What it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// Changes to the pods of a pod set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// The pod set.
    pub name: String,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Selectors to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// What a pod set is charged.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// The pod set.
    pub name: String,
    /// Totals.
    #[serde(default)]
    pub resources: BTreeMap<String, Quantity>,
}

/// Counts kept over the life of a workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// Evictions by reason.
    #[serde(default)]
    pub evictions: Vec<EvictionCount>,
}

/// Evictions for one reason.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionCount {
    /// The reason.
    pub reason: String,
    /// What lies behind it.
    #[serde(default)]
    pub underlying_cause: String,
    /// How often.
    pub count: i32,
}

/// A failed node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct UnhealthyNode {
    /// Its name.
    pub name: String,
}

/// The state of a preemption gate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Its name.
    pub name: String,
    /// `Closed` or `Open`.
    pub position: String,
    /// When that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

// ----- ClusterQueue ----------------------------------------------------------------------------------------------------

/// Quota for the workloads of the LocalQueues that lead to it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterQueue {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: ClusterQueueSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ClusterQueueStatus,
}

/// The configuration of a ClusterQueue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueSpec {
    /// Quotas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_groups: Vec<ResourceGroup>,
    /// The Cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort_name: Option<String>,
    /// `BestEffortFIFO` (default) or `StrictFIFO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing_strategy: Option<String>,
    /// The namespaces served; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// How flavors are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// When its workloads preempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// Checks its workloads must pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// `None` (default), `Hold` or `HoldAndDrain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<String>,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether LocalQueues that used less go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Whether several flavors are tried at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// Resources that come from one flavor, and the flavors in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGroup {
    /// The resources.
    pub covered_resources: Vec<String>,
    /// The flavors.
    pub flavors: Vec<FlavorQuotas>,
}

/// Quotas of a flavor.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// The flavor.
    pub name: String,
    /// Quotas by resource.
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one resource.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// The resource.
    pub name: String,
    /// The queue's own.
    pub nominal_quota: Quantity,
    /// What it may borrow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<Quantity>,
    /// What it lends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<Quantity>,
}

/// How flavors are chosen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorFungibility {
    /// `MayStopSearch` (default) or `TryNextFlavor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_can_borrow: Option<String>,
    /// `TryNextFlavor` (default) or `MayStopSearch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_can_preempt: Option<String>,
    /// `BorrowingOverPreemption` (default) or `PreemptionOverBorrowing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<String>,
}

/// When workloads preempt.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    /// `Never` (default), `LowerPriority` or `Any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_within_cohort: Option<String>,
    /// While borrowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// `Never` (default), `LowerPriority` or `LowerOrNewerEqualPriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_cluster_queue: Option<String>,
}

/// Preemption while borrowing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// `Never` (default) or `LowerPriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The highest priority that may be preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// The checks of a ClusterQueue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[serde(default)]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// A check and the flavors it is for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// The check.
    pub name: String,
    /// The flavors; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_flavors: Vec<String>,
}

/// A weight for fair sharing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// The weight; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Quantity>,
}

/// The scope of admission fair sharing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
    pub admission_mode: String,
}

/// Whether several flavors are tried at once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// How a workload moves to a better flavor.
    #[serde(default)]
    pub migration: ConcurrentAdmissionMigration,
}

/// How a workload moves to a better flavor.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// `TryPreferredFlavors` or `RetainFirstAdmission`.
    #[serde(default)]
    pub mode: String,
    /// Limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<MigrationConstraints>,
}

/// Limits of migration.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationConstraints {
    /// The last flavor that is good enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// The state of a ClusterQueue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Quota reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota of admitted workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Workloads that wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Workloads with quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Workloads admitted.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}

/// Usage of a flavor.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// The flavor.
    pub name: String,
    /// By resource.
    #[serde(default)]
    pub resources: Vec<ResourceUsage>,
}

/// Usage of a resource.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// The resource.
    pub name: String,
    /// All of it.
    #[serde(default)]
    pub total: Quantity,
    /// What is borrowed; only of ClusterQueues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<Quantity>,
}

/// A share.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Dominant resource share by weight, in thousandths; the largest integer for a borrower of weight zero.
    pub weighted_share: i64,
    /// Usage over time, of LocalQueues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Usage over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Decayed usage.
    #[serde(default)]
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When it was last brought up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Time>,
}

// ----- LocalQueue ------------------------------------------------------------------------------------------------------

/// The way from a namespace to a ClusterQueue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LocalQueue {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: LocalQueueSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: LocalQueueStatus,
}

/// The configuration of a LocalQueue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// The ClusterQueue.
    #[serde(default)]
    pub cluster_queue: String,
    /// `None` (default), `Hold` or `HoldAndDrain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<String>,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// The state of a LocalQueue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Workloads that wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Workloads with quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Workloads admitted.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Quota reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota of admitted workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Usage over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}

// ----- the other kinds -------------------------------------------------------------------------------------------------

/// ClusterQueues and Cohorts that share unused quota.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cohort {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: CohortSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: CohortStatus,
}

/// The configuration of a Cohort.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// The Cohort above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    /// Quotas of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_groups: Vec<ResourceGroup>,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// The state of a Cohort.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// Its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}

/// A kind of capacity.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ResourceFlavor {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Which nodes it stands for.
    #[serde(default)]
    pub spec: ResourceFlavorSpec,
}

/// The nodes of a flavor.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavorSpec {
    /// Their labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Their taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    /// Tolerations given to pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Their Topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_name: Option<String>,
}

/// The levels of a data centre, coarsest first.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its levels.
    #[serde(default)]
    pub spec: TopologySpec,
}

/// The levels.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TopologySpec {
    /// Coarsest first.
    #[serde(default)]
    pub levels: Vec<TopologyLevel>,
}

/// A level.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Its node label.
    pub node_label: String,
}

/// A check before admission.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AdmissionCheck {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who does it.
    #[serde(default)]
    pub spec: AdmissionCheckSpec,
    /// Whether it is in use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: AdmissionCheckStatus,
}

/// Who does a check.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Its controller.
    #[serde(default)]
    pub controller_name: String,
    /// Its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParameters>,
}

/// Where a check's configuration is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParameters {
    /// The group.
    pub api_group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

/// The state of a check.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AdmissionCheckStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How ProvisioningRequests are made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProvisioningRequestConfig {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// How.
    #[serde(default)]
    pub spec: ProvisioningRequestConfigSpec,
}

/// How ProvisioningRequests are made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// Their class.
    #[serde(default)]
    pub provisioning_class_name: String,
    /// Their parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Pod sets that name one of these are in the request; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<String>,
    /// What to do on failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    /// What to add to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets become one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<String>,
}

/// What to do when a request fails.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestRetryStrategy {
    /// Tries; absent means 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit_count: Option<i32>,
    /// The first wait; absent means 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_base_seconds: Option<i32>,
    /// The longest wait; absent means 1800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_max_seconds: Option<i32>,
}

/// What to add to the pods of a provisioned request.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Selectors.
    #[serde(default)]
    pub node_selector: Vec<ProvisioningRequestNodeSelector>,
}

/// A selector whose value the provisioner gives.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestNodeSelector {
    /// The label.
    pub key: String,
    /// The detail that holds its value.
    pub value_from_provisioning_class_detail: String,
}

/// A priority for queueing only.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkloadPriorityClass {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The priority.
    pub value: i32,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}
