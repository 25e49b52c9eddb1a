//! Placements worked out by hand.

mod common;

use common::*;
use slicegate_placement::{Features, Misfit, OtherPods, Placement, PlacementUsage, Reach};
use slicegate_workload::{PodSpec, Taint, TaintEffect, TopologyRequest};

fn place(nodes: &str, count: i32, topology: TopologyRequest) -> String {
    World::new(nodes, Features::default()).place(&PodSet::new(count, topology))
}

#[test]
fn whole_slices_stay_in_a_rack() {
    let nodes = "b1/r1/x3:1 b1/r1/x5:1 b1/r2/x1:1 b1/r2/x6:1 b1/r2/x2:1 b2/r1/x4:1 b2/r1/x7:1";
    assert_eq!(place(nodes, 4, sliced(required(BLOCK), &[(RACK, 2)])), "x3:1 x5:1 x1:1 x2:1");
}

#[test]
fn slices_go_to_the_tightest_hosts() {
    assert_eq!(place("b1/r1/x3:3 b1/r1/x5:2 b1/r1/x1:2", 4, sliced(required(BLOCK), &[(HOST, 2)])), "x1:2 x5:2");
}

#[test]
fn without_a_level_hosts_with_least_room_are_filled_first() {
    let nodes = "b1/r1/x3:4 b1/r1/x5:1 b1/r1/x1:1 b2/r1/x6:2 b2/r1/x2:1";
    assert_eq!(place(nodes, 6, unconstrained()), "x1:1 x3:1 x5:1 x2:1 x6:2");
    let nodes = "b1/r1/x3:1 b1/r2/x5:1 b1/r2/x1:1 b1/r2/x6:1 b2/r1/x2:1 b2/r2/x4:2";
    assert_eq!(place(nodes, 1, unconstrained()), "x3:1");
}

#[test]
fn one_profile_for_all_requests_takes_the_largest_first() {
    let features = Features { mixed_profile: false, ..Features::default() };
    let mut world = World::new("x1:1 x2:4 x3:2", features);
    assert_eq!(world.place(&PodSet::new(5, unconstrained())), "x1:1 x2:4");
    let mut world = World::new("x1:1 x2:4 x3:2", Features::default());
    assert_eq!(world.place(&PodSet::new(5, unconstrained())), "x1:1 x2:2 x3:2");
}

#[test]
fn as_few_racks_as_possible_are_used() {
    let nodes = "b1/r1/x3:2 b1/r2/x5:2 b1/r3/x1:1 b1/r3/x6:1 b1/r3/x2:1 b1/r3/x4:1";
    assert_eq!(place(nodes, 4, required(BLOCK)), "x1:1 x2:1 x4:1 x6:1");
}

#[test]
fn a_preferred_level_climbs_and_spreads_only_at_the_top() {
    let mut world = World::empty();
    let mut blocks = nodes("x1:2 x2:1 x3:4");
    for (node, block) in blocks.iter_mut().zip(["b1", "b2", "b3"]) {
        node.labels.insert(BLOCK.into(), block.into());
    }
    world.set("f", &[BLOCK], &blocks, &OtherPods::new());
    assert_eq!(world.place(&PodSet::new(5, preferred(BLOCK))), "b2:1 b3:4");
    let nodes = "b1/r1/x1:2 b1/r2/x2:2 b2/r3/x3:3 b2/r4/x4:9";
    assert_eq!(place(nodes, 3, preferred(RACK)), "x3:3", "one rack is enough");
    assert_eq!(place(nodes, 12, preferred(RACK)), "x3:3 x4:9", "racks of one block");
    assert_eq!(place(nodes, 13, preferred(RACK)), "x1:1 x3:3 x4:9", "two blocks");
}

fn group(leader: (i64, i64), workers: (i32, i64, i64), topology: &TopologyRequest) -> [PodSet<'static>; 2] {
    let of =
        |name, count, (cpu, gpu)| PodSet { name, cpu, gpu, group: Some("g"), ..PodSet::new(count, topology.clone()) };
    [of("leader", 1, leader), of("workers", workers.0, (workers.1, workers.2))]
}

fn place_group(nodes: &str, pod_sets: &[PodSet<'_>]) -> [String; 2] {
    let placements = World::new(nodes, Features::default()).place_all(pod_sets, PlacementUsage::Current);
    [text(&placements[0]), text(&placements[1])]
}

#[test]
fn leader_and_workers_may_part() {
    assert_eq!(place_group("h1:1,0 h2:0,1", &group((1, 0), (1, 0, 1), &unconstrained())), ["h1:1", "h2:1"]);
}

#[test]
fn a_leader_goes_where_it_costs_the_workers_least() {
    let pod_sets = group((1, 0), (4, 2, 0), &required(RACK));
    assert_eq!(place_group("b/r1/h1:2 b/r1/h2:4 b/r1/h3:3", &pod_sets), ["h3:1", "h1:1 h2:2 h3:1"]);
    let nodes = "b1/r1/x3:2,1 b1/r1/x5:2,1 b1/r1/x1:2,1 b2/r4/x6:1,1 b2/r5/x2:2,1 b2/r6/x4:2,1";
    assert_eq!(place_group(nodes, &group((2, 0), (2, 1, 1), &required(BLOCK))), ["x1:1", "x3:1 x5:1"]);
}

#[test]
fn a_leader_that_fits_nowhere_fails_the_group() {
    let reason = r#"topology "default" allows to fit only 4 out of 4 pod(s)"#;
    assert_eq!(place_group("b/r/x1:4", &group((9, 0), (4, 1, 0), &required(BLOCK))), [reason, reason]);
    let reason = r#"topology "default" doesn't allow to fit any of 4 pod(s)"#;
    assert_eq!(place_group("b/r/x1:4", &group((9, 0), (4, 1, 0), &unconstrained())), [reason, reason]);
}

#[test]
fn slices_within_slices_count_in_whole_ones() {
    let nodes = "b1/r1/x1:1 b1/r1/x2:4 b1/r2/x3:3 b1/r2/x4:4";
    let layers = sliced(required(BLOCK), &[(RACK, 4), (HOST, 2)]);
    assert_eq!(place(nodes, 8, layers.clone()), "x2:4 x3:2 x4:2");
    assert_eq!(
        place("b1/r1/x1:1 b1/r1/x2:3 b1/r2/x3:3 b1/r2/x4:4", 8, layers),
        "topology \"default\" doesn't allow to fit; 1/2 slice(s) fit on level rack; \
         4/4 slice(s) fit on level kubernetes.io/hostname"
    );
}

#[test]
fn slices_alone_look_at_the_whole_topology() {
    let nodes = "b1/r1/x1:1 b1/r1/x5:1 b1/r2/x4:4";
    assert_eq!(place(nodes, 4, sliced(TopologyRequest::default(), &[(RACK, 2)])), "x1:1 x5:1 x4:2");
    assert_eq!(place(nodes, 6, sliced(TopologyRequest::default(), &[(RACK, 2)])), "x1:1 x5:1 x4:4");
    let nodes = "b1/r1/x3:3 b1/r1/x5:3 b1/r1/x1:3 b2/r1/x6:6";
    assert_eq!(place(nodes, 12, sliced(preferred(BLOCK), &[(HOST, 3)])), "x1:3 x3:3 x6:6");
}

#[test]
fn pods_that_make_no_whole_slice_are_left_out() {
    assert_eq!(place("x1:9", 5, sliced(required(HOST), &[(HOST, 2)])), "x1:4");
}

#[test]
fn the_number_of_pods_is_limited_too() {
    let mut world = World::empty();
    let mut few = nodes("x1:9");
    few[0].allocatable.set("pods", 2);
    world.set("f", &[HOST], &few, &OtherPods::new());
    let reason = world.place(&PodSet::new(3, required(HOST)));
    assert_eq!(reason, r#"topology "default" allows to fit only 2 out of 3 pod(s)"#);
    few[0].allocatable.remove("pods");
    world.set("f", &[HOST], &few, &OtherPods::new());
    let reason = world.place(&PodSet::new(3, required(HOST)));
    assert!(reason.ends_with(r#"Total nodes: 1; excluded: resource "pods": 1"#), "{reason}");
}

#[test]
fn other_pods_take_room_also_in_an_empty_cluster() {
    let mut others = OtherPods::new();
    others.insert("ns/daemon", "x1", requests(1, 0));
    let mut world = World::empty();
    world.set("f", &[HOST], &nodes("x1:2"), &others);
    let usage = world.usage("f", "x1:1", 1);
    world.topologies.add(&usage, Reach::Node);
    let one = [PodSet::new(1, required(HOST))];
    assert!(world.place_all(&one, PlacementUsage::Current)[0].failure().is_some());
    assert_eq!(text(&world.place_all(&one, PlacementUsage::Empty)[0]), "x1:1");
    let two = [PodSet::new(2, required(HOST))];
    assert!(world.place_all(&two, PlacementUsage::Empty)[0].failure().is_some());
    let pod = world.pod(1, 0);
    world.topologies.remove_other("x1", &pod);
    assert_eq!(text(&world.place_all(&two, PlacementUsage::Empty)[0]), "x1:2");
    assert_eq!(text(&world.place_all(&one, PlacementUsage::Current)[0]), "x1:1");
}

#[test]
fn later_pod_sets_see_those_before_them_under_current_and_empty_usage() {
    let pod_sets = [PodSet::new(2, required(HOST)), PodSet::new(2, required(HOST))];
    for usage in [PlacementUsage::Current, PlacementUsage::Empty] {
        let mut world = World::new("x1:3 x2:2", Features::default());
        let placed = world.place_all(&pod_sets, usage);
        assert_eq!([text(&placed[0]), text(&placed[1])], ["x2:2", "x1:2"]);
    }
}

#[test]
fn the_first_group_that_fails_ends_its_flavor() {
    let mut world = World::new("x1:1", Features::default());
    world.set("g", &[HOST], &nodes("y1:1"), &OtherPods::new());
    let of = |flavor, count| PodSet { flavor, ..PodSet::new(count, required(HOST)) };
    let placed = world.place_all(&[of("f", 2), of("f", 1), of("g", 1)], PlacementUsage::Current);
    assert!(placed[0].failure().is_some());
    assert_eq!(placed[1], Placement::Untried);
    assert_eq!(text(&placed[2]), "y1:1");
}

#[test]
fn flavors_over_one_node_see_each_other_only_if_it_lasts() {
    let mut world = World::new("x1:2", Features::default());
    world.set("g", &[HOST], &nodes("x1:2"), &OtherPods::new());
    let of = |flavor| PodSet { flavor, ..PodSet::new(2, required(HOST)) };
    let usage = world.usage("f", "x1:1", 1);
    world.topologies.add(&usage, Reach::Flavor);
    assert_eq!(world.place(&of("g")), "x1:2");
    assert!(world.place(&of("f")).starts_with("topology"));
    world.topologies.take_away(&usage, Reach::Flavor);
    world.topologies.add(&usage, Reach::Node);
    assert!(world.place(&of("g")).starts_with("topology"));
    // Within a search pods of one flavor take room from the other.
    world.topologies.take_away(&usage, Reach::Node);
    let placed = world.place_all(&[of("f"), of("g")], PlacementUsage::Current);
    assert_eq!(text(&placed[0]), "x1:2");
    assert!(placed[1].failure().is_some());
}

#[test]
fn flavors_do_not_overlap_without_their_gate_or_without_hostnames() {
    let features = Features { overlapping_flavors: false, ..Features::default() };
    let mut world = World::new("x1:2", features);
    world.set("g", &[HOST], &nodes("x1:2"), &OtherPods::new());
    let usage = world.usage("f", "x1:2", 1);
    world.topologies.add(&usage, Reach::Node);
    assert_eq!(world.place(&PodSet { flavor: "g", ..PodSet::new(2, required(HOST)) }), "x1:2");
    let mut world = World::empty();
    for flavor in ["f", "g"] {
        world.set(flavor, &[RACK], &nodes("b1/r1/x1:2"), &OtherPods::new());
    }
    let usage = world.usage("f", "r1:2", 1);
    world.topologies.add(&usage, Reach::Node);
    assert_eq!(world.place(&PodSet { flavor: "g", ..PodSet::new(2, required(RACK)) }), "r1:2");
    assert!(world.place(&PodSet::new(1, required(RACK))).starts_with("topology"));
}

#[test]
fn leaves_that_are_not_nodes_are_not_filtered() {
    let mut tainted = nodes("b1/r1/x1:1");
    tainted[0].taints = vec![Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule }];
    let mut world = World::empty();
    world.set("f", &[BLOCK, RACK], &tainted, &OtherPods::new());
    assert_eq!(world.place(&PodSet::new(1, required(RACK))), "b1/r1:1");
    world.set("f", &[BLOCK, HOST], &tainted, &OtherPods::new());
    let reason = world.place(&PodSet::new(1, required(HOST)));
    assert!(reason.ends_with("Total nodes: 1; excluded: taint \"k=v:NoSchedule\": 1"), "{reason}");
}

#[test]
fn workers_decide_which_nodes_are_looked_at() {
    let [mut leader, workers] = group((1, 0), (2, 1, 0), &required(RACK));
    leader.pod = PodSpec { node_selector: [("no".into(), "such".into())].into(), ..PodSpec::default() };
    assert_eq!(place_group("b/r1/x1:3", &[leader, workers]), ["x1:1", "x1:2"]);
}

#[test]
fn planned_pods_are_checked_domain_by_domain() {
    let mut world = World::new("x1:2 x2:1", Features::default());
    let usage = world.usage("f", "x1:2 x2:1", 1);
    assert_eq!(world.topologies.check(&usage), Ok(()));
    let other = world.usage("f", "x2:1", 1);
    world.topologies.add(&other, Reach::Flavor);
    let short = Misfit::Short { values: vec!["x2".into()], fit: 0, needed: 1 };
    assert_eq!(world.topologies.check(&usage), Err(short));
    let gone = world.usage("f", "x9:1", 1);
    assert_eq!(world.topologies.check(&gone), Err(Misfit::Missing(vec!["x9".into()])));
    let nothing = world.usage("f", "x1:1", 0);
    let short = Misfit::Short { values: vec!["x1".into()], fit: 0, needed: 1 };
    assert_eq!(world.topologies.check(&nothing), Err(short), "a request for nothing fits no times");
}

fn replace(nodes: &str, failed: &str, existing: &str, count: i32, topology: TopologyRequest) -> String {
    let mut world = World::new(nodes, Features::default());
    let usage = world.usage("f", existing, 1);
    world.topologies.add(&usage, Reach::Node);
    let replacement = Some((failed, assignment(existing)));
    world.place(&PodSet { replacement, ..PodSet::new(count, topology) })
}

#[test]
fn a_failed_node_is_replaced_where_the_others_are() {
    let nodes = "b1/r1/x1:1 b1/r1/x3:1 b1/r2/x4:9";
    assert_eq!(replace(nodes, "x2", "x1:1 x2:1", 2, required(RACK)), "x1:1 x3:1");
    assert_eq!(
        replace("b1/r1/x1:1 b1/r2/x4:9", "x2", "x1:1 x2:1", 2, required(RACK)),
        "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 2; excluded: resource \"cpu\": 1, \
         topologyDomain: 1"
    );
    assert_eq!(replace("b1/r1/x1:1 b1/r2/x4:9", "x2", "x1:1 x2:1", 2, preferred(RACK)), "x1:1 x4:1");
}

#[test]
fn a_broken_slice_is_made_whole() {
    let nodes = "b1/r1/x1:1 b1/r1/x2:9 b1/r2/x3:1 b1/r2/x5:1";
    let slices = sliced(required(BLOCK), &[(RACK, 2)]);
    assert_eq!(replace(nodes, "x4", "x1:1 x2:1 x3:1 x4:1", 4, slices.clone()), "x1:1 x2:1 x3:1 x5:1");
    // A whole slice may go anywhere.
    assert_eq!(replace(nodes, "x4", "x3:1 x5:1 x4:2", 4, slices), "x1:1 x2:1 x3:1 x5:1");
}

#[test]
fn replacements_that_cannot_be_made_say_why() {
    let stale = "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale \
                 domain x7";
    assert_eq!(replace("x1:9", "x2", "x1:1 x2:1 x7:1", 3, required(HOST)), stale);
    let elsewhere = "cannot find replacement assignment for unhealthy node: x5";
    assert_eq!(replace("x1:9", "x5", "x1:1", 1, preferred(HOST)), elsewhere);
}

fn resize(nodes: &str, old: &str, count: i32) -> String {
    let mut world = World::new(nodes, Features { elastic: true, ..Features::default() });
    world.place(&PodSet { previous: Some(assignment(old)), ..PodSet::new(count, unconstrained()) })
}

#[test]
fn an_elastic_workload_keeps_its_pods() {
    assert_eq!(resize("x1:2 x2:9", "x2:2", 4), "x1:2 x2:2");
    assert_eq!(resize("x1:2 x2:9", "x1:2 x2:2", 3), "x1:2 x2:1");
    assert_eq!(resize("x1:2 x2:9", "x2:2 x1:2", 4), "x2:2 x1:2", "as it was");
    assert_eq!(resize("x1:2 x2:9", "x7:2", 2), "x1:2", "a stale place is given up");
    let mut world = World::new("x1:2 x2:9", Features::default());
    let pod_set = PodSet { previous: Some(assignment("x2:2")), ..PodSet::new(2, unconstrained()) };
    assert_eq!(world.place(&pod_set), "x1:2", "only with its gate");
}

#[test]
fn later_pod_sets_see_the_pods_of_an_elastic_workload_once() {
    let mut world = World::new("x1:4", Features { elastic: true, ..Features::default() });
    let elastic = PodSet { previous: Some(assignment("x1:1")), ..PodSet::new(2, unconstrained()) };
    let placed = world.place_all(&[elastic, PodSet::new(2, unconstrained())], PlacementUsage::Current);
    assert_eq!([text(&placed[0]), text(&placed[1])], ["x1:2", "x1:2"]);
}

#[test]
fn balanced_pods_are_spread_evenly() {
    let features = Features { balanced: true, ..Features::default() };
    let of = |nodes: &str, count, request| World::new(nodes, features).place(&PodSet::new(count, request));
    assert_eq!(of("b1/r1/x1:15 b1/r2/x2:15", 25, preferred(RACK)), "x1:13 x2:12");
    assert_eq!(of("b1/r1/x1:15 b1/r2/x2:15", 25, required(BLOCK)), "x1:15 x2:10", "only what is preferred is");
    assert_eq!(place("b1/r1/x1:15 b1/r2/x2:15", 25, preferred(RACK)), "x1:15 x2:10", "only with its gate");
}

#[test]
fn a_flavor_without_topology_places_nothing() {
    let mut world = World::new("x1:1", Features::default());
    world.names.intern_flavor("other");
    let pod_set = PodSet { flavor: "other", ..PodSet::new(1, required(HOST)) };
    assert_eq!(world.place(&pod_set), "there is no topology for the flavor");
    world.set("other", &[HOST], &[], &OtherPods::new());
    assert_eq!(world.place(&pod_set), "no topology domains at level: kubernetes.io/hostname");
}
