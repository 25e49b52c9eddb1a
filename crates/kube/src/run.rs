//! The controller on a cluster: what is seen goes in, what is decided goes out.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use slicegate_controller::Configuration;
use slicegate_controller::metrics::MetricsOptions;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::driver::Driver;
use crate::failpoint::Failpoint;
use crate::health::Health;
use crate::lease::{self, Leads, LeaseOptions};

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is decided and how.
    pub configuration: Configuration,
    /// Which metrics there are; the role of the replica is filled in.
    pub metrics: MetricsOptions,
    /// Leader election; `None`: this is the only one.
    pub lease: Option<LeaseOptions>,
    /// Who this is, in Events.
    pub identity: String,
    /// Requests a second; 0: as many as come.
    pub qps: f32,
    /// Requests at once after a pause.
    pub burst: u32,
    /// Writes side by side.
    pub concurrency: usize,
    /// How long a write may take.
    pub write_timeout: Duration,
}

impl Options {
    /// The defaults of Kueue.
    pub fn new(configuration: Configuration, identity: String) -> Self {
        Self {
            metrics: MetricsOptions {
                wait_for_pods_ready: configuration.engine.wait_for_pods_ready.is_some(),
                ..MetricsOptions::default()
            },
            configuration,
            lease: None,
            identity,
            qps: 300.0,
            burst: 500,
            concurrency: 32,
            write_timeout: Duration::from_secs(5),
        }
    }
}

/// Why the controller cannot run (any longer).
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The environment asks for something that is not understood.
    #[error("{0}")]
    Failpoint(String),
    /// The part that takes part in the election ended.
    #[error("leader election ended unexpectedly")]
    Election,
}

/// Runs until `shutdown` is ready. What was begun is brought to an end then, and the Lease given back.
///
/// # Errors
/// If it cannot run, or not any longer.
pub async fn run(
    client: Client,
    options: Options,
    health: Health,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    tokio::pin!(shutdown);
    let failpoint = Failpoint::from_environment().map_err(RunError::Failpoint)?;
    let (tell, mut leads) = watch::channel::<Leads>(None);
    let campaign = options.lease.clone().map(|lease| tokio::spawn(lease::campaign(client.clone(), lease, tell)));
    let mut driver = Driver::new(client, options, health, failpoint);
    let mut result = Ok(());
    loop {
        let leading: Leads = if campaign.is_some() { *leads.borrow_and_update() } else { Some(far_away()) };
        driver.lead(leading);
        driver.step();
        tokio::select! {
            () = &mut shutdown => break,
            () = driver.turn() => {}
            changed = leads.changed(), if campaign.is_some() => if changed.is_err() {
                result = Err(RunError::Election);
                break;
            },
            () = at(leading), if campaign.is_some() && driver.leads() => {}
        }
    }
    driver.finish().await;
    drop(leads);
    if let Some(campaign) = campaign {
        let _ = campaign.await;
    }
    result
}

/// A time that does not come.
fn far_away() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

/// Waits for a time.
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
