//! Jobs whose size changes while they run.

use serde_json::{Value, json};
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::{Configuration, WriteOutcome};
use slicegate_workload::{ConditionType, Key, Workload};

use crate::api::World;

const GATE: &str = "kueue.x-k8s.io/elastic-job";

/// Quota of two flavors, and a LocalQueue that leads to it.
fn world(first: &str, second: &str, preemption: &Value) -> World {
    let mut world = World::new(Configuration::default());
    for flavor in ["first", "second"] {
        world.put(
            json!({"kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": {"nodeLabels": {"pool": flavor}}}),
        );
    }
    let quota =
        |flavor: &str, quota: &str| json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": quota}]});
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": preemption,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota("first", first), quota("second", second)]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    for (name, value) in [("low", 1), ("high", 9)] {
        world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}));
    }
    world.settle();
    world
}

fn one(quota: &str) -> World {
    world(quota, "0", &json!({}))
}

fn job(name: &str, pods: i64, elastic: bool) -> Value {
    let annotations = if elastic { json!({GATE: "true"}) } else { json!({}) };
    json!({"kind": "Job", "metadata": {"name": name, "annotations": annotations,
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": pods, "suspend": true, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

fn scale(world: &mut World, job: &ObjectRef, pods: i64) {
    world.edit(job, |v| v["spec"]["parallelism"] = pods.into());
}

fn active(world: &mut World, job: &ObjectRef, pods: i64) {
    world.edit(job, |v| {
        v["status"]["active"] = pods.into();
        v["status"]["startTime"] = if pods > 0 { json!("2026-01-01T00:00:01Z") } else { Value::Null };
    });
    world.settle();
}

/// A job that runs.
fn running(world: &mut World, name: &str, pods: i64) -> ObjectRef {
    let reference = world.put(job(name, pods, true));
    world.settle();
    active(world, &reference, pods);
    assert!(world.has(&reference, &ConditionType::Admitted));
    assert!(!suspended(world, &reference));
    world.advance(1);
    reference
}

fn suspended(world: &World, job: &ObjectRef) -> bool {
    world.json(job)["spec"]["suspend"] == true
}

/// The Workloads of a job that are not finished, oldest first, with their counts.
fn slices(world: &World, job: &ObjectRef) -> Vec<(Key, i32)> {
    let uid = world.api.objects.get(job).map(|o| o.uid().to_owned()).unwrap_or_default();
    let of_job =
        |w: &&Workload| !w.is_finished() && w.labels.get("kueue.x-k8s.io/job-uid").is_some_and(|u| **u == *uid);
    let mut all: Vec<&Workload> = world.controller.workloads().filter(of_job).collect();
    all.sort_by_key(|w| (w.created, w.uid.clone()));
    all.iter().map(|w| (w.key.clone(), w.spec.pod_sets.iter().map(|p| p.count).sum())).collect()
}

fn counts(world: &World, job: &ObjectRef) -> Vec<i32> {
    slices(world, job).into_iter().map(|(_, count)| count).collect()
}

fn condition<'a>(world: &'a World, key: &Key, kind: &ConditionType) -> Option<(bool, &'a str)> {
    let condition = world.controller.workload(key)?.status.conditions.get(kind)?;
    Some((condition.status == slicegate_workload::Status::True, &condition.reason))
}

fn used(world: &World, flavor: &str) -> String {
    let status = world.json(&ObjectRef::new(Kind::ClusterQueue, "", "cq"))["status"].clone();
    let flavors = status["flavorsReservation"].as_array().cloned().unwrap_or_default();
    let found = flavors.iter().find(|f| f["name"] == flavor);
    found.map_or("0".to_owned(), |f| f["resources"][0]["total"].as_str().unwrap().to_owned())
}

/// Pods as the Job controller makes them from the template of the job.
fn pods(world: &mut World, job: &ObjectRef, names: &[&str]) -> Vec<ObjectRef> {
    let template = world.json(job)["spec"]["template"].clone();
    names
        .iter()
        .map(|name| {
            let mut metadata = template["metadata"].clone();
            metadata["name"] = (*name).into();
            world.put(json!({"kind": "Pod", "metadata": metadata, "spec": template["spec"]}))
        })
        .collect()
}

fn gated(world: &World, pods: &[ObjectRef]) -> Vec<bool> {
    pods.iter().map(|pod| world.json(pod)["spec"].get("schedulingGates").is_some()).collect()
}

#[test]
fn a_job_grows_and_its_new_pods_pass_the_gate() {
    let mut world = one("6");
    let job = running(&mut world, "a", 2);
    assert_eq!(world.json(&job)["spec"]["template"]["spec"]["schedulingGates"], json!([{"name": GATE}]));
    let first = pods(&mut world, &job, &["a-0", "a-1"]);
    world.settle();
    assert_eq!(gated(&world, &first), [false, false]);
    let [(old, 2)] = <[_; 1]>::try_from(slices(&world, &job)).unwrap() else { panic!() };

    scale(&mut world, &job, 4);
    let more = pods(&mut world, &job, &["a-4", "a-3", "a-2"]);
    world.settle();
    let [(new, 4)] = <[_; 1]>::try_from(slices(&world, &job)).unwrap() else { panic!() };
    assert_eq!(condition(&world, &old, &ConditionType::Finished), Some((true, "WorkloadSliceReplaced")));
    assert_eq!(condition(&world, &new, &ConditionType::Admitted), Some((true, "Admitted")));
    assert_eq!(gated(&world, &more), [true, false, false], "no more than were granted, lowest names first");
    assert_eq!((used(&world, "first").as_str(), suspended(&world, &job)), ("4", false));
    let object = world.json(&ObjectRef::new(Kind::Workload, "default", new.name.clone()));
    let annotations = &object["metadata"]["annotations"];
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], format!("default/{}", old.name));
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], *old.name);
    assert_eq!(
        object["spec"]["podSets"][0]["template"]["metadata"],
        json!({"labels": {"app": "a"}}),
        "what the first slice was started with is not asked for again"
    );
    // A pod fails: the one that waits takes its place.
    world.edit(&first[0], |v| v["status"]["phase"] = "Failed".into());
    world.settle();
    assert_eq!(gated(&world, &more), [false, false, false]);
    // Whoever wants the old slice gone gets it.
    let old = ObjectRef::new(Kind::Workload, "default", old.name);
    world.delete(&old);
    world.settle();
    assert!(!world.api.objects.contains_key(&old));
    assert_eq!(counts(&world, &job), [4]);
}

#[test]
fn one_workload_is_made_though_the_job_changes_meanwhile() {
    let mut world = one("9");
    let job = world.put(job("j", 2, true));
    world.deliver();
    let first = world.controller.reconcile(world.now).writes;
    assert!(first.iter().any(|w| w.operation.object().kind == Kind::Workload), "{first:?}");
    // Somebody touches the job while its Workload is on its way: it has another generation then, and the Workload another name.
    world.edit(&job, |v| v["spec"]["backoffLimit"] = 3.into());
    world.deliver();
    let second = world.controller.reconcile(world.now).writes;
    assert!(second.iter().all(|w| w.operation.object().kind != Kind::Workload), "{second:?}");
    for write in first.iter().chain(&second) {
        let result = world.api.perform(write);
        world.controller.complete(world.now, WriteOutcome { id: write.id, result });
    }
    world.settle();
    assert_eq!(counts(&world, &job), [2]);
    assert_eq!(world.controller.workloads().count(), 1, "and no other one has ended");
}

#[test]
fn a_job_that_cannot_grow_runs_on_and_says_why() {
    let mut world = world("3", "8", &json!({}));
    let job = running(&mut world, "a", 2);
    scale(&mut world, &job, 4);
    let more = pods(&mut world, &job, &["a-0", "a-1", "a-2", "a-3"]);
    world.settle();
    assert_eq!(counts(&world, &job), [2, 4]);
    assert_eq!(gated(&world, &more), [false, false, true, true]);
    assert_eq!((used(&world, "first"), used(&world, "second")), ("2".to_owned(), "0".to_owned()));
    assert!(!suspended(&world, &job));
    let new = slices(&world, &job)[1].0.clone();
    let last = world.notes.iter().rfind(|n| n.workload == new).unwrap();
    assert_eq!(
        last.text,
        "Job a waits for quota: needs 2 cpu of flavor first, 1 free; an elastic job grows only on the flavor that it runs on; \
         held by Job a"
    );
    let other = "main: flavor second does not take its pods: could not assign second flavor since the original workload is \
                 assigned: first";
    assert!(last.details.iter().any(|d| d == other), "{:?}", last.details);
    let why = world.controller.engine_mut().why(world.now, &new).unwrap();
    assert_eq!(why.grows, Some(slices(&world, &job)[0].0.clone()));
    assert!(why.to_string().contains("An elastic job grows only on the flavors that it runs on."), "{why}");

    // It asks for less, which fits.
    scale(&mut world, &job, 3);
    world.settle();
    assert_eq!(counts(&world, &job), [3]);
    assert_eq!(gated(&world, &more), [false, false, false, true]);
    assert_eq!(used(&world, "first"), "3");
}

#[test]
fn many_sizes_in_a_row_leave_one_slice() {
    // Bug log 190, 191.
    let mut world = one("9");
    world.noisy = true;
    let job = running(&mut world, "a", 2);
    for size in [3, 4, 6, 5] {
        scale(&mut world, &job, size);
        world.step();
    }
    world.settle();
    assert_eq!(counts(&world, &job), [5]);
    assert_eq!(used(&world, "first"), "5");
    // All in one second.
    for size in [6, 7, 8] {
        scale(&mut world, &job, size);
        world.settle();
    }
    assert_eq!(counts(&world, &job), [8]);
    assert_eq!(used(&world, "first"), "8");
}

#[test]
fn a_job_that_shrinks_lets_others_in() {
    // Bug log 187.
    let mut world = one("5");
    let a = running(&mut world, "a", 4);
    let b = world.put(job("b", 3, false));
    world.settle();
    assert!(!world.has(&b, &ConditionType::Admitted));
    let before = slices(&world, &a);
    scale(&mut world, &a, 2);
    world.settle();
    assert_eq!(slices(&world, &a), [(before[0].0.clone(), 2)], "in place");
    assert!(world.has(&b, &ConditionType::Admitted));
    assert_eq!(used(&world, "first"), "5");
    assert!(!suspended(&world, &a));
}

#[test]
fn a_job_preempts_to_grow() {
    // Bug log 188.
    let mut world = world("4", "0", &json!({"withinClusterQueue": "LowerPriority"}));
    let mut low = job("low", 2, false);
    low["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "low".into();
    let low = world.put(low);
    let mut high = job("high", 2, true);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    let high = world.put(high);
    world.settle();
    active(&mut world, &low, 2);
    active(&mut world, &high, 2);
    world.advance(1);
    scale(&mut world, &high, 4);
    world.settle();
    assert!(world.has(&low, &ConditionType::Evicted));
    assert_eq!(counts(&world, &high), [2, 4], "the old slice runs until there is room");
    active(&mut world, &low, 0);
    assert_eq!(counts(&world, &high), [4]);
    assert!(!suspended(&world, &high));
    assert_eq!(used(&world, "first"), "4");
}

#[test]
fn an_old_slice_is_preempted_with_its_job() {
    let mut world = world("4", "4", &json!({"withinClusterQueue": "LowerPriority"}));
    world.edit(&ObjectRef::new(Kind::ResourceFlavor, "", "second"), |v| {
        v["spec"]["nodeTaints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    });
    let job = running(&mut world, "a", 3);
    scale(&mut world, &job, 6);
    world.settle();
    assert_eq!(counts(&world, &job), [3, 6]);
    let mut high = self::job("high", 3, false);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    let high = world.put(high);
    world.settle();
    // Bug log 74: the evicted slice keeps its quota until its pods are gone, and nothing takes over from it.
    assert!(suspended(&world, &job));
    assert_eq!(used(&world, "first"), "3");
    assert!(!world.has(&high, &ConditionType::Admitted));
    active(&mut world, &job, 0);
    assert!(world.has(&high, &ConditionType::Admitted));
    let spec = world.json(&job)["spec"]["template"].clone();
    assert!(spec["spec"].get("nodeSelector").is_none() && spec["spec"].get("schedulingGates").is_none(), "{spec}");
    assert_eq!(counts(&world, &job), [6]);
    // It fits again once it asks for less.
    world.edit(&high, |v| v["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]));
    scale(&mut world, &job, 4);
    world.settle();
    assert!(world.has(&job, &ConditionType::Admitted));
    assert!(!suspended(&world, &job));
    assert_eq!(world.json(&job)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "first");
}

#[test]
fn a_slice_that_is_admitted_elsewhere_moves_the_job() {
    let mut world = world("3", "8", &json!({}));
    let job = running(&mut world, "a", 2);
    scale(&mut world, &job, 4);
    world.settle();
    let [(old, _), (new, _)] = <[_; 2]>::try_from(slices(&world, &job)).unwrap();
    // Somebody ends the slice that runs; the other one starts afresh, on the flavor with room.
    let old = ObjectRef::new(Kind::Workload, "default", old.name);
    world.edit(&old, |v| {
        v["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Finished", "status": "True",
            "reason": "OutOfSync", "message": "", "lastTransitionTime": "2026-01-01T00:00:05Z"}));
    });
    world.settle();
    assert!(suspended(&world, &job), "it must be stopped where it is");
    active(&mut world, &job, 0);
    assert_eq!(condition(&world, &new, &ConditionType::Admitted), Some((true, "Admitted")));
    assert!(!suspended(&world, &job));
    assert_eq!(world.json(&job)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "second");
}

#[test]
fn a_slice_that_is_deleted_while_it_waits_is_asked_for_again() {
    let mut world = one("3");
    let job = running(&mut world, "a", 2);
    scale(&mut world, &job, 4);
    world.settle();
    let [(old, _), (new, _)] = <[_; 2]>::try_from(slices(&world, &job)).unwrap();
    world.delete(&ObjectRef::new(Kind::Workload, "default", new.name.clone()));
    world.settle();
    assert!(!suspended(&world, &job), "the job runs on");
    assert_eq!(counts(&world, &job), [2, 4]);
    assert_eq!(slices(&world, &job)[0].0, old);
}

#[test]
fn a_slice_that_is_deleted_while_it_runs_stops_the_job() {
    let mut world = one("4");
    let job = running(&mut world, "a", 2);
    scale(&mut world, &job, 5);
    world.settle();
    let [(old, _), (new, _)] = <[_; 2]>::try_from(slices(&world, &job)).unwrap();
    world.delete(&ObjectRef::new(Kind::Workload, "default", old.name.clone()));
    world.settle();
    assert!(suspended(&world, &job));
    active(&mut world, &job, 0);
    assert_eq!(slices(&world, &job), [(new, 5)]);
    scale(&mut world, &job, 4);
    world.settle();
    assert!(!suspended(&world, &job));
    assert_eq!(used(&world, "first"), "4");
}

#[test]
fn a_job_may_go_at_any_stage() {
    for (quota, steps) in [("6", 0), ("6", 1), ("6", 2), ("6", 9), ("3", 1), ("3", 9)] {
        let mut world = one(quota);
        let job = running(&mut world, "a", 2);
        scale(&mut world, &job, 4);
        for _ in 0..steps {
            world.step();
        }
        world.delete(&job);
        world.settle();
        assert_eq!(used(&world, "first"), "0", "quota {quota}, {steps} steps");
        let left = world.api.objects.keys().filter(|r| r.kind == Kind::Workload).count();
        assert_eq!(left, 0, "quota {quota}, {steps} steps");
    }
}

#[test]
fn the_end_of_a_job_is_the_end_of_its_slices() {
    let mut world = world("3", "40", &json!({}));
    let job = running(&mut world, "a", 2);
    scale(&mut world, &job, 4);
    world.settle();
    let all = slices(&world, &job);
    world.edit(&job, |v| {
        v["status"]["active"] = 0.into();
        v["status"]["conditions"] = json!([{"type": "Complete", "status": "True", "message": "done"}]);
    });
    world.settle();
    for (key, _) in &all {
        assert_eq!(condition(&world, key, &ConditionType::Finished), Some((true, "Succeeded")));
    }
    // The quota that is freed is for others, not for what the job would have grown to.
    assert_eq!(condition(&world, &all[1].0, &ConditionType::QuotaReserved).map(|c| c.0), Some(false));
    let told = world.told(&all[1].0).join("\n");
    assert!(!told.contains("admitted") && !told.contains("reserved"), "{told}");
    assert_eq!(used(&world, "first"), "0");
}

#[test]
fn a_queue_that_is_drained_stops_a_growing_job() {
    let mut world = one("6");
    let job = running(&mut world, "a", 2);
    scale(&mut world, &job, 8);
    world.settle();
    assert_eq!(counts(&world, &job), [2, 8]);
    let queue = ObjectRef::new(Kind::ClusterQueue, "", "cq");
    world.edit(&queue, |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
    world.settle();
    active(&mut world, &job, 0);
    assert!(suspended(&world, &job));
    assert_eq!(used(&world, "first"), "0");
    scale(&mut world, &job, 5);
    world.edit(&queue, |v| v["spec"]["stopPolicy"] = "None".into());
    world.settle();
    assert_eq!(counts(&world, &job), [5]);
    assert!(!suspended(&world, &job));
    assert_eq!(used(&world, "first"), "5");
}

/// A world in which capacity is asked for.
fn provisioned(only_added: bool) -> World {
    let mut world = one("6");
    world.restart(Configuration { provision_only_added_pods: only_added, ..Configuration::default() });
    world.put(json!({"kind": "ProvisioningRequestConfig", "metadata": {"name": "dws"}, "spec": {
        "provisioningClassName": "queued-provisioning.gke.io"}}));
    world.put(json!({"kind": "AdmissionCheck", "metadata": {"name": "dws"}, "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"}}}));
    world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| {
        v["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "dws"}]});
    });
    world.settle();
    world
}

fn requests(world: &World) -> Vec<(ObjectRef, i64)> {
    let all = world.api.objects.values().filter(|o| o.kind() == Kind::ProvisioningRequest);
    all.map(|o| (o.reference(), o.to_json().unwrap()["spec"]["podSets"][0]["count"].as_i64().unwrap())).collect()
}

fn provide(world: &mut World, request: &ObjectRef) {
    world.edit(request, |v| {
        v["status"]["conditions"] = json!([{"type": "Provisioned", "status": "True", "reason": "Provisioned",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:09Z"}]);
    });
    world.settle();
}

#[test]
fn a_grown_job_asks_for_capacity_and_runs_on_meanwhile() {
    for (only_added, asked) in [(false, 5), (true, 3)] {
        let mut world = provisioned(only_added);
        let job = world.put(job("a", 2, true));
        world.settle();
        let [(first, 2)] = <[_; 1]>::try_from(requests(&world)).unwrap() else { panic!() };
        provide(&mut world, &first);
        active(&mut world, &job, 2);
        let mut all = pods(&mut world, &job, &["a-0", "a-1"]);
        world.settle();
        world.advance(1);
        scale(&mut world, &job, 5);
        all.extend(pods(&mut world, &job, &["a-2", "a-3", "a-4"]));
        world.settle();
        assert!(!suspended(&world, &job), "what runs needs no new capacity");
        assert_eq!(gated(&world, &all), [false, false, true, true, true]);
        let second = requests(&world).into_iter().find(|(r, _)| *r != first).unwrap();
        assert_eq!(second.1, asked);
        provide(&mut world, &second.0);
        assert_eq!(gated(&world, &all), [false; 5]);
        let consumes = |pod: &ObjectRef| {
            world.json(pod)["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"].clone()
        };
        assert_eq!((consumes(&all[0]), consumes(&all[4])), (json!(*first.name), json!(*second.0.name)));
    }
}

#[test]
fn a_job_that_was_suspended_by_hand_while_it_grew_starts_as_its_new_slice() {
    let mut world = provisioned(false);
    let job = world.put(job("a", 2, true));
    world.settle();
    let first = requests(&world)[0].0.clone();
    provide(&mut world, &first);
    active(&mut world, &job, 2);
    world.advance(1);
    scale(&mut world, &job, 5);
    world.settle();
    let second = requests(&world).into_iter().find(|(r, _)| *r != first).unwrap().0;
    world.edit(&job, |v| v["spec"]["suspend"] = true.into());
    provide(&mut world, &second);
    world.edit(&job, |v| v["status"]["active"] = 0.into());
    world.settle();
    assert_eq!(counts(&world, &job), [5], "what it ran as before is no reason not to start");
    assert!(!suspended(&world, &job));
    let pod = world.json(&job)["spec"]["template"]["metadata"]["annotations"].clone();
    assert_eq!(pod["autoscaling.x-k8s.io/consume-provisioning-request"], json!(*second.name));
}

#[test]
fn a_gate_is_put_in_only_where_a_job_is_elastic() {
    let mut world = one("6");
    let plain = world.put(job("plain", 1, false));
    let mut jobset = crate::api::jobset("js", 1, None);
    jobset["metadata"]["annotations"] = json!({GATE: "true"});
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "1"}});
    let jobset = world.put(jobset);
    world.settle();
    world.settle();
    assert!(!suspended(&world, &plain) && !suspended(&world, &jobset));
    assert!(!world.json(&plain).to_string().contains("schedulingGates"));
    assert!(!world.json(&jobset).to_string().contains("schedulingGates"), "a JobSet keeps its size");
}

fn ray_job(workers: i64) -> Value {
    let template = |cpu: &str| json!({"spec": {"containers": [{"name": "c", "image": "ray", "resources": {"requests": {"cpu": cpu}}}]}});
    json!({"kind": "RayJob", "metadata": {"name": "ray", "annotations": {GATE: "true"},
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true, "rayClusterSpec": {
            "enableInTreeAutoscaling": true, "autoscalerOptions": {"resources": {"requests": {"cpu": "0"}}},
            "headGroupSpec": {"rayStartParams": {}, "template": template("1")},
            "workerGroupSpecs": [{"groupName": "tpu", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "numOfHosts": 2,
                "rayStartParams": {}, "template": template("1")}]}}})
}

/// What KubeRay does: a cluster of the RayJob's spec, and a status.
fn ray_runs(world: &mut World, job: &ObjectRef) -> ObjectRef {
    let object = world.json(job);
    let cluster = world.put(json!({"kind": "RayCluster", "metadata": {"name": "ray-x", "annotations": {GATE: "true"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray",
                "uid": object["metadata"]["uid"], "controller": true}]},
        "spec": object["spec"]["rayClusterSpec"]}));
    world.edit(job, |v| {
        v["status"]["rayClusterName"] = "ray-x".into();
        v["status"]["jobDeploymentStatus"] = "Running".into();
    });
    world.settle();
    cluster
}

#[test]
fn a_ray_job_grows_when_its_autoscaler_says_so() {
    let mut world = world("7", "40", &json!({}));
    let job = world.put(ray_job(1));
    world.settle();
    assert!(world.has(&job, &ConditionType::Admitted), "{:?}", world.events);
    let spec = world.json(&job)["spec"]["rayClusterSpec"].clone();
    for template in [&spec["headGroupSpec"]["template"], &spec["workerGroupSpecs"][0]["template"]] {
        assert_eq!(template["spec"]["schedulingGates"], json!([{"name": GATE}]));
    }
    let cluster = ray_runs(&mut world, &job);
    assert_eq!((counts(&world, &job), used(&world, "first")), (vec![3], "3".to_owned()));
    world.advance(1);
    world.edit(&cluster, |v| v["spec"]["workerGroupSpecs"][0]["replicas"] = 3.into());
    world.settle();
    assert_eq!((counts(&world, &job), used(&world, "first")), (vec![7], "7".to_owned()));
    world.advance(1);
    world.edit(&cluster, |v| v["spec"]["workerGroupSpecs"][0]["replicas"] = 4.into());
    world.settle();
    assert_eq!(counts(&world, &job), [7, 9], "a slice of two hosts more, which the flavor has no room for");
    assert_eq!((used(&world, "first"), used(&world, "second")), ("7".to_owned(), "0".to_owned()));
    assert!(!suspended(&world, &job) && world.json(&cluster)["spec"].get("suspend").is_none());
    let new = slices(&world, &job)[1].0.clone();
    let told = world.told(&new).join("\n");
    assert!(told.contains("RayJob ray waits for quota: needs 2 cpu of flavor first, 0 free"), "{told}");
    assert!(told.contains("an elastic job grows only on the flavor that it runs on"), "{told}");
    world.edit(&cluster, |v| v["spec"]["workerGroupSpecs"][0]["replicas"] = 2.into());
    world.settle();
    assert_eq!((counts(&world, &job).last(), used(&world, "first")), (Some(&5), "5".to_owned()));
}

#[test]
fn what_a_ray_job_started_runs_on_while_it_waits_for_more() {
    let mut world = world("7", "40", &json!({}));
    let job = world.put(ray_job(1));
    world.settle();
    let cluster = ray_runs(&mut world, &job);
    // KubeRay's submitter is a Job of the RayJob, which is not elastic itself.
    let uid = world.json(&job)["metadata"]["uid"].clone();
    let submitter = world.put(json!({"kind": "Job", "metadata": {"name": "ray", "ownerReferences": [
            {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": uid, "controller": true}]},
        "spec": {"suspend": false, "parallelism": 1, "template": {"spec": {"containers": [{"name": "c", "image": "ray"}]}}}}));
    world.settle();
    assert!(!suspended(&world, &submitter));
    world.advance(1);
    world.edit(&cluster, |v| v["spec"]["workerGroupSpecs"][0]["replicas"] = 9.into());
    world.settle();
    assert_eq!(counts(&world, &job), [3, 19], "there is no room for so many");
    assert!(!suspended(&world, &submitter) && !suspended(&world, &job));
    // The slice that waits may even be put aside: nothing of what runs depends on it.
    let new = slices(&world, &job)[1].0.clone();
    world.edit(&ObjectRef::new(Kind::Workload, &*new.namespace, &*new.name), |v| v["spec"]["active"] = false.into());
    world.settle();
    assert!(!suspended(&world, &submitter) && world.json(&cluster)["spec"].get("suspend").is_none_or(|s| s == false));
}

/// What matters in the end: the sizes of what is admitted and waits, usage, and whether jobs and pods run.
fn outcome(world: &World, job: &ObjectRef) -> Value {
    let admitted: Vec<(bool, i32)> = slices(world, job)
        .into_iter()
        .map(|(key, count)| (world.controller.workload(&key).is_some_and(Workload::is_admitted), count))
        .collect();
    let pods: Vec<ObjectRef> = world.api.objects.keys().filter(|r| r.kind == Kind::Pod).cloned().collect();
    json!({"slices": admitted, "used": used(world, "first"), "suspended": suspended(world, job),
        "gated": gated(world, &pods)})
}

#[test]
fn a_restart_at_any_moment_changes_nothing() {
    for (quota, sizes) in [("6", vec![4]), ("6", vec![3, 5]), ("3", vec![4]), ("3", vec![4, 3]), ("6", vec![4, 1])] {
        let run = |crashes: &[usize]| {
            let mut world = one(quota);
            let job = running(&mut world, "a", 2);
            pods(&mut world, &job, &["a-0", "a-1"]);
            world.settle();
            let mut crashes = crashes.iter();
            for size in &sizes {
                scale(&mut world, &job, *size);
                for after in crashes.by_ref().take(2) {
                    world.crash(*after);
                }
            }
            pods(&mut world, &job, &["a-2", "a-3", "a-4"]);
            for after in crashes {
                world.crash(*after);
            }
            world.settle();
            outcome(&world, &job)
        };
        let calm = run(&[]);
        for first in 0..3 {
            for second in 0..3 {
                for third in 0..3 {
                    let crashes = [first, second, third, first, second, third];
                    assert_eq!(run(&crashes), calm, "quota {quota}, sizes {sizes:?}, crashes {crashes:?}");
                }
            }
        }
    }
}

#[test]
fn slices_in_any_state_are_put_in_order_at_start() {
    // Each of two slices pending, holding quota, admitted or finished, and evicted or not.
    let states = ["pending", "reserved", "admitted", "evicted", "finished"];
    for old_state in states {
        for new_state in states {
            let mut world = one("3");
            let job = running(&mut world, "a", 2);
            scale(&mut world, &job, 3);
            world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["stopPolicy"] = "Hold".into());
            world.settle();
            let all = slices(&world, &job);
            let [(old, _), (new, _)] = <[_; 2]>::try_from(all).unwrap();
            let admission =
                world.json(&ObjectRef::new(Kind::Workload, "default", old.name.clone()))["status"]["admission"].clone();
            for (key, state, count) in [(&old, old_state, 2), (&new, new_state, 3)] {
                let condition = |kind: &str, on: bool| {
                    json!({"type": kind, "status": if on { "True" } else { "False" }, "reason": "ByTest", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:05Z"})
                };
                let mut given = admission.clone();
                given["podSetAssignments"][0]["count"] = count.into();
                given["podSetAssignments"][0]["resourceUsage"]["cpu"] = count.to_string().into();
                let holds = matches!(state, "reserved" | "admitted" | "evicted");
                let mut conditions = vec![
                    condition("QuotaReserved", holds),
                    condition("Admitted", matches!(state, "admitted" | "evicted")),
                ];
                if state == "evicted" {
                    let mut evicted = condition("Evicted", true);
                    evicted["reason"] = "Preempted".into();
                    conditions.push(evicted);
                }
                if state == "finished" {
                    let mut finished = condition("Finished", true);
                    finished["reason"] = "WorkloadSliceReplaced".into();
                    conditions.push(finished);
                }
                let reference = ObjectRef::new(Kind::Workload, "default", key.name.clone());
                let mut object = world.json(&reference);
                object["status"] = json!({"conditions": conditions});
                if holds {
                    object["status"]["admission"] = given;
                }
                world.api.objects.insert(reference.clone(), Kind::Workload.read(object).unwrap());
            }
            world.restart(Configuration::default());
            world.edit(&ObjectRef::new(Kind::ClusterQueue, "", "cq"), |v| v["spec"]["stopPolicy"] = "None".into());
            for _ in 0..4 {
                world.settle();
                // The Job controller ends the pods of a job that is suspended, and starts those of one that is not.
                let runs = !suspended(&world, &job);
                active(&mut world, &job, if runs { 3 } else { 0 });
                world.advance(120);
            }
            world.settle();
            let context = format!("old {old_state}, new {new_state}");
            assert_eq!(counts(&world, &job), [3], "{context}");
            assert_eq!(used(&world, "first"), "3", "{context}: {:?}", world.workload(&job).status.conditions);
            assert!(!suspended(&world, &job), "{context}");
            assert!(world.has(&job, &ConditionType::Admitted), "{context}");
            let object: &Object = &world.api.objects[&job];
            assert_eq!(object.kind(), Kind::Job);
        }
    }
}

#[test]
fn a_job_shrinks_below_what_it_no_longer_needs() {
    // Bug log 192.
    let mut world = one("6");
    let mut wanted = job("a", 4, true);
    wanted["spec"]["completions"] = 6.into();
    let job = world.put(wanted);
    world.settle();
    active(&mut world, &job, 4);
    world.edit(&job, |v| {
        v["status"]["active"] = 1.into();
        v["status"]["succeeded"] = 5.into();
    });
    world.settle();
    assert_eq!(used(&world, "first"), "1", "three of four places are not needed any more");
    scale(&mut world, &job, 2);
    world.settle();
    assert_eq!((counts(&world, &job), used(&world, "first")), (vec![2], "1".to_owned()));
    scale(&mut world, &job, 1);
    world.settle();
    assert_eq!((counts(&world, &job), used(&world, "first")), (vec![1], "1".to_owned()));
    assert!(!suspended(&world, &job));
}

#[test]
fn a_job_that_grows_before_it_started_starts_as_what_was_admitted() {
    let mut world = one("2");
    let a = world.put(job("a", 2, true));
    // It is admitted, and nobody hears of its start.
    let reference = a.clone();
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        (object == reference).then_some(slicegate_controller::WriteError::Conflict(object))
    });
    world.settle();
    assert!(world.has(&a, &ConditionType::Admitted) && suspended(&world, &a));
    scale(&mut world, &a, 3);
    for _ in 0..4 {
        world.advance(1);
        world.settle();
    }
    assert!(suspended(&world, &a));
    assert_eq!(counts(&world, &a), [2, 3], "the larger one waits for quota");
    world.fault = Box::new(|_| None);
    for _ in 0..8 {
        world.advance(1);
        world.settle();
    }
    assert!(!suspended(&world, &a));
    assert_eq!(counts(&world, &a), [2, 3]);
}
