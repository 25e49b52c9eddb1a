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
use super::state::Hidden;

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
        let queues = self.state.queues.iter().flatten();
        queues
            .flat_map(|q| &q.holders)
            .copied()
            .filter(|w| {
                self.state.records.get(WorkloadId::from_index(w.index())).is_some_and(|r| {
                    !r.is_evicted() && !r.eviction_expected && memory.victims.binary_search(&r.serial).is_ok()
                })
            })
            .collect()
    }

    /// Remembers that a workload preempted another.
    pub(super) fn remember_victim(&mut self, preemptor: WorkloadId, node: NodeId, victim: WorkloadId) {
        let root = self.state.forest.root(node);
        let epoch = self.epoch(root);
        let Some(serial) = self.state.records.get(victim).map(|r| r.serial) else { return };
        let Some(record) = self.state.records.get_mut(preemptor) else { return };
        let memory = match record.preempted.take() {
            Some(mut memory) if memory.root == root && memory.epoch == epoch => {
                if let Err(at) = memory.victims.binary_search(&serial) {
                    memory.victims.insert(at, serial);
                }
                memory
            }
            _ => Box::new(Preempted { root, epoch, victims: vec![serial] }),
        };
        record.preempted = Some(memory);
    }
}
