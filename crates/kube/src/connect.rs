//! Finding the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first answer may take.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Why there is no connection to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file is not there or not understood.
    #[error("the kubeconfig {path} cannot be used: {error}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: kube::config::KubeconfigError,
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
        kubeconfig: kube::config::KubeconfigError,
    },
    /// What is said about the API server cannot be followed.
    #[error("a connection to the API server {url} cannot be made: {error}")]
    Client {
        /// The API server.
        url: String,
        /// Why not.
        error: kube::Error,
    },
    /// The API server does not know who this is.
    #[error("the API server {url} does not accept the credentials; look whether the token or certificate has expired")]
    Stranger {
        /// The API server.
        url: String,
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
    let client = Client::try_from(config).map_err(|error| ConnectError::Client { url: url.clone(), error })?;
    match tokio::time::timeout(FIRST_ANSWER, client.apiserver_version()).await {
        Ok(Ok(version)) => {
            tracing::info!(url, version = version.git_version, "connected to the API server");
            Ok(client)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Err(ConnectError::Stranger { url }),
        // It answers, and what this client may do is another matter.
        Ok(Err(kube::Error::Api(_))) => Ok(client),
        Ok(Err(error)) => Err(ConnectError::Silent { url, why: root_cause(&error) }),
        Err(_) => Err(ConnectError::Silent { url, why: format!("nothing within {} s", FIRST_ANSWER.as_secs()) }),
    }
}

/// The last cause of an error, which says what happened.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// What went wrong with a request, in short.
pub(crate) fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => root_cause(error),
    }
}

async fn find(path: Option<&Path>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions::default();
    if let Some(path) = path {
        let wrong = |error| ConnectError::Kubeconfig { path: path.to_owned(), error };
        let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
        return Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong);
    }
    if let Some(path) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty()) {
        let wrong = |error| ConnectError::Kubeconfig { path: path.into(), error };
        return Config::from_kubeconfig(&options).await.map_err(wrong);
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(incluster) => Config::from_kubeconfig(&options)
            .await
            .map_err(|kubeconfig| ConnectError::Nowhere { incluster, kubeconfig }),
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
    fn the_last_cause_is_told() {
        let inner = std::io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(inner));
        assert_eq!(root_cause(&error), "connection refused");
    }
}
