//! A large cluster: `cargo run --release -p slicegate-sim --example scale -- [JOBSETS] [SLICES] [QUEUES]`.
//!
//! JobSets of one slice each, 10,000 of them on 1,000 slices through 50 ClusterQueues in 10 Cohorts unless told otherwise.
//! With `bare` as the last word nobody queues them: all wait for nodes.

use std::io::{self, Write};

use serde_json::json;
use slicegate_api::Kind;
use slicegate_controller::{Change, Configuration, Effects, WriteOutcome};
use slicegate_sim::{Admission, Input, Item, NoFiles, Options, Simulation};
use slicegate_workload::Timestamp;

/// Admits nothing, for there is nothing to admit.
struct Nobody;

impl Admission for Nobody {
    fn observe(&mut self, _: Timestamp, _: Change) {}

    fn complete(&mut self, _: Timestamp, _: WriteOutcome) {}

    fn reconcile(&mut self, _: Timestamp) -> Effects {
        Effects::default()
    }
}

fn object(kind: Kind, value: serde_json::Value) -> io::Result<Item> {
    kind.read(value).map(Item::Object).map_err(io::Error::other)
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let mut next = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let bare = std::env::args().any(|word| word == "bare");
    let (jobsets, slices, queues) = (next(10_000), next(1_000), next(50).max(1));
    let mut items = Vec::new();
    for i in 0..slices {
        let pool = json!({
            "name": format!("slice-{i:04}"), "initialNodeCount": 2, "config": {"machineType": "ct5lp-hightpu-4t"},
            "placementPolicy": {"tpuTopology": "2x4"}
        });
        items.push(Item::NodePool(serde_json::from_value(pool).map_err(io::Error::other)?));
    }
    items.push(object(Kind::ResourceFlavor, json!({"metadata": {"name": "v5e"}, "spec": {}}))?);
    for i in 0..queues {
        let quota = slices * 8 / queues;
        let cohort = format!("cohort-{}", i % (queues / 5).max(1));
        items.push(object(
            Kind::ClusterQueue,
            json!({"metadata": {"name": format!("cq-{i}")}, "spec": {"namespaceSelector": {}, "cohortName": cohort,
                "queueingStrategy": "BestEffortFIFO",
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}, "resourceGroups": [{"coveredResources": ["google.com/tpu"],
                "flavors": [{"name": "v5e", "resources": [{"name": "google.com/tpu", "nominalQuota": quota.to_string()}]}]}]}}),
        )?);
        let queue = json!({"metadata": {"name": format!("lq-{i}"), "namespace": "default"},
                           "spec": {"clusterQueue": format!("cq-{i}")}});
        items.push(object(Kind::LocalQueue, queue)?);
    }
    for i in 0..jobsets {
        items.push(object(
            Kind::JobSet,
            json!({
                "metadata": {
                    "name": format!("train-{i:05}"),
                    "labels": if bare { json!({}) } else { json!({"kueue.x-k8s.io/queue-name": format!("lq-{}", i % queues)}) },
                    "annotations": {
                        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
                        "slicegate.dev/run-time": format!("{}s", 600 + i * 37 % 3_600)
                    }
                },
                "spec": {"replicatedJobs": [{"name": "slice", "replicas": 1, "template": {"spec": {
                    "parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": {
                        "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                                         "cloud.google.com/gke-tpu-topology": "2x4"},
                        "containers": [{"name": "c", "image": "python:3.12",
                                        "resources": {"limits": {"google.com/tpu": "4"}}}]}}}}}]}
            }),
        )?);
    }
    let options = Options { keep_history: false, ..Options::default() };
    let input = Input { items, options };
    let failed = |errors| io::Error::other(format!("{errors:?}"));
    let outcome = if bare {
        Simulation::with(input, &NoFiles, Nobody).map_err(failed)?.run()
    } else {
        Simulation::new(input, &NoFiles, Configuration::default()).map_err(failed)?.run()
    };
    let hours = outcome.end.micros_since(outcome.start) / 3_600_000_000;
    let finished =
        outcome.verdicts.iter().filter(|v| matches!(v.verdict, slicegate_sim::Verdict::Finished { .. })).count();
    writeln!(out, "{finished} of {} jobs finished in {hours} simulated hours", outcome.verdicts.len())
}
