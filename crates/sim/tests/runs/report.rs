//! How well chips are used.

use crate::common::{Fifo, item, jobset, pool, run};
use serde_json::{Value, json};
use slicegate_api::ObjectRef;
use slicegate_sim::{Item, Outcome, render};

fn scenario(spec: &Value) -> Item {
    item(json!({"kind": "Scenario", "metadata": {"name": "s"}, "spec": spec}))
}

fn pools(count: usize) -> Vec<Item> {
    (1..=count).map(|i| pool(&format!("nodepool{i}"), "ct5lp-hightpu-4t", "2x4", 2)).collect()
}

fn chip_seconds(outcome: &Outcome) -> Value {
    render::json(outcome)["report"]["chipSeconds"].clone()
}

#[test]
fn chip_time_adds_up() {
    let mut items = pools(2);
    items.push(jobset("train", 2));
    items.push(scenario(&json!({"runTime": "10m"})));
    let outcome = run(items, Fifo::with_chips(16));
    // Every pod runs for ten minutes: the leaders from 2 s on, the followers from 3 s on, when the slices are whole.
    assert_eq!(
        chip_seconds(&outcome),
        json!({"available": 16 * 603, "free": 16 + 8 + 8, "stranded": 8 + 8, "running": 16 * 600, "productive": 16 * 600 - 8, "useful": 16 * 600 - 8, "lost": 0, "unfinished": 0})
    );
    let text = render::chips(&outcome);
    assert_eq!(text, "scheduling goodput 99.4%: 2.66 of 2.68 chip-hours (2.66 useful)\n");
}

#[test]
fn a_restart_loses_what_was_done() {
    let mut items = pools(2);
    items.push(pool("other", "ct5lp-hightpu-4t", "4x4", 4));
    items.push(jobset("train", 1));
    items.push(scenario(&json!({"runTime": "30m", "events": [
        {"at": "1s", "fail": {"pool": "nodepool2", "repairAfter": "never"}},
        {"at": "10m", "fail": {"job": "JobSet/train", "host": 1, "repairAfter": "15m"}}
    ]})));
    let outcome = run(items, Fifo::with_chips(16));
    let times = chip_seconds(&outcome);
    // From 3 s to 10 min all was well; the second run starts a second after the repair, at 25 min.
    assert_eq!((&times["lost"], &times["useful"]), (&json!(8 * 597), &json!(8 * 1_800)));
    assert_eq!(times["productive"], json!(8 * (597 + 1_800)));
    // A slice is not available from the moment one of its hosts broke.
    assert_eq!(times["available"], json!(16 * 3_301 + 8 + 8 * (3_301 - 900)));
    assert!(render::chips(&outcome).contains("1.33 lost to restarts"), "{}", render::chips(&outcome));
}

#[test]
fn an_eviction_loses_what_was_done() {
    let evicted = ObjectRef::new(slicegate_api::Kind::JobSet, "default", "train");
    let mut items = pools(1);
    items.push(jobset("train", 1));
    items.push(scenario(&json!({"runTime": "5m"})));
    let outcome = run(items, Fifo { evict: Some((60, evicted)), ..Fifo::with_chips(8) });
    let times = chip_seconds(&outcome);
    assert_eq!((&times["lost"], &times["useful"]), (&json!(8 * 57), &json!(8 * 300 - 4)));
}

#[test]
fn what_runs_at_the_end_is_unfinished() {
    let mut items = pools(1);
    items.push(jobset("train", 1));
    items.push(scenario(&json!({"runTime": "1h", "until": "10m"})));
    let times = chip_seconds(&run(items, Fifo::with_chips(8)));
    assert_eq!((&times["available"], &times["unfinished"]), (&json!(8 * 600), &json!(8 * 597)));
}

#[test]
fn a_slice_that_waits_for_another_produces_nothing() {
    // Quota for two slices, hardware for one.
    let mut items = pools(1);
    items.push(jobset("train", 2));
    items.push(scenario(&json!({"until": "1m"})));
    let outcome = run(items, Fifo::with_chips(16));
    let times = chip_seconds(&outcome);
    assert_eq!(times["productive"], 0);
    assert!(times["running"].as_i64().unwrap() > 0);
}

#[test]
fn free_chips_that_form_no_slice_are_fragments() {
    let small = |name: &str| {
        item(json!({"kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": {"restartPolicy": "Never",
            "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"},
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {"google.com/tpu": "4"}}}]}}}}))
    };
    let mut items = pools(2);
    items.push(pool("large", "ct5lp-hightpu-4t", "4x4", 4));
    items.extend([small("a"), small("b"), small("c")]);
    items.push(scenario(&json!({"runTime": "10m"})));
    let outcome = run(items, Fifo::default());
    let samples = render::json(&outcome)["report"]["samples"].clone();
    let samples = samples.as_array().unwrap();
    let at = |second: i64| samples.iter().rev().find(|s| s["elapsedSeconds"].as_i64().unwrap() <= second).unwrap();
    assert_eq!((&at(0)["free"], &at(0)["formable"], &at(0)["available"]), (&json!(32), &json!(32), &json!(32)));
    assert_eq!(at(0)["largestSlice"], json!({"accelerator": "tpu-v5-lite-podslice", "topology": "4x4", "chips": 16}));
    // One host of the first slice is in use: the other is left over.
    assert_eq!((&at(1)["free"], &at(1)["formable"]), (&json!(28), &json!(24)));
    assert_eq!((&at(3)["free"], &at(3)["formable"]), (&json!(20), &json!(16)));
    assert_eq!(at(3)["fragmentation"], json!(0.2));
    let text = render::chips(&outcome);
    assert!(text.contains("\nfragmentation "), "{text}");
}
