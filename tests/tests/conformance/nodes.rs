//! A placer for cases whose topologies have one level, the node: pods go to one node, in order of name.

use std::collections::BTreeMap;

use serde_json::Value;
use slicegate_flavor::{FlavorTable, LevelSupport, PlacementFailure, PlacementRequest, PlacementUsage, Placer};
use slicegate_quota::FlavorId;
use slicegate_tests::objects;
use slicegate_workload::{Requests, TopologyAssignment, TopologyDomain, Workload};

use crate::setup::Setup;

#[derive(Clone)]
struct Node {
    name: String,
    capacity: Requests,
    used: Requests,
}

#[derive(Clone, Default)]
struct Pool {
    topology: String,
    levels: Vec<Box<str>>,
    nodes: Vec<Node>,
}

/// Flavors with nodes.
#[derive(Default)]
pub(crate) struct Nodes {
    pools: BTreeMap<FlavorId, Pool>,
    /// By pod set: the levels it asks for and what one pod takes.
    pod_sets: Vec<(Vec<Box<str>>, Requests)>,
}

impl Nodes {
    pub(crate) fn of_flavors(flavors: &FlavorTable) -> Self {
        let with_topology = flavors.iter().filter(|(_, f)| f.is_some_and(|f| f.topology.is_some()));
        Self { pools: with_topology.map(|(id, _)| (id, Pool::default())).collect(), pod_sets: Vec::new() }
    }

    pub(crate) fn new(case: &Value, w: &Workload, setup: &mut Setup) -> Result<Self, String> {
        let mut result = Self::default();
        let mut topologies = BTreeMap::new();
        for object in objects::of_kind(&case["objects"], "Topology") {
            let topology = objects::topology(object).map_err(|e| e.to_string())?;
            topologies.insert(topology.name, topology.levels);
        }
        let found: Vec<(FlavorId, Box<str>)> =
            setup.flavors.iter().filter_map(|(id, flavor)| Some((id, flavor?.topology.clone()?))).collect();
        for (id, topology) in found {
            let Some(levels) = topologies.get(&topology) else { continue };
            let labels = setup.flavors.get(id).map(|f| f.node_labels.clone()).unwrap_or_default();
            let mut nodes = Vec::new();
            for object in objects::of_kind(&case["objects"], "Node") {
                let of = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
                if !labels.iter().all(|(key, value)| of(key) == **value) {
                    continue;
                }
                let allocatable =
                    objects::resource_list(&object["status"]["allocatable"]).map_err(|e| e.to_string())?;
                let capacity = Requests::from(&allocatable);
                nodes.push(Node { name: objects::name_of(object).to_owned(), capacity, used: Requests::new() });
            }
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            result.pools.insert(id, Pool { topology: topology.to_string(), levels: levels.clone(), nodes });
        }
        for usage in case["tasUsage"].as_array().into_iter().flatten() {
            let id = setup.names.intern_flavor(usage["flavor"].as_str().unwrap_or_default());
            let Some(pool) = result.pools.get_mut(&id) else { continue };
            let name = usage["domain"].as_array().and_then(|d| d.last()?.as_str()).unwrap_or_default();
            let count = usage["count"].as_i64().unwrap_or(0);
            for node in pool.nodes.iter_mut().filter(|n| n.name == name) {
                for (resource, amount) in usage["podRequests"].as_object().into_iter().flatten() {
                    node.used.add(resource, amount.as_i64().unwrap_or(0).saturating_mul(count));
                }
            }
        }
        for pod_set in &w.spec.pod_sets {
            let mut levels: Vec<Box<str>> = Vec::new();
            if let Some(request) = &pod_set.topology_request {
                levels.extend(request.required.clone());
                levels.extend(request.preferred.clone());
                levels.extend(request.slice_required_topology.clone());
                levels.extend(request.slice_constraints.iter().map(|c| c.topology.clone()));
            }
            result.pod_sets.push((levels, Requests::from(&pod_set.pod.requests())));
        }
        Ok(result)
    }
}

impl Placer for Nodes {
    fn has_topology(&self, flavor: FlavorId) -> bool {
        self.pools.contains_key(&flavor)
    }

    fn supports(&self, flavor: FlavorId, pod_set: usize) -> LevelSupport {
        let Some(pool) = self.pools.get(&flavor) else { return LevelSupport::Unknown };
        let has_all =
            self.pod_sets.get(pod_set).is_none_or(|(levels, _)| levels.iter().all(|l| pool.levels.contains(l)));
        if has_all { LevelSupport::Supported } else { LevelSupport::MissingLevel }
    }

    fn is_delayed(&self, _flavor: FlavorId, _pod_set: usize) -> bool {
        false
    }

    fn place(
        &mut self,
        requests: &[PlacementRequest],
        usage: PlacementUsage,
    ) -> Result<Vec<TopologyAssignment>, PlacementFailure> {
        let mut pools = self.pools.clone();
        let mut places = Vec::new();
        for request in requests {
            let Some(pool) = pools.get_mut(&request.flavor) else { continue };
            if pool.nodes.is_empty() {
                let level = self.pod_sets[request.pod_set].0.first().map_or("", |l| l);
                let message = format!("no topology domains at level: {level}").into();
                return Err(PlacementFailure { pod_set: request.pod_set, flavor: request.flavor, message });
            }
            let single = &self.pod_sets[request.pod_set].1;
            let mut excluded: BTreeMap<&str, usize> = BTreeMap::new();
            let mut best = 0;
            let mut found = None;
            for node in &mut pool.nodes {
                if usage == PlacementUsage::Empty {
                    node.used = Requests::new();
                }
                let mut free = node.capacity.clone();
                free.subtract_all(&node.used);
                let fit = single.count_in(&free);
                let count = if single.is_empty() { i32::MAX } else { fit.count };
                if count >= request.count {
                    node.used.add_all(&single.times(i64::from(request.count)));
                    found = Some(node.name.clone());
                    break;
                }
                best = best.max(count);
                if let Some(limiting) = fit.limiting.filter(|_| count == 0) {
                    *excluded.entry(limiting).or_default() += 1;
                }
            }
            let Some(name) = found else {
                let how_many = if best == 0 {
                    format!("doesn't allow to fit any of {} pod(s)", request.count)
                } else {
                    format!("allows to fit only {best} out of {} pod(s)", request.count)
                };
                let mut message = format!("topology {:?} {how_many}. Total nodes: {}", pool.topology, pool.nodes.len());
                let parts: Vec<String> = excluded.iter().map(|(r, n)| format!("resource {r:?}: {n}")).collect();
                if !parts.is_empty() {
                    message = format!("{message}; excluded: {}", parts.join(", "));
                }
                let (pod_set, flavor) = (request.pod_set, request.flavor);
                return Err(PlacementFailure { pod_set, flavor, message: message.into() });
            };
            places.push(TopologyAssignment {
                levels: vec!["kubernetes.io/hostname".into()],
                domains: vec![TopologyDomain { values: vec![name.into()], count: request.count }],
            });
        }
        Ok(places)
    }
}
