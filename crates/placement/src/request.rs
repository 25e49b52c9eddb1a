//! What is asked for: pods of a pod set, and how they are to lie.

use slicegate_quota::{FlavorId, Names, ResourceId};
use slicegate_workload::{PodSetUpdate, PodSpec, Requests, TopologyAssignment, TopologyConstraint, TopologyRequest};

use crate::node::PODS;
use crate::{Failure, Tree};

/// What one pod takes from its node, by dense ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodRequest {
    /// In order of the resources' names, with the pod itself counted.
    pub(crate) with_pod: Vec<(ResourceId, i64)>,
    /// The same as it was asked for.
    pub(crate) bare: Vec<(ResourceId, i64)>,
    /// The names of the resources of `with_pod`.
    pub(crate) names: Vec<Box<str>>,
}

impl PodRequest {
    /// Interns the requests of one pod. The pod itself takes one of the resource `pods`, beyond what is asked for.
    pub fn new(requests: &Requests, names: &mut Names) -> Self {
        let mut with_pod = requests.clone();
        with_pod.add(PODS, 1);
        let mut named: Vec<(&str, i64)> = with_pod.iter().collect();
        named.sort_unstable();
        let mut bare: Vec<(&str, i64)> = requests.iter().collect();
        bare.sort_unstable();
        Self {
            with_pod: named.iter().map(|&(name, amount)| (names.intern_resource(name), amount)).collect(),
            bare: bare.iter().map(|&(name, amount)| (names.intern_resource(name), amount)).collect(),
            names: named.iter().map(|&(name, _)| name.into()).collect(),
        }
    }
}

/// A node of an earlier placement that failed, to be replaced.
#[derive(Clone, Copy, Debug)]
pub struct Replacement<'a> {
    /// The hostname of the node.
    pub node: &'a str,
    /// Where the pods of the pod set lie.
    pub existing: &'a TopologyAssignment,
    /// The assignment stays as it is: a workload that is a single pod is not moved.
    pub keep: bool,
}

/// A pod set to find places for.
#[derive(Clone, Copy, Debug)]
pub struct PodSetRequest<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// How many pods.
    pub count: i32,
    /// What one pod takes: from its spec, rules for quota do not matter here.
    pub pod_request: &'a PodRequest,
    /// Its pod: node selector, node affinity and tolerations.
    pub pod: &'a PodSpec,
    /// What admission checks change about the pod.
    pub updates: &'a [PodSetUpdate],
    /// How the pods are to lie. `None` means anywhere, as for pod sets that ask for no topology in a ClusterQueue whose flavors
    /// all have one.
    pub topology: Option<&'a TopologyRequest>,
    /// Pod sets of one group and flavor are placed together: the one with fewer pods is the leader of the other.
    pub group: Option<&'a str>,
    /// The flavor whose topology to search.
    pub flavor: FlavorId,
    /// Where the pods of the workload lie that this one replaces (elastic jobs). Their usage must not be counted any more:
    /// take it away first.
    pub previous: Option<&'a TopologyAssignment>,
    /// A failed node to replace; then nothing else is placed.
    pub replacement: Option<Replacement<'a>>,
}

/// What the topology allows when a request has been understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The level to search.
    pub(crate) level: usize,
    /// All pods in one domain of that level.
    pub(crate) required: bool,
    /// No closeness is asked for.
    pub(crate) unconstrained: bool,
    /// The level in whose domains slices must lie.
    pub(crate) slice_level: usize,
    /// Pods a slice, at least 1.
    pub(crate) slice_size: i32,
    /// By level: the size of the slices within slices that must lie in a domain of that level, 0 if there are none.
    pub(crate) inner: Vec<i32>,
    /// Slices as they were asked for, outermost first: level and size.
    pub(crate) layers: Vec<(usize, i32)>,
}

impl Plan {
    /// Understands a request.
    pub(crate) fn new(tree: &Tree, request: Option<&TopologyRequest>, multi_layer: bool) -> Result<Self, Failure> {
        let empty = TopologyRequest::default();
        let topology = request.unwrap_or(&empty);
        let constraints = constraints(topology, multi_layer);
        if let Some(first) = constraints.first()
            && first.size <= 0
        {
            return Err(Failure::NoSliceSize);
        }
        let lowest = tree.lowest();
        let slice_only = !constraints.is_empty() && topology.required.is_none() && topology.preferred.is_none();
        let free = topology.unconstrained == Some(true) || request.is_none_or(|r| !is_explicit(r));
        let level = match (&topology.required, &topology.preferred) {
            (Some(key), _) | (None, Some(key)) => tree.level(key).ok_or_else(|| Failure::NoLevel(key.clone()))?,
            (None, None) if slice_only => 0,
            (None, None) if free => lowest,
            (None, None) => return Err(Failure::NothingRequested),
        };
        let mut plan = Self {
            level,
            required: topology.required.is_some(),
            unconstrained: free || slice_only,
            slice_level: lowest,
            slice_size: 1,
            inner: vec![0; tree.levels().len()],
            layers: Vec::new(),
        };
        plan.set_slices(tree, &constraints)?;
        Ok(plan)
    }

    /// Takes over slices, outermost first.
    fn set_slices(&mut self, tree: &Tree, constraints: &[TopologyConstraint]) -> Result<(), Failure> {
        let Some((outer, inner)) = constraints.split_first() else { return Ok(()) };
        let slice_level = tree.level(&outer.topology).ok_or_else(|| Failure::NoSliceLevel(outer.topology.clone()))?;
        if self.level > slice_level {
            let level = tree.levels().get(self.level).cloned().unwrap_or_default();
            return Err(Failure::SliceAboveLevel { slice: outer.topology.clone(), level });
        }
        (self.slice_level, self.slice_size) = (slice_level, outer.size.max(1));
        self.layers.push((slice_level, self.slice_size));
        let (mut above, mut above_level) = (outer, slice_level);
        for layer in inner {
            let level = tree.level(&layer.topology).ok_or_else(|| Failure::NoLayerLevel(layer.topology.clone()))?;
            if level <= above_level {
                let (layer, above) = (layer.topology.clone(), above.topology.clone());
                return Err(Failure::LayerNotLower { layer, above });
            }
            if layer.size <= 0 || above.size.checked_rem(layer.size) != Some(0) {
                return Err(Failure::LayerDoesNotDivide { size: layer.size, above: above.size });
            }
            for size in self.inner.iter_mut().take(level.saturating_add(1)).skip(above_level.saturating_add(1)) {
                *size = layer.size;
            }
            self.layers.push((level, layer.size));
            (above, above_level) = (layer, level);
        }
        Ok(())
    }

    /// The same with slices of one size only, or none.
    pub(crate) fn with_slices(&self, layer: Option<(usize, i32)>, lowest: usize) -> Self {
        let (slice_level, slice_size) = layer.unwrap_or((lowest, 1));
        Self {
            slice_level,
            slice_size,
            inner: vec![0; self.inner.len()],
            layers: layer.into_iter().collect(),
            ..self.clone()
        }
    }

    /// The size that the pods of a domain of a level must be a multiple of, 0 if any number will do.
    pub(crate) fn inner_size(&self, level: usize) -> i32 {
        self.inner.get(level).copied().unwrap_or(0)
    }

    /// Whole slices among so many pods. Pods that are left over are not placed.
    // [quirk] As Kueue does.
    pub(crate) fn slices(&self, count: i32) -> i32 {
        count.checked_div(self.slice_size).unwrap_or(0).max(0)
    }
}

/// The slices that are asked for, outermost first.
fn constraints(topology: &TopologyRequest, multi_layer: bool) -> Vec<TopologyConstraint> {
    if multi_layer && !topology.slice_constraints.is_empty() {
        return topology.slice_constraints.clone();
    }
    let size = topology.slice_size.unwrap_or(0);
    let one = topology.slice_required_topology.clone();
    one.map(|topology| TopologyConstraint { topology, size }).into_iter().collect()
}

/// Whether a request asks for anything at all. One that only names labels or a group does not.
fn is_explicit(request: &TopologyRequest) -> bool {
    request.required.is_some()
        || request.preferred.is_some()
        || request.unconstrained.is_some()
        || request.slice_required_topology.is_some()
        || request.slice_size.is_some()
        || !request.slice_constraints.is_empty()
}

/// The values of a pod that updates change, and which must not contradict one another.
pub(crate) fn merge_updates(
    pod_set: &str,
    pod: &PodSpec,
    updates: &[PodSetUpdate],
) -> Result<slicegate_workload::Labels, Failure> {
    let mut labels = slicegate_workload::Labels::new();
    let mut annotations = slicegate_workload::Labels::new();
    let mut selector = pod.node_selector.clone();
    for update in updates {
        let parts = [
            ("annotations", &mut annotations, &update.annotations),
            ("labels", &mut labels, &update.labels),
            ("nodeSelector", &mut selector, &update.node_selector),
        ];
        for (field, all, new) in parts {
            for (key, value) in new {
                let old = all.entry(key.clone()).or_insert_with(|| value.clone());
                if old != value {
                    return Err(Failure::ConflictingUpdate {
                        pod_set: pod_set.into(),
                        field,
                        key: key.clone(),
                        values: [old.clone(), value.clone()],
                    });
                }
            }
        }
    }
    Ok(selector)
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{FlavorSpec, TopologySpec};

    use super::*;

    fn tree() -> Tree {
        let levels = ["zone", "block", "rack", "host"].map(Into::into).to_vec();
        Tree::new(&FlavorSpec::default(), &TopologySpec { name: "t".into(), levels }, &[])
    }

    fn layer(topology: &str, size: i32) -> TopologyConstraint {
        TopologyConstraint { topology: topology.into(), size }
    }

    fn request(required: Option<&str>, layers: &[(&str, i32)]) -> TopologyRequest {
        TopologyRequest {
            required: required.map(Into::into),
            slice_constraints: layers.iter().map(|&(t, s)| layer(t, s)).collect(),
            ..TopologyRequest::default()
        }
    }

    #[test]
    fn layers_bind_every_level_down_to_their_own() {
        let plan = Plan::new(&tree(), Some(&request(Some("zone"), &[("zone", 8), ("rack", 4), ("host", 2)])), true);
        let plan = plan.unwrap();
        assert_eq!((plan.level, plan.slice_level, plan.slice_size), (0, 0, 8));
        assert_eq!(plan.inner, [0, 4, 4, 2]);
        assert!(plan.required && !plan.unconstrained);
    }

    #[test]
    fn the_level_searched_depends_on_what_is_asked() {
        let slices = Plan::new(&tree(), Some(&request(None, &[("rack", 2)])), true).unwrap();
        assert_eq!((slices.level, slices.unconstrained), (0, true));
        let anywhere = Plan::new(&tree(), None, true).unwrap();
        assert_eq!((anywhere.level, anywhere.unconstrained), (3, true));
        let labels_only = TopologyRequest { pod_index_label: Some("index".into()), ..TopologyRequest::default() };
        assert_eq!(Plan::new(&tree(), Some(&labels_only), true).unwrap().level, 3);
        let bound = TopologyRequest { unconstrained: Some(false), ..TopologyRequest::default() };
        assert_eq!(Plan::new(&tree(), Some(&bound), true), Err(Failure::NothingRequested));
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        for (request, want) in [
            (request(Some("pod"), &[]), "no requested topology level: pod"),
            (request(Some("zone"), &[("pod", 2)]), "no requested topology level for slices: pod"),
            (request(Some("zone"), &[("rack", 0)]), "slice topology requested, but slice size not provided"),
            (request(Some("rack"), &[("zone", 2)]), "podset slice topology zone is above the podset topology rack"),
            (
                request(Some("zone"), &[("rack", 2), ("pod", 1)]),
                "no requested topology level for additional slice layer: pod",
            ),
            (
                request(Some("zone"), &[("rack", 2), ("rack", 1)]),
                "additional slice layer topology rack must be at a lower level than rack",
            ),
            (
                request(Some("zone"), &[("rack", 4), ("host", 3)]),
                "additional slice layer size 3 must evenly divide parent layer size 4",
            ),
            (
                request(Some("zone"), &[("rack", 4), ("host", 0)]),
                "additional slice layer size 0 must evenly divide parent layer size 4",
            ),
        ] {
            assert_eq!(Plan::new(&tree(), Some(&request), true).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn several_layers_need_their_gate() {
        let mut both = request(Some("zone"), &[("rack", 4), ("host", 2)]);
        (both.slice_required_topology, both.slice_size) = (Some("block".into()), Some(6));
        let plan = Plan::new(&tree(), Some(&both), false).unwrap();
        assert_eq!(plan.layers, [(1, 6)]);
    }

    #[test]
    fn updates_must_not_contradict_each_other() {
        let update = |value: &str| PodSetUpdate {
            node_selector: [("pool".into(), value.into())].into(),
            ..PodSetUpdate::default()
        };
        let pod = PodSpec::default();
        let merged = merge_updates("main", &pod, &[update("a"), update("a")]).unwrap();
        assert_eq!(merged.get("pool").map(|v| &**v), Some("a"));
        assert_eq!(
            merge_updates("main", &pod, &[update("a"), update("b")]).unwrap_err().to_string(),
            "invalid podSetUpdate for PodSet main, error: invalid admission check PodSetUpdate: \
             conflict for nodeSelector: conflict for key=pool, value1=a, value2=b"
        );
    }
}
