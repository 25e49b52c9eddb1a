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
    /// Variants of the objects, by name: texts and what takes their place.
    #[serde(default)]
    pub(super) variants: BTreeMap<String, BTreeMap<String, String>>,
    /// What happens.
    pub(super) steps: Vec<Step>,
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
    /// An object takes the place of the one of its kind and name.
    Apply(Value),
    /// What must hold.
    Expect(Expect),
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
    /// How many pods there are, if there is one pod set.
    pub(super) count: Option<i64>,
    /// What each pod asks for.
    #[serde(default)]
    pub(super) requests: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) tolerations: Vec<Value>,
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
    /// Who waits, and the reason that the condition `QuotaReserved` gives.
    #[serde(default)]
    pub(super) pending: BTreeMap<String, String>,
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
            Body::NodePool(_) | Body::Scenario(_) => Err("only objects of the API belong here".to_owned()),
        })
        .collect()
}

/// The one object of a manifest.
pub(super) fn object(value: &Value) -> Result<Object, String> {
    let mut all = objects(&value.to_string())?;
    all.pop().filter(|_| all.is_empty()).ok_or_else(|| format!("not one object: {value}"))
}

impl Create {
    /// The Workload as it stands in the API.
    pub(super) fn object(&self) -> Result<Object, String> {
        let requests: BTreeMap<&String, String> = self
            .requests
            .iter()
            .map(|(resource, amount)| (resource, amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)))
            .collect();
        object(&json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "queueName": format!("lq-{}", self.queue),
                "priority": self.priority,
                "podSets": [{
                    "name": "main",
                    "count": self.count.unwrap_or(1),
                    "template": {"spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "main", "image": "image", "resources": {"requests": requests}}],
                        "nodeSelector": self.node_selector,
                        "tolerations": self.tolerations,
                    }},
                }],
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
