//! `ray.io/v1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Condition, ObjectMeta, Other, PodTemplateSpec, Time};

/// The API group.
pub const GROUP: &str = "ray.io";
/// The version in which objects are held.
pub const API_VERSION: &str = "ray.io/v1";

/// A program to run on a Ray cluster of its own.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RayJob {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: RayJobSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: RayJobStatus,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The program and its cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RayJobSpec {
    /// Whether nothing may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<String>,
    /// The cluster to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_spec: Option<RayClusterSpec>,
    /// A cluster that exists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cluster_selector: BTreeMap<String, String>,
    /// `K8sJobMode` (default), `HTTPMode`, `InteractiveMode` or `SidecarMode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_mode: Option<String>,
    /// The pod that submits the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter_pod_template: Option<PodTemplateSpec>,
    /// Whether the cluster goes away when the program has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_after_job_finishes: Option<bool>,
    /// Another controller that manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a RayJob got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RayJobStatus {
    /// The program's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    /// `PENDING`, `RUNNING`, `STOPPED`, `SUCCEEDED` or `FAILED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<String>,
    /// `Initializing`, `Running`, `Complete`, `Failed`, `Suspending`, `Suspended`, ...; absent: new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_deployment_status: Option<String>,
    /// A word about a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// A Ray cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RayCluster {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: RayClusterSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: RayClusterStatus,
}

/// A head and groups of workers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterSpec {
    /// Whether nothing may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Whether the head has an autoscaler beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_in_tree_autoscaling: Option<bool>,
    /// The autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// The head.
    #[serde(default)]
    pub head_group_spec: HeadGroupSpec,
    /// The workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_group_specs: Vec<WorkerGroupSpec>,
    /// Another controller that manages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Where the head keeps its state: present if it survives a restart of the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs_fault_tolerance_options: Option<serde_json::Value>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// The autoscaler of a Ray cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
    /// What it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<k8s_openapi::api::core::v1::ResourceRequirements>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// The head of a Ray cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadGroupSpec {
    /// Its pod.
    #[serde(default)]
    pub template: PodTemplateSpec,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// Workers of one kind. A replica is `num_of_hosts` pods: a whole multi-host slice.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupSpec {
    /// Its name.
    #[serde(default)]
    pub group_name: String,
    /// Replicas; absent means 1 to Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The fewest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Pods a replica; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_of_hosts: Option<i32>,
    /// Whether it has no pods for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Its pods.
    #[serde(default)]
    pub template: PodTemplateSpec,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// How far a Ray cluster got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterStatus {
    /// `ready`, `suspended`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Workers wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_worker_replicas: Option<i32>,
    /// Workers there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_worker_replicas: Option<i32>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}
