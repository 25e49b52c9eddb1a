//! RayJobs, the second of which needs capacity that must be asked for.

use crate::api::World;
use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef, convert};
use slicegate_controller::{Configuration, WriteError};
use slicegate_workload::{CheckState, ConditionType, Key};

fn quotas(name: &str, cpu: &str, memory: &str, tpu: &str) -> Value {
    json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory},
        {"name": "google.com/tpu", "nominalQuota": tpu}]})
}

pub(super) fn world(retries: i64) -> World {
    let mut world = World::new(Configuration::default());
    for (flavor, pool) in [("default-cpu", "default-pool"), ("on-demand", "od-pool"), ("dws", "dws-pool")] {
        world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": flavor},
            "spec": {"nodeLabels": {"cloud.google.com/gke-nodepool": pool}}}));
    }
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu", "memory", "google.com/tpu"], "flavors": [
            quotas("default-cpu", "10", "20Gi", "0"), quotas("on-demand", "40", "75Gi", "16"),
            quotas("dws", "1000000000", "1000000000Gi", "1000000000")]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "dws-prov", "onFlavors": ["dws"]}]}}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.put(json!({"kind": "AdmissionCheck", "metadata": {"name": "dws-prov"}, "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws-config"}}}));
    world.settle();
    let check = world.json(&check());
    assert_eq!(check["status"]["conditions"][0]["reason"], "BadParametersRef");
    world.put(json!({"kind": "ProvisioningRequestConfig", "metadata": {"name": "dws-config"}, "spec": {
        "provisioningClassName": "queued-provisioning.gke.io", "managedResources": ["google.com/tpu"],
        "retryStrategy": {"backoffLimitCount": retries, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}}}));
    world.settle();
    world
}

fn check() -> ObjectRef {
    ObjectRef::new(Kind::AdmissionCheck, "", "dws-prov")
}

fn rayjob(name: &str) -> Value {
    let pod = |cpu: &str, memory: &str, tpu: Option<&str>| {
        let mut list = json!({"cpu": cpu, "memory": memory});
        if let Some(tpu) = tpu {
            list["google.com/tpu"] = tpu.into();
        }
        json!({"containers": [{"name": "c", "image": "ray", "resources": {"limits": list, "requests": list}}]})
    };
    let mut head = pod("2", "4Gi", None);
    head["nodeSelector"] = json!({"cloud.google.com/gke-nodepool": "default-pool"});
    json!({"kind": "RayJob", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true", "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "3600"}},
        "spec": {"shutdownAfterJobFinishes": true, "submissionMode": "K8sJobMode", "rayClusterSpec": {
            "enableInTreeAutoscaling": true, "headGroupSpec": {"template": {"spec": head}},
            "workerGroupSpecs": [{"groupName": "tpu-group", "replicas": 1, "numOfHosts": 4,
                "template": {"spec": pod("8", "16Gi", Some("4"))}}]}}})
}

pub(super) fn deployment(world: &mut World, job: &ObjectRef, status: &str, job_status: &str) {
    world.edit(job, |v| {
        v["status"]["jobDeploymentStatus"] = status.into();
        v["status"]["jobStatus"] = job_status.into();
        v["status"]["message"] = "done".into();
    });
}

pub(super) fn request(world: &World, workload: &Key, attempt: u32) -> ObjectRef {
    let name = format!("{}-dws-prov-{attempt}", workload.name);
    let reference = ObjectRef::new(Kind::ProvisioningRequest, "default", name);
    assert!(world.api.objects.contains_key(&reference), "no {reference}");
    reference
}

pub(super) fn answer(world: &mut World, request: &ObjectRef, kinds: &[(&str, &str, &str)]) {
    let now = convert::time_to_api(world.now.truncated());
    let conditions: Vec<Value> = kinds
        .iter()
        .map(|(kind, status, message)| {
            json!({"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": now})
        })
        .collect();
    world.edit(request, |v| v["status"]["conditions"] = conditions.into());
    world.settle();
}

pub(super) fn two_jobs(world: &mut World) -> (ObjectRef, ObjectRef) {
    let first = world.put(rayjob("r1"));
    world.settle();
    deployment(world, &first, "Running", "RUNNING");
    world.advance(2);
    let second = world.put(rayjob("r2"));
    world.settle();
    (first, second)
}

pub(super) fn state(world: &World, job: &ObjectRef) -> CheckState {
    world.workload(job).status.admission_checks[0].state
}

#[test]
fn the_second_rayjob_runs_on_capacity_that_was_asked_for() {
    let mut world = world(3);
    let (first, second) = two_jobs(&mut world);
    let one = world.workload(&first).clone();
    assert!(one.is_admitted() && one.status.admission_checks.is_empty());
    let psa = &one.status.admission.as_ref().unwrap().pod_set_assignments;
    let names: Vec<&str> = psa.iter().map(|p| &*p.name).collect();
    assert_eq!(names, ["head", "tpu-group", "submitter"]);
    assert_eq!(&*psa[1].flavors["google.com/tpu"], "on-demand");
    assert_eq!(psa[0].resource_usage["cpu"].to_string(), "2500m");
    assert_eq!(psa[2].resource_usage["memory"].to_string(), "200Mi");
    assert_eq!(&*one.annotations["kueue.x-k8s.io/workload-slice-name"], &*one.key.name);
    let spec = world.json(&first)["spec"].clone();
    assert!(spec.get("suspend").is_none_or(|s| s == false));
    let group = &spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"];
    assert_eq!(group["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"], "od-pool");
    assert_eq!(group["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-name"], *one.key.name);

    // Quota is there for the second, but no machines.
    let two = world.workload(&second).clone();
    assert!(two.has_quota_reservation() && !two.is_admitted());
    assert_eq!(state(&world, &second), CheckState::Pending);
    assert_eq!(world.json(&second)["spec"]["suspend"], true);
    let request = request(&world, &two.key, 1);
    let made = world.json(&request);
    let template_name = format!("ppt-{}-tpu-group", request.name);
    assert_eq!(
        made["spec"],
        json!({
        "provisioningClassName": "queued-provisioning.gke.io",
        "parameters": {"maxRunDurationSeconds": "3600"},
        "podSets": [{"podTemplateRef": {"name": template_name}, "count": 4}]})
    );
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Workload");
    assert_eq!(made["metadata"]["labels"]["kueue.x-k8s.io/managed"], "true");
    let template = world.json(&ObjectRef::new(Kind::PodTemplate, "default", template_name));
    assert_eq!(template["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"], "dws-pool");
    assert_eq!(template["metadata"]["ownerReferences"][0]["kind"], "ProvisioningRequest");
    let workload = ObjectRef::new(Kind::Workload, "default", two.key.name.clone());
    assert_eq!(world.reasons(&workload), ["QuotaReserved", "ProvisioningRequestCreated"]);

    answer(&mut world, &request, &[("Accepted", "True", "ok"), ("Provisioned", "False", "in 5 min")]);
    assert_eq!(&*world.workload(&second).status.admission_checks[0].message, "in 5 min");
    assert_eq!(world.reasons(&second).last(), Some(&"UpdatedAdmissionCheck"));

    world.advance(300);
    answer(&mut world, &request, &[("Accepted", "True", "ok"), ("Provisioned", "True", "here it is")]);
    assert_eq!(state(&world, &second), CheckState::Ready);
    assert!(world.has(&second, &ConditionType::Admitted));
    let spec = world.json(&second)["spec"].clone();
    let group = &spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"];
    assert_eq!(group["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"], "dws-pool");
    assert_eq!(group["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"], *request.name);
    let head = &spec["rayClusterSpec"]["headGroupSpec"]["template"]["metadata"]["annotations"];
    assert!(head.get("autoscaling.x-k8s.io/consume-provisioning-request").is_none());
    let tail = ["ProvisioningRequestCreated", "AdmissionCheckUpdated", "Admitted"];
    assert!(world.reasons(&workload).ends_with(&tail));
    let admitted = world.events.iter().find(|e| e.object == workload && &*e.reason == "Admitted").unwrap();
    assert_eq!(&*admitted.note, "Admitted by ClusterQueue cq, wait time since reservation was 300s");

    deployment(&mut world, &second, "Complete", "SUCCEEDED");
    world.settle();
    assert!(world.workload(&second).is_finished());
    assert!(!world.api.objects.keys().any(|r| r.kind == Kind::ProvisioningRequest));
    assert!(!world.api.objects.keys().any(|r| r.kind == Kind::PodTemplate));
}

#[test]
fn a_request_that_fails_is_tried_again_and_then_given_up() {
    let mut world = world(1);
    let (_, job) = two_jobs(&mut world);
    let key = world.key(&job);
    let first = request(&world, &key, 1);
    answer(&mut world, &first, &[("Failed", "True", "no machines")]);
    // The failure puts the workload back, to wait for a minute.
    let workload = world.workload(&job).clone();
    assert!(workload.is_evicted() && !workload.has_quota_reservation());
    assert_eq!(workload.status.admission_checks[0].retry_count, Some(1));
    assert!(workload.status.conditions.is_false(&ConditionType::Requeued));
    assert!(!world.api.objects.contains_key(&first), "an evicted workload needs no capacity");
    let reference = ObjectRef::new(Kind::Workload, "default", key.name.clone());
    assert!(world.reasons(&reference).contains(&"EvictedDueToAdmissionCheck"));
    assert_eq!(world.wake_at, Some(world.now.plus_seconds(60)));
    world.sleep();
    assert!(world.has(&job, &ConditionType::QuotaReserved));
    assert!(world.has(&job, &ConditionType::Requeued));
    let second = request(&world, &key, 2);
    answer(&mut world, &second, &[("Failed", "True", "still none")]);
    let workload = world.workload(&job).clone();
    assert!(!workload.spec.active);
    let evicted = workload.status.conditions.get(&ConditionType::Evicted).unwrap();
    assert_eq!(&*evicted.reason, "DeactivatedDueToAdmissionCheck");
    assert!(evicted.message.contains("\"dws-prov\" (still none)"), "{}", evicted.message);
    assert!(world.reasons(&reference).contains(&"AdmissionCheckRejected"));
    assert_eq!(world.wake_at, None, "there is nothing to wait for");
}

#[test]
fn revoked_capacity_deactivates_even_a_running_workload() {
    let mut world = world(3);
    let (_, job) = two_jobs(&mut world);
    let key = world.key(&job);
    let request = request(&world, &key, 1);
    answer(&mut world, &request, &[("Provisioned", "True", "")]);
    deployment(&mut world, &job, "Running", "RUNNING");
    world.settle();
    answer(&mut world, &request, &[("Provisioned", "True", ""), ("CapacityRevoked", "True", "seven days are over")]);
    let workload = world.workload(&job).clone();
    assert!(!workload.spec.active);
    let evicted = workload.status.conditions.get(&ConditionType::Evicted).unwrap();
    assert_eq!(&*evicted.reason, "DeactivatedDueToAdmissionCheck");
    assert!(workload.has_quota_reservation(), "until its pods are gone");
    assert_eq!(world.json(&job)["spec"]["suspend"], true);
    deployment(&mut world, &job, "Suspended", "");
    world.settle();
    assert!(!world.workload(&job).has_quota_reservation());
}

#[test]
fn a_request_that_could_not_be_deleted_is_deleted_later() {
    let mut world = world(3);
    let (_, second) = two_jobs(&mut world);
    let first_request = request(&world, &world.key(&second), 1);
    let mut failures = 2;
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let lost = matches!(write.operation, slicegate_controller::Operation::Delete { .. }) && failures > 0;
        failures -= i32::from(lost);
        lost.then(|| WriteError::Unavailable { object, why: "timeout".to_owned() })
    });
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&second).name);
    world.edit(&workload, |v| v["spec"]["active"] = false.into());
    for _ in 0..10 {
        world.step();
        world.advance(5);
    }
    assert!(!world.api.objects.contains_key(&first_request), "an evicted workload needs no capacity");
}

#[test]
fn what_a_request_needs_is_made_again_if_it_could_not_be_written() {
    for kind in [Kind::PodTemplate, Kind::ProvisioningRequest] {
        let mut world = world(1);
        let mut failures = 2;
        world.fault = Box::new(move |write| {
            let object = write.operation.object();
            if object.kind != kind || failures == 0 {
                return None;
            }
            failures -= 1;
            Some(WriteError::Unavailable { object, why: "connection refused".to_owned() })
        });
        let (_, job) = two_jobs(&mut world);
        let requests = |world: &World| world.api.objects.keys().filter(|r| r.kind == Kind::ProvisioningRequest).count();
        assert_eq!(requests(&world), 0, "{kind:?}");
        for _ in 0..3 {
            if requests(&world) == 0 {
                world.sleep();
            }
        }
        assert_eq!(requests(&world), 1, "{kind:?}");
        let first = request(&world, &world.key(&job), 1);
        answer(&mut world, &first, &[("Accepted", "True", ""), ("Provisioned", "True", "")]);
        assert!(world.has(&job, &ConditionType::Admitted));
    }
}
