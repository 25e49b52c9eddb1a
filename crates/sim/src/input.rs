//! What a simulation starts from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use slicegate_api::nodepool::NodePool;
use slicegate_api::scenario::Scenario;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_manifest::{Body, Document, PathSpec, load, sources_from_paths};
use slicegate_workload::Timestamp;

use crate::cluster::failure::{Failure, FailureError};
use crate::duration::{ParseDurationError, parse_duration};

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
        Ok(loaded.documents.into_iter().map(Item::from).collect())
    }
}

impl From<Document> for Item {
    fn from(document: Document) -> Self {
        match document.body {
            Body::Object(object) => Self::Object(object),
            Body::NodePool(pool) => Self::NodePool(pool),
            Body::Scenario(scenario) => Self::Scenario(scenario),
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
}

impl Default for Options {
    fn default() -> Self {
        Self { keep_history: true, until: None }
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
    /// The documents of manifests, to be simulated like this.
    pub fn new(documents: impl IntoIterator<Item = Document>, options: Options) -> Self {
        Self { items: documents.into_iter().map(Item::from).collect(), options }
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
    /// What is to fail is not told, or told twice.
    #[error("Scenario {scenario}: {field}: {error}")]
    Fail {
        /// The scenario's name.
        scenario: String,
        /// The field's path.
        field: String,
        /// What is wrong.
        error: FailureError,
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
            | Self::Fail { scenario, .. }
            | Self::File { scenario, .. } => scenario,
        }
    }

    /// The field's path.
    pub fn field(&self) -> &str {
        match self {
            Self::Duration { field, .. }
            | Self::NoSuchObject { field, .. }
            | Self::NothingToDo { field, .. }
            | Self::Fail { field, .. }
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

/// The numbers of a simulation, in microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) start: Timestamp,
    pub(crate) until: Option<i64>,
    pub(crate) run_time: i64,
    pub(crate) run_times: BTreeMap<String, i64>,
    pub(crate) node_provisioning: i64,
    pub(crate) dws_finds_capacity: i64,
    pub(crate) dws_gives_up: i64,
    pub(crate) scale_down_after: i64,
    /// From being bound to running.
    pub(crate) pod_start: i64,
    /// From being told to stop to being gone.
    pub(crate) pod_stop: i64,
    /// How long the Job controller waits after followers were refused.
    pub(crate) follower_delay: i64,
}

const SECOND: i64 = 1_000_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            // 2026-01-01T00:00:00Z
            start: Timestamp::from_seconds(1_767_225_600),
            until: None,
            run_time: 60 * SECOND,
            run_times: BTreeMap::new(),
            node_provisioning: 120 * SECOND,
            dws_finds_capacity: 300 * SECOND,
            dws_gives_up: 7 * 86_400 * SECOND,
            scale_down_after: 600 * SECOND,
            pod_start: SECOND,
            pod_stop: SECOND,
            follower_delay: SECOND,
        }
    }
}

/// Something to apply, and when (in microseconds since the start).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Apply {
    pub(crate) at: i64,
    pub(crate) item: Item,
}

/// Settings and what to apply, in order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) applies: Vec<Apply>,
    /// What breaks, and when (in microseconds since the start).
    pub(crate) failures: Vec<(i64, Failure)>,
}

pub(crate) fn is_job(object: &Object) -> bool {
    matches!(object.kind(), Kind::JobSet | Kind::Job | Kind::RayJob | Kind::RayCluster | Kind::Pod | Kind::Workload)
}

fn names(item: &Item, name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let (kind, namespace, own) = match item {
        Item::Object(object) => {
            let namespace = if object.namespace().is_empty() { "default" } else { object.namespace() };
            (object.kind().as_str(), namespace, object.name())
        }
        Item::NodePool(pool) => ("NodePool", "", pool.name.as_str()),
        Item::Scenario(_) => return false,
    };
    match parts.as_slice() {
        [k, n] => kind.eq_ignore_ascii_case(k) && own == *n,
        [k, ns, n] => kind.eq_ignore_ascii_case(k) && namespace == *ns && own == *n,
        _ => false,
    }
}

impl Plan {
    /// Reads the scenario, if there is one, and puts everything in order.
    ///
    /// What no event names is applied by this rule: node pools and configuration at the start, in order; jobs after that, one
    /// second apart, and with them documents that change configuration applied before.
    pub(crate) fn new(input: Input, files: &dyn Files) -> Result<Self, Vec<ScenarioError>> {
        let mut errors = Vec::new();
        let mut settings = Settings { until: input.options.until, ..Settings::default() };
        let mut items = Vec::new();
        let mut events = Vec::new();
        for item in input.items {
            if let Item::Scenario(scenario) = item {
                read_scenario(&scenario, &mut settings, &mut errors);
                let name = scenario.metadata.name.clone().unwrap_or_default();
                events.extend(scenario.spec.events.into_iter().enumerate().map(|(i, event)| (name.clone(), i, event)));
            } else {
                items.push(Some(item));
            }
        }
        let mut applies: Vec<Apply> = Vec::new();
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        let mut named = BTreeSet::new();
        let mut failures = Vec::new();
        for (scenario, i, event) in events {
            let field = |rest: &str| format!("spec.events[{i}].{rest}");
            let at = match parse_duration(&event.at) {
                Ok(at) => at,
                Err(error) => {
                    errors.push(ScenarioError::Duration { scenario: scenario.clone(), field: field("at"), error });
                    continue;
                }
            };
            if let Some(fail) = &event.fail {
                match Failure::read(fail) {
                    Ok(failure) => failures.push((at, failure)),
                    Err((rest, error)) => {
                        errors.push(ScenarioError::Fail { scenario: scenario.clone(), field: field(rest), error });
                    }
                }
                if event.apply.is_none() {
                    continue;
                }
            }
            let apply = event.apply.unwrap_or_default();
            match (&apply.file, &apply.object) {
                (Some(file), None) => match files.load(file, &apply.env) {
                    Ok(list) => {
                        let list = list.into_iter().filter(|item| !matches!(item, Item::Scenario(_)));
                        applies.extend(list.map(|item| Apply { at, item }));
                    }
                    Err(error) => errors.push(ScenarioError::File { scenario, field: field("apply.file"), error }),
                },
                (None, Some(object)) => {
                    let all: Vec<usize> = items
                        .iter()
                        .enumerate()
                        .filter(|(_, item)| item.as_ref().is_some_and(|item| names(item, object)))
                        .map(|(i, _)| i)
                        .collect();
                    let nth = used.entry(object.clone()).or_insert(0);
                    let Some(index) = all.get(*nth).or(all.last()) else {
                        let object = object.clone();
                        errors.push(ScenarioError::NoSuchObject { scenario, field: field("apply.object"), object });
                        continue;
                    };
                    *nth += 1;
                    named.extend(all.iter().copied());
                    if let Some(item) = &items[*index] {
                        applies.push(Apply { at, item: item.clone() });
                    }
                }
                _ => errors.push(ScenarioError::NothingToDo { scenario, field: field("apply") }),
            }
        }
        for index in named {
            items[index] = None;
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut all = by_rule(items.into_iter().flatten());
        all.extend(applies);
        // Stable: what is written first is applied first.
        all.sort_by_key(|apply| apply.at);
        failures.sort_by_key(|(at, _)| *at);
        Ok(Self { settings, applies: all, failures })
    }
}

/// Pools and configuration at the start, then jobs and changes to configuration one second apart.
fn by_rule(items: impl Iterator<Item = Item>) -> Vec<Apply> {
    let mut start = Vec::new();
    let mut later = Vec::new();
    let mut seen: BTreeSet<ObjectRef> = BTreeSet::new();
    let mut at = 0;
    for item in items {
        let first = match &item {
            Item::Object(object) => {
                let known = !seen.insert(object.reference());
                !(is_job(object) || known && at > 0)
            }
            Item::NodePool(_) | Item::Scenario(_) => true,
        };
        if first {
            start.push(Apply { at: 0, item });
        } else {
            at += SECOND;
            later.push(Apply { at, item });
        }
    }
    start.extend(later);
    start
}

/// The bounds of a scenario's start: 1970 and 5000, in seconds since 1970. Later ones would let a long run leave the calendar.
const EARLIEST: i64 = 0;
const LATEST: i64 = 95_617_584_000;

fn read_scenario(scenario: &Scenario, settings: &mut Settings, errors: &mut Vec<ScenarioError>) {
    let name = scenario.metadata.name.clone().unwrap_or_default();
    let spec = &scenario.spec;
    let mut read = |field: &str, text: Option<&String>| {
        let parsed = parse_duration(text?);
        parsed
            .map_err(|error| {
                errors.push(ScenarioError::Duration { scenario: name.clone(), field: format!("spec.{field}"), error });
            })
            .ok()
    };
    if let Some(until) = read("until", spec.until.as_ref()) {
        settings.until = Some(settings.until.map_or(until, |limit| limit.min(until)));
    }
    let dws = spec.dws.clone().unwrap_or_default();
    for (field, text, value) in [
        ("runTime", spec.run_time.as_ref(), &mut settings.run_time),
        ("nodeProvisioning", spec.node_provisioning.as_ref(), &mut settings.node_provisioning),
        ("scaleDownAfter", spec.scale_down_after.as_ref(), &mut settings.scale_down_after),
        ("dws.findsCapacityAfter", dws.finds_capacity_after.as_ref(), &mut settings.dws_finds_capacity),
        ("dws.givesUpAfter", dws.gives_up_after.as_ref(), &mut settings.dws_gives_up),
    ] {
        if let Some(read) = read(field, text) {
            *value = read;
        }
    }
    for (job, text) in &spec.run_times {
        if let Some(time) = read(&format!("runTimes[{job}]"), Some(text)) {
            settings.run_times.insert(job.clone(), time);
        }
    }
    if let Some(start) = &spec.start {
        match start.parse::<k8s_openapi::jiff::Timestamp>() {
            Ok(time) if (EARLIEST..LATEST).contains(&time.as_second()) => {
                settings.start = Timestamp::from_seconds(time.as_second());
            }
            _ => errors.push(ScenarioError::Start { scenario: name, text: start.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(kind: Kind, name: &str) -> Item {
        Item::Object(kind.read(json!({"metadata": {"name": name}})).unwrap())
    }

    fn scenario(spec: &Value) -> Item {
        Item::Scenario(serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap())
    }

    fn times(items: Vec<Item>) -> Vec<(i64, String)> {
        let plan = Plan::new(Input { items, ..Input::default() }, &NoFiles).unwrap();
        let name = |item: &Item| match item {
            Item::Object(object) => object.name().to_owned(),
            _ => String::new(),
        };
        plan.applies.iter().map(|apply| (apply.at / SECOND, name(&apply.item))).collect()
    }

    fn list(expected: &[(i64, &str)]) -> Vec<(i64, String)> {
        expected.iter().map(|(at, name)| (*at, (*name).to_owned())).collect()
    }

    #[test]
    fn configuration_comes_first_and_jobs_one_second_apart() {
        let items = vec![
            object(Kind::JobSet, "a"),
            object(Kind::ConfigMap, "queue"),
            object(Kind::JobSet, "b"),
            object(Kind::ConfigMap, "queue"),
            object(Kind::JobSet, "c"),
        ];
        assert_eq!(times(items), list(&[(0, "queue"), (1, "a"), (2, "b"), (3, "queue"), (4, "c")]));
    }

    #[test]
    fn what_an_event_names_is_applied_then_only() {
        let items = vec![
            object(Kind::JobSet, "a"),
            object(Kind::JobSet, "b"),
            scenario(&json!({"events": [{"at": "1m", "apply": {"object": "JobSet/default/a"}}]})),
        ];
        assert_eq!(times(items), list(&[(1, "b"), (60, "a")]));
    }

    #[test]
    fn bad_values_are_told_with_their_places() {
        let items = vec![scenario(&json!({
            "start": "yesterday", "runTime": "long", "dws": {"givesUpAfter": "7 days"}, "runTimes": {"a": "x"},
            "events": [{"at": "soon"}, {"at": "1s"}, {"at": "1s", "apply": {"object": "JobSet/none"}},
                       {"at": "1s", "apply": {"file": "f.yaml"}}]
        }))];
        let errors = Plan::new(Input { items, ..Input::default() }, &NoFiles).unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 8, "{texts:#?}");
        assert!(texts[0].starts_with("Scenario s: spec.runTime: \"long\" is not a length of time"));
    }

    #[test]
    fn settings_are_read() {
        let items = vec![scenario(&json!({
            "start": "2026-02-01T00:00:00Z", "until": "1d", "runTimes": {"JobSet/a": "90s"}, "nodeProvisioning": "3m"
        }))];
        let plan = Plan::new(Input { items, ..Input::default() }, &NoFiles).unwrap();
        assert_eq!(plan.settings.start.seconds(), 1_769_904_000);
        assert_eq!(plan.settings.until, Some(86_400 * SECOND));
        assert_eq!(plan.settings.run_times["JobSet/a"], 90 * SECOND);
        assert_eq!(plan.settings.node_provisioning, 180 * SECOND);
    }
}
