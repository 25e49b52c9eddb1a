//! The admission check `accelerator.gke.io/slice`: forms Slices where a workload was placed, before its pods start.
//!
//! It belongs to GKE and not to the controller under simulation, with which it has in common what stands in Workloads: it reads
//! the topology assignment of a workload with reserved quota, makes a Slice for every sub-group of pods (each Job of a JobSet),
//! and answers `Ready` once all are formed, with the topology as node selector; or `Retry` if one has failed or if they take
//! longer than three minutes. The Slices go when the workload has lost its quota or is finished, and its pods are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use slicegate_api::kueue::{PodSet, PodSetAssignment, PodSetUpdate, Workload};
use slicegate_api::slice::{self, Slice, SliceSpec, state};
use slicegate_api::{Kind, Object, ObjectMeta, ObjectRef, convert};
use slicegate_tpu::{SuperSlice, Topology, label};

use super::slices::{hosts_of, is_formed};
use crate::defaults::annotation;
use crate::store::{api_time, controller_of};
use crate::timeline::EntryKind;
use crate::workloads::{condition, is_true, set_condition};
use crate::world::{Event, World};

/// How long Slices may take until they are active, in microseconds.
const ACTIVATION_TIMEOUT: i64 = 180_000_000;
/// On a Workload: why a Slice of it failed.
const FAILURE: &str = "TPUSliceFailure";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The Workload that a Slice was formed for.
pub(crate) fn owner(meta: &ObjectMeta) -> Option<ObjectRef> {
    let (namespace, name) = (annotation(meta, slice::OWNER_NAMESPACE)?, annotation(meta, slice::OWNER_NAME)?);
    Some(ObjectRef::new(Kind::Workload, namespace, name))
}

/// The shape of slices that pods ask for, as it is written.
pub(crate) fn asked_topology(meta: Option<&ObjectMeta>) -> Option<&str> {
    annotation(meta?, slicegate_tpu::annotation::SLICE_TOPOLOGY)
}

/// The name of a Slice; shortened, with five digits of a hash, if it would be too long.
fn slice_name(workload: &ObjectRef, pod_set: &str, index: usize) -> String {
    let full = format!("{}-{}-{pod_set}-{index}", workload.namespace, workload.name).replace('.', "-");
    let begins = full.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && full.len() <= slice::LONGEST_NAME {
        return full;
    }
    let digest: [u8; 32] = Sha256::digest(full.as_bytes()).into();
    let [a, b, c, ..] = digest;
    let start = if begins { "" } else { "s-" };
    let room = slice::LONGEST_NAME.saturating_sub(6).saturating_sub(start.len());
    let cut: String = full.chars().take(room).collect();
    format!("{start}{}-{a:02x}{b:02x}{:x}", cut.trim_end_matches('-'), c >> 4)
}

/// The Slices of a workload, by name, each with its pod set; and what its pods are to select.
#[derive(Default)]
struct Wanted {
    slices: BTreeMap<String, (String, SliceSpec)>,
    updates: Vec<PodSetUpdate>,
}

impl World {
    /// Takes note of an admission check; if it forms slices it is ready at once.
    pub(crate) fn note_slice_check(&mut self, object: &Object, gone: bool) {
        let Object::AdmissionCheck(check) = object else { return };
        let name: Box<str> = object.name().into();
        if gone || check.spec.controller_name != slice::CHECK_CONTROLLER {
            self.slices.checks.remove(&name);
            return;
        }
        if self.slices.checks.insert(name) {
            let all: Vec<ObjectRef> = self.store.of_kind(Kind::Workload).map(|(key, _)| key.clone()).collect();
            self.slices.dirty.extend(all);
        }
        if !is_true(&check.status.conditions, "Active") {
            let mut check = check.clone();
            let text = "The admission check is active";
            let active = condition("Active", true, "Active", text, &api_time(self.now));
            set_condition(&mut Arc::make_mut(&mut check).status.conditions, active);
            self.store.put(Object::AdmissionCheck(check));
        }
    }

    fn workload(&self, key: &ObjectRef) -> Option<Arc<Workload>> {
        match self.store.get(key) {
            Some(Object::Workload(workload)) => Some(workload.clone()),
            _ => None,
        }
    }

    /// The job that a Slice was formed for.
    pub(crate) fn job_of_slice(&self, slice: &Slice) -> Option<ObjectRef> {
        let workload = owner(&slice.metadata)?;
        self.top_owner(&workload).or(Some(workload))
    }

    fn slices_for(&self, workload: &ObjectRef) -> Vec<Arc<Slice>> {
        let all = self.store.of_kind(Kind::Slice).filter_map(|(_, object)| match object {
            Object::Slice(slice) if owner(&slice.metadata).as_ref() == Some(workload) => Some(slice.clone()),
            _ => None,
        });
        all.collect()
    }

    /// Looks at a workload whose quota, check or Slices changed.
    pub(crate) fn sync_slice_check(&mut self, key: &ObjectRef) {
        let Some(workload) = self.workload(key) else {
            self.slices.made.remove(key);
            return self.dissolve(key, &|_| true);
        };
        let status = &workload.status;
        let holds = is_true(&status.conditions, "QuotaReserved")
            && !is_true(&status.conditions, "Evicted")
            && !is_true(&status.conditions, "Finished")
            && workload.spec.active != Some(false)
            && workload.metadata.deletion_timestamp.is_none();
        let check = status.admission_checks.iter().find(|c| self.slices.checks.contains(&*c.name));
        let (Some(admission), Some(check), true) = (&status.admission, check, holds) else {
            return self.dissolve(key, &|_| true);
        };
        match check.state.as_str() {
            "Ready" => self.watch_slices(key),
            "Pending" => {
                if let Some(host) = self.lost_host(&admission.pod_set_assignments) {
                    return self.give_up(key, "RuntimeFailure", &format!("{host} is gone"));
                }
                match self.wanted_slices(key, &workload, &admission.pod_set_assignments) {
                    Ok(wanted) => self.form_slices(key, &workload, &wanted),
                    Err(why) => {
                        self.set_failure(key, "ConfigurationFailure", &why);
                        self.answer(key, "Rejected", &why, &[]);
                    }
                }
            }
            _ => {}
        }
    }

    /// The Slices of a workload that runs: whether all are still there.
    fn watch_slices(&mut self, key: &ObjectRef) {
        let slices = self.slices_for(key);
        if self.slices.made.get(key).is_some_and(|made| slices.len() < *made) {
            return self.give_up(key, "Deletion", "a Slice was deleted");
        }
        self.answer_failed(key, &slices);
    }

    /// Answers that a Slice has failed, if one has.
    fn answer_failed(&mut self, key: &ObjectRef, slices: &[Arc<Slice>]) {
        let Some(failed) = slices.iter().find(|slice| slice.state() == state::FAILED) else { return };
        let name = failed.metadata.name.as_deref().unwrap_or_default();
        let why = failed.status.conditions.iter().find(|c| c.type_ == "Ready").map_or("", |c| c.message.as_str());
        let text = format!("{}; Slice {name}: {why}", states(slices));
        self.give_up(key, "RuntimeFailure", &text);
    }

    /// Makes the Slices that are not there and says how far they are.
    fn form_slices(&mut self, key: &ObjectRef, workload: &Arc<Workload>, wanted: &Wanted) {
        // What an earlier placement left has to go first.
        let spent = self.slices.spent.clone();
        let old = |slice: &Slice| {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            spent.contains(slice.metadata.uid.as_deref().unwrap_or_default())
                || wanted.slices.get(name).is_none_or(|(_, spec)| *spec != slice.spec)
        };
        self.dissolve(key, &old);
        let there = self.slices_for(key);
        if there.iter().any(|slice| old(slice)) {
            return;
        }
        if there.is_empty() && !wanted.slices.is_empty() {
            self.make_slices(key, workload, wanted);
            return;
        }
        if there.len() < wanted.slices.len() {
            return self.give_up(key, "Deletion", "a Slice was deleted");
        }
        if there.iter().all(|slice| is_formed(slice.state())) {
            let text = if there.is_empty() { "No Slices are needed".to_owned() } else { states(&there) };
            self.answer(key, "Ready", &text, &wanted.updates);
            return;
        }
        self.answer(key, "Pending", &states(&there), &[]);
        self.answer_failed(key, &there);
    }

    fn make_slices(&mut self, key: &ObjectRef, workload: &Arc<Workload>, wanted: &Wanted) {
        let mut first = None;
        for (name, (pod_set, spec)) in &wanted.slices {
            let annotations = [
                (slice::OWNER_NAMESPACE, &*key.namespace),
                (slice::OWNER_NAME, &*key.name),
                (slice::OWNER_POD_SET, pod_set.as_str()),
                (slice::RETRY_ON_FAILURE, "true"),
            ];
            let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let metadata =
                ObjectMeta { name: Some(name.clone()), annotations: Some(annotations.into()), ..ObjectMeta::default() };
            match self.store.create(Slice { metadata, spec: spec.clone(), ..Slice::default() }.into()) {
                Ok(made) => first = first.or_else(|| Some((made.name().into(), made.uid().into()))),
                Err(error) => self.warn(format!("{key}: its Slice {name} could not be made: {error}")),
            }
        }
        let Some((slice, uid)) = first else { return };
        let job = controller_of(&Object::Workload(workload.clone()))
            .and_then(|_| self.top_owner(key))
            .unwrap_or_else(|| key.clone());
        let shapes: Vec<String> = wanted
            .slices
            .iter()
            .map(|(name, (_, spec))| format!("{name} ({} of {})", spec.topology, spec.partition_ids.join(", ")))
            .collect();
        self.say(Some(job), EntryKind::Slice, format!("forms {} Slice(s): {}", shapes.len(), shapes.join("; ")));
        self.slices.made.insert(key.clone(), wanted.slices.len());
        let late = Event::SlicesLate { workload: key.clone(), slice, uid };
        self.queue.schedule(self.now.plus_micros(ACTIVATION_TIMEOUT), late);
        self.answer(key, "Pending", "Waiting for Slices to be created", &[]);
    }

    /// The Slices of a workload have had enough time.
    pub(crate) fn slices_late(&mut self, key: &ObjectRef, slice: &str, uid: &str) {
        let first = self.store.get(&ObjectRef::new(Kind::Slice, "", slice));
        if first.is_none_or(|first| first.uid() != uid) {
            return;
        }
        let Some(workload) = self.workload(key) else { return };
        let check = workload.status.admission_checks.iter().find(|c| self.slices.checks.contains(&*c.name));
        if check.is_some_and(|check| check.state == "Pending") {
            let text = format!("{} after 3 min", states(&self.slices_for(key)));
            self.give_up(key, "FormationTimeout", &text);
        }
    }

    /// The workload has to be placed again.
    fn give_up(&mut self, key: &ObjectRef, reason: &str, text: &str) {
        let uids = self.slices_for(key).into_iter().filter_map(|slice| slice.metadata.uid.clone());
        self.slices.spent.extend(uids.map(Into::into));
        self.set_failure(key, reason, text);
        self.answer(key, "Retry", text, &[]);
    }

    fn set_failure(&mut self, key: &ObjectRef, reason: &str, text: &str) {
        let Some(mut workload) = self.workload(key) else { return };
        let failure = condition(FAILURE, true, reason, text, &api_time(self.now));
        set_condition(&mut Arc::make_mut(&mut workload).status.conditions, failure);
        self.store.put(Object::Workload(workload));
    }

    /// Writes the state of the check into a Workload.
    fn answer(&mut self, key: &ObjectRef, state: &str, text: &str, updates: &[PodSetUpdate]) {
        let Some(mut workload) = self.workload(key) else { return };
        let time = api_time(self.now);
        let checks = &self.slices.checks;
        let status = &mut Arc::make_mut(&mut workload).status;
        for check in status.admission_checks.iter_mut().filter(|check| checks.contains(&*check.name)) {
            if check.state != state {
                check.last_transition_time = Some(time.clone());
            }
            state.clone_into(&mut check.state);
            text.clone_into(&mut check.message);
            check.pod_set_updates = updates.to_vec();
        }
        if state == "Ready"
            && let Some(failure) = status.conditions.iter().find(|c| c.type_ == FAILURE && c.status == "True")
        {
            let over = condition(FAILURE, false, &failure.reason.clone(), "Slices are active", &time);
            set_condition(&mut status.conditions, over);
        }
        self.store.put(Object::Workload(workload));
    }

    /// Deletes Slices of a workload as soon as no pod is on their nodes.
    fn dissolve(&mut self, key: &ObjectRef, which: &dyn Fn(&Slice) -> bool) {
        let mut busy = false;
        for slice in self.slices_for(key).iter().filter(|slice| which(slice)) {
            let nodes = self.nodes_of_slice(slice);
            if nodes.iter().any(|id| self.nodes.node(*id).is_some_and(|node| node.chip_user.is_some())) {
                busy = true;
                continue;
            }
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let job = self.job_of_slice(slice);
            self.say(job, EntryKind::Slice, format!("Slice {name} is dissolved"));
            self.slices.spent.remove(slice.metadata.uid.as_deref().unwrap_or_default());
            self.store.delete(&ObjectRef::new(Kind::Slice, "", name));
        }
        if busy {
            self.slices.closing.insert(key.clone());
        }
    }

    /// The Slices that a placement asks for.
    fn wanted_slices(
        &self,
        key: &ObjectRef,
        workload: &Workload,
        assignments: &[PodSetAssignment],
    ) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        for set in &workload.spec.pod_sets {
            let Some(text) = asked_topology(set.template.metadata.as_ref()) else { continue };
            let of_set = |why: String| format!("pod set {}: {why}", set.name);
            let topology: Topology = text.parse().map_err(|error| of_set(format!("{error}")))?;
            let (shape, count) = SuperSlice::partitions_of(topology).map_err(|error| of_set(error.to_string()))?;
            let placed = assignments.iter().find(|assignment| assignment.name == set.name);
            let slots = self.partitions_of_pods(placed, shape).map_err(of_set)?;
            let hosts = hosts_of(topology);
            if slots.is_empty() || slots.len() % hosts.max(1) != 0 {
                let why = format!("{} pods are no multiple of the {hosts} hosts of a slice of {topology}", slots.len());
                return Err(of_set(why));
            }
            let kind = accelerator(set).to_owned();
            for (i, group) in slots.chunks(hosts.max(1)).enumerate() {
                let mut ids: Vec<String> = Vec::new();
                for id in group {
                    if !ids.contains(id) {
                        ids.push(id.clone());
                    }
                }
                if u32::try_from(ids.len()) != Ok(count) {
                    let why = format!(
                        "its slice {i} of {topology} needs {count} partition(s) of {shape}, but was placed on {}: set \
                         kueue.x-k8s.io/podset-slice-required-topology and podset-slice-size as GKE's webhook does",
                        ids.join(", ")
                    );
                    return Err(of_set(why));
                }
                let spec = SliceSpec { type_: kind.clone(), topology: topology.to_string(), partition_ids: ids };
                wanted.slices.insert(slice_name(key, &set.name, i), (set.name.clone(), spec));
            }
            wanted.updates.push(PodSetUpdate {
                name: set.name.clone(),
                node_selector: [(label::TOPOLOGY.to_owned(), topology.to_string())].into(),
                ..PodSetUpdate::default()
            });
        }
        Ok(wanted)
    }

    /// A host of a placement that has gone since it was made.
    fn lost_host(&self, assignments: &[PodSetAssignment]) -> Option<String> {
        let placed = assignments.iter().filter_map(|placed| placed.topology_assignment.as_ref());
        let plain = placed.filter_map(|placed| convert::topology_assignment(placed).ok());
        let by_host = plain.filter(|plain| plain.levels.last().is_some_and(|level| **level == *HOSTNAME));
        let mut hosts = by_host.flat_map(|plain| plain.domains).filter_map(|mut domain| domain.values.pop());
        let there = |host: &str| self.nodes.by_name.get(host).and_then(|id| self.nodes.node(*id)).is_some();
        hosts.find(|host| !there(host)).map(|host| host.to_string())
    }

    /// The partition of every pod of a pod set, in order of their ranks.
    fn partitions_of_pods(&self, placed: Option<&PodSetAssignment>, shape: Topology) -> Result<Vec<String>, String> {
        let Some(assignment) = placed.and_then(|placed| placed.topology_assignment.as_ref()) else {
            return Err("it has no topology assignment: its ResourceFlavor needs a topologyName".to_owned());
        };
        let key = label::partition_id(shape).unwrap_or_default();
        let plain = convert::topology_assignment(assignment).map_err(|error| error.to_string())?;
        let level = plain.levels.iter().position(|level| **level == *key);
        let by_host = plain.levels.last().is_some_and(|level| **level == *HOSTNAME);
        let mut slots = Vec::new();
        for domain in &plain.domains {
            let id = match level.and_then(|level| domain.values.get(level)) {
                Some(id) => Some(id.to_string()),
                None => domain.values.last().filter(|_| by_host).and_then(|host| {
                    let node = self.nodes.node(*self.nodes.by_name.get(host)?)?;
                    node.labels.get(key).map(ToString::to_string)
                }),
            };
            let Some(id) = id else {
                let host = domain.values.last().map_or("", |host| host);
                return Err(format!("{host} is in no partition of {shape}: {key} must be a level of its Topology"));
            };
            slots.extend(std::iter::repeat_n(id, usize::try_from(domain.count).unwrap_or(0)));
        }
        Ok(slots)
    }
}

/// The accelerator that pods select, by which a Slice calls its type.
fn accelerator(set: &PodSet) -> &str {
    let selector = set.template.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    selector.and_then(|selector| selector.get(label::ACCELERATOR)).map_or("tpu7x", String::as_str)
}

/// The states of Slices and what they are called in messages, in order.
const STATES: [(&str, &str); 6] = [
    (state::NOT_CREATED, "CREATED"),
    (state::CREATION_FAILED, "CREATION_FAILED"),
    (state::ACTIVATING, "ACTIVATING"),
    (state::ACTIVE, "ACTIVE"),
    (state::ACTIVE_DEGRADED, "ACTIVE_DEGRADED"),
    (state::FAILED, "FAILED"),
];

/// `Slices are in states: 1 ACTIVATING, 1 ACTIVE`.
fn states(slices: &[Arc<Slice>]) -> String {
    if slices.is_empty() {
        return "Waiting for Slices to be created".to_owned();
    }
    let counted = STATES.iter().filter_map(|(state, word)| {
        let count = slices.iter().filter(|slice| slice.state() == *state).count();
        (count > 0).then(|| format!("{count} {word}"))
    });
    format!("Slices are in states: {}", counted.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit() {
        let workload = |namespace: &str, name: &str| ObjectRef::new(Kind::Workload, namespace, name);
        assert_eq!(slice_name(&workload("default", "jobset-a-12345"), "w", 3), "default-jobset-a-12345-w-3");
        let long = slice_name(&workload("default", &"a".repeat(60)), "w", 0);
        assert_eq!(long.len(), slice::LONGEST_NAME, "{long}");
        assert_ne!(long, slice_name(&workload("default", &"a".repeat(60)), "w", 1));
        assert!(slice_name(&workload("1st", "a"), "w", 0).starts_with("s-1st-a-w-0-"));
        assert!(!slice_name(&workload("default", "a.b"), "w", 0).contains('.'));
    }
}
