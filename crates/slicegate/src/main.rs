//! The `slicegate` program: arguments, wiring, printing.
#![expect(clippy::print_stderr, reason = "a program for a terminal")]

mod args;
mod check;
mod configuration;
mod controller;
mod crds;
mod inputs;
mod simulate;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use args::{Cli, Command};

/// Bad input.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    // Not `Cli::parse()`: which PATHs an --env is for depends on where it stands.
    let matches = Cli::command().get_matches();
    let result = Cli::from_arg_matches(&matches).map_err(|e| e.to_string()).and_then(|cli| match cli.command {
        Command::Simulate(args) => {
            let matches = matches.subcommand_matches("simulate").ok_or("simulate: no arguments")?;
            simulate::run(&args, matches)
        }
        Command::Check(args) => {
            let matches = matches.subcommand_matches("check").ok_or("check: no arguments")?;
            check::run(&args, matches)
        }
        Command::Crds(args) => crds::run(&args),
        Command::Controller(args) => Ok(controller::run(&args)),
    });
    result.unwrap_or_else(|why| {
        eprintln!("error: {}", why.trim_end());
        ExitCode::from(BAD_INPUT)
    })
}
