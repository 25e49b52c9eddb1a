//! Admission fair sharing: charging LocalQueues for what their workloads use.

use slicegate_quota::{Amount, request_quantity};
use slicegate_workload::{Key, ResourceList, Timestamp};

use super::Engine;
use super::ids::{LocalQueueId, WorkloadId};
use crate::AdmissionFairSharing;

impl Engine {
    /// The configuration of admission fair sharing, if it is on.
    pub(super) fn fair_usage(&self) -> Option<&AdmissionFairSharing> {
        self.config.admission_fair_sharing.as_ref().filter(|_| self.config.gates.admission_fair_sharing)
    }

    /// Tells what a LocalQueue had consumed at some time, as its status says after a restart. What was counted here meanwhile
    /// is added. Only the first call for a LocalQueue counts.
    pub fn restore_consumed(&mut self, now: Timestamp, at: Timestamp, local_queue: &Key, consumed: &ResourceList) {
        let id = self.state.intern_local_queue(local_queue);
        if let Some(queue) = self.state.local_queues.get_mut(id.index()) {
            // A clock that ran ahead must not keep usage from decaying.
            queue.ledger.restore(consumed, at.min(now));
        }
        self.weigh(id);
    }

    /// Computes the usage by which a LocalQueue is ordered anew.
    pub(super) fn weigh(&mut self, id: LocalQueueId) {
        let Some(config) =
            self.config.admission_fair_sharing.as_ref().filter(|_| self.config.gates.admission_fair_sharing)
        else {
            return;
        };
        let Some(queue) = self.state.local_queues.get_mut(id.index()) else { return };
        let weight = queue.spec.as_ref().map_or_else(slicegate_quota::Weight::default, |s| s.fair_weight);
        if queue.ledger.weigh(weight, config)
            && let Some(node) = queue.target
            && let Some(pending) = self.pending.get_mut(node.index()).and_then(Option::as_mut)
        {
            pending.stale = true;
        }
    }

    fn is_charged(&self, id: LocalQueueId) -> bool {
        let target = self.state.local_queue(id).and_then(|q| q.target);
        target.is_some_and(|node| self.orders_by_usage(node))
    }

    /// Charges the LocalQueue of a workload that was given quota.
    pub(super) fn charge(&mut self, id: WorkloadId) {
        let Some(record) = self.state.records.get(id) else { return };
        let queue = record.queue;
        if !self.is_charged(queue) {
            return;
        }
        let mut requests = ResourceList::new();
        for totals in self.shapes.get(record.shape).map(|s| s.totals.as_slice()).unwrap_or_default() {
            for (resource, quantity) in totals.requests.to_quantities() {
                let sum = requests.entry(resource).or_default();
                *sum = sum.plus(quantity);
            }
        }
        let Some(config) = self.fair_usage().cloned() else { return };
        if let Some(q) = self.state.local_queues.get_mut(queue.index()) {
            q.ledger.charge(id, &requests, &config);
        }
        self.weigh(queue);
    }

    /// Takes the charge of a workload back.
    pub(super) fn drop_charge(&mut self, id: WorkloadId) {
        let Some(queue) = self.state.records.get(id).map(|r| r.queue) else { return };
        let removed =
            self.state.local_queues.get_mut(queue.index()).is_some_and(|q| q.ledger.penalties.remove(&id).is_some());
        if removed {
            self.weigh(queue);
        }
    }

    /// Turns the charge of a workload that may run now into usage.
    pub(super) fn settle_charge(&mut self, now: Timestamp, id: WorkloadId) {
        let Some(queue) = self.state.records.get(id).map(|r| r.queue) else { return };
        if !self.is_charged(queue) {
            return;
        }
        self.sample(now, queue);
        if let Some(q) = self.state.local_queues.get_mut(queue.index()) {
            q.ledger.settle(id);
        }
        self.weigh(queue);
    }

    /// Takes the usage of a LocalQueue up to now into account.
    fn sample(&mut self, now: Timestamp, id: LocalQueueId) {
        let Some(config) = self.fair_usage().cloned() else { return };
        let current = self.admitted_usage(id);
        if let Some(queue) = self.state.local_queues.get_mut(id.index()) {
            queue.ledger.sample(&current, now, &config);
        }
    }

    /// Samples every LocalQueue whose time has come.
    pub(super) fn sample_due(&mut self, now: Timestamp) {
        let Some(interval) = self.fair_usage().map(|c| c.sampling_interval_seconds) else { return };
        for index in 0..self.state.local_queues.len() {
            let id = LocalQueueId::from_index(index);
            let due = self.state.local_queue(id).is_some_and(|q| {
                q.spec.is_some() && q.ledger.last_update.is_none_or(|last| last.plus_seconds(interval) <= now)
            });
            if due {
                self.sample(now, id);
                self.weigh(id);
            }
        }
    }

    /// When usage is sampled next.
    pub(super) fn next_sample(&self) -> Option<Timestamp> {
        let interval = self.fair_usage()?.sampling_interval_seconds;
        let sampled = self.state.local_queues.iter().filter(|q| q.spec.is_some());
        sampled.filter_map(|q| q.ledger.last_update).map(|last| last.plus_seconds(interval.max(1))).min()
    }

    /// What the workloads of a LocalQueue that may run use, flavors taken together.
    fn admitted_usage(&self, id: LocalQueueId) -> ResourceList {
        let mut sum: std::collections::BTreeMap<&str, Amount> = std::collections::BTreeMap::new();
        let members = self.state.local_queue(id).map(|q| q.members.as_slice()).unwrap_or_default();
        let holdings = members.iter().filter_map(|&m| self.state.records.get(m)?.holding.as_deref());
        for (pair, amount) in holdings.filter(|h| h.admitted).flat_map(|h| &h.usage) {
            let (_, resource) = self.state.names.flavor_resource(*pair);
            let total = sum.entry(self.state.names.resource_name(resource)).or_default();
            *total = total.plus(*amount);
        }
        sum.into_iter()
            .map(|(resource, amount)| (resource.into(), request_quantity(resource, amount.value())))
            .collect()
    }
}
