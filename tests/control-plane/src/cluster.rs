//! etcd, the API server, the controllers and the scheduler of Kubernetes, JobSet and KubeRay: one cluster on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::api::{self, is_true, text};
use crate::audit::{self, Request};
use crate::build::Programs;
use crate::certificates::Certificates;
use crate::error::{Context as _, Error, Result};
use crate::gke::Dashboard;
use crate::guard;
use crate::kubectl::Kubectl;
use crate::ports;
use crate::process::{Process, Spec};
use crate::wait::{Objects, Wait};

/// How long a program may take until it is ready, on a busy machine.
const READY: Duration = Duration::from_mins(1);

/// Who may do everything. Each program has a name of its own, by which the audit log knows it.
const MASTERS: [&str; 8] =
    ["admin", "controller-manager", "scheduler", "jobset", "kuberay", "gke", "observer", "cluster-admin"];

/// The controller under test: it may do what its role says.
pub const CONTROLLER: &str = "slicegate";

/// Another controller beside it, told apart in the audit log.
pub const SECOND: &str = "slicegate-second";

/// Somebody who runs jobs, with no rights beyond those that a test gives.
pub const RESEARCHER: &str = "researcher";

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name, in messages and in the folder of its logs.
    pub name: String,
    /// Whether JobSet runs.
    pub jobset: bool,
    /// Whether KubeRay runs.
    pub kuberay: bool,
    /// For many objects: more requests at once.
    pub load: bool,
    /// After how long without a heartbeat a node is not ready.
    pub node_grace: Duration,
}

impl Options {
    /// All of it, for tests of ordinary size.
    pub fn new(name: &str) -> Self {
        let node_grace = Duration::from_secs(40);
        Self { name: name.to_owned(), jobset: true, kuberay: true, load: false, node_grace }
    }

    /// Kubernetes alone, for many Jobs.
    pub fn load(name: &str) -> Self {
        Self { jobset: false, kuberay: false, load: true, ..Self::new(name) }
    }
}

/// A cluster. Dropping it kills its programs.
pub struct Cluster {
    /// What it is made of.
    pub options: Options,
    /// Where its logs and kubeconfigs are.
    pub folder: PathBuf,
    /// The programs it runs.
    pub programs: Arc<Programs>,
    /// Its certificates.
    pub certificates: Certificates,
    /// The address of the API server.
    pub url: String,
    /// A client that may do everything.
    pub client: Client,
    /// kubectl that may do everything.
    pub kubectl: Kubectl,
    /// etcd.
    pub etcd: Mutex<Process>,
    /// The API server.
    pub apiserver: Mutex<Process>,
    /// The controllers of Kubernetes.
    pub controller_manager: Mutex<Process>,
    /// The scheduler.
    pub scheduler: Mutex<Process>,
    /// The JobSet controller.
    pub jobset: Option<Mutex<Process>>,
    /// The KubeRay operator.
    pub kuberay: Option<Mutex<Process>>,
    /// The dashboards of Ray's heads.
    pub dashboard: Dashboard,
    audit_log: PathBuf,
}

impl Cluster {
    /// Starts one and waits until all of it is ready. `folder` is where its logs go.
    ///
    /// # Errors
    /// If a program does not become ready, with its last words.
    pub async fn start(programs: Arc<Programs>, folder: &Path, options: Options) -> Result<Self> {
        Box::pin(Self::start_all(programs, folder, options)).await
    }

    async fn start_all(programs: Arc<Programs>, folder: &Path, options: Options) -> Result<Self> {
        fs::create_dir_all(folder).doing(folder.display())?;
        let certificates = Certificates::make(&folder.join("certificates"))?;
        let etcd = start_etcd(&programs, folder).await?;
        let (etcd, etcd_url) = etcd;
        let port = ports::free()?;
        let url = format!("https://127.0.0.1:{port}");
        let audit_log = folder.join("audit.log");
        write_users(folder, &url, &certificates)?;
        let spec = apiserver(&programs, folder, &certificates, &options, &etcd_url, port, &audit_log)?;
        let mut apiserver = Process::start(spec)?;
        let client = api::client(&kubeconfig(folder, "admin"), "e2e").await?;
        apiserver_ready(&mut apiserver, &client).await?;
        let kubectl = Kubectl::new(&programs.kubectl, &kubeconfig(folder, "admin"), &folder.join("kubectl-cache"));
        let dashboard = Dashboard::start().await?;
        let controller_manager = controller_manager(&programs, folder, &certificates, &options)?;
        let scheduler = scheduler(&programs, folder, &certificates)?;
        let operators =
            Operators { programs: &programs, folder, certificates: &certificates, client: &client, kubectl: &kubectl };
        let (controller_manager, scheduler, (), jobset, kuberay) = tokio::try_join!(
            operators.start(controller_manager),
            operators.start(scheduler),
            operators.definitions(&programs.provisioning_crds),
            operators.jobset(options.jobset),
            operators.kuberay(options.kuberay, dashboard.port()),
        )?;
        Ok(Self {
            folder: folder.to_owned(),
            options,
            url,
            client,
            kubectl,
            etcd: Mutex::new(etcd),
            apiserver: Mutex::new(apiserver),
            controller_manager: Mutex::new(controller_manager),
            scheduler: Mutex::new(scheduler),
            jobset: jobset.map(Mutex::new),
            kuberay: kuberay.map(Mutex::new),
            dashboard,
            audit_log,
            certificates,
            programs,
        })
    }

    /// The kubeconfig of a user: one of the masters, [`CONTROLLER`], [`SECOND`] or [`RESEARCHER`].
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        kubeconfig(&self.folder, user)
    }

    /// A client of a user.
    ///
    /// # Errors
    /// If there is no such user.
    pub async fn client_of(&self, user: &str, user_agent: &'static str) -> Result<Client> {
        api::client(&self.kubeconfig(user), user_agent).await.doing(user)
    }

    /// kubectl of a user.
    pub fn kubectl_of(&self, user: &str) -> Kubectl {
        Kubectl::new(&self.programs.kubectl, &self.kubeconfig(user), &self.folder.join("kubectl-cache"))
    }

    /// Lets a user do what these rules of a ClusterRole say.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn grant(&self, user: &str, role: &Value) -> Result<()> {
        let name = format!("e2e-{user}");
        let mut role = role.clone();
        role["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        role["kind"] = "ClusterRole".into();
        role["metadata"] = json!({"name": name});
        api::CLUSTER_ROLES.apply(&self.client, &role).await?;
        self.bind(user, &name).await
    }

    /// Gives a user a ClusterRole.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn bind(&self, user: &str, role: &str) -> Result<()> {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{user}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        self.kubectl.apply(&binding.to_string()).await.map(drop)
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api::NAMESPACES.apply(&self.client, &object).await.map(drop)
    }

    /// Kills the API server as `kill -9` does.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill_apiserver(&self) -> Result<()> {
        self.apiserver.lock().await.kill().await
    }

    /// Starts the API server again, at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        let mut apiserver = self.apiserver.lock().await;
        apiserver.start_again()?;
        apiserver_ready(&mut apiserver, &self.client).await
    }

    /// What was asked of the API server so far.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn requests(&self) -> Result<Vec<Request>> {
        audit::requests(&self.audit_log)
    }

    /// Fails if one of the programs has ended.
    ///
    /// # Errors
    /// If one has, with its last words.
    pub async fn must_run(&self) -> Result<()> {
        let operators = [self.jobset.as_ref(), self.kuberay.as_ref()];
        let all = [&self.etcd, &self.apiserver, &self.controller_manager, &self.scheduler];
        for process in all.into_iter().chain(operators.into_iter().flatten()) {
            process.lock().await.must_run()?;
        }
        Ok(())
    }
}

fn kubeconfig(folder: &Path, user: &str) -> PathBuf {
    folder.join("kubeconfigs").join(user)
}

async fn start_etcd(programs: &Programs, folder: &Path) -> Result<(Process, String)> {
    let data = folder.join("etcd-data");
    guard::remove_at_end(&data);
    let url = format!("http://127.0.0.1:{}", ports::free()?);
    let spec = Spec::new("etcd", &programs.etcd, folder)
        .flag("data-dir", &data)
        .flag("listen-client-urls", &url)
        .flag("advertise-client-urls", &url)
        .flag("listen-peer-urls", "http://127.0.0.1:0")
        .arg("--unsafe-no-fsync")
        .flag("log-level", "error");
    let mut etcd = Process::start(spec)?;
    etcd.ready(READY, || probe(url.clone(), "/health", None)).await?;
    Ok((etcd, url))
}

/// Tokens and a kubeconfig for every user.
fn write_users(folder: &Path, url: &str, certificates: &Certificates) -> Result<()> {
    let configs = folder.join("kubeconfigs");
    fs::create_dir_all(&configs).doing(configs.display())?;
    let mut tokens = String::new();
    for user in MASTERS.into_iter().chain([CONTROLLER, SECOND, RESEARCHER]) {
        let token = format!("token-of-{user}");
        let groups = if MASTERS.contains(&user) { "system:masters" } else { "e2e" };
        let _ = writeln!(tokens, "{token},{user},{user},\"{groups}\"");
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {"server": url, "certificate-authority": certificates.authority}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user, "namespace": "default"}}]});
        fs::write(configs.join(user), config.to_string())?;
    }
    fs::write(folder.join("tokens.csv"), tokens)?;
    Ok(())
}

fn apiserver(
    programs: &Programs,
    folder: &Path,
    certificates: &Certificates,
    options: &Options,
    etcd_url: &str,
    port: u16,
    audit_log: &Path,
) -> Result<Spec> {
    let policy = folder.join("audit-policy.json");
    fs::write(&policy, audit::POLICY)?;
    let mut spec = Spec::new("kube-apiserver", &programs.apiserver, folder)
        .flag("etcd-servers", etcd_url)
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("tls-cert-file", certificates.certificate())
        .flag("tls-private-key-file", certificates.key())
        .flag("cert-dir", folder.join("apiserver"))
        .flag("token-auth-file", folder.join("tokens.csv"))
        .flag("service-account-key-file", &certificates.service_accounts_public)
        .flag("service-account-signing-key-file", &certificates.service_accounts)
        .flag("service-account-issuer", format!("https://127.0.0.1:{port}"))
        .flag("service-cluster-ip-range", "10.0.0.0/24")
        .flag("authorization-mode", "RBAC")
        .flag("disable-admission-plugins", "ServiceAccount")
        // As on GKE: a pod that asks for TPUs tolerates their taint.
        .flag("enable-admission-plugins", "ExtendedResourceToleration")
        .flag("allow-privileged", "true")
        .flag("audit-policy-file", &policy)
        .flag("audit-log-path", audit_log)
        // In MiB: all that was asked for is in one file.
        .flag("audit-log-maxsize", "10000");
    if options.load {
        spec = spec.flag("max-requests-inflight", "5000").flag("max-mutating-requests-inflight", "2500");
    }
    Ok(spec)
}

async fn apiserver_ready(apiserver: &mut Process, client: &Client) -> Result<()> {
    apiserver.ready(READY, || ask(client.clone(), "/readyz")).await?;
    // Made by the API server itself, some time after it is ready.
    apiserver
        .ready(READY, || async {
            let found = api::NAMESPACES.get(client, "", "default").await?;
            found.map(drop).doing("the namespace default")
        })
        .await
}

fn controller_manager(
    programs: &Programs,
    folder: &Path,
    certificates: &Certificates,
    options: &Options,
) -> Result<(Spec, u16)> {
    let port = ports::free()?;
    let spec = Spec::new("kube-controller-manager", &programs.controller_manager, folder)
        .flag("kubeconfig", kubeconfig(folder, "controller-manager"))
        .flag("service-account-private-key-file", &certificates.service_accounts)
        .flag("leader-elect", "false")
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("tls-cert-file", certificates.certificate())
        .flag("tls-private-key-file", certificates.key())
        .flag("controllers", "*,-nodeipam,-node-route-controller,-cloud-node-lifecycle-controller")
        .flag("node-monitor-grace-period", format!("{}s", options.node_grace.as_secs()))
        .flag("node-monitor-period", "1s")
        .flag("kube-api-qps", "1000")
        .flag("kube-api-burst", "2000");
    Ok((spec, port))
}

fn scheduler(programs: &Programs, folder: &Path, certificates: &Certificates) -> Result<(Spec, u16)> {
    let port = ports::free()?;
    let path = folder.join("scheduler.json");
    let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "clientConnection": {"kubeconfig": kubeconfig(folder, "scheduler"), "qps": 1000, "burst": 2000}});
    fs::write(&path, config.to_string())?;
    let spec = Spec::new("kube-scheduler", &programs.scheduler, folder)
        .flag("config", &path)
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("tls-cert-file", certificates.certificate())
        .flag("tls-private-key-file", certificates.key());
    Ok((spec, port))
}

/// Starts what talks to the API server.
struct Operators<'a> {
    programs: &'a Programs,
    folder: &'a Path,
    certificates: &'a Certificates,
    client: &'a Client,
    kubectl: &'a Kubectl,
}

impl Operators<'_> {
    async fn start(&self, (spec, port): (Spec, u16)) -> Result<Process> {
        let mut process = Process::start(spec)?;
        let url = format!("https://127.0.0.1:{port}");
        process.ready(READY, || probe(url.clone(), "/healthz", Some(self.certificates))).await?;
        Ok(process)
    }

    /// Installs the custom resource definitions in a folder and waits until they are served.
    async fn definitions(&self, folder: &Path) -> Result<()> {
        let path = folder.display().to_string();
        apply_definitions(self.client, self.kubectl, &path).await
    }

    async fn jobset(&self, wanted: bool) -> Result<Option<Process>> {
        if !wanted {
            return Ok(None);
        }
        self.definitions(&self.programs.jobset_crds).await?;
        let (webhook, metrics, health) = (ports::free()?, ports::free()?, ports::free()?);
        let certificates = &self.certificates.folder;
        let config = json!({"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
            "internalCertManagement": {"enable": false},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": certificates},
            "metrics": {"bindAddress": format!("127.0.0.1:{metrics}"), "certDir": certificates},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"qps": 500, "burst": 1000}});
        let path = self.folder.join("jobset.json");
        fs::write(&path, config.to_string())?;
        let spec = Spec::new("jobset", &self.programs.jobset, self.folder)
            .flag("config", &path)
            .flag("kubeconfig", kubeconfig(self.folder, "jobset"));
        let mut process = Process::start(spec)?;
        let url = format!("http://127.0.0.1:{health}");
        process.ready(READY, || probe(url.clone(), "/readyz", None)).await?;
        self.webhooks(&self.programs.jobset_webhooks, webhook).await?;
        Ok(Some(process))
    }

    /// Installs webhook configurations, pointed at a port on loopback.
    async fn webhooks(&self, manifest: &Path, port: u16) -> Result<()> {
        let path = manifest.display().to_string();
        let text_of = self.kubectl.run(&["create", "--dry-run=client", "-o", "json", "-f", &path]).await?.stdout;
        let values = serde_json::Deserializer::from_str(&text_of).into_iter::<Value>();
        for configuration in values {
            let mut configuration = configuration?;
            for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                let path = text(webhook, "/clientConfig/service/path").to_owned();
                let url = format!("https://127.0.0.1:{port}{path}");
                webhook["clientConfig"] = json!({"url": url, "caBundle": self.certificates.bundle()});
            }
            configuration["metadata"] = json!({"name": configuration["metadata"]["name"]});
            let resource = match text(&configuration, "/kind") {
                "MutatingWebhookConfiguration" => api::MUTATING_WEBHOOKS,
                "ValidatingWebhookConfiguration" => api::VALIDATING_WEBHOOKS,
                other => return Err(Error::new(format!("{path} has a {other}, which is no webhook configuration"))),
            };
            resource.apply(self.client, &configuration).await?;
        }
        Ok(())
    }

    async fn kuberay(&self, wanted: bool, dashboard: u16) -> Result<Option<Process>> {
        if !wanted {
            return Ok(None);
        }
        self.definitions(&self.programs.kuberay_crds).await?;
        let (metrics, health) = (ports::free()?, ports::free()?);
        let spec = Spec::new("kuberay", &self.programs.kuberay, self.folder)
            .flag("kubeconfig", kubeconfig(self.folder, "kuberay"))
            .flag("metrics-addr", format!("127.0.0.1:{metrics}"))
            .flag("health-probe-bind-address", format!("127.0.0.1:{health}"))
            .flag("enable-leader-election", "false")
            .env("POD_NAMESPACE", "ray-system")
            // The heads' dashboards are behind names that only a cluster knows: they are all played by this proxy.
            .env("HTTP_PROXY", format!("http://127.0.0.1:{dashboard}"))
            .env("NO_PROXY", "127.0.0.1");
        let mut process = Process::start(spec)?;
        let url = format!("http://127.0.0.1:{health}");
        process.ready(READY, || probe(url.clone(), "/readyz", None)).await?;
        Ok(Some(process))
    }
}

/// Installs custom resource definitions, a file or a folder, and waits until they are served.
///
/// # Errors
/// If the API server refuses them, or does not serve them within half a minute.
pub async fn apply_definitions(client: &Client, kubectl: &Kubectl, path: &str) -> Result<()> {
    let applied = kubectl.run(&["apply", "--server-side", "-o", "name", "-f", path]).await?.stdout;
    let names: Vec<&str> = applied.lines().filter_map(|l| l.split_once('/')).map(|(_, name)| name).collect();
    let served = |seen: &Objects| {
        names.iter().all(|n| seen.get(&(String::new(), (*n).to_owned())).is_some_and(|d| is_true(d, "Established")))
    };
    Wait::new(client, api::CRDS, "").until(&format!("{names:?} established"), served).await.map(drop)
}

async fn ask(client: Client, path: &'static str) -> Result<String> {
    let request = http::Request::get(path).body(Vec::new()).doing(path)?;
    client.request_text(request).await.doing(path)
}

/// Asks a server on loopback and returns what it says with status 200.
///
/// # Errors
/// If it does not answer, or with another status.
pub async fn probe(url: String, path: &'static str, certificates: Option<&Certificates>) -> Result<String> {
    let mut cluster = json!({"server": url});
    if let Some(certificates) = certificates {
        cluster["certificate-authority"] = json!(certificates.authority);
    }
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "probe",
        "clusters": [{"name": "probe", "cluster": cluster}], "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "probe", "context": {"cluster": "probe", "user": "nobody"}}]});
    let kubeconfig = serde_json::from_value(config)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    ask(Client::try_from(config)?, path).await
}

/// Counts by what a function says of each.
pub fn count<T, K: Ord>(items: impl IntoIterator<Item = T>, by: impl Fn(&T) -> K) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(by(&item)).or_insert(0) += 1;
    }
    counts
}
