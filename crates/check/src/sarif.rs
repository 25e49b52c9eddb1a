//! Reports in SARIF 2.1.0, for code scanning.

use std::fmt::Write as _;

use serde_json::{Value, json};
use slicegate_manifest::Severity;

use crate::rule::Finding;
use crate::{Report, rules};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The report as a SARIF 2.1.0 log. Relative paths of files become relative URIs; `version` is that of the program.
pub fn sarif(report: &Report, version: &str) -> Value {
    let all: Vec<&'static crate::Rule> = rules().collect();
    let descriptors: Vec<Value> = all
        .iter()
        .map(|rule| {
            json!({
                "id": rule.code,
                "shortDescription": {"text": rule.title},
                "fullDescription": {"text": format!("{}: {}.", rule.title, rule.why)},
                "help": {"text": crate::explain(rule.code).unwrap_or_default()},
                "defaultConfiguration": {"level": level(rule.severity)},
                "properties": {"tags": [rule.subject().title()]},
            })
        })
        .collect();
    let index = |finding: &Finding| all.iter().position(|rule| rule.code == finding.rule.code);
    let results: Vec<Value> = report.findings.iter().map(|finding| result(finding, index(finding))).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "slicegate check", "version": version, "semanticVersion": version, "rules": descriptors}},
            // Columns count characters of Unicode, not UTF-16 units.
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(finding: &Finding, index: Option<usize>) -> Value {
    let d = &finding.diagnostic;
    let help = if d.help.is_empty() { String::new() } else { format!(" {}", sentence(&d.help)) };
    let mut result = json!({
        "ruleId": finding.rule.code,
        "level": level(d.severity),
        "message": {"text": format!("{}{help}", sentence(&d.message))},
        "locations": [{
            "physicalLocation": {
                "artifactLocation": {"uri": uri(&d.file)},
                "region": {
                    "startLine": d.line,
                    "startColumn": d.column,
                    "endLine": d.line,
                    "endColumn": d.column.saturating_add(d.length),
                },
            },
        }],
    });
    let name = format!("{} {}", d.object, d.path);
    if let Some(location) = result.pointer_mut("/locations/0").filter(|_| !name.trim().is_empty()) {
        location["logicalLocations"] = json!([{"fullyQualifiedName": name.trim(), "kind": "object"}]);
    }
    if let (Some(index), Some(fields)) = (index, result.as_object_mut()) {
        fields.insert("ruleIndex".to_owned(), index.into());
    }
    result
}

/// With a full stop unless it is a question, and with a capital unless it begins with what is written small: a field, a code.
fn sentence(text: &str) -> String {
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    let word = text.split(' ').next().unwrap_or_default();
    let plain = word.trim_end_matches([',', ':', ';']).chars().all(|c| c.is_ascii_lowercase());
    let mut chars = text.chars();
    let first = chars.next().filter(|_| plain).map(|c| c.to_ascii_uppercase());
    match first {
        Some(first) => format!("{first}{}{end}", chars.as_str()),
        None => format!("{text}{end}"),
    }
}

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// A path as a URI reference: relative if the path is.
fn uri(path: &str) -> String {
    let path = path.replace('\\', "/");
    let path = path.strip_prefix("./").unwrap_or(&path);
    let mut out = String::new();
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_become_sentences() {
        assert_eq!(sentence("there is no ClusterQueue a"), "There is no ClusterQueue a.");
        assert_eq!(sentence("did you mean v5e?"), "Did you mean v5e?");
        assert_eq!(sentence("minReplicas 2 is more than maxReplicas 1"), "minReplicas 2 is more than maxReplicas 1.");
        assert_eq!(sentence("flavor f, and no more."), "Flavor f, and no more.");
        assert_eq!(sentence("ct5lp-hightpu-4t makes 4x4"), "ct5lp-hightpu-4t makes 4x4.");
        assert_eq!(sentence("élan"), "élan.");
        assert_eq!(sentence(""), ".");
    }

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("./jobs/a b.yaml"), "jobs/a%20b.yaml");
        assert_eq!(uri("/x/y.yaml"), "file:///x/y.yaml");
        assert_eq!(uri("é:1.yaml"), "%C3%A9%3A1.yaml");
    }
}
