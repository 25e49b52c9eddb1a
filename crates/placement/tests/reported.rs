//! Placements that other schedulers were reported to get wrong.

mod common;

use common::*;
use slicegate_placement::{Features, OtherPods, PlacementUsage, Reach};
use slicegate_workload::{
    NodeAffinity, Operator, PodSpec, Requirement, SelectorTerm, Taint, TaintEffect, Toleration, TolerationOperator,
    TopologyRequest,
};

fn place(nodes: &str, count: i32, topology: TopologyRequest) -> String {
    World::new(nodes, Features::default()).place(&PodSet::new(count, topology))
}

#[test]
fn every_resource_of_a_pod_is_counted_once() {
    let mut world = World::new("x1:4,4", Features::default());
    let pod = PodSet { cpu: 2, gpu: 2, ..PodSet::new(1, required(HOST)) };
    let one = world.pod(2, 2);
    let usage = world.topologies.usage(world.flavor("f"), &assignment("x1:1"), &one);
    world.topologies.add(&usage, Reach::Node);
    assert_eq!(world.place(&pod), "x1:1", "half of each is left");
    world.topologies.add(&usage, Reach::Node);
    let reason = world.place(&pod);
    assert!(reason.starts_with("topology \"default\" doesn't allow to fit any of 1 pod(s)"), "{reason}");
    world.topologies.take_away(&usage, Reach::Node);
    world.topologies.take_away(&usage, Reach::Node);
    assert_eq!(world.place(&PodSet { count: 2, ..pod }), "x1:2", "what was given back is free");
}

#[test]
fn a_tainted_node_is_left_out_and_named_unless_the_taint_is_tolerated() {
    let mut tainted = nodes("x1:2 x2:2");
    tainted[0].taints = vec![Taint { key: "repair".into(), value: "".into(), effect: TaintEffect::NoSchedule }];
    let mut world = World::empty();
    world.set("f", &[HOST], &tainted, &OtherPods::new());
    assert_eq!(world.place(&PodSet::new(2, unconstrained())), "x2:2");
    let reason = world.place(&PodSet::new(3, unconstrained()));
    assert!(reason.ends_with("Total nodes: 2; excluded: taint \"repair:NoSchedule\": 1"), "{reason}");
    let toleration = Toleration { key: "repair".into(), operator: TolerationOperator::Exists, ..Toleration::default() };
    let pod = PodSpec { tolerations: vec![toleration], ..PodSpec::default() };
    assert_eq!(world.place(&PodSet { pod, ..PodSet::new(3, unconstrained()) }), "x1:2 x2:1");
}

#[test]
fn selectors_and_required_affinity_are_respected() {
    let select = |host: &str| PodSpec { node_selector: [(HOST.into(), host.into())].into(), ..PodSpec::default() };
    let near = |operator: Operator, hosts: &[&str]| {
        let values = hosts.iter().map(|&h| h.into()).collect();
        let expression = Requirement { key: HOST.into(), operator, values };
        let term = SelectorTerm { match_expressions: vec![expression], ..SelectorTerm::default() };
        let affinity = NodeAffinity { required: Some(vec![term]), ..NodeAffinity::default() };
        PodSpec { node_affinity: Some(affinity), ..PodSpec::default() }
    };
    let mut world = World::new("b/r1/x1:4 b/r1/x2:1 b/r2/x3:1", Features::default());
    let mut of = |pod: PodSpec, count| world.place(&PodSet { pod, ..PodSet::new(count, preferred(RACK)) });
    assert_eq!(of(select("x3"), 1), "x3:1");
    assert!(of(select("x3"), 2).ends_with("Total nodes: 3; excluded: nodeSelector: 2"), "{}", of(select("x3"), 2));
    assert_eq!(of(near(Operator::In, &["x2", "x3"]), 2), "x2:1 x3:1");
    assert_eq!(of(near(Operator::NotIn, &["x1", "x2"]), 1), "x3:1");
    let reason = of(near(Operator::In, &["x2"]), 2);
    assert!(reason.ends_with("Total nodes: 3; excluded: affinity: 2"), "{reason}");
}

#[test]
fn pods_of_all_pod_sets_count_towards_the_pods_of_a_node() {
    let mut few = nodes("x1:9");
    few[0].allocatable.set("pods", 3);
    let mut world = World::empty();
    world.set("f", &[HOST], &few, &OtherPods::new());
    let of = |count| PodSet::new(count, required(HOST));
    let placed = world.place_all(&[of(2), of(1)], PlacementUsage::Current);
    assert_eq!([text(&placed[0]), text(&placed[1])], ["x1:2", "x1:1"]);
    let placed = world.place_all(&[of(2), of(2)], PlacementUsage::Current);
    assert_eq!(text(&placed[0]), "x1:2");
    assert_eq!(text(&placed[1]), r#"topology "default" allows to fit only 1 out of 2 pod(s)"#);
}

#[test]
fn a_full_node_keeps_nobody_from_the_others() {
    for features in [Features::default(), Features { mixed_profile: false, ..Features::default() }] {
        let mut world = World::new("b1/r1/x1:2 b1/r1/x2:2 b2/r2/x3:2", features);
        let usage = world.usage("f", "x1:2", 1);
        world.topologies.add(&usage, Reach::Node);
        assert_eq!(world.place(&PodSet::new(4, unconstrained())), "x2:2 x3:2");
        assert_eq!(world.place(&PodSet::new(1, unconstrained())), "x2:1");
        assert_eq!(world.place(&PodSet::new(3, preferred(BLOCK))), "x2:2 x3:1");
    }
    // Those with least room are filled first, whatever block they are in; they are told in the order of the levels.
    assert_eq!(place("b1/r1/x9:3 b1/r2/x1:1 b2/r1/x5:2", 4, unconstrained()), "x9:1 x1:1 x5:2");
}

#[test]
fn equal_domains_are_taken_in_order_of_their_paths() {
    let all = ["b2/r1/x1:1", "b1/r2/x3:1", "b1/r10/x2:1", "b1/r2/x0:1"];
    for turn in 0..all.len() {
        let mut nodes = all.to_vec();
        nodes.rotate_left(turn);
        let nodes = nodes.join(" ");
        assert_eq!(place(&nodes, 1, required(HOST)), "x2:1", "b1, r10, x2 is the first path");
        assert_eq!(place(&nodes, 1, required(RACK)), "x2:1");
        assert_eq!(place(&nodes, 2, required(RACK)), "x0:1 x3:1");
    }
}

#[test]
fn a_host_may_be_called_as_its_block() {
    assert_eq!(place("b1/b1/b1:2 b1/b1/b2:1 b2/b1/b3:1", 3, required(BLOCK)), "b1:2 b2:1");
    assert_eq!(place("b1/b1/b1:2 b1/b1/b2:1", 2, required(HOST)), "b1:2");
    let mut world = World::new("b1/b1/b1:2 b1/b1/b2:1", Features::default());
    let usage = world.usage("f", "b1:2", 1);
    world.topologies.add(&usage, Reach::Node);
    assert_eq!(world.place(&PodSet::new(1, required(BLOCK))), "b2:1", "only the host is full");
}

#[test]
fn a_name_that_begins_like_another_is_another() {
    // A node of rack r1 failed; r10 is no part of r1.
    let replace = |nodes: &str| {
        let mut world = World::new(nodes, Features::default());
        let usage = world.usage("f", "x1:1", 1);
        world.topologies.add(&usage, Reach::Node);
        let replacement = Some(("x2", assignment("x1:1 x2:1")));
        world.place(&PodSet { replacement, ..PodSet::new(2, required(RACK)) })
    };
    assert_eq!(replace("b/r1/x1:1 b/r1/x3:1 b/r10/x0:1"), "x1:1 x3:1");
    let reason = replace("b/r1/x1:1 b/r10/x0:1");
    assert!(
        reason.contains("doesn't allow to fit any of 1 pod(s)") && reason.contains("topologyDomain: 1"),
        "{reason}"
    );
}

#[test]
fn one_byte_on_a_large_node_has_a_place() {
    for size in [1_i64 << 31, 1 << 40, i64::MAX] {
        let nodes = format!("b/r/x1:{size} b/r/x2:{size} b/r/x3:{size}");
        for request in [required(HOST), required(BLOCK), preferred(RACK), unconstrained()] {
            assert_eq!(place(&nodes, 1, request), "x1:1", "{size}");
        }
    }
}

#[test]
fn a_leader_stays_where_it_is_when_its_workers_become_more() {
    let mut world = World::new("x1:1 x2:9 x3:2", Features { elastic: true, ..Features::default() });
    let of = |name, count, cpu, previous: &str| PodSet {
        name,
        cpu,
        group: Some("g"),
        previous: Some(assignment(previous)),
        ..PodSet::new(count, unconstrained())
    };
    // Anew, the leader would go to the host with least room.
    for [leader, workers] in [["x2:1", "x2:2"], ["x3:1", "x2:2"]] {
        let placed =
            world.place_all(&[of("leader", 1, 1, leader), of("workers", 4, 1, workers)], PlacementUsage::Current);
        let [led, all] = [text(&placed[0]), text(&placed[1])];
        assert_eq!(led, leader);
        assert!(all.split(' ').any(|d| d.starts_with("x2:")), "{all}");
    }
    let placed = world.place_all(&[of("leader", 1, 1, "x2:1"), of("workers", 1, 1, "x2:2")], PlacementUsage::Current);
    assert_eq!([text(&placed[0]), text(&placed[1])], ["x2:1", "x2:1"], "nor when they become fewer");
}
