//! Small clusters, written as text.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "not every test needs all of it")]

use slicegate_placement::{
    Features, HOSTNAME_LABEL, Node, OtherPods, Placement, PlacementUsage, PodRequest, PodSetRequest, Replacement,
    Topologies, Usage,
};
use slicegate_quota::{FlavorId, Names};
use slicegate_workload::{
    FlavorSpec, PodSpec, Requests, TopologyAssignment, TopologyConstraint, TopologyDomain, TopologyRequest,
    TopologySpec,
};

pub(crate) const BLOCK: &str = "block";
pub(crate) const RACK: &str = "rack";
pub(crate) const HOST: &str = HOSTNAME_LABEL;

/// Nodes from `b1/r1/x3:1` (cpu) or `b1/r1/x3:1,2` (cpu and gpu); racks and blocks may be left out.
pub(crate) fn nodes(text: &str) -> Vec<Node> {
    let node = |word: &str| {
        let (path, amounts) = word.split_once(':').unwrap();
        let path: Vec<&str> = path.split('/').collect();
        let host = path[path.len() - 1];
        let levels = [BLOCK, RACK, HOST];
        let labels = levels[levels.len() - path.len()..].iter().zip(&path);
        let amounts: Vec<i64> = amounts.split(',').map(|n| n.parse().unwrap()).collect();
        let gpu = amounts.get(1).copied().unwrap_or(0);
        Node {
            name: host.into(),
            labels: labels.map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ready: true,
            allocatable: [("cpu", amounts[0]), ("gpu", gpu), ("pods", 100)].into_iter().collect(),
            ..Node::default()
        }
    };
    text.split_whitespace().map(node).collect()
}

pub(crate) fn requests(cpu: i64, gpu: i64) -> Requests {
    [("cpu", cpu), ("gpu", gpu)].into_iter().filter(|(_, n)| *n > 0).collect()
}

pub(crate) fn assignment(text: &str) -> TopologyAssignment {
    let domain = |word: &str| {
        let (host, count) = word.split_once(':').unwrap();
        TopologyDomain { values: host.split('/').map(Into::into).collect(), count: count.parse().unwrap() }
    };
    TopologyAssignment { levels: vec![HOST.into()], domains: text.split_whitespace().map(domain).collect() }
}

/// An assignment as text, or the reason why there is none.
pub(crate) fn text(placement: &Placement) -> String {
    match placement {
        Placement::Placed(a) => {
            let domain = |d: &TopologyDomain| format!("{}:{}", d.values.join("/"), d.count);
            a.domains.iter().map(domain).collect::<Vec<_>>().join(" ")
        }
        Placement::Failed(failure) => failure.to_string(),
        Placement::Untried => "untried".to_owned(),
    }
}

pub(crate) fn required(level: &str) -> TopologyRequest {
    TopologyRequest { required: Some(level.into()), ..TopologyRequest::default() }
}

pub(crate) fn preferred(level: &str) -> TopologyRequest {
    TopologyRequest { preferred: Some(level.into()), ..TopologyRequest::default() }
}

pub(crate) fn unconstrained() -> TopologyRequest {
    TopologyRequest { unconstrained: Some(true), ..TopologyRequest::default() }
}

pub(crate) fn sliced(mut request: TopologyRequest, layers: &[(&str, i32)]) -> TopologyRequest {
    let layer = |&(topology, size): &(&str, i32)| TopologyConstraint { topology: topology.into(), size };
    request.slice_constraints = layers.iter().map(layer).collect();
    request
}

/// A pod set with requests of its own.
#[derive(Clone, Default)]
pub(crate) struct PodSet<'a> {
    pub(crate) name: &'a str,
    pub(crate) count: i32,
    pub(crate) cpu: i64,
    pub(crate) gpu: i64,
    pub(crate) topology: Option<TopologyRequest>,
    pub(crate) group: Option<&'a str>,
    pub(crate) flavor: &'a str,
    pub(crate) pod: PodSpec,
    pub(crate) previous: Option<TopologyAssignment>,
    pub(crate) replacement: Option<(&'a str, TopologyAssignment)>,
}

impl PodSet<'_> {
    pub(crate) fn new(count: i32, topology: TopologyRequest) -> Self {
        PodSet { name: "main", count, cpu: 1, topology: Some(topology), flavor: "f", ..PodSet::default() }
    }
}

pub(crate) struct World {
    pub(crate) names: Names,
    pub(crate) topologies: Topologies,
}

impl World {
    /// No flavors.
    pub(crate) fn empty() -> Self {
        Self { names: Names::new(), topologies: Topologies::new(Features::default()) }
    }

    /// A flavor `f` over these nodes, with a level for each part of their paths.
    pub(crate) fn new(text: &str, features: Features) -> Self {
        let mut world = Self { names: Names::new(), topologies: Topologies::new(features) };
        let depth = text.split_whitespace().next().map_or(1, |w| w.split('/').count());
        let levels = [BLOCK, RACK, HOST];
        world.set("f", &levels[levels.len() - depth..], &nodes(text), &OtherPods::new());
        world
    }

    pub(crate) fn set(&mut self, flavor: &str, levels: &[&str], nodes: &[Node], others: &OtherPods) {
        let flavor = FlavorSpec { name: flavor.into(), ..FlavorSpec::default() };
        let topology = TopologySpec { name: "default".into(), levels: levels.iter().map(|l| (*l).into()).collect() };
        self.topologies.set(&flavor, &topology, nodes, others, &mut self.names);
    }

    pub(crate) fn flavor(&self, name: &str) -> FlavorId {
        self.names.flavor(name).unwrap()
    }

    pub(crate) fn pod(&mut self, cpu: i64, gpu: i64) -> PodRequest {
        PodRequest::new(&requests(cpu, gpu), &mut self.names)
    }

    pub(crate) fn usage(&mut self, flavor: &str, domains: &str, cpu: i64) -> Usage {
        let pod = self.pod(cpu, 0);
        self.topologies.usage(self.flavor(flavor), &assignment(domains), &pod)
    }

    pub(crate) fn place_all(&mut self, pod_sets: &[PodSet<'_>], usage: PlacementUsage) -> Vec<Placement> {
        let pods: Vec<PodRequest> = pod_sets.iter().map(|p| self.pod(p.cpu, p.gpu)).collect();
        let requests: Vec<PodSetRequest<'_>> = pod_sets
            .iter()
            .zip(&pods)
            .map(|(p, pod_request)| PodSetRequest {
                name: p.name,
                count: p.count,
                pod_request,
                pod: &p.pod,
                updates: &[],
                topology: p.topology.as_ref(),
                group: p.group,
                flavor: self.flavor(p.flavor),
                previous: p.previous.as_ref(),
                replacement: p.replacement.as_ref().map(|(node, existing)| Replacement { node, existing, keep: false }),
            })
            .collect();
        self.topologies.place(&requests, usage)
    }

    pub(crate) fn place(&mut self, pod_set: &PodSet<'_>) -> String {
        text(&self.place_all(std::slice::from_ref(pod_set), PlacementUsage::Current)[0])
    }
}
