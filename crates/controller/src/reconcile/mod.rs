//! What is done about each kind of object.

mod cycles;
mod job;
mod queues;
mod slices;
mod workload;

pub(crate) use job::controlled_by;
