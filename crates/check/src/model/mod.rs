//! All objects together, so that rules can look up one from another.

mod job;
mod pool;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use slicegate_api::{Kind, Object, ObjectMeta, PriorityClass, configuration, kueue};
use slicegate_manifest::{Body, Code, Diagnostic, Document};

pub(crate) use job::{Group, Job};
pub(crate) use pool::Pool;
pub(crate) use queue::{Flavor, Potential, Queue, is_endless};

/// An object and where it is written.
pub(crate) struct Doc<'a, T> {
    pub(crate) document: &'a Document,
    pub(crate) object: &'a T,
}

impl<T> Clone for Doc<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Doc<'_, T> {}

impl<T> Deref for Doc<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object
    }
}

/// The label of an object.
pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// The annotation of an object.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The name of an object.
pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// The namespace of an object that has one.
pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default")
}

/// The LocalQueue that takes the jobs of its namespace that name none.
const DEFAULT_QUEUE: &str = "default";

/// Everything there is.
pub(crate) struct Model<'a> {
    /// All documents, in the order in which they are written.
    pub(crate) documents: &'a [&'a Document],
    pub(crate) queues: Vec<Queue<'a>>,
    pub(crate) local_queues: Vec<Doc<'a, kueue::LocalQueue>>,
    pub(crate) flavors: Vec<Flavor<'a>>,
    pub(crate) cohorts: Vec<Doc<'a, kueue::Cohort>>,
    pub(crate) checks: Vec<Doc<'a, kueue::AdmissionCheck>>,
    pub(crate) configs: Vec<Doc<'a, kueue::ProvisioningRequestConfig>>,
    pub(crate) topologies: Vec<Doc<'a, kueue::Topology>>,
    pub(crate) classes: Vec<Doc<'a, PriorityClass>>,
    pub(crate) workload_classes: Vec<Doc<'a, kueue::WorkloadPriorityClass>>,
    pub(crate) pools: Vec<Pool<'a>>,
    pub(crate) jobs: Vec<Job<'a>>,
    /// Kueue's configuration files.
    pub(crate) configurations: Vec<Doc<'a, configuration::Configuration>>,
    /// The labels of the namespaces that are there.
    pub(crate) namespaces: BTreeMap<&'a str, &'a ObjectMeta>,
    /// Whether there is a Scenario: objects that are there twice are meant to change.
    pub(crate) has_scenario: bool,
    /// Whether any object is of Kueue's own kinds.
    pub(crate) has_kueue_objects: bool,
    pub(crate) quota: Potential,
    /// By kind and namespace.
    names: BTreeMap<Kind, BTreeMap<&'a str, BTreeSet<&'a str>>>,
    /// What the reader calls the objects that it could not read.
    unreadable: BTreeSet<&'a str>,
    /// Whether there may be objects of which nothing is known.
    incomplete: bool,
    queue_by_name: BTreeMap<&'a str, usize>,
    flavor_by_name: BTreeMap<&'a str, usize>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(documents: &'a [&'a Document], diagnostics: &'a [Diagnostic]) -> Self {
        let errors = || diagnostics.iter().filter(|d| d.is_error());
        let mut model = Self {
            documents,
            queues: Vec::new(),
            local_queues: Vec::new(),
            flavors: Vec::new(),
            cohorts: Vec::new(),
            checks: Vec::new(),
            configs: Vec::new(),
            topologies: Vec::new(),
            classes: Vec::new(),
            workload_classes: Vec::new(),
            pools: Vec::new(),
            jobs: Vec::new(),
            configurations: Vec::new(),
            namespaces: BTreeMap::new(),
            has_scenario: false,
            has_kueue_objects: false,
            quota: Potential::default(),
            names: BTreeMap::new(),
            unreadable: errors().map(|d| d.object.as_str()).collect(),
            incomplete: errors().any(|d| d.object.is_empty() || d.code == Code::UnsetVariable),
            queue_by_name: BTreeMap::new(),
            flavor_by_name: BTreeMap::new(),
        };
        for &document in documents {
            model.add(document);
        }
        model.connect();
        model
    }

    fn add(&mut self, document: &'a Document) {
        let object = match &document.body {
            Body::NodePool(pool) => return self.pools.push(Pool::of(document, pool)),
            Body::Scenario(_) => {
                self.has_scenario = true;
                return;
            }
            Body::Configuration(file) => return self.configurations.push(Doc { document, object: file }),
            Body::Object(object) => object,
        };
        let kind = object.kind();
        let place = if kind.is_namespaced() { namespace(object.metadata()) } else { "" };
        self.names.entry(kind).or_default().entry(place).or_default().insert(object.name());
        self.has_kueue_objects |= kind.api_version() == kueue::API_VERSION && kind != Kind::Workload;
        match object {
            Object::ClusterQueue(o) => self.queues.push(Queue::new(document, o)),
            Object::LocalQueue(o) => self.local_queues.push(Doc { document, object: o }),
            Object::ResourceFlavor(o) => self.flavors.push(Flavor::new(document, o)),
            Object::Cohort(o) => self.cohorts.push(Doc { document, object: o }),
            Object::AdmissionCheck(o) => self.checks.push(Doc { document, object: o }),
            Object::ProvisioningRequestConfig(o) => self.configs.push(Doc { document, object: o }),
            Object::Topology(o) => self.topologies.push(Doc { document, object: o }),
            Object::PriorityClass(o) => self.classes.push(Doc { document, object: o }),
            Object::WorkloadPriorityClass(o) => self.workload_classes.push(Doc { document, object: o }),
            Object::Namespace(o) => {
                self.namespaces.insert(object.name(), &o.metadata);
            }
            Object::Node(o) => self.pools.push(Pool::of_node(document, o)),
            Object::Job(_) | Object::JobSet(_) | Object::RayJob(_) | Object::RayCluster(_) => {
                self.jobs.push(Job::new(document, object));
            }
            _ => {}
        }
    }

    /// Follows names from one object to another. Of several objects with one name the last counts.
    fn connect(&mut self) {
        for (i, queue) in self.queues.iter().enumerate() {
            self.queue_by_name.insert(name(&queue.object.metadata), i);
        }
        for (i, flavor) in self.flavors.iter().enumerate() {
            self.flavor_by_name.insert(name(&flavor.object.metadata), i);
        }
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for queue in &self.queues {
            let count = times.entry(name(&queue.object.metadata)).or_default();
            *count = count.saturating_add(1);
        }
        let mut by_key = BTreeMap::new();
        for queue in &self.local_queues {
            by_key.insert((namespace(&queue.metadata), name(&queue.metadata)), queue.spec.cluster_queue.as_str());
        }
        for queue in &mut self.queues {
            queue.redefined = times.get(name(&queue.object.metadata)).is_some_and(|n| *n > 1);
        }
        for target in by_key.values() {
            if let Some(queue) = self.queue_by_name.get(target).and_then(|i| self.queues.get_mut(*i)) {
                queue.local_queues = queue.local_queues.saturating_add(1);
            }
        }
        for (j, job) in self.jobs.iter_mut().enumerate() {
            // Jobs without a queue are put into this one. Those of other objects are queued with their owners.
            let owned = job.metadata().owner_references.as_ref().is_some_and(|o| !o.is_empty());
            if job.queue.is_none() && !owned && by_key.contains_key(&(job.namespace, DEFAULT_QUEUE)) {
                job.queue = Some(DEFAULT_QUEUE);
            }
            let target = job.queue.and_then(|queue| by_key.get(&(job.namespace, queue)));
            let Some(&queue) = target.and_then(|name| self.queue_by_name.get(name)) else { continue };
            job.cluster_queue = Some(queue);
            if let Some(queue) = self.queues.get_mut(queue) {
                queue.jobs.push(j);
            }
        }
        self.quota = Potential::new(&self.queues, &self.cohorts);
    }

    /// Whether an object exists, or may exist for all that is known.
    pub(crate) fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let with_namespace = || format!("{kind} {namespace}/{name}");
        self.incomplete
            || self.names_of(kind, namespace).is_some_and(|names| names.contains(name))
            || self.unreadable.contains(format!("{kind} {name}").as_str())
            || self.unreadable.contains(with_namespace().as_str())
    }

    /// The names of all objects of a kind in a namespace (the empty one for kinds without).
    pub(crate) fn names_of(&self, kind: Kind, namespace: &str) -> Option<&BTreeSet<&'a str>> {
        self.names.get(&kind)?.get(namespace)
    }

    /// A ClusterQueue by name.
    pub(crate) fn queue(&self, name: &str) -> Option<&Queue<'a>> {
        self.queues.get(*self.queue_by_name.get(name)?)
    }

    /// A ResourceFlavor by name.
    pub(crate) fn flavor(&self, name: &str) -> Option<&Flavor<'a>> {
        self.flavors.get(*self.flavor_by_name.get(name)?)
    }

    /// The ClusterQueue of a job.
    pub(crate) fn queue_of(&self, job: &Job<'a>) -> Option<&Queue<'a>> {
        self.queues.get(job.cluster_queue?)
    }

    /// The jobs of a ClusterQueue.
    pub(crate) fn jobs_of<'m>(&'m self, queue: &'m Queue<'a>) -> impl Iterator<Item = &'m Job<'a>> {
        queue.jobs.iter().filter_map(|j| self.jobs.get(*j))
    }

    /// An AdmissionCheck by name: the last of it.
    pub(crate) fn check(&self, check: &str) -> Option<Doc<'a, kueue::AdmissionCheck>> {
        self.checks.iter().rfind(|c| name(&c.metadata) == check).copied()
    }

    /// The parameters of an AdmissionCheck that asks for capacity.
    pub(crate) fn config_of(&self, check: &kueue::AdmissionCheck) -> Option<Doc<'a, kueue::ProvisioningRequestConfig>> {
        let wanted = &check.spec.parameters.as_ref()?.name;
        self.configs.iter().rfind(|c| name(&c.metadata) == wanted).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slicegate_manifest::{Options, Source, load};

    #[test]
    fn objects_that_cannot_be_read_exist() {
        let text =
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: broken}\nspec: {cohort: a}\n";
        let loaded = load(&[Source { name: "m".into(), text: text.into(), ..Source::default() }], &Options::default());
        assert!(loaded.documents.is_empty() && loaded.invalid.is_empty());
        let model = Model::new(&[], &loaded.diagnostics);
        assert!(model.has(Kind::ClusterQueue, "", "broken"));
        assert!(!model.has(Kind::ClusterQueue, "", "other"));
    }
}
