//! What Slicegate understands beyond Kueue's API: annotations and labels of its own. All of it is off unless asked for.

/// Annotation of a ResourceFlavor, `true` or `false`: workloads that use TPUs are admitted to it only when whole slices of
/// their topology are free or can be provisioned.
pub const WHOLE_SLICES: &str = "slicegate.dev/whole-slices";

/// Label of a ConfigMap, `true`: every value of its data is a NodePool, or a list of them, in JSON as
/// `gcloud container node-pools list --format=json` prints it. So pools without nodes are known.
pub const NODE_POOLS: &str = "slicegate.dev/node-pools";
