//! What a text says, with the place of every part of it.

use serde_json::Number;

use crate::diagnostic::Code;
use crate::position::Span;

/// How deep nodes may be nested. Everything that walks a tree relies on it.
pub(crate) const MAX_DEPTH: usize = 120;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) data: Data,
}

#[derive(Clone, Debug)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Items(Vec<Node>),
    Fields(Vec<Field>),
}

/// An entry of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        match &self.data {
            Data::Fields(fields) => fields.iter().find(|f| f.key == name).map(|f| &f.value),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    /// How many nodes it has, and how deep they are nested.
    pub(crate) fn size_and_depth(&self) -> (usize, usize) {
        let children: &mut dyn Iterator<Item = &Self> = match &self.data {
            Data::Items(items) => &mut items.iter(),
            Data::Fields(fields) => &mut fields.iter().map(|f| &f.value),
            _ => return (1, 1),
        };
        let (size, depth) = children
            .map(Self::size_and_depth)
            .fold((0_usize, 0), |(size, depth), (s, d)| (size.saturating_add(s), depth.max(d)));
        (size.saturating_add(1), depth.saturating_add(1))
    }
}

/// Something wrong with a text.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// What the text of a source says.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// Its documents, those left out that cannot be read.
    pub(crate) documents: Vec<Node>,
    pub(crate) problems: Vec<Problem>,
}

/// Adds a field, which may be there already.
pub(crate) fn add_field(fields: &mut Vec<Field>, index: &mut Keys, field: Field, problems: &mut Vec<Problem>) {
    if index.insert(&field.key) {
        fields.push(field);
    } else {
        problems.push(Problem {
            code: Code::DuplicateKey,
            span: field.key_span,
            message: format!("the key `{}` is already in this mapping", field.key),
            help: "remove one of the two".to_owned(),
        });
    }
}

/// The keys of a mapping.
#[derive(Debug, Default)]
pub(crate) struct Keys(std::collections::BTreeSet<Box<str>>);

impl Keys {
    /// Whether the key is new.
    pub(crate) fn insert(&mut self, key: &str) -> bool {
        self.0.insert(key.into())
    }
}
