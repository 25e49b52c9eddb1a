//! How to decide: Kueue's configuration file and its feature gates, as its manager takes them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use slicegate_api::configuration as file;
use slicegate_controller::keys::QUEUE_NAME;
use slicegate_controller::{Configuration, ConfigurationError, feature_gates, framework, from_file, set_feature_gates};
use slicegate_manifest::{
    Body, Code, Diagnostic, Document, Options, PathSpec, Severity, Source, load, nearest, sources_from_paths,
};

/// The flags of Kueue's manager that say how to decide.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ConfigurationArgs {
    /// Kueue's configuration file (Configuration of config.kueue.x-k8s.io); without it everything has Slicegate's defaults.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Feature gates to switch, such as PartialAdmission=false,TASBalancedPlacement=true; not beside featureGates in the file.
    #[arg(long, value_name = "NAME=true|false", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
}

/// What the flags and the file say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Told {
    /// How to decide.
    pub(crate) configuration: Configuration,
    /// The file, for all that is not about deciding; empty if there is none.
    pub(crate) file: file::Configuration,
    /// What is accepted but not followed, each with its field.
    pub(crate) ignored: Vec<String>,
}

/// What is wrong with a configuration. Displayed as one line each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Problems {
    /// With the place in a file.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// About flags, or files as such.
    pub(crate) others: Vec<String>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = Vec::new();
        for found in self.diagnostics.iter().filter(|d| d.is_error()) {
            let part = |before: &str, text: &str, after: &str| match text {
                "" => String::new(),
                text => format!("{before}{text}{after}"),
            };
            let Diagnostic { file, line, column, path, message, help, .. } = found;
            lines.push(format!("{file}:{line}:{column}: {}{message}{}", part("", path, ": "), part("; ", help, "")));
        }
        lines.extend(self.others.iter().cloned());
        f.write_str(&lines.join("\nerror: "))
    }
}

impl From<String> for Problems {
    fn from(why: String) -> Self {
        Self { others: vec![why], ..Self::default() }
    }
}

impl Problems {
    /// What is wrong with the values of a configuration document; without one there is no place to tell.
    pub(crate) fn of_file(found: Option<Found<'_>>, errors: Vec<ConfigurationError>) -> Self {
        let mut problems = Self::default();
        for error in errors {
            let Some((document, sources)) = found else {
                problems.others.push(error.to_string());
                continue;
            };
            let help = meant(&error).map(|name| format!("write {name}")).unwrap_or_default();
            let told = document.diagnostic(sources, Severity::Error, Code::InvalidValue, &error.path, error.why);
            problems.diagnostics.push(told.with_help(help));
        }
        problems
    }
}

/// A configuration document and the sources in which it stands.
pub(crate) type Found<'a> = (&'a Document, &'a [Source]);

impl ConfigurationArgs {
    /// Reads the file, if there is one, and follows it and the gates.
    pub(crate) fn read(&self) -> Result<Told, Problems> {
        let opened = self.open()?;
        self.follow(opened.as_ref().map(|(document, sources)| (document, &sources[..])))
    }

    /// Reads the file, if there is one, and what else stands beside its document to say where something is.
    pub(crate) fn open(&self) -> Result<Option<(Document, Vec<Source>)>, Problems> {
        self.config.as_deref().map(open).transpose()
    }

    /// Follows a configuration that was read, and the gates.
    pub(crate) fn follow(&self, found: Option<Found<'_>>) -> Result<Told, Problems> {
        let gates = self.gates()?;
        let Some((document, sources)) = found else {
            let mut configuration = Configuration::default();
            let ignored = set_feature_gates(&mut configuration, &gates);
            let ignored = ignored
                .map_err(|errors| Problems { others: errors.iter().map(of_flag).collect(), ..Problems::default() })?;
            let file = file::Configuration { feature_gates: Some(gates), ..file::Configuration::default() };
            return Ok(Told { configuration, file, ignored });
        };
        let Body::Configuration(file) = &document.body else {
            return Err(format!("{} is not a Configuration of {}", document.title(), file::V1BETA2).into());
        };
        let mut file = file.clone();
        let from_flags = !gates.is_empty();
        if from_flags {
            if file.feature_gates.as_ref().is_some_and(|g| !g.is_empty()) {
                let why =
                    "there are feature gates on the command line too; write all of them here or all of them there";
                let told =
                    document.diagnostic(sources, Severity::Error, Code::InvalidValue, "featureGates", why.to_owned());
                return Err(Problems { diagnostics: vec![told], ..Problems::default() });
            }
            file.feature_gates = Some(gates);
        }
        match from_file(&file) {
            Ok(read) => Ok(Told { configuration: read.configuration, file, ignored: read.ignored }),
            Err(errors) => {
                let of_flags = |error: &ConfigurationError| from_flags && error.feature_gate().is_some();
                let (of_flags, of_file): (Vec<_>, Vec<_>) = errors.into_iter().partition(of_flags);
                let mut problems = Problems::of_file(Some((document, sources)), of_file);
                problems.others.extend(of_flags.iter().map(of_flag));
                Err(problems)
            }
        }
    }

    /// The gates of the command line; of one that is set twice the last counts, as in Kubernetes.
    fn gates(&self) -> Result<BTreeMap<String, bool>, Problems> {
        let mut gates = BTreeMap::new();
        let mut wrong = Problems::default();
        for text in self.feature_gates.iter().map(|t| t.trim()).filter(|t| !t.is_empty()) {
            let parts = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            let on = match parts {
                Some((_, "true" | "True" | "TRUE" | "t" | "T" | "1")) => Some(true),
                Some((_, "false" | "False" | "FALSE" | "f" | "F" | "0")) => Some(false),
                _ => None,
            };
            match (parts, on) {
                (Some((name, _)), Some(on)) if !name.is_empty() => {
                    gates.insert(name.to_owned(), on);
                }
                _ => {
                    wrong.others.push(format!("--feature-gates {text}: write --feature-gates NAME=true or NAME=false"));
                }
            }
        }
        if wrong.others.is_empty() { Ok(gates) } else { Err(wrong) }
    }
}

fn of_flag(error: &ConfigurationError) -> String {
    let meant = meant(error).map(|name| format!("; write {name}")).unwrap_or_default();
    format!("--feature-gates: {}{meant}", error.why)
}

/// The gate that was probably meant by one that is not known.
fn meant(error: &ConfigurationError) -> Option<&'static str> {
    nearest(error.feature_gate()?, &feature_gates().collect::<Vec<_>>())
}

/// Reads a file that holds a configuration and nothing else.
fn open(path: &Path) -> Result<(Document, Vec<Source>), Problems> {
    let spec = PathSpec { path: path.to_owned(), ..PathSpec::default() };
    let sources = sources_from_paths(&[spec]).map_err(|errors| Problems {
        others: errors.iter().map(|why| format!("--config {}: {why}", path.display())).collect(),
        ..Problems::default()
    })?;
    let loaded = load(&sources, &Options::default());
    if loaded.has_errors() {
        return Err(Problems { diagnostics: loaded.diagnostics, ..Problems::default() });
    }
    let mut documents = loaded.documents.into_iter();
    match (documents.next(), documents.next()) {
        (Some(document), None) if matches!(document.body, Body::Configuration(_)) => Ok((document, sources)),
        _ => {
            let [older, newer] = [file::V1BETA1, file::V1BETA2];
            let why = format!("it must hold one document: a Configuration of {newer} or {older}");
            Err(format!("--config {}: {why}", path.display()).into())
        }
    }
}

/// Reads how to decide from the flags, or from a configuration that stands among manifests.
pub(crate) fn among(flags: &ConfigurationArgs, documents: &[Document], sources: &[Source]) -> Result<Told, Problems> {
    let mut there = documents.iter().filter(|d| matches!(d.body, Body::Configuration(_)));
    let Some(first) = there.next() else { return flags.read() };
    let second = match &flags.config {
        Some(path) => Some((first, format!("--config {} gives one too", path.display()))),
        None => there.next().map(|second| {
            let name = sources.get(first.source).map_or("", |s| s.name.as_str());
            (second, format!("the first is at {name}:{}", first.line))
        }),
    };
    if let Some((document, other)) = second {
        let why = format!("there can be one Configuration only, and {other}");
        let told = document.diagnostic(sources, Severity::Error, Code::DuplicateKey, "", why);
        return Err(Problems { diagnostics: vec![told.with_help("take one of them out")], ..Problems::default() });
    }
    flags.follow(Some((first, sources)))
}

/// That a configuration is no object, where a scenario applies one.
pub(crate) fn not_applied(document: &Document, sources: &[Source]) -> Option<Diagnostic> {
    let why = || "a Configuration cannot be applied: a controller reads it once, when it starts".to_owned();
    let help = "put it among the PATHs, or give it with --config";
    let is_one = matches!(document.body, Body::Configuration(_));
    is_one.then(|| document.diagnostic(sources, Severity::Error, Code::InvalidValue, "", why()).with_help(help))
}

/// Jobs that name a queue, but are of a kind that the configuration leaves alone.
pub(crate) fn unmanaged(configuration: &Configuration, documents: &[Document], sources: &[Source]) -> Vec<Diagnostic> {
    let mut all = Vec::new();
    for document in documents {
        let Some(object) = document.object() else { continue };
        let labels = object.metadata().labels.as_ref();
        let queued = labels.is_some_and(|l| l.contains_key(QUEUE_NAME));
        let Some(framework) = framework(object.kind()).filter(|_| queued) else { continue };
        if !configuration.frameworks.contains(&object.kind()) {
            let path = format!("metadata.labels[{QUEUE_NAME}]");
            let why = format!(
                "{}s do not queue: integrations.frameworks of the configuration leaves them out",
                object.kind()
            );
            let told = document.diagnostic(sources, Severity::Warning, Code::Rule("unmanaged-kind"), &path, why);
            all.push(told.with_help(format!("add {framework} to integrations.frameworks")));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, gates: &[&str]) -> Result<Told, String> {
        let source = Source { name: "config.yaml".to_owned(), text: text.to_owned(), ..Source::default() };
        let sources = [source];
        let loaded = load(&sources, &Options::default());
        assert!(!loaded.has_errors(), "{:?}", loaded.diagnostics);
        let args = ConfigurationArgs { feature_gates: gates.iter().map(|g| (*g).to_owned()).collect(), config: None };
        let found = loaded.documents.first().map(|d| (d, &sources[..]));
        args.follow(found).map_err(|problems| problems.to_string())
    }

    const FILE: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

    #[test]
    fn gates_are_set_with_and_without_a_file() {
        for text in ["", FILE] {
            let told = with(text, &["PartialAdmission=false", " TASBalancedPlacement = 1 "]).unwrap();
            assert!(!told.configuration.engine.gates.partial_admission, "{text}");
            assert!(told.configuration.engine.gates.tas_balanced_placement, "{text}");
            let switched = told.file.feature_gates.unwrap_or_default();
            assert_eq!(switched.get("PartialAdmission"), Some(&false), "{text}");
            let wrong = with(text, &["PartialAdmision=false"]).unwrap_err();
            assert!(wrong.starts_with("--feature-gates: ") && wrong.contains("PartialAdmision"), "{wrong}");
            assert!(wrong.contains("PartialAdmission"), "{wrong}");
        }
        let told = with("", &["PartialAdmission=false", "PartialAdmission=true"]).unwrap();
        assert!(told.configuration.engine.gates.partial_admission);
        for text in ["PartialAdmission", "PartialAdmission=yes", "=true"] {
            assert!(with("", &[text]).unwrap_err().contains("NAME=true"), "{text}");
        }
    }

    #[test]
    fn gates_are_either_in_the_file_or_on_the_command_line() {
        let text = FILE.to_owned() + "featureGates: {PartialAdmission: false}\n";
        assert!(!with(&text, &[]).unwrap().configuration.engine.gates.partial_admission);
        let wrong = with(&text, &["TASBalancedPlacement=true"]).unwrap_err();
        assert!(wrong.starts_with("config.yaml:3:15: featureGates: "), "{wrong}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let text = FILE.to_owned() + "waitForPodsReady:\n  timeout: soon\nintegrations: {frameworks: [batch/jobs]}\n";
        let wrong = with(&text, &[]).unwrap_err();
        let lines: Vec<&str> = wrong.lines().collect();
        assert_eq!(lines.len(), 2, "{wrong}");
        assert!(lines[0].starts_with("config.yaml:4:12: waitForPodsReady.timeout: \"soon\" is no duration"), "{wrong}");
        assert!(lines[1].contains("integrations.frameworks[0]: \"batch/jobs\" is not known"), "{wrong}");
    }
}
