//! The assigner itself.

use slicegate_quota::{Amount, ResourceId};

use crate::assignment::scaled;
use crate::search::{Context, Question, Search};
use crate::{
    Assignment, Attempt, ClusterQueueView, FlavorChoice, Impossible, Mode, NoFitReason, Placer, PodSetRequest,
    PodSetResult, PreemptionOracle, Reason, Requests, ResourceOrder, UndeclaredResources, WorkloadRequest, topology,
};

/// What can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// The ClusterQueue's fungibility policies hold (`FlavorFungibility`); else the best mode wins.
    pub fungibility: bool,
    /// Topologies are looked at (`TopologyAwareScheduling`).
    pub topology: bool,
    /// Elastic jobs may have topologies (`ElasticJobsViaWorkloadSlicesWithTAS`).
    pub elastic_topology: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { fungibility: true, topology: true, elastic_topology: false }
    }
}

/// Assigns flavors to workloads. Holds buffers, so that an assigner that is kept allocates only what it returns.
#[derive(Debug, Default)]
pub struct Assigner {
    features: Features,
    search: Search,
    /// The pod sets that are assigned together, by position in the spec.
    members: Vec<usize>,
    /// What they ask for together.
    sum: Requests,
    /// What they were given.
    chosen: Vec<FlavorChoice>,
    reasons: Vec<Reason>,
    attempts: Vec<Attempt>,
    spare: Spare,
}

/// Parts of assignments that are not needed any more, emptied, to be used again.
#[derive(Debug, Default)]
struct Spare {
    assignments: Vec<Assignment>,
    pod_sets: Vec<PodSetResult>,
}

impl Assigner {
    /// An assigner.
    pub fn new(features: Features) -> Self {
        Self { features, ..Self::default() }
    }

    /// Proposes flavors for a workload in a ClusterQueue.
    ///
    /// `counts` are the numbers of pods to assume, one a pod set; `None` for those of the request.
    pub fn assign(
        &mut self,
        order: &ResourceOrder,
        cluster_queue: &ClusterQueueView,
        workload: &WorkloadRequest<'_>,
        counts: Option<&[i32]>,
        oracle: &mut dyn PreemptionOracle,
        placer: &mut dyn Placer,
    ) -> Assignment {
        let context = Context::new(cluster_queue, workload, self.features, &*placer);
        let mut assignment = self.spare.assignments.pop().unwrap_or_else(|| Assignment {
            pod_sets: Vec::with_capacity(workload.pod_sets.len()),
            mode: Mode::NoFit,
            borrowing: 0,
            usage: Vec::new(),
            no_fit: None,
        });
        let mut complete = true;
        for first in 0..workload.pod_sets.len() {
            if !self.gather(workload, first) {
                continue;
            }
            self.assign_group(&context, order, counts, oracle, placer, &mut assignment);
            let assigned = assignment.pod_sets.len().saturating_sub(self.members.len());
            // [quirk] A pod set that asks only for what is not counted has no flavors and ends the assignment here, although
            // it fits.
            let failed = |p: &PodSetResult| p.error.is_some() || (!p.requests.is_empty() && p.flavors.is_empty());
            if assignment.pod_sets.get(assigned..).is_some_and(|group| group.iter().any(failed)) {
                complete = false;
                break;
            }
        }
        assignment.mode = assignment.pod_sets.iter().map(PodSetResult::mode).min().unwrap_or(Mode::NoFit);
        if complete && self.features.topology && assignment.mode != Mode::NoFit {
            topology::place(&context, placer, &mut assignment);
        }
        if assignment.mode == Mode::NoFit {
            assignment.no_fit = no_fit_reason(cluster_queue, &assignment.pod_sets);
        }
        assignment
    }

    /// Takes back an assignment that is not needed any more, so that later ones use its memory.
    pub fn recycle(&mut self, mut assignment: Assignment) {
        for mut result in assignment.pod_sets.drain(..) {
            result.requests.clear();
            result.flavors.clear();
            result.reasons.clear();
            result.attempts.clear();
            self.spare.pod_sets.push(result);
        }
        assignment.mode = Mode::NoFit;
        assignment.borrowing = 0;
        assignment.usage.clear();
        assignment.no_fit = None;
        self.spare.assignments.push(assignment);
    }

    /// Collects the pod sets of a group at its first member; `false` at the others.
    fn gather(&mut self, workload: &WorkloadRequest<'_>, first: usize) -> bool {
        self.members.clear();
        self.members.push(first);
        let Some(group) = workload.pod_sets.get(first).and_then(|p| p.group) else { return true };
        let is_member = |p: &PodSetRequest<'_>| p.group == Some(group);
        let before = workload.pod_sets.get(..first).unwrap_or_default();
        if before.iter().any(is_member) {
            return false;
        }
        let after = workload.pod_sets.iter().enumerate().skip(first.saturating_add(1));
        self.members.extend(after.filter(|(_, p)| is_member(p)).map(|(i, _)| i));
        true
    }

    fn assign_group(
        &mut self,
        context: &Context<'_>,
        order: &ResourceOrder,
        counts: Option<&[i32]>,
        oracle: &mut dyn PreemptionOracle,
        placer: &dyn Placer,
        assignment: &mut Assignment,
    ) {
        let begin = assignment.pod_sets.len();
        self.sum.clear();
        self.chosen.clear();
        self.reasons.clear();
        self.attempts.clear();
        for &member in &self.members {
            let Some(pod_set) = context.workload.pod_sets.get(member) else { continue };
            let wanted = counts.and_then(|c| c.get(member)).copied();
            let spare = self.spare.pod_sets.pop();
            let result = prepare(context, order, member, pod_set, wanted, spare);
            for &(resource, quantity) in &result.requests {
                match self.sum.iter_mut().find(|(r, _)| *r == resource) {
                    Some((_, sum)) => *sum = sum.saturating_add(quantity),
                    None => self.sum.push((resource, quantity)),
                }
            }
            for choice in &result.flavors {
                match self.chosen.iter_mut().find(|c| c.resource == choice.resource) {
                    Some(slot) => *slot = *choice,
                    None => self.chosen.push(*choice),
                }
            }
            assignment.pod_sets.push(result);
        }
        if self.members.len() > 1 {
            order.sort(&mut self.sum);
        }
        let error = self.choose(context, oracle, placer, assignment).err();
        for result in assignment.pod_sets.iter_mut().skip(begin) {
            self.hand_out(context, placer, result);
            if self.members.len() == 1 {
                std::mem::swap(&mut result.reasons, &mut self.reasons);
                std::mem::swap(&mut result.attempts, &mut self.attempts);
            } else {
                result.reasons.clone_from(&self.reasons);
                result.attempts.clone_from(&self.attempts);
            }
            result.error.clone_from(&error);
        }
        add_usage(context, assignment, begin);
    }

    /// Finds flavors for what the group asks for, one resource group after another, until one cannot be had.
    fn choose(
        &mut self,
        context: &Context<'_>,
        oracle: &mut dyn PreemptionOracle,
        placer: &dyn Placer,
        assignment: &Assignment,
    ) -> Result<(), Impossible> {
        for &(resource, quantity) in &self.sum {
            let Some((group, _)) = context.cluster_queue.place(resource) else {
                if quantity == 0 || context.cluster_queue.undeclared == UndeclaredResources::Ignore {
                    continue;
                }
                self.chosen.clear();
                self.reasons.clear();
                self.reasons.push(Reason::Undeclared { resource });
                return Ok(());
            };
            if self.chosen.iter().any(|c| c.resource == resource) {
                continue;
            }
            let question = Question {
                group,
                resource,
                members: &self.members,
                requests: &self.sum,
                used: &assignment.usage,
                given: &assignment.pod_sets,
            };
            let found = self.search.run(context, &question, oracle, placer, &mut self.attempts);
            if found.is_err() || self.search.best.is_empty() {
                self.chosen.clear();
                self.reasons.clear();
            }
            self.reasons.append(&mut self.search.reasons);
            found?;
            if self.search.best.is_empty() {
                return Ok(());
            }
            // Should groups overlap, the later one decides.
            self.chosen.retain(|c| self.search.best.iter().all(|b| b.resource != c.resource));
            self.chosen.append(&mut self.search.best);
        }
        Ok(())
    }

    /// Gives a member the flavors of what it asks for.
    fn hand_out(&self, context: &Context<'_>, placer: &dyn Placer, result: &mut PodSetResult) {
        result.flavors.clear();
        if result.requests.is_empty() {
            // Pods that ask for nothing go where the rest of their group goes.
            let grouped = context.workload.pod_sets.get(result.pod_set).is_some_and(|p| p.group.is_some());
            if grouped && context.features.topology {
                result.flavors.extend(self.chosen.iter().filter(|c| placer.has_topology(c.flavor)));
            }
            return;
        }
        for (resource, _) in &result.requests {
            result.flavors.extend(self.chosen.iter().find(|c| c.resource == *resource));
        }
    }
}

/// A result with what the pod set asks for and what an earlier pass gave it.
fn prepare(
    context: &Context<'_>,
    order: &ResourceOrder,
    member: usize,
    pod_set: &PodSetRequest<'_>,
    wanted: Option<i32>,
    spare: Option<PodSetResult>,
) -> PodSetResult {
    let mut result = spare.unwrap_or_else(PodSetResult::empty);
    let seed = pod_set.seed.as_ref().filter(|_| context.features.topology);
    let fixed = pod_set.seed.as_ref().is_some_and(|s| s.topology.is_some());
    let count = wanted.filter(|_| !fixed).unwrap_or(pod_set.count);
    let requests = &mut result.requests;
    requests.reserve_exact(pod_set.requests.len().saturating_add(1));
    requests.extend(pod_set.requests.iter().map(|&(r, q)| (r, scaled(q, pod_set.count, count))));
    if let Some(pods) = context.cluster_queue.pods {
        set(order, requests, pods, i64::from(count));
    }
    let seeded = |s: &crate::SeedFlavor| FlavorChoice {
        resource: s.resource,
        flavor: s.flavor,
        pair: s.pair,
        mode: Mode::Fit,
        borrow: 0,
        tried: Some(0),
    };
    result.pod_set = member;
    result.count = count;
    result.flavors.extend(seed.iter().flat_map(|s| s.flavors).map(seeded));
    result.error = None;
    result.topology = seed.and_then(|s| s.topology.cloned());
    result.delayed = seed.and_then(|s| s.delayed);
    result
}

fn set(order: &ResourceOrder, requests: &mut Requests, resource: ResourceId, quantity: i64) {
    match requests.binary_search_by(|(r, _)| order.compare(*r, resource)) {
        Ok(at) => requests[at].1 = quantity,
        Err(at) => requests.insert(at, (resource, quantity)),
    }
}

/// Counts what the pod sets from `begin` on were given.
fn add_usage(context: &Context<'_>, assignment: &mut Assignment, begin: usize) {
    for result in assignment.pod_sets.iter().skip(begin) {
        let old = context.workload.pod_sets.get(result.pod_set).and_then(|p| p.replaces.as_ref());
        let old = old.filter(|_| context.workload.replaces_slice);
        for choice in &result.flavors {
            assignment.borrowing = assignment.borrowing.max(choice.borrow);
            let of =
                |list: &[(ResourceId, i64)]| list.iter().find(|(r, _)| *r == choice.resource).map_or(0, |&(_, q)| q);
            let amount = Amount::new(of(&result.requests).saturating_sub(old.map_or(0, |o| of(o.requests))));
            match assignment.usage.iter_mut().find(|(p, _)| *p == choice.pair) {
                Some((_, sum)) => *sum = sum.plus(amount),
                None => assignment.usage.push((choice.pair, amount)),
            }
        }
    }
}

/// The kind of a workload's not fitting: the most severe over its pod sets and resource groups, all of which are needed, of
/// the least severe over the flavors of a group, any of which would do.
fn no_fit_reason(cluster_queue: &ClusterQueueView, pod_sets: &[PodSetResult]) -> Option<NoFitReason> {
    let mut worst = None;
    for pod_set in pod_sets.iter().filter(|p| p.mode() == Mode::NoFit) {
        let undeclared = pod_set.reasons.iter().any(|r| matches!(r, Reason::Undeclared { .. }));
        if pod_set.attempts.is_empty() || undeclared {
            worst = worst.max(Some(NoFitReason::NoMatchingFlavor));
        }
        let failed = || pod_set.attempts.iter().filter(|a| a.mode == Mode::NoFit);
        for group in &cluster_queue.groups {
            let of_group = failed().filter(|a| group.flavors.iter().any(|f| f.flavor == a.flavor));
            worst = worst.max(of_group.filter_map(|a| a.no_fit).min());
        }
        let elsewhere =
            failed().filter(|a| !cluster_queue.groups.iter().flat_map(|g| &g.flavors).any(|f| f.flavor == a.flavor));
        worst = worst.max(elsewhere.filter_map(|a| a.no_fit).max());
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Desk, Job, NEXT, Pods, STOP, pods};
    use crate::{LastTried, Possibility};

    fn cpu(amount: i64) -> Vec<Pods> {
        vec![pods(1, &[("cpu", amount)])]
    }

    #[test]
    fn the_first_flavor_that_fits_without_borrowing_is_taken() {
        assert_eq!(Desk::two().shown(&cpu(4)), "x:Fit:0, 0");
        assert_eq!(Desk::two().uses("x", "cpu", 1).shown(&cpu(4)), "y:Fit:-1, 0");
    }

    #[test]
    fn borrowing_stops_the_scan_or_does_not() {
        let desk = || Desk::two().lends("x", "cpu", 4).lends("y", "cpu", 8);
        assert_eq!(desk().on(STOP, NEXT).shown(&cpu(6)), "x:Fit:0, 1");
        // y is no better, but the scan has come to its end.
        assert_eq!(desk().on(NEXT, NEXT).shown(&cpu(6)), "x:Fit:-1, 1");
        let six = Desk::new().group(&["cpu"], &[("x", &[4]), ("y", &[6])]).lends("x", "cpu", 4);
        assert_eq!(six.on(NEXT, NEXT).shown(&cpu(6)), "y:Fit:-1, 0");
    }

    #[test]
    fn the_preference_decides_between_borrowing_and_preempting() {
        let desk = || {
            Desk::two().uses("x", "cpu", 2).uses("y", "cpu", 3).lends("y", "cpu", 4).on(NEXT, NEXT).oracle(
                "x",
                "cpu",
                Possibility::Preempt,
                0,
            )
        };
        assert_eq!(desk().shown(&cpu(4)), "y:Fit:-1, 1");
        let mut preferring = desk().preferring_preemption();
        let assignment = preferring.assign(&cpu(4));
        assert_eq!(preferring.show(&assignment), "x:Preempt:-1, 0");
        let reason = "insufficient unused quota for cpu in flavor x, 2m more needed";
        assert_eq!(preferring.reasons(&assignment, 0), [reason]);
        // Where there is nobody to preempt, preference does not help.
        let mut hopeless = desk().on(NEXT, STOP).preferring_preemption();
        hopeless = hopeless.oracle("x", "cpu", Possibility::NoCandidates, 0);
        assert_eq!(hopeless.shown(&cpu(4)), "y:Fit:-1, 1");
    }

    #[test]
    fn preempting_stops_the_scan_if_told_to() {
        let desk = || Desk::two().uses("x", "cpu", 2).oracle("x", "cpu", Possibility::Preempt, 0);
        assert_eq!(desk().on(STOP, STOP).shown(&cpu(4)), "x:Preempt:0, 0");
        assert_eq!(desk().on(STOP, NEXT).shown(&cpu(4)), "y:Fit:-1, 0");
    }

    #[test]
    fn pod_sets_see_what_those_before_them_were_given() {
        let mut desk = Desk::two();
        let assignment = desk.assign(&[pods(1, &[("cpu", 3)]), pods(1, &[("cpu", 3)]), pods(1, &[("cpu", 2)])]);
        assert_eq!(desk.show(&assignment), "x:Fit:0 | y:Fit:-1 | NoFit, 0");
        let text = |f: &str| {
            format!(
                "insufficient quota for cpu in flavor {f}, previously considered podsets requests (3m) + current podset \
                 request (2m) > maximum capacity (4m)"
            )
        };
        assert_eq!(desk.reasons(&assignment, 2), [text("x"), text("y")]);
        assert_eq!(assignment.no_fit, Some(NoFitReason::ExceedsMaxQuota));
    }

    #[test]
    fn a_group_is_assigned_as_one() {
        let group = [pods(1, &[("cpu", 1)]).in_group(0), pods(3, &[("cpu", 3)]).in_group(0), pods(1, &[("cpu", 1)])];
        assert_eq!(Desk::two().shown(&group), "x:Fit:0 | x:Fit:0 | y:Fit:-1, 0");
        // Apart they would be spread over both flavors.
        let apart = [pods(1, &[("cpu", 3)]).in_group(0), pods(1, &[("cpu", 3)]).in_group(1)];
        assert_eq!(Desk::two().shown(&apart), "x:Fit:0 | y:Fit:-1, 0");
        let together = [pods(1, &[("cpu", 3)]).in_group(0), pods(1, &[("cpu", 3)]).in_group(0)];
        assert_eq!(Desk::two().shown(&together), "NoFit | NoFit, 0");
    }

    #[test]
    fn results_come_in_the_order_of_groups() {
        let pod_sets = [pods(1, &[("cpu", 1)]).in_group(0), pods(1, &[("cpu", 1)]), pods(1, &[("cpu", 1)]).in_group(0)];
        let order: Vec<usize> = Desk::two().assign(&pod_sets).pod_sets.iter().map(|p| p.pod_set).collect();
        assert_eq!(order, [0, 2, 1]);
    }

    #[test]
    fn pods_count_where_they_have_a_quota() {
        let mut desk = Desk::new().group(&["cpu"], &[("x", &[10])]).group(&["pods"], &[("p", &[3])]);
        let assignment = desk.assign(&[pods(4, &[("cpu", 4)])]);
        // Only the first group that fails is told of, and pods come before cpu.
        assert_eq!(desk.show(&assignment), "NoFit, 0");
        let reason = "insufficient quota for pods in flavor p, previously considered podsets requests (0) + current \
                      podset request (4) > maximum capacity (3)";
        assert_eq!(desk.reasons(&assignment, 0), [reason]);
        assert_eq!(desk.shown(&[pods(3, &[("cpu", 3)])]), "p:Fit:-1 x:Fit:-1, 0");
        assert_eq!(desk.shown(&[pods(3, &[])]), "p:Fit:-1, 0");
        let usage: Vec<i64> = desk.assign(&[pods(2, &[]), pods(1, &[])]).usage.iter().map(|u| u.1.value()).collect();
        assert_eq!(usage, [3]);
    }

    #[test]
    fn the_first_group_that_fails_is_the_only_one_told_of() {
        let mut desk = Desk::new().group(&["cpu"], &[("x", &[1])]).group(&["memory"], &[("m", &[1])]);
        let assignment = desk.assign(&[pods(1, &[("cpu", 2), ("memory", 2)])]);
        assert_eq!(desk.reasons(&assignment, 0).len(), 1);
        assert!(desk.reasons(&assignment, 0)[0].contains("memory in flavor m"));
    }

    #[test]
    fn what_no_group_covers_blocks_or_is_ignored() {
        let asks = [pods(1, &[("cpu", 1), ("gpu", 1)])];
        let mut desk = Desk::two();
        let assignment = desk.assign(&asks);
        assert_eq!(desk.show(&assignment), "NoFit, 0");
        assert_eq!(desk.reasons(&assignment, 0), ["resource gpu unavailable in ClusterQueue"]);
        assert_eq!(assignment.no_fit, Some(NoFitReason::NoMatchingFlavor));
        assert_eq!(Desk::two().shown(&[pods(1, &[("cpu", 1), ("gpu", 0)])]), "x:Fit:0, 0");
        let mut desk = Desk::two();
        desk.undeclared = UndeclaredResources::Ignore;
        assert_eq!(desk.shown(&asks), "x:Fit:0, 0");
    }

    #[test]
    fn a_pod_set_without_flavors_ends_the_assignment_though_it_fits() {
        let assignment = Desk::two().assign(&[pods(1, &[("gpu", 0)]), pods(1, &[("cpu", 1)])]);
        assert_eq!((assignment.pod_sets.len(), assignment.mode), (1, Mode::Fit));
        let assignment = Desk::two().assign(&[pods(1, &[]), pods(1, &[("cpu", 1)])]);
        assert_eq!((assignment.pod_sets.len(), assignment.mode), (2, Mode::Fit));
    }

    #[test]
    fn nothing_at_all_does_not_fit() {
        assert_eq!(Desk::two().assign(&[]).mode, Mode::NoFit);
    }

    #[test]
    fn resources_of_a_group_share_a_flavor() {
        let mut desk = Desk::new().group(&["cpu", "memory"], &[("x", &[4, 1]), ("y", &[4, 4])]);
        assert_eq!(desk.shown(&[pods(1, &[("cpu", 2), ("memory", 2)])]), "y:Fit:-1 y:Fit:-1, 0");
        let mut apart = Desk::new().group(&["cpu"], &[("x", &[4])]).group(&["memory"], &[("m", &[4])]);
        assert_eq!(apart.shown(&[pods(1, &[("cpu", 2), ("memory", 2)])]), "m:Fit:-1 x:Fit:-1, 0");
    }

    #[test]
    fn all_reasons_of_a_flavor_are_told() {
        let mut desk = Desk::new().group(&["cpu", "memory"], &[("x", &[1, 1])]);
        let assignment = desk.assign(&[pods(1, &[("cpu", 2), ("memory", 2)])]);
        assert_eq!(desk.reasons(&assignment, 0).len(), 2);
    }

    #[test]
    fn the_scan_goes_on_where_it_stopped() {
        let mut desk = Desk::new().group(&["cpu"], &[("x", &[4]), ("y", &[4]), ("z", &[4])]);
        let mut job = Job::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let assignment = desk.assign_job(&cpu(1), &job);
            seen.push(desk.show(&assignment));
            let last = LastTried { flavors: assignment.last_tried(), ..LastTried::default() };
            assert_eq!(last.has_pending(), seen.len() != 3);
            job.last = Some(last);
        }
        assert_eq!(seen, ["x:Fit:0, 0", "y:Fit:1, 0", "z:Fit:-1, 0", "x:Fit:0, 0"]);
    }

    #[test]
    fn a_scan_that_stopped_at_a_flavor_that_is_gone_begins_anew() {
        let mut desk = Desk::two();
        let cpu_id = desk.names.intern_resource("cpu");
        for at in [1, 2, u32::MAX] {
            let last = LastTried { flavors: vec![vec![(cpu_id, Some(at))]], ..LastTried::default() };
            let assignment = desk.assign_job(&cpu(1), &Job { last: Some(last), ..Job::default() });
            assert_eq!(desk.show(&assignment), "x:Fit:0, 0");
        }
    }

    #[test]
    fn without_fungibility_the_best_mode_wins_and_nothing_is_remembered() {
        let mut desk = Desk::two().uses("x", "cpu", 2).lends("x", "cpu", 1);
        desk.features.fungibility = false;
        let job = Job {
            last: Some(LastTried {
                flavors: vec![vec![(desk.names.intern_resource("cpu"), Some(0))]],
                ..LastTried::default()
            }),
            ..Job::default()
        };
        let assignment = desk.assign_job(&cpu(3), &job);
        assert_eq!(desk.show(&assignment), "x:Fit:0, 1");
        assert_eq!(desk.shown(&cpu(4)), "y:Fit:0, 0");
    }

    #[test]
    fn progress_is_lost_when_the_request_or_the_quotas_change() {
        let last = LastTried { generation: 5, cycle: 10, hash: Some(1), ..LastTried::default() };
        assert!(!last.is_outdated(9, 11, Some(1), true), "the next cycle goes on");
        assert!(last.is_outdated(9, 12, Some(1), true));
        assert!(!last.is_outdated(5, 99, Some(1), true));
        assert!(last.is_outdated(5, 11, Some(2), true));
        assert!(!last.is_outdated(5, 11, None, true));
        assert!(last.is_outdated(6, 11, Some(1), false));
        assert!(!last.is_outdated(5, 99, Some(2), false));
    }

    #[test]
    fn a_recomputed_assignment_keeps_to_what_was_nominated() {
        let pinned = Job { pinned: true, ..Job::default() };
        let mut asks = cpu(1);
        asks[0].nominated = vec![("cpu", "y")];
        let mut desk = Desk::two();
        let assignment = desk.assign_job(&asks, &pinned);
        assert_eq!(desk.show(&assignment), "y:Fit:-1, 0");
        let assignment = desk.assign_job(&cpu(1), &pinned);
        assert_eq!(
            desk.reasons(&assignment, 0)[0],
            "skipping flavor x as it is not found in the nomination mapping for resource cpu"
        );
    }

    #[test]
    fn an_annotation_may_rule_flavors_out() {
        let job = Job { allowed: Some(vec!["y"]), ..Job::default() };
        let mut desk = Desk::two();
        let assignment = desk.assign_job(&cpu(1), &job);
        assert_eq!(desk.show(&assignment), "y:Fit:-1, 0");
        let assignment = desk.assign_job(&cpu(9), &job);
        assert_eq!(
            desk.reasons(&assignment, 0)[0],
            "skipping flavor x due to WorkloadAllowedResourceFlavorAnnotation annotation"
        );
    }

    #[test]
    fn a_new_slice_needs_only_what_it_adds_in_the_flavor_of_the_old_one() {
        let mut asks = vec![pods(3, &[("cpu", 6)])];
        asks[0].replaces = Some((2, vec![("cpu", 4)], vec![("cpu", "y")]));
        let mut desk = Desk::two().uses("y", "cpu", 2);
        let assignment = desk.assign(&asks);
        assert_eq!(desk.show(&assignment), "y:Fit:-1, 0");
        assert_eq!(assignment.usage.iter().map(|u| u.1.value()).collect::<Vec<_>>(), [2]);
        let mut desk = Desk::two().uses("y", "cpu", 3);
        let assignment = desk.assign(&asks);
        assert_eq!(
            desk.reasons(&assignment, 0)[0],
            "could not assign x flavor since the original workload is assigned: y"
        );
    }

    #[test]
    fn fewer_pods_ask_for_less() {
        let job = Job { counts: Some(vec![2]), ..Job::default() };
        let assignment = Desk::two().assign_job(&[pods(3, &[("cpu", 7)])], &job);
        // A pod asks for 7 / 3, cut off.
        assert_eq!((assignment.pod_sets[0].count, assignment.pod_sets[0].requests[0].1), (2, 4));
    }

    #[test]
    fn unused_quota_of_others_in_use_is_waited_for() {
        // No victims are thought of: the queue would borrow, and may not preempt for that.
        let mut desk = Desk::new().group(&["cpu"], &[("x", &[4])]).lends("x", "cpu", 4).uses("x", "cpu", 4);
        let assignment = desk.assign(&cpu(6));
        assert_eq!((assignment.mode, assignment.no_fit), (Mode::NoFit, Some(NoFitReason::WaitingForQuota)));
        desk.spec.preemption.reclaim_within_cohort = slicegate_workload::ReclaimPolicy::Any;
        desk.fair_sharing = true;
        assert_eq!(desk.assign(&cpu(6)).mode, Mode::Preempt);
    }

    #[test]
    fn the_kind_of_not_fitting_is_the_mildest_of_alternatives_and_the_worst_of_needs() {
        let mut desk = Desk::two();
        let gone = desk.flavor("x");
        desk.flavors.remove(gone);
        assert_eq!(desk.assign(&cpu(5)).no_fit, Some(NoFitReason::ExceedsMaxQuota));
        desk = desk.group(&["memory"], &[("m", &[1])]);
        let missing = desk.flavor("m");
        desk.flavors.remove(missing);
        assert_eq!(
            desk.assign(&[pods(1, &[("memory", 1)]), pods(1, &[("cpu", 5)])]).no_fit,
            Some(NoFitReason::NoMatchingFlavor)
        );
    }

    #[test]
    fn what_preemption_must_make_room_for() {
        let mut desk = Desk::new().group(&["cpu"], &[("x", &[4])]).group(&["pods"], &[("p", &[1])]);
        desk = desk.uses("x", "cpu", 4).uses("p", "pods", 1);
        let asks = [pods(1, &[("cpu", 3)])];
        let assignment = desk.assign(&asks);
        assert_eq!(desk.show(&assignment), "p:Preempt:-1 x:Preempt:-1, 0");
        assert_eq!(assignment.preempting().len(), 2);
    }
}
