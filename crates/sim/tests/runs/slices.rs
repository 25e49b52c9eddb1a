//! Flavors that ask for whole slices: what is admitted, and what is said of jobs that wait.

use std::fmt::Write as _;

use slicegate_controller::Configuration;
use slicegate_manifest::{Options as LoadOptions, Source, load};
use slicegate_sim::render::{self, TextOptions};
use slicegate_sim::{Input, NoFiles, Options, Outcome, Simulation};

/// A queue with more quota than there will ever be hardware.
fn queues(whole_slices: bool) -> String {
    format!(
        "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: v5e, annotations: {{slicegate.dev/whole-slices: \"{whole_slices}\"}}}}
spec: {{nodeLabels: {{cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  preemption: {{withinClusterQueue: LowerPriority}}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{{name: v5e, resources: [{{name: google.com/tpu, nominalQuota: 1000}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: lq, namespace: default}}
spec: {{clusterQueue: cq}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: high}}
value: 1000
---
"
    )
}

/// Node pools of one slice each; those without autoscaling are there from the start.
fn pools(list: &[(&str, &str, bool)]) -> String {
    let mut text = String::new();
    for (name, topology, autoscaled) in list {
        let (x, y) = topology.split_once('x').unwrap();
        let hosts = x.parse::<u32>().unwrap() * y.parse::<u32>().unwrap() / 4;
        let size = if *autoscaled {
            format!("\"autoscaling\": {{\"enabled\": true, \"maxNodeCount\": {hosts}}}")
        } else {
            format!("\"initialNodeCount\": {hosts}")
        };
        let _ = writeln!(
            text,
            "{{\"name\": \"{name}\", \"config\": {{\"machineType\": \"ct5lp-hightpu-4t\"}}, \
             \"placementPolicy\": {{\"tpuTopology\": \"{topology}\"}}, {size}}}\n---"
        );
    }
    text
}

/// A JobSet of so many slices.
fn jobset(name: &str, topology: &str, slices: u32, more: &str) -> String {
    let (x, y) = topology.split_once('x').unwrap();
    let hosts = x.parse::<u32>().unwrap() * y.parse::<u32>().unwrap() / 4;
    format!(
        "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: lq}}
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
    slicegate.dev/run-time: 10m
spec:
  failurePolicy: {{maxRestarts: 3}}
  replicatedJobs:
  - name: slice
    replicas: {slices}
    template:
      spec:
        parallelism: {hosts}
        completions: {hosts}
        backoffLimit: 0
        template:
          spec:
            {more}
            nodeSelector: {{cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: {topology}}}
            containers: [{{name: c, image: x, resources: {{limits: {{google.com/tpu: 4}}}}}}]
---
"
    )
}

fn scenario(events: &[&str]) -> String {
    let events = events.iter().map(|e| format!("{{{e}}}")).collect::<Vec<_>>().join(", ");
    format!(
        "apiVersion: slicegate.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: s}}\nspec: {{events: [{events}]}}\n---\n"
    )
}

fn run(text: &str) -> Outcome {
    let sources = [Source { name: "m.yaml".to_owned(), text: text.to_owned(), ..Source::default() }];
    let loaded = load(&sources, &LoadOptions::default());
    assert!(!loaded.has_errors(), "{:#?}", loaded.diagnostics);
    let input = Input::new(loaded.documents, Options::default());
    Simulation::new(input, &NoFiles, Configuration::default()).unwrap().run()
}

fn told(outcome: &Outcome) -> String {
    render::timeline(outcome, TextOptions::default()) + &render::summary(outcome)
}

/// The time, in words, of the first line that holds all of these.
#[track_caller]
fn when(told: &str, words: &[&str]) -> String {
    let line = told.lines().find(|l| words.iter().all(|w| l.contains(w)));
    line.unwrap_or_else(|| panic!("no line with {words:?} in\n{told}")).split_whitespace().next().unwrap().to_owned()
}

const THREE: [(&str, &str, bool); 3] = [("a", "2x4", true), ("b", "2x4", true), ("c", "2x4", true)];

fn three_jobs() -> String {
    jobset("three", "2x4", 3, "") + &jobset("two", "2x4", 2, "") + &jobset("one", "2x4", 1, "")
}

#[test]
fn quota_without_hardware_admits_nobody() {
    let with = told(&run(&(queues(true) + &pools(&THREE) + &three_jobs())));
    assert!(with.contains("3 of 3 jobs finished"), "{with}");
    let end = when(&with, &["JobSet three", "finished"]);
    for job in ["JobSet two ", "JobSet one "] {
        assert_eq!(when(&with, &[job, "admitted by"]), end, "{with}");
    }
    when(&with, &["JobSet two ", "waits for whole slices of v5e: 0 slices of 2x4 are free, 2 needed; 3 in use"]);
    // Kueue counts chips: everybody is admitted, and pods wait for nodes that are in use.
    let without = told(&run(&(queues(false) + &pools(&THREE) + &three_jobs())));
    assert!(when(&without, &["JobSet two ", "admitted by"]) < end, "{without}");
    assert!(!without.contains("whole slices"), "{without}");
}

#[test]
fn a_pool_that_may_grow_again_is_taken_into_account() {
    let events = scenario(&[
        "at: 5m, scale: {object: NodePool/b, maxNodes: 2}",
        "at: 1s, apply: {object: JobSet/two}",
        "at: 0s, scale: {object: NodePool/b, maxNodes: 0}",
    ]);
    let text = queues(true) + &pools(&THREE[..2]) + &events + &jobset("two", "2x4", 2, "");
    let told = told(&run(&text));
    when(&told, &["JobSet two ", "waits for whole slices of v5e: 1 slice of 2x4 is free, 2 needed"]);
    assert_eq!(when(&told, &["JobSet two ", "admitted by"]), "00:05:00", "{told}");
    assert!(told.contains("1 of 1 jobs finished"), "{told}");
}

#[test]
fn two_topologies_of_one_flavor() {
    let text = queues(true)
        + &pools(&[("small", "2x4", true), ("large", "4x4", true)])
        + &jobset("first", "4x4", 1, "")
        + &jobset("second", "4x4", 1, "")
        + &jobset("small", "2x4", 1, "");
    let told = told(&run(&text));
    when(
        &told,
        &[
            "JobSet second ",
            "waits for whole slices of v5e: 0 slices of 4x4 are free, 1 needed; 1 in use; the largest free slice is 2x4",
        ],
    );
    let end = when(&told, &["JobSet first ", "finished"]);
    assert_eq!(when(&told, &["JobSet second ", "admitted by"]), end, "{told}");
    assert!(when(&told, &["JobSet small ", "admitted by"]) < end, "{told}");
    assert!(told.contains("3 of 3 jobs finished"), "{told}");
}

#[test]
fn a_higher_priority_preempts_for_slices_although_quota_is_free() {
    let events = scenario(&["at: 4m, apply: {object: JobSet/urgent}"]);
    let text = queues(true)
        + &pools(&THREE)
        + &events
        + &jobset("first", "2x4", 2, "")
        + &jobset("second", "2x4", 1, "")
        + &jobset("urgent", "2x4", 2, "priorityClassName: high");
    let told = told(&run(&text));
    when(&told, &["JobSet first ", "is preempted by JobSet urgent"]);
    assert_eq!(told.matches("is preempted").count(), 1, "one that has two slices is enough: {told}");
    assert!(told.contains("3 of 3 jobs finished"), "{told}");
}

#[test]
fn a_broken_slice_is_given_to_nobody() {
    let events = scenario(&[
        "at: 30s, evictNode: {pool: b, count: 1, for: 30m}",
        "at: 1m, apply: {object: JobSet/two}",
        "at: 2m, apply: {object: JobSet/one}",
    ]);
    let standing = [("a", "2x4", false), ("b", "2x4", false)];
    let text = queues(true) + &pools(&standing) + &events + &jobset("two", "2x4", 2, "") + &jobset("one", "2x4", 1, "");
    let told = told(&run(&text));
    when(
        &told,
        &[
            "JobSet two ",
            "waits for whole slices of v5e: 1 slice of 2x4 is free, 2 needed; 8 chips are free, but on 1 broken slice",
        ],
    );
    assert_eq!(when(&told, &["JobSet one ", "admitted by"]), "00:02:00", "{told}");
    assert!(when(&told, &["JobSet two ", "admitted by"]).as_str() >= "00:30:30", "{told}");
    assert!(told.contains("2 of 2 jobs finished"), "{told}");
}
