//! Logs, to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::args::{ControllerArgs, LogFormat};

/// Libraries say what is known already, or what nobody asked for.
const LIBRARIES: &str = "kube_client=off,kube_runtime=off,tower=off,hyper=off,rustls=off";

/// Logs from here on.
pub(crate) fn start(args: &ControllerArgs) -> Result<(), String> {
    let filter = filter(&args.log_level, args.verbose)?;
    let to_terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => builder.with_ansi(to_terminal).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    }
    .map_err(|error| format!("logs cannot be written: {error}"))
}

fn filter(level: &str, verbose: u8) -> Result<EnvFilter, String> {
    let level = match verbose {
        0 => level,
        1 => "debug",
        _ => "trace",
    };
    // Of libraries as much as is asked for at the second -v.
    let text = if verbose > 1 || level.contains('=') { level.to_owned() } else { format!("{level},{LIBRARIES}") };
    EnvFilter::try_new(&text).map_err(|error| {
        format!("--log-level {level}: {error}; write error, warn, info, debug or trace, or directives such as slicegate_kube=debug")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_taken() {
        for (level, verbose) in [("info", 0), ("info", 1), ("info", 2), ("warn,slicegate_kube=trace", 0)] {
            assert!(filter(level, verbose).is_ok(), "{level} {verbose}");
        }
        assert!(filter("loud=very", 0).unwrap_err().starts_with("--log-level loud=very: "));
    }
}
