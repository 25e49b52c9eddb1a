//! Objects as they were last seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slicegate_api::{Kind, Object, ObjectMeta, ObjectRef, extension};
use slicegate_controller::{Change, keys};

use crate::watch::Seen;

/// How many deleted objects are remembered, so that the late answer to a write does not bring them back.
const TOMBSTONES: usize = 4_096;

/// Objects as they were last seen, and which kinds have been seen whole.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    objects: BTreeMap<ObjectRef, Object>,
    listing: BTreeMap<Kind, BTreeSet<ObjectRef>>,
    synced: BTreeSet<Kind>,
    /// By kind, the newest version that a watch or list told of: a list that comes later has everything up to it.
    told: BTreeMap<Kind, u64>,
    /// The last version and the uid of what was deleted.
    gone: BTreeMap<ObjectRef, (u64, Box<str>)>,
    gone_order: VecDeque<ObjectRef>,
    wanted: BTreeSet<Kind>,
}

/// What follows from something seen.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// What changed.
    pub(crate) changes: Vec<Change>,
    /// Objects that are known from the answers to writes alone and that a list does not have: either they were made after the
    /// list, or they are gone already. Only a look can tell.
    pub(crate) unsure: Vec<ObjectRef>,
}

impl News {
    fn of(change: Option<Change>) -> Self {
        Self { changes: change.into_iter().collect(), unsure: Vec::new() }
    }
}

fn version(object: &Object) -> Option<u64> {
    object.metadata().resource_version.as_deref()?.parse().ok()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

impl Cache {
    pub(crate) fn get(&self, reference: &ObjectRef) -> Option<&Object> {
        self.objects.get(reference)
    }

    /// The uid and the version of an object that is there, or of the last of that name that was.
    pub(crate) fn identity(&self, reference: &ObjectRef) -> Option<(&str, Option<String>)> {
        match self.objects.get(reference) {
            Some(object) => Some((object.uid(), object.metadata().resource_version.clone())),
            None => self.gone.get(reference).map(|(version, uid)| (&**uid, Some(version.to_string()))),
        }
    }

    /// The objects of a kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let from = ObjectRef::new(kind, "", "");
        self.objects.range(from..).take_while(move |(r, _)| r.kind == kind).map(|(_, o)| o)
    }

    /// All objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// Whether all objects of a kind have been seen once.
    pub(crate) fn is_synced(&self, kind: Kind) -> bool {
        self.synced.contains(&kind)
    }

    /// The kinds that matter because of what was seen, beyond those that always do: nodes only where flavors have a topology,
    /// say. What mattered once is watched from then on.
    pub(crate) fn wanted(&self) -> &BTreeSet<Kind> {
        &self.wanted
    }

    /// Takes in what a watch saw.
    pub(crate) fn take(&mut self, seen: Seen) -> News {
        match seen {
            Seen::Begin(kind) => {
                self.listing.insert(kind, BTreeSet::new());
                News::default()
            }
            Seen::Listed(object) => {
                if let Some(listed) = self.listing.get_mut(&object.kind()) {
                    listed.insert(object.reference());
                }
                self.heard(&object);
                News::of(self.put(object))
            }
            Seen::Applied(object) => {
                self.heard(&object);
                News::of(self.put(object))
            }
            Seen::Deleted(object) => {
                self.heard(&object);
                News::of(self.remove(object))
            }
            Seen::Done(kind) => {
                self.synced.insert(kind);
                let listed = self.listing.remove(&kind).unwrap_or_default();
                self.sweep(kind, &listed)
            }
            Seen::Absent(kind) => {
                self.synced.insert(kind);
                self.told.insert(kind, u64::MAX);
                let news = self.sweep(kind, &BTreeSet::new());
                self.told.remove(&kind);
                news
            }
            Seen::Unreadable(reference) => {
                // It is there, only not understood: what was known of it stays.
                if let Some(listed) = self.listing.get_mut(&reference.kind) {
                    listed.insert(reference);
                }
                News::default()
            }
            Seen::Missing(reference, seen) => {
                let same = self.objects.get(&reference).is_some_and(|known| version(known) == seen);
                let gone = if same { self.objects.remove(&reference) } else { None };
                if let Some(object) = &gone {
                    self.bury(object);
                }
                News::of(gone.map(Change::Deleted))
            }
        }
    }

    /// Takes in an object that a write left behind.
    pub(crate) fn written(&mut self, object: &Object) {
        drop(self.put(object.clone()));
    }

    fn heard(&mut self, object: &Object) {
        let told = self.told.entry(object.kind()).or_insert(0);
        *told = (*told).max(version(object).unwrap_or(0));
    }

    fn put(&mut self, object: Object) -> Option<Change> {
        let reference = object.reference();
        let new = version(&object);
        if self.gone.get(&reference).is_some_and(|(gone, _)| new.is_some_and(|new| new <= *gone)) {
            return None;
        }
        if let Some(known) = self.objects.get(&reference) {
            let older = match (version(known), new) {
                (Some(known), Some(new)) => new < known,
                _ => false,
            };
            if older {
                // What a write answered is newer than what the watch has come to.
                return None;
            }
        }
        self.want(&object);
        self.objects.insert(reference, object.clone());
        Some(Change::Applied(object))
    }

    /// Notes the kinds that an object makes matter.
    fn want(&mut self, object: &Object) {
        match object {
            Object::ResourceFlavor(flavor) => {
                let whole_slices = annotation(&flavor.metadata, extension::WHOLE_SLICES).is_some();
                if whole_slices {
                    self.wanted.extend([Kind::ConfigMap, Kind::Node, Kind::Pod, Kind::Slice]);
                } else if flavor.spec.topology_name.is_some() {
                    self.wanted.extend([Kind::Node, Kind::Pod]);
                }
            }
            Object::AdmissionCheck(check) if check.spec.controller_name == keys::PROVISIONING_CONTROLLER => {
                let kinds = [Kind::PodTemplate, Kind::ProvisioningRequest, Kind::ProvisioningRequestConfig];
                self.wanted.extend(kinds);
            }
            Object::Workload(_) if annotation(object.metadata(), keys::WORKLOAD_SLICE_NAME).is_some() => {
                self.wanted.insert(Kind::Pod);
            }
            Object::Job(_) | Object::JobSet(_) | Object::RayJob(_) | Object::RayCluster(_)
                if annotation(object.metadata(), keys::ELASTIC_JOB) == Some("true") =>
            {
                self.wanted.insert(Kind::Pod);
            }
            _ => {}
        }
    }

    fn remove(&mut self, object: Object) -> Option<Change> {
        let reference = object.reference();
        if let Some(known) = self.objects.get(&reference)
            && known.uid() != object.uid()
            && version(known).zip(version(&object)).is_none_or(|(known, gone)| known >= gone)
        {
            // Its successor is known already.
            return None;
        }
        self.bury(&object);
        self.objects.remove(&reference);
        Some(Change::Deleted(object))
    }

    fn bury(&mut self, object: &Object) {
        let Some(version) = version(object) else { return };
        let reference = object.reference();
        let last = self.gone.entry(reference.clone()).or_default();
        if last.0 == 0 {
            self.gone_order.push_back(reference);
        }
        if version >= last.0 {
            *last = (version, object.uid().into());
        }
        if self.gone_order.len() > TOMBSTONES
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    /// Everything of a kind that a complete list does not have is gone, if it was there before the list.
    fn sweep(&mut self, kind: Kind, listed: &BTreeSet<ObjectRef>) -> News {
        let told = self.told.get(&kind).copied().unwrap_or(0);
        let mut news = News::default();
        let mut gone = Vec::new();
        for object in self.of_kind(kind) {
            let reference = object.reference();
            if listed.contains(&reference) {
                continue;
            }
            if version(object).is_some_and(|version| version > told) {
                news.unsure.push(reference);
            } else {
                gone.push(reference);
            }
        }
        for reference in gone {
            if let Some(object) = self.objects.remove(&reference) {
                self.bury(&object);
                news.changes.push(Change::Deleted(object));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, uid: &str, version: u64) -> Object {
        let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()});
        Kind::Job.read(json!({ "metadata": metadata })).unwrap()
    }

    fn deleted(news: &News) -> Vec<&str> {
        news.changes
            .iter()
            .filter_map(|c| match c {
                Change::Deleted(o) => Some(o.name()),
                Change::Applied(_) => None,
            })
            .collect()
    }

    #[test]
    fn what_a_new_list_does_not_have_is_gone() {
        let mut cache = Cache::default();
        for seen in [Seen::Begin(Kind::Job), Seen::Listed(job("a", "1", 1)), Seen::Listed(job("b", "2", 2))] {
            cache.take(seen);
        }
        assert!(!cache.is_synced(Kind::Job));
        let a = job("a", "1", 1).reference();
        assert_eq!(cache.identity(&a), Some(("1", Some("1".to_owned()))));
        assert!(cache.take(Seen::Done(Kind::Job)).changes.is_empty());
        assert!(cache.is_synced(Kind::Job));
        cache.take(Seen::Begin(Kind::Job));
        cache.take(Seen::Listed(job("b", "2", 2)));
        let news = cache.take(Seen::Done(Kind::Job));
        assert_eq!(deleted(&news), ["a"]);
        assert_eq!(cache.identity(&a), Some(("1", Some("1".to_owned()))), "Events may still be told of it");
        assert_eq!(deleted(&cache.take(Seen::Absent(Kind::Job))), ["b"], "its definition was deleted");
    }

    #[test]
    fn what_cannot_be_read_is_still_there() {
        let mut cache = Cache::default();
        cache.take(Seen::Applied(job("a", "1", 1)));
        cache.take(Seen::Begin(Kind::Job));
        cache.take(Seen::Unreadable(job("a", "1", 2).reference()));
        assert!(cache.take(Seen::Done(Kind::Job)).changes.is_empty());
    }

    #[test]
    fn what_was_written_while_a_list_was_made_is_looked_for() {
        let mut cache = Cache::default();
        cache.take(Seen::Applied(job("old", "1", 5)));
        cache.written(&job("new", "2", 9));
        cache.take(Seen::Begin(Kind::Job));
        cache.take(Seen::Listed(job("other", "3", 7)));
        let news = cache.take(Seen::Done(Kind::Job));
        assert_eq!(deleted(&news), ["old"]);
        let new = job("new", "2", 9).reference();
        assert_eq!(news.unsure, std::slice::from_ref(&new));
        assert!(cache.take(Seen::Missing(new.clone(), Some(8))).changes.is_empty(), "it has changed since");
        assert_eq!(deleted(&cache.take(Seen::Missing(new, Some(9)))), ["new"]);
    }

    #[test]
    fn news_that_are_older_than_what_was_written_are_none() {
        let mut cache = Cache::default();
        cache.take(Seen::Applied(job("a", "1", 5)));
        cache.written(&job("a", "1", 9));
        assert!(cache.take(Seen::Applied(job("a", "1", 7))).changes.is_empty());
        assert_eq!(cache.take(Seen::Applied(job("a", "1", 9))).changes.len(), 1);
        assert_eq!(cache.take(Seen::Applied(job("a", "2", 12))).changes.len(), 1, "another object of the same name");
        assert!(cache.take(Seen::Deleted(job("a", "1", 10))).changes.is_empty(), "the first one's end is old news");
        assert_eq!(cache.take(Seen::Deleted(job("a", "2", 13))).changes.len(), 1);
        cache.written(&job("a", "2", 12));
        assert!(cache.get(&job("a", "2", 12).reference()).is_none(), "a late answer does not bring it back");
        assert_eq!(cache.take(Seen::Applied(job("a", "3", 14))).changes.len(), 1);
    }

    #[test]
    fn nodes_matter_once_a_flavor_has_a_topology() {
        let flavor = |metadata: Value, spec: Value| {
            Kind::ResourceFlavor.read(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let mut cache = Cache::default();
        cache.take(Seen::Applied(flavor(json!({"name": "plain"}), json!({}))));
        assert!(cache.wanted().is_empty());
        cache.take(Seen::Applied(flavor(json!({"name": "tas"}), json!({"topologyName": "t"}))));
        assert_eq!(cache.wanted().iter().collect::<Vec<_>>(), [&Kind::Node, &Kind::Pod]);
        let annotations = json!({"slicegate.dev/whole-slices": "true"});
        cache.take(Seen::Applied(flavor(json!({"name": "whole", "annotations": annotations}), json!({}))));
        assert!(cache.wanted().contains(&Kind::ConfigMap) && cache.wanted().contains(&Kind::Slice));
    }
}
