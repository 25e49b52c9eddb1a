//! Answering questions about queues.

use slicegate_quota::{Amount, FlavorResourceId, NodeId};
use slicegate_workload::{Key, Requests, StopPolicy, Workload};

use super::Engine;
use super::activity::{activity, cyclic};
use super::ids::{LocalQueueId, WorkloadId};
use super::queue::Order as _;
use super::tally::Tally;
use crate::lifecycle::{PendingFacts, QueueFact};
use crate::{Activity, ClusterQueueReport, CohortReport, FlavorUsage, LocalQueueReport, PendingWorkload, Share};

impl Engine {
    /// Whether a ClusterQueue admits workloads; `None` if it is not known.
    pub(super) fn activity_of(&self, node: NodeId) -> Option<Activity> {
        let queue = self.state.queue(node)?;
        let is_cyclic = queue.is_active() && self.state.forest.is_cyclic(node);
        Some(if is_cyclic { cyclic() } else { activity(&queue.inactive) })
    }

    /// A ClusterQueue now.
    pub fn cluster_queue(&self, name: &str) -> Option<ClusterQueueReport> {
        let node = self.state.forest.cluster_queue(name)?;
        let queue = self.state.queue(node)?;
        let pending = self.pending_queue(node)?;
        let reservation = self.usage_report(node, |pair| queue.tally.reserved(pair));
        let usage = self.usage_report(node, |pair| queue.tally.used(pair));
        Some(ClusterQueueReport {
            activity: self.activity_of(node)?,
            inactive: queue.inactive.clone(),
            pending: pending.active_len().saturating_add(pending.parked_len()),
            inadmissible: pending.parked_len(),
            reserving: queue.holders.len(),
            admitted: queue.tally.admitted,
            reservation,
            usage,
            weighted_share: Share(self.state.forest.share(node, &[], &self.state.names).rounded()),
        })
    }

    /// Usage of the pairs of a ClusterQueue, with what is borrowed.
    fn usage_report(&self, node: NodeId, total: impl Fn(FlavorResourceId) -> Amount) -> Vec<FlavorUsage> {
        let borrows = self.state.forest.parent(node).is_some();
        self.each_pair(node)
            .map(|pair| {
                let total = total(pair);
                let over = total.minus(self.state.forest.nominal(node, pair)).or_zero();
                self.flavor_usage(pair, total, if borrows { over } else { Amount::ZERO })
            })
            .collect()
    }

    fn each_pair(&self, node: NodeId) -> impl Iterator<Item = FlavorResourceId> + '_ {
        let spec = self.state.queue(node).map(|q| &q.spec);
        let flavors = spec.into_iter().flat_map(|s| &s.resource_groups).flat_map(|g| &g.flavors);
        flavors.flat_map(|f| f.resources.iter().map(move |(r, _)| (&f.name, r))).filter_map(|(flavor, resource)| {
            let names = &self.state.names;
            names.pair(names.flavor(flavor)?, names.resource(resource)?)
        })
    }

    fn flavor_usage(&self, pair: FlavorResourceId, total: Amount, borrowed: Amount) -> FlavorUsage {
        let names = &self.state.names;
        let (flavor, resource) = names.flavor_resource(pair);
        FlavorUsage {
            flavor: names.flavor_name(flavor).into(),
            resource: names.resource_name(resource).into(),
            total,
            borrowed,
        }
    }

    /// A LocalQueue now.
    pub fn local_queue(&self, key: &Key) -> Option<LocalQueueReport> {
        let id = *self.state.local_queue_ids.get(key)?;
        let queue = self.state.local_queue(id)?;
        let spec = queue.spec.as_ref()?;
        let node = self.state.forest.cluster_queue(&spec.cluster_queue);
        let tally = node.and_then(|n| queue.tallies.get(&n));
        let report = |total: &dyn Fn(&Tally, FlavorResourceId) -> Amount| -> Vec<FlavorUsage> {
            let Some(node) = node else { return Vec::new() };
            let total = |pair: FlavorResourceId| tally.map_or(Amount::ZERO, |t| total(t, pair));
            self.each_pair(node).map(|pair| self.flavor_usage(pair, total(pair), Amount::ZERO)).collect()
        };
        Some(LocalQueueReport {
            activity: self.local_activity(id),
            pending: queue.target.map_or(0, |n| self.waiting_of(n, id)),
            reserving: tally.map_or(0, |t| t.reserving),
            admitted: tally.map_or(0, |t| t.admitted),
            reservation: report(&|tally, pair| tally.reserved(pair)),
            usage: report(&|tally, pair| tally.used(pair)),
            fair_sharing_usage: self.fair_usage().map(|_| queue.ledger.usage),
            consumed: self.fair_usage().and_then(|_| Some((queue.ledger.consumed.clone(), queue.ledger.last_update?))),
        })
    }

    /// How many workloads of a LocalQueue wait in a ClusterQueue.
    fn waiting_of(&self, node: NodeId, queue: LocalQueueId) -> usize {
        let of_queue = |id: WorkloadId| self.state.records.get(id).is_some_and(|r| r.queue == queue);
        self.pending_queue(node).map_or(0, |pending| pending.count_of(queue, of_queue))
    }

    fn local_activity(&self, id: LocalQueueId) -> Activity {
        let inactive =
            |reason: &'static str, message: &str| Activity { active: false, reason, message: message.into() };
        let spec = self.state.local_queue(id).and_then(|q| q.spec.as_ref());
        if spec.is_some_and(|s| s.stop_policy != StopPolicy::None) {
            return inactive("Stopped", "LocalQueue is stopped");
        }
        let node = spec.and_then(|s| self.state.forest.cluster_queue(&s.cluster_queue));
        match node.and_then(|n| self.state.queue(n)) {
            None => inactive("ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"),
            Some(_) if node.and_then(|n| self.activity_of(n)).is_some_and(|a| !a.active) => {
                inactive("ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
            }
            Some(_) => {
                Activity { active: true, reason: "Ready", message: "Can submit new workloads to localQueue".into() }
            }
        }
    }

    /// A Cohort now.
    pub fn cohort(&self, name: &str) -> Option<CohortReport> {
        let forest = &self.state.forest;
        let node = forest.cohort(name)?;
        Some(CohortReport {
            weighted_share: Share(forest.share(node, &[], &self.state.names).rounded()),
            subtree: forest
                .pairs(node)
                .map(|pair| {
                    let usage = forest.usage(node, pair);
                    let quota = forest.subtree_quota(node, pair);
                    (self.flavor_usage(pair, usage, usage.minus(quota).or_zero()), quota)
                })
                .collect(),
            cyclic: forest.is_cyclic(node),
        })
    }

    /// The workloads that wait in a ClusterQueue, in the order in which they are served, parked ones included.
    pub fn pending(&self, cluster_queue: &str) -> Vec<PendingWorkload> {
        let Some(node) = self.state.forest.cluster_queue(cluster_queue) else { return Vec::new() };
        let Some(queue) = self.pending_queue(node) else { return Vec::new() };
        let order = self.service_order(node);
        let mut all: Vec<(WorkloadId, bool)> =
            queue.active().map(|id| (id, false)).chain(queue.parked().map(|id| (id, true))).collect();
        let local = |id: WorkloadId| self.state.records.get(id).map(|r| r.queue);
        all.sort_by(|a, b| {
            let by_usage = match (local(a.0), local(b.0)) {
                (Some(x), Some(y)) => order.compare_queues(x, y),
                _ => std::cmp::Ordering::Equal,
            };
            by_usage.then_with(|| order.compare(a.0, b.0)).then_with(|| a.0.cmp(&b.0))
        });
        let mut before = vec![0_usize; self.state.local_queues.len()];
        let mut list = Vec::with_capacity(all.len());
        for (position, (id, parked)) in all.into_iter().enumerate() {
            let Some(record) = self.state.records.get(id) else { continue };
            let Some(local_queue) = self.state.local_queue(record.queue) else { continue };
            let Some(in_local_queue) = before.get_mut(record.queue.index()) else { continue };
            list.push(PendingWorkload {
                workload: record.key.clone(),
                local_queue: local_queue.key.clone(),
                priority: record.priority(),
                position_in_cluster_queue: position,
                position_in_local_queue: *in_local_queue,
                parked,
            });
            *in_local_queue = in_local_queue.saturating_add(1);
        }
        list
    }

    /// What the workloads that wait in a ClusterQueue ask for together, by resource, with defaults filled in: in thousandths of
    /// cores for `cpu`, in whole units else.
    pub fn pending_requests(&self, cluster_queue: &str) -> Requests {
        let mut sum = Requests::new();
        let node = self.state.forest.cluster_queue(cluster_queue);
        let Some(queue) = node.and_then(|node| self.pending_queue(node)) else { return sum };
        for id in queue.active().chain(queue.parked()) {
            let shape = self.state.records.get(id).and_then(|record| self.shapes.get(record.shape));
            for totals in shape.map(|shape| shape.totals.as_slice()).unwrap_or_default() {
                sum.add_all(&totals.requests);
            }
        }
        sum
    }

    /// What the engine knows about a workload that waits, for [`lifecycle::sync_pending`](crate::lifecycle::sync_pending).
    pub fn pending_facts(&self, workload: &Workload) -> PendingFacts {
        let key = Key::new(workload.key.namespace.clone(), workload.spec.queue_name.clone());
        let queue = self.state.local_queue_ids.get(&key).and_then(|&id| self.state.local_queue(id));
        let mut facts = PendingFacts::default();
        let Some((queue, spec)) = queue.and_then(|q| Some((q, q.spec.as_ref()?))) else {
            facts.local_queue = QueueFact::Missing;
            return facts;
        };
        facts.cluster_queue_name = spec.cluster_queue.clone();
        if !queue.is_open() {
            facts.local_queue = QueueFact::Inactive;
        }
        let node = self.state.forest.cluster_queue(&spec.cluster_queue);
        match node.and_then(|n| self.state.queue(n)) {
            None => facts.cluster_queue = QueueFact::Missing,
            Some(q) if !q.is_active() || node.is_some_and(|n| self.state.forest.is_cyclic(n)) => {
                facts.cluster_queue = QueueFact::Inactive;
            }
            Some(_) => {}
        }
        if let (Some(id), Some(node)) = (self.state.records.find(&workload.key), node)
            && let Some(record) = self.state.records.get(id)
        {
            facts.inadmissible = match queue.namespace {
                super::state::NamespaceFact::Mismatch => {
                    Some("workload namespace doesn't match ClusterQueue selector".into())
                }
                super::state::NamespaceFact::Missing => Some(
                    format!(
                        "workload namespace \"{0}\" does not exist: namespaces \"{0}\" not found",
                        workload.key.namespace
                    )
                    .into(),
                ),
                super::state::NamespaceFact::Served => self.shapes.get(record.shape).and_then(|s| s.invalid.clone()),
            };
            if let Some(pending) = self.pending_queue(node)
                && pending.is_parked(self.places.get(id))
            {
                facts.parked_with = pending.blocked.get(&record.class).cloned();
            }
        }
        facts
    }

    /// How many workloads are known, and how many distinct lists of pod sets they have.
    pub fn sizes(&self) -> (usize, usize) {
        (self.state.records.len(), self.shapes.len())
    }
}
