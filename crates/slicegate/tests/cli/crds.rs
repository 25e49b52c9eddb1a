//! `slicegate crds`.

use std::process::Command;

use serde_json::Value;

fn run(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_slicegate")).arg("crds").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn named(text: &str) -> Vec<&str> {
    text.lines().filter_map(|l| l.trim().strip_prefix("name: ")).filter(|n| n.ends_with(".kueue.x-k8s.io")).collect()
}

#[test]
fn all_kinds_are_printed_in_either_notation() {
    let (code, yaml, _) = run(&[]);
    assert_eq!(code, 0);
    let (code, json, _) = run(&["--output", "json"]);
    assert_eq!(code, 0);
    let list: Value = serde_json::from_str(&json).unwrap();
    let items = list["items"].as_array().unwrap();
    let names: Vec<&str> = items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(named(&yaml), names);
    assert_eq!(names.len(), 11);
    assert_eq!(yaml.matches("\n---\n").count() + 1, names.len(), "one document each");
}

#[test]
fn the_webhook_is_where_it_is_said_to_be() {
    let conversion = |args: &[&str]| -> Value {
        let (code, json, stderr) = run(&[&["--output", "json"], args].concat());
        assert_eq!(code, 0, "{stderr}");
        let list: Value = serde_json::from_str(&json).unwrap();
        let workloads = list["items"].as_array().unwrap().iter().find(|i| i["spec"]["names"]["plural"] == "workloads");
        workloads.unwrap()["spec"]["conversion"]["webhook"]["clientConfig"].clone()
    };
    let service = conversion(&["--webhook-namespace", "here"]);
    assert_eq!(service["service"]["namespace"], "here");
    assert_eq!(service["service"]["path"], "/convert");
    let url = conversion(&["--webhook-url", "https://127.0.0.1:9443/convert"]);
    assert_eq!(url["url"], "https://127.0.0.1:9443/convert");
    let pem = std::env::temp_dir().join(format!("slicegate-ca-{}.pem", std::process::id()));
    std::fs::write(&pem, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let bundle = conversion(&["--ca-bundle", pem.to_str().unwrap()]);
    std::fs::remove_file(&pem).unwrap();
    assert_eq!(bundle["caBundle"], "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==");
}

#[test]
fn bad_arguments_say_what_to_write() {
    for (args, want) in [
        (&["--webhook-url", "http://x"][..], "https"),
        (&["--ca-bundle", "/does/not/exist"], "/does/not/exist"),
        (&["--webhook-url", "https://x", "--webhook-service", "y"], "cannot be used with"),
        (&["extra"], "unexpected argument"),
    ] {
        let (code, _, stderr) = run(args);
        assert_eq!(code, 2, "{args:?}");
        assert!(stderr.contains(want), "{args:?}: {stderr}");
    }
}
