//! Opening the gates of pods: those of elastic jobs up to the count that was granted, those that are placed by topology with
//! the selectors of their place.

use std::sync::Arc;

use slicegate_api::{Object, Pod, Toleration};
use slicegate_workload::{Key, PodSetAssignment, Workload};

use crate::controller::Controller;
use crate::io::{Operation, field_manager};
use crate::podset::PodSetInfo;
use crate::ungate::{self, Ranks};
use crate::writes::Then;
use crate::{keys, pods};

impl Controller {
    /// The first slice of an elastic job that the Workload is a slice of.
    fn first_slice(&self, workload: &Workload) -> Option<Key> {
        let name = workload.annotations.get(keys::WORKLOAD_SLICE_NAME)?;
        let elastic = self.config.engine.gates.elastic_jobs_via_workload_slices;
        elastic.then(|| Key::new(workload.key.namespace.clone(), name.clone()))
    }

    /// The pods of a Workload that are placed by topology, of an elastic job all of its pods; by name.
    pub(super) fn pods_of(&self, workload: &Workload) -> Vec<Arc<Pod>> {
        let pod = |name: &str| self.store.pod(&workload.key.namespace, name).cloned();
        match self.first_slice(workload) {
            Some(first) => self.pods.of_slice(&first).filter_map(pod).collect(),
            None => self.pods.of_workload(&workload.key).filter_map(pod).collect(),
        }
    }

    /// Opens the gates of the pods of an admitted Workload, as far as the admission goes.
    pub(crate) fn open_gates(&mut self, key: &Key) {
        let Some(workload) = self.fed.workloads.get(key).cloned() else { return };
        if !workload.is_admitted() || workload.is_evicted() || workload.is_finished() || workload.deleting {
            return;
        }
        let Some(admission) = &workload.status.admission else { return };
        let slice = self.first_slice(&workload);
        let all = self.pods_of(&workload);
        let is_gated = |pod: &Pod| pods::has_gate(pod, keys::TOPOLOGY_GATE) || pods::has_gate(pod, keys::ELASTIC_GATE);
        if !all.iter().any(|pod| is_gated(pod)) {
            return;
        }
        let infos = match (&slice, self.store.workload(key)) {
            (Some(_), Some(object)) => self.start_infos(object).unwrap_or_default(),
            _ => Vec::new(),
        };
        let mut opened: Vec<Pod> = Vec::new();
        for (i, assignment) in admission.pod_set_assignments.iter().enumerate() {
            let of_pod_set: Vec<&Pod> = all
                .iter()
                .map(AsRef::as_ref)
                .filter(|pod| pods::pod_set(pod) == Some(&*assignment.name) && !pods::is_leaving(pod))
                .collect();
            if of_pod_set.iter().any(|pod| is_gated(pod)) {
                let granted = if slice.is_some() { granted(&workload, assignment) } else { i32::MAX };
                opened.extend(open(&workload, assignment, &of_pod_set, granted, infos.get(i)));
            }
        }
        for pod in opened {
            let object = Object::from(pod);
            if !self.store.is_locked(&object.reference()) {
                self.write(field_manager::JOB, Operation::Update(object), Then::default());
            }
        }
    }
}

/// How many pods of a pod set may run: of a slice that was scaled down in place fewer than were granted.
fn granted(workload: &Workload, assignment: &PodSetAssignment) -> i32 {
    let wanted = workload.spec.pod_sets.iter().find(|p| p.name == assignment.name).map_or(0, |p| p.count);
    assignment.count.map_or(wanted, |count| count.min(wanted))
}

/// The pods of a pod set whose gates open, as they are then.
fn open(
    workload: &Workload,
    assignment: &PodSetAssignment,
    all: &[&Pod],
    granted: i32,
    info: Option<&PodSetInfo>,
) -> Vec<Pod> {
    // Pods that passed the gate of elastic jobs count, those with the lowest names come next.
    let passed = all.iter().filter(|pod| !pods::has_gate(pod, keys::ELASTIC_GATE)).count();
    let mut free = usize::try_from(granted).unwrap_or(0).saturating_sub(passed);
    let mut may_run: Vec<&Pod> = Vec::with_capacity(all.len());
    let mut result: Vec<Option<Pod>> = Vec::with_capacity(all.len());
    for &pod in all {
        if !pods::has_gate(pod, keys::ELASTIC_GATE) {
            may_run.push(pod);
            result.push(None);
        } else if free > 0
            && let Some(new) = info.and_then(|info| refreshed(pod, info))
        {
            free = free.saturating_sub(1);
            may_run.push(pod);
            result.push(Some(new));
        }
    }
    let Some(places) = &assignment.topology_assignment else { return result.into_iter().flatten().collect() };
    for (position, domain) in ungate::places(places, &may_run, ranks(workload, assignment)) {
        let (Some(pod), Some(slot), Some(domain)) =
            (may_run.get(position), result.get_mut(position), places.domains.get(domain))
        else {
            continue;
        };
        // Nothing new starts on a node that is to be replaced.
        if domain.values.last().is_some_and(|node| workload.status.unhealthy_nodes.contains(node)) {
            continue;
        }
        let new = slot.get_or_insert_with(|| (*pod).clone());
        let levels = places.levels.iter().zip(&domain.values);
        let selectors = levels.map(|(level, value)| (level.as_ref(), value.as_ref()));
        if select(new, selectors) {
            remove_gate(new, keys::TOPOLOGY_GATE);
        }
    }
    result.into_iter().zip(&may_run).filter_map(|(new, old)| new.filter(|new| new != *old)).collect()
}

/// How the pods of a pod set are ranked; `None` if nothing tells.
fn ranks<'a>(workload: &'a Workload, assignment: &PodSetAssignment) -> Option<Ranks<'a>> {
    let pod_sets = &workload.spec.pod_sets;
    let this = pod_sets.iter().find(|p| p.name == assignment.name)?;
    let request = this.topology_request.as_ref()?;
    let index = request.pod_index_label.as_deref()?;
    // Of two pod sets placed together the larger one comes behind the other.
    let group = request.pod_set_group_name.as_deref();
    let partner = pod_sets.iter().find(|p| {
        let other = p.topology_request.as_ref().and_then(|t| t.pod_set_group_name.as_deref());
        group.is_some() && other == group && p.name != this.name
    });
    let offset = partner.filter(|p| p.count < this.count).map_or(0, |p| p.count);
    let sub_groups =
        request.sub_group_index_label.as_deref().map(|label| (label, request.sub_group_count.unwrap_or(0)));
    Some(Ranks { index, sub_groups, offset })
}

fn remove_gate(pod: &mut Pod, gate: &str) {
    let Some(spec) = &mut pod.spec else { return };
    if let Some(gates) = &mut spec.scheduling_gates {
        gates.retain(|g| g.name != gate);
        if gates.is_empty() {
            spec.scheduling_gates = None;
        }
    }
}

/// Adds selectors; those that are there cannot be changed. Returns whether all could be added; if not, none was.
fn select<'a>(pod: &mut Pod, selectors: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> bool {
    let known = |label: &str| pods::selected(pod, label);
    if selectors.clone().any(|(label, value)| known(label).is_some_and(|there| there != value)) {
        return false;
    }
    let spec = pod.spec.get_or_insert_default();
    let there = spec.node_selector.get_or_insert_default();
    for (label, value) in selectors {
        there.entry(label.to_owned()).or_insert_with(|| value.to_owned());
    }
    if there.is_empty() {
        spec.node_selector = None;
    }
    true
}

/// A pod of an elastic job without its gate, brought up to date with the slice that was admitted since its template was made;
/// `None` if it cannot be.
fn refreshed(pod: &Pod, info: &PodSetInfo) -> Option<Pod> {
    let mut new = pod.clone();
    if !select(&mut new, info.node_selector.iter().map(|(k, v)| (k.as_str(), v.as_str()))) {
        return None;
    }
    remove_gate(&mut new, keys::ELASTIC_GATE);
    for key in [keys::CONSUME_PROVISIONING_REQUEST, keys::PROVISIONING_CLASS_NAME] {
        if let Some(value) = info.annotations.get(key) {
            new.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.clone());
        }
    }
    let spec = new.spec.get_or_insert_default();
    let missing: Vec<Toleration> = info
        .tolerations
        .iter()
        .filter(|t| !spec.tolerations.iter().flatten().any(|there| there == *t))
        .cloned()
        .collect();
    if !missing.is_empty() {
        spec.tolerations.get_or_insert_default().extend(missing);
    }
    Some(new)
}
