//! What is put into the pods of a job when it starts, and taken out again when it stops.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodSchedulingGate};
use serde::Deserialize;
use slicegate_api::{PodTemplateSpec, Toleration, kueue};

use crate::keys;

/// A map as Kubernetes keeps it.
pub type Map = BTreeMap<String, String>;

/// What is put into the pods of one pod set.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSetInfo {
    /// The pod set.
    pub name: String,
    /// How many pods.
    pub count: i32,
    /// Annotations.
    pub annotations: Map,
    /// Labels.
    pub labels: Map,
    /// Selectors.
    pub node_selector: Map,
    /// Affinity, only when it is taken out again.
    pub affinity: Option<Affinity>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Scheduling gates.
    pub scheduling_gates: Vec<PodSchedulingGate>,
}

/// The pods already say something else.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "invalid admission check PodSetUpdate: conflict for {field}: conflict for key={key}, value1={old}, value2={new}"
)]
pub struct Conflict {
    /// `annotations`, `labels` or `nodeSelector`.
    pub field: &'static str,
    /// The key.
    pub key: String,
    /// What is there.
    pub old: String,
    /// What was to be put there.
    pub new: String,
}

/// A flavor of an admission does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("resourceflavors.kueue.x-k8s.io {0:?} not found")]
pub struct FlavorMissing(pub(crate) String);

impl PodSetInfo {
    /// What an assignment asks for: labels and tolerations of its flavors and, where the pods are placed by topology, the gate
    /// that holds them until they are.
    pub fn from_assignment<'a>(
        assignment: &kueue::PodSetAssignment,
        template: Option<&PodTemplateSpec>,
        default_count: i32,
        topology_aware: bool,
        flavor: impl Fn(&str) -> Option<&'a kueue::ResourceFlavor>,
    ) -> Result<Self, FlavorMissing> {
        let mut info =
            Self { name: assignment.name.clone(), count: assignment.count.unwrap_or(default_count), ..Self::default() };
        if topology_aware && (assignment.topology_assignment.is_some() || assignment.delayed_topology_request.is_some())
        {
            info.scheduling_gates.push(PodSchedulingGate { name: keys::TOPOLOGY_GATE.to_owned() });
            let asks = template.and_then(|t| t.metadata.as_ref()?.annotations.as_ref()).is_some_and(asks_for_topology);
            if !asks {
                info.annotations.insert(keys::UNCONSTRAINED_TOPOLOGY.to_owned(), "true".to_owned());
            }
        }
        let mut done: Vec<&str> = Vec::new();
        for name in assignment.flavors.values() {
            if done.contains(&name.as_str()) {
                continue;
            }
            done.push(name);
            let found = flavor(name).ok_or_else(|| FlavorMissing(name.clone()))?;
            for (key, value) in &found.spec.node_labels {
                info.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
            }
            info.tolerations.extend(found.spec.tolerations.iter().cloned());
        }
        Ok(info)
    }

    /// What an admission check asks for.
    pub fn from_update(update: &kueue::PodSetUpdate) -> Self {
        Self {
            name: update.name.clone(),
            annotations: update.annotations.clone(),
            labels: update.labels.clone(),
            node_selector: update.node_selector.clone(),
            tolerations: update.tolerations.clone(),
            ..Self::default()
        }
    }

    /// What the pods of a pod set are like before anything is put into them.
    pub fn from_pod_set(pod_set: &kueue::PodSet) -> Self {
        let metadata = pod_set.template.metadata.as_ref();
        let spec = pod_set.template.spec.as_ref();
        Self {
            name: pod_set.name.clone(),
            count: pod_set.count,
            annotations: metadata.and_then(|m| m.annotations.clone()).unwrap_or_default(),
            labels: metadata.and_then(|m| m.labels.clone()).unwrap_or_default(),
            node_selector: spec.and_then(|s| s.node_selector.clone()).unwrap_or_default(),
            affinity: spec.and_then(|s| s.affinity.clone()),
            tolerations: spec.and_then(|s| s.tolerations.clone()).unwrap_or_default(),
            scheduling_gates: spec.and_then(|s| s.scheduling_gates.clone()).unwrap_or_default(),
        }
    }

    /// Adds what another asks for.
    ///
    /// # Errors
    /// If the two say different things about one key. With `elastic`, the annotations that name the Workload of an elastic
    /// job are replaced instead.
    pub fn merge(&mut self, other: &Self, elastic: bool) -> Result<(), Conflict> {
        let slice = elastic && other.annotations.contains_key(keys::WORKLOAD_SLICE_NAME);
        let may_change = |key: &str| slice && (key == keys::WORKLOAD_SLICE_NAME || key == keys::WORKLOAD);
        conflict("annotations", &self.annotations, &other.annotations, may_change)?;
        conflict("labels", &self.labels, &other.labels, |_| false)?;
        conflict("nodeSelector", &self.node_selector, &other.node_selector, |_| false)?;
        add(&mut self.annotations, &other.annotations, may_change);
        add(&mut self.labels, &other.labels, |_| false);
        add(&mut self.node_selector, &other.node_selector, |_| false);
        for toleration in &other.tolerations {
            if !self.tolerations.iter().any(|t| same_toleration(t, toleration)) {
                self.tolerations.push(toleration.clone());
            }
        }
        for gate in &other.scheduling_gates {
            if !self.scheduling_gates.contains(gate) {
                self.scheduling_gates.push(gate.clone());
            }
        }
        Ok(())
    }
}

/// Whether pods with these annotations are placed by topology.
pub(crate) fn asks_for_topology(annotations: &Map) -> bool {
    [
        keys::REQUIRED_TOPOLOGY,
        keys::PREFERRED_TOPOLOGY,
        keys::UNCONSTRAINED_TOPOLOGY,
        keys::SLICE_REQUIRED_TOPOLOGY,
        keys::SLICE_CONSTRAINTS,
    ]
    .iter()
    .any(|key| annotations.contains_key(*key))
}

fn conflict(field: &'static str, old: &Map, new: &Map, may_change: impl Fn(&str) -> bool) -> Result<(), Conflict> {
    for (key, value) in new {
        match old.get(key) {
            Some(there) if there != value && !may_change(key) => {
                return Err(Conflict { field, key: key.clone(), old: there.clone(), new: value.clone() });
            }
            _ => {}
        }
    }
    Ok(())
}

fn add(old: &mut Map, new: &Map, may_change: impl Fn(&str) -> bool) {
    for (key, value) in new {
        if may_change(key) || !old.contains_key(key) {
            old.insert(key.clone(), value.clone());
        }
    }
}

/// Tolerations are the same if they differ only in whether `Equal` is written out.
fn same_toleration(a: &Toleration, b: &Toleration) -> bool {
    let operator = |t: &Toleration| t.operator.clone().filter(|o| !o.is_empty()).unwrap_or_else(|| "Equal".to_owned());
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    operator(a) == operator(b)
        && text(&a.key) == text(&b.key)
        && text(&a.value) == text(&b.value)
        && text(&a.effect) == text(&b.effect)
        && a.toleration_seconds == b.toleration_seconds
}

fn none_if_empty(map: Map) -> Option<Map> {
    if map.is_empty() { None } else { Some(map) }
}

fn none_if_no<T>(list: Vec<T>) -> Option<Vec<T>> {
    if list.is_empty() { None } else { Some(list) }
}

/// Puts `info` into a pod template.
///
/// # Errors
/// If the template already says something else; it is unchanged then.
pub fn merge_into(template: &mut PodTemplateSpec, info: &PodSetInfo, elastic: bool) -> Result<(), Conflict> {
    let mut all = of_template(template);
    all.merge(info, elastic)?;
    put(template, all);
    Ok(())
}

/// Makes labels, annotations, selectors, affinity, tolerations and gates of a pod template those of `info`. Returns whether
/// anything changed.
pub fn restore(template: &mut PodTemplateSpec, info: &PodSetInfo) -> bool {
    let old = of_template(template);
    let same = old.annotations == info.annotations
        && old.labels == info.labels
        && old.node_selector == info.node_selector
        && old.affinity == info.affinity
        && old.tolerations == info.tolerations
        && old.scheduling_gates == info.scheduling_gates;
    if same {
        return false;
    }
    put(template, PodSetInfo { name: String::new(), count: 0, ..info.clone() });
    true
}

fn of_template(template: &PodTemplateSpec) -> PodSetInfo {
    PodSetInfo::from_pod_set(&kueue::PodSet { template: template.clone(), ..kueue::PodSet::default() })
}

fn put(template: &mut PodTemplateSpec, info: PodSetInfo) {
    if template.metadata.is_some() || !info.annotations.is_empty() || !info.labels.is_empty() {
        let metadata = template.metadata.get_or_insert_default();
        metadata.annotations = none_if_empty(info.annotations);
        metadata.labels = none_if_empty(info.labels);
    }
    let spec = template.spec.get_or_insert_default();
    spec.node_selector = none_if_empty(info.node_selector);
    spec.affinity = info.affinity;
    spec.tolerations = none_if_no(info.tolerations);
    spec.scheduling_gates = none_if_no(info.scheduling_gates);
}

/// Removes environment variables that a later one of the same name overrides: an API list keyed by name takes each once.
pub fn sanitize(pod_sets: &mut [kueue::PodSet]) {
    for pod_set in pod_sets {
        let Some(spec) = &mut pod_set.template.spec else { continue };
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let Some(env) = &mut container.env else { continue };
            let mut seen = std::collections::BTreeSet::new();
            let mut kept: Vec<_> = env.drain(..).rev().filter(|e| seen.insert(e.name.clone())).collect();
            kept.reverse();
            *env = kept;
        }
    }
}
