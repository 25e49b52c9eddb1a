//! `slicegate check`.

use crate::simulate::{run, run_on};

const QUEUE: &str = "\
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team}
spec: {clusterQueue: tpu}
";

/// The codes in a report for programs, in order.
fn codes(out: &str) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_str(out).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|f| f["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_examples_have_these_findings_and_no_others() {
    let (status, out, err) = run(&["check", "--output", "json", "examples/multislice"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    // Both are meant, and the example says so beside them.
    assert_eq!(codes(&out), ["SG0201", "SG0204"], "{out}");
    let (status, out, _) = run(&["check", "--output", "json", "examples/dws"]);
    assert_eq!(status, 0, "{out}");
    assert_eq!(codes(&out), ["SG0405", "SG0655"], "{out}");
    let (status, out, _) = run(&["check", "--output", "json", "examples/slices"]);
    assert_eq!((status, codes(&out)), (0, Vec::new()), "{out}");
}

#[test]
fn the_tutorials_have_these_findings_and_no_others() {
    let Some(shared) = std::env::var_os("SLICEGATE_SHARED") else {
        eprintln!("SKIPPED: SLICEGATE_SHARED names no folder with the tutorials' files");
        return;
    };
    let at = |rest: &str| format!("{}/tutorials/{rest}", shared.to_string_lossy());
    let (status, out, err) = run(&["check", "--output", "json", &at("multislice")]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert_eq!(codes(&out), ["SG0201", "SG0204"], "{out}");
    let pools = ["--env", "ONDEMAND_NODEPOOL=on-demand-pool", "--env", "DWS_NODEPOOL=dws-pool"];
    let (queue, job) = (at("dws/dws-tpu-queue.yaml"), at("dws/rayjob-tpu-v6e-dws.yaml"));
    let jobs = ["--env", "JOB_ID=1", &job, "--env", "JOB_ID=2", &job];
    let (status, out, err) = run(&[&["check", "--output", "json"], &pools[..], &[&queue], &jobs].concat());
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert_eq!(codes(&out), ["SG0405", "SG0655"], "{out}");
}

#[test]
fn the_status_says_what_was_found() {
    let (status, out, _) = run_on(QUEUE, &["check", "-"]);
    assert_eq!(status, 0, "{out}");
    assert!(out.starts_with("warning[SG0301]: there is no ClusterQueue tpu\n --> standard input:4:22\n"), "{out}");
    assert!(out.contains("= why: jobs of this queue wait for ever") && out.contains("\n1 warning\n"), "{out}");
    assert_eq!(run_on(QUEUE, &["check", "--deny", "warnings", "-"]).0, 1);
    assert_eq!(run_on(QUEUE, &["check", "--deny", "warnings", "--allow", "sg0301", "-"]).0, 0);
    assert_eq!(run_on(&QUEUE.replace("tpu}", "[]}"), &["check", "-"]).0, 1);
    let (status, out, _) =
        run_on(&QUEUE.replace("LocalQueue", "ClusterQueue").replace("clusterQueue: tpu", ""), &["check", "-"]);
    assert!(status == 0 && out.contains("SG0310"), "{out}");
}

#[test]
fn bad_use_has_a_status_of_its_own() {
    for line in [
        &["check", "no-such-file.yaml"][..],
        &["check", "--allow", "SG0399", "examples/dws"],
        &["check", "--explain", "SG0399"],
        &["check", "--deny", "everything", "examples/dws"],
        &["check", "--output", "xml", "examples/dws"],
    ] {
        let (status, out, err) = run(line);
        assert_eq!((status, out.as_str()), (2, ""), "{line:?}: {err}");
        assert!(!err.is_empty());
    }
    assert!(run(&["check", "--explain", "SG0399"]).2.contains("the nearest codes are SG030"));
}

#[test]
fn a_code_is_explained() {
    let (status, out, _) = run(&["check", "--explain", "SG0504"]);
    assert_eq!(status, 0);
    for part in [
        "SG0504: A number of pods",
        "Severity: error.",
        "Wrong:\n",
        "Right:\n",
        "Source: ",
        "slicegate.dev/allow: SG0504",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn colours_are_for_terminals() {
    assert!(!run_on(QUEUE, &["check", "-"]).1.contains('\u{1b}'));
    assert!(run_on(QUEUE, &["check", "--color", "always", "-"]).1.contains('\u{1b}'));
}

#[test]
fn code_scanning_gets_sarif() {
    let (status, out, _) = run(&["check", "--output", "sarif", "examples/dws"]);
    assert_eq!(status, 0);
    let log: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let uris: Vec<&str> = results
        .iter()
        .map(|r| r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap())
        .collect();
    assert_eq!(uris, ["examples/dws/20-queues.yaml", "examples/dws/jobs/rayjob.yaml"]);
}

#[test]
fn an_empty_allow_allows_nothing() {
    let (status, out, err) = run_on(QUEUE, &["check", "--allow", "", "--allow", "SG0302,", "--output", "json", "-"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert_eq!(codes(&out), ["SG0301"]);
}

#[test]
fn what_kubectl_creates_needs_no_name() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: night-}\n\
               spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n";
    let (status, out, err) = run_on(job, &["check", "--deny", "warnings", "-"]);
    assert_eq!((status, out.as_str(), err.as_str()), (0, "nothing found\n", ""));
}

#[test]
fn fields_are_called_as_in_the_version_that_is_written() {
    let queue = |version: &str, more: &str| {
        format!(
            "apiVersion: kueue.x-k8s.io/{version}
kind: ClusterQueue
metadata: {{name: q}}
spec:
  namespaceSelector: {{}}
  preemption: {{reclaimWithinCohort: Any}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: 4{more}}}]}}]
"
        )
    };
    for (version, name) in [("v1beta1", "cohort"), ("v1beta2", "cohortName")] {
        let (_, out, _) = run_on(&queue(version, ""), &["check", "-"]);
        assert!(out.contains(&format!("or name the cohort in spec.{name}\n")), "{out}");
        let (_, out, _) = run_on(&queue(version, ", borrowingLimit: 1"), &["check", "-"]);
        assert!(out.contains(&format!("`borrowingLimit` must not be there without {name}\n")), "{out}");
        let slip = queue(version, "").replace("  preemption", "  cohrt: x\n  preemption");
        let (_, out, _) = run_on(&slip, &["check", "-"]);
        let help = if version == "v1beta1" { "help: write `cohort`\n" } else { "there is no field `cohrt`" };
        assert!(out.contains(help), "{out}");
        assert!(!out.contains(if version == "v1beta1" { "cohortName" } else { "`cohort`" }), "{out}");
    }
}
