//! Sets of manifests as people write them: what is found in them is what is wrong with them.

use std::path::Path;

use slicegate_check::{Options, Report, check};
use slicegate_manifest::{Source, load};

fn look(name: &str, change: impl Fn(String) -> String) -> Report {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sets").join(name);
    let text = change(std::fs::read_to_string(file).unwrap());
    let sources = [Source { name: name.into(), text, ..Source::default() }];
    let mut how = slicegate_manifest::Options::default();
    how.note_unknown_kinds = false;
    check(&load(&sources, &how), &sources, &Options::default())
}

fn codes(report: &Report) -> Vec<(&'static str, usize)> {
    report.findings.iter().map(|f| (f.rule.code, f.diagnostic.line)).collect()
}

#[test]
fn fixed_ceilings_of_a_generator_bite_before_the_tpus() {
    // The flavor for cpu nodes is in no queue, and 480 cpus are less than one job of two slices asks for.
    let report = look("generated.yaml", |text| text);
    assert_eq!(codes(&report), [("SG0313", 14), ("SG0404", 34), ("SG0404", 35), ("SG0409", 98)], "{report:?}");
    let raised =
        look("generated.yaml", |t| t.replace("nominalQuota: 480", "nominalQuota: 960").replace("2000Gi", "4000Gi"));
    assert_eq!(codes(&raised), [("SG0313", 14)], "{raised:?}");
}

#[test]
fn teams_with_three_kinds_of_capacity_are_right() {
    let report = look("teams.yaml", |text| text);
    assert_eq!(codes(&report), [], "{report:?}");
    // Without the flavor's toleration no job gets to spot nodes.
    let without = look("teams.yaml", |t| {
        t.replace(
            "  tolerations:\n    - { key: cloud.google.com/gke-spot, operator: Exists, effect: NoSchedule }\n",
            "",
        )
    });
    assert_eq!(codes(&without).iter().map(|(c, _)| *c).collect::<Vec<_>>(), ["SG0406"], "{without:?}");
}

#[test]
fn a_ray_cluster_alone_is_right() {
    let report = look("raycluster.yaml", |text| text);
    assert_eq!(codes(&report), [], "{report:?}");
    let fewer = look("raycluster.yaml", |t| t.replace("numOfHosts: 4", "numOfHosts: 2"));
    assert_eq!(codes(&fewer), [("SG0504", 24)], "{fewer:?}");
}

#[test]
fn dynamic_slices_are_right() {
    let report = look("dynamic.yaml", |text| text);
    assert_eq!(codes(&report), [], "{report:?}");
}
