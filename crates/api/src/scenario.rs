//! `slicegate.dev/v1alpha1`: what happens in a simulation, and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ObjectMeta;

/// The API version.
pub const API_VERSION: &str = "slicegate.dev/v1alpha1";
/// A job with this annotation runs for the given time, such as `90s` or `2h`.
pub const RUN_TIME: &str = "slicegate.dev/run-time";

/// What happens in a simulation. Durations are written like `90s`, `10m`, `1h30m` or `7d`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Scenario {
    /// Metadata; only the name is used.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What happens.
    #[serde(default)]
    pub spec: ScenarioSpec,
}

/// What happens.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioSpec {
    /// When the simulated clock starts, as RFC 3339; absent means 2026-01-01T00:00:00Z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// When the simulation ends at the latest; absent means when nothing happens any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// How long jobs run that do not say it themselves; absent means 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time: Option<String>,
    /// How long particular jobs run, by name or by `kind/name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub run_times: BTreeMap<String, String>,
    /// How long an on-demand node takes to come; absent means 2 min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_provisioning: Option<String>,
    /// What the provider does with ProvisioningRequests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dws: Option<Dws>,
    /// How long it takes to form a slice of partitions (GKE dynamic slicing); absent means 1 min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_formation: Option<String>,
    /// How long a node may idle before it goes; absent means 10 min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down_after: Option<String>,
    /// What happens, in any order; each at its own time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ScenarioEvent>,
}

/// What the provider does with ProvisioningRequests.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dws {
    /// How long it takes to find capacity, or `never`; absent means 5 min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finds_capacity_after: Option<String>,
    /// How long a request may wait before it fails; absent means 7 days. A request that says `ValidUntilSeconds` itself waits
    /// that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up_after: Option<String>,
    /// How long nodes are kept once they were provisioned, after which they are taken back and the request is
    /// `CapacityRevoked`; absent means 7 days. A request that says `maxRunDurationSeconds` itself keeps them that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// What happens to particular requests; of several that fit, the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<DwsRequest>,
}

/// What happens to the requests of a job. What is absent is as for all.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DwsRequest {
    /// The job, as `kind/name` or `kind/namespace/name`, or a ProvisioningRequest itself.
    pub object: String,
    /// Only this attempt, from 1; absent means every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// How long it takes to find capacity, or `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finds_capacity_after: Option<String>,
    /// How long the request may wait before it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up_after: Option<String>,
    /// It fails after this time, whatever capacity there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails_after: Option<String>,
    /// Its nodes are taken back this long after they were provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_after: Option<String>,
    /// The reason of the failure; absent means `OutOfResources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is said of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Something that happens: `at` and one of the others.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioEvent {
    /// When, since the start.
    pub at: String,
    /// A document is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<ScenarioApply>,
    /// An object is changed, as by `kubectl patch --type merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<ScenarioPatch>,
    /// A job or a node pool gets another size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScenarioScale>,
    /// An object is deleted, as by `kubectl delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<ScenarioDelete>,
    /// A host breaks, or a program on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<ScenarioFail>,
    /// Nodes are drained, as before maintenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_node: Option<ScenarioEvictNode>,
    /// The provider decides about a ProvisioningRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dws: Option<ScenarioDws>,
}

/// A change to an object that is there. The API server checks it as any update: what it refuses is said and changes nothing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioPatch {
    /// The object, as `kind/name` or `kind/namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Instead of `object`: the Workload of this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_of: Option<String>,
    /// `status` to change the status instead of the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// A JSON merge patch (RFC 7386): fields that are to change, `null` for those that are to go; lists are replaced as wholes.
    #[serde(default)]
    pub merge: serde_json::Value,
}

/// Another size.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioScale {
    /// A Job, JobSet, RayJob, RayCluster or NodePool, as `kind/name` or `kind/namespace/name`.
    pub object: String,
    /// Of a JobSet: which replicated job. May be absent if there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicated_job: Option<String>,
    /// Of a RayJob or RayCluster: which worker group. May be absent if there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_group: Option<String>,
    /// Replicas of the replicated job or worker group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods of a Job, or of each Job of the replicated job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i32>,
    /// The fewest nodes of a node pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<i32>,
    /// The most nodes of a node pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<i32>,
}

/// A deletion.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioDelete {
    /// The object, as `kind/name` or `kind/namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Instead of `object`: the Workload of this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_of: Option<String>,
    /// What becomes of the objects that it owns: `Background` (they go after it, the default), `Foreground` (they go first) or
    /// `Orphan` (they stay).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation: Option<String>,
}

/// Nodes that are drained: they take no pods any more, and those on them are stopped and fail as disrupted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioEvictNode {
    /// One node, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The nodes of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The nodes on which a job's pods are, as `kind/name` or `kind/namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// At most so many of the pool's or the job's nodes, in order of name; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// How long it lasts; absent means for ever.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
}

/// What the provider decides about a ProvisioningRequest.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioDws {
    /// A ProvisioningRequest, or the job whose newest one is meant, as `kind/name` or `kind/namespace/name`.
    pub object: String,
    /// `FindsCapacity` (it looks at once), `Fails`, `BookingExpires` or `RevokesCapacity`.
    pub outcome: String,
    /// The reason of the condition, such as `OutOfResources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message of the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A host that breaks: its VM is lost, and with it every pod on it.
///
/// A host of a multi-host slice takes the whole slice down: all nodes of its node pool go and come back together, as GKE
/// recreates such a pool as a whole. Of other pools only the one node goes. A broken node is first not ready; after a minute it
/// is gone and its pods have failed; after `repairAfter` it is back, under its old name.
///
/// The host is named by exactly one of `node`, `pool` and `job`:
///
/// ```yaml
/// events:
///   - at: 10m
///     fail: { pool: nodepool1, host: 1, repairAfter: 15m }
///   - at: 20m
///     fail: { job: JobSet/pretrain, slice: 2, host: 0 }
///   - at: 30m
///     fail: { job: JobSet/pretrain, exitCode: 42 }
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioFail {
    /// A node, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// A node pool, by name: one of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// A job, as `kind/name` or `kind/namespace/name`: the node of one of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Which slice of the job, from 0 on, in the order of its Jobs (JobSet) or replicas (Ray); absent means 0. Pods without
    /// chips count only in jobs that use no chips at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<u32>,
    /// Which host of the pool or slice, from 0 on: in the order in which the pool's nodes were made, or of the workers in the
    /// slice. Absent means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u32>,
    /// How long the repair takes; absent means 15 min, `never` that the host stays away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair_after: Option<String>,
    /// Not the host but the program of the job's pod ends, with this code (1 to 255): the node stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// A document that is applied.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioApply {
    /// A file, relative to the scenario's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// An object of the manifests, as `kind/name` or `kind/namespace/name`; it is then applied at this time only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Variables for `${NAME}` in the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
