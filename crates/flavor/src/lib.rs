//! Assigning flavors to pod sets.

mod asks;
mod assigner;
mod assignment;
mod eligibility;
mod order;
mod partial;
mod request;
mod view;

pub use asks::{
    LevelSupport, NoTopology, PlacementFailure, PlacementRequest, PlacementUsage, Placer, Possibility,
    PreemptionOracle, Simulated,
};
pub use assigner::{Assigner, Features};
pub use assignment::{
    AssignError, Assignment, Attempt, FlavorChoice, GranularMode, LastTried, LastTriedFlavors, Mode, NoFitReason,
    PodSetResult, Reason,
};
pub use eligibility::{Eligibility, Verdict};
pub use order::ResourceOrder;
pub use partial::search_counts;
pub use request::{DelayedTopology, PodSetRequest, ReplacedPodSet, Requests, Seed, TopologyDemand, WorkloadRequest};
pub use view::{ClusterQueueView, FlavorTable, GroupFlavor, GroupView, UndeclaredResources};
