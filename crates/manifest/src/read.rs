//! From a tree to a typed object, with every problem on the way.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer};
use serde_json::Value;
use slicegate_api::configuration::{self, Configuration};
use slicegate_api::nodepool::NodePool;
use slicegate_api::scenario::{self, Scenario};
use slicegate_api::v1beta1::{self, in_older_words, older_name};
use slicegate_api::{Kind, Object, kueue, validation};

use crate::diagnostic::{Code, Severity};
use crate::fill::{self, Filled};
use crate::known;
use crate::load::{Body, Document, Entry, Report};
use crate::position::{Children, Lines, Position, Positions, Span, Step, parse_path, write_path};
use crate::tree::{Data, Field, Node};
use crate::wording::Wording;

/// How often reading one object is tried again after a wrong field was replaced.
const MAX_TRIES: usize = 500;

/// A source that is being read.
pub(crate) struct Context<'a> {
    pub(crate) source: usize,
    pub(crate) name: &'a str,
    pub(crate) filled: &'a Filled,
    pub(crate) lines: &'a Lines<'a>,
    /// Where the text itself is wrong.
    pub(crate) broken: &'a [usize],
}

/// The type of an object, as written.
#[derive(Clone, Copy, Default)]
pub(crate) struct TypeName<'a> {
    api_version: &'a str,
    kind: &'a str,
}

/// What an object is read as.
#[derive(Clone, Copy)]
enum Target {
    Object(Kind),
    /// An object of Kueue's older version.
    Older(Kind),
    Scenario,
    /// Kueue's configuration file, in this version.
    Configuration(&'static str),
}

/// Why an object is not read.
enum Unknown {
    Kind,
    /// The kind is known in another version.
    Version(&'static str),
}

fn target(api_version: &str, kind: &str) -> Result<Target, Unknown> {
    if kind == "Scenario" && group(api_version) == group(scenario::API_VERSION) {
        return if api_version == scenario::API_VERSION {
            Ok(Target::Scenario)
        } else {
            Err(Unknown::Version(scenario::API_VERSION))
        };
    }
    if kind == "Configuration" && group(api_version) == configuration::GROUP {
        let known = [configuration::V1BETA1, configuration::V1BETA2].into_iter().find(|known| *known == api_version);
        return known.map(Target::Configuration).ok_or(Unknown::Version(configuration::V1BETA2));
    }
    let same_group = |k: &&Kind| k.as_str() == kind && group(k.api_version()) == group(api_version);
    match Kind::ALL.iter().find(same_group) {
        Some(k) if k.api_version() == api_version => Ok(Target::Object(*k)),
        Some(k) if api_version == v1beta1::API_VERSION => Ok(Target::Older(*k)),
        Some(k) => Err(Unknown::Version(k.api_version())),
        None => Err(Unknown::Kind),
    }
}

fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// What `gcloud` prints has neither apiVersion nor kind.
fn is_node_pool(node: &Node) -> bool {
    let any = ["config", "initialNodeCount", "autoscaling", "placementPolicy", "queuedProvisioning"];
    node.field("name").is_some() && any.iter().any(|name| node.field(name).is_some())
}

/// What a diagnostic is about.
struct Subject<'a> {
    object: String,
    positions: &'a Positions,
    /// Set if fields have other names in the text than in the object read.
    older: Option<Kind>,
}

impl Subject<'_> {
    /// A field as it is called in the text, and its place there.
    fn find(&self, path: &str) -> (String, &Positions, bool) {
        let steps = parse_path(path);
        let (place, depth) = self.positions.nearest(&steps);
        if depth < steps.len()
            && let Some(written) = self.older.and_then(|kind| older_name(kind, path))
        {
            let older = parse_path(&written);
            let (there, older_depth) = self.positions.nearest(&older);
            if older_depth > depth || older_depth == older.len() {
                // Where one name stands for a whole rule, the name itself is what is wrong.
                let scalar = matches!(there.children, Children::None);
                let written = if scalar { write_path(older.get(..older_depth).unwrap_or_default()) } else { written };
                return (written, there, scalar || older_depth == older.len());
            }
        }
        let written = if depth < steps.len() { self.older.and_then(|kind| older_name(kind, path)) } else { None };
        (written.unwrap_or_else(|| path.to_owned()), place, depth == steps.len())
    }

    /// A text with the names that fields have in the version in which the object is written.
    fn words(&self, text: String) -> String {
        match self.older {
            Some(kind) => in_older_words(kind, &text),
            None => text,
        }
    }
}

impl Context<'_> {
    fn place(&self, span: Span) -> Span {
        self.filled.original_span(span)
    }

    /// Reads what a document holds: an object, a list of objects, a node pool or a list of node pools.
    pub(crate) fn document(&self, node: Node, outer: TypeName<'_>, report: &mut Report) {
        match node.data {
            Data::Null => {}
            Data::Items(items) => {
                for item in items {
                    self.document(item, TypeName::default(), report);
                }
            }
            Data::Fields(_) => self.object(node, outer, report),
            _ => report.add(
                self,
                Entry {
                    code: Code::NotAnObject,
                    span: self.place(node.span),
                    message: "a document must be an object with apiVersion and kind".to_owned(),
                    help: "write `apiVersion: ...` and `kind: ...` at its top".to_owned(),
                    ..Entry::default()
                },
            ),
        }
    }

    fn object(&self, node: Node, outer: TypeName<'_>, report: &mut Report) {
        let own = |name: &str| node.field(name).and_then(Node::text).unwrap_or_default();
        let or = |own: &str, outer: &str| if own.is_empty() { outer.to_owned() } else { own.to_owned() };
        let no_type = own("apiVersion").is_empty() && own("kind").is_empty();
        if no_type && is_node_pool(&node) {
            self.node_pool(node, report);
            return;
        }
        // The items of a typed list need not repeat its type.
        let (api_version, kind) = (or(own("apiVersion"), outer.api_version), or(own("kind"), outer.kind));
        if api_version.is_empty() || kind.is_empty() {
            self.missing_type(&node, &api_version, &kind, report);
            return;
        }
        if let Some(item_kind) = kind.strip_suffix("List")
            && matches!(node.field("items").map(|n| &n.data), None | Some(Data::Items(_) | Data::Null))
        {
            let inner = if item_kind.is_empty() {
                TypeName::default()
            } else {
                TypeName { api_version: &api_version, kind: item_kind }
            };
            self.items(node, inner, report);
            return;
        }
        match target(&api_version, &kind) {
            Ok(target) => self.typed(node, target, &kind, report),
            Err(unknown) => self.unknown(&node, &api_version, &kind, &unknown, report),
        }
    }

    fn items(&self, list: Node, inner: TypeName<'_>, report: &mut Report) {
        let Data::Fields(fields) = list.data else { return };
        for field in fields.into_iter().filter(|f| f.key == "items") {
            if let Data::Items(items) = field.value.data {
                for item in items {
                    self.document(item, inner, report);
                }
            }
        }
    }

    fn missing_type(&self, node: &Node, api_version: &str, kind: &str, report: &mut Report) {
        let (missing, help) = match (api_version.is_empty(), kind.is_empty()) {
            (true, false) => {
                let known = Kind::ALL.iter().find(|k| k.as_str() == kind);
                ("apiVersion is", known.map(|k| format!("write `apiVersion: {}`", k.api_version())))
            }
            (false, _) => ("kind is", None),
            (true, true) => ("apiVersion and kind are", None),
        };
        // A field that is there but is no text is shown itself.
        let wrong = ["apiVersion", "kind"].iter().filter_map(|f| node.field(f)).find(|n| n.text().is_none());
        let first = match &node.data {
            Data::Fields(fields) => fields.first().map(|f| f.key_span),
            _ => None,
        };
        report.add(
            self,
            Entry {
                code: Code::MissingType,
                span: self.place(wrong.map_or_else(|| first.unwrap_or(node.span), |n| n.span)),
                message: format!("{missing} missing"),
                help: help.unwrap_or_else(|| "every object needs both as text".to_owned()),
                ..Entry::default()
            },
        );
    }

    fn unknown(&self, node: &Node, api_version: &str, kind: &str, unknown: &Unknown, report: &mut Report) {
        if !report.first_of_kind(api_version, kind) {
            return;
        }
        let kinds = Kind::ALL.iter().filter(|k| group(k.api_version()) == group(api_version)).map(|k| k.as_str());
        let meant = known::nearest(kind, &kinds.collect::<Vec<_>>()).filter(|k| k.len().abs_diff(kind.len()) <= 2);
        let entry = match unknown {
            Unknown::Kind if meant.is_some() => Entry {
                severity: Severity::Warning,
                code: Code::UnknownKind,
                span: self.place(node.field("kind").unwrap_or(node).span),
                message: format!("there is no kind {kind} in {api_version}; the object is skipped"),
                help: meant.map(|k| format!("write `kind: {k}`")).unwrap_or_default(),
                ..Entry::default()
            },
            Unknown::Kind => Entry {
                severity: Severity::Note,
                code: Code::UnknownKind,
                span: self.place(node.field("kind").unwrap_or(node).span),
                message: format!("{kind} objects ({api_version}) have no part in admission; they are skipped"),
                ..Entry::default()
            },
            Unknown::Version(known) => Entry {
                // Kueue does not serve it, so the object could not be created; of other groups it may well be served.
                severity: if [kueue::GROUP, configuration::GROUP, group(scenario::API_VERSION)].contains(&group(known))
                {
                    Severity::Error
                } else {
                    Severity::Warning
                },
                code: Code::UnknownVersion,
                span: self.place(node.field("apiVersion").unwrap_or(node).span),
                message: format!("{kind} objects of {api_version} are not read; they are skipped"),
                help: format!("write `apiVersion: {known}`"),
                ..Entry::default()
            },
        };
        report.add(self, entry);
    }

    /// Takes a tree apart into values and their places.
    fn positions(&self, node: Node, key: Span) -> (Value, Positions) {
        let key_span = self.place(key);
        let span = self.place(node.span);
        let (value, children) = match node.data {
            Data::Null => (Value::Null, Children::None),
            Data::Bool(b) => (b.into(), Children::None),
            Data::Number(n) => (n.into(), Children::None),
            Data::Text(text) => (text.into(), Children::None),
            Data::Items(items) => {
                let (values, places) = items
                    .into_iter()
                    .map(|item| {
                        let span = item.span;
                        self.positions(item, span)
                    })
                    .unzip();
                (Value::Array(values), Children::Items(places))
            }
            Data::Fields(fields) => {
                let mut values = serde_json::Map::new();
                let mut places = Vec::new();
                for field in fields {
                    let (value, place) = self.positions(field.value, field.key_span);
                    places.push((field.key.as_str().into(), place));
                    values.insert(field.key, value);
                }
                (Value::Object(values), Children::Fields(places))
            }
        };
        let value_at = self.lines.position(span.start);
        (value, Positions { value: value_at, key_span, span, children })
    }

    fn node_pool(&self, mut node: Node, report: &mut Report) {
        let errors = report.errors();
        let name = node.field("name").and_then(Node::text).unwrap_or_default();
        let object = format!("node pool {}", fill::restore(name));
        Variables { context: self, object: &object, script: never }.fill(&mut node, &mut Vec::new(), report);
        let start = node.span;
        let (value, positions) = self.positions(node, start);
        let subject = Subject { object, positions: &positions, older: None };
        let pool = self.read(value, PhantomData::<NodePool>, &subject, Severity::Note, report);
        if let Some((pool, _)) = pool.filter(|_| report.errors() == errors) {
            self.keep(Body::NodePool(pool), false, positions, true, report);
        }
    }

    fn typed(&self, mut node: Node, target: Target, kind: &str, report: &mut Report) {
        let errors = report.errors();
        let object = object_name(&node, kind);
        let script = match target {
            Target::Scenario | Target::Configuration(_) => never,
            Target::Object(Kind::ConfigMap | Kind::Secret) => is_data,
            Target::Object(_) | Target::Older(_) => is_script,
        };
        Variables { context: self, object: &object, script }.fill(&mut node, &mut Vec::new(), report);
        // Texts with variables in them break rules that their values may not.
        let complete = report.errors() == errors;
        let start = node.span;
        let (mut value, positions) = self.positions(node, start);
        if let Some(fields) = value.as_object_mut() {
            fields.shift_remove("apiVersion");
            fields.shift_remove("kind");
        }
        let older = if let Target::Older(kind) = target { Some(kind) } else { None };
        let subject = Subject { object, positions: &positions, older: None };
        if let Some(kind) = older {
            for newer in v1beta1::to_held(kind, &mut value) {
                let help = match newer.instead {
                    Some(instead) => format!("write `{instead}`, or `apiVersion: {}`", kueue::API_VERSION),
                    None => format!("write `apiVersion: {}`", kueue::API_VERSION),
                };
                self.unknown_field(&subject, newer.path, Severity::Error, help, report);
            }
        }
        let subject = Subject { older, ..subject };
        let body = match target {
            Target::Scenario => {
                let read = self.read(value, PhantomData::<Scenario>, &subject, Severity::Error, report);
                read.map(|(scenario, stand_ins)| (Body::Scenario(scenario), stand_ins))
            }
            Target::Configuration(version) => {
                let read = self.read(value, PhantomData::<Configuration>, &subject, Severity::Error, report);
                read.map(|(mut configuration, stand_ins)| {
                    configuration.api_version = Some(version.to_owned());
                    (Body::Configuration(configuration), stand_ins)
                })
            }
            Target::Object(kind) | Target::Older(kind) => {
                let strict =
                    if group(kind.api_version()) == kueue::GROUP { Severity::Error } else { Severity::Warning };
                let read = self.read(value, KindSeed(kind), &subject, strict, report);
                read.map(|(object, stand_ins)| (Body::Object(object), stand_ins))
            }
        };
        let whole = report.errors() == errors;
        if let Some((Body::Object(object), stand_ins)) = body.as_ref().filter(|_| complete) {
            self.check(object, stand_ins, &subject, report);
        }
        if let Some((body, _)) = body.filter(|_| whole) {
            self.keep(body, older.is_some(), positions, report.errors() == errors, report);
        }
    }

    /// Checks what types cannot say. Fields with a stand-in were wrong already, and nothing is said of what depends on them.
    fn check(&self, object: &Object, stand_ins: &[String], subject: &Subject<'_>, report: &mut Report) {
        let meta = object.metadata();
        let named = |name: &Option<String>| name.as_deref().is_some_and(|n| !n.is_empty());
        let wrong = stand_ins.iter().any(|path| path.starts_with("metadata"));
        let generated = report.options().generated_names && named(&meta.generate_name);
        if !wrong && !named(&meta.name) && !generated {
            let help = if named(&meta.generate_name) {
                "write a name: what is applied needs one of its own, generateName will not do"
            } else {
                "write a name"
            };
            self.missing_field(subject, "metadata.name", help.to_owned(), report);
        }
        for finding in validation::validate(object, &validation::Rules::default()) {
            let required = finding.kind == validation::FindingKind::Required;
            let depends = |stand_in: &String| {
                required || finding.path.starts_with(stand_in.as_str()) || stand_in.starts_with(finding.path.as_str())
            };
            if stand_ins.iter().any(depends) {
                continue;
            }
            let (path, place, found) = subject.find(&finding.path);
            let missing = finding.kind == validation::FindingKind::Required;
            let verb =
                ["must ", "may ", "has ", "is ", "needs ", "cannot "].iter().any(|v| finding.detail.starts_with(v));
            let message = if verb { format!("`{}` {}", last_name(&path), finding.detail) } else { finding.detail };
            let message = subject.words(message);
            report.add(
                self,
                Entry {
                    code: if missing { Code::MissingField } else { Code::InvalidValue },
                    span: if found { place.span } else { place.key_span },
                    object: subject.object.clone(),
                    path,
                    message,
                    ..Entry::default()
                },
            );
        }
    }

    fn keep(&self, body: Body, older: bool, positions: Positions, valid: bool, report: &mut Report) {
        let within = positions.span.start..=positions.span.end;
        if !self.broken.iter().any(|offset| within.contains(offset)) {
            let Position { line, column } = positions.value;
            report.push(Document { source: self.source, line, column, older, body, positions }, valid);
        }
    }

    fn missing_field(&self, subject: &Subject<'_>, path: &str, help: String, report: &mut Report) {
        let (path, place, _) = subject.find(path);
        report.add(
            self,
            Entry {
                code: Code::MissingField,
                span: place.key_span,
                object: subject.object.clone(),
                message: format!("`{}` is missing", last_name(&path)),
                path,
                help,
                ..Entry::default()
            },
        );
    }

    fn unknown_field(&self, subject: &Subject<'_>, path: &str, severity: Severity, help: String, report: &mut Report) {
        let (path, place, _) = subject.find(path);
        let message = match severity {
            Severity::Error => format!("there is no field `{}` here", last_name(&path)),
            _ => format!("the field `{}` is not known here and has no effect", last_name(&path)),
        };
        report.add(
            self,
            Entry {
                severity,
                code: Code::UnknownField,
                span: place.key_span,
                object: subject.object.clone(),
                path,
                message,
                help,
            },
        );
    }

    /// Reads a value into its type. A field of the wrong type is reported and replaced until the rest can be read, so that all
    /// of them are reported at once; the result is then `None`.
    fn read<S, T>(
        &self,
        mut value: Value,
        seed: S,
        subject: &Subject<'_>,
        unknown: Severity,
        report: &mut Report,
    ) -> Option<(T, Vec<String>)>
    where
        S: Copy + for<'de> DeserializeSeed<'de, Value = T>,
    {
        // Fields that were replaced, and by which stand-in.
        let mut replaced = BTreeMap::<String, usize>::new();
        let mut ignored = Vec::new();
        let mut read = None;
        for _ in 0..MAX_TRIES {
            ignored.clear();
            let mut track = serde_path_to_error::Track::new();
            let result = {
                let inner = serde_path_to_error::Deserializer::new(&value, &mut track);
                let mut note = |path: serde_ignored::Path<'_>| ignored.push(ignored_path(&path));
                seed.deserialize(serde_ignored::Deserializer::new(inner, &mut note))
            };
            let error = match result {
                Ok(object) => {
                    read = Some(object);
                    break;
                }
                Err(error) => error.to_string(),
            };
            let Some(mut path) = error_path(&track.path()) else {
                self.wrong(subject, &[], &error, report);
                break;
            };
            let missing = error.strip_prefix("missing field `").and_then(|e| e.split_once('`')).map(|(field, _)| field);
            if let Some(field) = missing {
                path.push(Step::Field(field.into()));
            }
            // An API server takes nothing for a field that is left out, except in maps of texts.
            if missing.is_none()
                && error.starts_with("invalid type: null")
                && !in_text_map(&path)
                && take(&mut value, &path)
            {
                continue;
            }
            let name = write_path(&path);
            let stand_in = replaced.get(&name).copied();
            if stand_in.is_none() {
                match missing {
                    Some(_) => self.missing_field(subject, &name, String::new(), report),
                    None => self.wrong(subject, &path, &error, report),
                }
            }
            let next = stand_in.map_or(0, |n| n.saturating_add(1));
            let Some(stand_in) = stand_ins().into_iter().nth(next) else { break };
            if path.is_empty() || !put(&mut value, &path, stand_in) {
                break;
            }
            replaced.insert(name, next);
        }
        for path in &ignored {
            let help = match path.split_last() {
                Some((Step::Field(name), parent)) => {
                    let fields = known::fields(seed, parent);
                    match subject.older {
                        Some(kind) => known::nearest(name, &v1beta1::older_fields(kind, &write_path(parent), &fields)),
                        None => known::nearest(name, &fields),
                    }
                }
                _ => None,
            };
            let help = help.map(|name| format!("write `{name}`")).unwrap_or_default();
            self.unknown_field(subject, &write_path(path), unknown, help, report);
        }
        read.map(|object| (object, replaced.into_keys().collect()))
    }

    fn wrong(&self, subject: &Subject<'_>, path: &[Step], error: &str, report: &mut Report) {
        let (path, place, _) = subject.find(&write_path(path));
        let wording = Wording::new(error, self.lines.slice(place.span));
        report.add(
            self,
            Entry {
                code: Code::WrongType,
                span: place.span,
                object: subject.object.clone(),
                path,
                message: wording.message,
                help: wording.help,
                ..Entry::default()
            },
        );
    }
}

/// Values that are put in place of wrong ones: one of them is of the right type.
fn stand_ins() -> [Value; 6] {
    [Value::Null, "".into(), 0.into(), Value::Array(Vec::new()), Value::Object(serde_json::Map::new()), false.into()]
}

/// Whether a field is an entry of a map of texts, whose entries must not be empty.
fn in_text_map(path: &[Step]) -> bool {
    let parent = path.len().checked_sub(2).and_then(|i| path.get(i));
    matches!(parent, Some(Step::Field(name)) if matches!(
        &**name,
        "labels" | "annotations" | "nodeLabels" | "nodeSelector" | "matchLabels" | "parameters" | "env" | "runTimes"
    ))
}

/// Takes a field out; returns whether it was there.
fn take(value: &mut Value, path: &[Step]) -> bool {
    match path.split_last() {
        Some((Step::Field(name), before)) => match follow(value, before) {
            Some(Value::Object(fields)) => fields.shift_remove(&**name).is_some(),
            _ => false,
        },
        _ => false,
    }
}

fn follow<'a>(value: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |at, step| match step {
        Step::Field(name) => at.get_mut(&**name),
        Step::Index(i) => at.get_mut(*i),
    })
}

/// Sets a field; returns whether there is such a place.
fn put(value: &mut Value, path: &[Step], new: Value) -> bool {
    let Some((last, before)) = path.split_last() else { return false };
    match (follow(value, before), last) {
        (Some(Value::Object(fields)), Step::Field(name)) => {
            fields.insert(name.to_string(), new);
            true
        }
        (Some(Value::Array(items)), Step::Index(i)) => match items.get_mut(*i) {
            Some(item) => {
                *item = new;
                true
            }
            None => false,
        },
        _ => false,
    }
}

#[derive(Clone, Copy)]
struct KindSeed(Kind);

impl<'de> DeserializeSeed<'de> for KindSeed {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object, D::Error> {
        self.0.deserialize(deserializer)
    }
}

/// `None` if the path cannot be followed.
fn error_path(path: &serde_path_to_error::Path) -> Option<Vec<Step>> {
    use serde_path_to_error::Segment;
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Field(key.as_str().into())),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

fn ignored_path(path: &serde_ignored::Path<'_>) -> Vec<Step> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(Step::Index(*index))),
        Path::Map { parent, key } => (parent, Some(Step::Field(key.as_str().into()))),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => (parent, None),
    };
    let mut steps = ignored_path(parent);
    steps.extend(step);
    steps
}

fn last_name(path: &str) -> String {
    match parse_path(path).pop() {
        Some(Step::Field(name)) => name.into(),
        Some(Step::Index(_)) | None => path.to_owned(),
    }
}

/// `Kind name` or `Kind namespace/name`.
fn object_name(node: &Node, kind: &str) -> String {
    let meta = node.field("metadata");
    let text = |name: &str| meta.and_then(|m| m.field(name)).and_then(Node::text).unwrap_or_default();
    let name = if text("name").is_empty() { text("generateName") } else { text("name") };
    let name = if text("namespace").is_empty() { name.to_owned() } else { format!("{}/{name}", text("namespace")) };
    fill::restore(format!("{kind} {name}").trim_end())
}

/// Commands, arguments and environment of containers, and what Ray runs: `${NAME}` may be meant for a shell.
fn is_script(path: &[Step]) -> bool {
    let name = |back: usize| match path.len().checked_sub(back).and_then(|i| path.get(i)) {
        Some(Step::Field(name)) => Some(&**name),
        _ => None,
    };
    let container = |back| matches!(name(back), Some("containers" | "initContainers" | "ephemeralContainers"));
    match name(1) {
        Some("command") => container(3) || name(2) == Some("exec"),
        Some("args" | "env") => container(3),
        Some("entrypoint" | "runtimeEnvYAML") => name(2).is_some_and(|n| n.ends_with("pec")),
        _ => false,
    }
}

const fn never(_: &[Step]) -> bool {
    false
}

/// The contents of a ConfigMap or Secret are often scripts.
fn is_data(path: &[Step]) -> bool {
    matches!(path, [Step::Field(name)] if matches!(&**name, "data" | "stringData" | "binaryData"))
}

/// Looks for variables without a value.
struct Variables<'a> {
    context: &'a Context<'a>,
    object: &'a str,
    /// Whether a field holds a script, where they are left alone.
    script: fn(&[Step]) -> bool,
}

impl Variables<'_> {
    /// Writes variables as they were again, and reports those that should have had a value.
    fn fill(&self, node: &mut Node, path: &mut Vec<Step>, report: &mut Report) {
        if (self.script)(path) {
            restore(node);
            return;
        }
        match &mut node.data {
            Data::Text(text) => {
                self.report(text, node.span, path, report);
                if fill::has_unset(text) {
                    *text = fill::restore(text);
                }
            }
            Data::Items(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    path.push(Step::Index(i));
                    self.fill(item, path, report);
                    path.pop();
                }
            }
            Data::Fields(fields) => {
                for Field { key, key_span, value } in fields {
                    self.report(key, *key_span, path, report);
                    if fill::has_unset(key) {
                        *key = fill::restore(key);
                    }
                    path.push(Step::Field(key.as_str().into()));
                    self.fill(value, path, report);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn report(&self, text: &str, span: Span, path: &[Step], report: &mut Report) {
        for name in fill::unset(text) {
            report.add(
                self.context,
                Entry {
                    code: Code::UnsetVariable,
                    span: self.context.place(span),
                    object: self.object.to_owned(),
                    path: write_path(path),
                    message: format!("the variable {name} has no value"),
                    help: format!("give {name} a value, or write one in place of ${{{name}}}"),
                    ..Entry::default()
                },
            );
        }
    }
}

fn restore(node: &mut Node) {
    match &mut node.data {
        Data::Text(text) if fill::has_unset(text) => *text = fill::restore(text),
        Data::Items(items) => items.iter_mut().for_each(restore),
        Data::Fields(fields) => {
            for field in fields {
                if fill::has_unset(&field.key) {
                    field.key = fill::restore(&field.key);
                }
                restore(&mut field.value);
            }
        }
        _ => {}
    }
}
