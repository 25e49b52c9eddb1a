//! What the engine is told about objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use slicegate_admission::CheckSpec;
use slicegate_api::{Kind, Object, ObjectRef, convert, kueue};
use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, FlavorSpec, Key, LocalQueueSpec, ResourceList, Timestamp, TopologySpec, Workload,
};

use crate::controller::{Controller, event};
use crate::io::EventType;
use crate::store::key_of;

/// What the engine was last told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fed {
    pub(crate) workloads: BTreeMap<Key, Arc<Workload>>,
    pub(crate) cluster_queues: BTreeMap<Box<str>, Arc<ClusterQueueSpec>>,
    pub(crate) local_queues: BTreeMap<Key, LocalQueueSpec>,
    cohorts: BTreeMap<Box<str>, CohortSpec>,
    flavors: BTreeMap<Box<str>, FlavorSpec>,
    topologies: BTreeMap<Box<str>, TopologySpec>,
    checks: BTreeMap<Box<str>, CheckSpec>,
    namespaces: BTreeMap<Box<str>, BTreeMap<Box<str>, Box<str>>>,
}

/// What became of an object as far as the engine is concerned.
enum News<V> {
    /// Nothing.
    Same,
    /// It is new or changed.
    Set(V),
    /// It is gone.
    Gone,
}

/// Compares an object with what the engine was last told of it, and remembers what it is told now.
fn news<K: Ord + Clone, V: PartialEq + Clone>(told: &mut BTreeMap<K, V>, key: &K, now: Option<V>) -> News<V> {
    if told.get(key) == now.as_ref() {
        return News::Same;
    }
    if let Some(value) = now {
        told.insert(key.clone(), value.clone());
        News::Set(value)
    } else {
        told.remove(key);
        News::Gone
    }
}

fn boxed(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<Box<str>, Box<str>> {
    labels.into_iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect()
}

/// The value of the condition `Active` of an admission check.
pub(crate) fn check_is_active(check: &kueue::AdmissionCheck) -> bool {
    check.status.conditions.iter().any(|c| c.type_ == "Active" && c.status == "True")
}

impl Controller {
    /// The value, if it could be converted; otherwise an Event says what is wrong with the object.
    fn converted<T>(&mut self, reference: &ObjectRef, result: Result<T, convert::ConvertError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.out.events.push(event(reference, EventType::Warning, "Invalid", error.to_string()));
                None
            }
        }
    }

    /// Tells the engine what became of an object, if that matters to it, and marks what else it matters to.
    pub(crate) fn feed(&mut self, now: Timestamp, reference: &ObjectRef) {
        let name = &reference.name;
        let object = self.store.get(reference).cloned();
        match reference.kind {
            Kind::ClusterQueue => {
                let spec = match &object {
                    Some(Object::ClusterQueue(q)) => self.converted(reference, convert::cluster_queue(q)),
                    _ => None,
                };
                match news(&mut self.fed.cluster_queues, name, spec.map(Arc::new)) {
                    News::Same => return,
                    News::Set(spec) => self.engine.set_cluster_queue(now, (*spec).clone()),
                    News::Gone => self.engine.remove_cluster_queue(now, name),
                }
                let leads: Vec<Key> = self
                    .fed
                    .local_queues
                    .values()
                    .filter(|q| q.cluster_queue == *name)
                    .map(|q| q.key.clone())
                    .collect();
                self.mark_workloads(|w| {
                    w.status.admission.as_ref().is_some_and(|a| a.cluster_queue == *name)
                        || leads.iter().any(|q| q.namespace == w.key.namespace && q.name == w.spec.queue_name)
                });
            }
            Kind::LocalQueue => {
                let key = key_of(reference);
                let spec = match &object {
                    Some(Object::LocalQueue(q)) => self.converted(reference, convert::local_queue(q)),
                    _ => None,
                };
                match news(&mut self.fed.local_queues, &key, spec) {
                    News::Same => return,
                    News::Set(spec) => self.engine.set_local_queue(now, spec),
                    News::Gone => self.engine.remove_local_queue(now, &key),
                }
                if let Some(Object::LocalQueue(queue)) = &object {
                    self.restore_past_usage(now, &key, queue);
                }
                self.mark_workloads(|w| w.key.namespace == key.namespace && w.spec.queue_name == key.name);
            }
            Kind::Cohort => {
                let spec = match &object {
                    Some(Object::Cohort(c)) => self.converted(reference, convert::cohort(c)),
                    _ => None,
                };
                match news(&mut self.fed.cohorts, name, spec) {
                    News::Same => return,
                    News::Set(spec) => {
                        if let Err(cycle) = self.engine.set_cohort(now, spec) {
                            self.out.events.push(event(reference, EventType::Warning, "Cycle", cycle.to_string()));
                        }
                    }
                    News::Gone => self.engine.remove_cohort(now, name),
                }
            }
            Kind::ResourceFlavor => {
                let spec = match &object {
                    Some(Object::ResourceFlavor(f)) => self.converted(reference, convert::flavor(f)),
                    _ => None,
                };
                match news(&mut self.fed.flavors, name, spec) {
                    News::Same => return,
                    News::Set(spec) => self.engine.set_flavor(now, spec),
                    News::Gone => self.engine.remove_flavor(now, name),
                }
                self.mark_workloads(|w| w.status.admission.is_none() && !w.is_finished());
            }
            Kind::Topology => {
                let spec = match &object {
                    Some(Object::Topology(t)) => Some(convert::topology(t)),
                    _ => None,
                };
                match news(&mut self.fed.topologies, name, spec) {
                    News::Same => return,
                    News::Set(spec) => self.engine.set_topology(now, spec),
                    News::Gone => self.engine.remove_topology(now, name),
                }
            }
            Kind::AdmissionCheck => {
                let spec = match &object {
                    Some(Object::AdmissionCheck(c)) => Some(CheckSpec {
                        name: name.clone(),
                        controller: c.spec.controller_name.as_str().into(),
                        active: check_is_active(c),
                    }),
                    _ => None,
                };
                match news(&mut self.fed.checks, name, spec) {
                    News::Same => return,
                    News::Set(spec) => self.engine.set_admission_check(now, spec),
                    News::Gone => self.engine.remove_admission_check(now, name),
                }
                self.mark_workloads(|w| {
                    let waits = w.status.admission.is_none() && !w.is_finished();
                    waits || w.status.admission_checks.iter().any(|c| c.name == *name)
                });
            }
            Kind::Namespace => {
                let labels = object.as_ref().map(|o| {
                    let mut labels = boxed(o.metadata().labels.as_ref());
                    labels.insert("kubernetes.io/metadata.name".into(), name.clone());
                    labels
                });
                match news(&mut self.fed.namespaces, name, labels) {
                    News::Same => return,
                    News::Set(labels) => self.engine.set_namespace(now, name, labels),
                    News::Gone => self.engine.remove_namespace(now, name),
                }
                self.mark_workloads(|w| w.key.namespace == *name);
            }
            Kind::LimitRange => {
                let namespace = &reference.namespace;
                let mut ranges = Vec::new();
                for object in self.store.all(Kind::LimitRange).filter(|o| *o.namespace() == **namespace) {
                    // One that cannot be read limits nothing.
                    if let Object::LimitRange(range) = object
                        && let Ok(range) = convert::limit_range(range)
                    {
                        ranges.push(range);
                    }
                }
                self.engine.set_limit_ranges(now, namespace, &ranges);
            }
            Kind::RuntimeClass => {
                let overhead = match &object {
                    Some(Object::RuntimeClass(c)) => {
                        let fixed = c.overhead.as_ref().and_then(|o| o.pod_fixed.clone()).unwrap_or_default();
                        self.converted(reference, convert::resource_list(&fixed))
                    }
                    _ => None,
                };
                self.engine.set_runtime_class(now, name, overhead);
            }
            Kind::Workload => return self.feed_workload(now, reference, object.as_ref()),
            _ => return,
        }
        self.stale.all = true;
        self.touched = true;
    }

    /// Tells the engine what a LocalQueue had used before this controller started: its status says so. What the controller
    /// writes there itself later tells it nothing new.
    fn restore_past_usage(&mut self, now: Timestamp, key: &Key, queue: &kueue::LocalQueue) {
        if self.config.engine.admission_fair_sharing.is_none() {
            return;
        }
        let kept = queue.status.fair_sharing.as_ref().and_then(|s| s.admission_fair_sharing_status.as_ref());
        let at = kept.and_then(|k| k.last_update.as_ref()).map_or(now, convert::timestamp);
        let consumed = match kept.map(|k| convert::resource_list(&k.consumed_resources)) {
            Some(Ok(consumed)) => consumed,
            // Nobody but the controller writes this; what cannot be read counts for nothing.
            Some(Err(_)) | None => ResourceList::new(),
        };
        self.engine.restore_consumed(now, at, key, &consumed);
    }

    fn feed_workload(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) {
        let key = key_of(reference);
        let workload = match object {
            Some(Object::Workload(w)) => {
                let result = convert::workload(w);
                self.converted(reference, result)
            }
            _ => None,
        };
        let Some(workload) = workload else {
            self.mark_stale(&key);
            self.unseen_jobs.remove(&key);
            if self.fed.workloads.remove(&key).is_some() {
                self.touched = true;
                self.engine.remove_workload(now, &key);
                self.told.remove(&key);
                self.told_checks.remove(&key);
                self.told_finished.remove(&key);
                self.timers.clear(reference);
            }
            return;
        };
        // Nobody asks what pods a finished workload had, and there are many of those.
        let mut workload = workload;
        let finished = workload.is_finished();
        let pod_sets = if finished { std::mem::take(&mut workload.spec.pod_sets) } else { Vec::new() };
        if self.fed.workloads.get(&key).is_some_and(|w| **w == workload) {
            return;
        }
        self.touched = true;
        let mut told = workload.clone();
        if finished {
            // Nothing more is told of it.
            self.told.remove(&key);
            self.told_checks.remove(&key);
            told.spec.pod_sets = pod_sets;
        }
        self.engine.set_workload(now, told);
        self.mark_stale(&key);
        self.fed.workloads.insert(key.clone(), Arc::new(workload));
        self.mark_stale(&key);
    }
}
