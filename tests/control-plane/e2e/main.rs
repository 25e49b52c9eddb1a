//! The tests on a real control plane: `cargo run -p xtask -- e2e [FILTER...]`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod controller;
mod deletion;
mod harness;
mod life;
mod likeness;
mod load;
mod objects;
mod peer;
mod policy;
mod preemption;
mod provisioning;
mod queues;
mod recordings;
mod running;
mod scene;
mod suite;
mod survival;
mod tutorials;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use slicegate_control_plane::{Error, build, guard};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use suite::{Suite, Test};

const HELP: &str = "\
Tests on a real control plane.

    e2e [FILTER...]   those whose names contain one of the FILTERs; without, all of them
    e2e --list        their names
    e2e --build       only build the control plane's programs
    e2e --keep        keep the logs of tests that pass, too
    e2e --kueue       those that need Kueue itself, too: it is built for five minutes more the first time

Environment: SLICEGATE_CACHE (else XDG_CACHE_HOME or ~/.cache) holds the built programs, SLICEGATE_SHARED the tutorials' files and
the recordings, SLICEGATE_BIN the program under test (else the one beside this program).";

/// How long one test may take.
const LIMIT: Duration = Duration::from_mins(3);
/// How long one with many jobs may take.
const LOAD_LIMIT: Duration = Duration::from_mins(40);

/// All tests, in order.
fn all() -> Vec<&'static Test> {
    let modules = [
        harness::TESTS,
        policy::TESTS,
        controller::TESTS,
        running::TESTS,
        survival::TESTS,
        tutorials::TESTS,
        preemption::TESTS,
        provisioning::TESTS,
        queues::TESTS,
        deletion::TESTS,
        life::TESTS,
        peer::TESTS,
        load::TESTS,
    ];
    modules.into_iter().flatten().collect()
}

fn main() -> ExitCode {
    guard::become_guard_if_asked();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    if has("--help") || has("-h") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if has("--list") {
        for test in all() {
            println!("{}", test.name);
        }
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let chosen = |test: &&Test| filters.is_empty() || filters.iter().any(|f| test.name.contains(f.as_str()));
    let tests: Vec<&Test> = all().into_iter().filter(chosen).collect();
    if tests.is_empty() {
        eprintln!("no test has a name that contains {filters:?}; `e2e --list` prints their names");
        return ExitCode::from(2);
    }
    let programs = match build::programs(&mut |what| println!("{what}")) {
        Ok(programs) => Arc::new(programs),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let kueue = if has("--kueue") {
        match build::kueue(&mut |what| println!("{what}")) {
            Ok(kueue) => Some(kueue),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        }
    } else {
        None
    };
    if has("--build") {
        return ExitCode::SUCCESS;
    }
    let folder = std::env::temp_dir().join(format!("slicegate-e2e-{}", std::process::id()));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let failed = runtime.block_on(async {
        let suite = Suite::new(programs, kueue, folder.clone());
        tokio::select! {
            failed = run(suite, &tests) => Some(failed),
            () = interrupted() => None,
        }
    });
    match failed {
        Some(0) => {
            if !has("--keep") {
                let _ = std::fs::remove_dir_all(&folder);
            }
            ExitCode::SUCCESS
        }
        Some(_) => ExitCode::FAILURE,
        None => {
            eprintln!("interrupted; logs: {}", folder.display());
            ExitCode::from(130)
        }
    }
}

/// SIGINT or SIGTERM has come.
async fn interrupted() {
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

/// Runs tests and says how each went, and how many failed. One that fails is run once more, since a machine that is busy with other
/// things can make any wait too long; it is said at the end which those were.
async fn run(mut suite: Suite, tests: &[&Test]) -> usize {
    let began = Instant::now();
    let (mut failed, mut at_second_try) = (Vec::new(), Vec::new());
    let mut skipped = 0;
    for test in tests {
        for last in [false, true] {
            let since = Instant::now();
            let logs = suite.begin(test.name);
            let outcome = attempt(&mut suite, test).await;
            let seconds = since.elapsed().as_secs_f64();
            match outcome {
                Ok(()) if suite.skipped().is_some() => {
                    skipped += 1;
                    println!("SKIPPED            {}: {}", test.name, suite.skipped().unwrap_or_default());
                }
                Ok(()) => {
                    println!("passed  {seconds:6.1} s  {}", test.name);
                    if last {
                        at_second_try.push(test.name);
                    }
                }
                Err(error) => {
                    println!("FAILED  {seconds:6.1} s  {}\n        logs: {}", test.name, show(&logs));
                    println!("        {}", error.to_string().replace('\n', "\n        "));
                    suite.distrust();
                    if last {
                        failed.push(test.name);
                    }
                    continue;
                }
            }
            break;
        }
    }
    drop(suite);
    if skipped > 0 {
        println!("\n!! {skipped} SKIPPED");
    }
    for name in &at_second_try {
        println!("\n!! passed only at the second try: {name}");
    }
    let passed = tests.len() - failed.len() - skipped;
    println!("\n{passed} passed, {} failed ({:.0} s)", failed.len(), began.elapsed().as_secs_f64());
    for name in &failed {
        println!("    failed: {name}");
    }
    failed.len()
}

/// Runs a test within its time.
async fn attempt(suite: &mut Suite, test: &Test) -> slicegate_control_plane::Result<()> {
    let limit = if test.name.starts_with("load_") { LOAD_LIMIT } else { LIMIT };
    match tokio::time::timeout(limit, AssertUnwindSafe((test.run)(suite)).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Error::new(format!("panicked: {}", message(panic.as_ref())))),
        Err(_) => Err(Error::new(format!("did not end within {limit:?}"))),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

fn show(logs: &[PathBuf]) -> String {
    let logs: Vec<String> = logs.iter().map(|l| l.display().to_string()).collect();
    logs.join(" and ")
}
