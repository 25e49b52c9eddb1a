//! The control plane itself, and GKE as it is played: without a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, text};
use slicegate_control_plane::cluster::Options;
use slicegate_control_plane::gke::{Answer, CLASS, Gke, Pool, Settings};
use slicegate_control_plane::observe::Observer;
use slicegate_control_plane::wait::Wait;
use slicegate_control_plane::{Result, ensure, ensure_eq, json, slicegate};
use tokio::time::Instant;

use crate::objects;
use crate::suite::{Suite, tests};

tests![
    the_control_plane_comes_up,
    a_jobset_without_queue_completes,
    a_rayjob_without_queue_completes,
    nodes_scale_from_zero,
    dws_provisions_and_refuses,
    a_killed_apiserver_comes_back,
    a_silent_node_is_not_ready,
    kubectl_sees_crds_in_both_versions,
];

async fn the_control_plane_comes_up(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    cluster.must_run().await?;
    let version = cluster.kubectl.run(&["version", "-o", "json"]).await?.stdout;
    ensure!(version.contains("\"v1.36."), "kubectl and the API server say: {version}");
    let kinds = cluster.kubectl.run(&["api-resources", "-o", "name"]).await?.stdout;
    for kind in ["jobsets.jobset.x-k8s.io", "rayjobs.ray.io", "provisioningrequests.autoscaling.x-k8s.io"] {
        ensure!(kinds.contains(kind), "{kind} are not served: {kinds}");
    }
    let refused = cluster.kubectl_of("researcher").try_run(&["get", "pods"], "").await?;
    ensure!(refused.stderr.contains("cannot list resource \"pods\""), "who has no rights is not refused: {refused:?}");
    let requests = cluster.requests()?;
    let by_scheduler = requests.iter().filter(|r| r.user == "scheduler" && r.user_agent.starts_with("kube-scheduler/"));
    ensure!(by_scheduler.count() > 0, "the audit log knows nothing of the scheduler");
    Ok(())
}

async fn a_jobset_without_queue_completes(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    let gke = Gke::start(cluster, Settings::default()).await?;
    gke.add_pools([Pool::tpu("a", "ct5lp-hightpu-4t", "2x4")?, Pool::tpu("b", "ct5lp-hightpu-4t", "2x4")?]).await?;
    let observer = Observer::start(cluster).await?;
    cluster.kubectl.apply(&objects::job_set("plain", 2, None).to_string()).await?;
    Wait::new(&cluster.client, api::JOB_SETS, "default").one("plain", "Completed", |o| is_true(o, "Completed")).await?;
    observer.catch_up().await?;
    let mut places = BTreeSet::new();
    for pod in observer.all().iter().filter(|s| s.kind == "pods" && !text(&s.object, "/spec/nodeName").is_empty()) {
        let job = text(&pod.object, "/metadata/labels/batch.kubernetes.io~1job-name").to_owned();
        let node = text(&pod.object, "/spec/nodeName");
        let pool = node.split('-').nth(1).unwrap_or_default().to_owned();
        places.insert((job, pool));
    }
    ensure_eq!(places.len(), 2, "each of two Jobs runs in a pool of its own: {places:?}");
    Ok(())
}

async fn a_rayjob_without_queue_completes(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    let gke = Gke::start(cluster, Settings::default()).await?;
    gke.add_pools([Pool::cpu("default-pool", 1, 16, 64), Pool::tpu("v6e", "ct6e-standard-4t", "4x4")?]).await?;
    cluster.kubectl.apply(&objects::ray_job("ray", None).to_string()).await?;
    let done = Wait::new(&cluster.client, api::RAY_JOBS, "default")
        .limit(Duration::from_mins(1))
        .one("ray", "Complete", |o| text(o, "/status/jobDeploymentStatus") == "Complete")
        .await?;
    ensure_eq!(text(&done, "/status/jobStatus"), "SUCCEEDED", "the job's status");
    // It takes its cluster with it.
    Wait::new(&cluster.client, api::RAY_CLUSTERS, "default").until("none", BTreeMap::is_empty).await.map(drop)
}

async fn nodes_scale_from_zero(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    let settings = Settings { idle_time: Duration::from_secs(2), ..Settings::default() };
    let gke = Gke::start(cluster, settings).await?;
    for name in ["a", "b", "c"] {
        gke.add_pools([Pool::tpu(name, "ct5lp-hightpu-4t", "2x4")?.from_zero()]).await?;
    }
    ensure_eq!(api::NODES.list(&cluster.client, "").await?.len(), 0, "nodes before there are pods");
    let observer = Observer::start(cluster).await?;
    cluster.kubectl.apply(&objects::job_set("scales", 2, None).to_string()).await?;
    Wait::new(&cluster.client, api::NODES, "").until("nodes for two slices", |nodes| nodes.len() == 4).await?;
    Wait::new(&cluster.client, api::JOB_SETS, "default")
        .one("scales", "Completed", |o| is_true(o, "Completed"))
        .await?;
    Wait::new(&cluster.client, api::NODES, "").until("no idle nodes", BTreeMap::is_empty).await?;
    observer.catch_up().await?;
    let failed = observer.all().iter().any(|s| s.kind == "pods" && text(&s.object, "/status/phase") == "Failed");
    ensure!(!failed, "nodes went while pods ran there");
    Ok(())
}

async fn dws_provisions_and_refuses(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    let gke = Gke::start(cluster, Settings { idle_time: Duration::from_mins(5), ..Settings::default() }).await?;
    gke.add_pools([Pool::tpu("queued", "ct6e-standard-4t", "4x4")?.queued()]).await?;
    let out = ("OutOfResources", "There are no TPUs.");
    let fail = Answer::Fail { after: Duration::ZERO, reason: out.0.to_owned(), message: out.1.to_owned() };
    gke.answer("default", "refused", fail);
    let pod = json!({"nodeSelector": {"cloud.google.com/gke-tpu-topology": "4x4"},
        "containers": [{"name": "c", "image": "i", "resources": {
            "requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}}}]});
    let template = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t", "namespace": "default"},
        "template": {"spec": pod}});
    api::POD_TEMPLATES.apply(&cluster.client, &template).await?;
    for name in ["granted", "refused"] {
        let request = json!({"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"provisioningClassName": CLASS,
                "podSets": [{"count": 4, "podTemplateRef": {"name": "t"}}]}});
        api::PROVISIONING_REQUESTS.apply(&cluster.client, &request).await?;
    }
    let wait = || Wait::new(&cluster.client, api::PROVISIONING_REQUESTS, "default");
    let refused = wait().one("refused", "Failed", |o| is_true(o, "Failed")).await?;
    let reason = api::condition(&refused, "Failed").map(|c| (text(c, "/reason"), text(c, "/message")));
    ensure_eq!(reason, Some(out), "why it was refused");
    wait().one("granted", "Provisioned", |o| is_true(o, "Accepted") && is_true(o, "Provisioned")).await?;
    ensure_eq!(gke.nodes("queued").len(), 4, "nodes of the queued pool");
    gke.revoke("default", "granted").await?;
    wait().one("granted", "CapacityRevoked", |o| is_true(o, "CapacityRevoked")).await?;
    Wait::new(&cluster.client, api::NODES, "").until("no nodes", BTreeMap::is_empty).await.map(drop)
}

async fn a_killed_apiserver_comes_back(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    let gke = Gke::start(cluster, Settings::default()).await?;
    gke.add_pools([Pool::cpu("default-pool", 1, 16, 64)]).await?;
    let observer = Observer::start(cluster).await?;
    cluster.kubectl.apply(&objects::job("survives", 3, "1", None).to_string()).await?;
    let running =
        |o: &slicegate_control_plane::wait::Objects| o.values().any(|p| text(p, "/status/phase") == "Running");
    Wait::new(&cluster.client, api::PODS, "default").until("one running", running).await?;
    cluster.kill_apiserver().await?;
    ensure!(api::NODES.list(&cluster.client, "").await.is_err(), "a killed API server answers");
    cluster.start_apiserver().await?;
    Wait::new(&cluster.client, api::JOBS, "default")
        .limit(Duration::from_mins(1))
        .one("survives", "Complete", |o| is_true(o, "Complete"))
        .await?;
    observer.catch_up().await?;
    let last = observer.versions(api::JOBS, "default", "survives").pop();
    ensure!(
        last.is_some_and(|s| is_true(&s.object, "Complete")),
        "the observer sees on after the API server's restart"
    );
    cluster.must_run().await
}

async fn a_silent_node_is_not_ready(suite: &mut Suite) -> Result<()> {
    let options =
        Options { jobset: false, kuberay: false, node_grace: Duration::from_secs(5), ..Options::new("nodes") };
    let cluster = suite.own(options).await?;
    let settings = Settings { heartbeat: Duration::from_secs(1), ..Settings::default() };
    let gke = Gke::start(&cluster, settings).await?;
    gke.add_pools([Pool::cpu("default-pool", 2, 16, 64)]).await?;
    let node = gke.nodes("default-pool").into_iter().next().unwrap_or_default();
    gke.fail_node(&node);
    let wait = || Wait::new(&cluster.client, api::NODES, "");
    let silent = wait().one(&node, "not ready", |n| !is_true(n, "Ready")).await?;
    let reason = api::condition(&silent, "Ready").map(|c| text(c, "/reason"));
    ensure_eq!(reason, Some("NodeStatusUnknown"), "why {node} is not ready");
    let other = api::NODES.get(&cluster.client, "", "gke-default-pool-1").await?;
    ensure!(other.is_some_and(|n| is_true(&n, "Ready")), "a node that says that it is alive is not ready");
    gke.mend_node(&node).await?;
    wait().one(&node, "ready again", |n| is_true(n, "Ready")).await.map(drop)
}

async fn kubectl_sees_crds_in_both_versions(suite: &mut Suite) -> Result<()> {
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    for version in ["v1beta1", "v1beta2"] {
        // Whoever has no objects needs no conversion.
        let none = cluster.kubectl.run(&["get", &format!("clusterqueues.{version}.kueue.x-k8s.io")]).await?;
        ensure!(none.stderr.contains("No resources found"), "{version}: {none:?}");
        let api_version = format!("--api-version=kueue.x-k8s.io/{version}");
        // What a kind's fields mean is published some time after the kind is served.
        let last = Instant::now() + Duration::from_secs(30);
        loop {
            let explained = cluster.kubectl.try_run(&["explain", "clusterqueue", &api_version], "").await?;
            if explained.stdout.contains(version) {
                break;
            }
            ensure!(Instant::now() < last, "{version}: {explained:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    let flavor = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: plain}}";
    cluster.kubectl.apply(flavor).await?;
    let printed = cluster.kubectl.run(&["get", "resourceflavors"]).await?;
    ensure_eq!(printed.rows().first().and_then(|r| r.first().cloned()), Some("plain".to_owned()), "what is printed");
    Ok(())
}
