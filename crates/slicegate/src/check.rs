//! `slicegate check`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::ArgMatches;
use slicegate_check::{Options, by_code, check, explain, json, sarif, text};
use slicegate_manifest::load;

use crate::args::{CheckArgs, CheckFormat};
use crate::inputs;
use crate::simulate::in_colour;

/// There are errors, or warnings that are denied.
const FINDINGS: u8 = 1;

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, matches: &ArgMatches) -> Result<ExitCode, String> {
    if let Some(code) = &args.explain {
        print(&explain(code).map_err(|why| why.to_string())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut options = Options::default();
    // An empty one is what scripts make of a variable without a value.
    for code in args.allow.iter().filter(|code| !code.trim().is_empty()) {
        match by_code(code) {
            Some(rule) => options.allow.insert(rule.code.to_owned()),
            None => return Err(explain(code).err().map_or_else(String::new, |why| format!("--allow {code}: {why}"))),
        };
    }
    let sources = inputs::texts(&args.places(matches)?, &inputs::ambient())?;
    let mut how = slicegate_manifest::Options::default();
    how.note_unknown_kinds = false;
    how.generated_names = true;
    let loaded = load(&sources, &how);
    if loaded.documents.is_empty() && loaded.diagnostics.is_empty() && loaded.invalid.is_empty() {
        eprintln!("warning: there is nothing to check: no object of a kind that is known");
    }
    let report = check(&loaded, &sources, &options);
    let out = match args.output {
        CheckFormat::Text => text(&report, in_colour(args.color, std::io::stdout().is_terminal())),
        CheckFormat::Json => format!("{:#}\n", json(&report)),
        CheckFormat::Sarif => format!("{:#}\n", sarif(&report, env!("CARGO_PKG_VERSION"))),
    };
    print(&out)?;
    Ok(if report.fails(args.deny.is_some()) { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}

/// Prints to standard output; whoever stops reading has seen enough.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("standard output: {why}")),
        _ => Ok(()),
    }
}
