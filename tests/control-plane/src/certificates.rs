//! Certificates of a run: one authority for every server on loopback.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::error::{Context as _, Result};

/// An authority and the certificate of every server on 127.0.0.1, as files.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate, PEM.
    pub authority: PathBuf,
    /// The folder of `tls.crt` and `tls.key`.
    pub folder: PathBuf,
    /// A key to sign tokens of service accounts with, PEM.
    pub service_accounts: PathBuf,
    /// What they are verified with, PEM.
    pub service_accounts_public: PathBuf,
    pem: String,
}

impl Certificates {
    /// Makes them in a folder.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn make(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).doing(folder.display())?;
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.distinguished_name.push(DnType::CommonName, "control-plane-tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut server = CertificateParams::new(names.to_vec())?;
        server.distinguished_name.push(DnType::CommonName, "127.0.0.1");
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &issuer)?.pem();
        let path = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).doing(path.display())?;
            Ok::<_, crate::Error>(path)
        };
        path("tls.crt", &certificate)?;
        path("tls.key", &key.serialize_pem())?;
        let service_accounts = KeyPair::generate()?;
        Ok(Self {
            authority: path("ca.crt", &pem)?,
            service_accounts: path("service-accounts.key", &service_accounts.serialize_pem())?,
            service_accounts_public: path("service-accounts.pub", &service_accounts.public_key_pem())?,
            folder: folder.to_owned(),
            pem,
        })
    }

    /// The authority's certificate as webhook configurations and kubeconfigs hold it.
    pub fn bundle(&self) -> String {
        STANDARD.encode(&self.pem)
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("tls.crt")
    }

    /// The server's key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("tls.key")
    }
}
