//! How fast the engine decides, as a table: `cargo run --release -p slicegate-examples --bin decision_bench`.
//!
//! Every figure is measured by this run of the program, on loads that it generates itself. Times are processor
//! time, of `Engine::cycle` alone unless something else is said, in one thread. An argument selects sections by part of a name.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "../../../../crates/admission/benches/cycle/load.rs"]
mod load;
mod memory;
mod parked;
mod plan;
mod rounds;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let sections: [(&str, fn()); 4] =
        [("rounds", rounds::run), ("steady", rounds::steady), ("plan", plan::run), ("parked", parked::run)];
    for (name, run) in sections {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            run();
        }
    }
}

/// Microseconds with a sensible number of digits.
fn micros(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros < 10.0 { format!("{micros:.2}") } else { format!("{micros:.1}") }
}

/// The median of some seconds.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or_default()
}

/// A count as a float, for division.
fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
