//! Objects as they were last seen.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::Change;

use crate::watch::Seen;

/// Objects as they were last seen, and which kinds have been seen whole.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    objects: BTreeMap<ObjectRef, Object>,
    listing: BTreeMap<Kind, BTreeSet<ObjectRef>>,
    synced: BTreeSet<Kind>,
}

fn version(object: &Object) -> Option<u64> {
    object.metadata().resource_version.as_deref()?.parse().ok()
}

impl Cache {
    pub(crate) fn get(&self, reference: &ObjectRef) -> Option<&Object> {
        self.objects.get(reference)
    }

    /// The objects of a kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let from = ObjectRef::new(kind, "", "");
        self.objects.range(from..).take_while(move |(r, _)| r.kind == kind).map(|(_, o)| o)
    }

    /// Whether all objects of a kind have been seen once.
    pub(crate) fn is_synced(&self, kind: Kind) -> bool {
        self.synced.contains(&kind)
    }

    /// Takes in what a watch saw. Returns what is news.
    pub(crate) fn take(&mut self, seen: Seen) -> Vec<Change> {
        match seen {
            Seen::Begin(kind) => {
                self.listing.insert(kind, BTreeSet::new());
                Vec::new()
            }
            Seen::Listed(object) => {
                if let Some(listed) = self.listing.get_mut(&object.kind()) {
                    listed.insert(object.reference());
                }
                self.put(object).into_iter().collect()
            }
            Seen::Applied(object) => self.put(object).into_iter().collect(),
            Seen::Deleted(object) => self.remove(object).into_iter().collect(),
            Seen::Done(kind) => {
                self.synced.insert(kind);
                let listed = self.listing.remove(&kind).unwrap_or_default();
                self.sweep(kind, &listed)
            }
            Seen::Absent(kind) => {
                self.synced.insert(kind);
                self.sweep(kind, &BTreeSet::new())
            }
        }
    }

    /// Takes in an object that a write left behind.
    pub(crate) fn written(&mut self, object: &Object) {
        drop(self.put(object.clone()));
    }

    fn put(&mut self, object: Object) -> Option<Change> {
        let reference = object.reference();
        if let Some(known) = self.objects.get(&reference) {
            let older = match (version(known), version(&object)) {
                (Some(known), Some(new)) => new < known,
                _ => false,
            };
            if older && known.uid() == object.uid() {
                // What a write answered is newer than what the watch has come to.
                return None;
            }
        }
        self.objects.insert(reference, object.clone());
        Some(Change::Applied(object))
    }

    fn remove(&mut self, object: Object) -> Option<Change> {
        let reference = object.reference();
        if self.objects.get(&reference).is_some_and(|known| known.uid() != object.uid()) {
            // Its successor is known already.
            return None;
        }
        self.objects.remove(&reference);
        Some(Change::Deleted(object))
    }

    /// Everything of a kind that a complete list does not have is gone.
    fn sweep(&mut self, kind: Kind, listed: &BTreeSet<ObjectRef>) -> Vec<Change> {
        let gone: Vec<ObjectRef> = self.of_kind(kind).map(Object::reference).filter(|r| !listed.contains(r)).collect();
        gone.iter().filter_map(|r| self.objects.remove(r)).map(Change::Deleted).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, uid: &str, version: u64) -> Object {
        let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()});
        Kind::Job.read(json!({ "metadata": metadata })).unwrap()
    }

    fn deleted(changes: &[Change]) -> Vec<&str> {
        changes
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
        assert!(cache.take(Seen::Done(Kind::Job)).is_empty());
        assert!(cache.is_synced(Kind::Job));
        cache.take(Seen::Begin(Kind::Job));
        cache.take(Seen::Listed(job("b", "2", 2)));
        let changes = cache.take(Seen::Done(Kind::Job));
        assert_eq!(deleted(&changes), ["a"]);
        assert_eq!(deleted(&cache.take(Seen::Absent(Kind::Job))), ["b"], "its definition was deleted");
    }

    #[test]
    fn news_that_are_older_than_what_was_written_are_none() {
        let mut cache = Cache::default();
        cache.take(Seen::Applied(job("a", "1", 5)));
        cache.written(&job("a", "1", 9));
        assert!(cache.take(Seen::Applied(job("a", "1", 7))).is_empty());
        assert_eq!(cache.take(Seen::Applied(job("a", "1", 9))).len(), 1);
        assert_eq!(cache.take(Seen::Applied(job("a", "2", 3))).len(), 1, "another object of the same name");
        assert!(cache.take(Seen::Deleted(job("a", "1", 10))).is_empty(), "the first one's end is old news");
        assert_eq!(cache.take(Seen::Deleted(job("a", "2", 11))).len(), 1);
    }
}
