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
    /// How many characters begin before each block of bytes, so that columns of very long lines are found quickly.
    characters: Vec<usize>,
}

/// Bytes of a block.
const BLOCK: usize = 256;

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i.saturating_add(1));
        let mut characters = vec![0_usize];
        for block in text.as_bytes().chunks(BLOCK) {
            let before = characters.last().copied().unwrap_or_default();
            characters.push(before.saturating_add(block.iter().filter(|b| begins_character(**b)).count()));
        }
        Self { text, starts: std::iter::once(0).chain(after).collect(), characters }
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
        // A byte order mark is not seen in an editor.
        let mark = usize::from(start == 0 && offset > 0 && self.text.starts_with('\u{feff}'));
        let before = self.characters_before(offset).saturating_sub(self.characters_before(start)).saturating_sub(mark);
        Position { line: line.saturating_add(1), column: before.saturating_add(1) }
    }

    /// How many characters begin before a place.
    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        let rest = self.text.as_bytes().get(block.saturating_mul(BLOCK)..offset).unwrap_or_default();
        let before = self.characters.get(block).copied().unwrap_or_default();
        before.saturating_add(rest.iter().filter(|b| begins_character(**b)).count())
    }

    /// The text of the line of an offset, and the column at which it begins: that part of a very long line which is around the
    /// offset.
    pub(crate) fn excerpt(&self, offset: usize) -> (&'a str, usize) {
        const AROUND: usize = 400;
        let offset = self.floor(offset);
        let line = self.line(offset);
        let text = self.text(line);
        if text.len() <= 2 * AROUND {
            return (text.trim_start_matches('\u{feff}'), 1);
        }
        let start = self.starts.get(line).copied().unwrap_or_default();
        let from = self.floor(offset.saturating_sub(AROUND).max(start));
        let to = self.floor(offset.saturating_add(AROUND).min(start.saturating_add(text.len())));
        let part = self.text.get(from..to).unwrap_or_default();
        (part.trim_start_matches('\u{feff}'), self.position(from).column)
    }

    /// How many characters of a span lie on its first line.
    pub(crate) fn length(&self, span: Span) -> usize {
        let (start, end) = (self.floor(span.start), self.floor(span.end));
        // More than a screen is never shown.
        let text = self.text.get(start..self.floor(end.min(start.saturating_add(1_000)))).unwrap_or_default();
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

/// Whether a byte of UTF-8 is the first of a character.
fn begins_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
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

    /// Whether a field named like `spec.resourceGroups[0].name` or `metadata.labels[a.b/c]` is written.
    pub fn has(&self, path: &str) -> bool {
        let steps = parse_path(path);
        self.nearest(&steps).1 == steps.len()
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
        assert_eq!(lines.excerpt(6), ("bé: c", 1));
        assert_eq!(lines.position(1000).line, 3);
    }

    #[test]
    fn a_byte_order_mark_is_no_column() {
        let lines = Lines::new("\u{feff}a: b");
        assert_eq!(lines.position(3), Position { line: 1, column: 1 });
        assert_eq!(lines.excerpt(3), ("a: b", 1));
    }

    #[test]
    fn very_long_lines_are_cut_around_the_place() {
        let text = format!("é\n{}x{}\ny", "é".repeat(5_000), "à".repeat(5_000));
        let lines = Lines::new(&text);
        let offset = text.find('x').unwrap();
        assert_eq!(lines.position(offset), Position { line: 2, column: 5_001 });
        let (part, column) = lines.excerpt(offset);
        assert!(part.len() <= 800 && part.chars().nth(5_001 - column) == Some('x'), "{part} {column}");
        assert_eq!(lines.position(text.len()), Position { line: 3, column: 2 });
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
