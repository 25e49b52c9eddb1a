//! What holds for all rules and all inputs.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use slicegate_check::{Options, Report, Subject, check, json, rules, sarif, table, text};
use slicegate_manifest::{Severity, Source, load};

fn report_on(name: &str, text: &str, options: &Options) -> Report {
    let sources = [Source { name: name.into(), text: text.into(), ..Source::default() }];
    check(&load(&sources, &slicegate_manifest::Options::default()), &sources, options)
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|f| f.rule.code).collect()
}

#[test]
fn codes_are_unique_ordered_and_of_their_subject() {
    let all: Vec<&str> = rules().map(|r| r.code).collect();
    let sorted: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(all, sorted.into_iter().collect::<Vec<_>>());
    for rule in rules() {
        assert!(rule.code.len() == 6 && rule.code[2..].bytes().all(|b| b.is_ascii_digit()), "{rule:?}");
        assert!(rule.code.starts_with(rule.subject().prefix()), "{rule:?}");
        for text in [rule.title, rule.why, rule.source] {
            assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('|'), "{rule:?}");
        }
    }
    assert!(Subject::ALL.iter().all(|s| rules().any(|r| r.subject() == *s)));
}

/// `SLICEGATE_BLESS=1` writes the page anew.
#[test]
fn the_page_lists_all_rules() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/checks.md");
    if std::env::var_os("SLICEGATE_BLESS").is_some() {
        std::fs::write(&file, table()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), table(), "docs/checks.md is not up to date");
}

const QUEUE: &str = "\
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  name: team
  annotations: {slicegate.dev/allow: \"CODES\"}
spec:
  clusterQueue: nowhere
";

#[test]
fn what_is_allowed_is_not_reported() {
    let with = |codes: &str| QUEUE.replace("CODES", codes);
    assert_eq!(codes(&report_on("m", &with(""), &Options::default())), ["SG0301"]);
    for allowed in ["SG0301", "SG0999, SG0301", "SG0302 SG0301"] {
        let report = report_on("m", &with(allowed), &Options::default());
        assert_eq!((report.findings.len(), report.allowed), (0, 1), "{allowed}");
    }
    let mut options = Options::default();
    options.allow.insert("SG0301".to_owned());
    assert!(report_on("m", &with(""), &options).findings.is_empty());
    assert_eq!(codes(&report_on("m", &with("SG0302"), &Options::default())), ["SG0301"]);
}

#[test]
fn an_object_is_allowed_what_the_reader_finds_too() {
    let text = "\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: tpu, annotations: {slicegate.dev/allow: SG0012}}
spec: {namespaceSelector: {}, queueingStrategy: FIFO}
";
    assert!(report_on("m", text, &Options::default()).findings.is_empty());
    let without = text.replace("SG0012", "SG0011");
    assert_eq!(codes(&report_on("m", &without, &Options::default())), ["SG0012"]);
}

#[test]
fn objects_that_break_a_rule_of_the_api_are_checked_all_the_same() {
    let text = "\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: tpu}
spec:
  queueingStrategy: FIFO
  preemption: {reclaimWithinCohort: Any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team}
spec: {clusterQueue: tpu}
";
    assert_eq!(codes(&report_on("m", text, &Options::default())), ["SG0310", "SG0012", "SG0201"]);
}

#[test]
fn a_file_that_cannot_be_read_makes_nothing_dangle() {
    let broken = format!("{}---\nfoo: [\n", QUEUE.replace("CODES", ""));
    assert_eq!(codes(&report_on("m", &broken, &Options::default())), ["SG0001"]);
}

#[test]
fn notes_and_warnings_fail_only_if_denied() {
    let report = report_on("m", &QUEUE.replace("CODES", ""), &Options::default());
    assert_eq!(report.count(Severity::Warning), 1);
    assert!(!report.fails(false) && report.fails(true));
    assert!(report_on("m", "a: [", &Options::default()).fails(false));
}

#[test]
fn programs_get_the_same_findings() {
    let report = report_on("./jobs/a b.yaml", &QUEUE.replace("CODES", ""), &Options::default());
    let value = json(&report);
    assert_eq!(value["warnings"], 1);
    assert_eq!(value["findings"][0]["code"], "SG0301");
    assert_eq!(value["findings"][0]["line"], 7);
    assert_eq!(value["findings"][0]["path"], "spec.clusterQueue");
    let log = sarif(&report, "1.2.3");
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "SG0301");
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][index]["id"], "SG0301");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "jobs/a%20b.yaml");
    assert_eq!(place["region"]["startLine"], 7);
    assert_eq!(place["region"]["endColumn"].as_u64(), place["region"]["startColumn"].as_u64().map(|c| c + 7));
}

/// The parts of all case files: they hold every kind and most fields.
fn pieces() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|f| std::fs::read_to_string(f).unwrap());
    let documents = texts.flat_map(|t| t.split("---\n").map(str::to_owned).collect::<Vec<_>>());
    documents.filter(|d| d.len() < 4_000).collect()
}

fn everything(manifests: &str) {
    let report = report_on("m", manifests, &Options::default());
    let lines = manifests.lines().count();
    for finding in &report.findings {
        let d = &finding.diagnostic;
        assert!(d.line >= 1 && d.line <= lines + 1 && d.column >= 1 && d.length >= 1, "{d:?}");
    }
    let _ = (text(&report, true), json(&report), sarif(&report, "0"));
}

#[test]
fn whatever_fuzzing_found_is_checked() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folders = ["manifest", "check"].map(|name| corpus.join(name));
    let files = folders.iter().flat_map(|f| std::fs::read_dir(f).unwrap()).map(|e| e.unwrap().path());
    let mut count = 0;
    for file in files {
        everything(&String::from_utf8_lossy(&std::fs::read(&file).unwrap()));
        count += 1;
    }
    assert!(count > 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Objects of all cases in any mixture, with values changed.
    #[test]
    fn nothing_panics(
        chosen in proptest::collection::vec(any::<prop::sample::Index>(), 1..12),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![
            "0", "-1", "2147483647", "9223372036854775807", "1e30", "\"\"", "[]", "{}", "~", "x", "team", "tpu", "4x4", "true",
        ])), 0..6),
    ) {
        let pieces = pieces();
        let mut text = chosen.iter().map(|i| i.get(&pieces).as_str()).collect::<Vec<_>>().join("---\n");
        for (at, value) in changes {
            let colons: Vec<usize> = text.match_indices(": ").map(|(i, _)| i).collect();
            if colons.is_empty() {
                break;
            }
            let start = at.get(&colons) + 2;
            let end = text[start..].find(['\n', ',', '}']).map_or(text.len(), |i| start + i);
            text.replace_range(start..end, value);
        }
        everything(&text);
    }
}
