//! Kueue itself: a cluster moves from it to Slicegate and back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, items, name, text};
use slicegate_control_plane::cluster::{Cluster, SECOND, probe};
use slicegate_control_plane::process::{Process, Spec};
use slicegate_control_plane::slicegate::NAMESPACE;
use slicegate_control_plane::{Context as _, Result, Value, ensure, ensure_eq, json, ports};

use crate::scene::{CONFIGURATION, Run, Scene, queue, said};
use crate::suite::{Suite, tests};

tests![peer_a_cluster_moves_from_kueue_and_back,];

/// Where Kueue looks for the certificate of its metrics, whatever its configuration says.
const METRICS_CERTIFICATE: &str = "/etc/kueue/metrics/certs/tls.crt";

/// Kueue, without webhooks: jobs are created suspended.
struct Kueue(Process);

impl Kueue {
    async fn start(cluster: &Cluster, program: &Path, folder: &Path) -> Result<Self> {
        cluster.bind(SECOND, "cluster-admin").await?;
        let [probes, metrics, webhook] = [ports::free()?, ports::free()?, ports::free()?];
        let certificates = cluster.certificates.folder.display();
        let configuration = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: {NAMESPACE}
health: {{healthProbeBindAddress: '127.0.0.1:{probes}'}}
metrics: {{bindAddress: '127.0.0.1:{metrics}'}}
webhook: {{host: 127.0.0.1, port: {webhook}, certDir: {certificates}}}
leaderElection: {{leaderElect: false}}
internalCertManagement: {{enable: false}}
integrations: {{frameworks: [batch/job, jobset.x-k8s.io/jobset]}}
"
        );
        std::fs::create_dir_all(folder).doing(folder.display())?;
        let path = folder.join("kueue.yaml");
        std::fs::write(&path, configuration).doing(path.display())?;
        let spec = Spec::new("kueue", program, folder)
            .flag("config", &path)
            .flag("kubeconfig", cluster.kubeconfig(SECOND))
            .flag("feature-gates", "VisibilityOnDemand=false")
            .env("POD_NAMESPACE", NAMESPACE);
        let mut process = Process::start(spec)?;
        let url = format!("http://127.0.0.1:{probes}");
        process.ready(Duration::from_mins(1), || probe(url.clone(), "/readyz", None)).await?;
        Ok(Self(process))
    }

    async fn stop(mut self) -> Result<()> {
        self.0.terminate(Duration::from_secs(30)).await.map(drop)
    }
}

/// Who owns which field of a status, but conditions, which several may set one after another.
fn owners_of(workload: &Value, field: &str) -> Vec<String> {
    let pointer = format!("/fieldsV1/f:status/f:{field}");
    let owns = |m: &&Value| m.pointer(&pointer).is_some();
    items(workload, "/metadata/managedFields").iter().filter(owns).map(|m| text(m, "/manager").to_owned()).collect()
}

async fn uids(run: &Run<'_>, pods: usize) -> Result<Vec<String>> {
    let mut uids: Vec<String> = run.runs(pods).await?.iter().map(|p| text(p, "/metadata/uid").to_owned()).collect();
    uids.sort();
    Ok(uids)
}

async fn stop_policy(scene: &Scene<'_>, policy: &str) -> Result<()> {
    let patch = json!({"spec": {"stopPolicy": policy}}).to_string();
    scene.kubectl(&["patch", "clusterqueue", "team", "--type=merge", "-p", &patch]).await.map(drop)
}

async fn peer_a_cluster_moves_from_kueue_and_back(suite: &mut Suite) -> Result<()> {
    let Some(kueue) = suite.kueue() else {
        suite.skip("it needs Kueue itself: `e2e --kueue` builds it");
        return Ok(());
    };
    if !Path::new(METRICS_CERTIFICATE).exists() {
        suite.skip("Kueue needs a certificate: make tls.crt and tls.key in /etc/kueue/metrics/certs");
        return Ok(());
    }
    let folder: PathBuf = suite.test_folder();
    let configuration = CONFIGURATION.replace(", ray.io/rayjob, ray.io/raycluster", "");
    let scene = Scene::set(suite, &configuration, Vec::new()).await?;
    scene.stop_controller().await?;

    // Kueue alone: two run, one waits.
    let peer = Kueue::start(scene.cluster, &kueue, &folder).await?;
    scene.apply(&queue("team", "4", "preemption: {withinClusterQueue: LowerPriority}")).await?;
    let label = [("queue-name", "team")];
    let first = scene.hold("first", 2, "1", &label).await?;
    let pods_of_first = uids(&first, 2).await?;
    let second = scene.hold("second", 2, "1", &label).await?;
    let pods_of_second = uids(&second, 2).await?;
    let third = scene.hold("third", 2, "1", &label).await?;
    let waits = third.workload("told to wait", |w| api::condition(w, "QuotaReserved").is_some()).await?;
    ensure!(!is_true(&waits, "QuotaReserved"), "there is quota for two: {}", said(&waits, "QuotaReserved"));
    let named: Vec<String> =
        [&first.admitted().await?, &second.admitted().await?, &waits].map(|w| name(w).to_owned()).into();
    peer.stop().await?;

    // Slicegate takes over: what runs runs on, what waits gets what becomes free.
    scene.start_controller().await?;
    ensure_eq!(uids(&first, 2).await?, pods_of_first, "pods of the first");
    first.complete().await?;
    let pods_of_third = uids(&third, 2).await?;
    let third_admitted = third.admitted().await?;
    ensure_eq!(
        name(&third_admitted),
        named.get(2).doing("three")?,
        "the Workload that Kueue made is the one that runs"
    );
    // It takes back what Kueue gave.
    stop_policy(&scene, "HoldAndDrain").await?;
    second.stopped().await?;
    let evicted = second.workload("without quota", |w| is_true(w, "Evicted") && !is_true(w, "QuotaReserved")).await?;
    ensure!(evicted.pointer("/status/admission").is_none(), "Kueue's admission is gone: {}", evicted["status"]);
    third.stopped().await?;
    stop_policy(&scene, "None").await?;
    let again = second.admitted().await?;
    ensure_eq!(owners_of(&again, "admission"), ["kueue-admission"], "who owns the admission");
    let pods_of_second_again = uids(&second, 2).await?;
    ensure!(pods_of_second_again != pods_of_second, "it was stopped and started");
    let pods_of_third_again = uids(&third, 2).await?;
    ensure!(pods_of_third_again != pods_of_third, "it was stopped and started");
    let fourth = scene.hold("fourth", 4, "1", &label).await?;
    fourth.pending("WaitingForQuota").await?;
    scene.stop_controller().await?;

    // And back to Kueue: the same the other way round.
    let peer = Kueue::start(scene.cluster, &kueue, &folder.join("again")).await?;
    second.complete().await?;
    ensure_eq!(uids(&third, 2).await?, pods_of_third_again, "pods of the third");
    stop_policy(&scene, "HoldAndDrain").await?;
    third.stopped().await?;
    let evicted = third.workload("without quota", |w| is_true(w, "Evicted") && !is_true(w, "QuotaReserved")).await?;
    ensure!(evicted.pointer("/status/admission").is_none(), "Slicegate's admission is gone: {}", evicted["status"]);
    // Room for both: Kueue may take either first.
    scene.apply(&queue("team", "6", "preemption: {withinClusterQueue: LowerPriority}")).await?;
    stop_policy(&scene, "None").await?;
    third.runs(2).await?;
    fourth.runs(4).await?;
    third.complete().await?;
    fourth.complete().await?;
    for run in [&first, &second, &third, &fourth] {
        run.finished().await?;
    }
    ensure_eq!(api::WORKLOADS.list(&scene.cluster.client, "default").await?.len(), 4, "Workloads of four jobs");
    peer.stop().await?;
    scene.start_controller().await?;
    scene.end().await
}
