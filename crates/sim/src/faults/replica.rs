//! A controller, and its connections to the API server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::{Change, Configuration, Controller, Write, WriteError, WriteId, WriteOutcome};
use slicegate_workload::Timestamp;

use super::dice::place;
use super::rules;
use super::server::{Capacity, Server};
use super::setup::QUOTAS;

/// How far ahead a change may be told that others of its kind should have been told before.
const WINDOW: usize = 4;
/// How many of the last changes may be told once more.
const MEMORY: usize = 16;

/// A write on its way to the API server.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) write: Write,
    /// The place of the quotas that were known when it was decided.
    known: usize,
}

/// A controller with watches of its own, a clock of its own, and writes on their way.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) controller: Controller,
    /// By kind, places in the API server's log that are still to be told.
    watches: BTreeMap<Kind, VecDeque<usize>>,
    /// How much of the log the watches know of.
    known: usize,
    /// Objects as it was told of them, by watches and by answers to writes.
    seen: BTreeMap<ObjectRef, Object>,
    told: VecDeque<Change>,
    pub(super) writes: Vec<Pending>,
    /// The quotas that were known whenever something was decided, in order, each that differs from the one before.
    capacities: Vec<Capacity>,
    /// The places of those that were known when writes were decided that went without an answer and may be tried again.
    unanswered: BTreeMap<WriteId, usize>,
    pub(super) answers: VecDeque<(ObjectRef, WriteOutcome)>,
    /// How far its clock is ahead, in microseconds.
    pub(super) ahead: i64,
    pub(super) wake_at: Option<Timestamp>,
    /// Another one has the lease: it decides nothing any more, and what it sent may still arrive.
    pub(super) fenced: bool,
}

fn version(object: &Object) -> u64 {
    object.metadata().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

pub(super) fn object_of(change: &Change) -> &Object {
    match change {
        Change::Applied(object) | Change::Deleted(object) => object,
    }
}

/// The objects of one kind after so many changes.
fn state(server: &Server, kind: Kind, until: usize) -> BTreeMap<ObjectRef, Object> {
    let mut all = BTreeMap::new();
    for change in server.log.iter().take(until).filter(|c| object_of(c).kind() == kind) {
        match change {
            Change::Applied(object) => drop(all.insert(object.reference(), object.clone())),
            Change::Deleted(object) => drop(all.remove(&object.reference())),
        }
    }
    all
}

impl Replica {
    /// A controller that was told nothing, and will be told of what happens from now on.
    fn unborn(configuration: Configuration, server: &Server) -> Self {
        Self {
            controller: Controller::new(configuration),
            watches: BTreeMap::new(),
            known: server.log.len(),
            seen: BTreeMap::new(),
            told: VecDeque::new(),
            writes: Vec::new(),
            capacities: Vec::new(),
            unanswered: BTreeMap::new(),
            answers: VecDeque::new(),
            ahead: 0,
            wake_at: None,
            fenced: false,
        }
    }

    /// A controller that starts, and that mostly decides at once. If it does not it may be told of changes before, as lists of
    /// different kinds are not made at the same moment.
    pub(super) fn start(configuration: Configuration, server: &Server, how: u16) -> Self {
        let mut replica = Self::at_present(configuration, server);
        if !how.is_multiple_of(8) {
            // What it then finds wrong with the engine it will find again.
            let _ = replica.reconcile(server);
        }
        replica
    }

    /// A controller that starts from lists of what is there now. It has not decided yet.
    pub(super) fn at_present(configuration: Configuration, server: &Server) -> Self {
        let mut replica = Self::unborn(configuration, server);
        for (_, object) in server.store.iter() {
            replica.tell(server, Change::Applied(object.clone()));
        }
        replica
    }

    pub(super) fn now(&self, server: &Server) -> Timestamp {
        server.now.plus_micros(self.ahead)
    }

    /// Lets the watches know of what happened.
    pub(super) fn follow(&mut self, server: &Server) {
        for (place, change) in server.log.iter().enumerate().skip(self.known) {
            self.watches.entry(object_of(change).kind()).or_default().push_back(place);
        }
        self.known = server.log.len();
    }

    fn tell(&mut self, server: &Server, change: Change) {
        let object = object_of(&change);
        match &change {
            Change::Applied(_) => self.remember(object.clone()),
            Change::Deleted(_) => {
                if self.seen.get(&object.reference()).is_some_and(|o| version(o) <= version(object)) {
                    self.seen.remove(&object.reference());
                }
            }
        }
        self.told.push_back(change.clone());
        if self.told.len() > MEMORY {
            self.told.pop_front();
        }
        self.controller.observe(self.now(server), change);
    }

    fn remember(&mut self, object: Object) {
        let reference = object.reference();
        if self.seen.get(&reference).is_none_or(|o| version(o) < version(&object)) {
            self.seen.insert(reference, object);
        }
    }

    /// The kinds of which something is to be told.
    fn waiting(&self) -> Vec<Kind> {
        self.watches.iter().filter(|(_, w)| !w.is_empty()).map(|(kind, _)| *kind).collect()
    }

    /// Tells of one change: not always the first of its kind, but always the first of its object.
    pub(super) fn deliver(&mut self, server: &Server, which: u16, how: u16) -> Option<String> {
        let kinds = self.waiting();
        let kind = *kinds.get(place(which, kinds.len()))?;
        let watch = self.watches.get_mut(&kind)?;
        let mut chosen = if how.is_multiple_of(4) { place(how >> 2, watch.len().min(WINDOW)) } else { 0 };
        let reference = |i: &usize| server.log.get(*i).map(|c| object_of(c).reference());
        let object = watch.get(chosen).and_then(reference)?;
        if let Some(earlier) = watch.iter().take(chosen).position(|i| reference(i).as_ref() == Some(&object)) {
            chosen = earlier;
        }
        let change = server.log.get(watch.remove(chosen)?)?.clone();
        let text = describe(&change);
        self.tell(server, change);
        Some(text)
    }

    /// Tells of everything of one kind, or of all kinds. Returns how much that was.
    pub(super) fn deliver_all(&mut self, server: &Server, which: Option<u16>) -> usize {
        let mut kinds = self.waiting();
        if let Some(which) = which {
            let one = kinds.get(place(which, kinds.len())).copied();
            kinds = one.into_iter().collect();
        }
        self.deliver_kinds(server, &kinds)
    }

    /// Tells of everything of the kinds of jobs.
    pub(super) fn deliver_jobs(&mut self, server: &Server) {
        self.deliver_kinds(server, &rules::JOBS);
    }

    fn deliver_kinds(&mut self, server: &Server, kinds: &[Kind]) -> usize {
        let mut count = 0;
        for &kind in kinds {
            for place in std::mem::take(self.watches.entry(kind).or_default()) {
                let Some(change) = server.log.get(place) else { continue };
                self.tell(server, change.clone());
                count += 1;
            }
        }
        count
    }

    /// What it has neither been told nor learnt from the answers to its own writes, in the order of kinds.
    pub(super) fn news<'a>(&'a self, server: &'a Server) -> impl Iterator<Item = &'a Change> {
        let changes = self.watches.values().flatten().filter_map(|place| server.log.get(*place));
        changes.filter(|change| self.is_news(change))
    }

    fn is_news(&self, change: &Change) -> bool {
        let known = self.seen.get(&object_of(change).reference()).map(version);
        match change {
            Change::Applied(object) => known.is_none_or(|known| known < version(object)),
            Change::Deleted(_) => known.is_some(),
        }
    }

    /// Tells of the next change of an object.
    pub(super) fn deliver_next(&mut self, server: &Server, object: &ObjectRef) {
        let Some(watch) = self.watches.get_mut(&object.kind) else { return };
        let of_object = |place: &usize| server.log.get(*place).is_some_and(|c| object_of(c).reference() == *object);
        let Some(next) = watch.iter().position(of_object).and_then(|at| watch.remove(at)) else { return };
        if let Some(change) = server.log.get(next) {
            self.tell(server, change.clone());
        }
    }

    /// Tells of what is no news.
    pub(super) fn deliver_old(&mut self, server: &Server) {
        for kind in self.waiting() {
            for place in std::mem::take(self.watches.entry(kind).or_default()) {
                let Some(change) = server.log.get(place) else { continue };
                if self.is_news(change) {
                    self.watches.entry(kind).or_default().push_back(place);
                } else {
                    self.tell(server, change.clone());
                }
            }
        }
    }

    pub(super) fn repeat(&mut self, server: &Server, which: u16) -> Option<String> {
        let change = self.told.get(place(which, self.told.len()))?.clone();
        let text = describe(&change);
        self.controller.observe(self.now(server), change);
        Some(text)
    }

    /// The watch of a kind breaks and starts again from a list that is not older than what it has told. What is not listed and
    /// was known to be there at that time is told to be gone.
    pub(super) fn relist(&mut self, server: &Server, which: u16, how: u16) -> String {
        let kinds: Vec<Kind> =
            self.watches.keys().copied().filter(|k| self.seen.keys().any(|r| r.kind == *k)).collect();
        let Some(&kind) = kinds.get(place(which, kinds.len())) else { return "nothing".to_owned() };
        let watch = self.watches.entry(kind).or_default();
        let first = watch.front().copied().unwrap_or(server.log.len());
        // Changes may have been told ahead of the first one that is left: the list has all of those.
        let last_told = (first..server.log.len())
            .rfind(|i| server.log.get(*i).is_some_and(|c| object_of(c).kind() == kind) && !watch.contains(i))
            .map_or(first, |i| i + 1);
        let until = last_told + place(how, server.log.len() - last_told + 1);
        watch.retain(|&i| i >= until);
        let list = state(server, kind, until);
        let at = server.log.iter().take(until).map(|c| version(object_of(c))).max().unwrap_or(0);
        let gone: Vec<Object> = self
            .seen
            .iter()
            .filter(|(r, o)| r.kind == kind && !list.contains_key(*r) && version(o) <= at)
            .map(|(_, o)| o.clone())
            .collect();
        let text = format!("{} of {} objects, {} gone", kind.as_str(), list.len(), gone.len());
        for object in gone {
            self.tell(server, Change::Deleted(object));
        }
        for (_, object) in list {
            self.tell(server, Change::Applied(object));
        }
        text
    }

    /// Lets the controller decide.
    pub(super) fn reconcile(&mut self, server: &Server) -> Result<Vec<String>, String> {
        let effects = self.controller.reconcile(self.now(server));
        self.wake_at = effects.wake_at;
        let mut texts = Vec::new();
        if !effects.writes.is_empty() {
            let queues = QUOTAS.iter().map(|(name, _)| ObjectRef::new(Kind::ClusterQueue, "", *name));
            let known: Vec<&Object> = queues.filter_map(|queue| self.controller.object(&queue)).collect();
            let capacity = rules::capacity(known.into_iter());
            if self.capacities.last() != Some(&capacity) {
                self.capacities.push(capacity);
            }
            let last = self.capacities.len() - 1;
            let mut objects = BTreeSet::new();
            for write in effects.writes {
                if !objects.insert(write.operation.object()) {
                    return Err(format!("{} is written twice at once", write.operation.object()));
                }
                texts.push(describe_write(&write));
                let known = self.unanswered.remove(&write.id).unwrap_or(last);
                self.writes.push(Pending { write, known });
            }
        }
        self.controller.engine().check().map_err(|e| e.to_string())?;
        Ok(texts)
    }

    /// One write reaches the API server. The answer is on its way then.
    pub(super) fn perform(&mut self, server: &mut Server, which: u16, fate: Fate) -> Option<String> {
        if self.writes.is_empty() {
            return None;
        }
        let pending = self.writes.remove(place(which, self.writes.len()));
        let object = pending.write.operation.object();
        let reference = object.clone();
        let since = self.capacities.get(pending.known..).unwrap_or_default();
        let result = match fate {
            Fate::Arrives => server.write(&pending.write, since, self.fenced),
            Fate::Fails => Err(WriteError::Unavailable { object, why: "connection refused".to_owned() }),
            Fate::Refused => Err(WriteError::Invalid { object, why: "webhook is not there".to_owned() }),
            Fate::AnswerLost => {
                // Nobody hears of it.
                let _ = server.write(&pending.write, since, self.fenced);
                Err(WriteError::Unavailable { object, why: "connection closed".to_owned() })
            }
        };
        if let Err(WriteError::Unavailable { .. }) = &result {
            self.unanswered.insert(pending.write.id, pending.known);
        }
        let text = format!(
            "{}: {}",
            describe_write(&pending.write),
            result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned())
        );
        self.answers.push_back((reference, WriteOutcome { id: pending.write.id, result }));
        Some(text)
    }

    /// The controller learns how a write fared.
    pub(super) fn answer(&mut self, server: &Server, which: u16) -> Option<String> {
        let (_, outcome) = self.answers.remove(place(which, self.answers.len()))?;
        // That it is gone the watches are still to tell.
        if let Ok(Some(object)) = &outcome.result {
            self.remember(object.clone());
        }
        let text = match &outcome.result {
            Ok(object) => format!("write {}: {}", outcome.id.0, object.as_ref().map_or("gone", |_| "done")),
            Err(error) => format!("write {}: {error}", outcome.id.0),
        };
        self.controller.complete(self.now(server), outcome);
        Some(text)
    }

    /// Whether there is nothing on its way to or from it.
    pub(super) fn is_quiet(&self) -> bool {
        self.writes.is_empty() && self.answers.is_empty() && self.watches.values().all(VecDeque::is_empty)
    }
}

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Arrives,
    Fails,
    Refused,
    AnswerLost,
}

fn describe(change: &Change) -> String {
    let object = object_of(change);
    let what = if matches!(change, Change::Applied(_)) { "" } else { " gone" };
    format!("{}{what} (version {})", object.reference(), version(object))
}

pub(super) fn describe_write(write: &Write) -> String {
    use slicegate_controller::Operation;
    let verb = match &write.operation {
        Operation::Create(_) => "create",
        Operation::Update(_) => "update",
        Operation::UpdateStatus(_) => "update the status of",
        Operation::Delete { .. } => "delete",
    };
    let mut text = format!("{} {verb} {}", write.id.0, write.operation.object());
    if let Operation::UpdateStatus(Object::Workload(w)) = &write.operation {
        let conditions: Vec<String> =
            w.status.conditions.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.reason)).collect();
        let waits = w.status.conditions.iter().find(|c| c.type_ == "QuotaReserved" && c.status == "False");
        let why = waits.map_or("", |c| c.message.as_str());
        text = format!("{text} [{}] {why}", conditions.join(", "));
    } else if let Operation::Update(Object::Job(j)) = &write.operation {
        let spec = j.spec.as_ref();
        text = format!("{text} suspend={:?}", spec.and_then(|s| s.suspend));
    }
    text
}
