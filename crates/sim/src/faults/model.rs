//! Every state that two jobs, one admission check and a controller that may die at any point can come to.
//!
//! This is no description of the controller: each state is reached by the controller itself, on the API server of
//! [`faults`](super), by playing the moves that lead there. From every state everything must be able to settle, with every job
//! coming to its end.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use slicegate_api::{Kind, Object, ObjectRef};

use super::replica::{Fate, Replica};
use super::run::Run;
use super::setup::{CHECK, Setup, job, read};
use super::{actors, rules};

/// What can happen next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Move {
    /// The controller, which knows of everything, decides.
    Decide,
    /// One of its writes reaches the API server; it hears of it.
    Write(usize),
    /// It dies, with whatever was on its way, and another starts.
    Die,
    /// The check of a workload is answered.
    Answer(usize, &'static str),
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
    /// The longest of the shortest ways to a state.
    pub depth: usize,
}

/// The jobs: both fit alone, and not together.
const JOBS: [(&str, i32); 2] = [("one", 3), ("two", 4)];
/// More states than this mean that some never end.
const MOST_STATES: usize = 200_000;

/// A run after some moves.
struct State {
    run: Run,
    /// How often checks were answered with anything but `Ready`.
    refusals: usize,
}

/// Plays all moves from the beginning, in every order, until no state is new.
///
/// # Errors
/// What is wrong, and the moves that lead there.
pub fn explore() -> Result<Explored, String> {
    let mut known = BTreeSet::new();
    let mut todo: VecDeque<Vec<Move>> = VecDeque::from([Vec::new()]);
    let mut explored = Explored::default();
    while let Some(path) = todo.pop_front() {
        let wrong = |what: String| format!("after {path:?}: {what}");
        let mut state = State::after(&path).map_err(wrong)?;
        if !known.insert(state.key()) {
            continue;
        }
        explored.states += 1;
        explored.depth = explored.depth.max(path.len());
        if explored.states > MOST_STATES {
            return Err(wrong("there is no end of states".to_owned()));
        }
        for next in state.moves() {
            explored.moves += 1;
            let mut longer = path.clone();
            longer.push(next);
            todo.push_back(longer);
        }
        state.run.calm().map_err(|what| format!("after {path:?} it does not settle: {what}"))?;
    }
    Ok(explored)
}

impl State {
    fn after(path: &[Move]) -> Result<Self, String> {
        let setup = Setup { check: true, ..Setup::default() };
        let mut run = Run::new(setup, false);
        run.begin()?;
        for (name, pods) in JOBS {
            if let Some(object) = read(job(name, "c", 0, pods, false)) {
                run.server.create(object);
            }
        }
        run.after()?;
        let mut state = Self { run, refusals: 0 };
        for step in path {
            state.play(*step)?;
        }
        Ok(state)
    }

    fn play(&mut self, step: Move) -> Result<(), String> {
        let Run { setup, server, replicas, .. } = &mut self.run;
        let Some(leader) = replicas.first_mut() else { return Ok(()) };
        match step {
            Move::Decide => {
                leader.deliver_all(server, None);
                leader.reconcile(server)?;
                // What is said of queues does not matter to anything.
                let mut place = 0;
                while let Some(pending) = leader.writes.get(place) {
                    if matters(&pending.write.operation.object()) {
                        place += 1;
                    } else {
                        perform(leader, server, place);
                    }
                }
            }
            Move::Write(place) => perform(leader, server, place),
            Move::Die => *leader = Replica::start(setup.configuration(), server, usize::MAX, 0),
            Move::Answer(place, answer) => {
                let all = actors::open_workloads(server);
                if let Some(workload) = all.get(place) {
                    self.refusals += usize::from(answer != "Ready");
                    actors::set_check(server, workload, answer, None);
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
        self.run.after()
    }

    fn moves(&self) -> Vec<Move> {
        let Run { server, replicas, .. } = &self.run;
        let mut all = Vec::new();
        let Some(leader) = replicas.first() else { return all };
        if leader.writes.is_empty() {
            all.push(Move::Decide);
        } else {
            all.extend((0..leader.writes.len()).map(Move::Write));
            all.push(Move::Die);
        }
        for (place, workload) in actors::open_workloads(server).iter().enumerate() {
            let pending = |c: &slicegate_api::kueue::AdmissionCheckState| c.name == CHECK && c.state == "Pending";
            if workload.status.admission.is_some() && workload.status.admission_checks.iter().any(pending) {
                all.push(Move::Answer(place, "Ready"));
                if self.refusals == 0 {
                    all.push(Move::Answer(place, "Retry"));
                    all.push(Move::Answer(place, "Rejected"));
                }
            }
        }
        for (place, job) in actors::jobs(server).iter().enumerate() {
            let (suspended, active) = (actors::is_suspended(job), actors::active(job) > 0);
            if !actors::job_is_finished(job) && suspended == active {
                all.push(Move::Pods(place));
            }
            if !actors::job_is_finished(job) && !suspended && active {
                all.push(Move::End(place));
            }
        }
        all
    }

    /// What tells a state from others: the objects, as they are and as the controller knows them, and the writes on their way.
    /// The versions of objects are left out.
    fn key(&self) -> String {
        let Run { server, replicas, .. } = &self.run;
        let mut key = self.refusals.to_string();
        for (reference, object) in server.store.iter().filter(|(r, _)| matters(r)) {
            describe(&mut key, object);
            if let Some(seen) = replicas.first().and_then(|r| r.controller.object(reference)).filter(|o| *o != object) {
                key.push_str(" known as ");
                describe(&mut key, seen);
            }
        }
        for pending in replicas.iter().flat_map(|r| &r.writes) {
            key.push_str(super::replica::describe_write(&pending.write).split_once(' ').map_or("", |(_, t)| t));
        }
        key
    }
}

fn matters(reference: &ObjectRef) -> bool {
    matches!(reference.kind, Kind::Workload) || rules::JOBS.contains(&reference.kind)
}

fn perform(leader: &mut Replica, server: &mut super::server::Server, place: usize) {
    let place = u16::try_from(place).unwrap_or(0);
    if leader.perform(server, place, Fate::Arrives).is_some() {
        leader.answer(server, 0);
    }
}

fn describe(text: &mut String, object: &Object) {
    let mut object = object.clone();
    let metadata = object.metadata_mut();
    metadata.resource_version = None;
    metadata.generation = None;
    // Writing to a string cannot fail.
    let _ = write!(text, "{object:?}");
}
