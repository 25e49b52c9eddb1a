//! From PATHs to documents, the files that scenarios apply included.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use slicegate_check::check;
use slicegate_manifest::{
    Body, Code, Diagnostic, Document, Loaded, Options, PathSpec, Severity, Source, load, sources_from_paths,
};
use slicegate_sim::{Files, Item, ScenarioError, preflight, scenario_errors};

use crate::args::Place;
use crate::configuration::{self, ConfigurationArgs, Problems, Told};

type Env = BTreeMap<String, String>;

/// What was read, and all that is wrong with it.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// The documents of the PATHs, in order.
    pub(crate) items: Vec<Item>,
    /// The files that scenarios apply.
    pub(crate) files: ScenarioFiles,
    /// How to decide; `None` if something is wrong with it.
    pub(crate) told: Option<Told>,
    /// What is wrong beside the documents.
    pub(crate) others: Vec<String>,
    /// What is wrong, in the order in which it was found.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The documents of the files that scenarios apply, by file and variables.
#[derive(Debug, Default)]
pub(crate) struct ScenarioFiles(BTreeMap<(String, Env), Vec<Item>>);

impl Files for ScenarioFiles {
    fn load(&self, file: &str, env: &Env) -> Result<Vec<Item>, String> {
        self.0.get(&(file.to_owned(), env.clone())).cloned().ok_or_else(|| format!("{file} was not read"))
    }
}

/// The variables of the environment.
pub(crate) fn ambient() -> Env {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The texts that the PATHs name, and those of the files that scenarios among them apply.
pub(crate) fn texts(places: &[Place], ambient: &Env) -> Result<Vec<Source>, String> {
    let mut all = sources(places, ambient)?;
    let loaded = load(&all, &Options::default());
    let mut wrong = Vec::new();
    for Applied { path, env, .. } in applied_files(&loaded.documents, &all) {
        match files(&path, &with(ambient, &env)) {
            Ok(more) => {
                let new: Vec<Source> = more.into_iter().filter(|source| !all.contains(source)).collect();
                all.extend(new);
            }
            Err(why) => wrong.push(why),
        }
    }
    if wrong.is_empty() { Ok(all) } else { Err(wrong.join("\nerror: ")) }
}

/// Reads everything that the PATHs name, and how to decide. `ambient` are the variables of the environment.
pub(crate) fn read(places: &[Place], ambient: &Env, flags: &ConfigurationArgs) -> Result<Inputs, String> {
    let mut sources = sources(places, ambient)?;
    let loaded = load(&sources, &Options::default());
    let mut inputs =
        Inputs { items: loaded.documents.iter().cloned().filter_map(Item::of).collect(), ..Inputs::default() };
    inputs.diagnostics = loaded.diagnostics;
    let mut documents = loaded.documents;
    match configuration::among(flags, &documents, &sources) {
        Ok(told) => inputs.told = Some(told),
        Err(Problems { diagnostics, others }) => {
            inputs.diagnostics.extend(diagnostics);
            inputs.others.extend(others);
        }
    }
    // These are read now, so that what is wrong with them is said before anything runs.
    for Applied { document, field, path, file, env } in applied_files(&documents, &sources) {
        let more = match files(&path, &with(ambient, &env)) {
            Ok(more) => more,
            Err(why) => {
                let scenario = documents.get(document);
                let told =
                    scenario.map(|d| d.diagnostic(&sources, Severity::Error, Code::DanglingReference, &field, why));
                inputs.diagnostics.extend(told);
                continue;
            }
        };
        let loaded = load(&more, &Options::default());
        inputs.files.0.insert((file, env), loaded.documents.iter().cloned().filter_map(Item::of).collect());
        inputs.diagnostics.extend(loaded.diagnostics);
        let first = sources.len();
        let of_file = loaded.documents.into_iter().map(|d| Document { source: d.source + first, ..d });
        sources.extend(more);
        for document in of_file {
            inputs.diagnostics.extend(configuration::not_applied(&document, &sources));
            documents.push(document);
        }
    }
    let unread = inputs.diagnostics.iter().any(Diagnostic::is_error);
    let scenarios = scenario_errors(&inputs.items, &inputs.files);
    // What was not read is told of already.
    let scenarios = scenarios.iter().filter(|error| match error {
        ScenarioError::File { .. } => false,
        ScenarioError::NoSuchObject { .. } => !unread,
        _ => true,
    });
    for error in scenarios {
        let named = |d: &&Document| matches!(&d.body, Body::Scenario(s) if s.metadata.name.as_deref().unwrap_or_default() == error.scenario());
        let told = documents.iter().find(named);
        let told =
            told.map(|d| d.diagnostic(&sources, Severity::Error, Code::InvalidValue, error.field(), error.message()));
        inputs.diagnostics.extend(told);
    }
    inputs.diagnostics.extend(preflight(&documents, &sources));
    inputs.diagnostics.extend(rules(&documents, &sources, &inputs.diagnostics));
    if let Some(told) = &inputs.told {
        inputs.diagnostics.extend(configuration::unmanaged(&told.configuration, &documents, &sources));
    }
    Ok(inputs)
}

/// The rules of `slicegate check` that say before what would go wrong in a simulation: names that nothing has, and pods that no
/// node can take.
const RULES: [&str; 11] =
    ["SG0301", "SG0302", "SG0303", "SG0304", "SG0305", "SG0306", "SG0307", "SG0503", "SG0504", "SG0506", "SG0509"];

/// What rules find in documents that could be read. Kueue accepts all of it, so these are warnings.
fn rules(documents: &[Document], sources: &[Source], known: &[Diagnostic]) -> Vec<Diagnostic> {
    let loaded = Loaded { documents: documents.to_vec(), diagnostics: known.to_vec(), ..Loaded::default() };
    let report = check(&loaded, sources, &slicegate_check::Options::default());
    let found = report.findings.into_iter().filter(|f| RULES.contains(&f.rule.code)).map(|f| f.diagnostic);
    found.map(|diagnostic| Diagnostic { severity: diagnostic.severity.min(Severity::Warning), ..diagnostic }).collect()
}

fn with(ambient: &Env, said: &Env) -> Env {
    let mut all = ambient.clone();
    all.extend(said.clone());
    all
}

fn sources(places: &[Place], ambient: &Env) -> Result<Vec<Source>, String> {
    let mut all = Vec::new();
    let mut wrong = Vec::new();
    let mut from_stdin = None;
    for (path, said) in places {
        let env = with(ambient, said);
        if path == Path::new("-") {
            let text = match from_stdin.take() {
                Some(text) => text,
                None => io::read_to_string(io::stdin()).map_err(|why| format!("standard input: {why}"))?,
            };
            from_stdin = Some(text.clone());
            all.push(Source { name: "standard input".to_owned(), text, env });
        } else {
            match files(path, &env) {
                Ok(found) => all.extend(found),
                Err(why) => wrong.push(why),
            }
        }
    }
    if wrong.is_empty() { Ok(all) } else { Err(wrong.join("\nerror: ")) }
}

fn files(path: &Path, env: &Env) -> Result<Vec<Source>, String> {
    let spec = PathSpec { path: path.to_owned(), env: env.clone() };
    sources_from_paths(&[spec]).map_err(|errors| lines(&errors))
}

fn lines<E: Display>(errors: &[E]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\nerror: ")
}

/// A file that a scenario applies.
struct Applied {
    /// The scenario, as an index.
    document: usize,
    /// The field that names the file.
    field: String,
    /// Where it is.
    path: PathBuf,
    /// How the scenario names it.
    file: String,
    env: Env,
}

fn applied_files(documents: &[Document], sources: &[Source]) -> Vec<Applied> {
    let mut all = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let Body::Scenario(scenario) = &document.body else { continue };
        let own = sources.get(document.source).map_or("", |s| s.name.as_str());
        let folder = Path::new(own).parent().unwrap_or(Path::new(""));
        for (i, event) in scenario.spec.events.iter().enumerate() {
            let Some(apply) = &event.apply else { continue };
            if let Some(file) = &apply.file {
                all.push(Applied {
                    document: index,
                    field: format!("spec.events[{i}].apply.file"),
                    path: folder.join(file),
                    file: file.clone(),
                    env: apply.env.clone(),
                });
            }
        }
    }
    all
}
