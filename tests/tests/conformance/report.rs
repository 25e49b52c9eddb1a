//! What came of each suite, and how it is shown.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The case is about something that Slicegate leaves out: what.
    LeftOut(&'static str),
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
    /// Cases about what is left out, by what that is.
    left_out: BTreeMap<&'static str, usize>,
}

impl Row {
    /// Passed, failed, different on purpose, left out, not run.
    fn figures(&self) -> [usize; 5] {
        let left_out = self.left_out.values().sum();
        [self.passed, self.failed.len(), self.differing.len(), left_out, self.not_run]
    }
}

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    filters: Vec<String>,
    rows: Vec<Row>,
    /// Files that could not be read.
    broken: Vec<String>,
    /// Kinds that the corpus does not hold.
    skipped: Vec<String>,
}

impl Report {
    /// A report on what the filters select: cases whose `kind/suite/slug` contains one of them; all if there are none.
    pub(crate) fn new(filters: Vec<String>) -> Self {
        Self { filters, ..Self::default() }
    }

    /// Runs every case of a suite, on all cores; a suite that is not in the corpus is left out. A panic in a case is a failure
    /// of that case.
    pub(crate) fn suite<F, O>(&mut self, corpus: &Path, kind: &str, suite: &str, run: F)
    where
        F: Fn(&Value) -> O + Sync,
        O: Into<Outcome>,
    {
        let Some(cases) = self.load(corpus, kind, suite) else { return };
        let mut row = Row { name: format!("{kind}/{suite}"), ..Row::default() };
        let mut chosen = Vec::with_capacity(cases.len());
        for (position, case) in (1_usize..).zip(&cases) {
            let nameless = format!("case {position} without an id");
            let id = case["id"].as_str().unwrap_or(&nameless);
            let id = if id.starts_with(suite) { format!("{kind}/{id}") } else { format!("{kind}/{suite}/{id}") };
            if self.selects(&id) {
                chosen.push((id, case));
            }
        }
        let outcome = |case: &Value| {
            // Most runners read what is left out as nothing, and nothing would then be as recorded.
            if let Some(field) = ["id", "expect"].into_iter().find(|field| case[field].is_null()) {
                return Outcome::Fail(format!("the case has no `{field}`"));
            }
            catch_unwind(AssertUnwindSafe(|| run(case).into()))
                .unwrap_or_else(|cause| Outcome::Fail(format!("panicked: {}", panic_text(&*cause))))
        };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = chosen.len().div_ceil(threads).max(1);
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let parts: Vec<_> = chosen
                .chunks(share)
                .map(|part| scope.spawn(|| part.iter().map(|(_, case)| outcome(case)).collect::<Vec<_>>()))
                .collect();
            parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
        });
        assert_eq!(outcomes.len(), chosen.len(), "every case of {} came to something", row.name);
        for ((id, _), outcome) in chosen.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Pass => row.passed += 1,
                Outcome::Fail(difference) => row.failed.push((id, difference)),
                Outcome::Differs(reason) => row.differing.push((id, reason)),
                Outcome::NotRun => row.not_run += 1,
                Outcome::LeftOut(what) => *row.left_out.entry(what).or_default() += 1,
            }
        }
        if row.figures().iter().sum::<usize>() > 0 {
            self.rows.push(row);
        }
    }

    /// Counts the cases of a suite as left out; `what` is what they are about.
    pub(crate) fn leave_out(&mut self, corpus: &Path, kind: &str, suite: &str, what: &'static str) {
        self.suite(corpus, kind, suite, |_| Outcome::LeftOut(what));
    }

    /// Says that the corpus has no case of this kind.
    pub(crate) fn skip_kind(&mut self, kind: &str) {
        if self.selects(kind) {
            self.skipped.push(kind.to_owned());
        }
    }

    /// Lists the suites of a kind's folder that have not been run, so that none is dropped in silence. Call it last.
    pub(crate) fn note_rest(&mut self, corpus: &Path, kind: &str) {
        let known: BTreeSet<String> = self.rows.iter().map(|r| r.name.clone()).collect();
        for suite in suites(corpus, kind) {
            let name = format!("{kind}/{suite}");
            if known.contains(&name) || !self.selects(&name) {
                continue;
            }
            let not_run = self.load(corpus, kind, &suite).map_or(0, |cases| cases.len());
            self.rows.push(Row { name, not_run, ..Row::default() });
        }
    }

    /// Whether everything was asked for and nothing was there.
    fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.rows.iter().all(|r| r.passed + r.failed.len() + r.differing.len() == 0)
    }

    /// Whether something was run and nothing failed. Filters may select nothing.
    pub(crate) fn is_success(&self) -> bool {
        !self.is_empty() && self.broken.is_empty() && self.rows.iter().all(|r| r.failed.is_empty())
    }

    /// The table, after what is not as recorded: the first failure of a suite and how often each reason to differ came up, or
    /// with `verbose` every case.
    pub(crate) fn print(&self, out: &mut impl Write, corpus: &Path, verbose: bool) -> io::Result<()> {
        for text in &self.broken {
            writeln!(out, "\nBROKEN {text}")?;
        }
        for row in &self.rows {
            let shown = if verbose { row.failed.len() } else { 1 };
            for (id, difference) in row.failed.iter().take(shown) {
                writeln!(out, "\nFAILED {id}\n  {}", difference.replace('\n', "\n  "))?;
            }
            if row.failed.len() > shown {
                writeln!(out, "  ... and {} more of {}; --verbose shows them", row.failed.len() - shown, row.name)?;
            }
        }
        self.print_differing(out, verbose)?;
        self.print_left_out(out)?;
        writeln!(out, "\nCorpus: {}", corpus.display())?;
        self.print_table(out)?;
        if !self.skipped.is_empty() {
            writeln!(out, "\nSKIPPED: this corpus has no cases of {}", self.skipped.join(", "))?;
        }
        if self.is_empty() {
            writeln!(out, "\nNOTHING RUN: there is no case here that a runner knows")?;
        }
        Ok(())
    }

    fn print_differing(&self, out: &mut impl Write, verbose: bool) -> io::Result<()> {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, reason) in self.rows.iter().flat_map(|r| &r.differing) {
            reasons.entry(reason).or_default().push(id);
        }
        if !reasons.is_empty() {
            writeln!(out, "\nDifferent on purpose:")?;
        }
        for (reason, ids) in reasons {
            writeln!(out, "{:>5}  {reason}", ids.len())?;
            for id in ids.iter().filter(|_| verbose) {
                writeln!(out, "         {id}")?;
            }
        }
        Ok(())
    }

    fn print_left_out(&self, out: &mut impl Write) -> io::Result<()> {
        let mut all: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
        for row in &self.rows {
            for (what, count) in &row.left_out {
                let entry = all.entry(what).or_default();
                entry.0 += count;
                entry.1.push(&row.name);
            }
        }
        if !all.is_empty() {
            writeln!(out, "\nLeft out, see docs/differences.md:")?;
        }
        for (what, (count, suites)) in all {
            writeln!(out, "{count:>5}  {what}: {}", suites.join(", "))?;
        }
        Ok(())
    }

    fn print_table(&self, out: &mut impl Write) -> io::Result<()> {
        let width = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0).max(5);
        let head = ["passed", "failed", "differs", "left out", "not run"].map(str::to_owned);
        writeln!(out)?;
        write_row(out, width, "suite", &head)?;
        let mut sum = [0_usize; 5];
        for row in &self.rows {
            let figures = row.figures();
            for (all, one) in sum.iter_mut().zip(figures) {
                *all += one;
            }
            write_row(out, width, &row.name, &figures.map(written))?;
        }
        write_row(out, width, "all", &sum.map(written))
    }

    fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|f| name.contains(f.as_str()) || f.starts_with(name))
    }

    fn load(&mut self, corpus: &Path, kind: &str, suite: &str) -> Option<Vec<Value>> {
        let path = PLAIN_AND_COMPRESSED
            .iter()
            .map(|end| corpus.join(kind).join(format!("{suite}{end}")))
            .find(|path| path.is_file())?;
        match read_cases(&path) {
            Ok(cases) => Some(cases),
            Err(why) => {
                self.broken.push(format!("{}: {why}", path.display()));
                None
            }
        }
    }
}

/// How the name of a suite's file ends. The plain one is read if both are there.
const PLAIN_AND_COMPRESSED: [&str; 2] = [".json", ".json.xz"];

/// The names of the suites in a kind's folder, sorted.
pub(crate) fn suites(corpus: &Path, kind: &str) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(corpus.join(kind)) else { return BTreeSet::new() };
    entries
        .filter_map(|e| {
            let name = e.ok()?.file_name().into_string().ok()?;
            PLAIN_AND_COMPRESSED.iter().find_map(|end| name.strip_suffix(end)).map(str::to_owned)
        })
        .collect()
}

/// The cases of one file, which is compressed if its name says so.
fn read_cases(path: &Path) -> Result<Vec<Value>, String> {
    let mut bytes = std::fs::read(path).map_err(|why| why.to_string())?;
    if path.extension().is_some_and(|e| e == "xz") {
        let mut plain = Vec::new();
        lzma_rs::xz_decompress(&mut bytes.as_slice(), &mut plain).map_err(|why| format!("{why:?}"))?;
        bytes = plain;
    }
    let mut file: Value = serde_json::from_slice(&bytes).map_err(|why| why.to_string())?;
    match file["cases"].take() {
        Value::Array(cases) => Ok(cases),
        _ => Err("it has no list `cases`".to_owned()),
    }
}

fn written(figure: usize) -> String {
    if figure == 0 { "-".to_owned() } else { figure.to_string() }
}

fn write_row(out: &mut impl Write, width: usize, name: &str, figures: &[String; 5]) -> io::Result<()> {
    let [passed, failed, differs, left_out, not_run] = figures;
    writeln!(out, "{name:width$}  {passed:>6} {failed:>6} {differs:>7} {left_out:>8} {not_run:>7}")
}

fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    cause
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
