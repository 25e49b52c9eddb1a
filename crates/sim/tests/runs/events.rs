//! What scenarios do beside applying documents, with Slicegate's own controller.

use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::Configuration;
use slicegate_manifest::{Options as LoadOptions, Source, load};
use slicegate_sim::render::{self, TextOptions};
use slicegate_sim::{EntryKind, Input, NoFiles, Options, Outcome, Simulation, Verdict};

pub(crate) const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: v5e}
spec: {nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: v5e, resources: [{name: google.com/tpu, nominalQuota: 16}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
";

/// The queue with a flavor that DWS provides.
pub(crate) const DWS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: dws}
spec: {nodeLabels: {cloud.google.com/gke-nodepool: dws-pool}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: prov}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: config}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: config}
spec:
  provisioningClassName: queued-provisioning.gke.io
  managedResources: [google.com/tpu]
  retryStrategy: {backoffLimitCount: 1, backoffBaseSeconds: 60, backoffMaxSeconds: 1800}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: prov}]}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: dws, resources: [{name: google.com/tpu, nominalQuota: 64}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
";

/// A JobSet of slices of 2x4, two hosts each.
pub(crate) fn jobset(name: &str, slices: u32, run_time: &str, more: &str) -> String {
    format!(
        "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: lq}}
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
    slicegate.dev/run-time: {run_time}
spec:
  {more}
  replicatedJobs:
  - name: w
    replicas: {slices}
    template:
      spec:
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice
              cloud.google.com/gke-tpu-topology: 2x4
            tolerations:
            - {{key: cloud.google.com/gke-queued, operator: Exists, effect: NoSchedule}}
            containers: [{{name: c, image: x, resources: {{limits: {{google.com/tpu: 4}}}}}}]
---
"
    )
}

pub(crate) fn scenario(spec: &str) -> String {
    format!("apiVersion: slicegate.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: s}}\nspec:\n{spec}\n---\n")
}

pub(crate) fn run(text: &str) -> Outcome {
    run_with(text, Configuration::default())
}

pub(crate) fn run_with(text: &str, configuration: Configuration) -> Outcome {
    let sources = [Source { name: "m.yaml".to_owned(), text: text.to_owned(), ..Source::default() }];
    let loaded = load(&sources, &LoadOptions::default());
    assert!(!loaded.has_errors(), "{:#?}", loaded.diagnostics);
    let input = Input::new(loaded.documents, Options::default());
    let mut simulation = Simulation::new(input, &NoFiles, configuration).unwrap();
    while simulation.step() {
        if let Err(violations) = simulation.check() {
            panic!("{violations:#?}\n{}", told(&simulation.finish()));
        }
    }
    simulation.finish()
}

pub(crate) fn told(outcome: &Outcome) -> String {
    render::timeline(outcome, TextOptions::default()) + &render::summary(outcome)
}

pub(crate) fn line<'a>(outcome: &'a Outcome, kind: EntryKind, words: &str) -> &'a str {
    let mut entries = outcome.timeline.iter().filter(|e| e.kind == kind);
    let found = entries.find(|e| e.text.contains(words));
    found.map_or_else(|| panic!("nothing says {words:?} as {kind:?}:\n{}", told(outcome)), |e| e.text.as_str())
}

pub(crate) fn seconds(outcome: &Outcome, kind: EntryKind, words: &str) -> i64 {
    let found = outcome.timeline.iter().find(|e| e.kind == kind && e.text.contains(words));
    let entry = found.unwrap_or_else(|| panic!("nothing says {words:?} as {kind:?}:\n{}", told(outcome)));
    entry.time.micros_since(outcome.start) / 1_000_000
}

pub(crate) fn verdict<'a>(outcome: &'a Outcome, name: &str) -> &'a Verdict {
    let found = outcome.verdicts.iter().find(|v| &*v.job.name == name);
    &found.unwrap_or_else(|| panic!("no verdict on {name}:\n{}", told(outcome))).verdict
}

pub(crate) fn finished(outcome: &Outcome, name: &str) -> bool {
    matches!(verdict(outcome, name), Verdict::Finished { .. })
}

#[test]
fn a_queue_is_drained_and_opened_again_by_patches() {
    let text = QUEUES.to_owned()
        + &jobset("a", 1, "10m", "")
        + &scenario(
            "  events:
  - {at: 5m, patch: {object: ClusterQueue/cq, merge: {spec: {stopPolicy: HoldAndDrain}}}}
  - {at: 20m, patch: {object: ClusterQueue/cq, merge: {spec: {stopPolicy: null}}}}",
        );
    let outcome = run(&text);
    assert_eq!(seconds(&outcome, EntryKind::Patched, "HoldAndDrain"), 300);
    assert_eq!(seconds(&outcome, EntryKind::Evicted, ""), 300, "{}", told(&outcome));
    let admitted = outcome.timeline.iter().filter(|e| e.kind == EntryKind::Admitted);
    let at: Vec<i64> = admitted.map(|e| e.time.micros_since(outcome.start) / 1_000_000).collect();
    assert_eq!(at, [1, 1200], "{}", told(&outcome));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
}

#[test]
fn what_the_server_refuses_is_said_in_its_words_and_changes_nothing() {
    let text = QUEUES.to_owned()
        + &jobset("a", 1, "10m", "")
        + &scenario(
            "  events:
  - {at: 1m, scale: {object: JobSet/a, replicas: 2}}
  - {at: 1m, patch: {object: LocalQueue/lq, merge: {spec: {clusterQueue: other}}}}
  - {at: 1m, patch: {object: ClusterQueue/cq, merge: {spec: {stopPolicy: Sometimes}}}}
  - {at: 1m, patch: {object: ClusterQueue/cq, merge: {spec: {stopPolicee: Hold}}}}
  - {at: 1m, patch: {object: Job/none, merge: {spec: {parallelism: 2}}}}
  - {at: 1m, delete: {object: Workload/none}}
  - {at: 1m, delete: {workloadOf: Job/none}}
  - {at: 1m, dws: {object: JobSet/a, outcome: Fails}}
  - {at: 1m, scale: {object: NodePool/none, maxNodes: 2}}
  - {at: 1m, evictNode: {node: none}}",
        );
    let outcome = run(&text);
    for words in [
        "spec.replicatedJobs",
        "spec.clusterQueue",
        "spec.stopPolicy",
        "unknown field \"spec.stopPolicee\"",
        "Job default/none does not exist",
        "Workload default/none does not exist",
        "Job default/none has no Workload",
        "has no ProvisioningRequest",
        "no node pool none",
        "no node none",
    ] {
        line(&outcome, EntryKind::Refused, words);
    }
    let refused = outcome.timeline.iter().filter(|e| e.kind == EntryKind::Refused).count();
    assert_eq!(refused, 10, "{}", told(&outcome));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
}

#[test]
fn a_deleted_job_makes_room_and_is_told_of() {
    for propagation in ["Background", "Foreground"] {
        let text = QUEUES.to_owned()
            + &jobset("a", 2, "1h", "")
            + &jobset("b", 1, "10m", "")
            + &scenario(&format!(
                "  events:
  - {{at: 5m, delete: {{object: JobSet/a, propagation: {propagation}}}}}"
            ));
        let outcome = run(&text);
        assert_eq!(seconds(&outcome, EntryKind::Deleted, "deleted"), 300);
        let at = outcome.start.plus_seconds(300);
        assert_eq!(*verdict(&outcome, "a"), Verdict::Deleted { at }, "{}", told(&outcome));
        assert!(finished(&outcome, "b"), "{}", told(&outcome));
        assert!(told(&outcome).contains("1 of 2 jobs finished, 1 deleted"), "{}", told(&outcome));
        let pods = outcome.objects.values().filter(|o| o.kind() == Kind::Pod && o.name().starts_with("a-"));
        assert_eq!(pods.count(), 0);
    }
}

#[test]
fn a_workload_is_deactivated_and_activated_by_patches() {
    let text = QUEUES.to_owned()
        + &jobset("a", 1, "10m", "")
        + &scenario(
            "  events:
  - {at: 5m, patch: {workloadOf: JobSet/a, merge: {spec: {active: false}}}}
  - {at: 20m, patch: {workloadOf: JobSet/a, merge: {spec: {active: true}}}}",
        );
    let outcome = run(&text);
    assert_eq!(seconds(&outcome, EntryKind::Deactivated, ""), 300, "{}", told(&outcome));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
}

#[test]
fn a_drained_node_ends_its_pods_and_the_jobset_starts_again_elsewhere() {
    let text = QUEUES.to_owned()
        + &jobset("a", 1, "10m", "failurePolicy: {maxRestarts: 1}")
        + &scenario(
            "  events:
  - {at: 5m, evictNode: {job: JobSet/a, count: 1, for: 1h}}",
        );
    let outcome = run(&text);
    assert!(line(&outcome, EntryKind::Drained, "drained").contains("back in 1 h"), "{}", told(&outcome));
    // The Job has failed when its other pod has stopped.
    assert_eq!(seconds(&outcome, EntryKind::Restarted, "1 of 1"), 301, "{}", told(&outcome));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
    let node = outcome.objects_at(outcome.start.plus_seconds(301));
    let tainted = node.values().filter(|o| match o {
        Object::Node(node) => node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true)),
        _ => false,
    });
    assert_eq!(tainted.count(), 1);
}

#[test]
fn a_node_pool_that_may_grow_serves_who_waited() {
    let text = QUEUES.to_owned() + &jobset("a", 1, "10m", "");
    let pools = r#"[{"name": "p", "initialNodeCount": 0, "config": {"machineType": "ct5lp-hightpu-4t"},
        "placementPolicy": {"tpuTopology": "2x4"}, "autoscaling": {"enabled": true, "minNodeCount": 0, "maxNodeCount": 0}}]"#;
    let sources = [
        Source {
            name: "m.yaml".to_owned(),
            text: text + &scenario("  events:\n  - {at: 30m, scale: {object: NodePool/p, maxNodes: 2}}"),
            ..Source::default()
        },
        Source { name: "p.json".to_owned(), text: pools.to_owned(), ..Source::default() },
    ];
    let loaded = load(&sources, &LoadOptions::default());
    assert!(!loaded.has_errors(), "{:#?}", loaded.diagnostics);
    let input = Input::new(loaded.documents, Options::default());
    let outcome = Simulation::new(input, &NoFiles, Configuration::default()).unwrap().run();
    assert_eq!(seconds(&outcome, EntryKind::ScaleUp, "node pool p"), 1800, "{}", told(&outcome));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
}

#[test]
fn a_request_that_finds_nothing_fails_after_a_week_and_is_tried_once_more() {
    let text = DWS.to_owned() + &jobset("a", 1, "10m", "") + &scenario("  dws: {findsCapacityAfter: never}");
    let outcome = run(&text);
    let failed: Vec<i64> = outcome
        .timeline
        .iter()
        .filter(|e| e.kind == EntryKind::ProvisioningRequest && e.text.contains("failed"))
        .map(|e| e.time.micros_since(outcome.start) / 1_000_000)
        .collect();
    let week = 7 * 86_400;
    assert_eq!(failed, [week + 1, 2 * week + 1 + 60], "{}", told(&outcome));
    line(&outcome, EntryKind::ProvisioningRequest, "could not provision queued instances in the allocated time");
    assert_eq!(seconds(&outcome, EntryKind::Deactivated, ""), 2 * week + 61, "{}", told(&outcome));
    assert!(!finished(&outcome, "a"));
}

#[test]
fn particular_attempts_fail_as_the_scenario_says() {
    let text = DWS.to_owned()
        + &jobset("a", 1, "10m", "")
        + &jobset("b", 1, "10m", "")
        + &scenario(
            "  dws:
    requests:
    - {object: JobSet/a, attempt: 1, findsCapacityAfter: never, failsAfter: 2m, reason: OutOfResources, message: no v5e left}
    - {object: jobset/default/b, givesUpAfter: 1m}",
        );
    let outcome = run(&text);
    assert_eq!(seconds(&outcome, EntryKind::ProvisioningRequest, "failed: no v5e left"), 121, "{}", told(&outcome));
    assert!(finished(&outcome, "a"), "{}", told(&outcome));
    assert_eq!(seconds(&outcome, EntryKind::ProvisioningRequest, "jobset-b"), 2, "{}", told(&outcome));
    assert!(!finished(&outcome, "b"), "{}", told(&outcome));
}

#[test]
fn events_decide_about_requests() {
    let text = DWS.to_owned()
        + &jobset("a", 1, "10m", "")
        + &jobset("b", 1, "10m", "")
        + &scenario(
            "  dws: {findsCapacityAfter: never}
  events:
  - {at: 1h, dws: {object: JobSet/a, outcome: FindsCapacity}}
  - {at: 1h, dws: {object: JobSet/b, outcome: Fails, message: sold out}}
  - {at: 1h2m, dws: {object: JobSet/b, outcome: FindsCapacity}}
  - {at: 1h3m, dws: {object: JobSet/a, outcome: Fails}}",
        );
    let outcome = run(&text);
    assert_eq!(seconds(&outcome, EntryKind::ProvisioningRequest, "provisioned after"), 3600, "{}", told(&outcome));
    line(&outcome, EntryKind::ProvisioningRequest, "failed: sold out");
    line(&outcome, EntryKind::Refused, "is provisioned already");
    assert!(finished(&outcome, "a") && finished(&outcome, "b"), "{}", told(&outcome));
}

#[test]
fn capacity_is_revoked_when_its_time_is_over() {
    let long = jobset("a", 1, "10d", "").replace(
        "    slicegate.dev/run-time: 10d",
        "    slicegate.dev/run-time: 10d\n    provreq.kueue.x-k8s.io/maxRunDurationSeconds: \"3600\"",
    );
    for (job, spec, after) in [
        (long, "", 3600),
        (jobset("a", 1, "10d", ""), "", 7 * 86_400),
        (jobset("a", 1, "10d", ""), "  dws: {maxRunDuration: 2h}", 7200),
        (jobset("a", 1, "10d", ""), "  dws: {requests: [{object: JobSet/a, revokedAfter: 30m}]}", 1800),
        (
            jobset("a", 1, "10d", ""),
            "  events: [{at: 1h, dws: {object: JobSet/a, outcome: RevokesCapacity, message: taken back}}]",
            3600 - 301,
        ),
    ] {
        let scenario = if spec.is_empty() { String::new() } else { scenario(spec) };
        let outcome = run(&(DWS.to_owned() + &job + &scenario));
        let at = seconds(
            &outcome,
            EntryKind::ProvisioningRequest,
            if spec.contains("events") { "taken back" } else { "revoked" },
        );
        assert_eq!(at, 301 + after, "{}", told(&outcome));
        assert_eq!(seconds(&outcome, EntryKind::Deactivated, ""), at, "{}", told(&outcome));
        assert_eq!(seconds(&outcome, EntryKind::ScaleDown, "revoked"), at + 30, "{}", told(&outcome));
        assert_eq!(outcome.objects.values().filter(|o| o.kind() == Kind::Node).count(), 0, "{}", told(&outcome));
        let workload = outcome.objects.values().find(|o| o.kind() == Kind::Workload).unwrap().to_json().unwrap();
        assert_eq!(workload["spec"]["active"], false, "{}", told(&outcome));
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        let evicted = conditions.iter().find(|c| c["type"] == "Evicted").unwrap();
        assert_eq!(evicted["reason"], "DeactivatedDueToAdmissionCheck", "{workload:#}");
    }
}

#[test]
fn a_request_that_is_not_there_is_told_of() {
    let text = DWS.to_owned()
        + &jobset("a", 1, "10m", "")
        + &scenario("  events: [{at: 10m, dws: {object: ProvisioningRequest/none, outcome: Fails}}]");
    let outcome = run(&text);
    line(&outcome, EntryKind::Refused, "ProvisioningRequest default/none has no ProvisioningRequest");
    let key = ObjectRef::new(Kind::JobSet, "default", "a");
    assert!(outcome.objects.contains_key(&key));
}
