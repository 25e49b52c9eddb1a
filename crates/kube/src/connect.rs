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
/// Where a kubeconfig is looked for last, as it is shown.
const OF_HOME: &str = "~/.kube/config";
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
/// Of the contexts of a kubeconfig it takes `context`, as kubectl does with `--context`, else the one that the kubeconfig calls
/// current. A service account has no contexts: with one given it is passed over. An empty name is as none.
///
/// Requests are not tried again by the client: the controller decides anew instead.
///
/// # Errors
/// If there is none, or it does not answer.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ConnectError> {
    let mut config = find(kubeconfig, context.filter(|name| !name.is_empty())).await?;
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

async fn find(path: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    if let Some(path) = path {
        return follow(Kubeconfig::read_from(path), path, context).await;
    }
    if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty()) {
        return follow(Kubeconfig::read(), Path::new(&paths), context).await;
    }
    if context.is_some() {
        return follow(Kubeconfig::read(), Path::new(OF_HOME), context).await;
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(incluster) => match follow(Kubeconfig::read(), Path::new(OF_HOME), None).await {
            Err(ConnectError::Kubeconfig { why: kubeconfig, .. }) => {
                Err(ConnectError::Nowhere { incluster, kubeconfig })
            }
            found => found,
        },
    }
}

/// Follows a kubeconfig that was read; `path` is where it stands.
async fn follow(
    read: Result<Kubeconfig, KubeconfigError>,
    path: &Path,
    context: Option<&str>,
) -> Result<Config, ConnectError> {
    let wrong = |why: String| ConnectError::Kubeconfig { path: path.to_owned(), why };
    let kubeconfig = read.map_err(|error| wrong(of_kubeconfig(&error, path)))?;
    let context = Some(chosen(&kubeconfig, context).map_err(wrong)?.to_owned());
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| wrong(of_kubeconfig(&error, path)))
}

/// The name of the context that is taken.
fn chosen<'a>(kubeconfig: &'a Kubeconfig, asked: Option<&'a str>) -> Result<&'a str, String> {
    let names = || kubeconfig.contexts.iter().map(|context| context.name.as_str());
    let there_are = || match names().map(|name| format!("{name:?}")).collect::<Vec<_>>() {
        list if list.is_empty() => "there are none".to_owned(),
        list => shortened(&format!("there are {}", list.join(", "))),
    };
    let current = || kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    match asked.or_else(current) {
        None => Err(format!("it says no current-context, and --context names none; {}", there_are())),
        Some(name) if names().any(|there| there == name) => Ok(name),
        Some(name) => Err(format!("there is no context {name:?}; {}", there_are())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_wrong_is_told_with_its_file() {
        let error = connect(Some(Path::new("no/such/kubeconfig")), None).await.err().map(|e| e.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains("no/such/kubeconfig")), "{error:?}");
    }

    const TWO: &str = "
clusters:
- {name: one, cluster: {server: 'https://192.0.2.1'}}
- {name: two, cluster: {server: 'https://192.0.2.2'}}
contexts:
- {name: first, context: {cluster: one, user: u}}
- {name: second, context: {cluster: two, user: u}}
users: [{name: u, user: {token: secret}}]
current-context: first
";

    async fn server(text: &str, context: Option<&str>) -> Result<String, String> {
        let found = follow(Kubeconfig::from_yaml(text), Path::new("k"), context).await;
        found.map(|config| config.cluster_url.to_string()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_context_says_which_cluster() {
        assert_eq!(server(TWO, None).await.as_deref(), Ok("https://192.0.2.1/"));
        assert_eq!(server(TWO, Some("second")).await.as_deref(), Ok("https://192.0.2.2/"));
        let without = TWO.replace("current-context: first", "current-context: ''");
        assert_eq!(server(&without, Some("second")).await.as_deref(), Ok("https://192.0.2.2/"));
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_told_with_those_that_are() {
        let told = server(TWO, Some("third")).await.unwrap_err();
        let says = "the kubeconfig k cannot be used: there is no context \"third\"; there are \"first\", \"second\"";
        assert_eq!(told, says);
        for without in
            [TWO.replace("current-context: first", ""), TWO.replace("current-context: first", "current-context: ''")]
        {
            let told = server(&without, None).await.unwrap_err();
            assert!(told.contains("current-context") && told.ends_with("there are \"first\", \"second\""), "{told}");
        }
        assert!(server("current-context: x", None).await.unwrap_err().ends_with("there are none"));
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
