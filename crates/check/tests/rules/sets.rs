//! Sets of manifests as people write them: what is found in them is what is wrong with them.

use std::path::Path;

use slicegate_check::{Options, Report, check};
use slicegate_manifest::{Severity, Source, load};

fn look(name: &str, change: impl Fn(String) -> String) -> Report {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sets").join(name);
    let text = change(std::fs::read_to_string(file).unwrap());
    let sources = [Source { name: name.into(), text, ..Source::default() }];
    let mut how = slicegate_manifest::Options::default();
    how.note_unknown_kinds = false;
    how.generated_names = true;
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

#[test]
fn a_ladder_of_classes_that_every_job_is_on_is_only_noted() {
    let class = |name: &str, value: i32| {
        format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {{name: {name}}}\nvalue: {value}\n---\n"
        )
    };
    let job = |labels: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{generateName: job-, labels: {{{labels}}}}}\nspec:\n  template:\n    \
             spec:\n      restartPolicy: Never\n      containers: [{{name: c, image: i}}]\n---\n"
        )
    };
    let severity = |text: String| {
        let report = look("teams.yaml", |_| text.clone());
        let own = report.findings.iter().find(|f| f.rule.code == "SG0204");
        own.map(|f| f.diagnostic.severity)
    };
    let ladder = class("very-low", 100) + &class("medium", 500);
    let queued = job("kueue.x-k8s.io/priority-class: medium");
    assert_eq!(severity(ladder.clone() + &queued), Some(Severity::Note));
    assert_eq!(severity(ladder.clone() + &queued + &job("a: b")), Some(Severity::Warning));
    assert_eq!(severity(ladder), Some(Severity::Note));
}

#[test]
fn objects_with_generated_names_are_told_apart_by_what_they_begin_with() {
    let text = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: night-, labels: {kueue.x-k8s.io/queue-name: q}}\n\
                spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n";
    let report = look("teams.yaml", |_| text.to_owned());
    assert_eq!(report.findings.iter().map(|f| f.diagnostic.object.as_str()).collect::<Vec<_>>(), ["Job night-"]);
    let allowed = look("teams.yaml", |_| {
        text.replace(
            "{generateName",
            "{namespace: team, annotations: {slicegate.dev/allow: 'SG0302, SG0010'}, generateName",
        )
        .replace("image: i", "image: 1")
    });
    assert_eq!(codes(&allowed), [("SG0011", 4)], "{allowed:?}");
}

#[test]
fn fields_of_another_shape_are_written_out() {
    let queue = |spec: &str| {
        let text = format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: q}}\nspec: {{namespaceSelector: {{}}, {spec}}}\n"
        );
        let report = look("teams.yaml", |_| text.clone());
        report.findings.iter().map(|f| (f.rule.code, f.diagnostic.help.clone())).next().unwrap()
    };
    let (code, help) = queue("preemption: {reclaimWithinCohort: Any, borrowWithinCohort: LowerPriority}");
    assert_eq!((code, help.as_str()), ("SG0103", "write `borrowWithinCohort: {policy: LowerPriority}`"));
    let (code, help) = queue("admissionChecks: [dws]");
    assert_eq!(
        (code, help.as_str()),
        ("SG0101", "write `admissionChecksStrategy: {admissionChecks: [{name: CHECK}]}`")
    );
}
