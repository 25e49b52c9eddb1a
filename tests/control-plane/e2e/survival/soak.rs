//! What users, administrators and crashes do at random, by a seed, and what holds all the same: once everything may run again
//! every job ends, no rule was broken, nothing is left over, and nothing is written any more. `SLICEGATE_SOAK_SEED` and
//! `SLICEGATE_SOAK_SECONDS` choose another seed and a longer time.

use std::collections::BTreeSet;
use std::time::Duration;

use slicegate_control_plane::api::{self, Resource, is_true, items, name, text};
use slicegate_control_plane::cluster::{CONTROLLER, Cluster};
use slicegate_control_plane::gke::{Gke, Pool, Settings};
use slicegate_control_plane::observe::Observer;
use slicegate_control_plane::slicegate::{self, Options, Slicegate};
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Error, Result, Value, ensure, json};
use tokio::time::Instant;

use crate::objects;
use crate::scene::CONFIGURATION;
use crate::suite::Suite;

/// The seed, and for how many seconds things happen.
const VARIABLES: [(&str, u64); 2] = [("SLICEGATE_SOAK_SEED", 7), ("SLICEGATE_SOAK_SECONDS", 15)];

/// Two ClusterQueues that lend to each other; in one of them priorities preempt, the other takes back what it has lent.
const QUEUES: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  namespaceSelector: {}
  cohortName: all
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 3}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: b}
spec:
  namespaceSelector: {}
  cohortName: all
  preemption: {reclaimWithinCohort: Any}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 3}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: a, namespace: default}
spec: {clusterQueue: a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: b, namespace: default}
spec: {clusterQueue: b}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: low}
value: 1
";

/// Numbers that look random and follow from a seed.
struct Dice(u64);

impl Dice {
    /// One of 0 to `sides` - 1.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let sides = u64::try_from(all.len()).ok().filter(|n| *n > 0)?;
        all.get(usize::try_from(self.roll(sides)).ok()?)
    }

    fn word(&mut self, all: &[&'static str]) -> &'static str {
        self.of(all).copied().unwrap_or_default()
    }
}

fn setting(index: usize) -> u64 {
    let (variable, default) = VARIABLES[index];
    std::env::var(variable).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

struct Soak<'a> {
    cluster: &'a Cluster,
    controller: Slicegate,
    dice: Dice,
    made: u64,
    did: Vec<&'static str>,
}

impl Soak<'_> {
    /// A job that ends by itself, in whatever way its pods are stopped before.
    fn job(&mut self, named: &str) -> Value {
        let pods = 1 + u32::try_from(self.dice.roll(3)).unwrap_or(0);
        let cpu = self.dice.word(&["250m", "500m", "1"]);
        let queue = self.dice.word(&["a", "b"]);
        let mut job = if self.dice.roll(4) == 0 {
            let mut set = objects::job_set(named, pods, Some(queue));
            let pod = json!({"restartPolicy": "Never", "containers": [{"name": "work", "image": "busybox",
                "resources": {"requests": {"cpu": cpu}}}]});
            let run_time = self.dice.word(&["200ms", "600ms", "1500ms"]);
            set["metadata"]["annotations"] = json!({});
            set["spec"]["failurePolicy"] = json!({"maxRestarts": 100});
            set["spec"]["replicatedJobs"][0]["template"]["spec"] = json!({"parallelism": 1, "completions": 1,
                "backoffLimit": 100, "template": {"spec": pod,
                    "metadata": {"annotations": {"e2e.slicegate.dev/run-time": run_time}}}});
            set
        } else {
            let mut job = objects::job(named, pods, cpu, Some(queue));
            let run_time = self.dice.word(&["200ms", "600ms", "1500ms"]);
            job["spec"]["backoffLimit"] = 100.into();
            job["spec"]["template"]["metadata"]["annotations"] = json!({"e2e.slicegate.dev/run-time": run_time});
            job
        };
        job["spec"]["suspend"] = (self.dice.roll(5) > 0).into();
        match self.dice.roll(4) {
            0 => job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into(),
            1 => job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "low".into(),
            _ => {}
        }
        job
    }

    async fn create(&mut self, named: &str) {
        let job = self.job(named);
        let kind = if text(&job, "/kind") == "JobSet" { api::JOB_SETS } else { api::JOBS };
        let _ = kind.apply(&self.cluster.client, &job).await;
    }

    /// Some object of the kind; of jobs none that belongs to another.
    async fn any(&mut self, kind: Resource) -> Option<Value> {
        let mut all = kind.list(&self.cluster.client, "default").await.ok()?;
        all.retain(|o| kind == api::WORKLOADS || items(o, "/metadata/ownerReferences").is_empty());
        self.dice.of(&all).cloned()
    }

    async fn patch_any(&mut self, kind: Resource, patch: &Value) {
        if let Some(object) = self.any(kind).await {
            let _ = kind.patch(&self.cluster.client, "default", name(&object), patch).await;
        }
    }

    /// Something happens. What others refuse, or what is not there any more, does not matter.
    async fn act(&mut self) -> Result<()> {
        let cluster = self.cluster;
        let client = &cluster.client;
        let what = self.dice.roll(100);
        let kind = *self.dice.of(&[api::JOBS, api::JOBS, api::JOB_SETS]).unwrap_or(&api::JOBS);
        let did = match what {
            0..35 => {
                self.made += 1;
                let named = format!("job-{}", self.made);
                self.create(&named).await;
                "create"
            }
            35..42 => {
                if let Some(job) = self.any(kind).await {
                    let _ = kind.delete(client, "default", name(&job)).await;
                }
                "delete"
            }
            42..48 => {
                if let Some(job) = self.any(kind).await {
                    let _ = kind.delete(client, "default", name(&job)).await;
                    self.create(name(&job)).await;
                }
                "delete and create again"
            }
            48..54 => {
                let suspend = self.dice.roll(2) == 0;
                self.patch_any(kind, &json!({"spec": {"suspend": suspend}})).await;
                "suspend by hand"
            }
            54..60 => {
                let queue = self.dice.word(&["a", "b"]);
                self.patch_any(kind, &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}})).await;
                "move to another queue"
            }
            60..65 => {
                let class = self.dice.word(&["high", "low"]);
                self.patch_any(kind, &json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": class}}})).await;
                "change the priority"
            }
            65..73 => {
                let kind = *self.dice.of(&[kind, api::WORKLOADS]).unwrap_or(&kind);
                let value = self.dice.roll(1_000).to_string();
                self.patch_any(kind, &json!({"metadata": {"annotations": {"example.com/note": value}}})).await;
                "annotate"
            }
            73..78 => {
                self.patch_any(api::WORKLOADS, &json!({"metadata": {"labels": {"example.com/note": "x"}}})).await;
                "label a Workload"
            }
            78..82 => {
                if let Some(workload) = self.any(api::WORKLOADS).await {
                    let _ = api::WORKLOADS.delete(client, "default", name(&workload)).await;
                }
                "delete a Workload"
            }
            82..85 => {
                self.patch_any(api::WORKLOADS, &json!({"metadata": {"ownerReferences": null}})).await;
                "take a Workload from its job"
            }
            85..88 => {
                self.patch_any(api::WORKLOADS, &json!({"metadata": {"finalizers": null}})).await;
                "take a Workload's finalizers"
            }
            88..91 => {
                let pods = 1 + self.dice.roll(3);
                self.patch_any(api::JOBS, &json!({"spec": {"parallelism": pods}})).await;
                "change the size"
            }
            91..95 => {
                let (queue, policy) = (self.dice.word(&["a", "b"]), self.dice.word(&["None", "Hold", "HoldAndDrain"]));
                let patch = json!({"spec": {"stopPolicy": policy}});
                let _ = api::CLUSTER_QUEUES.patch(client, "", queue, &patch).await;
                "stop a queue"
            }
            95..98 => {
                self.controller.kill().await?;
                self.controller.process.start_again()?;
                "kill the controller"
            }
            98 | 99 if self.dice.roll(4) > 0 => {
                let other = match (self.dice.roll(2), &self.cluster.jobset) {
                    (0, Some(jobset)) => jobset,
                    _ => &self.cluster.controller_manager,
                };
                let mut other = other.lock().await;
                other.kill().await?;
                other.start_again()?;
                "kill another controller"
            }
            _ => {
                self.cluster.kill_apiserver().await?;
                self.cluster.start_apiserver().await?;
                "kill the API server"
            }
        };
        self.did.push(did);
        Ok(())
    }

    /// Starts again what has ended by itself: some do if the API server is away for long, and a cluster starts them again.
    async fn revive(cluster: &Cluster) -> Result<()> {
        let operators = [cluster.jobset.as_ref(), cluster.kuberay.as_ref()];
        let all = [&cluster.controller_manager, &cluster.scheduler];
        for process in all.into_iter().chain(operators.into_iter().flatten()) {
            let mut process = process.lock().await;
            if process.ended()?.is_some() {
                process.start_again()?;
            }
        }
        Ok(())
    }

    /// Everything may run again.
    async fn release(&self) -> Result<()> {
        let client = &self.cluster.client;
        let last = Instant::now() + Duration::from_secs(30);
        for queue in ["a", "b"] {
            // An API server that was just started may be slow.
            let patch = json!({"spec": {"stopPolicy": "None"}});
            while let Err(error) = api::CLUSTER_QUEUES.patch(client, "", queue, &patch).await {
                ensure!(Instant::now() < last, "{error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(())
    }
}

fn has_ended(job: &Value) -> bool {
    ["Complete", "Completed", "Failed"].iter().any(|c| is_true(job, c))
}

/// Why a Workload is as it is, for who reads that it did not end.
fn state(object: &Value) -> String {
    let conditions = items(object, "/status/conditions").iter();
    let told = conditions.map(|c| format!("{}={} ({})", text(c, "/type"), text(c, "/status"), text(c, "/message")));
    let suspended = object.pointer("/spec/suspend").map(|s| format!(" suspend: {s}")).unwrap_or_default();
    format!("{}{suspended} {}", name(object), told.collect::<Vec<_>>().join(", "))
}

/// Waits until nothing is left to be done by anybody.
async fn all_end(cluster: &Cluster, limit: Duration) -> Result<()> {
    for kind in [api::JOBS, api::JOB_SETS, api::WORKLOADS] {
        let ended = |o: &Value| if kind == api::WORKLOADS { is_true(o, "Finished") } else { has_ended(o) };
        let good = |seen: &Objects| seen.values().all(ended);
        if let Err(error) = Wait::new(&cluster.client, kind, "default").limit(limit).until("all have ended", good).await
        {
            let mut left: Vec<String> = Vec::new();
            for kind in [api::JOBS, api::JOB_SETS, api::WORKLOADS] {
                let all = kind.list(&cluster.client, "default").await?;
                left.extend(all.iter().filter(|o| !has_ended(o) && !is_true(o, "Finished")).map(state));
            }
            return Err(Error::new(format!("{error}\n{}", left.join("\n"))));
        }
    }
    Ok(())
}

pub(super) async fn whatever_happens_at_random_every_job_ends_and_nothing_moves_any_more(
    suite: &mut Suite,
) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    let gke = Gke::start(cluster, Settings::default()).await?;
    gke.add_pools([Pool::cpu("default-pool", 2, 16, 64)]).await?;
    cluster.kubectl.apply(QUEUES).await?;
    let observer = Observer::start(cluster).await?;
    let options = Options { configuration: Some(CONFIGURATION.to_owned()), ..Options::default() };
    let controller = Slicegate::start(cluster, &folder, &options).await?;
    let (seed, seconds) = (setting(0), setting(1));
    let mut soak = Soak { cluster, controller, dice: Dice(seed), made: 0, did: Vec::new() };
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        soak.act().await?;
        Soak::revive(cluster).await?;
        tokio::time::sleep(Duration::from_millis(20 + soak.dice.roll(80))).await;
    }
    println!("        seed {seed}: {} things happened, {} of them crashes", soak.did.len(), crashes(&soak.did));
    soak.controller.ready().await?;
    soak.release().await?;
    let reviving = async {
        loop {
            Soak::revive(cluster).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        result = all_end(cluster, Duration::from_secs(90)) => result?,
        result = reviving => { let result: Result<()> = result; result? }
    }
    let told = |o: &Value| o.pointer("/status/reservingWorkloads") == Some(&json!(0));
    for queue in ["a", "b"] {
        Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one(queue, "empty", told).await?;
    }
    if let Err(error) = observer.must_be_clean().await {
        observer.write(&folder.join("observed.jsonl"))?;
        return Err(error);
    }
    // At rest nothing is written.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cluster.requests()?.len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let requests = cluster.requests()?.split_off(before);
    let writes: BTreeSet<_> = requests.iter().filter(|r| r.user == CONTROLLER && r.is_write()).collect();
    ensure!(writes.is_empty(), "it writes on and on: {writes:?}");
    soak.controller.process.must_run()
}

fn crashes(did: &[&str]) -> usize {
    did.iter().filter(|what| what.starts_with("kill")).count()
}
