//! Node pools that are known from a ConfigMap, and jobs of a flavor that asks for whole slices.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::World;

fn world() -> World {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor",
        "metadata": {"name": "v5e", "annotations": {"slicegate.dev/whole-slices": "true"}},
        "spec": {"nodeLabels": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["google.com/tpu"], "flavors": [
            {"name": "v5e", "resources": [{"name": "google.com/tpu", "nominalQuota": "1000"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

/// A Job that fills one slice of 2x4.
fn job(name: &str) -> Value {
    json!({"kind": "Job", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": 2, "completions": 2, "suspend": true, "template": {"spec": {"restartPolicy": "Never",
            "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"},
            "containers": [{"name": "c", "resources": {"requests": {"google.com/tpu": "4"}}}]}}}})
}

fn pools(names: &[&str]) -> Value {
    let pool = |name: &&str| {
        json!({"name": name, "config": {"machineType": "ct5lp-hightpu-4t"},
            "placementPolicy": {"tpuTopology": "2x4"}, "autoscaling": {"enabled": true, "maxNodeCount": 2}})
    };
    let list = Value::Array(names.iter().map(pool).collect());
    json!({"kind": "ConfigMap", "metadata": {"name": "pools", "labels": {"slicegate.dev/node-pools": "true"}},
        "data": {"node-pools.json": list.to_string()}})
}

/// Lets what was parked be looked at again.
fn rest(world: &mut World) {
    world.settle();
    world.advance(2);
    world.settle();
}

#[test]
fn jobs_start_as_pools_become_known_and_wait_without_them() {
    let mut world = world();
    let jobs = ["one", "two"].map(|name| world.put(job(name)));
    rest(&mut world);
    assert!(jobs.iter().all(|j| !world.has(j, &ConditionType::QuotaReserved)));

    let map = world.put(pools(&["a"]));
    rest(&mut world);
    assert!(world.has(&jobs[0], &ConditionType::Admitted));
    assert!(!world.has(&jobs[1], &ConditionType::QuotaReserved));

    world.edit(&map, |v| v["data"] = pools(&["a", "b"])["data"].clone());
    rest(&mut world);
    assert!(world.has(&jobs[1], &ConditionType::Admitted));
}

#[test]
fn what_was_read_is_forgotten_with_its_label() {
    let mut world = world();
    let map = world.put(pools(&["a"]));
    world.settle();
    world.edit(&map, |v| v["metadata"]["labels"] = json!({}));
    let waits = world.put(job("waits"));
    rest(&mut world);
    assert!(!world.has(&waits, &ConditionType::QuotaReserved));
    world.edit(&map, |v| v["metadata"]["labels"] = json!({"slicegate.dev/node-pools": "true"}));
    rest(&mut world);
    assert!(world.has(&waits, &ConditionType::Admitted));

    // After a restart everything is read again.
    world.crash(0);
    let next = world.put(job("next"));
    rest(&mut world);
    assert!(world.has(&waits, &ConditionType::Admitted));
    assert!(!world.has(&next, &ConditionType::QuotaReserved));
    assert_eq!(ObjectRef::new(Kind::ConfigMap, "default", "pools"), map);
}
