//! What happens in a simulation, and when: from documents and scenarios to a list in order of time.

mod action;
mod settings;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::{Kind, Object, ObjectRef};

use crate::duration::parse_duration;
use crate::input::{Files, Input, Item, ScenarioError};

pub(crate) use action::{Action, Drained, DwsOutcome, Propagation, Size};
pub(crate) use settings::{DwsRule, Settings, Wait};
pub(crate) use target::{Target, target};

const SECOND: i64 = 1_000_000;

/// Something that happens, and when (in microseconds since the start).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Step {
    pub(crate) at: i64,
    pub(crate) action: Action,
}

impl Step {
    const fn apply(at: i64, item: Item) -> Self {
        Self { at, action: Action::Apply(item) }
    }

    /// The document that is applied, if one is.
    pub(crate) const fn item(&self) -> Option<&Item> {
        match &self.action {
            Action::Apply(item) => Some(item),
            _ => None,
        }
    }
}

/// Settings and what happens, in order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

pub(crate) fn is_job(object: &Object) -> bool {
    is_job_kind(object.kind())
}

pub(crate) const fn is_job_kind(kind: Kind) -> bool {
    matches!(kind, Kind::JobSet | Kind::Job | Kind::RayJob | Kind::RayCluster | Kind::Pod | Kind::Workload)
}

/// Reads a scenario and collects what is wrong with it.
struct Reader<'a> {
    scenario: &'a str,
    errors: &'a mut Vec<ScenarioError>,
}

impl Reader<'_> {
    fn duration(&mut self, field: &str, text: Option<&String>) -> Option<i64> {
        let scenario = self.scenario.to_owned();
        let field = field.to_owned();
        parse_duration(text?).map_err(|error| self.errors.push(ScenarioError::Duration { scenario, field, error })).ok()
    }

    fn invalid(&mut self, field: String, why: String) {
        self.errors.push(ScenarioError::Invalid { scenario: self.scenario.to_owned(), field, why });
    }

    fn no_such_object(&mut self, field: String, object: &str) {
        let (scenario, object) = (self.scenario.to_owned(), object.to_owned());
        self.errors.push(ScenarioError::NoSuchObject { scenario, field, object });
    }
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

/// Kinds whose objects are made in the cluster, so that no document needs to describe them.
const MADE: [Kind; 13] = [
    Kind::ConfigMap,
    Kind::Job,
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::PodTemplate,
    Kind::PriorityClass,
    Kind::ProvisioningRequest,
    Kind::RayCluster,
    Kind::RuntimeClass,
    Kind::Secret,
    Kind::Slice,
    Kind::Workload,
];

/// Whether no document describes what an event is about, though one would have to.
fn is_missing(target: &Target, steps: &[Step], rest: &[Option<Item>]) -> bool {
    let described = || steps.iter().filter_map(Step::item).chain(rest.iter().flatten());
    match target {
        Target::NodePool(name) => {
            let mut pools = described().filter_map(|item| match item {
                Item::NodePool(pool) => Some(pool.name.as_str()),
                _ => None,
            });
            // Without any, pools are made as they are needed.
            let first = pools.next();
            first.is_some() && first != Some(name) && !pools.any(|pool| *pool == **name)
        }
        Target::Object(object) | Target::WorkloadOf(object) => {
            let is_it = |item: &Item| match item {
                Item::Object(o) => {
                    let namespace = match o.namespace() {
                        "" if o.kind().is_namespaced() => "default",
                        namespace => namespace,
                    };
                    o.kind() == object.kind && namespace == &*object.namespace && o.name() == &*object.name
                }
                Item::NodePool(_) | Item::Scenario(_) => false,
            };
            !MADE.contains(&object.kind) && !described().any(is_it)
        }
    }
}

/// The fields of an action that name an object of the documents, and what they name.
fn named_by(action: &Action) -> Option<(&'static str, Target)> {
    Some(match action {
        Action::Patch { target, .. } => match target {
            Target::WorkloadOf(_) => ("patch.workloadOf", target.clone()),
            _ => ("patch.object", target.clone()),
        },
        Action::Delete { target, .. } => match target {
            Target::WorkloadOf(_) => ("delete.workloadOf", target.clone()),
            _ => ("delete.object", target.clone()),
        },
        Action::Scale { job, .. } => ("scale.object", Target::Object(job.clone())),
        Action::ScalePool { pool, .. } => ("scale.object", Target::NodePool(pool.clone())),
        Action::EvictNode { nodes: Drained::Pool(pool), .. } => ("evictNode.pool", Target::NodePool(pool.clone())),
        Action::EvictNode { nodes: Drained::Job(job), .. } => ("evictNode.job", Target::Object(job.clone())),
        Action::Dws { object, .. } => ("dws.object", Target::Object(object.clone())),
        Action::Fail(failure) => return failure.names(),
        Action::Apply(_) | Action::EvictNode { .. } | Action::Restore { .. } => return None,
    })
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
                settings.read(&scenario, &mut errors);
                let name = scenario.metadata.name.clone().unwrap_or_default();
                events.extend(scenario.spec.events.into_iter().enumerate().map(|(i, event)| (name.clone(), i, event)));
            } else {
                items.push(Some(item));
            }
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        let mut named = BTreeSet::new();
        let mut about: Vec<(String, usize, &'static str, Target)> = Vec::new();
        for (scenario, i, event) in events {
            let mut reader = Reader { scenario: &scenario, errors: &mut errors };
            let field = |rest: &str| format!("spec.events[{i}].{rest}");
            let at = reader.duration(&field("at"), Some(&event.at));
            let action = action::read(&event, &format!("spec.events[{i}]"), &mut reader);
            let Some(at) = at else { continue };
            if let Some(action) = action {
                about.extend(named_by(&action).map(|(field, target)| (scenario.clone(), i, field, target)));
                steps.push(Step { at, action });
                continue;
            }
            let Some(apply) = event.apply else { continue };
            match (&apply.file, &apply.object) {
                (Some(file), None) => match files.load(file, &apply.env) {
                    Ok(list) => {
                        let list = list.into_iter().filter(|item| !matches!(item, Item::Scenario(_)));
                        steps.extend(list.map(|item| Step::apply(at, item)));
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
                        reader.no_such_object(field("apply.object"), object);
                        continue;
                    };
                    *nth += 1;
                    named.extend(all.iter().copied());
                    if let Some(item) = &items[*index] {
                        steps.push(Step::apply(at, item.clone()));
                    }
                }
                _ => errors.push(ScenarioError::NothingToDo { scenario, field: field("apply") }),
            }
        }
        for (scenario, i, field, target) in about {
            if is_missing(&target, &steps, &items) {
                let object = match &target {
                    Target::NodePool(name) => format!("NodePool/{name}"),
                    Target::Object(o) | Target::WorkloadOf(o) if o.namespace.is_empty() => {
                        format!("{}/{}", o.kind, o.name)
                    }
                    Target::Object(o) | Target::WorkloadOf(o) => format!("{}/{}/{}", o.kind, o.namespace, o.name),
                };
                let mut reader = Reader { scenario: &scenario, errors: &mut errors };
                reader.no_such_object(format!("spec.events[{i}].{field}"), &object);
            }
        }
        for index in named {
            items[index] = None;
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut all = by_rule(items.into_iter().flatten());
        all.extend(steps);
        // Stable: what is written first happens first.
        all.sort_by_key(|step| step.at);
        Ok(Self { settings, steps: all })
    }
}

/// Pools and configuration at the start, then jobs and changes to configuration one second apart.
fn by_rule(items: impl Iterator<Item = Item>) -> Vec<Step> {
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
            start.push(Step::apply(0, item));
        } else {
            at += SECOND;
            later.push(Step::apply(at, item));
        }
    }
    start.extend(later);
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::NoFiles;
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
        plan.steps.iter().map(|step| (step.at / SECOND, step.item().map_or_else(String::new, name))).collect()
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
        assert_eq!(texts.len(), 9, "{texts:#?}");
        assert!(texts[0].starts_with("Scenario s: spec.runTime: \"long\" is not a length of time"));
    }

    #[test]
    fn events_that_make_no_sense_are_told_with_their_places() {
        let events = json!([
            {"at": "1s", "patch": {"object": "JobSet/a", "merge": {"spec": {}}}, "delete": {"object": "JobSet/a"}},
            {"at": "1s", "patch": {"object": "JobSet/a", "merge": []}},
            {"at": "1s", "patch": {"object": "JobSet/a", "workloadOf": "JobSet/a", "merge": {"spec": {}}}},
            {"at": "1s", "patch": {"object": "JobSet/a", "subresource": "scale", "merge": {"spec": {}}}},
            {"at": "1s", "patch": {"object": "JobSet/b", "merge": {"spec": {}}}},
            {"at": "1s", "patch": {"object": "Pool/b", "merge": {"spec": {}}}},
            {"at": "1s", "scale": {"object": "JobSet/a", "workerGroup": "w", "replicas": 1}},
            {"at": "1s", "scale": {"object": "JobSet/a"}},
            {"at": "1s", "scale": {"object": "Job/a", "parallelism": -1}},
            {"at": "1s", "scale": {"object": "ConfigMap/a", "replicas": 1}},
            {"at": "1s", "scale": {"object": "NodePool/p", "minNodes": -1}},
            {"at": "1s", "scale": {"object": "NodePool/p", "replicas": 1}},
            {"at": "1s", "delete": {"object": "JobSet/a", "propagation": "Sideways"}},
            {"at": "1s", "evictNode": {"node": "n", "pool": "p"}},
            {"at": "1s", "evictNode": {"node": "n", "count": 0}},
            {"at": "1s", "evictNode": {"node": "n", "for": "ages"}},
            {"at": "1s", "evictNode": {"job": "ClusterQueue/q"}},
            {"at": "1s", "dws": {"object": "JobSet/a", "outcome": "Explodes"}},
            {"at": "1s", "dws": {"object": "ClusterQueue/q", "outcome": "Fails"}},
        ]);
        let places = [
            "[0]",
            "[1].patch.merge",
            "[2].patch",
            "[3].patch.subresource",
            "[5].patch.object",
            "[6].scale.workerGroup",
            "[7].scale",
            "[8].scale.parallelism",
            "[9].scale.object",
            "[10].scale.minNodes",
            "[11].scale.replicas",
            "[12].delete.propagation",
            "[13].evictNode",
            "[14].evictNode.count",
            "[15].evictNode.for",
            "[16].evictNode.job",
            "[17].dws.outcome",
            "[18].dws.object",
            "[4].patch.object",
        ];
        let dws = json!({"requests": [{"object": "Node/n"}, {"object": "JobSet/a", "attempt": 0, "failsAfter": "x"}]});
        let items = vec![object(Kind::JobSet, "a"), scenario(&json!({"events": events, "dws": dws}))];
        let errors = Plan::new(Input { items, ..Input::default() }, &NoFiles).unwrap_err();
        let told: Vec<&str> = errors.iter().map(ScenarioError::field).collect();
        let mut expected: Vec<String> = ["object", "attempt", "failsAfter"]
            .iter()
            .enumerate()
            .map(|(i, field)| format!("spec.dws.requests[{}].{field}", i.min(1)))
            .collect();
        expected.extend(places.iter().map(|place| format!("spec.events{place}")));
        assert_eq!(told, expected, "{errors:#?}");
        assert!(errors.iter().all(|error| !error.message().starts_with("Scenario")), "{errors:#?}");
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
