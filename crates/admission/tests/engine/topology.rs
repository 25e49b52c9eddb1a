//! Nodes, and workloads that are placed on them.

use slicegate_admission::lifecycle::REPLACEMENT_ANNOTATION;
use slicegate_admission::{Cause, CheckSpec, Config, Engine, Outcome, Written};
use slicegate_placement::{HOSTNAME_LABEL, Node};
use slicegate_workload::{
    AdmissionCheckRule, CheckState, CheckStatus, ClusterQueueSpec, ConditionType, FlavorSpec, Key, PodSet,
    PodSetUpdate, PreemptionPolicy, Timestamp, TopologyDomain, TopologyRequest, TopologySpec, WithinClusterQueuePolicy,
    Workload,
};

use crate::cluster::{Cluster, NAMESPACE, TPU, group, queue};

/// A host with chips, in a rack.
pub(crate) fn host(name: &str, rack: &str, chips: i64) -> Node {
    Node {
        name: name.into(),
        labels: [(HOSTNAME_LABEL.into(), name.into()), ("rack".into(), rack.into()), ("pool".into(), "tpu".into())]
            .into(),
        ready: true,
        allocatable: [(TPU, chips), ("pods", 32)].into_iter().collect(),
        ..Node::default()
    }
}

/// A cluster with a flavor `placed` whose nodes have racks and hosts, and one ClusterQueue `q` of it.
pub(crate) fn placed_cluster(config: Config, chips: i64) -> Cluster {
    let mut cluster = Cluster::new(config);
    let now = cluster.now;
    cluster
        .engine
        .set_topology(now, TopologySpec { name: "racks".into(), levels: vec!["rack".into(), HOSTNAME_LABEL.into()] });
    cluster.engine.set_flavor(
        now,
        FlavorSpec {
            name: "placed".into(),
            node_labels: [("pool".into(), "tpu".into())].into(),
            topology: Some("racks".into()),
            ..FlavorSpec::default()
        },
    );
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("placed", chips)],
        ..queue("q", None, 0, PreemptionPolicy::default())
    });
    cluster
}

/// Whether something is about to be looked at again.
fn wakes(engine: &mut Engine, now: Timestamp, event: impl FnOnce(&mut Engine, Timestamp)) -> bool {
    engine.flush(now);
    assert_eq!(engine.next_wake(), None);
    event(engine, now);
    engine.next_wake().is_some()
}

#[test]
fn nodes_and_pods_that_matter_let_parked_workloads_be_looked_at_again() {
    let mut cluster = placed_cluster(Config::new(), 8);
    let now = cluster.now;
    let engine = &mut cluster.engine;
    let other = Node { labels: [("pool".into(), "cpu".into())].into(), ..host("z", "r", 4) };
    assert!(!wakes(engine, now, |e, now| e.set_node(now, other)), "not of the flavor");
    assert!(wakes(engine, now, |e, now| e.set_node(now, host("a", "r", 4))));
    assert!(!wakes(engine, now, |e, now| e.set_node(now, host("a", "r", 4))), "as it was");
    assert!(wakes(engine, now, |e, now| e.set_node(now, host("a", "r", 8))));
    assert!(wakes(engine, now, |e, now| e.set_node(now, Node { unschedulable: true, ..host("a", "r", 8) })));
    let relabeled = Node { labels: [("pool".into(), "cpu".into())].into(), ..host("a", "r", 8) };
    assert!(wakes(engine, now, |e, now| e.set_node(now, relabeled)), "it was of the flavor");
    assert!(wakes(engine, now, |e, now| e.set_node(now, host("a", "r", 8))));

    let pod = Key::new("kube-system", "dns");
    let chips = |n: i64| [(TPU, n)].into_iter().collect();
    assert!(!wakes(engine, now, |e, now| e.set_other_pod(now, &pod, "a", chips(4))), "it takes room");
    assert!(!wakes(engine, now, |e, now| e.set_other_pod(now, &pod, "a", chips(5))));
    assert!(wakes(engine, now, |e, now| e.set_other_pod(now, &pod, "a", chips(1))), "it shrank");
    assert!(wakes(engine, now, |e, now| e.set_other_pod(now, &pod, "z", chips(1))), "it moved");
    assert!(!wakes(engine, now, |e, now| e.remove_other_pod(now, &pod)), "nobody is placed there");
    engine.set_other_pod(now, &pod, "a", chips(1));
    assert!(wakes(engine, now, |e, now| e.remove_other_pod(now, &pod)));
    assert!(!wakes(engine, now, |e, now| e.remove_other_pod(now, &pod)));
    assert!(wakes(engine, now, |e, now| e.remove_node(now, "a")));
    assert!(!wakes(engine, now, |e, now| e.remove_node(now, "a")));
}

/// A workload whose pods ask for so many chips each and lie in one domain of a level.
fn pods(cluster: &mut Cluster, name: &str, count: i32, chips: i64, level: &str) -> Workload {
    let mut workload = cluster.workload(name, "q", chips, 0);
    workload.spec.pod_sets[0].count = count;
    workload.spec.pod_sets[0].topology_request =
        Some(TopologyRequest { required: Some(level.into()), ..TopologyRequest::default() });
    workload
}

/// Hosts and pods of a workload's first pod set.
fn places(cluster: &Cluster, name: &str) -> Vec<(String, i32)> {
    let admission = cluster.get(name).status.admission.as_ref();
    let assignment = admission.and_then(|a| a.pod_set_assignments[0].topology_assignment.as_ref());
    let domain = |d: &TopologyDomain| (d.values.join("/"), d.count);
    assignment.map(|a| a.domains.iter().map(domain).collect()).unwrap_or_default()
}

fn place(hosts: &[(&str, i32)]) -> Vec<(String, i32)> {
    hosts.iter().map(|&(host, count)| (host.to_owned(), count)).collect()
}

/// Two racks of two hosts with four chips each.
fn four_hosts(config: Config) -> Cluster {
    let mut cluster = placed_cluster(config, 100);
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2")] {
        cluster.engine.set_node(cluster.now, host(name, rack, 4));
    }
    cluster
}

fn by_priority(cluster: &mut Cluster) {
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("placed", 100)],
        preemption: PreemptionPolicy {
            within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
            ..PreemptionPolicy::default()
        },
        ..queue("q", None, 0, PreemptionPolicy::default())
    });
}

#[test]
fn pods_are_placed_and_counted_until_they_are_gone() {
    let mut cluster = four_hosts(Config::new());
    let first = pods(&mut cluster, "first", 2, 4, "rack");
    let second = pods(&mut cluster, "second", 2, 4, "rack");
    let third = pods(&mut cluster, "third", 2, 4, "rack");
    for w in [first, second, third] {
        cluster.put(w);
    }
    cluster.settle(40);
    assert_eq!(places(&cluster, "first"), place(&[("a", 1), ("b", 1)]));
    assert_eq!(places(&cluster, "second"), place(&[("c", 1), ("d", 1)]));
    let (reason, message) = cluster.waits("third").unwrap();
    assert_eq!(reason, "WaitingForQuota");
    assert!(
        message
            .contains("doesn't allow to fit any of 2 pod(s). Total nodes: 4; excluded: resource \"google.com/tpu\": 4")
    );
    cluster.finish("first");
    cluster.settle(40);
    assert_eq!(places(&cluster, "third"), place(&[("a", 1), ("b", 1)]));
}

#[test]
fn what_is_placed_still_counts_when_trees_are_made_anew() {
    let mut cluster = four_hosts(Config::new());
    let first = pods(&mut cluster, "first", 2, 4, "rack");
    cluster.put(first);
    cluster.settle(40);
    // A node comes, one that is in use goes and comes back with fewer chips, and another pod takes from the rest.
    let now = cluster.now;
    cluster.engine.set_node(now, host("e", "r2", 4));
    cluster.engine.set_other_pod(now, &Key::new("x", "y"), "c", [(TPU, 1)].into_iter().collect());
    let second = pods(&mut cluster, "second", 3, 4, "rack");
    cluster.put(second);
    cluster.settle(40);
    assert!(cluster.waits("second").is_some(), "r2 has two whole hosts, r1 none");
    cluster.engine.remove_node(now, "a");
    cluster.settle(40);
    assert!(cluster.engine.overcommitted_nodes().is_empty());
    cluster.engine.set_node(now, host("a", "r1", 2));
    cluster.settle(40);
    assert_eq!(cluster.engine.overcommitted_nodes(), [("placed".into(), "a".into(), TPU.into())]);
    cluster.engine.remove_other_pod(now, &Key::new("x", "y"));
    cluster.settle(40);
    assert_eq!(places(&cluster, "second"), place(&[("c", 1), ("d", 1), ("e", 1)]));
    // A restarted engine reads the places from the API.
    assert_eq!(places(&cluster, "first"), place(&[("a", 1), ("b", 1)]));
}

#[test]
fn a_cycle_does_not_fill_a_node_twice() {
    for guard in [true, false] {
        let mut cluster = placed_cluster(Config { node_guard: guard, ..Config::new() }, 100);
        cluster.queue(ClusterQueueSpec {
            resource_groups: vec![group("placed", 100)],
            ..queue("q2", None, 0, PreemptionPolicy::default())
        });
        // A host that takes two pods, and two pods at the head of each ClusterQueue.
        let mut small = host("a", "r1", 8);
        small.allocatable.set("pods", 2);
        cluster.engine.set_node(cluster.now, small);
        let first = pods(&mut cluster, "first", 2, 1, "rack");
        let mut second = pods(&mut cluster, "second", 2, 1, "rack");
        second.spec.queue_name = "q2".into();
        cluster.put(first);
        cluster.put(second);
        cluster.settle(40);
        let running = if guard { vec!["first"] } else { vec!["first", "second"] };
        assert_eq!(cluster.running(), running);
        assert_eq!(cluster.engine.overcommitted_nodes().is_empty(), guard);
    }
}

#[test]
fn victims_are_those_whose_going_makes_a_place() {
    let mut cluster = four_hosts(Config::new());
    by_priority(&mut cluster);
    for name in ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"] {
        let mut w = pods(&mut cluster, name, 1, 2, HOSTNAME_LABEL);
        w.spec.priority = i32::from(name == "w1");
        cluster.put(w);
        cluster.now = cluster.now.plus_seconds(1);
        cluster.cycle();
    }
    assert_eq!(cluster.running().len(), 8);
    let neighbour = places(&cluster, "w1");
    let mut big = pods(&mut cluster, "big", 1, 4, HOSTNAME_LABEL);
    big.spec.priority = 1;
    cluster.put(big);
    cluster.log.clear();
    cluster.settle(40);
    // The latest pair that shares a host has to go, nobody else.
    assert_eq!(cluster.log.iter().filter(|l| l.starts_with("evicted")).count(), 2, "{:?}", cluster.log);
    assert_ne!(places(&cluster, "big")[0].0, neighbour[0].0);
    // With nobody to preempt that would help, nobody is preempted.
    let mut huge = pods(&mut cluster, "huge", 2, 4, "rack");
    huge.spec.priority = 1;
    let protected: Vec<String> = ["w1", "big"].iter().map(|n| places(&cluster, n)[0].0.clone()).collect();
    if protected.iter().any(|h| "ab".contains(h.as_str())) && protected.iter().any(|h| "cd".contains(h.as_str())) {
        cluster.put(huge);
        cluster.log.clear();
        cluster.settle(60);
        assert!(cluster.log.iter().all(|l| !l.starts_with("evicted")), "{:?}", cluster.log);
    }
}

#[test]
fn a_pod_set_without_a_place_in_an_empty_cluster_has_a_reason() {
    let mut cluster = four_hosts(Config::new());
    let running = pods(&mut cluster, "running", 2, 4, "rack");
    cluster.put(running);
    cluster.settle(40);
    // The first pod set has no place now, the second would not have one ever.
    let mut w = pods(&mut cluster, "w", 4, 4, "rack");
    w.spec.pod_sets[0].count = 2;
    w.spec.pod_sets[0].topology_request =
        Some(TopologyRequest { required: Some("rack".into()), ..TopologyRequest::default() });
    let mut second = w.spec.pod_sets[0].clone();
    second.name = "second".into();
    second.count = 3;
    w.spec.pod_sets.insert(0, PodSet { name: "first".into(), count: 2, ..second.clone() });
    w.spec.pod_sets[1] = PodSet { name: "second".into(), ..second };
    cluster.put(w);
    cluster.settle(40);
    let (reason, _) = cluster.waits("w").unwrap();
    assert_eq!(reason, "TopologyPlacementFailed");
    let cause = cluster.engine.why(cluster.now, &Key::new(NAMESPACE, "w")).unwrap().cause;
    assert_eq!(cause, Cause::TopologyPlacementFailed);
}

/// The node of a running workload fails.
fn fail(cluster: &mut Cluster, workload: &str, node: &str) {
    cluster.engine.remove_node(cluster.now, node);
    cluster.change(workload, |w| w.status.unhealthy_nodes = vec![node.into()]);
}

#[test]
fn a_failed_node_is_replaced() {
    let mut cluster = four_hosts(Config::new());
    let w = pods(&mut cluster, "w", 2, 2, "rack");
    cluster.put(w);
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("a", 2)]));
    fail(&mut cluster, "w", "a");
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("b", 2)]));
    assert!(cluster.get("w").is_admitted() && cluster.get("w").status.unhealthy_nodes.is_empty());
}

#[test]
fn without_a_replacement_a_workload_is_evicted_once() {
    let mut cluster = four_hosts(Config::new());
    cluster.stops_at_once = false;
    let w = pods(&mut cluster, "w", 4, 2, "rack");
    cluster.put(w);
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("a", 2), ("b", 2)]));
    fail(&mut cluster, "w", "b");
    cluster.log.clear();
    cluster.settle(40);
    assert_eq!(cluster.log, ["evicted w for nobody"]);
    let evicted = cluster.condition("w", &ConditionType::Evicted).unwrap();
    assert_eq!(&*evicted.reason, "NodeFailures");
    assert_eq!(&*evicted.message, "Workload was evicted as there was no replacement for unhealthy node(s): b");
    cluster.stop_evicted();
    cluster.stops_at_once = true;
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("c", 2), ("d", 2)]), "the other rack takes it");
}

#[test]
fn without_failing_fast_a_replacement_is_looked_for_with_back_off() {
    let mut config = Config::new();
    config.gates.set("TASFailedNodeReplacementFailFast", false).unwrap();
    let mut cluster = four_hosts(config);
    let w = pods(&mut cluster, "w", 4, 2, "rack");
    cluster.put(w);
    cluster.settle(40);
    fail(&mut cluster, "w", "b");
    let start = cluster.now;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let due = cluster.engine.next_wake().unwrap();
        waits.push(due.micros_since(cluster.now) / 1_000_000);
        cluster.now = due;
        let cycle = cluster.cycle();
        let failed = cycle.entries.iter().any(|e| e.events.iter().any(|e| &*e.reason == "SecondPassFailed"));
        assert!(failed || waits.len() == 1, "{:?}", cycle.entries);
    }
    assert!(cluster.now > start && cluster.get("w").is_admitted());
    assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
    cluster.engine.set_node(cluster.now, host("e", "r1", 4));
    cluster.now = cluster.now.plus_seconds(40);
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("a", 2), ("e", 2)]));
}

#[test]
fn a_replacement_that_is_not_written_is_tried_again() {
    let mut cluster = four_hosts(Config::new());
    let w = pods(&mut cluster, "w", 2, 2, "rack");
    cluster.put(w);
    cluster.settle(40);
    fail(&mut cluster, "w", "a");
    cluster.now = cluster.now.plus_seconds(5);
    let cycle = cluster.engine.cycle(cluster.now);
    assert!(matches!(cycle.entries[0].outcome, Outcome::Admitted { .. }));
    cluster.engine.admission_written(cluster.now, &cycle.entries[0].workload, Written::Failed);
    cluster.check("after a failed write");
    assert_eq!(cluster.engine.cluster_queue("q").unwrap().reserving, 1, "it still holds what it held");
    cluster.now = cluster.now.plus_seconds(5);
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("b", 2)]));
}

#[test]
fn places_are_found_once_capacity_was_provisioned() {
    let mut cluster = placed_cluster(Config::new(), 100);
    cluster.engine.set_admission_check(
        cluster.now,
        CheckSpec { name: "dws".into(), controller: "kueue.x-k8s.io/provisioning-request".into(), active: true },
    );
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("placed", 100)],
        admission_checks: vec![AdmissionCheckRule { name: "dws".into(), on_flavors: Vec::new() }],
        ..queue("q", None, 0, PreemptionPolicy::default())
    });
    let w = pods(&mut cluster, "w", 2, 4, "rack");
    cluster.put(w);
    cluster.settle(40);
    let given = &cluster.get("w").status.admission.as_ref().unwrap().pod_set_assignments[0];
    assert_eq!((given.topology_assignment.is_none(), given.delayed_topology_pending), (true, Some(true)));
    for (name, pool) in [("a", "other"), ("b", "mine"), ("c", "mine")] {
        let mut node = host(name, "r", 4);
        node.labels.insert("provisioned".into(), pool.into());
        cluster.engine.set_node(cluster.now, node);
    }
    cluster.change("w", |w| {
        w.status.admission_checks = vec![CheckStatus {
            name: "dws".into(),
            state: CheckState::Ready,
            pod_set_updates: vec![PodSetUpdate {
                name: "main".into(),
                node_selector: [("provisioned".into(), "mine".into())].into(),
                ..PodSetUpdate::default()
            }],
            ..CheckStatus::default()
        }];
    });
    assert!(!cluster.get("w").is_admitted());
    cluster.settle(40);
    assert_eq!(places(&cluster, "w"), place(&[("b", 1), ("c", 1)]), "on what was provisioned for it");
    assert!(cluster.get("w").is_admitted());
}

#[test]
fn a_slice_that_replaces_another_keeps_its_places() {
    let mut config = Config::new();
    config.gates.set("ElasticJobsViaWorkloadSlicesWithTAS", true).unwrap();
    let mut cluster = four_hosts(config);
    let elastic = |cluster: &mut Cluster, name: &str, count: i32| {
        let mut w = pods(cluster, name, count, 4, "rack");
        w.spec.pod_sets[0].topology_request =
            Some(TopologyRequest { unconstrained: Some(true), ..TopologyRequest::default() });
        w.annotations.insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
        w
    };
    let small = elastic(&mut cluster, "small", 2);
    cluster.put(small);
    cluster.settle(40);
    assert_eq!(places(&cluster, "small"), place(&[("a", 1), ("b", 1)]));
    // All four hosts are needed, two of which the slice that is replaced still has.
    let mut large = elastic(&mut cluster, "large", 4);
    large.annotations.insert(REPLACEMENT_ANNOTATION.into(), format!("{NAMESPACE}/small").into());
    cluster.put(large);
    cluster.settle(40);
    assert_eq!(places(&cluster, "large"), place(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]));
    assert!(cluster.get("small").is_finished());
    assert!(cluster.engine.overcommitted_nodes().is_empty());
}

/// Kueue's rule: the new slice is placed as a whole, wherever the pods of the old one are.
#[test]
fn where_the_pods_of_a_grown_job_are_counts_only_with_the_gate() {
    for (gate, want) in [(true, "b"), (false, "a")] {
        let mut config = Config::new();
        config.gates.set("ElasticJobsViaWorkloadSlicesWithTAS", gate).unwrap();
        let mut cluster = four_hosts(config);
        let first = pods(&mut cluster, "first", 1, 4, HOSTNAME_LABEL);
        cluster.put(first);
        let elastic = |cluster: &mut Cluster, name: &str, count: i32| {
            let mut w = pods(cluster, name, count, 2, HOSTNAME_LABEL);
            w.spec.pod_sets[0].topology_request =
                Some(TopologyRequest { unconstrained: Some(true), ..TopologyRequest::default() });
            w.annotations.insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
            w
        };
        let small = elastic(&mut cluster, "small", 1);
        cluster.put(small);
        cluster.settle(40);
        assert_eq!((places(&cluster, "first"), places(&cluster, "small")), (place(&[("a", 1)]), place(&[("b", 1)])));
        cluster.finish("first");
        let mut large = elastic(&mut cluster, "large", 2);
        large.annotations.insert(REPLACEMENT_ANNOTATION.into(), format!("{NAMESPACE}/small").into());
        cluster.put(large);
        cluster.settle(40);
        assert_eq!(places(&cluster, "large"), place(&[(want, 2)]));
    }
}

#[test]
fn flavors_over_the_same_nodes_see_each_other() {
    let mut cluster = placed_cluster(Config::new(), 100);
    cluster.engine.set_flavor(
        cluster.now,
        FlavorSpec { name: "twin".into(), topology: Some("racks".into()), ..FlavorSpec::default() },
    );
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("twin", 100)],
        ..queue("q2", None, 0, PreemptionPolicy::default())
    });
    cluster.engine.set_node(cluster.now, host("a", "r1", 4));
    let first = pods(&mut cluster, "first", 1, 4, "rack");
    let mut second = pods(&mut cluster, "second", 1, 4, "rack");
    second.spec.queue_name = "q2".into();
    cluster.put(first);
    cluster.put(second);
    cluster.settle(40);
    assert_eq!(cluster.running(), ["first"]);
    // Nothing that was freed is quota of its own tree; a while later it is looked at again all the same.
    cluster.finish("first");
    cluster.settle(40);
    assert_eq!(cluster.running(), Vec::<&str>::new());
    cluster.now = cluster.now.plus_seconds(60);
    cluster.settle(40);
    assert_eq!(places(&cluster, "second"), place(&[("a", 1)]));
}
