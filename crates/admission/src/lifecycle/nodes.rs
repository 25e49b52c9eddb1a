//! Which nodes a workload depends on.

use std::collections::BTreeSet;

use slicegate_placement::HOSTNAME_LABEL;
use slicegate_workload::{PodSet, TopologyRequest, Workload};

/// The nodes that the pods of an admitted workload are placed on. Known only where the lowest level of the topology is the
/// hostname; empty for workloads that are not admitted.
///
/// ```
/// use slicegate_admission::lifecycle::assigned_nodes;
/// use slicegate_workload::Workload;
///
/// assert!(assigned_nodes(&Workload::default()).is_empty());
/// ```
pub fn assigned_nodes(workload: &Workload) -> BTreeSet<&str> {
    if !workload.is_admitted() {
        return BTreeSet::new();
    }
    let assignments = workload.status.admission.iter().flat_map(|a| &a.pod_set_assignments);
    assignments
        .filter_map(|a| a.topology_assignment.as_ref())
        .filter(|t| t.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL))
        .flat_map(|t| t.domains.iter().filter_map(|d| d.values.last()))
        .map(|host| &**host)
        .collect()
}

/// Whether a pod set says itself how its pods are to lie to one another. Where all flavors of a ClusterQueue have a topology
/// pods are placed without that.
pub fn requests_topology(pod_sets: &[PodSet]) -> bool {
    let asks = |request: &TopologyRequest| {
        request.required.is_some()
            || request.preferred.is_some()
            || request.unconstrained == Some(true)
            || request.slice_required_topology.is_some()
            || !request.slice_constraints.is_empty()
    };
    pod_sets.iter().filter_map(|p| p.topology_request.as_ref()).any(asks)
}
