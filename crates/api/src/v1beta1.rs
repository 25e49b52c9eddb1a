//! `kueue.x-k8s.io/v1beta1`: older objects, rewritten to the version in which they are held, and back.
//!
//! The rewriting is done on JSON, before an object is read into its type or after it was written from it. What does not have
//! the form that the version prescribes is left as it is, for the reader to complain about.

use serde_json::{Map, Value, json};

use crate::{Kind, convert, kueue};

/// The API version.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";

/// A field that v1beta1 does not have, found in an object that says it is v1beta1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewerField {
    /// The field, such as `spec.cohortName`.
    pub path: &'static str,
    /// What v1beta1 has instead, if anything.
    pub instead: Option<&'static str>,
}

const NEWER: &[(Kind, NewerField)] = &[
    (Kind::ClusterQueue, NewerField { path: "spec.cohortName", instead: Some("spec.cohort") }),
    (Kind::ClusterQueue, NewerField { path: "spec.concurrentAdmissionPolicy", instead: None }),
    (Kind::LocalQueue, NewerField { path: "status.flavorsUsage", instead: Some("status.flavorUsage") }),
    (Kind::Workload, NewerField { path: "spec.priorityClassRef", instead: Some("spec.priorityClassName") }),
    (Kind::Workload, NewerField { path: "spec.preemptionGates", instead: None }),
    (Kind::Workload, NewerField { path: "status.preemptionGates", instead: None }),
    (
        Kind::Workload,
        NewerField {
            path: "status.accumulatedPastExecutionTimeSeconds",
            instead: Some("status.accumulatedPastExexcutionTimeSeconds"),
        },
    ),
];

/// The names by which v1beta1 calls fields that are held under another name: (kind, held, v1beta1).
pub const RENAMED: &[(Kind, &str, &str)] = &[
    (Kind::ClusterQueue, "spec.cohortName", "spec.cohort"),
    (Kind::ClusterQueue, "spec.admissionChecksStrategy.admissionChecks", "spec.admissionChecks"),
    (Kind::LocalQueue, "status.flavorsUsage", "status.flavorUsage"),
    (Kind::Workload, "spec.priorityClassRef.name", "spec.priorityClassName"),
    (Kind::Workload, "spec.priorityClassRef", "spec.priorityClassSource"),
    (Kind::Workload, "status.accumulatedPastExecutionTimeSeconds", "status.accumulatedPastExexcutionTimeSeconds"),
];

/// What v1beta1 calls a field, if it has another name for it: `spec.cohort` for `spec.cohortName`.
pub fn older_name(kind: Kind, path: &str) -> Option<String> {
    RENAMED.iter().filter(|(k, ..)| *k == kind).find_map(|(_, held, written)| {
        let rest = path.strip_prefix(held)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("{written}{rest}"))
    })
}

/// Fields that are called otherwise in the same place: (held, v1beta1).
fn other_words(kind: Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    RENAMED.iter().filter(move |(k, ..)| *k == kind).filter_map(|(_, held, written)| {
        let ((held_in, held), (written_in, written)) = (held.rsplit_once('.')?, written.rsplit_once('.')?);
        (held_in == written_in).then_some((held, written))
    })
}

/// The fields of a section of an object as v1beta1 calls them, from those by which it is held.
pub fn older_fields<'a>(kind: Kind, section: &str, held: &[&'a str]) -> Vec<&'a str> {
    let mut fields: Vec<&'a str> = held
        .iter()
        .map(|field| {
            let older = older_name(kind, &format!("{section}.{field}")).filter(|o| o.starts_with(section));
            let word = older.and_then(|_| other_words(kind).find(|(h, _)| h == field));
            word.map_or(*field, |(_, written)| written)
        })
        .collect();
    let moved = RENAMED.iter().filter(|(k, ..)| *k == kind).filter_map(|(_, _, written)| {
        let (place, field) = written.rsplit_once('.')?;
        (place == section).then_some(field)
    });
    fields.extend(moved);
    fields.sort_unstable();
    fields.dedup();
    fields
}

/// A text about an object in which fields have the names by which it is held, with those of v1beta1.
///
/// ```
/// use slicegate_api::{Kind, v1beta1};
///
/// let text = v1beta1::in_older_words(Kind::ClusterQueue, "name the cohort in spec.cohortName");
/// assert_eq!(text, "name the cohort in spec.cohort");
/// ```
pub fn in_older_words(kind: Kind, text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = text.to_owned();
    for (held, written) in other_words(kind) {
        let mut next = String::with_capacity(out.len());
        let mut rest = out.as_str();
        while let Some((before, after)) = rest.split_once(held) {
            let whole = !before.ends_with(is_word) && !after.starts_with(is_word);
            next.push_str(before);
            next.push_str(if whole { written } else { held });
            rest = after;
        }
        next.push_str(rest);
        out = next;
    }
    out
}

const SOURCES: &[(&str, &str, &str)] = &[
    ("kueue.x-k8s.io/workloadpriorityclass", kueue::GROUP, "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

/// Rewrites a v1beta1 object to the form in which it is held. Fields that only v1beta1 has and that mean nothing any more are
/// dropped.
///
/// Returns the fields that v1beta1 does not have; they are taken out too.
pub fn to_held(kind: Kind, object: &mut Value) -> Vec<NewerField> {
    let Some(root) = object.as_object_mut() else { return Vec::new() };
    let newer = NEWER
        .iter()
        .filter(|(k, _)| *k == kind)
        .map(|(_, field)| *field)
        .filter(|field| remove(root, field.path).is_some())
        .collect();
    if root.contains_key("apiVersion") {
        root.insert("apiVersion".into(), kueue::API_VERSION.into());
    }
    match kind {
        Kind::ClusterQueue => {
            rename(section(root, "spec"), "cohort", "cohortName");
            checks_to_held(section(root, "spec"));
            if let Some(fungibility) = section(root, "spec").and_then(|s| section(s, "flavorFungibility")) {
                replace(fungibility, "whenCanBorrow", "Borrow", "MayStopSearch");
                replace(fungibility, "whenCanPreempt", "Preempt", "MayStopSearch");
            }
            remove(root, "status.pendingWorkloadsStatus");
            remove(root, "status.fairSharing.admissionFairSharingStatus");
        }
        Kind::Cohort => {
            remove(root, "status.fairSharing.admissionFairSharingStatus");
        }
        Kind::LocalQueue => {
            rename(section(root, "status"), "flavorUsage", "flavorsUsage");
            remove(root, "status.flavors");
        }
        Kind::AdmissionCheck => {
            remove(root, "spec.retryDelayMinutes");
        }
        Kind::Workload => {
            if let Some(spec) = section(root, "spec") {
                priority_class_to_held(spec);
            }
            let status = section(root, "status");
            rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds");
            each_topology_assignment(root, assignment_to_held);
        }
        _ => {}
    }
    newer
}

/// Rewrites an object from the form in which it is held to v1beta1. What v1beta1 cannot say is dropped.
pub fn from_held(kind: Kind, object: &mut Value) {
    let Some(root) = object.as_object_mut() else { return };
    if root.contains_key("apiVersion") {
        root.insert("apiVersion".into(), API_VERSION.into());
    }
    match kind {
        Kind::ClusterQueue => {
            rename(section(root, "spec"), "cohortName", "cohort");
            remove(root, "spec.concurrentAdmissionPolicy");
        }
        Kind::LocalQueue => rename(section(root, "status"), "flavorsUsage", "flavorUsage"),
        Kind::Workload => {
            if let Some(spec) = section(root, "spec") {
                priority_class_from_held(spec);
                spec.remove("preemptionGates");
                let sets = spec.get_mut("podSets").and_then(Value::as_array_mut);
                for request in sets.into_iter().flatten().filter_map(|s| s.get_mut("topologyRequest")) {
                    if let Some(request) = request.as_object_mut() {
                        request.remove("podsetSliceRequiredTopologyConstraints");
                    }
                }
            }
            remove(root, "status.preemptionGates");
            let status = section(root, "status");
            rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds");
            each_topology_assignment(root, assignment_from_held);
        }
        _ => {}
    }
}

type Fields = Map<String, Value>;

fn section<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name)?.as_object_mut()
}

fn remove(root: &mut Fields, path: &str) -> Option<Value> {
    match path.split_once('.') {
        Some((first, rest)) => remove(section(root, first)?, rest),
        // In the order of the rest, not swapped with the last.
        None => root.shift_remove(path),
    }
}

fn rename(fields: Option<&mut Fields>, from: &str, to: &str) {
    if let Some(fields) = fields
        && let Some(value) = fields.shift_remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}

fn replace(fields: &mut Fields, name: &str, from: &str, to: &str) {
    if let Some(value) = fields.get_mut(name).filter(|v| v.as_str() == Some(from)) {
        *value = to.into();
    }
}

/// A list of checks wins over a strategy in the same object.
fn checks_to_held(spec: Option<&mut Fields>) {
    let Some(spec) = spec else { return };
    match spec.shift_remove("admissionChecks") {
        None | Some(Value::Null) => {}
        Some(Value::Array(names)) if names.is_empty() => {}
        Some(Value::Array(names)) => {
            let rules: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
            spec.insert("admissionChecksStrategy".into(), json!({ "admissionChecks": rules }));
        }
        Some(other) => {
            spec.insert("admissionChecksStrategy".into(), json!({ "admissionChecks": other }));
        }
    }
}

fn priority_class_to_held(spec: &mut Fields) {
    let name = spec.shift_remove("priorityClassName").filter(|n| !n.is_null());
    let source = spec.shift_remove("priorityClassSource").filter(|s| !s.is_null());
    // Without a source there is no class, whatever its name.
    let Some(source) = source.filter(|s| s.as_str() != Some("")) else { return };
    let known = SOURCES.iter().find(|(s, ..)| source.as_str() == Some(s));
    let (group, kind) = match known {
        Some((_, group, kind)) => (Value::from(*group), Value::from(*kind)),
        None => (source.clone(), source),
    };
    let name = name.unwrap_or_else(|| "".into());
    spec.insert("priorityClassRef".into(), json!({ "group": group, "kind": kind, "name": name }));
}

fn priority_class_from_held(spec: &mut Fields) {
    let Some(Value::Object(mut class)) = spec.shift_remove("priorityClassRef") else { return };
    let source = SOURCES.iter().find(|(_, group, _)| class.get("group").and_then(Value::as_str) == Some(group));
    if let Some((source, ..)) = source {
        spec.insert("priorityClassSource".into(), (*source).into());
    }
    if let Some(name) = class.remove("name") {
        spec.insert("priorityClassName".into(), name);
    }
}

fn each_topology_assignment(root: &mut Fields, change: fn(&mut Fields)) {
    let assignments = section(root, "status")
        .and_then(|s| section(s, "admission"))
        .and_then(|a| a.get_mut("podSetAssignments"))
        .and_then(Value::as_array_mut);
    for assignment in assignments.into_iter().flatten() {
        if let Some(topology) = assignment.get_mut("topologyAssignment").and_then(Value::as_object_mut) {
            change(topology);
        }
    }
}

/// `{"levels": [...], "domains": [{"values": [...], "count": n}]}`
#[derive(serde::Serialize, serde::Deserialize)]
struct OldAssignment {
    levels: Vec<Box<str>>,
    #[serde(default)]
    domains: Vec<OldDomain>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct OldDomain {
    values: Vec<Box<str>>,
    count: i32,
}

fn assignment_to_held(topology: &mut Fields) {
    let Ok(old) = serde_json::from_value::<OldAssignment>(Value::Object(topology.clone())) else { return };
    let domain = |d: OldDomain| slicegate_workload::TopologyDomain { values: d.values, count: d.count };
    let plain = slicegate_workload::TopologyAssignment {
        levels: old.levels,
        domains: old.domains.into_iter().map(domain).collect(),
    };
    if let Ok(Value::Object(new)) = serde_json::to_value(convert::topology_assignment_to_api(&plain)) {
        *topology = new;
    }
}

fn assignment_from_held(topology: &mut Fields) {
    let Ok(held) = serde_json::from_value(Value::Object(topology.clone())) else { return };
    let Ok(plain) = convert::topology_assignment(&held) else { return };
    let old = OldAssignment {
        levels: plain.levels,
        domains: plain.domains.into_iter().map(|d| OldDomain { values: d.values, count: d.count }).collect(),
    };
    if let Ok(Value::Object(new)) = serde_json::to_value(old) {
        *topology = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(kind: Kind, mut value: Value) -> Value {
        assert_eq!(to_held(kind, &mut value), []);
        value
    }

    fn old(kind: Kind, mut value: Value) -> Value {
        from_held(kind, &mut value);
        value
    }

    #[test]
    fn cluster_queue() {
        let v1 = json!({"apiVersion": API_VERSION, "kind": "ClusterQueue",
            "spec": {"cohort": "team", "admissionChecks": ["a", "b"],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "lost"}]},
                "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
            "status": {"pendingWorkloadsStatus": {}, "fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}}}});
        let v2 = held(Kind::ClusterQueue, v1);
        assert_eq!(
            v2,
            json!({"apiVersion": kueue::API_VERSION, "kind": "ClusterQueue",
                "spec": {"cohortName": "team", "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]},
                    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}},
                "status": {"fairSharing": {"weightedShare": 1}}})
        );
        let back = old(Kind::ClusterQueue, v2);
        assert_eq!(back["spec"]["cohort"], "team");
        assert_eq!(back["spec"]["admissionChecksStrategy"]["admissionChecks"][1]["name"], "b");
        assert_eq!(back["apiVersion"], API_VERSION);
    }

    #[test]
    fn newer_fields_do_not_exist_in_v1beta1() {
        let mut v = json!({"spec": {"cohortName": "x", "cohort": "y", "concurrentAdmissionPolicy": {}}});
        let newer = to_held(Kind::ClusterQueue, &mut v);
        assert_eq!(
            newer.iter().map(|n| n.path).collect::<Vec<_>>(),
            ["spec.cohortName", "spec.concurrentAdmissionPolicy"]
        );
        assert_eq!(v, json!({"spec": {"cohortName": "y"}}));
        assert_eq!(old(Kind::ClusterQueue, json!({"spec": {"concurrentAdmissionPolicy": {}}})), json!({"spec": {}}));
    }

    #[test]
    fn priority_class_of_a_workload() {
        let class = |source: &str| json!({"spec": {"priorityClassName": "high", "priorityClassSource": source}});
        for (source, group, kind) in SOURCES {
            let v2 = held(Kind::Workload, class(source));
            assert_eq!(v2, json!({"spec": {"priorityClassRef": {"group": group, "kind": kind, "name": "high"}}}));
            assert_eq!(old(Kind::Workload, v2), class(source));
        }
        assert_eq!(held(Kind::Workload, class("")), json!({"spec": {}}));
    }

    #[test]
    fn status_of_a_workload() {
        let v1 = json!({"status": {"accumulatedPastExexcutionTimeSeconds": 5, "admission": {"clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "topologyAssignment": {"levels": ["rack"],
                "domains": [{"values": ["a"], "count": 1}, {"values": ["b"], "count": 2}]}}]}}});
        let v2 = held(Kind::Workload, v1.clone());
        assert_eq!(v2["status"]["accumulatedPastExecutionTimeSeconds"], 5);
        let topology = &v2["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
        assert_eq!(topology["slices"][0]["domainCount"], 2);
        assert_eq!(old(Kind::Workload, v2), v1);
    }

    #[test]
    fn what_only_v1beta2_can_say_is_lost() {
        let v2 = json!({"spec": {"preemptionGates": [], "podSets": [{"topologyRequest":
            {"required": "a", "podsetSliceRequiredTopologyConstraints": []}}]}, "status": {"preemptionGates": []}});
        assert_eq!(
            old(Kind::Workload, v2),
            json!({"spec": {"podSets": [{"topologyRequest": {"required": "a"}}]}, "status": {}})
        );
    }

    #[test]
    fn local_queue_and_admission_check() {
        let v1 = json!({"status": {"flavorUsage": [], "flavors": []}});
        let v2 = held(Kind::LocalQueue, v1);
        assert_eq!(v2, json!({"status": {"flavorsUsage": []}}));
        assert_eq!(old(Kind::LocalQueue, v2), json!({"status": {"flavorUsage": []}}));
        let check = json!({"spec": {"controllerName": "c", "retryDelayMinutes": 15}});
        assert_eq!(held(Kind::AdmissionCheck, check), json!({"spec": {"controllerName": "c"}}));
    }

    #[test]
    fn ill_formed_objects_are_left_to_the_reader() {
        for kind in Kind::ALL {
            for value in
                [json!(null), json!([]), json!({"spec": [], "status": 3}), json!({"spec": {"admissionChecks": 3}})]
            {
                let mut value = value;
                let _ = to_held(*kind, &mut value);
                from_held(*kind, &mut value);
            }
        }
    }
}
