//! Where do the pods go? Places pods on a small cluster of racks and shows what is left.
//!
//! ```text
//! cargo run -p slicegate-examples --bin topology_placement -- required:rack=8 anywhere=3 required:block=8/rack:4
//! ```
//!
//! Each argument is a job: how close its pods must lie (`required:LEVEL`, `preferred:LEVEL` or `anywhere`), how many pods there are,
//! and, if wanted, slices of pods that must lie in one domain of a level. Levels are `block`, `rack` and `host`; a pod takes one TPU
//! chip. It uses `slicegate-placement` without queues or quotas.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use slicegate_placement::{
    Features, HOSTNAME_LABEL, Node, OtherPods, PlacementUsage, PodRequest, PodSetRequest, Reach, Topologies,
};
use slicegate_quota::{FlavorId, Names};
use slicegate_workload::{FlavorSpec, PodSpec, Requests, TopologyRequest, TopologySpec};

const DEMO: [&str; 5] =
    ["required:rack=8", "anywhere=3", "required:block=8/rack:4", "preferred:rack=10", "required:host=5"];
const TPU: &str = "google.com/tpu";

fn main() -> ExitCode {
    let mut jobs: Vec<String> = std::env::args().skip(1).collect();
    if jobs.is_empty() {
        jobs = DEMO.map(str::to_owned).into();
    }
    match run(&jobs, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(jobs: &[String], out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut names = Names::new();
    let mut topologies = Topologies::new(Features::default());
    let flavor = cluster(&mut topologies, &mut names);
    let requests: Requests = [(TPU, 1)].into_iter().collect();
    let one_pod = PodRequest::new(&requests, &mut names);
    let pod = PodSpec::default();

    for text in jobs {
        let (topology, count) = parse(text)?;
        let request = PodSetRequest {
            name: text,
            count,
            pod_request: &one_pod,
            pod: &pod,
            updates: &[],
            topology: Some(&topology),
            group: None,
            flavor,
            previous: None,
            replacement: None,
        };
        let placements = topologies.place(&[request], PlacementUsage::Current);
        let Some(placement) = placements.first() else { continue };
        if let Some(assignment) = placement.assignment() {
            let hosts = assignment.domains.iter().map(|d| format!("{}: {}", d.values.join("/"), d.count));
            writeln!(out, "{text}\n    {}", hosts.collect::<Vec<_>>().join(", "))?;
            let usage = topologies.usage(flavor, assignment, &one_pod);
            topologies.add(&usage, Reach::Node);
        }
        if let Some(failure) = placement.failure() {
            writeln!(out, "{text}\n    {failure}")?;
        }
    }

    writeln!(out, "\nchips left:")?;
    let Some(tree) = topologies.tree(flavor) else { return Ok(()) };
    for leaf in 0..u32::try_from(tree.leaf_count())? {
        let left = topologies.room(flavor, leaf, &one_pod, PlacementUsage::Current);
        writeln!(out, "    {}: {left}", tree.leaf_values(leaf).join("/"))?;
    }
    Ok(())
}

/// Two blocks of two racks of two hosts with four chips each.
fn cluster(topologies: &mut Topologies, names: &mut Names) -> FlavorId {
    let node = |i: u32| {
        let (block, rack, host) = (i / 4 + 1, i / 2 + 1, i + 1);
        let labels = [("block", block), ("rack", rack), (HOSTNAME_LABEL, host)];
        let labels =
            labels.map(|(key, n)| (key.into(), format!("{}{n}", &key.replace("kubernetes.io/", "")[..1]).into()));
        Node {
            name: format!("h{host}").into(),
            labels: labels.into(),
            ready: true,
            allocatable: [(TPU, 4), ("pods", 110)].into_iter().collect(),
            ..Node::default()
        }
    };
    let nodes: Vec<Node> = (0..8).map(node).collect();
    let flavor = FlavorSpec { name: "tpu".into(), ..FlavorSpec::default() };
    let levels = vec!["block".into(), "rack".into(), HOSTNAME_LABEL.into()];
    topologies.set(&flavor, &TopologySpec { name: "pod".into(), levels }, &nodes, &OtherPods::new(), names);
    names.intern_flavor("tpu")
}

/// A job as text: `required:rack=8/host:2`.
fn parse(text: &str) -> Result<(TopologyRequest, i32), Box<dyn Error>> {
    let wrong = || format!("{text:?} is not of the form CLOSENESS[:LEVEL]=PODS[/LEVEL:PODS_A_SLICE]");
    let level = |name: &str| if name == "host" { HOSTNAME_LABEL.into() } else { name.into() };
    let (closeness, rest) = text.split_once('=').ok_or_else(wrong)?;
    let mut request = TopologyRequest::default();
    match closeness.split_once(':') {
        Some(("required", name)) => request.required = Some(level(name)),
        Some(("preferred", name)) => request.preferred = Some(level(name)),
        None if closeness == "anywhere" => request.unconstrained = Some(true),
        _ => return Err(wrong().into()),
    }
    let (count, slices) = rest.split_once('/').map_or((rest, None), |(count, slices)| (count, Some(slices)));
    if let Some(slices) = slices {
        let (name, size) = slices.split_once(':').ok_or_else(wrong)?;
        (request.slice_required_topology, request.slice_size) = (Some(level(name)), Some(size.parse()?));
    }
    Ok((request, count.parse()?))
}
