//! Topologies of a case, as the assigner of flavors asks for them.

use std::collections::BTreeSet;

use serde_json::Value;
use slicegate_flavor::{FlavorTable, LevelSupport, PlacementFailure, PlacementRequest, PlacementUsage, Placer};
use slicegate_placement::{Features, Node, OtherPods, Placement, PodRequest, PodSetRequest, Reach, Topologies};
use slicegate_quota::FlavorId;
use slicegate_tests::objects;
use slicegate_workload::{FlavorSpec, PodSet, Requests, TopologyAssignment, TopologyDomain, TopologySpec, Workload};

use crate::placement::node;
use crate::setup::Setup;

/// Flavors with topologies.
#[derive(Default)]
pub(crate) struct Nodes {
    flavors: BTreeSet<FlavorId>,
    topologies: Topologies,
    pod_sets: Vec<(PodSet, PodRequest)>,
}

impl Nodes {
    /// Flavors that have a topology, of which nothing else is known.
    pub(crate) fn of_flavors(flavors: &FlavorTable) -> Self {
        let with_topology = flavors.iter().filter(|(_, f)| f.is_some_and(|f| f.topology.is_some()));
        Self { flavors: with_topology.map(|(id, _)| id).collect(), ..Self::default() }
    }

    /// The Topologies and Nodes of a case.
    pub(crate) fn new(case: &Value, w: &Workload, setup: &mut Setup) -> Result<Self, String> {
        let mut result = Self { topologies: Topologies::new(Features::default()), ..Self::default() };
        let nodes: Vec<Node> = objects::of_kind(&case["objects"], "Node").map(node).collect::<Result<_, _>>()?;
        for object in objects::of_kind(&case["objects"], "Topology") {
            let topology: TopologySpec = objects::topology(object).map_err(|e| e.to_string())?;
            let of_topology: Vec<(FlavorId, FlavorSpec)> = setup
                .flavors
                .iter()
                .filter_map(|(id, flavor)| Some((id, flavor?.clone())))
                .filter(|(_, flavor)| flavor.topology.as_ref() == Some(&topology.name))
                .collect();
            for (id, flavor) in of_topology {
                result.topologies.set(&flavor, &topology, &nodes, &OtherPods::new(), &mut setup.names);
                result.flavors.insert(id);
            }
        }
        for used in case["tasUsage"].as_array().into_iter().flatten() {
            let flavor = setup.names.intern_flavor(used["flavor"].as_str().unwrap_or_default());
            let values = used["domain"].as_array().into_iter().flatten();
            let count = used["count"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default();
            let domain = TopologyDomain { values: values.filter_map(|v| Some(v.as_str()?.into())).collect(), count };
            let amounts = used["podRequests"].as_object().into_iter().flatten();
            let requests: Requests = amounts.map(|(r, n)| (r.as_str(), n.as_i64().unwrap_or(0))).collect();
            let request = PodRequest::new(&requests, &mut setup.names);
            let assignment = TopologyAssignment { levels: Vec::new(), domains: vec![domain] };
            let usage = result.topologies.usage(flavor, &assignment, &request);
            result.topologies.add(&usage, Reach::Node);
        }
        for pod_set in &w.spec.pod_sets {
            let request = PodRequest::new(&Requests::from(&pod_set.pod.requests()), &mut setup.names);
            result.pod_sets.push((pod_set.clone(), request));
        }
        Ok(result)
    }
}

impl Placer for Nodes {
    fn has_topology(&self, flavor: FlavorId) -> bool {
        self.flavors.contains(&flavor)
    }

    fn supports(&self, flavor: FlavorId, pod_set: usize) -> LevelSupport {
        let request = self.pod_sets.get(pod_set).and_then(|(p, _)| p.topology_request.as_ref());
        match request.map_or(Some(true), |r| self.topologies.supports(flavor, r)) {
            Some(true) => LevelSupport::Supported,
            Some(false) => LevelSupport::MissingLevel,
            None => LevelSupport::Unknown,
        }
    }

    fn is_delayed(&self, _flavor: FlavorId, _pod_set: usize) -> bool {
        false
    }

    fn place(
        &mut self,
        requests: &[PlacementRequest],
        usage: PlacementUsage,
    ) -> Result<Vec<TopologyAssignment>, PlacementFailure> {
        let wanted: Vec<PodSetRequest<'_>> = requests
            .iter()
            .filter_map(|r| Some((r, self.pod_sets.get(r.pod_set)?)))
            .map(|(r, (pod_set, pod_request))| PodSetRequest {
                name: &pod_set.name,
                count: r.count,
                pod_request,
                pod: &pod_set.pod,
                updates: &[],
                topology: pod_set.topology_request.as_ref().filter(|_| !r.implied),
                group: pod_set.topology_request.as_ref().and_then(|t| t.pod_set_group_name.as_deref()),
                flavor: r.flavor,
                previous: None,
                replacement: None,
            })
            .collect();
        let usage = match usage {
            PlacementUsage::Current => slicegate_placement::PlacementUsage::Current,
            PlacementUsage::Empty => slicegate_placement::PlacementUsage::Empty,
        };
        let placements = self.topologies.place(&wanted, usage);
        let failed = requests.iter().zip(&placements).find_map(|(r, p)| Some((r, p.failure()?)));
        if let Some((request, failure)) = failed {
            let (pod_set, flavor) = (request.pod_set, request.flavor);
            return Err(PlacementFailure { pod_set, flavor, message: failure.to_string().into() });
        }
        let assignment = |p: Placement| p.assignment().cloned().unwrap_or_default();
        Ok(placements.into_iter().map(assignment).collect())
    }
}
