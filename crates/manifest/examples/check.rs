//! Reads the files and folders given and shows everything that is wrong with them.
//!
//! ```text
//! cargo run -p slicegate-manifest --example check -- examples/multislice
//! ```

use std::io::Write as _;
use std::process::ExitCode;

use slicegate_manifest::{Options, PathSpec, load, sources_from_paths};

fn main() -> std::io::Result<ExitCode> {
    let specs: Vec<PathSpec> =
        std::env::args_os().skip(1).map(|path| PathSpec { path: path.into(), ..PathSpec::default() }).collect();
    let mut out = std::io::stdout().lock();
    let sources = match sources_from_paths(&specs) {
        Ok(sources) => sources,
        Err(errors) => {
            for error in errors {
                writeln!(out, "error: {error}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let loaded = load(&sources, &Options::default());
    for diagnostic in &loaded.diagnostics {
        writeln!(out, "{diagnostic}")?;
    }
    writeln!(out, "{} documents", loaded.documents.len())?;
    Ok(if loaded.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
