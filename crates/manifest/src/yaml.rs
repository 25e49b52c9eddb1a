//! Reads YAML as kubectl does: YAML 1.1 scalars, merge keys, no key twice.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span as ParserSpan, Tag};

use crate::diagnostic::Code;
use crate::position::Span;
use crate::scalar::{Unsupported, resolve, resolve_tagged};
use crate::tree::{Data, Field, Keys, MAX_DEPTH, Node, Parsed, Problem, add_field};

/// How many nodes aliases may stand for in one document.
const MAX_ALIASED: usize = 200_000;

/// Reads all documents of a text. One that is not YAML does not hide the others.
pub(crate) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (start, chunk) in chunks(text) {
        parse_chunk(start, chunk, &mut parsed);
    }
    parsed
}

/// Cuts a text at its `---` lines, which no YAML construct goes across. Each part keeps its own.
fn chunks(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    // Directives belong to the document after them.
    let mut only_directives = true;
    for line in text.split_inclusive('\n') {
        let separator =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if separator && !only_directives {
            parts.push((start, text.get(start..at).unwrap_or_default()));
            start = at;
        }
        let content = line.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        only_directives = !separator && only_directives && (content.is_empty() || content.starts_with(['%', '#']));
        if line.strip_prefix("...").is_some_and(|rest| rest.trim().is_empty()) {
            only_directives = true;
        }
        at = at.saturating_add(line.len());
    }
    parts.push((start, text.get(start..).unwrap_or_default()));
    parts
}

fn parse_chunk(start: usize, text: &str, parsed: &mut Parsed) {
    let mut options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { start, ..Builder::default() };
    while let Some(next) = parser.next_event() {
        match next {
            Ok((event, span)) => {
                if let Err(problem) = builder.event(event, span) {
                    builder.problems.push(problem);
                    break;
                }
            }
            Err(error) => {
                let at = start.saturating_add(error.marker().byte_offset().unwrap_or(text.len()));
                let at = at.min(start.saturating_add(text.len()));
                builder.problems.push(syntax(text, start, at, &error.info()));
                break;
            }
        }
    }
    parsed.documents.append(&mut builder.documents);
    parsed.problems.append(&mut builder.problems);
}

fn syntax(text: &str, start: usize, at: usize, info: &str) -> Problem {
    if info.contains("recursion limit") {
        let message = format!("nested more than {MAX_DEPTH} levels deep");
        return Problem { code: Code::TooLarge, span: Span::new(at, at), message, help: String::new() };
    }
    let offset = at.saturating_sub(start);
    let line_start = text.get(..offset).and_then(|t| t.rfind('\n')).map_or(0, |i| i.saturating_add(1));
    let line = text.get(line_start..).and_then(|t| t.lines().next()).unwrap_or_default();
    let indent = line.get(..line.len().saturating_sub(line.trim_start().len())).unwrap_or_default();
    let (at, help) = match indent.find('\t') {
        Some(tab) => (
            start.saturating_add(line_start).saturating_add(tab),
            "indent with spaces; YAML does not take tabs for that".to_owned(),
        ),
        None => (at, String::new()),
    };
    Problem { code: Code::Syntax, span: Span::new(at, at), message: format!("this is not YAML: {info}"), help }
}

#[derive(Default)]
struct Builder {
    /// Where the chunk begins in the text.
    start: usize,
    documents: Vec<Node>,
    problems: Vec<Problem>,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Anchor>,
    aliased: usize,
}

struct Anchor {
    node: Node,
    size: usize,
    depth: usize,
}

struct Frame {
    start: usize,
    anchor: usize,
    inner: Inner,
}

enum Inner {
    Items(Vec<Node>),
    Fields { fields: Vec<Field>, keys: Keys, key: Key, merges: Vec<Node> },
}

/// The key that waits for its value.
enum Key {
    None,
    Text(String, Span),
    Merge,
    /// One that cannot be used; its value is dropped.
    Bad,
}

type Result<T> = std::result::Result<T, Problem>;

impl Builder {
    fn span(&self, span: ParserSpan) -> Span {
        let range = span.byte_range().unwrap_or_default();
        Span::new(self.start.saturating_add(range.start), self.start.saturating_add(range.end))
    }

    fn event(&mut self, event: Event<'_>, span: ParserSpan) -> Result<()> {
        let place = self.span(span);
        match event {
            Event::DocumentStart(..) => {
                self.anchors.clear();
                self.aliased = 0;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                if plain && tag.is_none() && text == "<<" && self.expects_key() {
                    self.set_key(Key::Merge);
                    return Ok(());
                }
                let data = self.scalar(&text, plain, tag.as_deref(), place);
                self.finish(Node { span: place, data }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => self.open(place, anchor, Inner::Items(Vec::new()))?,
            Event::MappingStart(_, anchor, _) => {
                let keys = Keys::default();
                let inner = Inner::Fields { fields: Vec::new(), keys, key: Key::None, merges: Vec::new() };
                self.open(place, anchor, inner)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(place),
            Event::Alias(anchor) => self.alias(anchor, place)?,
            _ => {}
        }
        Ok(())
    }

    fn too_deep(span: Span) -> Problem {
        Problem {
            code: Code::TooLarge,
            span,
            message: format!("nested more than {MAX_DEPTH} levels deep"),
            help: String::new(),
        }
    }

    fn open(&mut self, place: Span, anchor: usize, inner: Inner) -> Result<()> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(Self::too_deep(place));
        }
        self.stack.push(Frame { start: place.start, anchor, inner });
        Ok(())
    }

    fn close(&mut self, place: Span) {
        let Some(frame) = self.stack.pop() else { return };
        let (data, last) = match frame.inner {
            Inner::Items(items) => {
                let last = items.last().map(|n| n.span.end);
                (Data::Items(items), last)
            }
            Inner::Fields { mut fields, mut keys, merges, .. } => {
                let last = fields.last().map(|f| f.value.span.end);
                for merge in merges {
                    self.merge(merge, &mut fields, &mut keys);
                }
                (Data::Fields(fields), last)
            }
        };
        // A block collection ends where its last part does, not where the next token was found.
        let end = if place.start == place.end { last.unwrap_or(place.end) } else { place.end };
        self.finish(Node { span: Span::new(frame.start, end), data }, frame.anchor);
    }

    /// Fields of the mapping itself win over merged ones, earlier merged ones over later ones.
    fn merge(&mut self, node: Node, fields: &mut Vec<Field>, keys: &mut Keys) {
        match node.data {
            Data::Fields(merged) => {
                for field in merged {
                    if keys.insert(&field.key) {
                        fields.push(field);
                    }
                }
            }
            Data::Items(items) if items.iter().all(|i| matches!(i.data, Data::Fields(_))) => {
                for item in items {
                    self.merge(item, fields, keys);
                }
            }
            _ => self.problems.push(Problem {
                code: Code::UnsupportedYaml,
                span: node.span,
                message: "`<<` takes a mapping or a list of mappings".to_owned(),
                help: "write `<<: *name`, where `name` is the anchor of a mapping".to_owned(),
            }),
        }
    }

    fn alias(&mut self, anchor: usize, place: Span) -> Result<()> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(Problem {
                code: Code::UnsupportedYaml,
                span: place,
                message: "this alias stands for something that it is itself part of".to_owned(),
                help: String::new(),
            });
        };
        self.aliased = self.aliased.saturating_add(target.size);
        if self.aliased > MAX_ALIASED {
            return Err(Problem {
                code: Code::TooLarge,
                span: place,
                message: format!("the aliases of this document stand for more than {MAX_ALIASED} values"),
                help: "write out what is needed instead of repeating aliases of aliases".to_owned(),
            });
        }
        if self.stack.len().saturating_add(target.depth) > MAX_DEPTH {
            return Err(Self::too_deep(place));
        }
        let node = target.node.clone();
        self.finish(node, 0);
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame { inner: Inner::Fields { key: Key::None, .. }, .. }))
    }

    fn set_key(&mut self, new: Key) {
        if let Some(Frame { inner: Inner::Fields { key, .. }, .. }) = self.stack.last_mut() {
            *key = new;
        }
    }

    /// Puts a finished node where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            let (size, depth) = node.size_and_depth();
            self.anchors.insert(anchor, Anchor { node: node.clone(), size, depth });
        }
        let Some(frame) = self.stack.last_mut() else {
            self.documents.push(node);
            return;
        };
        match &mut frame.inner {
            Inner::Items(items) => items.push(node),
            Inner::Fields { fields, keys, key, merges } => match std::mem::replace(key, Key::None) {
                Key::None => {
                    let span = node.span;
                    *key = if let Some(text) = key_text(node.data) {
                        Key::Text(text, span)
                    } else {
                        self.problems.push(Problem {
                            code: Code::UnsupportedYaml,
                            span,
                            message: "a key must be text".to_owned(),
                            help: "put it in quotes if it is meant as text".to_owned(),
                        });
                        Key::Bad
                    };
                }
                Key::Text(text, key_span) => {
                    let field = Field { key: text, key_span, value: node };
                    add_field(fields, keys, field, &mut self.problems);
                }
                Key::Merge => merges.push(node),
                Key::Bad => {}
            },
        }
    }

    fn scalar(&mut self, text: &str, plain: bool, tag: Option<&Tag>, span: Span) -> Data {
        let tagged = match tag {
            Some(tag) if tag.original() == "!" => Some(Ok(Data::Text(text.to_owned()))),
            Some(tag) => tag
                .handle()
                .strip_prefix("tag:yaml.org,2002:")
                .and_then(|rest| resolve_tagged(&format!("{rest}{}", tag.suffix()), text)),
            None if plain => Some(resolve(text)),
            None => Some(Ok(Data::Text(text.to_owned()))),
        };
        let message = match tagged {
            Some(Ok(data)) => return data,
            Some(Err(Unsupported::NotFinite)) => format!("{text} is not a number that JSON can hold"),
            Some(Err(Unsupported::Mismatch)) => format!("{text:?} does not fit its tag"),
            None => "this tag is not known".to_owned(),
        };
        let help = match tag {
            Some(_) => "remove the tag".to_owned(),
            None => format!("put it in quotes if it is meant as text: \"{text}\""),
        };
        self.problems.push(Problem { code: Code::UnsupportedYaml, span, message, help });
        Data::Text(text.to_owned())
    }
}

/// A key as JSON has it.
fn key_text(data: Data) -> Option<String> {
    match data {
        Data::Text(text) => Some(text),
        Data::Bool(b) => Some(b.to_string()),
        Data::Number(n) => Some(n.to_string()),
        Data::Null | Data::Items(_) | Data::Fields(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn json(node: &Node) -> serde_json::Value {
        match &node.data {
            Data::Null => serde_json::Value::Null,
            Data::Bool(b) => (*b).into(),
            Data::Number(n) => n.clone().into(),
            Data::Text(t) => t.clone().into(),
            Data::Items(items) => items.iter().map(json).collect(),
            Data::Fields(fields) => {
                serde_json::Value::Object(fields.iter().map(|f| (f.key.clone(), json(&f.value))).collect())
            }
        }
    }

    fn read(text: &str) -> String {
        let parsed = parse(text);
        assert!(parsed.problems.is_empty(), "{text}: {:?}", parsed.problems);
        parsed.documents.iter().map(|n| json(n).to_string()).collect::<Vec<_>>().join(" ")
    }

    fn problem(text: &str) -> (Code, usize) {
        let parsed = parse(text);
        assert_eq!(parsed.problems.len(), 1, "{text}: {:?}", parsed.problems);
        (parsed.problems[0].code, parsed.problems[0].span.start)
    }

    #[test]
    fn documents_are_told_apart() {
        assert_eq!(read("a: 1\n---\nb: 2\n"), r#"{"a":1} {"b":2}"#);
        assert_eq!(read("--- {a: 1}\n--- # x\nb: |\n  ---\n...\n---\nc\n"), r#"{"a":1} {"b":"---\n"} "c""#);
        assert_eq!(read("%YAML 1.1\n---\na: 1\n"), r#"{"a":1}"#);
        assert_eq!(read("a: 1\n...\n%YAML 1.1\n---\na: 2\n"), r#"{"a":1} {"a":2}"#);
        assert_eq!(read("\u{feff}a: 1\r\n---\r\nb: 2\r\n"), r#"{"a":1} {"b":2}"#);
    }

    #[test]
    fn empty_documents_are_null_or_nothing() {
        assert_eq!(read(""), "");
        assert_eq!(read("# nothing\n"), "");
        assert_eq!(read("---\n---\na: 1\n---\n"), r#"null {"a":1} null"#);
    }

    #[test]
    fn keys_are_text() {
        assert_eq!(read("{1: a, true: b, 1.5: c, 'null': d}"), r#"{"1":"a","true":"b","1.5":"c","null":"d"}"#);
        assert_eq!(problem("? [a]\n: b\n").0, Code::UnsupportedYaml);
        assert_eq!(problem("~: b\n").0, Code::UnsupportedYaml);
    }

    #[test]
    fn a_key_may_not_come_twice() {
        assert_eq!(problem("a: 1\nb: 2\na: 3\n"), (Code::DuplicateKey, 10));
        assert_eq!(problem("1: 1\n'1': 3\n").0, Code::DuplicateKey);
    }

    #[test]
    fn merge_keys() {
        assert_eq!(read("x: &x {a: 1, b: 2}\nz:\n  b: 3\n  <<: *x\n"), r#"{"x":{"a":1,"b":2},"z":{"b":3,"a":1}}"#);
        assert_eq!(
            read("- &x {a: 1}\n- &y {a: 2, b: 2}\n- <<: [*x, *y]\n- <<: {c: 1}\n"),
            r#"[{"a":1},{"a":2,"b":2},{"a":1,"b":2},{"c":1}]"#
        );
        assert_eq!(read("'<<': 1"), r#"{"<<":1}"#);
        assert_eq!(problem("a: 1\n<<: 2\n").0, Code::UnsupportedYaml);
    }

    #[test]
    fn tags() {
        assert_eq!(read("[!!str 1, !!int '1', ! 1, !!float 1]"), r#"["1",1,"1",1]"#);
        assert_eq!(problem("a: !!binary aGk=").0, Code::UnsupportedYaml);
        assert_eq!(problem("a: !mine x").0, Code::UnsupportedYaml);
    }

    #[test]
    fn an_alias_within_its_own_anchor_is_refused() {
        assert_eq!(problem("a: &x [*x]").0, Code::UnsupportedYaml);
        assert_eq!(problem("a: *x").0, Code::Syntax);
    }

    #[test]
    fn billion_laughs() {
        let mut text = "a0: &a0 lol\n".to_owned();
        for i in 1..30 {
            let items = vec![format!("*a{}", i - 1); 9].join(", ");
            let _ = writeln!(text, "a{i}: &a{i} [{items}]");
        }
        assert_eq!(problem(&text).0, Code::TooLarge);
    }

    #[test]
    fn depth_is_limited_also_through_aliases() {
        assert_eq!(problem(&"[".repeat(100_000)).0, Code::TooLarge);
        assert_eq!(problem(&(0..200).map(|i| " ".repeat(i) + "a:\n").collect::<String>()).0, Code::TooLarge);
        let mut text = "a0: &a0 x\n".to_owned();
        for i in 1..200 {
            let _ = writeln!(text, "a{i}: &a{i} [*a{}]", i - 1);
        }
        assert_eq!(problem(&text).0, Code::TooLarge);
    }

    #[test]
    fn a_broken_document_does_not_hide_the_next() {
        let parsed = parse("a: [\n---\nb: 1\n---\nc: {\n");
        assert_eq!(parsed.problems.len(), 2, "{:?}", parsed.problems);
        assert_eq!(parsed.documents.len(), 1);
        assert_eq!(parsed.problems[1].span.start, 21, "{:?}", parsed.problems);
    }

    #[test]
    fn tabs_are_explained() {
        let parsed = parse("a:\n\tb: 1\n");
        assert!(parsed.problems[0].help.contains("spaces"), "{:?}", parsed.problems);
        assert_eq!(parsed.problems[0].span.start, 3);
    }

    #[test]
    fn spans_cover_what_was_written() {
        let text = "x: é\na:\n  - b: 'c d'\n    e: f\ng: 1\n";
        let parsed = parse(text);
        let slice = |n: &Node| text.get(n.span.start..n.span.end).unwrap().to_owned();
        let root = &parsed.documents[0];
        let a = root.field("a").unwrap();
        assert_eq!(slice(a), "- b: 'c d'\n    e: f");
        let Data::Items(items) = &a.data else { panic!() };
        assert_eq!(slice(items[0].field("b").unwrap()), "'c d'");
        assert_eq!(slice(root.field("x").unwrap()), "é");
    }
}
