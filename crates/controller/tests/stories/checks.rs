//! Admission checks, those of others and those that ask for capacity.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::{Configuration, Operation, WriteError};
use slicegate_workload::{CheckState, ConditionType};

use crate::api::World;
use crate::batch::{job, reason, running};
use crate::capacity::{self, answer, deployment, request, two_jobs};

/// A queue with two checks that somebody else decides.
fn world() -> World {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    for check in ["one", "two"] {
        let check = world.put(json!({"kind": "AdmissionCheck", "metadata": {"name": check},
            "spec": {"controllerName": "example.com/checks"}}));
        world.edit(&check, |v| {
            v["status"]["conditions"] = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        });
    }
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "one"}, {"name": "two"}]},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

fn workload(world: &World, job: &ObjectRef) -> ObjectRef {
    ObjectRef::new(Kind::Workload, "default", world.key(job).name)
}

/// Somebody decides about a check.
fn decide(world: &mut World, job: &ObjectRef, check: &str, state: &str, more: &Value) {
    let workload = workload(world, job);
    world.edit(&workload, |v| {
        let checks = v["status"]["admissionChecks"].as_array_mut().unwrap();
        let found = checks.iter_mut().find(|c| c["name"] == check).unwrap();
        found["state"] = state.into();
        for (key, value) in more.as_object().into_iter().flatten() {
            found[key.as_str()] = value.clone();
        }
    });
    world.settle();
}

fn states(world: &World, job: &ObjectRef) -> Vec<(String, CheckState)> {
    world.workload(job).status.admission_checks.iter().map(|c| (c.name.to_string(), c.state)).collect()
}

fn both(state: CheckState) -> Vec<(String, CheckState)> {
    ["one", "two"].map(|name| (name.to_owned(), state)).to_vec()
}

#[test]
fn one_check_that_asks_for_another_try_starts_all_over() {
    let mut world = world();
    let a = world.put(job("a", 1));
    world.settle();
    decide(&mut world, &a, "two", "Ready", &json!({}));
    decide(&mut world, &a, "one", "Retry", &json!({"requeueAfterSeconds": 120, "message": "busy"}));
    // Both are still listed while it waits.
    assert_eq!(states(&world, &a), both(CheckState::Pending));
    assert!(!world.has(&a, &ConditionType::QuotaReserved));
    world.advance(119);
    world.settle();
    assert!(!world.has(&a, &ConditionType::QuotaReserved));
    world.advance(1);
    world.settle();
    assert!(world.has(&a, &ConditionType::QuotaReserved));
    decide(&mut world, &a, "one", "Ready", &json!({}));
    decide(&mut world, &a, "two", "Ready", &json!({}));
    assert!(world.has(&a, &ConditionType::Admitted));
}

#[test]
fn a_check_that_asks_for_another_try_while_the_job_stops_is_not_stuck() {
    let mut world = world();
    let a = world.put(job("a", 1));
    world.settle();
    decide(&mut world, &a, "one", "Ready", &json!({}));
    decide(&mut world, &a, "two", "Ready", &json!({}));
    running(&mut world, &a, 1);
    decide(&mut world, &a, "one", "Retry", &json!({}));
    assert!(world.has(&a, &ConditionType::Evicted) && world.has(&a, &ConditionType::QuotaReserved));
    // The other one says so too while its pods still run.
    decide(&mut world, &a, "two", "Retry", &json!({}));
    running(&mut world, &a, 0);
    world.advance(1);
    world.settle();
    assert!(world.has(&a, &ConditionType::QuotaReserved), "it is tried again");
    assert_eq!(states(&world, &a), both(CheckState::Pending));
}

#[test]
fn a_rejection_ends_even_what_runs_and_is_forgotten_when_it_is_taken_up_again() {
    let mut world = world();
    let a = world.put(job("a", 1));
    world.settle();
    decide(&mut world, &a, "one", "Ready", &json!({}));
    decide(&mut world, &a, "two", "Ready", &json!({}));
    running(&mut world, &a, 1);
    decide(&mut world, &a, "two", "Rejected", &json!({"message": "no"}));
    assert!(!world.workload(&a).spec.active);
    assert_eq!(reason(&world, &a, &ConditionType::Evicted), "DeactivatedDueToAdmissionCheck");
    assert_eq!(world.json(&a)["spec"]["suspend"], true);
    running(&mut world, &a, 0);
    let workload = workload(&world, &a);
    world.edit(&workload, |v| v["spec"]["active"] = true.into());
    world.settle();
    assert!(world.has(&a, &ConditionType::QuotaReserved));
    assert_eq!(states(&world, &a), both(CheckState::Pending));
}

fn requests(world: &World) -> Vec<String> {
    world.api.objects.keys().filter(|r| r.kind == Kind::ProvisioningRequest).map(|r| r.name.to_string()).collect()
}

#[test]
fn capacity_that_was_given_is_not_asked_for_again() {
    let mut world = capacity::world(3);
    let (_, job) = two_jobs(&mut world);
    let first = request(&world, &world.key(&job), 1);
    answer(&mut world, &first, &[("Provisioned", "True", "")]);
    assert!(world.has(&job, &ConditionType::Admitted));
    world.crash(0);
    world.settle();
    assert_eq!(requests(&world), [&*first.name]);
    world.delete(&first);
    world.settle();
    assert_eq!(requests(&world), Vec::<String>::new());
    assert!(world.has(&job, &ConditionType::Admitted));
}

#[test]
fn every_failure_below_the_limit_is_followed_by_a_request() {
    let mut world = capacity::world(3);
    let (_, job) = two_jobs(&mut world);
    for attempt in 1..=3 {
        let request = request(&world, &world.key(&job), attempt);
        answer(&mut world, &request, &[("Failed", "True", "no machines")]);
        world.sleep();
        assert!(world.has(&job, &ConditionType::QuotaReserved), "after attempt {attempt}");
    }
    request(&world, &world.key(&job), 4);
}

#[test]
fn a_request_goes_with_the_job_that_finishes() {
    let mut world = capacity::world(3);
    let (_, job) = two_jobs(&mut world);
    request(&world, &world.key(&job), 1);
    deployment(&mut world, &job, "Failed", "FAILED");
    world.settle();
    assert!(world.workload(&job).is_finished());
    assert_eq!(requests(&world), Vec::<String>::new());
}

#[test]
fn an_error_is_told_in_full_while_it_lasts() {
    let mut world = capacity::world(3);
    let long = "x".repeat(5000);
    let why = long.clone();
    world.fault = Box::new(move |write| match &write.operation {
        Operation::Create(o) if o.kind() == Kind::PodTemplate => {
            Some(WriteError::Invalid { object: o.reference(), why: why.clone() })
        }
        _ => None,
    });
    let (_, job) = two_jobs(&mut world);
    let message = |world: &World| world.workload(&job).status.admission_checks[0].message.to_string();
    assert!(message(&world).ends_with(&long), "{} characters", message(&world).len());
    assert_eq!(requests(&world), Vec::<String>::new());
    world.fault = Box::new(|_| None);
    for _ in 0..4 {
        world.advance(60);
        world.settle();
    }
    assert_eq!(requests(&world).len(), 1);
    assert_eq!(message(&world), "", "it is over");
}

#[test]
fn requests_carry_the_jobs_own_label_and_ask_for_the_limits() {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    world.put(json!({"kind": "AdmissionCheck", "metadata": {"name": "dws"}, "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"}}}));
    world.put(json!({"kind": "ProvisioningRequestConfig", "metadata": {"name": "dws"}, "spec": {
        "provisioningClassName": "queued-provisioning.gke.io"}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "admissionChecksStrategy": {"admissionChecks": [{"name": "dws"}]},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    let mut limits = job("a", 1);
    limits["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    let a = world.put(limits);
    world.settle();
    assert!(world.has(&a, &ConditionType::QuotaReserved));
    let template = world.api.objects.keys().find(|r| r.kind == Kind::PodTemplate).unwrap().clone();
    let template = world.json(&template)["template"].clone();
    assert_eq!(template["metadata"]["labels"]["batch.kubernetes.io/job-name"], "a");
    assert_eq!(template["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
}

#[test]
fn a_check_that_is_refused_after_quota_was_given_back_does_not_keep_its_workload_waiting() {
    for state in ["Retry", "Rejected"] {
        let mut world = world();
        let a = world.put(job("a", 1));
        world.settle();
        assert!(world.has(&a, &ConditionType::QuotaReserved));
        let queue = ObjectRef::new(Kind::ClusterQueue, "", "cq");
        world.edit(&queue, |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
        world.settle();
        assert!(!world.has(&a, &ConditionType::QuotaReserved));
        decide(&mut world, &a, "one", state, &json!({}));
        world.edit(&queue, |v| v["spec"]["stopPolicy"] = "None".into());
        world.settle();
        if state == "Retry" {
            assert!(world.has(&a, &ConditionType::QuotaReserved), "it is asked anew");
        } else {
            assert!(!world.workload(&a).spec.active, "it is not let in");
        }
    }
}
