//! The API server of a run: what is true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_api::{Job, Kind, Object, ObjectRef, kueue};
use slicegate_controller::{Change, Operation, Write, WriteError};
use slicegate_workload::Timestamp;

use super::rules;
use crate::defaults;
use crate::store::Store;

/// How much of each flavor each ClusterQueue may use: nominal quota and borrowing limit.
pub(super) type Capacity = BTreeMap<(String, String), (i64, Option<i64>)>;

/// The objects and everything that ever happened to them.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) store: Store,
    /// Every change, in order.
    pub(super) log: Vec<Change>,
    pub(super) now: Timestamp,
    /// Workloads that were admitted by a controller that had lost the lease: the next one could not know of that. While they
    /// hold quota there may be too little for others.
    late: BTreeSet<ObjectRef>,
    /// What is wrong, once something is.
    pub(super) wrong: Option<String>,
}

impl Server {
    pub(super) fn new(now: Timestamp) -> Self {
        let mut store = Store::new(false);
        store.set_now(now);
        Self { store, log: Vec::new(), now, late: BTreeSet::new(), wrong: None }
    }

    pub(super) fn advance(&mut self, micros: i64) {
        self.now = self.now.plus_micros(micros);
        self.store.set_now(self.now);
    }

    pub(super) fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// The objects of one kind, by name.
    pub(super) fn all(&self, kind: Kind) -> Vec<Object> {
        self.store.of_kind(kind).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn workloads(&self) -> impl Iterator<Item = &Arc<kueue::Workload>> {
        self.store.of_kind(Kind::Workload).filter_map(|(_, o)| match o {
            Object::Workload(w) => Some(w),
            _ => None,
        })
    }

    /// Notes what changed, and looks at it.
    fn record(&mut self) {
        for change in self.store.take_changes() {
            if let Change::Applied(Object::Workload(workload)) = &change
                && let Err(why) = rules::workload(workload)
            {
                self.complain(|| why);
            }
            self.log.push(change);
        }
    }

    // ----- what users, admins and other controllers do -----

    /// Makes an object, with defaults; nothing happens if it is there.
    pub(super) fn create(&mut self, object: Object) {
        let mut object = defaults::complete(object);
        let uid = self.store.next_uid(&object.reference());
        if let Object::Job(job) = &mut object {
            crate::workloads::job::complete_job(Arc::make_mut(job), &uid);
        }
        // Somebody else made it.
        let _ = self.store.create(object);
        self.record();
    }

    /// Changes an object; its generation follows from what changed.
    pub(super) fn put(&mut self, object: Object) {
        self.store.put(object);
        self.record();
    }

    pub(super) fn delete(&mut self, object: &ObjectRef) {
        self.store.delete(object);
        self.record();
    }

    /// An object whose owner went before it came is collected.
    fn collect(&mut self, write: &Write) {
        let Operation::Create(object) = &write.operation else { return };
        let Some(owner) = crate::store::controller_of(object) else { return };
        let there = self.store.iter().any(|(_, o)| o.uid() == owner.uid);
        if !there {
            self.store.delete(&object.reference());
        }
    }

    // ----- what the controller does -----

    /// Performs a write of a controller that has known of these quotas since it decided that, one after the other. What then
    /// holds quota together was decided one by one in that time or before, the last of it by quotas that had room for all.
    /// A controller is `late` that has lost the lease.
    pub(super) fn write(
        &mut self,
        write: &Write,
        known: &[Capacity],
        late: bool,
    ) -> Result<Option<Object>, WriteError> {
        let reference = write.operation.object();
        let before = self.store.get(&reference).cloned();
        if let (Some(old), Operation::Update(new)) = (&before, &write.operation)
            && old.metadata().resource_version == new.metadata().resource_version
            && let Err(why) = webhook(old, new)
        {
            self.complain(|| format!("{reference}: the API server refuses it: {why}"));
            return Err(WriteError::Invalid { object: reference, why });
        }
        let result = self.store.write(write.operation.clone());
        if result.is_ok() {
            self.collect(write);
        }
        if let (Ok(Some(after)), Some(before)) = (&result, &before) {
            if after == before && !matches!(write.operation, Operation::Delete { .. }) {
                self.complain(|| format!("{reference}: a write that changes nothing"));
            }
            if let Err(why) = rules::transition(before, after) {
                self.complain(|| why);
            }
        }
        self.record();
        let admits = |o: Option<&Object>| matches!(o, Some(Object::Workload(w)) if rules::counts(w));
        if let Ok(Some(after)) = &result
            && admits(Some(after))
            && !admits(before.as_ref())
        {
            if let Err(why) = rules::one_workload(self, after) {
                self.complain(|| why);
            }
            if late {
                self.late.insert(reference.clone());
            }
            let store = &self.store;
            self.late.retain(|late| admits(store.get(late)));
            if self.late.is_empty()
                && let Err(why) = rules::within_any(self, after, known)
            {
                self.complain(|| format!("{reference} is admitted: {why}"));
            }
        }
        result
    }
}

/// What the API server and Kueue's webhooks refuse.
fn webhook(old: &Object, new: &Object) -> Result<(), String> {
    match (old, new) {
        (Object::Job(old), Object::Job(new)) => job(old, new),
        (Object::Workload(old), Object::Workload(new)) => {
            let reserved = rules::is_true(&old.status.conditions, "QuotaReserved");
            let fixed = |w: &kueue::Workload| {
                w.spec.pod_sets.iter().map(|p| (p.name.clone(), p.template.clone())).collect::<Vec<_>>()
            };
            if reserved && fixed(old) != fixed(new) {
                return Err("spec.podSets: field is immutable".to_owned());
            }
            Ok(())
        }
        _ => crate::store::immutable::changed(old, new).map_or(Ok(()), |field| Err(format!("{field} is immutable"))),
    }
}

/// A pod template of a Job changes only while it is suspended and was never started.
fn job(old: &Job, new: &Job) -> Result<(), String> {
    let (Some(a), Some(b)) = (&old.spec, &new.spec) else { return Ok(()) };
    let started = old.status.as_ref().is_some_and(|s| s.start_time.is_some());
    if a.template != b.template && (a.suspend != Some(true) || started) {
        return Err("spec.template: field is immutable".to_owned());
    }
    Ok(())
}
