//! A run, and whether everything comes to its end afterwards.

use std::collections::BTreeSet;

use slicegate_api::{Object, ObjectRef};
use slicegate_workload::Timestamp;

use super::actors;
use super::replica::{Fate, Replica};
use super::server::Server;
use super::setup::Setup;
use super::step::{Action, Step};
use super::{Figures, Plan};

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;
/// The most writes in a row without any other event.
const MOST_ROUNDS: usize = 400;
/// How often the well-wishers act, and the controller wants to be called later, before it is too much.
const MOST_WISHES: usize = 3000;

/// A cluster, its controllers, and what happened.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) setup: Setup,
    pub(super) server: Server,
    /// The controllers that act; the first is the one that the next step is about.
    pub(super) replicas: Vec<Replica>,
    jobs: usize,
    /// Jobs that somebody started by hand.
    pub(super) by_hand: BTreeSet<ObjectRef>,
    /// What was there in the beginning.
    objects: Vec<Object>,
    figures: Figures,
    trace: Option<Vec<String>>,
}

/// Runs a plan. The trace is kept if asked for.
pub(super) fn run(plan: &Plan, keep_trace: bool) -> (Result<Figures, (usize, String)>, Vec<String>) {
    let mut run = Run::new(plan.setup, keep_trace);
    let mut result = run.begin();
    let mut at = 0;
    for step in &plan.steps {
        if result.is_err() {
            break;
        }
        result = run.step(*step);
        at += 1;
    }
    if result.is_ok() {
        result = run.calm();
    }
    let trace = run.trace.take().unwrap_or_default();
    (result.map(|()| run.figures).map_err(|why| (at, why)), trace)
}

impl Run {
    pub(super) fn new(setup: Setup, keep_trace: bool) -> Self {
        Self {
            setup,
            server: Server::new(Timestamp::from_seconds(START)),
            replicas: Vec::new(),
            jobs: 0,
            by_hand: BTreeSet::new(),
            objects: setup.objects(),
            figures: Figures::default(),
            trace: keep_trace.then(Vec::new),
        }
    }

    fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    pub(super) fn begin(&mut self) -> Result<(), String> {
        for object in &self.objects {
            self.server.create(object.clone());
        }
        let first = Replica::start(self.setup.configuration(), &self.server, 1);
        self.replicas.push(first);
        self.settle()
    }

    fn leader(&mut self) -> Option<(&mut Replica, &mut Server)> {
        self.replicas.first_mut().map(|r| (r, &mut self.server))
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        let Some(what) = self.act(step)? else { return Ok(()) };
        self.figures.events += 1;
        self.figures.faults += u64::from(step.action.is_fault());
        let kind = Action::FAULTS.iter().position(|kind| *kind == step.action);
        if let Some(count) = kind.and_then(|place| self.figures.by_kind.get_mut(place)) {
            *count += 1;
        }
        let now = self.server.now.seconds() - START;
        self.say(|| format!("{now:>5} s  {step}: {what}"));
        self.after()
    }

    /// What must hold after everything that happens.
    pub(super) fn after(&mut self) -> Result<(), String> {
        for replica in &mut self.replicas {
            replica.follow(&self.server);
        }
        self.server.wrong.take().map_or(Ok(()), Err)
    }

    fn act(&mut self, step: Step) -> Result<Option<String>, String> {
        let Step { action, which, how } = step;
        if self.setup.overlap && matches!(action, Action::Wait | Action::Sleep | Action::ClockAhead) {
            // Watches may be late, but not for so long that a workload is known for seconds and its job is not.
            for replica in &mut self.replicas {
                replica.deliver_jobs(&self.server);
            }
        }
        let setup = self.setup;
        let number = self.jobs;
        let Some((leader, server)) = self.leader() else { return Ok(None) };
        let done = match action {
            Action::Deliver => leader.deliver(server, which, how),
            Action::DeliverKind => {
                Some(leader.deliver_all(server, Some(which))).filter(|n| *n > 0).map(|n| n.to_string())
            }
            Action::DeliverAll => Some(leader.deliver_all(server, None)).filter(|n| *n > 0).map(|n| n.to_string()),
            Action::Repeat => leader.repeat(server, which),
            Action::Relist => Some(leader.relist(server, which, how)),
            Action::Reconcile | Action::Crash if leader.fenced => None,
            Action::Reconcile => {
                let texts = leader.reconcile(server)?;
                Some(texts.join("; "))
            }
            Action::Perform => leader.perform(server, which, Fate::Arrives),
            Action::PerformAll => {
                let mut texts = Vec::new();
                while let Some(text) = leader.perform(server, 0, Fate::Arrives) {
                    texts.push(text);
                }
                while let Some(text) = leader.answer(server, 0) {
                    texts.push(text);
                }
                (!texts.is_empty()).then(|| texts.join("; "))
            }
            Action::Answer => leader.answer(server, which),
            Action::Conflict => {
                let chosen = leader.writes.get(super::dice::place(which, leader.writes.len()));
                if let Some(object) = chosen.map(|p| p.write.operation.object()) {
                    actors::touch(server, &object, how);
                }
                leader.perform(server, which, Fate::Arrives)
            }
            Action::Fail => leader.perform(server, which, Fate::Fails),
            Action::LoseAnswer => leader.perform(server, which, Fate::AnswerLost),
            Action::Refuse => leader.perform(server, which, Fate::Refused),
            Action::Crash => {
                *leader = Replica::start(setup.configuration(), server, how);
                self.figures.crashes += 1;
                Some("another starts".to_owned())
            }
            Action::Overlap => {
                if !setup.overlap || self.replicas.len() > 1 {
                    return Ok(None);
                }
                let next = Replica::start(setup.configuration(), &self.server, how);
                self.replicas.iter_mut().for_each(|r| r.fenced = true);
                self.replicas.insert(0, next);
                self.figures.crashes += 1;
                Some("another takes over".to_owned())
            }
            Action::Depose => {
                if self.replicas.len() < 2 {
                    return Ok(None);
                }
                self.replicas.retain(|r| !r.fenced);
                Some("one controller is left".to_owned())
            }
            Action::Turn => {
                if self.replicas.len() < 2 {
                    return Ok(None);
                }
                self.replicas.rotate_left(1);
                Some(String::new())
            }
            Action::ClockAhead => {
                leader.ahead = leader.ahead.saturating_add(i64::from(how % 300) * 1_000_000);
                Some(format!("{} s", leader.ahead / 1_000_000))
            }
            Action::ClockBack => {
                leader.ahead -= i64::from(how % 5_000) * 1_000;
                Some(format!("{} ms", leader.ahead / 1000))
            }
            Action::Wait => {
                server.advance(i64::from(how % 30_000) * 1_000);
                Some(String::new())
            }
            Action::Sleep => {
                let until = leader.wake_at.map(|at| at.micros_since(leader.now(server)));
                until.filter(|wait| *wait > 0).map(|wait| {
                    server.advance(wait.min(600_000_000));
                    format!("{} s", wait / 1_000_000)
                })
            }
            Action::Submit => {
                let done = actors::submit(server, &setup, number, which, how);
                self.jobs += 1;
                done
            }
            Action::SubmitJobSet => {
                let done = actors::submit_jobset(server, number, which, how);
                self.jobs += 1;
                done
            }
            Action::Withdraw => actors::withdraw(server, which),
            Action::Resize => actors::resize(server, &setup, which, how),
            Action::Reprioritize => actors::reprioritize(server, which, how),
            Action::ChangeClass => actors::change_class(server, which, how),
            Action::Toggle => {
                let done = actors::toggle(server, which);
                self.by_hand.extend(done.as_ref().filter(|(_, suspended)| !suspended).map(|(job, _)| job.clone()));
                done.map(|(job, suspended)| format!("{job} suspend={suspended}"))
            }
            Action::Deactivate => actors::deactivate(server, which),
            Action::Reactivate => actors::reactivate(server, which),
            Action::DeleteWorkload => actors::delete_workload(server, which),
            Action::Move => {
                let queue = ["a", "b", "c"].get(super::dice::place(how, 3)).copied().unwrap_or("a");
                actors::relabel(server, defaults_queue(), queue, which)
            }
            Action::LeaveQueue => {
                let job = actors::chosen(&actors::open_jobs(server), which);
                job.map(|job| actors::leave_queue(server, defaults_queue(), job))
            }
            Action::StopClusterQueue => actors::stop_cluster_queue(server, which, how),
            Action::StopLocalQueue => actors::stop_local_queue(server, which, how),
            Action::ChangeQuota => actors::change_quota(server, which, how),
            Action::DropLocalQueue => actors::drop_queue(server, &setup, true, which),
            Action::DropClusterQueue => actors::drop_queue(server, &setup, false, which),
            Action::DropFlavor => actors::drop_flavor(server, which),
            Action::SwitchCheck => actors::switch_check(server, None),
            Action::Pods | Action::Ready | Action::PodFails | Action::PodDone | Action::Finish => {
                actors::job_step(server, action, which, how)
            }
            Action::AnswerCheck => actors::answer_check(server, which, how),
            Action::AnswerRequest => actors::answer_request(server, which, how, false),
            Action::DropRequest => actors::drop_request(server, which),
            Action::Meddle => actors::meddle(server, which, how),
        };
        Ok(done)
    }

    // ----- when nothing goes wrong any more -----

    /// Lets everything that is on its way arrive, and the controller act, until there is nothing more to do at this time.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MOST_ROUNDS {
            let Some((leader, server)) = self.leader() else { return Ok(()) };
            let mut texts = Vec::new();
            let mut events = leader.deliver_all(server, None);
            while let Some(text) = leader.answer(server, 0) {
                texts.push(text);
                events += 1;
            }
            let decided = leader.reconcile(server)?;
            while let Some(text) = leader.perform(server, 0, Fate::Arrives) {
                texts.push(text);
                events += 1;
            }
            let quiet = leader.is_quiet();
            self.figures.events += u64::try_from(events).unwrap_or(0) + 1;
            let now = self.server.now.seconds() - START;
            self.say(|| format!("{now:>5} s  settling: {} | {}", decided.join("; "), texts.join("; ")));
            self.after()?;
            if quiet && self.replicas.first().is_some_and(Replica::is_quiet) {
                return Ok(());
            }
        }
        Err("the controller never comes to rest".to_owned())
    }

    /// Faults stop. Everything that is decided is decided well, until nothing more happens.
    fn rest(&mut self) -> Result<(), String> {
        let mut wakes = 0;
        for _ in 0..MOST_WISHES {
            self.settle()?;
            if actors::restore(&mut self.server, &self.objects) {
                self.after()?;
                continue;
            }
            if let Some(text) = actors::wish_well(&mut self.server) {
                self.figures.events += 1;
                self.say(|| format!("         {text}"));
                self.after()?;
                continue;
            }
            let Some(wake) = self.replicas.first().and_then(|r| r.wake_at) else { return Ok(()) };
            let wait = wake.micros_since(self.server.now);
            if wait <= 0 {
                return Err("it wants to be called again at once, and has nothing to do".to_owned());
            }
            wakes += 1;
            if wakes > 200 {
                return Err("it wants to be called again and again".to_owned());
            }
            self.server.advance(wait);
            self.after()?;
        }
        Err("it never ends".to_owned())
    }

    /// Once faults stop everything settles, everything that fits runs, and all jobs come to their end.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.say(|| "faults stop".to_owned());
        self.replicas.retain(|r| !r.fenced);
        if let Some(leader) = self.replicas.first_mut() {
            leader.ahead = 0;
        }
        for _ in 0..100 {
            self.rest()?;
            self.at_rest()?;
            let running: Vec<Object> = actors::jobs(&self.server)
                .into_iter()
                .filter(|j| !actors::job_is_finished(j) && !actors::is_suspended(j))
                .collect();
            let open = actors::jobs(&self.server).iter().filter(|j| !actors::job_is_finished(j)).count();
            if open == 0 {
                return self.at_end();
            }
            if running.is_empty() {
                return Err(format!("{open} jobs are left, and none of them runs"));
            }
            for job in running {
                actors::finish(&mut self.server, &job, false);
                self.figures.events += 1;
                self.figures.finished += 1;
            }
            self.after()?;
        }
        Err("jobs wait for ever".to_owned())
    }
}

fn defaults_queue() -> &'static str {
    crate::defaults::QUEUE_NAME
}
