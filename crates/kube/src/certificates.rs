//! Certificates for the webhook, of an authority made for the purpose, and telling the API server about it.

use std::sync::Arc;

use http::Method;
use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::call::Call;

/// A certificate, its key, and the authority that vouches for it, all as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates {
    /// The authority's certificate.
    pub authority: String,
    /// The server's.
    pub certificate: String,
    /// The server's key.
    pub key: String,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is nobody's business.
        f.debug_struct("Certificates").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// Why certificates could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// They could not be made.
    #[error("the webhook's certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    /// They cannot be read.
    #[error("the webhook's certificate or key is no PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// They do not go together.
    #[error("the webhook's certificate and key cannot be used: {0}")]
    Use(#[from] tokio_rustls::rustls::Error),
}

impl Certificates {
    /// New ones for a server of these names and addresses.
    ///
    /// # Errors
    /// If a name is none.
    pub fn new(names: &[String]) -> Result<Self, CertificateError> {
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.distinguished_name.push(DnType::CommonName, "slicegate-ca");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let mut server = CertificateParams::new(names.to_vec())?;
        server.distinguished_name.push(DnType::CommonName, names.first().map_or("slicegate", |n| n));
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &issuer)?;
        Ok(Self { authority: authority_certificate.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// What a server needs to speak TLS with them.
    ///
    /// # Errors
    /// If they are no PEM or do not go together.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, CertificateError> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Tells the API server by which authority it knows the webhook: in every definition of Kueue's kinds that is converted.
///
/// # Errors
/// If the definitions cannot be listed or changed.
pub(crate) async fn publish(client: &Client, bundle: &str, url: Option<&str>) -> Result<usize, kube::Error> {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let send = |call: Call| async move {
        let request = call.request().map_err(|e| kube::Error::Service(e.into()))?;
        client.request::<Value>(request).await
    };
    let get =
        Call { method: Method::GET, path: DEFINITIONS.to_owned(), content_type: "application/json", body: Value::Null };
    let list = send(get).await?;
    let mut count = 0;
    for item in list["items"].as_array().into_iter().flatten() {
        let spec = &item["spec"];
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        if spec["group"] != "kueue.x-k8s.io" || spec["conversion"]["strategy"] != "Webhook" {
            continue;
        }
        count += 1;
        let mut client_config = spec["conversion"]["webhook"]["clientConfig"].clone();
        client_config["caBundle"] = bundle.into();
        if let Some(url) = url {
            client_config["url"] = url.into();
            client_config["service"] = Value::Null;
        }
        if spec["conversion"]["webhook"]["clientConfig"] == client_config {
            continue;
        }
        send(Call {
            method: Method::PATCH,
            path: format!("{DEFINITIONS}/{name}?fieldManager=kueue"),
            content_type: "application/merge-patch+json",
            body: json!({"spec": {"conversion": {"webhook": {"clientConfig": client_config}}}}),
        })
        .await?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_go_together() {
        let names = ["127.0.0.1".to_owned(), "kueue-webhook-service.kueue-system.svc".to_owned()];
        let certificates = Certificates::new(&names).unwrap();
        assert!(certificates.acceptor().is_ok());
        assert!(!format!("{certificates:?}").contains("PRIVATE"), "keys are not printed");
        let broken = Certificates { key: certificates.certificate.clone(), ..certificates };
        assert!(broken.acceptor().is_err());
    }
}
