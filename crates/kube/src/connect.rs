//! Finding the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::client::AuthError;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::proxies;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first answer may take.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// As much as is told of what went wrong, in bytes: some answer with pages.
const LONGEST_REASON: usize = 600;

/// Why there is no connection to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file is not there or not understood.
    #[error("the kubeconfig {path} cannot be used: {why}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing says where the API server is.
    #[error(
        "no API server is known: this is no pod with a service account ({incluster}), and there is no usable kubeconfig ({kubeconfig}); \
         give --kubeconfig FILE or set KUBECONFIG"
    )]
    Nowhere {
        /// Why not as a pod.
        incluster: kube::config::InClusterError,
        /// Why not by a kubeconfig.
        kubeconfig: String,
    },
    /// What is said about the API server cannot be followed.
    #[error("a connection to the API server {url} cannot be made: {why}")]
    Client {
        /// The API server.
        url: String,
        /// Why not.
        why: String,
    },
    /// The API server does not know who this is.
    #[error("the API server {url} does not accept the credentials; look whether the token or certificate has expired")]
    Stranger {
        /// The API server.
        url: String,
    },
    /// The API server is not the one that the kubeconfig means.
    #[error(
        "the API server {url} is not trusted: {why}; look whether certificate-authority in the kubeconfig is that of this API server"
    )]
    Untrusted {
        /// The API server.
        url: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// Something answers that is no API server.
    #[error("what answers at {url} is no API server: {why}; look whether the address is right")]
    Other {
        /// The address.
        url: String,
        /// What it says.
        why: String,
    },
    /// The API server does not answer.
    #[error("the API server {url} does not answer: {why}")]
    Silent {
        /// The API server.
        url: String,
        /// What happened instead.
        why: String,
    },
}

/// Connects to the API server that a kubeconfig names; without one to that of `KUBECONFIG`, of the pod's service account, or of
/// `~/.kube/config`, whichever is there first.
///
/// Requests are not tried again by the client: the controller decides anew instead.
///
/// # Errors
/// If there is none, or it does not answer.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let mut config = find(kubeconfig).await?;
    let url = config.cluster_url.to_string();
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("slicegate/", env!("CARGO_PKG_VERSION")))));
    proxies::follow(&mut config, &|name| std::env::var(name).ok());
    let cannot = |error| ConnectError::Client { url: url.clone(), why: reason(&error) };
    let client = Client::try_from(config).map_err(cannot)?;
    match tokio::time::timeout(FIRST_ANSWER, client.apiserver_version()).await {
        Ok(Ok(version)) => {
            tracing::info!(url, version = version.git_version, "connected to the API server");
            Ok(client)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Err(ConnectError::Stranger { url }),
        // It answers, and what this client may do is another matter.
        Ok(Err(error @ kube::Error::Api(_))) if !is_no_api_server(&error) => {
            tracing::warn!(url, error = reason(&error), "the API server does not tell its version");
            Ok(client)
        }
        Ok(Err(error)) => {
            let why = reason(&error);
            Err(match error {
                error if is_no_api_server(&error) => ConnectError::Other { url, why },
                kube::Error::Auth(_) => ConnectError::Client { url, why },
                _ if why.contains("invalid peer certificate") => ConnectError::Untrusted { url, why },
                _ => ConnectError::Silent { url, why },
            })
        }
        Err(_) => Err(ConnectError::Silent { url, why: format!("nothing within {} s", FIRST_ANSWER.as_secs()) }),
    }
}

/// Whether no API server would say so to whoever asks for its version.
fn is_no_api_server(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 300..=400 | 404 | 405),
        kube::Error::SerdeError(_) => true,
        _ => false,
    }
}

/// The last cause of an error, which says what happened.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    loop {
        if let Some(why) = cause.downcast_ref::<AuthError>().and_then(of_credentials) {
            return why;
        }
        match cause.source() {
            Some(next) => cause = next,
            None => return shortened(&cause.to_string()),
        }
    }
}

/// Why there are no credentials, without what a program printed that should print some.
fn of_credentials(error: &AuthError) -> Option<String> {
    match error {
        AuthError::AuthExecStart(error) => Some(format!("the program that gives credentials cannot be run: {error}")),
        AuthError::AuthExecRun { out, .. } => {
            let told = String::from_utf8_lossy(&out.stderr);
            let told = shortened(told.trim());
            Some(format!("the program that gives credentials failed with {}: {told}", out.status))
        }
        AuthError::AuthExecParse(_) => Some("the program that gives credentials printed none".to_owned()),
        _ => None,
    }
}

/// A text in one line, and not too long.
pub(crate) fn shortened(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > LONGEST_REASON {
        let end = (0..=LONGEST_REASON).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// What is wrong with a kubeconfig, without a word of what it says: there are secrets in it.
fn of_kubeconfig(error: &KubeconfigError, path: &Path) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("line {}, column {} is not as it must be there", at.line(), at.column()),
            None => "it is no kubeconfig".to_owned(),
        },
        KubeconfigError::ReadConfig(error, file) if file == path => error.to_string(),
        KubeconfigError::ReadConfig(error, file) => format!("{}: {error}", file.display()),
        error => shortened(&error.to_string()),
    }
}

/// What went wrong with a request, in short.
pub(crate) fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => shortened(&status.message),
        error => root_cause(error),
    }
}

async fn find(path: Option<&Path>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions::default();
    if let Some(path) = path {
        let wrong = |error| ConnectError::Kubeconfig { path: path.to_owned(), why: of_kubeconfig(&error, path) };
        let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
        return Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong);
    }
    if let Some(path) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty()) {
        let path = PathBuf::from(path);
        let wrong = |error| ConnectError::Kubeconfig { path: path.clone(), why: of_kubeconfig(&error, &path) };
        return Config::from_kubeconfig(&options).await.map_err(wrong);
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(incluster) => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| ConnectError::Nowhere { incluster, kubeconfig: of_kubeconfig(&error, Path::new("")) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_wrong_is_told_with_its_file() {
        let error = connect(Some(Path::new("no/such/kubeconfig"))).await.err().map(|e| e.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains("no/such/kubeconfig")), "{error:?}");
    }

    #[test]
    fn nothing_of_a_kubeconfig_is_told() {
        for text in
            ["users:\n- name: a\n  user: {token: secret\nclusters: []\n", "users: [{name: a, user: {token: [secret]}}]"]
        {
            let error = Kubeconfig::from_yaml(text).unwrap_err();
            assert!(error.to_string().contains("secret"), "{error}");
            let told = of_kubeconfig(&error, Path::new("k"));
            assert!(told.contains("line ") && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn nothing_is_told_of_what_should_have_been_credentials() {
        use std::os::unix::process::ExitStatusExt as _;
        let output = std::process::Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: b"{\"token\": \"secret\"}".to_vec(),
            stderr: b"log in first\n".to_vec(),
        };
        let error = kube::Error::Auth(AuthError::AuthExecRun { cmd: "SECRET=secret p".to_owned(), out: output.into() });
        for told in [reason(&error), root_cause(&error)] {
            assert!(told.ends_with("log in first") && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn long_answers_are_cut() {
        let told = shortened(&"<p>über</p>\n\n".repeat(1_000));
        assert!(told.len() < 700 && told.ends_with(" ...") && !told.contains('\n'), "{told}");
    }

    #[test]
    fn the_last_cause_is_told() {
        let inner = std::io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(inner));
        assert_eq!(root_cause(&error), "connection refused");
    }
}
