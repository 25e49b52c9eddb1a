//! The servers beside the controller: probes, metrics, the conversion webhook.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;

use crate::certificates::{self, CertificateError, Certificates};
use crate::health::Health;
use crate::http_server::{self, Handler};
use crate::{conversion, metrics};

/// How often the API server is told anew where the webhook is, in case that definitions come or go.
const PUBLISH_EVERY: Duration = Duration::from_secs(30);

/// Where what is served; `None`: it is not.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// `/healthz` and `/readyz`.
    pub probes: Option<SocketAddr>,
    /// `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// The conversion webhook.
    pub webhook: Option<WebhookServing>,
}

/// How the conversion webhook is served.
#[derive(Clone, Debug)]
pub struct WebhookServing {
    /// Where.
    pub address: SocketAddr,
    /// The certificate it shows.
    pub certificates: Certificates,
    /// Whether the API server is told of the authority that vouches for it.
    pub publish: bool,
    /// The address under which the API server finds it, where it runs outside the cluster.
    pub url: Option<String>,
}

/// Why something cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error("{what} cannot be served at {address}: {error}")]
    Address {
        /// What was to be served.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// What is served, until it is dropped.
#[derive(Debug)]
pub struct Servers {
    /// Where probes are answered.
    pub probes: Option<SocketAddr>,
    /// Where metrics are.
    pub metrics: Option<SocketAddr>,
    /// Where the webhook is.
    pub webhook: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Begins to serve.
///
/// # Errors
/// If an address cannot be had, or the certificate cannot be used.
pub async fn serve(client: &Client, serving: Serving, health: &Health) -> Result<Servers, ServeError> {
    let mut servers = Servers { probes: None, metrics: None, webhook: None, tasks: Vec::new() };
    if let Some(address) = serving.probes {
        let health = health.clone();
        let handler: Handler = Arc::new(move |asked| health.probe(&asked));
        servers.probes = Some(servers.start("probes", address, None, handler).await?);
    }
    if let Some(address) = serving.metrics {
        let health = health.clone();
        let handler: Handler = Arc::new(move |asked| metrics::answer(&health, &asked));
        servers.metrics = Some(servers.start("metrics", address, None, handler).await?);
    }
    if let Some(webhook) = serving.webhook {
        let tls = webhook.certificates.acceptor()?;
        let handler: Handler = Arc::new(|asked| conversion::handle(&asked));
        servers.webhook = Some(servers.start("the conversion webhook", webhook.address, Some(tls), handler).await?);
        if webhook.publish {
            let bundle = base64(webhook.certificates.authority.as_bytes());
            servers.tasks.push(tokio::spawn(publish(client.clone(), bundle, webhook.url)));
        }
    }
    Ok(servers)
}

impl Servers {
    async fn start(
        &mut self,
        what: &'static str,
        address: SocketAddr,
        tls: Option<tokio_rustls::TlsAcceptor>,
        handler: Handler,
    ) -> Result<SocketAddr, ServeError> {
        let bound = http_server::listen(address).await;
        let (listener, local) = bound.map_err(|error| ServeError::Address { what, address, error })?;
        tracing::info!(%local, "serving {what}");
        self.tasks.push(tokio::spawn(http_server::serve(listener, tls, handler)));
        Ok(local)
    }
}

/// Keeps the definitions of Kueue's kinds pointing at the webhook.
async fn publish(client: Client, bundle: String, url: Option<String>) {
    let mut told = 0;
    loop {
        match certificates::publish(&client, &bundle, url.as_deref()).await {
            Ok(count) if count != told => {
                tracing::info!(count, "the API server knows where objects are converted");
                told = count;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the API server could not be told where objects are converted"),
        }
        let pause = if told == 0 { Duration::from_secs(1) } else { PUBLISH_EVERY };
        tokio::time::sleep(pause).await;
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
