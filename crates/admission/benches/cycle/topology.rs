//! A cluster full of small workloads on nodes, and a large one that wants their places.

use slicegate_admission::lifecycle::{At, set_quota_reservation, sync_admitted};
use slicegate_admission::{Config, Engine};
use slicegate_placement::{HOSTNAME_LABEL, Node};
use slicegate_quota::{Quantity, request_quantity};
use slicegate_workload::{
    Admission, ClusterQueueSpec, Container, FlavorQuotas, FlavorSpec, Key, LabelSelector, LocalQueueSpec, PodSet,
    PodSetAssignment, PodSpec, PreemptionPolicy, ResourceGroup, ResourceQuota, Resources, Timestamp,
    TopologyAssignment, TopologyDomain, TopologyRequest, TopologySpec, WithinClusterQueuePolicy, Workload,
    WorkloadSpec,
};

const TPU: &str = "google.com/tpu";
const BLOCK: &str = "block";
const NODES: usize = 2_000;
const VICTIMS: usize = 700;
const CHIPS: usize = 4;

/// The cluster and the workload that wants to preempt.
pub(crate) struct Full {
    pub(crate) engine: Engine,
    pub(crate) preemptor: Key,
    pub(crate) now: Timestamp,
}

fn host(n: usize) -> Box<str> {
    format!("n{n:05}").into()
}

fn workload(name: &str, count: i32, chips: i64, priority: i32, topology: TopologyRequest) -> Workload {
    let requests = [(TPU.into(), Quantity::from_units(chips))].into();
    let resources = Resources { requests, ..Resources::default() };
    let container = Container { name: "main".into(), resources, ..Container::default() };
    Workload {
        key: Key::new("default", name),
        uid: name.into(),
        generation: 1,
        spec: WorkloadSpec {
            queue_name: "q".into(),
            priority,
            pod_sets: vec![PodSet {
                name: "main".into(),
                count,
                pod: PodSpec { containers: vec![container], ..PodSpec::default() },
                topology_request: Some(topology),
                ..PodSet::default()
            }],
            ..WorkloadSpec::default()
        },
        ..Workload::default()
    }
}

impl Full {
    /// Every chip is in use, and there is more quota than chips. The preemptor wants so many whole hosts, of one block or of any.
    pub(crate) fn new(hosts: i32, one_block: bool) -> Self {
        let now = Timestamp::from_seconds(1_000_000);
        let mut engine = Engine::new(Config::new());
        engine.set_namespace(now, "default", std::collections::BTreeMap::new());
        let levels = vec![BLOCK.into(), "rack".into(), HOSTNAME_LABEL.into()];
        engine.set_topology(now, TopologySpec { name: "t".into(), levels });
        engine.set_flavor(now, FlavorSpec { name: "f".into(), topology: Some("t".into()), ..FlavorSpec::default() });
        for n in 0..NODES {
            let (block, rack) = (format!("b{}", n / 250), format!("r{}", n / 10));
            engine.set_node(
                now,
                Node {
                    name: host(n),
                    labels: [
                        (HOSTNAME_LABEL.into(), host(n)),
                        (BLOCK.into(), block.into()),
                        ("rack".into(), rack.into()),
                    ]
                    .into(),
                    ready: true,
                    allocatable: [(TPU, 4), ("pods", 110)].into_iter().collect(),
                    ..Node::default()
                },
            );
        }
        let quota = ResourceQuota { nominal: Quantity::from_units(20_000), ..ResourceQuota::default() };
        engine.set_cluster_queue(
            now,
            ClusterQueueSpec {
                name: "q".into(),
                resource_groups: vec![ResourceGroup {
                    covered_resources: vec![TPU.into()],
                    flavors: vec![FlavorQuotas { name: "f".into(), resources: vec![(TPU.into(), quota)] }],
                }],
                namespace_selector: Some(LabelSelector::default()),
                preemption: PreemptionPolicy {
                    within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
                    ..PreemptionPolicy::default()
                },
                ..ClusterQueueSpec::default()
            },
        );
        let key = Key::new("default", "q");
        engine.set_local_queue(now, LocalQueueSpec { key, cluster_queue: "q".into(), ..LocalQueueSpec::default() });
        let chips = NODES * CHIPS;
        for victim in 0..VICTIMS {
            let (first, end) = (victim * chips / VICTIMS, (victim + 1) * chips / VICTIMS);
            let mut domains: Vec<TopologyDomain> = Vec::new();
            for chip in first..end {
                let values = vec![host(chip / CHIPS)];
                match domains.last_mut().filter(|d| d.values == values) {
                    Some(last) => last.count += 1,
                    None => domains.push(TopologyDomain { values, count: 1 }),
                }
            }
            let count = i32::try_from(end - first).unwrap_or(0);
            let anywhere = TopologyRequest { unconstrained: Some(true), ..TopologyRequest::default() };
            let mut w = workload(&format!("victim-{victim:03}"), count, 1, 0, anywhere);
            let admission = Admission {
                cluster_queue: "q".into(),
                pod_set_assignments: vec![PodSetAssignment {
                    name: "main".into(),
                    count: Some(count),
                    flavors: [(TPU.into(), "f".into())].into(),
                    resource_usage: [(TPU.into(), request_quantity(TPU, i64::from(count)))].into(),
                    topology_assignment: Some(TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains }),
                    ..PodSetAssignment::default()
                }],
            };
            let at = At { now: now.plus_seconds(i64::try_from(victim).unwrap_or(0)), generation: 1 };
            set_quota_reservation(&mut w.status, admission, at);
            sync_admitted(&mut w.status, at, &engine.config().gates);
            engine.set_workload(now, w);
        }
        let level = || Some(BLOCK.into());
        let topology = if one_block {
            TopologyRequest { required: level(), ..TopologyRequest::default() }
        } else {
            TopologyRequest { preferred: level(), ..TopologyRequest::default() }
        };
        let preemptor = workload("preemptor", hosts, 4, 10, topology);
        let key = preemptor.key.clone();
        engine.set_workload(now, preemptor);
        Self { engine, preemptor: key, now }
    }

    /// One decision, which changes nothing: how many victims there are.
    pub(crate) fn decide(&mut self) -> usize {
        let why = self.engine.why(self.now, &self.preemptor);
        why.map_or(0, |w| match w.cause {
            slicegate_admission::Cause::Preempting { victims } => victims,
            _ => 0,
        })
    }
}
