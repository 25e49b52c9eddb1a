//! Small worlds for unit tests.

use std::collections::BTreeMap;

use slicegate_quota::{Amount, FlavorResourceId, Forest, Limits, Names, NodeId, NodeQuota, Weight};
use slicegate_workload::{BorrowWithinCohort, PreemptionPolicy, ReclaimPolicy, Timestamp, WithinClusterQueuePolicy};

use crate::{Config, MemoryWorkload, MemoryWorld, Planner, Preemptor, Reason, Request, WorkloadRef, World as _};

pub(crate) const ANY: PreemptionPolicy = PreemptionPolicy {
    reclaim_within_cohort: ReclaimPolicy::Any,
    within_cluster_queue: WithinClusterQueuePolicy::LowerPriority,
    borrow_within_cohort: None,
};

pub(crate) const WHILE_BORROWING: PreemptionPolicy = PreemptionPolicy {
    borrow_within_cohort: Some(BorrowWithinCohort { lower_priority: true, max_priority_threshold: None }),
    ..ANY
};

/// A world of one pair. Workloads are named by their unique id.
pub(crate) struct Field {
    names: Names,
    forest: Forest,
    pub(crate) pair: FlavorResourceId,
    policies: Vec<(NodeId, PreemptionPolicy)>,
    workloads: Vec<MemoryWorkload>,
}

impl Field {
    pub(crate) fn new() -> Self {
        let mut names = Names::new();
        let pair = names.intern("default", "cpu");
        Self { names, forest: Forest::new(), pair, policies: Vec::new(), workloads: Vec::new() }
    }

    fn quota(&self, parent: &str, nominal: i64, weight: u64) -> NodeQuota {
        let limits = Limits { nominal: Amount::new(nominal), ..Limits::default() };
        NodeQuota {
            parent: (!parent.is_empty()).then(|| parent.into()),
            limits: BTreeMap::from([(self.pair, limits)]),
            weight: Weight::from_nanos(weight * 1_000_000_000),
        }
    }

    pub(crate) fn cohort(mut self, name: &str, parent: &str, nominal: i64) -> Self {
        let quota = self.quota(parent, nominal, 1);
        self.forest.set_cohort(name, quota);
        self
    }

    pub(crate) fn queue(self, name: &str, parent: &str, nominal: i64, policy: PreemptionPolicy) -> Self {
        self.weighted(name, parent, nominal, policy, 1)
    }

    pub(crate) fn weighted(
        mut self,
        name: &str,
        parent: &str,
        nominal: i64,
        policy: PreemptionPolicy,
        weight: u64,
    ) -> Self {
        let quota = self.quota(parent, nominal, weight);
        let node = self.forest.set_cluster_queue(name, quota);
        self.policies.push((node, policy));
        self
    }

    /// A workload that holds quota, given at second 0.
    pub(crate) fn running(mut self, uid: &str, queue: &str, priority: i64, amount: i64) -> Self {
        let cluster_queue = self.node(queue);
        self.workloads.push(MemoryWorkload {
            cluster_queue,
            priority,
            queued_at: Timestamp::from_seconds(0),
            reserved_at: Timestamp::from_seconds(0),
            evicted: false,
            local_queue: None,
            usage: vec![(self.pair, Amount::new(amount))],
            uid: uid.into(),
        });
        self
    }

    /// Changes the workload added last.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut MemoryWorkload)) -> Self {
        change(self.workloads.last_mut().unwrap());
        self
    }

    pub(crate) fn node(&self, queue: &str) -> NodeId {
        self.forest.cluster_queue(queue).unwrap()
    }

    pub(crate) fn world(&self) -> (MemoryWorld, Vec<WorkloadRef>) {
        let mut world = MemoryWorld::new(self.forest.clone(), self.names.clone());
        for &(node, policy) in &self.policies {
            world.set_policy(node, policy);
        }
        let refs = self.workloads.iter().map(|w| world.add(w.clone())).collect();
        (world, refs)
    }

    pub(crate) fn preemptor(&self, queue: &str, priority: i64) -> Preemptor {
        Preemptor {
            cluster_queue: self.node(queue),
            priority,
            queued_at: Timestamp::from_seconds(0),
            local_queue: None,
        }
    }

    /// The victims of a workload of this priority that needs this much, by unique id.
    pub(crate) fn victims(&self, config: &Config, queue: &str, priority: i64, amount: i64) -> Vec<(String, Reason)> {
        self.victims_of(config, &self.preemptor(queue, priority), amount)
    }

    pub(crate) fn victims_of(&self, config: &Config, preemptor: &Preemptor, amount: i64) -> Vec<(String, Reason)> {
        let (mut world, _) = self.world();
        let needed = [(self.pair, Amount::new(amount))];
        let preempting = [self.pair];
        let request = Request { preemptor: *preemptor, needed: &needed, preempting: &preempting, placed: false };
        let mut planner = Planner::new();
        let targets = planner.targets(&mut world, config, &request).to_vec();
        let mut named: Vec<(String, Reason)> =
            targets.iter().map(|t| (world.workload(t.workload).uid.to_owned(), t.reason)).collect();
        named.sort();
        named
    }
}

/// Victims of one reason.
pub(crate) fn all(reason: Reason, uids: &[&str]) -> Vec<(String, Reason)> {
    uids.iter().map(|&u| (u.to_owned(), reason)).collect()
}
