//! Places in a text, and the places of an object's fields.

/// A range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }
}

/// A line and a column, both from 1; the column counts characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Where the lines of a text start.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i.saturating_add(1));
        Self { text, starts: std::iter::once(0).chain(after).collect() }
    }

    /// The line that an offset is on, from 0.
    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|s| *s <= offset).saturating_sub(1)
    }

    /// The text of a line, from 0, without its end.
    fn text(&self, line: usize) -> &'a str {
        let start = self.starts.get(line).copied().unwrap_or(self.text.len());
        let end = line.checked_add(1).and_then(|l| self.starts.get(l).copied()).unwrap_or(self.text.len());
        self.text.get(start..end).unwrap_or_default().trim_end_matches(['\n', '\r'])
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = self.floor(offset);
        let line = self.line(offset);
        let start = self.starts.get(line).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        // A byte order mark is not seen in an editor.
        let column = before.chars().filter(|c| *c != '\u{feff}').count().saturating_add(1);
        Position { line: line.saturating_add(1), column }
    }

    /// The text of the line of an offset.
    pub(crate) fn line_text(&self, offset: usize) -> &'a str {
        self.text(self.line(self.floor(offset))).trim_start_matches('\u{feff}')
    }

    /// How many characters of a span lie on its first line.
    pub(crate) fn length(&self, span: Span) -> usize {
        let (start, end) = (self.floor(span.start), self.floor(span.end));
        let text = self.text.get(start..end).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim_end().chars().count()
    }

    pub(crate) fn slice(&self, span: Span) -> &'a str {
        self.text.get(self.floor(span.start)..self.floor(span.end)).unwrap_or_default()
    }

    fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset = offset.saturating_sub(1);
        }
        offset
    }
}

/// Where the fields of an object are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Positions {
    pub(crate) value: Position,
    /// Of the key and of the value, in bytes of the source.
    pub(crate) key_span: Span,
    pub(crate) span: Span,
    pub(crate) children: Children,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Children {
    None,
    Items(Vec<Positions>),
    Fields(Vec<(Box<str>, Positions)>),
}

/// One step of the path of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Field(Box<str>),
    Index(usize),
}

impl Positions {
    pub(crate) fn child(&self, step: &Step) -> Option<&Self> {
        match (&self.children, step) {
            (Children::Items(items), Step::Index(i)) => items.get(*i),
            (Children::Fields(fields), Step::Field(name)) => fields.iter().find(|(n, _)| n == name).map(|(_, p)| p),
            // `[0]` may also be the key of a map.
            (Children::Fields(fields), Step::Index(i)) => {
                let name = i.to_string();
                fields.iter().find(|(n, _)| **n == name).map(|(_, p)| p)
            }
            _ => None,
        }
    }

    /// The deepest part of a path that is there, and how many steps lead to it.
    pub(crate) fn nearest<'a>(&'a self, path: &[Step]) -> (&'a Self, usize) {
        let mut at = self;
        for (depth, step) in path.iter().enumerate() {
            match at.child(step) {
                Some(child) => at = child,
                None => return (at, depth),
            }
        }
        (at, path.len())
    }

    /// The place of the value of a field named like `spec.resourceGroups[0].name` or `metadata.labels[a.b/c]`; of the
    /// deepest field on the way to it if it is not there.
    pub fn position_of(&self, path: &str) -> Position {
        self.nearest(&parse_path(path)).0.value
    }
}

/// Reads a path as Kubernetes writes it.
pub(crate) fn parse_path(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            // A key may hold anything but the end of its bracket.
            let (key, after) = inner.split_once(']').unwrap_or((inner, ""));
            steps.push(key.parse().map_or_else(|_| Step::Field(key.into()), Step::Index));
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (field, after) = name.split_at(end);
            if !field.is_empty() {
                steps.push(Step::Field(field.into()));
            } else if after.len() == rest.len() {
                break;
            }
            rest = after;
        }
    }
    steps
}

/// Writes a path as Kubernetes does.
pub(crate) fn write_path(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Index(i) => {
                out.push('[');
                out.push_str(&i.to_string());
                out.push(']');
            }
            Step::Field(name) if name.contains(['.', '/', '[', ']']) => {
                out.push('[');
                out.push_str(name);
                out.push(']');
            }
            Step::Field(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let lines = Lines::new("a\nbé: c\r\n");
        assert_eq!(lines.position(6), Position { line: 2, column: 4 });
        assert_eq!(lines.line_text(6), "bé: c");
        assert_eq!(lines.position(1000).line, 3);
    }

    #[test]
    fn a_byte_order_mark_is_no_column() {
        let lines = Lines::new("\u{feff}a: b");
        assert_eq!(lines.position(3), Position { line: 1, column: 1 });
        assert_eq!(lines.line_text(3), "a: b");
    }

    #[test]
    fn paths_survive_a_round_trip() {
        for path in ["", "spec", "spec.a[0].b[12]", "metadata.labels[kueue.x-k8s.io/queue-name].x"] {
            assert_eq!(write_path(&parse_path(path)), path);
        }
    }

    #[test]
    fn odd_paths_do_not_hang() {
        for path in [".", "..", "a..b", "[", "]", "[[", "a[", "a.[b", "[]"] {
            let _ = parse_path(path);
        }
    }
}
