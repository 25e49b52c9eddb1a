//! What LocalQueues used in the past, which orders those of a ClusterQueue with admission fair sharing.

use serde_json::{Value, json};
use slicegate_admission::AdmissionFairSharing;
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::World;

/// Two LocalQueues of one ClusterQueue, which takes first whoever used less.
fn world() -> World {
    let mut configuration = Configuration::default();
    configuration.engine.admission_fair_sharing = Some(AdmissionFairSharing {
        half_life_seconds: 100_000,
        sampling_interval_seconds: 300,
        ..AdmissionFairSharing::default()
    });
    let mut world = World::new(configuration);
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}));
    for name in ["heavy", "light"] {
        world.put(json!({"kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": "cq"}}));
    }
    world.settle();
    world
}

fn job(name: &str, queue: &str) -> Value {
    json!({"kind": "Job", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": 4, "completions": 4, "suspend": true, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

fn finish(world: &mut World, job: &ObjectRef) {
    world.edit(job, |v| {
        v["status"] = json!({"succeeded": 4, "conditions": [{"type": "Complete", "status": "True"}]});
    });
    world.settle();
}

fn past(world: &World, queue: &str) -> Value {
    let queue = world.json(&ObjectRef::new(Kind::LocalQueue, "default", queue));
    queue["status"]["fairSharing"]["admissionFairSharingStatus"].clone()
}

#[test]
fn past_usage_is_kept_in_the_status_and_outlives_the_controller() {
    let mut world = world();
    let first = world.put(job("first", "heavy"));
    world.settle();
    world.advance(3_600);
    world.settle();
    finish(&mut world, &first);
    let heavy = past(&world, "heavy");
    assert_ne!(heavy["consumedResources"]["cpu"], Value::Null, "{heavy}");
    assert_eq!(heavy["lastUpdate"], "2026-01-01T01:00:00Z");

    world.crash(0);
    world.settle();
    assert_eq!(past(&world, "heavy")["consumedResources"], heavy["consumedResources"], "counted once");
    // Whatever its spec becomes, what the controller wrote itself is no news to it.
    let reference = ObjectRef::new(Kind::LocalQueue, "default", "heavy");
    world.edit(&reference, |v| v["spec"]["fairSharing"] = json!({"weight": "1"}));
    world.settle();
    assert_eq!(past(&world, "heavy")["consumedResources"], heavy["consumedResources"], "counted once");

    let running = world.put(job("running", "light"));
    world.settle();
    assert!(world.has(&running, &ConditionType::Admitted));
    let older = world.put(job("older", "heavy"));
    world.advance(1);
    let newer = world.put(job("newer", "light"));
    world.settle();
    finish(&mut world, &running);
    world.settle();
    world.sleep();
    assert!(world.has(&newer, &ConditionType::Admitted), "light used less although its job is newer");
    assert!(!world.has(&older, &ConditionType::Admitted));
}
