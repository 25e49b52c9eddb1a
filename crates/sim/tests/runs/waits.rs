//! Reasons to wait and what ends them, told by scenarios: the stories of queues, requests and pods that are not ready.

use slicegate_controller::Configuration;
use slicegate_sim::{EntryKind, Verdict};

use crate::events::{DWS, QUEUES, finished, jobset, line, run, run_with, scenario, seconds, told, verdict};

/// When an entry of the kind about the object was made, in seconds, each time.
fn times(outcome: &slicegate_sim::Outcome, kind: EntryKind, name: &str) -> Vec<i64> {
    let about = |e: &&slicegate_sim::Entry| e.kind == kind && e.object.as_ref().is_some_and(|o| &*o.name == name);
    outcome.timeline.iter().filter(about).map(|e| e.time.micros_since(outcome.start) / 1_000_000).collect()
}

fn job(name: &str, namespace: &str, queue: &str, cpu: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}, labels: {{kueue.x-k8s.io/queue-name: {queue}}}}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: x, resources: {{requests: {{{cpu}}}}}}}]
---
"
    )
}

fn queue(name: &str, flavor: &str, more: &str) -> String {
    format!(
        "apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  {more}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: {flavor}, resources: [{{name: cpu, nominalQuota: 4}}]}}]
---
"
    )
}

fn local(namespace: &str, name: &str, target: &str) -> String {
    format!(
        "apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{clusterQueue: {target}}}
---
"
    )
}

fn flavor(name: &str) -> String {
    format!("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\n---\n")
}

#[test]
fn jobs_start_once_what_keeps_them_is_gone() {
    let namespaces = "apiVersion: v1
kind: Namespace
metadata: {name: lab, labels: {team: red}}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
";
    let all = "namespaceSelector: {}";
    let text = namespaces.to_owned()
        + &flavor("std")
        + &flavor("ghost")
        + &queue("q", "std", "namespaceSelector: {matchLabels: {team: red}}")
        + &queue("held", "std", &format!("{all}\n  stopPolicy: Hold"))
        + &queue("noflavor", "ghost", all)
        + &local("lab", "lq-q", "q")
        + &local("other", "lq-q", "q")
        + &local("lab", "lq-held", "held")
        + &local("lab", "lq-noflavor", "noflavor")
        + &local("lab", "lq-missing", "q")
        + &job("ok", "lab", "lq-q", "cpu: 1")
        + &job("undeclared", "lab", "lq-q", "cpu: 1, example.com/gpu: 1")
        + &job("badqueue", "lab", "lq-missing", "cpu: 1")
        + &job("badns", "other", "lq-q", "cpu: 1")
        + &job("onhold", "lab", "lq-held", "cpu: 1")
        + &job("ghosty", "lab", "lq-noflavor", "cpu: 1")
        + &scenario(
            "  until: 1h
  events:
  - {at: 1m, patch: {object: Namespace/other, merge: {metadata: {labels: {team: red}}}}}
  - {at: 2m, apply: {object: LocalQueue/lab/lq-missing}}
  - {at: 3m, apply: {object: ResourceFlavor/ghost}}
  - {at: 4m, patch: {object: ClusterQueue/held, merge: {spec: {stopPolicy: None}}}}",
        );
    let outcome = run(&text);
    for (name, at) in [("ok", 1), ("badns", 60), ("badqueue", 120), ("ghosty", 180), ("onhold", 240)] {
        assert_eq!(times(&outcome, EntryKind::Admitted, name), [at], "{name}\n{}", told(&outcome));
        assert!(finished(&outcome, name), "{name}\n{}", told(&outcome));
    }
    assert_eq!(*verdict(&outcome, "undeclared"), Verdict::NeverAdmitted, "{}", told(&outcome));
}

#[test]
fn a_request_fails_for_good_and_starts_over_when_the_workload_is_activated() {
    let text = DWS.to_owned()
        + &jobset("a", 1, "10m", "")
        + &scenario(
            "  dws:
    requests: [{object: JobSet/a, findsCapacityAfter: never, failsAfter: 30s, message: no capacity}]
  events:
  - {at: 10m, patch: {workloadOf: JobSet/a, merge: {spec: {active: true}}}}
  - {at: 10m20s, dws: {object: JobSet/a, outcome: FindsCapacity}}",
        );
    let outcome = run(&text);
    let failed: Vec<(i64, &str)> = outcome
        .timeline
        .iter()
        .filter(|e| e.text.contains("failed: no capacity"))
        .map(|e| (e.time.micros_since(outcome.start) / 1_000_000, e.text.as_str()))
        .collect();
    // Once, again a minute after, then it is given up.
    assert_eq!(failed.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [31, 121], "{}", told(&outcome));
    assert!(failed[0].1.contains("-prov-1 ") && failed[1].1.contains("-prov-2 "), "{}", told(&outcome));
    assert_eq!(times(&outcome, EntryKind::Deactivated, "a"), [121], "{}", told(&outcome));
    assert!(line(&outcome, EntryKind::ProvisioningRequest, "provisioned after 20 s").contains("-prov-1 "));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
}

#[test]
fn pods_that_are_never_ready_give_their_quota_back_until_the_workload_is_given_up() {
    let mut configuration = Configuration::default();
    configuration.engine.wait_for_pods_ready = Some(slicegate_admission::WaitForPodsReady {
        timeout_seconds: 300,
        backoff_limit_count: Some(2),
        backoff_base_seconds: 60,
        backoff_max_seconds: 3600,
        ..slicegate_admission::WaitForPodsReady::default()
    });
    let text = QUEUES.to_owned()
        + &jobset("a", 1, "10m", "")
        + &scenario(
            "  nodeProvisioning: 30m
  events:
  - {at: 40m, patch: {workloadOf: JobSet/a, merge: {spec: {active: true}}}}",
        );
    let outcome = run_with(&text, configuration);
    assert_eq!(times(&outcome, EntryKind::Evicted, "a"), [301, 661, 1081], "{}", told(&outcome));
    assert_eq!(times(&outcome, EntryKind::Requeued, "a"), [361, 781, 2400], "{}", told(&outcome));
    assert_eq!(times(&outcome, EntryKind::Deactivated, "a"), [1081], "{}", told(&outcome));
    assert_eq!(seconds(&outcome, EntryKind::Patched, "active"), 2400);
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
}
