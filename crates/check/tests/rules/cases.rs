//! Every rule by its case file: manifests that are wrong, with marks that say where, and manifests that are right.
//!
//! A file has parts that begin with `#--- wrong` or `#--- right`; what follows on that line is a title. In a wrong part, a
//! comment with `^^^` below a line marks the span of a finding of the file's rule; `#@ 1 10` marks column 1, length 10 where a
//! comment does not reach. A part has no findings of other
//! rules but notes, and those that its title names as `also SG0301`.
//!
//! With `SLICEGATE_BLESS=1` the marks are written anew, to be looked at.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use slicegate_check::{Finding, Options, check, rules};
use slicegate_manifest::{Severity, Source, load};

/// Line, column and length.
type Mark = (usize, usize, usize);

struct Part {
    title: String,
    wrong: bool,
    text: String,
    marks: BTreeSet<Mark>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// The mark that a line is, if it is one.
fn mark(line: &str, above: usize) -> Option<Mark> {
    let trimmed = line.trim_start();
    let rest = trimmed.strip_prefix('#')?;
    if let Some(numbers) = rest.strip_prefix("@ ") {
        let (column, length) = numbers.split_once(' ')?;
        return Some((above, column.parse().ok()?, length.trim().parse().ok()?));
    }
    let carets = rest.trim();
    let all = !carets.is_empty() && carets.chars().all(|c| c == '^');
    all.then(|| (above, line.find('^').unwrap_or_default() + 1, carets.len()))
}

fn parts(text: &str) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("#--- ") {
            let wrong = title.starts_with("wrong");
            assert!(wrong || title.starts_with("right"), "{title}");
            all.push(Part { title: title.to_owned(), wrong, text: String::new(), marks: BTreeSet::new() });
            continue;
        }
        let part = all.last_mut().expect("a file begins with a part");
        if let Some(mark) = mark(line, part.text.lines().count()) {
            part.marks.insert(mark);
        } else {
            part.text.push_str(line);
            part.text.push('\n');
        }
    }
    all
}

fn look(part: &Part) -> Vec<Finding> {
    let sources = [Source { name: "case.yaml".into(), text: part.text.clone(), ..Source::default() }];
    let mut how = slicegate_manifest::Options::default();
    how.note_unknown_kinds = false;
    how.generated_names = true;
    check(&load(&sources, &how), &sources, &Options::default()).findings
}

fn show(findings: &[Finding]) -> String {
    findings.iter().map(|f| f.diagnostic.to_string() + "\n").collect()
}

fn place(finding: &Finding) -> Mark {
    (finding.diagnostic.line, finding.diagnostic.column, finding.diagnostic.length)
}

fn blessed(code: &str, parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        let _ = writeln!(out, "#--- {}", part.title);
        let found: Vec<Mark> = look(part).iter().filter(|f| part.wrong && f.rule.code == code).map(place).collect();
        for (i, line) in part.text.lines().enumerate() {
            let _ = writeln!(out, "{line}");
            for (_, column, length) in found.iter().filter(|(l, ..)| *l == i + 1) {
                if *column > 1 {
                    let _ = writeln!(out, "#{}{}", " ".repeat(column - 2), "^".repeat(*length));
                } else {
                    let _ = writeln!(out, "#@ {column} {length}");
                }
            }
        }
    }
    out
}

#[test]
fn every_rule_finds_what_is_wrong_and_nothing_else() {
    let bless = std::env::var_os("SLICEGATE_BLESS").is_some();
    let mut failures = String::new();
    for rule in rules() {
        let code = rule.code;
        let file = folder().join(format!("{code}.yaml"));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let parts = parts(&text);
        if bless {
            std::fs::write(&file, blessed(code, &parts)).unwrap();
        }
        if !(parts.iter().any(|p| p.wrong) && parts.iter().any(|p| !p.wrong)) {
            let _ = writeln!(failures, "{code}: there is no wrong or no right part");
        }
        for part in &parts {
            let findings = look(part);
            let (own, others): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(|f| f.rule.code == code);
            let expected = |f: &Finding| part.title.contains(&format!("also {}", f.rule.code));
            let others: Vec<Finding> =
                others.into_iter().filter(|f| f.diagnostic.severity != Severity::Note && !expected(f)).collect();
            let found: BTreeSet<Mark> = own.iter().map(place).collect();
            let bad = if part.wrong { found != part.marks || found.is_empty() } else { !own.is_empty() };
            if bad || !others.is_empty() {
                let _ = writeln!(
                    failures,
                    "{code}, {}: marked {:?}, found {found:?}\n{}{}",
                    part.title,
                    part.marks,
                    show(&own),
                    show(&others)
                );
            }
            for finding in &own {
                let d = &finding.diagnostic;
                if d.message.is_empty() || d.why.is_empty() || d.line == 0 {
                    let _ = writeln!(failures, "{code}: a finding says too little: {d}");
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn there_is_a_rule_for_every_file() {
    let codes: BTreeSet<String> = rules().map(|r| format!("{}.yaml", r.code)).collect();
    let files: BTreeSet<String> =
        std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, codes);
}
