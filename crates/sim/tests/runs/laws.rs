//! What holds for every input.

use crate::common::{Fifo, item, jobset, pool, rayjob, scaling_pool, simulation};
use proptest::prelude::*;
use serde_json::{Value, json};
use slicegate_api::{Kind, ObjectRef};
use slicegate_sim::{Item, Verdict, render};

#[derive(Clone, Debug)]
enum Work {
    Slices(i64),
    Ray,
}

/// Tries again as often as hosts fail.
fn patient(mut job: Item) -> Item {
    if let Item::Object(slicegate_api::Object::RayJob(job)) = &mut job {
        std::sync::Arc::make_mut(job).spec.other.insert("backoffLimit".to_owned(), 4.into());
    }
    job
}

/// When which host of what fails, and how long its repair takes.
type Failure = (i64, String, u32, i64);

fn target() -> impl Strategy<Value = String> {
    let pools = prop_oneof![
        Just("v6e".to_owned()),
        (0..3).prop_map(|i| format!("static-{i}")),
        (0..3).prop_map(|i| format!("scaling-{i}"))
    ];
    let jobs =
        (0..5).prop_flat_map(|i| prop_oneof![Just(format!("JobSet/jobset-{i}")), Just(format!("RayJob/ray-{i}"))]);
    prop_oneof![pools, jobs]
}

fn items(static_pools: usize, scaling_pools: usize, work: &[Work], run_time: i64, failures: &[Failure]) -> Vec<Item> {
    let mut items = vec![
        item(json!({"kind": "NodePool", "name": "cpu", "initialNodeCount": 1,
                    "config": {"machineType": "n2-standard-32", "labels": {"cloud.google.com/gke-nodepool": "default-pool"}}})),
        scaling_pool("v6e", "ct6e-standard-4t", "4x4", 4, false),
    ];
    items.extend((0..static_pools).map(|i| pool(&format!("static-{i}"), "ct5lp-hightpu-4t", "2x4", 2)));
    items
        .extend((0..scaling_pools).map(|i| scaling_pool(&format!("scaling-{i}"), "ct5lp-hightpu-4t", "2x4", 2, false)));
    items.extend(work.iter().enumerate().map(|(i, work)| match work {
        Work::Slices(n) => jobset(&format!("jobset-{i}"), *n),
        Work::Ray => patient(rayjob(&format!("ray-{i}"))),
    }));
    let there = |of: &str| {
        items.iter().any(|item| match item {
            Item::Object(object) => format!("{}/{}", object.kind(), object.name()) == *of,
            Item::NodePool(pool) => pool.name == *of,
            Item::Scenario(_) => false,
        })
    };
    let events: Vec<Value> = failures
        .iter()
        .filter(|(_, of, ..)| there(of))
        .map(|(at, of, host, repair)| {
            let kind = if of.contains('/') { "job" } else { "pool" };
            json!({"at": format!("{at}s"), "fail": {kind: of, "host": host, "repairAfter": format!("{repair}s")}})
        })
        .collect();
    let spec = json!({"runTime": format!("{run_time}s"), "events": events});
    items.push(item(json!({"kind": "Scenario", "metadata": {"name": "s"}, "spec": spec})));
    items
}

fn work() -> impl Strategy<Value = Vec<Work>> {
    prop::collection::vec(prop_oneof![3 => (1_i64..3).prop_map(Work::Slices), 1 => Just(Work::Ray)], 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_at_every_moment_and_everything_finishes(
        static_pools in 0_usize..3,
        scaling_pools in 2_usize..4,
        work in work(),
        run_time in 1_i64..200,
        chips in prop_oneof![Just(16_i64), Just(24), Just(1_000)],
        evict in prop::option::of((1_i64..100, 0_usize..6)),
        failures in prop::collection::vec((0_i64..400, target(), 0_u32..4, prop_oneof![Just(0_i64), 1_i64..2_000]), 0..4),
    ) {
        let evict = evict.and_then(|(at, i)| {
            let kind = match work.get(i)? {
                Work::Slices(_) => (Kind::JobSet, format!("jobset-{i}")),
                Work::Ray => (Kind::RayJob, format!("ray-{i}")),
            };
            Some((at, ObjectRef::new(kind.0, "default", kind.1)))
        });
        let play = || {
            let fifo = Fifo { chips, evict: evict.clone(), ..Fifo::default() };
            let mut simulation = simulation(items(static_pools, scaling_pools, &work, run_time, &failures), fifo);
            while simulation.step() {
                if let Err(violations) = simulation.check() {
                    return Err(format!("{violations:?}"));
                }
            }
            Ok(simulation.finish())
        };
        let outcome = play().map_err(TestCaseError::fail)?;
        let left: Vec<_> =
            outcome.verdicts.iter().filter(|v| !matches!(v.verdict, Verdict::Finished { .. })).collect();
        prop_assert!(left.is_empty(), "{left:?}");
        let nodes = outcome.objects.keys().filter(|key| key.kind == Kind::Node).count();
        prop_assert_eq!(nodes, 1 + 2 * static_pools, "pools that grew are gone in the end");
        let again = play().map_err(TestCaseError::fail)?;
        prop_assert_eq!(render::recording(&outcome), render::recording(&again));
    }
}
