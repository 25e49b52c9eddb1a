//! Who owns which part of a Workload's status.
//!
//! Kueue writes the status of Workloads by server-side apply under several names, each for a part. Slicegate writes the same
//! parts under the same names, so that a cluster can move from one to the other and back and no field is left with an owner who
//! does not come back.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use slicegate_controller::field_manager;

/// The conditions that tell how the pods of a job are.
const OF_PODS: [&str; 2] = ["PodsReady", "WaitingForReplacementPods"];

/// The managers, in the order in which their parts are written.
pub(crate) const MANAGERS: [&str; 4] =
    [field_manager::ADMISSION, field_manager::PROVISIONING, field_manager::JOB, field_manager::RECLAIMABLE_PODS];

/// The part of a Workload's status that a manager applies. `provisioning` are the names of the checks that are answered by
/// ProvisioningRequests.
pub(crate) fn part(manager: &str, status: &Value, provisioning: &BTreeSet<String>) -> Value {
    let mut part = Map::new();
    let Some(fields) = status.as_object() else { return Value::Object(part) };
    let mut keep = |name: &str, of: &dyn Fn(&Value) -> bool| {
        let Some(items) = fields.get(name).and_then(Value::as_array) else { return };
        let kept: Vec<Value> = items.iter().filter(|item| of(item)).cloned().collect();
        if !kept.is_empty() {
            part.insert(name.to_owned(), kept.into());
        }
    };
    let is_of_pods = |c: &Value| c["type"].as_str().is_some_and(|t| OF_PODS.contains(&t));
    match manager {
        field_manager::JOB => keep("conditions", &is_of_pods),
        field_manager::RECLAIMABLE_PODS => keep("reclaimablePods", &|_| true),
        field_manager::PROVISIONING => {
            keep("admissionChecks", &|c| c["name"].as_str().is_some_and(|name| provisioning.contains(name)));
        }
        _ => {
            keep("conditions", &|c| !is_of_pods(c));
            let others = fields.iter().filter(|(name, _)| !["conditions", "reclaimablePods"].contains(&name.as_str()));
            part.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    Value::Object(part)
}

/// The managers whose parts change between two statuses.
pub(crate) fn changing<'a>(old: &Value, new: &Value, writer: &'a str, provisioning: &BTreeSet<String>) -> Vec<&'a str> {
    let changes = |manager: &str| part(manager, old, provisioning) != part(manager, new, provisioning);
    let mut all: Vec<&'a str> = Vec::new();
    if writer == field_manager::PROVISIONING && changes(writer) {
        // What it says of its checks is no news from the admission's side.
        all.push(writer);
        let rest = |status: &Value| {
            let mut part = part(field_manager::ADMISSION, status, provisioning);
            if let Some(checks) = part.get_mut("admissionChecks").and_then(Value::as_array_mut) {
                checks.retain(|c| !c["name"].as_str().is_some_and(|name| provisioning.contains(name)));
            }
            part
        };
        if rest(old) != rest(new) {
            all.push(field_manager::ADMISSION);
        }
        all.extend(MANAGERS[2..].iter().filter(|m| changes(m)));
        return all;
    }
    all.extend(MANAGERS.iter().filter(|m| changes(m)));
    // Checks that the admission resets or adds are its to write; the one who answers them owns only what it answered itself.
    all.retain(|m| *m != field_manager::PROVISIONING);
    all
}

/// A status without the checks that another does not have any more; `None` if it has them all. They are removed by name: while
/// somebody else owns a part of one, that part would stay behind when its owner lets go of the rest, and be invalid.
pub(crate) fn without_gone_checks(old: &Value, new: &Value) -> Option<Value> {
    let checks = |status: &Value| status["admissionChecks"].as_array().cloned().unwrap_or_default();
    let left = checks(new);
    let before = checks(old);
    let kept: Vec<Value> =
        before.iter().filter(|check| left.iter().any(|other| other["name"] == check["name"])).cloned().collect();
    if kept.len() == before.len() {
        return None;
    }
    let mut status = old.clone();
    let fields = status.as_object_mut()?;
    if kept.is_empty() {
        fields.remove("admissionChecks");
    } else {
        fields.insert("admissionChecks".to_owned(), kept.into());
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checks() -> BTreeSet<String> {
        BTreeSet::from(["dws".to_owned()])
    }

    #[test]
    fn each_part_has_one_owner() {
        let status = json!({
            "admission": {"clusterQueue": "cq"},
            "conditions": [{"type": "QuotaReserved"}, {"type": "PodsReady"}, {"type": "Admitted"}],
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [{"name": "dws"}, {"name": "other"}],
        });
        let of = |manager| part(manager, &status, &checks());
        assert_eq!(of(field_manager::JOB), json!({"conditions": [{"type": "PodsReady"}]}));
        assert_eq!(of(field_manager::RECLAIMABLE_PODS), json!({"reclaimablePods": [{"name": "main", "count": 1}]}));
        assert_eq!(of(field_manager::PROVISIONING), json!({"admissionChecks": [{"name": "dws"}]}));
        let admission = of(field_manager::ADMISSION);
        assert_eq!(admission["conditions"], json!([{"type": "QuotaReserved"}, {"type": "Admitted"}]));
        assert_eq!(admission["admissionChecks"], status["admissionChecks"]);
        assert_eq!(admission.get("reclaimablePods"), None);
    }

    #[test]
    fn a_write_touches_the_parts_that_change() {
        let old = json!({"conditions": [{"type": "Admitted", "status": "False"}]});
        let both = json!({"conditions": [{"type": "Admitted", "status": "True"}, {"type": "PodsReady"}]});
        let changed = |old, new, writer| changing(old, new, writer, &checks());
        assert_eq!(changed(&old, &both, field_manager::ADMISSION), [field_manager::ADMISSION, field_manager::JOB]);
        assert_eq!(changed(&old, &old, field_manager::ADMISSION), [""; 0]);
    }

    #[test]
    fn an_answer_is_written_by_whoever_answers_and_a_reset_by_the_admission() {
        let waiting = json!({"admissionChecks": [{"name": "dws", "state": "Pending"}]});
        let ready = json!({"admissionChecks": [{"name": "dws", "state": "Ready"}]});
        let changed = |old, new, writer| changing(old, new, writer, &checks());
        assert_eq!(changed(&waiting, &ready, field_manager::PROVISIONING), [field_manager::PROVISIONING]);
        assert_eq!(changed(&ready, &waiting, field_manager::ADMISSION), [field_manager::ADMISSION]);
    }

    #[test]
    fn checks_that_go_are_removed_by_name() {
        let both = json!({"admissionChecks": [{"name": "dws", "state": "Ready"}, {"name": "x"}], "admission": {}});
        let one = json!({"admissionChecks": [{"name": "dws", "state": "Pending"}], "conditions": []});
        let kept = json!({"admissionChecks": [{"name": "dws", "state": "Ready"}], "admission": {}});
        assert_eq!(without_gone_checks(&both, &one), Some(kept));
        assert_eq!(without_gone_checks(&both, &json!({})), Some(json!({"admission": {}})));
        assert_eq!(without_gone_checks(&one, &both), None);
    }
}
