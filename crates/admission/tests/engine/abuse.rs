//! What no sane cluster does: whatever is said of nodes, topologies and workloads, the engine goes on and its books balance.

use proptest::prelude::*;
use slicegate_admission::Config;
use slicegate_placement::{HOSTNAME_LABEL, Node};
use slicegate_workload::{
    Admission, ClusterQueueSpec, Condition, ConditionType, FlavorSpec, Key, PodSetAssignment, PreemptionPolicy, Status,
    TopologyAssignment, TopologyConstraint, TopologyDomain, TopologyRequest, TopologySpec, WithinClusterQueuePolicy,
    Workload,
};

use crate::cluster::{Cluster, NAMESPACE, TPU, group, queue};

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Node {
        name: u8,
        host: Option<u8>,
        rack: Option<u8>,
        pools: u8,
        chips: i64,
        slots: Option<i64>,
        ready: bool,
        cordoned: bool,
    },
    RemoveNode(u8),
    OtherPod {
        pod: u8,
        node: u8,
        chips: i64,
    },
    RemoveOtherPod(u8),
    Topology {
        name: u8,
        levels: u8,
    },
    RemoveTopology(u8),
    Flavor {
        name: u8,
        topology: Option<u8>,
        pool: bool,
    },
    RemoveFlavor(u8),
    Queue {
        flavors: u8,
        chips: i64,
    },
    RemoveQueue,
    Submit {
        workload: u8,
        count: i32,
        chips: i64,
        request: u8,
        size: i32,
        priority: i32,
    },
    Admitted {
        workload: u8,
        flavor: u8,
        levels: u8,
        nodes: Vec<u8>,
        count: i32,
        told: Option<i32>,
    },
    Unhealthy(u8, u8),
    Finish(u8),
    Delete(u8),
    Cycle,
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 0..9_i64, 1 => Just(-3), 1 => Just(i64::MAX), 1 => Just(i64::MIN)]
}

fn count() -> impl Strategy<Value = i32> {
    prop_oneof![8 => 1..6, 1 => Just(0), 1 => Just(-2), 1 => Just(i32::MAX), 1 => Just(i32::MIN)]
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..5_u8;
    prop_oneof![
        6 => (
            id.clone(),
            proptest::option::weighted(0.9, 0..5_u8),
            proptest::option::weighted(0.9, 0..3_u8),
            0..4_u8,
            number(),
            proptest::option::weighted(0.9, number()),
            proptest::bool::weighted(0.9),
            proptest::bool::weighted(0.1),
        )
            .prop_map(|(name, host, rack, pools, chips, slots, ready, cordoned)| Event::Node {
                name, host, rack, pools, chips, slots, ready, cordoned
            }),
        1 => id.clone().prop_map(Event::RemoveNode),
        1 => (id.clone(), 0..7_u8, number()).prop_map(|(pod, node, chips)| Event::OtherPod { pod, node, chips }),
        1 => id.clone().prop_map(Event::RemoveOtherPod),
        2 => (0..2_u8, 0..17_u8).prop_map(|(name, levels)| Event::Topology { name, levels }),
        1 => (0..2_u8).prop_map(Event::RemoveTopology),
        2 => (0..2_u8, proptest::option::weighted(0.8, 0..3_u8), any::<bool>())
            .prop_map(|(name, topology, pool)| Event::Flavor { name, topology, pool }),
        1 => (0..2_u8).prop_map(Event::RemoveFlavor),
        2 => (1..4_u8, prop_oneof![Just(50_i64), number()]).prop_map(|(flavors, chips)| Event::Queue { flavors, chips }),
        1 => Just(Event::RemoveQueue),
        8 => (id.clone(), count(), number(), 0..7_u8, count(), 0..3)
            .prop_map(|(workload, count, chips, request, size, priority)| Event::Submit {
                workload, count, chips, request, size, priority
            }),
        3 => (id.clone(), 0..3_u8, 0..17_u8, proptest::collection::vec(0..7_u8, 0..4), count(), proptest::option::of(count()))
            .prop_map(|(workload, flavor, levels, nodes, count, told)| Event::Admitted {
                workload, flavor, levels, nodes, count, told
            }),
        2 => (id.clone(), 0..7_u8).prop_map(|(w, n)| Event::Unhealthy(w, n)),
        1 => id.clone().prop_map(Event::Finish),
        1 => id.prop_map(Event::Delete),
        8 => Just(Event::Cycle),
    ]
}

/// As many levels as are asked for; the last but one are racks and hosts.
fn levels(count: u8) -> Vec<Box<str>> {
    let above = (2..count).map(|i| format!("level-{i}").into());
    let known: [Box<str>; 2] = ["rack".into(), HOSTNAME_LABEL.into()];
    above.chain(known.into_iter().skip(usize::from(2_u8.saturating_sub(count)))).collect()
}

fn node(event: &Event) -> Option<Node> {
    let Event::Node { name, host, rack, pools, chips, slots, ready, cordoned } = event else { return None };
    let mut node = Node { name: format!("n{name}").into(), ready: *ready, unschedulable: *cordoned, ..Node::default() };
    if let Some(host) = host {
        node.labels.insert(HOSTNAME_LABEL.into(), format!("n{host}").into());
    }
    if let Some(rack) = rack {
        node.labels.insert("rack".into(), format!("r{rack}").into());
        for level in 2..17 {
            node.labels.insert(format!("level-{level}").into(), "all".into());
        }
    }
    for pool in 0..2 {
        if pools & (1 << pool) != 0 {
            node.labels.insert(format!("pool-{pool}").into(), "yes".into());
        }
    }
    let slots = slots.map(|slots| ("pods", slots));
    node.allocatable = [(TPU, *chips)].into_iter().chain(slots).collect();
    Some(node)
}

fn request(kind: u8, size: i32) -> Option<TopologyRequest> {
    let plain = TopologyRequest::default();
    let host = || Some(HOSTNAME_LABEL.into());
    Some(match kind {
        0 => return None,
        1 => TopologyRequest { required: Some("rack".into()), ..plain },
        2 => TopologyRequest { preferred: Some("rack".into()), ..plain },
        3 => TopologyRequest { unconstrained: Some(true), ..plain },
        4 => TopologyRequest { slice_required_topology: host(), slice_size: Some(size), ..plain },
        5 => TopologyRequest {
            required: Some("rack".into()),
            slice_constraints: vec![
                TopologyConstraint { topology: "rack".into(), size },
                TopologyConstraint { topology: HOSTNAME_LABEL.into(), size: size.wrapping_neg() },
            ],
            ..plain
        },
        _ => TopologyRequest { required: host(), pod_set_group_name: Some("g".into()), ..plain },
    })
}

/// Gives a workload an admission that nobody decided.
fn admit(workload: &mut Workload, flavor: u8, levels_of: u8, nodes: &[u8], count: i32, told: Option<i32>) {
    let levels = levels(levels_of);
    let domain = |node: &u8| TopologyDomain {
        values: levels
            .iter()
            .map(|level| if **level == *"rack" { "r0".into() } else { format!("n{node}").into() })
            .collect(),
        count,
    };
    let domains = nodes.iter().map(domain).collect();
    workload.status.admission = Some(Admission {
        cluster_queue: "q".into(),
        pod_set_assignments: vec![PodSetAssignment {
            name: "main".into(),
            flavors: [(TPU.into(), format!("f{flavor}").into())].into(),
            count: told,
            topology_assignment: Some(TopologyAssignment { levels, domains }),
            ..PodSetAssignment::default()
        }],
    });
    for kind in [ConditionType::QuotaReserved, ConditionType::Admitted] {
        workload.status.conditions.set(Condition {
            kind,
            status: Status::True,
            reason: "Told".into(),
            message: Box::default(),
            last_transition: workload.created,
            observed_generation: 1,
        });
    }
}

fn apply(cluster: &mut Cluster, event: &Event) {
    let now = cluster.now;
    let key = |id: u8| Key::new(NAMESPACE, format!("w{id}"));
    let known = |cluster: &Cluster, id: u8| cluster.store.contains_key(&key(id));
    match event {
        Event::Node { .. } => {
            if let Some(node) = node(event) {
                cluster.engine.set_node(now, node);
            }
        }
        Event::RemoveNode(name) => cluster.engine.remove_node(now, &format!("n{name}")),
        Event::OtherPod { pod, node, chips } => {
            let requests = [(TPU, *chips)].into_iter().collect();
            cluster.engine.set_other_pod(now, &Key::new("x", format!("p{pod}")), &format!("n{node}"), requests);
        }
        Event::RemoveOtherPod(pod) => cluster.engine.remove_other_pod(now, &Key::new("x", format!("p{pod}"))),
        Event::Topology { name, levels: count } => {
            let spec = TopologySpec { name: format!("t{name}").into(), levels: levels(*count) };
            cluster.engine.set_topology(now, spec);
        }
        Event::RemoveTopology(name) => cluster.engine.remove_topology(now, &format!("t{name}")),
        Event::Flavor { name, topology, pool } => {
            let labels = if *pool { [(format!("pool-{name}").into(), "yes".into())].into() } else { [].into() };
            cluster.engine.set_flavor(
                now,
                FlavorSpec {
                    name: format!("f{name}").into(),
                    node_labels: labels,
                    topology: topology.map(|t| format!("t{t}").into()),
                    ..FlavorSpec::default()
                },
            );
        }
        Event::RemoveFlavor(name) => cluster.engine.remove_flavor(now, &format!("f{name}")),
        Event::Queue { flavors, chips } => {
            let mut all = group("f0", *chips);
            let second = group("f1", *chips);
            match flavors {
                1 => {}
                2 => all = second,
                _ => all.flavors.extend(second.flavors),
            }
            let preemption = PreemptionPolicy {
                within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
                ..PreemptionPolicy::default()
            };
            cluster.queue(ClusterQueueSpec { resource_groups: vec![all], ..queue("q", None, 0, preemption) });
        }
        Event::RemoveQueue => cluster.engine.remove_cluster_queue(now, "q"),
        Event::Submit { workload, count, chips, request: kind, size, priority } => {
            let mut made = cluster.workload(&format!("w{workload}"), "q", *chips, *priority);
            made.spec.pod_sets[0].count = *count;
            made.spec.pod_sets[0].topology_request = request(*kind, *size);
            cluster.put(made);
        }
        Event::Admitted { workload, flavor, levels, nodes, count, told } if known(cluster, *workload) => {
            cluster.change(&format!("w{workload}"), |w| admit(w, *flavor, *levels, nodes, *count, *told));
        }
        Event::Unhealthy(workload, node) if known(cluster, *workload) => {
            cluster.change(&format!("w{workload}"), |w| w.status.unhealthy_nodes.push(format!("n{node}").into()));
        }
        Event::Finish(workload) if known(cluster, *workload) => cluster.finish(&format!("w{workload}")),
        Event::Delete(workload) => cluster.delete(&format!("w{workload}")),
        Event::Cycle => {
            cluster.now = now.plus_seconds(2);
            let cycle = cluster.engine.cycle(cluster.now);
            for eviction in cycle.evictions {
                if let Some(w) = cluster.store.get_mut(&eviction.workload) {
                    w.status = eviction.status;
                }
            }
            for entry in cycle.entries {
                if let (Some(status), Some(w)) = (entry.status, cluster.store.get_mut(&entry.workload)) {
                    w.status = status;
                    let seen = w.clone();
                    cluster.engine.set_workload(cluster.now, seen);
                }
            }
            cluster.stop_evicted();
        }
        Event::Admitted { .. } | Event::Unhealthy(..) | Event::Finish(_) => {}
    }
    cluster.check(&format!("after {event:?}"));
    for id in 0..5 {
        let _ = cluster.engine.why(cluster.now, &key(id));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_is_said_of_nodes_upsets_the_books(events in proptest::collection::vec(event(), 1..60)) {
        let mut cluster = Cluster::new(Config::new());
        for event in [
            Event::Topology { name: 0, levels: 2 },
            Event::Flavor { name: 0, topology: Some(0), pool: true },
            Event::Flavor { name: 1, topology: Some(1), pool: false },
            Event::Queue { flavors: 3, chips: 50 },
        ] {
            apply(&mut cluster, &event);
        }
        for event in &events {
            apply(&mut cluster, event);
        }
        // Whatever is left goes, in another order than it came.
        for id in 0..5 {
            apply(&mut cluster, &Event::RemoveNode(id));
            apply(&mut cluster, &Event::Cycle);
            apply(&mut cluster, &Event::Delete(4 - id));
            apply(&mut cluster, &Event::RemoveOtherPod(id));
            apply(&mut cluster, &Event::RemoveTopology(id));
            apply(&mut cluster, &Event::RemoveFlavor(id));
        }
        apply(&mut cluster, &Event::RemoveQueue);
        prop_assert_eq!(cluster.engine.overcommitted().len(), 0);
    }
}
