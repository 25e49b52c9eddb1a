//! What is done about each kind of object.

mod compose;
mod cycles;
mod gates;
mod job;
mod matching;
mod nodes;
mod prebuilt;
mod queues;
mod slices;
mod start;
mod workload;

pub(crate) use compose::controlled_by;
