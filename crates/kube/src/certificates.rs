//! Certificates for the webhook, of an authority made for the purpose, and telling the API server about it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::{Value, json};
use slicegate_api::crd::{ConversionWebhook, WebhookClient};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::call::{self, Call};
use crate::connect::reason;
use crate::lease::now_micros;

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
    /// If they cannot be read, or cannot be used.
    pub fn from_folder(folder: &Path) -> Result<Self, CertificateError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| CertificateError::File { path, error })
        };
        let authority = match read("ca.crt") {
            Err(CertificateError::File { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let found = Self { authority, certificate: read("tls.crt")?, key: read("tls.key")? };
        found.acceptor()?;
        Ok(found)
    }

    /// Whether the authority vouches for the certificate under all these names, at this time and for a month.
    fn vouched_for(&self, names: &[String], since_1970: Duration) -> bool {
        let verified = || -> Option<()> {
            let mut roots = RootCertStore::empty();
            for authority in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
                roots.add(authority.ok()?).ok()?;
            }
            let chain: Vec<CertificateDer<'_>> =
                CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<Result<_, _>>().ok()?;
            let (own, others) = chain.split_first()?;
            let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().ok()?;
            for name in names {
                let name = ServerName::try_from(name.as_str()).ok()?;
                for time in [since_1970, since_1970.saturating_add(RENEW_BEFORE)] {
                    let time = UnixTime::since_unix_epoch(time);
                    verifier.verify_server_cert(own, others, &name, &[], time).ok()?;
                }
            }
            Some(())
        };
        verified().is_some()
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
/// How many names a certificate has at most.
const MOST_NAMES: usize = 16;
/// How long before it ends a certificate is of no use any more.
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);

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

    /// The names that a new certificate is for: those that are needed, and those that others needed, so that several that are
    /// reached under different names agree on one.
    fn names(&self, there: Option<&Value>) -> Vec<String> {
        let said = there.and_then(|secret| secret["metadata"]["annotations"][NAMES].as_str()).unwrap_or_default();
        let mut names = self.names.clone();
        for name in said.split(',').filter(|name| ServerName::try_from(*name).is_ok()) {
            if names.len() < MOST_NAMES && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// The certificates in it. Where there are none, or none for these names, or they do not go together or end soon, they are
    /// made: of several that do so at once one is the first, and the others take what it made.
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
            let names = self.names(there.as_ref());
            let new = Certificates::new(&names)?;
            match send(client, self.write(there.as_ref(), &new, &names)).await {
                Ok(_) => {
                    tracing::info!(secret = self.name, names = names.join(","), "made a certificate for the webhook");
                    return Ok(new);
                }
                // Somebody was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    return Err(self.error("write", &"the namespace does not exist; create it"));
                }
                // It is immutable, say.
                Err(kube::Error::Api(status)) if status.code == 422 => {
                    return Err(self.error("write", &format!("{}; delete it, so that it is made anew", status.message)));
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
        let text = |key: &str| {
            let bytes = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let found = Certificates { authority: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? };
        let since_1970 = Duration::from_micros(u64::try_from(now_micros()).unwrap_or(0));
        (found.acceptor().is_ok() && found.vouched_for(&self.names, since_1970)).then_some(found)
    }

    fn write(&self, there: Option<&Value>, new: &Certificates, names: &[String]) -> Call {
        let mut secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": {NAMES: names.join(",")}},
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

/// What came of telling the API server about the webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// In how many definitions the webhook is written.
    pub(crate) count: usize,
    /// Whether one of them was changed.
    pub(crate) changed: bool,
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
    /// definition that is converted by a webhook.
    ///
    /// # Errors
    /// If a definition cannot be read or changed.
    pub(crate) async fn tell(&mut self, client: &Client, bundle: &str, url: Option<&str>) -> Result<Told, kube::Error> {
        let news = (bundle.to_owned(), url.map(str::to_owned));
        if self.told.as_ref() != Some(&news) {
            self.well.clear();
            self.told = Some(news);
        }
        let mut told = Told { count: 0, changed: false };
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
                told.count += 1;
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
                told.changed = true;
            }
            told.count += 1;
            if let Some(version) = version(&definition) {
                self.well.insert(name.clone(), version);
            }
        }
        Ok(told)
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
        let made = secret.write(None, &new, &secret.names);
        assert_eq!(made.path, "/api/v1/namespaces/kueue-system/secrets?fieldManager=kueue");
        assert!(secret.usable(&made.body).is_some_and(|found| found == new));
        assert!(of(&["a", "c"]).usable(&made.body).is_none());
        // One that a chart made, with nothing in it.
        let empty = json!({"metadata": {"name": "cert", "resourceVersion": "7"}});
        assert!(secret.usable(&empty).is_none());
        let filled = secret.write(Some(&empty), &new, &secret.names);
        assert_eq!((filled.method, &filled.body["metadata"]["resourceVersion"]), (Method::PATCH, &json!("7")));
        // One that was spoilt: another authority, another key, no text at all.
        let other = Certificates::new(&secret.names).unwrap();
        for (key, value) in [
            ("ca.crt", STANDARD.encode(&other.authority)),
            ("ca.crt", STANDARD.encode("no PEM")),
            ("ca.crt", String::new()),
            ("tls.key", STANDARD.encode(&other.key)),
            ("tls.crt", "?".to_owned()),
            ("tls.crt", STANDARD.encode([0xff, 0xfe])),
        ] {
            let mut spoilt = made.body.clone();
            spoilt["data"][key] = value.clone().into();
            assert!(secret.usable(&spoilt).is_none(), "{key} {value}");
        }
        // Two that are reached under different names agree on one for both.
        let second = of(&["a", "c"]);
        let names = second.names(Some(&made.body));
        assert_eq!(names, ["a", "c", "b"]);
        let both = second.write(Some(&made.body), &Certificates::new(&names).unwrap(), &names);
        assert!(second.usable(&both.body).is_some() && secret.usable(&both.body).is_some());
        assert_eq!(secret.names(Some(&json!({"metadata": {"annotations": {NAMES: "a,,b c,b"}}}))), ["a", "b"]);
    }

    #[test]
    fn a_certificate_that_ends_soon_is_of_no_use() {
        let names = ["a".to_owned(), "::1".to_owned()];
        let new = Certificates::new(&names).unwrap();
        assert!(new.vouched_for(&names, Duration::from_hours(24 * 365 * 56)));
        assert!(!new.vouched_for(&names, Duration::from_hours(24 * 365 * 2_200)), "it is over by then");
        assert!(!new.vouched_for(&["b".to_owned()], Duration::from_hours(24 * 365 * 56)));
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
