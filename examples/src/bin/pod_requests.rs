//! What does a pod ask for, and a number of them?
//!
//! ```text
//! cargo run -p slicegate-examples --bin pod_requests -- \
//!     --init cpu=4 --sidecar cpu=200m,memory=128Mi --container cpu=2,memory=8Gi,google.com/tpu=4 --overhead memory=64Mi --count 16
//! ```
//!
//! Containers may be given any number of times, init containers and sidecars in the order in which they start. It uses
//! `slicegate-workload` (and the quantities of `slicegate-quota`) as a scheduler would that has its own idea of queues.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use slicegate_quota::{ParseQuantityError, Quantity};
use slicegate_workload::{Container, PodSet, PodSpec, RequestOptions, ResourceList, Resources, Workload, WorkloadSpec};

const DEMO: [&str; 10] = [
    "--init",
    "cpu=4",
    "--sidecar",
    "cpu=200m,memory=128Mi",
    "--container",
    "cpu=2,memory=8Gi,google.com/tpu=4",
    "--overhead",
    "memory=64Mi",
    "--count",
    "16",
];

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        args = DEMO.map(str::to_owned).into();
    }
    match run(&args, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String], out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let pod_set = parse(args)?;
    let one = pod_set.pod.requests();
    let count = pod_set.count;
    let spec = WorkloadSpec { pod_sets: vec![pod_set], ..WorkloadSpec::default() };
    let workload = Workload { spec, ..Workload::default() };
    let totals = workload.totals(&RequestOptions::default());

    writeln!(out, "{:<20} {:>12} {:>14}", "resource", "one pod", format!("{count} pods"))?;
    for pod_set in &totals {
        for (resource, quantity) in pod_set.requests.to_quantities() {
            let single = one.get(&resource).copied().unwrap_or(Quantity::ZERO);
            writeln!(out, "{resource:<20} {single:>12} {quantity:>14}")?;
        }
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<PodSet, Box<dyn Error>> {
    let mut pod = PodSpec::default();
    let mut count = 1;
    let mut rest = args.iter();
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--container" => pod.containers.push(container(value)?),
            "--init" => pod.init_containers.push(container(value)?),
            "--sidecar" => pod.init_containers.push(Container { restart_always: true, ..container(value)? }),
            "--overhead" => pod.overhead = resources(value)?,
            "--count" => count = value.parse()?,
            other => {
                let known = "--container, --init, --sidecar, --overhead, --count";
                return Err(format!("{other} is none of {known}").into());
            }
        }
    }
    Ok(PodSet { name: "main".into(), count, pod, ..PodSet::default() })
}

fn container(text: &str) -> Result<Container, Box<dyn Error>> {
    Ok(Container {
        resources: Resources { requests: resources(text)?, ..Resources::default() },
        ..Container::default()
    })
}

/// `resource=quantity`, separated by commas.
fn resources(text: &str) -> Result<ResourceList, Box<dyn Error>> {
    text.split(',')
        .map(|part| {
            let (resource, quantity) =
                part.split_once('=').ok_or_else(|| format!("{part:?} is not of the form resource=quantity"))?;
            let quantity: Quantity = quantity.parse().map_err(|e: ParseQuantityError| format!("{resource}: {e}"))?;
            Ok((resource.into(), quantity))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(args: &[&str]) -> Result<String, String> {
        let args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
        let mut out = Vec::new();
        run(&args, &mut out).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_demo_counts_the_peak_and_the_overhead() {
        let text = output(&DEMO).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["cpu", "4", "64"]);
        assert_eq!(rows[2], ["google.com/tpu", "4", "64"]);
        assert_eq!(rows[3], ["memory", "8384Mi", "131Gi"]);
    }

    #[test]
    fn mistakes_are_explained() {
        assert!(
            output(&["--container", "cpu=2x"]).unwrap_err().starts_with("cpu: \"2x\" is not a quantity: its suffix")
        );
        assert!(output(&["--container", "cpu"]).unwrap_err().contains("resource=quantity"));
        assert!(output(&["--pod", "cpu=1"]).unwrap_err().contains("none of"));
    }
}
