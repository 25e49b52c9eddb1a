//! Random events on an engine, out of bytes: whatever happens, in whatever order, its invariants hold, nothing is admitted
//! above the limits, and once nothing more happens it comes to rest.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_admission::lifecycle::{At, FinishReason, finish, release, required_checks, sync_admitted, sync_checks};
use slicegate_admission::{
    AdmissionFairSharing, Cause, CheckSpec, Config, Cycle, Engine, FairSharing, Outcome, WaitForPodsReady, Written,
};
use slicegate_placement::{HOSTNAME_LABEL, Node, admission_uses_node};
use slicegate_quota::{Amount, Quantity, Weight};
use slicegate_workload::{
    BorrowWithinCohort, CheckState, ClusterQueueSpec, CohortSpec, ConditionType, Container, FlavorFungibility,
    FlavorQuotas, FlavorSpec, FungibilityPolicy, Key, LabelSelector, LocalQueueSpec, PodSet, PodSpec, PreemptionPolicy,
    QueueingStrategy, ReclaimPolicy, ReclaimablePods, ResourceGroup, ResourceQuota, Resources, Status, StopPolicy,
    Taint, TaintEffect, Timestamp, TopologyRequest, TopologySpec, WithinClusterQueuePolicy, Workload, WorkloadSpec,
};

#[path = "drive_slices.rs"]
mod slices;

const QUEUES: u8 = 5;
const COHORTS: u8 = 3;
const FLAVORS: u8 = 3;
const WORKLOADS: u8 = 24;
const NODES: u8 = 6;
const RACK: &str = "example.com/rack";
const RESOURCES: [&str; 2] = ["cpu", slicegate_tpu::RESOURCE];

/// After so many rounds without an event the engine has to be at rest: far more than all preemptions that so few workloads
/// can do to one another.
const ROUNDS: usize = 300;

/// How much happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Cycles with at least one head.
    pub cycles: usize,
    /// Decisions to give quota.
    pub admissions: usize,
    /// Of those in part only.
    pub partial: usize,
    /// Of those on nodes by topology.
    pub placed: usize,
    /// Of those to move off a node that failed.
    pub moved: usize,
    /// Decisions to evict.
    pub evictions: usize,
    /// Admissions to whole slices.
    pub sliced: usize,
    /// Workloads that waited for whole slices at the end.
    pub short: usize,
}

/// Does what the bytes say and checks everything on the way.
///
/// # Errors
/// The first thing that is wrong, with what happened before it.
pub fn drive(bytes: &[u8]) -> Result<Tally, String> {
    let mut input = Input { bytes };
    // Whether flavors have topologies.
    let placed = bytes.first().is_some_and(|bits| bits & 128 != 0);
    // Whether flavors ask for whole slices; events leave this bit alone.
    let sliced = !placed && bytes.get(1).is_some_and(|bits| bits & 128 != 0);
    let mut drive = Drive::new(config(&mut input), placed, sliced);
    match drive.everything(&mut input) {
        Ok(()) => Ok(drive.tally),
        Err(why) => Err(format!("{why}\nafter:\n  {}", drive.log.join("\n  "))),
    }
}

/// Choices, read off the bytes; the first one each time once they are used up.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((&first, rest)) => {
                self.bytes = rest;
                first
            }
            None => 0,
        }
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end.max(1)
    }

    fn one_in(&mut self, n: u8) -> bool {
        self.below(n) == n - 1
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// An amount of quota, mostly small.
    fn amount(&mut self) -> Quantity {
        match self.byte() {
            255 => Quantity::from_units(i64::MAX),
            254 => Quantity::from_millis(1500),
            n => Quantity::from_units(i64::from(n % 12)),
        }
    }

    fn limit(&mut self) -> Option<Quantity> {
        self.one_in(3).then(|| self.amount())
    }
}

fn config(input: &mut Input<'_>) -> Config {
    let mut config = Config::new();
    let bits = input.byte();
    if bits & 1 != 0 {
        config.fair_sharing = Some(FairSharing::default());
    }
    if bits & 2 != 0 {
        config.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life_seconds: 10,
            sampling_interval_seconds: 5,
            ..AdmissionFairSharing::default()
        });
    }
    if bits & 4 != 0 {
        config.wait_for_pods_ready = Some(WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() });
    }
    for (bit, gate) in [(8, "PrioritizePreemptorWorkloads"), (16, "PriorityBoost"), (32, "ConcurrentAdmission")] {
        // A gate that is not known is no matter here: the default stays.
        let _ = config.gates.set(gate, bits & bit != 0);
    }
    if bits & 64 != 0 {
        for gate in
            ["SchedulingEquivalenceHashing", "FlavorFungibilityPreserveScanProgress", "PrioritySortingWithinCohort"]
        {
            let _ = config.gates.set(gate, false);
        }
    }
    config
}

struct Drive {
    engine: Engine,
    now: Timestamp,
    /// The API server.
    store: BTreeMap<Key, Workload>,
    /// Workloads whose last change the engine was not told yet.
    unseen: BTreeSet<Key>,
    queues: BTreeMap<Box<str>, ClusterQueueSpec>,
    cohorts: BTreeMap<Box<str>, CohortSpec>,
    /// Whether flavors have topologies.
    placed: bool,
    /// Whether flavors ask for whole slices.
    sliced: bool,
    hardware: slices::Hardware,
    created: u32,
    log: Vec<String>,
    tally: Tally,
}

fn key(n: u8) -> Key {
    Key::new(if n.is_multiple_of(5) { "other" } else { "default" }, format!("w{n}"))
}

impl Drive {
    fn new(config: Config, placed: bool, sliced: bool) -> Self {
        let mut drive = Self {
            engine: Engine::new(config),
            now: Timestamp::from_seconds(1_000),
            store: BTreeMap::new(),
            unseen: BTreeSet::new(),
            queues: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            placed,
            sliced,
            hardware: slices::Hardware::default(),
            created: 0,
            log: Vec::new(),
            tally: Tally::default(),
        };
        for namespace in ["default", "other"] {
            drive.engine.set_namespace(drive.now, namespace, BTreeMap::new());
        }
        for n in 0..FLAVORS {
            drive.engine.set_flavor(drive.now, flavor(n, false, placed, sliced));
        }
        if sliced {
            drive.hardware.start(drive.now, &mut drive.engine);
        }
        if placed {
            let levels = vec![RACK.into(), HOSTNAME_LABEL.into()];
            drive.engine.set_topology(drive.now, TopologySpec { name: "t".into(), levels });
            for n in 0..4 {
                drive.engine.set_node(drive.now, node(n, 4_000, true));
            }
        }
        // Something to begin with: ClusterQueues that lend to one another.
        for n in 0..QUEUES {
            let quota = ResourceQuota { nominal: Quantity::from_units(2), borrowing_limit: None, lending_limit: None };
            let name = if placed || sliced { format!("f{}", n % FLAVORS) } else { "f0".to_owned() };
            let mut resources: Vec<(Box<str>, ResourceQuota)> = vec![(RESOURCES[0].into(), quota)];
            if sliced {
                resources.push((RESOURCES[1].into(), ResourceQuota { nominal: Quantity::from_units(16), ..quota }));
            }
            let covered_resources = resources.iter().map(|(name, _)| name.clone()).collect();
            let flavors = vec![FlavorQuotas { name: name.into(), resources }];
            let spec = ClusterQueueSpec {
                name: format!("q{n}").into(),
                resource_groups: vec![ResourceGroup { covered_resources, flavors }],
                cohort: Some("c0".into()),
                namespace_selector: Some(LabelSelector::default()),
                preemption: PreemptionPolicy {
                    reclaim_within_cohort: ReclaimPolicy::Any,
                    within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
                    borrow_within_cohort: None,
                },
                ..ClusterQueueSpec::default()
            };
            drive.queues.insert(spec.name.clone(), spec.clone());
            drive.engine.set_cluster_queue(drive.now, spec);
            let spec = LocalQueueSpec {
                key: Key::new("default", format!("l{n}")),
                cluster_queue: format!("q{n}").into(),
                ..LocalQueueSpec::default()
            };
            drive.engine.set_local_queue(drive.now, spec);
        }
        drive
    }

    fn everything(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        while !input.is_empty() {
            self.event(input)?;
            self.engine.check().map_err(|e| e.to_string())?;
        }
        self.settle()?;
        self.restart()
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        self.log.push(text());
    }

    fn event(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        match input.below(64) {
            0..=2 => self.set_queue(input),
            3 => {
                let name = format!("q{}", input.below(QUEUES));
                self.note(|| format!("remove ClusterQueue {name}"));
                self.queues.remove(name.as_str());
                self.engine.remove_cluster_queue(self.now, &name);
            }
            4 => self.set_cohort(input),
            5 => {
                let name = format!("c{}", input.below(COHORTS));
                self.note(|| format!("remove Cohort {name}"));
                self.cohorts.remove(name.as_str());
                self.engine.remove_cohort(self.now, &name);
            }
            6 => {
                let (n, tainted) = (input.below(FLAVORS), input.one_in(4));
                self.note(|| format!("flavor f{n}, tainted: {tainted}"));
                self.engine.set_flavor(self.now, flavor(n, tainted, self.placed, self.sliced));
            }
            7 => {
                let n = input.below(FLAVORS);
                self.note(|| format!("remove flavor f{n}"));
                self.engine.remove_flavor(self.now, &format!("f{n}"));
            }
            8 => self.set_local_queue(input),
            9..=31 => self.set_workload(input),
            32..=34 => self.finish(input),
            35 => {
                let key = key(input.below(WORKLOADS));
                self.note(|| format!("delete {key}"));
                self.store.remove(&key);
                self.unseen.remove(&key);
                self.engine.remove_workload(self.now, &key);
            }
            36 | 37 => self.checks(input),
            38 | 39 => self.pods(input),
            40..=42 => self.let_go(),
            43 | 44 => {
                let seconds = i64::from(input.below(20));
                self.note(|| format!("{seconds} s pass"));
                self.now = self.now.plus_seconds(seconds);
            }
            45 => {
                let n = input.below(2);
                let spec =
                    CheckSpec { name: format!("check{n}").into(), controller: "x".into(), active: !input.one_in(3) };
                self.note(|| format!("{spec:?}"));
                if input.one_in(4) {
                    self.engine.remove_admission_check(self.now, &spec.name);
                } else {
                    self.engine.set_admission_check(self.now, spec);
                }
            }
            46 => {
                let gone = input.one_in(4);
                self.note(|| format!("namespace other, gone: {gone}"));
                if gone {
                    self.engine.remove_namespace(self.now, "other");
                } else {
                    self.engine.set_namespace(self.now, "other", BTreeMap::new());
                }
            }
            47..=49 => self.tell(),
            50 => self.engine.flush(self.now),
            52..=56 if self.sliced => {
                let what = self.hardware.event(input, self.now, &mut self.engine);
                self.note(|| what);
            }
            52 | 53 if self.placed => self.set_node(input),
            54 | 56 if self.placed => self.fail_node(input),
            55 if self.placed => self.other_pod(input),
            51 => self.cycle(|input| input.pick(&[Written::Ok, Written::Failed, Written::NotFound]), input)?,
            _ => self.cycle(|_| Written::Ok, input)?,
        }
        Ok(())
    }

    // ----- nodes ---------------------------------------------------------------------------------------------------

    fn set_node(&mut self, input: &mut Input<'_>) {
        let node = node(input.below(NODES), i64::from(input.below(9)) * 1_000, !input.one_in(5));
        self.note(|| format!("{node:?}"));
        self.engine.set_node(self.now, node);
    }

    /// A node goes, most often one that is in use, and whoever has pods on it is told.
    fn fail_node(&mut self, input: &mut Input<'_>) {
        let runs = |w: &&Workload| w.is_admitted() && !w.is_finished() && !w.is_evicted();
        let given = self.store.values().filter(runs).filter_map(|w| w.status.admission.as_ref());
        let places = given.flat_map(|a| &a.pod_set_assignments).filter_map(|p| p.topology_assignment.as_ref());
        let mut names: Vec<String> =
            places.flat_map(|t| &t.domains).filter_map(|d| d.values.last()).map(ToString::to_string).collect();
        names.push(format!("n{}", input.below(NODES)));
        let name = names[usize::from(input.byte()) % names.len()].clone();
        self.note(|| format!("remove node {name}"));
        self.engine.remove_node(self.now, &name);
        let uses =
            |w: &&Workload| runs(w) && w.status.admission.as_ref().is_some_and(|a| admission_uses_node(a, &name));
        let concerned: Vec<Workload> = self.store.values().filter(uses).cloned().collect();
        for mut workload in concerned {
            workload.status.unhealthy_nodes = vec![name.as_str().into()];
            self.put(workload);
        }
    }

    fn other_pod(&mut self, input: &mut Input<'_>) {
        let pod = Key::new("kube-system", format!("p{}", input.below(4)));
        if input.one_in(3) {
            self.note(|| format!("remove pod {pod}"));
            self.engine.remove_other_pod(self.now, &pod);
            return;
        }
        let (node, cpu) = (format!("n{}", input.below(NODES)), i64::from(input.below(4)) * 500);
        self.note(|| format!("pod {pod} on {node} with {cpu}"));
        self.engine.set_other_pod(self.now, &pod, &node, [("cpu", cpu)].into_iter().collect());
    }

    // ----- configuration -------------------------------------------------------------------------------------------

    fn set_queue(&mut self, input: &mut Input<'_>) {
        let name = format!("q{}", input.below(QUEUES));
        let cohort = input.below(COHORTS + 1);
        let groups = resource_groups(input, self.sliced);
        let bits = input.byte();
        let spec = ClusterQueueSpec {
            name: name.as_str().into(),
            resource_groups: groups,
            cohort: (cohort < COHORTS).then(|| format!("c{cohort}").into()),
            queueing_strategy: if bits & 1 != 0 {
                QueueingStrategy::StrictFifo
            } else {
                QueueingStrategy::BestEffortFifo
            },
            namespace_selector: Some(LabelSelector::default()),
            flavor_fungibility: FlavorFungibility {
                when_can_borrow: fungibility(bits & 2 != 0),
                when_can_preempt: fungibility(bits & 4 != 0),
                ..FlavorFungibility::default()
            },
            preemption: PreemptionPolicy {
                reclaim_within_cohort: input.pick(&[
                    ReclaimPolicy::Never,
                    ReclaimPolicy::LowerPriority,
                    ReclaimPolicy::Any,
                ]),
                within_cluster_queue: input.pick(&[
                    WithinClusterQueuePolicy::Never,
                    WithinClusterQueuePolicy::LowerPriority,
                    WithinClusterQueuePolicy::LowerOrNewerEqualPriority,
                ]),
                borrow_within_cohort: (bits & 8 != 0).then_some(BorrowWithinCohort {
                    lower_priority: true,
                    max_priority_threshold: (bits & 16 != 0).then_some(1),
                }),
            },
            admission_checks: (bits & 0xe0 == 0xe0)
                .then(|| slicegate_workload::AdmissionCheckRule { name: "check0".into(), on_flavors: Vec::new() })
                .into_iter()
                .collect(),
            stop_policy: if bits & 0xe0 == 0xc0 { StopPolicy::Hold } else { StopPolicy::None },
            fair_weight: Weight::from_nanos(u64::from(input.below(3)) * 1_000_000_000),
            usage_based_fair_sharing: bits & 32 != 0,
            ..ClusterQueueSpec::default()
        };
        self.note(|| format!("{spec:?}"));
        self.queues.insert(spec.name.clone(), spec.clone());
        self.engine.set_cluster_queue(self.now, spec);
    }

    fn set_cohort(&mut self, input: &mut Input<'_>) {
        let n = input.below(COHORTS);
        let parent = input.below(COHORTS + 3);
        let spec = CohortSpec {
            name: format!("c{n}").into(),
            parent: (parent < COHORTS).then(|| format!("c{parent}").into()),
            resource_groups: if input.one_in(2) { resource_groups(input, self.sliced) } else { Vec::new() },
            fair_weight: Weight::from_nanos(u64::from(input.below(3)) * 1_000_000_000),
        };
        self.note(|| format!("{spec:?}"));
        self.cohorts.insert(spec.name.clone(), spec.clone());
        // Cycles of cohorts are refused, but taken in: they may be broken up later.
        let _ = self.engine.set_cohort(self.now, spec);
    }

    fn set_local_queue(&mut self, input: &mut Input<'_>) {
        let (namespace, n) = (input.pick(&["default", "default", "other"]), input.below(QUEUES));
        let to = input.below(QUEUES);
        let key = Key::new(namespace, format!("l{n}"));
        if input.one_in(6) {
            self.note(|| format!("remove LocalQueue {key}"));
            self.engine.remove_local_queue(self.now, &key);
            return;
        }
        let stop_policy = if input.one_in(6) { StopPolicy::Hold } else { StopPolicy::None };
        let spec =
            LocalQueueSpec { key, cluster_queue: format!("q{to}").into(), stop_policy, ..LocalQueueSpec::default() };
        self.note(|| format!("{spec:?}"));
        self.engine.set_local_queue(self.now, spec);
    }

    // ----- workloads -----------------------------------------------------------------------------------------------

    fn set_workload(&mut self, input: &mut Input<'_>) {
        let key = key(input.below(WORKLOADS));
        let old = self.store.get(&key);
        if let Some(old) = old
            && input.one_in(2)
        {
            // It is kept but for one thing.
            let mut workload = old.clone();
            match input.below(3) {
                0 => workload.spec.priority = i32::from(input.below(4)),
                1 => workload.spec.active = !workload.spec.active,
                _ => workload.spec.queue_name = format!("l{}", input.below(QUEUES)).into(),
            }
            workload.generation += 1;
            self.note(|| format!("change {} to {:?}", workload.key, workload.spec));
            self.put(workload);
            return;
        }
        self.created += 1;
        let (placed, sliced) = (self.placed, self.sliced);
        let pod_sets = (0..=u8::from(input.one_in(4))).map(|n| {
            let mut pod_set = pod_set(n, input, placed);
            if sliced {
                slices::ask(&mut pod_set, input);
            }
            pod_set
        });
        let pod_sets = pod_sets.collect();
        let workload = Workload {
            key,
            uid: format!("uid{:04}", self.created).into(),
            created: self.now,
            generation: 1,
            spec: WorkloadSpec {
                queue_name: format!("l{}", input.below(QUEUES)).into(),
                pod_sets,
                priority: i32::from(input.below(4)),
                ..WorkloadSpec::default()
            },
            ..Workload::default()
        };
        self.note(|| format!("{} at {}: {:?}", workload.key, workload.created.seconds(), workload.spec));
        self.put(workload);
    }

    /// Writes an object and tells the engine.
    fn put(&mut self, workload: Workload) {
        self.store.insert(workload.key.clone(), workload.clone());
        self.unseen.remove(&workload.key);
        self.engine.set_workload(self.now, workload);
    }

    fn finish(&mut self, input: &mut Input<'_>) {
        let Some(mut workload) = self.chosen(input, Workload::is_admitted) else { return };
        self.note(|| format!("finish {}", workload.key));
        let at = At { now: self.now, generation: workload.generation };
        finish(&mut workload.status, FinishReason::Succeeded, "done", at);
        self.put(workload);
    }

    /// One of the workloads of which something is true.
    fn chosen(&self, input: &mut Input<'_>, of: impl Fn(&Workload) -> bool) -> Option<Workload> {
        let all: Vec<&Workload> = self.store.values().filter(|w| of(w)).collect();
        let n = u8::try_from(all.len()).unwrap_or(u8::MAX);
        all.get(usize::from(input.below(n))).map(|w| (*w).clone())
    }

    /// Admission checks of a workload come to something.
    fn checks(&mut self, input: &mut Input<'_>) {
        let Some(mut workload) = self.chosen(input, Workload::has_quota_reservation) else { return };
        let state = input.pick(&[CheckState::Ready, CheckState::Ready, CheckState::Pending, CheckState::Retry]);
        self.note(|| format!("checks of {}: {state:?}", workload.key));
        let queue = workload.status.admission.as_ref().and_then(|a| self.queues.get(&a.cluster_queue));
        if let Some(queue) = queue {
            let required = required_checks(queue, workload.status.admission.as_ref());
            sync_checks(&mut workload.status.admission_checks, &required, self.now);
        }
        for check in &mut workload.status.admission_checks {
            check.state = state;
        }
        let at = At { now: self.now, generation: workload.generation };
        sync_admitted(&mut workload.status, at, &self.engine.config().gates);
        self.put(workload);
    }

    /// Pods become ready, or some are done.
    fn pods(&mut self, input: &mut Input<'_>) {
        let Some(mut workload) = self.chosen(input, Workload::is_admitted) else { return };
        let at = At { now: self.now, generation: workload.generation };
        if input.one_in(2) {
            let count = i32::from(input.below(3));
            let name = workload.spec.pod_sets.first().map(|p| p.name.clone()).unwrap_or_default();
            self.note(|| format!("{count} pods of {} are done", workload.key));
            workload.status.reclaimable_pods = vec![ReclaimablePods { name, count }];
        } else {
            self.note(|| format!("pods of {} are ready", workload.key));
            at.set(&mut workload.status, ConditionType::PodsReady, Status::True, "PodsReady", "ready");
        }
        self.put(workload);
    }

    /// Everything that is being evicted lets go of its quota.
    fn let_go(&mut self) {
        let gates = self.engine.config().gates;
        let leaving: Vec<Workload> =
            self.store.values().filter(|w| w.is_evicted() && w.has_quota_reservation()).cloned().collect();
        for mut workload in leaving {
            self.note(|| format!("{} lets go", workload.key));
            let mut status = workload.status.clone();
            release(&workload, &mut status, At { now: self.now, generation: workload.generation }, &gates);
            workload.status = status;
            self.put(workload);
        }
    }

    /// The engine hears of what was written.
    fn tell(&mut self) {
        for key in std::mem::take(&mut self.unseen) {
            if let Some(workload) = self.store.get(&key) {
                self.engine.set_workload(self.now, workload.clone());
            }
        }
    }

    // ----- cycles --------------------------------------------------------------------------------------------------

    fn cycle(&mut self, written: impl Fn(&mut Input<'_>) -> Written, input: &mut Input<'_>) -> Result<(), String> {
        let cycle = self.decide()?;
        self.write(cycle, written, input);
        Ok(())
    }

    /// One cycle, after which all limits hold as well as before.
    fn decide(&mut self) -> Result<Cycle, String> {
        let (before, full) = (self.excesses(), self.engine.overcommitted_nodes());
        let missing = self.engine.slices_missing();
        let cycle = self.engine.cycle(self.now);
        self.engine.check().map_err(|e| format!("right after cycle {}: {e}", cycle.number))?;
        self.limits_hold(&before, &cycle)?;
        if cycle.entries.iter().all(|e| e.then.is_none()) {
            let after = self.engine.overcommitted_nodes();
            if let Some(node) = after.iter().find(|n| !full.contains(n)) {
                return Err(format!("cycle {}: {node:?} is given more than it has", cycle.number));
            }
            let short = self.engine.slices_missing();
            if short > missing {
                return Err(format!(
                    "cycle {}: {short} slices are given that are not there, before {missing}",
                    cycle.number
                ));
            }
        }
        Ok(cycle)
    }

    fn write(&mut self, cycle: Cycle, written: impl Fn(&mut Input<'_>) -> Written, input: &mut Input<'_>) {
        let number = cycle.number;
        self.tally.cycles += usize::from(!cycle.entries.is_empty());
        self.tally.evictions += cycle.evictions.len();
        for eviction in cycle.evictions {
            let result = written(input);
            self.note(|| {
                format!("cycle {number}: evict {} for {:?}: {result:?}", eviction.workload, eviction.preemptor)
            });
            if result == Written::Ok {
                self.shown(&eviction.workload, |status| *status = eviction.status);
            }
            self.engine.eviction_written(self.now, &eviction.workload, result);
        }
        for entry in cycle.entries {
            let is_admission = matches!(entry.outcome, Outcome::Admitted { .. });
            let moves = self.store.get(&entry.workload).is_some_and(|w| !w.status.unhealthy_nodes.is_empty());
            let result = if is_admission { written(input) } else { Written::Ok };
            let outcome = format!("{:?}", entry.outcome);
            let word = outcome.split([' ', '(']).next().unwrap_or_default().to_owned();
            self.note(|| format!("cycle {number}: {} of {}: {word}: {result:?}", entry.workload, entry.cluster_queue));
            if result == Written::Ok
                && let Some(status) = entry.status
            {
                self.shown(&entry.workload, |old| *old = status);
            }
            if let Outcome::Admitted { admission, .. } = &entry.outcome {
                self.tally.admissions += 1;
                let places = admission.pod_set_assignments.iter().any(|p| p.topology_assignment.is_some());
                self.tally.placed += usize::from(places);
                self.tally.moved += usize::from(moves);
                let asked =
                    self.store.get(&entry.workload).map_or(0, |w| w.spec.pod_sets.iter().map(|p| p.count).sum());
                let given: i32 = admission.pod_set_assignments.iter().filter_map(|a| a.count).sum();
                self.tally.partial += usize::from(given < asked);
                self.engine.admission_written(self.now, &entry.workload, result);
                self.tally.sliced += usize::from(self.engine.slices_held(&entry.workload) > 0);
            }
            if let Some(then) = entry.then.filter(|_| result == Written::Ok) {
                self.shown(&then.workload, |old| *old = then.status);
            }
        }
    }

    fn shown(&mut self, key: &Key, change: impl FnOnce(&mut slicegate_workload::WorkloadStatus)) {
        if let Some(workload) = self.store.get_mut(key) {
            change(&mut workload.status);
            self.unseen.insert(key.clone());
        }
    }

    /// How far ClusterQueues and Cohorts are above their limits, by node, flavor and resource; below is less than 0.
    fn excesses(&self) -> BTreeMap<(String, Box<str>, Box<str>), Amount> {
        let mut all = BTreeMap::new();
        for (name, spec) in &self.queues {
            let Some(report) = self.engine.cluster_queue(name) else { continue };
            for usage in report.reservation {
                let (nominal, borrowing) = limits(&spec.resource_groups, &usage.flavor, &usage.resource);
                let limit = match (&spec.cohort, borrowing) {
                    (None, _) => nominal,
                    (Some(_), None) => Amount::UNLIMITED,
                    (Some(_), Some(more)) => nominal.plus(more),
                };
                let place = (format!("ClusterQueue {name}"), usage.flavor, usage.resource);
                all.insert(place, usage.total.minus(limit));
            }
        }
        for n in 0..COHORTS {
            let name = format!("c{n}");
            let Some(report) = self.engine.cohort(&name) else { continue };
            let spec = self.cohorts.get(name.as_str());
            for (usage, quota) in report.subtree {
                let groups = spec.map(|s| s.resource_groups.as_slice()).unwrap_or_default();
                let (_, borrowing) = limits(groups, &usage.flavor, &usage.resource);
                let limit = match (spec.and_then(|s| s.parent.as_ref()), borrowing) {
                    (None, _) => quota,
                    (Some(_), None) => Amount::UNLIMITED,
                    (Some(_), Some(more)) => quota.plus(more),
                };
                all.insert((format!("Cohort {name}"), usage.flavor, usage.resource), usage.total.minus(limit));
            }
        }
        all
    }

    /// No node is further above its limits than before, unless some who use it are leaving: what they free may be given away
    /// before they are gone.
    fn limits_hold(
        &self,
        before: &BTreeMap<(String, Box<str>, Box<str>), Amount>,
        cycle: &Cycle,
    ) -> Result<(), String> {
        let leaving = !cycle.evictions.is_empty()
            || self.store.values().any(|w| w.is_evicted() && w.has_quota_reservation())
            || cycle.entries.iter().any(|e| e.then.is_some());
        if leaving {
            return Ok(());
        }
        for (place, excess) in self.excesses() {
            if excess > Amount::ZERO && before.get(&place).is_none_or(|old| excess > *old) {
                return Err(format!(
                    "cycle {}: {place:?} is {excess} above its limits, before {:?}",
                    cycle.number,
                    before.get(&place)
                ));
            }
        }
        Ok(())
    }

    /// With no outside event nothing changes after a while.
    fn settle(&mut self) -> Result<(), String> {
        self.note(|| "nothing more happens".to_owned());
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            self.tell();
            self.let_go();
            self.now = self.now.plus_seconds(2);
            let cycle = self.decide()?;
            let changes = cycle.evictions.len()
                + cycle.entries.iter().filter(|e| matches!(e.outcome, Outcome::Admitted { .. })).count();
            self.write(cycle, |_| Written::Ok, &mut Input { bytes: &[] });
            quiet = if changes == 0 { quiet + 1 } else { 0 };
            if quiet > usize::from(WORKLOADS) + 3 {
                if self.sliced {
                    let keys: Vec<Key> = self.store.keys().cloned().collect();
                    let causes = keys.iter().filter_map(|key| self.engine.why(self.now, key));
                    self.tally.short += causes.filter(|w| w.cause == Cause::WholeSlicesMissing).count();
                    self.engine.check().map_err(|e| format!("after it was asked why: {e}"))?;
                }
                return Ok(());
            }
        }
        Err(format!("not at rest after {ROUNDS} rounds"))
    }

    /// An engine that is told everything anew counts the same.
    fn restart(&mut self) -> Result<(), String> {
        self.tell();
        let mut fresh = Engine::new(self.engine.config().clone());
        for n in 0..FLAVORS {
            fresh.set_flavor(self.now, flavor(n, false, self.placed, self.sliced));
        }
        self.hardware.tell(self.now, &mut fresh);
        for spec in self.cohorts.values() {
            let _ = fresh.set_cohort(self.now, spec.clone());
        }
        for spec in self.queues.values() {
            fresh.set_cluster_queue(self.now, spec.clone());
        }
        for workload in self.store.values() {
            fresh.set_workload(self.now, workload.clone());
        }
        fresh.check().map_err(|e| format!("after a restart: {e}"))?;
        for name in self.queues.keys() {
            let count = |engine: &Engine| engine.cluster_queue(name).map(|r| (r.reserving, r.admitted, r.reservation));
            let (old, new) = (count(&self.engine), count(&fresh));
            if old != new {
                return Err(format!("{name} after a restart: {new:?}, before {old:?}"));
            }
        }
        Ok(())
    }
}

fn fungibility(next: bool) -> FungibilityPolicy {
    if next { FungibilityPolicy::TryNextFlavor } else { FungibilityPolicy::MayStopSearch }
}

/// A node in one of two racks, half of them of the pool of the last flavor.
fn node(n: u8, cpu: i64, ready: bool) -> Node {
    let name = format!("n{n}");
    let labels = [
        (HOSTNAME_LABEL.into(), name.as_str().into()),
        (RACK.into(), format!("r{}", n % 2).into()),
        ("pool".into(), format!("p{}", n / 2 % 2).into()),
    ];
    Node {
        name: name.into(),
        labels: labels.into(),
        ready,
        allocatable: [("cpu", cpu), (RESOURCES[1], 4), ("pods", 5)].into_iter().collect(),
        ..Node::default()
    }
}

/// With topologies the first flavor has none, the second takes all nodes and the last some of them.
fn flavor(n: u8, tainted: bool, placed: bool, sliced: bool) -> FlavorSpec {
    let taint = Taint { key: "t".into(), value: Box::default(), effect: TaintEffect::NoSchedule };
    let flavor = FlavorSpec {
        name: format!("f{n}").into(),
        node_taints: tainted.then_some(taint).into_iter().collect(),
        node_labels: (placed && n == 2).then(|| ("pool".into(), "p0".into())).into_iter().collect(),
        topology: (placed && n > 0).then(|| "t".into()),
        ..FlavorSpec::default()
    };
    if sliced { slices::flavor(n, flavor) } else { flavor }
}

fn resource_groups(input: &mut Input<'_>, sliced: bool) -> Vec<ResourceGroup> {
    let both = input.one_in(2) || sliced;
    let covered = if both { &RESOURCES[..] } else { &RESOURCES[..1] };
    let (first, count) = (input.below(FLAVORS), input.below(FLAVORS));
    let flavors = (0..=count).map(|n| FlavorQuotas {
        name: format!("f{}", (first + n) % FLAVORS).into(),
        resources: covered
            .iter()
            .map(|r| {
                let quota = ResourceQuota {
                    // Quota for chips of a few slices.
                    nominal: match input.amount() {
                        n if sliced && *r == RESOURCES[1] => Quantity::from_units(n.value().saturating_mul(4)),
                        n => n,
                    },
                    borrowing_limit: input.limit(),
                    lending_limit: input.limit(),
                };
                ((*r).into(), quota)
            })
            .collect(),
    });
    vec![ResourceGroup { flavors: flavors.collect(), covered_resources: covered.iter().map(|r| (*r).into()).collect() }]
}

fn topology_request(input: &mut Input<'_>) -> Option<TopologyRequest> {
    let none = TopologyRequest::default;
    let level = |host: bool| Some(if host { HOSTNAME_LABEL.into() } else { RACK.into() });
    Some(match input.below(8) {
        0 | 1 => return None,
        2 => TopologyRequest { required: level(true), ..none() },
        3 | 4 => TopologyRequest { required: level(false), ..none() },
        5 => TopologyRequest { preferred: level(false), ..none() },
        6 => TopologyRequest { unconstrained: Some(true), ..none() },
        _ => TopologyRequest { slice_required_topology: level(true), slice_size: Some(2), ..none() },
    })
}

fn pod_set(n: u8, input: &mut Input<'_>, placed: bool) -> PodSet {
    // Mostly little, so that a few fit and one more does not.
    let cpu = if input.one_in(8) { input.amount() } else { Quantity::from_units(i64::from(input.below(4))) };
    let mut requests = BTreeMap::from([("cpu".into(), cpu)]);
    if input.one_in(8) {
        requests.insert(RESOURCES[1].into(), Quantity::from_units(i64::from(input.below(4))));
    }
    let count = i32::from(input.pick(&[1_u8, 1, 2, 4]));
    let container = Container {
        name: "c".into(),
        resources: Resources { requests, ..Resources::default() },
        ..Container::default()
    };
    PodSet {
        name: format!("p{n}").into(),
        count,
        min_count: input.one_in(4).then_some(1),
        pod: PodSpec { containers: vec![container], ..PodSpec::default() },
        topology_request: if placed { topology_request(input) } else { None },
        pods_per_pool: None,
    }
}

/// Nominal quota and borrowing limit.
fn limits(groups: &[ResourceGroup], flavor: &str, resource: &str) -> (Amount, Option<Amount>) {
    let of_flavor = groups.iter().flat_map(|g| &g.flavors).find(|f| *f.name == *flavor);
    let quota = of_flavor.and_then(|f| f.resources.iter().find(|(r, _)| **r == *resource)).map(|(_, q)| *q);
    let amount = |q| Amount::from_quantity(resource, q);
    quota.map_or((Amount::ZERO, None), |q| (amount(q.nominal), q.borrowing_limit.map(amount)))
}
