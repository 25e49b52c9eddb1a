//! What is wrong with objects, and what somebody else made of them.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::World;

fn cluster_queue(cpu: &str) -> Value {
    json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]}})
}

fn world(cpu: &str) -> (World, ObjectRef) {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    let queue = world.put(cluster_queue(cpu));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    (world, queue)
}

fn job(name: &str, pods: i64) -> Value {
    json!({"kind": "Job", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

fn with(mut job: Value, what: &str, key: &str, value: &str) -> Value {
    job["metadata"][what][format!("kueue.x-k8s.io/{key}")] = value.into();
    job
}

fn workload(world: &World, job: &ObjectRef) -> ObjectRef {
    let key = world.key(job);
    ObjectRef::new(Kind::Workload, key.namespace, key.name)
}

fn runs(world: &World, job: &ObjectRef) -> bool {
    world.json(job)["spec"]["suspend"] == false
}

fn notes(world: &World, about: &ObjectRef, reason: &str) -> Vec<String> {
    let told = world.events.iter().filter(|e| e.object == *about && &*e.reason == reason);
    told.map(|e| e.note.to_string()).collect()
}

#[test]
fn a_workload_that_somebody_takes_from_its_job_is_given_back() {
    let (mut world, _) = world("2");
    let a = world.put(job("a", 2));
    let b = world.put(job("b", 2));
    world.settle();
    let reference = workload(&world, &a);
    for label in [true, false] {
        world.edit(&reference, |v| {
            v["metadata"]["ownerReferences"] = json!([]);
            if !label {
                v["metadata"]["labels"] = json!({});
            }
        });
        world.settle();
        assert_eq!(world.key(&a).name, reference.name);
        assert!(world.has(&a, &ConditionType::Admitted) && !world.has(&a, &ConditionType::Finished));
        assert!(runs(&world, &a) && !runs(&world, &b));
        assert_eq!(
            world.json(&reference)["metadata"]["labels"]["kueue.x-k8s.io/job-uid"],
            json!(world.api.objects[&a].uid())
        );
    }
}

#[test]
fn a_job_whose_name_for_its_workload_is_taken_says_so_until_it_is_free() {
    let (mut world, _) = world("2");
    let a = world.put(job("a", 2));
    world.settle();
    let reference = workload(&world, &a);
    world.edit(&reference, |v| {
        v["metadata"]["ownerReferences"] = json!([]);
        v["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": "another"});
    });
    world.settle();
    assert!(!runs(&world, &a), "it has no quota");
    let name = &reference.name;
    let expected = format!("Error creating Workload default/{name}: there is another one of this name; delete it");
    assert_eq!(notes(&world, &a, "FailedCreate"), [expected]);
    world.delete(&reference);
    world.settle();
    assert!(runs(&world, &a));
}

#[test]
fn who_is_said_to_be_admitted_and_holds_no_quota_waits_on() {
    let (mut world, _) = world("2");
    let a = world.put(job("a", 2));
    let b = world.put(job("b", 2));
    world.settle();
    let reference = workload(&world, &b);
    world.edit(&reference, |v| {
        v["status"]["conditions"] = json!([{"type": "Admitted", "status": "True", "reason": "Me", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    });
    world.settle();
    assert!(!runs(&world, &b) && !world.has(&b, &ConditionType::Admitted) && !world.has(&b, &ConditionType::Finished));
    world.delete(&a);
    world.settle();
    assert!(runs(&world, &b));
}

#[test]
fn a_workload_that_cannot_be_read_keeps_its_quota_until_its_job_has_stopped() {
    for restart in [false, true] {
        let (mut world, _) = world("2");
        let a = world.put(job("a", 2));
        let b = world.put(job("b", 2));
        world.settle();
        world.edit(&a, |v| v["status"]["active"] = json!(2));
        world.settle();
        let reference = workload(&world, &a);
        world.edit(&reference, |v| {
            v["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                "much".into();
        });
        if restart {
            world.restart(Configuration::default());
        }
        world.settle();
        assert!(!runs(&world, &b), "pods of the other one are left");
        let path = "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]";
        assert!(notes(&world, &reference, "Invalid").iter().all(|note| note.contains(path)));
        assert_eq!(notes(&world, &reference, "Invalid").len(), 1);
        world.edit(&a, |v| v["status"]["active"] = json!(0));
        world.settle();
        assert!(runs(&world, &a) != runs(&world, &b), "one after the other");
    }
}

#[test]
fn a_cluster_queue_that_breaks_a_rule_admits_nothing_and_says_which() {
    type Break = fn(&mut Value);
    let cases: [(Break, &str); 3] = [
        (
            |v| v["spec"]["namespaceSelector"] = json!({"matchExpressions": [{"key": "x", "operator": "Nope"}]}),
            "spec.namespaceSelector.matchExpressions[0].operator",
        ),
        (
            |v| {
                let group = v["spec"]["resourceGroups"][0].clone();
                v["spec"]["resourceGroups"] = json!([group, group]);
            },
            "spec.resourceGroups[1].coveredResources[0]",
        ),
        (
            |v| v["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-2".into(),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
    ];
    for (break_it, path) in cases {
        let (mut world, queue) = world("2");
        let a = world.put(job("a", 2));
        world.settle();
        world.edit(&queue, break_it);
        let b = world.put(job("b", 1));
        world.settle();
        assert!(runs(&world, &a), "what runs runs on");
        assert_eq!(world.json(&queue)["status"]["reservingWorkloads"], 1, "and is counted");
        assert!(!runs(&world, &b));
        let condition = &world.json(&queue)["status"]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Invalid")));
        assert!(condition["message"].as_str().unwrap().contains(path), "{condition}");
        let waits = world.workload(&b).status.conditions.get(&ConditionType::QuotaReserved).unwrap().clone();
        assert_eq!(&*waits.message, "ClusterQueue cq is inactive");
        let told = notes(&world, &queue, "Invalid");
        assert!(told.len() == 1 && told[0].starts_with("ClusterQueue cq: ") && told[0].contains(path), "{told:?}");
        let usage = world.json(&queue)["status"]["flavorsReservation"].clone();
        assert_eq!(
            usage[0]["resources"].as_array().unwrap().len(),
            1,
            "an API server takes each resource once: {usage}"
        );
        // All is well again once it is mended, and it is told again if it breaks again.
        world.edit(&queue, |v| v["spec"] = cluster_queue("4")["spec"].clone());
        world.settle();
        assert!(runs(&world, &b));
        world.edit(&queue, break_it);
        world.settle();
        assert_eq!(notes(&world, &queue, "Invalid").len(), 2);
    }
}

#[test]
fn flavors_and_cohorts_that_break_a_rule_say_which_once() {
    let (mut world, _) = world("4");
    let flavor =
        world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "odd"}, "spec": {"nodeLabels": {"a b": "c"}}}));
    let cohort = world.put(json!({"kind": "Cohort", "metadata": {"name": "all"}, "spec": {"resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "std", "resources": [
            {"name": "cpu", "nominalQuota": "4", "borrowingLimit": "1"}]}]}]}}));
    world.settle();
    for (about, part) in [(&flavor, "spec.nodeLabels"), (&cohort, "borrowingLimit")] {
        world.edit(about, |v| v["metadata"]["labels"] = json!({"another": "look"}));
        world.settle();
        let told = notes(&world, about, "Invalid");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(part), "{told:?}");
    }
    // It is told again if it is put right and goes wrong again.
    for (key, times) in [("ab", 1), ("a b", 2)] {
        world.edit(&flavor, |v| v["spec"]["nodeLabels"] = json!({key: "c"}));
        world.settle();
        assert_eq!(notes(&world, &flavor, "Invalid").len(), times);
    }
}

#[test]
fn below_a_cycle_of_cohorts_workloads_and_queues_say_so_until_it_is_broken_up() {
    let (mut world, queue) = world("2");
    world.edit(&queue, |v| v["spec"]["cohortName"] = "left".into());
    let a = world.put(job("a", 1));
    world.settle();
    assert!(runs(&world, &a));
    let b = world.put(job("b", 2));
    world.settle();
    world.put(json!({"kind": "Cohort", "metadata": {"name": "left"}, "spec": {"parentName": "right"}}));
    let right = world.put(json!({"kind": "Cohort", "metadata": {"name": "right"}, "spec": {"parentName": "left"}}));
    world.settle();
    let message = |world: &World| {
        let waits = world.workload(&b).status.conditions.get(&ConditionType::QuotaReserved).unwrap();
        waits.message.to_string()
    };
    assert_eq!(message(&world), "ClusterQueue cq is inactive");
    assert_eq!(world.json(&queue)["status"]["conditions"][0]["reason"], "CohortCycle");
    world.delete(&right);
    world.settle();
    for _ in 0..3 {
        world.advance(1);
        world.settle();
    }
    assert_eq!(world.json(&queue)["status"]["conditions"][0]["reason"], "Ready");
    assert!(message(&world).contains("1 more needed"), "{}", message(&world));
    world.delete(&a);
    world.settle();
    assert!(runs(&world, &b));
}

#[test]
fn what_is_wrong_with_a_job_is_told_once() {
    let (mut world, _) = world("2");
    let a = world.put(with(job("a", 1), "labels", "priority-class", "nope"));
    let mut named = job("b", 1);
    named["spec"]["template"]["spec"]["priorityClassName"] = "nope".into();
    let b = world.put(named);
    let mut slices = job("c", 1);
    slices["spec"]["template"]["metadata"]["annotations"] = json!({
        "kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "x"});
    let c = world.put(slices);
    for i in 0..3 {
        world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": format!("f{i}")}, "spec": {}}));
        for job in [&a, &b, &c] {
            world.edit(job, |v| v["metadata"]["annotations"] = json!({"i": i.to_string()}));
        }
        world.settle();
    }
    assert_eq!(world.reasons(&a), ["WorkloadPriorityClassNotFound"]);
    assert_eq!(world.reasons(&b), ["ErrWorkloadCompose"]);
    assert_eq!(world.reasons(&c), ["ErrWorkloadCompose"]);
    world.put(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": "nope"}, "value": 1}));
    world.settle();
    assert!(runs(&world, &a));
    // Another job of the name is told anew.
    world.delete(&c);
    let mut again = job("c", 1);
    again["spec"]["template"]["metadata"]["annotations"] = json!({
        "kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "x"});
    let c = world.put(again);
    world.settle();
    assert_eq!(world.reasons(&c), ["ErrWorkloadCompose", "ErrWorkloadCompose"]);
}

#[test]
fn labels_that_mean_nothing_are_told() {
    let (mut world, _) = world("20");
    let cases = [
        ("labels", "max-exec-time-seconds", "soon", "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"),
        ("labels", "max-exec-time-seconds", "0", "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"),
        ("annotations", "job-min-parallelism", "x", "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]"),
    ];
    for (i, (what, key, value, path)) in cases.into_iter().enumerate() {
        let job = world.put(with(job(&format!("j{i}"), 2), what, key, value));
        world.settle();
        assert!(runs(&world, &job), "it is passed over");
        let told = notes(&world, &job, "Invalid");
        assert!(told.len() == 1 && told[0].starts_with(&format!("Job default/j{i}: {path}: ")), "{told:?}");
    }
    let fine = world.put(with(job("fine", 2), "labels", "max-exec-time-seconds", "60"));
    world.settle();
    assert!(notes(&world, &fine, "Invalid").is_empty());
    // One that runs in a cluster that is there is nobody's to queue.
    let ray =
        world.put(json!({"kind": "RayJob", "metadata": {"name": "r", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"entrypoint": "x", "suspend": true, "shutdownAfterJobFinishes": true,
            "clusterSelector": {"ray.io/cluster": "c"},
            "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}}}));
    world.settle();
    assert!(notes(&world, &ray, "Invalid")[0].contains("clusterSelector"), "{:?}", notes(&world, &ray, "Invalid"));
}

#[test]
fn a_job_that_waits_for_a_workload_of_others_says_for_which() {
    let (mut world, _) = world("2");
    let owner = world.put(job("owner", 1));
    world.settle();
    let taken = world.key(&owner).name.to_string();
    let a = world.put(with(job("a", 1), "labels", "prebuilt-workload-name", "made-before"));
    let b = world.put(with(job("b", 1), "labels", "prebuilt-workload-name", &taken));
    for i in 0..2 {
        for job in [&a, &b] {
            world.edit(job, |v| v["metadata"]["annotations"] = json!({"i": i.to_string()}));
        }
        world.settle();
    }
    assert_eq!(
        notes(&world, &a, "WorkloadNotFound"),
        ["Workload default/made-before, which the job is to use, is not there; create it"]
    );
    assert_eq!(
        notes(&world, &b, "WorkloadNotFound"),
        [format!("Workload default/{taken}, which the job is to use, is that of Job owner")]
    );
}
