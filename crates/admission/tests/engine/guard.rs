//! No input makes the system preempt in a circle.

use slicegate_admission::{Config, FairSharing};
use slicegate_workload::{FairSharingStrategy, PreemptionPolicy, ReclaimPolicy, WithinClusterQueuePolicy};

use crate::cluster::{Cluster, queue};

/// A workload of a small model: ClusterQueue, chips, priority.
type Kind = (usize, i64, i32);

/// Every multiset of so many workloads out of these kinds.
fn multisets(kinds: &[Kind], size: usize) -> Vec<Vec<Kind>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, &kind) in kinds.iter().enumerate() {
        for mut rest in multisets(&kinds[i..], size - 1) {
            rest.insert(0, kind);
            all.push(rest);
        }
    }
    all
}

fn kinds(queues: usize, sizes: &[i64], priorities: &[i32]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for queue in 0..queues {
        for &size in sizes {
            for &priority in priorities {
                kinds.push((queue, size, priority));
            }
        }
    }
    kinds
}

struct Model<'a> {
    quotas: &'a [i64],
    policy: PreemptionPolicy,
    fair: Option<Vec<FairSharingStrategy>>,
    workloads: &'a [Kind],
}

const NAMES: [&str; 3] = ["qa", "qb", "qc"];

impl Model<'_> {
    fn cluster(&self, guard: bool) -> Cluster {
        let mut config = Config { preemption_guard: guard, ..Config::new() };
        config.fair_sharing = self.fair.clone().map(|strategies| FairSharing { strategies });
        let mut cluster = Cluster::new(config);
        for (name, &chips) in NAMES.iter().zip(self.quotas) {
            cluster.queue(queue(name, Some("all"), chips, self.policy));
        }
        cluster
    }

    /// Submits the workloads one after another, letting the cluster settle between them. The first that does not settle.
    fn run(&self, guard: bool, cycles: usize) -> Result<(), String> {
        let mut cluster = self.cluster(guard);
        for (i, &(queue, chips, priority)) in self.workloads.iter().enumerate() {
            cluster.submit(&format!("w{i}"), NAMES[queue], chips, priority);
            if cluster.settle(cycles).is_none() {
                let last = cluster.log.len().saturating_sub(12);
                return Err(format!(
                    "quotas {:?}, {:?}, {:?}, workloads {:?}: ... {:?}",
                    self.quotas,
                    self.policy,
                    self.fair,
                    self.workloads,
                    &cluster.log[last..]
                ));
            }
        }
        Ok(())
    }
}

fn policy(reclaim: ReclaimPolicy, within: WithinClusterQueuePolicy) -> PreemptionPolicy {
    PreemptionPolicy { reclaim_within_cohort: reclaim, within_cluster_queue: within, borrow_within_cohort: None }
}

/// A circle without fair sharing: `w3` reclaims its quota from `w0`, `w2` of the same ClusterQueue preempts `w3`, which lets
/// `w0` borrow again, from which `w3` reclaims its quota, and so on.
fn circle() -> Model<'static> {
    Model {
        quotas: &[3, 1, 0],
        policy: policy(ReclaimPolicy::Any, WithinClusterQueuePolicy::LowerPriority),
        fair: None,
        workloads: &[(1, 2, 1), (0, 2, 1), (0, 2, 1), (0, 1, 0)],
    }
}

#[test]
fn without_the_guard_there_are_circles() {
    let text = circle().run(false, 200).unwrap_err();
    assert!(text.contains("evicted w0 for w3") && text.contains("evicted w3 for w2"), "{text}");
}

#[test]
fn the_guard_breaks_a_circle() {
    circle().run(true, 40).unwrap();
}

#[test]
fn the_guard_forgets_when_something_changes() {
    let model = circle();
    let mut cluster = model.cluster(true);
    for (i, &(queue, chips, priority)) in model.workloads.iter().enumerate() {
        cluster.submit(&format!("w{i}"), NAMES[queue], chips, priority);
        cluster.settle(40).unwrap();
    }
    // What ends the circle is that `w3`, which preempted `w0` already, waits beside it.
    assert_eq!(cluster.running(), ["w0", "w1"]);
    assert_eq!(cluster.log.iter().filter(|l| *l == "evicted w0 for w3").count(), 1);
    cluster.finish("w1");
    cluster.settle(40).unwrap();
    assert!(cluster.running().contains(&"w2"), "{:?}", cluster.log);
    // Quota was freed by other means than preemption, so `w3` may reclaim what is its own once more.
    assert!(cluster.running().contains(&"w3"), "{:?}", cluster.log);
}

/// Every system of three ClusterQueues and a few workloads comes to rest after every submission, by priorities and by shares,
/// whatever the policies.
#[test]
fn every_small_system_comes_to_rest() {
    use ReclaimPolicy::{Any, LowerPriority};
    use WithinClusterQueuePolicy::{LowerOrNewerEqualPriority, Never};
    let policies =
        [(Any, WithinClusterQueuePolicy::LowerPriority), (LowerPriority, LowerOrNewerEqualPriority), (Any, Never)];
    let mut circles = 0;
    for (reclaim, within) in policies {
        for fair in [None, Some(vec![])] {
            for mut workloads in multisets(&kinds(3, &[1, 2], &[0, 1]), 3) {
                // The case that completes the circle above: one more chip of low priority in the largest ClusterQueue.
                workloads.push((0, 1, 0));
                workloads.sort_by_key(|&(queue, _, _)| std::cmp::Reverse(queue));
                let quotas = [3, 1, 0];
                let model = Model {
                    quotas: &quotas,
                    policy: policy(reclaim, within),
                    fair: fair.clone(),
                    workloads: &workloads,
                };
                model.run(true, 60).unwrap();
                // A plain run is enough to know that the models are not all harmless.
                if fair.is_none() && workloads[0].0 == 1 && model.run(false, 60).is_err() {
                    circles += 1;
                }
            }
        }
    }
    assert!(circles > 0, "no model goes in a circle without the guard, so this test shows nothing");
}
