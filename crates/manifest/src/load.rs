//! Reads sources into documents.

use std::borrow::Cow;
use std::collections::BTreeSet;

use slicegate_api::Object;
use slicegate_api::configuration::Configuration;
use slicegate_api::nodepool::NodePool;
use slicegate_api::scenario::Scenario;
use slicegate_api::v1beta1::{in_older_words, older_name};

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::fill::Filled;
use crate::position::{Lines, Position, Positions, Span, parse_path};
use crate::read::{Context, TypeName};
use crate::source::Source;
use crate::{json, yaml};

/// What a document holds.
#[derive(Clone, PartialEq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few of those that are not objects, and a box is in the way of matching"
)]
pub enum Body {
    /// An object of the API, in the version in which it is held.
    Object(Object),
    /// A GKE node pool.
    NodePool(NodePool),
    /// What happens in a simulation.
    Scenario(Scenario),
    /// Kueue's configuration file.
    Configuration(Configuration),
}

/// An object and where it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// The source, as an index.
    pub source: usize,
    /// The line at which it starts, from 1.
    pub line: usize,
    /// The column at which it starts, in characters from 1.
    pub column: usize,
    /// Whether it is written in Kueue's older version, v1beta1, which calls some fields otherwise.
    pub older: bool,
    /// What it holds.
    pub body: Body,
    /// The places of its fields.
    pub positions: Positions,
}

impl Document {
    /// The place of a field named like `spec.resourceGroups[0].name`; of the deepest one on the way to it if it is not there.
    pub fn position_of(&self, path: &str) -> Position {
        self.positions.position_of(path)
    }

    /// What it is, as `JobSet multislice-1slice`.
    pub fn title(&self) -> String {
        match &self.body {
            Body::Object(object) => format!("{} {}", object.kind(), shown_name(object)),
            Body::NodePool(pool) => format!("NodePool {}", pool.name),
            Body::Scenario(scenario) => {
                format!("Scenario {}", scenario.metadata.name.as_deref().unwrap_or_default())
            }
            Body::Configuration(_) => "Configuration".to_owned(),
        }
    }

    /// A diagnostic about one of its fields, for whoever finds more than reading can. `sources` are those that were read.
    pub fn diagnostic(
        &self,
        sources: &[Source],
        severity: Severity,
        code: Code,
        path: &str,
        message: String,
    ) -> Diagnostic {
        let source = sources.get(self.source);
        let lines = Lines::new(source.map_or("", |s| &s.text));
        self.diagnostic_at(source.map_or("", |s| &s.name), &lines, severity, code, path, message)
    }

    /// As [`Document::diagnostic`], for many of them: the sources are gone through only once.
    pub fn diagnostic_in(
        &self,
        texts: &Texts<'_>,
        severity: Severity,
        code: Code,
        path: &str,
        message: String,
    ) -> Diagnostic {
        match texts.0.get(self.source) {
            Some((name, lines)) => self.diagnostic_at(name, lines, severity, code, path, message),
            None => self.diagnostic_at("", &Lines::new(""), severity, code, path, message),
        }
    }

    fn diagnostic_at(
        &self,
        file: &str,
        lines: &Lines<'_>,
        severity: Severity,
        code: Code,
        path: &str,
        message: String,
    ) -> Diagnostic {
        let path = self.written(path);
        let span = self.positions.nearest(&parse_path(&path)).0.span;
        let place = lines.position(span.start);
        let (text, text_column) = lines.excerpt(span.start);
        Diagnostic {
            severity,
            code,
            file: file.to_owned(),
            line: place.line,
            column: place.column,
            length: lines.length(span).max(1),
            text: text.to_owned(),
            text_column,
            object: self.title(),
            path: path.into_owned(),
            message: self.in_its_words(message),
            why: String::new(),
            help: String::new(),
        }
    }

    /// A text about its fields, with the names that they have in the version in which it is written.
    pub fn in_its_words(&self, text: String) -> String {
        match self.object().filter(|_| self.older) {
            Some(object) => in_older_words(object.kind(), &text),
            None => text,
        }
    }

    /// The path by which the text calls a field: an older version may have another name for it.
    fn written<'p>(&self, path: &'p str) -> Cow<'p, str> {
        if self.positions.has(path) {
            return path.into();
        }
        let older = self.object().filter(|_| self.older).and_then(|object| older_name(object.kind(), path));
        older.map_or_else(|| path.into(), Into::into)
    }

    /// The object, if it holds one.
    pub fn object(&self) -> Option<&Object> {
        match &self.body {
            Body::Object(object) => Some(object),
            Body::NodePool(_) | Body::Scenario(_) | Body::Configuration(_) => None,
        }
    }
}

/// The name of an object, or what its name will begin with.
fn shown_name(object: &Object) -> &str {
    match object.name() {
        "" => object.metadata().generate_name.as_deref().unwrap_or_default(),
        name => name,
    }
}

/// Sources whose lines have been counted.
pub struct Texts<'a>(Vec<(&'a str, Lines<'a>)>);

impl<'a> Texts<'a> {
    /// Counts the lines of sources.
    pub fn new(sources: &'a [Source]) -> Self {
        Self(sources.iter().map(|s| (s.name.as_str(), Lines::new(&s.text))).collect())
    }
}

/// What was read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Loaded {
    /// The objects in the order in which they were written. Those with errors are left out: do not go on if there is any.
    pub documents: Vec<Document>,
    /// Objects that could be read whole but break a rule of the API. They are not in `documents`.
    pub invalid: Vec<Document>,
    /// Everything that is wrong with any source, in the order in which it was written.
    pub diagnostics: Vec<Diagnostic>,
}

impl Loaded {
    /// Whether anything is so wrong that its object was left out.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// How to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Whether to say that objects of a kind that is not known were skipped.
    pub note_unknown_kinds: bool,
    /// Whether `metadata.generateName` will do instead of a name, as it does for `kubectl create`. The object stays without a
    /// name.
    pub generated_names: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { note_unknown_kinds: true, generated_names: false }
    }
}

/// Reads YAML and JSON. Nothing stops it: everything wrong with any source is reported at once.
pub fn load(sources: &[Source], options: &Options) -> Loaded {
    let mut report = Report::new(*options);
    for (index, source) in sources.iter().enumerate() {
        let filled = Filled::new(&source.text, &source.env);
        let lines = Lines::new(&source.text);
        let parsed = parse(&filled.text);
        let broken: Vec<usize> = parsed.problems.iter().map(|p| filled.original(p.span.start)).collect();
        let context = Context { source: index, name: &source.name, filled: &filled, lines: &lines, broken: &broken };
        let first = report.loaded.diagnostics.len();
        for problem in parsed.problems {
            let span = filled.original_span(problem.span);
            let help = if is_template(lines.excerpt(span.start).0) { TEMPLATE_HELP.to_owned() } else { problem.help };
            let entry = Entry { code: problem.code, span, message: problem.message, help, ..Entry::default() };
            report.add(&context, entry);
        }
        for node in parsed.documents {
            context.document(node, TypeName::default(), &mut report);
        }
        if let Some(of_source) = report.loaded.diagnostics.get_mut(first..) {
            of_source.sort_by_key(|d| (d.line, d.column));
        }
    }
    report.loaded
}

const TEMPLATE_HELP: &str = "this looks like a template: give what comes out of it, such as of `helm template`";

/// Whether a line holds something for Helm, Jinja or the like to fill in.
fn is_template(line: &str) -> bool {
    line.contains("{{") && line.contains("}}") || line.trim_start().starts_with("{%")
}

/// Text that looks like JSON is read as JSON, unless only YAML makes sense of it.
fn parse(text: &str) -> crate::tree::Parsed {
    if !text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
        return yaml::parse(text);
    }
    match json::parse(text) {
        Ok(parsed) => parsed,
        Err(problem) => {
            let parsed = yaml::parse(text);
            // Whichever made sense of more of it.
            let further = parsed.problems.first().is_none_or(|p| p.span.start > problem.span.start);
            if further { parsed } else { crate::tree::Parsed { documents: Vec::new(), problems: vec![problem] } }
        }
    }
}

/// A diagnostic before its place is looked up.
pub(crate) struct Entry {
    pub(crate) severity: Severity,
    pub(crate) code: Code,
    /// In the text as it was given.
    pub(crate) span: Span,
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            severity: Severity::Error,
            code: Code::InvalidValue,
            span: Span::default(),
            object: String::new(),
            path: String::new(),
            message: String::new(),
            help: String::new(),
        }
    }
}

/// What was read and found so far.
pub(crate) struct Report {
    options: Options,
    loaded: Loaded,
    errors: usize,
    unknown: BTreeSet<(String, String)>,
}

impl Report {
    fn new(options: Options) -> Self {
        Self { options, loaded: Loaded::default(), errors: 0, unknown: BTreeSet::new() }
    }

    pub(crate) fn options(&self) -> Options {
        self.options
    }

    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    pub(crate) fn push(&mut self, document: Document, valid: bool) {
        if valid { self.loaded.documents.push(document) } else { self.loaded.invalid.push(document) }
    }

    /// Whether this is the first object of a kind that is not known.
    pub(crate) fn first_of_kind(&mut self, api_version: &str, kind: &str) -> bool {
        self.unknown.insert((api_version.to_owned(), kind.to_owned()))
    }

    pub(crate) fn add(&mut self, context: &Context<'_>, entry: Entry) {
        if entry.code == Code::UnknownKind && entry.severity == Severity::Note && !self.options.note_unknown_kinds {
            return;
        }
        if entry.severity == Severity::Error {
            self.errors = self.errors.saturating_add(1);
        }
        let place = context.lines.position(entry.span.start);
        let (text, text_column) = context.lines.excerpt(entry.span.start);
        self.loaded.diagnostics.push(Diagnostic {
            severity: entry.severity,
            code: entry.code,
            file: context.name.to_owned(),
            line: place.line,
            column: place.column,
            length: context.lines.length(entry.span).max(1),
            text: text.to_owned(),
            text_column,
            object: entry.object,
            path: entry.path,
            message: entry.message,
            why: String::new(),
            help: entry.help,
        });
    }
}
