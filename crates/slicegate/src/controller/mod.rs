//! `slicegate controller`.

mod logging;
mod settings;

use std::process::ExitCode;
use std::time::Duration;

use slicegate_kube::{Health, connect, serve};
use tokio::signal::unix::{SignalKind, signal};

use crate::BAD_INPUT;
use crate::args::ControllerArgs;
use crate::configuration::Problems;
use settings::{Environment, Settings};

/// It cannot run, or not any longer.
const FAILED: u8 = 1;
/// One thread decides while others read, write and renew the Lease.
const THREADS: usize = 2;
/// How long what is left may take at the end.
const LAST_MOMENTS: Duration = Duration::from_secs(1);

/// Runs the command until it is told to end.
pub(crate) fn run(args: &ControllerArgs) -> ExitCode {
    match begin(args) {
        Ok(status) => status,
        Err(why) => {
            logging::complain(args.log_format, &why);
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn begin(args: &ControllerArgs) -> Result<ExitCode, String> {
    let settings = settings(args).map_err(|problems| problems.to_string())?;
    logging::start(args)?;
    logging::end_on_panic(args.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| format!("no threads can be started: {error}"))?;
    let result = runtime.block_on(controller(args, settings));
    runtime.shutdown_timeout(LAST_MOMENTS);
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            logging::complain(args.log_format, &why);
            ExitCode::from(FAILED)
        }
    })
}

fn settings(args: &ControllerArgs) -> Result<Settings, Problems> {
    let opened = args.configuration.open()?;
    let found = opened.as_ref().map(|(document, sources)| (document, &sources[..]));
    let told = args.configuration.follow(found)?;
    Settings::new(args, told, &Environment::of_process(), &|errors| Problems::of_file(found, errors))
}

async fn controller(args: &ControllerArgs, settings: Settings) -> Result<(), String> {
    let (mut interrupted, mut terminated) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    for ignored in &settings.ignored {
        tracing::warn!("the configuration is not followed wholly: {ignored}");
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), namespace = settings.namespace, "slicegate controller");
    tracing::warn!(
        "there are no admission webhooks yet: jobs are suspended by reconciling, a moment after they were created"
    );
    let shutdown = async {
        let signal = tokio::select! {
            _ = interrupted.recv() => "SIGINT",
            _ = terminated.recv() => "SIGTERM",
        };
        tracing::info!(signal, "ending");
        // Whoever says it twice does not want to wait.
        tokio::spawn(async move {
            let signal = tokio::select! {
                _ = interrupted.recv() => "SIGINT",
                _ = terminated.recv() => "SIGTERM",
            };
            tracing::warn!(
                signal,
                "ending at once; writes on their way are not waited for, the Lease is not given back"
            );
            std::process::exit(i32::from(FAILED));
        });
    };
    tokio::pin!(shutdown);
    let starting = async {
        let client =
            connect(args.kubeconfig.as_deref(), args.context.as_deref()).await.map_err(|error| error.to_string())?;
        let health = Health::new(&settings.liveness, &settings.readiness);
        let servers = serve(&client, settings.serving, &health).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((client, health, servers))
    };
    let (client, health, _servers) = tokio::select! {
        () = &mut shutdown => return Ok(()),
        started = starting => started?,
    };
    let running = slicegate_kube::run(client, settings.options, health, shutdown);
    Box::pin(running).await.map_err(|error| error.to_string())
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, String> {
    signal(kind).map_err(|error| format!("signals cannot be listened for: {error}"))
}
