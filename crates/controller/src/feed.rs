//! What the engine is told about objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slicegate_admission::lifecycle::assigned_nodes;
use slicegate_admission::{CheckSpec, Written};
use slicegate_api::{Kind, Object, ObjectRef, convert, kueue};
use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, Condition, ConditionType, FlavorSpec, Key, LocalQueueSpec, ResourceList, Status,
    Timestamp, TopologySpec, Workload,
};

use crate::complaints::INVALID;
use crate::controller::Controller;
use crate::jobs::as_job;
use crate::store::{key_of, owner_ref};
use crate::writes::Report;
use crate::{keys, pods};

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
    /// Whether a flavor has, or had, a topology or whole slices: only then nodes and what pods use of them matter.
    pub(crate) placement: bool,
    /// The admitted workloads whose pods are placed on a node.
    pub(crate) on_nodes: BTreeMap<Box<str>, BTreeSet<Key>>,
    /// The workload slices of an elastic job, by its first one.
    pub(crate) slices: BTreeMap<Key, BTreeSet<Key>>,
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

fn remove_from<Q: Ord + ?Sized, K: Ord + std::borrow::Borrow<Q>>(
    index: &mut BTreeMap<K, BTreeSet<Key>>,
    at: &Q,
    key: &Key,
) {
    if let Some(set) = index.get_mut(at) {
        set.remove(key);
        if set.is_empty() {
            index.remove(at);
        }
    }
}

fn boxed(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<Box<str>, Box<str>> {
    labels.into_iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect()
}

/// Whether a workload waits as it did before, and only says something else about it. That is a consequence of cycles, and no
/// reason for another one: they might word it differently each time.
fn waits_as_before(old: &Workload, new: &Workload) -> bool {
    let waits =
        |w: &Workload| w.spec.active && w.status.admission.is_none() && !w.has_quota_reservation() && !w.is_finished();
    let told = |c: &&Condition| {
        !matches!(c.kind, ConditionType::QuotaReserved | ConditionType::Admitted) || c.status == Status::True
    };
    let conditions = || old.status.conditions.iter().filter(told).eq(new.status.conditions.iter().filter(told));
    let rest = || {
        let (a, b) = (&old.status, &new.status);
        a.admission_checks == b.admission_checks
            && a.requeue_state == b.requeue_state
            && a.reclaimable_pods == b.reclaimable_pods
            && a.accumulated_past_execution_time_seconds == b.accumulated_past_execution_time_seconds
            && a.evictions == b.evictions
            && a.unhealthy_nodes == b.unhealthy_nodes
            && a.cluster_name == b.cluster_name
            && a.nominated_cluster_names == b.nominated_cluster_names
            && a.preemption_gates == b.preemption_gates
    };
    let spec = || {
        old.uid == new.uid
            && old.created == new.created
            && old.generation == new.generation
            && old.labels == new.labels
            && old.annotations == new.annotations
            && old.owned_by_pod == new.owned_by_pod
            && old.variant_of == new.variant_of
            && old.deleting == new.deleting
            && old.spec == new.spec
    };
    waits(old) && waits(new) && conditions() && rest() && spec()
}

/// The value of the condition `Active` of an admission check.
pub(crate) fn check_is_active(check: &kueue::AdmissionCheck) -> bool {
    check.status.conditions.iter().any(|c| c.type_ == "Active" && c.status == "True")
}

impl Controller {
    /// The value, if it could be converted; otherwise an Event says what is wrong with the object.
    fn converted<T>(&mut self, reference: &ObjectRef, result: Result<T, convert::ConvertError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.settle_complaint(reference, INVALID);
                Some(value)
            }
            Err(error) => {
                self.complain(reference, INVALID, error.to_string());
                None
            }
        }
    }

    /// [`converted`](Self::converted), and an Event says which rule the object breaks if it does.
    fn read_by_rules<T>(&mut self, object: &Object, result: Result<T, convert::ConvertError>) -> Option<T> {
        if result.is_err() {
            return self.converted(&object.reference(), result);
        }
        self.complain_of_rules(object);
        result.ok()
    }

    /// A ClusterQueue. One that breaks a rule admits nothing; what its workloads hold stays counted.
    fn read_cluster_queue(&mut self, object: &Object, queue: &kueue::ClusterQueue) -> Option<ClusterQueueSpec> {
        let reference = object.reference();
        let broken = self.broken_rules(object);
        let (spec, error) = match convert::cluster_queue(queue) {
            Ok(spec) => (Some(spec), None),
            Err(error) => {
                let mut rest = queue.clone();
                rest.spec.namespace_selector = None;
                rest.spec.fair_sharing = None;
                let known = || self.fed.cluster_queues.get(&reference.name).map(|q| (**q).clone());
                (convert::cluster_queue(&rest).ok().or_else(known), Some(format!("{}: {}", error.path, error.problem)))
            }
        };
        let Some(wrong) = broken.or(error) else {
            self.settle_complaint(&reference, INVALID);
            return spec;
        };
        self.complain(&reference, INVALID, format!("{reference}: {wrong}"));
        spec.map(|spec| ClusterQueueSpec { invalid: Some(wrong.into()), ..spec })
    }

    /// A Workload. One that holds quota holds it whatever somebody made of its pods.
    fn read_workload(&mut self, reference: &ObjectRef, workload: &kueue::Workload) -> Option<Workload> {
        let result = convert::workload(workload);
        let failed = result.is_err();
        let read = self.converted(reference, result);
        if !failed || workload.status.admission.is_none() {
            return read;
        }
        let mut rest = workload.clone();
        for pod_set in &mut rest.spec.pod_sets {
            pod_set.template.spec = None;
        }
        convert::workload(&rest).ok()
    }

    /// Tells the engine what became of an object, if that matters to it, and marks what else it matters to.
    pub(crate) fn feed(&mut self, now: Timestamp, reference: &ObjectRef) {
        let object = self.store.get(reference).cloned();
        let object = object.as_ref();
        let is_new = match reference.kind {
            Kind::ClusterQueue => self.feed_cluster_queue(now, reference, object),
            Kind::LocalQueue => self.feed_local_queue(now, reference, object),
            Kind::Cohort => self.feed_cohort(now, reference, object),
            Kind::ResourceFlavor => self.feed_flavor(now, reference, object),
            Kind::Topology => self.feed_topology(now, reference, object),
            Kind::AdmissionCheck => self.feed_check(now, reference, object),
            Kind::Namespace => self.feed_namespace(now, reference, object),
            Kind::LimitRange => self.feed_limit_ranges(now, &reference.namespace),
            Kind::RuntimeClass => self.feed_runtime_class(now, reference, object),
            Kind::Node => return self.feed_node(now, reference, object),
            Kind::Pod => return self.feed_pod(now, reference, object),
            Kind::Workload => return self.feed_workload(now, reference, object),
            _ => false,
        };
        self.stale.all |= is_new;
        self.touched |= is_new;
    }

    // Each of these tells the engine of a kind, marks whom else it matters to, and returns whether there was anything new.

    fn feed_cluster_queue(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let name = &reference.name;
        let spec = match object {
            Some(object @ Object::ClusterQueue(queue)) => self.read_cluster_queue(object, queue),
            _ => None,
        };
        match news(&mut self.fed.cluster_queues, name, spec.map(Arc::new)) {
            News::Same => return false,
            News::Set(spec) => self.engine.set_cluster_queue(now, (*spec).clone()),
            News::Gone => self.engine.remove_cluster_queue(now, name),
        }
        let leads = self.fed.local_queues.values().filter(|q| q.cluster_queue == *name);
        let leads: Vec<Key> = leads.map(|q| q.key.clone()).collect();
        self.mark_workloads(|w| {
            w.status.admission.as_ref().is_some_and(|a| a.cluster_queue == *name)
                || leads.iter().any(|q| q.namespace == w.key.namespace && q.name == w.spec.queue_name)
        });
        true
    }

    fn feed_local_queue(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let key = key_of(reference);
        let queue = if let Some(Object::LocalQueue(queue)) = object { Some(queue) } else { None };
        let spec = queue.and_then(|queue| {
            let read = self.converted(reference, convert::local_queue(queue));
            read.or_else(|| self.fed.local_queues.get(&key).cloned())
        });
        match news(&mut self.fed.local_queues, &key, spec) {
            News::Same => return false,
            News::Set(spec) => self.engine.set_local_queue(now, spec),
            News::Gone => self.engine.remove_local_queue(now, &key),
        }
        if let Some(queue) = queue {
            self.restore_past_usage(now, &key, queue);
        }
        self.mark_workloads(|w| w.key.namespace == key.namespace && w.spec.queue_name == key.name);
        true
    }

    fn feed_cohort(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let name = &reference.name;
        let spec = match object {
            Some(object @ Object::Cohort(cohort)) => {
                self.read_by_rules(object, convert::cohort(cohort)).or_else(|| self.fed.cohorts.get(name).cloned())
            }
            _ => None,
        };
        match news(&mut self.fed.cohorts, name, spec) {
            News::Same => return false,
            News::Set(spec) => match self.engine.set_cohort(now, spec) {
                Err(cycle) => self.complain(reference, "Cycle", cycle.to_string()),
                Ok(()) => self.settle_complaint(reference, "Cycle"),
            },
            News::Gone => self.engine.remove_cohort(now, name),
        }
        // Whether they are in or below a cycle may have changed.
        self.mark_workloads(|w| w.status.admission.is_none() && !w.is_finished());
        true
    }

    fn feed_flavor(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let name = &reference.name;
        let spec = match object {
            Some(object @ Object::ResourceFlavor(flavor)) => {
                self.read_by_rules(object, convert::flavor(flavor)).or_else(|| self.fed.flavors.get(name).cloned())
            }
            _ => None,
        };
        match news(&mut self.fed.flavors, name, spec) {
            News::Same => return false,
            News::Set(spec) => {
                if spec.topology.is_some() || spec.whole_slices {
                    self.start_placement();
                }
                self.engine.set_flavor(now, spec);
            }
            News::Gone => self.engine.remove_flavor(now, name),
        }
        self.mark_workloads(|w| w.status.admission.is_none() && !w.is_finished());
        true
    }

    fn feed_topology(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let name = &reference.name;
        let spec = match object {
            Some(Object::Topology(topology)) => Some(convert::topology(topology)),
            _ => None,
        };
        match news(&mut self.fed.topologies, name, spec) {
            News::Same => return false,
            News::Set(spec) => self.engine.set_topology(now, spec),
            News::Gone => self.engine.remove_topology(now, name),
        }
        true
    }

    fn feed_check(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let name = &reference.name;
        let spec = match object {
            Some(Object::AdmissionCheck(check)) => Some(CheckSpec {
                name: name.clone(),
                controller: check.spec.controller_name.as_str().into(),
                active: check_is_active(check),
            }),
            _ => None,
        };
        match news(&mut self.fed.checks, name, spec) {
            News::Same => return false,
            News::Set(spec) => self.engine.set_admission_check(now, spec),
            News::Gone => self.engine.remove_admission_check(now, name),
        }
        self.mark_workloads(|w| {
            let waits = w.status.admission.is_none() && !w.is_finished();
            waits || w.status.admission_checks.iter().any(|c| c.name == *name)
        });
        true
    }

    fn feed_namespace(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let name = &reference.name;
        let labels = object.map(|object| {
            let mut labels = boxed(object.metadata().labels.as_ref());
            labels.insert("kubernetes.io/metadata.name".into(), name.clone());
            labels
        });
        match news(&mut self.fed.namespaces, name, labels) {
            News::Same => return false,
            News::Set(labels) => self.engine.set_namespace(now, name, labels),
            News::Gone => self.engine.remove_namespace(now, name),
        }
        self.mark_workloads(|w| w.key.namespace == *name);
        true
    }

    fn feed_limit_ranges(&mut self, now: Timestamp, namespace: &str) -> bool {
        let inside = self.store.all(Kind::LimitRange).filter(|object| object.namespace() == namespace);
        let ranges = inside.filter_map(|object| match object {
            // One that cannot be read limits nothing.
            Object::LimitRange(range) => convert::limit_range(range).ok(),
            _ => None,
        });
        let ranges: Vec<_> = ranges.collect();
        self.engine.set_limit_ranges(now, namespace, &ranges);
        true
    }

    fn feed_runtime_class(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) -> bool {
        let overhead = match object {
            Some(Object::RuntimeClass(class)) => {
                let fixed = class.overhead.as_ref().and_then(|o| o.pod_fixed.clone()).unwrap_or_default();
                self.converted(reference, convert::resource_list(&fixed))
            }
            _ => None,
        };
        self.engine.set_runtime_class(now, &reference.name, overhead);
        true
    }

    fn feed_node(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) {
        let node = match object {
            Some(Object::Node(node)) => self.converted(reference, convert::node(node)),
            _ => None,
        };
        match node {
            Some(node) => self.engine.set_node(now, node),
            None => self.engine.remove_node(now, &reference.name),
        }
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

    /// From now on nodes and the pods on them matter.
    fn start_placement(&mut self) {
        if std::mem::replace(&mut self.fed.placement, true) {
            return;
        }
        for kind in [Kind::Node, Kind::Pod] {
            let all: Vec<ObjectRef> = self.store.all(kind).map(Object::reference).collect();
            self.dirty.extend(all);
        }
    }

    /// Tells the engine what a pod uses of its node, unless the engine gave it its place and knows.
    fn feed_pod(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) {
        if !self.fed.placement {
            return;
        }
        let key = key_of(reference);
        let mut usage = None;
        if let Some(Object::Pod(pod)) = object
            && let Some(node) = pods::node_of(pod).filter(|_| !pods::is_placed(pod))
        {
            usage = self.converted(reference, convert::pod_requests(pod)).map(|requests| (node, requests));
        }
        match usage {
            Some((node, requests)) => self.engine.set_other_pod(now, &key, node, requests),
            None => self.engine.remove_other_pod(now, &key),
        }
        self.touched = true;
    }

    /// Takes an admission back that was decided, but not yet written, for other pods than the workload asks for now.
    fn drop_outdated_admission(&mut self, now: Timestamp, key: &Key, new: &Workload) {
        let decided = self.plans.get(key).is_some_and(|plan| plan.then.reports.contains(&Report::Admission));
        let same = self.fed.workloads.get(key).is_none_or(|old| old.spec.pod_sets == new.spec.pod_sets);
        if decided
            && !same
            && let Some(plan) = self.plans.remove(key)
        {
            self.report(now, key, &plan.then.reports, Written::Failed);
        }
    }

    /// Remembers on which nodes a workload is placed, and of which elastic job it is a slice.
    fn index_workload(&mut self, key: &Key, new: Option<&Workload>) {
        let first_slice = |w: &Workload| {
            let name = w.annotations.get(keys::WORKLOAD_SLICE_NAME)?;
            (!w.is_finished()).then(|| Key::new(key.namespace.clone(), name.clone()))
        };
        let old = self.fed.workloads.get(key).cloned();
        if let Some(first) = old.as_deref().and_then(first_slice) {
            remove_from(&mut self.fed.slices, &first, key);
        }
        if let Some(first) = new.and_then(first_slice) {
            self.fed.slices.entry(first).or_default().insert(key.clone());
        }
        for node in old.iter().filter(|w| !w.is_finished()).flat_map(|w| assigned_nodes(w)) {
            remove_from(&mut self.fed.on_nodes, node, key);
        }
        for node in new.into_iter().filter(|w| !w.is_finished()).flat_map(assigned_nodes) {
            self.fed.on_nodes.entry(node.into()).or_default().insert(key.clone());
        }
    }

    fn feed_workload(&mut self, now: Timestamp, reference: &ObjectRef, object: Option<&Object>) {
        let key = key_of(reference);
        let workload = match object {
            Some(Object::Workload(w)) => self.read_workload(reference, w),
            _ => None,
        };
        let Some(workload) = workload else {
            self.mark_stale(&key);
            self.unseen_jobs.remove(&key);
            self.set_aside.remove(&key);
            self.index_workload(&key, None);
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
        let mut workload = workload;
        if let Some(owner) = object.and_then(|o| owner_ref(o.metadata()))
            && let Some(job) = self.store.get(&owner).and_then(as_job)
        {
            for pod_set in &mut workload.spec.pod_sets {
                pod_set.pods_per_pool = job.pods_per_pool(&pod_set.name);
            }
        }
        // Nobody asks what pods a finished workload had, and there are many of those.
        let finished = workload.is_finished();
        let pod_sets = if finished { std::mem::take(&mut workload.spec.pod_sets) } else { Vec::new() };
        let waits = !self.set_aside.contains(&key) || self.store.blocked_until(reference).is_some();
        if waits && self.fed.workloads.get(&key).is_some_and(|w| **w == workload) {
            return;
        }
        let was_set_aside = self.set_aside.remove(&key);
        let old = self.fed.workloads.get(&key);
        self.touched |= was_set_aside || old.is_none_or(|old| !waits_as_before(old, &workload));
        self.index_workload(&key, Some(&workload));
        self.drop_outdated_admission(now, &key, &workload);
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
