//! How the process runs: what Kueue calls the controller manager. Nothing here changes a decision.

use std::net::SocketAddrV6;
use std::path::PathBuf;
use std::time::Duration;

use slicegate_api::configuration as file;
use slicegate_api::validation::{dns_label, dns_subdomain};

use super::{ConfigurationError, Reading, go_duration};

/// The Lease of Kueue's manager: whoever holds it is the one that acts.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// The longest a Lease lasts: its seconds are an int32 in the API.
const LONGEST_LEASE: Duration = Duration::from_secs(i32::MAX as u64);
/// Where the webhook is served if nothing says otherwise.
const WEBHOOK_PORT: u16 = 9443;

/// How the process runs, as a configuration file says it; what the file leaves out has Kueue's defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerManager {
    /// The namespace of the process; `None` if the file does not say.
    pub namespace: Option<String>,
    /// How a leader is elected; `None`: there is no election.
    pub leader_election: Option<LeaderElection>,
    /// The name of the liveness probe, such as `healthz`.
    pub liveness: String,
    /// The name of the readiness probe; never that of the liveness probe.
    pub readiness: String,
    /// Where probes are answered; `None`: nowhere.
    pub probes: Option<Address>,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<Address>,
    /// Where the conversion webhook is served.
    pub webhook: Address,
    /// The certificate that the webhook shows.
    pub certificate: WebhookCertificate,
}

/// How a leader is elected. The three durations are in this order: `retry_period < renew_deadline < lease_duration`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderElection {
    /// The namespace of the Lease; `None`: that of the process.
    pub namespace: Option<String>,
    /// The name of the Lease.
    pub name: String,
    /// How long others wait after the last renewal that they saw; from a second to what a Lease can hold.
    pub lease_duration: Duration,
    /// How long the leader acts after its last renewal.
    pub renew_deadline: Duration,
    /// How often renewal, or taking over, is tried.
    pub retry_period: Duration,
    /// Whether the Lease is given back at the end, so that another need not wait.
    pub release_on_cancel: bool,
}

/// Where the webhook's certificate comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebhookCertificate {
    /// It is made by the controller and kept in a Secret.
    Secret {
        /// The name of the Secret, in the namespace of the process.
        name: String,
        /// The service that it is for, in the same namespace.
        service: String,
    },
    /// It is in this folder, as `tls.crt` and `tls.key`.
    Folder(PathBuf),
}

/// Where something listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// A name or an IP address, an IPv6 one without its brackets; empty: every address of the machine.
    pub host: String,
    /// The port; 0: any that is free.
    pub port: u16,
}

impl Address {
    /// Reads an address as Go writes them: `:8080` is all of the machine's, `[::1]:8080` has an IPv6 address, and `0` or nothing
    /// is none. Names are not looked up.
    ///
    /// # Errors
    /// If it is no address; the text says what to write.
    ///
    /// ```
    /// use slicegate_controller::Address;
    ///
    /// let address = Address::parse("localhost:8080").unwrap().unwrap();
    /// assert_eq!((address.host.as_str(), address.port), ("localhost", 8080));
    /// assert_eq!(Address::parse("0").unwrap(), None);
    /// assert!(Address::parse("8080").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        if matches!(text, "" | "0") {
            return Ok(None);
        }
        let wrong = |why: &str| format!("{text:?} {why}; write HOST:PORT, :PORT, or 0 to serve nothing");
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
        let port = port.parse().map_err(|_| wrong("has no port"))?;
        if let Some(inside) = host.strip_prefix('[') {
            let is_one = text.parse::<SocketAddrV6>().is_ok();
            let host = inside.strip_suffix(']').filter(|_| is_one).ok_or_else(|| wrong("has no IPv6 address"))?;
            return Ok(Some(Self { host: host.to_owned(), port }));
        }
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !host.chars().all(inside) {
            return Err(wrong("has no host name"));
        }
        Ok(Some(Self { host: host.to_owned(), port }))
    }
}

/// What a configuration file says about the process.
///
/// What depends on the machine is not looked at: whether names of hosts are known, ports are free and certificates are in their
/// folder.
///
/// # Errors
/// All that is wrong with it.
pub fn controller_manager(file: &file::Configuration) -> Result<ControllerManager, Vec<ConfigurationError>> {
    let mut reading = Reading::default();
    let health = file.health.clone().unwrap_or_default();
    let (liveness, readiness) = probe_names(&mut reading, &health);
    let metrics = file.metrics.as_ref().and_then(|m| m.bind_address.as_ref());
    let manager = ControllerManager {
        namespace: reading.name("namespace", file.namespace.as_ref(), dns_label),
        leader_election: leader_election(&mut reading, file),
        liveness,
        readiness,
        probes: reading.address("health.healthProbeBindAddress", health.health_probe_bind_address.as_ref(), 8081),
        metrics: reading.address("metrics.bindAddress", metrics, 8080),
        webhook: webhook_address(&mut reading, file),
        certificate: certificate(&mut reading, file),
    };
    if reading.errors.is_empty() { Ok(manager) } else { Err(reading.errors) }
}

impl Reading {
    /// A name; an empty one is not said.
    fn name(&mut self, path: &str, text: Option<&String>, rule: fn(&str) -> Result<(), String>) -> Option<String> {
        let text = text.filter(|text| !text.is_empty())?;
        match rule(text) {
            Ok(()) => Some(text.clone()),
            Err(why) => {
                self.error(path, why);
                None
            }
        }
    }

    /// An address; all of the machine's at this port if nothing is said.
    fn address(&mut self, path: &str, text: Option<&String>, default_port: u16) -> Option<Address> {
        let Some(text) = text else { return Some(Address { host: String::new(), port: default_port }) };
        Address::parse(text).unwrap_or_else(|why| {
            self.error(path, why);
            None
        })
    }

    /// A time to wait; `None` if it is none.
    fn wait(&mut self, path: &str, text: Option<&String>, default: Duration) -> Option<Duration> {
        let Some(text) = text else { return Some(default) };
        let micros = go_duration(text).map(|micros| u64::try_from(micros).unwrap_or(0));
        match micros {
            Ok(0) => self.error(path, format!("{text} is no time to wait; write more than 0")),
            Ok(micros) => return Some(Duration::from_micros(micros)),
            Err(why) => self.error(path, why),
        }
        None
    }
}

fn probe_names(reading: &mut Reading, health: &file::Health) -> (String, String) {
    let mut name = |said: &Option<String>, default: &str, field: &str| {
        let text = said.as_deref().filter(|n| !n.is_empty()).unwrap_or(default);
        let inside = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        if !text.chars().all(inside) || text.trim_start_matches('/').is_empty() {
            let why = format!("{text:?} cannot be a path; write letters, digits, '-', '.', '_', '~' and '/'");
            reading.error(format!("health.{field}"), why);
        }
        text.to_owned()
    };
    let liveness = name(&health.liveness_endpoint_name, "healthz", "livenessEndpointName");
    let readiness = name(&health.readiness_endpoint_name, "readyz", "readinessEndpointName");
    if liveness.trim_start_matches('/') == readiness.trim_start_matches('/') {
        let why = format!("{readiness:?} is livenessEndpointName too; write another");
        reading.error("health.readinessEndpointName", why);
    }
    (liveness, readiness)
}

fn leader_election(reading: &mut Reading, file: &file::Configuration) -> Option<LeaderElection> {
    let section = file.leader_election.clone().unwrap_or_default();
    if !section.leader_elect.unwrap_or(true) {
        return None;
    }
    let path = |field: &str| format!("leaderElection.{field}");
    if let Some(kind) = section.resource_lock.as_deref().filter(|kind| !matches!(*kind, "" | "leases")) {
        reading.error(path("resourceLock"), format!("{kind:?} is not known; write leases"));
    }
    let namespace = reading.name(&path("resourceNamespace"), section.resource_namespace.as_ref(), dns_label);
    let name = reading.name(&path("resourceName"), section.resource_name.as_ref(), dns_subdomain);
    let seconds = Duration::from_secs;
    let lease_duration = reading.wait(&path("leaseDuration"), section.lease_duration.as_ref(), seconds(15));
    let renew_deadline = reading.wait(&path("renewDeadline"), section.renew_deadline.as_ref(), seconds(10));
    let retry_period = reading.wait(&path("retryPeriod"), section.retry_period.as_ref(), seconds(2));
    if lease_duration.is_some_and(|lease| lease < seconds(1)) {
        reading.error(path("leaseDuration"), "a Lease counts whole seconds; write 1s or more");
    }
    if lease_duration.is_some_and(|lease| lease > LONGEST_LEASE) {
        let longest = LONGEST_LEASE.as_secs();
        let why = format!("a Lease lasts {longest} s at most; write a shorter time, such as 15s");
        reading.error(path("leaseDuration"), why);
    }
    let text = |d: Duration| format!("{} s", d.as_secs_f64());
    if let (Some(deadline), Some(lease)) = (renew_deadline, lease_duration)
        && deadline >= lease
    {
        let (deadline, lease) = (text(deadline), text(lease));
        let why = "the leader must stop before another can begin";
        reading.error(path("renewDeadline"), format!("{deadline} is not less than leaseDuration, {lease}: {why}"));
    }
    if let (Some(retry), Some(deadline)) = (retry_period, renew_deadline)
        && retry >= deadline
    {
        let (retry, deadline) = (text(retry), text(deadline));
        reading.error(path("retryPeriod"), format!("{retry} is not less than renewDeadline, {deadline}"));
    }
    Some(LeaderElection {
        namespace,
        name: name.unwrap_or_else(|| LEASE.to_owned()),
        lease_duration: lease_duration?,
        renew_deadline: renew_deadline?,
        retry_period: retry_period?,
        release_on_cancel: section.leader_election_release_on_cancel.unwrap_or(true),
    })
}

fn webhook_address(reading: &mut Reading, file: &file::Configuration) -> Address {
    let section = file.webhook.clone().unwrap_or_default();
    // As for Kueue's manager, 0 is no port but nothing said.
    let port = section.port.filter(|port| *port != 0).unwrap_or(WEBHOOK_PORT);
    let host = section.host.unwrap_or_default();
    let bare = host.contains(':') && !host.starts_with('[');
    let text = if bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    reading.address("webhook.host", Some(&text), port).unwrap_or(Address { host: String::new(), port })
}

fn certificate(reading: &mut Reading, file: &file::Configuration) -> WebhookCertificate {
    let own = file.internal_cert_management.clone().unwrap_or_default();
    if !own.enable.unwrap_or(true) {
        let folder = file.webhook.as_ref().and_then(|webhook| webhook.cert_dir.as_deref());
        return WebhookCertificate::Folder(folder.unwrap_or("/tmp/k8s-webhook-server/serving-certs").into());
    }
    let path = |field: &str| format!("internalCertManagement.{field}");
    let service = reading.name(&path("webhookServiceName"), own.webhook_service_name.as_ref(), dns_label);
    let name = reading.name(&path("webhookSecretName"), own.webhook_secret_name.as_ref(), dns_subdomain);
    WebhookCertificate::Secret {
        name: name.unwrap_or_else(|| "kueue-webhook-server-cert".to_owned()),
        service: service.unwrap_or_else(|| "kueue-webhook-service".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(file: Value) -> Result<ControllerManager, Vec<ConfigurationError>> {
        controller_manager(&serde_json::from_value(file).unwrap())
    }

    #[test]
    fn what_is_left_out_has_kueues_defaults() {
        let said = read(json!({})).unwrap();
        assert_eq!((said.namespace, said.liveness.as_str(), said.readiness.as_str()), (None, "healthz", "readyz"));
        let port = |address: Address| (address.host, address.port);
        assert_eq!(said.probes.map(port), Some((String::new(), 8081)));
        assert_eq!(said.metrics.map(port), Some((String::new(), 8080)));
        assert_eq!(port(said.webhook), (String::new(), 9443));
        let election = said.leader_election.unwrap();
        assert_eq!((election.name.as_str(), election.namespace), (LEASE, None));
        assert_eq!(election.lease_duration, Duration::from_secs(15));
    }

    #[test]
    fn what_is_empty_is_not_said() {
        let said = read(json!({
            "namespace": "",
            "webhook": {"host": "::1", "port": 0},
            "health": {"livenessEndpointName": "", "readinessEndpointName": ""},
            "internalCertManagement": {"webhookSecretName": "", "webhookServiceName": ""},
            "leaderElection": {"resourceName": "", "resourceNamespace": "", "resourceLock": ""},
        }))
        .unwrap();
        let nothing = read(json!({"webhook": {"host": "::1"}})).unwrap();
        assert_eq!(said, nothing);
        assert_eq!(said.webhook, Address { host: "::1".to_owned(), port: 9443 });
    }

    #[test]
    fn what_cannot_be_is_told_with_its_field() {
        for (file, path) in [
            (json!({"leaderElection": {"renewDeadline": "15s"}}), "leaderElection.renewDeadline"),
            (json!({"leaderElection": {"retryPeriod": "10s"}}), "leaderElection.retryPeriod"),
            (json!({"leaderElection": {"retryPeriod": "0s"}}), "leaderElection.retryPeriod"),
            (json!({"leaderElection": {"leaseDuration": "soon"}}), "leaderElection.leaseDuration"),
            (json!({"leaderElection": {"resourceLock": "configmaps"}}), "leaderElection.resourceLock"),
            (json!({"metrics": {"bindAddress": ":many"}}), "metrics.bindAddress"),
            (json!({"health": {"healthProbeBindAddress": "8081"}}), "health.healthProbeBindAddress"),
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
            let errors = read(file).unwrap_err();
            assert_eq!(errors.iter().map(|e| e.path.as_str()).collect::<Vec<_>>(), [path], "{errors:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let errors =
            read(json!({"namespace": "A", "leaderElection": {"leaseDuration": "500ms", "renewDeadline": "x"}}));
        let errors = errors.unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["namespace", "leaderElection.renewDeadline", "leaderElection.leaseDuration"]);
    }

    #[test]
    fn nobody_looks_at_what_is_switched_off() {
        let off = json!({"leaderElect": false, "leaseDuration": "soon"});
        assert_eq!(read(json!({"leaderElection": off})).unwrap().leader_election, None);
        let own = json!({"enable": false, "webhookSecretName": "a b"});
        let said = read(json!({"internalCertManagement": own, "webhook": {"certDir": "/certs"}})).unwrap();
        assert_eq!(said.certificate, WebhookCertificate::Folder("/certs".into()));
    }

    #[test]
    fn addresses_are_those_of_go() {
        let read = |text: &str| Address::parse(text).map(|address| address.map(|a| (a.host, a.port)));
        for (text, host, port) in [
            (":1", "", 1),
            ("[::1]:2", "::1", 2),
            ("[::]:2", "::", 2),
            ("a-b.c_d:0", "a-b.c_d", 0),
            ("10.0.0.1:65535", "10.0.0.1", 65535),
        ] {
            assert_eq!(read(text), Ok(Some((host.to_owned(), port))), "{text}");
        }
        assert_eq!((read(""), read("0")), (Ok(None), Ok(None)));
        for text in ["1", "a", "a:", "a:b", ":65536", "::1", "[::1]", "[a]:1", "[::1:1", "a b:1", "http://a:1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
