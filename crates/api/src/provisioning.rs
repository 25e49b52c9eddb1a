//! `autoscaling.x-k8s.io/v1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Condition, ObjectMeta};

/// The API group.
pub const GROUP: &str = "autoscaling.x-k8s.io";
/// The version in which objects are held.
pub const API_VERSION: &str = "autoscaling.x-k8s.io/v1";

/// A wish for capacity, met as a whole or not at all.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProvisioningRequest {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: ProvisioningRequestSpec,
    /// How far it got.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub status: ProvisioningRequestStatus,
}

fn is_empty(status: &ProvisioningRequestStatus) -> bool {
    *status == ProvisioningRequestStatus::default()
}

/// What is wanted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestSpec {
    /// Pods of each shape.
    #[serde(default)]
    pub pod_sets: Vec<ProvisioningRequestPodSet>,
    /// Who provides, such as `queued-provisioning.gke.io`.
    #[serde(default)]
    pub provisioning_class_name: String,
    /// How.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// Pods of one shape.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSet {
    /// The PodTemplate.
    pub pod_template_ref: LocalReference,
    /// How many.
    pub count: i32,
}

/// The name of an object in the same namespace.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LocalReference {
    /// The name.
    pub name: String,
}

/// How far a request got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestStatus {
    /// `Accepted`, `Provisioned`, `Failed`, `BookingExpired`, `CapacityRevoked`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What the provider says about the capacity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_class_details: BTreeMap<String, String>,
}
