//! Writes: how changes to a workload's status are put together, what is on its way, and what follows once it is known how a write
//! fared.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_admission::Written;
use slicegate_api::{Kind, Object, ObjectRef, convert};
use slicegate_workload::{Condition, ConditionType, Key, Timestamp, WorkloadStatus};

use crate::controller::{Controller, event};
use crate::io::{EventRecord, EventType, Note, Operation, Write, WriteError, WriteId, WriteOutcome, field_manager};
use crate::merge;
use crate::store::{Applied, key_of, owner_ref, workload_ref};

/// The first wait after a failed write, in microseconds.
const RETRY_BASE_MICROS: i64 = 500_000;
/// The longest.
const RETRY_MAX_MICROS: i64 = 60_000_000;
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

/// Writes that were asked for and are not over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    in_flight: BTreeMap<WriteId, InFlight>,
    /// Those without an answer, and when they are to be tried again.
    unanswered: BTreeSet<(Timestamp, WriteId)>,
    /// The number of the last one.
    last: u64,
}

impl Writes {
    /// When the next write is to be tried again.
    pub(crate) fn next_try(&self) -> Option<Timestamp> {
        self.unanswered.first().map(|(at, _)| *at)
    }
}

/// What a write set; `None` for a deletion.
fn part_of(written: Option<&(Object, Part)>) -> Option<Part> {
    written.map(|(_, part)| *part)
}

impl Controller {
    /// Whether a Workload of the job with this uid is being made. It may be there already, under another name than the next one
    /// will have.
    pub(crate) fn makes_workload_of(&self, job: &str) -> bool {
        let new = |object: &Object| object.kind() == Kind::Workload && object.metadata().uid.is_none();
        let of_job = |object: &Object| object.metadata().owner_references.iter().flatten().any(|o| o.uid == job);
        self.writes
            .in_flight
            .values()
            .any(|f| f.written.as_ref().is_some_and(|(object, _)| new(object) && of_job(object)))
    }

    /// Remembers of a write on its way that its object was seen to go.
    pub(crate) fn note_gone(&mut self, object: &Object) {
        let outstanding = self.store.outstanding(&object.reference());
        if let Some(flight) = outstanding.and_then(|id| self.writes.in_flight.get_mut(&id)) {
            flight.gone = Some(object.clone());
        }
    }

    /// A write whose result is seen has happened, whatever its outcome will be said to be.
    pub(crate) fn resolve_seen(&mut self, now: Timestamp, object: &Object) {
        let reference = object.reference();
        let Some(id) = self.store.outstanding(&reference) else { return };
        let Some(flight) = self.writes.in_flight.get(&id) else { return };
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
            self.writes.unanswered.insert((now.plus_micros(backoff(flight.unanswered)), id));
        }
        unknown
    }

    /// Takes back what was decided of a workload while a write of it was on its way: the object has moved on since, and it is
    /// decided anew.
    pub(crate) fn drop_outdated_plans(&mut self, now: Timestamp) {
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
    pub(crate) fn repeat_unanswered(&mut self, now: Timestamp) {
        while let Some(&(at, id)) = self.writes.unanswered.first()
            && at <= now
        {
            self.writes.unanswered.pop_first();
            let Some(flight) = self.writes.in_flight.get(&id) else { continue };
            let operation = match &flight.written {
                Some((object, Part::Status)) => Operation::UpdateStatus(object.clone()),
                Some((object, Part::All)) => Operation::Update(object.clone()),
                None => continue,
            };
            self.out.writes.push(Write { id, manager: flight.manager, operation });
        }
    }

    /// Writes of an object that is gone will not succeed any more.
    pub(crate) fn fail_gone(&mut self, now: Timestamp, reference: &ObjectRef) {
        if reference.kind == Kind::Workload
            && let Some(plan) = self.plans.remove(&key_of(reference))
        {
            self.report(now, &key_of(reference), &plan.then.reports, Written::NotFound);
        }
        if let Some(id) = self.store.outstanding(reference)
            && self.writes.in_flight.get(&id).is_some_and(|w| w.unanswered > 0)
        {
            self.complete(now, WriteOutcome { id, result: Err(WriteError::NotFound(reference.clone())) });
        }
    }

    /// Takes in how a write fared. The outcome of a write that is not (any more) on its way does no harm.
    pub fn complete(&mut self, now: Timestamp, outcome: WriteOutcome) {
        let Some(mut flight) = self.writes.in_flight.remove(&outcome.id) else { return };
        if let Err(error) = &outcome.result
            && self.waits_for_answer(now, outcome.id, &flight, error)
        {
            flight.unanswered = flight.unanswered.saturating_add(1);
            self.writes.in_flight.insert(outcome.id, flight);
            return;
        }
        let reference = flight.object.clone();
        if outcome.result.is_err() || !self.mark_queue(&reference) {
            self.dirty.insert(reference.clone());
        }
        let gone = flight.gone.take();
        match outcome.result {
            Ok(now_is) => self.succeeded(now, outcome.id, flight, now_is),
            Err(error) => self.failed(now, outcome.id, flight, &error),
        }
        if let Some(gone) = gone {
            self.mark(&gone, None);
        }
    }

    /// Does what follows from a write that succeeded; `now_is` is the object as it is after it, `None` if it was deleted.
    fn succeeded(&mut self, now: Timestamp, id: WriteId, flight: InFlight, now_is: Option<Object>) {
        let reference = flight.object;
        self.store.unlock(&reference, id, None);
        self.create_errors.remove(&reference);
        self.settle_refusal(&reference, part_of(flight.written.as_ref()));
        self.report(now, &key_of(&reference), &flight.then.reports, Written::Ok);
        self.end(flight.then.ends);
        self.out.events.extend(flight.then.events);
        self.out.notes.extend(flight.then.notes);
        let Some(object) = now_is else {
            // It is remembered as gone, so that a late report does not bring it back.
            let known = self.store.get(&reference).filter(|known| is_about(flight.about.as_ref(), known)).cloned();
            if let Some(old) = &known {
                self.store.remove(old);
            }
            // Seen to go before the answer came: whoever waited for the answer looks again.
            if let Some(gone) = known.or(flight.about) {
                self.mark(&gone, None);
            }
            return;
        };
        // Seen before the answer came: whoever waited for the answer looks again.
        let is_queue = matches!(reference.kind, Kind::ClusterQueue | Kind::LocalQueue);
        if !is_queue && self.store.get(&reference) == Some(&object) {
            self.mark(&object, None);
        }
        self.apply(now, &object);
    }

    /// Does what follows from a write that failed.
    fn failed(&mut self, now: Timestamp, id: WriteId, flight: InFlight, error: &WriteError) {
        let InFlight { object: reference, written, about, then, .. } = flight;
        let key = key_of(&reference);
        let fared = if let WriteError::NotFound(_) = error { Written::NotFound } else { Written::Failed };
        self.report(now, &key, &then.reports, fared);
        if let WriteError::Invalid { why, .. } = error {
            if let Some((object, reason, text)) = then.on_failure {
                self.tell_refused(&reference, object, reason, format!("{text}: {why}"));
            } else {
                let part = part_of(written.as_ref());
                // Nobody waits for a status that decides nothing.
                if part != Some(Part::Status) || !then.reports.is_empty() {
                    self.complain_of_refusal(&reference, part, why);
                }
            }
            if then.reports.contains(&Report::Admission) {
                self.set_aside(now, &key);
            }
        }
        let until = now.plus_micros(backoff(self.store.failures(&reference)));
        // Whoever wanted the object looks again when it may be written again.
        if let Some(owner) = about.as_ref().and_then(|object| owner_ref(object.metadata())) {
            self.wake(&owner, until);
        }
        match error {
            WriteError::NotFound(_) => {
                // Another object of the name may have been seen since.
                let gone = self.store.get(&reference).is_some_and(|known| is_about(about.as_ref(), known));
                self.store.unlock(&reference, id, written.is_some().then_some(until));
                if gone {
                    self.forget(&reference);
                }
            }
            // Somebody else was faster; what they wrote is known or will be in a moment.
            WriteError::Conflict(_) => {
                let base = written.as_ref().and_then(|(o, _)| o.metadata().resource_version.as_deref());
                self.store.unlock_late(&reference, id, base, until);
            }
            WriteError::AlreadyExists(_)
            | WriteError::NamespaceTerminating(_)
            | WriteError::Invalid { .. }
            | WriteError::Unavailable { .. } => self.store.unlock(&reference, id, Some(until)),
        }
        if let Some(object) = self.store.get(&reference).cloned() {
            self.mark(&object, None);
        }
        // Another object may have the name of a Workload.
        if reference.kind == Kind::Workload
            && let Some(plan) = self.plans.remove(&key)
        {
            self.report(now, &key, &plan.then.reports, fared);
        }
    }

    /// Says in an Event about `object` that a write of `written` was refused, once for each reason.
    fn tell_refused(&mut self, written: &ObjectRef, object: ObjectRef, reason: &'static str, text: String) {
        if self.create_errors.get(written) != Some(&text) {
            self.out.events.push(event(&object, EventType::Warning, reason, text.clone()));
        }
        self.create_errors.insert(written.clone(), text);
        self.dirty.insert(object);
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
        self.writes.last = self.writes.last.saturating_add(1);
        let id = WriteId(self.writes.last);
        let object = operation.object();
        let written = match &operation {
            Operation::Create(o) | Operation::Update(o) => Some((o.clone(), Part::All)),
            Operation::UpdateStatus(o) => Some((o.clone(), Part::Status)),
            Operation::Delete { .. } => None,
        };
        let about = written.as_ref().map(|(object, _)| object).or_else(|| self.store.get(&object)).cloned();
        self.store.lock(&object, id);
        self.writes.in_flight.insert(id, InFlight { object, manager, written, about, then, unanswered: 0, gone: None });
        self.out.writes.push(Write { id, manager, operation });
    }
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
fn same_status(a: &Object, b: &Object) -> bool {
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

/// Whether two objects have the same spec and the metadata that is written.
fn same_but_status(a: &Object, b: &Object) -> bool {
    let (x, y) = (a.metadata(), b.metadata());
    x.labels == y.labels
        && x.annotations == y.annotations
        && x.finalizers == y.finalizers
        && x.owner_references == y.owner_references
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
