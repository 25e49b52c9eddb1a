//! `accelerator.gke.io/v1beta1`: slices that GKE forms of the partitions of TPU nodes as they are asked for (dynamic slicing).

use serde::{Deserialize, Serialize};

use crate::{Condition, ObjectMeta};

/// The API group.
pub const GROUP: &str = "accelerator.gke.io";
/// The version in which objects are held.
pub const API_VERSION: &str = "accelerator.gke.io/v1beta1";
/// The `controllerName` of admission checks that form slices.
pub const CHECK_CONTROLLER: &str = "accelerator.gke.io/slice";
/// The longest name of a Slice: GKE puts nine more characters behind it, and GCE allows 63. An older page says 54.
pub const LONGEST_NAME: usize = 49;
/// On a Slice: the namespace of the Workload that it was formed for.
pub const OWNER_NAMESPACE: &str = "accelerator.gke.io/owner-workload-namespace";
/// On a Slice: the name of the Workload that it was formed for.
pub const OWNER_NAME: &str = "accelerator.gke.io/owner-workload-name";
/// On a Slice: the pod set that it was formed for.
pub const OWNER_POD_SET: &str = "accelerator.gke.io/owner-podset-name";
/// On a Slice: `true` if forming it is tried again after it failed.
pub const RETRY_ON_FAILURE: &str = "slice.gke.io/retry-on-failure";

/// A slice: partitions whose chips are joined over ICI.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Slice {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is joined.
    #[serde(default)]
    pub spec: SliceSpec,
    /// How far it got.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub status: SliceStatus,
}

fn is_empty(status: &SliceStatus) -> bool {
    *status == SliceStatus::default()
}

/// What is joined. Nothing of it can be changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceSpec {
    /// The accelerator: `tpu7x`.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// The shape in chips, such as `4x4x8`.
    #[serde(default)]
    pub topology: String,
    /// The partitions: for 4x4x4 chips and more its cubes, else the one part of a cube.
    #[serde(default)]
    pub partition_ids: Vec<String>,
}

/// How far a slice got.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceStatus {
    /// `Ready`, whose reason is the state: see [`state`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The states of a slice: reasons of its condition `Ready`.
pub mod state {
    /// Nothing was done for it yet.
    pub const NOT_CREATED: &str = "SliceNotCreated";
    /// It cannot be formed: nodes are missing, in use, or too many or too few.
    pub const CREATION_FAILED: &str = "SliceCreationFailed";
    /// It is being formed.
    pub const ACTIVATING: &str = "ACTIVATING";
    /// It is formed and healthy.
    pub const ACTIVE: &str = "ACTIVE";
    /// It is formed and can be used, but a cube of it has lost links.
    pub const ACTIVE_DEGRADED: &str = "ACTIVE_DEGRADED";
    /// It is broken, or its partitions cannot be joined.
    pub const FAILED: &str = "FAILED";
    /// It is being dissolved.
    pub const DEACTIVATING: &str = "DEACTIVATING";
    /// It is not whole any more.
    pub const INCOMPLETE: &str = "INCOMPLETE";
}

impl Slice {
    /// Its state: the reason of its condition `Ready`; [`state::NOT_CREATED`] if nobody has looked at it yet.
    pub fn state(&self) -> &str {
        let ready = self.status.conditions.iter().find(|condition| condition.type_ == "Ready");
        ready.map_or(state::NOT_CREATED, |condition| condition.reason.as_str())
    }
}
