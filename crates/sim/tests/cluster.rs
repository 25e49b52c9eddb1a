//! Whole runs on simulated clusters, with a controller that hands out chips first come, first served.

mod common;

use common::{Fifo, jobset, lines, pool, rayjob, run, scaling_pool};

#[test]
fn three_jobsets_share_three_slices() {
    let items = vec![
        pool("nodepool1", "ct5lp-hightpu-4t", "2x4", 2),
        pool("nodepool2", "ct5lp-hightpu-4t", "2x4", 2),
        pool("nodepool3", "ct5lp-hightpu-4t", "2x4", 2),
        jobset("multislice-3slice", 3),
        jobset("multislice-1slice", 1),
        jobset("multislice-2slice", 2),
    ];
    let outcome = run(items, Fifo::with_chips(24));
    for line in lines(&outcome) {
        println!("{line}");
    }
    panic!();
}
#[test]
fn ray() {
    let items = vec![
        common::item(
            serde_json::json!({"kind": "NodePool", "name": "default-pool", "initialNodeCount": 1, "config": {"machineType": "n2-standard-16"}}),
        ),
        scaling_pool("on-demand", "ct6e-standard-4t", "4x4", 4, false),
        rayjob("ray-1"),
    ];
    let outcome = run(items, Fifo::with_chips(24));
    for line in lines(&outcome) {
        println!("{line}");
    }
    println!("{:#?}", outcome.verdicts);
    panic!();
}
