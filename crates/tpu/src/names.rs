//! The names by which nodes, pods and containers speak of TPUs.

/// The extended resource that counts TPU chips.
pub const RESOURCE: &str = "google.com/tpu";

/// Labels of nodes. Those set on every TPU node come first.
pub mod label {
    use crate::topology::Topology;

    /// The node pool. For a multi-host slice, the pool is the slice.
    pub const NODE_POOL: &str = "cloud.google.com/gke-nodepool";
    /// The accelerator: [`Accelerator::label`](crate::Accelerator::label).
    pub const ACCELERATOR: &str = "cloud.google.com/gke-tpu-accelerator";
    /// The topology of the slice the node is part of, such as `2x4`.
    pub const TOPOLOGY: &str = "cloud.google.com/gke-tpu-topology";
    /// The number of chips on the node.
    pub const ACCELERATOR_COUNT: &str = "cloud.google.com/gke-accelerator-count";

    /// `true` on spot nodes.
    pub const SPOT: &str = "cloud.google.com/gke-spot";
    /// `true` on preemptible nodes.
    pub const PREEMPTIBLE: &str = "cloud.google.com/gke-preemptible";
    /// `true` on nodes provisioned by flex-start.
    pub const FLEX_START: &str = "cloud.google.com/gke-flex-start";
    /// `true` on nodes of pools with queued provisioning.
    pub const QUEUED: &str = "cloud.google.com/gke-queued";
    /// How the node was bought: `standard`, `spot`, `flex-start` or `preemptible`.
    pub const PROVISIONING: &str = "cloud.google.com/gke-provisioning";
    /// The name of the Compute Engine resize request that brought up the node of a queued pool.
    pub const PROVISIONING_REQUEST: &str = "autoscaling.gke.io/provisioning-request";
    /// The longest time a flex-start node runs, in seconds.
    pub const MAX_RUN_DURATION: &str = "cloud.google.com/gke-max-run-duration-seconds";
    /// The name of the reservation the node is taken from.
    pub const RESERVATION: &str = "cloud.google.com/reservation-name";
    /// The compute class the node belongs to.
    pub const COMPUTE_CLASS: &str = "cloud.google.com/compute-class";
    /// The compact placement group of the node.
    pub const PLACEMENT_GROUP: &str = "cloud.google.com/gke-placement-group";
    /// `false` turns the rerouting around failed links off.
    pub const ICI_RESILIENCY: &str = "cloud.google.com/gke-tpu-ici-resiliency";
    /// When the node's host will be maintained, in seconds since 1970.
    pub const SCHEDULED_MAINTENANCE: &str = "cloud.google.com/scheduled-maintenance-time";

    /// The block of the data center the host stands in.
    pub const TOPOLOGY_BLOCK: &str = "cloud.google.com/gce-topology-block";
    /// The sub-block of the data center the host stands in.
    pub const TOPOLOGY_SUBBLOCK: &str = "cloud.google.com/gce-topology-subblock";
    /// The physical host.
    pub const TOPOLOGY_HOST: &str = "cloud.google.com/gce-topology-host";
    /// `PROVISION_ONLY` on pools whose slices are formed after their nodes.
    pub const TOPOLOGY_MODE: &str = "cloud.google.com/gke-accelerator-topology-mode";
    /// The dynamic slice the node is part of.
    pub const SLICE: &str = "cloud.google.com/gke-tpu-slice";

    /// The label that holds a node's partition of this shape, for the shapes that dynamic slices are formed of: 4x4x4,
    /// 2x4x4, 2x2x4, 2x2x2, 2x2x1.
    ///
    /// ```
    /// use slicegate_tpu::{label, Topology};
    ///
    /// assert_eq!(label::partition_id(Topology::CUBE), Some("cloud.google.com/gke-tpu-partition-4x4x4-id"));
    /// assert_eq!(label::partition_id(Topology::new_2d(2, 2).unwrap()), None);
    /// ```
    pub fn partition_id(shape: Topology) -> Option<&'static str> {
        partition(shape).map(|(id, _)| id)
    }

    /// The label that holds the health of a node's partition of this shape: `HEALTHY`, `DEGRADED` (4x4x4 only),
    /// `UNHEALTHY`, `UNSET` or `INCOMPLETE`.
    pub fn partition_state(shape: Topology) -> Option<&'static str> {
        partition(shape).map(|(_, state)| state)
    }

    fn partition(shape: Topology) -> Option<(&'static str, &'static str)> {
        const LABELS: [(Topology, &str, &str); 5] = [
            (
                Topology::solid(4, 4, 4),
                "cloud.google.com/gke-tpu-partition-4x4x4-id",
                "cloud.google.com/gke-tpu-partition-4x4x4-state",
            ),
            (
                Topology::solid(2, 4, 4),
                "cloud.google.com/gke-tpu-partition-2x4x4-id",
                "cloud.google.com/gke-tpu-partition-2x4x4-state",
            ),
            (
                Topology::solid(2, 2, 4),
                "cloud.google.com/gke-tpu-partition-2x2x4-id",
                "cloud.google.com/gke-tpu-partition-2x2x4-state",
            ),
            (
                Topology::solid(2, 2, 2),
                "cloud.google.com/gke-tpu-partition-2x2x2-id",
                "cloud.google.com/gke-tpu-partition-2x2x2-state",
            ),
            (
                Topology::solid(2, 2, 1),
                "cloud.google.com/gke-tpu-partition-2x2x1-id",
                "cloud.google.com/gke-tpu-partition-2x2x1-state",
            ),
        ];
        LABELS.iter().find(|(topology, _, _)| *topology == shape).map(|&(_, id, state)| (id, state))
    }
}

/// Annotations of pods and nodes.
pub mod annotation {
    /// On a pod: the shape of the dynamic slice it wants.
    pub const SLICE_TOPOLOGY: &str = "cloud.google.com/gke-tpu-slice-topology";
    /// On a node: when its flex-start time is over.
    pub const TERMINATION_TIME: &str = "node.gke.io/machine-termination-datetime";
}

/// A taint of a node: `key=value:effect`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Taint {
    /// The key.
    pub key: &'static str,
    /// The value.
    pub value: &'static str,
    /// The effect on pods that do not tolerate it.
    pub effect: &'static str,
}

impl std::fmt::Display for Taint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}:{}", self.key, self.value, self.effect)
    }
}

/// Taints of nodes. All of them keep pods off without evicting any.
pub mod taint {
    use super::Taint;

    const NO_SCHEDULE: &str = "NoSchedule";

    /// On every TPU node. GKE adds the matching toleration to each pod that asks for [`RESOURCE`](super::RESOURCE).
    pub const TPU: Taint = Taint { key: super::RESOURCE, value: "present", effect: NO_SCHEDULE };
    /// On nodes of pools with queued provisioning. Pods must tolerate it themselves.
    pub const QUEUED: Taint = Taint { key: super::label::QUEUED, value: "true", effect: NO_SCHEDULE };
    /// On flex-start pools that auto-provisioning made; not on those made by hand.
    pub const FLEX_START: Taint = Taint { key: super::label::FLEX_START, value: "true", effect: NO_SCHEDULE };
    /// On spot pools.
    pub const SPOT: Taint = Taint { key: super::label::SPOT, value: "true", effect: NO_SCHEDULE };
    /// On a node that is about to be maintained. Sources show its key and effect only.
    pub const IMPENDING_TERMINATION_KEY: &str = "cloud.google.com/impending-node-termination";
}

/// Environment variables of containers that use TPUs.
pub mod env {
    /// The number of the worker in its slice: for Jobs, the completion index.
    pub const WORKER_ID: &str = "TPU_WORKER_ID";
    /// The host names of all workers, in order, separated by commas.
    pub const WORKER_HOSTNAMES: &str = "TPU_WORKER_HOSTNAMES";
    /// The topology of the slice.
    pub const TOPOLOGY: &str = "TPU_TOPOLOGY";
    /// [`SliceShape::wrap`](crate::SliceShape::wrap).
    pub const TOPOLOGY_WRAP: &str = "TPU_TOPOLOGY_WRAP";
    /// [`SliceShape::host_bounds`](crate::SliceShape::host_bounds).
    pub const HOST_BOUNDS: &str = "TPU_HOST_BOUNDS";
    /// [`SliceShape::chip_bounds`](crate::SliceShape::chip_bounds).
    pub const CHIPS_PER_HOST_BOUNDS: &str = "TPU_CHIPS_PER_HOST_BOUNDS";
    /// [`SliceShape::accelerator_type`](crate::SliceShape::accelerator_type).
    pub const ACCELERATOR_TYPE: &str = "TPU_ACCELERATOR_TYPE";
    /// The number of slices of a multislice job.
    pub const NUM_SLICES: &str = "MEGASCALE_NUM_SLICES";
    /// The number of this slice.
    pub const SLICE_ID: &str = "MEGASCALE_SLICE_ID";
    /// The host of worker 0 of slice 0.
    pub const COORDINATOR_ADDRESS: &str = "MEGASCALE_COORDINATOR_ADDRESS";
}

/// The labels that GKE puts on every node of a pool with slices of this shape, beside the pool's own.
///
/// ```
/// use slicegate_tpu::{SliceShape, label, node_labels};
///
/// let slice = SliceShape::parse("ct5lp-hightpu-4t", "2x4")?;
/// let labels: Vec<_> = node_labels(slice, "nodepool1").map(|(key, value)| format!("{key}={value}")).collect();
/// assert_eq!(labels, [
///     "cloud.google.com/gke-nodepool=nodepool1",
///     "cloud.google.com/gke-tpu-accelerator=tpu-v5-lite-podslice",
///     "cloud.google.com/gke-tpu-topology=2x4",
///     "cloud.google.com/gke-accelerator-count=4",
/// ]);
/// # Ok::<(), slicegate_tpu::SliceError>(())
/// ```
pub fn node_labels(slice: crate::SliceShape, node_pool: &str) -> impl Iterator<Item = (&'static str, String)> {
    [
        (label::NODE_POOL, node_pool.to_owned()),
        (label::ACCELERATOR, slice.accelerator().label().to_owned()),
        (label::TOPOLOGY, slice.topology().to_string()),
        (label::ACCELERATOR_COUNT, slice.chips_per_host().to_string()),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn the_taint_of_tpu_nodes() {
        assert_eq!(taint::TPU.to_string(), "google.com/tpu=present:NoSchedule");
        assert_eq!(taint::QUEUED.to_string(), "cloud.google.com/gke-queued=true:NoSchedule");
    }

    #[test]
    fn partition_labels_hold_their_shape() {
        for shape in ["4x4x4", "2x4x4", "2x2x4", "2x2x2", "2x2x1"] {
            let topology: Topology = shape.parse().unwrap();
            assert_eq!(label::partition_id(topology), Some(&*format!("cloud.google.com/gke-tpu-partition-{shape}-id")));
            assert_eq!(
                label::partition_state(topology),
                Some(&*format!("cloud.google.com/gke-tpu-partition-{shape}-state"))
            );
        }
        assert_eq!(label::partition_id(Topology::flat(4, 4)), None);
    }
}
