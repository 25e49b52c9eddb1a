//! Choosing whom to preempt.

mod memory;
mod plan;
mod planner;
mod world;

pub use memory::{MemoryWorkload, MemoryWorld};
pub use plan::{Config, FairSharing, Guard, Possibility, Preemptor, Reason, Request, Simulation, Target};
pub use planner::Planner;
pub use world::{Holder, LocalQueueUsage, WorkloadRef, World};
