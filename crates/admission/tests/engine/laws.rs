//! Laws of whole runs, beside a plain model of quota: trees of ClusterQueues in one Cohort, chips of one flavor.

use proptest::prelude::*;
use slicegate_admission::{Config, Cycle, FairSharing, Outcome};
use slicegate_quota::Quantity;
use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, PreemptionPolicy, ReclaimPolicy, WithinClusterQueuePolicy, Workload,
};

use super::cluster::{Cluster, queue};

/// A ClusterQueue: nominal quota, borrowing limit, lending limit, policy, whether it is in the Cohort.
#[derive(Clone, Debug)]
struct Queue {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
    policy: PreemptionPolicy,
    in_cohort: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    queue: usize,
    chips: i64,
    priority: i32,
}

#[derive(Clone, Debug)]
struct System {
    fair: bool,
    queues: Vec<Queue>,
    jobs: Vec<Job>,
}

fn limit() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![2 => Just(None), 1 => (0_i64..5).prop_map(Some)]
}

fn queues() -> impl Strategy<Value = Queue> {
    let policy = (
        prop::sample::select(vec![ReclaimPolicy::Never, ReclaimPolicy::LowerPriority, ReclaimPolicy::Any]),
        prop::sample::select(vec![
            WithinClusterQueuePolicy::Never,
            WithinClusterQueuePolicy::LowerPriority,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority,
        ]),
    );
    (0_i64..6, limit(), limit(), policy, prop::bool::weighted(0.8)).prop_map(
        |(nominal, borrowing, lending, (reclaim, within), in_cohort)| Queue {
            nominal,
            borrowing: borrowing.filter(|_| in_cohort),
            lending: lending.filter(|_| in_cohort),
            policy: PreemptionPolicy {
                reclaim_within_cohort: reclaim,
                within_cluster_queue: within,
                borrow_within_cohort: None,
            },
            in_cohort,
        },
    )
}

fn systems() -> impl Strategy<Value = System> {
    let jobs = (0_usize..4, 1_i64..5, 0_i32..3).prop_map(|(queue, chips, priority)| Job { queue, chips, priority });
    (any::<bool>(), proptest::collection::vec(queues(), 4), proptest::collection::vec(jobs, 1..14))
        .prop_map(|(fair, queues, jobs)| System { fair, queues, jobs })
}

impl System {
    fn config(&self) -> Config {
        Config { fair_sharing: self.fair.then(FairSharing::default), ..Config::new() }
    }

    fn spec(&self, q: usize) -> ClusterQueueSpec {
        let of = &self.queues[q];
        let mut spec = queue(&format!("q{q}"), of.in_cohort.then_some("c"), of.nominal, of.policy);
        let quota = &mut spec.resource_groups[0].flavors[0].resources[0].1;
        quota.borrowing_limit = of.borrowing.map(Quantity::from_units);
        quota.lending_limit = of.lending.map(Quantity::from_units);
        spec
    }

    /// A cluster with everything but the workloads, which are returned. Objects come in the order given.
    fn start(&self, order: &[usize]) -> (Cluster, Vec<Workload>) {
        let mut cluster = Cluster::new(self.config());
        let jobs = self.jobs.iter().enumerate();
        let workloads: Vec<Workload> = jobs
            .map(|(n, job)| cluster.workload(&format!("w{n}"), &format!("q{}", job.queue), job.chips, job.priority))
            .collect();
        for &q in order {
            if q == 0 {
                let cohort = CohortSpec { name: "c".into(), ..CohortSpec::default() };
                cluster.engine.set_cohort(cluster.now, cohort).unwrap();
            }
            cluster.queue(self.spec(q));
        }
        (cluster, workloads)
    }

    fn all(&self) -> (Cluster, Vec<Workload>) {
        self.start(&[0, 1, 2, 3])
    }

    /// What each ClusterQueue uses.
    fn used(&self, cluster: &Cluster) -> Vec<i64> {
        let mut used = vec![0; self.queues.len()];
        for name in cluster.running() {
            let job = self.job(name);
            used[job.queue] += job.chips;
        }
        used
    }

    fn job(&self, name: &str) -> Job {
        self.jobs[name[1..].parse::<usize>().unwrap()]
    }

    /// Whether so much use is within all limits. What a ClusterQueue does not lend it uses without the others noticing.
    fn allows(&self, used: &[i64]) -> bool {
        let own = |q: &Queue| q.lending.map_or(0, |lent| (q.nominal - lent).max(0));
        let each = self.queues.iter().zip(used).all(|(q, &used)| match (q.in_cohort, q.borrowing) {
            (false, _) => used <= q.nominal,
            (true, Some(more)) => used <= q.nominal + more,
            (true, None) => true,
        });
        let members = || self.queues.iter().zip(used).filter(|(q, _)| q.in_cohort);
        let shared: i64 = members().map(|(q, _)| q.nominal - own(q)).sum();
        let taken: i64 = members().map(|(q, &used)| (used - own(q)).max(0)).sum();
        each && taken <= shared
    }
}

fn admitted(cycle: &Cycle) -> usize {
    cycle.entries.iter().filter(|e| matches!(e.outcome, Outcome::Admitted { .. })).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// After every cycle with its evictions done, use is within what the plain model allows; and once nothing changes, no
    /// workload that waits would fit, by the same model.
    #[test]
    fn use_stays_within_limits_and_nothing_that_fits_is_left_waiting(system in systems()) {
        let (mut cluster, workloads) = system.all();
        for workload in workloads {
            cluster.put(workload);
            cluster.now = cluster.now.plus_seconds(2);
            cluster.cycle();
            let used = system.used(&cluster);
            prop_assert!(system.allows(&used), "{used:?}");
        }
        prop_assert!(cluster.settle(400).is_some(), "{:?}", cluster.log);
        let used = system.used(&cluster);
        prop_assert!(system.allows(&used), "{used:?}");
        let running: Vec<String> = cluster.running().into_iter().map(str::to_owned).collect();
        for n in 0..system.jobs.len() {
            let name = format!("w{n}");
            if !running.contains(&name) {
                let mut more = used.clone();
                more[system.jobs[n].queue] += system.jobs[n].chips;
                prop_assert!(!system.allows(&more), "{name} fits: {used:?}");
            }
        }
    }

    /// Victims hold quota, are such as the policies allow, make enough room, and none of them could have been left alone.
    #[test]
    fn victims_are_legal_sufficient_and_needed(mut system in systems()) {
        // By priority: what fair sharing allows is a matter of shares, and is tested where plans are made.
        system.fair = false;
        let (mut cluster, workloads) = system.all();
        cluster.stops_at_once = false;
        for workload in workloads {
            cluster.put(workload);
            cluster.now = cluster.now.plus_seconds(2);
            let before = system.used(&cluster);
            let running: Vec<String> = cluster.running().into_iter().map(str::to_owned).collect();
            let cycle = cluster.cycle();
            let alone = cycle.entries.len() == 1;
            for entry in &cycle.entries {
                let Outcome::Preempting { victims } = &entry.outcome else { continue };
                let preemptor = system.job(&entry.workload.name);
                let policy = system.queues[preemptor.queue].policy;
                let mut after = before.clone();
                after[preemptor.queue] += preemptor.chips;
                for victim in victims {
                    prop_assert!(running.contains(&victim.workload.name.to_string()));
                    let job = system.job(&victim.workload.name);
                    let lower = job.priority < preemptor.priority;
                    if job.queue == preemptor.queue {
                        let legal = match policy.within_cluster_queue {
                            WithinClusterQueuePolicy::Never => false,
                            WithinClusterQueuePolicy::LowerPriority => lower,
                            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => job.priority <= preemptor.priority,
                        };
                        prop_assert!(legal);
                    } else {
                        prop_assert!(before[job.queue] > system.queues[job.queue].nominal, "only from who borrows");
                        let legal = match policy.reclaim_within_cohort {
                            ReclaimPolicy::Never => false,
                            ReclaimPolicy::LowerPriority => lower,
                            ReclaimPolicy::Any => true,
                        };
                        prop_assert!(legal);
                    }
                    after[job.queue] -= job.chips;
                }
                // Entries of one cycle may count on each other's victims.
                prop_assert!(!alone || system.allows(&after), "{:?} leave too little room: {after:?}", victims);
                // Every victim is needed: with it back there is no room, or more would be borrowed than its going allowed.
                if alone && system.queues[preemptor.queue].nominal < after[preemptor.queue] {
                    for victim in victims {
                        let job = system.job(&victim.workload.name);
                        let mut back = after.clone();
                        back[job.queue] += job.chips;
                        prop_assert!(!system.allows(&back), "{} need not go: {after:?}", victim.workload);
                    }
                }
            }
            cluster.stop_evicted();
        }
    }

    /// The order in which objects with different times are told does not matter.
    #[test]
    fn the_order_of_telling_does_not_matter(
        system in systems(),
        queues in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
        workloads in Just((0..14_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let run = |queues: &[usize], order: &[usize]| {
            let (mut cluster, all) = system.start(queues);
            for &n in order {
                if let Some(workload) = all.get(n) {
                    cluster.put(workload.clone());
                }
            }
            let settled = cluster.settle(400);
            (settled, cluster.log.clone(), cluster.store.clone())
        };
        let plain: Vec<usize> = (0..14).collect();
        let (settled, log, store) = run(&[0, 1, 2, 3], &plain);
        let (settled_too, log_too, store_too) = run(&queues, &workloads);
        prop_assert_eq!(log, log_too);
        prop_assert_eq!(settled, settled_too);
        prop_assert_eq!(store, store_too);
    }

    /// Without preemption: what could be admitted next can still be admitted after a workload that holds quota is gone.
    #[test]
    fn what_leaves_is_in_nobodys_way(mut system in systems(), leaves in any::<prop::sample::Index>()) {
        for queue in &mut system.queues {
            queue.policy = PreemptionPolicy::default();
        }
        let last = system.jobs.len() - 1;
        // The last workload goes on its way with, and without, one of the others leaving before.
        let run = |left: Option<&str>| {
            let (mut cluster, mut workloads) = system.all();
            let late = workloads.pop().unwrap();
            for workload in workloads {
                cluster.put(workload);
            }
            cluster.settle(400).unwrap();
            if let Some(name) = left {
                cluster.delete(name);
                // Those that wait are not to take its place.
                let waiting: Vec<String> = cluster
                    .store
                    .values()
                    .filter(|w| !w.has_quota_reservation())
                    .map(|w| w.key.name.to_string())
                    .collect();
                for name in waiting {
                    cluster.delete(&name);
                }
            }
            cluster.put(late);
            cluster.now = cluster.now.plus_seconds(2);
            let cycle = cluster.cycle();
            (admitted(&cycle), cluster.running().into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        let (_, running) = run(None);
        let name = format!("w{last}");
        let others: Vec<&String> = running.iter().filter(|r| **r != name).collect();
        if running.contains(&name) && !others.is_empty() {
            let gone = others[leaves.index(others.len())];
            let (_, then) = run(Some(gone));
            prop_assert!(then.contains(&name), "{name} was admitted, but not without {gone}");
        }
    }
}
