//! What happens by itself as time passes.

use slicegate_workload::Timestamp;

use super::ids::WorkloadId;
use super::{Engine, SecondPass};

/// The longest wait before a workload that holds quota is looked at again, in seconds.
const LONGEST_SECOND_PASS_SECONDS: i64 = 30;

impl Engine {
    /// Does what is due: parked workloads whose batch is complete compete again, usage is sampled.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.state.now = now;
        self.flush_nodes_due(now);
        self.flush_due(now);
        self.sample_due(now);
    }

    /// When something happens by itself next: a batch of parked workloads comes back, usage is sampled, a second look at a
    /// workload is due. The ends of back-offs are not among it: they are written to workloads by whoever drives them (see
    /// [`lifecycle::requeue`](crate::lifecycle::requeue)).
    pub fn next_wake(&self) -> Option<Timestamp> {
        let flush = self.flushes.values().min().copied();
        let second = self.second_pass.values().map(|s| s.due).min();
        [flush, self.node_flush, second, self.next_sample()].into_iter().flatten().min()
    }

    /// Whether a cycle has anything to do.
    pub fn has_heads(&mut self, now: Timestamp) -> bool {
        self.tick(now);
        self.second_pass.values().any(|s| s.due <= now)
            || !self.is_waiting_for_pods()
                && self.active_nodes().any(|node| self.pending_queue(node).is_some_and(|q| q.active_len() > 0))
    }

    /// Plans another look at a workload that holds quota, if it needs one, after what may have changed that.
    pub(super) fn look_again(&mut self, now: Timestamp, id: WorkloadId, iteration: u32) {
        let Some(record) = self.state.records.get(id) else { return };
        if !record.second_pass || record.holding.is_none() {
            self.second_pass.remove(&id);
            return;
        }
        if iteration == 0 && self.second_pass.contains_key(&id) {
            return;
        }
        let seconds = 1_i64.checked_shl(iteration).unwrap_or(i64::MAX).min(LONGEST_SECOND_PASS_SECONDS);
        let next = SecondPass { iteration: iteration.saturating_add(1), due: now.plus_seconds(seconds) };
        self.second_pass.insert(id, next);
    }

    /// Takes the workloads whose second look is due, by name, with how often they were looked at.
    pub(super) fn take_second_pass(&mut self, now: Timestamp) -> Vec<(WorkloadId, u32)> {
        let mut due: Vec<(WorkloadId, u32)> =
            self.second_pass.iter().filter(|(_, s)| s.due <= now).map(|(&id, s)| (id, s.iteration)).collect();
        for (id, _) in &due {
            self.second_pass.remove(id);
        }
        due.retain(|(id, _)| self.state.records.get(*id).is_some_and(|r| r.second_pass && r.holding.is_some()));
        due.sort_by(|a, b| {
            let key = |id: WorkloadId| self.state.records.get(id).map(|r| &r.key);
            key(a.0).cmp(&key(b.0))
        });
        due
    }
}
