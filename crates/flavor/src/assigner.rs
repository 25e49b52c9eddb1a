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
        let mut assignment = Assignment {
            pod_sets: Vec::with_capacity(workload.pod_sets.len()),
            mode: Mode::NoFit,
            borrowing: 0,
            usage: Vec::new(),
            no_fit: None,
        };
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
            let result = prepare(context, order, member, pod_set, wanted);
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
        let (earlier, group) = assignment.pod_sets.split_at_mut(begin);
        debug_assert!(earlier.len() == begin, "the members of a group stand together");
        for result in group {
            self.hand_out(context, placer, result);
            result.reasons.clone_from(&self.reasons);
            result.attempts.clone_from(&self.attempts);
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
            let question =
                Question { group, resource, members: &self.members, requests: &self.sum, used: &assignment.usage };
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
) -> PodSetResult {
    let seed = pod_set.seed.as_ref().filter(|_| context.features.topology);
    let fixed = pod_set.seed.as_ref().is_some_and(|s| s.topology.is_some());
    let count = wanted.filter(|_| !fixed).unwrap_or(pod_set.count);
    let mut requests: Requests = Vec::with_capacity(pod_set.requests.len().saturating_add(1));
    requests.extend(pod_set.requests.iter().map(|&(r, q)| (r, scaled(q, pod_set.count, count))));
    if let Some(pods) = context.cluster_queue.pods {
        set(order, &mut requests, pods, i64::from(count));
    }
    let seeded = |s: &crate::SeedFlavor| FlavorChoice {
        resource: s.resource,
        flavor: s.flavor,
        pair: s.pair,
        mode: Mode::Fit,
        borrow: 0,
        tried: Some(0),
    };
    PodSetResult {
        pod_set: member,
        count,
        requests,
        flavors: seed.map(|s| s.flavors.iter().map(seeded).collect()).unwrap_or_default(),
        reasons: Vec::new(),
        error: None,
        attempts: Vec::new(),
        topology: seed.and_then(|s| s.topology.cloned()),
        delayed: seed.and_then(|s| s.delayed),
    }
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
