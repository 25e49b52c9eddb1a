//! Putting workloads into queues, taking them out, and letting parked ones compete again.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use slicegate_flavor::LastTried;
use slicegate_quota::NodeId;
use slicegate_workload::{ConditionType, Key, QueueingStrategy, Timestamp};

use super::Engine;
use super::ids::{ClassId, LocalQueueId, WorkloadId};
use super::queue::{Order, PendingQueue, Place, Places, PreemptorRecord};
use super::record::Record;
use super::state::{NamespaceFact, State};
use super::workloads::Before;

/// For how long changes are collected before parked workloads are looked at again.
const BATCH_SECONDS: i64 = 1;

/// The order in which a ClusterQueue serves its workloads: LocalQueues that used less first (if that counts), then the
/// workload that preempts for itself, then priority, then time, then unique id.
pub(super) struct ServiceOrder<'a> {
    state: &'a State,
    sticky: Option<WorkloadId>,
    by_usage: bool,
}

impl Order for ServiceOrder<'_> {
    fn compare(&self, a: WorkloadId, b: WorkloadId) -> Ordering {
        let (Some(x), Some(y)) = (self.state.records.get(a), self.state.records.get(b)) else { return a.cmp(&b) };
        let sticky = |id: WorkloadId| self.sticky == Some(id);
        sticky(b)
            .cmp(&sticky(a))
            .then_with(|| y.priority().cmp(&x.priority()))
            .then_with(|| x.queued_at.cmp(&y.queued_at))
            .then_with(|| x.uid.cmp(&y.uid))
    }

    fn compare_queues(&self, a: LocalQueueId, b: LocalQueueId) -> Ordering {
        if !self.by_usage {
            return Ordering::Equal;
        }
        match (self.state.local_queue(a), self.state.local_queue(b)) {
            (Some(x), Some(y)) => x.ledger.usage.total_cmp(&y.ledger.usage),
            _ => Ordering::Equal,
        }
    }
}

impl Engine {
    /// Whether past usage orders the workloads of a ClusterQueue.
    pub(super) fn orders_by_usage(&self, node: NodeId) -> bool {
        self.fair_usage().is_some() && self.state.queue(node).is_some_and(|q| q.spec.usage_based_fair_sharing)
    }

    /// Runs something on the queue of a ClusterQueue.
    pub(super) fn with_queue<R>(
        &mut self,
        node: NodeId,
        run: impl FnOnce(&mut PendingQueue, &mut Places, &ServiceOrder<'_>) -> R,
    ) -> Option<R> {
        let by_usage = self.orders_by_usage(node);
        let queue = self.pending.get_mut(node.index())?.as_mut()?;
        let sticky = queue.preemptor.filter(|p| p.sticky).map(|p| p.workload);
        let order = ServiceOrder { state: &self.state, sticky, by_usage };
        Some(run(queue, &mut self.places, &order))
    }

    pub(super) fn pending_queue(&self, node: NodeId) -> Option<&PendingQueue> {
        self.pending.get(node.index())?.as_ref()
    }

    /// The order of the queue of a ClusterQueue as it is now.
    pub(super) fn service_order(&self, node: NodeId) -> ServiceOrder<'_> {
        let sticky = self.pending_queue(node).and_then(|q| q.preemptor).filter(|p| p.sticky).map(|p| p.workload);
        ServiceOrder { state: &self.state, sticky, by_usage: self.orders_by_usage(node) }
    }

    fn node_of(&self, id: WorkloadId) -> Option<NodeId> {
        self.state.local_queue(self.state.records.get(id)?.queue)?.target
    }

    /// Takes a workload out of its queue, if it is in one.
    pub(super) fn dequeue(&mut self, id: WorkloadId) {
        if self.places.get(id) == Place::Nowhere {
            return;
        }
        if let Some(node) = self.node_of(id) {
            self.with_queue(node, |queue, places, order| queue.remove(id, places, order));
        }
        self.places.set(id, Place::Nowhere);
    }

    /// Forgets that a workload preempts for itself.
    pub(super) fn forget_preemptor(&mut self, id: WorkloadId) {
        let Some(node) = self.node_of(id) else { return };
        self.with_queue(node, |queue, _, _| {
            if queue.preemptor.is_some_and(|p| p.workload == id) {
                queue.preemptor = None;
            }
        });
        self.with_queue(node, |queue, places, order| queue.resift(id, places, order));
    }

    /// Puts a workload that may be admitted into its queue: among those that compete, unless its back-off is not over or one
    /// just like it failed and nothing changed since.
    pub(super) fn enqueue(&mut self, now: Timestamp, id: WorkloadId, before: Before) {
        let Some(node) = self.node_of(id) else { return };
        let Some(record) = self.state.records.get(id) else { return };
        let (class, queue_id) = (record.class, record.queue);
        let expired = record.status.backoff_expired(now);
        let knows_classes = self.knows_classes(node);
        self.with_queue(node, |queue, places, order| {
            let active = match before {
                Before::Active => true,
                Before::Parked => false,
                Before::Nowhere => expired && !(knows_classes && queue.blocked.contains_key(&class)),
            };
            if active || expired {
                queue.insert(id, class, queue_id, active, places, order);
            } else {
                queue.wait(id, places);
            }
        });
    }

    /// Lets workloads compete again that were parked after a scan of flavors that did not see the first of them: it had room for
    /// them before another workload came in between, and that may not have taken it. Returns whether there are any.
    ///
    /// A cycle of Kueue does not do this; they wait there until something else changes. Whoever runs cycles until nothing
    /// happens does it once at the end.
    pub fn reconsider_cut_short(&mut self) -> bool {
        let all = std::mem::take(&mut self.cut_short);
        let mut any = false;
        for id in all {
            let Some(node) = self.node_of(id) else { continue };
            let Some(class) = self.state.records.get(id).map(|r| r.class) else { continue };
            let place = self.places.get(id);
            any |= self
                .with_queue(node, |queue, places, order| {
                    let parked = matches!(place, Place::Grouped(..)) && queue.is_parked(place);
                    if parked {
                        queue.revive_class(class, places, order);
                    }
                    parked
                })
                .unwrap_or_default();
        }
        any
    }

    /// Lets a workload that is parked until something changes compete again, and no other that is like it.
    pub(super) fn unpark(&mut self, id: WorkloadId) {
        let place = self.places.get(id);
        let Some(node) = self.node_of(id) else { return };
        let Some((class, queue_id)) = self.state.records.get(id).map(|r| (r.class, r.queue)) else { return };
        self.with_queue(node, |queue, places, order| {
            if matches!(place, Place::Grouped(..)) && queue.is_parked(place) {
                queue.remove(id, places, order);
                queue.insert(id, class, queue_id, true, places, order);
            }
        });
    }

    /// Whether a workload's scan of flavors was interrupted: the next cycle goes on from there.
    pub fn has_flavors_left(&self, workload: &Key) -> bool {
        let record = self.state.records.find(workload).and_then(|id| self.state.records.get(id));
        record.and_then(|r| r.last.as_deref()).is_some_and(LastTried::has_pending)
    }

    /// Whether workloads that are like one that failed are parked with it.
    pub(super) fn knows_classes(&self, node: NodeId) -> bool {
        self.config.gates.scheduling_equivalence_hashing
            && self.state.queue(node).is_some_and(|q| q.spec.queueing_strategy == QueueingStrategy::BestEffortFifo)
    }

    /// Remembers which workload of a ClusterQueue preempts for itself.
    pub(super) fn remember_preemptor(&mut self, node: NodeId, record: PreemptorRecord) {
        let old = self.with_queue(node, |queue, _, _| queue.preemptor.replace(record)).flatten();
        self.with_queue(node, |queue, places, order| {
            if let Some(old) = old {
                queue.resift(old.workload, places, order);
            }
            queue.resift(record.workload, places, order);
        });
    }

    /// Puts every waiting workload of a LocalQueue into the queue of its ClusterQueue.
    pub(super) fn replay(&mut self, now: Timestamp, queue: LocalQueueId) {
        let Some(members) = self.state.local_queue(queue).map(|q| q.members.clone()) else { return };
        for id in members {
            // Given quota of a ClusterQueue that is gone by now: the API says how that ended.
            let reserved = |r: &Record| r.status.conditions.is_true(&ConditionType::QuotaReserved);
            let waits = self.state.records.get(id).is_some_and(|r| r.admissible && r.holding.is_none() && !reserved(r));
            if waits && self.places.get(id) == Place::Nowhere {
                self.enqueue(now, id, Before::Nowhere);
            }
        }
    }

    // ----- parked workloads ----------------------------------------------------------------------------------------

    /// Lets parked workloads of a ClusterQueue's whole tree compete again soon.
    pub(super) fn request_flush(&mut self, now: Timestamp, node: NodeId) {
        if self.state.forest.is_cyclic(node) {
            return;
        }
        let root = self.state.forest.root(node);
        self.flushes.entry(root).or_insert(now.plus_seconds(BATCH_SECONDS));
    }

    /// [`Engine::request_flush`] after a change of the configuration.
    pub(super) fn configuration_changed(&mut self, now: Timestamp, node: NodeId) {
        self.changed_from_outside(node);
        self.request_flush(now, node);
    }

    /// [`Engine::request_flush`] for the trees of a workload: where it waits and where it held quota.
    pub(super) fn flush_for(&mut self, now: Timestamp, id: WorkloadId) {
        if let Some(node) = self.node_of(id) {
            self.request_flush(now, node);
        }
    }

    /// Lets parked workloads that something changed for compete again now, without waiting for the batch.
    pub fn flush(&mut self, now: Timestamp) {
        self.state.now = now;
        let roots = std::mem::take(&mut self.flushes);
        self.flush_trees(now, |root| roots.contains_key(&root));
    }

    pub(super) fn flush_due(&mut self, now: Timestamp) {
        if self.flushes.values().all(|due| *due > now) {
            return;
        }
        let (due, later): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.flushes).into_iter().partition(|(_, due)| *due <= now);
        self.flushes = later;
        self.flush_trees(now, |root| due.contains_key(&root));
    }

    fn flush_trees(&mut self, now: Timestamp, of: impl Fn(NodeId) -> bool) {
        let nodes: Vec<NodeId> = (0..self.pending.len())
            .map(NodeId::from_index)
            .filter(|&n| self.pending_queue(n).is_some())
            .filter(|&n| of(self.state.forest.root(n)) && !self.state.forest.is_cyclic(n))
            .collect();
        for node in nodes {
            let by_usage = self.orders_by_usage(node);
            let Self { state, pending, places, .. } = self;
            let Some(queue) = pending.get_mut(node.index()).and_then(Option::as_mut) else { continue };
            let sticky = queue.preemptor.filter(|p| p.sticky).map(|p| p.workload);
            let order = ServiceOrder { state, sticky, by_usage };
            let served = |q: LocalQueueId| state.local_queue(q).is_some_and(|q| q.namespace == NamespaceFact::Served);
            let over = |id: WorkloadId| -> Option<(ClassId, LocalQueueId)> {
                let record = state.records.get(id)?;
                record.status.backoff_expired(now).then_some((record.class, record.queue))
            };
            queue.revive(served, over, places, &order);
        }
    }
}
