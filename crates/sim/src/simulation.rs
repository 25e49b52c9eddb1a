//! The loop: events happen, controllers look at what changed, time moves on.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::scenario::Scenario;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::metrics::Recording;
use slicegate_controller::{Configuration, Controller, EventRecord, WriteError, WriteOutcome};
use slicegate_workload::Timestamp;

use crate::admission::Admission;
use crate::defaults;
use crate::duration::Elapsed;
use crate::input::{Files, Input, Item, ScenarioError};
use crate::plan::{Action, Plan, Step};
use crate::report::Report;
use crate::sampler::Sampler;
use crate::store::{History, Store, Webhooks};
use crate::timeline::{Entry, EntryKind};
use crate::verdict::{JobVerdict, verdicts};
use crate::world::{Event, World};

/// Rounds at one moment after which it is taken for a fault that nothing settles.
const ROUNDS: usize = 100_000;
/// Calls on the controller's own account, one after another, that may change nothing.
const IDLE_WAKES: usize = 100;

/// A Kubernetes Event that the controller recorded, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedEvent {
    /// When.
    pub time: Timestamp,
    /// The event.
    pub event: EventRecord,
}

/// What came of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When it started.
    pub start: Timestamp,
    /// When the last thing happened, or when it was stopped.
    pub end: Timestamp,
    /// Whether it was stopped while there was more to come.
    pub stopped: bool,
    /// What happened.
    pub timeline: Vec<Entry>,
    /// What was taken otherwise than written, or taken to be there.
    pub warnings: Vec<String>,
    /// Every version of every object, if it was kept.
    pub history: History,
    /// The objects at the end.
    pub objects: BTreeMap<ObjectRef, Object>,
    /// The Events that the controller recorded.
    pub events: Vec<RecordedEvent>,
    /// Metrics over time, if they were asked for.
    pub metrics: Option<Recording>,
    /// What became of each job.
    pub verdicts: Vec<JobVerdict>,
    /// How well the chips were used.
    pub report: Report,
}

impl Outcome {
    /// The objects as they were at a time; those at the end if no history was kept.
    pub fn objects_at(&self, time: Timestamp) -> BTreeMap<ObjectRef, Object> {
        if self.history.revisions().is_empty() || time >= self.end {
            self.objects.clone()
        } else {
            self.history.at(time)
        }
    }
}

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A node has more pods than it has room for.
    #[error("node {node} is overcommitted: {used} of {allocatable} {resource} are used")]
    Overcommitted {
        /// The node.
        node: Box<str>,
        /// The resource.
        resource: Box<str>,
        /// What its pods use.
        used: String,
        /// What it has.
        allocatable: String,
    },
    /// What is counted for a node is not what its pods use.
    #[error("node {node}: {counted} {resource} are counted, but its pods use {used}")]
    Miscounted {
        /// The node.
        node: Box<str>,
        /// The resource.
        resource: Box<str>,
        /// What is counted.
        counted: String,
        /// What its pods use.
        used: String,
    },
    /// Chips of a node belong to several pods.
    #[error("the chips of node {node} belong to {} pods", pods.len())]
    SharedChips {
        /// The node.
        node: Box<str>,
        /// The pods.
        pods: Vec<ObjectRef>,
    },
    /// A multi-host pool has some of its nodes only.
    #[error("node pool {pool} has {nodes} nodes, but its slice has {hosts}: it must have all or none")]
    BrokenSlice {
        /// The pool.
        pool: Box<str>,
        /// Its nodes.
        nodes: usize,
        /// Those of its slice.
        hosts: u32,
    },
    /// A pod is on a node that is not there.
    #[error("{pod} is on node {node}, which is not there")]
    Homeless {
        /// The pod.
        pod: ObjectRef,
        /// The node.
        node: Box<str>,
    },
    /// A pod is ready on a node that does not answer.
    #[error("{pod} is taken for ready, but its node {node} does not answer")]
    NotReady {
        /// The pod.
        pod: ObjectRef,
        /// The node.
        node: Box<str>,
    },
    /// A Slice that is formed or being formed has not all of its nodes, or a node is marked for one that is not.
    #[error("Slice {slice} is on {nodes} nodes, but it has {hosts}: it must be whole or absent")]
    PartialSlice {
        /// The Slice.
        slice: Box<str>,
        /// Its nodes.
        nodes: usize,
        /// Those that it should have.
        hosts: usize,
    },
    /// Chips of a node belong to several Slices.
    #[error("the chips of node {node} belong to several Slices: {}", slices.join(", "))]
    SharedPartition {
        /// The node.
        node: Box<str>,
        /// The Slices.
        slices: Vec<String>,
    },
    /// Pods of several Jobs lie in one exclusive topology domain.
    #[error("{domain} holds pods of several exclusive Jobs of one priority: {}", keys.join(", "))]
    SharedDomain {
        /// The domain.
        domain: Box<str>,
        /// The Jobs' keys.
        keys: Vec<String>,
    },
}

/// A simulated cluster with a controller.
pub struct Simulation<A = Controller> {
    world: World,
    admission: A,
    steps: Vec<Step>,
    events: Vec<RecordedEvent>,
    sampler: Option<Sampler>,
    wake: Option<Timestamp>,
    idle_wakes: usize,
    /// What the API server refused, and why: said once.
    refused: BTreeSet<(ObjectRef, String)>,
    last: Timestamp,
    over: bool,
    /// When the simulation was stopped with more to come.
    stopped: Option<Timestamp>,
}

impl Simulation<Controller> {
    /// A simulation with Slicegate's controller.
    ///
    /// # Errors
    /// If the scenario cannot be played; all that is wrong with it.
    pub fn new(input: Input, files: &dyn Files, configuration: Configuration) -> Result<Self, Vec<ScenarioError>> {
        let webhooks = Webhooks { policy: configuration.job_policy(), rules: configuration.rules() };
        let mut simulation = Self::with(input, files, Controller::new(configuration))?;
        simulation.world.store.set_webhooks(webhooks);
        Ok(simulation)
    }
}

impl<A: Admission> Simulation<A> {
    /// A simulation with this controller.
    ///
    /// # Errors
    /// If the scenario cannot be played; all that is wrong with it.
    pub fn with(input: Input, files: &dyn Files, admission: A) -> Result<Self, Vec<ScenarioError>> {
        let keep_history = input.options.keep_history;
        let metrics_every = input.options.metrics_every;
        let plan = Plan::new(input, files)?;
        let mut world = World::new(plan.settings, keep_history);
        for (number, step) in plan.steps.iter().enumerate() {
            world.queue.schedule(world.settings.start.plus_micros(step.at), Event::Scripted(number));
        }
        for namespace in namespaces(&plan.steps) {
            if let Ok(object) = Kind::Namespace.read(serde_json::json!({
                "metadata": {"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}}
            })) {
                let _ = world.store.create(object);
            }
        }
        let last = world.now;
        let configuration = admission.controller().map(Controller::configuration);
        let sampler = metrics_every.map(|every| Sampler::new(world.now, every, configuration));
        Ok(Self {
            world,
            admission,
            steps: plan.steps,
            events: Vec::new(),
            sampler,
            wake: None,
            idle_wakes: 0,
            refused: BTreeSet::new(),
            last,
            over: false,
            stopped: None,
        })
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        while self.step() {}
        self.finish()
    }

    /// Lets the next thing happen, with everything that follows at once. Answers whether there was one.
    pub fn step(&mut self) -> bool {
        if self.over {
            return false;
        }
        let limit = self.world.settings.until.map(|until| self.world.settings.start.plus_micros(until));
        let Some((at, _)) = self.world.queue.peek() else {
            self.over = true;
            return false;
        };
        if limit.is_some_and(|limit| at > limit) {
            self.stopped = limit;
            self.over = true;
            return false;
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.hold(at, self.admission.controller());
        }
        self.world.set_now(at);
        let told = self.world.timeline.len();
        let mut wakes_only = true;
        // What a scenario says happens one by one; what else is due at this moment happens together.
        while let Some((_, event)) = self.world.queue.pop() {
            match event {
                Event::Scripted(number) => {
                    wakes_only = false;
                    self.play(number);
                }
                Event::Wake => {
                    if self.wake == Some(at) {
                        self.wake = None;
                    }
                }
                event => {
                    wakes_only = false;
                    self.world.happen(event);
                }
            }
            if !matches!(self.world.queue.peek(), Some((next, event)) if next == at && (self.is_start(at) || !matches!(event, Event::Scripted(_))))
            {
                break;
            }
        }
        let changed = self.settle();
        if changed || self.world.timeline.len() > told {
            self.world.measure();
            self.last = at;
        }
        let only_wakes_left = self.world.queue.iter().all(|event| *event == Event::Wake);
        if wakes_only && !changed && only_wakes_left {
            self.idle_wakes += 1;
            self.over |= self.idle_wakes >= IDLE_WAKES;
        } else {
            self.idle_wakes = 0;
        }
        true
    }

    fn is_start(&self, at: Timestamp) -> bool {
        at == self.world.settings.start
    }

    /// What came of it.
    pub fn finish(mut self) -> Outcome {
        let later = self.stopped.map(|at| at.micros_since(self.world.settings.start));
        let later = self.steps.iter().filter(|step| later.is_some_and(|at| step.at > at));
        let verdicts = verdicts(&self.world, later.filter_map(Step::item));
        let end = self.stopped.unwrap_or(self.last);
        let metrics = self.sampler.map(|sampler| sampler.finish(end, self.admission.controller()));
        let history = self.world.store.take_history();
        let objects = self.world.store.take_objects();
        Outcome {
            start: self.world.settings.start,
            end,
            report: self.world.gauge.finish(end),
            stopped: self.stopped.is_some(),
            timeline: self.world.timeline,
            warnings: self.world.warnings,
            history,
            objects,
            events: self.events,
            metrics,
            verdicts,
        }
    }

    /// The simulated time.
    pub fn now(&self) -> Timestamp {
        self.world.now
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.world.store
    }

    /// The controller.
    pub fn admission(&self) -> &A {
        &self.admission
    }

    /// What happened so far.
    pub fn timeline(&self) -> &[Entry] {
        &self.world.timeline
    }

    fn play(&mut self, number: usize) {
        // A document is applied once; nothing keeps it afterwards.
        let nothing = Action::Apply(Item::Scenario(Scenario::default()));
        match std::mem::replace(&mut self.steps[number].action, nothing) {
            Action::Apply(item) => self.apply(item),
            action => self.world.play(action),
        }
    }

    fn apply(&mut self, item: Item) {
        let object = match item {
            Item::NodePool(pool) => {
                self.world.add_node_pool(&pool);
                self.world.say(None, EntryKind::Applied, format!("NodePool {}", pool.name));
                return;
            }
            Item::Scenario(_) => return,
            Item::Object(object) => object,
        };
        let mut document = object;
        if document.kind().is_namespaced() && document.namespace().is_empty() {
            document.metadata_mut().namespace = Some("default".to_owned());
        }
        let key = document.reference();
        let mut completed = defaults::complete(document.clone());
        self.world.complete_for_slices(&mut completed);
        if let Object::Job(job) = &mut completed {
            let uid = self.world.store.next_uid(&key);
            crate::workloads::job::complete_job(std::sync::Arc::make_mut(job), &uid);
        }
        if let Object::Pod(pod) = &mut completed {
            let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.clone());
            let priority = self.world.priority_of(class.as_deref());
            if let Some(spec) = &mut std::sync::Arc::make_mut(pod).spec {
                defaults::complete_pod(spec, priority);
            }
        }
        match self.world.store.apply(&document, completed) {
            Ok(how) => {
                let text = match how {
                    crate::store::Applied::Created => "applied",
                    crate::store::Applied::Configured => "applied again, changed",
                    crate::store::Applied::Unchanged => "applied again, unchanged",
                };
                self.world.say(Some(key.clone()), EntryKind::Applied, text.to_owned());
                let made = self.world.store.get(&key);
                let queued = made.is_some_and(|o| defaults::label(o.metadata(), defaults::QUEUE_NAME).is_some());
                if queued
                    && crate::plan::is_job(&document)
                    && let Some(why) = crate::verdict::missing_class(&self.world, &document)
                {
                    self.world.say(Some(key), EntryKind::Waiting, format!("gets no workload: {why}"));
                }
            }
            Err(error) => self.world.say(Some(key), EntryKind::Refused, error.to_string()),
        }
    }

    /// Tells everybody what changed.
    fn pump(&mut self) -> bool {
        let changes = self.world.store.take_changes();
        let any = !changes.is_empty();
        for change in changes {
            if let Some(sampler) = &mut self.sampler {
                sampler.observe(self.world.now, &change);
            }
            self.world.dispatch(&change);
            self.admission.observe(self.world.now, change);
        }
        any
    }

    /// Lets everybody act until nobody has anything to do at this moment. Answers whether anything changed.
    fn settle(&mut self) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS {
            any |= self.pump();
            if self.world.work() {
                continue;
            }
            let effects = self.admission.reconcile(self.world.now);
            let time = self.world.now;
            self.events.extend(effects.events.into_iter().map(|event| RecordedEvent { time, event }));
            for note in effects.notes {
                self.world.note(note);
            }
            if !effects.writes.is_empty() {
                for write in effects.writes {
                    let object = write.operation.object();
                    let result = self.world.store.write(write.operation);
                    // A write that fails changes nothing, however often it is tried.
                    any |= result.is_ok();
                    match &result {
                        Err(error @ WriteError::Invalid { .. }) => {
                            self.world.refused.insert(object.clone(), error.to_string());
                            if self.refused.insert((object.clone(), error.to_string())) {
                                self.world.say(Some(object), EntryKind::Refused, error.to_string());
                            }
                        }
                        Err(_) => {}
                        Ok(_) => drop(self.world.refused.remove(&object)),
                    }
                    self.admission.complete(time, WriteOutcome { id: write.id, result });
                }
                continue;
            }
            if effects.wake_at.is_some_and(|at| at <= time) {
                continue;
            }
            self.world.autoscale();
            if self.world.store.has_changes() || self.world.nodes.retry {
                continue;
            }
            if let Some(at) = effects.wake_at
                && self.wake.is_none_or(|wake| at < wake)
            {
                self.wake = Some(at);
                self.world.queue.schedule(at, Event::Wake);
            }
            return any;
        }
        let at = Elapsed(self.world.now.micros_since(self.world.settings.start));
        self.world.warn(format!("at {at} the controller did not come to rest in {ROUNDS} rounds"));
        self.over = true;
        any
    }

    /// Checks what must hold at every moment.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), Vec<Violation>> {
        let violations = self.world.violations();
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

fn namespaces(steps: &[Step]) -> Vec<String> {
    let mut names = vec!["default".to_owned()];
    let mut own = Vec::new();
    for item in steps.iter().filter_map(Step::item) {
        if let Item::Object(object) = item {
            if object.kind() == Kind::Namespace {
                own.push(object.name().to_owned());
            }
            if object.kind().is_namespaced() && !object.namespace().is_empty() {
                names.push(object.namespace().to_owned());
            }
        }
    }
    names.sort();
    names.dedup();
    names.retain(|name| !own.contains(name));
    names
}

impl World {
    /// Everything that does not hold and should.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.check_slices(&mut found);
        for pool in &self.nodes.pools {
            if let crate::cluster::pool::Growth::Whole { hosts } = pool.growth {
                let nodes = pool.nodes.len();
                // The hosts of a cube come and go one by one.
                if nodes != 0 && !pool.is_cube() && u32::try_from(nodes) != Ok(hosts) {
                    found.push(Violation::BrokenSlice { pool: pool.name.clone(), nodes, hosts });
                }
            }
            for node in pool.nodes.iter().filter_map(|id| self.nodes.node(*id)) {
                self.check_node(node, pool, &mut found);
            }
        }
        for (key, object) in self.store.of_kind(Kind::Pod) {
            let Object::Pod(pod) = object else { continue };
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            if let Some(node) = node
                && !crate::cluster::is_over(pod)
                && self.nodes.node_of(key).is_none_or(|on| *on.name != *node)
            {
                found.push(Violation::Homeless { pod: key.clone(), node: node.into() });
            }
            if let Some(on) = self.nodes.node_of(key).filter(|node| !node.ready)
                && crate::cluster::is_running(pod)
            {
                found.push(Violation::NotReady { pod: key.clone(), node: on.name.clone() });
            }
        }
        found
    }

    /// Recomputes from the pods themselves what a node's books say.
    fn check_node(
        &self,
        node: &crate::cluster::NodeState,
        pool: &crate::cluster::pool::Pool,
        found: &mut Vec<Violation>,
    ) {
        let mut used = slicegate_workload::ResourceList::new();
        let mut chip_users = Vec::new();
        let mut keys: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for key in &node.pods {
            let Some(Object::Pod(pod)) = self.store.get(key) else { continue };
            let Some(spec) = &pod.spec else { continue };
            for (name, quantity) in crate::cluster::shape::pod_spec(spec).requests() {
                if *name == *defaults::TPU && !quantity.is_zero() {
                    chip_users.push(key.clone());
                }
                let sum = used.entry(name).or_insert_with(|| quantity.minus(quantity));
                *sum = sum.plus(quantity);
            }
            if let Some(gang) = crate::cluster::gang_of(pod) {
                let all = keys.entry((gang.topology.to_string(), gang.scope.to_string())).or_default();
                if !all.contains(&gang.key.to_string()) {
                    all.push(gang.key.to_string());
                }
            }
        }
        for (resource, counted) in &node.used {
            let used = used.get(resource).copied().unwrap_or_default();
            if used != *counted {
                let (counted, used) = (counted.to_string(), used.to_string());
                found.push(Violation::Miscounted {
                    node: node.name.clone(),
                    resource: resource.clone(),
                    counted,
                    used,
                });
            }
        }
        for (resource, used) in used {
            let have = pool.allocatable.get(&resource).copied().unwrap_or_default();
            if used > have {
                let (used, allocatable) = (used.to_string(), have.to_string());
                found.push(Violation::Overcommitted { node: node.name.clone(), resource, used, allocatable });
            }
        }
        if chip_users.len() > 1 {
            found.push(Violation::SharedChips { node: node.name.clone(), pods: chip_users });
        }
        for (_, keys) in keys {
            if keys.len() > 1 {
                found.push(Violation::SharedDomain { domain: node.name.clone(), keys });
            }
        }
    }
}
