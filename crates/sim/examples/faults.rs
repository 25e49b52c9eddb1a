//! Runs the fault simulation over many seeds: `faults [--seeds A..B] [--events N] [--steps N] [--seed S] [--plan FILE]`.
//!
//! With `--events` seeds are run until so many events have happened. `--seed` and `--plan` run one, tell what happens in it, and
//! shrink it if it fails. A failing seed is shrunk and told of, and the program ends with 1.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]
#![expect(clippy::disallowed_methods, reason = "it tells how long it took")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use slicegate_sim::faults::{Failure, Figures, Plan};

/// What is asked for.
struct Arguments {
    seeds: std::ops::Range<u64>,
    events: Option<u64>,
    steps: usize,
    one: Option<Plan>,
    /// Failures to look for before the end.
    failures: usize,
}

fn arguments() -> Result<Arguments, String> {
    let mut all = Arguments { seeds: 0..1000, events: None, steps: 600, one: None, failures: 1 };
    let mut seed = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|why| format!("{word} {value}: {why}"));
        match word.as_str() {
            "--seeds" => {
                let (a, b) = value.split_once("..").ok_or_else(|| format!("--seeds {value}: write A..B"))?;
                let parse = |n: &str| n.parse::<u64>().map_err(|why| format!("--seeds {value}: {why}"));
                all.seeds = parse(a)?..parse(b)?;
            }
            "--events" => all.events = Some(number()?),
            "--steps" => all.steps = usize::try_from(number()?).map_err(|why| why.to_string())?,
            "--failures" => all.failures = usize::try_from(number()?).map_err(|why| why.to_string())?,
            "--seed" => seed = Some(number()?),
            "--plan" => {
                let text = std::fs::read_to_string(&value).map_err(|why| format!("{value}: {why}"))?;
                all.one = Some(text.parse().map_err(|why| format!("{value}: {why}"))?);
            }
            _ => {
                return Err(format!(
                    "{word} is not known: --seeds A..B, --events N, --steps N, --seed S, --plan FILE, --failures N"
                ));
            }
        }
    }
    if let Some(seed) = seed {
        all.one = Some(Plan::new(seed, all.steps));
    }
    Ok(all)
}

fn attempt(plan: &Plan) -> Result<Figures, Box<Failure>> {
    catch_unwind(AssertUnwindSafe(|| plan.run())).unwrap_or_else(|_| {
        let what = "it panics".to_owned();
        Err(Box::new(Failure { plan: plan.clone(), after: plan.steps.len(), what }))
    })
}

fn tell(name: &str, failure: Failure) {
    println!("{name} fails after {} steps: {}", failure.after, failure.what);
    let shortest = failure.shrink();
    println!("{} steps are enough:\n{}", shortest.plan.steps.len(), shortest.plan);
    for line in shortest.plan.trace() {
        println!("  {line}");
    }
}

fn run() -> Result<ExitCode, String> {
    let arguments = arguments()?;
    if let Some(plan) = &arguments.one {
        return match attempt(plan) {
            Ok(figures) => {
                plan.trace().iter().for_each(|line| println!("{line}"));
                println!("{figures}");
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                tell("it", *failure);
                Ok(ExitCode::FAILURE)
            }
        };
    }
    let start = Instant::now();
    let mut total = Figures::default();
    let mut runs = 0_u64;
    let mut failures = 0;
    for seed in arguments.seeds.start.. {
        let enough = arguments.events.map_or(seed >= arguments.seeds.end, |events| total.events >= events);
        if enough {
            break;
        }
        match attempt(&Plan::new(seed, arguments.steps)) {
            Ok(figures) => total = total.plus(figures),
            Err(failure) => {
                tell(&format!("seed {seed}"), *failure);
                failures += 1;
                if failures >= arguments.failures {
                    break;
                }
            }
        }
        runs += 1;
        if runs.is_multiple_of(2000) {
            eprintln!("{runs} runs, {total}, {:.0} s", start.elapsed().as_secs_f64());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{runs} runs, {failures} of them failed, {total}, {seconds:.1} s");
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    run().unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}
