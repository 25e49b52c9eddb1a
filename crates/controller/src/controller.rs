//! The controller: what it knows, and the order in which it goes through what changed. What is looked at again after a change is in
//! `marks`, what the engine is told in `feed`, what is done about each object in `reconcile`, and how that is written in `writes`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_admission::{ClusterQueueReport, Engine, LocalQueueReport, PendingWorkload};
use slicegate_api::defaulting::JobPolicy;
use slicegate_api::{Kind, Object, ObjectRef, kueue};
use slicegate_workload::{ClusterQueueSpec, Key, LocalQueueSpec, Timestamp, Workload};

use crate::config::Configuration;
use crate::feed::Fed;
use crate::io::{Change, Effects, EventRecord, EventType};
use crate::jobs;
use crate::marks::CONFIGURATION;
use crate::metrics::Attempts;
use crate::node_pools::NodePools;
use crate::pods::{self, PodIndex};
use crate::store::{Applied, Store, key_of, owner_ref};
use crate::timers::Timers;
use crate::writes::{Plan, Writes};

/// More cycles than this in a row mean that something is wrong; the rest waits for the next call.
const MOST_CYCLES: u32 = 100_000;

/// Kinds that nothing here depends on.
const IGNORED: [Kind; 1] = [Kind::Secret];

/// Queues whose status may have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stale {
    /// All of them.
    pub(crate) all: bool,
    /// These ClusterQueues.
    pub(crate) cluster_queues: BTreeSet<Box<str>>,
    /// These LocalQueues.
    pub(crate) local_queues: BTreeSet<Key>,
}

/// Queues whose figures were written a moment ago and have changed since.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBack {
    pub(crate) queues: Stale,
    /// When to look at them.
    pub(crate) until: Option<Timestamp>,
    /// When the status of a queue was last written.
    pub(crate) written: BTreeMap<ObjectRef, Timestamp>,
}

impl HeldBack {
    /// Has queues looked at then, or before.
    pub(crate) fn look_at(&mut self, until: Timestamp) {
        self.until = Some(self.until.map_or(until, |before| before.min(until)));
    }
}

/// Queues as they were when their status was last found to be right, and what the engine said of them then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Synced {
    pub(crate) cluster_queues: BTreeMap<Box<str>, (Arc<kueue::ClusterQueue>, ClusterQueueReport)>,
    pub(crate) local_queues: BTreeMap<Key, (Arc<kueue::LocalQueue>, LocalQueueReport)>,
}

/// Kueue's controllers as one value: objects and write results go in, writes, Events and notes come out.
///
/// Before the first [`Controller::reconcile`] every object that exists must have been observed: an owner that is not known is
/// taken to be gone.
///
/// A clone goes on from the same state by itself, so that several futures can be tried.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(crate) config: Configuration,
    /// Which jobs are managed.
    pub(crate) policy: JobPolicy,
    pub(crate) engine: Engine,
    pub(crate) store: Store,
    pub(crate) fed: Fed,
    pub(crate) node_pools: NodePools,
    /// The pods of workloads.
    pub(crate) pods: PodIndex,
    /// Objects that changed since they were last looked at.
    pub(crate) dirty: BTreeSet<ObjectRef>,
    /// When objects are to be looked at again.
    pub(crate) timers: Timers,
    pub(crate) plans: BTreeMap<Key, Plan>,
    /// Writes that were asked for and are not over.
    pub(crate) writes: Writes,
    pub(crate) out: Effects,
    /// Whether the engine learnt something since its last cycle.
    pub(crate) touched: bool,
    /// Queues whose status may have changed.
    pub(crate) stale: Stale,
    /// Queues whose status is not written yet.
    pub(crate) held_back: HeldBack,
    /// Whether the finalizers of what others use are to be looked at.
    pub(crate) finalizers_due: bool,
    /// Queues whose status says what the engine says.
    pub(crate) synced: Synced,
    /// What a workload was last said to wait for.
    pub(crate) told: BTreeMap<Key, String>,
    /// Workloads that wait and do not say yet what for.
    pub(crate) untold: BTreeSet<Key>,
    /// Those of them that were not set aside yet and say nothing at all.
    pub(crate) silent: BTreeSet<Key>,
    /// Whether a cycle may have set workloads aside since.
    pub(crate) parked: bool,
    /// The check messages that were last recorded as an Event.
    pub(crate) told_checks: BTreeMap<Key, String>,
    /// Workloads whose end was recorded as an Event.
    pub(crate) told_finished: BTreeSet<Key>,
    /// What is wrong with objects, by reason, as it was last told.
    pub(crate) complaints: BTreeMap<ObjectRef, BTreeMap<&'static str, String>>,
    /// Names of Workloads that jobs cannot have because other Workloads have them.
    pub(crate) taken_names: BTreeMap<ObjectRef, ObjectRef>,
    /// Objects that could not be made, and why.
    pub(crate) create_errors: BTreeMap<ObjectRef, String>,
    /// Workloads whose admission the API server refused: they do not compete until it is tried again, so that others can have
    /// what they would have held.
    pub(crate) set_aside: BTreeSet<Key>,
    /// Workloads whose job was never seen, and since when that is known.
    pub(crate) unseen_jobs: BTreeMap<Key, Timestamp>,
    /// Whether everything that existed at the start was looked at.
    pub(crate) begun: bool,
    /// What came of scheduling cycles.
    pub(crate) attempts: Attempts,
}

impl Controller {
    /// A controller that knows nothing yet.
    pub fn new(config: Configuration) -> Self {
        Self {
            engine: Engine::new(config.engine.clone()),
            policy: config.job_policy(),
            config,
            store: Store::default(),
            fed: Fed::default(),
            node_pools: NodePools::default(),
            pods: PodIndex::default(),
            dirty: BTreeSet::new(),
            timers: Timers::default(),
            plans: BTreeMap::new(),
            writes: Writes::default(),
            out: Effects::default(),
            touched: false,
            stale: Stale::default(),
            held_back: HeldBack::default(),
            finalizers_due: false,
            synced: Synced::default(),
            told: BTreeMap::new(),
            untold: BTreeSet::new(),
            silent: BTreeSet::new(),
            parked: false,
            told_checks: BTreeMap::new(),
            told_finished: BTreeSet::new(),
            complaints: BTreeMap::new(),
            taken_names: BTreeMap::new(),
            create_errors: BTreeMap::new(),
            set_aside: BTreeSet::new(),
            unseen_jobs: BTreeMap::new(),
            begun: false,
            attempts: Attempts::default(),
        }
    }

    /// Takes in that an object is there, changed or is gone. Late and repeated reports do no harm, nor do those of Secrets, which
    /// nothing depends on, and of ConfigMaps that hold no node pools. Pods and nodes cost next to nothing as long as no gate holds
    /// the pods and no flavor has a topology or asks for whole slices.
    pub fn observe(&mut self, now: Timestamp, change: Change) {
        match change {
            Change::Applied(Object::ConfigMap(map)) => self.observe_config_map(now, &map, false),
            Change::Deleted(Object::ConfigMap(map)) => self.observe_config_map(now, &map, true),
            Change::Applied(object) | Change::Deleted(object) if IGNORED.contains(&object.kind()) => {}
            Change::Applied(object) => self.apply(now, &object),
            Change::Deleted(object) => self.remove(now, &object),
        }
    }

    fn remove(&mut self, now: Timestamp, object: &Object) {
        if let Applied::Changed(old) = self.store.remove(object) {
            self.note_gone(object);
            self.finalizers_due |= CONFIGURATION.contains(&object.kind());
            self.complaints.remove(&object.reference());
            self.mark(object, old.as_ref());
            self.fail_gone(now, &object.reference());
        }
    }

    pub(crate) fn apply(&mut self, now: Timestamp, object: &Object) {
        // A pod that has ended never starts again, and there may be many of those.
        if let Object::Pod(pod) = object
            && pods::is_over(pod)
        {
            self.remove(now, object);
            return self.resolve_seen(now, object);
        }
        if let Applied::Changed(old) = self.store.apply(object) {
            self.mark(object, old.as_ref());
            self.resolve_seen(now, object);
        }
    }

    /// Does what follows from everything that was taken in since the last call, and tells when to call again if nothing
    /// happens before.
    pub fn reconcile(&mut self, now: Timestamp) -> Effects {
        for reference in self.store.release_expired(now) {
            self.finalizers_due |= CONFIGURATION.contains(&reference.kind);
            // Whoever wanted to write it looks again.
            if reference.kind == Kind::Pod {
                self.mark_pod(reference, None);
            } else {
                if let Some(object) = self.store.get(&reference).cloned() {
                    self.mark(&object, None);
                }
                self.dirty.insert(reference);
            }
        }
        while let Some(reference) = self.timers.pop_due(now) {
            self.dirty.insert(reference);
        }
        self.repeat_unanswered(now);
        self.drop_outdated_plans(now);
        // Feeding one object may mark others; each is fed once.
        let mut work = BTreeSet::new();
        while let Some(reference) = self.dirty.pop_first() {
            if work.insert(reference.clone()) {
                self.feed(now, &reference);
            }
        }
        for reference in &work {
            match reference.kind {
                Kind::AdmissionCheck => self.reconcile_check(now, &reference.name),
                kind if jobs::KINDS.contains(&kind) => self.reconcile_job(now, reference),
                _ => {}
            }
        }
        for reference in work.iter().filter(|r| r.kind == Kind::Workload) {
            let key = key_of(reference);
            self.reconcile_workload(now, &key);
            self.open_gates(&key);
        }
        for reference in &work {
            self.mark_queue(reference);
        }
        self.run_cycles(now, MOST_CYCLES);
        self.tell_parked(now);
        self.sync_queues(now);
        if self.finalizers_due || self.fed.cluster_queues.values().any(|q| q.deleting) {
            self.finalizers_due = self.sync_finalizers();
        }
        self.write_plans(now);
        self.begun = true;
        let again = self.writes.next_try();
        let held = self.held_back.until;
        let wakes = [self.engine.next_wake(), self.store.next_release(), self.timers.next(), again, held];
        let mut effects = std::mem::take(&mut self.out);
        effects.wake_at = wakes.into_iter().flatten().min();
        effects
    }

    /// Lets an object be looked at again at a time, unless that is to happen before.
    pub(crate) fn wake(&mut self, reference: &ObjectRef, at: Timestamp) {
        self.timers.set(reference, at);
    }

    // ----- questions -----------------------------------------------------------------------------------------------

    /// The engine, for questions about queues.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, for questions that try something out. It stays as it is.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Scheduling cycles so far: those that reserved quota for something, and those that did not.
    pub fn attempts(&self) -> (u64, u64) {
        (self.attempts.success, self.attempts.inadmissible)
    }

    /// The configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.config
    }

    /// An object as it was last seen.
    pub fn object(&self, reference: &ObjectRef) -> Option<&Object> {
        self.store.get(reference)
    }

    /// A workload as it was last seen; of one that is finished without its pod sets.
    pub fn workload(&self, key: &Key) -> Option<&Workload> {
        self.fed.workloads.get(key).map(Arc::as_ref)
    }

    /// All workloads, by namespace and name; those that are finished without their pod sets.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.fed.workloads.values().map(Arc::as_ref)
    }

    /// The workload of a job that counts: one that is not finished before one that is, and the newest of those.
    pub fn workload_of(&self, job: &ObjectRef) -> Option<&Workload> {
        let uid = self.store.get(job)?.uid();
        self.store
            .owned_by(uid, Kind::Workload)
            .iter()
            .filter_map(|r| self.workload(&key_of(r)))
            .max_by_key(|w| (!w.is_finished(), w.created, w.key.clone()))
    }

    /// The workloads of a job that have not ended; all of them if all have. An elastic job has several while it changes its size.
    pub(crate) fn current_workloads(&self, job: &ObjectRef) -> impl Iterator<Item = &Workload> {
        let owned = self.store.get(job).map(|object| self.store.owned_by(object.uid(), Kind::Workload));
        let all: Vec<&Workload> = owned.into_iter().flatten().filter_map(|r| self.workload(&key_of(&r))).collect();
        let over = all.iter().all(|w| w.is_finished());
        all.into_iter().filter(move |w| over || !w.is_finished())
    }

    /// The job behind a workload, if its kind is known.
    pub fn job_of(&self, workload: &Key) -> Option<ObjectRef> {
        owner_ref(&self.store.workload(workload)?.metadata)
    }

    /// The workloads that wait in a ClusterQueue, in the order in which they are served.
    pub fn pending(&self, cluster_queue: &str) -> Vec<PendingWorkload> {
        self.engine.pending(cluster_queue)
    }

    /// A ClusterQueue as the engine knows it.
    pub(crate) fn cluster_queue_spec(&self, name: &str) -> Option<&Arc<ClusterQueueSpec>> {
        self.fed.cluster_queues.get(name)
    }

    /// A LocalQueue as the engine knows it.
    pub(crate) fn local_queue_spec(&self, namespace: &str, name: &str) -> Option<&LocalQueueSpec> {
        self.fed.local_queues.get(&Key::new(namespace, name))
    }
}

/// An Event to record.
pub(crate) fn event(
    object: &ObjectRef,
    kind: EventType,
    reason: impl Into<Box<str>>,
    note: impl Into<Box<str>>,
) -> EventRecord {
    EventRecord { object: object.clone(), kind, reason: reason.into(), note: note.into() }
}
