//! Chores of the Slicegate workspace. `cargo run -p xtask -- help` lists them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod fuzz;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Chores of the Slicegate workspace.

    cargo run -p xtask -- tidy              what no compiler checks: dependency directions, crates that build alone,
                                            versions in one place, texts that must stay true
    cargo run -p xtask -- fuzz [TARGET...] [--seconds N]
                                            build the fuzz targets with coverage and run each for N seconds (default 60)
    cargo run -p xtask -- fuzz --replay     build them plainly and replay their corpus
    cargo run -p xtask -- e2e [FILTER...]   run the tests on a real control plane, those whose names contain a FILTER; needs Go, and
                                            builds for twelve minutes the first time (e2e --help: more)
    cargo run -p xtask -- faults [--seeds A..B] [--events N] [--steps N] [--seed S] [--plan FILE]
                                            simulate faults between the controller and its API server; a seed that fails is
                                            shrunk, and told step by step
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("tidy") => tidy::run(),
        Some("fuzz") => fuzz::run(&args[1..]),
        Some("faults") => faults(&args[1..]),
        Some("e2e") => e2e(&args[1..]),
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("there is no chore {other}\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the fault simulation, which is an example of the simulator's, as fast as it can be built.
fn faults(args: &[String]) -> Result<(), String> {
    let words = ["run", "--release", "-q", "-p", "slicegate-sim", "--example", "faults", "--"];
    run(cargo().args(words).args(args).current_dir(root()))
}

/// Runs the tests on a real control plane, with the program as it is now.
fn e2e(args: &[String]) -> Result<(), String> {
    let build = ["build", "-q", "-p", "slicegate", "-p", "slicegate-control-plane"];
    run(cargo().args(build).current_dir(root()))?;
    let words = ["run", "-q", "-p", "slicegate-control-plane", "--bin", "e2e", "--"];
    run(cargo().args(words).args(args).current_dir(root()))
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The `cargo` that runs this program.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(why) => Err(format!("{command:?} cannot be run: {why}")),
    }
}
