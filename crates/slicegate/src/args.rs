//! The command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Parser, Subcommand, ValueEnum};

use crate::configuration::ConfigurationArgs;

/// Admission and queueing for TPU training on Kubernetes: what runs now, what waits, and why.
#[derive(Parser, Debug)]
#[command(name = "slicegate", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Runs manifests in a simulated cluster and says what happens, when, and why.
    Simulate(SimulateArgs),
    /// Finds mistakes in manifests before they cost hours.
    Check(CheckArgs),
    /// Prints the custom resource definitions of Kueue's kinds, for an API server to serve.
    Crds(CrdsArgs),
    /// Runs against a cluster: queues its jobs, admits them, starts and stops them.
    Controller(ControllerArgs),
}

/// Exit status: 0 if every job finished, 1 if something can never be admitted or did not finish, 2 on bad input.
#[derive(Args, Debug)]
#[command(after_help = SIMULATE_HELP)]
pub(crate) struct SimulateArgs {
    /// Files, folders (their .yaml, .yml and .json files in order of name) or - for standard input, applied in order.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// A value for ${NAME} in the PATHs that follow; the environment gives the others.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,

    #[command(flatten)]
    pub(crate) configuration: ConfigurationArgs,

    /// Print the tables as they were at this time, such as 90s or 1h30m; may be given several times.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Vec<String>,

    /// Stop at this time at the latest.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// What to print: text for people, or JSON with all events and the final objects.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,

    /// Explain decisions in more lines: flavor by flavor, with numbers.
    #[arg(long, short)]
    pub(crate) details: bool,

    /// Leave the timeline out.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Write metrics over simulated time to FILE, as OpenMetrics text with timestamps.
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,

    /// How often metrics are sampled.
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "metrics")]
    pub(crate) metrics_every: String,

    /// Name Workloads and print their table as Kueue did before 0.7, as in the multislice tutorial.
    #[arg(long)]
    pub(crate) legacy_names: bool,

    /// When to use colour.
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    pub(crate) color: Colour,
}

/// Exit status: 0 if there is no error, 1 if there is one (or a warning, if they are denied), 2 on bad use or unreadable files.
#[derive(Args, Debug)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArgs {
    /// Files, folders (their .yaml, .yml and .json files in order of name) or - for standard input, looked at together.
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,

    /// A value for ${NAME} in the PATHs that follow; the environment gives the others.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,

    /// A code that is not to be reported, such as SG0301; may be given several times.
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,

    /// What else is to make the exit status 1.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) deny: Option<Deny>,

    /// What to print: text for people, JSON, or SARIF 2.1.0 for code scanning.
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) output: CheckFormat,

    /// Tell more about a code, with a wrong and a right example, instead of checking.
    #[arg(long, value_name = "CODE")]
    pub(crate) explain: Option<String>,

    /// When to use colour.
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    pub(crate) color: Colour,
}

const CHECK_HELP: &str = "\
Examples:
  slicegate check examples/multislice
  slicegate check queues/ pools.json --env JOB_ID=1 rayjob.yaml
  slicegate check --deny warnings --output sarif . > check.sarif
  slicegate check --explain SG0504

Everything given is looked at together: a job is held against the queues and node pools beside it. The annotation
slicegate.dev/allow: SG0301 on an object turns a rule off for it.";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Deny {
    /// Warnings as well as errors.
    Warnings,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum CheckFormat {
    Text,
    Json,
    Sarif,
}

impl CheckArgs {
    /// The PATHs in order, each with what was said by the `--env` before it.
    pub(crate) fn places(&self, matches: &ArgMatches) -> Result<Vec<Place>, String> {
        places(&self.paths, &self.env, matches)
    }
}

const SIMULATE_HELP: &str = "\
Examples:
  slicegate simulate examples/multislice
  slicegate simulate queues.yaml --env JOB_ID=1 rayjob.yaml --env JOB_ID=2 rayjob.yaml
  slicegate simulate --at 2m --at 5m --quiet examples/dws
  slicegate simulate --metrics metrics.txt examples/multislice
  slicegate simulate --config controller_manager_config.yaml --feature-gates TASBalancedPlacement=true queues/ jobs/
  kubectl get clusterqueues,localqueues,resourceflavors,jobsets -A -o yaml | slicegate simulate - pools.json

Exit status: 0 if every job finished, 1 if something can never be admitted or did not finish, 2 on bad input.";

/// Runs until SIGTERM or SIGINT. Exit status: 0 at the end, 1 if it cannot run (no API server, a port that is taken), 2 on bad use
/// or a bad configuration.
#[derive(Args, Debug)]
#[command(after_help = CONTROLLER_HELP)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationArgs,

    /// How to reach the cluster; else KUBECONFIG, the service account of the pod, or ~/.kube/config, whichever is there first.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Which context of the kubeconfig, as for kubectl; else its current one. With it a pod's service account is passed over.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Whether one of several that run is elected to act; else as the configuration says, else it is.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: Option<bool>,

    /// Where /metrics is served, over http; 0: nowhere. Else as the configuration says, else :8080.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Option<String>,

    /// Where /healthz and /readyz are served; 0: nowhere. Else as the configuration says, else :8081.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Option<String>,

    /// Where the webhook is served that converts v1beta1 objects; 0: nowhere. Else as the configuration says, else :9443.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) webhook_bind_address: Option<String>,

    /// Where the API server finds that webhook, if this runs outside the cluster, such as https://192.0.2.1:9443.
    #[arg(long, value_name = "URL")]
    pub(crate) webhook_url: Option<String>,

    /// How logs are written to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// What is logged: error, warn, info, debug, trace, or directives such as warn,slicegate_kube=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,

    /// Log more: -v as --log-level debug, -vv everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

const CONTROLLER_HELP: &str = "\
Examples:
  slicegate crds --webhook-url https://192.0.2.1:9443/convert | kubectl apply --server-side -f -
  slicegate controller --kubeconfig ~/.kube/config --webhook-url https://192.0.2.1:9443
  slicegate controller --config controller_manager_config.yaml --log-format json

Environment: POD_NAMESPACE (else kueue-system) is where the Lease and the webhook's certificate are kept, POD_NAME the name in
Events and in the Lease.";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

/// Both versions of the API are served; v1beta1 is converted by a webhook.
#[derive(Args, Debug)]
#[command(after_help = CRDS_HELP)]
pub(crate) struct CrdsArgs {
    /// How to print them.
    #[arg(long, short, value_enum, default_value_t = Notation::Yaml)]
    pub(crate) output: Notation,

    /// The namespace of the service behind which the conversion webhook runs.
    #[arg(long, value_name = "NAMESPACE", default_value = "kueue-system")]
    pub(crate) webhook_namespace: String,

    /// That service.
    #[arg(long, value_name = "NAME", default_value = "kueue-webhook-service")]
    pub(crate) webhook_service: String,

    /// The address of the conversion webhook, where it runs outside the cluster.
    #[arg(long, value_name = "URL", conflicts_with_all = ["webhook_namespace", "webhook_service"])]
    pub(crate) webhook_url: Option<String>,

    /// A PEM file with the certificates by which the API server knows the webhook; without it the controller fills them in.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,
}

const CRDS_HELP: &str = "\
Examples:
  slicegate crds | kubectl apply --server-side -f -
  slicegate crds --output json --webhook-url https://127.0.0.1:9443/convert --ca-bundle ca.pem";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Notation {
    Yaml,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal that wants it.
    Auto,
    Always,
    Never,
}

/// A PATH and the variables that the command line gives it.
pub(crate) type Place = (PathBuf, BTreeMap<String, String>);

impl SimulateArgs {
    /// The PATHs in order, each with what was said by the `--env` before it.
    pub(crate) fn places(&self, matches: &ArgMatches) -> Result<Vec<Place>, String> {
        places(&self.paths, &self.env, matches)
    }
}

fn places(paths: &[PathBuf], env: &[String], matches: &ArgMatches) -> Result<Vec<Place>, String> {
    let mut said = Vec::new();
    for (index, text) in indices(matches, "env").zip(env) {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("--env {text}: write --env NAME=VALUE"))?;
        said.push((index, name, value));
    }
    let places = indices(matches, "paths").zip(paths).map(|(index, path)| {
        let env = said.iter().filter(|(at, ..)| *at < index);
        (path.clone(), env.map(|&(_, name, value)| (name.to_owned(), value.to_owned())).collect())
    });
    Ok(places.collect())
}

fn indices<'a>(matches: &'a ArgMatches, id: &str) -> impl Iterator<Item = usize> + use<'a> {
    matches.indices_of(id).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;

    fn places(line: &[&str]) -> Result<Vec<(String, Vec<String>)>, String> {
        let matches = Cli::command().get_matches_from([&["slicegate", "simulate"], line].concat());
        let Command::Simulate(args) = Cli::from_arg_matches(&matches).unwrap().command else { panic!("not simulate") };
        let places = args.places(matches.subcommand_matches("simulate").unwrap())?;
        let show = |(path, env): Place| {
            (path.display().to_string(), env.into_iter().map(|(n, v)| format!("{n}={v}")).collect())
        };
        Ok(places.into_iter().map(show).collect())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_variable_holds_for_the_paths_after_it() {
        let got = places(&["q.yaml", "--env", "ID=1", "job.yaml", "--env=ID=2", "job.yaml", "--env", "X=a=b", "-"]);
        let env = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        let want = vec![
            ("q.yaml".to_owned(), env(&[])),
            ("job.yaml".to_owned(), env(&["ID=1"])),
            ("job.yaml".to_owned(), env(&["ID=2"])),
            ("-".to_owned(), env(&["ID=2", "X=a=b"])),
        ];
        assert_eq!(got.unwrap(), want);
    }

    #[test]
    fn a_variable_needs_a_name_and_a_value() {
        assert!(places(&["--env", "ID", "job.yaml"]).unwrap_err().contains("NAME=VALUE"));
        assert!(places(&["--env", "=1", "job.yaml"]).is_err());
    }
}
