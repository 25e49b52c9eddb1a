//! Scenarios on the engine alone.
//!
//! After every step all invariants of the engine are checked, that no usage is negative, that nobody who holds quota is
//! admitted and that nobody who was told to stop is told again. When things have settled, more cycles may change nothing, nor
//! may another engine that takes the place of this one.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_admission::lifecycle::{At, FinishReason, finish, release, sync_pending};
use slicegate_admission::{Config, Engine, Outcome, Written};
use slicegate_api::{Object, convert};
use slicegate_quota::Amount;
use slicegate_workload::{Key, LocalQueueSpec, Stage, Timestamp, Workload, WorkloadStatus};

use crate::expect;
use crate::scenario::{self, Create, Expect, NAMESPACE, Preemption, START, Step};

/// More cycles than this before things settle are a fault.
const MOST_CYCLES: usize = 60;
/// So many cycles in a row that change nothing mean that things have settled.
const IDLE_CYCLES: usize = 3;

type Result<T = ()> = std::result::Result<T, String>;

/// All that an idle cycle must not change.
#[derive(PartialEq, Debug)]
struct Snapshot {
    statuses: Vec<WorkloadStatus>,
    /// By ClusterQueue: who waits, and whether parked.
    queues: Vec<Vec<(Key, bool)>>,
}

struct Lab {
    engine: Engine,
    /// What the engine was told of, but workloads.
    objects: Vec<Object>,
    now: Timestamp,
    /// The API server.
    store: BTreeMap<Key, Workload>,
    cluster_queues: BTreeSet<Box<str>>,
    cohorts: BTreeSet<Box<str>>,
    holds_evictions: bool,
    /// Who holds quota, and who was told to give it back.
    holding: BTreeSet<Key>,
    evicting: BTreeSet<Key>,
    preemptions: Vec<Preemption>,
    preemption_count: usize,
    cycles: usize,
    /// Everything that was decided.
    trace: Vec<String>,
}

/// Plays the steps twice, and says what was decided.
pub(super) fn play(objects: &str, steps: &[Step]) -> Result<Vec<String>> {
    let objects = scenario::objects(objects)?;
    let once = || -> Result<Vec<String>> {
        let mut lab = Lab::new(&objects)?;
        for (number, step) in steps.iter().enumerate() {
            lab.step(step).and_then(|()| lab.check()).map_err(|why| step.failed(number, &why))?;
        }
        Ok(lab.trace)
    };
    let first = once()?;
    let second = once()?;
    if first == second { Ok(first) } else { Err(format!("not the same twice:\n{first:#?}\n{second:#?}")) }
}

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

impl Lab {
    fn new(objects: &[Object]) -> Result<Self> {
        let mut lab = Self {
            engine: Engine::new(Config::new()),
            objects: Vec::new(),
            now: Timestamp::from_seconds(START),
            store: BTreeMap::new(),
            cluster_queues: BTreeSet::new(),
            cohorts: BTreeSet::new(),
            holds_evictions: false,
            holding: BTreeSet::new(),
            evicting: BTreeSet::new(),
            preemptions: Vec::new(),
            preemption_count: 0,
            cycles: 0,
            trace: Vec::new(),
        };
        lab.engine.set_namespace(lab.now, NAMESPACE, BTreeMap::new());
        for object in objects {
            lab.apply(object)?;
            lab.check()?;
        }
        Ok(lab)
    }

    fn apply(&mut self, object: &Object) -> Result {
        let text = |e: convert::ConvertError| e.to_string();
        match object {
            Object::ResourceFlavor(flavor) => self.engine.set_flavor(self.now, convert::flavor(flavor).map_err(text)?),
            Object::Topology(topology) => self.engine.set_topology(self.now, convert::topology(topology)),
            Object::Node(node) => {
                let value = serde_json::to_value(&**node).map_err(|e| e.to_string())?;
                self.engine.set_node(self.now, slicegate_tests::objects::node(&value).map_err(|e| e.to_string())?);
            }
            Object::Cohort(cohort) => {
                let spec = convert::cohort(cohort).map_err(text)?;
                self.cohorts.insert(spec.name.clone());
                self.engine.set_cohort(self.now, spec).map_err(|e| e.to_string())?;
            }
            Object::ClusterQueue(queue) => {
                let spec = convert::cluster_queue(queue).map_err(text)?;
                self.cohorts.extend(spec.cohort.clone());
                self.cluster_queues.insert(spec.name.clone());
                let local = LocalQueueSpec {
                    key: key(&format!("lq-{}", spec.name)),
                    cluster_queue: spec.name.clone(),
                    ..LocalQueueSpec::default()
                };
                self.engine.set_cluster_queue(self.now, spec);
                self.engine.set_local_queue(self.now, local);
            }
            other => return Err(format!("{}: not a thing that the engine knows", other.reference())),
        }
        self.objects.push(object.clone());
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result {
        match step {
            Step::Create(create) => self.create(create),
            Step::Settle => {
                self.settle()?;
                self.stays_settled()?;
                self.survives_a_restart()
            }
            Step::Cycle => self.cycle(),
            Step::HoldEvictions => {
                self.holds_evictions = true;
                Ok(())
            }
            Step::CompleteEviction(name) => self.complete_eviction(&key(name)),
            Step::Finish(names) => names.iter().try_for_each(|name| self.finish(&key(name))),
            Step::Apply(value) => self.apply(&scenario::object(value)?),
            Step::Expect(expect) => self.expect(expect),
            Step::At(_) | Step::Edit(_) => Err("the engine alone does not do that".into()),
        }
    }

    // ----- what happens ----------------------------------------------------------------------------------------------

    fn create(&mut self, create: &Create) -> Result {
        let template = scenario::workload(&create.object()?)?;
        for name in create.names() {
            self.now = self.now.plus_seconds(1);
            let mut workload = template.clone();
            workload.key.name = name.as_str().into();
            workload.uid = format!("uid-of-{name}").into();
            workload.created = self.now;
            workload.generation = 1;
            if self.store.insert(workload.key.clone(), workload.clone()).is_some() {
                return Err(format!("{name} is made twice"));
            }
            self.engine.set_workload(self.now, workload);
        }
        Ok(())
    }

    fn finish(&mut self, name: &Key) -> Result {
        let workload = self.store.get_mut(name).filter(|w| w.is_admitted()).ok_or("it does not run")?;
        let at = At { now: self.now, generation: workload.generation };
        finish(&mut workload.status, FinishReason::Succeeded, "Done", at);
        self.engine.set_workload(self.now, workload.clone());
        self.holding.remove(name);
        Ok(())
    }

    fn complete_eviction(&mut self, name: &Key) -> Result {
        if !self.evicting.remove(name) {
            return Err(format!("{name} was not told to stop"));
        }
        let workload = self.store.get_mut(name).ok_or("no such workload")?;
        let at = At { now: self.now, generation: workload.generation };
        let mut status = workload.status.clone();
        release(workload, &mut status, at, &self.engine.config().gates);
        workload.status = status;
        self.engine.set_workload(self.now, workload.clone());
        self.holding.remove(name);
        Ok(())
    }

    fn cycle(&mut self) -> Result {
        self.cycles += 1;
        // Whoever waits for quota that was freed is woken before the cycle, not with the next batch.
        self.engine.flush(self.now);
        let cycle = self.engine.cycle(self.now);
        let mut changed = BTreeSet::new();
        for eviction in cycle.evictions {
            let victim = eviction.workload;
            if !self.holding.contains(&victim) || !self.evicting.insert(victim.clone()) {
                return Err(format!("{victim} is evicted, but holds nothing or is leaving already"));
            }
            let (by, reason) = eviction.preemptor.ok_or("an eviction for nobody")?;
            let preemption =
                Preemption { by: by.name.to_string(), of: victim.name.to_string(), reason: reason.as_str().to_owned() };
            self.trace.push(format!("{preemption:?}"));
            self.preemptions.push(preemption);
            self.preemption_count += 1;
            self.write(&victim, eviction.status);
            self.engine.eviction_written(self.now, &victim, Written::Ok);
            changed.insert(victim);
        }
        for entry in cycle.entries {
            self.trace.push(format!("{}: {:?}", entry.workload, entry.outcome));
            let admitted = matches!(entry.outcome, Outcome::Admitted { .. });
            if admitted && !self.holding.insert(entry.workload.clone()) {
                return Err(format!("{} is admitted twice", entry.workload));
            }
            if let Some(status) = entry.status {
                self.write(&entry.workload, status);
                changed.insert(entry.workload.clone());
            }
            if admitted {
                self.engine.admission_written(self.now, &entry.workload, Written::Ok);
            }
        }
        for name in changed {
            if let Some(workload) = self.store.get(&name) {
                self.engine.set_workload(self.now, workload.clone());
            }
        }
        self.check()?;
        if !self.holds_evictions {
            for name in self.evicting.clone() {
                self.complete_eviction(&name)?;
                self.check()?;
            }
        }
        Ok(())
    }

    fn write(&mut self, name: &Key, status: WorkloadStatus) {
        if let Some(workload) = self.store.get_mut(name) {
            workload.status = status;
        }
    }

    fn settle(&mut self) -> Result {
        let mut before = self.snapshot();
        let mut idle = 0;
        for _ in 0..MOST_CYCLES {
            self.cycle()?;
            let after = self.snapshot();
            idle = if before == after { idle + 1 } else { 0 };
            before = after;
            if idle == IDLE_CYCLES {
                self.cycles -= IDLE_CYCLES;
                return Ok(());
            }
        }
        Err(format!("not settled after {MOST_CYCLES} cycles"))
    }

    /// Lets everybody who was not looked at say so, then runs more cycles.
    fn stays_settled(&mut self) -> Result {
        for workload in self.store.values_mut().filter(|w| w.stage() == Stage::Pending) {
            let facts = self.engine.pending_facts(workload);
            let at = At { now: self.now, generation: workload.generation };
            let mut status = workload.status.clone();
            if sync_pending(workload, &mut status, &facts, at, &self.engine.config().gates) {
                workload.status = status;
                self.engine.set_workload(self.now, workload.clone());
            }
        }
        let settled = self.snapshot();
        let cycles = self.cycles;
        for _ in 0..IDLE_CYCLES {
            self.cycle()?;
            let after = self.snapshot();
            if after != settled {
                return Err(format!("an idle cycle changed something:\n{settled:#?}\n{after:#?}"));
            }
        }
        self.cycles = cycles;
        Ok(())
    }

    /// Another engine that is told of everything as it now is decides nothing else.
    fn survives_a_restart(&self) -> Result {
        let mut other = Self::new(&self.objects)?;
        other.now = self.now;
        other.store.clone_from(&self.store);
        other.holding.clone_from(&self.holding);
        other.evicting.clone_from(&self.evicting);
        other.holds_evictions = self.holds_evictions;
        for workload in self.store.values() {
            other.engine.set_workload(self.now, workload.clone());
        }
        other.check()?;
        other.settle()?;
        if (&other.holding, &other.evicting) == (&self.holding, &self.evicting) && other.preemption_count == 0 {
            Ok(())
        } else {
            Err(format!("a restart changes who runs: {:#?}", other.trace))
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut queues = Vec::new();
        for name in &self.cluster_queues {
            queues.push(self.engine.pending(name).into_iter().map(|p| (p.workload, p.parked)).collect());
        }
        Snapshot { statuses: self.store.values().map(|w| w.status.clone()).collect(), queues }
    }

    // ----- what must hold --------------------------------------------------------------------------------------------

    fn check(&self) -> Result {
        self.engine.check().map_err(|e| e.to_string())?;
        for name in &self.cluster_queues {
            let report = self.engine.cluster_queue(name).ok_or_else(|| format!("ClusterQueue {name} is gone"))?;
            let negative = report.reservation.iter().chain(&report.usage).find(|u| u.total < Amount::ZERO);
            if let Some(usage) = negative {
                return Err(format!("ClusterQueue {name} uses less than nothing: {usage:?}"));
            }
        }
        for (name, workload) in &self.store {
            if workload.has_quota_reservation() != self.holding.contains(name) && !workload.is_finished() {
                return Err(format!("{name}: its status does not say what was decided: {:?}", workload.status));
            }
        }
        Ok(())
    }

    fn expect(&mut self, expect: &Expect) -> Result {
        let mut wrong = expect::workloads(expect, &|name| self.store.get(&key(name)), self.store.values(), START);
        wrong.extend(expect::preemptions(expect, &self.preemptions, self.preemption_count));
        for (name, part) in &expect.why {
            let why = self.engine.why(self.now, &key(name)).map(|e| e.to_string()).unwrap_or_default();
            if !why.contains(part.as_str()) {
                wrong.push(format!("{name} is said to wait because: {why}"));
            }
        }
        if expect.cycles_at_most.is_some_and(|most| self.cycles > most) {
            wrong.push(format!("it took {} cycles", self.cycles));
        }
        if !expect.fields.is_empty() || !expect.as_written.is_empty() {
            wrong.push("the engine knows no objects".into());
        }
        self.preemptions.clear();
        self.cycles = 0;
        if wrong.is_empty() { Ok(()) } else { Err(format!("{}\n{:#?}", wrong.join("\n"), self.trace)) }
    }
}
