//! Jobs as groups of equal pods.

use std::sync::Arc;

use slicegate_admission::Gates;
use slicegate_api::ray::{RayClusterSpec, WorkerGroupSpec};
use slicegate_api::{Kind, Object, ObjectMeta, PodSpec as ApiPodSpec, PodTemplateSpec, convert};
use slicegate_controller::{keys, pod_sets_of};
use slicegate_manifest::Document;
use slicegate_quota::request_value;
use slicegate_tpu::{SliceShape, label};
use slicegate_workload::{LimitRangeSummary, PodSet, PodSpec, ResourceList, WorkloadSpec, adjust_requests};

/// A job.
pub(crate) struct Job<'a> {
    pub(crate) document: &'a Document,
    pub(crate) object: &'a Object,
    pub(crate) namespace: &'a str,
    /// The LocalQueue that its label names; without a label, `default` if its namespace has a LocalQueue of that name.
    pub(crate) queue: Option<&'a str>,
    /// Its ClusterQueue, as an index, if that is known.
    pub(crate) cluster_queue: Option<usize>,
    pub(crate) groups: Vec<Group<'a>>,
}

/// How the pods of a group come in slices.
pub(crate) struct Slices {
    /// How many pods make up a slice, as the job has it.
    pub(crate) hosts: i64,
    /// The field that says so.
    pub(crate) hosts_path: String,
    /// How many slices.
    pub(crate) count: i64,
    /// The field that says so, empty if none does.
    pub(crate) count_path: String,
}

/// Equal pods of a job: a pod set.
pub(crate) struct Group<'a> {
    pub(crate) name: String,
    /// The field that holds the pod template; empty if the template is not written out.
    pub(crate) path: String,
    pub(crate) template: Option<&'a PodTemplateSpec>,
    /// A pod as it counts, limits as requests included.
    pub(crate) pod: PodSpec,
    /// What one pod asks for.
    pub(crate) requests: ResourceList,
    /// How many pods.
    pub(crate) count: i64,
    /// How they come in slices; `None` for pods that come alone.
    pub(crate) slices: Option<Slices>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(document: &'a Document, object: &'a Object) -> Self {
        let meta = object.metadata();
        let queue = super::label(meta, keys::QUEUE_NAME).filter(|q| !q.is_empty());
        Self { document, object, namespace: super::namespace(meta), queue, cluster_queue: None, groups: groups(object) }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.object.kind()
    }

    pub(crate) fn metadata(&self) -> &'a ObjectMeta {
        self.object.metadata()
    }

    pub(crate) fn name(&self) -> &'a str {
        match (super::name(self.metadata()), self.metadata().generate_name.as_deref()) {
            ("", Some(prefix)) => prefix,
            (name, _) => name,
        }
    }

    /// The cluster of a Ray job or cluster, and the field that holds it.
    pub(crate) fn ray(&self) -> Option<(&'a RayClusterSpec, &'static str)> {
        match self.object {
            Object::RayJob(job) => job.spec.ray_cluster_spec.as_ref().map(|c| (c, "spec.rayClusterSpec")),
            Object::RayCluster(cluster) => Some((&cluster.spec, "spec")),
            _ => None,
        }
    }

    /// Whether it may change its size.
    pub(crate) fn is_elastic(&self) -> bool {
        super::annotation(self.metadata(), keys::ELASTIC_JOB) == Some("true")
    }

    /// Whether any of its pods asks for TPUs.
    pub(crate) fn uses_tpus(&self) -> bool {
        self.groups.iter().any(|g| g.chips() > 0)
    }
}

impl<'a> Group<'a> {
    fn new(name: String, path: String, template: Option<&'a PodTemplateSpec>, counted: Option<&ApiPodSpec>) -> Self {
        let pod = counted.and_then(|spec| convert::pod_spec(spec).ok()).unwrap_or_default();
        let mut spec = WorkloadSpec { pod_sets: vec![PodSet { pod, ..PodSet::default() }], ..WorkloadSpec::default() };
        adjust_requests(&mut spec, &std::collections::BTreeMap::new(), &LimitRangeSummary::default());
        let pod = spec.pod_sets.pop().map(|set| set.pod).unwrap_or_default();
        let requests = pod.requests();
        Self { name, path, template, pod, requests, count: 1, slices: None }
    }

    /// How much of a resource one pod asks for, in the unit of requests.
    pub(crate) fn one(&self, resource: &str) -> i64 {
        self.requests.get(resource).map_or(0, |q| request_value(resource, *q))
    }

    /// How much of a resource all pods ask for, in the unit of requests.
    pub(crate) fn all(&self, resource: &str) -> i64 {
        self.one(resource).saturating_mul(self.count)
    }

    /// Chips that one pod asks for.
    pub(crate) fn chips(&self) -> i64 {
        self.one(slicegate_tpu::RESOURCE)
    }

    /// The value that the node selector has for a label, or that affinity requires as the only one.
    pub(crate) fn selects(&self, key: &str) -> Option<&str> {
        if let Some(value) = self.pod.node_selector.get(key) {
            return Some(value);
        }
        let [term] = self.pod.node_affinity.as_ref()?.required.as_deref()? else { return None };
        let requirement = term.match_expressions.iter().find(|r| *r.key == *key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (slicegate_workload::Operator::In, [value]) => Some(value),
            _ => None,
        }
    }

    /// The slice that it selects, given its chips; `None` if it selects none.
    pub(crate) fn shape(&self) -> Option<Result<SliceShape, slicegate_tpu::SliceError>> {
        let (accelerator, topology) = (self.selects(label::ACCELERATOR)?, self.selects(label::TOPOLOGY)?);
        let chips = u32::try_from(self.chips()).ok().filter(|c| *c > 0)?;
        Some(SliceShape::from_selector(accelerator, topology, Some(chips)))
    }

    /// The slice that it gets, if there is one like that: the one that it selects, or the part or union of those that it asks
    /// for.
    pub(crate) fn slice(&self) -> Option<SliceShape> {
        match self.annotation(slicegate_tpu::annotation::SLICE_TOPOLOGY) {
            Some(topology) => {
                let chips = u32::try_from(self.chips()).ok().filter(|c| *c > 0)?;
                SliceShape::from_selector(self.selects(label::ACCELERATOR)?, topology, Some(chips)).ok()
            }
            None if self.is_dynamic() => None,
            None => self.shape()?.ok(),
        }
    }

    /// Whether it gets another slice than that of its nodes, by annotation or by a topology level that is a part of a slice.
    pub(crate) fn is_dynamic(&self) -> bool {
        const PARTS: [&str; 2] = ["cloud.google.com/gke-tpu-slice-", "cloud.google.com/gke-tpu-partition-"];
        let levels = [keys::REQUIRED_TOPOLOGY, keys::PREFERRED_TOPOLOGY, keys::SLICE_REQUIRED_TOPOLOGY];
        let mut levels = levels.iter().filter_map(|key| self.annotation(key));
        self.annotation(slicegate_tpu::annotation::SLICE_TOPOLOGY).is_some()
            || levels.any(|level| PARTS.iter().any(|part| level.starts_with(part)))
    }

    /// The field of a selector, wherever it is written.
    pub(crate) fn selector_path(&self, key: &str) -> String {
        if self.pod.node_selector.contains_key(key) {
            format!("{}.spec.nodeSelector[{key}]", self.path)
        } else {
            format!("{}.spec.affinity.nodeAffinity", self.path)
        }
    }

    /// The field of the first request or limit for a resource.
    pub(crate) fn request_path(&self, resource: &str) -> String {
        let spec = self.template.and_then(|t| t.spec.as_ref());
        for (i, container) in spec.map(|s| s.containers.as_slice()).unwrap_or_default().iter().enumerate() {
            let Some(resources) = &container.resources else { continue };
            for (field, list) in [("limits", &resources.limits), ("requests", &resources.requests)] {
                if list.as_ref().is_some_and(|l| l.contains_key(resource)) {
                    return format!("{}.spec.containers[{i}].resources.{field}[{resource}]", self.path);
                }
            }
        }
        format!("{}.spec.containers", self.path)
    }

    /// An annotation of the template.
    pub(crate) fn annotation(&self, key: &str) -> Option<&'a str> {
        super::annotation(self.template?.metadata.as_ref()?, key)
    }
}

struct Written<'a> {
    path: String,
    template: Option<&'a PodTemplateSpec>,
    slices: Option<Slices>,
}

fn of_workers<'a>(group: &'a WorkerGroupSpec, at: &str) -> Written<'a> {
    let slices = Slices {
        hosts: i64::from(group.num_of_hosts.unwrap_or(1)),
        hosts_path: format!("{at}.numOfHosts"),
        count: i64::from(group.replicas.unwrap_or(1)),
        count_path: format!("{at}.replicas"),
    };
    Written { path: format!("{at}.template"), template: Some(&group.template), slices: Some(slices) }
}

fn of_ray<'a>(cluster: &'a RayClusterSpec, at: &str) -> Vec<Written<'a>> {
    let head = Written {
        path: format!("{at}.headGroupSpec.template"),
        template: Some(&cluster.head_group_spec.template),
        slices: None,
    };
    let workers = cluster.worker_group_specs.iter().enumerate();
    let workers = workers.map(|(i, group)| of_workers(group, &format!("{at}.workerGroupSpecs[{i}]")));
    std::iter::once(head).chain(workers).collect()
}

/// The pod templates of a job as they are written, in the order of its pod sets.
fn written(object: &Object) -> Vec<Written<'_>> {
    match object {
        Object::Job(job) => {
            let spec = job.spec.as_ref();
            let slices = Slices {
                hosts: i64::from(spec.and_then(|s| s.parallelism).unwrap_or(1)),
                hosts_path: "spec.parallelism".to_owned(),
                count: 1,
                count_path: String::new(),
            };
            vec![Written {
                path: "spec.template".to_owned(),
                template: spec.map(|s| &s.template),
                slices: Some(slices),
            }]
        }
        Object::JobSet(set) => {
            let jobs = set.spec.replicated_jobs.iter().enumerate();
            jobs.map(|(i, job)| {
                let spec = job.template.spec.as_ref();
                let at = format!("spec.replicatedJobs[{i}]");
                let slices = Slices {
                    hosts: i64::from(spec.and_then(|s| s.parallelism).unwrap_or(1)),
                    hosts_path: format!("{at}.template.spec.parallelism"),
                    count: i64::from(job.replicas.unwrap_or(1)),
                    count_path: format!("{at}.replicas"),
                };
                Written {
                    path: format!("{at}.template.spec.template"),
                    template: spec.map(|s| &s.template),
                    slices: Some(slices),
                }
            })
            .collect()
        }
        Object::RayJob(job) => {
            let mut all =
                job.spec.ray_cluster_spec.as_ref().map(|c| of_ray(c, "spec.rayClusterSpec")).unwrap_or_default();
            let template = job.spec.submitter_pod_template.as_ref();
            let path = template.map_or("", |_| "spec.submitterPodTemplate").to_owned();
            all.push(Written { path, template, slices: None });
            all
        }
        Object::RayCluster(cluster) => of_ray(&cluster.spec, "spec"),
        _ => Vec::new(),
    }
}

/// What KubeRay's webhook fills in, as far as it changes the pod sets.
fn with_defaults(object: &Object) -> Object {
    let mut object = object.clone();
    if let Object::RayJob(job) = &mut object {
        let mode = &mut Arc::make_mut(job).spec.submission_mode;
        mode.get_or_insert_with(|| "K8sJobMode".to_owned());
    }
    object
}

fn groups(object: &Object) -> Vec<Group<'_>> {
    let gates = Gates::default();
    let written = written(object);
    match pod_sets_of(&with_defaults(object), &gates) {
        Some(sets) if sets.len() <= written.len() => sets
            .into_iter()
            .zip(written)
            .map(|(set, written)| Group {
                count: i64::from(set.count),
                slices: written.slices,
                ..Group::new(set.name, written.path, written.template, set.template.spec.as_ref())
            })
            .collect(),
        // What keeps the pod sets from being read is told of by the reader.
        _ => written
            .into_iter()
            .map(|w| Group {
                slices: w.slices,
                ..Group::new(String::new(), w.path, w.template, w.template.and_then(|t| t.spec.as_ref()))
            })
            .collect(),
    }
}
