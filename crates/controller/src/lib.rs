//! Sans-I/O reconciliation: Kubernetes objects in, writes out.
//!
//! The [`Controller`] is told what the API server holds ([`Controller::observe`]) and how its writes fared
//! ([`Controller::complete`]), and answers [`Controller::reconcile`] with the writes, Events and notes that follow. It reads no
//! clock and performs no I/O, so the same controller runs against a real cluster, a simulated one or a recording.

mod checks;
mod config;
#[cfg(test)]
mod conformance;
mod controller;
mod feed;
mod io;
mod jobs;
pub mod keys;
mod merge;
mod names;
mod node_pools;
mod notes;
mod owner;
mod podset;
mod priority;
mod reconcile;
mod store;
mod topology_request;

pub use config::Configuration;
pub use controller::Controller;
pub use io::{
    Change, Effects, EventRecord, EventType, Note, Operation, Write, WriteError, WriteId, WriteOutcome, field_manager,
};
pub use node_pools::{NodePoolError, node_pool};
