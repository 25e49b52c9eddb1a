//! Whether objects are like recorded ones: all but what differs from run to run.

use slicegate_control_plane::Value;
use slicegate_quota::Quantity;

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
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (left, right)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{index}"), left, right, found);
            }
        }
        _ if ours == theirs || are_empty(ours, theirs) || same_quantity(ours, theirs) => {}
        _ => found.push(format!("{path}: {} / {}", short(ours), short(theirs))),
    }
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
                if key.ends_with("Time") || key == "observedGeneration" {
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

/// A text with uids and hashes made alike.
fn words(text: &str) -> String {
    let is_hash =
        |w: &str| w.len() == 5 && w.chars().all(|c| c.is_ascii_hexdigit()) && w.chars().any(|c| c.is_ascii_digit());
    let mut parts: Vec<String> = Vec::new();
    for word in text.split('-') {
        // 8-4-4-4-12: the last four parts are made alike one by one.
        let hex = !word.is_empty() && word.chars().all(|c| c.is_ascii_hexdigit());
        let alike = is_hash(word) || hex && [4, 8, 12].contains(&word.len());
        parts.push(if alike { "x".to_owned() } else { word.to_owned() });
    }
    parts.join("-")
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
    }
}
