//! Objects out of cases, and how they are compared.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read fails")]

use serde_json::Value;
use slicegate_admission::Gates;
use slicegate_api::{Kind, Object, convert};
use slicegate_workload::{LabelSelector, Operator, Requirement, Timestamp};

/// Whether two values are the same once nulls, empty objects and empty lists are taken out.
pub(crate) fn same(got: &Value, want: &Value) -> Result<(), String> {
    let (got, want) = (pruned(got), pruned(want));
    if got == want || is_empty(&got) && is_empty(&want) {
        Ok(())
    } else {
        Err(format!("\n   got {got}\n  want {want}"))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(o) => o.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::String(s) => s.is_empty(),
        _ => false,
    }
}

pub(crate) fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(o) => {
            let mut sorted: Vec<_> =
                o.iter().map(|(k, v)| (k.clone(), pruned(v))).filter(|(_, v)| !is_empty(v)).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            sorted.into_iter().collect::<serde_json::Map<_, _>>().into()
        }
        Value::Array(a) => a.iter().map(pruned).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

pub(crate) fn gates(case: &Value) -> Gates {
    let mut gates = Gates::default();
    for (name, on) in case["config"]["featureGates"].as_object().into_iter().flatten() {
        // Gates that this crate does not know do not matter to it.
        let _ = gates.set(name, on.as_bool().unwrap());
    }
    gates
}

pub(crate) fn object(value: &Value) -> Object {
    let kind = kind(value).unwrap();
    let mut value = value.clone();
    // Some fixtures leave out what the schema demands.
    for group in value.pointer_mut("/spec/resourceGroups").and_then(Value::as_array_mut).into_iter().flatten() {
        group.as_object_mut().unwrap().entry("coveredResources").or_insert_with(|| serde_json::json!([]));
        for flavor in group["flavors"].as_array_mut().into_iter().flatten() {
            flavor.as_object_mut().unwrap().entry("resources").or_insert_with(|| serde_json::json!([]));
        }
    }
    for condition in value.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let condition = condition.as_object_mut().unwrap();
        condition.entry("lastTransitionTime").or_insert_with(|| "0001-01-01T00:00:00Z".into());
        condition.entry("message").or_insert_with(|| "".into());
        condition.entry("reason").or_insert_with(|| "".into());
    }
    kind.read(value).unwrap()
}

pub(crate) fn json(object: &Object) -> Value {
    object.to_json().unwrap()
}

/// The kind of an object, if it is known.
pub(crate) fn kind(value: &Value) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|k| Some(k.as_str()) == value["kind"].as_str())
}

/// The objects of a case whose kinds are known.
pub(crate) fn objects(case: &Value) -> Vec<Object> {
    case["objects"].as_array().into_iter().flatten().filter(|o| kind(o).is_some()).map(object).collect()
}

/// A selector as it is written on a command line.
pub(crate) fn selector(text: &str) -> LabelSelector {
    let mut all = LabelSelector::default();
    if let Some((key, rest)) = text.split_once(" notin ").or_else(|| text.split_once(" in ")) {
        let values = rest.trim_matches(['(', ')']).split(',').map(Into::into).collect();
        let operator = if text.contains(" notin ") { Operator::NotIn } else { Operator::In };
        all.match_expressions.push(Requirement { key: key.into(), operator, values });
    } else if let Some((key, value)) = text.split_once('=') {
        all.match_labels.insert(key.into(), value.into());
    }
    all
}

/// Seconds out of `1m0s`.
pub(crate) fn seconds(text: &str) -> i64 {
    let (minutes, rest) = text.split_once('m').unwrap_or(("0", text));
    minutes.parse::<i64>().unwrap() * 60 + rest.trim_end_matches('s').parse::<i64>().unwrap()
}

/// A time; the corpus's now if there is none.
pub(crate) fn time(text: &Value) -> Timestamp {
    serde_json::from_value(text.clone()).map_or(Timestamp::from_seconds(1_767_268_800), |t| convert::timestamp(&t))
}
