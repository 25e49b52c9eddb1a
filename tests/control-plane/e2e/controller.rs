//! `slicegate controller` as a program among others: what it writes, what it may do, what it serves.

use std::collections::BTreeMap;
use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, text};
use slicegate_control_plane::audit::{self, Request};
use slicegate_control_plane::cluster::{CONTROLLER, Cluster, RESEARCHER};
use slicegate_control_plane::gke::{Gke, Pool, Settings};
use slicegate_control_plane::observe::Observer;
use slicegate_control_plane::slicegate::{self, NAMESPACE, Options, Slicegate};
use slicegate_control_plane::wait::Wait;
use slicegate_control_plane::{Error, Result, Value, ensure, ensure_eq, json};
use tokio::time::Instant;

use crate::objects;
use crate::suite::{Suite, tests};

tests![
    the_life_of_a_job_takes_four_writes,
    v1beta1_waits_for_the_controller,
    the_webhook_keeps_its_authority,
    a_new_authority_cuts_no_watch,
    the_role_is_enough,
    probes_and_metrics_tell_how_it_is,
];

/// A queue of four cpus, in which higher priorities preempt lower ones.
pub(crate) const QUEUES: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: plain
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: default}
spec: {clusterQueue: all}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
";

/// A Job of one pod in the queue that runs so long, made suspended as by whoever knows queues.
pub(crate) fn job(name: &str, cpu: &str, run_time: &str) -> Value {
    let mut job = objects::job(name, 1, cpu, Some("queue"));
    job["spec"]["suspend"] = true.into();
    job["spec"]["template"]["metadata"]["annotations"] = json!({"e2e.slicegate.dev/run-time": run_time});
    job
}

pub(crate) fn with_priority(mut job: Value, class: &str) -> Value {
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = class.into();
    job
}

/// Machines, the observer, and queues.
pub(crate) async fn stage(cluster: &Cluster) -> Result<(Gke, Observer)> {
    slicegate::install(cluster).await?;
    let gke = Gke::start(cluster, Settings::default()).await?;
    gke.add_pools([Pool::cpu("default-pool", 2, 16, 64)]).await?;
    cluster.kubectl.apply(QUEUES).await?;
    let observer = Observer::start(cluster).await?;
    Ok((gke, observer))
}

pub(crate) fn is_running(job: &Value) -> bool {
    job.pointer("/status/ready").and_then(Value::as_i64).unwrap_or(0) > 0
}

pub(crate) async fn all_complete(cluster: &Cluster, count: usize, limit: Duration) -> Result<()> {
    let all = |jobs: &slicegate_control_plane::wait::Objects| {
        jobs.len() == count && jobs.values().all(|job| is_true(job, "Complete"))
    };
    Wait::new(&cluster.client, api::JOBS, "default").limit(limit).until("all complete", all).await?;
    let done = |workloads: &slicegate_control_plane::wait::Objects| {
        workloads.len() == count && workloads.values().all(|workload| is_true(workload, "Finished"))
    };
    Wait::new(&cluster.client, api::WORKLOADS, "default").limit(limit).until("all finished", done).await.map(drop)
}

async fn the_life_of_a_job_takes_four_writes(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    let controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    let active = |o: &Value| is_true(o, "Active") && !api::items(o, "/metadata/finalizers").is_empty();
    Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one("all", "active", active).await?;
    let before = cluster.requests()?.len();
    cluster.kubectl.apply(&job("one", "1", "500ms").to_string()).await?;
    all_complete(cluster, 1, Duration::from_secs(20)).await?;
    // Whatever else would be written has its time.
    let told = |o: &Value| o.pointer("/status/admittedWorkloads") == Some(&json!(0));
    Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one("all", "empty again", told).await?;
    observer.must_be_clean().await?;
    let requests: Vec<Request> = cluster.requests()?.split_off(before);
    let mut writes = audit::writes_of(&requests, CONTROLLER);
    let events = writes.remove(&("create".to_owned(), "events".to_owned())).unwrap_or(0);
    writes.retain(|(_, resource), _| !resource.contains("queues") && resource != "customresourcedefinitions");
    let expected = [("create", "workloads", 1), ("patch", "jobs", 1), ("patch", "workloads/status", 2)];
    let expected = expected.map(|(verb, resource, count)| ((verb.to_owned(), resource.to_owned()), count));
    ensure_eq!(writes, BTreeMap::from(expected), "the writes in the life of a job that is admitted at once");
    ensure_eq!(events, 5, "the Events: made, quota reserved, admitted, started, finished");
    let refused: Vec<&Request> =
        requests.iter().filter(|r| r.user == CONTROLLER && r.is_write() && r.code >= 300).collect();
    ensure!(refused.is_empty(), "writes that came to nothing: {refused:?}");
    drop(controller);
    Ok(())
}

/// A configuration with a lease of so many seconds.
pub(crate) fn configuration(lease: u64) -> String {
    let renew = lease * 1_000 * 2 / 3;
    format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nleaderElection: {{leaderElect: true, leaseDuration: \
         {lease}s, renewDeadline: {renew}ms, retryPeriod: 500ms}}\n"
    )
}

/// As an admin who applies things in the wrong order sees it.
async fn v1beta1_waits_for_the_controller(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    let older = QUEUES.replace("v1beta2", "v1beta1");
    let refused = cluster.kubectl.try_run(&["apply", "-f", "-"], &older).await?;
    ensure!(
        !refused.success && refused.stderr.contains("conversion webhook for kueue.x-k8s.io/v1beta1"),
        "{refused:?}"
    );
    let controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    let last = Instant::now() + Duration::from_secs(20);
    while !cluster.kubectl.try_run(&["apply", "-f", "-"], &older).await?.success {
        ensure!(Instant::now() < last, "v1beta1 objects are refused although the controller runs");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Wait::new(&cluster.client, api::CLUSTER_QUEUES, "").one("all", "active", |o| is_true(o, "Active")).await?;
    for version in ["v1beta1", "v1beta2"] {
        let kind = format!("clusterqueues.{version}.kueue.x-k8s.io");
        let shown = cluster.kubectl.run(&["get", &kind, "all", "-o", "jsonpath={.apiVersion}"]).await?;
        ensure_eq!(shown.stdout, format!("kueue.x-k8s.io/{version}"), "what is shown");
    }
    drop(controller);
    Ok(())
}

async fn the_webhook_keeps_its_authority(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    let bundle = async |cluster: &Cluster| {
        let trusts = |o: &Value| !text(o, "/spec/conversion/webhook/clientConfig/caBundle").is_empty();
        let name = "workloads.kueue.x-k8s.io";
        let definition = Wait::new(&cluster.client, api::CRDS, "").one(name, "an authority", trusts).await?;
        Ok::<_, Error>(text(&definition, "/spec/conversion/webhook/clientConfig/caBundle").to_owned())
    };
    let mut controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    let first = bundle(cluster).await?;
    controller.kill().await?;
    // Another one, say on another machine, takes what is there.
    controller.start_again().await?;
    ensure_eq!(bundle(cluster).await?, first, "the authority after a restart");
    let secret =
        cluster.kubectl.run(&["get", "secret", "kueue-webhook-server-cert", "-n", NAMESPACE, "-o", "json"]).await?;
    let secret: Value = secret.stdout.parse()?;
    ensure_eq!(text(&secret, "/data/ca.crt"), first, "the authority in the Secret");
    // v1beta1 is served from the first moment.
    cluster.kubectl.apply(&QUEUES.replace("v1beta2", "v1beta1")).await.map(drop)
}

/// The API server cuts the watches of a kind whose definition changes: whoever starts tells it of a new authority first.
async fn a_new_authority_cuts_no_watch(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    slicegate::install(cluster).await?;
    cluster
        .kubectl
        .run(&["delete", "secret", "kueue-webhook-server-cert", "-n", NAMESPACE, "--ignore-not-found"])
        .await?;
    let before = cluster.requests()?.len();
    let controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    // As long as the API server takes to cut them.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let requests: Vec<Request> = cluster.requests()?.split_off(before);
    let ours = |verb: &str, resource: &str| {
        // A storage that is made anew may first ask to wait.
        let of_it = |r: &&Request| r.user == CONTROLLER && r.verb == verb && r.resource == resource && r.code < 300;
        requests.iter().filter(of_it).count()
    };
    ensure!(ours("patch", "customresourcedefinitions") > 0, "the API server was told nothing");
    for resource in ["workloads", "clusterqueues", "localqueues", "cohorts", "resourceflavors"] {
        let seen = (ours("list", resource), ours("watch", resource));
        ensure_eq!(seen, (1, 1), "lists of {resource}, and how often watches of it began or ended");
    }
    drop(controller);
    Ok(())
}

async fn the_role_is_enough(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (gke, observer) = stage(cluster).await?;
    gke.add_pools([Pool::tpu("a", "ct5lp-hightpu-4t", "2x4")?, Pool::tpu("b", "ct5lp-hightpu-4t", "2x4")?]).await?;
    // The manifest's own bindings, for a user instead of a service account.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac.yaml");
    let manifest = std::fs::read_to_string(&path)?;
    let account = "- kind: ServiceAccount\n  name: slicegate-controller\n  namespace: kueue-system";
    ensure!(manifest.matches(account).count() == 2, "two bindings in {}", path.display());
    let user = format!("- kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {RESEARCHER}");
    cluster.kubectl.apply(&manifest.replace(account, &user)).await?;
    let before = cluster.requests()?.len();
    let options = Options {
        kubeconfig: Some(cluster.kubeconfig(RESEARCHER)),
        leader_elect: true,
        configuration: Some(
            configuration(3)
                + "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, ray.io/rayjob, ray.io/raycluster]}\n\
               objectRetentionPolicies: {workloads: {afterFinished: 2s}}\n",
        ),
        ..Options::default()
    };
    let controller = Slicegate::start(cluster, &folder, &options).await?;
    commotion_of_kinds(cluster).await?;
    // Finished Workloads are deleted in time.
    Wait::new(&cluster.client, api::WORKLOADS, "default").until("none", BTreeMap::is_empty).await?;
    drop(controller);
    let refused: Vec<String> = cluster
        .requests()?
        .split_off(before)
        .into_iter()
        .filter(|r| r.user == RESEARCHER && matches!(r.code, 401 | 403))
        .map(|r| format!("{} {} {}", r.verb, r.resource, r.name))
        .collect();
    observer.catch_up().await?;
    for kind in ["clusterrolebinding", "clusterrole"] {
        cluster.kubectl.run(&["delete", kind, "slicegate-controller"]).await?;
    }
    ensure!(refused.is_empty(), "the role lacks: {refused:?}");
    Ok(())
}

/// A job of each of four kinds: one of them is placed by topology, two have their capacity provisioned.
async fn commotion_of_kinds(cluster: &Cluster) -> Result<()> {
    let queues = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: hosts}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: tpu}
spec:
  nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}
  topologyName: hosts
  tolerations: [{key: google.com/tpu, operator: Exists}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: tpus}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: tpu, resources: [{name: google.com/tpu, nominalQuota: 16}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: tpus, namespace: default}
spec: {clusterQueue: tpus}
";
    cluster.kubectl.apply(queues).await?;
    cluster.kubectl.apply(&job("plain", "1", "500ms").to_string()).await?;
    cluster.kubectl.apply(&objects::job_set("slices", 2, Some("tpus")).to_string()).await?;
    let limit = Duration::from_mins(1);
    on_demand(cluster, limit).await?;
    let wait = |kind| Wait::new(&cluster.client, kind, "default").limit(limit);
    wait(api::JOBS).one("plain", "complete", |o| is_true(o, "Complete")).await?;
    wait(api::JOB_SETS).one("slices", "completed", |o| is_true(o, "Completed")).await.map(drop)
}

/// A RayJob and a RayCluster whose capacity is asked for.
async fn on_demand(cluster: &Cluster, limit: Duration) -> Result<()> {
    let queues = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: dws}
spec:
  provisioningClassName: nobody.slicegate.dev
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: dws}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: dws}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: on-demand}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory, google.com/tpu]
    flavors:
    - name: plain
      resources:
      - {name: cpu, nominalQuota: 100}
      - {name: memory, nominalQuota: 100Gi}
      - {name: google.com/tpu, nominalQuota: 32}
  admissionChecksStrategy: {admissionChecks: [{name: dws}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: on-demand, namespace: default}
spec: {clusterQueue: on-demand}
";
    cluster.kubectl.apply(queues).await?;
    let ray_job = objects::ray_job("ray", Some("on-demand"));
    let mut ray_cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": ray_job["metadata"],
        "spec": ray_job["spec"]["rayClusterSpec"]});
    ray_cluster["metadata"]["name"] = "cluster".into();
    for (mut job, kind, name) in [(ray_job, api::RAY_JOBS, "ray"), (ray_cluster, api::RAY_CLUSTERS, "cluster")] {
        job["spec"]["suspend"] = true.into();
        cluster.kubectl.apply(&job.to_string()).await?;
        let requests = Wait::new(&cluster.client, api::PROVISIONING_REQUESTS, "default").limit(limit);
        let asked = requests.until("one made", |o| o.len() == 1).await?;
        let condition = json!({"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let answer = json!({"status": {"conditions": [condition]}});
        for (_, request) in asked.into_keys() {
            api::PROVISIONING_REQUESTS.patch_status(&cluster.client, "default", &request, &answer).await?;
        }
        let started = |o: &Value| o.pointer("/spec/suspend") != Some(&json!(true));
        Wait::new(&cluster.client, kind, "default").limit(limit).one(name, "started", started).await?;
        // Its request goes with it, and so does the template.
        kind.delete(&cluster.client, "default", name).await?;
        Wait::new(&cluster.client, kind, "default").limit(limit).gone(name).await?;
        let requests = Wait::new(&cluster.client, api::PROVISIONING_REQUESTS, "default").limit(limit);
        requests.until("gone", BTreeMap::is_empty).await?;
    }
    Ok(())
}

async fn probes_and_metrics_tell_how_it_is(suite: &mut Suite) -> Result<()> {
    let folder = suite.test_folder();
    let cluster = suite.shared().await?;
    let (_gke, observer) = stage(cluster).await?;
    let mut controller = Slicegate::start(cluster, &folder, &Options::default()).await?;
    let well = controller.probe("/healthz").await?;
    ensure_eq!(well.trim(), "ok", "/healthz");
    cluster.kubectl.apply(&job("one", "1", "500ms").to_string()).await?;
    all_complete(cluster, 1, Duration::from_secs(20)).await?;
    // They follow what is seen.
    let last = Instant::now() + Duration::from_secs(5);
    let mut metrics = controller.metrics().await?;
    while !metrics.contains("kueue_finished_workloads_total{") && Instant::now() < last {
        tokio::time::sleep(Duration::from_millis(50)).await;
        metrics = controller.metrics().await?;
    }
    for line in [
        "kueue_admitted_workloads_total{cluster_queue=\"all\",priority_class=\"\",replica_role=\"standalone\"} 1",
        "kueue_finished_workloads_total{cluster_queue=\"all\",priority_class=\"\",replica_role=\"standalone\"} 1",
        "kueue_cluster_queue_status{cluster_queue=\"all\",status=\"active\",replica_role=\"standalone\"} 1",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        ensure!(metrics.lines().any(|l| l == line), "{line} is missing");
    }
    for part in
        ["rest_client_requests_total{code=\"201\",method=\"POST\"}", "kueue_admission_attempt_duration_seconds_count{"]
    {
        ensure!(metrics.contains(part), "{part} is missing");
    }
    let status = controller.terminate().await?;
    ensure!(status.success(), "it ended with {status}");
    observer.must_be_clean().await?;
    let gone = controller.probe("/healthz").await;
    ensure!(gone.is_err(), "it still answers");
    Ok::<(), Error>(())
}
