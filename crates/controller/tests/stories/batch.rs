//! Batch Jobs, and what queues and their admins do to them.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::World;

pub(super) fn world(quota: &str, preemption: &Value) -> World {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {
        "nodeLabels": {"pool": "std"}, "tolerations": [{"key": "std", "operator": "Exists"}]}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": preemption,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": quota}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

pub(super) fn job(name: &str, pods: i64) -> Value {
    json!({"kind": "Job", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": {
            "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u",
                "batch.kubernetes.io/job-name": name, "job-name": name}},
            "spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

pub(super) fn running(world: &mut World, job: &ObjectRef, active: i64) {
    world.edit(job, |v| {
        v["status"]["active"] = active.into();
        v["status"]["ready"] = active.into();
        if active > 0 {
            v["status"]["startTime"] = json!("2026-01-01T00:00:01Z");
        }
    });
    world.settle();
}

fn edit_queue(world: &mut World, kind: Kind, change: impl FnOnce(&mut Value)) {
    let reference = match kind {
        Kind::LocalQueue => ObjectRef::new(kind, "default", "lq"),
        _ => ObjectRef::new(kind, "", "cq"),
    };
    world.edit(&reference, change);
    world.settle();
}

pub(super) fn reason(world: &World, job: &ObjectRef, kind: &ConditionType) -> String {
    world.workload(job).status.conditions.get(kind).map_or_else(String::new, |c| c.reason.to_string())
}

#[test]
fn a_job_is_stopped_in_steps_and_its_template_restored() {
    let mut world = world("4", &json!({"withinClusterQueue": "LowerPriority"}));
    world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}));
    let low = world.put(job("low", 4));
    world.settle();
    running(&mut world, &low, 4);
    let started = world.json(&low)["spec"].clone();
    assert_eq!(started["template"]["spec"]["nodeSelector"]["pool"], "std");
    assert_eq!(started["template"]["spec"]["tolerations"][0]["key"], "std");
    let recorded = world.json(&ObjectRef::new(Kind::Workload, "default", world.key(&low).name));
    let labels = &recorded["spec"]["podSets"][0]["template"]["metadata"]["labels"];
    assert_eq!(*labels, json!({"batch.kubernetes.io/job-name": "low"}));

    let mut urgent = job("urgent", 2);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    let urgent = world.put(urgent);
    world.settle();
    assert_eq!(world.workload(&urgent).spec.priority, 9);
    let waits = "WaitingForPreemptedWorkloads";
    let preemptor = ObjectRef::new(Kind::Workload, "default", world.key(&urgent).name);
    assert_eq!(world.reasons(&preemptor).iter().filter(|r| **r == waits).count(), 1, "it is said once");
    // While its pods run only their end is asked for: the API server takes no other template before.
    let spec = world.json(&low)["spec"].clone();
    assert_eq!(spec["suspend"], true);
    assert!(world.json(&low)["status"].get("startTime").is_some());
    assert_eq!(spec["template"]["spec"]["nodeSelector"]["pool"], "std");
    assert_eq!(world.json(&low)["metadata"]["annotations"]["kueue.x-k8s.io/stopping"], "true");
    assert!(world.has(&low, &ConditionType::QuotaReserved));
    running(&mut world, &low, 0);
    let spec = world.json(&low)["spec"].clone();
    assert!(world.json(&low)["status"].get("startTime").is_none());
    assert!(spec["template"]["spec"].get("nodeSelector").is_none());
    assert_eq!(spec["template"]["metadata"]["labels"]["controller-uid"], "u", "the Job controller's own labels stay");
    assert!(world.json(&low)["metadata"].get("annotations").is_none());
    assert!(!world.has(&low, &ConditionType::QuotaReserved));
    assert!(world.has(&urgent, &ConditionType::Admitted));
    assert_eq!(world.reasons(&low).iter().filter(|r| **r == "Stopped").count(), 1);
}

#[test]
fn a_job_whose_last_pods_end_while_it_is_stopped_may_end() {
    // Before or after its start time was taken back.
    for late in [false, true] {
        let mut world = world("4", &json!({"withinClusterQueue": "LowerPriority"}));
        world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}));
        let low = world.put(job("low", 4));
        world.settle();
        running(&mut world, &low, 4);
        let mut urgent = job("urgent", 2);
        urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        let urgent = world.put(urgent);
        world.settle();
        assert_eq!(world.json(&low)["spec"]["suspend"], true);
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"});
        if late {
            world.edit(&low, |v| v["status"]["startTime"] = Value::Null);
        }
        // Its controller counts pods as long as it cannot say that the job has ended.
        world.edit(&low, |v| {
            v["status"]["conditions"] = json!([condition("Suspended"), condition("SuccessCriteriaMet")]);
        });
        world.settle();
        assert!(world.json(&low)["status"]["startTime"].is_string(), "the API server demands it of a job that ends");
        world.edit(&low, |v| {
            v["status"]["active"] = json!(0);
            v["status"]["conditions"] = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
        });
        world.settle();
        assert!(world.has(&low, &ConditionType::Finished));
        assert!(world.has(&urgent, &ConditionType::Admitted));
    }
}

#[test]
fn a_workload_that_is_deleted_while_its_job_ends_is_let_go() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 4));
    world.settle();
    running(&mut world, &a, 4);
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    world.delete(&workload);
    // Its pods end while it is told to suspend.
    world.step();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"});
    world.edit(&a, |v| {
        v["status"]["active"] = json!(0);
        v["status"]["conditions"] =
            json!([condition("Suspended"), condition("SuccessCriteriaMet"), condition("Complete")]);
    });
    world.settle();
    assert!(!world.api.objects.contains_key(&workload));
    assert!(world.json(&a)["status"]["startTime"].is_string(), "what has ended stays as it is");
}

#[test]
fn fewer_pods_run_if_fewer_are_enough() {
    let mut world = world("3", &json!({}));
    let mut asks = job("a", 5);
    asks["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let reference = world.put(asks);
    world.settle();
    assert!(world.has(&reference, &ConditionType::Admitted));
    assert_eq!(world.json(&reference)["spec"]["parallelism"], 3);
    let assignment = &world.workload(&reference).status.admission.as_ref().unwrap().pod_set_assignments[0];
    assert_eq!(assignment.count, Some(3));
    running(&mut world, &reference, 3);
    assert_eq!(world.json(&reference)["spec"]["suspend"], false);

    edit_queue(&mut world, Kind::ClusterQueue, |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
    assert_eq!(reason(&world, &reference, &ConditionType::Evicted), "ClusterQueueStopped");
    running(&mut world, &reference, 0);
    assert_eq!(world.json(&reference)["spec"]["parallelism"], 5);
    assert!(world.workload(&reference).status.conditions.is_false(&ConditionType::Requeued));
    edit_queue(&mut world, Kind::ClusterQueue, |v| v["spec"]["stopPolicy"] = "None".into());
    assert_eq!(reason(&world, &reference, &ConditionType::Requeued), "ClusterQueueRestarted");
    assert_eq!(world.json(&reference)["spec"]["parallelism"], 3);
}

#[test]
fn queues_hold_lose_and_regain_their_workloads() {
    let mut world = world("4", &json!({}));
    edit_queue(&mut world, Kind::LocalQueue, |v| v["spec"]["stopPolicy"] = "Hold".into());
    let a = world.put(job("a", 1));
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::QuotaReserved), "Suspended");
    let queue = world.json(&ObjectRef::new(Kind::LocalQueue, "default", "lq"));
    assert_eq!(queue["status"]["conditions"][0]["reason"], "Stopped");
    edit_queue(&mut world, Kind::LocalQueue, |v| v["spec"]["stopPolicy"] = "None".into());
    assert!(world.has(&a, &ConditionType::Admitted));

    let mut lost = job("lost", 1);
    lost["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "nowhere".into();
    let lost = world.put(lost);
    world.settle();
    assert_eq!(reason(&world, &lost, &ConditionType::QuotaReserved), "Misconfigured");
    world.edit(&lost, |v| v["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq".into());
    world.settle();
    assert!(world.has(&lost, &ConditionType::Admitted));
    assert_eq!(&*world.workload(&lost).spec.queue_name, "lq");
}

#[test]
fn a_workload_is_deactivated_and_taken_up_again() {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 1));
    world.settle();
    running(&mut world, &a, 1);
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    world.edit(&workload, |v| v["spec"]["active"] = false.into());
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::Evicted), "Deactivated");
    running(&mut world, &a, 0);
    assert_eq!(reason(&world, &a, &ConditionType::QuotaReserved), "Deactivated");
    assert_eq!(world.json(&a)["spec"]["suspend"], true);
    world.edit(&workload, |v| v["spec"]["active"] = true.into());
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::Requeued), "Reactivated");
    assert!(world.has(&a, &ConditionType::Admitted));
}

#[test]
fn a_job_that_runs_too_long_is_deactivated() {
    let mut world = world("4", &json!({}));
    let mut limited = job("a", 1);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "60".into();
    let a = world.put(limited);
    world.settle();
    running(&mut world, &a, 1);
    assert_eq!(world.wake_at, Some(world.now.plus_seconds(60)));
    world.sleep();
    assert!(!world.workload(&a).spec.active);
    assert_eq!(reason(&world, &a, &ConditionType::Evicted), "DeactivatedDueToMaximumExecutionTimeExceeded");
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    assert!(world.reasons(&workload).contains(&"MaximumExecutionTimeExceeded"));
}

#[test]
fn a_job_that_changes_while_it_waits_asks_anew() {
    let mut world = world("2", &json!({}));
    let a = world.put(job("a", 4));
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::QuotaReserved), "ExceedsMaxQuota");
    world.edit(&a, |v| {
        v["spec"]["parallelism"] = 2.into();
        v["spec"]["completions"] = 2.into();
    });
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted));
    assert_eq!(world.reasons(&a), ["CreatedWorkload", "UpdatedWorkload", "Started"]);
}

#[test]
fn a_raised_quota_lets_in_who_waits() {
    let mut world = world("2", &json!({}));
    let a = world.put(job("a", 3));
    world.settle();
    assert!(!world.has(&a, &ConditionType::QuotaReserved));
    edit_queue(&mut world, Kind::ClusterQueue, |v| {
        v["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "4".into();
    });
    assert!(world.has(&a, &ConditionType::Admitted));
}

#[test]
fn selectors_that_contradict_one_another_end_the_workload() {
    let mut world = world("4", &json!({}));
    let mut picky = job("a", 1);
    // The flavor fits by affinity rules of its own, but its label contradicts the template's label.
    picky["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] = "other".into();
    let a = world.put(picky);
    world.settle();
    assert_eq!(reason(&world, &a, &ConditionType::Finished), "FailedToStart");
    assert_eq!(world.json(&a)["spec"]["suspend"], true);
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(queue["status"]["reservingWorkloads"], 0, "its quota is free");
}

#[test]
fn an_elastic_job_grows_by_a_slice_that_replaces_the_first() {
    let mut world = world("6", &json!({}));
    let mut grows = job("a", 2);
    grows["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    grows["spec"].as_object_mut().unwrap().remove("completions");
    let a = world.put(grows);
    world.settle();
    running(&mut world, &a, 2);
    let first = world.key(&a);
    let resize = |world: &mut World, pods: i64| {
        world.edit(&a, |v| v["spec"]["parallelism"] = pods.into());
        world.settle();
    };
    resize(&mut world, 4);
    let second = world.key(&a);
    assert_ne!(first, second);
    let slice = world.workload(&a).clone();
    assert!(slice.is_admitted());
    assert_eq!(&*slice.annotations["kueue.x-k8s.io/workload-slice-name"], &*first.name);
    let replaced = world.controller.workload(&first).unwrap().status.conditions.get(&ConditionType::Finished).unwrap();
    assert_eq!(&*replaced.reason, "WorkloadSliceReplaced");
    assert_eq!(world.json(&a)["spec"]["suspend"], false, "it ran on");
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0]["total"], "4");

    resize(&mut world, 3);
    assert_eq!(world.key(&a), second, "a smaller size needs no new slice");
    let queue = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0]["total"], "3");

    resize(&mut world, 7);
    let third = world.workload(&a).clone();
    assert!(!third.has_quota_reservation());
    assert_eq!(world.json(&a)["spec"]["suspend"], false, "what runs runs on");
}

#[test]
fn what_is_in_use_stays_until_it_is_not() {
    let mut world = world("4", &json!({}));
    let (flavor, queue) =
        (ObjectRef::new(Kind::ResourceFlavor, "", "std"), ObjectRef::new(Kind::ClusterQueue, "", "cq"));
    assert_eq!(world.json(&flavor)["metadata"]["finalizers"][0], "kueue.x-k8s.io/resource-in-use");
    let a = world.put(job("a", 1));
    world.settle();
    running(&mut world, &a, 1);
    world.delete(&flavor);
    world.settle();
    assert!(world.api.objects.contains_key(&flavor), "the ClusterQueue names it");
    world.delete(&queue);
    world.settle();
    assert_eq!(world.json(&queue)["status"]["conditions"][0]["reason"], "Terminating");
    assert!(world.has(&a, &ConditionType::Admitted), "what runs runs on");
    world.delete(&a);
    world.settle();
    assert!(!world.api.objects.contains_key(&queue));
    assert!(!world.api.objects.contains_key(&flavor));
}

#[test]
fn a_child_runs_only_while_its_owner_may() {
    let mut world = world("4", &json!({}));
    let owner = world.put(crate::api::jobset("owner", 1, None));
    world.settle();
    let uid = world.json(&owner)["metadata"]["uid"].clone();
    let mut child = job("child", 1);
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "name": "owner", "uid": uid, "controller": true}]);
    child["spec"]["suspend"] = false.into();
    let child = world.put(child);
    world.settle();
    assert_eq!(world.json(&child)["spec"]["suspend"], true, "there is no quota for TPUs here");
    assert_eq!(world.reasons(&child), ["Suspended"]);
    assert!(world.controller.workload_of(&child).is_none());
}

/// Whether quota is reserved for a job, by the API server.
fn reserved(world: &World, job: &ObjectRef) -> bool {
    let uid = world.api.objects[job].uid();
    world.api.objects.values().any(|o| match o {
        slicegate_api::Object::Workload(w) => {
            w.status.admission.is_some() && w.metadata.owner_references.iter().flatten().any(|r| r.uid == uid)
        }
        _ => false,
    })
}

#[test]
fn an_admission_without_an_answer_stands_until_it_is_known_to_have_failed() {
    let mut world = world("4", &json!({}));
    edit_queue(&mut world, Kind::ClusterQueue, |v| v["spec"]["stopPolicy"] = "Hold".into());
    let first = world.put(job("first", 4));
    world.settle();
    world.advance(1);
    let second = world.put(job("second", 4));
    world.settle();
    let queue = ObjectRef::new(Kind::ClusterQueue, "", "cq");
    world.edit(&queue, |v| drop(v["spec"].as_object_mut().unwrap().remove("stopPolicy")));
    world.deaf = true;
    for _ in 0..6 {
        world.step();
        world.advance(20);
    }
    assert!(reserved(&world, &first), "it was written");
    assert!(!reserved(&world, &second), "the quota may be taken");
    world.deaf = false;
    world.deliver();
    world.settle();
    assert!(world.has(&first, &ConditionType::Admitted) && !reserved(&world, &second));
    assert_eq!(world.json(&first)["spec"]["suspend"], false);

    // One that is known to have failed gives its quota to the next.
    world.delete(&first);
    let mut failures = 3;
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let lost = object.kind == Kind::Workload && failures > 0;
        failures -= i32::from(lost);
        lost.then(|| slicegate_controller::WriteError::Unavailable { object, why: "timeout".to_owned() })
    });
    for _ in 0..10 {
        world.step();
        world.advance(20);
    }
    world.settle();
    assert!(world.has(&second, &ConditionType::Admitted));
}

#[test]
fn a_deleted_workload_stays_until_its_job_is_as_it_was() {
    let mut world = world("4", &json!({}));
    let one = world.put(job("one", 4));
    world.settle();
    running(&mut world, &one, 4);
    assert_eq!(world.json(&one)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "std");
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&one).name);
    let uid = world.api.objects[&workload].uid().to_owned();
    world.delete(&workload);
    for i in 0..20 {
        if i == 5 {
            world.edit(&one, |v| v["status"]["active"] = 0.into());
        }
        let there = world.api.objects.get(&workload).is_some_and(|o| o.uid() == uid);
        let spec = world.json(&one)["spec"]["template"]["spec"].clone();
        assert!(there || spec.get("nodeSelector").is_none(), "nobody knows any more what it was like");
        if !there {
            break;
        }
        world.step();
    }
    assert!(world.api.objects.get(&workload).is_none_or(|o| o.uid() != uid));
}

#[test]
fn a_job_that_somebody_suspended_and_changed_is_restored_before_it_starts_elsewhere() {
    let mut world = world("4", &json!({}));
    let one = world.put(job("one", 4));
    world.settle();
    running(&mut world, &one, 4);
    world.edit(&one, |v| {
        v["spec"]["suspend"] = true.into();
        v["spec"]["parallelism"] = 2.into();
        v["spec"]["completions"] = 2.into();
    });
    for _ in 0..3 {
        world.step();
    }
    running(&mut world, &one, 0);
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&one).name);
    let asked = world.json(&workload)["spec"]["podSets"][0].clone();
    assert_eq!(asked["count"], 2);
    assert!(asked["template"]["spec"].get("nodeSelector").is_none(), "what was put in is not asked for: {asked}");
}

#[test]
fn a_job_without_pods_yet_is_restored_before_it_gives_quota_back() {
    let mut world = world("4", &json!({}));
    let early = world.put(job("early", 4));
    world.settle();
    let asked =
        world.json(&ObjectRef::new(Kind::Workload, "default", world.key(&early).name))["spec"]["podSets"].clone();
    world.edit(&early, |v| v["status"]["startTime"] = json!("2026-01-01T00:00:01Z"));
    world.settle();
    edit_queue(&mut world, Kind::ClusterQueue, |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
    assert!(!world.has(&early, &ConditionType::QuotaReserved));
    let now = world.json(&ObjectRef::new(Kind::Workload, "default", world.key(&early).name));
    assert_eq!(now["spec"]["podSets"], asked, "what its pods were started with is not what it asks for");
    assert!(!world.reasons(&early).contains(&"UpdatedWorkload"));
    assert!(world.json(&early)["spec"]["template"]["spec"].get("nodeSelector").is_none());
}

#[test]
fn gates_that_are_taken_off_a_job_are_taken_off_its_workload() {
    const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
    let mut world = world("4", &json!({}));
    let mut gated = job("a", 2);
    gated["metadata"]["annotations"] = json!({(GATES): "example.com/budget,example.com/data"});
    let a = world.put(gated);
    world.settle();
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
    assert_eq!(reason(&world, &a, &ConditionType::QuotaReserved), "AdmissionGated");
    world.edit(&a, |v| v["metadata"]["annotations"][GATES] = "example.com/data".into());
    world.settle();
    assert_eq!(world.json(&workload)["metadata"]["annotations"][GATES], "example.com/data");
    assert_eq!(world.json(&a)["spec"]["suspend"], true, "one gate is left");
    world.edit(&a, |v| v["metadata"]["annotations"] = Value::Null);
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted));
    assert_eq!(world.json(&a)["spec"]["suspend"], false);
    let said = world.reasons(&workload);
    for reason in ["AdmissionGated", "AdmissionGateCleared", "Admitted"] {
        assert!(said.contains(&reason), "{reason}: {said:?}");
    }
    // A gate that comes later is not meant for it.
    world.edit(&a, |v| v["metadata"]["annotations"] = json!({(GATES): "example.com/late"}));
    world.settle();
    assert!(world.json(&workload)["metadata"]["annotations"].get(GATES).is_none());
}

fn leave_the_queue(world: &mut World, job: &ObjectRef) {
    world.edit(job, |v| v["metadata"]["labels"] = Value::Null);
    world.settle();
}

#[test]
fn a_job_that_leaves_its_queue_while_it_waits_takes_nothing_from_others() {
    let mut world = world("4", &json!({}));
    let first = world.put(job("first", 4));
    world.settle();
    running(&mut world, &first, 4);
    let waits = world.put(job("waits", 4));
    world.settle();
    let workload = ObjectRef::new(Kind::Workload, "default", world.key(&waits).name);
    leave_the_queue(&mut world, &waits);
    assert!(!world.api.objects.contains_key(&workload), "it waits for nothing");
    assert_eq!(world.json(&waits)["spec"]["suspend"], true);
    // It may come back.
    world.edit(&waits, |v| v["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "lq"}));
    world.settle();
    assert!(world.has(&first, &ConditionType::Admitted) && !world.has(&waits, &ConditionType::Admitted));
}

#[test]
fn a_job_that_leaves_its_queue_while_it_runs_is_counted_until_it_ends() {
    // It ends, or it is stopped.
    for ends in [true, false] {
        let mut world = world("4", &json!({"withinClusterQueue": "LowerPriority"}));
        world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}));
        let a = world.put(job("a", 4));
        world.settle();
        running(&mut world, &a, 4);
        leave_the_queue(&mut world, &a);
        assert_eq!(world.json(&a)["spec"]["suspend"], false);
        let mut b = job("b", 4);
        if !ends {
            b["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        }
        let b = world.put(b);
        world.settle();
        assert!(!world.has(&b, &ConditionType::QuotaReserved), "quota in use is not free");
        if ends {
            world.edit(&a, |v| {
                v["status"] = json!({"conditions": [{"type": "Complete", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:09Z"}]});
            });
            world.settle();
            assert!(world.has(&a, &ConditionType::Finished));
        } else {
            assert_eq!(world.json(&a)["spec"]["suspend"], true);
            let workload = ObjectRef::new(Kind::Workload, "default", world.key(&a).name);
            running(&mut world, &a, 0);
            assert!(!world.api.objects.contains_key(&workload), "it does not come back");
            let template = &world.json(&a)["spec"]["template"]["spec"];
            assert!(template.get("nodeSelector").is_none(), "it is as it was");
        }
        assert!(world.has(&b, &ConditionType::Admitted));
    }
}
