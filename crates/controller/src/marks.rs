//! What a change may matter to: what is looked at again after it.

use slicegate_api::{Kind, Object, ObjectRef, Pod};
use slicegate_workload::{Key, Workload};

use crate::controller::Controller;
use crate::store::{key_of, owner_ref, workload_ref};
use crate::{jobs, nodes, pods};

/// Kinds whose statuses and finalizers follow from everything else.
pub(crate) const CONFIGURATION: [Kind; 6] =
    [Kind::AdmissionCheck, Kind::ClusterQueue, Kind::Cohort, Kind::LocalQueue, Kind::ResourceFlavor, Kind::Topology];

impl Controller {
    /// Marks the queues of a workload: their status may have changed.
    pub(crate) fn mark_stale(&mut self, workload: &Key) {
        let Some(known) = self.fed.workloads.get(workload) else { return };
        let queue = Key::new(workload.namespace.clone(), known.spec.queue_name.clone());
        if let Some(leads) = self.fed.local_queues.get(&queue) {
            self.stale.cluster_queues.insert(leads.cluster_queue.clone());
        }
        if let Some(admission) = &known.status.admission {
            self.stale.cluster_queues.insert(admission.cluster_queue.clone());
        }
        self.stale.local_queues.insert(queue);
    }

    /// Marks a queue whose status is to be looked at. Returns whether the object is a queue.
    pub(crate) fn mark_queue(&mut self, reference: &ObjectRef) -> bool {
        match reference.kind {
            Kind::ClusterQueue => drop(self.stale.cluster_queues.insert(reference.name.clone())),
            Kind::LocalQueue => drop(self.stale.local_queues.insert(key_of(reference))),
            _ => return false,
        }
        true
    }

    /// Marks the workloads of a pod that changed, if they may do something about it, and the pod itself if it counts against
    /// its node.
    pub(crate) fn mark_pod(&mut self, reference: ObjectRef, old: Option<&Pod>) {
        let new = self.store.pod(&reference.namespace, &reference.name).cloned();
        let new = new.as_deref();
        if old.zip(new).is_some_and(|(old, new)| pods::same(old, new)) {
            // It may have been resized.
            let resized = old.zip(new).is_some_and(|(old, new)| old.spec != new.spec);
            if self.fed.placement && resized && new.is_some_and(|p| !pods::is_placed(p)) {
                self.dirty.insert(reference);
            }
            return;
        }
        if let Some(old) = old {
            self.pods.remove(old);
        }
        if let Some(new) = new {
            self.pods.insert(new);
        }
        for pod in old.into_iter().chain(new) {
            if let Some(workload) = pods::workload_of(pod) {
                self.dirty.insert(workload_ref(&workload));
            }
            if let Some(first) = pods::slice_of(pod) {
                let slices = self.fed.slices.get(&first).into_iter().flatten().map(workload_ref);
                self.dirty.extend(slices);
            }
            if self.fed.placement && !pods::is_placed(pod) && pods::node_of(pod).is_some() {
                self.dirty.insert(reference.clone());
            }
        }
    }

    /// Marks the workloads that are placed on a node, and the node itself if places are given by topology.
    fn mark_node(&mut self, reference: ObjectRef, old: Option<&Object>) {
        // Nodes report that they are alive all the time.
        let same = match (old, self.store.get(&reference)) {
            (Some(Object::Node(old)), Some(Object::Node(new))) => nodes::same(old, new),
            _ => false,
        };
        if !self.fed.placement || same {
            return;
        }
        let placed = self.fed.on_nodes.get(&reference.name).into_iter().flatten().map(workload_ref);
        self.dirty.extend(placed);
        self.dirty.insert(reference);
    }

    /// Marks what a changed object may matter to.
    pub(crate) fn mark(&mut self, object: &Object, old: Option<&Object>) {
        let reference = object.reference();
        let uid = object.uid();
        match (object, old) {
            (Object::Pod(_), Some(Object::Pod(old))) => return self.mark_pod(reference, Some(old.as_ref())),
            (Object::Pod(_), _) => return self.mark_pod(reference, None),
            (Object::Node(_), _) => return self.mark_node(reference, old),
            _ => {}
        }
        if CONFIGURATION.contains(&reference.kind) {
            // One that is gone is as it was, and yet not the same.
            let there = self.store.get(&reference).is_some();
            let status_only = there && old.is_some_and(|old| only_status_changed(old, object));
            self.finalizers_due |= !status_only;
            // What a status says of a queue follows from everything else.
            if status_only && self.mark_queue(&reference) {
                return;
            }
        }
        match object.kind() {
            Kind::Workload => {
                // Somebody may have taken it from its job.
                self.dirty.extend(old.and_then(|old| owner_ref(old.metadata())));
                self.dirty.extend(self.taken_names.remove(&reference));
                if let Some(job) = owner_ref(object.metadata()) {
                    for child in self.store.owned(self.store.get(&job).map_or("", Object::uid)) {
                        if jobs::KINDS.contains(&child.kind) {
                            self.dirty.insert(child);
                        }
                    }
                    self.dirty.insert(job);
                } else {
                    self.mark_users_of(object);
                }
            }
            Kind::Job | Kind::JobSet | Kind::RayCluster | Kind::RayJob => {
                self.dirty.extend(self.store.owned(uid));
                if let Some(parent) = owner_ref(object.metadata()) {
                    self.dirty.insert(parent);
                }
            }
            Kind::ProvisioningRequest | Kind::PodTemplate => {
                if let Some(owner) = owner_ref(object.metadata()) {
                    if let Some(workload) = self.store.get(&owner).and_then(|o| owner_ref(o.metadata())) {
                        self.dirty.insert(workload);
                    }
                    self.dirty.insert(owner);
                }
            }
            Kind::Namespace => {
                let labels = |o: &Object| o.metadata().labels.clone();
                if old.map(labels) != Some(labels(object)) {
                    for kind in jobs::KINDS {
                        let name = object.name();
                        let inside = self.store.all(kind).filter(|o| o.namespace() == name).map(Object::reference);
                        self.dirty.extend(inside.collect::<Vec<_>>());
                    }
                }
            }
            Kind::WorkloadPriorityClass | Kind::PriorityClass | Kind::ResourceFlavor => {
                if object.kind() == Kind::WorkloadPriorityClass {
                    let class = format!("kueue.x-k8s.io/WorkloadPriorityClass/{}", object.name());
                    self.mark_workloads(|w| *w.spec.priority_class == *class);
                }
                for kind in jobs::KINDS {
                    let all: Vec<ObjectRef> = self.store.all(kind).map(Object::reference).collect();
                    self.dirty.extend(all);
                }
            }
            Kind::ProvisioningRequestConfig => {
                let all: Vec<ObjectRef> = self.store.all(Kind::AdmissionCheck).map(Object::reference).collect();
                self.dirty.extend(all);
                self.mark_workloads(|w| !w.status.admission_checks.is_empty());
            }
            _ => {}
        }
        self.dirty.insert(reference);
    }

    /// Marks the workloads that `which` chooses.
    pub(crate) fn mark_workloads(&mut self, which: impl Fn(&Workload) -> bool) {
        let chosen: Vec<ObjectRef> =
            self.fed.workloads.values().filter(|w| which(w)).map(|w| workload_ref(&w.key)).collect();
        self.dirty.extend(chosen);
    }
}

/// Whether nothing of a queue, flavor, check, topology or Cohort changed that matters here, its status aside.
fn only_status_changed(a: &Object, b: &Object) -> bool {
    let (x, y) = (a.metadata(), b.metadata());
    x.uid == y.uid
        && x.generation == y.generation
        && x.finalizers == y.finalizers
        && x.deletion_timestamp == y.deletion_timestamp
        && match (a, b) {
            (Object::AdmissionCheck(a), Object::AdmissionCheck(b)) => a.spec == b.spec,
            (Object::ClusterQueue(a), Object::ClusterQueue(b)) => a.spec == b.spec,
            (Object::Cohort(a), Object::Cohort(b)) => a.spec == b.spec,
            (Object::LocalQueue(a), Object::LocalQueue(b)) => a.spec == b.spec,
            (Object::ResourceFlavor(a), Object::ResourceFlavor(b)) => a.spec == b.spec,
            (Object::Topology(a), Object::Topology(b)) => a.spec == b.spec,
            _ => false,
        }
}
