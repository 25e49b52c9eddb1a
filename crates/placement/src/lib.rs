//! Topology-aware placement: which nodes the pods of a workload go to, so that pods that talk to each other lie close together.
//!
//! A *topology* names node labels, coarsest first: a block, a rack in it, a host in that. The nodes of a flavor make up a
//! [`Tree`] of *domains*: each block, each rack of a block, each host of a rack. A pod set may *require* that all its pods lie in
//! one domain of a level, *prefer* it, or be *unconstrained*; and it may be cut into *slices* of so many pods that each lie in one
//! domain, and those into smaller slices. Decisions are those of Kueue, ties and all.
//!
//! # A first placement
//!
//! ```
//! use slicegate_placement::{
//!     Features, HOSTNAME_LABEL, Node, OtherPods, PlacementUsage, PodRequest, PodSetRequest, Reach, Topologies,
//! };
//! use slicegate_quota::Names;
//! use slicegate_workload::{FlavorSpec, PodSpec, Requests, TopologyRequest, TopologySpec};
//!
//! // Two racks of two hosts with four TPU chips each.
//! let node = |rack: &str, host: &str| Node {
//!     name: host.into(),
//!     labels: [("rack".into(), rack.into()), (HOSTNAME_LABEL.into(), host.into())].into(),
//!     ready: true,
//!     allocatable: [("google.com/tpu", 4), ("pods", 110)].into_iter().collect(),
//!     ..Node::default()
//! };
//! let nodes = [node("r1", "a"), node("r1", "b"), node("r2", "c"), node("r2", "d")];
//!
//! let mut names = Names::new();
//! let flavor = FlavorSpec { name: "tpu-v6e".into(), ..FlavorSpec::default() };
//! let levels = vec!["rack".into(), HOSTNAME_LABEL.into()];
//! let mut topologies = Topologies::new(Features::default());
//! topologies.set(&flavor, &TopologySpec { name: "racks".into(), levels }, &nodes, &OtherPods::new(), &mut names);
//!
//! // Two pods that take a host each, in one rack.
//! let requests: Requests = [("google.com/tpu", 4)].into_iter().collect();
//! let one_pod = PodRequest::new(&requests, &mut names);
//! let topology = TopologyRequest { required: Some("rack".into()), ..TopologyRequest::default() };
//! let pod = PodSpec::default();
//! let workers = PodSetRequest {
//!     name: "workers",
//!     count: 2,
//!     pod_request: &one_pod,
//!     pod: &pod,
//!     updates: &[],
//!     topology: Some(&topology),
//!     group: None,
//!     flavor: names.intern_flavor("tpu-v6e"),
//!     previous: None,
//!     replacement: None,
//! };
//! let placements = topologies.place(&[workers], PlacementUsage::Current);
//! let assignment = placements[0].assignment().unwrap();
//! let hosts: Vec<&str> = assignment.domains.iter().map(|d| &*d.values[0]).collect();
//! assert_eq!(hosts, ["a", "b"]);
//!
//! // Once they are counted, a third pod in that rack has no place; the reason is data that prints as users know it.
//! let usage = topologies.usage(workers.flavor, assignment, &one_pod);
//! topologies.add(&usage, Reach::Node);
//! let three = PodSetRequest { count: 3, ..workers };
//! let placements = topologies.place(&[three], PlacementUsage::Current);
//! assert_eq!(
//!     placements[0].failure().unwrap().to_string(),
//!     "topology \"racks\" allows to fit only 2 out of 3 pod(s). Total nodes: 4; excluded: resource \"google.com/tpu\": 2"
//! );
//! ```
//!
//! # What-if
//!
//! Usage is changed in place. A scheduler that tries whether preempting a workload helps takes a [mark](Topologies::mark),
//! [takes usage away](Topologies::take_away), places, and [rolls back](Topologies::rollback). What could be had by preempting
//! everything is asked with [`PlacementUsage::Empty`]. Whether a plan made earlier still fits says [`Topologies::check`].
//!
//! # How it works
//!
//! 1. `counts` counts from the leaves up how many pods, slices and leaders fit in each domain. `leaves` filters leaves by
//!    taints, node selector and affinity if they are single nodes.
//! 2. `search` chooses domains and goes down from them to leaves, in the orders of `order`. `balanced` spreads pods evenly.
//! 3. `group` puts members of a group, elastic workloads and failures together; `replace` moves the pods of a failed node.
//!
//! Domains are numbers into flat arrays; the children of a domain are neighbours. A search allocates nothing by node, and sorts
//! only as far as it reads.
//!
//! Where Kueue would admit a workload without any place because its own counts contradict each other, this crate says that the
//! pods do not fit.

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
mod usage;

pub use assignment::{
    additional, admission_uses_node, assignment_uses_node, merge, pod_count, pod_set_uses_node, truncate,
};
pub use capacity::PlacementUsage;
pub use counts::Counts;
pub use failure::{Exclusions, Failure, LayerFit, Unit};
pub use node::{Node, OtherPod, OtherPods};
pub use order::Profile;
pub use request::{PodRequest, PodSetRequest, Replacement};
pub use topologies::{Features, Mark, Placement, Topologies};
pub use tree::{HOSTNAME_LABEL, Tree, compare_domains, is_within};
pub use usage::{Misfit, Reach, Usage};
