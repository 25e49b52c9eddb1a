//! Whole slices: which slices of TPUs there are, which are broken, and whether so many more can be had.
//!
//! Quota counts chips, but hardware comes in slices: sixteen free chips are of no use to a slice of 4x4 if they are the good
//! halves of two broken ones. A ResourceFlavor that asks for whole slices
//! ([`FlavorSpec::whole_slices`](slicegate_workload::FlavorSpec::whole_slices)) gives quota to pods that use TPUs only while
//! whole slices of their shape are free or can be provisioned. Kueue has no such thing; flavors that do not ask for it are
//! decided on as Kueue does.
//!
//! A multi-host node pool is one slice, there as a whole or not at all; every node of a single-host pool is a slice. Pools are
//! known from their nodes and from what [`NodePool`] says of pools that have none yet.
//!
//! Nobody says which of several equal slices a job gets before its pods run, so what is held is counted by what it could lie
//! on, and everything fits if it can be dealt out: a maximum flow (`flow`) between what is held and the pools.

mod counts;
mod demand;
mod flow;
mod inventory;
mod pool;
#[cfg(test)]
mod testing;

pub use counts::PoolReport;
pub use pool::NodePool;

pub(crate) use demand::{DemandId, SlicePods};
pub(crate) use inventory::{Inventory, InventoryMark};
