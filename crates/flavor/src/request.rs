//! What is to be assigned.

use slicegate_quota::{FlavorId, FlavorResourceId, ResourceId};
use slicegate_workload::{TopologyAssignment, TopologyRequest};

use crate::{Eligibility, LastTried};

/// Quantities by resource, each resource once, in [`ResourceOrder`](crate::ResourceOrder): milli-units of cpu, whole units
/// of everything else.
pub type Requests = Vec<(ResourceId, i64)>;

/// What a pod set asks of topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TopologyDemand {
    /// Nothing. In a ClusterQueue whose flavors all have topologies its pods are placed all the same.
    #[default]
    None,
    /// It has a topology request that requires a level (Kueue's `required`).
    Required,
    /// It has one that prefers a level.
    Preferred,
    /// It has one of another sort: unconstrained, or of slices only.
    Other,
}

impl TopologyDemand {
    /// What a topology request asks for. One that only names a group or labels asks for nothing.
    pub fn of(request: Option<&TopologyRequest>) -> Self {
        let Some(request) = request else { return Self::None };
        let slices = request.slice_required_topology.is_some()
            || request.slice_size.is_some()
            || !request.slice_constraints.is_empty();
        if request.required.is_some() {
            Self::Required
        } else if request.preferred.is_some() {
            Self::Preferred
        } else if request.unconstrained.is_some() || slices {
            Self::Other
        } else {
            Self::None
        }
    }

    /// Whether there is a topology request.
    pub fn is_explicit(self) -> bool {
        self != Self::None
    }
}

/// A flavor that a resource was given before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeedFlavor {
    /// The resource.
    pub resource: ResourceId,
    /// The flavor.
    pub flavor: FlavorId,
    /// Both.
    pub pair: FlavorResourceId,
}

/// What a pod set was given before: by an earlier pass over the same workload.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    /// The flavors, each resource once.
    pub flavors: &'a [SeedFlavor],
    /// The place of its pods.
    pub topology: Option<&'a TopologyAssignment>,
    /// Whether that place names a node that failed.
    pub unhealthy: bool,
    /// Whether placing was put off until admission checks are ready, and whether it still is.
    pub delayed: Option<DelayedTopology>,
}

/// Where a placement stands that was put off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayedTopology {
    /// It waits for admission checks.
    Pending,
    /// It was done.
    Ready,
}

/// The pod set of a workload slice that is being replaced.
#[derive(Clone, Copy, Debug)]
pub struct ReplacedPodSet<'a> {
    /// How many pods it had.
    pub count: i32,
    /// What they used.
    pub requests: &'a [(ResourceId, i64)],
    /// Where, by resource. The new slice must use the same.
    pub flavors: &'a [(ResourceId, FlavorId)],
}

/// A pod set to assign flavors to.
#[derive(Clone, Copy, Debug)]
pub struct PodSetRequest<'a> {
    /// How many pods.
    pub count: i32,
    /// The fewest that are of use, for partial admission.
    pub min_count: Option<i32>,
    /// What `count` pods ask for together, in [`ResourceOrder`](crate::ResourceOrder).
    pub requests: &'a [(ResourceId, i64)],
    /// Pod sets of the same number are given the same flavors; any numbering will do.
    pub group: Option<u32>,
    /// Which flavors suit its pods.
    pub eligibility: &'a Eligibility,
    /// What it asks of topology.
    pub topology: TopologyDemand,
    /// The resources that the pod's own spec asks for, in any order.
    pub pod_resources: &'a [ResourceId],
    /// What an earlier pass gave it.
    pub seed: Option<Seed<'a>>,
    /// The pod set of the same name in the slice that is being replaced.
    pub replaces: Option<ReplacedPodSet<'a>>,
    /// The flavors it was nominated earlier in the same cycle. Looked at only with [`WorkloadRequest::pinned`].
    pub nominated: &'a [(ResourceId, FlavorId)],
}

/// A workload to assign flavors to.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadRequest<'a> {
    /// Its pod sets, in the order of the spec.
    pub pod_sets: &'a [PodSetRequest<'a>],
    /// How far earlier cycles came; `None` to start at the first flavor.
    pub last: Option<&'a LastTried>,
    /// Only the flavors that were nominated may be used: the assignment is computed again because victims overlapped.
    pub pinned: bool,
    /// The flavors that an annotation restricts the workload to, ascending; `None` for all (concurrent admission).
    pub allowed_flavors: Option<&'a [FlavorId]>,
    /// Whether it replaces another slice of the same job.
    pub replaces_slice: bool,
    /// Whether it belongs to an elastic job.
    pub elastic: bool,
    /// Whether a node of its placement failed.
    pub has_unhealthy_nodes: bool,
}

impl<'a> WorkloadRequest<'a> {
    /// A workload with nothing special about it.
    pub fn new(pod_sets: &'a [PodSetRequest<'a>]) -> Self {
        Self {
            pod_sets,
            last: None,
            pinned: false,
            allowed_flavors: None,
            replaces_slice: false,
            elastic: false,
            has_unhealthy_nodes: false,
        }
    }
}
