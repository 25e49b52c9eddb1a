//! What a simulation starts from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use slicegate_api::Object;
use slicegate_api::nodepool::NodePool;
use slicegate_api::scenario::Scenario;
use slicegate_manifest::{Body, Document, PathSpec, load, sources_from_paths};

use crate::duration::ParseDurationError;
use crate::plan::Plan;

/// A document.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few, and they are matched on everywhere")]
pub enum Item {
    /// An object of the API.
    Object(Object),
    /// A GKE node pool.
    NodePool(NodePool),
    /// What happens, and when.
    Scenario(Scenario),
}

/// Reads the files that scenarios name.
pub trait Files {
    /// The documents of a file, with variables filled in.
    ///
    /// # Errors
    /// In the words that a person is to read.
    fn load(&self, file: &str, env: &BTreeMap<String, String>) -> Result<Vec<Item>, String>;
}

/// No files: every scenario that names one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn load(&self, file: &str, _: &BTreeMap<String, String>) -> Result<Vec<Item>, String> {
        Err(format!("{file} cannot be read here"))
    }
}

/// Files beside the manifest that holds the scenario.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ManifestFiles {
    /// The folder that names are relative to.
    pub folder: PathBuf,
}

impl Files for ManifestFiles {
    fn load(&self, file: &str, env: &BTreeMap<String, String>) -> Result<Vec<Item>, String> {
        let spec = PathSpec { path: self.folder.join(file), env: env.clone() };
        let lines = |lines: Vec<String>| lines.join("; ");
        let sources =
            sources_from_paths(&[spec]).map_err(|errors| lines(errors.iter().map(ToString::to_string).collect()))?;
        let loaded = load(&sources, &slicegate_manifest::Options::default());
        if loaded.has_errors() {
            let errors = loaded.diagnostics.iter().filter(|d| d.is_error()).map(ToString::to_string);
            return Err(lines(errors.collect()));
        }
        Ok(loaded.documents.into_iter().filter_map(Item::of).collect())
    }
}

impl Item {
    /// What a document describes; `None` for the controller's configuration, which whoever makes the controller has to read.
    pub fn of(document: Document) -> Option<Self> {
        match document.body {
            Body::Object(object) => Some(Self::Object(object)),
            Body::NodePool(pool) => Some(Self::NodePool(pool)),
            Body::Scenario(scenario) => Some(Self::Scenario(scenario)),
            Body::Configuration(_) => None,
        }
    }
}

/// How to simulate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether every version of every object is kept. Needed for tables of the past; takes memory.
    pub keep_history: bool,
    /// When to stop at the latest, in microseconds since the start; the scenario's own limit counts too.
    pub until: Option<i64>,
    /// How often metrics are sampled, in microseconds; `None`: there are none.
    pub metrics_every: Option<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { keep_history: true, until: None, metrics_every: None }
    }
}

/// What a simulation starts from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Input {
    /// Documents, in order.
    pub items: Vec<Item>,
    /// How to simulate.
    pub options: Options,
}

impl Input {
    /// The documents of manifests, to be simulated like this. A configuration among them is left out.
    pub fn new(documents: impl IntoIterator<Item = Document>, options: Options) -> Self {
        Self { items: documents.into_iter().filter_map(Item::of).collect(), options }
    }
}

/// Why a scenario cannot be played.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A length of time cannot be read.
    #[error("Scenario {scenario}: {field}: {error}")]
    Duration {
        /// The scenario's name.
        scenario: String,
        /// The field's path.
        field: String,
        /// What is wrong.
        error: ParseDurationError,
    },
    /// The start cannot be read.
    #[error(
        "Scenario {scenario}: spec.start: {text:?} is not a time between the years 1970 and 5000; write it like 2026-01-01T00:00:00Z"
    )]
    Start {
        /// The scenario's name.
        scenario: String,
        /// The text.
        text: String,
    },
    /// An event names an object that no document describes.
    #[error(
        "Scenario {scenario}: {field}: no document describes {object:?}; name it as kind/name or kind/namespace/name"
    )]
    NoSuchObject {
        /// The scenario's name.
        scenario: String,
        /// The field's path.
        field: String,
        /// The object, as it was named.
        object: String,
    },
    /// An event says nothing to do.
    #[error("Scenario {scenario}: {field}: set either file or object")]
    NothingToDo {
        /// The scenario's name.
        scenario: String,
        /// The field's path.
        field: String,
    },
    /// A value makes no sense.
    #[error("Scenario {scenario}: {field}: {why}")]
    Invalid {
        /// The scenario's name.
        scenario: String,
        /// The field's path.
        field: String,
        /// What is wrong, and what to write.
        why: String,
    },
    /// A file cannot be read.
    #[error("Scenario {scenario}: {field}: {error}")]
    File {
        /// The scenario's name.
        scenario: String,
        /// The field's path.
        field: String,
        /// What is wrong.
        error: String,
    },
}

impl ScenarioError {
    /// The scenario's name.
    pub fn scenario(&self) -> &str {
        match self {
            Self::Duration { scenario, .. }
            | Self::Start { scenario, .. }
            | Self::NoSuchObject { scenario, .. }
            | Self::NothingToDo { scenario, .. }
            | Self::Invalid { scenario, .. }
            | Self::File { scenario, .. } => scenario,
        }
    }

    /// The field's path.
    pub fn field(&self) -> &str {
        match self {
            Self::Duration { field, .. }
            | Self::NoSuchObject { field, .. }
            | Self::NothingToDo { field, .. }
            | Self::Invalid { field, .. }
            | Self::File { field, .. } => field,
            Self::Start { .. } => "spec.start",
        }
    }

    /// What is wrong, without saying where.
    pub fn message(&self) -> String {
        let text = self.to_string();
        let place = format!("Scenario {}: {}: ", self.scenario(), self.field());
        text.strip_prefix(&place).map_or(text.clone(), ToOwned::to_owned)
    }
}

/// All that keeps the scenarios among these documents from being played.
pub fn scenario_errors(items: &[Item], files: &dyn Files) -> Vec<ScenarioError> {
    let input = Input { items: items.to_vec(), options: Options::default() };
    Plan::new(input, files).err().unwrap_or_default()
}
