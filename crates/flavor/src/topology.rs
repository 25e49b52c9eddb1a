//! Finding places for what was assigned.

use slicegate_workload::{TopologyAssignment, TopologyDomain};

use crate::search::Context;
use crate::{
    Assignment, ClusterQueueView, DelayedTopology, Features, Impossible, Mode, NoFitReason, PlacementRequest,
    PlacementUsage, Placer, PodSetRequest, PodSetResult, Reason, TopologyDemand, WorkloadRequest,
};

/// Finds places for the pods of the assignment, where they are asked for.
///
/// Quota that fits but has no place becomes a matter of preemption; if there would be no place even in an empty cluster, the
/// assignment does not fit.
pub(crate) fn place(context: &Context<'_>, placer: &mut dyn Placer, assignment: &mut Assignment) {
    let requests = requests(context, &*placer, assignment);
    if assignment.pod_sets.iter().any(|p| p.error.is_some()) {
        assignment.mode = Mode::NoFit;
        return;
    }
    if requests.is_empty() {
        return;
    }
    if assignment.mode == Mode::Fit {
        match placer.place(&requests, PlacementUsage::Current) {
            Ok(places) => {
                for (request, place) in requests.iter().zip(places) {
                    let Some(result) = result_of(assignment, request.pod_set) else { continue };
                    result.topology = Some(place);
                    if result.delayed == Some(DelayedTopology::Pending) {
                        result.delayed = Some(DelayedTopology::Ready);
                    }
                }
            }
            Err(failure) => {
                if let Some(result) = result_of(assignment, failure.pod_set) {
                    result.reasons.push(Reason::Placement { message: failure.message });
                    result.set_mode(Mode::Preempt);
                }
                assignment.mode = Mode::Preempt;
            }
        }
    }
    if assignment.mode == Mode::Preempt && !context.workload.has_unhealthy_nodes {
        match placer.place(&requests, PlacementUsage::Empty) {
            Ok(_) => {
                for request in &requests {
                    if let Some(result) = result_of(assignment, request.pod_set) {
                        result.set_mode(Mode::Preempt);
                    }
                }
            }
            Err(failure) => {
                if let Some(result) = result_of(assignment, failure.pod_set) {
                    for attempt in result.attempts.iter_mut().filter(|a| a.flavor == failure.flavor) {
                        attempt.mode = Mode::NoFit;
                        attempt.no_fit = Some(NoFitReason::TopologyPlacementFailed);
                    }
                    result.set_mode(Mode::NoFit);
                }
                assignment.mode = Mode::NoFit;
            }
        }
    }
}

/// The pod sets of an assignment for which to find places, in the order of the spec; pods that have places already, and
/// those whose placing is put off, are not among them. Pod sets that cannot have a place get an error, and the assignment no
/// longer fits then.
///
/// [`Assigner::assign`](crate::Assigner::assign) does this itself; it is of use where places are to be found once more for an
/// assignment made earlier.
pub fn placement_requests(
    cluster_queue: &ClusterQueueView,
    workload: &WorkloadRequest<'_>,
    features: Features,
    placer: &dyn Placer,
    assignment: &mut Assignment,
) -> Vec<PlacementRequest> {
    let context = Context::new(cluster_queue, workload, features, placer);
    let requests = requests(&context, placer, assignment);
    if assignment.pod_sets.iter().any(|p| p.error.is_some()) {
        assignment.mode = Mode::NoFit;
    }
    requests
}

/// The domains, and the pods in them, that a placement takes beyond one that is held already: what has to be free for it.
pub fn additional_domains(new: &TopologyAssignment, held: Option<&TopologyAssignment>) -> Vec<TopologyDomain> {
    let held_in = |values: &[Box<str>]| {
        let domains = held.map_or(&[][..], |h| &h.domains);
        domains.iter().filter(|d| *d.values == *values).fold(0_i32, |sum, d| sum.saturating_add(d.count))
    };
    let beyond = new
        .domains
        .iter()
        .map(|d| TopologyDomain { values: d.values.clone(), count: d.count.saturating_sub(held_in(&d.values)) });
    beyond.filter(|d| d.count > 0).collect()
}

fn result_of(assignment: &mut Assignment, pod_set: usize) -> Option<&mut PodSetResult> {
    assignment.pod_sets.iter_mut().find(|p| p.pod_set == pod_set)
}

/// The pod sets to find places for, in the order of the spec. Those that cannot have one get an error.
fn requests(context: &Context<'_>, placer: &dyn Placer, assignment: &mut Assignment) -> Vec<PlacementRequest> {
    let mut requests = Vec::new();
    for (i, pod_set) in context.workload.pod_sets.iter().enumerate() {
        if !pod_set.topology.is_explicit() && !context.topology_only {
            continue;
        }
        let Some(result) = result_of(assignment, i) else { continue };
        let placed = result.topology.is_some() && !pod_set.seed.is_some_and(|s| s.unhealthy);
        if result.error.is_some() || result.count == 0 || placed {
            continue;
        }
        match request(context, placer, i, pod_set, result) {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => result.delayed = Some(DelayedTopology::Pending),
            Err(error) => result.error = Some(error),
        }
    }
    requests
}

/// The request of one pod set; `None` if it is put off.
fn request(
    context: &Context<'_>,
    placer: &dyn Placer,
    position: usize,
    pod_set: &PodSetRequest<'_>,
    result: &PodSetResult,
) -> Result<Option<PlacementRequest>, Impossible> {
    if context.features.elastic_topology && (context.workload.elastic || context.workload.replaces_slice) {
        match pod_set.topology {
            TopologyDemand::Required => return Err(Impossible::RequiredWithElastic),
            TopologyDemand::Preferred => return Err(Impossible::PreferredWithElastic),
            TopologyDemand::None | TopologyDemand::Other => {}
        }
    }
    let mut all = context.cluster_queue.groups.iter().flat_map(|g| &g.flavors);
    if !all.any(|f| placer.has_topology(f.flavor)) {
        return Err(Impossible::NoTopologies);
    }
    let mut flavors: Vec<_> = result.flavors.iter().map(|c| c.flavor).filter(|f| placer.has_topology(*f)).collect();
    flavors.sort_unstable();
    flavors.dedup();
    let flavor = match flavors.as_slice() {
        [] => return Err(Impossible::NoTopologyFlavor),
        [one] => *one,
        _ => return Err(Impossible::SeveralTopologyFlavors(flavors)),
    };
    if placer.is_delayed(flavor, position) {
        return Ok(None);
    }
    Ok(Some(PlacementRequest {
        pod_set: position,
        count: result.count,
        flavor,
        implied: !pod_set.topology.is_explicit(),
        group: pod_set.group,
    }))
}
