//! `kubectl patch --type merge`: JSON merge patches (RFC 7386), checked as any update.

use serde_json::{Map, Value};

use slicegate_api::ObjectRef;
use slicegate_controller::WriteError;

use super::{Applied, Store, parts};

impl Store {
    /// Changes the fields of an object that a merge patch names: of its status, or of everything else.
    ///
    /// # Errors
    /// As the API server would: there is no such object, the patch names a field that there is not, the result is no object of
    /// the kind, changes what may not be changed, or breaks a rule that held before.
    pub(crate) fn patch(&mut self, key: &ObjectRef, status: bool, patch: &Value) -> Result<Applied, WriteError> {
        let invalid = |why: String| WriteError::Invalid { object: key.clone(), why };
        let live = self.objects.get(key).cloned().ok_or_else(|| WriteError::NotFound(key.clone()))?;
        let patch = part(patch, status);
        let mut merged = live.to_json().map_err(|error| invalid(error.to_string()))?;
        merge(&mut merged, &patch);
        let mut object = key.kind.read(merged).map_err(|error| invalid(error.to_string()))?;
        let read = object.to_json().map_err(|error| invalid(error.to_string()))?;
        if let Some(field) = unknown(&patch, &read, "") {
            return Err(invalid(format!("unknown field \"{field}\"")));
        }
        if status {
            let mut next = live.clone();
            parts::keep_status(&mut next, &object);
            self.admit_status(&live, &next)?;
            object = next;
        } else {
            parts::keep_status(&mut object, &live);
            self.admit_update(&live, &mut object)?;
        }
        let before = self.version;
        self.replace_or_finish(key, &live, object);
        Ok(if self.version == before { Applied::Unchanged } else { Applied::Configured })
    }
}

/// The part of a patch that counts: a status is changed on its own only.
fn part(patch: &Value, status: bool) -> Value {
    let fields = patch.as_object().into_iter().flatten();
    let wanted = fields.filter(|(field, _)| match field.as_str() {
        "apiVersion" | "kind" => false,
        field => (field == "status") == status,
    });
    Value::Object(wanted.map(|(field, value)| (field.clone(), value.clone())).collect())
}

fn merge(live: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *live = patch.clone();
        return;
    };
    if !live.is_object() {
        *live = Value::Object(Map::new());
    }
    let Some(live) = live.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            live.remove(key);
        } else {
            merge(live.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// A field of the patch that was lost when the object was read: its kind does not have it. Values that mean the same as none
/// are not written out and tell nothing.
fn unknown(patch: &Value, read: &Value, path: &str) -> Option<String> {
    match patch {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match read.get(name) {
                Some(read) => unknown(value, read, &path),
                None => (!says_nothing(value)).then_some(path),
            }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| read.get(i).and_then(|read| unknown(item, read, &format!("{path}[{i}]")))),
        _ => None,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(says_nothing),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use slicegate_api::Kind;

    fn store() -> (Store, ObjectRef) {
        let mut store = Store::new(true);
        let queue = json!({
            "metadata": {"name": "q"},
            "spec": {"namespaceSelector": {}, "stopPolicy": "Hold", "queueingStrategy": "StrictFIFO"}
        });
        let made = store.create(Kind::ClusterQueue.read(queue).unwrap()).unwrap();
        (store, made.reference())
    }

    fn spec(store: &Store, key: &ObjectRef) -> Value {
        store.get(key).unwrap().to_json().unwrap()["spec"].clone()
    }

    #[test]
    fn a_merge_sets_what_is_named_and_null_takes_away() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 3});
        merge(&mut target, &json!({"a": {"b": 5, "x": {"y": null, "z": 1}}, "d": [9], "e": null}));
        assert_eq!(target, json!({"a": {"b": 5, "c": 2, "x": {"z": 1}}, "d": [9]}));
    }

    #[test]
    fn a_patch_changes_the_generation_once_and_leaves_the_status() {
        let (mut store, key) = store();
        let patch = json!({"spec": {"stopPolicy": "HoldAndDrain"}, "status": {"pendingWorkloads": 7}});
        assert_eq!(store.patch(&key, false, &patch), Ok(Applied::Configured));
        assert_eq!(spec(&store, &key)["stopPolicy"], "HoldAndDrain");
        assert_eq!(store.get(&key).unwrap().metadata().generation, Some(2));
        let read = store.get(&key).unwrap().to_json().unwrap();
        assert_ne!(read["status"]["pendingWorkloads"], 7);
        assert_eq!(store.patch(&key, false, &patch), Ok(Applied::Unchanged));
        assert_eq!(store.patch(&key, true, &patch), Ok(Applied::Configured));
        assert_eq!(store.get(&key).unwrap().to_json().unwrap()["status"]["pendingWorkloads"], 7);
        assert_eq!(store.get(&key).unwrap().metadata().generation, Some(2), "a status does not count");
    }

    #[test]
    fn what_is_wrong_with_a_patch_is_said_and_nothing_changes() {
        let (mut store, key) = store();
        for (patch, words) in [
            (json!({"spec": {"stopPolicy": "Never"}}), "spec.stopPolicy"),
            (json!({"spec": {"stopPolice": "Hold"}}), "unknown field \"spec.stopPolice\""),
            (json!({"spec": {"namespaceSelector": 3}}), "invalid type"),
        ] {
            let error = store.patch(&key, false, &patch).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(store.get(&key).unwrap().metadata().generation, Some(1));
        let other = ObjectRef::new(Kind::ClusterQueue, "", "other");
        let missing = store.patch(&other, false, &json!({"spec": {}}));
        assert_eq!(missing, Err(WriteError::NotFound(other)));
    }

    #[test]
    fn the_last_finalizer_taken_from_a_deleted_object_lets_it_go() {
        let (mut store, key) = store();
        store.patch(&key, false, &json!({"metadata": {"finalizers": ["f"]}})).unwrap();
        store.delete(&key);
        assert!(store.get(&key).is_some());
        store.patch(&key, false, &json!({"metadata": {"finalizers": null}})).unwrap();
        assert!(store.get(&key).is_none());
    }
}
