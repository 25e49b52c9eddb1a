//! What may not be changed in the pods of a job that was admitted.

use k8s_openapi::api::core::v1::Container;

use super::{Finding, Findings};
use crate::PodSpec;
use crate::path::Path;

/// Checks that what decides over the placement and the quota of pods stays as it was; `path` is where the pod spec is.
pub fn immutable_pod_spec(path: &str, old: &PodSpec, new: &PodSpec) -> Vec<Finding> {
    let mut out = Findings::default();
    let path = Path::ROOT.field(path);
    let none = Vec::new();
    let init = |spec: &'_ PodSpec| spec.init_containers.clone().unwrap_or_default();
    containers(path.field("initContainers"), &init(old), &init(new), &mut out);
    containers(path.field("containers"), &old.containers, &new.containers, &mut out);
    let fields = [
        (
            "nodeSelector",
            old.node_selector.clone().unwrap_or_default() == new.node_selector.clone().unwrap_or_default(),
        ),
        ("affinity", old.affinity == new.affinity),
        ("tolerations", old.tolerations.as_ref().unwrap_or(&none) == new.tolerations.as_ref().unwrap_or(&none)),
        ("runtimeClassName", old.runtime_class_name == new.runtime_class_name),
        ("priority", old.priority == new.priority),
        ("topologySpreadConstraints", old.topology_spread_constraints == new.topology_spread_constraints),
        ("overhead", old.overhead == new.overhead),
        ("resourceClaims", old.resource_claims == new.resource_claims),
    ];
    for (field, same) in fields {
        if !same {
            out.immutable(path.field(field));
        }
    }
    out.0
}

fn containers(path: Path<'_>, old: &[Container], new: &[Container], out: &mut Findings) {
    if old.len() != new.len() {
        out.immutable(path);
        return;
    }
    for (i, (old, new)) in old.iter().zip(new).enumerate() {
        let path = path.index(i);
        let requests = |c: &Container| c.resources.as_ref().and_then(|r| r.requests.clone()).unwrap_or_default();
        if requests(old) != requests(new) {
            let path = path.field("resources");
            out.immutable(path.field("requests"));
        }
        if old.ports.as_deref().unwrap_or_default() != new.ports.as_deref().unwrap_or_default() {
            out.immutable(path.field("ports"));
        }
    }
}
