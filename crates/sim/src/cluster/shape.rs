//! What of a pod decides where it can run.

use slicegate_api::{Node, PodSpec as ApiPodSpec, convert};
use slicegate_quota::Quantity;
use slicegate_workload::{NodeAffinity, PodSpec, Taint, Toleration};

/// A pod as the scheduler sees it: as in the API, with limits as requests where there are none. Affinity and tolerations that cannot
/// be read, which no API server takes, are as if they were not there.
pub(crate) fn pod_spec(spec: &ApiPodSpec) -> PodSpec {
    let without = || ApiPodSpec { affinity: None, tolerations: None, ..spec.clone() };
    let mut spec = convert::pod_spec(spec).or_else(|_| convert::pod_spec(&without())).unwrap_or_default();
    spec.use_limits_as_requests();
    spec
}

/// The taints of a node object; what no API server takes is none.
pub(crate) fn taints(node: &Node) -> Vec<Taint> {
    let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    all.filter_map(|taint| convert::taint(taint).ok()).collect()
}

/// What of a pod decides on which nodes it fits: pods with the same shape fit on the same nodes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    /// The node selector.
    pub(crate) selector: slicegate_workload::Labels,
    /// The required node affinity.
    pub(crate) affinity: Option<NodeAffinity>,
    /// The tolerations.
    pub(crate) tolerations: Vec<Toleration>,
    /// The requests of the pod as a whole.
    pub(crate) requests: Vec<(Box<str>, i128)>,
    /// Whether it consumes a ProvisioningRequest.
    pub(crate) consumes: bool,
}

impl Shape {
    /// The shape of a pod.
    pub(crate) fn of(spec: &ApiPodSpec, consumes: bool) -> Self {
        let spec = pod_spec(spec);
        let requests = spec.requests().into_iter().map(|(name, quantity)| (name, quantity.nanos())).collect();
        let required = spec.node_affinity.map(|affinity| NodeAffinity { preferred: Vec::new(), ..affinity });
        Self { requests, selector: spec.node_selector, affinity: required, tolerations: spec.tolerations, consumes }
    }

    /// How much of a resource it asks for.
    pub(crate) fn request(&self, resource: &str) -> Quantity {
        Quantity::from_nanos(self.requests.iter().find(|(name, _)| **name == *resource).map_or(0, |(_, nanos)| *nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_read_loses_no_requests() {
        let spec: ApiPodSpec = serde_json::from_value(json!({
            "containers": [{"name": "a", "resources": {"limits": {"google.com/tpu": 4}}}],
            "tolerations": [{"operator": "Exists", "effect": "NO_SCHEDULE"}]
        }))
        .unwrap();
        let shape = Shape::of(&spec, false);
        assert_eq!((shape.request("google.com/tpu"), shape.tolerations.len()), (Quantity::from_units(4), 0));
    }

    #[test]
    fn limits_of_a_pod_as_a_whole_stand_in_for_its_requests() {
        let spec = json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "2"}}});
        let shape = Shape::of(&serde_json::from_value(spec).unwrap(), false);
        assert_eq!(shape.request("cpu"), Quantity::from_units(2));
    }

    #[test]
    fn only_what_is_required_tells_shapes_apart() {
        let shape = |affinity| {
            let spec = json!({"containers": [], "affinity": {"nodeAffinity": affinity}});
            Shape::of(&serde_json::from_value(spec).unwrap(), false)
        };
        let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        let required = json!({"nodeSelectorTerms": [&term]});
        let preferred = json!([{"weight": 1, "preference": term}]);
        let (required, preferred) = (
            json!({"requiredDuringSchedulingIgnoredDuringExecution": required}),
            json!({"requiredDuringSchedulingIgnoredDuringExecution": required,
                "preferredDuringSchedulingIgnoredDuringExecution": preferred}),
        );
        assert_eq!(shape(required.clone()), shape(preferred));
        assert_ne!(shape(required), shape(json!({})));
    }

    #[test]
    fn limits_stand_in_for_requests() {
        let spec: ApiPodSpec = serde_json::from_value(json!({
            "containers": [
                {"name": "a", "resources": {"limits": {"google.com/tpu": 4}, "requests": {"cpu": "500m"}}},
                {"name": "b", "resources": {"requests": {"cpu": "1"}}}
            ],
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}]
        }))
        .unwrap();
        let shape = Shape::of(&spec, false);
        assert_eq!(shape.request("google.com/tpu"), Quantity::from_units(4));
        assert_eq!(shape.request("cpu").nanos(), 1_500_000_000);
        assert_eq!(shape.request("memory").nanos(), 0);
        assert_eq!(shape, Shape::of(&spec, false));
    }
}
