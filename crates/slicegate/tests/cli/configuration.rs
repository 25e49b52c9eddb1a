//! Kueue's configuration file and feature gates, given to `slicegate simulate`.

use std::path::PathBuf;

use crate::simulate::{QUEUE, job, run_on};

const FILE: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

/// A job of three pods of one cpu each that can do with two, in a queue for two.
fn partial() -> String {
    let job = job("part", "1")
        .replace("metadata: {", "metadata: {annotations: {kueue.x-k8s.io/job-min-parallelism: \"2\"}, ");
    QUEUE.to_owned() + &job.replace("spec:\n  template", "spec:\n  parallelism: 3\n  completions: 3\n  template")
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn gates_change_what_is_decided() {
    let (status, out, err) = run_on(&partial(), &["simulate", "-"]);
    assert_eq!(status, 0, "{out}{err}");
    let without = ["simulate", "-", "--feature-gates", "PartialAdmission=false"];
    let (status, out, err) = run_on(&partial(), &without);
    assert_eq!((status, err.as_str()), (1, ""), "{out}");
    assert!(out.contains("Job part: never admitted"), "{out}");
    let (status, _, err) = run_on(&partial(), &["simulate", "-", "--feature-gates", "PartialAdmision=false"]);
    assert_eq!(status, 2);
    assert!(
        err.contains("error: --feature-gates: feature gate \"PartialAdmision\" is not known; write PartialAdmission\n"),
        "{err}"
    );
}

#[test]
fn the_file_changes_what_is_decided_wherever_it_stands() {
    let text = FILE.to_owned() + "featureGates: {PartialAdmission: false}\n";
    let path = file("gates.yaml", &text);
    let flag = ["simulate", "-", "--config", path.to_str().unwrap()];
    let (status, beside, err) = run_on(&partial(), &flag);
    assert_eq!((status, err.as_str()), (1, ""));
    let (status, among, err) = run_on(&(partial() + &text), &["simulate", "-"]);
    assert_eq!((status, err.as_str()), (1, ""));
    assert_eq!(beside, among);
    assert!(among.contains("Job part: never admitted"), "{among}");
}

#[test]
fn there_is_one_configuration_at_most() {
    let path = file("empty.yaml", FILE);
    let (status, out, err) = run_on(&(partial() + FILE), &["simulate", "-", "--config", path.to_str().unwrap()]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("there can be one Configuration only, and --config "), "{err}");
    let (status, _, err) = run_on(&(partial() + FILE + "---\n" + FILE), &["simulate", "-"]);
    assert_eq!(status, 2);
    assert!(err.contains("there can be one Configuration only, and the first is at standard input:"), "{err}");
}

#[test]
fn what_is_wrong_with_it_is_told_with_its_place() {
    let text = FILE.to_owned() + "waitForPodsReadyy: {}\nwaitForPodsReady: {timeout: soon}\nmetadata: {name: x}\n";
    let (status, out, err) = run_on(&(partial() + &text), &["simulate", "-"]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(
        err.contains("there is no field `waitForPodsReadyy` here") && err.contains("write `waitForPodsReady`"),
        "{err}"
    );
    assert!(err.contains("there is no field `metadata` here"), "{err}");
    let text = FILE.to_owned() + "waitForPodsReady: {timeout: soon}\nfeatureGates: {ShortWorkloadName: true}\n";
    let (_, _, err) = run_on(&(partial() + &text), &["simulate", "-"]);
    assert!(err.contains("\"soon\" is no duration") && err.contains("write ShortWorkloadNames"), "{err}");
    assert!(err.contains("in Configuration, waitForPodsReady.timeout"), "{err}");
    let (_, _, err) = run_on(&(partial() + &FILE.replace("v1beta2", "v1")), &["simulate", "-"]);
    assert!(err.contains("write `apiVersion: config.kueue.x-k8s.io/v1beta2`"), "{err}");
    for (name, text) in [("none.yaml", ""), ("queue.yaml", QUEUE), ("two.yaml", &(FILE.to_owned() + "---\n" + FILE))] {
        let path = file(name, text);
        let (status, _, err) = run_on(&partial(), &["simulate", "-", "--config", path.to_str().unwrap()]);
        assert_eq!(status, 2);
        assert!(err.contains("it must hold one document"), "{name}: {err}");
    }
}

#[test]
fn what_it_leaves_alone_is_told() {
    let text = FILE.to_owned() + "integrations: {frameworks: [jobset.x-k8s.io/jobset, pod]}\n";
    let (_, out, err) = run_on(&(partial() + &text), &["simulate", "-"]);
    assert!(err.contains("warning[unmanaged-kind]: Jobs do not queue"), "{err}");
    assert!(err.contains("help: add batch/job to integrations.frameworks"), "{err}");
    assert!(err.contains("warning: integrations.frameworks[1]: pod is not supported"), "{err}");
    assert!(!out.contains("kubectl get workloads"), "{out}");
}
