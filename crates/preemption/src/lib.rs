//! Whom to preempt so that a workload fits.
//!
//! A workload that finds its quota in use may preempt: workloads of its own ClusterQueue by priority, and workloads of other
//! ClusterQueues that use more than their own quota. [`Planner::targets`] finds a small set of victims that makes room, or
//! says that there is none.
//!
//! 1. *Candidates* are collected: what the ClusterQueue's policy allows, as far as it uses what is scarce.
//! 2. They are *ordered*: those that are being evicted anyway first, then other ClusterQueues' before the own, then lower
//!    priority, then those that started last; see [`order_candidates`].
//! 3. They are taken one after another until the request fits. A ClusterQueue that is down to its own quota is left alone.
//! 4. Victims that turn out not to be needed are *given back*, the latest first.
//!
//! With [`FairSharing`] a victim is taken from the ClusterQueue whose share of what it borrows is largest, if that is just: two
//! strategies compare its share, before or after, with the preemptor's. The rules are Kueue's, but for the [`Guard`], which
//! keeps plans from contradicting themselves.
//!
//! # The world
//!
//! A plan is made against a [`World`]: a quota forest and workloads that can be removed and restored. The planner tries victims
//! out in place and rolls the world back; nothing is cloned, candidates are sorted only as far as they are taken, and shares are
//! computed again only where usage has changed. [`MemoryWorld`] is a world that stands alone.
//!
//! # Example
//!
//! ```
//! use slicegate_preemption::{Config, MemoryWorkload, MemoryWorld, Planner, Preemptor, Reason, Request};
//! use slicegate_quota::{Amount, Forest, Limits, Names, NodeQuota};
//! use slicegate_workload::{PreemptionPolicy, ReclaimPolicy, Timestamp};
//!
//! // Two teams of 8 chips each share a cohort.
//! let mut names = Names::new();
//! let chips = names.intern("on-demand", "google.com/tpu");
//! let mut forest = Forest::new();
//! let quota = || NodeQuota {
//!     parent: Some("all".into()),
//!     limits: [(chips, Limits { nominal: Amount::new(8), ..Limits::default() })].into(),
//!     ..NodeQuota::default()
//! };
//! let red = forest.set_cluster_queue("red", quota());
//! let blue = forest.set_cluster_queue("blue", quota());
//! let mut world = MemoryWorld::new(forest, names);
//! let policy = PreemptionPolicy { reclaim_within_cohort: ReclaimPolicy::Any, ..PreemptionPolicy::default() };
//! world.set_policy(red, policy);
//!
//! // Blue has borrowed all of red's.
//! let running = |uid: &str, started| MemoryWorkload {
//!     cluster_queue: blue,
//!     priority: 0,
//!     queued_at: Timestamp::from_seconds(0),
//!     reserved_at: Timestamp::from_seconds(started),
//!     evicted: false,
//!     local_queue: None,
//!     usage: vec![(chips, Amount::new(8))],
//!     uid: uid.into(),
//! };
//! world.add(running("first", 100));
//! let last = world.add(running("last", 200));
//!
//! // Red wants 4 chips back.
//! let preemptor =
//!     Preemptor { cluster_queue: red, priority: 0, queued_at: Timestamp::from_seconds(300), local_queue: None };
//! let request =
//!     Request { preemptor, needed: &[(chips, Amount::new(4))], preempting: &[chips], placed: false };
//! let mut planner = Planner::new();
//! let targets = planner.targets(&mut world, &Config::default(), &request);
//! assert_eq!(targets.len(), 1);
//! assert_eq!(targets[0].workload, last);
//! assert_eq!(targets[0].reason, Reason::InCohortReclamation);
//! ```

mod candidate;
mod classical;
mod fair;
mod fits;
mod lazy;
mod memory;
mod plan;
mod planner;
mod share;
#[cfg(test)]
mod testing;
mod text;
mod world;

pub use candidate::{Policy, order_candidates};
pub use fair::order_cluster_queues;
pub use memory::{MemoryWorkload, MemoryWorld};
pub use plan::{Config, FairSharing, Guard, Possibility, Preemptor, Reason, Request, Simulation, Target};
pub use planner::Planner;
pub use text::{Message, path};
pub use world::{Holder, LocalQueueUsage, WorkloadRef, World};
