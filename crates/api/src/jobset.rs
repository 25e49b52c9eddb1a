//! `jobset.x-k8s.io/v1alpha2`.

use serde::{Deserialize, Serialize};

use crate::{Condition, JobTemplateSpec, ObjectMeta, Other};

/// The API group.
pub const GROUP: &str = "jobset.x-k8s.io";
/// The version in which objects are held.
pub const API_VERSION: &str = "jobset.x-k8s.io/v1alpha2";

/// Jobs that start, fail and end together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct JobSet {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: JobSetSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub status: JobSetStatus,
}

fn is_empty(status: &JobSetStatus) -> bool {
    *status == JobSetStatus::default()
}

/// The Jobs of a JobSet.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetSpec {
    /// Groups of equal Jobs.
    #[serde(default)]
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// DNS names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// What to do when a Job fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// Whether no Job may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Another controller that manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Seconds until it is deleted once finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// Equal Jobs; for multislice training each is one TPU slice.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJob {
    /// Its name.
    pub name: String,
    /// The Job.
    #[serde(default)]
    pub template: JobTemplateSpec,
    /// How many; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// DNS names of pods.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Whether pods have names; absent means yes.
    #[serde(default, rename = "enableDNSHostnames", skip_serializing_if = "Option::is_none")]
    pub enable_dns_hostnames: Option<bool>,
    /// The domain; absent means the JobSet's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
    /// Whether names resolve before pods are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_not_ready_addresses: Option<bool>,
}

/// What to do when a Job fails.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// How often the whole JobSet starts again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_restarts: Option<i32>,
    /// Everything else: rules, restart strategy.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a JobSet got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
    /// Restarts that count against the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts_count_towards_max: Option<i32>,
    /// `Completed` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_state: Option<String>,
    /// By replicated job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a replicated job got, in Jobs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJobStatus {
    /// Its name.
    pub name: String,
    /// With all pods ready or succeeded.
    #[serde(default)]
    pub ready: i32,
    /// Succeeded.
    #[serde(default)]
    pub succeeded: i32,
    /// Failed.
    #[serde(default)]
    pub failed: i32,
    /// With at least one pod running or pending.
    #[serde(default)]
    pub active: i32,
    /// Suspended.
    #[serde(default)]
    pub suspended: i32,
}
