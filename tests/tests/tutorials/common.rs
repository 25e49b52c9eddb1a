//! Running the tutorials' files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Once;

use slicegate_api::kueue::Workload;
use slicegate_api::{Kind, Object, Pod};
use slicegate_controller::Configuration;
use slicegate_manifest::{Options, Source, load};
use slicegate_sim::{EntryKind, Input, Item, NoFiles, Outcome, Simulation, Verdict};

/// The folder with the tutorials; a test ends at once without it.
pub(crate) fn shared() -> Option<PathBuf> {
    let Some(path) = std::env::var_os("SLICEGATE_SHARED").map(PathBuf::from) else {
        // Not by println!, which the test harness keeps to itself when a test passes.
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            let _ = std::io::stderr().write_all(
                b"\n!! SKIPPED: the tutorials' own files; SLICEGATE_SHARED does not name the folder that holds them\n\n",
            );
        });
        return None;
    };
    assert!(path.is_dir(), "SLICEGATE_SHARED is {}, which is not a folder", path.display());
    Some(path)
}

/// A run in the making.
#[derive(Default)]
pub(crate) struct Run {
    sources: Vec<Source>,
    legacy_names: bool,
}

impl Run {
    /// Adds a file of a tutorial.
    pub(crate) fn file(self, path: &str) -> Self {
        self.file_with(path, &[])
    }

    /// Adds a file of a tutorial with variables.
    pub(crate) fn file_with(mut self, path: &str, env: &[(&str, &str)]) -> Self {
        let file = shared().unwrap().join("tutorials").join(path);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.sources.push(Source { name: path.to_owned(), text, env });
        self
    }

    /// Adds documents of our own: node pools and scenarios.
    pub(crate) fn text(mut self, text: &str) -> Self {
        let name = format!("text {}", self.sources.len());
        self.sources.push(Source { name, text: text.to_owned(), env: BTreeMap::new() });
        self
    }

    pub(crate) fn legacy_names(mut self) -> Self {
        self.legacy_names = true;
        self
    }

    /// Runs until nothing happens any more, checking the invariants after every event.
    pub(crate) fn run(self) -> Outcome {
        let loaded = load(&self.sources, &Options::default());
        let wrong: String = loaded.diagnostics.iter().map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "{wrong}");
        let input = Input { items: loaded.documents.into_iter().filter_map(Item::of).collect(), ..Input::default() };
        let configuration = Configuration { legacy_names: self.legacy_names, ..Configuration::default() };
        let mut simulation = Simulation::new(input, &NoFiles, configuration).unwrap();
        while simulation.step() {
            simulation.check().unwrap_or_else(|wrong| panic!("at {:?}: {wrong:?}", simulation.now()));
        }
        simulation.finish()
    }
}

/// Three pools of two nodes each, 24 chips in all.
pub(crate) const THREE_SLICES: &str = r#"[
    {"name": "nodepool1", "initialNodeCount": 2, "config": {"machineType": "ct5lp-hightpu-4t"}, "placementPolicy": {"tpuTopology": "2x4"}},
    {"name": "nodepool2", "initialNodeCount": 2, "config": {"machineType": "ct5lp-hightpu-4t"}, "placementPolicy": {"tpuTopology": "2x4"}},
    {"name": "nodepool3", "initialNodeCount": 2, "config": {"machineType": "ct5lp-hightpu-4t"}, "placementPolicy": {"tpuTopology": "2x4"}}
]"#;

/// A scenario that applies JobSets at their times.
pub(crate) fn apply_at(extra: &str, events: &[(&str, &str)]) -> String {
    let mut text =
        format!("apiVersion: slicegate.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: test}}\nspec:\n{extra}");
    if !events.is_empty() {
        text.push_str("  events:\n");
    }
    for (at, object) in events {
        let _ = writeln!(text, "  - at: {at}\n    apply: {{object: {object}}}");
    }
    text
}

/// Seconds since the start of the entries of a kind about a job, with their texts.
pub(crate) fn told<'a>(outcome: &'a Outcome, kind: EntryKind, job: &str) -> Vec<(i64, &'a str)> {
    outcome
        .timeline
        .iter()
        .filter(|e| e.kind == kind && e.object.as_ref().is_some_and(|o| *o.name == *job))
        .map(|e| (e.time.micros_since(outcome.start) / 1_000_000, e.text.as_str()))
        .collect()
}

/// When a job of which only one such thing is told had it happen to it.
pub(crate) fn once(outcome: &Outcome, kind: EntryKind, job: &str) -> i64 {
    let told = told(outcome, kind, job);
    assert_eq!(told.len(), 1, "{kind:?} of {job}: {told:?}");
    told[0].0
}

pub(crate) fn all_finished(outcome: &Outcome) {
    for verdict in &outcome.verdicts {
        assert!(matches!(verdict.verdict, Verdict::Finished { .. }), "{verdict:?}");
    }
}

/// The objects of a kind at a number of seconds after the start.
pub(crate) fn at(outcome: &Outcome, seconds: i64, kind: Kind) -> Vec<Object> {
    let objects = outcome.objects_at(outcome.start.plus_seconds(seconds));
    objects.into_values().filter(|o| o.kind() == kind).collect()
}

/// Pods with the node pool of the node that each is on.
pub(crate) fn pods_on_pools(outcome: &Outcome, seconds: i64) -> BTreeMap<String, String> {
    let nodes: BTreeMap<String, String> = at(outcome, seconds, Kind::Node)
        .iter()
        .map(|n| (n.name().to_owned(), n.metadata().labels.as_ref().unwrap()["cloud.google.com/gke-nodepool"].clone()))
        .collect();
    let pool = |pod: &Pod| pod.spec.as_ref()?.node_name.as_ref().and_then(|n| nodes.get(n)).cloned();
    at(outcome, seconds, Kind::Pod)
        .iter()
        .filter_map(|o| match o {
            Object::Pod(pod) => Some((o.name().to_owned(), pool(pod).unwrap_or_default())),
            _ => None,
        })
        .collect()
}

/// The Workload of a job at the end.
pub(crate) fn workload(outcome: &Outcome, job: &str) -> Workload {
    let of_job = |o: &&Object| o.metadata().owner_references.iter().flatten().any(|r| r.name == job);
    let found = outcome.objects.values().filter(|o| o.kind() == Kind::Workload).find(of_job);
    match found {
        Some(Object::Workload(workload)) => workload.as_ref().clone(),
        _ => panic!("{job} has no Workload"),
    }
}
