//! `slicegate simulate`.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::ArgMatches;
use slicegate_sim::{Input, Options, Outcome, Simulation, Verdict, parse_duration, render};

use crate::BAD_INPUT;
use crate::args::{Colour, Format, SimulateArgs};
use crate::inputs;

/// Something can never be admitted, or did not finish.
const NOT_FINISHED: u8 = 1;

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, matches: &ArgMatches) -> Result<ExitCode, String> {
    let times = |texts: &[String], option: &str| -> Result<Vec<i64>, String> {
        texts.iter().map(|t| parse_duration(t).map_err(|why| format!("{option} {t}: {why}"))).collect()
    };
    let at = times(&args.at, "--at")?;
    let until = times(args.until.as_slice(), "--until")?.first().copied();
    let ambient: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();

    let inputs = inputs::read(&args.places(matches)?, &ambient)?;
    let to_terminal = std::io::stderr().is_terminal();
    for diagnostic in &inputs.diagnostics {
        eprintln!("{}", diagnostic.render(in_colour(args.color, to_terminal)));
    }
    let errors = inputs.diagnostics.iter().filter(|d| d.is_error()).count();
    if errors > 0 {
        return Err(format!("nothing was simulated: {errors} error{} above", if errors == 1 { "" } else { "s" }));
    }

    let input = Input { items: inputs.items, options: Options { keep_history: !at.is_empty(), until } };
    let configuration = slicegate_sim::Configuration { legacy_names: args.legacy_names, ..Default::default() };
    let simulation = Simulation::new(input, &inputs.files, configuration)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\nerror: "))?;
    let outcome = simulation.run();
    print(args, &outcome, &at)?;
    let done = outcome.verdicts.iter().all(|v| matches!(v.verdict, Verdict::Finished { .. }));
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(NOT_FINISHED) })
}

fn in_colour(choice: Colour, to_terminal: bool) -> bool {
    match choice {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            to_terminal && !unwanted && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

fn print(args: &SimulateArgs, outcome: &Outcome, at: &[i64]) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let colour = in_colour(args.color, out.is_terminal());
    let text = match args.output {
        Format::Json => render::json(outcome).map_err(|why| why.to_string())?,
        Format::Text => render::text(outcome, &render::TextOptions { timeline: !args.quiet, at, legacy: args.legacy_names, colour }),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads no further has seen enough.
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|why| format!("standard output: {why}")),
    }
}
