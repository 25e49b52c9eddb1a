//! The API server's store: objects in memory, with the rules that every client relies on.

pub(crate) use apply::Applied;
mod apply;
mod delete;
mod history;
pub(crate) mod immutable;
mod parts;
mod patch;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::{Kind, Object, ObjectMeta, ObjectRef, OwnerReference, Time};
use slicegate_controller::{Change, Operation, WriteError};
use slicegate_workload::Timestamp;

pub use history::{History, Revision};

pub(crate) use webhooks::Webhooks;

use crate::names;

/// A point in time as the API writes it: whole seconds.
pub(crate) fn api_time(at: Timestamp) -> Time {
    Time(k8s_openapi::jiff::Timestamp::from_second(at.seconds()).unwrap_or(k8s_openapi::jiff::Timestamp::UNIX_EPOCH))
}

/// The same, the other way round.
pub(crate) fn sim_time(time: &Time) -> Timestamp {
    Timestamp::from_micros(time.0.as_microsecond())
}

/// Objects in memory.
///
/// Every write that changes something gives the object a new `resourceVersion` and is appended to the list of changes,
/// which consumers see in order, and to the history.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: BTreeMap<ObjectRef, Object>,
    owned: BTreeMap<Box<str>, BTreeSet<ObjectRef>>,
    /// The last document applied for each object, as JSON.
    applied: BTreeMap<ObjectRef, Box<str>>,
    /// How many objects of a name are gone.
    gone: BTreeMap<ObjectRef, u32>,
    changes: Vec<Change>,
    history: History,
    keep_history: bool,
    version: u64,
    now: Timestamp,
    webhooks: Webhooks,
}

impl Store {
    pub(crate) fn new(keep_history: bool) -> Self {
        Self { keep_history, ..Self::default() }
    }

    /// Moves the clock that creation and deletion times are read from.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// An object.
    pub fn get(&self, object: &ObjectRef) -> Option<&Object> {
        self.objects.get(object)
    }

    /// All objects, by kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        self.objects.iter()
    }

    /// The objects of one kind, by namespace and name.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        self.objects.range(ObjectRef::new(kind, "", "")..).take_while(move |(object, _)| object.kind == kind)
    }

    /// The objects that have an owner with this uid, by kind, namespace and name.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &ObjectRef> {
        self.owned.get(uid).into_iter().flatten()
    }

    /// Everything that happened so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn take_history(&mut self) -> History {
        std::mem::take(&mut self.history)
    }

    /// Takes all objects; none are left.
    pub(crate) fn take_objects(&mut self) -> BTreeMap<ObjectRef, Object> {
        std::mem::take(&mut self.objects)
    }

    /// Takes the changes since the last call, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    fn record(&mut self, change: Change) {
        if self.keep_history {
            self.history.push(self.now, change.clone());
        }
        self.changes.push(change);
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// The uid that an object made now would get: it follows from its name and from how many of that name are gone, so that
    /// nothing else in the cluster has a say in it.
    pub(crate) fn next_uid(&self, key: &ObjectRef) -> String {
        let gone = self.gone.get(key).copied().unwrap_or(0).to_string();
        names::uid(&[key.kind.as_str(), &key.namespace, &key.name, &gone])
    }

    /// Makes an object. System fields are filled in, and what webhooks fill in.
    ///
    /// # Errors
    /// If there is one of this name already, it has no name, or it is a job whose owner is not there.
    pub(crate) fn create(&mut self, mut object: Object) -> Result<Object, WriteError> {
        let key = object.reference();
        if key.name.is_empty() {
            return Err(WriteError::Invalid { object: key, why: "metadata.name: Required value".to_owned() });
        }
        if self.objects.contains_key(&key) {
            return Err(WriteError::AlreadyExists(key));
        }
        self.fill_in(&mut object)?;
        let uid = self.next_uid(&key);
        let version = self.next_version();
        let now = self.now;
        let meta = object.metadata_mut();
        pack(meta);
        meta.uid = Some(uid);
        meta.resource_version = Some(version);
        meta.creation_timestamp = Some(api_time(now));
        meta.deletion_timestamp = None;
        if parts::has_spec(key.kind) {
            object.metadata_mut().generation = Some(1);
        }
        self.link(&object);
        self.objects.insert(key, object.clone());
        self.record(Change::Applied(object.clone()));
        Ok(object)
    }

    /// Replaces an object as a whole, as its own controller does. Nothing happens if nothing differs.
    pub(crate) fn put(&mut self, object: Object) -> Option<Object> {
        let key = object.reference();
        let old = self.objects.get(&key)?.clone();
        Some(self.replace(key, &old, object))
    }

    /// Performs a write of the controller's.
    ///
    /// # Errors
    /// As the API server would: the object is there already, is not there, was changed in between, or is refused.
    pub(crate) fn write(&mut self, operation: Operation) -> Result<Option<Object>, WriteError> {
        match operation {
            Operation::Create(object) => {
                self.admit_new(&object)?;
                self.create(object).map(Some)
            }
            Operation::Update(object) => {
                let (key, old) = self.current(&object)?;
                let mut object = object;
                parts::keep_status(&mut object, &old);
                self.admit_update(&old, &mut object)?;
                Ok(self.replace_or_finish(&key, &old, object))
            }
            Operation::UpdateStatus(object) => {
                let (key, old) = self.current(&object)?;
                let mut next = old.clone();
                parts::keep_status(&mut next, &object);
                self.admit_status(&old, &next)?;
                Ok(Some(self.replace(key, &old, next)))
            }
            Operation::Delete { object, uid } => {
                let old = self.objects.get(&object).ok_or_else(|| WriteError::NotFound(object.clone()))?;
                if !uid.is_empty() && old.uid() != &*uid {
                    return Err(WriteError::Conflict(object));
                }
                self.delete(&object);
                Ok(self.objects.get(&object).cloned())
            }
        }
    }

    fn current(&self, object: &Object) -> Result<(ObjectRef, Object), WriteError> {
        let key = object.reference();
        let old = self.objects.get(&key).ok_or_else(|| WriteError::NotFound(key.clone()))?;
        let version = object.metadata().resource_version.as_deref().unwrap_or_default();
        let uid = object.uid();
        let stale = !version.is_empty() && Some(version) != old.metadata().resource_version.as_deref();
        if stale || (!uid.is_empty() && uid != old.uid()) {
            return Err(WriteError::Conflict(key));
        }
        Ok((key, old.clone()))
    }

    fn replace_or_finish(&mut self, key: &ObjectRef, old: &Object, object: Object) -> Option<Object> {
        let next = self.replace(key.clone(), old, object);
        let meta = next.metadata();
        if meta.deletion_timestamp.is_some()
            && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
            && key.kind != Kind::Pod
        {
            self.remove(key);
            return None;
        }
        Some(next)
    }

    fn replace(&mut self, key: ObjectRef, old: &Object, mut object: Object) -> Object {
        let was = old.metadata();
        let same_system = |meta: &ObjectMeta| {
            meta.uid == was.uid
                && meta.resource_version == was.resource_version
                && meta.creation_timestamp == was.creation_timestamp
                && meta.deletion_timestamp == was.deletion_timestamp
                && meta.generation == was.generation
        };
        if !same_system(object.metadata()) {
            let meta = object.metadata_mut();
            meta.uid.clone_from(&was.uid);
            meta.resource_version.clone_from(&was.resource_version);
            meta.creation_timestamp.clone_from(&was.creation_timestamp);
            meta.deletion_timestamp.clone_from(&was.deletion_timestamp);
            meta.generation = was.generation;
        }
        if object == *old {
            return object;
        }
        let generation = if parts::same_spec(&object, old) {
            was.generation
        } else {
            was.generation.map(|generation| generation.saturating_add(1))
        };
        let relinked = was.owner_references != object.metadata().owner_references;
        let version = self.next_version();
        let meta = object.metadata_mut();
        meta.resource_version = Some(version);
        meta.generation = generation;
        if relinked {
            self.unlink(old);
            self.link(&object);
        }
        self.objects.insert(key, object.clone());
        self.record(Change::Applied(object.clone()));
        object
    }

    /// Deletes an object: marks it while something has to be done first (finalizers; pods that run), else removes it.
    pub(crate) fn delete(&mut self, key: &ObjectRef) {
        let Some(old) = self.objects.get(key) else { return };
        let graceful = match old {
            Object::Pod(pod) => {
                let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                placed && !matches!(phase, Some("Succeeded" | "Failed"))
            }
            _ => old.metadata().finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()),
        };
        if !graceful {
            self.remove(key);
            return;
        }
        if old.metadata().deletion_timestamp.is_some() {
            return;
        }
        let mut object = old.clone();
        let version = self.next_version();
        let now = self.now;
        let meta = object.metadata_mut();
        meta.resource_version = Some(version);
        if key.kind == Kind::Pod {
            meta.deletion_timestamp = Some(api_time(now.plus_seconds(30)));
            meta.deletion_grace_period_seconds = Some(30);
            meta.finalizers = None;
        } else {
            meta.deletion_timestamp = Some(api_time(now));
        }
        self.objects.insert(key.clone(), object.clone());
        self.record(Change::Applied(object));
    }

    /// Removes an object and whatever it owns.
    pub(crate) fn remove(&mut self, key: &ObjectRef) {
        let Some(object) = self.objects.remove(key) else { return };
        self.unlink(&object);
        self.applied.remove(key);
        *self.gone.entry(key.clone()).or_insert(0) += 1;
        let uid = object.uid().to_owned();
        self.record(Change::Deleted(object.clone()));
        let dependents: Vec<ObjectRef> = self.owned_by(&uid).cloned().collect();
        for dependent in dependents {
            self.delete(&dependent);
        }
        self.release_owners(&object);
    }

    fn owners(object: &Object) -> impl Iterator<Item = &OwnerReference> {
        object.metadata().owner_references.iter().flatten()
    }

    fn link(&mut self, object: &Object) {
        for owner in Self::owners(object) {
            self.owned.entry(owner.uid.as_str().into()).or_default().insert(object.reference());
        }
    }

    fn unlink(&mut self, object: &Object) {
        for owner in Self::owners(object) {
            if let Some(owned) = self.owned.get_mut(owner.uid.as_str()) {
                owned.remove(&object.reference());
                if owned.is_empty() {
                    self.owned.remove(owner.uid.as_str());
                }
            }
        }
    }
}

/// Puts labels and annotations into full nodes of their maps: filled one by one, these are half empty, and every later version
/// of the object inherits them.
pub(crate) fn pack(meta: &mut ObjectMeta) {
    for map in [&mut meta.labels, &mut meta.annotations].into_iter().flatten() {
        *map = std::mem::take(map).into_iter().collect();
    }
}

/// The owner that controls an object.
pub(crate) fn controller_of(object: &Object) -> Option<&OwnerReference> {
    object.metadata().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// A reference that makes `owner` the controller of another object.
pub(crate) fn owner_reference(owner: &Object) -> OwnerReference {
    OwnerReference {
        api_version: owner.kind().api_version().to_owned(),
        block_owner_deletion: Some(true),
        controller: Some(true),
        kind: owner.kind().as_str().to_owned(),
        name: owner.name().to_owned(),
        uid: owner.uid().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slicegate_api::kueue::Workload;
    use slicegate_api::{ConfigMap, Job};

    fn named(name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), namespace: Some("default".to_owned()), ..ObjectMeta::default() }
    }

    fn workload(name: &str) -> Object {
        let pod_sets = vec![slicegate_api::kueue::PodSet { name: "main".to_owned(), ..Default::default() }];
        let spec = slicegate_api::kueue::WorkloadSpec { pod_sets, ..Default::default() };
        Workload { metadata: named(name), spec, ..Workload::default() }.into()
    }

    fn store() -> Store {
        let mut store = Store::new(true);
        store.set_now(Timestamp::from_seconds(100));
        store
    }

    #[test]
    fn creating_twice_is_refused() {
        let mut store = store();
        let made = store.create(workload("a")).unwrap();
        assert_eq!(made.metadata().generation, Some(1));
        assert!(!made.uid().is_empty());
        assert_eq!(store.create(workload("a")), Err(WriteError::AlreadyExists(made.reference())));
    }

    #[test]
    fn a_write_on_top_of_an_old_version_conflicts() {
        let mut store = store();
        let first = store.create(workload("a")).unwrap();
        let mut second = first.clone();
        if let Object::Workload(w) = &mut second {
            std::sync::Arc::make_mut(w).spec.queue_name = "q".to_owned();
        }
        let second = store.write(Operation::Update(second)).unwrap().unwrap();
        assert_eq!(second.metadata().generation, Some(2), "the spec changed");
        assert_eq!(store.write(Operation::Update(first.clone())), Err(WriteError::Conflict(first.reference())));
        assert_eq!(
            store.write(Operation::UpdateStatus(workload("b"))),
            Err(WriteError::NotFound(ObjectRef::new(Kind::Workload, "default", "b")))
        );
    }

    #[test]
    fn an_update_leaves_the_status_and_a_status_update_the_rest() {
        let mut store = store();
        let mut object = store.create(workload("a")).unwrap();
        if let Object::Workload(w) = &mut object {
            let w = std::sync::Arc::make_mut(w);
            w.spec.queue_name = "q".to_owned();
            w.status.accumulated_past_execution_time_seconds = Some(7);
        }
        let updated = store.write(Operation::Update(object.clone())).unwrap().unwrap();
        let Object::Workload(w) = &updated else { panic!() };
        assert_eq!((w.spec.queue_name.as_str(), w.status.accumulated_past_execution_time_seconds), ("q", None));
        let mut status = updated.clone();
        if let Object::Workload(w) = &mut status {
            let w = std::sync::Arc::make_mut(w);
            w.spec.queue_name = "other".to_owned();
            w.status.accumulated_past_execution_time_seconds = Some(7);
        }
        let Some(Object::Workload(w)) = store.write(Operation::UpdateStatus(status)).unwrap() else { panic!() };
        assert_eq!((w.spec.queue_name.as_str(), w.status.accumulated_past_execution_time_seconds), ("q", Some(7)));
        assert_eq!(w.metadata.generation, Some(2), "a status does not count");
    }

    #[test]
    fn writing_nothing_new_changes_nothing() {
        let mut store = store();
        let object = store.create(workload("a")).unwrap();
        store.take_changes();
        assert_eq!(store.write(Operation::Update(object.clone())), Ok(Some(object)));
        assert!(store.take_changes().is_empty());
    }

    #[test]
    fn finalizers_hold_an_object_until_they_are_gone() {
        let mut store = store();
        let mut object = workload("a");
        object.metadata_mut().finalizers = Some(vec!["f".to_owned()]);
        let made = store.create(object).unwrap();
        let key = made.reference();
        store.delete(&key);
        let mut marked = store.get(&key).unwrap().clone();
        assert!(marked.metadata().deletion_timestamp.is_some());
        marked.metadata_mut().finalizers = None;
        assert_eq!(store.write(Operation::Update(marked)), Ok(None));
        assert!(store.get(&key).is_none());
    }

    #[test]
    fn what_an_object_owns_goes_with_it() {
        let mut store = store();
        let owner = store.create(Job { metadata: named("a"), ..Job::default() }.into()).unwrap();
        let mut dependent: Object = ConfigMap { metadata: named("b"), ..ConfigMap::default() }.into();
        dependent.metadata_mut().owner_references = Some(vec![owner_reference(&owner)]);
        store.create(dependent).unwrap();
        assert_eq!(store.owned_by(owner.uid()).count(), 1);
        store.delete(&owner.reference());
        assert_eq!(store.iter().count(), 0);
        assert_eq!(store.take_changes().len(), 4);
    }

    #[test]
    fn deleting_another_incarnation_conflicts() {
        let mut store = store();
        let key = store.create(workload("a")).unwrap().reference();
        let delete = Operation::Delete { object: key.clone(), uid: "other".into() };
        assert_eq!(store.write(delete), Err(WriteError::Conflict(key.clone())));
        assert_eq!(store.write(Operation::Delete { object: key, uid: "".into() }), Ok(None));
    }
}
