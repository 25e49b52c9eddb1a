//! What is deleted while it is used, at every stage of its life.

use std::collections::BTreeMap;

use slicegate_control_plane::api::{self, is_true, items, name, text};
use slicegate_control_plane::audit::Request;
use slicegate_control_plane::wait::Wait;
use slicegate_control_plane::{Result, Value, ensure, ensure_eq, json};

use crate::scene::{CONFIGURATION, Scene, held, queue, said};
use crate::suite::{Suite, tests};

tests![
    jobs_are_deleted_at_every_stage,
    a_workload_is_deleted_under_its_job,
    queues_are_deleted_while_they_are_used,
    a_namespace_is_deleted_with_all_its_jobs,
];

const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";

fn has_finalizer(object: &Value) -> bool {
    items(object, "/metadata/finalizers").iter().any(|f| f == FINALIZER)
}

async fn jobs_are_deleted_at_every_stage(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let label = [("queue-name", "team")];

    // Its queue is not there yet.
    let nowhere = scene.hold("nowhere", 1, "1", &[("queue-name", "missing")]).await?;
    nowhere.pending("Misconfigured").await?;
    nowhere.delete().await?;

    // Running, while another waits: the one that goes makes room.
    let running = scene.hold("running", 1, "2", &label).await?;
    running.runs(1).await?;
    let pending = scene.hold("pending", 1, "2", &label).await?;
    pending.pending("WaitingForQuota").await?;
    let next = scene.hold("next", 1, "2", &label).await?;
    next.pending("WaitingForQuota").await?;
    pending.delete().await?;
    running.delete().await?;
    next.runs(1).await?;

    // Finished: its Workload goes with it.
    next.complete().await?;
    next.delete().await?;

    // Admitted, its pods not yet running: no node has room.
    let mut job = held("admitted", 1, "1", &label);
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "such-node"});
    let admitted = scene.submit(&job).await?;
    admitted.job("started", |j| j["spec"]["suspend"] == false).await?;
    admitted.delete().await?;

    // With quota reserved, while a check waits.
    scene
        .apply(
            "
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
",
        )
        .await?;
    let works = json!({"status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active",
        "message": "works", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    api::ADMISSION_CHECKS.patch_status(&scene.cluster.client, "", "budget", &works).await?;
    scene.apply(&queue("team", "2", "admissionChecksStrategy: {admissionChecks: [{name: budget}]}")).await?;
    scene
        .wait(api::CLUSTER_QUEUES, "team", "active", |q| {
            is_true(q, "Active") && q["metadata"]["generation"] == q["status"]["conditions"][0]["observedGeneration"]
        })
        .await?;
    let reserved = scene.hold("reserved", 1, "2", &label).await?;
    reserved.workload("with quota", |w| is_true(w, "QuotaReserved") && !is_true(w, "Admitted")).await?;
    reserved.delete().await?;
    let row = scene
        .wait(api::CLUSTER_QUEUES, "team", "empty", |q| {
            q["status"]["reservingWorkloads"] == 0 && q["status"]["pendingWorkloads"] == 0
        })
        .await?;
    ensure_eq!(row["status"]["flavorsReservation"][0]["resources"][0]["total"], "0", "what is held in the end");
    ensure_eq!(api::WORKLOADS.list(&scene.cluster.client, "").await?.len(), 0, "Workloads that are left");
    scene.end().await
}

async fn a_workload_is_deleted_under_its_job(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    let run = scene.hold("train", 1, "2", &[("queue-name", "team")]).await?;
    run.runs(1).await?;
    let first = run.admitted().await?;
    let pods = run.runs(1).await?;
    scene.kubectl(&["delete", "workload", name(&first), "--wait=false"]).await?;
    // Its job stops, and gets in line again.
    let second = run
        .workload("another", |w| text(w, "/metadata/uid") != text(&first, "/metadata/uid") && is_true(w, "Admitted"))
        .await?;
    ensure_eq!(name(&second), name(&first), "the name of the second");
    let again = run.runs(1).await?;
    let uid = |pods: &[Value]| pods.iter().map(|p| text(p, "/metadata/uid").to_owned()).collect::<Vec<_>>();
    ensure!(uid(&pods) != uid(&again), "the pods of the first have ended");
    ensure_eq!(run.workloads().await?, 2, "Workloads that it has had");
    let job = run.now().await?;
    scene.events(&job, &["CreatedWorkload", "Started", "Stopped", "CreatedWorkload", "Started"]).await?;
    ensure_eq!(scene.note(&job, "Stopped").await?, "Workload is deleted", "why it stopped");
    run.complete().await?;
    scene.end().await
}

async fn queues_are_deleted_while_they_are_used(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "4", "")).await?;
    let runs = scene.hold("runs", 1, "2", &[("queue-name", "team")]).await?;
    runs.runs(1).await?;
    for (kind, named) in [(api::CLUSTER_QUEUES, "team"), (api::RESOURCE_FLAVORS, "plain")] {
        scene.wait(kind, named, "held while it is used", has_finalizer).await?;
    }
    // Somebody takes it all away: who runs goes on, and who comes later is told why not.
    scene.kubectl(&["delete", "clusterqueue", "team", "--wait=false"]).await?;
    scene.kubectl(&["delete", "resourceflavor", "plain", "--wait=false"]).await?;
    let going = "False(Terminating): Can't admit new workloads; clusterQueue is terminating";
    scene.wait(api::CLUSTER_QUEUES, "team", going, |q| said(q, "Active") == going).await?;
    let waits = scene.hold("waits", 1, "1", &[("queue-name", "team")]).await?;
    let why = said(&waits.pending("Suspended").await?, "QuotaReserved");
    ensure_eq!(why, "False(Suspended): ClusterQueue team is inactive", "why who comes later waits");
    scene.kubectl(&["delete", "localqueue", "team"]).await?;
    let text_of = "LocalQueue team doesn't exist";
    waits.workload(text_of, |w| said(w, "QuotaReserved").ends_with(text_of)).await?;
    runs.runs(1).await?;
    let end = runs.complete().await?;
    ensure!(said(&end, "Finished").starts_with("True(Succeeded)"), "{}", said(&end, "Finished"));
    // With the last that used them, they go.
    for (kind, named) in [(api::CLUSTER_QUEUES, "team"), (api::RESOURCE_FLAVORS, "plain")] {
        Wait::new(&scene.cluster.client, kind, "").gone(named).await?;
    }
    // Made anew, they serve who still waits.
    scene.apply(&queue("team", "1", "")).await?;
    waits.runs(1).await?;
    waits.complete().await?;
    scene.end().await
}

async fn a_namespace_is_deleted_with_all_its_jobs(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, Vec::new()).await?;
    scene.apply(&queue("team", "2", "")).await?;
    scene.cluster.namespace("leaving").await?;
    scene
        .apply(
            "{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team, namespace: leaving},
            spec: {clusterQueue: team}}",
        )
        .await?;
    let there = |named: &str| {
        let mut job = held(named, 1, "2", &[("queue-name", "team")]);
        job["metadata"]["namespace"] = "leaving".into();
        job
    };
    let runs = scene.submit(&there("runs")).await?;
    runs.runs(1).await?;
    let waits = scene.submit(&there("waits")).await?;
    let first = waits.pending("WaitingForQuota").await?;
    let stays = scene.hold("stays", 1, "2", &[("queue-name", "team")]).await?;
    stays.pending("WaitingForQuota").await?;
    let before = scene.cluster.requests()?.len();
    scene.kubectl(&["delete", "namespace", "leaving", "--wait=false"]).await?;
    // What is in it goes five seconds later, in no certain order: a Workload may go before its job, and is not made again.
    api::WORKLOADS.delete(&scene.cluster.client, "leaving", name(&first)).await?;
    stays.runs(1).await?;
    Wait::new(&scene.cluster.client, api::NAMESPACES, "").gone("leaving").await?;
    let left = Wait::new(&scene.cluster.client, api::WORKLOADS, "leaving").until("none", BTreeMap::is_empty).await?;
    ensure_eq!(left.len(), 0, "Workloads that are left");
    let refused =
        |r: &Request| r.verb == "create" && r.resource == "workloads" && r.namespace == "leaving" && r.code == 403;
    let refused = scene.cluster.requests()?.split_off(before).into_iter().filter(refused).count();
    ensure!((1..8).contains(&refused), "{refused} times a Workload was to be made that the namespace does not take");
    stays.complete().await?;
    scene.end().await
}
