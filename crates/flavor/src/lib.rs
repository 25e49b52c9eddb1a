//! Which kind of capacity each part of a workload gets.
//!
//! A ClusterQueue groups its resources; each group lists *flavors* - kinds of capacity, such as on-demand nodes, spot nodes or a
//! reservation - with a quota for every resource. A workload consists of pod sets. [`Assigner::assign`] finds, for every pod set
//! and resource, the flavor to take it from, and says how it can be had: now ([`Mode::Fit`]), by preempting others
//! ([`Mode::Preempt`]), or not at all ([`Mode::NoFit`]).
//!
//! A flavor is considered if the pods tolerate its taints, accept its labels and ask for a topology that it has. Of the flavors
//! considered, the ClusterQueue's policies ([`FlavorFungibility`](slicegate_workload::FlavorFungibility)) decide which is taken
//! and whether a later one is looked at before borrowing or preempting. Resources of one group always come from one flavor, and
//! so do pod sets of one group, such as the leader and the workers of a set. The rules are Kueue's; where one of them looks
//! accidental, the code says `[quirk]`.
//!
//! Everything is data. An [`Assignment`] carries every flavor that was looked at and every [`Reason`] with the numbers behind it;
//! [`Catalogue`] turns that into the words of conditions and events.
//!
//! # What it asks
//!
//! Two traits ask the layers above: [`PreemptionOracle`], for the quota forest and what preemption could do, and [`Placer`], for
//! topologies. [`NoTopology`] is a placer for clusters that have none.
//!
//! # Dense inputs
//!
//! Names are resolved before they get here. A [`ClusterQueueView`] is built once for a configuration, an [`Eligibility`] once
//! for a pod set and a set of flavors; requests are short vectors in [`ResourceOrder`]. An assignment then compares integers and
//! walks arrays: it hashes nothing and compares no strings. An [`Assigner`] keeps its buffers.
//!
//! # Example
//!
//! ```
//! use slicegate_flavor::{
//!     Assigner, Catalogue, ClusterQueueView, Eligibility, Features, FlavorTable, Mode, NoTopology, PodSetRequest,
//!     Possibility, PreemptionOracle, ResourceOrder, Simulated, TopologyDemand, UndeclaredResources, WorkloadRequest,
//! };
//! use slicegate_quota::{Amount, FlavorResourceId, Forest, Names};
//! use slicegate_workload::{ClusterQueueSpec, FlavorQuotas, FlavorSpec, PodSpec, ResourceGroup, ResourceQuota};
//!
//! /// Nobody is ever preempted.
//! struct Peaceful(Forest);
//!
//! impl PreemptionOracle for Peaceful {
//!     fn forest(&self) -> &Forest {
//!         &self.0
//!     }
//!
//!     fn simulate(&mut self, _pair: FlavorResourceId, _amount: Amount) -> Simulated {
//!         Simulated { possibility: Possibility::NoCandidates, level: 0 }
//!     }
//! }
//!
//! // A ClusterQueue with 8 chips on demand and 16 by flex start.
//! let chips = |n: &str| ResourceQuota { nominal: n.parse().unwrap(), ..ResourceQuota::default() };
//! let flavor = |name: &str, n| FlavorQuotas { name: name.into(), resources: vec![("google.com/tpu".into(), chips(n))] };
//! let spec = ClusterQueueSpec {
//!     name: "research".into(),
//!     resource_groups: vec![ResourceGroup {
//!         covered_resources: vec!["google.com/tpu".into()],
//!         flavors: vec![flavor("on-demand", "8"), flavor("flex-start", "16")],
//!     }],
//!     ..ClusterQueueSpec::default()
//! };
//! let mut names = Names::new();
//! let mut forest = Forest::new();
//! let node = forest.set_cluster_queue("research", spec.node_quota(&mut names));
//! let view = ClusterQueueView::new(node, &spec, UndeclaredResources::Block, false, &mut names);
//! let mut flavors = FlavorTable::new();
//! for name in ["on-demand", "flex-start"] {
//!     flavors.set(names.intern_flavor(name), FlavorSpec { name: name.into(), ..FlavorSpec::default() });
//! }
//!
//! // 4 pods of 4 chips each do not fit on demand.
//! let tpu = names.intern_resource("google.com/tpu");
//! let order = ResourceOrder::new(&names);
//! let eligibility = Eligibility::new(&PodSpec::default(), &flavors);
//! let pod_sets = [PodSetRequest {
//!     count: 4,
//!     min_count: None,
//!     requests: &[(tpu, 16)],
//!     group: None,
//!     eligibility: &eligibility,
//!     topology: TopologyDemand::None,
//!     pod_resources: &[tpu],
//!     seed: None,
//!     replaces: None,
//!     nominated: &[],
//! }];
//! let workload = WorkloadRequest::new(&pod_sets);
//! let mut assigner = Assigner::new(Features::default());
//! let mut oracle = Peaceful(forest);
//! let assignment = assigner.assign(&order, &view, &workload, None, &mut oracle, &mut NoTopology);
//!
//! assert_eq!(assignment.mode, Mode::Fit);
//! assert_eq!(names.flavor_name(assignment.pod_sets[0].flavors[0].flavor), "flex-start");
//! let catalogue = Catalogue { names: &names, flavors: &flavors };
//! assert_eq!(
//!     catalogue.attempts(&assignment, |_| "workers"),
//!     "workers: on-demand(NoFit;insufficient quota for google.com/tpu in flavor on-demand, previously considered podsets \
//!      requests (0) + current podset request (16) > maximum capacity (8))"
//! );
//! ```

mod asks;
mod assigner;
mod assignment;
mod eligibility;
mod order;
mod partial;
mod quality;
mod request;
mod search;
mod slices;
#[cfg(test)]
mod testing;
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
pub use eligibility::{Eligibility, InvalidRequirement, RequirementFault, Verdict};
pub use order::ResourceOrder;
pub use partial::search_counts;
pub use quality::{GranularMode, Quality};
pub use request::{
    DelayedTopology, PodSetRequest, ReplacedPodSet, Requests, Seed, SeedFlavor, TopologyDemand, WorkloadRequest,
};
pub use slices::{SliceCounts, SliceShortage, SlicesMissing};
pub use text::Catalogue;
pub use topology::{additional_domains, placement_requests};
pub use view::{ClusterQueueView, FlavorTable, GroupFlavor, GroupView, UndeclaredResources};
