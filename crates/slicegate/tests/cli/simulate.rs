//! `slicegate simulate`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn slicegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slicegate"));
    command.args(args).current_dir(root()).env_remove("JOB_ID").env("TERM", "dumb");
    command
}

pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    read(slicegate(args).output().unwrap())
}

fn read(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

pub(crate) fn run_on(text: &str, args: &[&str]) -> (i32, String, String) {
    let mut child =
        slicegate(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    read(child.wait_with_output().unwrap())
}

pub(crate) const QUEUE: &str = "
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: any, resources: [{name: cpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: team}
---
";

pub(crate) fn job(name: &str, cpu: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: team}}}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}}}}}}}]
---
"
    )
}

#[test]
fn every_job_finishes_and_the_status_says_so() {
    let (status, out, err) = run_on(&(QUEUE.to_owned() + &job("small", "1")), &["simulate", "-"]);
    assert_eq!(status, 0, "{out}{err}");
    assert!(out.contains("1 of 1 jobs finished"), "{out}");
    assert!(out.contains("$ kubectl get workloads\nNAME"), "{out}");
}

#[test]
fn what_can_never_be_admitted_is_named_and_the_status_says_so() {
    let (status, out, _) = run_on(&(QUEUE.to_owned() + &job("small", "1") + &job("large", "3")), &["simulate", "-"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("1 of 2 jobs finished"), "{out}");
    let verdict = out.lines().find(|l| l.starts_with("Job large: never admitted")).unwrap_or_else(|| panic!("{out}"));
    assert!(verdict.contains("insufficient quota for cpu in flavor any"), "{verdict}");
}

#[test]
fn bad_input_is_told_whole_and_nothing_runs() {
    let text = QUEUE.replace("nominalQuota: 2", "nominalQuota: two").replace("clusterQueue: team", "clusterQeue: team");
    let (status, out, err) = run_on(&text, &["simulate", "-"]);
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("\"two\" is not a quantity"), "{err}");
    assert!(err.contains("standard input:13:"), "{err}");
    assert!(err.contains("there is no field `clusterQeue` here"), "{err}");
    assert!(err.contains("nothing was simulated"), "{err}");
}

#[test]
fn what_kueue_accepts_is_a_warning_and_the_run_goes_on() {
    let text = QUEUE.replace("{name: any, resources", "{name: other, resources") + &job("small", "1");
    let (status, out, err) = run_on(&text, &["simulate", "-"]);
    assert_eq!(status, 1, "{out}");
    assert!(err.contains("warning[SG0304]: there is no ResourceFlavor other"), "{err}");
    assert!(out.contains("Job small: never admitted"), "{out}");
}

#[test]
fn what_rules_find_is_said_before_and_can_be_allowed() {
    let text = QUEUE.replace("[cpu]", "[cpu, google.com/tpu]").replace(
        "{name: cpu, nominalQuota: 2}",
        "{name: cpu, nominalQuota: 20}, {name: google.com/tpu, nominalQuota: 64}",
    ) + "name: slices
config: {machineType: ct5lp-hightpu-4t}
initialNodeCount: 4
placementPolicy: {tpuTopology: 4x4}
---
" + &job("three", "1").replace("spec:\n  template", "spec:\n  completionMode: Indexed\n  parallelism: 3\n  completions: 3\n  template").replace(
        "requests: {cpu: 1}",
        "limits: {google.com/tpu: 4}",
    ).replace(
        "      restartPolicy",
        "      nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, cloud.google.com/gke-tpu-topology: 4x4}
      restartPolicy",
    );
    let (status, out, err) = run_on(&text, &["simulate", "-"]);
    assert_eq!(status, 0, "{out}{err}");
    assert!(err.starts_with("warning[SG0504]: a 4x4 slice of ct5lp-hightpu-4t has 4 hosts"), "{err}");
    assert!(err.contains("help: set parallelism and completions to 4"), "{err}");
    let allowed = text.replace("{name: three, ", "{name: three, annotations: {slicegate.dev/allow: SG0504}, ");
    let (status, _, err) = run_on(&allowed, &["simulate", "-"]);
    assert_eq!((status, err.as_str()), (0, ""));
}

#[test]
fn files_that_are_not_there_are_all_named() {
    let (status, _, err) = run(&["simulate", "no-such-file.yaml", "no-such-folder/"]);
    assert_eq!(status, 2);
    assert!(err.contains("no-such-file.yaml") && err.contains("no-such-folder"), "{err}");
    let (status, _, err) = run(&["simulate", "--at", "soon", "examples/dws"]);
    assert_eq!(status, 2);
    assert!(err.contains("--at soon"), "{err}");
}

#[test]
fn one_file_can_be_applied_twice() {
    let args = ["examples/dws/10-node-pools.json", "examples/dws/20-queues.yaml"];
    let job = "examples/dws/jobs/rayjob.yaml";
    let (status, out, err) =
        run(&[&["simulate", "--quiet"][..], &args, &["--env", "JOB_ID=1", job, "--env", "JOB_ID=2", job]].concat());
    assert_eq!(status, 0, "{err}");
    assert!(
        out.contains("RayJob rayjob-tpu-v6e-dws-1: finished") && out.contains("RayJob rayjob-tpu-v6e-dws-2: finished")
    );
    let (status, _, err) = run(&[&["simulate", "--quiet"][..], &args, &[job]].concat());
    assert_eq!(status, 2);
    assert!(err.contains("JOB_ID") && err.contains("rayjob.yaml:5:"), "{err}");
}

#[test]
fn a_second_replica_waits_for_the_flavor_of_the_first() {
    let at = "examples/dws/";
    let files = ["10-node-pools.json", "20-queues.yaml", "scenarios/second-replica.yaml"].map(|f| format!("{at}{f}"));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let (status, out, err) = run(&[&["simulate", "--at", "5m", "--at", "10m"][..], &files].concat());
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("waits for quota: needs 16 google.com/tpu (0 free)"), "{out}");
    assert!(out.contains("an elastic job grows only on the flavor that it runs on"), "{out}");
    let (timeline, tables) = out.split_once("At 00:05:00:").unwrap();
    assert!(!timeline.contains("on dws"), "it goes nowhere else, nor does what is left of it: {timeline}");
    let (meanwhile, afterwards) = tables.split_once("At 00:10:00:").unwrap();
    let workers = |state: &str| meanwhile.lines().filter(|l| l.contains("-worker-") && l.contains(state)).count();
    assert_eq!((workers("Running"), workers("Pending")), (4, 4), "{meanwhile}");
    let waits: Vec<&str> =
        afterwards.lines().filter(|l| l.starts_with("rayjob-rayjob-") && !l.contains("cluster-queue")).collect();
    assert!(waits.len() == 1 && waits[0].contains("False"), "{afterwards}");
}

#[test]
fn tables_are_printed_as_they_were() {
    let (_, out, _) = run(&["simulate", "--quiet", "--at", "10s", "--at", "3m10s", "examples/multislice"]);
    let (early, late) = out.split_once("At 00:03:10:").unwrap();
    assert!(early.starts_with("At 00:00:10:"), "{early}");
    let row = |text: &str| text.lines().find(|l| l.starts_with("multislice-3slice ")).unwrap().to_owned();
    assert!(row(early).contains("false"), "{early}");
    assert!(row(late).contains("Completed"), "{late}");
}

#[test]
fn programs_get_json() {
    let (status, out, _) = run(&["simulate", "--output", "json", "examples/dws"]);
    assert_eq!(status, 0);
    let all: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(all["verdicts"].as_array().unwrap().len(), 2);
    assert!(all["timeline"].as_array().unwrap().len() > 10);
    assert!(all["objects"].as_array().unwrap().iter().any(|o| o["kind"] == "Workload"));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    assert_eq!(run(&["simulate", "examples/multislice"]), run(&["simulate", "examples/multislice"]));
}

/// Every `$ ...slicegate...` or `cargo run ...` command in the README with output below it prints that output. A line of `...`
/// stands for any number of lines.
#[test]
fn the_readme_shows_what_happens() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut shown = 0;
    for block in readme.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let (command, want) = block.split_once('\n').unwrap();
        let Some((_, args)) = command.split_once(" -- simulate ") else { continue };
        let args: Vec<&str> = ["simulate"].into_iter().chain(args.split_whitespace()).collect();
        let (_, out, _) = run(&args);
        let mut lines = out.lines();
        let mut skipping = false;
        for want in want.lines() {
            if want == "..." {
                skipping = true;
            } else if skipping {
                assert!(lines.any(|l| l == want), "{command} does not print (or not there):\n{want}\nbut\n{out}");
                skipping = false;
            } else {
                assert_eq!(lines.next(), Some(want), "{command} prints\n{out}");
            }
        }
        shown += 1;
    }
    assert!(shown > 0, "the README shows no simulation");
}
