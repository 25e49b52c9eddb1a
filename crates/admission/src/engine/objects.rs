//! Taking in what admins configure.

use std::collections::BTreeMap;

use slicegate_flavor::{ClusterQueueView, UndeclaredResources};
use slicegate_quota::{Amount, FlavorResourceId, Limits, NodeId, NodeQuota};
use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, FlavorSpec, Key, LimitRange, LocalQueueSpec, ResourceGroup, ResourceList, Timestamp,
    TopologySpec,
};

use super::activity::{Facts, inactive};
use super::ids::{LocalQueueId, WorkloadId};
use super::queue::{PendingQueue, Place};
use super::state::{ClusterQueue, NamespaceFact};
use super::tally::Tally;
use super::{CheckSpec, CohortCycle, Engine};

impl Engine {
    /// Adds or updates a ClusterQueue.
    pub fn set_cluster_queue(&mut self, now: Timestamp, spec: ClusterQueueSpec) {
        self.state.now = now;
        let known = self.state.forest.cluster_queue(&spec.name);
        if let Some(node) = known
            && self.state.queue(node).is_some_and(|q| q.spec == spec)
        {
            return;
        }
        let before = known.map(|node| self.state.forest.root(node));
        let quota = NodeQuota {
            parent: spec.cohort.clone(),
            limits: self.limits(&spec.resource_groups),
            weight: spec.fair_weight,
        };
        let node = self.state.forest.set_cluster_queue(&spec.name, quota);
        let undeclared = if self.config.ignore_undeclared_resources && self.config.gates.quota_check_strategy {
            UndeclaredResources::Ignore
        } else {
            UndeclaredResources::Block
        };
        let fair = self.config.fair_sharing.is_some();
        let view = ClusterQueueView::new(node, &spec, undeclared, fair, &mut self.state.names);
        self.order.extend(&self.state.names);
        let index = node.index();
        if self.state.queues.len() <= index {
            self.state.queues.resize_with(index.saturating_add(1), || None);
            self.pending.resize_with(index.saturating_add(1), || None);
            self.views.resize_with(index.saturating_add(1), || None);
        }
        self.views[index] = Some(view);
        let name = spec.name.clone();
        let is_new = known.is_none();
        if let Some(queue) = self.state.queue_mut(node) {
            queue.spec = spec;
        } else {
            self.state.queues[index] = Some(ClusterQueue {
                spec,
                inactive: Vec::new(),
                holders: Vec::new(),
                not_ready: 0,
                tally: Tally::default(),
            });
            self.pending[index] = Some(PendingQueue::default());
        }
        self.update_activity(node);
        if is_new {
            self.hold_all(&name);
        }
        for queue in self.local_queues_of(&name) {
            self.retarget(now, queue);
        }
        if let Some(queue) = self.pending[index].as_mut() {
            queue.stale = true;
        }
        if let Some(before) = before {
            self.configuration_changed(now, before);
        }
        self.configuration_changed(now, node);
    }

    /// Removes a ClusterQueue.
    pub fn remove_cluster_queue(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        let Some(node) = self.state.forest.cluster_queue(name) else { return };
        let holders = self.state.queue(node).map(|q| q.holders.clone()).unwrap_or_default();
        for holder in holders {
            self.state.release(WorkloadId::from_index(holder.index()));
        }
        self.wake_for_slices(now);
        if let Some(queue) = self.pending_queue(node) {
            let waiting: Vec<WorkloadId> = queue.active().chain(queue.parked()).collect();
            for id in waiting {
                self.places.set(id, Place::Nowhere);
            }
        }
        let index = node.index();
        self.pending[index] = None;
        self.views[index] = None;
        self.state.queues[index] = None;
        self.flushes.remove(&node);
        self.state.forest.remove(node);
        for queue in self.local_queues_of(name) {
            self.retarget(now, queue);
        }
    }

    /// Adds or updates a Cohort.
    ///
    /// # Errors
    /// If its parents form a cycle. It is taken in all the same; nothing in or below the cycle is admitted until it is
    /// broken up.
    pub fn set_cohort(&mut self, now: Timestamp, spec: CohortSpec) -> Result<(), CohortCycle> {
        self.state.now = now;
        let limits = self.limits(&spec.resource_groups);
        let quota = NodeQuota { parent: spec.parent.clone(), limits, weight: spec.fair_weight };
        let node = self.state.forest.set_cohort(&spec.name, quota);
        if self.state.forest.is_cyclic(node) {
            return Err(CohortCycle { cohort: spec.name });
        }
        self.configuration_changed(now, node);
        Ok(())
    }

    /// Removes a Cohort. Its members stay together, without its quota and without its parent.
    pub fn remove_cohort(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        if let Some(node) = self.state.forest.cohort(name) {
            let was_cyclic = self.state.forest.is_cyclic(node);
            self.state.forest.remove(node);
            // Whoever was below the cycle can be admitted now.
            if was_cyclic && let Some(node) = self.state.forest.cohort(name) {
                self.configuration_changed(now, node);
            }
        }
    }

    /// Adds or updates a LocalQueue.
    pub fn set_local_queue(&mut self, now: Timestamp, spec: LocalQueueSpec) {
        self.state.now = now;
        let id = self.state.intern_local_queue(&spec.key);
        if let Some(queue) = self.state.local_queues.get_mut(id.index()) {
            queue.spec = Some(spec);
        }
        self.weigh(id);
        self.retarget(now, id);
    }

    /// Removes a LocalQueue. Workloads that hold quota keep it.
    pub fn remove_local_queue(&mut self, now: Timestamp, key: &Key) {
        self.state.now = now;
        let Some(&id) = self.state.local_queue_ids.get(key) else { return };
        if let Some(queue) = self.state.local_queues.get_mut(id.index()) {
            queue.spec = None;
            queue.ledger = super::afs::Ledger::default();
            // Its workloads are taken out of a queue that is ordered by what it used until now.
            if let Some(pending) = queue.target.and_then(|n| self.pending.get_mut(n.index())).and_then(Option::as_mut) {
                pending.stale = true;
            }
        }
        self.retarget(now, id);
    }

    /// Adds or updates a ResourceFlavor.
    pub fn set_flavor(&mut self, now: Timestamp, spec: FlavorSpec) {
        self.state.now = now;
        let id = self.state.names.intern_flavor(&spec.name);
        let old = self.flavors.get(id);
        if old == Some(&spec) {
            return;
        }
        let name = spec.name.clone();
        let is_update = old.is_some();
        let had_topology = old.is_some_and(|f| f.topology.is_some());
        let has_topology = spec.topology.is_some();
        let was_sliced = old.is_some_and(|f| f.whole_slices);
        let is_sliced = spec.whole_slices;
        self.flavors.set(id, spec);
        self.sliced_flavor_changed(was_sliced, is_sliced);
        self.flavor_changed(now, &name, is_update);
        if had_topology || has_topology {
            self.topology_flavor_changed(now, id);
        }
    }

    /// Removes a ResourceFlavor.
    pub fn remove_flavor(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        let Some(id) = self.state.names.flavor(name) else { return };
        let had_topology = self.flavors.get(id).is_some_and(|f| f.topology.is_some());
        let was_sliced = self.flavors.get(id).is_some_and(|f| f.whole_slices);
        self.flavors.remove(id);
        self.sliced_flavor_changed(was_sliced, false);
        self.flavor_changed(now, name, false);
        if had_topology {
            self.topology_flavor_changed(now, id);
        }
    }

    fn flavor_changed(&mut self, now: Timestamp, name: &str, is_update: bool) {
        let uses =
            |spec: &ClusterQueueSpec| spec.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| *f.name == *name);
        self.refresh_activity(now, |spec| is_update && uses(spec));
    }

    /// Adds or updates a Topology.
    pub fn set_topology(&mut self, now: Timestamp, spec: TopologySpec) {
        self.state.now = now;
        if self.topologies.get(&spec.name) == Some(&spec) {
            return;
        }
        let name = spec.name.clone();
        self.topologies.insert(spec.name.clone(), spec);
        self.topology_changed(now, &name);
    }

    /// Removes a Topology.
    pub fn remove_topology(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        if self.topologies.remove(name).is_some() {
            self.topology_changed(now, name);
        }
    }

    /// Adds or updates an admission check.
    pub fn set_admission_check(&mut self, now: Timestamp, spec: CheckSpec) {
        self.state.now = now;
        self.checks.insert(spec.name.clone(), spec);
        self.refresh_activity(now, |_| false);
    }

    /// Removes an admission check.
    pub fn remove_admission_check(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        self.checks.remove(name);
        self.refresh_activity(now, |_| false);
    }

    /// Adds a namespace or sets its labels.
    pub fn set_namespace(&mut self, now: Timestamp, name: &str, labels: BTreeMap<Box<str>, Box<str>>) {
        self.state.now = now;
        self.state.namespaces.entry(name.into()).or_default().labels = Some(labels);
        self.namespace_changed(now, name);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, now: Timestamp, name: &str) {
        self.state.now = now;
        if let Some(namespace) = self.state.namespaces.get_mut(name) {
            namespace.labels = None;
        }
        self.namespace_changed(now, name);
    }

    /// Sets the limit ranges of a namespace, all of them.
    pub fn set_limit_ranges(&mut self, now: Timestamp, namespace: &str, ranges: &[LimitRange]) {
        self.state.now = now;
        let entry = self.state.namespaces.entry(namespace.into()).or_default();
        let limits = ranges.iter().collect();
        if entry.limits == limits {
            return;
        }
        entry.limits = limits;
        self.readjust_all(now, |key| *key.namespace == *namespace);
    }

    /// Sets the pod overhead of a RuntimeClass; `None` removes the class.
    pub fn set_runtime_class(&mut self, now: Timestamp, name: &str, overhead: Option<ResourceList>) {
        self.state.now = now;
        match overhead {
            Some(overhead) => self.overheads.insert(name.into(), overhead),
            None => self.overheads.remove(name),
        };
        self.readjust_all(now, |_| true);
    }

    fn readjust_all(&mut self, now: Timestamp, of: impl Fn(&Key) -> bool) {
        let ids: Vec<WorkloadId> = self.state.records.iter().filter(|(_, r)| of(&r.key)).map(|(id, _)| id).collect();
        for id in ids {
            self.readjust(now, id);
        }
    }

    // ----- consequences --------------------------------------------------------------------------------------------

    fn limits(&mut self, groups: &[ResourceGroup]) -> BTreeMap<FlavorResourceId, Limits> {
        let mut limits = BTreeMap::new();
        for flavor in groups.iter().flat_map(|g| &g.flavors) {
            for (resource, quota) in &flavor.resources {
                let amount = |q| Amount::from_quantity(resource, q);
                let entry = Limits {
                    nominal: amount(quota.nominal),
                    borrowing: quota.borrowing_limit.map(amount),
                    lending: quota.lending_limit.map(amount),
                };
                limits.insert(self.state.names.intern(&flavor.name, resource), entry);
            }
        }
        self.order.extend(&self.state.names);
        limits
    }

    /// Computes anew what keeps a ClusterQueue from admitting. Returns whether it admits now and did not before.
    fn update_activity(&mut self, node: NodeId) -> bool {
        let facts = Facts {
            names: &self.state.names,
            flavors: &self.flavors,
            checks: &self.checks,
            topologies: &self.topologies,
            topology_aware: self.config.gates.topology_aware_scheduling,
        };
        let Some(queue) = self.state.queues.get_mut(node.index()).and_then(Option::as_mut) else { return false };
        let was_active = queue.is_active();
        queue.inactive = inactive(&queue.spec, &facts);
        let is_active = queue.is_active();
        self.state.forest.set_active(node, is_active);
        is_active && !was_active
    }

    pub(super) fn refresh_activity(&mut self, now: Timestamp, always: impl Fn(&ClusterQueueSpec) -> bool) {
        for index in 0..self.state.queues.len() {
            let node = NodeId::from_index(index);
            let became_active = self.update_activity(node);
            if became_active || self.state.queue(node).is_some_and(|q| always(&q.spec)) {
                self.configuration_changed(now, node);
            }
        }
    }

    fn local_queues_of(&self, cluster_queue: &str) -> Vec<LocalQueueId> {
        let leads = |q: &super::state::LocalQueue| q.spec.as_ref().is_some_and(|s| *s.cluster_queue == *cluster_queue);
        let all = self.state.local_queues.iter().enumerate();
        all.filter(|(_, q)| leads(q)).map(|(i, _)| LocalQueueId::from_index(i)).collect()
    }

    /// Finds anew where a LocalQueue's workloads wait, and moves them if that changed.
    fn retarget(&mut self, now: Timestamp, id: LocalQueueId) {
        let Some(queue) = self.state.local_queue(id) else { return };
        let spec = queue.spec.as_ref().filter(|_| queue.is_open());
        let target = spec.and_then(|s| self.state.forest.cluster_queue(&s.cluster_queue));
        let moved = target != queue.target;
        if moved {
            let members = queue.members.clone();
            for member in members {
                self.forget_progress(member);
                if self.places.get(member) != Place::Nowhere {
                    self.forget_preemptor(member);
                    self.dequeue(member);
                }
            }
            if let Some(queue) = self.state.local_queues.get_mut(id.index()) {
                queue.target = target;
            }
        }
        let fact = self.namespace_fact(id);
        if let Some(queue) = self.state.local_queues.get_mut(id.index()) {
            queue.namespace = fact;
        }
        if moved && target.is_some() {
            self.replay(now, id);
        }
    }

    fn namespace_fact(&self, id: LocalQueueId) -> NamespaceFact {
        let Some(queue) = self.state.local_queue(id) else { return NamespaceFact::Missing };
        let labels = self.state.namespaces.get(&queue.key.namespace).and_then(|n| n.labels.as_ref());
        let Some(labels) = labels else { return NamespaceFact::Missing };
        let selector = queue.target.and_then(|n| self.state.queue(n)).and_then(|q| q.spec.namespace_selector.as_ref());
        if selector.is_some_and(|s| s.matches(labels)) { NamespaceFact::Served } else { NamespaceFact::Mismatch }
    }

    fn namespace_changed(&mut self, now: Timestamp, name: &str) {
        for index in 0..self.state.local_queues.len() {
            let id = LocalQueueId::from_index(index);
            let Some(queue) = self.state.local_queue(id).filter(|q| *q.key.namespace == *name) else { continue };
            let (before, target) = (queue.namespace, queue.target);
            let fact = self.namespace_fact(id);
            if let Some(queue) = self.state.local_queues.get_mut(index) {
                queue.namespace = fact;
            }
            if fact == NamespaceFact::Served
                && before != NamespaceFact::Served
                && let Some(target) = target
            {
                self.configuration_changed(now, target);
            }
        }
    }
}
