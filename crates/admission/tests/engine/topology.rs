//! Nodes, and workloads that are placed on them.

use slicegate_admission::{Config, Engine};
use slicegate_placement::{HOSTNAME_LABEL, Node};
use slicegate_workload::{ClusterQueueSpec, FlavorSpec, Key, PreemptionPolicy, Timestamp, TopologySpec};

use crate::cluster::{Cluster, TPU, group, queue};

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
