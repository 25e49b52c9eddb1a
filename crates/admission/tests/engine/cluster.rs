//! A cluster in memory: an engine, the objects it decides about, and the controllers between its cycles.

use std::collections::BTreeMap;

use slicegate_admission::lifecycle::{At, FinishReason, finish, release};
use slicegate_admission::{Config, Cycle, Engine, Outcome, Written};
use slicegate_quota::{Quantity, Weight};
use slicegate_workload::{
    ClusterQueueSpec, Condition, ConditionType, Container, FlavorQuotas, FlavorSpec, Key, LabelSelector,
    LocalQueueSpec, PodSet, PodSpec, PreemptionPolicy, ResourceGroup, ResourceQuota, Resources, Status, Timestamp,
    Workload, WorkloadSpec,
};

/// The one resource of most tests.
pub(crate) const TPU: &str = "google.com/tpu";
/// The one namespace.
pub(crate) const NAMESPACE: &str = "team";

/// An engine with the objects that the API server would hold.
pub(crate) struct Cluster {
    pub(crate) engine: Engine,
    pub(crate) store: BTreeMap<Key, Workload>,
    pub(crate) now: Timestamp,
    /// What happened: `admitted x`, `evicted x for y`.
    pub(crate) log: Vec<String>,
    created: i64,
    /// Whether jobs stop as soon as they are evicted.
    pub(crate) stops_at_once: bool,
}

impl Cluster {
    /// A cluster with one namespace and a flavor `default`.
    pub(crate) fn new(config: Config) -> Self {
        let now = Timestamp::from_seconds(1_000_000);
        let mut engine = Engine::new(config);
        engine.set_namespace(now, NAMESPACE, BTreeMap::new());
        engine.set_flavor(now, FlavorSpec { name: "default".into(), ..FlavorSpec::default() });
        Self { engine, store: BTreeMap::new(), now, log: Vec::new(), created: 0, stops_at_once: true }
    }

    /// Adds a ClusterQueue with a LocalQueue of the same name.
    pub(crate) fn queue(&mut self, spec: ClusterQueueSpec) {
        let name = spec.name.clone();
        self.engine.set_cluster_queue(self.now, spec);
        self.engine.set_local_queue(
            self.now,
            LocalQueueSpec { key: Key::new(NAMESPACE, name.clone()), cluster_queue: name, ..LocalQueueSpec::default() },
        );
        self.check("after a ClusterQueue");
    }

    /// A workload that asks for TPU chips, one second younger than the one before.
    pub(crate) fn workload(&mut self, name: &str, queue: &str, chips: i64, priority: i32) -> Workload {
        self.created += 1;
        let mut requests = BTreeMap::new();
        requests.insert(TPU.into(), Quantity::from_units(chips));
        let container = Container {
            name: "main".into(),
            resources: Resources { requests, limits: BTreeMap::new() },
            ..Container::default()
        };
        Workload {
            key: Key::new(NAMESPACE, name),
            uid: format!("uid-{name}").into(),
            created: Timestamp::from_seconds(900_000 + self.created),
            generation: 1,
            spec: WorkloadSpec {
                queue_name: queue.into(),
                pod_sets: vec![PodSet {
                    name: "main".into(),
                    count: 1,
                    pod: PodSpec { containers: vec![container], ..PodSpec::default() },
                    ..PodSet::default()
                }],
                priority,
                ..WorkloadSpec::default()
            },
            ..Workload::default()
        }
    }

    /// Submits a workload.
    pub(crate) fn submit(&mut self, name: &str, queue: &str, chips: i64, priority: i32) {
        let workload = self.workload(name, queue, chips, priority);
        self.put(workload);
    }

    /// Puts an object into the API and tells the engine.
    pub(crate) fn put(&mut self, workload: Workload) {
        self.store.insert(workload.key.clone(), workload.clone());
        self.engine.set_workload(self.now, workload);
        self.check("after a workload");
    }

    pub(crate) fn get(&self, name: &str) -> &Workload {
        &self.store[&Key::new(NAMESPACE, name)]
    }

    /// Changes an object.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let mut workload = self.get(name).clone();
        change(&mut workload);
        self.put(workload);
    }

    /// The job of a workload succeeds.
    pub(crate) fn finish(&mut self, name: &str) {
        let now = self.now;
        self.change(name, |w| {
            let at = At { now, generation: w.generation };
            finish(&mut w.status, FinishReason::Succeeded, "done", at);
        });
    }

    /// The workload is deleted.
    pub(crate) fn delete(&mut self, name: &str) {
        let key = Key::new(NAMESPACE, name);
        self.store.remove(&key);
        self.engine.remove_workload(self.now, &key);
        self.check("after a deletion");
    }

    /// One cycle, its writes, and the controllers after it.
    pub(crate) fn cycle(&mut self) -> Cycle {
        let before = self.engine.overcommitted();
        let cycle = self.engine.cycle(self.now);
        self.check("after a cycle");
        let after = self.engine.overcommitted();
        // A slice and the one it replaces are both counted until the older is finished.
        let replaces = cycle.entries.iter().any(|e| e.then.is_some());
        assert!(
            replaces || after.iter().all(|o| before.contains(o)),
            "a cycle admitted too much: {after:?}, {:?}",
            self.log
        );
        let mut changed = Vec::new();
        for eviction in &cycle.evictions {
            let by = eviction.preemptor.as_ref().map_or("nobody".into(), |(key, _)| key.name.clone());
            self.log.push(format!("evicted {} for {by}", eviction.workload.name));
            if let Some(w) = self.store.get_mut(&eviction.workload) {
                w.status = eviction.status.clone();
                changed.push(eviction.workload.clone());
            }
            self.engine.eviction_written(self.now, &eviction.workload, Written::Ok);
        }
        for entry in &cycle.entries {
            if let Outcome::Admitted { .. } = entry.outcome {
                self.log.push(format!("admitted {}", entry.workload.name));
                self.engine.admission_written(self.now, &entry.workload, Written::Ok);
            }
            if let (Some(status), Some(w)) = (&entry.status, self.store.get_mut(&entry.workload)) {
                w.status = status.clone();
                changed.push(entry.workload.clone());
            }
            if let Some(then) = &entry.then
                && let Some(w) = self.store.get_mut(&then.workload)
            {
                w.status = then.status.clone();
                changed.push(then.workload.clone());
            }
        }
        for key in changed {
            self.engine.set_workload(self.now, self.store[&key].clone());
            self.check("after a write");
        }
        if self.stops_at_once {
            self.stop_evicted();
        }
        cycle
    }

    /// Jobs that are to stop have stopped.
    pub(crate) fn stop_evicted(&mut self) {
        let gates = self.engine.config().gates;
        let evicted: Vec<Key> = self
            .store
            .values()
            .filter(|w| w.is_evicted() && w.has_quota_reservation() && !w.is_finished())
            .map(|w| w.key.clone())
            .collect();
        for key in evicted {
            let Some(w) = self.store.get_mut(&key) else { continue };
            let mut status = w.status.clone();
            release(w, &mut status, At { now: self.now, generation: w.generation }, &gates);
            w.status = status;
            self.engine.set_workload(self.now, w.clone());
            self.check("after a job stopped");
        }
    }

    /// Runs cycles until nothing happens any more; how many admissions and evictions there were, or `None` if it did not come
    /// to rest within so many cycles.
    pub(crate) fn settle(&mut self, cycles: usize) -> Option<usize> {
        let before = self.log.len();
        let mut quiet = 0;
        for _ in 0..cycles {
            self.now = self.now.plus_seconds(2);
            let cycle = self.cycle();
            // A batch of parked workloads comes back a second after what freed quota.
            quiet = if cycle.progressed { 0 } else { quiet + 1 };
            // Each cycle looks at one workload of a queue; so many may have to be looked at before one that fits.
            if quiet > self.store.len() + 4 {
                return Some(self.log.len() - before);
            }
        }
        None
    }

    /// The names of the workloads that hold quota.
    pub(crate) fn running(&self) -> Vec<&str> {
        self.store.values().filter(|w| w.has_active_quota_reservation()).map(|w| &*w.key.name).collect()
    }

    pub(crate) fn condition(&self, name: &str, kind: &ConditionType) -> Option<&Condition> {
        self.get(name).status.conditions.get(kind)
    }

    /// The reason and message of QuotaReserved, if that is false.
    pub(crate) fn waits(&self, name: &str) -> Option<(&str, &str)> {
        let condition = self.condition(name, &ConditionType::QuotaReserved)?;
        (condition.status == Status::False).then_some((&*condition.reason, &*condition.message))
    }

    pub(crate) fn check(&self, when: &str) {
        if let Err(violation) = self.engine.check() {
            panic!("{when}: {violation}\nlog: {:?}", self.log);
        }
    }
}

/// A ClusterQueue with chips of the flavor `default`, open to every namespace.
pub(crate) fn queue(name: &str, cohort: Option<&str>, chips: i64, preemption: PreemptionPolicy) -> ClusterQueueSpec {
    ClusterQueueSpec {
        name: name.into(),
        resource_groups: vec![group("default", chips)],
        cohort: cohort.map(Into::into),
        namespace_selector: Some(LabelSelector::default()),
        preemption,
        fair_weight: Weight::default(),
        ..ClusterQueueSpec::default()
    }
}

/// A resource group of one flavor with TPU chips.
pub(crate) fn group(flavor: &str, chips: i64) -> ResourceGroup {
    let quota = ResourceQuota { nominal: Quantity::from_units(chips), ..ResourceQuota::default() };
    ResourceGroup {
        covered_resources: vec![TPU.into()],
        flavors: vec![FlavorQuotas { name: flavor.into(), resources: vec![(TPU.into(), quota)] }],
    }
}
