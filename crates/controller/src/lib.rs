//! Sans-I/O reconciliation: Kubernetes objects in, writes out.
//!
//! The [`Controller`] is told what the API server holds ([`Controller::observe`]) and how its writes fared
//! ([`Controller::complete`]), and answers [`Controller::reconcile`] with the writes, Events and notes that follow. It reads no
//! clock and performs no I/O, so the same controller runs against a real cluster, a simulated one or a recording.

pub mod checks;
mod complaints;
mod config;
mod configuration_file;
mod controller;
mod feed;
mod io;
pub mod jobs;
pub mod keys;
mod marks;
mod merge;
pub mod metrics;
pub mod names;
mod node_pools;
mod nodes;
mod notes;
mod pass;
mod pods;
pub mod podset;
pub mod priority;
mod reconcile;
mod store;
mod timers;
pub mod topology_request;
mod ungate;
mod writes;

pub use config::Configuration;
pub use configuration_file::{
    Address, ConfigurationError, ControllerManager, DEFAULT_NAMESPACE, FromFile, LeaderElection, WebhookCertificate,
    controller_manager, feature_gates, framework, from_file, go_duration, set_feature_gates,
};
pub use controller::Controller;
pub use io::{
    Change, Effects, EventRecord, EventType, Note, Operation, Write, WriteError, WriteId, WriteOutcome, field_manager,
};
pub use jobs::pod_sets_of;
pub use node_pools::{NodePoolError, node_pool};
pub use pass::Pass;
