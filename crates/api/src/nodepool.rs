//! GKE node pools, as `gcloud container node-pools list --format=json` prints them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Other;

/// A group of equal nodes. A multi-host TPU pool is one slice: all of its nodes, or none.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePool {
    /// Its name.
    pub name: String,
    /// Its nodes.
    #[serde(default)]
    pub config: NodeConfig,
    /// How many nodes it starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_node_count: Option<i32>,
    /// Whether its size follows demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<NodePoolAutoscaling>,
    /// How its nodes lie to one another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_policy: Option<PlacementPolicy>,
    /// Whether it serves ProvisioningRequests only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_provisioning: Option<QueuedProvisioning>,
    /// Its zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// The nodes of a pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfig {
    /// Such as `ct5lp-hightpu-4t`.
    #[serde(default)]
    pub machine_type: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<NodeTaint>,
    /// Whether they are DWS flex-start capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flex_start: Option<bool>,
    /// Whether they are spot capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// A taint in GKE's spelling.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeTaint {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
    /// `NO_SCHEDULE`, `PREFER_NO_SCHEDULE` or `NO_EXECUTE`.
    #[serde(default)]
    pub effect: String,
}

/// Limits of a pool whose size follows demand.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolAutoscaling {
    /// Whether it does.
    #[serde(default)]
    pub enabled: bool,
    /// Fewest nodes a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_node_count: Option<i32>,
    /// Most nodes a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_node_count: Option<i32>,
    /// Fewest nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_min_node_count: Option<i32>,
    /// Most nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_max_node_count: Option<i32>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// How the nodes of a pool lie to one another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicy {
    /// Such as `2x4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpu_topology: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// Whether a pool serves ProvisioningRequests only.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct QueuedProvisioning {
    /// Whether it does.
    #[serde(default)]
    pub enabled: bool,
}
