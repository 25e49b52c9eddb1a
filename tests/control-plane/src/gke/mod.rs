//! Google's side of a cluster, played: node pools and their autoscaler, kubelets, DWS, Ray's dashboards.

mod autoscaler;
mod dashboard;
mod dws;
mod kubelet;
mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::{Resource, is_not_found, name, text};
use crate::cluster::Cluster;
use crate::error::Result;
use crate::wait::AGAIN;

pub use dashboard::{Dashboard, RayStatus};
pub use dws::{Answer, CLASS};
pub use pool::{Pool, Shape};

/// How quick things go.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a pod runs, unless it says otherwise (see [`RUN_TIME`]); `None`: until [`Gke::finish`] or
    /// [`Gke::release`] ends it.
    pub run_time: Option<Duration>,
    /// From a pod's being bound to its running.
    pub start_time: Duration,
    /// From asking for nodes to having them.
    pub provision_time: Duration,
    /// How long an autoscaled pool has no pods before its nodes go.
    pub idle_time: Duration,
    /// What is done about ProvisioningRequests.
    pub answer: Answer,
    /// How often a node says that it is alive.
    pub heartbeat: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            run_time: Some(Duration::from_secs(2)),
            start_time: Duration::from_millis(100),
            provision_time: Duration::from_millis(500),
            idle_time: Duration::from_secs(3),
            answer: Answer::Provision { after: Duration::from_secs(1) },
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// An annotation of a pod: how long it runs, such as `3s`, or `forever`: until it is deleted or [`Gke::finish`] ends it.
pub const RUN_TIME: &str = "e2e.slicegate.dev/run-time";
/// An annotation of a pod: with which code its containers exit; 0 if there is none.
pub const EXIT_CODE: &str = "e2e.slicegate.dev/exit-code";

/// A player of GKE. Dropping it stops it; nodes stay.
pub struct Gke {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    client: Client,
    state: Mutex<State>,
    /// Told when more is released.
    news: tokio::sync::watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    settings: Settings,
    pools: BTreeMap<String, PoolState>,
    /// Pods as last seen, by uid.
    pods: BTreeMap<String, Value>,
    /// Nodes whose kubelet is silent.
    dead: BTreeSet<String>,
    /// JobSets whose pods end as soon as they run.
    released: BTreeSet<String>,
    /// What is done about single ProvisioningRequests, by namespace and name.
    answers: BTreeMap<(String, String), Answer>,
}

#[derive(Debug)]
struct PoolState {
    pool: Pool,
    /// The nodes that are there.
    nodes: BTreeSet<String>,
    /// Whether nodes are on their way.
    growing: bool,
    /// For whose pods it was scaled up: a job's uid.
    for_whom: Option<String>,
    /// Since when nothing runs there.
    idle_since: Instant,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gke {
    /// Begins to play.
    ///
    /// # Errors
    /// If there is no client for it.
    pub async fn start(cluster: &Cluster, settings: Settings) -> Result<Self> {
        let client = cluster.client_of("gke", "e2e-gke").await?;
        let state = Mutex::new(State { settings, ..State::default() });
        let shared = Arc::new(Shared { client, state, news: tokio::sync::watch::channel(()).0 });
        let tasks = vec![
            tokio::spawn(kubelet::run(shared.clone())),
            tokio::spawn(kubelet::heartbeats(shared.clone())),
            tokio::spawn(autoscaler::run(shared.clone())),
            tokio::spawn(dws::run(shared.clone())),
        ];
        Ok(Self { shared, tasks })
    }

    /// Adds node pools, with the nodes that they have from the beginning.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn add_pools(&self, pools: impl IntoIterator<Item = Pool>) -> Result<()> {
        for pool in pools {
            let initial = pool.initial;
            let pool_name = pool.name.clone();
            let state =
                PoolState { pool, nodes: BTreeSet::new(), growing: false, for_whom: None, idle_since: Instant::now() };
            self.shared.state().pools.insert(pool_name.clone(), state);
            self.shared.grow(&pool_name, initial, &BTreeMap::new()).await?;
        }
        Ok(())
    }

    /// The nodes of a pool.
    pub fn nodes(&self, pool: &str) -> Vec<String> {
        let state = self.shared.state();
        state.pools.get(pool).map(|p| p.nodes.iter().cloned().collect()).unwrap_or_default()
    }

    /// Changes how quick things go.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.shared.state().settings);
    }

    /// Says what is done about one ProvisioningRequest.
    pub fn answer(&self, namespace: &str, name: &str, answer: Answer) {
        self.shared.state().answers.insert((namespace.to_owned(), name.to_owned()), answer);
    }

    /// Ends the running pods that a function chooses, with this exit code, and says how many.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn finish(&self, exit_code: i32, choose: impl Fn(&Value) -> bool) -> Result<usize> {
        let pods: Vec<Value> = self.shared.state().pods.values().filter(|p| choose(p)).cloned().collect();
        let mut count = 0;
        for pod in pods.iter().filter(|p| text(p, "/status/phase") == "Running") {
            kubelet::end(&self.shared.client, pod, exit_code).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Lets the pods of a JobSet that run until they are told end well, those that run now and those to come.
    pub fn release(&self, job_set: &str) {
        self.shared.state().released.insert(job_set.to_owned());
        self.shared.news.send_replace(());
    }

    /// A host fails: its kubelet is silent from now on.
    pub fn fail_node(&self, node: &str) {
        self.shared.state().dead.insert(node.to_owned());
    }

    /// A host works again.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn mend_node(&self, node: &str) -> Result<()> {
        self.shared.state().dead.remove(node);
        self.shared.beat(node).await?;
        self.shared.ready(node).await
    }

    /// The capacity of a pool is gone, with all that runs there.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn remove_nodes(&self, pool: &str) -> Result<()> {
        self.shared.shrink(pool).await
    }
}

impl Drop for Gke {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Tries a write until it works or its object is gone: a kubelet does not give up because the API server is away.
async fn persist<T, F>(mut attempt: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    loop {
        match attempt().await {
            Ok(value) => return Some(value),
            Err(error) if is_not_found(&error) => return None,
            Err(kube::Error::Api(status)) if [409, 422].contains(&status.code) => return None,
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// The time, as the API writes it.
fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `3s`, `500ms`, `2m`.
fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(at)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.saturating_mul(60))),
        _ => None,
    }
}

/// Where an object is.
fn place(object: &Value) -> (String, String) {
    (text(object, "/metadata/namespace").to_owned(), name(object).to_owned())
}

/// All objects of a kind as they change, until the task is aborted.
async fn follow(client: &Client, resource: Resource, mut seen: impl FnMut(Change)) {
    use futures_util::StreamExt as _;
    use kube::runtime::watcher::{Config, Event, watcher};

    let mut stream = std::pin::pin!(watcher(resource.all(client), Config::default()));
    while let Some(event) = stream.next().await {
        let change = match event {
            Ok(Event::Init) => Some(Change::Begin),
            Ok(Event::InitApply(o) | Event::Apply(o)) => serde_json::to_value(o).ok().map(Change::Is),
            Ok(Event::Delete(o)) => serde_json::to_value(o).ok().map(Change::Gone),
            Ok(Event::InitDone) => Some(Change::Listed),
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                None
            }
        };
        if let Some(change) = change {
            seen(change);
        }
    }
}

enum Change {
    Begin,
    Listed,
    Is(Value),
    Gone(Value),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("3s"), Some(Duration::from_secs(3)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Some(Duration::from_mins(2)));
        assert_eq!((duration("3"), duration("s"), duration("1d")), (None, None, None));
    }
}
