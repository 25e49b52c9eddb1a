//! Runs the conformance corpus: recorded right answers, one JSON file a suite.
//!
//! The folder is named by the environment variable `SLICEGATE_CONFORMANCE`. It holds one folder a kind (`quota`, `flavor`, ...)
//! with one file a suite; kinds and suites that are not there are skipped. Without the variable nothing runs, and the output
//! says so. Arguments select by part of a name: `cargo test -p slicegate-tests --test conformance -- quota/available`.

mod cycle;
mod encoding;
mod flavor;
mod nodes;
mod placement;
mod preemption;
mod quota;
mod report;
mod setup;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use report::Report;

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let Some(corpus) = std::env::var_os("SLICEGATE_CONFORMANCE").map(PathBuf::from) else {
        let _ =
            writeln!(out, "\nSKIPPED: no conformance case was run, SLICEGATE_CONFORMANCE does not name the corpus\n");
        return ExitCode::SUCCESS;
    };
    if !corpus.is_dir() {
        let _ = writeln!(out, "\nSLICEGATE_CONFORMANCE is {}, which is not a folder\n", corpus.display());
        return ExitCode::FAILURE;
    }
    let filters = arguments.into_iter().filter(|a| !a.starts_with('-')).collect();
    let mut report = Report::new(filters);

    quota::run(&corpus, &mut report);
    encoding::run(&corpus, &mut report);
    placement::run(&corpus, &mut report);
    flavor::run(&corpus, &mut report);
    preemption::run(&corpus, &mut report);
    cycle::run(&corpus, &mut report);

    let _ = report.print(&mut out);
    if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
