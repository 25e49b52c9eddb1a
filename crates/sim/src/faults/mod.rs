//! Everything that can go wrong between a controller and its API server, as often and in whatever order, and the same each time.
//!
//! A [`Plan`] is a cluster and a list of [`Step`]s, both drawn from a seed. In a run watches are late, reordered between objects
//! and between kinds, repeated, or start again from older lists; writes conflict, fail, or succeed without an answer; controllers
//! die between any two writes, start anew, and overlap; clocks jump. Meanwhile users, admins and other controllers change what
//! they like. After every step the objects are looked at as the API server holds them. In the end faults stop, and everything
//! must settle: a controller that starts then agrees with every decision, what fits runs, jobs come to their end, and nothing is
//! used any more.
//!
//! Leaders are fenced as they are in a cluster: who loses the lease decides nothing any more, though what it has sent may arrive
//! late, and who gets it lists everything after that. Every write names the version that it was decided on, so that a late one
//! conflicts. A write without an answer may be tried again; what is admitted must fit into the quotas that were known then or at
//! some time since, for others may have been admitted after it, and by other quotas. A controller that starts has no memory of
//! who preempted whom and looks at everything; whom it preempts at rest the old one preempts, too, once it has to look at
//! everything anew.
//!
//! [`Failure::shrink`] leaves out steps as long as the run still fails.

mod actors;
mod dice;
mod model;
mod replica;
mod rest;
mod rules;
mod run;
mod server;
mod setup;
mod step;

use std::fmt;
use std::str::FromStr;

use dice::Dice;

pub use model::{Explored, explore};
pub use setup::Setup;
pub use step::{Action, Step};

/// What happens in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The cluster.
    pub setup: Setup,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Things that happened.
    pub events: u64,
    /// Those of them that were faults.
    pub faults: u64,
    /// The faults by kind, as [`Action::FAULTS`] lists them.
    pub by_kind: [u64; Action::FAULTS.len()],
    /// How often a controller was replaced by another: because it died, or because another took over.
    pub crashes: u64,
    /// Jobs that came to their end after the faults had stopped.
    pub finished: u64,
}

impl Figures {
    /// The figures of both runs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let mut by_kind = self.by_kind;
        for (count, more) in by_kind.iter_mut().zip(other.by_kind) {
            *count = count.saturating_add(more);
        }
        Self {
            by_kind,
            events: self.events.saturating_add(other.events),
            faults: self.faults.saturating_add(other.faults),
            crashes: self.crashes.saturating_add(other.crashes),
            finished: self.finished.saturating_add(other.finished),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {} faults (", self.events, self.faults)?;
        for (place, (kind, count)) in Action::FAULTS.iter().zip(self.by_kind).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{kind:?} {count}")?;
        }
        write!(f, "), {} controllers replaced, {} jobs brought to their end afterwards", self.crashes, self.finished)
    }
}

/// A run in which something was not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The run.
    pub plan: Plan,
    /// After how many steps.
    pub after: usize,
    /// What was wrong.
    pub what: String,
}

impl Plan {
    /// The run of a seed, with so many steps before faults stop.
    pub fn new(seed: u64, steps: usize) -> Self {
        let mut dice = Dice::new(seed);
        let setup = Setup::draw(&mut dice);
        Self { setup, steps: (0..steps).map(|_| Step::draw(&mut dice)).collect() }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If something is not as it must be.
    pub fn run(&self) -> Result<Figures, Box<Failure>> {
        run::run(self, false).0.map_err(|(after, what)| Box::new(Failure { plan: self.clone(), after, what }))
    }

    /// Runs it and tells what happened, line by line.
    pub fn trace(&self) -> Vec<String> {
        let (result, mut trace) = run::run(self, true);
        if let Err((_, what)) = result {
            trace.push(what);
        }
        trace
    }
}

impl Failure {
    /// What is wrong, without names and numbers.
    fn class(&self) -> String {
        let words =
            self.what.split_whitespace().filter(|w| w.chars().all(|c| c.is_ascii_lowercase() || ",;:".contains(c)));
        words.take(8).collect::<Vec<_>>().join(" ")
    }

    /// The shortest run found that fails in the same way.
    #[must_use]
    pub fn shrink(self) -> Self {
        let mut best = self;
        let class = best.class();
        best.plan.steps.truncate(best.after);
        let mut chunk = best.plan.steps.len().div_ceil(2);
        while chunk > 0 {
            let mut from = 0;
            let mut shorter = false;
            while from < best.plan.steps.len() {
                let mut plan = best.plan.clone();
                let until = from.saturating_add(chunk).min(plan.steps.len());
                plan.steps.drain(from..until);
                match plan.run() {
                    Err(failure) if failure.class() == class => {
                        best = *failure;
                        best.plan.steps.truncate(best.after);
                        shorter = true;
                    }
                    _ => from = until,
                }
            }
            if !shorter || chunk > 1 {
                chunk /= 2;
            }
        }
        best
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setup)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// A plan cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "line {line} is no {what}: {text:?}; a plan is a line of words that describe the cluster and lines `Action number number`"
)]
pub struct ParsePlanError {
    line: usize,
    what: &'static str,
    text: String,
}

impl FromStr for Plan {
    type Err = ParsePlanError;

    /// Reads what [`fmt::Display`] writes. Empty lines and those that begin with `#` are passed over.
    fn from_str(text: &str) -> Result<Self, ParsePlanError> {
        let mut setup = None;
        let mut steps = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
        for (number, line) in lines {
            let error = |what| ParsePlanError { line: number + 1, what, text: line.to_owned() };
            if setup.is_none() {
                setup = Some(Setup::parse(line).ok_or_else(|| error("setup"))?);
            } else {
                steps.push(Step::parse(line).ok_or_else(|| error("step"))?);
            }
        }
        Ok(Self { setup: setup.unwrap_or_default(), steps })
    }
}
