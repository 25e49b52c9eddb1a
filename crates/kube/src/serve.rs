//! The servers beside the controller: probes, metrics, the conversion webhook.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{CertificateError, CertificateSecret, Certificates, Definitions, SecretError};
use crate::connect::reason;
use crate::health::{Announced, Health};
use crate::http_server::{self, Handler, Limits};
use crate::metrics::Process;
use crate::{conversion, metrics};

/// How often the certificate is looked at, and the API server told anew where the webhook is, in case that definitions come or go.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The same while there is nobody to tell, or it failed just now.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Conversions of many objects side by side.
const LONG_CONVERSIONS: usize = 2;

/// How long the API server may take until it follows a definition that was changed.
const SETTLING: Duration = Duration::from_millis(500);

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
    /// It is in a folder, as `tls.crt` and `tls.key`, and may be replaced there. The API server is told of the authority, if there
    /// is a `ca.crt`.
    Folder(PathBuf),
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
        servers.probes = Some(servers.start("probes", address, None, Limits::SMALL, handler).await?);
    }
    if let Some(address) = serving.metrics {
        let health = health.clone();
        let process = Process::new(serving.lease.as_deref());
        let handler: Handler = Arc::new(move |asked| metrics::answer(health.clone(), process.clone(), asked).boxed());
        servers.metrics = Some(servers.start("metrics", address, None, Limits::SMALL, handler).await?);
    }
    if let Some(webhook) = serving.webhook {
        // Until the Secret is read it shows a certificate that nobody trusts.
        let first = match &webhook.certificates {
            CertificateSource::Folder(folder) => Certificates::from_folder(folder)?,
            CertificateSource::Secret(secret) => Certificates::new(&secret.names)?,
        };
        let (show, shown) = watch::channel(first.acceptor()?);
        let turns = Arc::new(Semaphore::new(LONG_CONVERSIONS));
        let handler: Handler = Arc::new(move |asked| conversion::answer(turns.clone(), asked).boxed());
        let (what, limits) = ("the conversion webhook", Limits::OBJECTS);
        let started = servers.start(what, webhook.address, Some(shown), limits, handler).await?;
        servers.webhook = Some(started);
        health.announce(Announced::NotYet);
        let keeper = Keeper {
            client: client.clone(),
            health: health.clone(),
            webhook,
            current: first,
            settled: false,
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
        limits: Limits,
        handler: Handler,
    ) -> Result<SocketAddr, ServeError> {
        let bound = http_server::listen(address).await;
        let (listener, local) = bound.map_err(|error| ServeError::Address { what, address, error })?;
        tracing::info!(%local, "serving {what}");
        self.tasks.push(tokio::spawn(http_server::serve(listener, tls, limits, handler)));
        Ok(local)
    }
}

/// Keeps the webhook's certificate that of the Secret, and the definitions of Kueue's kinds pointing at the webhook.
struct Keeper {
    client: Client,
    health: Health,
    webhook: WebhookServing,
    current: Certificates,
    /// Whether `current` is from where it should be.
    settled: bool,
    show: watch::Sender<TlsAcceptor>,
    definitions: Definitions,
}

impl Keeper {
    async fn run(mut self) {
        let mut leading = self.health.leading();
        let mut told: Option<usize> = None;
        let mut complained = None;
        let mut again = LOOK_AGAIN;
        loop {
            let leads = *leading.borrow_and_update();
            // Where the service leads to all of them, it does not matter who tells it.
            let waits = self.webhook.url.is_some() && !leads;
            let shown = self.refresh().await;
            let tells = !waits && (self.webhook.url.is_none() || self.health.is_leading());
            let told_now = if self.settled && tells { self.tell().await } else { Ok(None) };
            let trouble = match shown.and(told_now) {
                Ok(count) => {
                    self.announce(leads);
                    if count.is_some() && count != told {
                        tracing::info!(definitions = count, "the API server knows where objects are converted");
                        told = count;
                    }
                    None
                }
                Err(error) => Some(error),
            };
            if trouble.is_some() && trouble != complained {
                tracing::warn!(error = trouble, "v1beta1 objects may not be converted; trying again");
            }
            again = if trouble.is_none() { LOOK_AGAIN } else { again.saturating_mul(2).min(LOOK_EVERY) };
            let well = trouble.is_none() && (waits || told.is_some_and(|count| count > 0));
            complained = trouble;
            tokio::select! {
                () = tokio::time::sleep(if well { LOOK_EVERY } else { again }) => {}
                // Whoever takes the lead tells its own address at once.
                _ = leading.changed() => {}
            }
        }
    }

    /// Says how far the API server was told what would cut watches.
    fn announce(&self, leads: bool) {
        self.health.announce(match self.webhook.url {
            None => Announced::ForAll,
            Some(_) if leads && self.health.is_leading() => Announced::Leader,
            Some(_) => Announced::Standby,
        });
    }

    /// Shows the certificate that is to be shown now. One that cannot be read leaves the one before in place.
    async fn refresh(&mut self) -> Result<(), String> {
        let kept = match &self.webhook.certificates {
            CertificateSource::Secret(secret) => {
                secret.certificates(&self.client).await.map_err(|e: SecretError| e.to_string())?
            }
            CertificateSource::Folder(folder) => {
                Certificates::from_folder(folder).map_err(|error| format!("webhook.certDir: {error}"))?
            }
        };
        if kept != self.current {
            let acceptor = kept.acceptor().map_err(|e| e.to_string())?;
            self.show.send_replace(acceptor);
            self.current = kept;
            if self.settled {
                tracing::info!("the webhook shows another certificate");
            }
        }
        self.settled = true;
        Ok(())
    }

    /// In how many definitions the webhook is written; `None` if there is nothing to tell.
    async fn tell(&mut self) -> Result<Option<usize>, String> {
        if self.current.authority.is_empty() {
            return Ok(None);
        }
        let bundle = STANDARD.encode(self.current.authority.as_bytes());
        let told = self.definitions.tell(&self.client, &bundle, self.webhook.url.as_deref()).await;
        let told = told.map_err(|error| format!("the definitions cannot be changed: {}", reason(&error)))?;
        if told.changed {
            tokio::time::sleep(SETTLING).await;
        }
        Ok(Some(told.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_certificate_that_is_replaced_in_its_folder_is_shown() {
        let folder = std::env::temp_dir().join(format!("slicegate-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |certificates: &Certificates| {
            std::fs::write(folder.join("tls.crt"), &certificates.certificate).unwrap();
            std::fs::write(folder.join("tls.key"), &certificates.key).unwrap();
        };
        let names = ["a".to_owned()];
        let (first, second) = (Certificates::new(&names).unwrap(), Certificates::new(&names).unwrap());
        write(&first);
        let current = Certificates::from_folder(&folder).unwrap();
        assert_eq!(current.authority, "", "none is told");
        let (show, shown) = watch::channel(current.acceptor().unwrap());
        let mut keeper = Keeper {
            client: Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap(),
            health: Health::default(),
            webhook: WebhookServing {
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
                certificates: CertificateSource::Folder(folder.clone()),
                url: None,
            },
            current,
            settled: false,
            show,
            definitions: Definitions::new(),
        };
        keeper.refresh().await.unwrap();
        assert!(!shown.has_changed().unwrap());
        // In the middle of being replaced it does not go together.
        std::fs::write(folder.join("tls.crt"), &second.certificate).unwrap();
        let why = keeper.refresh().await.unwrap_err();
        assert!(why.starts_with("webhook.certDir: "), "{why}");
        assert_eq!(keeper.current.certificate, first.certificate);
        write(&second);
        keeper.refresh().await.unwrap();
        assert!(shown.has_changed().unwrap());
        assert_eq!(keeper.current.certificate, second.certificate);
        std::fs::remove_file(folder.join("tls.key")).unwrap();
        assert!(keeper.refresh().await.unwrap_err().contains("tls.key"));
        assert_eq!(keeper.current.certificate, second.certificate);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
