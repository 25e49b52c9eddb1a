//! Three JobSets on 24 chips of TPU v5e, and one that preempts.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::Kind;
use slicegate_sim::render::{Resource, TableOptions, table};
use slicegate_sim::{EntryKind, Outcome};

use crate::common::{Run, THREE_SLICES, all_finished, apply_at, at, once, pods_on_pools, shared, told, workload};

const QUEUES: &str = "multislice/kueue.yaml";
const VARIANTS: [&str; 2] = ["autopilot", "standard"];

fn jobsets(variant: &str) -> String {
    format!("multislice/jobsets-multislice-{variant}.yaml")
}

fn widest_first(variant: &str) -> Run {
    let order =
        [("1s", "JobSet/multislice-3slice"), ("7s", "JobSet/multislice-2slice"), ("8s", "JobSet/multislice-1slice")];
    Run::default().file(QUEUES).file(&jobsets(variant)).text(THREE_SLICES).text(&apply_at("", &order))
}

/// The name of a pod without its random end.
fn stem(pod: &str) -> &str {
    pod.rsplit_once('-').unwrap().0
}

#[test]
fn the_widest_first_runs_alone_and_the_others_together_after_it() {
    if shared().is_none() {
        return;
    }
    for variant in VARIANTS {
        let outcome = widest_first(variant).run();
        all_finished(&outcome);

        // It is admitted at once, to all 24 chips.
        let wide = workload(&outcome, "multislice-3slice");
        let assignment = &wide.status.admission.as_ref().unwrap().pod_set_assignments[0];
        assert_eq!(assignment.flavors["google.com/tpu"], "vlp-24");
        assert_eq!(assignment.resource_usage["google.com/tpu"].0, "24");
        assert_eq!(assignment.count, Some(6));
        assert_eq!(once(&outcome, EntryKind::Admitted, "multislice-3slice"), 1);

        // The others wait, and say for how much.
        for (job, since, more) in [("multislice-2slice", 7, 16), ("multislice-1slice", 8, 8)] {
            let waits = told(&outcome, EntryKind::Waiting, job);
            assert_eq!(waits.len(), 1, "{waits:?}");
            assert_eq!(waits[0].0, since);
            let numbers = format!("insufficient unused quota for google.com/tpu in flavor vlp-24, {more} more needed");
            assert!(waits[0].1.contains(&numbers), "{}", waits[0].1);
            assert!(waits[0].1.contains("held by JobSet multislice-3slice"), "{}", waits[0].1);
        }

        // One slice, that is one Job with two pods, lies on one node pool that nobody else uses.
        let running = once(&outcome, EntryKind::Running, "multislice-3slice");
        let pods = pods_on_pools(&outcome, running);
        let mut pools: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (pod, pool) in &pods {
            let (slice, _) = stem(pod).rsplit_once('-').unwrap();
            pools.entry(pool).or_default().insert(slice);
        }
        assert_eq!(pods.len(), 6, "{pods:?}");
        assert_eq!(pools.keys().copied().collect::<Vec<_>>(), ["nodepool1", "nodepool2", "nodepool3"]);
        assert!(pools.values().all(|slices| slices.len() == 1), "{pools:?}");
        let stems: Vec<&str> = pods.keys().map(|p| stem(p)).collect();
        let want = ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"].map(|i| format!("multislice-3slice-slice-{i}"));
        assert_eq!(stems, want);
        assert!(pods.keys().all(|p| p.rsplit('-').next().unwrap().len() == 5), "{pods:?}");

        // When it ends both run at once.
        let ended = once(&outcome, EntryKind::Finished, "multislice-3slice");
        for job in ["multislice-1slice", "multislice-2slice"] {
            assert_eq!(once(&outcome, EntryKind::Admitted, job), ended);
            assert!(once(&outcome, EntryKind::Finished, job) > ended);
        }
        assert_eq!(at(&outcome, 100_000, Kind::Pod).len(), 12);
    }
}

#[test]
fn in_file_order_the_first_two_run_and_the_widest_waits() {
    if shared().is_none() {
        return;
    }
    for variant in VARIANTS {
        let outcome = Run::default().file(QUEUES).file(&jobsets(variant)).text(THREE_SLICES).run();
        all_finished(&outcome);
        let first = once(&outcome, EntryKind::Admitted, "multislice-1slice");
        assert_eq!(once(&outcome, EntryKind::Admitted, "multislice-2slice"), first + 1);
        // As 1slice ends a second before 2slice, 16 more are needed for that second.
        let waits = told(&outcome, EntryKind::Waiting, "multislice-3slice");
        let more: Vec<bool> = waits.iter().zip(["24 more", "16 more"]).map(|((_, t), m)| t.contains(m)).collect();
        assert_eq!(more, [true, true], "{waits:?}");
        let both_ended = once(&outcome, EntryKind::Finished, "multislice-1slice").max(once(
            &outcome,
            EntryKind::Finished,
            "multislice-2slice",
        ));
        assert_eq!(once(&outcome, EntryKind::Admitted, "multislice-3slice"), both_ended);
    }
}

#[test]
fn without_node_pools_they_are_made_as_autopilot_does() {
    if shared().is_none() {
        return;
    }
    let outcome = Run::default().file(QUEUES).file(&jobsets("autopilot")).run();
    all_finished(&outcome);
    assert!(outcome.warnings.iter().any(|w| w.contains("Autopilot")), "{:?}", outcome.warnings);
    let ups = outcome.timeline.iter().filter(|e| e.kind == EntryKind::ScaleUp).count();
    let downs = outcome.timeline.iter().filter(|e| e.kind == EntryKind::ScaleDown).count();
    assert_eq!((ups, downs), (3, 3));
    assert_eq!(at(&outcome, 100_000, Kind::Node).len(), 0);
}

#[test]
fn a_class_of_value_100_preempts_a_job_without_a_class() {
    if shared().is_none() {
        return;
    }
    for variant in VARIANTS {
        let order = [
            ("1s", "JobSet/multislice-3slice"),
            ("20s", "JobSet/low-priority"),
            ("3h", "JobSet/multislice-1slice"),
            ("3h", "JobSet/multislice-2slice"),
        ];
        let outcome = Run::default()
            .file(QUEUES)
            .file("multislice/kueue-preemption.yaml")
            .file("multislice/priority-class.yaml")
            .file(&jobsets(variant))
            .file(&format!("multislice/jobset-low-priority-{variant}.yaml"))
            .text(THREE_SLICES)
            .text(&apply_at("", &order))
            .run();
        all_finished(&outcome);
        let preempted = told(&outcome, EntryKind::Preempted, "multislice-3slice");
        assert_eq!(preempted.len(), 1, "{preempted:?}");
        let (when, text) = preempted[0];
        assert_eq!(when, 20);
        assert!(text.contains("low-priority") && text.contains("withinClusterQueue"), "{text}");
        assert!(text.contains('0') && text.contains("100"), "{text}");
        assert_eq!(once(&outcome, EntryKind::Requeued, "multislice-3slice"), when);
        let admitted = told(&outcome, EntryKind::Admitted, "multislice-3slice");
        assert_eq!(admitted.len(), 2, "{admitted:?}");
        let low_ended = once(&outcome, EntryKind::Finished, "low-priority");
        assert_eq!(admitted[1].0, low_ended);
        assert!(once(&outcome, EntryKind::Finished, "multislice-3slice") > low_ended);

        // It gave all back in between: its pods were gone, and so was its quota.
        let between = pods_on_pools(&outcome, once(&outcome, EntryKind::Running, "low-priority"));
        assert!(between.keys().all(|p| p.starts_with("low-priority-")), "{between:?}");
    }
}

#[test]
fn a_preempted_job_keeps_its_place_by_creation_time() {
    if shared().is_none() {
        return;
    }
    // 1slice comes while low-priority holds 8 chips of the 24 that 3slice had. Best effort lets it pass; once both have
    // ended, 3slice, the older one, goes before 2slice, which came while it waited.
    let order = [
        ("1s", "JobSet/multislice-3slice"),
        ("20s", "JobSet/low-priority"),
        ("25s", "JobSet/multislice-1slice"),
        ("26s", "JobSet/multislice-2slice"),
    ];
    let run_times = "  runTimes: {low-priority: 300s, multislice-1slice: 300s}\n";
    let outcome = Run::default()
        .file("multislice/kueue-preemption.yaml")
        .file("multislice/priority-class.yaml")
        .file(&jobsets("standard"))
        .file("multislice/jobset-low-priority-standard.yaml")
        .text(THREE_SLICES)
        .text(&apply_at(run_times, &order))
        .run();
    all_finished(&outcome);
    let last_wide = told(&outcome, EntryKind::Admitted, "multislice-3slice").last().unwrap().0;
    assert!(last_wide >= once(&outcome, EntryKind::Finished, "low-priority"));
    let place = |name: &str| workload(&outcome, name).metadata.creation_timestamp.unwrap();
    assert!(place("multislice-3slice") < place("multislice-1slice"));
}

fn columns(outcome: &Outcome, seconds: i64, legacy: bool) -> Vec<Vec<String>> {
    let time = outcome.start.plus_seconds(seconds);
    let options = TableOptions { legacy, ..TableOptions::default() };
    let text = table(Resource::Workloads, &outcome.objects_at(time), time, &options).to_string();
    text.lines().map(|l| l.split("   ").map(|c| c.trim().to_owned()).filter(|c| !c.is_empty()).collect()).collect()
}

#[test]
fn legacy_names_and_columns_are_the_tutorials_very_own() {
    if shared().is_none() {
        return;
    }
    let outcome = widest_first("autopilot").legacy_names().run();
    // The page shows the table eleven seconds after 3slice was made.
    let rows = columns(&outcome, 11, true);
    let row = |cells: &[&str]| cells.iter().map(|&c| c.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        rows,
        [
            row(&["NAME", "QUEUE", "ADMITTED BY", "AGE"]),
            row(&["jobset-multislice-1slice-2530a", "multislice-queue", "3s"]),
            row(&["jobset-multislice-2slice-ffb02", "multislice-queue", "4s"]),
            row(&["jobset-multislice-3slice-8c695", "multislice-queue", "cluster-queue", "10s"]),
        ]
    );
}

#[test]
fn todays_columns() {
    if shared().is_none() {
        return;
    }
    let outcome = widest_first("autopilot").run();
    let rows = columns(&outcome, 11, false);
    assert_eq!(rows[0], ["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "AGE"]);
    assert_eq!(rows[3][1..], ["multislice-queue", "cluster-queue", "True", "10s"]);
    assert_eq!(rows[1][1..], ["multislice-queue", "False", "3s"]);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    if shared().is_none() {
        return;
    }
    let bytes = || slicegate_sim::render::recording(&widest_first("standard").run());
    assert_eq!(bytes(), bytes());
}
