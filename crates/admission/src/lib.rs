//! The admission engine.
//!
//! An [`Engine`] is told about ClusterQueues, Cohorts, flavors, LocalQueues and workloads as values, and answers with
//! decisions as values: who is admitted, who is preempted for whom, who waits and why. It does no I/O and reads no clock;
//! every call that depends on time is given the time.
//!
//! How a workload passes through it:
//!
//! 1. [`Engine::set_workload`] puts a pending workload into the queue of its ClusterQueue.
//! 2. [`Engine::cycle`] takes one head of every active ClusterQueue, finds flavors and victims for each, puts them in order
//!    and commits them one after another. Its answer is a list of statuses and evictions to write.
//! 3. The caller writes them and reports back ([`Engine::admission_written`], [`Engine::eviction_written`], [`Engine::decline_written`]), and hands in
//!    each object again as it now stands.
//!
//! ```
//! use slicegate_admission::{Config, Engine, Outcome};
//! use slicegate_quota::Quantity;
//! use slicegate_workload::{
//!     ClusterQueueSpec, Container, FlavorQuotas, FlavorSpec, Key, LabelSelector, LocalQueueSpec, PodSet, PodSpec,
//!     ResourceGroup, ResourceQuota, Timestamp, Workload,
//! };
//!
//! let now = Timestamp::from_seconds(0);
//! let mut engine = Engine::new(Config::new());
//! engine.set_namespace(now, "team", Default::default());
//! engine.set_flavor(now, FlavorSpec { name: "v5e".into(), ..Default::default() });
//! let chips = ResourceQuota { nominal: Quantity::from_units(16), ..Default::default() };
//! engine.set_cluster_queue(now, ClusterQueueSpec {
//!     name: "training".into(),
//!     resource_groups: vec![ResourceGroup {
//!         covered_resources: vec!["google.com/tpu".into()],
//!         flavors: vec![FlavorQuotas { name: "v5e".into(), resources: vec![("google.com/tpu".into(), chips)] }],
//!     }],
//!     namespace_selector: Some(LabelSelector::default()),
//!     ..Default::default()
//! });
//! engine.set_local_queue(now, LocalQueueSpec {
//!     key: Key::new("team", "queue"),
//!     cluster_queue: "training".into(),
//!     ..Default::default()
//! });
//!
//! // Two slices of four hosts with four chips each: 32 chips, of which there are 16.
//! let mut workload = Workload { key: Key::new("team", "large"), ..Default::default() };
//! let mut container = Container::default();
//! container.resources.requests.insert("google.com/tpu".into(), Quantity::from_units(4));
//! workload.spec.queue_name = "queue".into();
//! workload.spec.pod_sets = vec![PodSet {
//!     name: "workers".into(),
//!     count: 8,
//!     pod: PodSpec { containers: vec![container], ..Default::default() },
//!     ..Default::default()
//! }];
//! engine.set_workload(now, workload.clone());
//! let cycle = engine.cycle(now);
//! assert_eq!(cycle.entries[0].outcome, Outcome::NoFit);
//! let why = engine.why(now, &workload.key).unwrap();
//! assert!(why.to_string().contains("google.com/tpu: 32 needed, 16 free, 16 at most"));
//!
//! workload.spec.pod_sets[0].count = 4;
//! engine.set_workload(now, workload);
//! assert!(matches!(engine.cycle(now).entries[0].outcome, Outcome::Admitted { .. }));
//! ```
//!
//! The life cycle of a single workload - reserving, admitting, evicting, putting back, deactivating, finishing - is a set
//! of plain functions in [`lifecycle`], used by the engine and by whoever drives it.

mod config;
mod decision;
mod engine;
mod explain;
pub mod lifecycle;
mod message;
mod report;
mod slices;

pub use config::{AdmissionFairSharing, Config, FairSharing, Gates, UnknownGate, WaitForPodsReady};
pub use decision::{
    Cycle, Entry, Event, EventType, Eviction, Inadmissible, Outcome, Recomputation, Skip, StatusWrite, Victim, Written,
};
pub use engine::{CheckSpec, CohortCycle, Engine, Violation};
pub use explain::{
    Blocker, Cause, Explanation, FlavorExplanation, PodSetExplanation, ResourceExplanation, ResourceLimit, Verdict,
};
pub use report::{
    Activity, ClusterQueueReport, CohortReport, FlavorUsage, InactiveReason, LocalQueueReport, PendingWorkload, Share,
};
pub use slicegate_flavor::{SliceCounts, SliceShortage};
pub use slicegate_preemption::Reason as PreemptionReason;
pub use slices::{NodePool, PoolReport};
