//! What happened on a real control plane, version by version, compared with the same in the simulated cluster.
//!
//! Compared, object by object: the statuses of every Workload's conditions in the order in which they changed, its flavors
//! and usage; node selectors, tolerations, labels and annotations of jobs and pods.
//!
//! The control plane ran Kueue 0.17, whose rules are older than ours. Besides that, not everything there is of interest here.
//! What differs, and why:
//!
//! - `Admitted` is False with reason `NoReservation` as soon as `QuotaReserved` is False (newer rule); there it was absent until
//!   the first admission. `Admitted=False` is left out on both sides.
//! - The head of a Ray cluster counts its autoscaler too (newer rule).
//! - The submitter of a RayJob gets its flavor's node selector and labels (a fault of the older version: it went anywhere).
//! - `workload-slice-name` was put on the pods of every job there; newer rules put it on those of elastic jobs only.
//! - `raycluster-generation` and `raycluster-podset-replica-sizes`, notes that the older version makes to itself on RayJobs,
//!   are not made.
//! - Workers of a multi-host group carry the index of their replica and host, as since KubeRay 1.6; there it was 1.5.
//! - `kubectl` notes what it applied; a simulated user does not.
//! - Tolerations that a real API server gives every pod (not ready, unreachable) are left out.
//! - Which of several equal node pools a slice gets is up to kube-scheduler: `nodepool1` to `nodepool3` count as one.
//! - There GKE's webhook did not run, so pods do not tolerate the TPU taint and nodes have none; here they do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use slicegate_sim::Outcome;
use slicegate_sim::render::recording;

use crate::common::{Run, THREE_SLICES, apply_at, shared};

/// One version of one object.
struct Line {
    kind: String,
    deleted: bool,
    object: Value,
}

fn lines(text: &str) -> Vec<Line> {
    text.lines()
        .map(|line| {
            let mut value: Value = serde_json::from_str(line).unwrap();
            Line {
                kind: value["kind"].as_str().unwrap().to_owned(),
                deleted: value["type"] == "DELETED",
                object: value["object"].take(),
            }
        })
        .collect()
}

fn recorded(shared: &Path, name: &str) -> Vec<Line> {
    let file = shared.join("recordings").join(format!("{name}.jsonl.xz"));
    let packed = std::fs::read(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let mut plain = Vec::new();
    lzma_rs::xz_decompress(&mut packed.as_slice(), &mut plain).unwrap();
    lines(&String::from_utf8(plain).unwrap())
}

/// What is compared, by kind and name.
type Facts = BTreeMap<String, Value>;

/// Names that differ from run to run, and what is written instead.
struct Names(Vec<(String, String)>);

impl Names {
    fn of(lines: &[Line]) -> Self {
        let mut names = BTreeSet::new();
        for line in lines {
            let meta = &line.object["metadata"];
            let (name, uid) = (meta["name"].as_str().unwrap_or_default(), meta["uid"].as_str().unwrap_or_default());
            let owner = meta["ownerReferences"][0]["name"].as_str().unwrap_or_default();
            match line.kind.as_str() {
                "workloads" => names.insert((name.to_owned(), format!("workload-of-{owner}"))),
                "rayclusters" => names.insert((name.to_owned(), format!("cluster-of-{owner}"))),
                "pods" => names.insert((name.to_owned(), name.rsplit_once('-').map_or(name, |(n, _)| n).to_owned())),
                _ => false,
            };
            if !uid.is_empty() {
                names.insert((uid.to_owned(), format!("uid-of-{}-{}", line.kind, name.len())));
            }
        }
        // Longer names first: some are parts of others.
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self(names)
    }

    fn plain(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |t, (from, to)| t.replace(from.as_str(), to))
    }
}

/// Labels and annotations that are not compared, for the reasons above.
const IGNORED_KEYS: [&str; 7] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kueue.x-k8s.io/raycluster-generation",
    "kueue.x-k8s.io/raycluster-podset-replica-sizes",
    "slicegate.dev/run-time",
    "ray.io/replica-host-index",
    "ray.io/worker-group-replica-index",
    "ray.io/worker-group-replica-name",
];

fn strings(map: &Value, names: &Names, elastic: bool) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter(|(k, _)| !IGNORED_KEYS.contains(&k.as_str()))
        .filter(|(k, _)| elastic || k.as_str() != "kueue.x-k8s.io/workload-slice-name")
        .map(|(k, v)| (k.clone(), names.plain(v.as_str().unwrap_or_default())))
        .map(|(k, v)| if v.starts_with("nodepool") { (k, "one of the node pools".to_owned()) } else { (k, v) })
        .collect()
}

fn tolerations(spec: &Value) -> Vec<String> {
    let default = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let mut all: Vec<String> = spec["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|t| t["key"].as_str().is_none_or(|k| !default.contains(&k) && k != "google.com/tpu"))
        .map(ToString::to_string)
        .collect();
    all.sort();
    all
}

fn pods_of(template: &Value, names: &Names, elastic: bool) -> Value {
    let (meta, spec) = (&template["metadata"], &template["spec"]);
    serde_json::json!({
        "nodeSelector": strings(&spec["nodeSelector"], names, elastic),
        "tolerations": tolerations(spec),
        "labels": strings(&meta["labels"], names, elastic),
        "annotations": strings(&meta["annotations"], names, elastic),
    })
}

/// The last version of jobs and pods before they go, as far as it is compared.
fn injected(lines: &[Line], names: &Names) -> Facts {
    let mut facts = Facts::new();
    for line in lines.iter().filter(|l| !l.deleted) {
        let object = &line.object;
        let name = names.plain(object["metadata"]["name"].as_str().unwrap_or_default());
        let elastic = name.contains("ray") || name.starts_with("cluster-of-");
        let parts: Vec<(String, &Value)> = match line.kind.as_str() {
            "pods" => vec![(String::new(), object)],
            "jobs" => vec![(" template".to_owned(), &object["spec"]["template"])],
            "jobsets" => {
                vec![(" template".to_owned(), &object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"])]
            }
            "rayjobs" => ray_templates(&object["spec"]["rayClusterSpec"]),
            "rayclusters" => ray_templates(&object["spec"]),
            "podtemplates" => vec![(" template".to_owned(), &object["template"])],
            _ => continue,
        };
        let submitter = line.kind == "jobs" && elastic
            || line.kind == "pods" && object["metadata"]["ownerReferences"][0]["kind"] == "Job" && elastic;
        if submitter {
            continue;
        }
        for (part, template) in parts {
            facts.insert(format!("{} {name}{part}", line.kind), pods_of(template, names, elastic));
        }
    }
    facts
}

fn ray_templates(spec: &Value) -> Vec<(String, &Value)> {
    vec![
        (" head".to_owned(), &spec["headGroupSpec"]["template"]),
        (" workers".to_owned(), &spec["workerGroupSpecs"][0]["template"]),
    ]
}

/// The statuses of the conditions of Workloads, a row for each change; then what they hold in the end.
fn lives(lines: &[Line], names: &Names) -> (BTreeMap<String, Vec<String>>, Facts) {
    let mut lives: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut held = Facts::new();
    for line in lines.iter().filter(|l| l.kind == "workloads" && !l.deleted) {
        let name = names.plain(line.object["metadata"]["name"].as_str().unwrap());
        let status = &line.object["status"];
        let mut conditions: Vec<String> = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .filter(|c| c != "Admitted=False")
            .collect();
        conditions.sort();
        let row = conditions.join(" ");
        let life = lives.entry(name.clone()).or_default();
        if life.last() != Some(&row) {
            life.push(row);
        }
        let assignments = status["admission"]["podSetAssignments"].as_array().into_iter().flatten();
        let sets: Vec<Value> = assignments
            .map(|a| {
                let usage = if a["name"] == "head" { Value::Null } else { a["resourceUsage"].clone() };
                serde_json::json!([a["name"], a["count"], a["flavors"], usage])
            })
            .collect();
        if !sets.is_empty() {
            held.insert(name, sets.into());
        }
    }
    (lives, held)
}

/// All that differs, a line each.
fn differences(there: &[Line], here: &[Line]) -> Vec<String> {
    let (names_there, names_here) = (Names::of(there), Names::of(here));
    let ((lives_there, held_there), (lives_here, held_here)) = (lives(there, &names_there), lives(here, &names_here));
    let mut all = Vec::new();
    for name in lives_there.keys().chain(lives_here.keys()).collect::<BTreeSet<_>>() {
        let (there, here) = (lives_there.get(name), lives_here.get(name));
        if there != here {
            all.push(format!("conditions of {name}:\n    there {there:#?}\n     here {here:#?}"));
        }
    }
    let facts = |lines: &[Line], names: &Names, mut held: Facts| {
        held.extend(injected(lines, names));
        held
    };
    let (facts_there, facts_here) = (facts(there, &names_there, held_there), facts(here, &names_here, held_here));
    for name in facts_there.keys().chain(facts_here.keys()).collect::<BTreeSet<_>>() {
        match (facts_there.get(name), facts_here.get(name)) {
            (Some(there), Some(here)) if there == here => {}
            (there, here) => all.push(format!(
                "{name}:\n    there {}\n     here {}",
                there.unwrap_or(&Value::Null),
                here.unwrap_or(&Value::Null)
            )),
        }
    }
    all
}

fn compare(name: &str, outcome: &Outcome) {
    let Some(shared) = shared() else { return };
    let here = lines(&recording(outcome));
    let there = recorded(&shared, name);
    assert!(there.iter().any(|l| l.kind == "pods") && here.iter().any(|l| l.kind == "pods"));
    let all = differences(&there, &here);
    assert!(all.is_empty(), "{} differences from {name}:\n{}", all.len(), all.join("\n"));
}

const JOBSETS: &str = "multislice/jobsets-multislice-standard.yaml";
/// Pods ran eight seconds there.
const EIGHT_SECONDS: &str = "  runTime: 8s\n";

#[test]
fn widest_first() {
    if shared().is_none() {
        return;
    }
    let order =
        [("1s", "JobSet/multislice-3slice"), ("2s", "JobSet/multislice-2slice"), ("3s", "JobSet/multislice-1slice")];
    let run = Run::default().file("multislice/kueue.yaml").file(JOBSETS).text(THREE_SLICES);
    compare("multislice-3-2-1", &run.text(&apply_at(EIGHT_SECONDS, &order)).run());
}

#[test]
fn file_order() {
    if shared().is_none() {
        return;
    }
    let run = Run::default().file("multislice/kueue.yaml").file(JOBSETS).text(THREE_SLICES);
    compare("multislice-1-2-3", &run.text(&apply_at(EIGHT_SECONDS, &[])).run());
}

#[test]
fn preemption() {
    if shared().is_none() {
        return;
    }
    let order = [("1s", "JobSet/multislice-3slice"), ("5s", "JobSet/low-priority")];
    let outcome = Run::default()
        .file("multislice/kueue.yaml")
        .file("multislice/kueue-preemption.yaml")
        .file("multislice/priority-class.yaml")
        .file(JOBSETS)
        .file("multislice/jobset-low-priority-standard.yaml")
        .text(THREE_SLICES)
        .text(&apply_at(
            "  runTime: 8s\n  until: 2h\n",
            &[order[0], order[1], ("3h", "JobSet/multislice-2slice"), ("3h", "JobSet/multislice-1slice")],
        ))
        .run();
    compare("preemption", &outcome);
}

#[test]
fn dws() {
    if shared().is_none() {
        return;
    }
    let pools = r#"[
        {"name": "default-pool", "initialNodeCount": 1, "config": {"machineType": "n2-standard-16"}},
        {"name": "tpu-v6e-od", "initialNodeCount": 4, "config": {"machineType": "ct6e-standard-4t"},
         "placementPolicy": {"tpuTopology": "4x4"}},
        {"name": "tpu-v6e-dws", "initialNodeCount": 0, "autoscaling": {"enabled": true, "maxNodeCount": 4},
         "config": {"machineType": "ct6e-standard-4t"}, "placementPolicy": {"tpuTopology": "4x4"},
         "queuedProvisioning": {"enabled": true}}
    ]"#;
    let outcome = Run::default()
        .file_with("dws/dws-tpu-queue.yaml", &[("ONDEMAND_NODEPOOL", "tpu-v6e-od"), ("DWS_NODEPOOL", "tpu-v6e-dws")])
        .file_with("dws/rayjob-tpu-v6e-dws.yaml", &[("JOB_ID", "1")])
        .file_with("dws/rayjob-tpu-v6e-dws.yaml", &[("JOB_ID", "2")])
        .text(pools)
        .text(&apply_at("  runTime: 8s\n  dws: {findsCapacityAfter: 10s}\n", &[]))
        .run();
    compare("dws", &outcome);
}
