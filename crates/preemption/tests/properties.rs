//! The planner against slow, obvious versions of itself, and the laws that its plans obey.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod reference;

use std::collections::BTreeSet;

use proptest::prelude::*;
use reference::{Case, Cohort, Queue, Quota, Workload};
use slicegate_preemption::{Config, FairSharing, Guard, Planner, Possibility, Reason};
use slicegate_workload::{
    BorrowWithinCohort, FairSharingStrategy, PreemptionPolicy, ReclaimPolicy, WithinClusterQueuePolicy,
};

const PAIRS: usize = 3;

fn quota() -> impl Strategy<Value = Quota> {
    let limit = || prop_oneof![5 => Just(None), 1 => (0_i64..5).prop_map(Some)];
    (0_i64..9, limit(), limit()).prop_map(|(nominal, borrowing, lending)| Quota { nominal, borrowing, lending })
}

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    proptest::collection::vec(quota(), PAIRS)
}

fn policy() -> impl Strategy<Value = PreemptionPolicy> {
    let reclaim = prop_oneof![
        1 => Just(ReclaimPolicy::Never),
        2 => Just(ReclaimPolicy::LowerPriority),
        3 => Just(ReclaimPolicy::Any),
    ];
    let within = prop_oneof![
        1 => Just(WithinClusterQueuePolicy::Never),
        2 => Just(WithinClusterQueuePolicy::LowerPriority),
        2 => Just(WithinClusterQueuePolicy::LowerOrNewerEqualPriority),
    ];
    let borrow = proptest::option::of((any::<bool>(), proptest::option::of(-1_i32..2)).prop_map(
        |(lower_priority, max_priority_threshold)| BorrowWithinCohort { lower_priority, max_priority_threshold },
    ));
    (reclaim, within, borrow).prop_map(|(reclaim_within_cohort, within_cluster_queue, borrow_within_cohort)| {
        PreemptionPolicy { reclaim_within_cohort, within_cluster_queue, borrow_within_cohort }
    })
}

/// Half-units of weight: 0, a half, 1, 2.
fn weight() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 1 => Just(1), 5 => Just(2), 1 => Just(4)]
}

fn workload(queues: usize) -> impl Strategy<Value = Workload> {
    let usage = proptest::collection::vec(proptest::option::weighted(0.7, 0_i64..6), PAIRS);
    (0..queues, -1_i64..3, 0_i64..3, 0_i64..3, proptest::bool::weighted(0.1), usage).prop_map(
        |(queue, priority, queued, reserved, evicted, usage)| Workload {
            queue,
            priority,
            queued,
            reserved,
            evicted,
            usage,
            uid: String::new(),
        },
    )
}

prop_compose! {
    /// Trees of up to four cohorts, most queues in one tree, tight quotas and many small workloads: most cases need victims.
    fn case()(
        parents in proptest::collection::vec(prop_oneof![1 => Just(None), 4 => (0_usize..3).prop_map(Some)], 1..5),
        places in proptest::collection::vec(proptest::option::weighted(0.9, 0_usize..4), 2..6),
    )(
        cohorts in parents.iter().map(|_| (quotas(), weight())).collect::<Vec<_>>(),
        queues in places.iter().map(|_| (quotas(), weight(), policy())).collect::<Vec<_>>(),
        workloads in proptest::collection::vec(workload(places.len()), 4..14),
        incoming in (workload(places.len()), 0_i64..3),
        preempting in proptest::collection::vec(any::<bool>(), PAIRS),
        uids in Just((0..14).collect::<Vec<u32>>()).prop_shuffle(),
        parents in Just(parents),
        places in Just(places),
    ) -> Case {
        let cohorts: Vec<Cohort> = cohorts.into_iter().zip(&parents).enumerate().map(|(i, ((quotas, weight), parent))| {
            // A cohort's parent comes before it, so that there is no cycle.
            Cohort { parent: parent.map(|p| p % i.max(1)).filter(|_| i > 0), quotas, weight }
        }).collect();
        let queues = queues.into_iter().zip(&places).map(|((quotas, weight, policy), place)| {
            Queue { parent: place.map(|p| p % cohorts.len()), quotas, weight, policy }
        }).collect();
        let workloads = workloads.into_iter().zip(uids).map(|(w, uid)| Workload { uid: format!("{uid:02}"), ..w }).collect();
        let (mut incoming, more) = incoming;
        incoming.priority += 1;
        incoming.usage = incoming.usage.iter().map(|u| u.map(|u| u + more).filter(|&u| u > 0)).collect();
        let asked: Vec<usize> = (0..PAIRS).filter(|&p| incoming.usage[p].is_some()).collect();
        let preempting: Vec<usize> = asked.iter().copied().filter(|&p| preempting[p]).collect();
        let preempting = if preempting.is_empty() { asked } else { preempting };
        Case { cohorts, queues, workloads, incoming, preempting }
    }
}

fn fair(strategies: &[FairSharingStrategy], reclaim_within_nominal: bool, guard: Guard) -> Config {
    Config { fair_sharing: Some(FairSharing { strategies: strategies.to_vec(), reclaim_within_nominal, guard }) }
}

fn strategies() -> impl Strategy<Value = Vec<FairSharingStrategy>> {
    use FairSharingStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    prop_oneof![
        3 => Just(vec![LessThanOrEqualToFinalShare, LessThanInitialShare]),
        1 => Just(vec![LessThanOrEqualToFinalShare]),
        1 => Just(vec![LessThanInitialShare]),
        1 => Just(vec![]),
    ]
}

type Plan = BTreeSet<(String, Reason)>;

/// The victims by unique id, and whether the world is as it was.
fn plan(case: &Case, config: &Config) -> (Plan, bool) {
    let (mut world, refs) = case.world();
    let before = format!("{world:?}");
    let (needed, preempting) = case.request(&mut world);
    let request = slicegate_preemption::Request {
        preemptor: case.preemptor(&world),
        needed: &needed,
        preempting: &preempting,
        placed: false,
    };
    let mut planner = Planner::new();
    // A planner that was used before gives the same answer.
    let first = planner.targets(&mut world, config, &request).to_vec();
    assert_eq!(planner.targets(&mut world, config, &request), first);
    let uid = |w| case.workloads[refs.iter().position(|r| *r == w).unwrap()].uid.clone();
    (first.iter().map(|t| (uid(t.workload), t.reason)).collect(), format!("{world:?}") == before)
}

proptest! {
    #[test]
    fn classical_plans_are_those_of_the_reference(case in case()) {
        let (got, unchanged) = plan(&case, &Config::default());
        prop_assert!(unchanged);
        prop_assert_eq!(got, reference::classical(&case));
    }

    #[test]
    fn fair_plans_are_those_of_the_reference(
        case in case(), strategies in strategies(), within in any::<bool>(), guarded in any::<bool>(),
    ) {
        let guard = if guarded { Guard::On } else { Guard::Off };
        let (got, unchanged) = plan(&case, &fair(&strategies, within, guard));
        prop_assert!(unchanged);
        prop_assert_eq!(got, reference::fair(&case, &strategies, within, guarded));
    }

    #[test]
    fn victims_make_room_and_none_could_stay(case in case(), fair_sharing in any::<bool>()) {
        let config = if fair_sharing { fair(&[], true, Guard::Off) } else { Config::default() };
        let (got, _) = plan(&case, &config);
        if got.is_empty() {
            return Ok(());
        }
        let all: Vec<usize> = (0..case.workloads.len())
            .filter(|&w| got.iter().any(|(uid, _)| *uid == case.workloads[w].uid))
            .collect();
        let fits = |victims: &[usize], borrowing| case.fits(&victims.iter().copied().collect(), borrowing);
        prop_assert!(fits(&all, true));
        // All but the victim that completed the set are needed, for a plan that may borrow or for one that may not.
        let spare = |borrowing| {
            all.iter().filter(|&&w| {
                let rest: Vec<usize> = all.iter().copied().filter(|&v| v != w).collect();
                fits(&rest, borrowing)
            }).count()
        };
        prop_assert!(spare(true) <= 1 || (fits(&all, false) && spare(false) <= 1));
    }

    #[test]
    fn victims_are_allowed_by_the_policy_and_use_what_is_needed(case in case(), fair_sharing in any::<bool>()) {
        let config = if fair_sharing { fair(&[], true, Guard::On) } else { Config::default() };
        let own = &case.queues[case.incoming.queue];
        for (uid, reason) in plan(&case, &config).0 {
            let w = case.workloads.iter().find(|w| w.uid == uid).unwrap();
            prop_assert!(case.preempting.iter().any(|&p| w.usage[p].is_some()));
            let lower = w.priority < case.incoming.priority;
            if w.queue == case.incoming.queue {
                prop_assert_eq!(reason, Reason::InClusterQueue);
                let newer = w.priority == case.incoming.priority && case.incoming.queued < w.queued;
                let allowed = match own.policy.within_cluster_queue {
                    WithinClusterQueuePolicy::Never => false,
                    WithinClusterQueuePolicy::LowerPriority => lower,
                    WithinClusterQueuePolicy::LowerOrNewerEqualPriority => lower || newer,
                };
                prop_assert!(allowed);
            } else {
                prop_assert_ne!(reason, Reason::InClusterQueue);
                let allowed = match own.policy.reclaim_within_cohort {
                    ReclaimPolicy::Never => false,
                    ReclaimPolicy::LowerPriority => lower,
                    ReclaimPolicy::Any => true,
                };
                prop_assert!(allowed);
            }
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(case in case(), fair_sharing in any::<bool>(), seed in any::<u64>()) {
        let config = if fair_sharing { fair(&[], true, Guard::On) } else { Config::default() };
        let mut shuffled = case.clone();
        let len = shuffled.workloads.len();
        for i in 0..len {
            let other = usize::try_from(seed % 1009).unwrap() * (i + 1) % len;
            shuffled.workloads.swap(i, other);
        }
        prop_assert_eq!(plan(&case, &config).0, plan(&shuffled, &config).0);
    }

    #[test]
    fn a_simulation_says_what_a_plan_would(case in case(), fair_sharing in any::<bool>()) {
        let config = if fair_sharing { fair(&[], true, Guard::On) } else { Config::default() };
        let mut case = case;
        prop_assume!(!case.preempting.is_empty());
        let only = case.preempting[0];
        for (p, usage) in case.incoming.usage.iter_mut().enumerate() {
            *usage = usage.filter(|_| p == only);
        }
        case.preempting = vec![only];
        let victims = plan(&case, &config).0;
        let (mut world, _) = case.world();
        let (needed, _) = case.request(&mut world);
        let preemptor = case.preemptor(&world);
        let (pair, amount) = needed[0];
        let answer = Planner::new().simulate(&mut world, &config, &preemptor, pair, amount);
        let own = victims.iter().any(|(_, r)| *r == Reason::InClusterQueue);
        let want = match (victims.is_empty(), own) {
            (true, _) => Possibility::NoCandidates,
            (false, true) => Possibility::Preempt,
            (false, false) => Possibility::Reclaim,
        };
        prop_assert_eq!(answer.possibility, want);
        let gone = (0..case.workloads.len()).filter(|&w| victims.iter().any(|(u, _)| *u == case.workloads[w].uid));
        prop_assert_eq!(answer.level, case.forest(&gone.collect(), false).level(preemptor.cluster_queue, pair, amount).0);
    }
}

/// The generator reaches what the laws are about: every reason, plans of several victims, and plans that the guard changes.
#[test]
fn the_cases_are_not_all_trivial() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = case();
    let mut reasons: BTreeSet<Reason> = BTreeSet::new();
    let (mut several, mut guarded, mut nonempty) = (0, 0, 0);
    for _ in 0..1000 {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        let plans = [&Config::default(), &fair(&[], true, Guard::Off), &fair(&[], true, Guard::On)]
            .map(|config| plan(&case, config).0);
        reasons.extend(plans.iter().flatten().map(|(_, r)| *r));
        nonempty += usize::from(plans.iter().any(|p| !p.is_empty()));
        several += usize::from(plans.iter().any(|p| p.len() > 2));
        guarded += usize::from(plans[1] != plans[2]);
    }
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(nonempty > 250, "{nonempty}");
    assert!(several > 25, "{several}");
    assert!(guarded > 0, "{guarded}");
}
