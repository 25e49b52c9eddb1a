//! A real Kubernetes control plane on loopback and what tests of a controller need around it.
//!
//! [`build`] makes the programs from pinned Go modules, [`cluster`] starts them, [`gke`] plays what only Google's cloud has:
//! nodes, kubelets, the autoscaler, DWS, the Ray dashboard. [`observe`] watches all of it and says which rules were broken.
//! `cargo run -p xtask -- e2e` runs the tests.
#![expect(clippy::disallowed_methods, reason = "programs that run for real go by the clock")]

pub mod api;
pub mod audit;
pub mod build;
pub mod certificates;
mod clean;
pub mod cluster;
mod error;
pub mod gke;
pub mod guard;
pub mod kubectl;
pub mod manifest;
pub mod observe;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod slicegate;
pub mod wait;

pub use error::{Context, Error, Result};
pub use kube::Client;
pub use serde_json::{Value, json};
