//! Topology-aware placement.

mod assignment;
mod balanced;
mod capacity;
mod counts;
mod failure;
mod group;
mod leaves;
mod node;
mod order;
mod replace;
mod request;
mod search;
pub mod steps;
mod topologies;
mod tree;

pub use assignment::{
    additional, admission_uses_node, assignment_uses_node, merge, pod_count, pod_set_uses_node, truncate,
};
pub use capacity::PlacementUsage;
pub use counts::Counts;
pub use failure::{Exclusions, Failure, LayerFit, Unit};
pub use node::{Node, OtherPods};
pub use order::Profile;
pub use request::{PodRequest, PodSetRequest, Replacement};
pub use topologies::{Features, Mark, Misfit, Placement, Reach, Topologies, Usage};
pub use tree::{HOSTNAME_LABEL, Tree, compare_domains, is_within};
