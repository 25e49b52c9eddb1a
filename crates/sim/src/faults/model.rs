//! Every state that two jobs, one admission check and a controller that may die at any point can come to.
//!
//! This is no description of the controller: the controller itself makes every move, on the API server of
//! [`faults`](super), and whenever several things can happen the run is cloned and each of them does. States in which the
//! API server holds the same objects, the controller knows the same of them, and the same writes and reports are on their
//! way are one state. Versions of objects are left out of that, and so are times, but for how long something still waits:
//! nothing else depends on them here.
//!
//! What can happen, in any order:
//!
//! - a write of the controller arrives, or conflicts if somebody else has changed the object since; it is told so, and
//!   decides;
//! - it dies with all that is on its way, as often as it likes, and another starts;
//! - it is told of a change by somebody else, and decides; until then none of the following happens;
//! - the check of a workload with quota is answered with Ready, and once in a run with Retry or Rejected, before or after
//!   it was Ready.
//!
//! And while none of its writes is on its way:
//!
//! - the pods of a job come or go, and a job with pods ends, even one that is being stopped;
//! - a workload that was given up is taken up again;
//! - time passes until the controller wants to be called again.
//!
//! What is told twice or late is no state of its own, for the controller passes it over (its own tests show that), nor are
//! the statuses of queues, which nothing depends on.
//!
//! Always: the rules of [`rules`] and of [`Run::after`] hold, no more pods run than the quota has room for, and none of a
//! job that has no quota (of a workload that was given up the quota counts no more, as in Kueue). Where nothing is left to
//! do but for jobs to end and for checks to be answered, what fits has its quota, jobs run exactly if they are admitted,
//! and a controller that starts anew agrees. In the end: as long as the controller does not die every way through the
//! states ends, whatever order things happen in, and where it ends all jobs have come to their ends and nothing is used any
//! more. Since a way without further deaths begins in every state, this holds from every state.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use slicegate_api::{Kind, Object, ObjectRef, convert, kueue};
use slicegate_controller::{Change, Configuration, Operation};
use slicegate_workload::Timestamp;

use super::actors;
use super::replica::{Fate, Pending, Replica, object_of};
use super::rules;
use super::run::Run;
use super::server::Server;
use super::setup::{CAPACITY, CHECK, Setup, job, read};

/// What can happen next. Numbers are places in lists: of news, of writes on their way, of workloads and of jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Move {
    /// The controller is told of the next change of an object, and decides.
    Hear(usize),
    /// One of its writes reaches the API server; it hears how that went, and decides.
    Write(usize),
    /// It dies, with whatever was on its way, and another starts.
    Die,
    /// Time passes until it wants to be called again.
    Wake,
    /// The check of a workload is answered.
    Answer(usize, &'static str),
    /// A workload that was given up is taken up again.
    Reactivate(usize),
    /// Pods of a job come or go.
    Pods(usize),
    /// A job that runs ends.
    End(usize),
}

/// What the exploration came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Moves between them.
    pub moves: usize,
    /// Those of them in which the controller dies.
    pub deaths: usize,
    /// States in which nothing more can happen, but for the controller to die.
    pub ends: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
}

/// How the names of fields end that hold times.
const TIMES: [&str; 3] = ["Time", "Timestamp", "requeueAt"];
/// Stands for an object that the controller does not know.
const UNKNOWN: usize = usize::MAX;
/// Stands for an object that it knows as it is.
const CURRENT: usize = usize::MAX - 1;
/// The jobs and their pods: both fit alone, and not together.
const JOBS: [(&str, i32); 2] = [("one", 3), ("two", 4)];
/// The queue that they are in, and its quota.
const QUEUE: (&str, i32) = ("c", 5);
/// What the cluster of other runs has and this one can do without.
const LEFT_OUT: [&str; 6] = ["a", "b", "dws", "p1", "p2", CAPACITY];
/// How long a check that wants another try has it wait, in seconds.
const DELAY: i32 = 60;
/// So many objects are kept whose descriptions are known.
const MOST_OBJECTS: usize = 20_000;
/// More states than this mean that some never end.
const MOST_STATES: usize = 200_000;

/// Plays all moves from the beginning, in every order, until no state is new.
///
/// # Errors
/// What is wrong, and the moves that lead there.
pub fn explore() -> Result<Explored, String> {
    let mut graph = Graph::default();
    let first = State::first()?;
    let key = first.key(&mut graph.texts)?;
    graph.add(key, None);
    let mut todo = VecDeque::from([(0, first)]);
    while let Some((place, mut state)) = todo.pop_front() {
        let moves = state.moves();
        state.check(&moves).map_err(|what| graph.wrong(place, &what))?;
        let outside = state.outside(&mut graph.texts)?;
        for next in moves {
            // What a controller makes of the world when it starts depends on nothing that the one before knew.
            if next == Move::Die
                && let Some(&target) = graph.starts.get(&outside)
            {
                graph.lead(place, next, target);
                continue;
            }
            let mut after = state.clone();
            let key = after.play(next).and_then(|()| after.key(&mut graph.texts));
            let key = key.map_err(|what| graph.wrong(place, &format!("{next:?}: {what}")))?;
            let (target, is_new) = graph.add(key, Some((place, next)));
            graph.lead(place, next, target);
            if next == Move::Die {
                graph.starts.insert(outside.clone(), target);
            }
            if is_new {
                todo.push_back((target, after));
            }
        }
        if graph.ways.len() > MOST_STATES {
            return Err(graph.wrong(place, "there is no end of states"));
        }
    }
    graph.every_way_ends()?;
    Ok(graph.explored())
}

/// The states that were found, and the moves between them.
#[derive(Default)]
struct Graph {
    texts: Texts,
    /// The places of states.
    places: BTreeMap<Vec<usize>, usize>,
    /// The states that a controller starts in, by what it finds.
    starts: BTreeMap<Vec<usize>, usize>,
    /// For each state, the state and the move that it was first found by, and how many moves it is from the beginning.
    ways: Vec<(usize, Option<Move>, usize)>,
    /// For each state, those that follow without a death.
    next: Vec<Vec<usize>>,
    moves: usize,
    deaths: usize,
}

impl Graph {
    /// Adds a state, if it is new. Returns its place and whether it is new.
    fn add(&mut self, key: Vec<usize>, from: Option<(usize, Move)>) -> (usize, bool) {
        let new = self.ways.len();
        let place = *self.places.entry(key).or_insert(new);
        if place == new {
            let depth = from.and_then(|(before, _)| self.ways.get(before)).map_or(0, |(_, _, depth)| depth + 1);
            self.ways.push((from.map_or(0, |(before, _)| before), from.map(|(_, step)| step), depth));
            self.next.push(Vec::new());
        }
        (place, place == new)
    }

    /// Notes that a move leads from a state to another.
    fn lead(&mut self, before: usize, step: Move, after: usize) {
        self.moves += 1;
        if step == Move::Die {
            self.deaths += 1;
        } else if let Some(next) = self.next.get_mut(before) {
            next.push(after);
        }
    }

    /// What is wrong in a state, and how to get there.
    fn wrong(&self, place: usize, what: &str) -> String {
        let mut path = Vec::new();
        let mut at = place;
        while let Some((before, Some(step), _)) = self.ways.get(at) {
            path.push(format!("{step:?}"));
            at = *before;
        }
        path.reverse();
        format!("after {}: {what}", path.join(", "))
    }

    /// Looks for a way without deaths that leads back to where it was.
    fn every_way_ends(&self) -> Result<(), String> {
        let mut before = vec![0_usize; self.next.len()];
        for next in self.next.iter().flatten() {
            if let Some(count) = before.get_mut(*next) {
                *count += 1;
            }
        }
        let mut free: Vec<usize> = (0..before.len()).filter(|place| before.get(*place) == Some(&0)).collect();
        while let Some(place) = free.pop() {
            for next in self.next.get(place).into_iter().flatten() {
                if let Some(count) = before.get_mut(*next) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(*next);
                    }
                }
            }
        }
        match before.iter().position(|count| *count > 0) {
            Some(place) => Err(self.wrong(place, "it may go in circles from here")),
            None => Ok(()),
        }
    }

    fn explored(&self) -> Explored {
        Explored {
            states: self.ways.len(),
            moves: self.moves,
            deaths: self.deaths,
            ends: self.next.iter().filter(|next| next.is_empty()).count(),
            depth: self.ways.iter().map(|(_, _, depth)| *depth).max().unwrap_or(0),
        }
    }
}

/// Descriptions, numbered.
#[derive(Default)]
struct Texts {
    known: BTreeMap<String, usize>,
    /// The numbers of objects by where they are in memory and how long they wait, and the objects, so that they stay there.
    objects: BTreeMap<(usize, Option<i64>), (Object, usize)>,
}

impl Texts {
    fn number(&mut self, text: String) -> usize {
        let new = self.known.len();
        *self.known.entry(text).or_insert(new)
    }

    /// The number of all of an object but its version and times, and how long it still has to wait.
    fn object(&mut self, object: &Object, now: Timestamp) -> Result<usize, String> {
        let (at, until) = match object {
            Object::Workload(w) => {
                (Arc::as_ptr(w).addr(), w.status.requeue_state.as_ref().and_then(|s| s.requeue_at.as_ref()))
            }
            Object::Job(j) => (Arc::as_ptr(j).addr(), None),
            _ => return Err(format!("{} is of no kind that matters", object.reference())),
        };
        let wait = until.map(|until| convert::timestamp(until).micros_since(now).max(0));
        if let Some((_, number)) = self.objects.get(&(at, wait)) {
            return Ok(*number);
        }
        let mut bare = object.clone();
        let metadata = bare.metadata_mut();
        metadata.resource_version = None;
        metadata.generation = None;
        let mut value = bare.to_json().map_err(|error| error.to_string())?;
        leave_out_times(&mut value);
        let number = self.number(format!("{wait:?} {value}"));
        if self.objects.len() >= MOST_OBJECTS {
            self.objects.clear();
        }
        self.objects.insert((at, wait), (object.clone(), number));
        Ok(number)
    }
}

fn leave_out_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| key == "deletionTimestamp" || !TIMES.iter().any(|end| key.ends_with(end)));
            fields.values_mut().for_each(leave_out_times);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_times),
        _ => {}
    }
}

/// A run after some moves.
#[derive(Clone)]
struct State {
    run: Run,
    /// Whether a check was answered with anything but `Ready`.
    refused: bool,
}

impl State {
    /// Two jobs were made just now.
    fn first() -> Result<Self, String> {
        let setup = Setup { check: true, ..Setup::default() };
        let mut run = Run::new(setup, false);
        for object in setup.objects().into_iter().filter(|o| !LEFT_OUT.contains(&o.name())) {
            run.server.create(object);
        }
        let controller = Replica::at_present(configuration(&setup), &run.server);
        run.replicas.push(controller);
        run.settle()?;
        for (name, pods) in JOBS {
            if let Some(object) = read(job(name, QUEUE.0, 0, pods, false)) {
                run.server.create(object);
            }
        }
        run.after()?;
        Ok(Self { run, refused: false })
    }

    fn play(&mut self, step: Move) -> Result<(), String> {
        let Run { setup, server, replicas, .. } = &mut self.run;
        let Some(controller) = replicas.first_mut() else { return Ok(()) };
        match step {
            Move::Hear(place) => {
                if let Some(object) = objects_with_news(controller, server).get(place) {
                    controller.deliver_next(server, object);
                }
                decide(controller, server)?;
            }
            Move::Write(place) => {
                perform(controller, server, place);
                decide(controller, server)?;
            }
            Move::Die => {
                *controller = Replica::at_present(configuration(setup), server);
                decide(controller, server)?;
            }
            Move::Wake => {
                if let Some(wake) = controller.wake_at {
                    let wait = wake.micros_since(server.now);
                    server.advance(wait);
                    decide(controller, server)?;
                }
            }
            Move::Answer(place, answer) => {
                if let Some(workload) = actors::open_workloads(server).get(place) {
                    let refused = answer != "Ready";
                    self.refused |= refused;
                    actors::set_check(server, workload, answer, refused.then_some(DELAY));
                }
            }
            Move::Reactivate(place) => {
                if let Some(workload) = actors::open_workloads(server).get(place) {
                    actors::set_active(server, workload);
                }
            }
            Move::Pods(place) => {
                if let Some(job) = actors::jobs(server).get(place) {
                    actors::pods(server, job);
                }
            }
            Move::End(place) => {
                if let Some(job) = actors::jobs(server).get(place) {
                    actors::finish(server, job, false);
                }
            }
        }
        self.run.after()?;
        let Run { server, replicas, .. } = &mut self.run;
        for replica in replicas {
            replica.deliver_old(server);
        }
        Ok(())
    }

    fn moves(&self) -> Vec<Move> {
        let Run { server, replicas, .. } = &self.run;
        let mut all = Vec::new();
        let Some(controller) = replicas.first() else { return all };
        all.extend((0..objects_with_news(controller, server).len()).map(Move::Hear));
        let late = !all.is_empty();
        let idle = !late && controller.writes.is_empty();
        all.extend((0..controller.writes.len()).map(Move::Write));
        if idle && controller.wake_at.is_some_and(|at| at > server.now) {
            all.push(Move::Wake);
        }
        all.push(Move::Die);
        if late {
            return all;
        }
        for (place, workload) in actors::open_workloads(server).iter().enumerate() {
            if idle && actors::may_return(workload) {
                all.push(Move::Reactivate(place));
            }
            let Some(check) = workload.status.admission_checks.iter().find(|c| c.name == CHECK) else { continue };
            if workload.status.admission.is_none() {
                continue;
            }
            if check.state == "Pending" {
                all.push(Move::Answer(place, "Ready"));
            }
            if matches!(&*check.state, "Pending" | "Ready") && !self.refused {
                all.push(Move::Answer(place, "Retry"));
                all.push(Move::Answer(place, "Rejected"));
            }
        }
        if !idle {
            return all;
        }
        for (place, job) in actors::jobs(server).iter().enumerate().filter(|(_, j)| !actors::job_is_finished(j)) {
            if actors::is_due(job) {
                all.push(Move::Pods(place));
            }
            if actors::active(job) > 0 {
                all.push(Move::End(place));
            }
        }
        all
    }

    /// What must hold in a state in which this can happen.
    fn check(&mut self, moves: &[Move]) -> Result<(), String> {
        let server = &self.run.server;
        let jobs = actors::jobs(server);
        let mut running = 0;
        for job in jobs.iter().filter(|j| actors::active(j) > 0) {
            let workloads: Vec<_> = server.workloads().filter(|w| belongs(w, job)).collect();
            if !workloads.iter().any(|w| w.status.admission.is_some()) {
                return Err(format!("pods of {} run without quota", job.reference()));
            }
            if workloads.iter().any(|w| rules::counts(w)) {
                running += actors::active(job);
            }
        }
        if running > QUEUE.1 {
            return Err(format!("{running} pods run, and there is quota for {}", QUEUE.1));
        }
        if moves == [Move::Die] {
            if let Some(job) = jobs.iter().find(|j| !actors::job_is_finished(j)) {
                return Err(format!("nothing more happens, and {} has not ended", job.reference()));
            }
            self.run.at_rest()?;
            return self.run.at_end();
        }
        let rests = |m: &Move| matches!(m, Move::Die | Move::End(_) | Move::Answer(..));
        if moves.iter().all(rests) { self.run.at_rest() } else { Ok(()) }
    }

    /// What a state is apart from the controller.
    fn outside(&self, texts: &mut Texts) -> Result<Vec<usize>, String> {
        let server = &self.run.server;
        let mut key = vec![usize::from(self.refused)];
        for (_, object) in server.store.iter().filter(|(r, _)| matters(r)) {
            key.push(texts.object(object, server.now)?);
        }
        Ok(key)
    }

    /// What tells a state from others.
    fn key(&self, texts: &mut Texts) -> Result<Vec<usize>, String> {
        let Run { server, replicas, .. } = &self.run;
        let mut key = self.outside(texts)?;
        for controller in replicas {
            key.push(texts.number(format!("{:?}", controller.wake_at.map(|at| at.micros_since(server.now).max(0)))));
            for (reference, object) in server.store.iter().filter(|(r, _)| matters(r)) {
                key.push(match controller.controller.object(reference) {
                    None => UNKNOWN,
                    Some(known) if version(known) == version(object) => CURRENT,
                    Some(known) => texts.object(known, server.now)?,
                });
            }
            for change in controller.news(server) {
                let object = object_of(change);
                if matters(&object.reference()) {
                    key.extend([usize::from(matches!(change, Change::Applied(_))), texts.object(object, server.now)?]);
                }
            }
            let mut writes = Vec::new();
            for Pending { write, .. } in &controller.writes {
                let (verb, object) = match &write.operation {
                    Operation::Create(o) => ("create", Some(o)),
                    Operation::Update(o) => ("update", Some(o)),
                    Operation::UpdateStatus(o) => ("update status", Some(o)),
                    Operation::Delete { .. } => ("delete", None),
                };
                let reference = write.operation.object();
                let there = server.store.get(&reference).map(version);
                let may = object.map(version) == there;
                let content = object.map(|o| texts.object(o, server.now)).transpose()?;
                writes.push([texts.number(format!("{verb} {reference} {may}")), content.unwrap_or(UNKNOWN)]);
            }
            writes.sort_unstable();
            key.extend(writes.into_iter().flatten());
        }
        Ok(key)
    }
}

fn version(object: &Object) -> Option<&String> {
    object.metadata().resource_version.as_ref()
}

/// Whether an object is of a kind that a state consists of.
fn matters(reference: &ObjectRef) -> bool {
    matches!(reference.kind, Kind::Workload) || rules::JOBS.contains(&reference.kind)
}

fn belongs(workload: &kueue::Workload, job: &Object) -> bool {
    workload.metadata.owner_references.iter().flatten().any(|owner| owner.uid == job.uid())
}

/// The objects that there is news of.
fn objects_with_news(controller: &Replica, server: &Server) -> Vec<ObjectRef> {
    let mut all: Vec<ObjectRef> = controller.news(server).map(|c| object_of(c).reference()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The controller decides, and its writes of what does not matter arrive at once.
fn decide(controller: &mut Replica, server: &mut Server) -> Result<(), String> {
    loop {
        controller.reconcile(server)?;
        let mut trifles = 0;
        while let Some(next) = controller.writes.iter().position(|p| !matters(&p.write.operation.object())) {
            perform(controller, server, next);
            trifles += 1;
        }
        if trifles == 0 {
            return Ok(());
        }
    }
}

/// A write arrives, and the answer to it.
fn perform(controller: &mut Replica, server: &mut Server, place: usize) {
    let place = u16::try_from(place).unwrap_or(0);
    if controller.perform(server, place, Fate::Arrives).is_some() {
        controller.answer(server, 0);
    }
}

/// How the controller decides; it writes at once what it would hold back, since statuses of queues are no part of a state.
fn configuration(setup: &Setup) -> Configuration {
    Configuration { queue_status_interval_micros: 0, keep_finalizer_of_finished: false, ..setup.configuration() }
}
