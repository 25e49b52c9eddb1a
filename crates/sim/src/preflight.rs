//! What can be told from the documents alone, before anything runs: names that nothing has, shapes that do not exist, pods
//! that no node can ever hold.
//!
//! Only what GKE itself would refuse is an error. What Kueue accepts is a warning: the simulation shows what comes of it.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::nodepool::NodePool;
use slicegate_api::scenario::{RUN_TIME, Scenario};
use slicegate_api::{Kind, Object, PodTemplateSpec};
use slicegate_manifest::{Body, Code, Diagnostic, Document, Severity, Source};
use slicegate_tpu::{MachineType, SliceShape, label};

use crate::cluster::pool::Pool;
use crate::cluster::shape::Shape;
use crate::defaults::{TPU, complete, complete_pod};
use crate::duration::parse_duration;

/// The nodes of the largest GKE clusters.
const MOST_NODES: i32 = 65_000;

/// Looks at all documents together, in the order in which they were read. `sources` are the texts they were read from.
pub fn preflight(documents: &[Document], sources: &[Source]) -> Vec<Diagnostic> {
    let names = Names::of(documents);
    let pools = Pools::of(documents);
    let mut findings = Findings { sources, all: Vec::new() };
    for document in documents {
        match &document.body {
            Body::NodePool(pool) => node_pool(document, pool, &mut findings),
            Body::Object(object) => {
                references(document, object, &names, &mut findings);
                run_time(document, object, &mut findings);
                for set in pod_sets(object) {
                    hosts(document, &set, &mut findings);
                    pools.look_for(document, &set, &mut findings);
                }
            }
            Body::Scenario(scenario) => run_times(document, scenario, &names, &mut findings),
            Body::Configuration(_) => {}
        }
    }
    findings.all
}

struct Findings<'a> {
    sources: &'a [Source],
    all: Vec<Diagnostic>,
}

impl Findings<'_> {
    fn add(&mut self, document: &Document, severity: Severity, code: Code, path: &str, message: String, help: String) {
        self.all.push(document.diagnostic(self.sources, severity, code, path, message).with_help(help));
    }

    fn warn(&mut self, document: &Document, code: Code, path: &str, message: String, help: String) {
        self.add(document, Severity::Warning, code, path, message, help);
    }
}

// ----- run times -------------------------------------------------------------------------------------------------------

fn run_time(document: &Document, object: &Object, findings: &mut Findings<'_>) {
    if let Some(text) = crate::defaults::annotation(object.metadata(), RUN_TIME)
        && let Err(why) = parse_duration(text)
    {
        let path = format!("metadata.annotations[{RUN_TIME}]");
        let help = "without the annotation the job runs as long as the scenario says, or 60s".to_owned();
        findings.add(document, Severity::Error, Code::InvalidValue, &path, why.to_string(), help);
    }
}

fn run_times(document: &Document, scenario: &Scenario, names: &Names, findings: &mut Findings<'_>) {
    for job in scenario.spec.run_times.keys() {
        if !names.any_called(job) {
            let message = format!("no document describes {job}: this run time is for nothing");
            let help = "name a job as name, kind/name or kind/namespace/name".to_owned();
            findings.warn(document, Code::DanglingReference, &format!("spec.runTimes[{job}]"), message, help);
        }
    }
}

// ----- node pools ------------------------------------------------------------------------------------------------------

fn node_pool(document: &Document, pool: &NodePool, findings: &mut Findings<'_>) {
    if pool.initial_node_count.is_some_and(|nodes| nodes > MOST_NODES) {
        let message = format!("a GKE cluster has at most {MOST_NODES} nodes");
        let help = "correct initialNodeCount".to_owned();
        findings.add(document, Severity::Error, Code::InvalidValue, "initialNodeCount", message, help);
    }
    let name = pool.config.machine_type.as_str();
    let machine = match name.parse::<MachineType>() {
        Ok(machine) => machine,
        Err(unknown) if name.starts_with("ct") || name.starts_with("tpu") => {
            let help = "write a TPU machine type such as ct5lp-hightpu-4t or ct6e-standard-4t".to_owned();
            return findings.add(
                document,
                Severity::Error,
                Code::UnknownShape,
                "config.machineType",
                unknown.to_string(),
                help,
            );
        }
        Err(_) => return,
    };
    let topology = pool.placement_policy.as_ref().and_then(|p| p.tpu_topology.as_deref());
    if let Some(topology) = topology
        && let Err(why) = SliceShape::parse(name, topology)
    {
        let legal: Vec<String> = machine.topologies().take(12).map(|t| t.to_string()).collect();
        findings.add(
            document,
            Severity::Error,
            Code::UnknownShape,
            "placementPolicy.tpuTopology",
            why.to_string(),
            format!("{name} makes {}", legal.join(", ")),
        );
    }
}

// ----- names -----------------------------------------------------------------------------------------------------------

/// What the documents define.
struct Names(BTreeSet<(Kind, String, String)>);

impl Names {
    fn of(documents: &[Document]) -> Self {
        Self(
            documents
                .iter()
                .filter_map(Document::object)
                .map(|o| {
                    let namespace = if o.kind().is_namespaced() { namespace(o) } else { "" };
                    (o.kind(), namespace.to_owned(), o.name().to_owned())
                })
                .collect(),
        )
    }

    fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.0.contains(&(kind, namespace.to_owned(), name.to_owned()))
    }

    /// Whether there is an object that a run time given for `job` is for.
    fn any_called(&self, job: &str) -> bool {
        let parts: Vec<&str> = job.split('/').collect();
        self.0.iter().any(|(kind, namespace, name)| match parts.as_slice() {
            [n] => name == n,
            [k, n] => kind.as_str() == *k && name == n,
            [k, ns, n] => kind.as_str() == *k && namespace == ns && name == n,
            _ => false,
        })
    }

    /// What there is instead, for a help line.
    fn instead(&self, kind: Kind, namespace: &str) -> String {
        let there: Vec<&str> =
            self.0.iter().filter(|(k, ns, _)| *k == kind && ns == namespace).map(|(.., n)| n.as_str()).collect();
        let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
        if there.is_empty() {
            format!("add a {kind}{place} to the manifests")
        } else {
            format!("the manifests have {kind} {}{place}", there.join(", "))
        }
    }
}

fn namespace(object: &Object) -> &str {
    if object.namespace().is_empty() { "default" } else { object.namespace() }
}

fn references(document: &Document, object: &Object, names: &Names, findings: &mut Findings<'_>) {
    let mut missing = |kind: Kind, namespace: &str, name: &str, path: &str, then: &str| {
        if !names.has(kind, namespace, name) {
            let message = format!("there is no {kind} {name}: {then}");
            findings.warn(document, Code::DanglingReference, path, message, names.instead(kind, namespace));
        }
    };
    match object {
        Object::LocalQueue(queue) => {
            let then = "jobs of this queue wait for ever";
            missing(Kind::ClusterQueue, "", &queue.spec.cluster_queue, "spec.clusterQueue", then);
        }
        Object::ClusterQueue(queue) => {
            let then = "the queue is inactive and admits nothing";
            for (g, group) in queue.spec.resource_groups.iter().enumerate() {
                for (f, flavor) in group.flavors.iter().enumerate() {
                    let path = format!("spec.resourceGroups[{g}].flavors[{f}].name");
                    missing(Kind::ResourceFlavor, "", &flavor.name, &path, then);
                }
            }
            for (c, check) in queue.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks).enumerate()
            {
                let path = format!("spec.admissionChecksStrategy.admissionChecks[{c}].name");
                missing(Kind::AdmissionCheck, "", &check.name, &path, then);
            }
        }
        Object::AdmissionCheck(check) => {
            if let Some(parameters) = &check.spec.parameters
                && parameters.kind == Kind::ProvisioningRequestConfig.as_str()
            {
                let then = "the check is inactive, and so is every queue that names it";
                missing(Kind::ProvisioningRequestConfig, "", &parameters.name, "spec.parameters.name", then);
            }
        }
        Object::ResourceFlavor(flavor) => {
            if let Some(topology) = &flavor.spec.topology_name {
                let then = "every queue with this flavor is inactive";
                missing(Kind::Topology, "", topology, "spec.topologyName", then);
            }
        }
        Object::Job(_) | Object::JobSet(_) | Object::RayJob(_) | Object::RayCluster(_) => {
            let labels = object.metadata().labels.as_ref();
            let label = |key: &str| labels.and_then(|l| l.get(key));
            if let Some(queue) = label("kueue.x-k8s.io/queue-name") {
                let path = "metadata.labels[kueue.x-k8s.io/queue-name]";
                missing(Kind::LocalQueue, namespace(object), queue, path, "the job waits for ever");
            }
            if let Some(class) = label("kueue.x-k8s.io/priority-class") {
                let path = "metadata.labels[kueue.x-k8s.io/priority-class]";
                missing(Kind::WorkloadPriorityClass, "", class, path, "no Workload is made until there is");
            }
            for set in pod_sets(object) {
                let spec = set.template.spec.as_ref();
                if let Some(class) = spec.and_then(|s| s.priority_class_name.as_deref())
                    && !class.starts_with("system-")
                {
                    let path = format!("{}.spec.priorityClassName", set.path);
                    missing(Kind::PriorityClass, "", class, &path, "no pod can be made");
                }
            }
        }
        _ => {}
    }
}

// ----- pods ------------------------------------------------------------------------------------------------------------

/// Equal pods of a job.
struct Pods<'a> {
    /// The field of the job that holds the pod template.
    path: String,
    template: &'a PodTemplateSpec,
    /// How many pods make up a slice, and the field that says so.
    a_slice: Option<(i32, String)>,
}

fn pod_sets(object: &Object) -> Vec<Pods<'_>> {
    let ray = |spec: &'_ slicegate_api::ray::RayClusterSpec, at: &str| -> Vec<(usize, String)> {
        (0..spec.worker_group_specs.len()).map(|i| (i, format!("{at}.workerGroupSpecs[{i}]"))).collect()
    };
    match object {
        Object::Job(job) => job
            .spec
            .iter()
            .map(|spec| Pods {
                path: "spec.template".to_owned(),
                template: &spec.template,
                a_slice: Some((spec.parallelism.unwrap_or(1), "spec.parallelism".to_owned())),
            })
            .collect(),
        Object::JobSet(set) => set
            .spec
            .replicated_jobs
            .iter()
            .enumerate()
            .filter_map(|(i, job)| {
                let at = format!("spec.replicatedJobs[{i}].template.spec");
                let spec = job.template.spec.as_ref()?;
                let a_slice = Some((spec.parallelism.unwrap_or(1), format!("{at}.parallelism")));
                Some(Pods { path: format!("{at}.template"), template: &spec.template, a_slice })
            })
            .collect(),
        Object::RayJob(_) | Object::RayCluster(_) => {
            let (spec, at) = match object {
                Object::RayJob(job) => (job.spec.ray_cluster_spec.as_ref(), "spec.rayClusterSpec"),
                Object::RayCluster(cluster) => (Some(&cluster.spec), "spec"),
                _ => (None, ""),
            };
            let Some(spec) = spec else { return Vec::new() };
            let head = Pods {
                path: format!("{at}.headGroupSpec.template"),
                template: &spec.head_group_spec.template,
                a_slice: None,
            };
            let workers = ray(spec, at).into_iter().filter_map(|(i, at)| {
                let group = spec.worker_group_specs.get(i)?;
                let a_slice = Some((group.num_of_hosts.unwrap_or(1), format!("{at}.numOfHosts")));
                Some(Pods { path: format!("{at}.template"), template: &group.template, a_slice })
            });
            std::iter::once(head).chain(workers).collect()
        }
        _ => Vec::new(),
    }
}

/// The priority classes of a job's pods.
pub(crate) fn priority_classes(object: &Object) -> Vec<String> {
    let class =
        |set: &Pods<'_>| set.template.spec.as_ref()?.priority_class_name.clone().filter(|name| !name.is_empty());
    pod_sets(object).iter().filter_map(class).collect()
}

fn shape(template: &PodTemplateSpec) -> Option<Shape> {
    let mut spec = template.spec.clone()?;
    complete_pod(&mut spec, 0);
    Some(Shape::of(&spec, true))
}

/// Pods that use TPUs come as many at a time as a slice has hosts.
fn hosts(document: &Document, pods: &Pods<'_>, findings: &mut Findings<'_>) {
    let (Some(shape), Some((count, path))) = (shape(pods.template), &pods.a_slice) else { return };
    let chips = shape.request(TPU).value();
    let get = |key: &str| shape.selector.get(key).map(|v| &**v);
    let (Some(accelerator), Some(topology)) = (get(label::ACCELERATOR), get(label::TOPOLOGY)) else { return };
    let Ok(chips) = u32::try_from(chips) else { return };
    if chips == 0 {
        return;
    }
    match SliceShape::from_selector(accelerator, topology, Some(chips)) {
        Err(why) => {
            let path = format!("{}.spec.nodeSelector[{}]", pods.path, label::TOPOLOGY);
            let help =
                "no node of this shape can exist: correct the selectors or the number of google.com/tpu".to_owned();
            findings.warn(document, Code::UnknownShape, &path, why.to_string(), help);
        }
        Ok(slice) if slice.is_multi_host() && i64::from(slice.hosts()) != i64::from(*count) => {
            let field = path.rsplit('.').next().unwrap_or_default();
            let message = format!(
                "a {topology} slice of {} has {} hosts, but there are {count} pods to each: {}",
                slice.machine_type().name(),
                slice.hosts(),
                if i64::from(*count) < i64::from(slice.hosts()) {
                    "the other hosts stay idle and the TPU runtime does not start"
                } else {
                    "the rest of the pods find no host"
                }
            );
            findings.warn(document, Code::HostMismatch, path, message, format!("set {field} to {}", slice.hosts()));
        }
        Ok(_) => {}
    }
}

/// The node pools and Nodes of the documents.
struct Pools(Vec<Pool>);

impl Pools {
    fn of(documents: &[Document]) -> Self {
        // What comes later replaces what has the same name.
        let mut pools: BTreeMap<(bool, String), Pool> = BTreeMap::new();
        for document in documents {
            match &document.body {
                Body::NodePool(pool) => {
                    pools.insert((false, pool.name.clone()), Pool::from_document(pool, &mut Vec::new()));
                }
                Body::Object(Object::Node(node)) => {
                    let completed = complete(Object::Node(node.clone()));
                    if let Object::Node(node) = &completed {
                        pools.insert((true, completed.name().to_owned()), Pool::from_node_object(node));
                    }
                }
                _ => {}
            }
        }
        Self(pools.into_values().collect())
    }

    /// Says so if no node that there is or can be would hold the pods.
    fn look_for(&self, document: &Document, pods: &Pods<'_>, findings: &mut Findings<'_>) {
        let Some(shape) = shape(pods.template) else { return };
        if self.0.is_empty() || self.0.iter().any(|p| p.matches(&shape) && p.could_hold(&shape)) {
            return;
        }
        let selector: Vec<String> = shape.selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let wanted = if selector.is_empty() { "no selector".to_owned() } else { selector.join(", ") };
        let fits = self.0.iter().find(|p| p.matches(&shape));
        let message = match fits {
            Some(pool) => format!(
                "no node can hold these pods: node pool {} matches their selectors ({wanted}), but its nodes are too small or \
                 have another number of chips",
                pool.name
            ),
            None => format!("no node pool matches these pods ({wanted}): once admitted they wait for ever"),
        };
        let names: Vec<&str> = self.0.iter().map(|p| &*p.name).collect();
        let help = format!("there are node pools {}; compare their labels and taints", names.join(", "));
        let path = format!("{}.spec.nodeSelector", pods.path);
        findings.warn(document, Code::UnmatchedSelector, &path, message, help);
    }
}
