//! What cannot be simulated, as far as the documents alone tell: node pools that GKE would refuse, and run times that make no
//! sense. Mistakes that a cluster would take are for `slicegate-check` to find.

use std::collections::BTreeSet;

use slicegate_api::nodepool::NodePool;
use slicegate_api::scenario::{RUN_TIME, Scenario};
use slicegate_api::{Kind, Object, PodTemplateSpec};
use slicegate_manifest::{Body, Code, Diagnostic, Document, Severity, Source};
use slicegate_tpu::{MachineType, SliceShape};

use crate::duration::parse_duration;

/// The nodes of the largest GKE clusters.
const MOST_NODES: i32 = 65_000;

/// Looks at all documents together, in the order in which they were read. `sources` are the texts they were read from.
pub fn preflight(documents: &[Document], sources: &[Source]) -> Vec<Diagnostic> {
    let names = Names::of(documents);
    let mut findings = Findings { sources, all: Vec::new() };
    for document in documents {
        match &document.body {
            Body::NodePool(pool) => node_pool(document, pool, &mut findings),
            Body::Object(object) => run_time(document, object, &mut findings),
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
}

fn namespace(object: &Object) -> &str {
    if object.namespace().is_empty() { "default" } else { object.namespace() }
}

// ----- pods ------------------------------------------------------------------------------------------------------------

fn templates(object: &Object) -> Vec<&PodTemplateSpec> {
    let ray = match object {
        Object::Job(job) => return job.spec.iter().map(|spec| &spec.template).collect(),
        Object::JobSet(set) => {
            let specs = set.spec.replicated_jobs.iter().filter_map(|job| job.template.spec.as_ref());
            return specs.map(|spec| &spec.template).collect();
        }
        Object::RayJob(job) => job.spec.ray_cluster_spec.as_ref(),
        Object::RayCluster(cluster) => Some(&cluster.spec),
        _ => None,
    };
    let Some(spec) = ray else { return Vec::new() };
    std::iter::once(&spec.head_group_spec.template).chain(spec.worker_group_specs.iter().map(|g| &g.template)).collect()
}

/// The priority classes of a job's pods.
pub(crate) fn priority_classes(object: &Object) -> Vec<String> {
    let class = |template: &&PodTemplateSpec| template.spec.as_ref()?.priority_class_name.clone();
    templates(object).iter().filter_map(class).filter(|name| !name.is_empty()).collect()
}
