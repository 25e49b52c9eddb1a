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
    /// How long it takes to find capacity; absent means 5 min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finds_capacity_after: Option<String>,
    /// How long a request may wait before it fails; absent means 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up_after: Option<String>,
}

/// Something that happens.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioEvent {
    /// When, since the start.
    pub at: String,
    /// A document is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<ScenarioApply>,
    /// A host breaks, or a program on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<ScenarioFail>,
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
