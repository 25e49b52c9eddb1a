//! Building and running the fuzz targets on a stable compiler.

use std::path::PathBuf;
use std::process::Command;

use crate::{cargo, root};

/// Coverage for libFuzzer without a nightly compiler and without an address sanitizer: the workspace forbids unsafe code.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks --cfg fuzzing";

/// Runs `fuzz` with these arguments.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let mut seconds = "60".to_owned();
    let mut replay = false;
    let mut wanted = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--replay" => replay = true,
            "--seconds" => args.next().ok_or("--seconds wants a number")?.clone_into(&mut seconds),
            name => wanted.push(name.to_owned()),
        }
    }
    let targets = targets()?;
    for name in &wanted {
        if !targets.contains(name) {
            return Err(format!("there is no fuzz target {name}; there are {}", targets.join(", ")));
        }
    }
    let chosen: Vec<&String> = targets.iter().filter(|t| wanted.is_empty() || wanted.contains(t)).collect();
    if replay { replay_corpora(&chosen) } else { fuzz(&chosen, &seconds) }
}

fn folder() -> PathBuf {
    root().join("fuzz")
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder().join("target"), |dir| PathBuf::from(dir).join("fuzz"))
}

fn targets() -> Result<Vec<String>, String> {
    let mut names: Vec<String> = std::fs::read_dir(folder().join("fuzz_targets"))
        .map_err(|why| format!("fuzz/fuzz_targets: {why}"))?
        .filter_map(|e| e.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

fn replay_corpora(targets: &[&String]) -> Result<(), String> {
    let mut build = cargo();
    build
        .args(["build", "--quiet", "--manifest-path"])
        .arg(folder().join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", target_dir());
    crate::run(&mut build)?;
    for target in targets {
        let corpus = folder().join("corpus").join(target);
        crate::run(Command::new(target_dir().join("debug").join(target)).arg(corpus))?;
    }
    Ok(())
}

fn fuzz(targets: &[&String], seconds: &str) -> Result<(), String> {
    let triple = host()?;
    let mut build = cargo();
    build
        .args(["build", "--release", "--target", &triple, "--manifest-path"])
        .arg(folder().join("Cargo.toml"))
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", target_dir());
    crate::run(&mut build)?;
    for target in targets {
        // New inputs go to a folder of their own, so that the kept corpus only grows on purpose.
        let found = target_dir().join("found").join(target);
        std::fs::create_dir_all(&found).map_err(|why| format!("{}: {why}", found.display()))?;
        println!("\n== {target} for {seconds} s");
        crate::run(
            Command::new(target_dir().join(&triple).join("release").join(target))
                .arg(&found)
                .arg(folder().join("corpus").join(target))
                .args([&format!("-max_total_time={seconds}"), "-print_final_stats=1", "-timeout=10", "-verbosity=0"])
                .current_dir(target_dir()),
        )?;
    }
    Ok(())
}

fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|why| format!("rustc cannot be run: {why}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|l| l.strip_prefix("host: ").map(str::to_owned))
        .ok_or_else(|| "rustc does not say for which host it is".to_owned())
}
