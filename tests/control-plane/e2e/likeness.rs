//! Whether objects are like recorded ones: all but what differs from run to run.

use std::collections::BTreeSet;

use slicegate_control_plane::Value;
use slicegate_control_plane::api::text;
use slicegate_quota::Quantity;

/// In what objects differ from recorded ones, and why: the recordings are of an older Kueue, with webhooks, and of another player.
const KNOWN: [(&str, &str, &str); 31] = [
    ("Event", r#"/reason: "ExceedsMaxQuota" / "Pending""#, "since the recordings, reasons say more"),
    ("Event", r#"/reason: "WaitingForQuota" / "Pending""#, "likewise"),
    ("Event", r#"/reason: "WaitingForPreemptedWorkloads" / "Pending""#, "likewise"),
    (
        "Event",
        r#"1 more needed (0): null / {"reason":"Pending""#,
        "since the recordings, one like another that just found no room is not tried",
    ),
    ("Job", "workload-slice-name: null", "as in a JobSet"),
    ("JobSet", "workload-slice-name: null", "only elastic jobs are told the first slice of their chain"),
    ("JobSet", "/status/conditions/Suspended:", "its controller may not have seen that it was suspended for a moment"),
    ("Pod", "workload-slice-name: null", "as in its JobSet"),
    ("Pod", "/metadata/name:", "generated"),
    ("Pod", "/spec/nodeSelector/cloud.google.com~1gke-nodepool:", "the pool that its leader came to"),
    ("Pod", "/spec/nodeName:", "the player names nodes as GKE does"),
    ("Pod", "/status/", "the kubelet is played"),
    (
        "Workload",
        "/podSetAssignments/0/resourceUsage/",
        "the head of a RayJob is counted with its autoscaler's container",
    ),
    ("Workload", "/podSets/0/template/spec/containers:", "so it is there among its containers"),
    ("Workload", "/metadata/finalizers:", "who has finished keeps its finalizer until it is deleted: a write less"),
    (
        "Workload",
        r#"/conditions/Admitted: {"lastTransitionTime":null,"message":"The workload has no reservation""#,
        "since the recordings, who waits is told that it is not admitted",
    ),
    (
        "Workload",
        r#"/conditions/QuotaReserved/reason: "ExceedsMaxQuota" / "Pending""#,
        "since the recordings, reasons say more",
    ),
    ("Workload", r#"/conditions/QuotaReserved/reason: "WaitingForQuota" / "Pending""#, "likewise"),
    (
        "Workload",
        r#"/conditions/QuotaReserved/message: "Bypassed scheduling evaluation because an equivalent workload"#,
        "one like another that just found no room is not tried, as in Events",
    ),
    ("Workload", "/status/resourceRequests: null", "so what it asks for is not told"),
    ("Workload", "/status/conditions/Finished/message:", "the dashboard's words"),
    ("Workload", "/status/reclaimablePods", "as much as was seen before the end"),
    ("Workload", "/status/admissionChecks/0/message:", "DWS's words"),
    (
        "RayJob",
        "/metadata/annotations/kueue.x-k8s.io~1raycluster-",
        "Kueue's own notes about the size of the RayCluster",
    ),
    (
        "RayJob",
        "/template/spec/schedulingGates:",
        "no webhook puts the gate into the RayCluster: its template must have it",
    ),
    ("RayJob", "/spec/submitterPodTemplate:", "the submitter, too, runs where it has quota"),
    ("RayJob", "/status/", "KubeRay's, with generated names and the dashboard's words"),
    ("ProvisioningRequest", "/status/conditions/", "DWS's words"),
    ("ProvisioningRequest", "/status/provisioningClassDetails:", "DWS tells the node pool"),
    ("ClusterQueue", "/resources/1/name:", "in the order of the quotas; in Kueue, of their names"),
    ("ClusterQueue", "/resources/2/name:", "likewise"),
];

/// Where an object of a kind differs from a recorded one, each as `path: ours / theirs`, without what is known to.
pub(crate) fn unlike(kind: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = differences(&timeless(ours), &timeless(theirs));
    found.retain(|d| !KNOWN.iter().any(|(of, part, _)| *of == kind && d.contains(part)));
    found
}

/// Where two values differ, each as `path: ours / theirs`.
pub(crate) fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", ours, theirs, &mut found);
    found
}

fn compare(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))).collect();
            keys.sort();
            for key in keys {
                let (left, right) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                compare(&format!("{path}/{}", key.replace('/', "~1")), left, right, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if are_conditions(a) && are_conditions(b) => {
            let of = |all: &[Value], kind: &str| all.iter().find(|c| text(c, "/type") == kind).cloned();
            let kinds: BTreeSet<&str> = a.iter().chain(b).map(|c| text(c, "/type")).collect();
            for kind in kinds {
                let (left, right) = (of(a, kind).unwrap_or_default(), of(b, kind).unwrap_or_default());
                compare(&format!("{path}/{kind}"), &left, &right, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (left, right)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{index}"), left, right, found);
            }
        }
        _ if ours == theirs || are_empty(ours, theirs) || same_quantity(ours, theirs) => {}
        _ => found.push(format!("{path}: {} / {}", short(ours), short(theirs))),
    }
}

/// Conditions are told apart by their types; their order means nothing.
fn are_conditions(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|c| !text(c, "/type").is_empty() && !text(c, "/status").is_empty())
}

/// An object without fields is as good as none.
fn are_empty(ours: &Value, theirs: &Value) -> bool {
    let empty = |v: &Value| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty);
    empty(ours) && empty(theirs)
}

/// A quantity may be written in many ways: `24`, `"24"`, `"1G"`.
fn same_quantity(ours: &Value, theirs: &Value) -> bool {
    let quantity = |v: &Value| {
        let text = v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        text.parse::<Quantity>().ok()
    };
    (ours.is_number() || theirs.is_number()) && quantity(ours).is_some_and(|q| quantity(theirs) == Some(q))
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(160).collect()
}

/// An object without what differs from run to run: times, uids, versions, the ends of generated names.
pub(crate) fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    scrub(&mut object);
    object
}

fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                // What clocks say.
                let is_measured = ["observedGeneration", "accumulatedPastExecutionTimeSeconds"].contains(&key.as_str());
                if key.ends_with("Time") || is_measured {
                    *field = Value::Null;
                }
                scrub(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::String(text) => *text = words(text),
        _ => {}
    }
}

/// A text with uids and the hashes at the ends of names made alike.
fn words(text: &str) -> String {
    let mut alike = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let (sign, after) = after.split_at(after.chars().next().map_or(0, char::len_utf8));
        // 8-4-4-4-12, part by part.
        let in_name = alike.ends_with('-') || sign == "-";
        let is_hex = in_name && word.chars().all(|c| c.is_ascii_hexdigit());
        let is_part = is_hex && [4, 8, 12].contains(&word.len());
        let is_hash = is_hex && word.len() == 5 && alike.ends_with('-');
        alike.push_str(if is_part || is_hash { "x" } else { word });
        alike.push_str(sign);
        rest = after;
    }
    alike
}

#[cfg(test)]
mod tests {
    use slicegate_control_plane::json;

    use super::*;

    #[test]
    fn what_differs_from_run_to_run_does_not_count() {
        let ours = json!({"metadata": {"uid": "a", "name": "jobset-x-01234"}, "spec": {"n": [1]}});
        let theirs = json!({"metadata": {"uid": "b", "name": "jobset-x-a1b2c"}, "spec": {"n": [2]}});
        assert_eq!(differences(&timeless(&ours), &timeless(&theirs)), ["/spec/n/0: 1 / 2"]);
        assert_eq!(differences(&json!({"q": 1000, "e": {}}), &json!({"q": "1k"})), [] as [String; 0]);
        assert_eq!(
            words("job-a-abcde-dws-1 (UID: 50e532d6-4d19-4f06-bf64-d30f2b710ddd)"),
            "job-a-x-dws-1 (UID: x-x-x-x-x)"
        );
        assert_eq!(words("cafe is added"), "cafe is added");
    }

    #[test]
    fn conditions_are_compared_by_type() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let ours = json!([condition("A", "True"), condition("B", "True")]);
        let theirs = json!([condition("B", "False"), condition("A", "True"), condition("C", "True")]);
        let found = differences(&ours, &theirs);
        assert_eq!(found, [r#"/B/status: "True" / "False""#, r#"/C: null / {"status":"True","type":"C"}"#]);
    }
}
