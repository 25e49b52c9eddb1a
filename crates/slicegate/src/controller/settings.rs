//! How the controller runs: flags first, then the file, then the environment, then defaults.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use slicegate_api::configuration as file;
use slicegate_api::validation::dns_label;
use slicegate_controller::metrics::MetricsOptions;
use slicegate_controller::{
    Address, ConfigurationError, ControllerManager, DEFAULT_NAMESPACE, LeaderElection, WebhookCertificate,
    controller_manager,
};
use slicegate_kube::{
    CertificateSecret, CertificateSource, Certificates, LeaseOptions, Options, Serving, WebhookServing,
};

use crate::args::ControllerArgs;
use crate::configuration::{Problems, Told};

/// How often figures in the statuses of queues are written at most.
const QUEUE_STATUS_INTERVAL_MICROS: i64 = 1_000_000;

/// What the environment says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Environment {
    /// `POD_NAMESPACE`.
    pub(crate) namespace: Option<String>,
    /// `POD_NAME`, or the machine's name.
    pub(crate) name: String,
    /// What no other process has.
    pub(crate) unique: String,
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
        let name = variable("POD_NAME").or_else(host).or_else(|| variable("HOSTNAME"));
        // Two that start at once on one machine differ in their numbers, and on two machines in their names or times.
        let since = started().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            namespace: variable("POD_NAMESPACE"),
            name: name.unwrap_or_else(|| "slicegate".to_owned()),
            unique: format!("{:x}-{:x}", std::process::id(), since.as_nanos()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "only to tell processes apart")]
fn started() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// How the controller runs.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Its namespace.
    pub(crate) namespace: String,
    /// How it decides, writes and is elected.
    pub(crate) options: Options,
    /// What it serves.
    pub(crate) serving: Serving,
    /// The name of the liveness probe.
    pub(crate) liveness: String,
    /// The name of the readiness probe.
    pub(crate) readiness: String,
    /// What of the file has no effect.
    pub(crate) ignored: Vec<String>,
}

impl Settings {
    /// What flags, file and environment come to. `place` says where in the file something is wrong.
    pub(crate) fn new(
        args: &ControllerArgs,
        told: Told,
        environment: &Environment,
        place: &dyn Fn(Vec<ConfigurationError>) -> Problems,
    ) -> Result<Self, Problems> {
        let Told { mut configuration, mut file, mut ignored } = told;
        let addresses = Addresses::take(args, &mut file)?;
        let manager = controller_manager(&file).map_err(place)?;
        let namespace = match (&manager.namespace, &environment.namespace) {
            (Some(said), _) => said.clone(),
            (None, Some(said)) => {
                dns_label(said).map_err(|why| format!("POD_NAMESPACE: {why}"))?;
                said.clone()
            }
            (None, None) => DEFAULT_NAMESPACE.to_owned(),
        };
        if file.managed_jobs_namespace_selector.is_none() {
            // The controller's own namespace is left alone, whatever its name.
            let requirements = configuration.managed_jobs_namespace_selector.match_expressions.iter_mut();
            for value in requirements.flat_map(|r| r.values.iter_mut()).filter(|v| ***v == *DEFAULT_NAMESPACE) {
                *value = namespace.as_str().into();
            }
        }
        configuration.keep_finalizer_of_finished = true;
        configuration.queue_status_interval_micros = QUEUE_STATUS_INTERVAL_MICROS;
        ignored.extend(not_followed(&file));
        let lease = manager.leader_election.as_ref().map(|election| lease(election, &namespace, environment));
        let mut options = Options::new(configuration, environment.name.clone());
        options.metrics = metrics(&options.metrics, &file);
        options.lease.clone_from(&lease);
        let client = file.client_connection.clone().unwrap_or_default();
        options.qps = client.qps.unwrap_or(options.qps);
        options.burst = client.burst.unwrap_or(options.burst);
        let serving = Serving {
            probes: addresses.probes.resolve("health.healthProbeBindAddress", manager.probes.as_ref())?,
            metrics: addresses.metrics.resolve("metrics.bindAddress", manager.metrics.as_ref())?,
            lease: lease.map(|lease| lease.name),
            webhook: webhook(args, &manager, &addresses.webhook, &namespace)?,
        };
        let ControllerManager { liveness, readiness, .. } = manager;
        Ok(Self { namespace, options, serving, liveness, readiness, ignored })
    }
}

/// An address of the command line with its flag, if the flag is there.
struct FromFlag(Option<(&'static str, Option<Address>)>);

impl FromFlag {
    fn read(flag: &'static str, text: Option<&String>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self(None)) };
        let address = Address::parse(text).map_err(|why| format!("{flag}: {why}"))?;
        Ok(Self(Some((flag, address))))
    }

    /// What is to be listened at: as the flag says, else as the file does.
    fn resolve(&self, field: &'static str, from_file: Option<&Address>) -> Result<Option<SocketAddr>, String> {
        let (place, address) = match &self.0 {
            Some((flag, address)) => (*flag, address.as_ref()),
            None => (field, from_file),
        };
        address.map(|address| socket_address(address).map_err(|why| format!("{place}: {why}"))).transpose()
    }
}

/// The addresses of the command line.
struct Addresses {
    probes: FromFlag,
    metrics: FromFlag,
    webhook: FromFlag,
}

impl Addresses {
    /// Reads them. What a flag says, the file need not: it is taken out there, so that nobody looks at it.
    fn take(args: &ControllerArgs, file: &mut file::Configuration) -> Result<Self, String> {
        if args.leader_elect.is_some() {
            file.leader_election.get_or_insert_default().leader_elect = args.leader_elect;
        }
        if let (Some(_), Some(health)) = (&args.health_probe_bind_address, &mut file.health) {
            health.health_probe_bind_address = None;
        }
        if let (Some(_), Some(metrics)) = (&args.metrics_bind_address, &mut file.metrics) {
            metrics.bind_address = None;
        }
        if let (Some(_), Some(webhook)) = (&args.webhook_bind_address, &mut file.webhook) {
            (webhook.host, webhook.port) = (None, None);
        }
        Ok(Self {
            probes: FromFlag::read("--health-probe-bind-address", args.health_probe_bind_address.as_ref())?,
            metrics: FromFlag::read("--metrics-bind-address", args.metrics_bind_address.as_ref())?,
            webhook: FromFlag::read("--webhook-bind-address", args.webhook_bind_address.as_ref())?,
        })
    }
}

/// Looks up where to listen.
fn socket_address(address: &Address) -> Result<SocketAddr, String> {
    let Address { host, port } = address;
    if host.is_empty() {
        return Ok(SocketAddr::new(IpAddr::from([0_u16; 8]), *port));
    }
    let mut found = (host.as_str(), *port).to_socket_addrs().map_err(|why| format!("{host}: {why}"))?;
    found.next().ok_or_else(|| format!("{host} has no address"))
}

fn lease(election: &LeaderElection, namespace: &str, environment: &Environment) -> LeaseOptions {
    LeaseOptions {
        namespace: election.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
        name: election.name.clone(),
        identity: format!("{}_{}", environment.name, environment.unique),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        release_on_cancel: election.release_on_cancel,
    }
}

fn metrics(base: &MetricsOptions, file: &file::Configuration) -> MetricsOptions {
    let section = file.metrics.clone().unwrap_or_default();
    let gate = file.feature_gates.as_ref().and_then(|gates| gates.get("LocalQueueMetrics").copied());
    let local_queues = section.local_queue_metrics.unwrap_or_default().enable.unwrap_or(true);
    MetricsOptions {
        local_queues: local_queues && gate.unwrap_or(true),
        cluster_queue_resources: section.enable_cluster_queue_resources.unwrap_or(false),
        ..base.clone()
    }
}

fn webhook(
    args: &ControllerArgs,
    manager: &ControllerManager,
    address: &FromFlag,
    namespace: &str,
) -> Result<Option<WebhookServing>, String> {
    let Some(address) = address.resolve("webhook.host", Some(&manager.webhook))? else {
        if args.webhook_url.is_some() {
            return Err("--webhook-url: nothing is served there with --webhook-bind-address 0".to_owned());
        }
        return Ok(None);
    };
    let url = args.webhook_url.as_deref().map(conversion_url).transpose()?;
    let certificates = match &manager.certificate {
        WebhookCertificate::Secret { name, service } => {
            let mut names = vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}")];
            names.extend(url.as_deref().and_then(host_of));
            CertificateSource::Secret(CertificateSecret { namespace: namespace.to_owned(), name: name.clone(), names })
        }
        WebhookCertificate::Folder(folder) => {
            Certificates::from_folder(folder).map_err(|error| format!("webhook.certDir: {error}"))?;
            CertificateSource::Folder(folder.clone())
        }
    };
    Ok(Some(WebhookServing { address, certificates, url }))
}

/// The address of the conversion webhook: its path may be left out.
fn conversion_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").filter(|rest| !rest.is_empty() && !rest.starts_with('/'));
    let Some(rest) = rest else {
        return Err(format!(
            "--webhook-url {text}: an API server calls webhooks by https only; write https://HOST:PORT"
        ));
    };
    let path = slicegate_api::crd::ConversionWebhook::PATH;
    match rest.split_once('/') {
        None => Ok(format!("{text}{path}")),
        Some((host, "")) => Ok(format!("https://{host}{path}")),
        Some((_, found)) if path.trim_start_matches('/') == found => Ok(text.to_owned()),
        Some((host, _)) => Err(format!("--webhook-url {text}: the webhook is at {path}; write https://{host}{path}")),
    }
}

/// The host of a URL.
fn host_of(url: &str) -> Option<String> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let host = if let Some(rest) = authority.strip_prefix('[') {
        rest.split(']').next()?
    } else {
        authority.rsplit_once(':').map_or(authority, |(host, _)| host)
    };
    Some(host.to_owned())
}

/// What of the file has no effect on a controller.
fn not_followed(file: &file::Configuration) -> Vec<String> {
    let metrics = file.metrics.clone().unwrap_or_default();
    let controller = file.controller.clone().unwrap_or_default();
    let queues = metrics.local_queue_metrics.unwrap_or_default();
    let all = [
        (file.pprof_bind_address.is_some(), "pprofBindAddress: no profiles are served"),
        (file.tls.is_some(), "tls: the servers take TLS 1.2 and 1.3 with the ciphers of rustls"),
        (controller.group_kind_concurrency.is_some(), "controller.groupKindConcurrency: writes go side by side anyway"),
        (
            controller.cache_sync_timeout.is_some(),
            "controller.cacheSyncTimeout: the first look takes as long as it takes",
        ),
        (metrics.custom_labels.is_some_and(|l| !l.is_empty()), "metrics.customLabels: there are no more labels"),
        (
            queues.local_queue_selector.is_some(),
            "metrics.localQueueMetrics.localQueueSelector: all or none are measured",
        ),
    ];
    all.into_iter().filter(|(there, _)| *there).map(|(_, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{Cli, Command};

    fn settings(line: &[&str], file: Value) -> Result<Settings, String> {
        let environment =
            Environment { namespace: Some("mine".to_owned()), name: "pod-0".to_owned(), unique: "1".to_owned() };
        with(line, file, &environment)
    }

    fn with(line: &[&str], file: Value, environment: &Environment) -> Result<Settings, String> {
        let matches = Cli::command().get_matches_from([&["slicegate", "controller"], line].concat());
        let Command::Controller(args) = Cli::from_arg_matches(&matches).unwrap().command else {
            panic!("not controller")
        };
        let file = serde_json::from_value(file).unwrap();
        let told = Told { configuration: slicegate_controller::Configuration::default(), file, ignored: Vec::new() };
        let place = |errors: Vec<ConfigurationError>| Problems {
            others: errors.iter().map(ToString::to_string).collect(),
            ..Problems::default()
        };
        Settings::new(&args, told, environment, &place).map_err(|problems| problems.to_string())
    }

    #[test]
    fn flags_count_before_the_file_and_the_file_before_defaults() {
        let plain = settings(&[], json!({})).unwrap();
        assert_eq!(plain.namespace, "mine");
        assert_eq!(plain.serving.probes.map(|a| a.port()), Some(8081));
        let lease = plain.options.lease.unwrap();
        assert_eq!((lease.name.as_str(), lease.namespace.as_str()), ("c1f6bfd2.kueue.x-k8s.io", "mine"));
        assert_eq!(lease.identity, "pod-0_1");
        assert_eq!((plain.options.qps, plain.options.burst), (300.0, 500));
        let file = json!({
            "namespace": "theirs",
            "metrics": {"bindAddress": "127.0.0.1:7000", "enableClusterQueueResources": true},
            "leaderElection": {"leaderElect": true, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"},
            "clientConnection": {"qps": 50.0, "burst": 100},
            "health": {"readinessEndpointName": "ready"},
        });
        let told = settings(&[], file.clone()).unwrap();
        assert_eq!(told.serving.metrics, Some("127.0.0.1:7000".parse().unwrap()));
        assert_eq!(told.options.lease.unwrap().lease_duration.as_secs(), 4);
        assert!(told.options.metrics.cluster_queue_resources && told.options.metrics.local_queues);
        assert!(
            !settings(&[], json!({"featureGates": {"LocalQueueMetrics": false}})).unwrap().options.metrics.local_queues
        );
        assert_eq!((told.namespace.as_str(), told.readiness.as_str(), told.options.burst), ("theirs", "ready", 100));
        let flags =
            ["--metrics-bind-address", "0", "--leader-elect=false", "--health-probe-bind-address", "[::1]:7001"];
        let told = settings(&flags, file).unwrap();
        assert_eq!(told.serving.metrics, None);
        assert_eq!(told.serving.probes, Some("[::1]:7001".parse().unwrap()));
        assert_eq!(told.options.lease, None);
    }

    #[test]
    fn what_a_flag_says_is_not_looked_at_in_the_file() {
        let file = json!({
            "metrics": {"bindAddress": "nowhere"},
            "health": {"healthProbeBindAddress": "nowhere"},
            "webhook": {"host": "no host"},
            "leaderElection": {"leaseDuration": "soon"},
        });
        let flags = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-bind-address=127.0.0.1:1"];
        let told = settings(&[&flags[..], &["--leader-elect=false"]].concat(), file.clone()).unwrap();
        assert_eq!(told.serving.webhook.unwrap().address, "127.0.0.1:1".parse().unwrap());
        assert_eq!(settings(&[], file).unwrap_err().lines().count(), 4);
    }

    #[test]
    fn the_namespace_of_the_controller_is_left_alone() {
        let values = |settings: Settings| -> Vec<String> {
            let selector = settings.options.configuration.managed_jobs_namespace_selector;
            selector.match_expressions.iter().flat_map(|r| r.values.iter().map(ToString::to_string)).collect()
        };
        assert_eq!(values(settings(&[], json!({})).unwrap()), ["kube-system", "mine"]);
    }

    #[test]
    fn the_webhook_is_where_it_is_said_to_be() {
        let told = settings(&["--webhook-url", "https://10.0.0.1:9443"], json!({})).unwrap();
        let webhook = told.serving.webhook.unwrap();
        assert_eq!(webhook.url.as_deref(), Some("https://10.0.0.1:9443/convert"));
        let CertificateSource::Secret(secret) = webhook.certificates else { panic!("no Secret") };
        assert_eq!(secret.names, ["kueue-webhook-service.mine.svc", "kueue-webhook-service.mine", "10.0.0.1"]);
        assert_eq!(host_of("https://[::1]:9443/convert").as_deref(), Some("::1"));
        for url in ["http://a", "https://a/other", "https://"] {
            assert!(settings(&["--webhook-url", url], json!({})).unwrap_err().contains("--webhook-url"), "{url}");
        }
        assert!(settings(&["--webhook-bind-address", "0"], json!({})).unwrap().serving.webhook.is_none());
    }

    #[test]
    fn what_cannot_be_is_said_with_its_place() {
        for (file, path) in [
            (json!({"namespace": "A_B"}), "namespace"),
            (
                json!({"internalCertManagement": {"enable": false}, "webhook": {"certDir": "no/such"}}),
                "webhook.certDir",
            ),
            (json!({"webhook": {"host": "no-such-host.invalid"}}), "webhook.host"),
        ] {
            let why = settings(&[], file).unwrap_err();
            assert!(why.starts_with(path), "{why}");
        }
        let environment = Environment { namespace: Some("a b/c".to_owned()), ..Environment::default() };
        assert!(with(&[], json!({}), &environment).unwrap_err().starts_with("POD_NAMESPACE: "));
        assert!(settings(&["--metrics-bind-address", "8080"], json!({})).unwrap_err().contains(":PORT"));
    }

    #[test]
    fn what_is_not_followed_is_told() {
        let told = settings(&[], json!({"pprofBindAddress": ":1", "controller": {"cacheSyncTimeout": "1m"}})).unwrap();
        assert_eq!(told.ignored.len(), 2, "{:?}", told.ignored);
    }
}
