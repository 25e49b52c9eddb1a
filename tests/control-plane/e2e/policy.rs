//! `deploy/suspend.yaml`: the API server suspends jobs of a queue as they are created.

use std::path::Path;
use std::time::Duration;

use slicegate_control_plane::api::{self, Resource, text};
use slicegate_control_plane::cluster::Cluster;
use slicegate_control_plane::gke::{Gke, Settings};
use slicegate_control_plane::observe::Observer;
use slicegate_control_plane::{Context as _, Result, Value, ensure, ensure_eq, json};
use tokio::time::Instant;

use crate::objects;
use crate::suite::{Suite, tests};

tests![a_policy_suspends_jobs_as_they_come,];

/// Installs the policy and waits until it is in force. [`remove`] it at the end: clusters are shared.
async fn install(cluster: &Cluster) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/suspend.yaml");
    let manifest = std::fs::read_to_string(&path).doing(path.display())?;
    cluster.kubectl.apply(&manifest).await?;
    // The API server takes it up some time later, and says nothing then: it is asked with jobs that are not made. A
    // kind that was defined only now it does not know for some seconds more, and refuses its objects meanwhile.
    let queue = Some("q");
    let last = Instant::now() + Duration::from_mins(1);
    for job in
        [objects::job("asked", 1, "1", queue), objects::job_set("asked", 1, queue), objects::ray_job("asked", queue)]
    {
        loop {
            match dry_run(cluster, &job).await {
                Ok(true) => break,
                Err(error) if !error.to_string().contains("ServiceUnavailable") => return Err(error),
                _ => ensure!(
                    Instant::now() < last,
                    "the policy is not in force for a {} after 60 s",
                    text(&job, "/kind")
                ),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Removes the policy, and waits until it is no longer in force.
async fn remove(cluster: &Cluster) -> Result<()> {
    let kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings";
    cluster.kubectl.run(&["delete", kinds, "slicegate-suspend", "--ignore-not-found"]).await?;
    let last = Instant::now() + Duration::from_secs(30);
    while dry_run(cluster, &objects::job("asked", 1, "1", Some("q"))).await? {
        ensure!(Instant::now() < last, "the policy is still in force after 30 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Whether a job would be suspended as it is made.
async fn dry_run(cluster: &Cluster, job: &Value) -> Result<bool> {
    let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let made = cluster.kubectl.run_with(&args, &job.to_string()).await?.stdout;
    let made: Value = serde_json::from_str(&made)?;
    Ok(made.pointer("/spec/suspend") == Some(&Value::Bool(true)))
}

async fn a_policy_suspends_jobs_as_they_come(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    install(cluster).await?;
    let result = suspended(cluster).await;
    remove(cluster).await?;
    result
}

async fn suspended(cluster: &Cluster) -> Result<()> {
    let queue = Some("q");
    let mut owned = objects::job("owned", 1, "1", queue);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true}]);
    let mut ray_cluster = objects::ray_job("ray", queue);
    ray_cluster["kind"] = "RayCluster".into();
    ray_cluster["spec"] = ray_cluster["spec"]["rayClusterSpec"].clone();
    let jobs = [
        (objects::job("a", 1, "1", queue), true),
        (objects::job_set("a", 1, queue), true),
        (objects::ray_job("a", queue), true),
        (ray_cluster, true),
        (objects::job("a", 1, "1", None), false),
        (objects::job_set("a", 1, None), false),
        (owned, false),
    ];
    for (job, want) in &jobs {
        let got = dry_run(cluster, job).await?;
        ensure_eq!(got, *want, "whether a {} with {} is suspended", text(job, "/kind"), job["metadata"]);
    }
    // No pod of a JobSet is there before somebody starts it.
    let gke = Gke::start(cluster, Settings::default()).await?;
    let observer = Observer::start(cluster).await?;
    cluster.kubectl.apply(&objects::job_set("waits", 1, queue).to_string()).await?;
    let wait = slicegate_control_plane::wait::Wait::new(&cluster.client, api::JOB_SETS, "default");
    wait.one("waits", "Suspended", |o| api::is_true(o, "Suspended")).await?;
    observer.catch_up().await?;
    let runs = |kind: Resource| {
        let all = observer.all();
        let of_kind = all.into_iter().filter(move |s| s.kind == kind.plural);
        of_kind.filter(|s| s.object.pointer("/spec/suspend") != Some(&Value::Bool(true))).count()
    };
    ensure_eq!((runs(api::JOB_SETS), runs(api::JOBS), runs(api::PODS)), (0, 0, 0), "JobSets, Jobs and pods that run");
    drop(gke);
    Ok(())
}
