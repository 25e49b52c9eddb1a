//! What came of each suite, and how it is shown.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::Value;

/// What came of one case.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// As recorded.
    Pass,
    /// Not as recorded: the first difference.
    Fail(String),
    /// Not as recorded, and meant to be: why.
    Differs(String),
    /// The case is about something that is not compared here.
    NotRun,
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Fail, |()| Self::Pass)
    }
}

/// A difference unless both are equal; `what` says what they are.
pub(crate) fn expect_eq<T: PartialEq + Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}\n     got: {got:?}\n    want: {want:?}")) }
}

/// A difference unless two numbers agree to nine digits, or are both infinite.
pub(crate) fn expect_close(what: &str, got: f64, want: f64) -> Result<(), String> {
    let same = if want.is_finite() { (got - want).abs() <= 1e-9 * want.abs() } else { got.to_bits() == want.to_bits() };
    if same { Ok(()) } else { expect_eq(what, &got, &want) }
}

#[derive(Debug, Default)]
struct Row {
    name: String,
    passed: usize,
    /// Case and difference.
    failed: Vec<(String, String)>,
    /// Case and reason.
    differing: Vec<(String, String)>,
    /// Cases of a suite that nothing here knows how to run.
    not_run: usize,
}

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    filters: Vec<String>,
    rows: Vec<Row>,
    /// Files that could not be read.
    broken: Vec<String>,
}

impl Report {
    /// A report on what the filters select: cases whose `kind/suite/slug` contains one of them; all if there are none.
    pub(crate) fn new(filters: Vec<String>) -> Self {
        Self { filters, ..Self::default() }
    }

    /// Runs every case of a suite; a suite that is not in the corpus is left out. A panic in a case is a failure of that case.
    pub(crate) fn suite<F, O>(&mut self, corpus: &Path, kind: &str, suite: &str, mut run: F)
    where
        F: FnMut(&Value) -> O,
        O: Into<Outcome>,
    {
        let Some(cases) = self.load(corpus, kind, suite) else { return };
        let mut row = Row { name: format!("{kind}/{suite}"), ..Row::default() };
        for case in &cases {
            let id = case["id"].as_str().unwrap_or("?");
            let id = if id.starts_with(suite) { format!("{kind}/{id}") } else { format!("{kind}/{suite}/{id}") };
            if !self.selects(&id) {
                continue;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| run(case).into()))
                .unwrap_or_else(|cause| Outcome::Fail(format!("panicked: {}", panic_text(&*cause))));
            match outcome {
                Outcome::Pass => row.passed += 1,
                Outcome::Fail(difference) => row.failed.push((id, difference)),
                Outcome::Differs(reason) => row.differing.push((id, reason)),
                Outcome::NotRun => row.not_run += 1,
            }
        }
        if row.passed + row.failed.len() + row.differing.len() + row.not_run > 0 {
            self.rows.push(row);
        }
    }

    /// Lists the suites of a kind's folder that have not been run, so that none is dropped in silence. Call it last.
    pub(crate) fn note_rest(&mut self, corpus: &Path, kind: &str) {
        let known: BTreeSet<String> = self.rows.iter().map(|r| r.name.clone()).collect();
        let Ok(entries) = std::fs::read_dir(corpus.join(kind)) else { return };
        let mut names: Vec<String> = entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok()?.strip_suffix(".json").map(str::to_owned))
            .collect();
        names.sort();
        for suite in names {
            let name = format!("{kind}/{suite}");
            if known.contains(&name) || !self.selects(&name) {
                continue;
            }
            let not_run = self.load(corpus, kind, &suite).map_or(0, |cases| cases.len());
            self.rows.push(Row { name, not_run, ..Row::default() });
        }
    }

    /// Whether nothing failed.
    pub(crate) fn is_success(&self) -> bool {
        self.broken.is_empty() && self.rows.iter().all(|r| r.failed.is_empty())
    }

    /// The failures, then the table.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for text in &self.broken {
            writeln!(out, "\nBROKEN {text}")?;
        }
        for (id, difference) in self.rows.iter().flat_map(|r| &r.failed) {
            writeln!(out, "\nFAILED {id}\n  {}", difference.replace('\n', "\n  "))?;
        }
        for (id, reason) in self.rows.iter().flat_map(|r| &r.differing) {
            writeln!(out, "\nDIFFERS {id}: {reason}")?;
        }
        let width = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0).max(5);
        writeln!(out, "\n{:width$}  {:>6} {:>6} {:>7} {:>7}", "suite", "passed", "failed", "differs", "not run")?;
        let mut sum = [0_usize; 4];
        for row in &self.rows {
            let figures = [row.passed, row.failed.len(), row.differing.len(), row.not_run];
            for (all, one) in sum.iter_mut().zip(figures) {
                *all += one;
            }
            write_row(out, width, &row.name, figures)?;
        }
        write_row(out, width, "all", sum)
    }

    fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|f| name.contains(f.as_str()) || f.starts_with(name))
    }

    fn load(&mut self, corpus: &Path, kind: &str, suite: &str) -> Option<Vec<Value>> {
        let path = corpus.join(kind).join(format!("{suite}.json"));
        let text = std::fs::read_to_string(&path).ok()?;
        match serde_json::from_str::<Value>(&text) {
            Ok(mut file) => {
                if let Value::Array(cases) = file["cases"].take() {
                    return Some(cases);
                }
                self.broken.push(format!("{}: it has no list `cases`", path.display()));
                None
            }
            Err(error) => {
                self.broken.push(format!("{}: {error}", path.display()));
                None
            }
        }
    }
}

fn write_row(out: &mut impl Write, width: usize, name: &str, figures: [usize; 4]) -> io::Result<()> {
    let text = figures.map(|n| if n == 0 { "-".to_owned() } else { n.to_string() });
    writeln!(out, "{name:width$}  {:>6} {:>6} {:>7} {:>7}", text[0], text[1], text[2], text[3])
}

fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    cause
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
