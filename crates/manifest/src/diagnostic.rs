//! What is wrong with a manifest, and how it is shown.

use std::fmt::{self, Write as _};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Probably not meant.
    Warning,
    /// The object cannot be used.
    Error,
}

/// What sort of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    /// The text is neither YAML nor JSON.
    Syntax,
    /// A key is written twice.
    DuplicateKey,
    /// A number or key that JSON cannot hold, or an unknown tag.
    UnsupportedYaml,
    /// Too deep or too large once its aliases are filled in.
    TooLarge,
    /// The document is not an object.
    NotAnObject,
    /// `apiVersion` or `kind` is missing.
    MissingType,
    /// A kind that is not read.
    UnknownKind,
    /// A version that is not read.
    UnknownVersion,
    /// A variable that has no value.
    UnsetVariable,
    /// A field that does not exist.
    UnknownField,
    /// A field that must be there.
    MissingField,
    /// A field of the wrong type.
    WrongType,
    /// A value that is not allowed.
    InvalidValue,
    /// A name that nothing has.
    DanglingReference,
    /// A TPU shape or machine type that does not exist.
    UnknownShape,
    /// Nodes that pods look for and that cannot exist.
    UnmatchedSelector,
    /// Pods that do not fill the hosts of their slices.
    HostMismatch,
    /// A rule of whoever finds more than reading can, by its name.
    Rule(&'static str),
}

impl Code {
    /// Its name, such as `unknown-field`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::DuplicateKey => "duplicate-key",
            Self::UnsupportedYaml => "unsupported-yaml",
            Self::TooLarge => "too-large",
            Self::NotAnObject => "not-an-object",
            Self::MissingType => "missing-type",
            Self::UnknownKind => "unknown-kind",
            Self::UnknownVersion => "unknown-version",
            Self::UnsetVariable => "unset-variable",
            Self::UnknownField => "unknown-field",
            Self::MissingField => "missing-field",
            Self::WrongType => "wrong-type",
            Self::InvalidValue => "invalid-value",
            Self::DanglingReference => "dangling-reference",
            Self::UnknownShape => "unknown-shape",
            Self::UnmatchedSelector => "unmatched-selector",
            Self::HostMismatch => "host-mismatch",
            Self::Rule(name) => name,
        }
    }
}

/// Something wrong with a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What sort it is.
    pub code: Code,
    /// The name of the source.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// How many characters of the line are meant, at least 1.
    pub length: usize,
    /// The line itself; of a very long one, the part around the column.
    pub text: String,
    /// The column at which `text` begins, from 1.
    pub text_column: usize,
    /// The object as `ClusterQueue cluster-queue`, empty if it cannot be told.
    pub object: String,
    /// The field, empty if it is none.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// Why it matters; may be empty.
    pub why: String,
    /// What to write instead; may be empty.
    pub help: String,
}

impl Diagnostic {
    /// The same with what to write instead.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The diagnostic as text of several lines, with ANSI colours if asked for.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out, Paint { on: colour });
        out
    }

    fn write(&self, out: &mut String, paint: Paint) -> fmt::Result {
        let (word, hue) = match self.severity {
            Severity::Error => ("error", "1;31"),
            Severity::Warning => ("warning", "1;33"),
            Severity::Note => ("note", "1;36"),
        };
        let head = paint.with(hue, &format!("{word}[{}]", self.code.as_str()));
        writeln!(out, "{head}{}", paint.with("1", &format!(": {}", printable(&self.message))))?;
        let gutter = self.line.to_string().len();
        let bar = paint.with("1;34", "|");
        let pad = " ".repeat(gutter);
        let arrow = paint.with("1;34", "-->");
        writeln!(out, "{pad}{arrow} {}:{}:{}", printable(&self.file), self.line, self.column)?;
        let shown = Excerpt::of(&self.text, self.column.saturating_sub(self.text_column), self.length);
        writeln!(out, "{pad} {bar}")?;
        writeln!(out, "{} {bar} {}", paint.with("1;34", &self.line.to_string()), shown.text)?;
        let marks = paint.with(hue, &"^".repeat(shown.length));
        writeln!(out, "{pad} {bar} {}{marks}", " ".repeat(shown.before))?;
        let equals = paint.with("1;34", "=");
        if !self.object.is_empty() {
            let place = if self.path.is_empty() { String::new() } else { format!(", {}", printable(&self.path)) };
            writeln!(out, "{pad} {equals} in {}{place}", printable(&self.object))?;
        }
        if !self.why.is_empty() {
            writeln!(out, "{pad} {equals} {} {}", paint.with("1", "why:"), printable(&self.why))?;
        }
        if !self.help.is_empty() {
            writeln!(out, "{pad} {equals} {} {}", paint.with("1", "help:"), printable(&self.help))?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

#[derive(Clone, Copy)]
struct Paint {
    on: bool,
}

impl Paint {
    fn with(self, codes: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{codes}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Control characters would move the cursor or colour the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The part of a line that is shown.
struct Excerpt {
    text: String,
    before: usize,
    length: usize,
}

impl Excerpt {
    /// Characters shown at most.
    const WIDTH: usize = 160;

    /// `at` is how many characters of the line come before the span.
    fn of(line: &str, at: usize, length: usize) -> Self {
        // The span comes into view with a little of what is before it.
        let skip = if at >= Self::WIDTH { at.saturating_sub(40) } else { 0 };
        let text: String = line
            .chars()
            .skip(skip)
            .take(Self::WIDTH)
            .map(|c| match c {
                '\t' => ' ',
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect();
        let before = at.saturating_sub(skip);
        let room = text.chars().count().saturating_sub(before).max(1);
        Self { text, before, length: length.clamp(1, room) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code: Code::WrongType,
            file: "queues.yaml".into(),
            line: 12,
            column: 9,
            length: 3,
            text: "  name: 123".into(),
            text_column: 1,
            object: "ClusterQueue cq".into(),
            path: "spec.cohortName".into(),
            message: "expected a string, found the number 123".into(),
            why: String::new(),
            help: "put it in quotes: \"123\"".into(),
        }
    }

    #[test]
    fn is_rendered_with_the_line_underlined() {
        assert_eq!(
            sample().to_string(),
            "error[wrong-type]: expected a string, found the number 123\n  \
               --> queues.yaml:12:9\n   \
                |\n\
             12 |   name: 123\n   \
                |         ^^^\n   \
                = in ClusterQueue cq, spec.cohortName\n   \
                = help: put it in quotes: \"123\"\n"
        );
    }

    #[test]
    fn says_why_it_matters() {
        let d = Diagnostic { code: Code::Rule("SG0001"), why: "it matters".into(), ..sample() };
        let text = d.to_string();
        assert!(text.starts_with("error[SG0001]: "), "{text}");
        assert!(text.contains("   = why: it matters\n   = help: put"), "{text}");
    }

    #[test]
    fn colours_do_not_change_the_text() {
        let coloured = sample().render(true);
        assert!(coloured.contains("\u{1b}[1;31m"));
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some(at) = rest.find('\u{1b}') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            rest = &rest[rest.find('m').unwrap() + 1..];
        }
        plain.push_str(rest);
        assert_eq!(plain, sample().render(false));
    }

    #[test]
    fn a_long_line_is_cut_around_the_span() {
        let d = Diagnostic { text: "x".repeat(1000) + "bad" + &"y".repeat(1000), column: 1001, ..sample() };
        let text = d.to_string();
        let cut = Diagnostic { text: "xxbad".into(), text_column: 999, column: 1001, ..sample() }.to_string();
        assert!(cut.contains("| xxbad") && cut.contains("|   ^^^"), "{cut}");
        assert!(text.contains("bad") && text.lines().all(|l| l.chars().count() < 200), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let d = Diagnostic {
            file: "f\u{1b}[31m".into(),
            text: "a\u{1b}[31mb".into(),
            message: "m\u{7}".into(),
            ..sample()
        };
        assert!(!d.to_string().contains(['\u{1b}', '\u{7}']));
    }
}
