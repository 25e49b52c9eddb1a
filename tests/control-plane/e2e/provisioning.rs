//! Capacity by ProvisioningRequest: there, refused, asked for again, taken back.

use std::time::Duration;

use slicegate_control_plane::api::{self, is_true, items, name, text};
use slicegate_control_plane::gke::{Answer, Pool};
use slicegate_control_plane::wait::Wait;
use slicegate_control_plane::{Result, Value, ensure, ensure_eq, json};

use crate::objects;
use crate::scene::{CONFIGURATION, Run, Scene, managers, said};
use crate::suite::{Suite, tests};

tests![
    capacity_is_provisioned_for_a_jobset,
    a_request_that_fails_is_made_again,
    capacity_that_is_revoked_ends_the_job,
    a_booking_expires_while_another_check_waits,
];

/// TPUs by DWS, with one retry at most, soon.
const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: dws}
spec:
  nodeLabels: {cloud.google.com/gke-queued: \"true\"}
  tolerations: [{key: cloud.google.com/gke-queued, operator: Equal, value: \"true\", effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: dws}
spec:
  provisioningClassName: queued-provisioning.gke.io
  managedResources: [google.com/tpu]
  parameters: {maxRunDurationSeconds: \"600\"}
  retryStrategy: {backoffLimitCount: 1, backoffBaseSeconds: 1, backoffMaxSeconds: 2}
  podSetUpdates:
    nodeSelector: [{key: autoscaling.gke.io/provisioning-request, valueFromProvisioningClassDetail: ResizeRequestName}]
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
metadata: {name: tpus}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 200}, {name: memory, nominalQuota: 500Gi}]}]
  - coveredResources: [google.com/tpu]
    flavors: [{name: dws, resources: [{name: google.com/tpu, nominalQuota: 16}]}]
  admissionChecksStrategy: {admissionChecks: [{name: dws, onFlavors: [dws]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: tpus, namespace: default}
spec: {clusterQueue: tpus}
";

/// A suspended JobSet of one slice of two hosts, whose pods run until they are told to end.
fn job_set(named: &str) -> Value {
    let mut job_set = objects::job_set(named, 1, Some("tpus"));
    job_set["spec"]["suspend"] = true.into();
    job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
        json!({"annotations": {"e2e.slicegate.dev/run-time": "forever"}});
    job_set
}

fn pool() -> Result<Pool> {
    Ok(Pool::tpu("queued", "ct5lp-hightpu-4t", "2x4")?.queued())
}

/// The state and the message of the check of a Workload.
fn check(workload: &Value, named: &str) -> String {
    let checks = items(workload, "/status/admissionChecks");
    let found = checks.iter().find(|c| text(c, "/name") == named);
    found.map_or_else(|| "none".to_owned(), |c| format!("{}: {}", text(c, "/state"), text(c, "/message")))
}

/// Waits for the request of a job that was made at this attempt.
async fn request(scene: &Scene<'_>, run: &Run<'_>, attempt: u32) -> Result<Value> {
    let workload = run.workload("there", |_| true).await?;
    let named = format!("{}-dws-{attempt}", name(&workload));
    scene.wait(api::PROVISIONING_REQUESTS, &named, "made", |_| true).await
}

async fn capacity_is_provisioned_for_a_jobset(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, vec![pool()?]).await?;
    scene.gke.set(|s| s.answer = Answer::Wait);
    scene.apply(QUEUES).await?;
    scene.wait(api::ADMISSION_CHECKS, "dws", "active", |c| is_true(c, "Active")).await?;
    let mut job = job_set("train");
    job["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] = "3600".into();
    let train = scene.submit(&job).await?;
    let made = request(&scene, &train, 1).await?;
    let waits = train.workload("waiting for its check", |w| check(w, "dws").starts_with("Pending")).await?;
    ensure_eq!(
        said(&waits, "QuotaReserved"),
        "True(QuotaReserved): Quota reserved in ClusterQueue tpus",
        "quota is held meanwhile"
    );
    let row = scene.row(&["workloads"], "jobset-train-").await?;
    ensure_eq!((&*row["RESERVED IN"], &*row["ADMITTED"]), ("tpus", "False"), "what kubectl says meanwhile");
    ensure_eq!(
        made["spec"],
        json!({"provisioningClassName": "queued-provisioning.gke.io", "parameters": {"maxRunDurationSeconds": "3600"},
            "podSets": [{"count": 2, "podTemplateRef": {"name": format!("ppt-{}-slice", name(&made))}}]}),
        "what is asked for"
    );
    ensure_eq!(made["metadata"]["labels"], json!({"kueue.x-k8s.io/managed": "true"}), "labels of the request");
    let template = format!("ppt-{}-slice", name(&made));
    let template = scene.wait(api::POD_TEMPLATES, &template, "there", |_| true).await?;
    let container = &template["template"]["spec"]["containers"][0];
    ensure_eq!(container["resources"]["requests"], json!({"google.com/tpu": "4"}), "requests as the limits say");
    ensure_eq!(
        template["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-queued"],
        "true",
        "the selector of the flavor"
    );

    scene.gke.set(|s| s.answer = Answer::Provision { after: Duration::ZERO });
    let pods = train.runs(2).await?;
    for pod in &pods {
        let annotation =
            |key: &str| text(pod, &format!("/metadata/annotations/autoscaling.x-k8s.io~1{key}")).to_owned();
        ensure_eq!(annotation("consume-provisioning-request"), name(&made), "the request whose capacity a pod uses");
        ensure_eq!(annotation("provisioning-class-name"), "queued-provisioning.gke.io", "its class");
        let selected = text(pod, "/spec/nodeSelector/autoscaling.gke.io~1provisioning-request");
        ensure!(selected.starts_with("gke-default-jobset-train-"), "a pod goes where its request says: {selected}");
    }
    let admitted = train.admitted().await?;
    ensure_eq!(check(&admitted, "dws"), "Ready: Provisioning Request was successfully provisioned.", "the check");
    let owners = managers(&admitted);
    let of = |who: &str| owners.contains(&(who.to_owned(), "Apply".to_owned()));
    ensure!(of("kueue-admission") && of("kueue.x-k8s.io/provisioning-request"), "{owners:?}");
    let told = ["QuotaReserved", "ProvisioningRequestCreated", "AdmissionCheckUpdated", "Admitted"];
    scene.events(&admitted, &told).await?;
    let note = scene.note(&admitted, "AdmissionCheckUpdated").await?;
    let updated = "Admission check dws updated state from Pending to Ready with message: Provisioning Request was successfully provisioned.";
    ensure_eq!(note, updated, "what is told of the check");

    train.end_pods(0).await?;
    let end = train.finished().await?;
    let expected = [
        "QuotaReserved=True(QuotaReserved)",
        "Admitted=False(UnsatisfiedAdmissionChecks)",
        "Admitted=True(Admitted)",
        "Finished=True(Succeeded)",
    ];
    ensure_eq!(train.conditions(&end).await?, expected, "what its conditions told");
    // What was asked for is given back.
    Wait::new(&scene.cluster.client, api::PROVISIONING_REQUESTS, "default").gone(name(&made)).await?;
    scene.end().await
}

async fn a_request_that_fails_is_made_again(suite: &mut Suite) -> Result<()> {
    let queued = Pool::tpu("queued", "ct6e-standard-4t", "4x4")?.queued();
    let scene = Scene::set(suite, CONFIGURATION, vec![queued]).await?;
    let fails = |why: &str| Answer::Fail {
        after: Duration::ZERO,
        reason: "OutOfResources".to_owned(),
        message: why.to_owned(),
    };
    scene.gke.set(|s| s.answer = fails("There are no TPUs."));
    scene.apply(QUEUES).await?;
    let mut job = objects::ray_job("ray", Some("tpus"));
    job["spec"]["suspend"] = true.into();
    let ray = scene.submit(&job).await?;
    let retried = ray.workload("evicted", |w| is_true(w, "Evicted") && !is_true(w, "QuotaReserved")).await?;
    scene.gke.set(|s| s.answer = Answer::Provision { after: Duration::ZERO });
    let why = said(&retried, "Evicted");
    ensure!(why.starts_with("True(AdmissionCheck): Evicted due to AdmissionCheck in Retry state: \"dws\""), "{why}");
    ensure_eq!(
        check(&retried, "dws"),
        "Pending: Reset to Pending after eviction. Previously: Retry",
        "the check after the eviction"
    );
    ensure!(!text(&retried, "/status/requeueState/requeueAt").is_empty(), "when it is back: {retried}");
    request(&scene, &ray, 2).await?;
    ray.admitted().await?;
    let end = Wait::new(&scene.cluster.client, api::RAY_JOBS, "default")
        .limit(Duration::from_mins(1))
        .one("ray", "complete", |o| text(o, "/status/jobDeploymentStatus") == "Complete")
        .await?;
    ensure_eq!(text(&end, "/status/jobStatus"), "SUCCEEDED", "how it ended");
    let end = ray.finished().await?;
    let expected = [
        "QuotaReserved=True(QuotaReserved)",
        "Admitted=False(UnsatisfiedAdmissionChecks)",
        "Evicted=True(AdmissionCheck)",
        "Admitted=False(NoReservation)",
        "QuotaReserved=False(PendingEvaluation)",
        "Requeued=False(AdmissionCheck)",
        "Requeued=True(BackoffFinished)",
        "Admitted=False(UnsatisfiedAdmissionChecks)",
        "Evicted=False(QuotaReserved)",
        "QuotaReserved=True(QuotaReserved)",
        "Admitted=True(Admitted)",
        "Finished=True(Succeeded)",
    ];
    ensure_eq!(ray.conditions(&end).await?, expected, "what its conditions told");

    // The second failure is one too many.
    scene.gke.set(|s| s.answer = fails("There are none either."));
    let unlucky = scene.submit(&job_set("unlucky")).await?;
    let rejected = unlucky.workload("deactivated", |w| w["spec"]["active"] == false && is_true(w, "Evicted")).await?;
    let why = said(&rejected, "Evicted");
    ensure!(why.starts_with("True(DeactivatedDueToAdmissionCheck): "), "{why}");
    ensure!(why.contains("There are none either."), "{why}");
    let rejected = unlucky.pending("Deactivated").await?;
    let note = scene.note(&rejected, "AdmissionCheckRejected").await?;
    ensure_eq!(note, "Deactivated due to AdmissionCheck in Rejected state: \"dws\" (There are none either.)", "told");
    let told = [
        "QuotaReserved",
        "ProvisioningRequestCreated",
        "AdmissionCheckUpdated",
        "EvictedDueToAdmissionCheck",
        "QuotaReserved",
        "ProvisioningRequestCreated",
        "AdmissionCheckUpdated",
        "AdmissionCheckRejected",
        "EvictedDueToDeactivatedDueToAdmissionCheck",
    ];
    scene.events(&rejected, &told).await?;
    unlucky.delete().await?;
    scene.end().await
}

async fn capacity_that_is_revoked_ends_the_job(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, vec![pool()?]).await?;
    scene.apply(QUEUES).await?;
    let train = scene.submit(&job_set("train")).await?;
    train.runs(2).await?;
    let made = request(&scene, &train, 1).await?;
    // Once it is admitted, the end of its booking is nothing to it.
    scene.gke.expire_booking("default", name(&made)).await?;
    scene.gke.revoke("default", name(&made)).await?;
    train.stopped().await?;
    let revoked = train.pending("Deactivated").await?;
    ensure_eq!(revoked["spec"]["active"], false, "spec.active");
    let why = said(&revoked, "Evicted");
    ensure!(why.starts_with("True(DeactivatedDueToAdmissionCheck): "), "{why}");
    ensure!(is_true(&train.now().await?, "Suspended"), "the JobSet is suspended");
    let row = scene.row(&["workloads"], "jobset-train-").await?;
    ensure_eq!((&*row["RESERVED IN"], &*row["ADMITTED"]), ("", "False"), "what kubectl says");
    train.delete().await?;
    scene.end().await
}

async fn a_booking_expires_while_another_check_waits(suite: &mut Suite) -> Result<()> {
    let scene = Scene::set(suite, CONFIGURATION, vec![pool()?]).await?;
    scene.gke.set(|s| s.answer = Answer::Provision { after: Duration::ZERO });
    scene.apply(QUEUES).await?;
    scene
        .apply(
            "
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: tpus}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: dws, resources: [{name: google.com/tpu, nominalQuota: 16}]}]
  admissionChecksStrategy: {admissionChecks: [{name: dws}, {name: budget}]}
",
        )
        .await?;
    // Its controller has not said that it works: nothing is admitted, and the queue says why.
    let train = scene.submit(&job_set("train")).await?;
    let inactive =
        "False(AdmissionCheckInactive): Can't admit new workloads: references inactive AdmissionCheck(s): budget.";
    scene.wait(api::CLUSTER_QUEUES, "tpus", inactive, |q| said(q, "Active") == inactive).await?;
    train.pending("Suspended").await?;
    let works = json!({"status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active",
        "message": "works", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    api::ADMISSION_CHECKS.patch_status(&scene.cluster.client, "", "budget", &works).await?;
    train.workload("provisioned", |w| check(w, "dws").starts_with("Ready")).await?;
    let first = request(&scene, &train, 1).await?;
    scene.gke.expire_booking("default", name(&first)).await?;
    let evicted = train.workload("evicted", |w| is_true(w, "Evicted") && !is_true(w, "QuotaReserved")).await?;
    let why = said(&evicted, "Evicted");
    ensure!(why.contains("Retrying after booking expired: "), "{why}");
    request(&scene, &train, 2).await?;
    let waits = train.workload("provisioned again", |w| check(w, "dws").starts_with("Ready")).await?;
    ensure_eq!(check(&waits, "budget"), "Pending: ", "whom nobody has answered");

    // The other check is answered by whoever it belongs to, under a name of their own.
    let answer = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name(&waits), "namespace": "default"},
        "status": {"admissionChecks": [{"name": "budget", "state": "Ready", "message": "there is money",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let apply =
        ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--field-manager=budget", "-f", "-"];
    scene.cluster.kubectl.run_with(&apply, &answer.to_string()).await?;
    train.runs(2).await?;
    let admitted = train.admitted().await?;
    ensure_eq!(check(&admitted, "budget"), "Ready: there is money", "whose answer stays");
    train.complete().await?;
    scene.end().await
}
