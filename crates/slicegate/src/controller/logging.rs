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

/// Says why it cannot run (any longer), as one line of the log each, whatever is logged otherwise.
pub(crate) fn complain(format: LogFormat, why: &str) {
    for why in why.trim_end().split("\nerror: ") {
        match format {
            LogFormat::Text => eprintln!("error: {why}"),
            LogFormat::Json => {
                let json = tracing_subscriber::fmt().json().flatten_event(true).with_writer(std::io::stderr);
                let json = json.with_current_span(false).with_span_list(false).finish();
                tracing::subscriber::with_default(json, || tracing::error!("{why}"));
            }
        }
    }
}

/// Something that cannot happen happened. A part of the program may be gone, which nobody would notice: it ends, to be started
/// again.
pub(crate) fn end_on_panic(format: LogFormat) {
    std::panic::set_hook(Box::new(move |panic| {
        complain(format, &format!("this is a bug, please report it: {panic}").replace('\n', " "));
        std::process::abort();
    }));
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
