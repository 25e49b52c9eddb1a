//! Whole slices: jobs are admitted only where hardware comes in the slices that they need.

use std::collections::BTreeMap;

use proptest::prelude::*;
use slicegate_admission::{Cause, Config, NodePool, SliceShortage, Verdict};
use slicegate_placement::Node;
use slicegate_quota::Quantity;
use slicegate_tpu::{SliceShape, label, node_labels, taint};
use slicegate_workload::{
    ClusterQueueSpec, FlavorQuotas, FlavorSpec, Key, PreemptionPolicy, ReclaimPolicy, ResourceGroup, ResourceQuota,
    Taint, TaintEffect, WithinClusterQueuePolicy,
};

use crate::cluster::{Cluster, NAMESPACE, TPU, group, queue};

fn pool(name: &str, machine: &str, topology: &str, max_nodes: Option<u32>) -> NodePool {
    let shape = SliceShape::parse(machine, topology).unwrap();
    NodePool {
        name: name.into(),
        shape,
        labels: node_labels(shape, name).map(|(key, value)| (key.into(), value.into())).collect(),
        taints: vec![Taint {
            key: taint::TPU.key.into(),
            value: taint::TPU.value.into(),
            effect: TaintEffect::NoSchedule,
        }],
        max_nodes,
    }
}

fn host(pool: &NodePool, number: u32) -> Node {
    let name = format!("{}-{number}", pool.name);
    let mut labels = pool.labels.clone();
    labels.insert("kubernetes.io/hostname".into(), name.as_str().into());
    Node {
        name: name.into(),
        labels,
        taints: pool.taints.clone(),
        ready: true,
        allocatable: [(TPU, i64::from(pool.shape.chips_per_host())), ("pods", 15)].into_iter().collect(),
        ..Node::default()
    }
}

/// A flavor of v5e nodes that asks for whole slices.
fn flavor(name: &str, labels: &[(&str, &str)], whole_slices: bool) -> FlavorSpec {
    let mut all = vec![(label::ACCELERATOR, "tpu-v5-lite-podslice")];
    all.extend_from_slice(labels);
    FlavorSpec {
        name: name.into(),
        node_labels: all.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        whole_slices,
        ..FlavorSpec::default()
    }
}

fn by_priority() -> PreemptionPolicy {
    PreemptionPolicy { within_cluster_queue: WithinClusterQueuePolicy::LowerPriority, ..PreemptionPolicy::default() }
}

/// One ClusterQueue `q` of a flavor `v5e` with so many chips, and these pools with all of their nodes.
fn cluster(chips: i64, pools: &[&NodePool], whole_slices: bool) -> Cluster {
    let mut cluster = Cluster::new(Config::new());
    cluster.engine.set_flavor(cluster.now, flavor("v5e", &[], whole_slices));
    cluster
        .queue(ClusterQueueSpec { resource_groups: vec![group("v5e", chips)], ..queue("q", None, 0, by_priority()) });
    for pool in pools {
        fill(&mut cluster, pool);
    }
    cluster
}

fn fill(cluster: &mut Cluster, pool: &NodePool) {
    for number in 0..pool.shape.hosts() {
        cluster.engine.set_node(cluster.now, host(pool, number));
    }
    cluster.check("after nodes");
}

/// Submits a multislice job: so many slices of a topology, on hosts of four chips.
fn submit(cluster: &mut Cluster, name: &str, topology: &str, slices: i32, priority: i32) {
    submit_to(cluster, name, "q", topology, slices, priority);
}

fn submit_to(cluster: &mut Cluster, name: &str, queue: &str, topology: &str, slices: i32, priority: i32) {
    let shape = SliceShape::from_selector("tpu-v5-lite-podslice", topology, Some(4)).unwrap();
    let mut workload = cluster.workload(name, queue, 4, priority);
    let pod_set = &mut workload.spec.pod_sets[0];
    pod_set.count = slices * i32::try_from(shape.hosts()).unwrap();
    pod_set.pod.node_selector.insert(label::TOPOLOGY.into(), topology.into());
    cluster.put(workload);
}

fn shortage(cluster: &mut Cluster, name: &str) -> SliceShortage {
    let why = cluster.engine.why(cluster.now, &Key::new(NAMESPACE, name)).unwrap();
    assert_eq!(why.cause, Cause::WholeSlicesMissing, "{why}");
    why.pod_sets[0].flavors[0].slices.clone().unwrap()
}

fn three() -> [NodePool; 3] {
    ["a", "b", "c"].map(|name| pool(name, "ct5lp-hightpu-4t", "2x4", None))
}

#[test]
fn chips_on_broken_slices_are_of_no_use() {
    let pools = three();
    let mut cluster = cluster(24, &pools.each_ref(), true);
    let now = cluster.now;
    cluster.engine.set_node(now, Node { ready: false, ..host(&pools[0], 1) });
    cluster.engine.remove_node(now, "b-0");
    submit(&mut cluster, "job", "2x4", 2, 0);
    cluster.settle(20);
    assert_eq!(cluster.running(), [""; 0]);
    let (reason, message) = cluster.waits("job").unwrap();
    assert_eq!(reason, "TopologyPlacementFailed");
    assert!(
        message.contains(
            "insufficient whole slices in flavor v5e, 1 slice of 2x4 is free, 2 needed; 16 chips are free, but on 2 broken slices"
        ),
        "{message}"
    );
    assert_eq!(
        shortage(&mut cluster, "job").to_string(),
        "1 slice of 2x4 is free, 2 needed; 16 chips are free, but on 2 broken slices"
    );
    // A host is repaired: the job is looked at again by itself.
    cluster.engine.set_node(cluster.now, host(&pools[0], 1));
    cluster.settle(20);
    assert_eq!(cluster.running(), ["job"]);
}

#[test]
fn without_the_annotation_chips_are_counted() {
    let pools = three();
    let mut cluster = cluster(24, &pools.each_ref(), false);
    for pool in &pools {
        cluster.engine.remove_node(cluster.now, &format!("{}-0", pool.name));
    }
    submit(&mut cluster, "job", "2x4", 3, 0);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["job"]);
    assert_eq!(cluster.engine.slices_held(&Key::new(NAMESPACE, "job")), 0);
    // Asked for now, what runs counts, and nothing more is admitted.
    cluster.engine.set_flavor(cluster.now, flavor("v5e", &[], true));
    cluster.check("after the flavor");
    assert_eq!(cluster.engine.slices_held(&Key::new(NAMESPACE, "job")), 3);
    assert_eq!(cluster.engine.slices_missing(), 3);
    cluster.engine.set_flavor(cluster.now, flavor("v5e", &[], false));
    cluster.check("after the flavor");
    assert_eq!(cluster.engine.slices_missing(), 0);
}

#[test]
fn quota_beyond_the_hardware_is_worth_nothing() {
    let pools = three();
    let mut cluster = cluster(80, &pools.each_ref(), true);
    submit(&mut cluster, "two", "2x4", 2, 0);
    submit(&mut cluster, "more", "2x4", 2, 0);
    submit(&mut cluster, "one", "2x4", 1, 0);
    submit(&mut cluster, "huge", "2x4", 4, 0);
    submit(&mut cluster, "other", "4x4", 1, 0);
    cluster.settle(40);
    assert_eq!(cluster.running(), ["one", "two"]);
    assert_eq!(shortage(&mut cluster, "more").to_string(), "0 slices of 2x4 are free, 2 needed; 3 in use");
    let why = cluster.engine.why(cluster.now, &Key::new(NAMESPACE, "huge")).unwrap();
    assert_eq!((why.verdict, why.cause), (Verdict::AskAdmin, Cause::WholeSlicesMissing));
    assert_eq!(
        shortage(&mut cluster, "other").to_string(),
        "no node pool is known that has 4x4 slices of hosts with 4 chips and takes the pods"
    );
    // What is given back is given to the next, also after the queue was parked.
    cluster.finish("two");
    cluster.settle(40);
    assert_eq!(cluster.running(), ["more", "one"]);
}

#[test]
fn pools_at_zero_count_if_they_can_grow() {
    let (a, b) = (pool("a", "ct5lp-hightpu-4t", "4x4", Some(4)), pool("b", "ct5lp-hightpu-4t", "4x4", Some(2)));
    let mut cluster = cluster(64, &[], true);
    submit(&mut cluster, "job", "4x4", 1, 0);
    submit(&mut cluster, "next", "4x4", 1, 0);
    cluster.settle(20);
    assert_eq!(cluster.running(), [""; 0]);
    // The second can never have the four nodes of a slice.
    cluster.engine.set_node_pool(cluster.now, a.clone());
    cluster.engine.set_node_pool(cluster.now, b);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["job"]);
    let reports = cluster.engine.node_pools();
    assert_eq!((reports[0].coming, reports[1].coming), (1, 0));
    assert_eq!(reports[0].holders, [(Key::new(NAMESPACE, "job"), 1)]);
    // Its nodes come one by one; the slice is the job's all the while.
    for number in 0..4 {
        cluster.engine.set_node(cluster.now, Node { ready: number != 2, ..host(&a, number) });
        assert_eq!(cluster.engine.slices_missing(), 0);
    }
    cluster.settle(20);
    assert_eq!(cluster.running(), ["job"]);
    cluster.engine.remove_node_pool(cluster.now, "a");
    assert_eq!(cluster.engine.slices_missing(), 1, "a pool that does not grow is whole or broken");
    cluster.engine.set_node(cluster.now, host(&a, 2));
    assert_eq!(cluster.engine.slices_missing(), 0);
}

#[test]
fn topologies_of_one_flavor_are_kept_apart() {
    let small = pool("small", "ct5lp-hightpu-4t", "2x4", None);
    let large = pool("large", "ct5lp-hightpu-4t", "4x4", None);
    let mut cluster = cluster(64, &[&small, &large], true);
    submit(&mut cluster, "a", "4x4", 1, 0);
    submit(&mut cluster, "b", "4x4", 1, 0);
    submit(&mut cluster, "c", "2x4", 1, 0);
    cluster.settle(30);
    assert_eq!(cluster.running(), ["a", "c"]);
    cluster.finish("c");
    assert_eq!(
        shortage(&mut cluster, "b").to_string(),
        "0 slices of 4x4 are free, 1 needed; 1 in use; the largest free slice is 2x4"
    );
}

#[test]
fn pods_that_leave_the_topology_open_get_equal_slices() {
    let pools = ["a", "b"].map(|name| pool(name, "ct5lp-hightpu-4t", "2x4", None));
    let large = pool("large", "ct5lp-hightpu-4t", "4x4", None);
    let mut cluster = cluster(64, &[&pools[0], &pools[1], &large], true);
    let open = |cluster: &mut Cluster, name: &str, pods: i32| {
        let mut workload = cluster.workload(name, "q", 4, 0);
        workload.spec.pod_sets[0].count = pods;
        cluster.put(workload);
    };
    open(&mut cluster, "four", 4);
    cluster.settle(20);
    assert_eq!(cluster.engine.slices_held(&Key::new(NAMESPACE, "four")), 2, "two of 2x4");
    open(&mut cluster, "again", 4);
    cluster.settle(20);
    assert_eq!(cluster.engine.slices_held(&Key::new(NAMESPACE, "again")), 1, "one of 4x4");
    open(&mut cluster, "last", 1);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["again", "four"]);
}

#[test]
fn a_job_that_may_lie_anywhere_makes_way_for_one_that_may_not() {
    let pools = ["a", "b"].map(|name| pool(name, "ct5lp-hightpu-4t", "2x4", None));
    let mut cluster = cluster(64, &pools.each_ref(), true);
    submit(&mut cluster, "any", "2x4", 1, 0);
    cluster.settle(20);
    let at = |cluster: &mut Cluster, name: &str, at: &str| {
        let mut workload = cluster.workload(name, "q", 4, 0);
        let pod_set = &mut workload.spec.pod_sets[0];
        pod_set.count = 2;
        pod_set.pod.node_selector.insert(label::NODE_POOL.into(), at.into());
        cluster.put(workload);
    };
    at(&mut cluster, "there", "a");
    at(&mut cluster, "too", "a");
    cluster.settle(20);
    assert_eq!(cluster.running(), ["any", "there"]);
    let holders: Vec<_> = cluster.engine.node_pools().into_iter().map(|p| p.holders[0].0.name.clone()).collect();
    assert_eq!(holders, ["there".into(), "any".into()] as [Box<str>; 2]);
}

#[test]
fn victims_free_whole_slices_or_none_leave() {
    let pools = three();
    let mut cluster = cluster(24, &pools.each_ref(), true);
    submit(&mut cluster, "low", "2x4", 1, 0);
    submit(&mut cluster, "lower", "2x4", 1, -1);
    cluster.settle(20);
    // One slice is free by quota, but broken: one of the two others has to leave.
    cluster.engine.set_node(cluster.now, Node { unschedulable: true, ..host(&pools[2], 0) });
    submit(&mut cluster, "high", "2x4", 1, 5);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["high", "low"]);
    assert!(cluster.log.contains(&"evicted lower for high".to_owned()), "{:?}", cluster.log);
    // All that are lower do not make up three whole slices: nobody leaves in vain.
    submit(&mut cluster, "higher", "2x4", 3, 9);
    let before = cluster.log.len();
    cluster.settle(20);
    assert_eq!(cluster.log.len(), before, "{:?}", cluster.log);
    assert_eq!(cluster.running(), ["high", "low"]);
    // Repaired, they do.
    cluster.engine.set_node(cluster.now, host(&pools[2], 0));
    cluster.settle(20);
    assert_eq!(cluster.running(), ["higher"]);
}

#[test]
fn the_next_flavor_is_taken_where_slices_are_missing() {
    let reserved = pool("reserved", "ct5lp-hightpu-4t", "2x4", None);
    let mut cluster = Cluster::new(Config::new());
    cluster.engine.set_flavor(cluster.now, flavor("reserved", &[("tier", "reserved")], true));
    cluster.engine.set_flavor(cluster.now, flavor("spot", &[("tier", "spot")], true));
    let quota = || vec![(TPU.into(), ResourceQuota { nominal: Quantity::from_units(32), ..ResourceQuota::default() })];
    let flavors = ["reserved", "spot"].map(|name| FlavorQuotas { name: name.into(), resources: quota() });
    let groups = vec![ResourceGroup { covered_resources: vec![TPU.into()], flavors: flavors.into() }];
    cluster.queue(ClusterQueueSpec { resource_groups: groups, ..queue("q", None, 0, PreemptionPolicy::default()) });
    let tier = |mut pool: NodePool, tier: &str| {
        pool.labels.insert("tier".into(), tier.into());
        pool
    };
    fill(&mut cluster, &tier(reserved, "reserved"));
    cluster.engine.set_node_pool(cluster.now, tier(pool("spot", "ct5lp-hightpu-4t", "2x4", Some(2)), "spot"));
    for name in ["one", "two", "three"] {
        submit(&mut cluster, name, "2x4", 1, 0);
    }
    cluster.settle(20);
    assert_eq!(cluster.running(), ["one", "two"]);
    let flavor_of = |name: &str| {
        let admission = cluster.get(name).status.admission.clone().unwrap();
        admission.pod_set_assignments[0].flavors[TPU].clone()
    };
    assert_eq!((&*flavor_of("one"), &*flavor_of("two")), ("reserved", "spot"));
}

#[test]
fn another_tree_is_woken_when_slices_become_free() {
    let one = pool("a", "ct5lp-hightpu-4t", "2x4", None);
    let mut cluster = cluster(64, &[&one], true);
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("v5e", 64)],
        ..queue("r", Some("elsewhere"), 0, PreemptionPolicy::default())
    });
    submit(&mut cluster, "first", "2x4", 1, 0);
    submit_to(&mut cluster, "second", "r", "2x4", 1, 0);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["first"]);
    cluster.finish("first");
    cluster.settle(20);
    assert_eq!(cluster.running(), ["second"]);
    cluster.delete("second");
    assert_eq!(cluster.engine.slices_missing(), 0);
}

#[test]
fn two_queues_do_not_take_the_same_slice_in_one_cycle() {
    let one = pool("a", "ct5lp-hightpu-4t", "2x4", None);
    let mut cluster = cluster(64, &[&one], true);
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("v5e", 64)],
        ..queue("r", Some("elsewhere"), 0, PreemptionPolicy::default())
    });
    submit(&mut cluster, "first", "2x4", 1, 0);
    submit_to(&mut cluster, "second", "r", "2x4", 1, 0);
    cluster.cycle();
    assert_eq!(cluster.running(), ["first"]);
    assert_eq!(cluster.engine.slices_missing(), 0);
}

#[test]
fn slices_are_reclaimed_with_the_quota_of_a_cohort() {
    let pools = three();
    let mut cluster = Cluster::new(Config::new());
    cluster.engine.set_flavor(cluster.now, flavor("v5e", &[], true));
    let reclaims = PreemptionPolicy { reclaim_within_cohort: ReclaimPolicy::Any, ..PreemptionPolicy::default() };
    for (name, chips) in [("red", 16), ("blue", 8)] {
        cluster.queue(ClusterQueueSpec {
            resource_groups: vec![group("v5e", chips)],
            ..queue(name, Some("all"), 0, reclaims)
        });
    }
    for pool in &pools {
        fill(&mut cluster, pool);
    }
    submit_to(&mut cluster, "b1", "blue", "2x4", 1, 0);
    submit_to(&mut cluster, "b2", "blue", "2x4", 2, 0);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["b1", "b2"]);
    submit_to(&mut cluster, "r1", "red", "2x4", 1, 0);
    cluster.settle(20);
    assert_eq!(cluster.running(), ["b1", "r1"]);
}

#[test]
fn pods_that_take_part_of_a_host_are_told_so() {
    let one = pool("a", "ct5lp-hightpu-4t", "2x4", None);
    let mut cluster = cluster(64, &[&one], true);
    let mut workload = cluster.workload("half", "q", 2, 0);
    workload.spec.pod_sets[0].pod.node_selector.insert(label::TOPOLOGY.into(), "2x4".into());
    cluster.put(workload);
    cluster.settle(10);
    let why = cluster.engine.why(cluster.now, &Key::new(NAMESPACE, "half")).unwrap();
    assert_eq!((why.verdict, &why.cause), (Verdict::Change, &Cause::WholeSlicesMissing));
    assert!(why.to_string().contains("from nodes with 2 chips"), "{why}");
}

#[test]
fn pods_that_use_no_chips_need_no_slices() {
    let mut cluster = cluster(8, &[], true);
    let workload = cluster.workload("none", "q", 0, 0);
    cluster.put(workload);
    cluster.settle(10);
    assert_eq!(cluster.running(), ["none"]);
}

#[test]
fn what_runs_is_known_after_a_restart() {
    let pools = three();
    let mut first = cluster(24, &pools.each_ref(), true);
    submit(&mut first, "two", "2x4", 2, 0);
    first.settle(10);
    let mut second = cluster(24, &pools.each_ref(), true);
    for workload in first.store.values() {
        second.put(workload.clone());
    }
    assert_eq!(second.engine.slices_held(&Key::new(NAMESPACE, "two")), 2);
    submit(&mut second, "more", "2x4", 2, 0);
    second.settle(10);
    assert_eq!(second.running(), ["two"]);
    assert_eq!(second.engine.node_pools(), {
        first.put(second.get("more").clone());
        first.engine.node_pools()
    });
}

/// Something that happens to a cluster of three pools of 2x4, two of 4x4 and one with single hosts.
#[derive(Clone, Debug)]
enum Step {
    Submit { topology: usize, slices: i32, pinned: Option<u8>, priority: i32, queue: bool },
    Finish(u8),
    Break { pool: usize, host: u32 },
    Repair { pool: usize, host: u32 },
    Lose { pool: usize, host: u32 },
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..6_usize, 0..4_u32);
    prop_oneof![
        5 => (0..2_usize, 1..4_i32, proptest::option::weighted(0.3, 0..5_u8), 0..3_i32, any::<bool>()).prop_map(
            |(topology, slices, pinned, priority, queue)| Step::Submit { topology, slices, pinned, priority, queue }
        ),
        2 => (0..12_u8).prop_map(Step::Finish),
        1 => place().prop_map(|(pool, host)| Step::Break { pool, host }),
        2 => place().prop_map(|(pool, host)| Step::Repair { pool, host }),
        1 => place().prop_map(|(pool, host)| Step::Lose { pool, host }),
        4 => Just(Step::Settle),
    ]
}

/// Whether jobs can be given pools, one each for every slice, trying every way.
fn can_be_dealt(jobs: &[(Vec<usize>, i32)], taken: &mut Vec<bool>) -> bool {
    let Some((first, rest)) = jobs.split_first() else { return true };
    if first.1 == 0 {
        return can_be_dealt(rest, taken);
    }
    let left = (first.0.clone(), first.1 - 1);
    let jobs: Vec<_> = std::iter::once(left).chain(rest.iter().cloned()).collect();
    first.0.iter().any(|&pool| {
        if taken[pool] {
            return false;
        }
        taken[pool] = true;
        let found = can_be_dealt(&jobs, taken);
        taken[pool] = false;
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever is submitted and breaks: what holds slices can be dealt out over whole ones as long as nothing broke under it,
    /// and whoever waits once nothing moves any more could not be added.
    #[test]
    fn what_is_admitted_can_be_dealt_out(steps in proptest::collection::vec(step(), 1..24)) {
        let pools: Vec<NodePool> = (0..5)
            .map(|i| pool(&format!("p{i}"), "ct5lp-hightpu-4t", if i < 3 { "2x4" } else { "4x4" }, None))
            .collect();
        let topologies = ["2x4", "4x4"];
        let all: Vec<&NodePool> = pools.iter().collect();
        let mut cluster = cluster(200, &all, true);
        cluster.queue(ClusterQueueSpec {
            resource_groups: vec![group("v5e", 200)],
            ..queue("r", Some("elsewhere"), 0, by_priority())
        });
        let mut up: Vec<Vec<bool>> = pools.iter().map(|p| vec![true; p.shape.hosts() as usize]).collect();
        let mut jobs: BTreeMap<Box<str>, (Vec<usize>, i32, i32, bool)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Submit { topology, slices, pinned, priority, queue } => {
                    let name = format!("j{}", jobs.len());
                    let hosts = if topology == 0 { 2 } else { 4 };
                    let mut workload = cluster.workload(&name, if queue { "q" } else { "r" }, 4, priority);
                    let pod_set = &mut workload.spec.pod_sets[0];
                    pod_set.count = slices * hosts;
                    let selector = &mut pod_set.pod.node_selector;
                    selector.insert(label::TOPOLOGY.into(), topologies[topology].into());
                    let mut fitting: Vec<usize> = (0..5).filter(|i| (*i < 3) == (topology == 0)).collect();
                    if let Some(pin) = pinned {
                        selector.insert(label::NODE_POOL.into(), format!("p{pin}").into());
                        fitting.retain(|i| *i == usize::from(pin));
                    }
                    cluster.put(workload);
                    jobs.insert(name.into(), (fitting, slices, priority, queue));
                }
                Step::Finish(n) => {
                    let name = format!("j{n}");
                    if cluster.running().contains(&name.as_str()) {
                        cluster.finish(&name);
                    }
                }
                Step::Break { pool, host: n } | Step::Lose { pool, host: n } | Step::Repair { pool, host: n } => {
                    let Some(of) = pools.get(pool) else { continue };
                    let n = n % of.shape.hosts();
                    let repaired = matches!(step, Step::Repair { .. });
                    up[pool][n as usize] = repaired;
                    match step {
                        Step::Lose { .. } => cluster.engine.remove_node(cluster.now, &format!("{}-{n}", of.name)),
                        _ => cluster.engine.set_node(cluster.now, Node { ready: repaired, ..host(of, n) }),
                    }
                    cluster.check("after a node");
                }
                Step::Settle => {
                    let missing = cluster.engine.slices_missing();
                    prop_assert!(cluster.settle(400).is_some(), "no rest: {:?}", cluster.log);
                    let now_missing = cluster.engine.slices_missing();
                    prop_assert!(now_missing <= missing, "an admission took a slice that is not there");
                    let taken: Vec<bool> = up.iter().map(|hosts| hosts.contains(&false)).collect();
                    let running: Vec<(Vec<usize>, i32)> = cluster
                        .running()
                        .into_iter()
                        .map(|name| (jobs[name].0.clone(), jobs[name].1))
                        .collect();
                    let dealt = can_be_dealt(&running, &mut taken.clone());
                    prop_assert_eq!(dealt, now_missing == 0);
                    if !dealt {
                        continue;
                    }
                    for (name, (fitting, slices, ..)) in &jobs {
                        let waits = cluster.store.get(&Key::new(NAMESPACE, name.clone()))
                            .is_some_and(|w| !w.is_finished() && !w.has_quota_reservation());
                        if waits {
                            let mut with = running.clone();
                            with.push((fitting.clone(), *slices));
                            prop_assert!(!can_be_dealt(&with, &mut taken.clone()), "{name} could be admitted");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn whoever_is_passed_over_for_one_that_cannot_start_is_tried_again() {
    let pools = three();
    let mut cluster = cluster(200, &pools.each_ref(), true);
    cluster.queue(ClusterQueueSpec {
        resource_groups: vec![group("v5e", 200)],
        ..queue("r", Some("elsewhere"), 0, by_priority())
    });
    submit_to(&mut cluster, "runs", "r", "2x4", 1, 2);
    submit_to(&mut cluster, "large", "q", "2x4", 3, 2);
    cluster.settle(50);
    submit_to(&mut cluster, "small", "r", "2x4", 1, 0);
    // Something else changes, so that both are looked at in one cycle: the large one keeps slices for itself in vain.
    let other = pool("z", "ct5lp-hightpu-4t", "4x4", None);
    cluster.engine.set_node(cluster.now, host(&other, 0));
    cluster.settle(50);
    assert_eq!(cluster.running(), ["runs", "small"]);
}
