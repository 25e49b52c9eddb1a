//! `${NAME}` in a text.

use std::collections::BTreeMap;

use crate::position::Span;

/// Stand for `${` and `}` of a variable without a value while the text is parsed, so that it does not look like the start of a
/// mapping. They are noncharacters of Unicode, which no text has a use for.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

/// A text whose variables are filled in.
pub(crate) struct Filled {
    pub(crate) text: String,
    /// Where it differs from the text it was made from, in order.
    edits: Vec<Edit>,
}

struct Edit {
    before: Span,
    after: Span,
}

impl Filled {
    /// Puts the values of `env` in place of `${NAME}`, before anything is parsed, as `envsubst` does.
    pub(crate) fn new(text: &str, env: &BTreeMap<String, String>) -> Self {
        let mark = !text.contains([OPEN, CLOSE]);
        let mut out = String::with_capacity(text.len());
        let mut edits = Vec::new();
        let mut at = 0;
        while let Some((span, name)) = next_variable(text, at) {
            let value = match env.get(name) {
                Some(value) => value.clone(),
                None if mark => format!("{OPEN}{name}{CLOSE}"),
                None => format!("${{{name}}}"),
            };
            out.push_str(text.get(at..span.start).unwrap_or_default());
            let start = out.len();
            out.push_str(&value);
            edits.push(Edit { before: span, after: Span::new(start, out.len()) });
            at = span.end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        Self { text: out, edits }
    }

    /// Where a place of the filled text was in the original.
    pub(crate) fn original(&self, offset: usize) -> usize {
        let next = self.edits.partition_point(|e| e.after.start <= offset);
        let Some(edit) = next.checked_sub(1).and_then(|i| self.edits.get(i)) else { return offset };
        if offset < edit.after.end {
            edit.before.start
        } else {
            edit.before.end.saturating_add(offset.saturating_sub(edit.after.end))
        }
    }

    /// Where a span of the filled text was in the original.
    pub(crate) fn original_span(&self, span: Span) -> Span {
        let start = self.original(span.start);
        // The end is the place after the last byte, so that a span that ends in a value takes all of the variable.
        let next = self.edits.partition_point(|e| e.after.start < span.end);
        let end = match next.checked_sub(1).and_then(|i| self.edits.get(i)) {
            Some(edit) if span.end <= edit.after.end => edit.before.end,
            _ => self.original(span.end),
        };
        Span::new(start, end)
    }
}

/// The next `${NAME}` at or after a place. One behind another `$` is left alone, as are all other uses of `$`.
fn next_variable(text: &str, from: usize) -> Option<(Span, &str)> {
    let mut at = from;
    loop {
        let start = at.checked_add(text.get(at..)?.find("${")?)?;
        at = start.checked_add(2)?;
        let escaped = start.checked_sub(1).and_then(|i| text.as_bytes().get(i)).is_some_and(|b| *b == b'$');
        let rest = text.get(at..)?;
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if !escaped && after.starts_with('}') && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
            let end = at.checked_add(end)?.checked_add(1)?;
            return Some((Span::new(start, end), name));
        }
    }
}

/// Whether a variable without a value is in a text.
pub(crate) fn has_unset(text: &str) -> bool {
    text.contains(OPEN)
}

/// The names of the variables without a value in a text.
pub(crate) fn unset(text: &str) -> Vec<&str> {
    let parts = text.split(OPEN).skip(1);
    parts.filter_map(|p| p.split_once(CLOSE)).map(|(name, _)| name).collect()
}

/// The text as it was written.
pub(crate) fn restore(text: &str) -> String {
    text.replace(OPEN, "${").replace(CLOSE, "}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> BTreeMap<String, String> {
        [("A".into(), "long value".into()), ("B".into(), String::new())].into()
    }

    #[test]
    fn known_variables_are_filled() {
        assert_eq!(Filled::new("x-${A}-${B}-y", &env()).text, "x-long value--y");
    }

    #[test]
    fn shell_and_kubernetes_forms_are_left_alone() {
        for text in ["$A", "$${A}", "${A:-x}", "${1}", "${}", "$(A)", "${A", "${A B}", "$$"] {
            assert_eq!(Filled::new(text, &env()).text, text);
        }
    }

    #[test]
    fn unknown_ones_are_marked_and_restored() {
        let filled = Filled::new("a: [${X}, ${Y}]", &env());
        assert_eq!(unset(&filled.text), ["X", "Y"]);
        assert_eq!(restore(&filled.text), "a: [${X}, ${Y}]");
        assert!(!has_unset(&Filled::new("a: [${X}] \u{fdd0}", &env()).text.replace('\u{fdd0}', "")));
    }

    #[test]
    fn places_lead_back_to_the_original() {
        let text = "a: ${A}, b: ${B}, c";
        let filled = Filled::new(text, &env());
        let at = |needle: &str| filled.text.find(needle).unwrap();
        assert_eq!(filled.original(at("long")), 3);
        assert_eq!(filled.original(at("value")), 3);
        assert_eq!(filled.original(at(", b")), text.find(", b").unwrap());
        assert_eq!(filled.original(at("c")), text.find('c').unwrap());
        assert_eq!(filled.original_span(Span::new(3, 13)), Span::new(3, 7));
        assert_eq!(filled.original(0), 0);
    }
}
