//! What the assigner asks of the layers above.

use slicegate_quota::{Amount, FlavorId, FlavorResourceId, Forest};
use slicegate_workload::TopologyAssignment;

use crate::{PodSetResult, SlicesMissing};

/// What preemption could do for one pair, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Possibility {
    /// No set of victims makes room.
    NoCandidates,
    /// Some victims would be of the own ClusterQueue.
    Preempt,
    /// All victims would be of other ClusterQueues.
    Reclaim,
}

impl Possibility {
    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// The answer of a [`PreemptionOracle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simulated {
    /// Whether and where victims could be found.
    pub possibility: Possibility,
    /// How far up the cohort tree the ClusterQueue would have to borrow then.
    pub level: u32,
}

/// Quota as it stands, and what preemption could do about it.
pub trait PreemptionOracle {
    /// The quota forest.
    fn forest(&self) -> &Forest;

    /// What preemption could do if the workload needed `amount` of the pair and nothing else. The forest is left as it was.
    fn simulate(&mut self, pair: FlavorResourceId, amount: Amount) -> Simulated;

    /// Whether whole slices of TPUs can be had for the pod sets `members` in a flavor, beside those that other pod sets of the
    /// same workload were given. `None` if so, or if the flavor is not about whole slices
    /// ([`FlavorSpec::whole_slices`](slicegate_workload::FlavorSpec::whole_slices)); for those who know nothing of slices, always.
    fn slices(&mut self, flavor: FlavorId, members: &[usize], given: &[PodSetResult]) -> Option<SlicesMissing> {
        let _ = (flavor, members, given);
        None
    }

    /// As [`PreemptionOracle::simulate`], with the slices that [`PreemptionOracle::slices`] was asked for last.
    fn simulate_with_slices(&mut self, pair: FlavorResourceId, amount: Amount) -> Simulated {
        self.simulate(pair, amount)
    }
}

/// Whether a flavor's topology has the levels that a pod set asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelSupport {
    /// It has.
    Supported,
    /// It has not.
    MissingLevel,
    /// Nothing is known of the topology.
    Unknown,
}

/// A pod set to find a place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementRequest {
    /// Its position in the spec.
    pub pod_set: usize,
    /// How many pods.
    pub count: i32,
    /// The flavor whose topology to search.
    pub flavor: FlavorId,
    /// It did not ask for a topology; the ClusterQueue has no flavor without.
    pub implied: bool,
    /// Pod sets of the same number and flavor are placed together.
    pub group: Option<u32>,
}

/// Which cluster to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementUsage {
    /// The one in use.
    Current,
    /// One without other workloads: what could be had by preempting them all.
    Empty,
}

/// A pod set for which there is no place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementFailure {
    /// Its position in the spec.
    pub pod_set: usize,
    /// The flavor whose topology was searched.
    pub flavor: FlavorId,
    /// Why, as it is told to users.
    pub message: Box<str>,
}

/// Knows topologies.
pub trait Placer {
    /// Whether there is a topology for the flavor, and it is known.
    fn has_topology(&self, flavor: FlavorId) -> bool;

    /// Whether the topology of a flavor has every level that a pod set asks for.
    fn supports(&self, flavor: FlavorId, pod_set: usize) -> LevelSupport;

    /// Whether placing the pod set in the flavor is put off until admission checks are ready.
    fn is_delayed(&self, flavor: FlavorId, pod_set: usize) -> bool;

    /// Finds places for all of the requests together, or says for which there is none. Places come in the order of the
    /// requests.
    fn place(
        &mut self,
        requests: &[PlacementRequest],
        usage: PlacementUsage,
    ) -> Result<Vec<TopologyAssignment>, PlacementFailure>;
}

/// A [`Placer`] for clusters without topologies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoTopology;

impl Placer for NoTopology {
    fn has_topology(&self, _flavor: FlavorId) -> bool {
        false
    }

    fn supports(&self, _flavor: FlavorId, _pod_set: usize) -> LevelSupport {
        LevelSupport::Unknown
    }

    fn is_delayed(&self, _flavor: FlavorId, _pod_set: usize) -> bool {
        false
    }

    fn place(
        &mut self,
        requests: &[PlacementRequest],
        _usage: PlacementUsage,
    ) -> Result<Vec<TopologyAssignment>, PlacementFailure> {
        match requests.first() {
            None => Ok(Vec::new()),
            Some(first) => Err(PlacementFailure {
                pod_set: first.pod_set,
                flavor: first.flavor,
                message: "there are no topologies".into(),
            }),
        }
    }
}
