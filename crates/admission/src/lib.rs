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
//! 3. The caller writes them and reports back ([`Engine::admission_written`], [`Engine::eviction_written`]), and hands in
//!    each object again as it now stands.
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

pub use config::{AdmissionFairSharing, Config, FairSharing, Gates, UnknownGate, WaitForPodsReady};
pub use decision::{
    Cycle, Entry, Event, EventType, Eviction, Inadmissible, Outcome, Skip, StatusWrite, Victim, Written,
};
pub use engine::{CheckSpec, CohortCycle, Engine, Violation};
pub use explain::{
    Blocker, Cause, Explanation, FlavorExplanation, PodSetExplanation, ResourceExplanation, ResourceLimit, Verdict,
};
pub use report::{
    Activity, ClusterQueueReport, CohortReport, FlavorUsage, InactiveReason, LocalQueueReport, PendingWorkload, Share,
};
pub use slicegate_preemption::Reason as PreemptionReason;
