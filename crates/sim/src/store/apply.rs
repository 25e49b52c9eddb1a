//! `kubectl apply`: the three-way merge of a user's document into what is there.

use serde_json::{Map, Value};

use slicegate_api::{Object, ObjectRef};
use slicegate_controller::WriteError;

use super::Store;

/// What applying a document did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Applied {
    /// The object is new.
    Created,
    /// It was there and is now as the document says.
    Configured,
    /// It was there and already as the document says.
    Unchanged,
}

impl Store {
    /// Applies a document that was completed by `defaulted` for the case that the object is new.
    ///
    /// What an earlier document set and this one does not goes; what others set (status, injected labels) stays. Lists that
    /// differ from the earlier document's are replaced as wholes.
    ///
    /// # Errors
    /// If the result is no object of the kind, or is refused.
    pub(crate) fn apply(&mut self, document: &Object, defaulted: Object) -> Result<Applied, WriteError> {
        let key = document.reference();
        let next = document.to_json().map_err(|error| invalid(&key, &error))?;
        let Some(live) = self.objects.get(&key).cloned() else {
            let mut defaulted = defaulted;
            self.fill_in(&mut defaulted)?;
            self.admit_new(&defaulted)?;
            self.create(defaulted)?;
            self.applied.insert(key, next.to_string().into());
            return Ok(Applied::Created);
        };
        let last = self.applied.get(&key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        if last == next {
            return Ok(Applied::Unchanged);
        }
        let mut merged = live.to_json().map_err(|error| invalid(&key, &error))?;
        merge(&mut merged, &last, &next);
        let mut object = key.kind.read(merged).map_err(|error| invalid(&key, &error))?;
        self.admit_update(&live, &mut object)?;
        let before = self.version;
        self.replace(key.clone(), &live, object);
        self.applied.insert(key, next.to_string().into());
        Ok(if self.version == before { Applied::Unchanged } else { Applied::Configured })
    }
}

fn invalid(object: &ObjectRef, error: &serde_json::Error) -> WriteError {
    WriteError::Invalid { object: object.clone(), why: error.to_string() }
}

fn merge(live: &mut Value, last: &Value, next: &Value) {
    let Value::Object(next) = next else {
        *live = next.clone();
        return;
    };
    let Value::Object(live) = live else {
        *live = Value::Object(next.clone());
        return;
    };
    let none = Map::new();
    let last = if let Value::Object(last) = last { last } else { &none };
    live.retain(|key, _| next.contains_key(key) || !last.contains_key(key));
    for (key, value) in next {
        if key == "status" {
            continue;
        }
        match live.get_mut(key) {
            // What others put into a list stays while the user's own part is as it was.
            Some(_) if value.is_array() && last.get(key) == Some(value) => {}
            Some(old) => merge(old, last.get(key).unwrap_or(&Value::Null), value),
            None => {
                live.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_removes_what_the_last_document_set_and_keeps_what_others_set() {
        let mut live = json!({"spec": {"a": 1, "b": 2, "injected": 3, "list": [1, 2]}, "status": {"x": 1}});
        let last = json!({"spec": {"a": 1, "b": 2, "list": [1, 2]}});
        let next = json!({"spec": {"a": 5, "list": [9], "new": {"deep": true}}});
        merge(&mut live, &last, &next);
        assert_eq!(
            live,
            json!({"spec": {"a": 5, "injected": 3, "list": [9], "new": {"deep": true}}, "status": {"x": 1}})
        );
    }

    #[test]
    fn applying_again_updates_and_keeps_system_fields() {
        let document = |value: i64| {
            slicegate_api::Kind::ConfigMap
                .read(json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"v": value.to_string()}}))
                .unwrap()
        };
        let mut store = Store::new(true);
        assert_eq!(store.apply(&document(1), document(1)), Ok(Applied::Created));
        let uid = store.iter().next().unwrap().1.uid().to_owned();
        assert_eq!(store.apply(&document(1), document(1)), Ok(Applied::Unchanged));
        assert_eq!(store.apply(&document(2), document(2)), Ok(Applied::Configured));
        let (_, object) = store.iter().next().unwrap();
        assert_eq!(object.uid(), uid);
        assert_eq!(object.to_json().unwrap()["data"]["v"], "2");
    }
}
