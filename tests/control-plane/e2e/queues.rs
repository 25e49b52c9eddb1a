//! Queues that change while they are used.

use slicegate_control_plane::api::{self, is_true, name, text};
use slicegate_control_plane::{Result, ensure, ensure_eq, json};

use crate::scene::{CONFIGURATION, Scene, queue, said};
use crate::suite::{Suite, tests};

tests![
    quota_is_raised_and_lowered,
    a_cluster_queue_is_held_drained_and_resumed,
    a_local_queue_is_held_drained_and_resumed,
    a_queue_works_once_all_it_names_is_there,
    both_versions_side_by_side,
];

async fn quota_is_raised_and_lowered(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let label = [("queue-name", "team")];
    let first = scene.hold("first", 1, "2", &label).await?;
    first.runs(1).await?;
    let second = scene.hold("second", 1, "3", &label).await?;
    let never = second.pending("ExceedsMaxQuota").await?;
    let why = "False(ExceedsMaxQuota): couldn't assign flavors to pod set main: insufficient quota for cpu in flavor plain, \
               previously considered podsets requests (0) + current podset request (3) > maximum capacity (2)";
    ensure_eq!(said(&never, "QuotaReserved"), why, "what can never be");
    let third = scene.hold("third", 1, "1", &label).await?;
    third.pending("WaitingForQuota").await?;

    scene.apply(&queue("team", "6", "")).await?;
    second.runs(1).await?;
    third.runs(1).await?;
    // Less than what is in use: nobody is hurt, and nobody new gets in.
    scene.apply(&queue("team", "4", "")).await?;
    let fourth = scene.hold("fourth", 1, "1", &label).await?;
    fourth.pending("WaitingForQuota").await?;
    for run in [&first, &second, &third] {
        run.runs(1).await?;
    }
    third.complete().await?;
    first.complete().await?;
    fourth.runs(1).await?;
    second.complete().await?;
    fourth.complete().await?;
    for run in [&first, &second, &third] {
        let workload = run.finished().await?;
        let changes = run.conditions(&workload).await?;
        ensure!(!changes.iter().any(|c| c.starts_with("Evicted")), "{}: {changes:?}", run.name);
    }
    let status = scene.wait(api::CLUSTER_QUEUES, "team", "empty", |q| q["status"]["admittedWorkloads"] == 0).await?;
    ensure_eq!(status["status"]["pendingWorkloads"], 0, "who waits in the end");
    ensure_eq!(
        status["status"]["flavorsUsage"],
        json!([{"name": "plain", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]}]),
        "what is in use in the end"
    );
    scene.end().await
}

async fn a_cluster_queue_is_held_drained_and_resumed(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "4", "")).await?;
    let label = [("queue-name", "team")];
    let runs = scene.hold("runs", 1, "2", &label).await?;
    runs.runs(1).await?;
    let stop = |policy: &'static str| {
        let scene = &scene;
        async move {
            let patch = json!({"spec": {"stopPolicy": policy}}).to_string();
            scene.kubectl(&["patch", "clusterqueue", "team", "--type=merge", "-p", &patch]).await
        }
    };
    stop("Hold").await?;
    let stopped = "False(Stopped): Can't admit new workloads: is stopped.";
    scene.wait(api::CLUSTER_QUEUES, "team", stopped, |q| said(q, "Active") == stopped).await?;
    scene
        .wait(api::LOCAL_QUEUES, "team", "inactive", |q| {
            said(q, "Active") == "False(ClusterQueueIsInactive): Can't submit new workloads to clusterQueue"
        })
        .await?;
    let waits = scene.hold("waits", 1, "2", &label).await?;
    let why = said(&waits.pending("Suspended").await?, "QuotaReserved");
    ensure_eq!(why, "False(Suspended): ClusterQueue team is inactive", "why who comes later waits");
    runs.runs(1).await?;

    stop("HoldAndDrain").await?;
    let drained = runs.pending("Suspended").await?;
    runs.stopped().await?;
    ensure_eq!(said(&drained, "Evicted"), "True(ClusterQueueStopped): The ClusterQueue is stopped", "why it stops");
    ensure_eq!(
        said(&drained, "Requeued"),
        "False(ClusterQueueStopped): The ClusterQueue is stopped",
        "that it does not wait for quota"
    );
    let row = scene.row(&["workloads"], "job-runs-").await?;
    ensure_eq!((&*row["RESERVED IN"], &*row["ADMITTED"]), ("", "False"), "what kubectl says");

    stop("None").await?;
    runs.runs(1).await?;
    waits.runs(1).await?;
    let end = runs.complete().await?;
    waits.complete().await?;
    let expected = [
        "Admitted=True(Admitted)",
        "QuotaReserved=True(QuotaReserved)",
        "Evicted=True(ClusterQueueStopped)",
        "Admitted=False(NoReservation)",
        "QuotaReserved=False(PendingEvaluation)",
        "Requeued=False(ClusterQueueStopped)",
        "QuotaReserved=False(Suspended)",
        "Requeued=True(ClusterQueueRestarted)",
        "Admitted=True(Admitted)",
        "Evicted=False(QuotaReserved)",
        "QuotaReserved=True(QuotaReserved)",
        "Finished=True(Succeeded)",
    ];
    ensure_eq!(runs.conditions(&end).await?, expected, "what its conditions told");
    scene
        .events(&end, &["QuotaReserved", "Admitted", "EvictedDueToClusterQueueStopped", "QuotaReserved", "Admitted"])
        .await?;
    scene.end().await
}

async fn a_local_queue_is_held_drained_and_resumed(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "4", "")).await?;
    scene
        .apply(
            "{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: other, namespace: default},
            spec: {clusterQueue: team}}",
        )
        .await?;
    let runs = scene.hold("runs", 1, "2", &[("queue-name", "team")]).await?;
    let other = scene.hold("other", 1, "1", &[("queue-name", "other")]).await?;
    runs.runs(1).await?;
    other.runs(1).await?;
    let stop = |policy: &'static str| {
        let scene = &scene;
        async move {
            let patch = json!({"spec": {"stopPolicy": policy}}).to_string();
            scene.kubectl(&["patch", "localqueue", "team", "--type=merge", "-p", &patch]).await
        }
    };
    stop("Hold").await?;
    let stopped = "False(Stopped): LocalQueue is stopped";
    scene.wait(api::LOCAL_QUEUES, "team", stopped, |q| said(q, "Active") == stopped).await?;
    let waits = scene.hold("waits", 1, "1", &[("queue-name", "team")]).await?;
    let why = said(&waits.pending("Suspended").await?, "QuotaReserved");
    ensure_eq!(why, "False(Suspended): LocalQueue team is inactive", "why who comes later waits");
    runs.runs(1).await?;
    stop("HoldAndDrain").await?;
    runs.stopped().await?;
    let drained = runs.pending("Suspended").await?;
    ensure_eq!(said(&drained, "Evicted"), "True(LocalQueueStopped): The LocalQueue is stopped", "why it stops");
    other.runs(1).await?;
    stop("None").await?;
    runs.runs(1).await?;
    waits.runs(1).await?;
    let end = runs.complete().await?;
    let changes = runs.conditions(&end).await?;
    ensure!(changes.iter().any(|c| c == "Requeued=True(LocalQueueRestarted)"), "{changes:?}");
    other.complete().await?;
    waits.complete().await?;
    scene.end().await
}

async fn a_queue_works_once_all_it_names_is_there(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    // First the job, then its queue, then the ClusterQueue, and the flavor last.
    let early = scene.hold("early", 1, "1", &[("queue-name", "team")]).await?;
    let why = said(&early.pending("Misconfigured").await?, "QuotaReserved");
    ensure_eq!(why, "False(Misconfigured): LocalQueue team doesn't exist", "without a LocalQueue");
    let manifests = queue("team", "2", "");
    let parts: Vec<&str> = manifests.split("---").collect();
    let [flavor, cluster_queue, local_queue] = parts.as_slice() else {
        return Err("three objects were expected".into());
    };
    scene.apply(local_queue).await?;
    let missing = "False(ClusterQueueDoesNotExist): Can't submit new workloads to clusterQueue";
    scene.wait(api::LOCAL_QUEUES, "team", missing, |q| said(q, "Active") == missing).await?;
    let text_of = "ClusterQueue team doesn't exist";
    early.workload(text_of, |w| said(w, "QuotaReserved").ends_with(text_of)).await?;
    scene.apply(cluster_queue).await?;
    let missing = "False(FlavorNotFound): Can't admit new workloads: references missing ResourceFlavor(s): plain.";
    scene.wait(api::CLUSTER_QUEUES, "team", missing, |q| said(q, "Active") == missing).await?;
    let text_of = "ClusterQueue team is inactive";
    early.workload(text_of, |w| said(w, "QuotaReserved").ends_with(text_of)).await?;
    scene.apply(flavor).await?;
    scene
        .wait(api::CLUSTER_QUEUES, "team", "active", |q| said(q, "Active") == "True(Ready): Can admit new workloads")
        .await?;
    early.runs(1).await?;
    // The flavors that a LocalQueue gives are told in its status.
    let local = scene.wait(api::LOCAL_QUEUES, "team", "in use", |q| q["status"]["admittedWorkloads"] == 1).await?;
    ensure_eq!(said(&local, "Active"), "True(Ready): Can submit new workloads to localQueue", "the LocalQueue");
    let row = scene.row(&["localqueues"], "team").await?;
    ensure_eq!(
        (&*row["CLUSTERQUEUE"], &*row["PENDING WORKLOADS"], &*row["ADMITTED WORKLOADS"]),
        ("team", "0", "1"),
        "what kubectl says"
    );
    early.complete().await?;
    scene.end().await
}

/// The same queue in the older version, as most manifests are written.
const OLDER: &str = "
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: older}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: older}
spec:
  cohort: all
  namespaceSelector: {}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: TryNextFlavor}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: older, resources: [{name: cpu, nominalQuota: 2, borrowingLimit: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: older, namespace: default}
spec: {clusterQueue: older}
";

async fn both_versions_side_by_side(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(OLDER).await?;
    let newer = OLDER.replace("v1beta1", "v1beta2").replace("name: older", "name: newer");
    let newer = newer.replace("clusterQueue: older", "clusterQueue: newer").replace("cohort: all", "cohortName: all");
    let newer = newer.replace("whenCanBorrow: Borrow", "whenCanBorrow: MayStopSearch");
    // The same flavor, so that one can borrow from the other.
    let newer = newer.replace("flavors: [{name: newer", "flavors: [{name: older");
    scene.apply(&newer).await?;
    let borrows = scene.hold("borrows", 2, "2", &[("queue-name", "older")]).await?;
    borrows.runs(2).await?;
    let owner = scene.hold("owner", 1, "2", &[("queue-name", "newer")]).await?;
    owner.runs(1).await?;
    let gone = borrows.pending("WaitingForQuota").await?;
    ensure!(said(&gone, "Preempted").starts_with("True(InCohortReclamation)"), "{}", said(&gone, "Preempted"));

    // The words of the older version for what becomes of borrowing are read and not written any more.
    for (version, cohort) in [("v1beta1", "/spec/cohort"), ("v1beta2", "/spec/cohortName")] {
        for named in ["older", "newer"] {
            let got = scene
                .kubectl(&["get", &format!("clusterqueues.{version}.kueue.x-k8s.io"), named, "-o", "json"])
                .await?;
            let got: slicegate_control_plane::Value = serde_json::from_str(&got)?;
            ensure_eq!(
                (text(&got, cohort), text(&got, "/spec/flavorFungibility/whenCanBorrow")),
                ("all", "MayStopSearch"),
                "{named} as {version}"
            );
            ensure!(is_true(&got, "Active"), "{named} as {version} is active");
        }
        let workloads = format!("workloads.{version}.kueue.x-k8s.io");
        let row = scene.row(&[&workloads], "job-owner-").await?;
        ensure_eq!((&*row["QUEUE"], &*row["ADMITTED"]), ("newer", "True"), "workloads as {version}");
    }
    // A Workload that holds quota can be changed in either version, where that changes nothing it was admitted with.
    let named = owner.workload("there", |_| true).await?;
    for version in ["v1beta1", "v1beta2"] {
        let workloads = format!("workloads.{version}.kueue.x-k8s.io");
        scene.kubectl(&["label", &workloads, name(&named), &format!("example.com/{version}=seen")]).await?;
    }
    // What is edited in the older version is what counts.
    let edited = OLDER.replace("nominalQuota: 2", "nominalQuota: 4");
    scene.apply(&edited).await?;
    borrows.runs(2).await?;
    borrows.complete().await?;
    owner.complete().await?;
    scene.end().await
}
