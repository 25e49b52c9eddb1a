//! The controller: what it knows, and how knowledge becomes writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_admission::{ClusterQueueReport, Engine, LocalQueueReport, PendingWorkload, Written};
use slicegate_api::defaulting::JobPolicy;
use slicegate_api::{Kind, Object, ObjectRef, Pod, convert, kueue};
use slicegate_workload::{
    ClusterQueueSpec, Condition, ConditionType, Key, LocalQueueSpec, Timestamp, Workload, WorkloadStatus,
};

use crate::config::Configuration;
use crate::feed::Fed;
use crate::io::{
    Change, Effects, EventRecord, EventType, Note, Operation, Write, WriteError, WriteId, WriteOutcome, field_manager,
};
use crate::jobs;
use crate::merge;
use crate::metrics::Attempts;
use crate::node_pools::NodePools;
use crate::nodes;
use crate::pods::{self, PodIndex};
use crate::store::{Applied, Store, key_of, owner_ref, workload_ref};

/// The first wait after a failed write, in microseconds.
const RETRY_BASE_MICROS: i64 = 500_000;
/// The longest.
const RETRY_MAX_MICROS: i64 = 60_000_000;
/// More cycles than this in a row mean that something is wrong; the rest waits for the next call.
const MOST_CYCLES: u32 = 100_000;

/// Kinds whose statuses and finalizers follow from everything else.
const CONFIGURATION: [Kind; 6] =
    [Kind::AdmissionCheck, Kind::ClusterQueue, Kind::Cohort, Kind::LocalQueue, Kind::ResourceFlavor, Kind::Topology];
/// Kinds that nothing here depends on.
const IGNORED: [Kind; 1] = [Kind::Secret];

/// What the engine must be told about a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// The write of an admission.
    Admission,
    /// The write of an eviction.
    Eviction,
    /// The write of why a workload waits.
    Decline,
}

/// What follows from a write once it is known how it fared.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Then {
    /// Events to record if it succeeded.
    pub(crate) events: Vec<EventRecord>,
    /// Notes to tell if it succeeded.
    pub(crate) notes: Vec<Note>,
    /// What the engine is told in any case.
    pub(crate) reports: Vec<Report>,
    /// Workloads that end if it succeeded, with the condition that says so and the Events to record then.
    pub(crate) ends: Vec<(Key, Condition, Vec<EventRecord>)>,
    /// Reason and beginning of an Event to record if it is refused.
    pub(crate) on_failure: Option<(ObjectRef, &'static str, String)>,
}

impl Then {
    /// Records an Event.
    pub(crate) fn event(event: EventRecord) -> Self {
        Self { events: vec![event], ..Self::default() }
    }
}

/// Changes to the status of a workload that are not yet written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    /// The status they started from.
    pub(crate) base: WorkloadStatus,
    /// The status they lead to.
    pub(crate) status: WorkloadStatus,
    /// Who makes them.
    pub(crate) manager: &'static str,
    /// What follows.
    pub(crate) then: Then,
}

/// A write on its way.
#[derive(Clone, PartialEq, Debug)]
struct InFlight {
    object: ObjectRef,
    manager: &'static str,
    /// What was written; `None` for a deletion.
    written: Option<(Object, Part)>,
    /// What was written, or the object that is deleted as it was known.
    about: Option<Object>,
    then: Then,
    /// How often no answer came. What was decided stands until it is known whether the write happened.
    unanswered: u32,
    /// The object as it was when it was seen to go, before the answer came: whoever wants another waits for the answer.
    gone: Option<Object>,
}

/// The part of an object that a write sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    All,
    Status,
}

/// When objects are to be looked at again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    at: BTreeMap<ObjectRef, Timestamp>,
    order: BTreeSet<(Timestamp, ObjectRef)>,
}

impl Timers {
    /// Sets the timer of an object, unless it rings before.
    fn set(&mut self, reference: &ObjectRef, at: Timestamp) {
        if let Some(&old) = self.at.get(reference) {
            if old <= at {
                return;
            }
            self.order.remove(&(old, reference.clone()));
        }
        self.at.insert(reference.clone(), at);
        self.order.insert((at, reference.clone()));
    }

    /// Stops the timer of an object.
    pub(crate) fn clear(&mut self, reference: &ObjectRef) {
        if let Some(at) = self.at.remove(reference) {
            self.order.remove(&(at, reference.clone()));
        }
    }

    fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<ObjectRef> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        let (_, reference) = self.order.pop_first()?;
        self.at.remove(&reference);
        Some(reference)
    }
}

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
    in_flight: BTreeMap<WriteId, InFlight>,
    /// Writes without an answer, and when they are to be tried again.
    unanswered: BTreeSet<(Timestamp, WriteId)>,
    last_write: u64,
    pub(crate) out: Effects,
    /// Whether the engine learnt something since its last cycle.
    pub(crate) touched: bool,
    /// Queues whose status may have changed.
    pub(crate) stale: Stale,
    /// Queues whose status is not written yet.
    pub(crate) held_back: HeldBack,
    /// Whether the finalizers of what others use are to be looked at.
    finalizers_due: bool,
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
            in_flight: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            last_write: 0,
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
            let outstanding = self.store.outstanding(&object.reference());
            if let Some(flight) = outstanding.and_then(|id| self.in_flight.get_mut(&id)) {
                flight.gone = Some(object.clone());
            }
            self.finalizers_due |= CONFIGURATION.contains(&object.kind());
            self.complaints.remove(&object.reference());
            self.mark(object, old.as_ref());
            self.fail_gone(now, &object.reference());
        }
    }

    fn apply(&mut self, now: Timestamp, object: &Object) {
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

    /// Whether a Workload of the job with this uid is being made. It may be there already, under another name than the next one
    /// will have.
    pub(crate) fn makes_workload_of(&self, job: &str) -> bool {
        let new = |object: &Object| object.kind() == Kind::Workload && object.metadata().uid.is_none();
        let of_job = |object: &Object| object.metadata().owner_references.iter().flatten().any(|o| o.uid == job);
        self.in_flight.values().any(|f| f.written.as_ref().is_some_and(|(object, _)| new(object) && of_job(object)))
    }

    /// A write whose result is seen has happened, whatever its outcome will be said to be.
    fn resolve_seen(&mut self, now: Timestamp, object: &Object) {
        let reference = object.reference();
        let Some(id) = self.store.outstanding(&reference) else { return };
        let Some(flight) = self.in_flight.get(&id) else { return };
        let seen = match &flight.written {
            Some((written, Part::Status)) => same_status(written, object),
            Some((written, Part::All)) => same_but_status(written, object),
            None => false,
        };
        if seen {
            self.complete(now, WriteOutcome { id, result: Ok(Some(object.clone())) });
        } else if flight.unanswered > 0 {
            // Whether it happened or not, it will not any more: the object has moved on.
            self.complete(now, WriteOutcome { id, result: Err(WriteError::Conflict(reference)) });
        }
    }

    /// Whether it is not known yet if a write happened whose answer says that it did not: an earlier try of it went without an
    /// answer, and the object has not been seen since. If so it is tried again later.
    fn waits_for_answer(&mut self, now: Timestamp, id: WriteId, flight: &InFlight, error: &WriteError) -> bool {
        // Why a workload waits is found out anew.
        if flight.then.reports.iter().all(|report| *report == Report::Decline) {
            return false;
        }
        let unknown = match error {
            WriteError::Unavailable { .. } => true,
            // A refusal of this try says nothing about the one before.
            WriteError::Conflict(reference) | WriteError::Invalid { object: reference, .. }
                if flight.unanswered > 0 =>
            {
                let base = flight.written.as_ref().and_then(|(o, _)| o.metadata().resource_version.as_ref());
                self.store.get(reference).is_some_and(|o| o.metadata().resource_version.as_ref() == base)
            }
            _ => false,
        };
        if unknown {
            self.unanswered.insert((now.plus_micros(backoff(flight.unanswered)), id));
        }
        unknown
    }

    /// Takes back what was decided of a workload while a write of it was on its way: the object has moved on since, and it is
    /// decided anew.
    fn drop_outdated_plans(&mut self, now: Timestamp) {
        let free = |key: &&Key| !self.store.is_locked(&workload_ref(key));
        let outdated: Vec<Key> = self.plans.keys().filter(free).cloned().collect();
        for key in outdated {
            let Some(plan) = self.plans.remove(&key) else { continue };
            self.report(now, &key, &plan.then.reports, Written::Failed);
            self.dirty.insert(workload_ref(&key));
            self.dirty.extend(self.job_of(&key));
        }
    }

    /// Tries writes again that went without an answer.
    fn repeat_unanswered(&mut self, now: Timestamp) {
        while let Some(&(at, id)) = self.unanswered.first()
            && at <= now
        {
            self.unanswered.pop_first();
            let Some(flight) = self.in_flight.get(&id) else { continue };
            let operation = match &flight.written {
                Some((object, Part::Status)) => Operation::UpdateStatus(object.clone()),
                Some((object, Part::All)) => Operation::Update(object.clone()),
                None => continue,
            };
            self.out.writes.push(Write { id, manager: flight.manager, operation });
        }
    }

    /// Writes of an object that is gone will not succeed any more.
    fn fail_gone(&mut self, now: Timestamp, reference: &ObjectRef) {
        if reference.kind == Kind::Workload
            && let Some(plan) = self.plans.remove(&key_of(reference))
        {
            self.report(now, &key_of(reference), &plan.then.reports, Written::NotFound);
        }
        if let Some(id) = self.store.outstanding(reference)
            && self.in_flight.get(&id).is_some_and(|w| w.unanswered > 0)
        {
            self.complete(now, WriteOutcome { id, result: Err(WriteError::NotFound(reference.clone())) });
        }
    }

    /// Takes in how a write fared. The outcome of a write that is not (any more) on its way does no harm.
    pub fn complete(&mut self, now: Timestamp, outcome: WriteOutcome) {
        let Some(mut flight) = self.in_flight.remove(&outcome.id) else { return };
        if let Err(error) = &outcome.result
            && self.waits_for_answer(now, outcome.id, &flight, error)
        {
            flight.unanswered = flight.unanswered.saturating_add(1);
            self.in_flight.insert(outcome.id, flight);
            return;
        }
        let reference = flight.object;
        let key = key_of(&reference);
        let part = flight.written.as_ref().map(|(_, part)| *part);
        if outcome.result.is_err() || !self.mark_queue(&reference) {
            self.dirty.insert(reference.clone());
        }
        match outcome.result {
            Ok(now_is) => {
                self.store.unlock(&reference, outcome.id, None);
                self.create_errors.remove(&reference);
                self.settle_refusal(&reference, part);
                self.report(now, &key, &flight.then.reports, Written::Ok);
                self.end(flight.then.ends);
                self.out.events.extend(flight.then.events);
                self.out.notes.extend(flight.then.notes);
                if let Some(object) = now_is {
                    // Seen before the answer came: whoever waited for the answer looks again.
                    if self.store.get(&reference) == Some(&object)
                        && !matches!(reference.kind, Kind::ClusterQueue | Kind::LocalQueue)
                    {
                        self.mark(&object, None);
                    }
                    self.apply(now, &object);
                } else {
                    // It is remembered as gone, so that a late report does not bring it back.
                    let known = self.store.get(&reference).filter(|known| is_about(flight.about.as_ref(), known));
                    let known = known.cloned();
                    if let Some(old) = &known {
                        self.store.remove(old);
                    }
                    // Seen to go before the answer came: whoever waited for the answer looks again.
                    if let Some(gone) = known.or(flight.about) {
                        self.mark(&gone, None);
                    }
                }
            }
            Err(error) => {
                let written = if let WriteError::NotFound(_) = error { Written::NotFound } else { Written::Failed };
                self.report(now, &key, &flight.then.reports, written);
                match (flight.then.on_failure, &error) {
                    (Some((object, reason, text)), WriteError::Invalid { why, .. }) => {
                        let text = format!("{text}: {why}");
                        if self.create_errors.get(&reference) != Some(&text) {
                            self.out.events.push(event(&object, EventType::Warning, reason, text.clone()));
                        }
                        self.create_errors.insert(reference.clone(), text);
                        self.dirty.insert(object);
                    }
                    // Nobody waits for a status that decides nothing.
                    (None, WriteError::Invalid { why, .. })
                        if part != Some(Part::Status) || !flight.then.reports.is_empty() =>
                    {
                        self.complain_of_refusal(&reference, part, why);
                    }
                    _ => {}
                }
                if matches!(error, WriteError::Invalid { .. }) && flight.then.reports.contains(&Report::Admission) {
                    self.set_aside(now, &key);
                }
                let until = now.plus_micros(backoff(self.store.failures(&reference)));
                // Whoever wanted the object looks again when it may be written again.
                if let Some(owner) = flight.about.as_ref().and_then(|object| owner_ref(object.metadata())) {
                    self.wake(&owner, until);
                }
                // Another object of the name may have been seen since.
                let known = self.store.get(&reference);
                let gone = known.is_some_and(|known| is_about(flight.about.as_ref(), known));
                match error {
                    WriteError::NotFound(_) => {
                        let failed_until = flight.written.is_some().then_some(until);
                        self.store.unlock(&reference, outcome.id, failed_until);
                        if gone {
                            self.forget(&reference);
                        }
                    }
                    // Somebody else was faster; what they wrote is known or will be in a moment.
                    WriteError::Conflict(_) => {
                        let base = flight.written.as_ref().and_then(|(o, _)| o.metadata().resource_version.as_deref());
                        self.store.unlock_late(&reference, outcome.id, base, until);
                    }
                    WriteError::AlreadyExists(_)
                    | WriteError::NamespaceTerminating(_)
                    | WriteError::Invalid { .. }
                    | WriteError::Unavailable { .. } => {
                        self.store.unlock(&reference, outcome.id, Some(until));
                    }
                }
                if let Some(object) = self.store.get(&reference).cloned() {
                    self.mark(&object, None);
                }
                if let Some(plan) = self.plans.remove(&key).filter(|_| reference.kind == Kind::Workload) {
                    self.report(now, &key, &plan.then.reports, written);
                }
            }
        }
        if let Some(gone) = flight.gone {
            self.mark(&gone, None);
        }
    }

    /// Takes a workload without quota out of its queue until it may be written again.
    fn set_aside(&mut self, now: Timestamp, key: &Key) {
        if self.fed.workloads.get(key).is_some_and(|workload| !workload.has_quota_reservation()) {
            self.engine.remove_workload(now, key);
            self.mark_stale(key);
            self.set_aside.insert(key.clone());
        }
    }

    fn forget(&mut self, reference: &ObjectRef) {
        if let Applied::Changed(Some(old)) = self.store.forget(reference) {
            self.mark(&old, None);
        }
    }

    /// Tells the engine how a write of a workload fared.
    pub(crate) fn report(&mut self, now: Timestamp, key: &Key, reports: &[Report], written: Written) {
        if !reports.is_empty() {
            self.mark_stale(key);
        }
        for report in reports {
            // That a workload was told why it waits changes nothing.
            self.touched |= *report != Report::Decline || written != Written::Ok;
            match report {
                Report::Decline => self.engine.decline_written(now, key, written),
                Report::Admission => self.engine.admission_written(now, key, written),
                Report::Eviction => self.engine.eviction_written(now, key, written),
            }
        }
    }

    /// Marks the queues of a workload: their status may have changed.
    pub(crate) fn mark_stale(&mut self, workload: &Key) {
        let Some(known) = self.fed.workloads.get(workload) else { return };
        let queue = Key::new(workload.namespace.clone(), known.spec.queue_name.clone());
        if let Some(leads) = self.fed.local_queues.get(&queue) {
            self.stale.cluster_queues.insert(leads.cluster_queue.clone());
        }
        if let Some(admission) = &known.status.admission {
            self.stale.cluster_queues.insert(admission.cluster_queue.clone());
        }
        self.stale.local_queues.insert(queue);
    }

    /// Marks a queue whose status is to be looked at. Returns whether the object is a queue.
    fn mark_queue(&mut self, reference: &ObjectRef) -> bool {
        match reference.kind {
            Kind::ClusterQueue => drop(self.stale.cluster_queues.insert(reference.name.clone())),
            Kind::LocalQueue => drop(self.stale.local_queues.insert(key_of(reference))),
            _ => return false,
        }
        true
    }

    /// Marks the workloads of a pod that changed, if they may do something about it, and the pod itself if it counts against
    /// its node.
    fn mark_pod(&mut self, reference: ObjectRef, old: Option<&Pod>) {
        let new = self.store.pod(&reference.namespace, &reference.name).cloned();
        let new = new.as_deref();
        if old.zip(new).is_some_and(|(old, new)| pods::same(old, new)) {
            // It may have been resized.
            let resized = old.zip(new).is_some_and(|(old, new)| old.spec != new.spec);
            if self.fed.placement && resized && new.is_some_and(|p| !pods::is_placed(p)) {
                self.dirty.insert(reference);
            }
            return;
        }
        if let Some(old) = old {
            self.pods.remove(old);
        }
        if let Some(new) = new {
            self.pods.insert(new);
        }
        for pod in old.into_iter().chain(new) {
            if let Some(workload) = pods::workload_of(pod) {
                self.dirty.insert(workload_ref(&workload));
            }
            if let Some(first) = pods::slice_of(pod) {
                let slices = self.fed.slices.get(&first).into_iter().flatten().map(workload_ref);
                self.dirty.extend(slices);
            }
            if self.fed.placement && !pods::is_placed(pod) && pods::node_of(pod).is_some() {
                self.dirty.insert(reference.clone());
            }
        }
    }

    /// Marks the workloads that are placed on a node, and the node itself if places are given by topology.
    fn mark_node(&mut self, reference: ObjectRef, old: Option<&Object>) {
        // Nodes report that they are alive all the time.
        let same = match (old, self.store.get(&reference)) {
            (Some(Object::Node(old)), Some(Object::Node(new))) => nodes::same(old, new),
            _ => false,
        };
        if !self.fed.placement || same {
            return;
        }
        let placed = self.fed.on_nodes.get(&reference.name).into_iter().flatten().map(workload_ref);
        self.dirty.extend(placed);
        self.dirty.insert(reference);
    }

    /// Marks what a changed object may matter to.
    fn mark(&mut self, object: &Object, old: Option<&Object>) {
        let reference = object.reference();
        let uid = object.uid();
        match (object, old) {
            (Object::Pod(_), Some(Object::Pod(old))) => return self.mark_pod(reference, Some(old.as_ref())),
            (Object::Pod(_), _) => return self.mark_pod(reference, None),
            (Object::Node(_), _) => return self.mark_node(reference, old),
            _ => {}
        }
        if CONFIGURATION.contains(&reference.kind) {
            // One that is gone is as it was, and yet not the same.
            let there = self.store.get(&reference).is_some();
            let status_only = there && old.is_some_and(|old| only_status_changed(old, object));
            self.finalizers_due |= !status_only;
            // What a status says of a queue follows from everything else.
            if status_only && self.mark_queue(&reference) {
                return;
            }
        }
        match object.kind() {
            Kind::Workload => {
                // Somebody may have taken it from its job.
                self.dirty.extend(old.and_then(|old| owner_ref(old.metadata())));
                self.dirty.extend(self.taken_names.remove(&reference));
                if let Some(job) = owner_ref(object.metadata()) {
                    for child in self.store.owned(self.store.get(&job).map_or("", Object::uid)) {
                        if jobs::KINDS.contains(&child.kind) {
                            self.dirty.insert(child);
                        }
                    }
                    self.dirty.insert(job);
                } else {
                    self.mark_users_of(object);
                }
            }
            Kind::Job | Kind::JobSet | Kind::RayCluster | Kind::RayJob => {
                self.dirty.extend(self.store.owned(uid));
                if let Some(parent) = owner_ref(object.metadata()) {
                    self.dirty.insert(parent);
                }
            }
            Kind::ProvisioningRequest | Kind::PodTemplate => {
                if let Some(owner) = owner_ref(object.metadata()) {
                    if let Some(workload) = self.store.get(&owner).and_then(|o| owner_ref(o.metadata())) {
                        self.dirty.insert(workload);
                    }
                    self.dirty.insert(owner);
                }
            }
            Kind::Namespace => {
                let labels = |o: &Object| o.metadata().labels.clone();
                if old.map(labels) != Some(labels(object)) {
                    for kind in jobs::KINDS {
                        let name = object.name();
                        let inside = self.store.all(kind).filter(|o| o.namespace() == name).map(Object::reference);
                        self.dirty.extend(inside.collect::<Vec<_>>());
                    }
                }
            }
            Kind::WorkloadPriorityClass | Kind::PriorityClass | Kind::ResourceFlavor => {
                if object.kind() == Kind::WorkloadPriorityClass {
                    let class = format!("kueue.x-k8s.io/WorkloadPriorityClass/{}", object.name());
                    self.mark_workloads(|w| *w.spec.priority_class == *class);
                }
                for kind in jobs::KINDS {
                    let all: Vec<ObjectRef> = self.store.all(kind).map(Object::reference).collect();
                    self.dirty.extend(all);
                }
            }
            Kind::ProvisioningRequestConfig => {
                let all: Vec<ObjectRef> = self.store.all(Kind::AdmissionCheck).map(Object::reference).collect();
                self.dirty.extend(all);
                self.mark_workloads(|w| !w.status.admission_checks.is_empty());
            }
            _ => {}
        }
        self.dirty.insert(reference);
    }

    /// Marks the workloads that `which` chooses.
    pub(crate) fn mark_workloads(&mut self, which: impl Fn(&Workload) -> bool) {
        let chosen: Vec<ObjectRef> =
            self.fed.workloads.values().filter(|w| which(w)).map(|w| workload_ref(&w.key)).collect();
        self.dirty.extend(chosen);
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
        let again = self.unanswered.first().map(|(at, _)| *at);
        let held = self.held_back.until;
        let wakes = [self.engine.next_wake(), self.store.next_release(), self.timers.next(), again, held];
        let mut effects = std::mem::take(&mut self.out);
        effects.wake_at = wakes.into_iter().flatten().min();
        effects
    }

    // ----- changes -------------------------------------------------------------------------------------------------

    /// The changes to a workload's status that are being put together; `None` if the workload is not known.
    pub(crate) fn plan(&mut self, key: &Key) -> Option<&mut Plan> {
        let workload = self.fed.workloads.get(key)?;
        Some(self.plans.entry(key.clone()).or_insert_with(|| Plan {
            base: workload.status.clone(),
            status: workload.status.clone(),
            manager: field_manager::ADMISSION,
            then: Then::default(),
        }))
    }

    /// Adds a status that was decided from what is known of the workload to the changes being put together.
    pub(crate) fn plan_status(&mut self, key: &Key, manager: &'static str, status: &WorkloadStatus, then: Then) {
        let Some(known) = self.fed.workloads.get(key).map(|w| w.status.clone()) else { return };
        let Some(plan) = self.plan(key) else { return };
        plan.status = merge::status(&known, status, &plan.status);
        plan.manager = manager;
        for event in then.events {
            // Cycles that come to the same before it is written say it once.
            if !plan.then.events.contains(&event) {
                plan.then.events.push(event);
            }
        }
        plan.then.notes.extend(then.notes);
        plan.then.ends.extend(then.ends);
        for report in then.reports {
            if !plan.then.reports.contains(&report) {
                plan.then.reports.push(report);
            }
        }
    }

    /// Ends workloads whose place others took. They end only once that is written: whoever starts in between finds the old or
    /// the new one, never none.
    fn end(&mut self, ends: Vec<(Key, Condition, Vec<EventRecord>)>) {
        for (key, finished, events) in ends {
            let Some(plan) = self.plan(&key) else { continue };
            if !plan.status.conditions.is_true(&ConditionType::Finished) {
                plan.status.conditions.set(finished);
                plan.then.events.extend(events);
            }
            self.dirty.insert(workload_ref(&key));
        }
    }

    /// Turns the changes that were put together into writes, as far as no other write of the workload is on its way.
    pub(crate) fn write_plans(&mut self, now: Timestamp) {
        for (key, plan) in std::mem::take(&mut self.plans) {
            let reference = workload_ref(&key);
            let (Some(object), Some(workload)) = (self.store.workload(&key), self.fed.workloads.get(&key)) else {
                self.report(now, &key, &plan.then.reports, Written::NotFound);
                continue;
            };
            if self.store.is_locked(&reference) {
                self.plans.insert(key, plan);
                continue;
            }
            let status = merge::status(&plan.base, &plan.status, &workload.status);
            if status == workload.status {
                self.report(now, &key, &plan.then.reports, Written::Ok);
                self.end(plan.then.ends);
                continue;
            }
            let mut object = (**object).clone();
            object.status = convert::status_to_api(&status);
            self.write(plan.manager, Operation::UpdateStatus(object.into()), plan.then);
        }
    }

    /// Asks for a write.
    pub(crate) fn write(&mut self, manager: &'static str, operation: Operation, then: Then) {
        self.last_write = self.last_write.saturating_add(1);
        let id = WriteId(self.last_write);
        let object = operation.object();
        let written = match &operation {
            Operation::Create(o) | Operation::Update(o) => Some((o.clone(), Part::All)),
            Operation::UpdateStatus(o) => Some((o.clone(), Part::Status)),
            Operation::Delete { .. } => None,
        };
        let about = written.as_ref().map(|(object, _)| object).or_else(|| self.store.get(&object)).cloned();
        self.store.lock(&object, id);
        self.in_flight.insert(id, InFlight { object, manager, written, about, then, unanswered: 0, gone: None });
        self.out.writes.push(Write { id, manager, operation });
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

/// Whether an object is the one that a write is about, and not another one of its name.
fn is_about(about: Option<&Object>, known: &Object) -> bool {
    about.is_none_or(|about| about.uid() == known.uid())
}

/// The wait after so many failures in a row.
fn backoff(failures: u32) -> i64 {
    let mut wait = RETRY_BASE_MICROS;
    for _ in 0..failures.min(16) {
        wait = wait.saturating_mul(2).min(RETRY_MAX_MICROS);
    }
    wait
}

/// Whether two objects have the same status.
pub(crate) fn same_status(a: &Object, b: &Object) -> bool {
    match (a, b) {
        (Object::Workload(a), Object::Workload(b)) => a.status == b.status,
        (Object::ClusterQueue(a), Object::ClusterQueue(b)) => a.status == b.status,
        (Object::LocalQueue(a), Object::LocalQueue(b)) => a.status == b.status,
        (Object::Cohort(a), Object::Cohort(b)) => a.status == b.status,
        (Object::AdmissionCheck(a), Object::AdmissionCheck(b)) => a.status == b.status,
        (Object::Job(a), Object::Job(b)) => a.status == b.status,
        (Object::Pod(a), Object::Pod(b)) => a.status == b.status,
        _ => false,
    }
}

/// Whether nothing of a queue, flavor, check, topology or Cohort changed that matters here, its status aside.
fn only_status_changed(a: &Object, b: &Object) -> bool {
    let (x, y) = (a.metadata(), b.metadata());
    x.uid == y.uid
        && x.generation == y.generation
        && x.finalizers == y.finalizers
        && x.deletion_timestamp == y.deletion_timestamp
        && match (a, b) {
            (Object::AdmissionCheck(a), Object::AdmissionCheck(b)) => a.spec == b.spec,
            (Object::ClusterQueue(a), Object::ClusterQueue(b)) => a.spec == b.spec,
            (Object::Cohort(a), Object::Cohort(b)) => a.spec == b.spec,
            (Object::LocalQueue(a), Object::LocalQueue(b)) => a.spec == b.spec,
            (Object::ResourceFlavor(a), Object::ResourceFlavor(b)) => a.spec == b.spec,
            (Object::Topology(a), Object::Topology(b)) => a.spec == b.spec,
            _ => false,
        }
}

/// Whether two objects have the same spec and the metadata that is written.
fn same_but_status(a: &Object, b: &Object) -> bool {
    let meta = |o: &Object| {
        let m = o.metadata();
        (m.labels.clone(), m.annotations.clone(), m.finalizers.clone(), m.owner_references.clone())
    };
    meta(a) == meta(b)
        && match (a, b) {
            (Object::Workload(a), Object::Workload(b)) => a.spec == b.spec,
            (Object::AdmissionCheck(a), Object::AdmissionCheck(b)) => a.spec == b.spec,
            (Object::ClusterQueue(a), Object::ClusterQueue(b)) => a.spec == b.spec,
            (Object::ResourceFlavor(a), Object::ResourceFlavor(b)) => a.spec == b.spec,
            (Object::Topology(a), Object::Topology(b)) => a.spec == b.spec,
            (Object::Job(a), Object::Job(b)) => a.spec == b.spec,
            (Object::JobSet(a), Object::JobSet(b)) => a.spec == b.spec,
            (Object::RayJob(a), Object::RayJob(b)) => a.spec == b.spec,
            (Object::RayCluster(a), Object::RayCluster(b)) => a.spec == b.spec,
            (Object::Pod(a), Object::Pod(b)) => a.spec == b.spec,
            (Object::PodTemplate(a), Object::PodTemplate(b)) => a.template == b.template,
            (Object::ProvisioningRequest(a), Object::ProvisioningRequest(b)) => a.spec == b.spec,
            _ => false,
        }
}
