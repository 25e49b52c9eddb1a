//! What was assigned.

use slicegate_quota::{Amount, FlavorId, FlavorResourceId, ResourceId};
use slicegate_workload::TopologyAssignment;

use crate::{DelayedTopology, InvalidRequirement, Possibility, Requests, SliceShortage, WorkloadRequest};

/// How good an assignment is, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// It cannot be had.
    NoFit,
    /// It could be had by preemption.
    Preempt,
    /// It would fit once victims chosen earlier in the cycle are gone.
    DeferredFit,
    /// It can be had now.
    Fit,
}

impl Mode {
    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFit => "NoFit",
            Self::Preempt => "Preempt",
            Self::DeferredFit => "DeferredFit",
            Self::Fit => "Fit",
        }
    }
}

/// The flavor that a resource of a pod set was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlavorChoice {
    /// The resource.
    pub resource: ResourceId,
    /// The flavor.
    pub flavor: FlavorId,
    /// Both.
    pub pair: FlavorResourceId,
    /// How it can be had.
    pub mode: Mode,
    /// How far up the cohort tree it borrows: 0 for not at all.
    pub borrow: u32,
    /// The position of the last flavor looked at; `None` (Kueue's -1) if that was the last there is, so that the next scan
    /// starts over.
    pub tried: Option<u32>,
}

/// Why a flavor was not taken, or not as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No resource group covers the resource.
    Undeclared {
        /// The resource.
        resource: ResourceId,
    },
    /// There is no such flavor.
    FlavorNotFound {
        /// The flavor.
        flavor: FlavorId,
    },
    /// The pod set asks for a topology, the flavor has none.
    NoTopology {
        /// The flavor.
        flavor: FlavorId,
    },
    /// The flavor has a topology of which nothing is known yet.
    TopologyUnknown {
        /// The flavor.
        flavor: FlavorId,
    },
    /// The flavor's topology has no level that the pod set asks for.
    NoSuchLevel {
        /// The flavor.
        flavor: FlavorId,
    },
    /// The flavor has a topology, the pod set asks for none.
    TopologyOnly {
        /// The flavor.
        flavor: FlavorId,
    },
    /// A taint is not tolerated.
    UntoleratedTaint {
        /// The flavor.
        flavor: FlavorId,
        /// The taint's position in [`FlavorSpec::node_taints`](slicegate_workload::FlavorSpec).
        taint: u32,
    },
    /// The pod's node selector or affinity excludes the flavor's labels.
    AffinityMismatch {
        /// The flavor.
        flavor: FlavorId,
    },
    /// An earlier nomination of the same cycle was for another flavor.
    NotNominated {
        /// The flavor.
        flavor: FlavorId,
        /// The resource that the scan was for.
        resource: ResourceId,
    },
    /// An annotation restricts the workload to other flavors.
    NotAllowed {
        /// The flavor.
        flavor: FlavorId,
    },
    /// The slice that is replaced uses another flavor.
    SliceUsesAnother {
        /// The flavor.
        flavor: FlavorId,
        /// The flavor that the replaced slice uses; `None` if it does not use the resource.
        replaced: Option<FlavorId>,
    },
    /// More than could be had if nothing else were running.
    ExceedsPotential {
        /// The flavor.
        flavor: FlavorId,
        /// The resource.
        resource: ResourceId,
        /// What pod sets before this one were assigned.
        previous: Amount,
        /// What this one asks for.
        request: Amount,
        /// What could be had.
        potential: Amount,
    },
    /// More than is free.
    Insufficient {
        /// The flavor.
        flavor: FlavorId,
        /// The resource.
        resource: ResourceId,
        /// What is needed, pod sets before this one included.
        needed: Amount,
        /// What is free.
        available: Amount,
        /// What the ClusterQueue owns.
        nominal: Amount,
        /// What could be had if nothing else were running.
        potential: Amount,
    },
    /// No place was found; the words are those of whoever looked.
    Placement {
        /// Why.
        message: Box<str>,
    },
    /// Quota aside, there are not enough whole slices.
    Slices {
        /// The flavor.
        flavor: FlavorId,
        /// What is missing.
        shortage: Box<SliceShortage>,
    },
}

/// Why a pod set cannot be assigned at all, whatever the quota.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Impossible {
    /// Its node affinity makes no sense.
    InvalidAffinity(InvalidRequirement),
    /// It asks for a topology in a ClusterQueue without any.
    NoTopologies,
    /// It asks for a topology and was given no flavor that has one.
    NoTopologyFlavor,
    /// It was given several flavors that have topologies.
    SeveralTopologyFlavors(Vec<FlavorId>),
    /// An elastic job cannot require a level.
    RequiredWithElastic,
    /// An elastic job cannot prefer a level.
    PreferredWithElastic,
}

/// The kind of a workload's not fitting, least severe first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoFitReason {
    /// Quota suffices, places do not.
    TopologyPlacementFailed,
    /// Quota is in use.
    WaitingForQuota,
    /// More than could ever be had.
    ExceedsMaxQuota,
    /// No flavor suits.
    NoMatchingFlavor,
}

impl NoFitReason {
    /// The reason of the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopologyPlacementFailed => "TopologyPlacementFailed",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::NoMatchingFlavor => "NoMatchingFlavor",
        }
    }
}

/// What came of looking at one flavor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The flavor.
    pub flavor: FlavorId,
    /// The worst mode over the resources.
    pub mode: Mode,
    /// The highest borrowing level over the resources.
    pub borrow: u32,
    /// The least that preemption could do over the resources for which it was simulated.
    pub possibility: Option<Possibility>,
    /// Why it was not better.
    pub reasons: Vec<Reason>,
    /// The kind of its not fitting.
    pub no_fit: Option<NoFitReason>,
}

/// What a pod set was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodSetResult {
    /// Its position in the spec.
    pub pod_set: usize,
    /// How many pods.
    pub count: i32,
    /// What they use together.
    pub requests: Requests,
    /// A flavor a resource, in the order of `requests`.
    pub flavors: Vec<FlavorChoice>,
    /// Why it is not better. May be non-empty although it fits.
    pub reasons: Vec<Reason>,
    /// Why it is impossible.
    pub error: Option<Impossible>,
    /// The flavors looked at, in that order.
    pub attempts: Vec<Attempt>,
    /// The place of its pods.
    pub topology: Option<TopologyAssignment>,
    /// Whether placing is put off.
    pub delayed: Option<DelayedTopology>,
}

/// What a workload was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// Its pod sets, in the order in which groups of them appear in the spec. Those after one that cannot be assigned are
    /// missing.
    pub pod_sets: Vec<PodSetResult>,
    /// How the whole can be had.
    pub mode: Mode,
    /// The highest borrowing level.
    pub borrowing: u32,
    /// What it would use beyond the slice it replaces, each pair once, in the order of first use.
    pub usage: Vec<(FlavorResourceId, Amount)>,
    /// The kind of its not fitting.
    pub no_fit: Option<NoFitReason>,
}

impl PodSetResult {
    /// Nothing given to the first pod set.
    pub(crate) fn empty() -> Self {
        Self {
            pod_set: 0,
            count: 0,
            requests: Vec::new(),
            flavors: Vec::new(),
            reasons: Vec::new(),
            error: None,
            attempts: Vec::new(),
            topology: None,
            delayed: None,
        }
    }

    /// How the pod set can be had.
    ///
    /// `[quirk]` Without reasons it fits, whatever its flavors say short of not fitting: a flavor can be taken as fitting as a
    /// whole although one resource needs preemption, if borrowing is preferred less than preempting.
    pub fn mode(&self) -> Mode {
        let worst = self.flavors.iter().map(|f| f.mode).min();
        if self.error.is_some() {
            Mode::NoFit
        } else if self.reasons.is_empty() && worst != Some(Mode::NoFit) {
            Mode::Fit
        } else {
            worst.unwrap_or(Mode::NoFit)
        }
    }

    /// The flavor that a resource was given.
    pub fn flavor(&self, resource: ResourceId) -> Option<&FlavorChoice> {
        self.flavors.iter().find(|f| f.resource == resource)
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        for choice in &mut self.flavors {
            choice.mode = mode;
        }
    }
}

impl Assignment {
    /// The last flavors tried, for the next cycle to go on from.
    pub fn last_tried(&self) -> LastTriedFlavors {
        self.pod_sets.iter().map(|p| p.flavors.iter().map(|f| (f.resource, f.tried)).collect()).collect()
    }

    /// Whether some flavor was left to be tried.
    pub fn has_pending(&self) -> bool {
        self.pod_sets.iter().flat_map(|p| &p.flavors).any(|f| f.tried.is_some())
    }

    /// The pairs that can only be had by preemption, each once, ascending.
    pub fn preempting(&self) -> Vec<FlavorResourceId> {
        let all = self.pod_sets.iter().flat_map(|p| &p.flavors).filter(|f| f.mode == Mode::Preempt).map(|f| f.pair);
        let mut pairs: Vec<FlavorResourceId> = all.collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// What preemption has to make room for: of every pair that was assigned, what the workload itself asks for beyond the
    /// slice it replaces, ascending by pair.
    ///
    /// `[quirk]` Unlike [`Assignment::usage`] it leaves out `pods` where they count only because a resource group covers
    /// them, and of a slice it takes the growth in pods rather than in quantities.
    pub fn needed(&self, workload: &WorkloadRequest<'_>) -> Vec<(FlavorResourceId, Amount)> {
        let mut needed: Vec<(FlavorResourceId, Amount)> = Vec::new();
        for result in &self.pod_sets {
            let Some(pod_set) = workload.pod_sets.get(result.pod_set) else { continue };
            let count = match (workload.replaces_slice, &pod_set.replaces) {
                (true, Some(old)) => pod_set.count.saturating_sub(old.count),
                _ => result.count,
            };
            for &(resource, total) in pod_set.requests {
                let quantity = scaled(total, pod_set.count, count);
                let Some(choice) = result.flavor(resource).filter(|_| quantity != 0) else { continue };
                let amount = Amount::new(quantity);
                match needed.binary_search_by_key(&choice.pair, |n| n.0) {
                    Ok(at) => needed[at].1 = needed[at].1.plus(amount),
                    Err(at) => needed.insert(at, (choice.pair, amount)),
                }
            }
        }
        needed
    }
}

/// What a number of pods asks for, given what another number of the same pods does.
pub(crate) fn scaled(total: i64, pods: i32, new_pods: i32) -> i64 {
    if pods == 0 || pods == new_pods { total } else { (total / i64::from(pods)).saturating_mul(i64::from(new_pods)) }
}

/// The last flavor tried, by pod set (in the order of [`Assignment::pod_sets`]) and resource.
pub type LastTriedFlavors = Vec<Vec<(ResourceId, Option<u32>)>>;

/// How far earlier cycles came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LastTried {
    /// The flavors.
    pub flavors: LastTriedFlavors,
    /// The generation of the ClusterQueue's quotas then.
    pub generation: u64,
    /// The scheduling cycle.
    pub cycle: i64,
    /// The hash of what the workload asked for; `None` if not known.
    pub hash: Option<u64>,
}

impl LastTried {
    /// Whether a flavor is left to be tried: the workload is worth another try at once.
    pub fn has_pending(&self) -> bool {
        self.flavors.iter().flatten().any(|(_, tried)| tried.is_some())
    }

    /// Whether the scan has to start over, given how things stand now.
    ///
    /// With `preserve` (Kueue's gate `FlavorFungibilityPreserveScanProgress`) progress is lost if the request has changed, kept
    /// from one cycle to the next, and otherwise lost if quotas have changed; without it only the quotas count.
    pub fn is_outdated(&self, generation: u64, cycle: i64, hash: Option<u64>, preserve: bool) -> bool {
        if preserve {
            if let (Some(then), Some(now)) = (self.hash, hash)
                && then != now
            {
                return true;
            }
            if cycle.saturating_sub(self.cycle) <= 1 {
                return false;
            }
        }
        generation > self.generation
    }
}
