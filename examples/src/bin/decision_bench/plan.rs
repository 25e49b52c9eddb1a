//! Plans over 2,000 candidates, beside a plain version of the same rules that adds everything up anew for every question.

use std::collections::BTreeMap;

use cpu_time::ThreadTime;
use slicegate_preemption::{Config, MemoryWorkload, MemoryWorld, Planner, Preemptor, Request, World as _};
use slicegate_quota::{Amount, FlavorResourceId, Forest, Limits, Names, NodeId, NodeQuota, Weight};
use slicegate_workload::{PreemptionPolicy, ReclaimPolicy, Timestamp, WithinClusterQueuePolicy};

use crate::{median, micros};

const QUEUES: usize = 10;
const CANDIDATES: usize = 2_000;

pub(crate) fn run() {
    println!("\nA plan over {CANDIDATES} candidates in {QUEUES} ClusterQueues that borrow");
    let mut names = Names::new();
    let pair = names.intern("default", "cpu");
    let (mut world, own, queues) = world(names, pair);
    // Everybody else has 100 of quota and uses 200, of which only 100 may be reclaimed: 1,000 altogether, all of it `own`'s.
    for needed in [1, 500, 1_000, 1_001] {
        let preemptor =
            Preemptor { cluster_queue: own, priority: 100, queued_at: Timestamp::from_seconds(0), local_queue: None };
        let amounts = [(pair, Amount::new(needed))];
        let request = Request { preemptor, needed: &amounts, preempting: &[pair], placed: false };
        let mut planner = Planner::new();
        let mut seconds = Vec::new();
        let mut victims = 0;
        for _ in 0..100 {
            let begin = ThreadTime::now();
            victims = planner.targets(&mut world, &Config::default(), &request).len();
            seconds.push(begin.elapsed().as_secs_f64());
        }
        let begin = ThreadTime::now();
        let plain = plain(&world, own, &queues, pair, needed);
        let plain_seconds = begin.elapsed().as_secs_f64();
        assert_eq!(plain, victims, "the plain version finds as many victims");
        println!(
            "  needs {needed:>5}: {victims:>5} victims, {:>8} us (median of 100); adding up anew: {} us",
            micros(median(seconds)),
            micros(plain_seconds)
        );
    }
}

fn world(names: Names, pair: FlavorResourceId) -> (MemoryWorld, NodeId, Vec<NodeId>) {
    let mut forest = Forest::new();
    let quota = |nominal: i64| NodeQuota {
        parent: Some("all".into()),
        limits: BTreeMap::from([(pair, Limits { nominal: Amount::new(nominal), ..Limits::default() })]),
        weight: Weight::default(),
    };
    let own = forest.set_cluster_queue("own", quota(1_000));
    let queues: Vec<NodeId> = (0..QUEUES).map(|i| forest.set_cluster_queue(&format!("q{i}"), quota(100))).collect();
    let mut world = MemoryWorld::new(forest, names);
    let policy = PreemptionPolicy {
        reclaim_within_cohort: ReclaimPolicy::Any,
        within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
        borrow_within_cohort: None,
    };
    world.set_policy(own, policy);
    for n in 0..CANDIDATES {
        let number = i64::try_from(n).unwrap_or_default();
        world.add(MemoryWorkload {
            cluster_queue: queues[n % QUEUES],
            priority: number * 7919 % 50,
            queued_at: Timestamp::from_seconds(number),
            reserved_at: Timestamp::from_seconds(number * 104_729 % 1_000),
            evicted: false,
            local_queue: None,
            usage: vec![(pair, Amount::new(1))],
            uid: format!("uid-{n}").into(),
        });
    }
    (world, own, queues)
}

/// How many victims a plain version of the rules takes: sort, take while somebody borrows, give back what is not needed;
/// every question is answered by adding up all that runs.
fn plain(world: &MemoryWorld, own: NodeId, queues: &[NodeId], pair: FlavorResourceId, needed: i64) -> usize {
    struct Running {
        queue: NodeId,
        amount: i64,
        gone: bool,
    }
    let mut order: Vec<_> = queues.iter().flat_map(|&q| world.workloads(q)).map(|&w| world.workload(w)).collect();
    order.sort_by(|a, b| {
        let by_age = b.reserved_at.cmp(&a.reserved_at);
        a.priority.cmp(&b.priority).then(by_age).then_with(|| a.uid.cmp(b.uid))
    });
    let mut running: Vec<Running> = order
        .iter()
        .map(|h| Running { queue: h.cluster_queue, amount: h.usage.iter().map(|u| u.1.value()).sum(), gone: false })
        .collect();
    let forest = world.forest();
    let total: i64 = queues.iter().chain([&own]).map(|&q| forest.nominal(q, pair).value()).sum();
    let used = |running: &[Running], of: Option<NodeId>| -> i64 {
        running.iter().filter(|r| !r.gone && of.is_none_or(|q| r.queue == q)).map(|r| r.amount).sum()
    };
    let fits =
        |running: &[Running]| used(running, None) + needed <= total && needed <= forest.nominal(own, pair).value();
    let mut taken = Vec::new();
    for i in 0..running.len() {
        if used(&running, Some(running[i].queue)) <= forest.nominal(running[i].queue, pair).value() {
            continue;
        }
        running[i].gone = true;
        taken.push(i);
        if fits(&running) {
            let last = taken.pop();
            for &i in taken.iter().rev() {
                running[i].gone = false;
                running[i].gone = !fits(&running);
            }
            return taken.iter().filter(|&&i| running[i].gone).count() + usize::from(last.is_some());
        }
    }
    0
}
