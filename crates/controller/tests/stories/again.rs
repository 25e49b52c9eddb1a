//! What is said and done again, and what is not.

use serde_json::json;
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::{Configuration, Operation, WriteError};
use slicegate_workload::ConditionType;

use crate::api::World;
use crate::batch::{job, reason, running, world};

fn workload_of(world: &World, job: &ObjectRef) -> ObjectRef {
    ObjectRef::new(Kind::Workload, "default", world.key(job).name)
}

/// Why a job's workload waits.
fn message(world: &World, job: &ObjectRef) -> String {
    let conditions = &world.workload(job).status.conditions;
    conditions.get(&ConditionType::QuotaReserved).map_or_else(String::new, |c| c.message.to_string())
}

#[test]
fn why_a_workload_waits_is_told_again_if_it_could_not_be_written() {
    for twice in [false, true] {
        let mut world = world("2", &json!({}));
        let first = world.put(job("first", 1));
        world.settle();
        running(&mut world, &first, 1);
        // The first writes of its status do not arrive.
        let mut failures = 1 + u8::from(twice);
        world.fault = Box::new(move |write| {
            let object = write.operation.object();
            let status = matches!(write.operation, Operation::UpdateStatus(_)) && object.kind == Kind::Workload;
            if !status || failures == 0 {
                return None;
            }
            failures -= 1;
            Some(WriteError::Unavailable { object, why: "connection refused".to_owned() })
        });
        let waits = world.put(job("waits", 2));
        world.settle();
        assert_eq!(message(&world, &waits), "");
        for _ in 0..=u8::from(twice) {
            world.sleep();
        }
        assert_eq!(reason(&world, &waits, &ConditionType::QuotaReserved), "WaitingForQuota");
        assert!(message(&world, &waits).contains("flavor std"), "{}", message(&world, &waits));
        // It is not told any more after that.
        let writes = world.writes.len();
        world.advance(60);
        world.settle();
        assert_eq!(world.writes.len(), writes);
    }
}

/// Two queues that share two flavors; the first serves its workloads strictly in order.
fn two_flavors() -> World {
    let mut world = World::new(Configuration::default());
    for flavor in ["x", "y"] {
        world.put(
            json!({"kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": {"nodeLabels": {"pool": flavor}}}),
        );
    }
    for (queue, strategy) in [("strict", "StrictFIFO"), ("free", "BestEffortFIFO")] {
        let flavors =
            ["x", "y"].map(|flavor| json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "4"}]}));
        world.put(json!({"kind": "ClusterQueue", "metadata": {"name": queue}, "spec": {
            "namespaceSelector": {}, "cohortName": "all", "queueingStrategy": strategy,
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}}));
        world.put(json!({"kind": "LocalQueue", "metadata": {"name": queue}, "spec": {"clusterQueue": queue}}));
    }
    world.settle();
    world
}

#[test]
fn what_a_workload_says_while_it_waits_is_no_reason_to_say_something_else() {
    let mut world = two_flavors();
    let put = |world: &mut World, name: &str, queue: &str, pods: i64| {
        let mut job = job(name, pods);
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue.into();
        let job = world.put(job);
        world.settle();
        job
    };
    // The strict queue uses all of both flavors but for one CPU of the first.
    for (name, pods) in [("p", 4), ("q", 3), ("r", 4), ("s", 4)] {
        let job = put(&mut world, name, "strict", pods);
        running(&mut world, &job, pods);
        assert!(world.has(&job, &ConditionType::Admitted), "{name}");
    }
    // The other queue takes some of that back, but the pods of its victim do not go; the next one waits for its turn.
    let takes = put(&mut world, "takes", "free", 4);
    let waits = put(&mut world, "waits", "strict", 1);
    assert_eq!(reason(&world, &takes, &ConditionType::QuotaReserved), "WaitingForPreemptedWorkloads");
    assert!(!world.has(&waits, &ConditionType::QuotaReserved));
    let said = message(&world, &waits);
    let writes = world.writes.len();
    for _ in 0..4 {
        world.advance(5);
        world.settle();
    }
    assert_eq!((message(&world, &waits), world.writes.len()), (said, writes));
}

/// A job that was started and is to stop, whose template could not yet be made as it was.
fn half_stopped(by_hand: bool) -> (World, ObjectRef) {
    let mut world = world("4", &json!({}));
    let a = world.put(job("a", 2));
    world.settle();
    assert_eq!(world.json(&a)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "std");
    if by_hand {
        // Before its pods came somebody suspended it.
        world.edit(&a, |v| v["spec"]["suspend"] = true.into());
    } else {
        running(&mut world, &a, 2);
    }
    let reference = a.clone();
    let mut stops = 0;
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        let whole = matches!(write.operation, Operation::Update(_)) && object == reference;
        stops += u32::from(whole);
        // That it is suspended arrives, what follows does not.
        (whole && (by_hand || stops > 1)).then_some(WriteError::Conflict(object))
    });
    let workload = workload_of(&world, &a);
    world.edit(&workload, |v| v["spec"]["active"] = false.into());
    for _ in 0..4 {
        world.settle();
        world.edit(&a, |v| v["status"] = json!({}));
        world.advance(1);
    }
    (world, a)
}

#[test]
fn a_stop_ends_before_the_workload_follows_its_job_or_gives_its_quota_back() {
    for by_hand in [false, true] {
        let (mut world, a) = half_stopped(by_hand);
        assert_eq!(world.json(&a)["spec"]["suspend"], true);
        assert_eq!(world.json(&a)["spec"]["template"]["spec"]["nodeSelector"]["pool"], "std", "not yet as it was");
        assert!(world.has(&a, &ConditionType::QuotaReserved), "only its Workload knows how it was");
        // Meanwhile somebody changes its size.
        world.edit(&a, |v| v["spec"]["parallelism"] = 3.into());
        world.settle();
        world.fault = Box::new(|_| None);
        for _ in 0..20 {
            world.advance(10);
            world.settle();
        }
        let selector = |v: &serde_json::Value| v["spec"]["nodeSelector"]["pool"].clone();
        assert!(selector(&world.json(&a)["spec"]["template"]).is_null(), "by hand: {by_hand}");
        let workload = world.json(&workload_of(&world, &a));
        assert!(selector(&workload["spec"]["podSets"][0]["template"]).is_null(), "by hand: {by_hand}");
        assert!(!world.has(&a, &ConditionType::QuotaReserved));
    }
}
