//! Many Jobs through the whole stack: what they cost. Not timed as a test; what must hold is that all complete, that no rule is
//! broken, and how much is written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::PostParams;
use slicegate_control_plane::api::{self, is_true, items, text};
use slicegate_control_plane::audit::{Request, writes_of};
use slicegate_control_plane::cluster::{CONTROLLER, Cluster, Options, count};
use slicegate_control_plane::gke::{Gke, Pool, Settings};
use slicegate_control_plane::observe::{Change, Observer, Seen};
use slicegate_control_plane::slicegate::{self, Slicegate, cost_of};
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Context as _, Result, Value, ensure, ensure_eq};
use tokio::time::Instant;

use crate::objects;
use crate::scene::queue;
use crate::suite::{Suite, tests};

tests![load_2000_jobs,];

/// How many Jobs; 2,000 if the test is asked for by its name, 100 among others.
const SIZE: &str = "SLICEGATE_LOAD_JOBS";
/// How many Jobs are created at once.
const CREATORS: usize = 16;
/// How many pods a node takes.
const PODS_A_NODE: u32 = 110;
/// The most writes in the life of a Job that is admitted at once, and is created running: suspended, its Workload made,
/// admitted, started, finished.
const MOST_WRITES: usize = 5;

fn size() -> Result<u32> {
    if let Ok(text) = std::env::var(SIZE) {
        return text.parse().map_err(|_| format!("{SIZE}={text}: write a number of Jobs").into());
    }
    let by_name = std::env::args().skip(1).any(|a| !a.starts_with('-') && "load_2000_jobs".contains(&a));
    Ok(if by_name { 2_000 } else { 100 })
}

async fn load_2000_jobs(suite: &mut Suite) -> Result<()> {
    let jobs = size()?;
    let folder = suite.test_folder();
    let cluster = suite.own(Options::load("load")).await?;
    slicegate::install(&cluster).await?;
    // As Kueue does by default, and as fast as it goes.
    for (name, limit) in [("300 requests a second, 500 at once", "{qps: 300, burst: 500}"), ("no limit", "{qps: -1}")] {
        for _ in 0..10 {
            if cluster.clean().await.is_ok() {
                break;
            }
        }
        let configuration = format!(
            "{{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, clientConnection: {limit},
            featureGates: {{DisableWaitForPodsReady: true}}}}"
        );
        let options = slicegate::Options { configuration: Some(configuration), ..slicegate::Options::default() };
        let found = measure(&cluster, &folder, &options, jobs).await?;
        found.print(name);
        found.must_be_right()?;
    }
    Ok(())
}

/// What came of it.
struct Found {
    jobs: u32,
    created: Duration,
    /// From the first admission to the last.
    admitting: Duration,
    complete: Duration,
    writes: BTreeMap<(String, String), usize>,
    events: usize,
    /// By verb, kind and status.
    refused: BTreeMap<String, usize>,
    controller: (f64, u64),
    apiserver: (f64, u64),
    broken: Vec<String>,
}

async fn measure(
    cluster: &Cluster,
    folder: &std::path::Path,
    options: &slicegate::Options,
    jobs: u32,
) -> Result<Found> {
    let settings = Settings { run_time: Some(Duration::from_secs(1)), ..Settings::default() };
    let gke = Gke::start(cluster, settings).await?;
    gke.add_pools([Pool::cpu("default-pool", jobs.div_ceil(PODS_A_NODE) + 1, 16, 64)]).await?;
    let kinds = [api::WORKLOADS, api::JOBS, api::CLUSTER_QUEUES];
    let observer = Observer::of(cluster, &kinds).await?;
    let controller = Slicegate::start(cluster, folder, options).await?;
    cluster.kubectl.apply(&queue("team", &format!("{}m", jobs * 100), "")).await?;
    Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one("team", "active", |q| is_true(q, "Active")).await?;
    let apiserver = cluster.apiserver.lock().await.pid().doing("the API server")?;
    let (before, api_before) = (cluster.requests()?.len(), cost_of(apiserver)?);

    let began = Instant::now();
    let all: Vec<Value> = (0..jobs).map(|n| objects::job(&format!("load-{n:05}"), 1, "100m", Some("team"))).collect();
    let creating = futures_util::stream::iter(all).for_each_concurrent(CREATORS, |job| async move {
        let api = api::JOBS.within(&cluster.client, "default");
        let Ok(job) = serde_json::from_value(job) else { return };
        // What fails is missed in the end.
        let _ = api.create(&PostParams::default(), &job).await;
    });
    creating.await;
    let created = began.elapsed();
    let done = |seen: &Objects| {
        seen.len() == usize::try_from(jobs).unwrap_or(0) && seen.values().all(|w| is_true(w, "Finished"))
    };
    Wait::new(&cluster.client, api::WORKLOADS, "default")
        .limit(Duration::from_mins(15))
        .until("all finished", done)
        .await?;
    let complete = began.elapsed();
    // The queue's figures and the Events come last.
    Wait::new(&cluster.client, api::CLUSTER_QUEUES, "")
        .one("team", "empty", |q| q["status"]["admittedWorkloads"] == 0 && q["status"]["pendingWorkloads"] == 0)
        .await?;
    let spent = controller.cost()?;
    let api_spent = cost_of(apiserver)?;
    observer.catch_up().await?;
    events_are_told(cluster).await?;

    let requests: Vec<Request> = cluster.requests()?.into_iter().skip(before).collect();
    let mut writes = writes_of(&requests, CONTROLLER);
    let events = writes.remove(&("create".to_owned(), "events".to_owned())).unwrap_or(0);
    let refused = requests.iter().filter(|r| r.user == CONTROLLER && r.is_write() && r.code >= 300);
    let refused = count(refused, |r| format!("{} {} with {}", r.verb, r.resource, r.code));
    let seen = observer.all();
    let mut broken = broken(&seen, jobs);
    broken.extend(observer.leftovers());
    Ok(Found {
        jobs,
        created,
        admitting: admitting(&seen),
        complete,
        writes,
        events,
        refused,
        controller: spent,
        apiserver: (api_spent.0 - api_before.0, api_spent.1),
        broken,
    })
}

/// Waits until the controller tells no Events any more: they come after everything else.
async fn events_are_told(cluster: &Cluster) -> Result<()> {
    let mut last = usize::MAX;
    for _ in 0..30 {
        let told = |r: &&Request| r.user == CONTROLLER && r.resource == "events";
        let now = cluster.requests()?.iter().filter(told).count();
        if now == last {
            break;
        }
        last = now;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// From the first admission that was seen to the last.
fn admitting(seen: &[Seen]) -> Duration {
    let mut admitted: BTreeMap<&str, Duration> = BTreeMap::new();
    for version in seen.iter().filter(|s| s.kind == api::WORKLOADS.plural && is_true(&s.object, "Admitted")) {
        admitted.entry(text(&version.object, "/metadata/uid")).or_insert(version.at);
    }
    let first = admitted.values().min().copied().unwrap_or_default();
    admitted.values().max().copied().unwrap_or_default().saturating_sub(first)
}

/// The rules, for many Workloads of one size in one queue: never more of them hold quota than there is for, and one a Job.
fn broken(seen: &[Seen], most: u32) -> Vec<String> {
    let mut holding: BTreeSet<&str> = BTreeSet::new();
    let mut jobs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut broken = BTreeSet::new();
    for version in seen.iter().filter(|s| s.kind == api::WORKLOADS.plural) {
        let uid = text(&version.object, "/metadata/uid");
        let holds = is_true(&version.object, "QuotaReserved") && !is_true(&version.object, "Finished");
        if holds && version.change != Change::Deleted {
            holding.insert(uid);
        } else {
            holding.remove(uid);
        }
        if holding.len() > usize::try_from(most).unwrap_or(usize::MAX) {
            broken.insert(format!("{} Workloads hold quota that is enough for {most}", holding.len()));
        }
        for owner in items(&version.object, "/metadata/ownerReferences") {
            let of_job = jobs.entry(text(owner, "/uid")).or_default();
            of_job.insert(uid);
            if of_job.len() > 1 {
                broken.insert(format!("Job {} has had several Workloads", text(owner, "/name")));
            }
        }
    }
    broken.into_iter().collect()
}

impl Found {
    fn print(&self, limit: &str) {
        let jobs = f64::from(self.jobs);
        let each = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / jobs;
        let mib = |kib: u64| kib / 1_024;
        let all: usize = self.writes.values().sum();
        println!("        {} Jobs, {limit}", self.jobs);
        let line = |what: &str, value: String| println!("          {what:<22} {value}");
        line("created in", format!("{:.1} s", self.created.as_secs_f64()));
        let rate = jobs / self.admitting.as_secs_f64().max(0.001);
        line("admitted", format!("{rate:.1} a second, in {:.1} s", self.admitting.as_secs_f64()));
        line("all finished after", format!("{:.1} s", self.complete.as_secs_f64()));
        line("writes a Job", format!("{:.2}", each(all)));
        for ((verb, resource), count) in &self.writes {
            line("", format!("{:.2} {verb} {resource}", each(*count)));
        }
        line("Events a Job", format!("{:.2}", each(self.events)));
        for (which, count) in &self.refused {
            line("refused", format!("{count} {which}"));
        }
        line("controller", format!("{:.1} s of CPU, {} MiB at most", self.controller.0, mib(self.controller.1)));
        line("API server", format!("{:.1} s of CPU, {} MiB at most", self.apiserver.0, mib(self.apiserver.1)));
    }

    fn must_be_right(&self) -> Result<()> {
        ensure_eq!(self.broken, Vec::<String>::new(), "rules that were broken");
        // A Job that was started before it could be suspended gets its start time taken back as well.
        let of_jobs = ["jobs", "workloads", "workloads/status"];
        let writes: usize =
            self.writes.iter().filter(|((_, resource), _)| of_jobs.contains(&resource.as_str())).map(|(_, n)| n).sum();
        let most = usize::try_from(self.jobs).unwrap_or(0) * MOST_WRITES;
        ensure!(writes <= most, "{writes} writes of Jobs and Workloads, for {} Jobs at most {most}", self.jobs);
        let events = usize::try_from(self.jobs).unwrap_or(0) * 6;
        ensure!(self.events <= events, "{} Events, for {} Jobs at most {events}", self.events, self.jobs);
        Ok(())
    }
}
