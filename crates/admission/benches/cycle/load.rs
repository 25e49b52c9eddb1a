//! Loads for measuring: cohorts of equal ClusterQueues with workloads of a few sizes, and a stand-in for the API server that
//! writes every decision at once.

use std::collections::BTreeMap;

use slicegate_admission::lifecycle::{At, FinishReason, finish, release};
use slicegate_admission::{Config, Cycle, Engine, Outcome, Written};
use slicegate_quota::{Quantity, Weight};
use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, Container, FlavorQuotas, FlavorSpec, Key, LabelSelector, LocalQueueSpec, PodSet,
    PodSpec, PreemptionPolicy, ReclaimPolicy, ResourceGroup, ResourceQuota, Resources, Timestamp,
    WithinClusterQueuePolicy, Workload, WorkloadSpec,
};

/// Workloads of one size.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// How many a ClusterQueue.
    pub(crate) count: usize,
    /// What each asks for.
    pub(crate) cpu: i64,
    pub(crate) priority: i32,
}

/// A load.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) cohorts: usize,
    pub(crate) queues_per_cohort: usize,
    pub(crate) nominal: i64,
    pub(crate) borrowing: i64,
    pub(crate) sizes: Vec<Size>,
}

impl Load {
    /// 10 cohorts of 100 ClusterQueues with 50 workloads each.
    pub(crate) fn wide() -> Self {
        Self { cohorts: 10, queues_per_cohort: 100, ..Self::of(35, 11, 4) }
    }

    /// 5 cohorts of 6 ClusterQueues with 500 workloads each.
    pub(crate) fn deep() -> Self {
        Self { cohorts: 5, queues_per_cohort: 6, ..Self::of(350, 100, 50) }
    }

    fn of(small: usize, medium: usize, large: usize) -> Self {
        Self {
            cohorts: 1,
            queues_per_cohort: 1,
            nominal: 20,
            borrowing: 100,
            sizes: vec![
                Size { count: small, cpu: 1, priority: 50 },
                Size { count: medium, cpu: 5, priority: 100 },
                Size { count: large, cpu: 20, priority: 200 },
            ],
        }
    }

    /// An engine that knows the ClusterQueues, without workloads.
    pub(crate) fn engine(&self) -> Engine {
        let mut engine = Engine::new(Config::new());
        engine.set_namespace(START, "default", BTreeMap::new());
        engine.set_flavor(START, FlavorSpec { name: "default".into(), ..FlavorSpec::default() });
        for cohort in 0..self.cohorts {
            let added = engine.set_cohort(START, cohort_spec(cohort, 1));
            assert!(added.is_ok(), "a cohort without parents is in no cycle");
            for queue in 0..self.queues_per_cohort {
                let name = format!("queue-{cohort}-{queue}");
                engine.set_cluster_queue(START, self.cluster_queue(&name, cohort));
                engine.set_local_queue(
                    START,
                    LocalQueueSpec {
                        key: Key::new("default", name.as_str()),
                        cluster_queue: name.into(),
                        ..LocalQueueSpec::default()
                    },
                );
            }
        }
        engine
    }

    fn cluster_queue(&self, name: &str, cohort: usize) -> ClusterQueueSpec {
        let cpu = ResourceQuota {
            nominal: Quantity::from_units(self.nominal),
            borrowing_limit: Some(Quantity::from_units(self.borrowing)),
            lending_limit: None,
        };
        ClusterQueueSpec {
            name: name.into(),
            resource_groups: vec![ResourceGroup {
                covered_resources: vec!["cpu".into()],
                flavors: vec![FlavorQuotas { name: "default".into(), resources: vec![("cpu".into(), cpu)] }],
            }],
            cohort: Some(format!("cohort-{cohort}").into()),
            namespace_selector: Some(LabelSelector::default()),
            preemption: PreemptionPolicy {
                reclaim_within_cohort: ReclaimPolicy::Any,
                within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
                borrow_within_cohort: None,
            },
            ..ClusterQueueSpec::default()
        }
    }

    /// The workloads, queue by queue within each size: small ones are created first.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let mut all = Vec::new();
        for (s, size) in self.sizes.iter().enumerate() {
            for n in 0..size.count {
                for cohort in 0..self.cohorts {
                    for queue in 0..self.queues_per_cohort {
                        let name = format!("{s}-{n}-{cohort}-{queue}");
                        all.push(workload(&name, &format!("queue-{cohort}-{queue}"), size, all.len()));
                    }
                }
            }
        }
        all
    }
}

/// When everything begins.
pub(crate) const START: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// A cohort without quota of its own, of a weight that decides nothing here.
fn cohort_spec(cohort: usize, weight: u64) -> CohortSpec {
    CohortSpec {
        name: format!("cohort-{cohort}").into(),
        fair_weight: Weight::from_nanos(weight),
        ..CohortSpec::default()
    }
}

/// A workload of one pod, the `number`th to be created.
pub(crate) fn workload(name: &str, queue: &str, size: &Size, number: usize) -> Workload {
    let container = Container {
        name: "main".into(),
        resources: Resources {
            requests: BTreeMap::from([("cpu".into(), Quantity::from_units(size.cpu))]),
            ..Resources::default()
        },
        ..Container::default()
    };
    let pod_set = PodSet {
        name: "main".into(),
        count: 1,
        pod: PodSpec { containers: vec![container], ..PodSpec::default() },
        ..PodSet::default()
    };
    Workload {
        key: Key::new("default", name),
        uid: format!("uid-{name}").into(),
        created: START.plus_micros(i64::try_from(number).unwrap_or(i64::MAX)),
        generation: 1,
        spec: WorkloadSpec {
            queue_name: queue.into(),
            pod_sets: vec![pod_set],
            priority: size.priority,
            ..WorkloadSpec::default()
        },
        ..Workload::default()
    }
}

/// An engine and the objects as its API server has them.
pub(crate) struct Cluster {
    pub(crate) engine: Engine,
    pub(crate) now: Timestamp,
    objects: BTreeMap<Key, Workload>,
    /// Workloads that hold quota.
    pub(crate) running: Vec<Key>,
    wakes: u64,
}

impl Cluster {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, now: START.plus_seconds(1), objects: BTreeMap::new(), running: Vec::new(), wakes: 0 }
    }

    /// Creates workloads.
    pub(crate) fn create(&mut self, workloads: impl IntoIterator<Item = Workload>) {
        for workload in workloads {
            self.objects.insert(workload.key.clone(), workload.clone());
            self.take_in(workload);
        }
    }

    fn take_in(&mut self, workload: Workload) {
        self.engine.set_workload(self.now, workload);
    }

    /// Writes what a cycle decided, and lets those that are evicted go at once.
    pub(crate) fn write(&mut self, cycle: Cycle) {
        let gates = self.engine.config().gates;
        for eviction in cycle.evictions {
            self.engine.eviction_written(self.now, &eviction.workload, Written::Ok);
            let Some(object) = self.objects.get_mut(&eviction.workload) else { continue };
            object.status = eviction.status;
            let mut status = object.status.clone();
            release(object, &mut status, At { now: self.now, generation: object.generation }, &gates);
            object.status = status;
            let object = object.clone();
            self.running.retain(|k| *k != eviction.workload);
            self.take_in(object);
        }
        for entry in cycle.entries {
            let is_admitted = matches!(entry.outcome, Outcome::Admitted { .. });
            if is_admitted {
                self.engine.admission_written(self.now, &entry.workload, Written::Ok);
                self.running.push(entry.workload.clone());
            }
            let (Some(object), Some(status)) = (self.objects.get_mut(&entry.workload), entry.status) else { continue };
            object.status = status;
            let object = object.clone();
            self.take_in(object);
        }
    }

    /// Lets every workload that holds quota finish, deletes it, and wakes what is parked.
    pub(crate) fn finish_all(&mut self) {
        self.finish_running();
        self.engine.flush(self.now);
    }

    /// Lets every workload that holds quota finish, and deletes it. What is parked is not woken yet.
    pub(crate) fn finish_running(&mut self) {
        for key in std::mem::take(&mut self.running) {
            let Some(mut object) = self.objects.remove(&key) else { continue };
            finish(&mut object.status, FinishReason::Succeeded, "done", At { now: self.now, generation: 1 });
            self.take_in(object);
            self.engine.remove_workload(self.now, &key);
        }
    }

    /// Lets every parked workload compete again, by a change of every cohort that changes no quota.
    pub(crate) fn wake_all(&mut self, load: &Load) {
        self.wakes += 1;
        for cohort in 0..load.cohorts {
            let added = self.engine.set_cohort(self.now, cohort_spec(cohort, 1 + self.wakes));
            assert!(added.is_ok(), "a cohort without parents is in no cycle");
        }
        self.engine.flush(self.now);
    }
}
