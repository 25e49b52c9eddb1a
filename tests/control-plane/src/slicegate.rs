//! The controller under test.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;

use crate::api;
use crate::cluster::{CONTROLLER, Cluster, apply_definitions, probe};
use crate::error::{Context as _, Error, Result};
use crate::ports;
use crate::process::{Process, Spec};

/// Where the controller keeps its Lease and its certificates.
pub const NAMESPACE: &str = "kueue-system";

const READY: Duration = Duration::from_secs(30);

/// The built `slicegate` program: what `SLICEGATE_BIN` names, or the one beside this program.
///
/// # Errors
/// If there is none.
pub fn program() -> Result<PathBuf> {
    let path = match std::env::var_os("SLICEGATE_BIN") {
        Some(path) => path.into(),
        None => std::env::current_exe()?.with_file_name("slicegate"),
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(Error::new(format!("there is no {}: `cargo build -p slicegate` makes it", path.display())))
    }
}

/// How the controller is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// What this one is called: in its Lease, in Events, and its log is `NAME.log`.
    pub name: String,
    /// The Configuration file's text; `None`: the defaults.
    pub configuration: Option<String>,
    /// Further arguments.
    pub args: Vec<String>,
    /// Further variables.
    pub env: Vec<(String, String)>,
    /// How it reaches the API server; `None`: directly, as [`CONTROLLER`].
    pub kubeconfig: Option<PathBuf>,
    /// Whether it takes part in an election.
    pub leader_elect: bool,
    /// Whether it serves the conversion webhook: of several at once, one should.
    pub webhook: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "slicegate".to_owned(),
            configuration: None,
            args: Vec::new(),
            env: Vec::new(),
            kubeconfig: None,
            leader_elect: false,
            webhook: true,
        }
    }
}

/// A controller that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Slicegate {
    /// The process.
    pub process: Process,
    metrics: u16,
    probes: u16,
}

/// Installs the definitions of Kueue's kinds with `slicegate crds`, as somebody who sets up a cluster does, and what the
/// controller may do.
///
/// # Errors
/// If the API server refuses them.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let output = Command::new(program()?)
        .args(["crds", "--output", "json", "--webhook-url"])
        .arg(format!("{}/convert", webhook_url(cluster)?))
        .output()
        .await?;
    if !output.status.success() {
        return Err(Error::new(format!("slicegate crds: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let definitions = cluster.folder.join("slicegate-crds.json");
    std::fs::write(&definitions, &output.stdout)?;
    let path = definitions.display().to_string();
    apply_definitions(&cluster.client, &cluster.kubectl, &path).await?;
    cluster.namespace(NAMESPACE).await?;
    cluster.bind(CONTROLLER, "cluster-admin").await
}

/// Where the API server finds the conversion webhook: the same port as long as the cluster lives.
fn webhook_url(cluster: &Cluster) -> Result<String> {
    let kept = cluster.folder.join("conversion-port");
    let port = if let Ok(port) = std::fs::read_to_string(&kept) {
        port
    } else {
        let port = ports::free()?.to_string();
        std::fs::write(&kept, &port)?;
        port
    };
    Ok(format!("https://127.0.0.1:{port}"))
}

impl Slicegate {
    /// Starts it and waits until it is ready and the API server can use its webhook. `folder` is where its log goes.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn start(cluster: &Cluster, folder: &Path, options: &Options) -> Result<Self> {
        let mut started = Self::launch(cluster, folder, options)?;
        started.ready().await?;
        if options.webhook {
            started.converts(cluster).await?;
        }
        Ok(started)
    }

    /// Waits until the API server converts objects: some time after it was told by which authority it knows the webhook.
    async fn converts(&mut self, cluster: &Cluster) -> Result<()> {
        for kind in ["ClusterQueue", "LocalQueue", "Workload", "Cohort"] {
            let metadata = json!({"name": "is-it-converted", "namespace": "default"});
            let object =
                json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata, "spec": {}});
            let object = &object.to_string();
            let attempt = || async move {
                let answer = cluster.kubectl.try_run(&["create", "--dry-run=server", "-f", "-"], object).await?;
                // Whatever else is wrong with it is found after it was converted.
                let fails = answer.stderr.contains("conversion webhook");
                if fails { Err(Error::new(answer.stderr)) } else { Ok(()) }
            };
            self.process.ready(READY, attempt).await?;
        }
        Ok(())
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn launch(cluster: &Cluster, folder: &Path, options: &Options) -> Result<Self> {
        let (metrics, probes) = (ports::free()?, ports::free()?);
        let local = |port: u16| format!("127.0.0.1:{port}");
        let mut spec = Spec::new(&options.name, &program()?, folder)
            .arg("controller")
            .flag("kubeconfig", options.kubeconfig.clone().unwrap_or_else(|| cluster.kubeconfig(CONTROLLER)))
            .flag("leader-elect", options.leader_elect.to_string())
            .flag("metrics-bind-address", local(metrics))
            .flag("health-probe-bind-address", local(probes))
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", options.name.clone());
        if options.webhook {
            let url = webhook_url(cluster)?;
            spec = spec.flag("webhook-bind-address", url.trim_start_matches("https://")).flag("webhook-url", &url);
        } else {
            spec = spec.flag("webhook-bind-address", "0");
        }
        if let Some(text) = &options.configuration {
            std::fs::create_dir_all(folder).doing(folder.display())?;
            let path = folder.join(format!("{}.yaml", options.name));
            std::fs::write(&path, text).doing(path.display())?;
            spec = spec.flag("config", path);
        }
        for argument in &options.args {
            spec = spec.arg(argument);
        }
        for (name, value) in &options.env {
            spec = spec.env(name, value);
        }
        Ok(Self { process: Process::start(spec)?, metrics, probes })
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// If it ends, or is not ready in time.
    pub async fn ready(&mut self) -> Result<()> {
        let url = format!("http://127.0.0.1:{}", self.probes);
        self.process.ready(READY, || probe(url.clone(), "/readyz", None)).await.map(drop)
    }

    /// What it says at `/metrics`.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        probe(format!("http://127.0.0.1:{}", self.metrics), "/metrics", None).await
    }

    /// What it says at `/healthz` or `/readyz`.
    ///
    /// # Errors
    /// If it does not answer, or not with status 200.
    pub async fn probe(&self, path: &'static str) -> Result<String> {
        probe(format!("http://127.0.0.1:{}", self.probes), path, None).await
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Starts it again as it was, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.ready().await
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// If it does not end within 10 s.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate(Duration::from_secs(10)).await
    }

    /// Stops it in the middle of whatever it does, as a machine does that swaps.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// The processor time it has used so far, in seconds, and the most memory it has held, in KiB, from `/proc`.
    ///
    /// # Errors
    /// If it does not run.
    pub fn cost(&self) -> Result<(f64, u64)> {
        cost_of(self.process.pid().doing(self.process.name())?)
    }
}

/// The processor time that a process has used so far, in seconds, and the most memory it has held, in KiB, from `/proc`.
///
/// # Errors
/// If there is no such process.
pub fn cost_of(pid: u32) -> Result<(f64, u64)> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).doing(path)
    };
    let stat = read("stat")?;
    // After the name, which may hold blanks: state is field 3, user and system time are 14 and 15, in hundredths.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let field = |at: usize| after.split_whitespace().nth(at).and_then(|f| f.parse::<u32>().ok()).unwrap_or(0);
    let seconds = (f64::from(field(11)) + f64::from(field(12))) / 100.0;
    let status = read("status")?;
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    Ok((seconds, peak.unwrap_or(0)))
}

/// Whether the definitions of Kueue's kinds are installed.
///
/// # Errors
/// If the API server does not answer.
pub async fn is_installed(cluster: &Cluster) -> Result<bool> {
    Ok(api::CRDS.get(&cluster.client, "", "workloads.kueue.x-k8s.io").await?.is_some())
}
