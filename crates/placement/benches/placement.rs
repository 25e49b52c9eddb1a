//! How long placements and changes of usage take. Figures are to be compared within one run only.

#![allow(missing_docs, reason = "a benchmark")]

use divan::{Bencher, black_box};
use slicegate_placement::{
    Features, HOSTNAME_LABEL, Node, OtherPods, PlacementUsage, PodRequest, PodSetRequest, Reach, Topologies, Tree,
    Usage,
};
use slicegate_quota::{FlavorId, Names};
use slicegate_workload::{
    FlavorSpec, Labels, PodSpec, Requests, TopologyAssignment, TopologyDomain, TopologyRequest, TopologySpec,
};

const BLOCK: &str = "cloud.google.com/gce-topology-block";
const RACK: &str = "cloud.google.com/gce-topology-subblock";

fn main() {
    divan::main();
}

/// Nodes in racks of 16 and blocks of 40 racks.
struct Cluster {
    topologies: Topologies,
    flavor: FlavorId,
    names: Names,
}

fn nodes(count: usize) -> Vec<Node> {
    let node = |i: usize| {
        let (block, rack) = (i / 640, i / 16);
        let labels: Labels = [
            (BLOCK.into(), format!("block-{block:04}").into()),
            (RACK.into(), format!("rack-{rack:05}").into()),
            (HOSTNAME_LABEL.into(), format!("node-{i:06}").into()),
            ("cloud.google.com/gke-tpu-accelerator".into(), "tpu-v6e-slice".into()),
        ]
        .into();
        // Not all nodes are alike, so that orders are not given for free.
        let tpus = if i.is_multiple_of(7) { 2 } else { 4 };
        let allocatable =
            [("cpu", 100_000 + i64::try_from(i % 13).unwrap_or(0)), ("google.com/tpu", tpus), ("pods", 110)];
        Node {
            name: format!("node-{i:06}").into(),
            labels,
            ready: true,
            allocatable: allocatable.into_iter().collect(),
            ..Node::default()
        }
    };
    (0..count).map(node).collect()
}

fn specs() -> (FlavorSpec, TopologySpec) {
    let levels = [BLOCK, RACK, HOSTNAME_LABEL].map(Into::into).to_vec();
    let flavor = FlavorSpec { name: "tpu".into(), ..FlavorSpec::default() };
    (flavor, TopologySpec { name: "default".into(), levels })
}

fn cluster(nodes: &[Node]) -> Cluster {
    let mut names = Names::new();
    let (flavor, topology) = specs();
    let mut topologies = Topologies::new(Features::default());
    topologies.set(&flavor, &topology, nodes, &OtherPods::new(), &mut names);
    Cluster { topologies, flavor: names.intern_flavor("tpu"), names }
}

fn pod(cluster: &mut Cluster) -> PodRequest {
    let requests: Requests = [("cpu", 24_000), ("google.com/tpu", 1)].into_iter().collect();
    PodRequest::new(&requests, &mut cluster.names)
}

fn place(bencher: Bencher<'_, '_>, topology: &TopologyRequest, spec: &PodSpec, nodes: usize, count: i32) {
    let mut cluster = cluster(&self::nodes(nodes));
    let request = pod(&mut cluster);
    let request = PodSetRequest {
        name: "workers",
        count,
        pod_request: &request,
        pod: spec,
        updates: &[],
        topology: Some(topology),
        group: None,
        flavor: cluster.flavor,
        previous: None,
        replacement: None,
    };
    let placed = cluster.topologies.place(&[request], PlacementUsage::Current);
    assert!(placed[0].assignment().is_some(), "{placed:?}");
    bencher.bench_local(|| cluster.topologies.place(black_box(&[request]), PlacementUsage::Current));
}

#[divan::bench_group]
mod place_1000_pods {
    use super::{BLOCK, Bencher, PodSpec, RACK, TopologyRequest, place};

    const NODES: [usize; 2] = [10_000, 100_000];

    #[divan::bench(args = NODES)]
    fn required(bencher: Bencher<'_, '_>, nodes: usize) {
        let topology = TopologyRequest { required: Some(BLOCK.into()), ..TopologyRequest::default() };
        place(bencher, &topology, &PodSpec::default(), nodes, 1000);
    }

    #[divan::bench(args = NODES)]
    fn preferred(bencher: Bencher<'_, '_>, nodes: usize) {
        let topology = TopologyRequest { preferred: Some(RACK.into()), ..TopologyRequest::default() };
        place(bencher, &topology, &PodSpec::default(), nodes, 1000);
    }

    #[divan::bench(args = NODES)]
    fn unconstrained(bencher: Bencher<'_, '_>, nodes: usize) {
        let topology = TopologyRequest { unconstrained: Some(true), ..TopologyRequest::default() };
        place(bencher, &topology, &PodSpec::default(), nodes, 1000);
    }

    #[divan::bench(args = NODES)]
    fn sliced(bencher: Bencher<'_, '_>, nodes: usize) {
        let topology = TopologyRequest {
            required: Some(BLOCK.into()),
            slice_required_topology: Some(RACK.into()),
            slice_size: Some(8),
            ..TopologyRequest::default()
        };
        place(bencher, &topology, &PodSpec::default(), nodes, 1000);
    }

    #[divan::bench(args = NODES)]
    fn with_node_selector(bencher: Bencher<'_, '_>, nodes: usize) {
        let topology = TopologyRequest { required: Some(BLOCK.into()), ..TopologyRequest::default() };
        let selector = [("cloud.google.com/gke-tpu-accelerator".into(), "tpu-v6e-slice".into())];
        let spec = PodSpec { node_selector: selector.into(), ..PodSpec::default() };
        place(bencher, &topology, &spec, nodes, 1000);
    }
}

/// 700 workloads of 3 pods each on 2,000 nodes, on the nodes they use.
fn usages(cluster: &mut Cluster) -> Vec<Usage> {
    let request = pod(cluster);
    let usage = |i: usize| {
        let domains = (0..3).map(|j| {
            let host = format!("node-{:06}", (i * 3 + j) % 2_000);
            TopologyDomain { values: vec![host.into()], count: 1 }
        });
        let assignment = TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains: domains.collect() };
        cluster.topologies.usage(cluster.flavor, &assignment, &request)
    };
    (0..700).map(usage).collect()
}

/// What preemption does: takes 700 workloads away under a mark, and takes that back.
#[divan::bench]
fn remove_700_usages_from_2000_nodes(bencher: Bencher<'_, '_>) {
    let mut cluster = cluster(&nodes(2_000));
    let usages = usages(&mut cluster);
    for usage in &usages {
        cluster.topologies.add(usage, Reach::Node);
    }
    bencher.bench_local(|| {
        let mark = cluster.topologies.mark();
        for usage in &usages {
            cluster.topologies.take_away(black_box(usage), Reach::Flavor);
        }
        cluster.topologies.rollback(mark);
    });
}

/// The same by making a copy.
#[divan::bench]
fn remove_700_usages_from_a_copy_of_2000_nodes(bencher: Bencher<'_, '_>) {
    let mut cluster = cluster(&nodes(2_000));
    let usages = usages(&mut cluster);
    for usage in &usages {
        cluster.topologies.add(usage, Reach::Node);
    }
    bencher.bench_local(|| {
        let mut copy = cluster.topologies.clone();
        for usage in &usages {
            copy.take_away(black_box(usage), Reach::Flavor);
        }
        copy
    });
}

/// Making topologies of nodes, which is needed when nodes come and go.
#[divan::bench_group(sample_count = 10, sample_size = 1)]
mod build {
    use super::{Bencher, Tree, black_box, cluster, nodes, specs};

    const NODES: [usize; 2] = [2_000, 100_000];

    #[divan::bench(args = NODES)]
    fn tree_alone(bencher: Bencher<'_, '_>, count: usize) {
        let (nodes, (flavor, topology)) = (nodes(count), specs());
        bencher.bench_local(|| Tree::new(&flavor, &topology, black_box(&nodes)));
    }

    #[divan::bench(args = NODES)]
    fn all(bencher: Bencher<'_, '_>, count: usize) {
        let nodes = nodes(count);
        bencher.bench_local(|| cluster(black_box(&nodes)));
    }
}
