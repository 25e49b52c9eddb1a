//! Certificates for the webhook, of an authority made for the purpose, and telling the API server about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use slicegate_api::crd::{ConversionWebhook, WebhookClient};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::call::{self, Call};
use crate::connect::reason;

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
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        error: std::io::Error,
    },
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

    /// Those in a folder: `tls.crt`, `tls.key`, and `ca.crt` if there is one.
    ///
    /// # Errors
    /// If the first two cannot be read.
    pub fn from_folder(folder: &std::path::Path) -> Result<Self, CertificateError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| CertificateError::File { path, error })
        };
        Ok(Self { authority: read("ca.crt").unwrap_or_default(), certificate: read("tls.crt")?, key: read("tls.key")? })
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

/// On the Secret with the webhook's certificate: the names that it is for.
const NAMES: &str = "slicegate.dev/certificate-names";

/// The Secret in which all that run keep the certificate of the webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The names and addresses that the certificate must be for.
    pub names: Vec<String>,
}

impl CertificateSecret {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name)
    }

    fn names(&self) -> String {
        self.names.join(",")
    }

    /// The certificates in it. Where there are none, or none for these names, they are made: of several that do so at once one
    /// is the first, and the others take what it made.
    ///
    /// # Errors
    /// If the Secret cannot be read or written.
    pub(crate) async fn certificates(&self, client: &Client) -> Result<Certificates, SecretError> {
        const ROUNDS: usize = 5;
        for _ in 0..ROUNDS {
            let there = match send(client, Call::get(self.path())).await {
                Ok(secret) => Some(secret),
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                Err(error) => return Err(self.error("read", &reason(&error))),
            };
            if let Some(certificates) = there.as_ref().and_then(|secret| self.usable(secret)) {
                return Ok(certificates);
            }
            let new = Certificates::new(&self.names)?;
            match send(client, self.write(there.as_ref(), &new)).await {
                Ok(_) => return Ok(new),
                // Somebody was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    return Err(self.error("write", &"the namespace does not exist; create it"));
                }
                Err(error) => return Err(self.error("write", &reason(&error))),
            }
        }
        Err(self.error("write", &"others change it all the time"))
    }

    fn error(&self, what: &'static str, why: &dyn std::fmt::Display) -> SecretError {
        let Self { namespace, name, .. } = self;
        SecretError::Secret { what, namespace: namespace.clone(), name: name.clone(), why: why.to_string() }
    }

    fn usable(&self, secret: &Value) -> Option<Certificates> {
        if secret["metadata"]["annotations"][NAMES] != self.names() {
            return None;
        }
        let text = |key: &str| {
            let bytes = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let found = Certificates { authority: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? };
        found.acceptor().is_ok().then_some(found)
    }

    fn write(&self, there: Option<&Value>, new: &Certificates) -> Call {
        let mut secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": {NAMES: self.names()}},
            "data": {
                "ca.crt": STANDARD.encode(&new.authority),
                "tls.crt": STANDARD.encode(&new.certificate),
                "tls.key": STANDARD.encode(&new.key),
            },
        });
        match there {
            None => Call {
                method: Method::POST,
                path: format!("/api/v1/namespaces/{}/secrets?fieldManager=kueue", self.namespace),
                content_type: call::JSON,
                body: secret,
                accept: call::JSON,
            },
            Some(there) => {
                // The type of a Secret never changes, and labels are others' business.
                secret["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
                Call {
                    method: Method::PATCH,
                    path: format!("{}?fieldManager=kueue", self.path()),
                    content_type: "application/merge-patch+json",
                    body: secret,
                    accept: call::JSON,
                }
            }
        }
    }
}

/// Why the Secret with the webhook's certificate is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read or written.
    #[error("cannot {what} Secret {namespace}/{name} with the webhook's certificate: {why}")]
    Secret {
        /// What failed.
        what: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

async fn send(client: &Client, call: Call) -> Result<Value, kube::Error> {
    let request = call.request().map_err(|e| kube::Error::Service(e.into()))?;
    client.request::<Value>(request).await
}

/// The definitions of Kueue's kinds that are converted, as they are told where.
#[derive(Debug)]
pub(crate) struct Definitions {
    names: Vec<String>,
    /// The versions of those that are as they should be.
    well: BTreeMap<String, String>,
    told: Option<(String, Option<String>)>,
}

impl Definitions {
    /// Those that Slicegate has.
    pub(crate) fn new() -> Self {
        let client = WebhookClient::Url(String::new());
        let all = slicegate_api::crd::definitions(&ConversionWebhook { client, ca_bundle: None });
        let converted = all.iter().filter(|d| d["spec"]["conversion"]["strategy"] == "Webhook");
        let names = converted.filter_map(|d| Some(d["metadata"]["name"].as_str()?.to_owned())).collect();
        Self { names, well: BTreeMap::new(), told: None }
    }

    /// Tells the API server by which authority it knows the webhook, and where it is if it runs outside the cluster: in every
    /// definition that is converted by a webhook. In how many that is.
    ///
    /// # Errors
    /// If a definition cannot be read or changed.
    pub(crate) async fn tell(
        &mut self,
        client: &Client,
        bundle: &str,
        url: Option<&str>,
    ) -> Result<usize, kube::Error> {
        let news = (bundle.to_owned(), url.map(str::to_owned));
        if self.told.as_ref() != Some(&news) {
            self.well.clear();
            self.told = Some(news);
        }
        let mut count = 0;
        for name in &self.names {
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            // Schemas are long, and seldom change.
            let metadata = match send(client, Call::get_metadata(path.clone())).await {
                Ok(metadata) => metadata,
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => return Err(error),
            };
            let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
            if version(&metadata).is_some_and(|version| self.well.get(name) == Some(&version)) {
                count += 1;
                continue;
            }
            let mut definition = send(client, Call::get(path.clone())).await?;
            if definition["spec"]["conversion"]["strategy"] != "Webhook" {
                continue;
            }
            let now = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
            if let Some(wanted) = client_config(now, bundle, url) {
                let call = Call {
                    method: Method::PATCH,
                    path: format!("{path}?fieldManager=kueue"),
                    content_type: "application/merge-patch+json",
                    body: json!({"spec": {"conversion": {"webhook": {"clientConfig": wanted}}}}),
                    accept: call::JSON,
                };
                definition = send(client, call).await?;
            }
            count += 1;
            if let Some(version) = version(&definition) {
                self.well.insert(name.clone(), version);
            }
        }
        Ok(count)
    }
}

/// What is to be changed about where a webhook is; `None` if nothing.
fn client_config(now: &Value, bundle: &str, url: Option<&str>) -> Option<Value> {
    let mut wanted = json!({"caBundle": bundle});
    if let Some(url) = url {
        wanted["url"] = url.into();
        wanted["service"] = Value::Null;
    }
    let is_so = |(key, value): (&String, &Value)| now.get(key).unwrap_or(&Value::Null) == value;
    let fields = wanted.as_object()?;
    (!fields.iter().all(is_so)).then_some(wanted)
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

    #[test]
    fn a_secret_is_used_if_it_is_for_these_names() {
        let of = |names: &[&str]| CertificateSecret {
            namespace: "kueue-system".to_owned(),
            name: "cert".to_owned(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        };
        let secret = of(&["a", "b"]);
        let new = Certificates::new(&secret.names).unwrap();
        let made = secret.write(None, &new);
        assert_eq!(made.path, "/api/v1/namespaces/kueue-system/secrets?fieldManager=kueue");
        assert!(secret.usable(&made.body).is_some_and(|found| found == new));
        assert!(of(&["a", "c"]).usable(&made.body).is_none());
        // One that a chart made, with nothing in it.
        let empty = json!({"metadata": {"name": "cert", "resourceVersion": "7"}});
        assert!(secret.usable(&empty).is_none());
        let filled = secret.write(Some(&empty), &new);
        assert_eq!((filled.method, &filled.body["metadata"]["resourceVersion"]), (Method::PATCH, &json!("7")));
    }

    #[test]
    fn a_definition_is_changed_only_if_it_says_something_else() {
        let service = json!({"service": {"name": "s"}, "caBundle": "x"});
        assert_eq!(client_config(&service, "x", None), None);
        assert_eq!(client_config(&service, "y", None), Some(json!({"caBundle": "y"})));
        let url = "https://127.0.0.1:1/convert";
        let wanted = json!({"caBundle": "x", "url": url, "service": null});
        assert_eq!(client_config(&service, "x", Some(url)), Some(wanted));
        assert_eq!(client_config(&json!({"caBundle": "x", "url": url}), "x", Some(url)), None);
        let names = Definitions::new().names;
        for name in ["workloads.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"] {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
    }
}
