//! Assigning flavors to pod sets.

mod asks;
mod assigner;
mod assignment;
mod eligibility;
mod order;
mod partial;
mod quality;
mod request;
mod search;
mod text;
mod topology;
mod view;

pub use asks::{
    LevelSupport, NoTopology, PlacementFailure, PlacementRequest, PlacementUsage, Placer, Possibility,
    PreemptionOracle, Simulated,
};
pub use assigner::{Assigner, Features};
pub use assignment::{
    Assignment, Attempt, FlavorChoice, Impossible, LastTried, LastTriedFlavors, Mode, NoFitReason, PodSetResult, Reason,
};
pub use eligibility::{Eligibility, Verdict};
pub use order::ResourceOrder;
pub use partial::search_counts;
pub use quality::{GranularMode, Quality};
pub use request::{
    DelayedTopology, PodSetRequest, ReplacedPodSet, Requests, Seed, SeedFlavor, TopologyDemand, WorkloadRequest,
};
pub use text::Catalogue;
pub use topology::{additional_domains, placement_requests};
pub use view::{ClusterQueueView, FlavorTable, GroupFlavor, GroupView, UndeclaredResources};
