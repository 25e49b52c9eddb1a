//! `slicegate simulate`.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::ArgMatches;
use slicegate_api::{Kind, Object};
use slicegate_controller::Configuration;
use slicegate_sim::render::{self, Resource, TableOptions, TextOptions};
use slicegate_sim::{Elapsed, Input, Options, Outcome, Simulation, Verdict, parse_duration};

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
    let every = times(std::slice::from_ref(&args.metrics_every), "--metrics-every")?.first().copied();
    if every == Some(0) {
        return Err("--metrics-every 0: metrics cannot be sampled all the time; write a time such as 60s".to_owned());
    }
    let ambient = inputs::ambient();

    let inputs = inputs::read(&args.places(matches)?, &ambient, &args.configuration)?;
    let to_terminal = std::io::stderr().is_terminal();
    for diagnostic in &inputs.diagnostics {
        eprintln!("{}", diagnostic.render(in_colour(args.color, to_terminal)));
    }
    for why in &inputs.others {
        eprintln!("error: {why}");
    }
    let errors = inputs.diagnostics.iter().filter(|d| d.is_error()).count().saturating_add(inputs.others.len());
    let Some(told) = inputs.told.filter(|_| errors == 0) else {
        return Err(format!("nothing was simulated: {errors} error{} above", if errors == 1 { "" } else { "s" }));
    };
    for ignored in &told.ignored {
        eprintln!("warning: {ignored}");
    }

    let metrics_every = every.filter(|_| args.metrics.is_some());
    let options = Options { keep_history: !at.is_empty(), until, metrics_every };
    let input = Input { items: inputs.items, options };
    let configuration = Configuration { legacy_names: args.legacy_names, ..told.configuration };
    let simulation = Simulation::new(input, &inputs.files, configuration)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\nerror: "))?;
    let outcome = simulation.run();
    for warning in &outcome.warnings {
        eprintln!("warning: {warning}");
    }
    if outcome.verdicts.is_empty() {
        eprintln!("warning: the manifests hold no job: there is nothing to simulate");
    }
    if outcome.stopped {
        for (text, micros) in args.at.iter().zip(&at) {
            if outcome.start.plus_micros(*micros) > outcome.end {
                let end = Elapsed(outcome.end.micros_since(outcome.start));
                eprintln!("warning: --at {text} is left out: the simulation was stopped before, at {end}");
            }
        }
    }
    if let (Some(path), Some(metrics)) = (&args.metrics, &outcome.metrics) {
        std::fs::write(path, metrics.open_metrics()).map_err(|why| format!("--metrics {}: {why}", path.display()))?;
    }
    print(args, &outcome, &at)?;
    let done = |v: &Verdict| matches!(v, Verdict::Finished { .. } | Verdict::Deleted { .. });
    let done = outcome.verdicts.iter().all(|v| done(&v.verdict));
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(NOT_FINISHED) })
}

pub(crate) fn in_colour(choice: Colour, to_terminal: bool) -> bool {
    match choice {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            to_terminal && !unwanted && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// The tables that are printed, and the command that would print each.
const TABLES: [(Resource, bool, &str); 6] = [
    (Resource::Workloads, false, "kubectl get workloads"),
    (Resource::JobSets, false, "kubectl get jobsets"),
    (Resource::RayJobs, false, "kubectl get rayjobs"),
    (Resource::Jobs, false, "kubectl get jobs"),
    (Resource::Pods, true, "kubectl get pods -o wide"),
    (Resource::Slices, false, "kubectl get slices"),
];

fn text(args: &SimulateArgs, outcome: &Outcome, at: &[i64], colour: bool) -> String {
    let mut text = String::new();
    if !args.quiet {
        text.push_str(&render::timeline(outcome, TextOptions { colour, details: args.details }));
        text.push('\n');
    }
    let times: Vec<_> = if at.is_empty() {
        vec![outcome.end]
    } else {
        let times = at.iter().map(|&micros| outcome.start.plus_micros(micros));
        times.filter(|time| !outcome.stopped || *time <= outcome.end).collect()
    };
    for time in times {
        let _ = writeln!(text, "At {}:", Elapsed(time.micros_since(outcome.start)));
        let objects = outcome.objects_at(time);
        for (resource, wide, command) in TABLES {
            // The Jobs of a JobSet or RayJob are told of by those.
            if resource == Resource::Jobs && !objects.values().any(is_own_job) {
                continue;
            }
            let table = render::table(
                resource,
                &objects,
                time,
                &TableOptions { wide, legacy: args.legacy_names, namespace: None },
            );
            if !table.is_empty() {
                let _ = write!(text, "\n$ {command}\n{table}");
            }
        }
        text.push('\n');
    }
    text.push_str(&render::summary(outcome));
    text.push_str(&render::chips(outcome));
    text
}

fn is_own_job(object: &Object) -> bool {
    object.kind() == Kind::Job && object.metadata().owner_references.as_ref().is_none_or(Vec::is_empty)
}

fn print(args: &SimulateArgs, outcome: &Outcome, at: &[i64]) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let text = match args.output {
        Format::Json => format!("{:#}\n", render::json(outcome)),
        Format::Text => text(args, outcome, at, in_colour(args.color, out.is_terminal())),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads no further has seen enough.
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|why| format!("standard output: {why}")),
    }
}
