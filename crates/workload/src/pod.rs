//! What a pod asks for.

use std::collections::BTreeMap;

use slicegate_quota::Quantity;

use crate::{NodeAffinity, Toleration};

/// Quantities by resource name.
pub type ResourceList = BTreeMap<Box<str>, Quantity>;

/// Adds the entries of `from` to `list`. Where both have a resource, `both` makes one quantity of theirs: [`Quantity::plus`] for
/// sums, [`Ord::min`] and [`Ord::max`] for bounds, `|old, _| old` for defaults.
pub fn merge_resources(list: &mut ResourceList, from: &ResourceList, both: impl Fn(Quantity, Quantity) -> Quantity) {
    for (resource, &new) in from {
        list.entry(resource.clone()).and_modify(|old| *old = both(*old, new)).or_insert(new);
    }
}

/// Requests and limits, of a container or of a pod as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// What is reserved.
    pub requests: ResourceList,
    /// What may be used.
    pub limits: ResourceList,
}

/// A container as far as scheduling is concerned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Container {
    /// Its name.
    pub name: Box<str>,
    /// Its requests and limits.
    pub resources: Resources,
    /// An init container with `restartPolicy: Always`: a sidecar.
    pub restart_always: bool,
    /// Its ports as canonical text: part of what makes two pods equivalent, never read otherwise.
    pub ports: Box<str>,
}

/// Parts of a pod spec that only matter for telling two pods apart (scheduling equivalence), as canonical text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSpecOpaque {
    /// `affinity`, whole: pod affinity included.
    pub affinity: Box<str>,
    /// `topologySpreadConstraints`.
    pub topology_spread_constraints: Box<str>,
    /// `resourceClaims`.
    pub resource_claims: Box<str>,
}

/// A pod as far as scheduling is concerned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodSpec {
    /// Containers that run one after another before the others, and sidecars.
    pub init_containers: Vec<Container>,
    /// Containers that run together.
    pub containers: Vec<Container>,
    /// Pod-level requests and limits.
    pub resources: Option<Resources>,
    /// What the sandbox itself needs.
    pub overhead: ResourceList,
    /// The RuntimeClass, where `overhead` comes from if it is empty.
    pub runtime_class: Option<Box<str>>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    /// Required and preferred node affinity.
    pub node_affinity: Option<NodeAffinity>,
    /// Taints that the pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// The pod's own priority.
    pub priority: Option<i32>,
    /// What else tells two pods apart.
    pub opaque: PodSpecOpaque,
}
