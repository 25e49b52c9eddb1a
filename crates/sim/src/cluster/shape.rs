//! What of a pod decides where it can run.

use slicegate_api::{PodSpec as ApiPodSpec, Quantity as ApiQuantity, Taint as ApiTaint};
use slicegate_quota::Quantity;
use slicegate_workload::{
    Container, NodeAffinity, Operator, PodSpec, Requirement, ResourceList, Resources, SelectorTerm, Taint, TaintEffect,
    Toleration, TolerationOperator,
};

/// Quantities by name; what cannot be read counts as nothing.
pub(crate) fn resource_list<'a>(list: impl IntoIterator<Item = (&'a String, &'a ApiQuantity)>) -> ResourceList {
    list.into_iter().map(|(name, quantity)| (name.as_str().into(), quantity.0.parse().unwrap_or_default())).collect()
}

fn effect(text: Option<&str>) -> Option<TaintEffect> {
    match text {
        Some("NoSchedule") => Some(TaintEffect::NoSchedule),
        Some("PreferNoSchedule") => Some(TaintEffect::PreferNoSchedule),
        Some("NoExecute") => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// A taint of a node object.
pub(crate) fn taint(taint: &ApiTaint) -> Taint {
    Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_deref().unwrap_or_default().into(),
        effect: effect(Some(&taint.effect)).unwrap_or(TaintEffect::NoSchedule),
    }
}

fn requirement(key: &str, operator: &str, values: Option<&Vec<String>>) -> Requirement {
    let operator = match operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        _ => Operator::Lt,
    };
    let values = values.into_iter().flatten().map(|value| value.as_str().into()).collect();
    Requirement { key: key.into(), operator, values }
}

fn containers<'a>(
    list: impl IntoIterator<Item = &'a k8s_openapi::api::core::v1::Container>,
) -> impl Iterator<Item = Container> {
    list.into_iter().map(|container| {
        let resources = container.resources.as_ref();
        let limits = resource_list(resources.and_then(|r| r.limits.as_ref()).into_iter().flatten());
        let mut requests = limits.clone();
        requests.extend(resource_list(resources.and_then(|r| r.requests.as_ref()).into_iter().flatten()));
        Container {
            resources: Resources { requests, limits },
            restart_always: container.restart_policy.as_deref() == Some("Always"),
            ..Container::default()
        }
    })
}

/// The part of a pod spec that scheduling reads.
pub(crate) fn pod_spec(spec: &ApiPodSpec) -> PodSpec {
    let node_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()).map(|affinity| {
        let terms = affinity.required_during_scheduling_ignored_during_execution.as_ref().map(|required| {
            let terms = required.node_selector_terms.iter().map(|term| SelectorTerm {
                match_expressions: term
                    .match_expressions
                    .iter()
                    .flatten()
                    .map(|r| requirement(&r.key, &r.operator, r.values.as_ref()))
                    .collect(),
                match_fields: term
                    .match_fields
                    .iter()
                    .flatten()
                    .map(|r| requirement(&r.key, &r.operator, r.values.as_ref()))
                    .collect(),
            });
            terms.collect()
        });
        NodeAffinity { required: terms, preferred: Vec::new() }
    });
    let tolerations = spec.tolerations.iter().flatten().map(|toleration| Toleration {
        key: toleration.key.as_deref().unwrap_or_default().into(),
        operator: match toleration.operator.as_deref() {
            Some("Exists") => TolerationOperator::Exists,
            Some("Lt") => TolerationOperator::Lt,
            Some("Gt") => TolerationOperator::Gt,
            _ => TolerationOperator::Equal,
        },
        value: toleration.value.as_deref().unwrap_or_default().into(),
        effect: effect(toleration.effect.as_deref()),
        seconds: toleration.toleration_seconds,
    });
    let overhead = resource_list(spec.overhead.iter().flatten());
    let resources = spec.resources.as_ref().map(|resources| Resources {
        requests: resource_list(resources.requests.iter().flatten()),
        limits: resource_list(resources.limits.iter().flatten()),
    });
    PodSpec {
        init_containers: containers(spec.init_containers.iter().flatten()).collect(),
        containers: containers(&spec.containers).collect(),
        resources,
        overhead,
        node_selector: spec
            .node_selector
            .iter()
            .flatten()
            .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
            .collect(),
        node_affinity,
        tolerations: tolerations.collect(),
        ..PodSpec::default()
    }
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
        Self {
            requests,
            selector: spec.node_selector,
            affinity: spec.node_affinity,
            tolerations: spec.tolerations,
            consumes,
        }
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
