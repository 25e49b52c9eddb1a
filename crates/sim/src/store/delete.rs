//! Deleting, and what becomes of what an object owns.

use slicegate_api::{Object, ObjectRef};

use super::Store;
use crate::plan::Propagation;

/// The finalizer that keeps an object until what it owns is gone.
const FOREGROUND: &str = "foregroundDeletion";

impl Store {
    /// Deletes an object as a user does. Answers whether it was there.
    pub(crate) fn delete_as(&mut self, key: &ObjectRef, propagation: Propagation) -> bool {
        let Some(object) = self.objects.get(key).cloned() else { return false };
        let dependents: Vec<ObjectRef> = self.owned_by(object.uid()).cloned().collect();
        match propagation {
            Propagation::Background => self.delete(key),
            Propagation::Orphan => {
                for dependent in dependents {
                    self.orphan(&dependent, object.uid());
                }
                self.delete(key);
            }
            Propagation::Foreground if dependents.is_empty() => self.delete(key),
            Propagation::Foreground => {
                let mut marked = object;
                let finalizers = marked.metadata_mut().finalizers.get_or_insert_default();
                if !finalizers.iter().any(|f| f == FOREGROUND) {
                    finalizers.push(FOREGROUND.to_owned());
                }
                self.put(marked);
                self.delete(key);
                for dependent in dependents {
                    self.delete(&dependent);
                }
            }
        }
        true
    }

    fn orphan(&mut self, key: &ObjectRef, owner: &str) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        let meta = object.metadata_mut();
        if let Some(owners) = &mut meta.owner_references {
            owners.retain(|o| o.uid != owner);
        }
        if meta.owner_references.as_ref().is_some_and(Vec::is_empty) {
            meta.owner_references = None;
        }
        self.put(object);
    }

    /// After an object went: owners that waited for it with nothing else to wait for may go too.
    pub(super) fn release_owners(&mut self, gone: &Object) {
        let owners: Vec<ObjectRef> = Self::owners(gone)
            .filter_map(|owner| {
                let kinds = slicegate_api::Kind::ALL.iter().copied();
                let kind = kinds.into_iter().find(|kind| kind.as_str() == owner.kind)?;
                let namespace = if kind.is_namespaced() { gone.namespace() } else { "" };
                let key = ObjectRef::new(kind, namespace, owner.name.as_str());
                self.objects.get(&key).is_some_and(|o| o.uid() == owner.uid).then_some(key)
            })
            .collect();
        for key in owners {
            let Some(owner) = self.objects.get(&key).cloned() else { continue };
            let meta = owner.metadata();
            let waits = meta.deletion_timestamp.is_some()
                && meta.finalizers.iter().flatten().any(|f| f == FOREGROUND)
                && self.owned_by(owner.uid()).next().is_none();
            if waits {
                let mut next = owner.clone();
                if let Some(finalizers) = &mut next.metadata_mut().finalizers {
                    finalizers.retain(|f| f != FOREGROUND);
                }
                self.replace_or_finish(&key, &owner, next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::owner_reference;
    use serde_json::json;
    use slicegate_api::Kind;

    /// A Job that owns a ConfigMap with a finalizer.
    fn family() -> (Store, ObjectRef, ObjectRef) {
        let mut store = Store::new(true);
        let named = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
        let job = store.create(Kind::Job.read(named("a")).unwrap()).unwrap();
        let mut child = Kind::ConfigMap.read(named("b")).unwrap();
        child.metadata_mut().owner_references = Some(vec![owner_reference(&job)]);
        child.metadata_mut().finalizers = Some(vec!["f".to_owned()]);
        let child = store.create(child).unwrap().reference();
        (store, job.reference(), child)
    }

    fn let_go(store: &mut Store, key: &ObjectRef) {
        store.patch(key, false, &json!({"metadata": {"finalizers": null}})).unwrap();
    }

    #[test]
    fn in_the_background_the_owner_goes_first() {
        let (mut store, job, child) = family();
        assert!(store.delete_as(&job, Propagation::Background));
        assert!(store.get(&job).is_none() && store.get(&child).is_some());
        let_go(&mut store, &child);
        assert!(store.get(&child).is_none());
        assert!(!store.delete_as(&job, Propagation::Background), "it is gone");
    }

    #[test]
    fn in_the_foreground_the_owner_waits() {
        let (mut store, job, child) = family();
        store.delete_as(&job, Propagation::Foreground);
        assert!(store.get(&job).unwrap().metadata().deletion_timestamp.is_some());
        let_go(&mut store, &child);
        assert!(store.get(&job).is_none() && store.get(&child).is_none());
    }

    #[test]
    fn orphans_stay() {
        let (mut store, job, child) = family();
        store.delete_as(&job, Propagation::Orphan);
        assert!(store.get(&job).is_none());
        assert_eq!(store.get(&child).unwrap().metadata().owner_references, None);
    }
}
