//! What the API server holds, as far as it is known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use slicegate_api::owner::{controller_of, owner_kind};
use slicegate_api::{
    Kind, Node, Object, ObjectMeta, ObjectRef, OwnerReference, Pod, PriorityClass, kueue, provisioning, ray,
};
use slicegate_workload::{Key, Timestamp};

use crate::io::WriteId;
use crate::priority::Classes;

/// How many deleted objects are remembered, so that a late report does not bring them back: so many pods, which come and go
/// all the time, and so many others.
const TOMBSTONES: usize = 4096;

/// After so many writes in a row that came too late the next one waits, whatever is seen.
const MOST_LATE: u32 = 4;

/// One object.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// As it was last seen.
    object: Option<Object>,
    /// The write of it that is on its way.
    outstanding: Option<WriteId>,
    /// Writes of it that failed in a row.
    failures: u32,
    /// Before this time it is not written again.
    blocked_until: Option<Timestamp>,
    /// It may be before, once it is seen as somebody else left it.
    until_seen: bool,
}

/// What changed in the store.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Applied {
    /// Nothing: the report was late or told nothing new.
    Nothing,
    /// The object; its former state.
    Changed(Option<Object>),
}

/// The objects of the API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    slots: BTreeMap<ObjectRef, Slot>,
    owned: BTreeMap<Box<str>, BTreeSet<ObjectRef>>,
    gone: BTreeMap<ObjectRef, u64>,
    /// The uids of objects that are known to be gone.
    gone_uids: BTreeSet<Box<str>>,
    gone_uids_order: VecDeque<Box<str>>,
    gone_pods: VecDeque<ObjectRef>,
    gone_others: VecDeque<ObjectRef>,
    blocked: BTreeSet<(Timestamp, ObjectRef)>,
}

/// The owners that an object is found by. Pods are found by their Workload.
fn owners(object: &Object) -> impl Iterator<Item = &OwnerReference> {
    let owners = object.metadata().owner_references.iter().flatten();
    owners.filter(|_| object.kind() != Kind::Pod)
}

fn version(object: &Object) -> Option<u64> {
    object.metadata().resource_version.as_deref()?.parse().ok()
}

/// A reference to the owner that controls an object, in the same namespace.
pub(crate) fn owner_ref(metadata: &ObjectMeta) -> Option<ObjectRef> {
    let owner = controller_of(metadata)?;
    let kind = owner_kind(owner)?;
    Some(ObjectRef::new(kind, metadata.namespace.as_deref().unwrap_or_default(), owner.name.as_str()))
}

impl Store {
    /// Takes in an object as it now is.
    pub(crate) fn apply(&mut self, object: &Object) -> Applied {
        let reference = object.reference();
        if let (Some(new), Some(&last)) = (version(object), self.gone.get(&reference))
            && new <= last
        {
            return Applied::Nothing;
        }
        let slot = self.slots.entry(reference.clone()).or_default();
        if let Some(old) = &slot.object {
            let late = version(object).zip(version(old)).is_some_and(|(new, old)| new <= old);
            if late || old == object {
                return Applied::Nothing;
            }
        }
        let old = slot.object.replace(object.clone());
        if std::mem::take(&mut slot.until_seen) {
            slot.blocked_until = None;
        }
        if let Some(old) = &old {
            self.disown(&reference, old);
        }
        for owner in owners(object) {
            self.owned.entry(owner.uid.as_str().into()).or_default().insert(reference.clone());
        }
        Applied::Changed(old)
    }

    /// Takes in that an object is gone.
    pub(crate) fn remove(&mut self, object: &Object) -> Applied {
        let reference = object.reference();
        let known = self.slots.get(&reference).and_then(|s| s.object.as_ref());
        if let Some(known) = known {
            let other = !object.uid().is_empty() && !known.uid().is_empty() && known.uid() != object.uid();
            let late = version(object).zip(version(known)).is_some_and(|(gone, known)| gone < known);
            if other && late {
                return Applied::Nothing;
            }
        }
        let uid: Box<str> = object.uid().into();
        if !uid.is_empty() && reference.kind != Kind::Pod && self.gone_uids.insert(uid.clone()) {
            self.gone_uids_order.push_back(uid);
            if self.gone_uids_order.len() > TOMBSTONES
                && let Some(oldest) = self.gone_uids_order.pop_front()
            {
                self.gone_uids.remove(&oldest);
            }
        }
        if let Some(version) = version(object) {
            let order = if reference.kind == Kind::Pod { &mut self.gone_pods } else { &mut self.gone_others };
            if self.gone.insert(reference.clone(), version).is_none() {
                order.push_back(reference.clone());
            }
            while order.len() > TOMBSTONES {
                if let Some(oldest) = order.pop_front() {
                    self.gone.remove(&oldest);
                }
            }
        }
        self.forget(&reference)
    }

    /// Whether the object of this uid is known to have been there and to be gone.
    pub(crate) fn is_gone(&self, uid: &str) -> bool {
        self.gone_uids.contains(uid)
    }

    /// Forgets an object that turned out not to exist.
    pub(crate) fn forget(&mut self, reference: &ObjectRef) -> Applied {
        let Some(old) = self.slots.get_mut(reference).and_then(|s| s.object.take()) else { return Applied::Nothing };
        self.disown(reference, &old);
        self.tidy(reference);
        Applied::Changed(Some(old))
    }

    fn disown(&mut self, reference: &ObjectRef, object: &Object) {
        for owner in owners(object) {
            if let Some(set) = self.owned.get_mut(owner.uid.as_str()) {
                set.remove(reference);
                if set.is_empty() {
                    self.owned.remove(owner.uid.as_str());
                }
            }
        }
    }

    fn tidy(&mut self, reference: &ObjectRef) {
        let empty = self.slots.get(reference).is_some_and(|s| {
            s.object.is_none() && s.outstanding.is_none() && s.blocked_until.is_none() && s.failures == 0
        });
        if empty {
            self.slots.remove(reference);
        }
    }

    /// Notes that a write of the object is on its way.
    pub(crate) fn lock(&mut self, reference: &ObjectRef, id: WriteId) {
        self.slots.entry(reference.clone()).or_default().outstanding = Some(id);
    }

    /// Notes that the write arrived; `retry` is when to write it again if it failed.
    pub(crate) fn unlock(&mut self, reference: &ObjectRef, id: WriteId, failed_until: Option<Timestamp>) {
        let Some(slot) = self.slots.get_mut(reference).filter(|s| s.outstanding == Some(id)) else { return };
        slot.outstanding = None;
        slot.blocked_until = failed_until;
        if let Some(until) = failed_until {
            self.blocked.insert((until, reference.clone()));
        }
        slot.failures = if failed_until.is_some() { slot.failures.saturating_add(1) } else { 0 };
        self.tidy(reference);
    }

    /// Notes that the write came too late. It is tried again at `retry`, or as soon as the object is seen as somebody else left
    /// it, unless that has happened many times.
    pub(crate) fn unlock_late(&mut self, reference: &ObjectRef, id: WriteId, base: Option<&str>, retry: Timestamp) {
        let Some(slot) = self.slots.get_mut(reference).filter(|s| s.outstanding == Some(id)) else { return };
        let often = slot.failures >= MOST_LATE;
        let known = slot.object.as_ref().and_then(|o| o.metadata().resource_version.as_deref());
        let seen = known.is_some() && known != base && !often;
        self.unlock(reference, id, Some(retry));
        let Some(slot) = self.slots.get_mut(reference) else { return };
        slot.until_seen = !often && !seen;
        if seen {
            slot.blocked_until = None;
        }
    }

    /// The write of the object that is on its way.
    pub(crate) fn outstanding(&self, reference: &ObjectRef) -> Option<WriteId> {
        self.slots.get(reference)?.outstanding
    }

    /// How many writes of the object failed in a row.
    pub(crate) fn failures(&self, reference: &ObjectRef) -> u32 {
        self.slots.get(reference).map_or(0, |s| s.failures)
    }

    /// Lets an object be written again whose back-off is over.
    pub(crate) fn release_expired(&mut self, now: Timestamp) -> Vec<ObjectRef> {
        let mut expired = Vec::new();
        while let Some(&(until, _)) = self.blocked.first()
            && until <= now
            && let Some((_, reference)) = self.blocked.pop_first()
        {
            // It may have been written in between, and have failed again.
            let slot = self.slots.get_mut(&reference).filter(|slot| slot.blocked_until == Some(until));
            if let Some(slot) = slot {
                slot.blocked_until = None;
                slot.until_seen = false;
                expired.push(reference);
            }
        }
        expired
    }

    /// When the next back-off is over.
    pub(crate) fn next_release(&self) -> Option<Timestamp> {
        self.blocked.first().map(|(until, _)| *until)
    }

    /// Until when the object may not be written because writes of it failed.
    pub(crate) fn blocked_until(&self, reference: &ObjectRef) -> Option<Timestamp> {
        self.slots.get(reference)?.blocked_until
    }

    /// Whether the object may not be written now: a write is on its way or failed a moment ago.
    pub(crate) fn is_locked(&self, reference: &ObjectRef) -> bool {
        self.slots.get(reference).is_some_and(|s| s.outstanding.is_some() || s.blocked_until.is_some())
    }

    /// The object.
    pub(crate) fn get(&self, reference: &ObjectRef) -> Option<&Object> {
        self.slots.get(reference)?.object.as_ref()
    }

    /// All objects of a kind, by namespace and name.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let first = ObjectRef::new(kind, "", "");
        self.slots.range(first..).take_while(move |(r, _)| r.kind == kind).filter_map(|(_, s)| s.object.as_ref())
    }

    /// The objects of a kind that name an owner of this uid.
    pub(crate) fn owned_by(&self, uid: &str, kind: Kind) -> Vec<ObjectRef> {
        self.owned.get(uid).into_iter().flatten().filter(|r| r.kind == kind).cloned().collect()
    }

    /// Everything that names an owner of this uid.
    pub(crate) fn owned(&self, uid: &str) -> Vec<ObjectRef> {
        self.owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// A Workload.
    pub(crate) fn workload(&self, key: &Key) -> Option<&Arc<kueue::Workload>> {
        match self.get(&workload_ref(key))? {
            Object::Workload(w) => Some(w),
            _ => None,
        }
    }

    /// A ResourceFlavor.
    pub(crate) fn flavor(&self, name: &str) -> Option<&kueue::ResourceFlavor> {
        match self.get(&ObjectRef::new(Kind::ResourceFlavor, "", name))? {
            Object::ResourceFlavor(f) => Some(f),
            _ => None,
        }
    }

    /// A Pod that has not ended.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        match self.get(&ObjectRef::new(Kind::Pod, namespace, name))? {
            Object::Pod(p) => Some(p),
            _ => None,
        }
    }

    /// A Node.
    pub(crate) fn node(&self, name: &str) -> Option<&Arc<Node>> {
        match self.get(&ObjectRef::new(Kind::Node, "", name))? {
            Object::Node(n) => Some(n),
            _ => None,
        }
    }

    /// An AdmissionCheck.
    pub(crate) fn check(&self, name: &str) -> Option<&Arc<kueue::AdmissionCheck>> {
        match self.get(&ObjectRef::new(Kind::AdmissionCheck, "", name))? {
            Object::AdmissionCheck(c) => Some(c),
            _ => None,
        }
    }

    /// A ProvisioningRequestConfig.
    pub(crate) fn provisioning_config(&self, name: &str) -> Option<&Arc<kueue::ProvisioningRequestConfig>> {
        match self.get(&ObjectRef::new(Kind::ProvisioningRequestConfig, "", name))? {
            Object::ProvisioningRequestConfig(c) => Some(c),
            _ => None,
        }
    }

    /// A ProvisioningRequest.
    pub(crate) fn provisioning_request(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<&Arc<provisioning::ProvisioningRequest>> {
        match self.get(&ObjectRef::new(Kind::ProvisioningRequest, namespace, name))? {
            Object::ProvisioningRequest(r) => Some(r),
            _ => None,
        }
    }

    /// A RayCluster.
    pub(crate) fn ray_cluster(&self, namespace: &str, name: &str) -> Option<Arc<ray::RayCluster>> {
        match self.get(&ObjectRef::new(Kind::RayCluster, namespace, name))? {
            Object::RayCluster(c) => Some(c.clone()),
            _ => None,
        }
    }
}

/// The reference of a Workload.
pub(crate) fn workload_ref(key: &Key) -> ObjectRef {
    ObjectRef::new(Kind::Workload, key.namespace.clone(), key.name.clone())
}

/// The key of a namespaced object.
pub(crate) fn key_of(reference: &ObjectRef) -> Key {
    Key::new(reference.namespace.clone(), reference.name.clone())
}

impl Classes for Store {
    fn workload_priority_class(&self, name: &str) -> Option<i32> {
        match self.get(&ObjectRef::new(Kind::WorkloadPriorityClass, "", name))? {
            Object::WorkloadPriorityClass(c) => Some(c.value),
            _ => None,
        }
    }

    fn priority_class(&self, name: &str) -> Option<&PriorityClass> {
        match self.get(&ObjectRef::new(Kind::PriorityClass, "", name))? {
            Object::PriorityClass(c) => Some(c),
            _ => None,
        }
    }

    fn priority_classes(&self) -> Vec<&PriorityClass> {
        self.all(Kind::PriorityClass)
            .filter_map(|o| match o {
                Object::PriorityClass(c) => Some(c.as_ref()),
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flavor(version: &str, uid: &str) -> Object {
        let mut flavor = kueue::ResourceFlavor::default();
        flavor.metadata.name = Some("f".to_owned());
        flavor.metadata.resource_version = Some(version.to_owned());
        flavor.metadata.uid = Some(uid.to_owned());
        flavor.into()
    }

    #[test]
    fn late_reports_are_passed_over() {
        let mut store = Store::default();
        assert_eq!(store.apply(&flavor("5", "a")), Applied::Changed(None));
        assert_eq!(store.apply(&flavor("5", "a")), Applied::Nothing, "a duplicate");
        assert_eq!(store.apply(&flavor("4", "a")), Applied::Nothing, "an older state");
        assert!(matches!(store.apply(&flavor("9", "a")), Applied::Changed(Some(_))), "numbers, not text");
        assert!(matches!(store.apply(&flavor("10", "a")), Applied::Changed(Some(_))));
    }

    #[test]
    fn the_dead_stay_dead() {
        let mut store = Store::default();
        store.apply(&flavor("5", "a"));
        assert!(matches!(store.remove(&flavor("7", "a")), Applied::Changed(Some(_))));
        assert_eq!(store.apply(&flavor("6", "a")), Applied::Nothing);
        assert!(store.flavor("f").is_none());
        assert_eq!(store.apply(&flavor("8", "b")), Applied::Changed(None));
        assert_eq!(store.remove(&flavor("7", "a")), Applied::Nothing, "its successor lives");
        assert!(store.flavor("f").is_some());
    }

    #[test]
    fn a_failed_write_blocks_until_its_back_off_is_over() {
        let mut store = Store::default();
        let reference = flavor("1", "a").reference();
        store.apply(&flavor("1", "a"));
        store.lock(&reference, WriteId(1));
        assert!(store.is_locked(&reference));
        let until = Timestamp::from_seconds(10);
        store.unlock(&reference, WriteId(1), Some(until));
        assert!(store.is_locked(&reference));
        assert_eq!(store.next_release(), Some(until));
        assert!(store.release_expired(Timestamp::from_seconds(9)).is_empty());
        assert_eq!(store.release_expired(until), std::slice::from_ref(&reference));
        assert!(!store.is_locked(&reference));
        assert_eq!(store.failures(&reference), 1);
    }

    #[test]
    fn a_late_write_waits_for_the_object_and_not_for_long() {
        let id = WriteId(1);
        let after = |failures: u32| {
            let mut store = Store::default();
            store.apply(&flavor("5", "a"));
            let reference = flavor("5", "a").reference();
            for _ in 0..=failures {
                store.lock(&reference, id);
                store.unlock_late(&reference, id, Some("5"), Timestamp::from_micros(500));
            }
            (store, reference)
        };
        let (mut store, reference) = after(0);
        assert!(store.is_locked(&reference));
        store.apply(&flavor("6", "a"));
        assert!(!store.is_locked(&reference), "it was seen");
        // What was seen before the answer came is enough.
        store.lock(&reference, id);
        store.unlock_late(&reference, id, Some("5"), Timestamp::from_micros(900));
        assert!(!store.is_locked(&reference));
        // An end of the first wait does not end a later one.
        store.lock(&reference, id);
        store.unlock(&reference, id, Some(Timestamp::from_micros(2_000)));
        assert!(store.release_expired(Timestamp::from_micros(1_000)).is_empty());
        assert!(store.is_locked(&reference));
        assert_eq!(store.release_expired(Timestamp::from_micros(2_000)), [reference]);
        let (mut store, reference) = after(MOST_LATE);
        store.apply(&flavor("6", "a"));
        assert!(store.is_locked(&reference), "somebody writes all the time");
    }
}
