//! The servers beside the controller: probes, metrics, the conversion webhook.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{CertificateError, CertificateSecret, Certificates, Definitions, SecretError};
use crate::connect::reason;
use crate::health::Health;
use crate::http_server::{self, Handler};
use crate::metrics::Process;
use crate::{conversion, metrics};

/// How often the certificate is looked at, and the API server told anew where the webhook is, in case that definitions come or go.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The same while there is nobody to tell, or it failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where what is served; `None`: it is not.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// `/healthz` and `/readyz`.
    pub probes: Option<SocketAddr>,
    /// `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// The name of the Lease by which a leader is elected, for metrics.
    pub lease: Option<String>,
    /// The conversion webhook.
    pub webhook: Option<WebhookServing>,
}

/// How the conversion webhook is served.
#[derive(Clone, Debug)]
pub struct WebhookServing {
    /// Where.
    pub address: SocketAddr,
    /// The certificate it shows.
    pub certificates: CertificateSource,
    /// The address under which the API server finds it, where it runs outside the cluster. Of several that run the leader tells
    /// its own.
    pub url: Option<String>,
}

/// Where the webhook's certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// It is given. The API server is told of the authority, if there is one.
    Given(Certificates),
    /// It is made by whoever starts first, and kept in a Secret.
    Secret(CertificateSecret),
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
        let handler: Handler = Arc::new(move |asked| std::future::ready(health.probe(&asked)).boxed());
        servers.probes = Some(servers.start("probes", address, None, handler).await?);
    }
    if let Some(address) = serving.metrics {
        let health = health.clone();
        let process = Process::new(serving.lease.as_deref());
        let handler: Handler = Arc::new(move |asked| metrics::answer(health.clone(), process.clone(), asked).boxed());
        servers.metrics = Some(servers.start("metrics", address, None, handler).await?);
    }
    if let Some(webhook) = serving.webhook {
        // Until the Secret is read it shows a certificate that nobody trusts.
        let first = match &webhook.certificates {
            CertificateSource::Given(given) => given.clone(),
            CertificateSource::Secret(secret) => Certificates::new(&secret.names)?,
        };
        let (show, shown) = watch::channel(first.acceptor()?);
        let handler: Handler = Arc::new(|asked| std::future::ready(conversion::handle(&asked)).boxed());
        let started = servers.start("the conversion webhook", webhook.address, Some(shown), handler).await?;
        servers.webhook = Some(started);
        let keeper = Keeper {
            client: client.clone(),
            health: health.clone(),
            webhook,
            current: first,
            show,
            definitions: Definitions::new(),
        };
        servers.tasks.push(tokio::spawn(keeper.run()));
    }
    Ok(servers)
}

impl Servers {
    async fn start(
        &mut self,
        what: &'static str,
        address: SocketAddr,
        tls: Option<watch::Receiver<TlsAcceptor>>,
        handler: Handler,
    ) -> Result<SocketAddr, ServeError> {
        let bound = http_server::listen(address).await;
        let (listener, local) = bound.map_err(|error| ServeError::Address { what, address, error })?;
        tracing::info!(%local, "serving {what}");
        self.tasks.push(tokio::spawn(http_server::serve(listener, tls, handler)));
        Ok(local)
    }
}

/// Keeps the webhook's certificate that of the Secret, and the definitions of Kueue's kinds pointing at the webhook.
struct Keeper {
    client: Client,
    health: Health,
    webhook: WebhookServing,
    current: Certificates,
    show: watch::Sender<TlsAcceptor>,
    definitions: Definitions,
}

impl Keeper {
    async fn run(mut self) {
        let mut told: Option<usize> = None;
        let mut complained = None;
        loop {
            let trouble = match self.look().await {
                Ok(count) => {
                    if count.is_some() && count != told {
                        tracing::info!(definitions = count, "the API server knows where objects are converted");
                        told = count;
                    }
                    None
                }
                Err(error) => Some(error),
            };
            if trouble.is_some() && trouble != complained {
                tracing::warn!(error = trouble, "v1beta1 objects cannot be converted yet");
            }
            let well = trouble.is_none() && told.is_some_and(|count| count > 0);
            complained = trouble;
            // Who waits for the lead looks often, so that its own address is told at once when it leads.
            let waits = self.webhook.url.is_some() && !self.health.is_leading();
            tokio::time::sleep(if well && !waits { LOOK_EVERY } else { LOOK_AGAIN }).await;
        }
    }

    /// In how many definitions the webhook is written; `None` if another tells.
    async fn look(&mut self) -> Result<Option<usize>, String> {
        if let CertificateSource::Secret(secret) = &self.webhook.certificates {
            let kept = secret.certificates(&self.client).await.map_err(|e: SecretError| e.to_string())?;
            if kept != self.current {
                let acceptor = kept.acceptor().map_err(|e| e.to_string())?;
                self.show.send_replace(acceptor);
                self.current = kept;
            }
        }
        let url = self.webhook.url.as_deref();
        if self.current.authority.is_empty() || url.is_some() && !self.health.is_leading() {
            return Ok(None);
        }
        let bundle = STANDARD.encode(self.current.authority.as_bytes());
        let told = self.definitions.tell(&self.client, &bundle, url).await;
        told.map(Some).map_err(|error| format!("the definitions cannot be changed: {}", reason(&error)))
    }
}
