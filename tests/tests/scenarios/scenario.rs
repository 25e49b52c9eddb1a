//! Scenarios as they stand in their files: objects in the manifests of the API, then the steps.
//!
//! The last document of a file says what happens. A step is one of [`Step`]; every name in it is that of a workload unless it
//! says otherwise. A file may name variants: the same steps on objects in which some texts are replaced by others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use slicegate_api::{Object, convert};
use slicegate_manifest::{Body, Options, Source, load};

use crate::yaml;

/// When everything starts: 2026-01-01T00:00:00Z.
pub(super) const START: i64 = 1_767_225_600;
/// The namespace in which everything happens.
pub(super) const NAMESPACE: &str = "lab";

/// A file.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The objects as they are written.
    pub(super) objects: String,
    /// What happens.
    pub(super) script: Script,
}

/// The last document of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    /// Where it is played.
    #[serde(default)]
    pub(super) on: Player,
    /// How the controller is configured.
    #[serde(default)]
    pub(super) config: Config,
    /// Variants of the objects, by name: texts and what takes their place.
    #[serde(default)]
    pub(super) variants: BTreeMap<String, BTreeMap<String, String>>,
    /// What happens.
    pub(super) steps: Vec<Step>,
}

/// Where a scenario is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Player {
    /// On the engine alone.
    #[default]
    Engine,
    /// On a controller with an API server.
    Controller,
}

/// What differs from the default configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Config {
    /// What happens to workloads whose pods do not become ready.
    pub(super) wait_for_pods_ready: Option<PodsReady>,
    /// Whether resources that a queue does not cover are passed over.
    #[serde(default)]
    pub(super) ignore_undeclared_resources: bool,
}

/// What happens to workloads whose pods do not become ready, in seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodsReady {
    pub(super) timeout: i64,
    pub(super) backoff_limit_count: i32,
    pub(super) backoff_base_seconds: i32,
    pub(super) backoff_max_seconds: i32,
}

/// Something that happens, or that must hold.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Step {
    /// A workload is made, one second after the one before.
    Create(Create),
    /// Cycles run until nothing changes.
    Settle,
    /// One cycle runs.
    Cycle,
    /// From now on evicted workloads take their time.
    HoldEvictions,
    /// An evicted workload has stopped.
    CompleteEviction(String),
    /// Workloads end.
    Finish(Vec<String>),
    /// An object is made.
    Apply(Value),
    /// The clock goes on to so many seconds after the start.
    At(i64),
    /// A field of an object changes.
    Edit(Edit),
    /// What must hold.
    Expect(Expect),
}

/// A change of one field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// Kind and name, or kind, namespace and name; that of a job's Workload is that of the job.
    pub(super) of: String,
    /// A JSON pointer; a `-` at its end appends to a list.
    pub(super) at: String,
    /// The new value; `NOW` in it stands for the time.
    pub(super) value: Value,
}

/// What a field must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    /// As in [`Edit`].
    pub(super) of: String,
    /// A JSON pointer.
    pub(super) at: String,
    /// The value; null where there is none.
    pub(super) is: Value,
}

/// A workload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Create {
    pub(super) name: String,
    /// The ClusterQueue; its LocalQueue is made of it.
    pub(super) queue: String,
    #[serde(default)]
    pub(super) priority: i64,
    pub(super) namespace: Option<String>,
    pub(super) active: Option<bool>,
    /// How many pods there are.
    pub(super) count: Option<i64>,
    /// What each pod asks for.
    #[serde(default)]
    pub(super) requests: BTreeMap<String, Value>,
    /// What each may use at most.
    #[serde(default)]
    pub(super) limits: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) tolerations: Vec<Value>,
    /// What is asked of topology, as in the API.
    pub(super) topology: Option<Value>,
    /// Further pod sets of the same pods: names and counts.
    #[serde(default)]
    pub(super) more: BTreeMap<String, i64>,
    /// Make so many, with a number behind the name.
    pub(super) copies: Option<usize>,
}

/// What must hold. All workloads that are not finished have to be named, unless it is partial.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expect {
    /// Who runs, and on which flavors.
    #[serde(default)]
    pub(super) admitted: BTreeMap<String, Flavors>,
    /// On which node the pods run of those that run on one.
    #[serde(default)]
    pub(super) node: BTreeMap<String, String>,
    /// Who waits, and the reason that the condition `QuotaReserved` gives.
    #[serde(default)]
    pub(super) pending: BTreeMap<String, String>,
    /// Who holds quota and waits for admission checks.
    #[serde(default)]
    pub(super) quota_reserved: BTreeMap<String, Flavors>,
    /// Why those were evicted that were, the last time.
    #[serde(default)]
    pub(super) evicted: BTreeMap<String, String>,
    /// Who is not active.
    #[serde(default)]
    pub(super) deactivated: Vec<String>,
    /// How often those were put back that were, and until when they wait, in seconds after the start.
    #[serde(default)]
    pub(super) requeue: BTreeMap<String, Option<Requeue>>,
    /// Parts of the message of the condition `QuotaReserved`.
    #[serde(default)]
    pub(super) message: BTreeMap<String, String>,
    /// Fields of objects.
    #[serde(default)]
    pub(super) fields: Vec<Field>,
    /// Objects whose spec is as it was written.
    #[serde(default)]
    pub(super) as_written: Vec<String>,
    /// Who was told to stop and has not yet.
    #[serde(default)]
    pub(super) evicting: Vec<String>,
    /// Who was preempted since the last expectation, in the order of the decisions.
    #[serde(default)]
    pub(super) preemptions: Vec<Preemption>,
    /// How many there were since the start.
    pub(super) preemption_count: usize,
    /// Parts of what is said in answer to the question why a workload waits.
    #[serde(default)]
    pub(super) why: BTreeMap<String, String>,
    /// How many cycles there may have been since the last expectation.
    pub(super) cycles_at_most: Option<usize>,
    /// Workloads that are not named may be in any state.
    #[serde(default)]
    pub(super) partial: bool,
}

/// One flavor for everything, or one for each resource.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Flavors {
    One(String),
    Each(BTreeMap<String, String>),
}

/// A back-off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requeue {
    pub(super) count: Option<i32>,
    pub(super) at: i64,
}

/// A preemption.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preemption {
    pub(super) by: String,
    pub(super) of: String,
    pub(super) reason: String,
}

impl Scenario {
    /// Reads the file of this name.
    pub(super) fn read(name: &str) -> Result<Self, String> {
        let file = folder().join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let (objects, script) = text.rsplit_once("\n---\n").ok_or("the steps are missing")?;
        let script = serde_json::from_value(yaml::read(script)?).map_err(|e| e.to_string())?;
        Ok(Self { objects: objects.to_owned(), script })
    }

    /// Whether there are steps that a controller does not leave to others, or more of something than it should have to bear.
    pub(super) fn needs_the_engine_alone(&self) -> bool {
        self.script.steps.iter().any(|step| match step {
            Step::Cycle | Step::HoldEvictions | Step::CompleteEviction(_) => true,
            Step::Create(create) => create.copies.is_some(),
            _ => false,
        })
    }

    /// The objects of a variant.
    pub(super) fn variant(&self, name: &str) -> Result<String, String> {
        let replacements = self.script.variants.get(name).ok_or_else(|| format!("no variant {name}"))?;
        let mut text = self.objects.clone();
        for (from, to) in replacements {
            if !text.contains(from.as_str()) {
                return Err(format!("there is no {from:?} to be replaced"));
            }
            text = text.replace(from.as_str(), to);
        }
        Ok(text)
    }
}

/// Where the files are.
pub(super) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// Reads manifests in which nothing may be wrong.
pub(super) fn objects(text: &str) -> Result<Vec<Object>, String> {
    let source = Source { name: "objects".into(), text: text.into(), ..Source::default() };
    let loaded = load(&[source], &Options::default());
    if let Some(diagnostic) = loaded.diagnostics.first() {
        return Err(diagnostic.to_string());
    }
    let bodies = loaded.documents.into_iter().map(|d| d.body);
    bodies
        .map(|body| match body {
            Body::Object(object) => Ok(object),
            Body::NodePool(_) | Body::Scenario(_) | Body::Configuration(_) => {
                Err("only objects of the API belong here".to_owned())
            }
        })
        .collect()
}

/// The one object of a manifest.
pub(super) fn object(value: &Value) -> Result<Object, String> {
    let mut all = objects(&value.to_string())?;
    all.pop().filter(|_| all.is_empty()).ok_or_else(|| format!("not one object: {value}"))
}

impl Step {
    /// The words for a step that failed.
    pub(super) fn failed(&self, number: usize, why: &str) -> String {
        let text: String = format!("{self:?}").chars().take(100).collect();
        format!("step {} ({text}): {why}", number + 1)
    }
}

impl Create {
    /// The Workload as it stands in the API.
    pub(super) fn object(&self) -> Result<Object, String> {
        let amounts = |list: &BTreeMap<String, Value>| -> BTreeMap<String, String> {
            let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            list.iter().map(|(resource, amount)| (resource.clone(), text(amount))).collect()
        };
        let mut resources = json!({"requests": amounts(&self.requests)});
        if !self.limits.is_empty() {
            resources["limits"] = json!(amounts(&self.limits));
        }
        let pod_set = |name: &str, count: i64| {
            json!({"name": name, "count": count, "topologyRequest": self.topology, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "image", "resources": resources}],
                "nodeSelector": self.node_selector,
                "tolerations": self.tolerations,
            }}})
        };
        let mut pod_sets = vec![pod_set("main", self.count.unwrap_or(1))];
        pod_sets.extend(self.more.iter().map(|(name, count)| pod_set(name, *count)));
        object(&json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": self.name, "namespace": self.namespace.as_deref().unwrap_or(NAMESPACE)},
            "spec": {
                "queueName": format!("lq-{}", self.queue),
                "priority": self.priority,
                "active": self.active.unwrap_or(true),
                "podSets": pod_sets,
            },
        }))
    }

    /// Its name, or those of its copies.
    pub(super) fn names(&self) -> Vec<String> {
        self.copies.map_or_else(|| vec![self.name.clone()], |n| (0..n).map(|i| format!("{}-{i}", self.name)).collect())
    }
}

/// The Workload of an object.
pub(super) fn workload(object: &Object) -> Result<slicegate_workload::Workload, String> {
    match object {
        Object::Workload(workload) => convert::workload(workload).map_err(|e| e.to_string()),
        other => Err(format!("{} is not a Workload", other.reference())),
    }
}
