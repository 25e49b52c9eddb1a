//! Choosing whom to preempt.

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
