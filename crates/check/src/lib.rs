//! Finds mistakes in manifests before they cost hours: shapes that do not exist, pods that do not fill their slices, quota
//! that no job can use, names that nothing has.
//!
//! [`check`] looks at everything that was loaded together. Each [`Finding`] belongs to a [`Rule`] with a code that never changes
//! its meaning; [`explain`] tells more about one, with a wrong and a right example. What is wrong with the text itself is found
//! by the reader and has codes as well.
//!
//! ```
//! use slicegate_check::{Options, check};
//! use slicegate_manifest::{Source, load};
//!
//! let text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: team}\nspec: {clusterQueue: tpu}\n";
//! let sources = [Source { name: "queue.yaml".into(), text: text.into(), ..Source::default() }];
//! let report = check(&load(&sources, &Default::default()), &sources, &Options::default());
//! assert_eq!(report.findings[0].rule.code, "SG0301");
//! assert_eq!(report.findings[0].diagnostic.line, 4);
//! ```

mod allow;
mod explain;
mod loading;
mod model;
mod output;
mod rule;
mod rules;
mod sarif;

use std::collections::BTreeSet;

use slicegate_manifest::{Document, Loaded, Severity, Source, Texts};

pub use explain::{UnknownCode, explain, table};
pub use output::{json, text};
pub use rule::{Finding, Rule, Subject};
pub use rules::{all as rules, by_code};
pub use sarif::sarif;

use model::Model;
use rule::Sink;

/// How to check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Codes of rules that are not to be looked at.
    pub allow: BTreeSet<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The findings, in the order of the sources and their lines.
    pub findings: Vec<Finding>,
    /// How many findings were allowed, by option or by an object's annotation.
    pub allowed: usize,
}

impl Report {
    /// How many findings are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.diagnostic.severity == severity).count()
    }

    /// Whether a check that is to fail on these findings fails: on errors, and on warnings if they are denied.
    pub fn fails(&self, deny_warnings: bool) -> bool {
        self.count(Severity::Error) > 0 || deny_warnings && self.count(Severity::Warning) > 0
    }
}

/// Checks everything that was loaded. `sources` are what it was loaded from.
///
/// Objects that cannot be read have their findings, and are taken to exist: nothing that names them is wrong for it.
pub fn check(loaded: &Loaded, sources: &[Source], options: &Options) -> Report {
    let mut documents: Vec<&Document> = loaded.documents.iter().chain(&loaded.invalid).collect();
    documents.sort_by_key(|d| (d.source, d.line, d.column));
    let model = Model::new(&documents, &loaded.diagnostics);
    let texts = Texts::new(sources);
    let mut sink = Sink::new(&texts);
    loading::findings(&loaded.diagnostics, &mut sink);
    for rule in rules::all() {
        if !options.allow.contains(rule.code) {
            sink.run(rule, &model);
        }
    }
    let covered = allow::Allowed::new(&documents, sources, options);
    let mut findings = sink.into_findings();
    let before = findings.len();
    findings.retain(|finding| !covered.covers(finding));
    let allowed = before.saturating_sub(findings.len());
    let order: std::collections::BTreeMap<&str, usize> =
        sources.iter().enumerate().rev().map(|(i, s)| (s.name.as_str(), i)).collect();
    findings.sort_by(|a, b| {
        let key = |f: &Finding| {
            let d = &f.diagnostic;
            (order.get(d.file.as_str()).copied(), d.line, d.column, f.rule.code)
        };
        key(a).cmp(&key(b)).then_with(|| a.diagnostic.message.cmp(&b.diagnostic.message))
    });
    // A file may be read twice, with other variables.
    let same = |a: &Finding, b: &Finding| {
        let of = |f: &Finding| (f.rule.code, f.diagnostic.line, f.diagnostic.column);
        of(a) == of(b) && a.diagnostic.file == b.diagnostic.file && a.diagnostic.message == b.diagnostic.message
    };
    findings.dedup_by(|a, b| same(a, b));
    Report { findings, allowed }
}
