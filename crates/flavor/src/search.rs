//! The scan of one resource group's flavors.

use slicegate_quota::{Amount, FlavorId, FlavorResourceId, ResourceId};

use crate::{
    Attempt, ClusterQueueView, Features, FlavorChoice, GranularMode, GroupFlavor, Impossible, LevelSupport, Mode,
    NoFitReason, Placer, PodSetResult, Possibility, PreemptionOracle, Quality, Reason, SlicesMissing, Verdict,
    WorkloadRequest,
};

/// What stays the same for one workload.
pub(crate) struct Context<'a> {
    pub(crate) cluster_queue: &'a ClusterQueueView,
    pub(crate) workload: &'a WorkloadRequest<'a>,
    pub(crate) features: Features,
    /// Every flavor of the ClusterQueue has a topology: all pods are placed, asked for or not.
    pub(crate) topology_only: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        cluster_queue: &'a ClusterQueueView,
        workload: &'a WorkloadRequest<'a>,
        features: Features,
        placer: &dyn Placer,
    ) -> Self {
        let topology_only = features.topology
            && cluster_queue.groups.iter().flat_map(|g| &g.flavors).all(|f| placer.has_topology(f.flavor));
        Self { cluster_queue, workload, features, topology_only }
    }
}

/// One resource group to be solved for some pod sets together.
pub(crate) struct Question<'a> {
    /// The position of the resource group.
    pub(crate) group: usize,
    /// The resource for which the scan was begun.
    pub(crate) resource: ResourceId,
    /// The pod sets, by position in the spec.
    pub(crate) members: &'a [usize],
    /// What they ask for together.
    pub(crate) requests: &'a [(ResourceId, i64)],
    /// What pod sets before them were given.
    pub(crate) used: &'a [(FlavorResourceId, Amount)],
    /// The pod sets so far, these included.
    pub(crate) given: &'a [PodSetResult],
}

/// Buffers of the scan, and its answer.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The best flavor for each resource; empty if there is none.
    pub(crate) best: Vec<FlavorChoice>,
    /// Why it is not better; empty if it fits.
    pub(crate) reasons: Vec<Reason>,
    current: Vec<FlavorChoice>,
}

/// Why a flavor cannot be considered.
enum Refusal {
    Reason(Reason),
    Impossible(Impossible),
}

impl Search {
    /// Scans the flavors of the group from where the last cycle stopped. Whatever was looked at is added to `attempts`.
    pub(crate) fn run(
        &mut self,
        context: &Context<'_>,
        question: &Question<'_>,
        oracle: &mut dyn PreemptionOracle,
        placer: &dyn Placer,
        attempts: &mut Vec<Attempt>,
    ) -> Result<(), Impossible> {
        self.best.clear();
        self.reasons.clear();
        let Some(group) = context.cluster_queue.groups.get(question.group) else { return Ok(()) };
        let fungibility = &context.cluster_queue.fungibility;
        let mut best = Quality::WORST;
        let mut attempted = None;
        let first = first_flavor(context, question);
        // There were more flavors when the scan stopped there: it begins anew.
        let first = if first < group.flavors.len() { first } else { 0 };
        for at in first..group.flavors.len() {
            attempted = Some(at);
            let flavor = &group.flavors[at];
            if let Some(reason) = ruled_out(context, question, flavor.flavor) {
                self.reasons.push(reason);
                continue;
            }
            match check(context, question, flavor.flavor, placer) {
                Ok(()) => {}
                Err(Refusal::Reason(reason)) => {
                    attempts.push(refused(flavor.flavor, vec![reason.clone()]));
                    self.reasons.push(reason);
                    continue;
                }
                Err(Refusal::Impossible(error)) => {
                    attempts.push(refused(flavor.flavor, Vec::new()));
                    return Err(error);
                }
            }
            let quality = self.weigh(context, question, flavor, oracle, attempts);
            if context.features.fungibility {
                let stop = !quality.is_worth_trying_next(fungibility);
                if stop || quality.is_preferred_over(best, fungibility.preference) {
                    best = quality;
                    std::mem::swap(&mut self.best, &mut self.current);
                }
                if stop {
                    break;
                }
            } else if quality.mode > best.mode {
                best = quality;
                std::mem::swap(&mut self.best, &mut self.current);
                if best.mode == GranularMode::Fit {
                    self.reasons.clear();
                    return Ok(());
                }
            }
        }
        if context.features.fungibility {
            let tried = attempted.filter(|at| at.saturating_add(1) < group.flavors.len());
            let tried = tried.and_then(|at| u32::try_from(at).ok());
            for choice in &mut self.best {
                choice.tried = tried;
            }
            if best.mode == GranularMode::Fit {
                self.reasons.clear();
            }
        }
        Ok(())
    }

    /// Weighs one flavor for all of the resources; leaves the choices in `current`. All resources are looked at even after
    /// one that cannot be had, so that all reasons are told.
    fn weigh(
        &mut self,
        context: &Context<'_>,
        question: &Question<'_>,
        flavor: &GroupFlavor,
        oracle: &mut dyn PreemptionOracle,
        attempts: &mut Vec<Attempt>,
    ) -> Quality {
        let preference = context.cluster_queue.fungibility.preference;
        let first_reason = self.reasons.len();
        let mut quality = Quality::BEST;
        let mut attempt = Attempt {
            flavor: flavor.flavor,
            mode: Mode::Fit,
            borrow: 0,
            possibility: None,
            reasons: Vec::new(),
            no_fit: None,
        };
        self.current.clear();
        for &(resource, total) in question.requests {
            let position = context.cluster_queue.position_in(question.group, resource);
            let Some(&pair) = position.and_then(|at| flavor.pairs.get(at)) else { continue };
            let mut request = total;
            if context.workload.replaces_slice {
                let (rest, mismatch) = beyond_slice(context, question, flavor.flavor, resource, total);
                request = rest;
                if let Some(reason) = mismatch {
                    quality = Quality::WORST;
                    attempt.mode = Mode::NoFit;
                    attempt.no_fit = attempt.no_fit.max(Some(NoFitReason::NoMatchingFlavor));
                    self.reasons.push(reason);
                }
            }
            let previous = question.used.iter().find(|(p, _)| *p == pair).map_or(Amount::ZERO, |(_, a)| *a);
            let found = fits(context.cluster_queue, oracle, flavor.flavor, resource, pair, previous, request);
            attempt.mode = attempt.mode.min(found.quality.mode.mode());
            attempt.borrow = attempt.borrow.max(found.quality.borrow);
            attempt.no_fit = attempt.no_fit.max(found.no_fit);
            attempt.possibility = match (attempt.possibility, found.possibility) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            self.reasons.extend(found.reason);
            if quality.is_preferred_over(found.quality, preference) {
                quality = found.quality;
            }
            if quality.mode != GranularMode::NoFit {
                self.current.push(FlavorChoice {
                    resource,
                    flavor: flavor.flavor,
                    pair,
                    mode: found.quality.mode.mode(),
                    borrow: found.quality.borrow,
                    tried: Some(0),
                });
            }
        }
        if let Some(missing) = oracle.slices(flavor.flavor, question.members, question.given) {
            let found = self.without_slices(context, question, flavor, oracle, missing, &attempt);
            attempt.mode = attempt.mode.min(found.quality.mode.mode());
            attempt.no_fit = attempt.no_fit.max(found.no_fit);
            attempt.possibility = match (attempt.possibility, found.possibility) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            // A place is never as good as quota: what is missing here is missing whatever is preferred.
            quality.mode = quality.mode.min(found.quality.mode);
            self.reasons.extend(found.reason);
            if quality.mode == GranularMode::NoFit {
                self.current.clear();
            }
        }
        attempt.reasons.extend_from_slice(self.reasons.get(first_reason..).unwrap_or_default());
        attempts.push(attempt);
        quality
    }

    /// What is to be done where whole slices are missing: preempt for them, if that can help and quota can be had.
    fn without_slices(
        &mut self,
        context: &Context<'_>,
        question: &Question<'_>,
        flavor: &GroupFlavor,
        oracle: &mut dyn PreemptionOracle,
        missing: SlicesMissing,
        attempt: &Attempt,
    ) -> Weighed {
        let SlicesMissing { resource, if_others_left, shortage } = missing;
        let reason = Some(Reason::Slices { flavor: flavor.flavor, shortage: Box::new(shortage) });
        let position = context.cluster_queue.position_in(question.group, resource);
        let pair = position.and_then(|at| flavor.pairs.get(at)).copied();
        let total = question.requests.iter().find(|(r, _)| *r == resource).map(|&(_, q)| q);
        let (Some(pair), Some(total), true) = (pair, total, if_others_left && attempt.mode != Mode::NoFit) else {
            let quality = Quality { mode: GranularMode::NoFit, borrow: 0 };
            let no_fit = Some(NoFitReason::TopologyPlacementFailed);
            return Weighed { quality, reason, no_fit, possibility: None };
        };
        let mut request = total;
        if context.workload.replaces_slice {
            request = beyond_slice(context, question, flavor.flavor, resource, total).0;
        }
        let previous = question.used.iter().find(|(p, _)| *p == pair).map_or(Amount::ZERO, |(_, a)| *a);
        let answer = oracle.simulate_with_slices(pair, previous.plus(Amount::new(request)));
        for choice in self.current.iter_mut().filter(|c| c.pair == pair) {
            choice.mode = choice.mode.min(Mode::Preempt);
        }
        let quality = Quality { mode: granular(answer.possibility), borrow: 0 };
        Weighed { quality, reason, no_fit: None, possibility: Some(answer.possibility) }
    }
}

/// The flavor to begin with: the one after the last that was tried for the same resource.
fn first_flavor(context: &Context<'_>, question: &Question<'_>) -> usize {
    let recorded = || {
        let last = context.workload.last.filter(|_| context.features.fungibility)?;
        let tried = last.flavors.get(*question.members.first()?)?;
        let (_, at) = tried.iter().find(|(r, _)| *r == question.resource)?;
        usize::try_from((*at)?).ok()?.checked_add(1)
    };
    recorded().unwrap_or(0)
}

/// Flavors that are passed over without a look.
fn ruled_out(context: &Context<'_>, question: &Question<'_>, flavor: FlavorId) -> Option<Reason> {
    let resource = question.resource;
    let nominated =
        |&m: &usize| context.workload.pod_sets.get(m).is_some_and(|p| p.nominated.contains(&(resource, flavor)));
    if context.workload.pinned && !question.members.iter().any(nominated) {
        return Some(Reason::NotNominated { flavor, resource });
    }
    if context.workload.allowed_flavors.is_some_and(|allowed| !allowed.contains(&flavor)) {
        return Some(Reason::NotAllowed { flavor });
    }
    None
}

/// Whether the flavor suits the pods of every member, quota aside.
fn check(context: &Context<'_>, question: &Question<'_>, flavor: FlavorId, placer: &dyn Placer) -> Result<(), Refusal> {
    for &member in question.members {
        let Some(pod_set) = context.workload.pod_sets.get(member) else { continue };
        let verdict = pod_set.eligibility.verdict(flavor);
        if *verdict == Verdict::NotFound {
            return Err(Refusal::Reason(Reason::FlavorNotFound { flavor }));
        }
        if context.features.topology
            && let Some(reason) = topology_mismatch(context, question, member, flavor, placer)
        {
            return Err(Refusal::Reason(reason));
        }
        match verdict {
            Verdict::Suits | Verdict::NotFound => {}
            Verdict::UntoleratedTaint(taint) => {
                return Err(Refusal::Reason(Reason::UntoleratedTaint { flavor, taint: *taint }));
            }
            Verdict::AffinityMismatch => return Err(Refusal::Reason(Reason::AffinityMismatch { flavor })),
            Verdict::InvalidAffinity(error) => {
                return Err(Refusal::Impossible(Impossible::InvalidAffinity(*error)));
            }
        }
    }
    Ok(())
}

fn topology_mismatch(
    context: &Context<'_>,
    question: &Question<'_>,
    member: usize,
    flavor: FlavorId,
    placer: &dyn Placer,
) -> Option<Reason> {
    let pod_set = context.workload.pod_sets.get(member)?;
    let has_topology = pod_set.eligibility.has_topology(flavor);
    if !pod_set.topology.is_explicit() {
        return (has_topology && !context.topology_only).then_some(Reason::TopologyOnly { flavor });
    }
    if !has_topology {
        // Pods that use nothing of this group do not mind that its nodes have no topology.
        let group = context.cluster_queue.groups.get(question.group)?;
        let concerned = pod_set.pod_resources.iter().any(|r| group.resources.contains(r));
        return concerned.then_some(Reason::NoTopology { flavor });
    }
    match placer.supports(flavor, member) {
        LevelSupport::Supported => None,
        LevelSupport::MissingLevel => Some(Reason::NoSuchLevel { flavor }),
        LevelSupport::Unknown => Some(Reason::TopologyUnknown { flavor }),
    }
}

fn refused(flavor: FlavorId, reasons: Vec<Reason>) -> Attempt {
    Attempt {
        flavor,
        mode: Mode::NoFit,
        borrow: 0,
        possibility: None,
        reasons,
        no_fit: Some(NoFitReason::NoMatchingFlavor),
    }
}

/// What is asked for beyond the slice that is replaced, which must have used the same flavor.
fn beyond_slice(
    context: &Context<'_>,
    question: &Question<'_>,
    flavor: FlavorId,
    resource: ResourceId,
    total: i64,
) -> (i64, Option<Reason>) {
    let mut rest = total;
    for &member in question.members {
        let old = context.workload.pod_sets.get(member).and_then(|p| p.replaces.as_ref());
        let replaced = old.and_then(|o| o.flavors.iter().find(|(r, _)| *r == resource)).map(|&(_, f)| f);
        if replaced != Some(flavor) {
            return (rest, Some(Reason::SliceUsesAnother { flavor, replaced }));
        }
        let used = old.and_then(|o| o.requests.iter().find(|(r, _)| *r == resource)).map_or(0, |&(_, q)| q);
        rest = rest.saturating_sub(used);
    }
    (rest, None)
}

fn granular(possibility: Possibility) -> GranularMode {
    match possibility {
        Possibility::NoCandidates => GranularMode::NoPreemptionCandidates,
        Possibility::Preempt => GranularMode::Preempt,
        Possibility::Reclaim => GranularMode::Reclaim,
    }
}

struct Weighed {
    quality: Quality,
    reason: Option<Reason>,
    no_fit: Option<NoFitReason>,
    possibility: Option<Possibility>,
}

/// How an amount of one pair can be had.
fn fits(
    cluster_queue: &ClusterQueueView,
    oracle: &mut dyn PreemptionOracle,
    flavor: FlavorId,
    resource: ResourceId,
    pair: FlavorResourceId,
    previous: Amount,
    request: i64,
) -> Weighed {
    let node = cluster_queue.node;
    let forest = oracle.forest();
    let request = Amount::new(request);
    let needed = previous.plus(request);
    let potential = forest.potential(node, pair);
    if needed > potential {
        return Weighed {
            quality: Quality { mode: GranularMode::NoFit, borrow: 0 },
            reason: Some(Reason::ExceedsPotential { flavor, resource, previous, request, potential }),
            no_fit: Some(NoFitReason::ExceedsMaxQuota),
            possibility: None,
        };
    }
    let (level, may_reclaim) = forest.level(node, pair, needed);
    let available = forest.available(node, pair);
    if needed <= available {
        let quality = Quality { mode: GranularMode::Fit, borrow: level };
        return Weighed { quality, reason: None, no_fit: None, possibility: None };
    }
    let nominal = forest.nominal(node, pair);
    let reason = Some(Reason::Insufficient { flavor, resource, needed, available, nominal, potential });
    if nominal >= needed || may_reclaim || cluster_queue.preempts_while_borrowing {
        let answer = oracle.simulate(pair, needed);
        let quality = Quality { mode: granular(answer.possibility), borrow: answer.level };
        return Weighed { quality, reason, no_fit: None, possibility: Some(answer.possibility) };
    }
    let quality = Quality { mode: GranularMode::NoFit, borrow: level };
    Weighed { quality, reason, no_fit: Some(NoFitReason::WaitingForQuota), possibility: None }
}
