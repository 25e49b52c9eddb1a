//! Slicegate's controller on a Kubernetes cluster.
//!
//! What is decided is decided in `slicegate-controller`, which does no I/O. This crate watches objects and tells it what they are,
//! performs the writes that it answers with and tells it how they fared, elects a leader, serves health, metrics and the webhook
//! that converts between the versions of Kueue's API.

mod cache;
mod call;
mod certificates;
mod connect;
mod conversion;
mod driver;
mod events;
mod failpoint;
mod health;
mod http_server;
mod kinds;
mod lease;
mod metrics;
mod ownership;
mod pace;
mod perform;
mod proxies;
mod run;
mod serve;
#[cfg(test)]
mod testing;
mod url;
mod watch;

/// The client type that everything here works with.
pub use ::kube::Client;
pub use certificates::{CertificateError, CertificateSecret, Certificates, SecretError};
pub use connect::{ConnectError, connect};
pub use health::Health;
pub use lease::LeaseOptions;
pub use run::{Options, RunError, run};
pub use serve::{CertificateSource, ServeError, Servers, Serving, WebhookServing, serve};
