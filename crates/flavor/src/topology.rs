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

#[cfg(test)]
mod tests {
    use slicegate_workload::{TopologyAssignment, TopologyDomain};

    use super::*;
    use crate::testing::{Desk, Job, Pods, pods};

    fn required(count: i32) -> Pods {
        pods(count, &[("cpu", i64::from(count))]).placed(TopologyDemand::Required)
    }

    /// A flavor `t` with a topology and one without.
    fn desk(now: i32, empty: i32) -> Desk {
        Desk::new().group(&["cpu"], &[("x", &[9]), ("t", &[9])]).places("t", now, empty)
    }

    #[test]
    fn pods_go_to_flavors_that_can_place_them() {
        let mut desk = desk(3, 3);
        let assignment = desk.assign(&[required(2)]);
        assert_eq!(desk.show(&assignment), "t:Fit:-1, 0");
        assert!(assignment.pod_sets[0].topology.is_some());
        let mut plain = Desk::new().group(&["cpu"], &[("t", &[9]), ("x", &[9])]).places("t", 3, 3);
        let assignment = plain.assign(&[pods(1, &[("cpu", 1)])]);
        assert_eq!(plain.show(&assignment), "x:Fit:-1, 0");
        let reasons: Vec<_> = assignment.pod_sets[0].attempts.iter().flat_map(|a| &a.reasons).collect();
        assert_eq!(plain.catalogue().reason(reasons[0]), "Flavor \"t\" supports only TopologyAwareScheduling");
    }

    #[test]
    fn a_flavor_without_the_level_is_refused() {
        let mut desk = desk(3, 3);
        let t = desk.flavor("t");
        desk.rooms.missing_level = vec![t];
        let assignment = desk.assign(&[required(1)]);
        assert_eq!(
            desk.reasons(&assignment, 0),
            [
                "Flavor \"x\" does not support TopologyAwareScheduling",
                "Flavor \"t\" does not contain the requested level"
            ]
        );
        desk.rooms.unknown = vec![t];
        let assignment = desk.assign(&[required(1)]);
        assert_eq!(desk.reasons(&assignment, 0)[1], "Flavor \"t\" information missing in TAS cache");
    }

    #[test]
    fn where_every_flavor_has_a_topology_all_pods_are_placed() {
        let mut desk = Desk::new().group(&["cpu"], &[("t", &[9])]).places("t", 1, 1);
        assert!(desk.assign(&[pods(1, &[("cpu", 1)])]).pod_sets[0].topology.is_some());
        assert_eq!(desk.assign(&[pods(2, &[("cpu", 2)])]).mode, Mode::NoFit);
        desk.features.topology = false;
        assert_eq!(desk.assign(&[pods(2, &[("cpu", 2)])]).mode, Mode::Fit);
    }

    #[test]
    fn without_a_place_it_is_a_matter_of_preemption() {
        let mut desk = desk(1, 2);
        let assignment = desk.assign(&[required(2)]);
        assert_eq!((desk.show(&assignment).as_str(), assignment.mode), ("t:Preempt:-1, 0", Mode::Preempt));
        assert_eq!(desk.reasons(&assignment, 0), ["only 1 of 2"]);
        assert_eq!(assignment.preempting().len(), 1);
    }

    #[test]
    fn without_a_place_in_an_empty_cluster_it_does_not_fit() {
        let mut desk = desk(1, 1);
        let assignment = desk.assign(&[required(2)]);
        assert_eq!((desk.show(&assignment).as_str(), assignment.mode), ("t:NoFit:-1, 0", Mode::NoFit));
        assert_eq!(assignment.no_fit, Some(NoFitReason::TopologyPlacementFailed));
        // A failed node is replaced among what is there, so preempting everybody is not considered.
        let job = Job { has_unhealthy_nodes: true, ..Job::default() };
        assert_eq!(desk.assign_job(&[required(2)], &job).mode, Mode::Preempt);
    }

    #[test]
    fn quota_to_be_preempted_concerns_all_that_are_placed() {
        let mut desk = Desk::new()
            .group(&["cpu"], &[("t", &[9])])
            .group(&["gpu"], &[("u", &[9])])
            .places("t", 0, 9)
            .places("u", 0, 9)
            .uses("u", "gpu", 9);
        let placed = |r| pods(1, &[(r, 1)]).placed(TopologyDemand::Other);
        let assignment = desk.assign(&[placed("cpu"), placed("gpu")]);
        assert_eq!(desk.show(&assignment), "t:Preempt:-1 | u:Preempt:-1, 0");
    }

    #[test]
    fn nothing_is_placed_of_no_pods_or_before_checks_are_ready() {
        let mut desk = desk(0, 0);
        assert_eq!(desk.assign(&[required(0)]).mode, Mode::Fit);
        let t = desk.flavor("t");
        desk.rooms.delayed = vec![t];
        let assignment = desk.assign(&[required(1)]);
        assert_eq!(assignment.mode, Mode::Fit);
        assert_eq!(assignment.pod_sets[0].delayed, Some(DelayedTopology::Pending));
    }

    #[test]
    fn pods_that_ask_for_nothing_follow_their_group() {
        let leader = pods(1, &[]).placed(TopologyDemand::Required).in_group(0);
        let worker = pods(2, &[("cpu", 2)]).placed(TopologyDemand::Required).in_group(0);
        let mut desk = desk(3, 3);
        let assignment = desk.assign(&[leader, worker]);
        assert_eq!(desk.show(&assignment), "t:Fit:-1 | t:Fit:-1, 0");
        let assignment = desk.assign(&[pods(1, &[]).placed(TopologyDemand::Required)]);
        assert_eq!(assignment.pod_sets[0].error, Some(Impossible::NoTopologyFlavor));
    }

    #[test]
    fn what_cannot_be_placed_at_all_is_an_error() {
        let mut none = Desk::two();
        let assignment = none.assign(&[pods(1, &[]).placed(TopologyDemand::Required)]);
        assert_eq!(assignment.pod_sets[0].error, Some(Impossible::NoTopologies));
        assert_eq!(assignment.mode, Mode::NoFit);
        let mut two = Desk::new()
            .group(&["cpu"], &[("t", &[9])])
            .group(&["gpu"], &[("u", &[9])])
            .places("t", 9, 9)
            .places("u", 9, 9);
        let both = pods(1, &[("cpu", 1), ("gpu", 1)]).placed(TopologyDemand::Required);
        let assignment = two.assign(&[both]);
        let error = assignment.pod_sets[0].error.as_ref().unwrap();
        assert_eq!(two.catalogue().impossible(error), "more than one TAS flavor assigned: t, u");
    }

    #[test]
    fn elastic_jobs_cannot_ask_for_a_level() {
        let mut desk = desk(9, 9);
        let elastic = Job { elastic: true, ..Job::default() };
        assert_eq!(desk.assign_job(&[required(1)], &elastic).mode, Mode::Fit);
        desk.features.elastic_topology = true;
        assert_eq!(desk.assign(&[required(1)]).mode, Mode::Fit);
        for (demand, want) in [
            (TopologyDemand::Required, Some(Impossible::RequiredWithElastic)),
            (TopologyDemand::Preferred, Some(Impossible::PreferredWithElastic)),
            (TopologyDemand::Other, None),
        ] {
            let assignment = desk.assign_job(&[pods(1, &[("cpu", 1)]).placed(demand)], &elastic);
            assert_eq!(assignment.pod_sets[0].error, want);
        }
    }

    #[test]
    fn only_what_is_not_held_yet_has_to_be_free() {
        let places = |list: &[(&str, i32)]| TopologyAssignment {
            levels: vec!["node".into()],
            domains: list.iter().map(|&(n, count)| TopologyDomain { values: vec![n.into()], count }).collect(),
        };
        let new = places(&[("a", 3), ("b", 1), ("c", 2)]);
        assert_eq!(additional_domains(&new, None), new.domains);
        let held = places(&[("a", 1), ("b", 4)]);
        assert_eq!(additional_domains(&new, Some(&held)), places(&[("a", 2), ("c", 2)]).domains);
    }
}
