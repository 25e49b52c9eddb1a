//! What was recorded with Kueue, played again: both tutorials, their files as they are, and smaller stories.

mod stage;
mod stories;

use std::collections::BTreeSet;
use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, name, text};
use slicegate_control_plane::gke::{Pool, Settings};
use slicegate_control_plane::manifest::{documents, fill};
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Context as _, Error, Result, Value, ensure, ensure_eq};
use tokio::time::Instant;

use crate::scene::SOON;
use crate::suite::{Suite, tests};
use stage::{Files, Stage};
use stories::{
    as_recorded_when_a_high_priority_preempts, as_recorded_when_a_part_of_a_job_is_admitted,
    as_recorded_when_a_quota_is_raised, as_recorded_when_jobs_are_deleted,
};

tests![
    the_multislice_tutorial_with_the_largest_first,
    the_multislice_tutorial_in_the_order_of_its_file,
    the_multislice_tutorial_with_preemption,
    the_dws_tutorial,
    as_recorded_when_a_quota_is_raised,
    as_recorded_when_a_high_priority_preempts,
    as_recorded_when_jobs_are_deleted,
    as_recorded_when_a_part_of_a_job_is_admitted,
];

impl<'a> Stage<'a> {
    /// The three slices of the multislice tutorial. Pods run until the test ends them.
    async fn multislice(suite: &'a mut Suite) -> Result<Self> {
        let slice = |name: &str| Pool::tpu(name, "ct5lp-hightpu-4t", "2x4");
        let pools = vec![slice("nodepool1")?, slice("nodepool2")?, slice("nodepool3")?];
        Self::set(suite, Settings { run_time: None, ..Settings::default() }, pools).await
    }

    /// Waits until so many pods of a JobSet run.
    async fn runs(&self, job_set: &str, pods: usize) -> Result<()> {
        // Pods from before it was suspended may be there for a while.
        let as_admitted = |p: &Value| {
            text(p, "/status/phase") == "Running" && !text(p, "/metadata/labels/kueue.x-k8s.io~1podset").is_empty()
        };
        let all = |seen: &Objects| seen.len() == pods && seen.values().all(as_admitted);
        let label = format!("jobset.sigs.k8s.io/jobset-name={job_set}");
        Wait::new(&self.cluster.client, api::PODS, "default").labels(&label).until(&format!("{pods} run"), all).await?;
        Ok(())
    }

    /// Lets the pods of a JobSet end well, and waits until it is complete.
    async fn complete(&self, job_set: &str) -> Result<()> {
        self.gke.release(job_set);
        let wait = Wait::new(&self.cluster.client, api::JOB_SETS, "default");
        wait.one(job_set, "Completed", |o| is_true(o, "Completed")).await.map(drop)
    }

    /// What `kubectl get workloads` says: name without its hash, queue, ClusterQueue, and whether admitted and finished.
    async fn workloads(&self) -> Result<Vec<String>> {
        let printed = self.cluster.kubectl.run(&["get", "workloads"]).await?.stdout;
        let head = printed.lines().next().unwrap_or_default();
        let columns = ["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "AGE"];
        let starts: Vec<usize> = columns.iter().filter_map(|c| head.find(c)).collect();
        ensure_eq!(starts.len(), columns.len(), "columns in {head:?}");
        let mut rows = Vec::new();
        for line in printed.lines().skip(1) {
            let cells: Vec<&str> = starts
                .iter()
                .zip(starts.iter().skip(1).copied().chain([line.len()]))
                .map(|(&from, to)| line.get(from..to.min(line.len())).unwrap_or_default().trim())
                .collect();
            let (name, hash) = cells.first().and_then(|n| n.rsplit_once('-')).unwrap_or_default();
            ensure!(
                hash.len() == 5 && hash.chars().all(|c| c.is_ascii_hexdigit()),
                "no hash of five at the end: {line}"
            );
            let rest: Vec<&str> = cells.iter().skip(1).take(4).copied().filter(|c| !c.is_empty()).collect();
            rows.push(format!("{name} {}", rest.join(" ")));
        }
        rows.sort();
        Ok(rows)
    }

    /// Waits until `kubectl get pods` says so much of the pods whose names begin so: how many containers are ready, and the status.
    /// Pods from before their JobSet was suspended may be on their way out for a while.
    async fn shows(&self, of: &str, pods: usize, expected: &str, when: &str) -> Result<()> {
        let expected = vec![expected; pods];
        let last = Instant::now() + SOON;
        loop {
            let printed = self.cluster.kubectl.run(&["get", "pods"]).await?;
            let rows = printed.rows().into_iter().filter(|r| r.first().is_some_and(|n| n.starts_with(of)));
            let rows = rows.map(|r| [r.get(1), r.get(2)].map(|c| c.cloned().unwrap_or_default()).join(" "));
            let rows: Vec<String> = rows.collect();
            if rows == expected || Instant::now() > last {
                ensure_eq!(rows, expected, "kubectl get pods of {of}*, {when}");
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Fails unless each Job of a JobSet was done in a node pool of its own.
    ///
    /// Pods that did not come to their end do not count: without a webhook that suspends them, jobs may start before the
    /// controller sees them.
    fn one_slice_each(&self, job_set: &str, slices: usize) -> Result<()> {
        let mut places = BTreeSet::new();
        for seen in self.observer.all().iter().filter(|s| s.kind == "pods") {
            let label =
                |key: &str| text(&seen.object, &format!("/metadata/labels/{}", key.replace('/', "~1"))).to_owned();
            let node = text(&seen.object, "/spec/nodeName").to_owned();
            let is_done = text(&seen.object, "/status/phase") == "Succeeded";
            if label("jobset.sigs.k8s.io/jobset-name") == job_set && is_done {
                let pool = node.rsplit_once('-').map_or(node.as_str(), |(pool, _)| pool).to_owned();
                places.insert((label("batch.kubernetes.io/job-name"), pool));
            }
        }
        let pools: BTreeSet<&String> = places.iter().map(|(_, pool)| pool).collect();
        ensure!(places.len() == slices && pools.len() == slices, "{slices} slices of {job_set} in pools: {places:?}");
        Ok(())
    }
}

async fn the_multislice_tutorial_with_the_largest_first(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let stage = Stage::multislice(suite).await?;
    let result = largest_first(&stage, &files).await;
    stage.end(folder, result).await
}

async fn largest_first(stage: &Stage<'_>, files: &Files) -> Result<()> {
    let kubectl = &stage.cluster.kubectl;
    kubectl.apply(&files.tutorial("multislice/kueue.yaml")?).await?;
    let job_sets = files.tutorial("multislice/jobsets-multislice-standard.yaml")?;
    for job_set in documents(&job_sets).iter().rev() {
        kubectl.apply(job_set).await?;
    }
    stage.runs("multislice-3slice", 6).await?;
    let waiting = |w: &Objects| w.values().filter(|w| api::condition(w, "QuotaReserved").is_some()).count() == 3;
    Wait::new(&stage.cluster.client, api::WORKLOADS, "default").until("all three decided about", waiting).await?;
    ensure_eq!(
        stage.workloads().await?,
        [
            "jobset-multislice-1slice multislice-queue False",
            "jobset-multislice-2slice multislice-queue False",
            "jobset-multislice-3slice multislice-queue cluster-queue True",
        ],
        "kubectl get workloads, while the largest runs"
    );
    stage.shows("multislice-", 6, "1/1 Running", "while the largest runs").await?;
    stage.complete("multislice-3slice").await?;
    stage.runs("multislice-1slice", 2).await?;
    stage.runs("multislice-2slice", 4).await?;
    stage.shows("multislice-1slice", 2, "1/1 Running", "after the largest").await?;
    stage.shows("multislice-2slice", 4, "1/1 Running", "after the largest").await?;
    stage.shows("multislice-3slice", 6, "0/1 Completed", "after the largest").await?;
    stage.complete("multislice-1slice").await?;
    stage.complete("multislice-2slice").await?;
    all_finished(stage, 3).await?;
    stage.observer.catch_up().await?;
    for (job_set, slices) in [("multislice-1slice", 1), ("multislice-2slice", 2), ("multislice-3slice", 3)] {
        stage.one_slice_each(job_set, slices)?;
    }
    let names = ["jobset-multislice-3slice", "jobset-multislice-2slice", "jobset-multislice-1slice"];
    let recording = files.recording("multislice-3-2-1")?;
    stage.as_recorded(&recording, &names)?;
    let mut unlike = Vec::new();
    for name in names {
        unlike.extend(stage.unlike(&recording, api::WORKLOADS, name, |_| true)?);
        let job_set = name.trim_start_matches("jobset-");
        unlike.extend(stage.unlike(&recording, api::JOB_SETS, job_set, |o| is_true(o, "Completed"))?);
        let pod = format!("{job_set}-slice-0-1-");
        unlike.extend(stage.unlike(&recording, api::PODS, &pod, |o| text(o, "/status/phase") == "Running")?);
    }
    unlike.extend(stage.unlike(&recording, api::CLUSTER_QUEUES, "cluster-queue", |_| true)?);
    unlike.extend(stage.unlike(&recording, api::LOCAL_QUEUES, "multislice-queue", |_| true)?);
    ensure!(unlike.is_empty(), "unlike what was recorded (ours / theirs):\n  {}", unlike.join("\n  "));
    Ok(())
}

async fn the_multislice_tutorial_in_the_order_of_its_file(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let stage = Stage::multislice(suite).await?;
    let result = order_of_the_file(&stage, &files).await;
    stage.end(folder, result).await
}

async fn order_of_the_file(stage: &Stage<'_>, files: &Files) -> Result<()> {
    let kubectl = &stage.cluster.kubectl;
    kubectl.apply(&files.tutorial("multislice/kueue.yaml")?).await?;
    kubectl.apply(&files.tutorial("multislice/jobsets-multislice-standard.yaml")?).await?;
    stage.runs("multislice-1slice", 2).await?;
    stage.runs("multislice-2slice", 4).await?;
    let waiting = |w: &Objects| w.values().filter(|w| api::condition(w, "QuotaReserved").is_some()).count() == 3;
    Wait::new(&stage.cluster.client, api::WORKLOADS, "default").until("all three decided about", waiting).await?;
    ensure_eq!(
        stage.workloads().await?,
        [
            "jobset-multislice-1slice multislice-queue cluster-queue True",
            "jobset-multislice-2slice multislice-queue cluster-queue True",
            "jobset-multislice-3slice multislice-queue False",
        ],
        "kubectl get workloads, while the first two run"
    );
    stage.complete("multislice-1slice").await?;
    stage.shows("multislice-3slice", 0, "", "while 8 of 24 chips are free: that is not enough").await?;
    stage.complete("multislice-2slice").await?;
    stage.runs("multislice-3slice", 6).await?;
    stage.complete("multislice-3slice").await?;
    all_finished(stage, 3).await?;
    stage.observer.catch_up().await?;
    let names = ["jobset-multislice-1slice", "jobset-multislice-2slice", "jobset-multislice-3slice"];
    stage.as_recorded(&files.recording("multislice-1-2-3")?, &names)
}

async fn the_multislice_tutorial_with_preemption(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let stage = Stage::multislice(suite).await?;
    let result = preemption(&stage, &files).await;
    stage.end(folder, result).await
}

async fn preemption(stage: &Stage<'_>, files: &Files) -> Result<()> {
    let kubectl = &stage.cluster.kubectl;
    kubectl.apply(&files.tutorial("multislice/kueue-preemption.yaml")?).await?;
    kubectl.apply(&files.tutorial("multislice/priority-class.yaml")?).await?;
    let job_sets = files.tutorial("multislice/jobsets-multislice-standard.yaml")?;
    let largest = documents(&job_sets).pop().doing("the third JobSet")?;
    kubectl.apply(largest).await?;
    stage.runs("multislice-3slice", 6).await?;
    kubectl.apply(&files.tutorial("multislice/jobset-low-priority-standard.yaml")?).await?;
    stage.runs("low-priority", 2).await?;
    stage.runs("multislice-3slice", 0).await?;
    stage.observer.catch_up().await?;
    let preempted = stage.observer.name(api::WORKLOADS, "jobset-multislice-3slice")?;
    let preempted = api::WORKLOADS.get(&stage.cluster.client, "default", &preempted).await?.unwrap_or_default();
    for (condition, reason) in [("Evicted", "Preempted"), ("Preempted", "InClusterQueue")] {
        let found = api::condition(&preempted, condition).map(|c| text(c, "/reason"));
        ensure_eq!(found, Some(reason), "condition {condition} of who was preempted");
    }
    stage.complete("low-priority").await?;
    stage.runs("multislice-3slice", 6).await?;
    stage.complete("multislice-3slice").await?;
    all_finished(stage, 2).await?;
    stage.observer.catch_up().await?;
    stage.as_recorded(&files.recording("preemption")?, &["jobset-low-priority", "jobset-multislice-3slice"])
}

async fn the_dws_tutorial(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let pools = vec![
        Pool::cpu("default-pool", 1, 16, 64),
        Pool::tpu("tpu-v6e-od", "ct6e-standard-4t", "4x4")?.from_zero(),
        Pool::tpu("tpu-v6e-dws", "ct6e-standard-4t", "4x4")?.queued(),
    ];
    let settings = Settings { idle_time: Duration::from_secs(5), ..Settings::default() };
    let stage = Stage::set(suite, settings, pools).await?;
    let result = dws(&stage, &files).await;
    stage.end(folder, result).await
}

async fn dws(stage: &Stage<'_>, files: &Files) -> Result<()> {
    let kubectl = &stage.cluster.kubectl;
    let pools = [("ONDEMAND_NODEPOOL", "tpu-v6e-od"), ("DWS_NODEPOOL", "tpu-v6e-dws")];
    kubectl.apply(&fill(&files.tutorial("dws/dws-tpu-queue.yaml")?, &pools)?).await?;
    let client = &stage.cluster.client;
    let active = |o: &Value| is_true(o, "Active");
    Wait::new(client, api::CLUSTER_QUEUES, "").one("cluster-queue", "active", active).await?;
    for id in ["1", "2"] {
        kubectl.apply(&fill(&files.tutorial("dws/rayjob-tpu-v6e-dws.yaml")?, &[("JOB_ID", id)])?).await?;
        let named = format!("rayjob-rayjob-tpu-v6e-dws-{id}-");
        let decided =
            |seen: &Objects| seen.values().any(|w| name(w).starts_with(&named) && is_true(w, "QuotaReserved"));
        Wait::new(client, api::WORKLOADS, "default").until(&format!("{named}* holds quota"), decided).await?;
    }
    for id in ["1", "2"] {
        let job = format!("rayjob-tpu-v6e-dws-{id}");
        let done = Wait::new(client, api::RAY_JOBS, "default").limit(Duration::from_mins(1));
        let done = done.one(&job, "complete", |o| text(o, "/status/jobDeploymentStatus") == "Complete").await?;
        ensure_eq!(text(&done, "/status/jobStatus"), "SUCCEEDED", "{job}");
    }
    all_finished(stage, 2).await?;
    stage.observer.catch_up().await?;
    let requests: Vec<String> = stage
        .observer
        .all()
        .into_iter()
        .filter(|s| s.kind == "provisioningrequests")
        .map(|s| name(&s.object).to_owned())
        .collect();
    let request = requests.first().doing("a ProvisioningRequest")?;
    ensure!(requests.iter().all(|r| r == request), "one ProvisioningRequest is enough: {requests:?}");
    let second = stage.observer.name(api::WORKLOADS, "rayjob-rayjob-tpu-v6e-dws-2-")?;
    ensure_eq!(*request, format!("{second}-dws-prov-1"), "the ProvisioningRequest's name");
    let stages = stage.observer.conditions(api::PROVISIONING_REQUESTS, "default", request, false);
    ensure_eq!(stages, ["Accepted=True", "Provisioned=True"], "conditions of the ProvisioningRequest");
    for (id, pool) in [("1", "tpu-v6e-od"), ("2", "tpu-v6e-dws")] {
        workers_in(stage, id, pool)?;
    }
    let names = ["rayjob-rayjob-tpu-v6e-dws-1-", "rayjob-rayjob-tpu-v6e-dws-2-"];
    let recording = files.recording("dws")?;
    stage.as_recorded(&recording, &names)?;
    let mut unlike = Vec::new();
    for name in names {
        unlike.extend(stage.unlike(&recording, api::WORKLOADS, name, |_| true)?);
    }
    for job in ["rayjob-tpu-v6e-dws-1", "rayjob-tpu-v6e-dws-2"] {
        let complete = |o: &Value| text(o, "/status/jobDeploymentStatus") == "Complete";
        unlike.extend(stage.unlike(&recording, api::RAY_JOBS, job, complete)?);
    }
    unlike.extend(stage.unlike(&recording, api::PROVISIONING_REQUESTS, "", |_| true)?);
    unlike.extend(stage.unlike(&recording, api::POD_TEMPLATES, "", |_| true)?);
    unlike.extend(stage.unlike(&recording, api::ADMISSION_CHECKS, "", |_| true)?);
    unlike.extend(stage.unlike(&recording, api::CLUSTER_QUEUES, "", |_| true)?);
    ensure!(unlike.is_empty(), "unlike what was recorded (ours / theirs):\n  {}", unlike.join("\n  "));
    Ok(())
}

/// Fails unless the four workers of a RayJob ran in a node pool, and its head and submitter among the ordinary machines.
///
/// The RayCluster counts that saw the job's end: without a webhook that suspends it, a RayJob may begin with another one, whose pods
/// are there until they are collected.
fn workers_in(stage: &Stage<'_>, id: &str, pool: &str) -> Result<()> {
    let job = format!("rayjob-tpu-v6e-dws-{id}");
    let versions = stage.observer.versions(api::RAY_JOBS, "default", &job);
    let cluster = versions.last().map_or("", |s| text(&s.object, "/status/rayClusterName"));
    let mut nodes = BTreeSet::new();
    for seen in stage.observer.all().iter().filter(|s| s.kind == "pods") {
        let (pod, node) = (name(&seen.object), text(&seen.object, "/spec/nodeName"));
        let label = |key: &str| text(&seen.object, &format!("/metadata/labels/{}", key.replace('/', "~1"))).to_owned();
        if node.is_empty() {
            continue;
        }
        if label("ray.io/node-type") == "worker" && label("ray.io/cluster") == cluster {
            nodes.insert(node.to_owned());
        } else if label("ray.io/node-type") == "head" || label("batch.kubernetes.io/job-name") == job {
            ensure!(node.starts_with("gke-default-pool-"), "{pod} runs on {node}");
        }
    }
    let all = nodes.iter().all(|n| n.starts_with(&format!("gke-{pool}-")));
    ensure!(
        all && nodes.len() == 4,
        "the workers of job {id} are to run on the four nodes of {pool}, and ran on {nodes:?}"
    );
    Ok(())
}

/// Waits until so many Workloads are there, all of them finished, and no quota is in use.
async fn all_finished(stage: &Stage<'_>, count: usize) -> Result<()> {
    let client = &stage.cluster.client;
    let finished = |w: &Objects| w.len() == count && w.values().all(|w| is_true(w, "Finished"));
    Wait::new(client, api::WORKLOADS, "default").until("all finished", finished).await?;
    let nothing = |queue: &Value| {
        let usage = api::items(queue, "/status/flavorsReservation");
        let totals = usage.iter().flat_map(|f| api::items(f, "/resources")).map(|r| text(r, "/total"));
        !usage.is_empty() && totals.into_iter().all(|t| t == "0" || t.is_empty())
    };
    let wait = Wait::new(client, api::CLUSTER_QUEUES, "");
    wait.one("cluster-queue", "no quota in use", nothing)
        .await
        .map(drop)
        .map_err(|e| Error::new(format!("at the end: {e}")))
}
