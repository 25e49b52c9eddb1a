//! Pods and what they ask for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use serde::Serialize;
use slicegate_quota::Quantity;
use slicegate_workload::{Container, PodSpec, PodSpecOpaque, ResourceList, Resources};

use super::scheduling::{node_affinity_at, tolerations_at};
use super::{ConvertError, Result, boxed_optional, name};
use crate::path::Path;

/// A quantity.
///
/// # Errors
/// If the text is not one.
pub fn quantity(quantity: &crate::Quantity) -> Result<Quantity> {
    quantity_at(Path::ROOT, quantity)
}

pub(super) fn quantity_at(path: Path<'_>, quantity: &crate::Quantity) -> Result<Quantity> {
    quantity.0.parse().map_err(|e| ConvertError::new(path, super::Problem::Quantity(e)))
}

/// A quantity for the API, in its canonical form.
pub fn quantity_to_api(quantity: Quantity) -> crate::Quantity {
    crate::Quantity(quantity.to_string())
}

/// Quantities by resource.
///
/// # Errors
/// If one is not a quantity; the path is `[resource]`.
pub fn resource_list(list: &BTreeMap<String, crate::Quantity>) -> Result<ResourceList> {
    resource_list_at(Path::ROOT, list)
}

pub(super) fn resource_list_at(path: Path<'_>, list: &BTreeMap<String, crate::Quantity>) -> Result<ResourceList> {
    list.iter().map(|(name, q)| Ok((name.as_str().into(), quantity_at(path.key(name), q)?))).collect()
}

/// Quantities by resource, for the API.
pub fn resource_list_to_api(list: &ResourceList) -> BTreeMap<String, crate::Quantity> {
    list.iter().map(|(name, q)| (name.to_string(), quantity_to_api(*q))).collect()
}

fn optional_list(path: Path<'_>, list: Option<&BTreeMap<String, crate::Quantity>>) -> Result<ResourceList> {
    list.map_or_else(|| Ok(ResourceList::new()), |l| resource_list_at(path, l))
}

fn resources(path: Path<'_>, resources: &core::ResourceRequirements) -> Result<Resources> {
    Ok(Resources {
        requests: optional_list(path.field("requests"), resources.requests.as_ref())?,
        limits: optional_list(path.field("limits"), resources.limits.as_ref())?,
    })
}

fn containers(path: Path<'_>, list: &[core::Container]) -> Result<Vec<Container>> {
    let one = |(i, c): (usize, &core::Container)| {
        let path = path.index(i);
        Ok(Container {
            name: c.name.as_str().into(),
            resources: match &c.resources {
                Some(r) => resources(path.field("resources"), r)?,
                None => Resources::default(),
            },
            restart_always: c.restart_policy.as_deref() == Some("Always"),
            ports: canonical(c.ports.as_deref()),
        })
    };
    list.iter().enumerate().map(one).collect()
}

/// JSON with map keys in order; empty for what is absent or empty.
fn canonical<T: Serialize + ?Sized>(value: Option<&T>) -> Box<str> {
    let text = value.and_then(|v| serde_json::to_string(v).ok()).unwrap_or_default();
    if matches!(text.as_str(), "[]" | "{}") { Box::default() } else { text.into() }
}

/// A pod as far as scheduling is concerned; the spec of a pod template is one too.
///
/// # Errors
/// If a quantity, operator or effect cannot be read. The path starts at the spec.
pub fn pod_spec(spec: &crate::PodSpec) -> Result<PodSpec> {
    pod_spec_at(Path::ROOT, spec)
}

pub(super) fn pod_spec_at(path: Path<'_>, spec: &crate::PodSpec) -> Result<PodSpec> {
    let node_affinity = match spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) {
        Some(a) => Some(node_affinity_at(path.field("affinity").field("nodeAffinity"), a)?),
        None => None,
    };
    Ok(PodSpec {
        init_containers: containers(path.field("initContainers"), spec.init_containers.as_deref().unwrap_or_default())?,
        containers: containers(path.field("containers"), &spec.containers)?,
        resources: match &spec.resources {
            Some(r) => Some(resources(path.field("resources"), r)?),
            None => None,
        },
        overhead: optional_list(path.field("overhead"), spec.overhead.as_ref())?,
        runtime_class: name(spec.runtime_class_name.as_deref()),
        node_selector: boxed_optional(spec.node_selector.as_ref()),
        node_affinity,
        tolerations: tolerations_at(path.field("tolerations"), spec.tolerations.as_deref().unwrap_or_default())?,
        priority: spec.priority,
        opaque: PodSpecOpaque {
            affinity: canonical(spec.affinity.as_ref()),
            topology_spread_constraints: canonical(spec.topology_spread_constraints.as_deref()),
            resource_claims: canonical(spec.resource_claims.as_deref()),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<PodSpec> {
        pod_spec(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_bad_quantity_is_named_with_its_field() {
        let e =
            read(json!({"initContainers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "lots"}}}]}));
        assert_eq!(&*e.unwrap_err().path, "initContainers[1].resources.limits[cpu]");
        let e = read(json!({"overhead": {"memory": "1Zi"}}));
        assert_eq!(&*e.unwrap_err().path, "overhead[memory]");
    }

    #[test]
    fn sidecars_are_told_from_init_containers() {
        let p = read(json!({"initContainers": [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}]})).unwrap();
        assert_eq!(p.init_containers.iter().map(|c| c.restart_always).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn what_only_tells_pods_apart_is_kept_as_text() {
        let ports = |number: i32| {
            let p = json!({"containers": [{"name": "a", "ports": [{"containerPort": number}]}]});
            read(p).unwrap().containers.remove(0).ports
        };
        assert_ne!(ports(1), ports(2));
        assert_eq!(read(json!({"containers": [{"name": "a", "ports": []}]})).unwrap().containers[0].ports.len(), 0);
        let p = read(
            json!({"affinity": {"podAffinity": {}}, "topologySpreadConstraints": [], "resourceClaims": [{"name": "x"}]}),
        );
        let p = p.unwrap();
        assert_eq!(&*p.opaque.affinity, r#"{"podAffinity":{}}"#);
        assert!(p.opaque.topology_spread_constraints.is_empty() && !p.opaque.resource_claims.is_empty());
    }

    #[test]
    fn pod_level_resources_and_an_empty_runtime_class() {
        let p = read(json!({"resources": {"requests": {"cpu": 2}}, "runtimeClassName": "", "priority": 5})).unwrap();
        assert_eq!(p.resources.unwrap().requests["cpu"], Quantity::from_units(2));
        assert_eq!((p.runtime_class, p.priority), (None, Some(5)));
    }
}
