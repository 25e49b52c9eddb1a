//! Pods that are placed by topology, and nodes that fail under them.

use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_controller::{Configuration, Operation, WriteError};
use slicegate_workload::ConditionType;

use crate::api::World;

const HOST: &str = "kubernetes.io/hostname";

fn node(name: &str, rack: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name, "labels": {"pool": "tas", "rack": rack, HOST: name}},
        "status": {"allocatable": {"cpu": "2", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Three racks of one node with two cpus each, and quota for all of them.
fn world() -> World {
    let mut world = World::new(Configuration::default());
    world.put(json!({"kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": [
        {"nodeLabel": "rack"}, {"nodeLabel": HOST}]}}));
    for (name, rack) in [("n1", "r1"), ("n2", "r2"), ("n3", "r3")] {
        world.put(node(name, rack));
    }
    world.put(json!({"kind": "ResourceFlavor", "metadata": {"name": "tas"}, "spec": {
        "nodeLabels": {"pool": "tas"}, "topologyName": "racks"}}));
    world.put(json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "6"}]}]}]}}));
    world.put(json!({"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}));
    world.settle();
    world
}

fn job(name: &str, pods: i64) -> Value {
    json!({"kind": "Job", "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "suspend": true, "template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

fn workload_ref(world: &World, job: &ObjectRef) -> ObjectRef {
    ObjectRef::new(Kind::Workload, "default", world.key(job).name)
}

/// Admits a job with so many pods on each node, whatever the scheduler thinks.
fn admit(world: &mut World, job: &ObjectRef, domains: &[(&str, i64)]) {
    let reference = workload_ref(world, job);
    let total: i64 = domains.iter().map(|d| d.1).sum();
    let values = |of: fn(&str) -> String| domains.iter().map(|d| of(d.0)).collect::<Vec<_>>();
    let (racks, hosts) = (values(|n| n.replace('n', "r")), values(ToOwned::to_owned));
    let counts: Vec<i64> = domains.iter().map(|d| d.1).collect();
    let true_since = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "ByTest", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    world.edit(&reference, |v| {
        v["status"] = json!({"conditions": [true_since("QuotaReserved"), true_since("Admitted")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": total,
                "flavors": {"cpu": "tas"}, "resourceUsage": {"cpu": total.to_string()},
                "topologyAssignment": {"levels": ["rack", HOST], "slices": [{"domainCount": domains.len(),
                    "valuesPerLevel": [{"individual": {"roots": racks}}, {"individual": {"roots": hosts}}],
                    "podCounts": {"individual": counts}}]}}]}});
    });
    world.settle();
}

/// A job that is admitted on these nodes, without pods.
fn started(world: &mut World, name: &str, domains: &[(&str, i64)]) -> ObjectRef {
    let mut wanted = job(name, domains.iter().map(|d| d.1).sum());
    // Until then it waits for its queue, so that nothing but the test gives it a place.
    wanted["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq".into();
    let queue = ObjectRef::new(Kind::LocalQueue, "default", "lq");
    world.edit(&queue, |v| v["spec"]["stopPolicy"] = "Hold".into());
    let reference = world.put(wanted);
    world.settle();
    admit(world, &reference, domains);
    world.edit(&queue, |v| v["spec"]["stopPolicy"] = "None".into());
    world.settle();
    reference
}

/// A pod as the Job controller makes it from the template of the started job.
fn pod(world: &mut World, job: &ObjectRef, name: &str, index: &str) -> ObjectRef {
    let template = world.json(job)["spec"]["template"].clone();
    let mut metadata = template["metadata"].clone();
    metadata["name"] = name.into();
    metadata["labels"]["batch.kubernetes.io/job-completion-index"] = index.into();
    world.put(json!({"kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}))
}

fn host(world: &World, pod: &ObjectRef) -> String {
    let spec = world.json(pod)["spec"].clone();
    if spec.get("schedulingGates").is_some() {
        return "gated".to_owned();
    }
    assert_eq!(spec["nodeSelector"]["pool"], "tas", "what the template says stays");
    let (rack, host) = (spec["nodeSelector"]["rack"].as_str().unwrap(), spec["nodeSelector"][HOST].as_str().unwrap());
    assert_eq!(rack.replace('r', "n"), host);
    host.to_owned()
}

/// A pod is bound and runs.
fn runs_on(world: &mut World, pod: &ObjectRef, node: &str) {
    world.edit(pod, |v| {
        v["spec"]["nodeName"] = node.into();
        v["status"]["phase"] = "Running".into();
    });
}

fn ready(world: &mut World, node: &str, status: &str) {
    world.edit(&ObjectRef::new(Kind::Node, "", node), |v| v["status"]["conditions"][0]["status"] = status.into());
    world.settle();
}

fn unhealthy(world: &World, job: &ObjectRef) -> Vec<String> {
    world.workload(job).status.unhealthy_nodes.iter().map(ToString::to_string).collect()
}

fn pod_writes(world: &World) -> usize {
    world.writes.iter().filter(|w| w.operation.object().kind == Kind::Pod).count()
}

#[test]
fn pods_go_where_their_ranks_are_and_are_written_once() {
    let mut world = world();
    world.noisy = true;
    let job = started(&mut world, "a", &[("n1", 1), ("n2", 2)]);
    let template = world.json(&job)["spec"]["template"].clone();
    assert_eq!(template["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/topology"}]));
    let pods = ["2", "0", "1"].map(|index| pod(&mut world, &job, &format!("a-{index}"), index));
    world.settle();
    assert_eq!([0, 1, 2].map(|i| host(&world, &pods[i])), ["n2", "n1", "n2"]);
    for (pod, node) in pods.iter().zip(["n2", "n1", "n2"]) {
        runs_on(&mut world, pod, node);
    }
    world.settle();
    assert_eq!(pod_writes(&world), 3);

    // One fails; its successor, of the same rank, takes its place.
    world.edit(&pods[0], |v| v["status"]["phase"] = "Failed".into());
    let again = pod(&mut world, &job, "a-2-again", "2");
    world.settle();
    assert_eq!(host(&world, &again), "n2");
}

#[test]
fn a_pod_is_not_sent_anywhere_before_its_workload_is_admitted() {
    let mut world = world();
    let job = started(&mut world, "a", &[("n1", 1)]);
    let reference = workload_ref(&world, &job);
    let queue = ObjectRef::new(Kind::ClusterQueue, "", "cq");
    world.edit(&queue, |v| v["spec"]["stopPolicy"] = "HoldAndDrain".into());
    world.step();
    world.step();
    let late = pod(&mut world, &job, "late", "0");
    world.settle();
    assert!(world.has(&job, &ConditionType::Evicted), "{}", world.json(&reference)["status"]);
    assert_eq!(world.json(&late)["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/topology");
}

#[test]
fn a_refused_write_of_a_pod_is_tried_again() {
    let mut world = world();
    let job = started(&mut world, "a", &[("n1", 1), ("n2", 1)]);
    let mut left = 2;
    world.fault = Box::new(move |write| {
        let object = write.operation.object();
        if object.kind != Kind::Pod || left == 0 {
            return None;
        }
        left -= 1;
        Some(WriteError::Conflict(object))
    });
    let pods = ["0", "1"].map(|index| pod(&mut world, &job, &format!("a-{index}"), index));
    world.settle();
    assert_eq!(host(&world, &pods[0]), "gated");
    world.sleep();
    assert_eq!([0, 1].map(|i| host(&world, &pods[i])), ["n1", "n2"]);
}

#[test]
fn a_node_that_is_gone_is_noted_and_a_second_one_evicts() {
    let mut world = world();
    let job = started(&mut world, "a", &[("n1", 2), ("n2", 2), ("n3", 2)]);
    world.delete(&ObjectRef::new(Kind::Node, "", "n2"));
    world.step();
    world.step();
    assert_eq!(unhealthy(&world, &job), ["n2"]);
    world.delete(&ObjectRef::new(Kind::Node, "", "n1"));
    world.settle();
    let status = &world.workload(&job).status;
    let evicted = status.conditions.get(&ConditionType::Evicted).unwrap();
    assert_eq!(&*evicted.reason, "NodeFailures");
    assert!(status.unhealthy_nodes.is_empty());
}

/// Where the pods of a job are placed.
fn hosts(world: &World, job: &ObjectRef) -> Vec<(String, i32)> {
    let admission = world.workload(job).status.admission.as_ref().unwrap();
    let places = admission.pod_set_assignments[0].topology_assignment.as_ref().unwrap();
    places.domains.iter().map(|d| (d.values.last().unwrap().to_string(), d.count)).collect()
}

#[test]
fn a_failed_node_is_replaced_and_its_pods_follow() {
    let mut world = world();
    let reference = world.put(job("a", 3));
    world.settle();
    assert_eq!(hosts(&world, &reference), [("n1".to_owned(), 2), ("n2".to_owned(), 1)]);
    let pods = ["0", "1", "2"].map(|index| pod(&mut world, &reference, &format!("a-{index}"), index));
    world.settle();
    let selected = |world: &World, pod: &ObjectRef| world.json(pod)["spec"]["nodeSelector"][HOST].clone();
    assert_eq!([0, 1, 2].map(|i| selected(&world, &pods[i])), ["n1", "n1", "n2"].map(Value::from));
    for (pod, node) in pods.iter().zip(["n1", "n1", "n2"]) {
        runs_on(&mut world, pod, node);
    }
    world.settle();
    world.delete(&ObjectRef::new(Kind::Node, "", "n1"));
    for pod in &pods[..2] {
        world.delete(pod);
    }
    world.settle();
    for _ in 0..3 {
        world.advance(10);
        world.settle();
    }
    assert!(!world.has(&reference, &ConditionType::Evicted), "{:?}", world.workload(&reference).status.conditions);
    assert!(unhealthy(&world, &reference).is_empty());
    assert_eq!(hosts(&world, &reference), [("n2".to_owned(), 1), ("n3".to_owned(), 2)]);
    // Ranks do not say any more who is where: domains are filled up.
    let again = ["0", "1"].map(|index| pod(&mut world, &reference, &format!("b-{index}"), index));
    world.settle();
    assert_eq!([0, 1].map(|i| selected(&world, &again[i])), ["n3", "n3"].map(Value::from));
}

#[test]
fn two_nodes_that_fail_at_once_evict() {
    let mut world = world();
    let job = started(&mut world, "a", &[("n1", 1), ("n2", 1)]);
    for node in ["n2", "n1"] {
        world.delete(&ObjectRef::new(Kind::Node, "", node));
    }
    world.settle();
    let status = &world.workload(&job).status;
    let evicted = status.conditions.get(&ConditionType::Evicted).unwrap();
    let text = "Workload eviction triggered due to multiple TAS assigned node failures, including: n1, n2";
    assert!(evicted.message.ends_with(text), "{}", evicted.message);
    let workload = workload_ref(&world, &job);
    assert!(world.reasons(&workload).contains(&"EvictedDueToNodeFailures"), "{:?}", world.reasons(&workload));
}

/// All nodes full, so that nothing can be moved.
fn full(world: &mut World) -> (ObjectRef, Vec<ObjectRef>) {
    let job = started(world, "a", &[("n1", 2), ("n2", 2), ("n3", 2)]);
    let pods: Vec<ObjectRef> = (0..6).map(|i| pod(world, &job, &format!("a-{i}"), &i.to_string())).collect();
    world.settle();
    for (i, pod) in pods.iter().enumerate() {
        runs_on(world, pod, ["n1", "n2", "n3"][i / 2]);
    }
    world.settle();
    (job, pods)
}

#[test]
fn a_node_that_is_not_ready_has_failed_when_its_pods_are_gone() {
    let mut world = world();
    let (job, pods) = full(&mut world);
    ready(&mut world, "n2", "Unknown");
    assert!(unhealthy(&world, &job).is_empty(), "its pods may still run");
    world.delete(&pods[2]);
    world.settle();
    assert!(unhealthy(&world, &job).is_empty(), "one is left");
    world.edit(&pods[3], |v| v["status"]["phase"] = "Failed".into());
    world.step();
    world.step();
    assert_eq!(unhealthy(&world, &job), ["n2"]);
}

#[test]
fn a_node_that_recovers_in_time_is_forgotten() {
    let mut world = world();
    // Without fail-fast the workload waits for a replacement, of which there is none.
    let mut configuration = Configuration::default();
    configuration.engine.gates.set("TASFailedNodeReplacementFailFast", false).unwrap();
    world.restart(configuration);
    let (job, pods) = full(&mut world);
    ready(&mut world, "n2", "False");
    for pod in &pods[2..4] {
        world.edit(pod, |v| v["status"]["phase"] = "Failed".into());
    }
    world.step();
    world.step();
    assert_eq!(unhealthy(&world, &job), ["n2"]);
    ready(&mut world, "n2", "True");
    assert!(unhealthy(&world, &job).is_empty());
    assert!(!world.has(&job, &ConditionType::Evicted));
}

#[test]
fn pods_stay_gated_while_their_node_is_to_be_replaced_and_strays_are_ended() {
    let mut world = world();
    let mut configuration = Configuration::default();
    configuration.engine.gates.set("TASFailedNodeReplacementFailFast", false).unwrap();
    world.restart(configuration);
    let (job, pods) = full(&mut world);
    // One pod was sent to the node, but was never bound.
    world.delete(&pods[3]);
    let stray = pod(&mut world, &job, "stray", "3");
    world.settle();
    assert_eq!(host(&world, &stray), "n2");
    world.delete(&pods[2]);
    world.edit(&ObjectRef::new(Kind::Node, "", "n2"), |v| {
        v["spec"]["taints"] = json!([{"key": "broken", "effect": "NoSchedule"}]);
    });
    world.settle();
    assert_eq!(unhealthy(&world, &job), ["n2"]);
    let status = world.json(&stray)["status"].clone();
    assert_eq!((&status["phase"], &status["conditions"][0]["type"]), (&json!("Failed"), &json!("TerminatedByKueue")));
    assert_eq!(world.reasons(&stray), ["PodTerminatedByKueue"]);
    let successor = pod(&mut world, &job, "successor", "3");
    world.settle();
    assert_eq!(host(&world, &successor), "gated");
}

#[test]
fn a_tolerated_taint_is_no_failure() {
    let mut world = world();
    let (job, pods) = full(&mut world);
    world.edit(&ObjectRef::new(Kind::ResourceFlavor, "", "tas"), |v| {
        v["spec"]["tolerations"] = json!([{"key": "repair", "operator": "Exists"}]);
    });
    world.delete(&pods[2]);
    world.delete(&pods[3]);
    world.edit(&ObjectRef::new(Kind::Node, "", "n2"), |v| {
        v["spec"]["taints"] = json!([{"key": "repair", "effect": "NoExecute"}]);
    });
    world.settle();
    assert!(unhealthy(&world, &job).is_empty());
    assert!(!world.has(&job, &ConditionType::Evicted));
}

#[test]
fn a_new_controller_goes_on_where_the_last_one_was() {
    for after in 0..4 {
        let mut world = world();
        let job = started(&mut world, "a", &[("n1", 1), ("n2", 2)]);
        let pods = ["0", "1", "2"].map(|index| pod(&mut world, &job, &format!("a-{index}"), index));
        world.crash(after);
        world.settle();
        assert_eq!([0, 1, 2].map(|i| host(&world, &pods[i])), ["n1", "n2", "n2"], "after {after} writes");
        assert_eq!(pod_writes(&world), 3);
        let updates = world.writes.iter().filter(|w| w.operation.object().kind == Kind::Pod);
        assert!(updates.into_iter().all(|w| matches!(w.operation, Operation::Update(_))));

        // A node fails while nobody looks.
        world.delete(&ObjectRef::new(Kind::Node, "", "n2"));
        world.crash(after);
        world.step();
        world.step();
        let status = &world.workload(&job).status;
        let moved = status.admission.as_ref().is_none_or(|a| {
            let places = a.pod_set_assignments[0].topology_assignment.as_ref();
            places.is_some_and(|t| t.domains.iter().all(|d| d.values.last().is_some_and(|v| **v != *"n2")))
        });
        assert!(moved || unhealthy(&world, &job) == ["n2"], "after {after} writes");
    }
}

#[test]
fn pods_and_nodes_are_nothing_to_queues_without_topologies() {
    let mut world = World::new(Configuration::default());
    world.put(node("n1", "r1"));
    let plain = world
        .put(json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": "n1"},
        "status": {"phase": "Running"}}));
    world.settle();
    let before = world.controller.reconcile(world.now);
    assert_eq!(before, slicegate_controller::Effects::default());
    world.edit(&plain, |v| v["status"]["phase"] = "Succeeded".into());
    world.settle();
    assert!(world.writes.is_empty());
    assert!(world.controller.object(&plain).is_none(), "pods that have ended are not kept");
}

#[test]
fn what_others_use_of_nodes_is_counted_as_it_changes() {
    // Bug log 148. A pod of somebody else fills each node.
    let mut world = world();
    let others = ["n1", "n2", "n3"].map(|node| {
        world.put(json!({"kind": "Pod", "metadata": {"name": format!("on-{node}")}, "spec": {"nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}, "status": {"phase": "Running"}}))
    });
    let mut wanted = job("a", 2);
    wanted["spec"]["template"]["metadata"]["annotations"] = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
    let reference = world.put(wanted);
    world.settle();
    assert!(!world.has(&reference, &ConditionType::Admitted));
    let cpu = |world: &mut World, pod: &ObjectRef, cpu: &str| {
        world.edit(pod, |v| v["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into());
        world.settle();
    };
    cpu(&mut world, &others[0], "1");
    assert!(!world.has(&reference, &ConditionType::Admitted), "one of two fits");
    world.edit(&others[1], |v| v["status"]["phase"] = "Succeeded".into());
    world.settle();
    assert!(world.has(&reference, &ConditionType::Admitted), "{:?}", world.workload(&reference).status.conditions);
    let admission = world.workload(&reference).status.admission.clone().unwrap();
    let places = admission.pod_set_assignments[0].topology_assignment.clone().unwrap();
    assert_eq!(places.domains[0].values.last().map(|v| &**v), Some("n2"));
}
