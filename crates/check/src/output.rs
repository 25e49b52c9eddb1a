//! Reports for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use slicegate_manifest::Severity;

use crate::Report;
use crate::explain::severity;

/// The report as text for people, with ANSI colours if asked for.
pub fn text(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", finding.diagnostic.render(colour));
    }
    let counts = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let counts: Vec<String> = counts
        .iter()
        .map(|(severity, word)| (report.count(*severity), *word))
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}{}", if n == 1 { "" } else { "s" }))
        .collect();
    let found = if counts.is_empty() { "nothing found".to_owned() } else { counts.join(", ") };
    let allowed = if report.allowed > 0 { format!(" ({} allowed)", report.allowed) } else { String::new() };
    let _ = writeln!(out, "{found}{allowed}");
    let mut codes: Vec<&str> = report.findings.iter().map(|f| f.rule.code).collect();
    codes.sort_unstable();
    codes.dedup();
    if let Some(first) = codes.first() {
        let _ = writeln!(out, "`slicegate check --explain {first}` tells more about a code");
    }
    out
}

/// The report as JSON: `findings`, each with `code`, `severity`, `title`, `file`, `line`, `column`, `length`, `object`, `path`,
/// `message`, `why` and `help`; and the `errors`, `warnings`, `notes` and `allowed` counted.
pub fn json(report: &Report) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            let d = &finding.diagnostic;
            json!({
                "code": finding.rule.code,
                "severity": severity(d.severity),
                "title": finding.rule.title,
                "file": d.file,
                "line": d.line,
                "column": d.column,
                "length": d.length,
                "object": d.object,
                "path": d.path,
                "message": d.message,
                "why": d.why,
                "help": d.help,
            })
        })
        .collect();
    json!({
        "findings": findings,
        "errors": report.count(Severity::Error),
        "warnings": report.count(Severity::Warning),
        "notes": report.count(Severity::Note),
        "allowed": report.allowed,
    })
}
