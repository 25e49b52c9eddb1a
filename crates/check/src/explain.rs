//! More about a rule: why, a wrong and a right example, and where it comes from.

use std::fmt::Write as _;

use slicegate_manifest::Severity;

use crate::rule::{Rule, Subject};
use crate::rules;

/// A code that no rule has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownCode {
    /// What was asked for.
    pub code: String,
    /// The codes nearest to it, best first.
    pub nearest: Vec<&'static str>,
}

impl std::fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no rule {}; the nearest codes are {}", self.code, self.nearest.join(", "))
    }
}

impl std::error::Error for UnknownCode {}

/// What there is to say about the rule with a code.
///
/// # Errors
/// If there is no such rule.
pub fn explain(code: &str) -> Result<String, UnknownCode> {
    let rule = rules::by_code(code.trim()).ok_or_else(|| unknown(code.trim()))?;
    let mut out = format!("{}: {}\n\n", rule.code, rule.title);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "Severity: {}.", severity(rule.severity));
    let _ = writeln!(out, "Why: {}.", rule.why);
    for (title, kind) in [("Wrong", "wrong"), ("Right", "right")] {
        if let Some(example) = example(rule, kind) {
            let _ = writeln!(out, "\n{title}:\n");
            for line in example {
                let _ = writeln!(out, "{}", format!("    {line}").trim_end());
            }
        }
    }
    let _ = writeln!(out, "\nSource: {}.", rule.source);
    let _ = writeln!(
        out,
        "Where it is meant to be so: `--allow {}`, or the annotation `slicegate.dev/allow: {}` on the object.",
        rule.code, rule.code
    );
    Ok(out)
}

/// All rules as a Markdown document.
pub fn table() -> String {
    let mut out = String::from(
        "# What `slicegate check` finds\n\n\
         `slicegate check --explain SG0301` tells more about a rule, with a wrong and a right example. A code is never given to \
         another\nrule. Errors and denied warnings make the exit status 1; notes never do.\n\n\
         Where it is meant to be so, `--allow SG0301` turns a rule off, and the annotation `slicegate.dev/allow: SG0301` on an \
         object\n(several codes are separated by commas) turns it off for that object.\n",
    );
    for subject in Subject::ALL {
        let _ = write!(
            out,
            "\n## {} (`{}xx`)\n\n| code | severity | what | why it matters |\n|---|---|---|---|\n",
            subject.title(),
            subject.prefix()
        );
        for rule in rules::all().filter(|r| r.subject() == subject) {
            let _ = writeln!(out, "| {} | {} | {} | {} |", rule.code, severity(rule.severity), rule.title, rule.why);
        }
    }
    out
}

pub(crate) const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// The first wrong or right example of a rule's case file, without the marks.
fn example(rule: &Rule, kind: &str) -> Option<Vec<&'static str>> {
    let mut lines = rule.cases.lines().skip_while(|line| !is_head(line, kind)).skip(1).peekable();
    lines.peek()?;
    let body = lines.take_while(|line| !line.starts_with("#---"));
    Some(body.filter(|line| !is_mark(line)).collect())
}

fn is_head(line: &str, kind: &str) -> bool {
    line.strip_prefix("#--- ").is_some_and(|rest| rest.split([' ', ':']).next() == Some(kind))
}

/// Marks tell the tests where a finding is.
fn is_mark(line: &str) -> bool {
    let trimmed = line.trim_start();
    trimmed.strip_prefix('#').is_some_and(|rest| rest.trim_start().starts_with(['^', '@']))
}

fn unknown(code: &str) -> UnknownCode {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let number = |text: &str| digits(text).parse::<i64>().unwrap_or(0);
    let wanted = code.to_ascii_uppercase();
    let mut all: Vec<&'static str> = rules::all().map(|r| r.code).collect();
    all.sort_by_key(|known| {
        let different = known.chars().zip(wanted.chars()).filter(|(a, b)| a != b).count();
        let length = known.len().abs_diff(wanted.len());
        (different.saturating_add(length), number(known).abs_diff(number(code)))
    });
    all.truncate(3);
    UnknownCode { code: code.to_owned(), nearest: all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_explained() {
        for rule in rules::all() {
            let text = explain(&rule.code.to_lowercase()).unwrap();
            for part in [rule.code, rule.title, rule.why, "Wrong:", "Right:", rule.source] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert!(!text.contains("^^") && !text.contains("#---"), "{text}");
        }
    }

    #[test]
    fn near_codes_are_named() {
        let unknown = explain("SG0302x").unwrap_err();
        assert_eq!(unknown.nearest[0], "SG0302");
        assert!(explain("SG0300").unwrap_err().nearest.contains(&"SG0301"));
        assert_eq!(explain("").unwrap_err().nearest.len(), 3);
    }
}
