//! No circles of preemption.
//!
//! Preemption by fair share compares shares as they would be after a plan; but a plan may give victims back at its end, and
//! the workloads that it makes room for need not be the ones that get it. So a workload can be preempted, be admitted again
//! before its preemptor, and be preempted again, for ever, although nothing changes from outside.
//!
//! The rule that ends this: **a workload preempts another at most once, until something changes in their tree from outside**
//! - until quota is freed by other means than preemption, or the configuration, a priority or a request changes.
//!
//! It suffices: of n workloads there are fewer than n² pairs, so between two such changes there are fewer than n² evictions
//! for preemption, whatever the policies. And it costs nothing: a preemptor that meets the same victim again, without a
//! change, has already seen that the room it makes goes to others.

use slicegate_preemption::WorkloadRef;
use slicegate_quota::NodeId;

use super::Engine;
use super::ids::WorkloadId;
use super::record::Preempted;
use super::state::{Hidden, reference};

impl Engine {
    /// Notes that something changed in the tree of a node that is not a consequence of preemption.
    pub(super) fn changed_from_outside(&mut self, node: NodeId) {
        let epoch = self.epochs.entry(self.state.forest.root(node)).or_insert(0);
        *epoch = epoch.saturating_add(1);
    }

    fn epoch(&self, root: NodeId) -> u64 {
        self.epochs.get(&root).copied().unwrap_or(0)
    }

    /// Takes the workloads that a preemptor preempted already, and that run again, out of its sight.
    pub(super) fn spare(&mut self, preemptor: WorkloadId, node: NodeId) -> Hidden {
        let spared = self.spared(preemptor, node);
        self.state.hide(&spared)
    }

    fn spared(&self, preemptor: WorkloadId, node: NodeId) -> Vec<WorkloadRef> {
        if !self.config.preemption_guard {
            return Vec::new();
        }
        let root = self.state.forest.root(node);
        let memory = self.state.records.get(preemptor).and_then(|r| r.preempted.as_deref());
        let Some(memory) = memory.filter(|m| m.root == root && m.epoch == self.epoch(root)) else { return Vec::new() };
        let runs = |&&(id, serial): &&(WorkloadId, u64)| {
            let record = self.state.records.get(id).filter(|r| r.serial == serial && r.holding.is_some());
            record.is_some_and(|r| !r.is_evicted() && !r.eviction_expected)
        };
        memory.victims.iter().filter(runs).map(|&(id, _)| reference(id)).collect()
    }

    /// Forgets that a workload was preempted, since nothing came of it.
    pub(super) fn forget_victim(&mut self, victim: WorkloadId) {
        let Some(record) = self.state.records.get_mut(victim) else { return };
        let serial = record.serial;
        let Some(preemptor) = record.evictor.take() else { return };
        let memory = self.state.records.get_mut(preemptor).and_then(|r| r.preempted.as_deref_mut());
        if let Some(memory) = memory {
            memory.victims.retain(|v| *v != (victim, serial));
        }
    }

    /// Remembers that a workload preempted another.
    pub(super) fn remember_victim(&mut self, preemptor: WorkloadId, node: NodeId, victim: WorkloadId) {
        let root = self.state.forest.root(node);
        let epoch = self.epoch(root);
        let Some(record) = self.state.records.get_mut(victim) else { return };
        record.evictor = Some(preemptor);
        let serial = record.serial;
        let Some(record) = self.state.records.get_mut(preemptor) else { return };
        let memory = match record.preempted.take() {
            Some(mut memory) if memory.root == root && memory.epoch == epoch => {
                if let Err(at) = memory.victims.binary_search(&(victim, serial)) {
                    memory.victims.insert(at, (victim, serial));
                }
                memory
            }
            _ => Box::new(Preempted { root, epoch, victims: vec![(victim, serial)] }),
        };
        record.preempted = Some(memory);
    }
}
