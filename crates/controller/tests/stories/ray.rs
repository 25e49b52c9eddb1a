//! RayJobs and RayClusters that are out of the ordinary.

use serde_json::{Value, json};
use slicegate_api::ObjectRef;
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::World;

/// Room for eight cpus.
fn world(configuration: Configuration) -> World {
    let mut world = World::new(configuration);
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "std"},
        "spec": {"nodeLabels": {"pool": "ray"}}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "std", "resources": [{"name": "cpu", "nominalQuota": "8"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "ray", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn group(name: &str, replicas: i64, hosts: i64) -> Value {
    json!({"groupName": name, "replicas": replicas, "numOfHosts": hosts, "rayStartParams": {}, "template": template("1")})
}

fn cluster_spec(groups: &[Value]) -> Value {
    json!({"headGroupSpec": {"rayStartParams": {}, "template": template("1")}, "workerGroupSpecs": groups})
}

fn ray_job(name: &str, queue: bool, groups: &[Value]) -> Value {
    let labels = if queue { json!({"kueue.x-k8s.io/queue-name": "lq"}) } else { json!({}) };
    json!({"kind": "RayJob", "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": queue, "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
            "rayClusterSpec": cluster_spec(groups)}})
}

pub(super) fn cluster(name: &str, groups: &[Value]) -> Value {
    let mut spec = cluster_spec(groups);
    spec["suspend"] = true.into();
    json!({"kind": "RayCluster", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": spec})
}

fn used(world: &World) -> String {
    let queue = world.json(&ObjectRef::new(slicegate_api::Kind::ClusterQueue, "", "cq"));
    queue["status"]["flavorsReservation"][0]["resources"][0]["total"].as_str().unwrap_or("0").to_owned()
}

fn pod_sets(world: &World, job: &ObjectRef) -> Vec<(String, i32)> {
    world.workload(job).spec.pod_sets.iter().map(|p| (p.name.to_string(), p.count)).collect()
}

#[test]
fn a_ray_job_that_kuberay_refuses_gives_its_quota_back() {
    let mut world = world(Configuration::default());
    let first = world.put(ray_job("first", true, &[group("w", 1, 7)]));
    world.settle();
    assert!(world.has(&first, &ConditionType::Admitted));
    assert_eq!(used(&world), "8", "every host counts");
    let second = world.put(ray_job("second", true, &[group("w", 1, 2)]));
    world.settle();
    assert!(!world.has(&second, &ConditionType::QuotaReserved));
    world.edit(&first, |v| v["status"]["jobDeploymentStatus"] = "ValidationFailed".into());
    world.settle();
    assert!(world.has(&second, &ConditionType::Admitted), "{:?}", world.workload(&first).status.conditions);
    assert!(!world.has(&first, &ConditionType::QuotaReserved));
    assert_eq!(used(&world), "3");
    // It does not come back by itself when there is room.
    world.edit(&second, |v| {
        v["status"]["jobDeploymentStatus"] = "Complete".into();
        v["status"]["jobStatus"] = "SUCCEEDED".into();
    });
    world.settle();
    world.advance(600);
    world.settle();
    assert_eq!(used(&world), "0");
}

#[test]
fn a_ray_job_on_a_cluster_that_is_there_is_left_alone() {
    let mut world = world(Configuration { manage_jobs_without_queue_name: true, ..Configuration::default() });
    let mut job = ray_job("guest", false, &[]);
    job["spec"]["clusterSelector"] = json!({"ray.io/cluster": "shared"});
    job["spec"].as_object_mut().unwrap().remove("rayClusterSpec");
    let job = world.put(job);
    world.settle();
    assert_eq!(world.json(&job)["spec"]["suspend"], false);
    assert!(world.controller.workload_of(&job).is_none());
    world.edit(&job, |v| v["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq".into());
    world.settle();
    assert_eq!(world.json(&job)["spec"]["suspend"], false, "even if somebody gives it a queue");
    assert!(world.controller.workload_of(&job).is_none());
}

#[test]
fn a_cluster_whose_groups_change_while_it_runs_is_queued_anew() {
    let one = [group("a", 2, 1)];
    let two = [group("a", 2, 1), group("b", 1, 2)];
    for (before, after, want) in [
        (&one[..], &two[..], [("head", 1), ("a", 2), ("b", 2)].as_slice()),
        (&two[..], &one[..], &[("head", 1), ("a", 2)]),
        (&one[..], &[][..], &[("head", 1)]),
    ] {
        let mut world = world(Configuration::default());
        let reference = world.put(cluster("shared", before));
        world.settle();
        assert!(world.has(&reference, &ConditionType::Admitted));
        world.edit(&reference, |v| v["status"]["state"] = "ready".into());
        world.settle();
        world.edit(&reference, |v| {
            // As whoever applies the manifest again does: with what was put in at the start still there.
            let old = v["spec"]["workerGroupSpecs"].as_array().cloned().unwrap_or_default();
            let groups: Vec<Value> =
                after.iter().enumerate().map(|(i, g)| old.get(i).cloned().unwrap_or_else(|| g.clone())).collect();
            v["spec"]["workerGroupSpecs"] = groups.into();
        });
        world.settle();
        world.edit(&reference, |v| v["status"]["state"] = "suspended".into());
        world.settle();
        let want: Vec<(String, i32)> = want.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        assert_eq!(pod_sets(&world, &reference), want);
        assert!(world.has(&reference, &ConditionType::Admitted), "{:?}", world.workload(&reference).status.conditions);
        let total: i32 = want.iter().map(|(_, count)| count).sum();
        assert_eq!(used(&world), total.to_string());
        assert_eq!(world.json(&reference)["spec"]["suspend"], false);
    }
}
