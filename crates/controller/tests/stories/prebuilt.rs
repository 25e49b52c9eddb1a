//! Jobs that use a Workload that somebody else made.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::Key;

use crate::api::World;

fn world() -> World {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"}, "spec": {}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn job(name: &str, pods: i64) -> Value {
    json!({"kind": "Job", "metadata": {"name": name, "labels": {
            "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/prebuilt-workload-name": "made-before"}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": template()}})
}

fn made_before(pods: i64) -> Value {
    json!({"kind": "Workload", "metadata": {"name": "made-before"}, "spec": {
        "queueName": "lq", "active": true, "podSets": [{"name": "main", "count": pods, "template": template()}]}})
}

fn workloads(world: &World) -> Vec<String> {
    world.api.objects.keys().filter(|r| r.kind == Kind::Workload).map(|r| r.name.to_string()).collect()
}

#[test]
fn a_job_waits_for_its_workload_and_then_owns_and_uses_it() {
    let mut world = world();
    let job = world.put(job("a", 2));
    world.settle();
    assert_eq!(workloads(&world), Vec::<String>::new(), "it gets no other");
    assert_eq!(world.json(&job)["spec"]["suspend"], true);
    let workload = world.put(made_before(2));
    world.settle();
    assert_eq!(workloads(&world), ["made-before"]);
    let owner = &world.json(&workload)["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Job"), &json!("a")));
    assert_eq!(world.json(&job)["spec"]["suspend"], false, "it was admitted");
}

#[test]
fn a_workload_that_asks_for_something_else_is_out_of_sync() {
    let mut world = world();
    world.put(made_before(1));
    let job = world.put(job("a", 2));
    world.settle();
    assert_eq!(world.json(&job)["spec"]["suspend"], true);
    let workload = world.controller.workload(&Key::new("default", "made-before")).unwrap();
    let finished = workload.status.conditions.iter().find(|c| c.kind.as_str() == "Finished").unwrap();
    assert_eq!(&*finished.reason, "OutOfSync");
}

#[test]
fn a_workload_of_another_job_is_not_used() {
    let mut world = world();
    world.put(made_before(2));
    let first = world.put(job("a", 2));
    world.settle();
    let second = world.put(job("b", 2));
    world.settle();
    let suspended = |job: &ObjectRef| world.json(job)["spec"]["suspend"].clone();
    assert_eq!((suspended(&first), suspended(&second)), (json!(false), json!(true)));
    assert_eq!(workloads(&world), ["made-before"]);
}
