//! Node pools that are known from a ConfigMap, and jobs of a flavor that asks for whole slices.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_workload::ConditionType;

use crate::api::{World, jobset};

fn world() -> World {
    with(Configuration::default())
}

fn with(configuration: Configuration) -> World {
    let mut world = World::new(configuration);
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

#[test]
fn what_cannot_be_read_takes_nothing_away() {
    let mut world = world();
    let map = world.put(pools(&["a", "b"]));
    let one = world.put(job("one"));
    rest(&mut world);
    assert!(world.has(&one, &ConditionType::Admitted));
    // A bad text, then a list with one pool that is none: each time the Event says so, and the pools stay.
    world.edit(&map, |v| v["data"]["node-pools.json"] = "[{\"name\": \"a\",".into());
    let two = world.put(job("two"));
    rest(&mut world);
    assert!(world.has(&two, &ConditionType::Admitted));
    assert_eq!(world.reasons(&map), ["Invalid"]);
    let three = world.put(job("three"));
    let mut text = pools(&["a", "b", "c"])["data"]["node-pools.json"].as_str().unwrap().to_owned();
    text = text.replacen("2x4", "2x5", 1);
    world.edit(&map, |v| v["data"]["node-pools.json"] = text.into());
    rest(&mut world);
    assert!(world.has(&three, &ConditionType::Admitted), "the third pool is new");
    assert_eq!(world.reasons(&map), ["Invalid", "Invalid"]);
    let four = world.put(job("four"));
    rest(&mut world);
    assert!(!world.has(&four, &ConditionType::QuotaReserved));
    let told = world.told(&world.key(&four)).join("; ");
    assert!(told.contains("3 in use"), "{told}");
    // What is left out on purpose is gone, and so are the pools of a value that is taken out.
    world.edit(&map, |v| v["data"] = json!({}));
    rest(&mut world);
    let told = world.told(&world.key(&four)).join("; ");
    assert!(told.contains("no node pool is known"), "{told}");
}

const EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
const NODE_POOL: &str = "cloud.google.com/gke-nodepool";

/// A JobSet of so many Jobs with one pod each, half of what a slice has room for.
fn small_jobs(name: &str, jobs: i64) -> Value {
    let mut job = jobset(name, jobs, None);
    let spec = &mut job["spec"]["replicatedJobs"][0]["template"]["spec"];
    spec["parallelism"] = 1.into();
    spec["completions"] = 1.into();
    job
}

#[test]
fn jobs_with_a_node_pool_to_themselves_need_one_each() {
    let mut world = world();
    world.put(pools(&["a", "b", "c"]));
    let mut whole = small_jobs("whole", 2);
    whole["metadata"]["annotations"] = json!({EXCLUSIVE: NODE_POOL});
    let mut template = small_jobs("template", 2);
    template["spec"]["replicatedJobs"][0]["template"]["metadata"] = json!({"annotations": {EXCLUSIVE: NODE_POOL}});
    let whole = world.put(whole);
    rest(&mut world);
    let template = world.put(template);
    rest(&mut world);
    assert!(world.has(&whole, &ConditionType::Admitted));
    assert!(!world.has(&template, &ConditionType::QuotaReserved), "two pools are held, one is left");
    let told = world.told(&world.key(&template)).join("; ");
    assert!(told.contains("waits for whole slices of v5e: 1 slice of 2x4 is free, 2 needed; 2 in use"), "{told}");

    // After a restart the same is known of what runs and of what waits.
    world.crash(0);
    rest(&mut world);
    let next = world.put(small_jobs("next", 2));
    rest(&mut world);
    assert!(!world.has(&template, &ConditionType::QuotaReserved));
    assert!(world.has(&next, &ConditionType::Admitted), "two pods that may share the third");
    world.delete(&next);
    rest(&mut world);
    assert!(!world.has(&template, &ConditionType::QuotaReserved));

    // It is taken in that it is not asked for any more.
    let remove = |v: &mut Value| v["spec"]["replicatedJobs"][0]["template"]["metadata"] = json!({});
    world.edit(&template, remove);
    rest(&mut world);
    assert!(world.has(&template, &ConditionType::Admitted));
}

#[test]
fn other_domains_than_node_pools_do_not_count() {
    let mut world = world();
    world.put(pools(&["a"]));
    let mut job = small_jobs("zone", 2);
    job["metadata"]["annotations"] = json!({EXCLUSIVE: "kubernetes.io/hostname"});
    let job = world.put(job);
    rest(&mut world);
    assert!(world.has(&job, &ConditionType::Admitted), "both hosts of a slice");
}

#[test]
fn only_pools_that_pods_select_are_counted() {
    let mut world = world();
    world.put(pools(&["a", "b"]));
    let at = |name: &str, pool: &str| {
        let mut job = job(name);
        job["spec"]["template"]["spec"]["nodeSelector"][NODE_POOL] = pool.into();
        job
    };
    let affine = |name: &str, key: &str, value: &str| {
        let mut job = job(name);
        job["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": key, "operator": "In", "values": [value]}]}]}}});
        job
    };
    let jobs = [at("first", "a"), at("second", "a"), affine("third", NODE_POOL, "a"), at("none", "zzz")];
    let jobs = jobs.map(|job| world.put(job));
    rest(&mut world);
    assert_eq!(jobs.each_ref().map(|j| world.has(j, &ConditionType::Admitted)), [true, false, false, false]);
    let accelerator = "cloud.google.com/gke-tpu-accelerator";
    let other = world.put(affine("other", accelerator, "tpu-v6e-slice"));
    let fits = world.put(affine("fits", accelerator, "tpu-v5-lite-podslice"));
    rest(&mut world);
    assert!(!world.has(&other, &ConditionType::QuotaReserved));
    assert!(world.has(&fits, &ConditionType::Admitted), "the other pool is free");
}

#[test]
fn a_ray_job_needs_a_slice_for_each_group_of_hosts() {
    let mut world = world();
    world.put(pools(&["a", "b"]));
    let ray = |name: &str, slices: i64, pool: Option<&str>| {
        let mut worker = json!({"nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"},
            "containers": [{"name": "c", "resources": {"limits": {"google.com/tpu": "4"}}}]});
        if let Some(pool) = pool {
            worker["nodeSelector"][NODE_POOL] = pool.into();
        }
        json!({"kind": "RayJob", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "shutdownAfterJobFinishes": true, "rayClusterSpec": {
                "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}},
                "workerGroupSpecs": [{"groupName": "tpu", "replicas": slices, "numOfHosts": 2,
                    "template": {"spec": worker}}]}}})
    };
    let pinned = world.put(ray("pinned", 2, Some("a")));
    let three = world.put(ray("three", 3, None));
    rest(&mut world);
    assert!(!world.has(&pinned, &ConditionType::QuotaReserved), "pool a is one slice");
    assert!(!world.has(&three, &ConditionType::QuotaReserved));
    let told = world.told(&world.key(&three)).join("; ");
    assert!(told.contains("2 slices of 2x4 are free, 3 needed; there are 2 in all"), "{told}");
    let two = world.put(ray("two", 2, None));
    rest(&mut world);
    assert!(world.has(&two, &ConditionType::Admitted));
}

#[test]
fn an_elastic_job_grows_as_far_as_slices_go() {
    let mut configuration = Configuration::default();
    configuration.engine.gates.set("ElasticJobsViaWorkloadSlices", true).unwrap();
    let mut world = with(configuration);
    world.put(pools(&["a", "b"]));
    let mut elastic = job("elastic");
    elastic["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    elastic["spec"].as_object_mut().unwrap().remove("completions");
    let job = world.put(elastic);
    rest(&mut world);
    let pods = |world: &World| -> Vec<(i32, bool)> {
        let open = world.controller.workloads().filter(|w| !w.is_finished());
        open.map(|w| (w.spec.pod_sets[0].count, w.is_admitted())).collect()
    };
    let scale = |world: &mut World, pods: i64| {
        world.edit(&job, |v| v["spec"]["parallelism"] = pods.into());
        rest(world);
    };
    assert_eq!(pods(&world), [(2, true)]);
    scale(&mut world, 4);
    assert_eq!(pods(&world), [(4, true)], "what the smaller one held is no obstacle");
    scale(&mut world, 5);
    let mut waiting = pods(&world);
    waiting.sort_unstable();
    assert_eq!(waiting, [(4, true), (5, false)]);
    scale(&mut world, 1);
    assert_eq!(pods(&world), [(1, true)]);
    let next = world.put(self::job("next"));
    rest(&mut world);
    assert!(world.has(&next, &ConditionType::Admitted), "one slice was given back");
}
