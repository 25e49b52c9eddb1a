//! Runs the conformance corpus: recorded right answers, one JSON file a suite.
//!
//! A corpus is a folder with one folder a kind (`quota`, `flavor`, ...) and in it one file a suite, `SUITE.json` or
//! `SUITE.json.xz`. The environment variable `SLICEGATE_CONFORMANCE` names one; without it the part that is kept in this
//! repository is run. Kinds and suites that are not there are skipped, and the output says which.
//!
//! Arguments select by part of a name, `--verbose` shows every case that is not as recorded:
//! `cargo test -p slicegate-tests --test conformance -- quota/available --verbose`.

mod cycle;
mod defaulting;
mod encoding;
mod fixtures;
mod flavor;
mod foreign;
mod jobs;
mod lifecycle;
mod nodes;
mod placement;
mod preemption;
mod queues;
mod quota;
mod reconcile;
mod report;
mod setup;
mod validation;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use report::Report;

/// Every kind that there is, with what runs it. What has no runner is listed as not run.
const KINDS: [(&str, &[Runner]); 9] = [
    ("quota", &[queues::run, quota::run]),
    ("flavor", &[flavor::run]),
    ("preemption", &[preemption::run]),
    ("cycle", &[cycle::run]),
    ("random", &[cycle::run]),
    ("placement", &[encoding::run, placement::run]),
    ("jobs", &[jobs::run, defaulting::of_jobs, reconcile::of_jobs, foreign::run]),
    ("checks", &[lifecycle::run, reconcile::of_workloads, foreign::run]),
    ("validation", &[validation::run, defaulting::of_validation, foreign::run]),
];

type Runner = fn(&Path, &str, &mut Report);

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let corpus = std::env::var_os("SLICEGATE_CONFORMANCE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"), PathBuf::from);
    if !corpus.is_dir() {
        let _ = writeln!(out, "\nThe corpus would be {}, which is not a folder\n", corpus.display());
        return ExitCode::FAILURE;
    }
    let verbose = arguments.iter().any(|a| a == "--verbose");
    let filters = arguments.into_iter().filter(|a| !a.starts_with('-')).collect();
    let mut report = Report::new(filters);

    for (kind, runners) in KINDS {
        if corpus.join(kind).is_dir() {
            for run in runners {
                run(&corpus, kind, &mut report);
            }
            report.note_rest(&corpus, kind);
        } else {
            report.skip_kind(kind);
        }
    }
    let _ = report.print(&mut out, &corpus, verbose);
    if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
