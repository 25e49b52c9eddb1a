//! Plays manifests: `cargo run -p slicegate-sim --example play -- FILE_OR_FOLDER... [NAME=VALUE...]`.
//!
//! Prints the timeline, the warnings and what became of each job; with `RECORDING=1` every version of every object instead.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use slicegate_controller::Configuration;
use slicegate_manifest::{Body, PathSpec, load, sources_from_paths};
use slicegate_sim::render::{Resource, TableOptions, TextOptions, recording, summary, table, timeline};
use slicegate_sim::{Input, ManifestFiles, Options, Simulation};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (values, paths): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.contains('='));
    let env: BTreeMap<String, String> =
        values.iter().filter_map(|word| word.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let specs: Vec<PathSpec> = paths.iter().map(|path| PathSpec { path: path.into(), env: env.clone() }).collect();
    let sources = match sources_from_paths(&specs) {
        Ok(sources) => sources,
        Err(errors) => {
            for error in errors {
                writeln!(out, "{error}")?;
            }
            return Ok(());
        }
    };
    let loaded = load(&sources, &slicegate_manifest::Options::default());
    for diagnostic in &loaded.diagnostics {
        writeln!(out, "{diagnostic}")?;
    }
    if loaded.has_errors() {
        return Ok(());
    }
    let scenario = loaded.documents.iter().find(|document| matches!(document.body, Body::Scenario(_)));
    let folder = scenario.and_then(|document| Path::new(&sources[document.source].name).parent());
    let files = ManifestFiles { folder: folder.map_or_else(PathBuf::new, Path::to_path_buf) };
    let input = Input::new(loaded.documents, Options::default());
    match Simulation::new(input, &files, Configuration::default()) {
        Ok(simulation) => {
            let outcome = simulation.run();
            if env.contains_key("RECORDING") {
                return write!(out, "{}", recording(&outcome));
            }
            write!(out, "{}", timeline(&outcome, TextOptions { details: true, ..TextOptions::default() }))?;
            for warning in &outcome.warnings {
                writeln!(out, "warning: {warning}")?;
            }
            write!(out, "{}", summary(&outcome))?;
            writeln!(out)?;
            let objects = outcome.objects_at(outcome.end);
            for resource in [Resource::Workloads, Resource::JobSets, Resource::RayJobs, Resource::Pods] {
                let table = table(resource, &objects, outcome.end, &TableOptions::default());
                if !table.is_empty() {
                    writeln!(out, "{table}")?;
                }
            }
            Ok(())
        }
        Err(errors) => {
            for error in errors {
                writeln!(out, "{error}")?;
            }
            Ok(())
        }
    }
}
