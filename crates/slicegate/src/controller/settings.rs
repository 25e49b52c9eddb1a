//! How the controller runs: flags first, then the file, then the environment, then defaults.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use slicegate_api::configuration as file;
use slicegate_controller::go_duration;
use slicegate_controller::metrics::MetricsOptions;
use slicegate_kube::{
    CertificateSecret, CertificateSource, Certificates, LeaseOptions, Options, Serving, WebhookServing,
};

use crate::args::ControllerArgs;
use crate::configuration::Told;

/// Where the controller runs if nothing says otherwise.
const NAMESPACE: &str = "kueue-system";
/// The Lease of Kueue's manager: whoever holds it is the one that acts.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// What the API can hold as the duration of a Lease.
const LONGEST_LEASE: Duration = Duration::from_secs(i32::MAX as u64);
/// Where the webhook is served if nothing says otherwise.
const WEBHOOK_PORT: u16 = 9443;

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
    /// What flags, file and environment come to.
    pub(crate) fn new(args: &ControllerArgs, told: Told, environment: &Environment) -> Result<Self, String> {
        let Told { mut configuration, file, mut ignored } = told;
        let namespace = match (file.namespace.as_ref().filter(|n| !n.is_empty()), &environment.namespace) {
            (Some(said), _) => label("namespace", said)?,
            (None, Some(said)) => label("POD_NAMESPACE", said)?,
            (None, None) => NAMESPACE.to_owned(),
        };
        if file.managed_jobs_namespace_selector.is_none() {
            // The controller's own namespace is left alone, whatever its name.
            let requirements = configuration.managed_jobs_namespace_selector.match_expressions.iter_mut();
            for value in requirements.flat_map(|r| r.values.iter_mut()).filter(|v| ***v == *NAMESPACE) {
                *value = namespace.as_str().into();
            }
        }
        configuration.keep_finalizer_of_finished = true;
        configuration.queue_status_interval_micros = QUEUE_STATUS_INTERVAL_MICROS;
        ignored.extend(not_followed(&file));
        let lease = lease(args, &file, &namespace, environment)?;
        let mut options = Options::new(configuration, environment.name.clone());
        options.metrics = metrics(&options.metrics, &file);
        options.lease.clone_from(&lease);
        let client = file.client_connection.clone().unwrap_or_default();
        options.qps = client.qps.unwrap_or(options.qps);
        options.burst = client.burst.unwrap_or(options.burst);
        let health = file.health.clone().unwrap_or_default();
        let (liveness, readiness) = probes(&health)?;
        let bind =
            |flag: &'static str, said: Option<&String>, field: &'static str, from_file: Option<&String>, or: &str| {
                match (said, from_file) {
                    (Some(text), _) => address(text, flag),
                    (None, Some(text)) => address(text, field),
                    (None, None) => address(or, flag),
                }
            };
        let serving = Serving {
            probes: bind(
                "--health-probe-bind-address",
                args.health_probe_bind_address.as_ref(),
                "health.healthProbeBindAddress",
                health.health_probe_bind_address.as_ref(),
                ":8081",
            )?,
            metrics: bind(
                "--metrics-bind-address",
                args.metrics_bind_address.as_ref(),
                "metrics.bindAddress",
                file.metrics.as_ref().and_then(|m| m.bind_address.as_ref()),
                ":8080",
            )?,
            lease: lease.map(|lease| lease.name),
            webhook: webhook(args, &file, &namespace)?,
        };
        Ok(Self { namespace, options, serving, liveness, readiness, ignored })
    }
}

/// Whether a text is what the API takes as the name of a namespace or service.
fn is_label(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

/// The name of a namespace or service.
fn label(place: &str, text: &str) -> Result<String, String> {
    let wrong = || {
        let rule = "write lower case letters, digits and '-', 63 at most";
        format!("{place}: {text:?} cannot be a name; {rule}")
    };
    is_label(text).then(|| text.to_owned()).ok_or_else(wrong)
}

/// The name of any other object.
fn object_name(place: &str, text: &str) -> Result<String, String> {
    let wrong = || {
        let rule = "write lower case letters, digits, '-' and '.', 253 at most";
        format!("{place}: {text:?} cannot be a name; {rule}")
    };
    let is_one = text.len() <= 253 && text.split('.').all(is_label);
    is_one.then(|| text.to_owned()).ok_or_else(wrong)
}

/// The names of the probes.
fn probes(health: &file::Health) -> Result<(String, String), String> {
    let name = |said: &Option<String>, or: &str, field: &str| {
        let text = said.as_deref().filter(|n| !n.is_empty()).unwrap_or(or);
        let inside = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        if text.chars().all(inside) && !text.trim_start_matches('/').is_empty() {
            Ok(text.to_owned())
        } else {
            Err(format!("health.{field}: {text:?} cannot be a path; write letters, digits, '-', '.', '_', '~' and '/'"))
        }
    };
    let liveness = name(&health.liveness_endpoint_name, "healthz", "livenessEndpointName")?;
    let readiness = name(&health.readiness_endpoint_name, "readyz", "readinessEndpointName")?;
    if liveness.trim_start_matches('/') == readiness.trim_start_matches('/') {
        return Err(format!("health.readinessEndpointName: {readiness:?} is livenessEndpointName too; write another"));
    }
    Ok((liveness, readiness))
}

/// An address as Go writes them: `:8080` is all of the machine's, and `0` is none.
fn address(text: &str, place: &str) -> Result<Option<SocketAddr>, String> {
    if matches!(text, "" | "0") {
        return Ok(None);
    }
    let wrong = |why: String| format!("{place} {text}: {why}; write HOST:PORT, :PORT, or 0 to serve nothing");
    if let Some(port) = text.strip_prefix(':') {
        let port: u16 = port.parse().map_err(|_| wrong(format!("{port:?} is no port")))?;
        return Ok(Some(SocketAddr::new(IpAddr::from([0_u16; 8]), port)));
    }
    let mut found = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().map(Some).ok_or_else(|| wrong("it has no address".to_owned()))
}

fn duration(path: &str, text: Option<&String>, default: Duration) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(default) };
    let micros = go_duration(text).map_err(|why| format!("{path}: {why}"))?;
    match u64::try_from(micros) {
        Ok(micros) if micros > 0 => Ok(Duration::from_micros(micros)),
        _ => Err(format!("{path}: {text} is no time to wait; write more than 0")),
    }
}

fn lease(
    args: &ControllerArgs,
    file: &file::Configuration,
    namespace: &str,
    environment: &Environment,
) -> Result<Option<LeaseOptions>, String> {
    let section = file.leader_election.clone().unwrap_or_default();
    if !args.leader_elect.or(section.leader_elect).unwrap_or(true) {
        return Ok(None);
    }
    let path = |field: &str| format!("leaderElection.{field}");
    if let Some(kind) = section.resource_lock.as_deref().filter(|kind| !matches!(*kind, "" | "leases")) {
        return Err(format!("{}: {kind:?} is not known; write leases", path("resourceLock")));
    }
    let seconds = Duration::from_secs;
    let options = LeaseOptions {
        namespace: match section.resource_namespace.filter(|n| !n.is_empty()) {
            Some(said) => label(&path("resourceNamespace"), &said)?,
            None => namespace.to_owned(),
        },
        name: match section.resource_name.filter(|n| !n.is_empty()) {
            Some(said) => object_name(&path("resourceName"), &said)?,
            None => LEASE.to_owned(),
        },
        identity: format!("{}_{}", environment.name, environment.unique),
        lease_duration: duration(&path("leaseDuration"), section.lease_duration.as_ref(), seconds(15))?,
        renew_deadline: duration(&path("renewDeadline"), section.renew_deadline.as_ref(), seconds(10))?,
        retry_period: duration(&path("retryPeriod"), section.retry_period.as_ref(), seconds(2))?,
        release_on_cancel: section.leader_election_release_on_cancel.unwrap_or(true),
    };
    let text = |d: Duration| format!("{} s", d.as_secs_f64());
    if options.lease_duration < seconds(1) {
        return Err(format!("{}: a Lease counts whole seconds; write 1s or more", path("leaseDuration")));
    }
    if options.lease_duration > LONGEST_LEASE {
        let longest = LONGEST_LEASE.as_secs();
        return Err(format!(
            "{}: a Lease lasts {longest} s at most; write a shorter time, such as 15s",
            path("leaseDuration")
        ));
    }
    if options.renew_deadline >= options.lease_duration {
        let (deadline, lease) = (text(options.renew_deadline), text(options.lease_duration));
        let why = "the leader must stop before another can begin";
        return Err(format!("{}: {deadline} is not less than leaseDuration, {lease}: {why}", path("renewDeadline")));
    }
    if options.retry_period >= options.renew_deadline {
        let (retry, deadline) = (text(options.retry_period), text(options.renew_deadline));
        return Err(format!("{}: {retry} is not less than renewDeadline, {deadline}", path("retryPeriod")));
    }
    Ok(Some(options))
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
    file: &file::Configuration,
    namespace: &str,
) -> Result<Option<WebhookServing>, String> {
    let section = file.webhook.clone().unwrap_or_default();
    let address = if let Some(text) = &args.webhook_bind_address {
        address(text, "--webhook-bind-address")?
    } else {
        // As for Kueue's manager, 0 is no port but nothing said.
        let (host, port) = (section.host.unwrap_or_default(), section.port.filter(|p| *p != 0).unwrap_or(WEBHOOK_PORT));
        let bare = host.contains(':') && !host.starts_with('[');
        let host = if bare { format!("[{host}]") } else { host };
        address(&format!("{host}:{port}"), "webhook.host and webhook.port")?
    };
    let Some(address) = address else {
        if args.webhook_url.is_some() {
            return Err("--webhook-url: nothing is served there with --webhook-bind-address 0".to_owned());
        }
        return Ok(None);
    };
    let url = args.webhook_url.as_deref().map(conversion_url).transpose()?;
    let own = file.internal_cert_management.clone().unwrap_or_default();
    let certificates = if own.enable.unwrap_or(true) {
        let service = own.webhook_service_name.filter(|n| !n.is_empty());
        let service = service.unwrap_or_else(|| "kueue-webhook-service".to_owned());
        let service = label("internalCertManagement.webhookServiceName", &service)?;
        let secret = own.webhook_secret_name.filter(|n| !n.is_empty());
        let secret = secret.unwrap_or_else(|| "kueue-webhook-server-cert".to_owned());
        let mut names = vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}")];
        names.extend(url.as_deref().and_then(host_of));
        CertificateSource::Secret(CertificateSecret {
            namespace: namespace.to_owned(),
            name: object_name("internalCertManagement.webhookSecretName", &secret)?,
            names,
        })
    } else {
        let folder = section.cert_dir.unwrap_or_else(|| "/tmp/k8s-webhook-server/serving-certs".to_owned());
        let folder = PathBuf::from(folder);
        Certificates::from_folder(&folder).map_err(|error| format!("webhook.certDir: {error}"))?;
        CertificateSource::Folder(folder)
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
        Settings::new(&args, told, environment)
    }

    #[test]
    fn flags_count_before_the_file_and_the_file_before_defaults() {
        let plain = settings(&[], json!({})).unwrap();
        assert_eq!(plain.namespace, "mine");
        assert_eq!(plain.serving.probes.map(|a| a.port()), Some(8081));
        let lease = plain.options.lease.unwrap();
        assert_eq!((lease.name.as_str(), lease.namespace.as_str()), (LEASE, "mine"));
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
        assert_eq!(told.options.lease.unwrap().lease_duration, Duration::from_secs(4));
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
    fn what_is_empty_is_not_said() {
        let file = json!({
            "namespace": "",
            "webhook": {"host": "::1", "port": 0},
            "health": {"livenessEndpointName": "", "readinessEndpointName": ""},
            "internalCertManagement": {"webhookSecretName": "", "webhookServiceName": ""},
        });
        let told = settings(&[], file).unwrap();
        assert_eq!(
            (told.namespace.as_str(), told.liveness.as_str(), told.readiness.as_str()),
            ("mine", "healthz", "readyz")
        );
        let webhook = told.serving.webhook.unwrap();
        assert_eq!(webhook.address, "[::1]:9443".parse().unwrap());
        let CertificateSource::Secret(secret) = webhook.certificates else { panic!("no Secret") };
        assert_eq!(
            (secret.name.as_str(), secret.names[0].as_str()),
            ("kueue-webhook-server-cert", "kueue-webhook-service.mine.svc")
        );
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
            (json!({"leaderElection": {"renewDeadline": "15s"}}), "leaderElection.renewDeadline"),
            (json!({"leaderElection": {"retryPeriod": "10s"}}), "leaderElection.retryPeriod"),
            (json!({"leaderElection": {"leaseDuration": "soon"}}), "leaderElection.leaseDuration"),
            (json!({"leaderElection": {"resourceLock": "configmaps"}}), "leaderElection.resourceLock"),
            (json!({"metrics": {"bindAddress": ":many"}}), "metrics.bindAddress"),
            (
                json!({"internalCertManagement": {"enable": false}, "webhook": {"certDir": "no/such"}}),
                "webhook.certDir",
            ),
            (json!({"leaderElection": {"leaseDuration": "9999999h"}}), "leaderElection.leaseDuration"),
            (json!({"leaderElection": {"resourceName": "a/b"}}), "leaderElection.resourceName"),
            (json!({"leaderElection": {"resourceNamespace": "../x"}}), "leaderElection.resourceNamespace"),
            (json!({"namespace": "A_B"}), "namespace"),
            (
                json!({"internalCertManagement": {"webhookSecretName": "a b"}}),
                "internalCertManagement.webhookSecretName",
            ),
            (
                json!({"internalCertManagement": {"webhookServiceName": "ä"}}),
                "internalCertManagement.webhookServiceName",
            ),
            (json!({"health": {"livenessEndpointName": "a b"}}), "health.livenessEndpointName"),
            (json!({"health": {"livenessEndpointName": "/readyz"}}), "health.readinessEndpointName"),
            (json!({"webhook": {"host": "no host"}}), "webhook.host"),
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
