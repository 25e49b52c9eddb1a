//! Whatever happens in whatever order, the invariants hold.

use proptest::prelude::*;
use slicegate_admission::lifecycle::At;
use slicegate_admission::{AdmissionFairSharing, CheckSpec, Config, FairSharing, WaitForPodsReady, Written};
use slicegate_quota::Quantity;
use slicegate_workload::{
    AdmissionCheckRule, CohortSpec, ConditionType, FlavorSpec, Key, LocalQueueSpec, PreemptionPolicy, QueueingStrategy,
    ReclaimPolicy, Status, StopPolicy, WithinClusterQueuePolicy,
};

use crate::cluster::{Cluster, NAMESPACE, group, queue};

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Submit { workload: u8, queue: u8, chips: i64, priority: i32, min: bool },
    Finish(u8),
    Delete(u8),
    Deactivate(u8),
    Activate(u8),
    Reprioritize(u8, i32),
    Move(u8, u8),
    Hold(u8),
    Reclaim(u8),
    Quota { queue: u8, chips: i64, borrowing: Option<i64>, lending: Option<i64>, strict: bool },
    Cohort { queue: u8, cohort: u8 },
    CohortParent(u8, u8),
    RemoveQueue(u8),
    Stop(u8, bool),
    StopLocal(u8, bool),
    RemoveLocal(u8),
    Flavor(bool),
    Check { queue: u8, active: bool, attached: bool },
    Namespace(bool),
    FailWrite,
    Cycle,
    StopJobs,
    Flush,
    Wait(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let id = 0..8_u8;
    let q = 0..3_u8;
    prop_oneof![
        6 => (id.clone(), q.clone(), 1..5_i64, 0..3, any::<bool>())
            .prop_map(|(workload, queue, chips, priority, min)| Event::Submit { workload, queue, chips, priority, min }),
        2 => id.clone().prop_map(Event::Finish),
        1 => id.clone().prop_map(Event::Delete),
        1 => id.clone().prop_map(Event::Deactivate),
        1 => id.clone().prop_map(Event::Activate),
        1 => (id.clone(), 0..3).prop_map(|(w, p)| Event::Reprioritize(w, p)),
        1 => (id.clone(), q.clone()).prop_map(|(w, q)| Event::Move(w, q)),
        1 => id.clone().prop_map(Event::Hold),
        1 => id.prop_map(Event::Reclaim),
        2 => (q.clone(), 0..6_i64, proptest::option::of(0..3_i64), proptest::option::of(0..3_i64), any::<bool>())
            .prop_map(|(queue, chips, borrowing, lending, strict)| Event::Quota { queue, chips, borrowing, lending, strict }),
        1 => (q.clone(), 0..3_u8).prop_map(|(queue, cohort)| Event::Cohort { queue, cohort }),
        1 => (0..3_u8, 0..4_u8).prop_map(|(c, p)| Event::CohortParent(c, p)),
        1 => q.clone().prop_map(Event::RemoveQueue),
        1 => (q.clone(), any::<bool>()).prop_map(|(q, s)| Event::Stop(q, s)),
        1 => (q.clone(), any::<bool>()).prop_map(|(q, s)| Event::StopLocal(q, s)),
        1 => q.clone().prop_map(Event::RemoveLocal),
        1 => any::<bool>().prop_map(Event::Flavor),
        1 => (q, any::<bool>(), any::<bool>())
            .prop_map(|(queue, active, attached)| Event::Check { queue, active, attached }),
        1 => any::<bool>().prop_map(Event::Namespace),
        1 => Just(Event::FailWrite),
        8 => Just(Event::Cycle),
        4 => Just(Event::StopJobs),
        2 => Just(Event::Flush),
        2 => (0..4_u8).prop_map(Event::Wait),
    ]
}

fn queue_name(q: u8) -> String {
    format!("q{q}")
}

fn apply(cluster: &mut Cluster, specs: &mut [slicegate_workload::ClusterQueueSpec], event: &Event) {
    let name = |w: u8| format!("w{w}");
    let known = |cluster: &Cluster, w: u8| cluster.store.contains_key(&Key::new(NAMESPACE, name(w)));
    match *event {
        Event::Submit { workload, queue, chips, priority, min } => {
            if known(cluster, workload) {
                return;
            }
            let mut w = cluster.workload(&name(workload), &queue_name(queue), 1, priority);
            w.spec.pod_sets[0].count = i32::try_from(chips).unwrap();
            w.spec.pod_sets[0].min_count = min.then_some(1);
            cluster.put(w);
        }
        Event::Finish(w) if known(cluster, w) && cluster.get(&name(w)).is_admitted() => cluster.finish(&name(w)),
        Event::Delete(w) if known(cluster, w) => cluster.delete(&name(w)),
        Event::Deactivate(w) if known(cluster, w) => cluster.change(&name(w), |w| w.spec.active = false),
        Event::Activate(w) if known(cluster, w) => cluster.change(&name(w), |w| w.spec.active = true),
        Event::Reprioritize(w, priority) if known(cluster, w) => {
            cluster.change(&name(w), |w| {
                w.spec.priority = priority;
                w.generation += 1;
            });
        }
        Event::Move(w, queue) if known(cluster, w) && !cluster.get(&name(w)).has_quota_reservation() => {
            cluster.change(&name(w), |w| w.spec.queue_name = queue_name(queue).into());
        }
        Event::Hold(w) if known(cluster, w) => {
            let now = cluster.now;
            cluster.change(&name(w), |w| {
                let at = At { now, generation: w.generation };
                at.set(&mut w.status, ConditionType::Requeued, Status::False, "PodsReadyTimeout", "wait");
            });
        }
        Event::Reclaim(w) if known(cluster, w) => {
            cluster.change(&name(w), |w| {
                let done = slicegate_workload::ReclaimablePods { name: "main".into(), count: 1 };
                w.status.reclaimable_pods = vec![done];
            });
        }
        Event::Quota { queue, chips, borrowing, lending, strict } => {
            let spec = &mut specs[usize::from(queue)];
            spec.resource_groups = vec![group("default", chips)];
            let quota = &mut spec.resource_groups[0].flavors[0].resources[0].1;
            quota.borrowing_limit = borrowing.map(Quantity::from_units);
            quota.lending_limit = lending.map(|l| Quantity::from_units(l.min(chips)));
            spec.queueing_strategy =
                if strict { QueueingStrategy::StrictFifo } else { QueueingStrategy::BestEffortFifo };
            cluster.queue(spec.clone());
        }
        Event::Cohort { queue, cohort } => {
            let spec = &mut specs[usize::from(queue)];
            spec.cohort = (cohort > 0).then(|| format!("c{cohort}").into());
            cluster.queue(spec.clone());
        }
        Event::CohortParent(cohort, parent) => {
            let spec = CohortSpec {
                name: format!("c{cohort}").into(),
                parent: (parent > 0).then(|| format!("c{parent}").into()),
                ..CohortSpec::default()
            };
            // A cycle is an answer, too.
            let _ = cluster.engine.set_cohort(cluster.now, spec);
        }
        Event::RemoveQueue(queue) => cluster.engine.remove_cluster_queue(cluster.now, &queue_name(queue)),
        Event::Stop(queue, stopped) => {
            let spec = &mut specs[usize::from(queue)];
            spec.stop_policy = if stopped { StopPolicy::Hold } else { StopPolicy::None };
            cluster.queue(spec.clone());
        }
        Event::StopLocal(queue, stopped) => {
            let key = Key::new(NAMESPACE, queue_name(queue));
            let stop_policy = if stopped { StopPolicy::Hold } else { StopPolicy::None };
            let cluster_queue = queue_name(queue).into();
            let spec = LocalQueueSpec { key, cluster_queue, stop_policy, ..LocalQueueSpec::default() };
            cluster.engine.set_local_queue(cluster.now, spec);
        }
        Event::RemoveLocal(queue) => {
            cluster.engine.remove_local_queue(cluster.now, &Key::new(NAMESPACE, queue_name(queue)));
        }
        Event::Flavor(exists) => {
            if exists {
                let spec = FlavorSpec { name: "default".into(), ..FlavorSpec::default() };
                cluster.engine.set_flavor(cluster.now, spec);
            } else {
                cluster.engine.remove_flavor(cluster.now, "default");
            }
        }
        Event::Check { queue, active, attached } => {
            let spec = CheckSpec { name: "check".into(), controller: "test".into(), active };
            cluster.engine.set_admission_check(cluster.now, spec);
            let spec = &mut specs[usize::from(queue)];
            let rule = AdmissionCheckRule { name: "check".into(), on_flavors: Vec::new() };
            spec.admission_checks = if attached { vec![rule] } else { Vec::new() };
            cluster.queue(spec.clone());
        }
        Event::Namespace(exists) => {
            if exists {
                cluster.engine.set_namespace(cluster.now, NAMESPACE, std::collections::BTreeMap::new());
            } else {
                cluster.engine.remove_namespace(cluster.now, NAMESPACE);
            }
        }
        Event::FailWrite => {
            let cycle = cluster.engine.cycle(cluster.now);
            for entry in cycle.entries {
                cluster.engine.admission_written(cluster.now, &entry.workload, Written::Failed);
            }
            for eviction in cycle.evictions {
                cluster.engine.eviction_written(cluster.now, &eviction.workload, Written::Failed);
            }
        }
        Event::Cycle => {
            cluster.cycle();
        }
        Event::StopJobs => cluster.stop_evicted(),
        Event::Flush => cluster.engine.flush(cluster.now),
        Event::Wait(seconds) => cluster.now = cluster.now.plus_seconds(i64::from(seconds)),
        _ => {}
    }
    cluster.check("after an event");
}

fn configs() -> impl Strategy<Value = Config> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(fair, usage, pods)| {
        let mut config = Config::new();
        config.fair_sharing = fair.then(FairSharing::default);
        config.admission_fair_sharing =
            usage.then(|| AdmissionFairSharing { half_life_seconds: 10, ..AdmissionFairSharing::default() });
        config.wait_for_pods_ready =
            pods.then(|| WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() });
        config
    })
}

fn start(config: Config, policies: [PreemptionPolicy; 3]) -> (Cluster, Vec<slicegate_workload::ClusterQueueSpec>) {
    let by_usage = config.admission_fair_sharing.is_some();
    let mut cluster = Cluster::new(config);
    cluster.stops_at_once = false;
    let mut specs = Vec::new();
    for (q, policy) in policies.into_iter().enumerate() {
        let mut spec = queue(&format!("q{q}"), Some("c1"), 3, policy);
        spec.usage_based_fair_sharing = by_usage;
        cluster.queue(spec.clone());
        specs.push(spec);
    }
    (cluster, specs)
}

fn policies() -> impl Strategy<Value = PreemptionPolicy> {
    use ReclaimPolicy::{Any, LowerPriority, Never};
    use WithinClusterQueuePolicy::LowerOrNewerEqualPriority;
    (
        prop::sample::select(vec![Never, LowerPriority, Any]),
        prop::sample::select(vec![
            WithinClusterQueuePolicy::Never,
            WithinClusterQueuePolicy::LowerPriority,
            LowerOrNewerEqualPriority,
        ]),
    )
        .prop_map(|(reclaim, within)| PreemptionPolicy {
            reclaim_within_cohort: reclaim,
            within_cluster_queue: within,
            borrow_within_cohort: None,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// The invariants hold after every event, and when everything has finished nothing is used.
    #[test]
    fn invariants_hold(
        config in configs(),
        policies in [policies(), policies(), policies()],
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let (mut cluster, mut specs) = start(config, policies);
        for event in &events {
            apply(&mut cluster, &mut specs, event);
        }
        let names: Vec<String> = cluster.store.keys().map(|k| k.name.to_string()).collect();
        for name in names {
            cluster.delete(&name);
        }
        for spec in &specs {
            if let Some(report) = cluster.engine.cluster_queue(&spec.name) {
                prop_assert!(report.reservation.iter().all(|u| u.total == slicegate_quota::Amount::ZERO));
                prop_assert_eq!((report.pending, report.reserving), (0, 0));
            }
        }
        prop_assert_eq!(cluster.engine.sizes(), (0, 0));
    }

    /// The same events give the same decisions.
    #[test]
    fn decisions_repeat(
        config in configs(),
        policies in [policies(), policies(), policies()],
        events in proptest::collection::vec(event(), 1..40),
    ) {
        let run = || {
            let (mut cluster, mut specs) = start(config.clone(), policies);
            for event in &events {
                apply(&mut cluster, &mut specs, event);
            }
            (cluster.log.clone(), cluster.store.clone())
        };
        prop_assert_eq!(run(), run());
    }
}
