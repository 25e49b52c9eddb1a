//! What other schedulers were reported to get wrong about places and second passes.

use std::collections::BTreeMap;

use slicegate_admission::{CheckSpec, Config, FairSharing, Outcome, WaitForPodsReady};
use slicegate_placement::{HOSTNAME_LABEL, Node};
use slicegate_quota::Quantity;
use slicegate_workload::{
    AdmissionCheckRule, CheckState, CheckStatus, ClusterQueueSpec, Condition, ConditionType, FlavorQuotas, FlavorSpec,
    PreemptionPolicy, ResourceGroup, ResourceQuota, Status, TopologyDomain, TopologyRequest, TopologySpec, Workload,
};

use crate::cluster::{Cluster, TPU, group, queue};
use crate::topology::{host, placed_cluster};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

fn required(level: &str) -> TopologyRequest {
    TopologyRequest { required: Some(level.into()), ..TopologyRequest::default() }
}

/// A workload of so many pods that ask for so much of each resource and lie in one domain of a level.
fn pods(cluster: &mut Cluster, name: &str, queue: &str, count: i32, each: &[(&str, i64)], level: &str) -> Workload {
    let mut workload = cluster.workload(name, queue, 0, 0);
    let pod_set = &mut workload.spec.pod_sets[0];
    pod_set.count = count;
    pod_set.topology_request = Some(required(level));
    pod_set.pod.containers[0].resources.requests =
        each.iter().map(|&(resource, amount)| (resource.into(), Quantity::from_units(amount))).collect();
    workload
}

/// The hosts of a workload and how many pods are on each, pod set by pod set.
fn places(cluster: &Cluster, name: &str) -> Vec<(String, i32)> {
    let admission = cluster.get(name).status.admission.as_ref();
    let assignments = admission.iter().flat_map(|a| &a.pod_set_assignments);
    let domains = assignments.flat_map(|a| a.topology_assignment.iter().flat_map(|t| &t.domains));
    domains.map(|d: &TopologyDomain| (d.values.join("/"), d.count)).collect()
}

fn at(hosts: &[(&str, i32)]) -> Vec<(String, i32)> {
    hosts.iter().map(|&(host, count)| (host.to_owned(), count)).collect()
}

/// A host with several resources.
fn mixed_host(name: &str, rack: &str, each: &[(&str, i64)]) -> Node {
    let mut node = host(name, rack, 0);
    for &(resource, amount) in each {
        // Millis of cpu, as placement counts it.
        node.allocatable.set(resource, if resource == CPU { amount * 1000 } else { amount });
    }
    node
}

/// A resource group of one flavor.
fn quotas(flavor: &str, each: &[(&str, i64)]) -> ResourceGroup {
    let quota = |amount| ResourceQuota { nominal: Quantity::from_units(amount), ..ResourceQuota::default() };
    ResourceGroup {
        covered_resources: each.iter().map(|&(resource, _)| resource.into()).collect(),
        flavors: vec![FlavorQuotas {
            name: flavor.into(),
            resources: each.iter().map(|&(resource, amount)| (resource.into(), quota(amount))).collect(),
        }],
    }
}

fn queue_of(name: &str, groups: Vec<ResourceGroup>) -> ClusterQueueSpec {
    ClusterQueueSpec { resource_groups: groups, ..queue(name, None, 0, PreemptionPolicy::default()) }
}

/// The condition PodsReady as the job's controller writes it.
fn pods_ready(cluster: &mut Cluster, name: &str, ready: bool) {
    let (now, status) = (cluster.now, if ready { Status::True } else { Status::False });
    cluster.change(name, |w| {
        w.status.conditions.set(Condition {
            kind: ConditionType::PodsReady,
            status,
            reason: if ready { "Started" } else { "WaitForRecovery" }.into(),
            message: "".into(),
            last_transition: now,
            observed_generation: w.generation,
        });
    });
}

fn fail(cluster: &mut Cluster, workload: &str, node: &str) {
    cluster.engine.remove_node(cluster.now, node);
    cluster.change(workload, |w| w.status.unhealthy_nodes = vec![node.into()]);
}

#[test]
fn a_job_with_several_resources_counts_once_on_its_node() {
    let each = [(CPU, 2), (MEMORY, 2), (TPU, 2)];
    let mut cluster = placed_cluster(Config::new(), 100);
    cluster.queue(queue_of("q", vec![quotas("placed", &[(CPU, 100), (MEMORY, 100), (TPU, 100)])]));
    cluster.engine.set_node(cluster.now, mixed_host("a", "r", &[(CPU, 4), (MEMORY, 4), (TPU, 4)]));
    for name in ["first", "second", "third"] {
        let workload = pods(&mut cluster, name, "q", 1, &each, HOSTNAME_LABEL);
        cluster.put(workload);
    }
    cluster.settle(60);
    assert_eq!(cluster.running(), ["first", "second"]);
    let (_, message) = cluster.waits("third").unwrap();
    assert!(message.contains("doesn't allow to fit any of 1 pod(s). Total nodes: 1; excluded: resource"), "{message}");
    cluster.finish("first");
    cluster.settle(60);
    assert_eq!(cluster.running(), ["second", "third"]);
}

#[test]
fn usage_outlives_a_topology_and_a_flavor_that_are_made_anew() {
    let mut cluster = placed_cluster(Config::new(), 100);
    let now = cluster.now;
    for (name, rack) in [("a", "r1"), ("b", "r2")] {
        cluster.engine.set_node(now, host(name, rack, 4));
    }
    let runs = pods(&mut cluster, "runs", "q", 1, &[(TPU, 4)], "rack");
    cluster.put(runs);
    cluster.settle(20);
    assert_eq!(places(&cluster, "runs"), at(&[("a", 1)]));
    let levels = vec!["rack".into(), HOSTNAME_LABEL.into()];
    let topology = TopologySpec { name: "racks".into(), levels };
    let flavor = FlavorSpec {
        name: "placed".into(),
        node_labels: [("pool".into(), "tpu".into())].into(),
        topology: Some("racks".into()),
        ..FlavorSpec::default()
    };
    cluster.engine.remove_topology(now, "racks");
    cluster.engine.set_topology(now, topology.clone());
    let second = pods(&mut cluster, "second", "q", 1, &[(TPU, 4)], "rack");
    cluster.put(second);
    cluster.settle(20);
    assert_eq!(places(&cluster, "second"), at(&[("b", 1)]), "the other node is in use");
    cluster.engine.remove_flavor(now, "placed");
    cluster.engine.remove_topology(now, "racks");
    cluster.settle(20);
    cluster.engine.set_topology(now, topology);
    cluster.engine.set_flavor(now, flavor);
    let third = pods(&mut cluster, "third", "q", 1, &[(TPU, 4)], "rack");
    cluster.put(third);
    cluster.settle(40);
    assert_eq!(cluster.running(), ["runs", "second"]);
    assert!(cluster.engine.overcommitted_nodes().is_empty());
    cluster.finish("second");
    cluster.settle(40);
    assert_eq!(places(&cluster, "third"), at(&[("b", 1)]));
}

#[test]
fn a_pod_set_over_two_topologies_waits_with_a_reason() {
    let mut cluster = placed_cluster(Config::new(), 100);
    cluster.engine.set_flavor(
        cluster.now,
        FlavorSpec { name: "other".into(), topology: Some("racks".into()), ..FlavorSpec::default() },
    );
    cluster.queue(queue_of("q", vec![quotas("placed", &[(TPU, 100)]), quotas("other", &[(CPU, 100)])]));
    cluster.engine.set_node(cluster.now, mixed_host("a", "r", &[(CPU, 4), (TPU, 4)]));
    let both = pods(&mut cluster, "both", "q", 1, &[(CPU, 1), (TPU, 1)], "rack");
    cluster.put(both);
    let one = pods(&mut cluster, "one", "q", 1, &[(TPU, 1)], "rack");
    cluster.put(one);
    cluster.settle(40);
    assert_eq!(cluster.running(), ["one"], "only what has a place is admitted");
    let (reason, message) = cluster.waits("both").unwrap();
    assert_eq!((reason, message.is_empty()), ("NoMatchingFlavor", false), "{message}");
}

#[test]
fn one_spare_node_replaces_one_node() {
    for fair in [None, Some(FairSharing::default())] {
        let mut cluster = placed_cluster(Config { fair_sharing: fair, ..Config::new() }, 100);
        cluster.queue(queue_of("q2", vec![group("placed", 100)]));
        for name in ["a", "b"] {
            cluster.engine.set_node(cluster.now, host(name, "r", 4));
        }
        let mut names = Vec::new();
        for (name, queue) in [("first", "q"), ("second", "q2")] {
            let workload = pods(&mut cluster, name, queue, 1, &[(TPU, 4)], "rack");
            cluster.put(workload);
            names.push(name);
        }
        cluster.settle(40);
        assert_eq!((places(&cluster, "first"), places(&cluster, "second")), (at(&[("a", 1)]), at(&[("b", 1)])));
        // Both nodes fail at once, and one node is spare.
        cluster.engine.set_node(cluster.now, host("c", "r", 4));
        fail(&mut cluster, "first", "a");
        fail(&mut cluster, "second", "b");
        cluster.log.clear();
        cluster.settle(40);
        assert!(cluster.engine.overcommitted_nodes().is_empty());
        assert_eq!(cluster.running().len(), 1, "{:?}", cluster.log);
        assert_eq!(cluster.log.iter().filter(|l| l.starts_with("evicted")).count(), 1, "{:?}", cluster.log);
        let there = names.iter().filter(|name| places(&cluster, name) == at(&[("c", 1)])).count();
        assert_eq!(there, 1);
    }
}

#[test]
fn a_second_pass_needs_no_more_quota_than_the_first() {
    let mut cluster = placed_cluster(Config::new(), 100);
    let check =
        CheckSpec { name: "dws".into(), controller: "kueue.x-k8s.io/provisioning-request".into(), active: true };
    cluster.engine.set_admission_check(cluster.now, check);
    cluster.queue(ClusterQueueSpec {
        admission_checks: vec![AdmissionCheckRule { name: "dws".into(), on_flavors: Vec::new() }],
        ..queue_of("q", vec![quotas("placed", &[(CPU, 4), (MEMORY, 8)])])
    });
    let workload = pods(&mut cluster, "w", "q", 2, &[(CPU, 2), (MEMORY, 4)], "rack");
    cluster.put(workload);
    cluster.settle(20);
    assert!(cluster.get("w").has_quota_reservation() && !cluster.get("w").is_admitted());
    for name in ["a", "b"] {
        cluster.engine.set_node(cluster.now, mixed_host(name, "r", &[(CPU, 2), (MEMORY, 4)]));
    }
    provisioned(&mut cluster, "w");
    cluster.settle(20);
    assert_eq!(places(&cluster, "w"), at(&[("a", 1), ("b", 1)]));
    assert!(cluster.get("w").is_admitted());
}

fn provisioned(cluster: &mut Cluster, name: &str) {
    cluster.change(name, |w| {
        let ready = CheckStatus { name: "dws".into(), state: CheckState::Ready, ..CheckStatus::default() };
        w.status.admission_checks = vec![ready];
    });
}

#[test]
fn the_flavor_that_is_provisioned_is_used_when_the_reserved_one_is_full() {
    let mut cluster = placed_cluster(Config::new(), 0);
    let now = cluster.now;
    let labels = |pool: &str| -> BTreeMap<Box<str>, Box<str>> { [("pool".into(), pool.into())].into() };
    for name in ["reserved", "flex"] {
        let spec = FlavorSpec {
            name: name.into(),
            node_labels: labels(name),
            topology: Some("racks".into()),
            ..FlavorSpec::default()
        };
        cluster.engine.set_flavor(now, spec);
    }
    let check =
        CheckSpec { name: "dws".into(), controller: "kueue.x-k8s.io/provisioning-request".into(), active: true };
    cluster.engine.set_admission_check(now, check);
    let flavors = [("reserved", 4), ("flex", 8)].map(|(name, chips)| group(name, chips).flavors.remove(0));
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![ResourceGroup { covered_resources: vec![TPU.into()], flavors: flavors.to_vec() }],
        admission_checks: vec![AdmissionCheckRule { name: "dws".into(), on_flavors: vec!["flex".into()] }],
        ..queue("q", None, 0, PreemptionPolicy::default())
    });
    let pool = |name: &str, pool: &str| {
        let mut node = host(name, "r", 4);
        node.labels.insert("pool".into(), pool.into());
        node
    };
    cluster.engine.set_node(now, pool("a", "reserved"));
    for name in ["first", "second"] {
        let workload = pods(&mut cluster, name, "q", 1, &[(TPU, 4)], "rack");
        cluster.put(workload);
    }
    cluster.settle(40);
    assert_eq!(places(&cluster, "first"), at(&[("a", 1)]), "reserved capacity first, at once");
    assert!(cluster.get("first").is_admitted());
    let given = cluster.get("second").status.admission.as_ref().unwrap();
    assert_eq!(given.pod_set_assignments[0].flavors.values().next().map(|f| &**f), Some("flex"));
    assert!(places(&cluster, "second").is_empty() && !cluster.get("second").is_admitted());
    cluster.engine.set_node(cluster.now, pool("b", "flex"));
    provisioned(&mut cluster, "second");
    cluster.settle(40);
    assert_eq!(places(&cluster, "second"), at(&[("b", 1)]));
    assert!(cluster.get("second").is_admitted());
}

#[test]
fn heads_that_want_the_same_node_are_placed_in_one_cycle() {
    let mut cluster = placed_cluster(Config::new(), 100);
    for name in ["q2", "q3"] {
        cluster.queue(queue_of(name, vec![group("placed", 100)]));
    }
    for name in ["a", "b", "c"] {
        cluster.engine.set_node(cluster.now, host(name, "r", 4));
    }
    for (name, queue) in [("first", "q"), ("second", "q2"), ("third", "q3")] {
        let workload = pods(&mut cluster, name, queue, 1, &[(TPU, 4)], HOSTNAME_LABEL);
        cluster.put(workload);
    }
    let cycle = cluster.cycle();
    let admitted = cycle.entries.iter().filter(|e| matches!(e.outcome, Outcome::Admitted { .. })).count();
    assert_eq!(admitted, 3, "{:?}", cycle.entries);
    assert_eq!(
        ["first", "second", "third"].map(|w| places(&cluster, w)),
        [("a", 1), ("b", 1), ("c", 1)].map(|p| at(&[p]))
    );
}

#[test]
fn what_does_not_count_as_quota_still_needs_a_place() {
    let config = Config { excluded_resource_prefixes: vec!["example.com/".into()], ..Config::new() };
    let mut cluster = placed_cluster(config, 100);
    cluster.engine.set_node(cluster.now, mixed_host("a", "r", &[(TPU, 8), ("example.com/fast", 1)]));
    for name in ["first", "second"] {
        let workload = pods(&mut cluster, name, "q", 1, &[(TPU, 1), ("example.com/fast", 1)], HOSTNAME_LABEL);
        cluster.put(workload);
    }
    cluster.settle(40);
    assert_eq!(cluster.running(), ["first"]);
    let usage = &cluster.get("first").status.admission.as_ref().unwrap().pod_set_assignments[0].resource_usage;
    assert!(usage.keys().all(|resource| &**resource == TPU), "{usage:?}");
    let (_, message) = cluster.waits("second").unwrap();
    assert!(message.contains("resource \"example.com/fast\": 1"), "{message}");
    assert!(cluster.engine.overcommitted_nodes().is_empty());
}

#[test]
fn a_replacement_waits_for_nobodys_pods() {
    for fair in [None, Some(FairSharing::default())] {
        let waits = WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() };
        let mut cluster =
            placed_cluster(Config { wait_for_pods_ready: Some(waits), fair_sharing: fair, ..Config::new() }, 100);
        cluster.queue(queue_of("q2", vec![group("placed", 100)]));
        for name in ["a", "b", "c", "d"] {
            cluster.engine.set_node(cluster.now, host(name, "r", 4));
        }
        let runs = pods(&mut cluster, "runs", "q", 1, &[(TPU, 4)], "rack");
        cluster.put(runs);
        cluster.settle(20);
        pods_ready(&mut cluster, "runs", true);
        // Two that wait: one admitted whose pods are not ready yet, and one behind it.
        for (name, queue) in [("starts", "q2"), ("waits", "q")] {
            let workload = pods(&mut cluster, name, queue, 1, &[(TPU, 4)], "rack");
            cluster.put(workload);
            cluster.settle(20);
        }
        assert_eq!(cluster.running(), ["runs", "starts"]);
        assert_eq!(cluster.waits("waits").unwrap().0, "WaitingForPodsReady");
        pods_ready(&mut cluster, "runs", false);
        fail(&mut cluster, "runs", "a");
        cluster.log.clear();
        assert!(
            cluster.engine.next_wake().is_some_and(|due| cluster.engine.has_heads(due)),
            "there is something to do"
        );
        cluster.settle(20);
        assert_eq!(cluster.log, ["admitted runs"], "it keeps its reservation and gets another node");
        assert_eq!(places(&cluster, "runs"), at(&[("c", 1)]));
        assert!(cluster.get("runs").is_admitted());
        assert!(cluster.get("runs").status.unhealthy_nodes.is_empty());
        assert_eq!(cluster.running(), ["runs", "starts"]);
        for name in ["runs", "starts"] {
            pods_ready(&mut cluster, name, true);
        }
        cluster.settle(20);
        assert_eq!(cluster.running(), ["runs", "starts", "waits"]);
    }
}
