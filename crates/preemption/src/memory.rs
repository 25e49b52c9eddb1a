//! A world in memory.

use slicegate_quota::{Amount, FlavorResourceId, Forest, Mark, Names, NodeId};
use slicegate_workload::{PreemptionPolicy, Timestamp};

use crate::{Holder, LocalQueueUsage, WorkloadRef, World};

/// A workload of a [`MemoryWorld`].
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryWorkload {
    /// Where its usage is counted.
    pub cluster_queue: NodeId,
    /// Its effective priority.
    pub priority: i64,
    /// The time by which it is ordered in its queue.
    pub queued_at: Timestamp,
    /// When it was given its quota.
    pub reserved_at: Timestamp,
    /// Whether it is being evicted already.
    pub evicted: bool,
    /// Its LocalQueue; only with admission fair sharing.
    pub local_queue: Option<LocalQueueUsage>,
    /// What it uses.
    pub usage: Vec<(FlavorResourceId, Amount)>,
    /// Its unique id.
    pub uid: Box<str>,
}

/// A [`World`] that owns its forest and its workloads.
#[derive(Clone, Debug, Default)]
pub struct MemoryWorld {
    forest: Forest,
    names: Names,
    workloads: Vec<MemoryWorkload>,
    /// By index of node.
    of_queue: Vec<Vec<WorkloadRef>>,
    policies: Vec<PreemptionPolicy>,
}

impl MemoryWorld {
    /// A world of this forest and the names it was built with, without workloads and with policies that preempt nobody.
    pub fn new(forest: Forest, names: Names) -> Self {
        let nodes = forest.node_count();
        Self {
            forest,
            names,
            workloads: Vec::new(),
            of_queue: vec![Vec::new(); nodes],
            policies: vec![PreemptionPolicy::default(); nodes],
        }
    }

    /// Sets the policy of a ClusterQueue.
    pub fn set_policy(&mut self, cluster_queue: NodeId, policy: PreemptionPolicy) {
        if let Some(slot) = self.policies.get_mut(cluster_queue.index()) {
            *slot = policy;
        }
    }

    /// Adds a workload and its usage.
    pub fn add(&mut self, workload: MemoryWorkload) -> WorkloadRef {
        let id = WorkloadRef::from_index(self.workloads.len());
        for &(pair, amount) in &workload.usage {
            self.forest.add_usage(workload.cluster_queue, pair, amount);
        }
        if let Some(list) = self.of_queue.get_mut(workload.cluster_queue.index()) {
            list.push(id);
        }
        self.workloads.push(workload);
        id
    }

    /// A workload that was added.
    ///
    /// # Panics
    /// If the reference is of another world.
    pub fn get(&self, workload: WorkloadRef) -> &MemoryWorkload {
        &self.workloads[workload.index()]
    }
}

impl World for MemoryWorld {
    type Checkpoint = Mark;

    fn forest(&self) -> &Forest {
        &self.forest
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn forest_mut(&mut self) -> &mut Forest {
        &mut self.forest
    }

    fn workloads(&self, cluster_queue: NodeId) -> &[WorkloadRef] {
        self.of_queue.get(cluster_queue.index()).map_or(&[], Vec::as_slice)
    }

    fn workload(&self, workload: WorkloadRef) -> Holder<'_> {
        let w = &self.workloads[workload.index()];
        Holder {
            cluster_queue: w.cluster_queue,
            priority: w.priority,
            queued_at: w.queued_at,
            reserved_at: w.reserved_at,
            evicted: w.evicted,
            local_queue: w.local_queue,
            usage: &w.usage,
            uid: &w.uid,
        }
    }

    fn policy(&self, cluster_queue: NodeId) -> PreemptionPolicy {
        self.policies.get(cluster_queue.index()).copied().unwrap_or_default()
    }

    fn remove(&mut self, workload: WorkloadRef) {
        let Some(w) = self.workloads.get(workload.index()) else { return };
        for &(pair, amount) in &w.usage {
            self.forest.remove_usage(w.cluster_queue, pair, amount);
        }
    }

    fn restore(&mut self, workload: WorkloadRef) {
        let Some(w) = self.workloads.get(workload.index()) else { return };
        for &(pair, amount) in &w.usage {
            self.forest.add_usage(w.cluster_queue, pair, amount);
        }
    }

    fn checkpoint(&mut self) -> Mark {
        self.forest.mark()
    }

    fn rollback(&mut self, checkpoint: Mark) {
        self.forest.rollback(checkpoint);
    }
}
