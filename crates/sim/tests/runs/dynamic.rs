//! Slices formed of cubes, by GKE's admission check (dynamic slicing).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use slicegate_api::{Kind, Object, convert};
use slicegate_controller::Configuration;
use slicegate_manifest::{Options as LoadOptions, Source, load};
use slicegate_sim::render::{self, TextOptions};
use slicegate_sim::{Input, NoFiles, Options, Outcome, Simulation, Verdict};

const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: partitions}
spec:
  levels:
  - nodeLabel: cloud.google.com/gce-topology-block
  - nodeLabel: cloud.google.com/gke-tpu-partition-4x4x4-id
  - nodeLabel: cloud.google.com/gke-tpu-partition-2x4x4-id
  - nodeLabel: kubernetes.io/hostname
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: tpu7x}
spec:
  nodeLabels: {cloud.google.com/gke-tpu-accelerator: tpu7x}
  topologyName: partitions
  tolerations: [{key: google.com/tpu, operator: Exists, effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: slice}
spec: {controllerName: accelerator.gke.io/slice}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: tpu7x, resources: [{name: google.com/tpu, nominalQuota: 1000}]}]
  admissionChecksStrategy: {admissionChecks: [{name: slice}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
";

fn cubes(names: &[&str]) -> String {
    let mut text = String::new();
    for name in names {
        let _ = writeln!(
            text,
            "{{\"name\": \"{name}\", \"initialNodeCount\": 16, \"placementPolicy\": {{\"tpuTopology\": \"4x4x4\"}}, \
             \"config\": {{\"machineType\": \"tpu7x-standard-4t\", \
             \"labels\": {{\"cloud.google.com/gke-accelerator-topology-mode\": \"PROVISION_ONLY\"}}}}}}\n---"
        );
    }
    text
}

/// A JobSet of so many slices with so many hosts each.
fn jobset(name: &str, topology: &str, slices: u32, hosts: u32) -> String {
    format!(
        "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: lq}}
  annotations: {{slicegate.dev/run-time: 10m}}
spec:
  failurePolicy: {{maxRestarts: 9}}
  replicatedJobs:
  - name: w
    replicas: {slices}
    template:
      spec:
        parallelism: {hosts}
        completions: {hosts}
        backoffLimit: 0
        template:
          metadata: {{annotations: {{cloud.google.com/gke-tpu-slice-topology: {topology}}}}}
          spec:
            nodeSelector: {{cloud.google.com/gke-tpu-accelerator: tpu7x}}
            containers: [{{name: c, image: x, resources: {{limits: {{google.com/tpu: 4}}}}}}]
---
"
    )
}

fn slice(name: &str, topology: &str, ids: &str) -> String {
    format!(
        "apiVersion: accelerator.gke.io/v1beta1\nkind: Slice\nmetadata: {{name: {name}}}\n\
         spec: {{type: tpu7x, topology: {topology}, partitionIds: [{ids}]}}\n---\n"
    )
}

fn scenario(spec: &Value) -> String {
    format!("apiVersion: slicegate.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: s}}\nspec: {spec}\n---\n")
}

fn simulation(text: &str) -> Simulation {
    let sources = [Source { name: "m.yaml".to_owned(), text: text.to_owned(), ..Source::default() }];
    let loaded = load(&sources, &LoadOptions::default());
    assert!(!loaded.has_errors(), "{:#?}", loaded.diagnostics);
    let input = Input::new(loaded.documents, Options::default());
    Simulation::new(input, &NoFiles, Configuration::default()).unwrap()
}

/// Runs to the end; what must hold at every moment holds.
fn run(text: &str) -> Outcome {
    let mut simulation = simulation(text);
    while simulation.step() {
        assert_eq!(simulation.check(), Ok(()), "at {:?}", simulation.now());
    }
    simulation.finish()
}

fn told(outcome: &Outcome) -> String {
    render::timeline(outcome, TextOptions::default()) + &render::summary(outcome)
}

/// The objects of a kind at a second, as JSON.
fn at(outcome: &Outcome, second: i64, kind: Kind) -> Vec<Value> {
    let objects = outcome.objects_at(outcome.start.plus_seconds(second));
    objects.values().filter(|object| object.kind() == kind).map(|object| object.to_json().unwrap()).collect()
}

/// Names and states of the Slices at a second.
fn states(outcome: &Outcome, second: i64) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let slices = at(outcome, second, Kind::Slice);
    slices.iter().map(|s| (text(&s["metadata"]["name"]), text(&s["status"]["conditions"][0]["reason"]))).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

fn check_of(workload: &Value) -> (String, String) {
    let check = &workload["status"]["admissionChecks"][0];
    (check["state"].as_str().unwrap().to_owned(), check["message"].as_str().unwrap().to_owned())
}

fn finished(outcome: &Outcome) -> bool {
    outcome.verdicts.iter().all(|verdict| matches!(verdict.verdict, Verdict::Finished { .. }))
}

#[test]
fn slices_are_formed_where_the_workload_was_placed_and_then_its_pods_start() {
    let text = QUEUES.to_owned() + &cubes(&["a", "b"]) + &jobset("big", "4x4x8", 1, 32);
    let outcome = run(&text);
    let log = told(&outcome);
    assert!(finished(&outcome), "{log}");
    let workload = &at(&outcome, 30, Kind::Workload)[0];
    assert_eq!(check_of(workload), ("Pending".to_owned(), "Slices are in states: 1 ACTIVATING".to_owned()), "{log}");
    assert_eq!(at(&outcome, 30, Kind::Pod).len(), 0);
    let slices = at(&outcome, 30, Kind::Slice);
    let spec = &slices[0]["spec"];
    assert_eq!(*spec, json!({"type": "tpu7x", "topology": "4x4x8", "partitionIds": ["a", "b"]}));
    let notes = &slices[0]["metadata"]["annotations"];
    assert_eq!(notes["accelerator.gke.io/owner-workload-name"], workload["metadata"]["name"]);
    assert_eq!(notes["accelerator.gke.io/owner-workload-namespace"], "default");
    assert_eq!(notes["accelerator.gke.io/owner-podset-name"], "w");
    let workload = &at(&outcome, 90, Kind::Workload)[0];
    assert_eq!(check_of(workload), ("Ready".to_owned(), "Slices are in states: 1 ACTIVE".to_owned()));
    let update = &workload["status"]["admissionChecks"][0]["podSetUpdates"][0];
    assert_eq!(*update, json!({"name": "w", "nodeSelector": {"cloud.google.com/gke-tpu-topology": "4x4x8"}}));
    let name = slices[0]["metadata"]["name"].clone();
    let labelled = |second: i64, key: &str, value: &Value| {
        at(&outcome, second, Kind::Node).iter().filter(|node| node["metadata"]["labels"][key] == *value).count()
    };
    assert_eq!(labelled(30, "cloud.google.com/gke-tpu-slice", &name), 0);
    assert_eq!(labelled(90, "cloud.google.com/gke-tpu-slice", &name), 32);
    assert_eq!(labelled(90, "cloud.google.com/gke-tpu-topology", &json!("4x4x8")), 32);
    assert_eq!(labelled(3_000, "cloud.google.com/gke-tpu-topology", &json!("4x4x4")), 32, "the slice is gone");
    assert_eq!(states(&outcome, 3_000), []);
    let check = &at(&outcome, 1, Kind::AdmissionCheck)[0];
    assert_eq!(check["status"]["conditions"][0]["type"], "Active");
}

/// Pods of rank n lie on the n-th place of the topology assignment.
#[test]
fn pods_land_exactly_where_the_assignment_says() {
    let text = QUEUES.to_owned()
        + &cubes(&["a", "b", "c"])
        + &jobset("halves", "2x4x4", 3, 8)
        + &jobset("cube", "4x4x4", 1, 16);
    let outcome = run(&text);
    assert!(finished(&outcome), "{}", told(&outcome));
    let objects = outcome.objects_at(outcome.start.plus_seconds(120));
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for object in objects.values() {
        if let Object::Workload(workload) = object {
            let assignment = workload.status.admission.as_ref().unwrap().pod_set_assignments[0].clone();
            let plain = convert::topology_assignment(&assignment.topology_assignment.unwrap()).unwrap();
            let hosts = plain.domains.iter().flat_map(|d| {
                std::iter::repeat_n(d.values.last().unwrap().to_string(), usize::try_from(d.count).unwrap())
            });
            let owner = workload.metadata.owner_references.as_ref().unwrap()[0].name.clone();
            places.insert(owner, hosts.collect());
        }
    }
    let mut seen = 0;
    for pod in objects.values().filter(|object| object.kind() == Kind::Pod).map(|o| o.to_json().unwrap()) {
        let labels = &pod["metadata"]["labels"];
        let number = |key: &str| labels[key].as_str().unwrap().parse::<usize>().unwrap();
        let owner = labels["jobset.sigs.k8s.io/jobset-name"].as_str().unwrap();
        let hosts = if owner == "halves" { 8 } else { 16 };
        let rank = number("jobset.sigs.k8s.io/job-index") * hosts + number("batch.kubernetes.io/job-completion-index");
        assert_eq!(pod["spec"]["nodeName"], *places[owner][rank], "{owner} {rank}");
        assert_eq!(pod["status"]["phase"], "Running");
        let node = objects.values().find(|o| o.kind() == Kind::Node && o.name() == places[owner][rank]).unwrap();
        let slice = &node.metadata().labels.as_ref().unwrap()["cloud.google.com/gke-tpu-slice"];
        assert!(slice.ends_with(&format!("-w-{}", number("jobset.sigs.k8s.io/job-index"))), "{slice}");
        seen += 1;
    }
    assert_eq!(seen, 40);
}

#[test]
fn a_slice_with_a_broken_host_fails_and_another_is_formed() {
    let fail = json!({"at": "5m", "fail": {"pool": "a", "host": 3, "repairAfter": "1h"}});
    let text = QUEUES.to_owned()
        + &cubes(&["a", "b"])
        + &jobset("cube", "4x4x4", 1, 16)
        + &scenario(&json!({"events": [fail]}));
    let outcome = run(&text);
    let log = told(&outcome);
    assert!(finished(&outcome), "{log}");
    let workload = &at(&outcome, 301, Kind::Workload)[0];
    let failure = |workload: &Value| {
        let all = workload["status"]["conditions"].as_array().unwrap();
        let found = all.iter().find(|c| c["type"] == "TPUSliceFailure").unwrap();
        (found["status"].as_str().unwrap().to_owned(), found["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(failure(workload), ("True".to_owned(), "RuntimeFailure".to_owned()), "{log}");
    assert!(log.contains("00:05:00  JobSet cube  Slice"), "{log}");
    assert!(log.contains("has failed: partition a is UNHEALTHY"), "{log}");
    assert!(log.contains("(4x4x4 of b)"), "{log}");
    let workload = &at(&outcome, 900, Kind::Workload)[0];
    assert_eq!(failure(workload).0, "False");
    let on_b = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap().starts_with("gke-b-");
    let pods = at(&outcome, 500, Kind::Pod);
    assert_eq!(pods.iter().filter(|pod| on_b(pod)).count(), 16, "{log}");
}

#[test]
fn slices_that_take_too_long_are_given_up() {
    let text = QUEUES.to_owned()
        + &cubes(&["a"])
        + &jobset("cube", "4x4x4", 1, 16)
        + &scenario(&json!({"sliceFormation": "10m", "until": "5m"}));
    let outcome = run(&text);
    let log = told(&outcome);
    assert!(log.contains("Slices are in states: 1 ACTIVATING after 3 min"), "{log}");
    assert!(log.contains("00:03:01  JobSet cube  is evicted"), "{log}");
    assert_eq!(at(&outcome, 300, Kind::Pod).len(), 0);
    let workload = at(&outcome, 200, Kind::Workload)[0].to_string();
    assert!(workload.contains("FormationTimeout"), "{workload}");
    // The first is gone, the second is being formed.
    assert_eq!(log.matches("forms 1 Slice(s)").count(), 2, "{log}");
}

#[test]
fn pods_that_are_not_those_of_whole_slices_are_rejected() {
    let text = QUEUES.to_owned() + &cubes(&["a"]) + &jobset("odd", "4x4x4", 1, 8);
    let outcome = run(&text);
    let log = told(&outcome);
    assert!(log.contains("pod set w: 8 pods are no multiple of the 16 hosts of a slice of 4x4x4"), "{log}");
    assert!(!finished(&outcome), "{log}");
    assert_eq!(states(&outcome, 100), []);
}

#[test]
fn a_job_without_slices_needs_none() {
    let plain = jobset("plain", "4x4x4", 1, 4).replace("cloud.google.com/gke-tpu-slice-topology: 4x4x4", "a: b");
    let outcome = run(&(QUEUES.to_owned() + &cubes(&["a"]) + &plain));
    let log = told(&outcome);
    assert!(finished(&outcome), "{log}");
    assert!(log.contains("No Slices are needed"), "{log}");
}

#[test]
fn slices_of_documents_are_formed_too_and_wait_for_one_another() {
    let text = cubes(&["a", "b"])
        + &slice("first", "4x4x4", "a")
        + &slice("half", "2x4x4", "a-2x4x4-0")
        + &slice("wide", "4x4x8", "a, b")
        + &slice("missing", "4x4x4", "z")
        + &scenario(&json!({"until": "10m", "events": [
            {"at": "2m", "delete": {"object": "Slice/first"}},
            {"at": "4m", "delete": {"object": "Slice/half"}},
            {"at": "6m", "fail": {"pool": "b", "host": 1, "repairAfter": "1m"}},
        ]}));
    let outcome = run(&text);
    let log = told(&outcome);
    let (creation, active) = ("SliceCreationFailed", "ACTIVE");
    let rest = |first: &[(&str, &str)]| {
        let mut all = pairs(first);
        all.push(("missing".to_owned(), creation.to_owned()));
        all.sort();
        all
    };
    assert_eq!(states(&outcome, 1), rest(&[("first", "ACTIVATING"), ("half", creation), ("wide", creation)]), "{log}");
    assert_eq!(states(&outcome, 90), rest(&[("first", active), ("half", creation), ("wide", creation)]));
    assert_eq!(states(&outcome, 200), rest(&[("half", active), ("wide", creation)]));
    assert_eq!(states(&outcome, 250), rest(&[("wide", "ACTIVATING")]));
    assert_eq!(states(&outcome, 310), rest(&[("wide", active)]));
    assert_eq!(states(&outcome, 599), rest(&[("wide", "FAILED")]), "it does not come back by itself");
}

#[test]
fn a_cube_with_lost_links_can_be_used() {
    let label = json!({"metadata": {"labels": {"cloud.google.com/gke-tpu-partition-4x4x4-state": "DEGRADED"}}});
    let name = run(&cubes(&["a"])).objects.values().find(|o| o.kind() == Kind::Node).unwrap().name().to_owned();
    let text = cubes(&["a"])
        + &slice("first", "4x4x4", "a")
        + &scenario(&json!({"events": [
            {"at": "2m", "patch": {"object": format!("Node/{name}"), "merge": label}},
        ]}));
    let outcome = run(&text);
    assert_eq!(states(&outcome, 90), pairs(&[("first", "ACTIVE")]));
    assert_eq!(states(&outcome, 130), pairs(&[("first", "ACTIVE_DEGRADED")]), "{}", told(&outcome));
}

#[test]
fn a_job_whose_slice_is_deleted_gets_another() {
    let jobs = QUEUES.to_owned() + &cubes(&["a"]) + &jobset("cube", "4x4x4", 1, 16);
    let name = states(&run(&jobs), 90)[0].0.clone();
    let text = jobs + &scenario(&json!({"events": [{"at": "5m", "delete": {"object": format!("Slice/{name}")}}]}));
    let outcome = run(&text);
    let log = told(&outcome);
    assert!(log.contains("a Slice was deleted"), "{log}");
    assert!(finished(&outcome), "{log}");
    assert_eq!(log.matches("forms 1 Slice(s)").count(), 2, "{log}");
}

#[test]
fn a_job_whose_host_goes_before_its_slices_are_formed_is_placed_again() {
    let fail = |at: &str, pool: &str, host: u32, repair: &str| json!({"at": at, "fail": {"pool": pool, "host": host, "repairAfter": repair}});
    let events = [fail("200s", "a", 0, "60s"), fail("920s", "b", 14, "426s"), fail("974s", "a", 5, "123s")];
    let text = QUEUES.to_owned()
        + &cubes(&["a", "b", "c"])
        + &jobset("job-0", "2x4x4", 2, 8)
        + &scenario(&json!({"events": events, "until": "2d"}));
    let outcome = run(&text);
    assert!(finished(&outcome), "{}", told(&outcome));
    assert!(told(&outcome).contains(" is gone"), "{}", told(&outcome));
}

fn job() -> impl Strategy<Value = (&'static str, u32, u32)> {
    prop_oneof![
        (1_u32..3).prop_map(|n| ("2x4x4", n, 8)),
        (1_u32..3).prop_map(|n| ("4x4x4", n, 16)),
        Just(("4x4x8", 1, 32)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Whatever breaks, no chip is in two Slices, every Slice is whole, and all jobs end well.
    #[test]
    fn slices_are_whole_and_share_nothing(
        jobs in prop::collection::vec(job(), 1..5),
        failures in prop::collection::vec((1_u32..1_800, 0_usize..3, 0_u32..16, 1_u32..600), 0..6),
    ) {
        let names = ["a", "b", "c"];
        let mut text = QUEUES.to_owned() + &cubes(&names);
        for (i, (topology, slices, hosts)) in jobs.iter().enumerate() {
            text += &jobset(&format!("job-{i}"), topology, *slices, *hosts);
        }
        let events: Vec<Value> = failures
            .iter()
            .map(|(at, pool, host, repair)| {
                json!({"at": format!("{at}s"), "fail": {"pool": names[*pool], "host": host, "repairAfter": format!("{repair}s")}})
            })
            .collect();
        text += &scenario(&json!({"events": events, "until": "2d"}));
        let outcome = run(&text);
        prop_assert!(finished(&outcome), "{}", told(&outcome));
        prop_assert!(outcome.objects.keys().all(|key| key.kind != Kind::Slice), "{}", told(&outcome));
    }
}
