//! Writes as requests to an API server.

use http::{Method, Request};
use serde_json::{Value, json};
use slicegate_api::{Object, ObjectRef};
use slicegate_controller::WriteError;

use crate::url;

pub(crate) const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A request, before it is sent.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Value,
    pub(crate) accept: &'static str,
}

impl Call {
    /// Asks for what is at a path.
    pub(crate) const fn get(path: String) -> Self {
        Self { method: Method::GET, path, content_type: JSON, body: Value::Null, accept: JSON }
    }

    /// Asks for the metadata of an object alone.
    pub(crate) const fn get_metadata(path: String) -> Self {
        Self { method: Method::GET, path, content_type: JSON, body: Value::Null, accept: METADATA }
    }

    pub(crate) fn request(&self) -> Result<Request<Vec<u8>>, String> {
        let body =
            if self.body.is_null() { Vec::new() } else { serde_json::to_vec(&self.body).map_err(|e| e.to_string())? };
        Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(http::header::CONTENT_TYPE, self.content_type)
            .header(http::header::ACCEPT, self.accept)
            .body(body)
            .map_err(|e| e.to_string())
    }
}

/// Whether a part of an object is its status, or all but that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Status,
    Rest,
}

fn refused(object: &ObjectRef, error: &serde_json::Error) -> WriteError {
    WriteError::Invalid { object: object.clone(), why: error.to_string() }
}

/// Makes an object.
pub(crate) fn create(object: &Object, manager: &str) -> Result<Call, WriteError> {
    let reference = object.reference();
    let mut body = object.to_json().map_err(|e| refused(&reference, &e))?;
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(field);
        }
    }
    let collection = url::collection(reference.kind, &reference.namespace);
    Ok(Call {
        method: Method::POST,
        path: format!("{collection}?fieldManager={}", url::encoded(manager)),
        content_type: JSON,
        body,
        accept: JSON,
    })
}

/// Deletes an object, if it still has this uid; what it owns goes in the background.
pub(crate) fn delete(object: &ObjectRef, uid: &str) -> Call {
    let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    if !uid.is_empty() {
        body["preconditions"] = json!({"uid": uid});
    }
    Call { method: Method::DELETE, path: url::object(object), content_type: JSON, body, accept: JSON }
}

/// What changes between two states of an object, step by step, on the condition that the API server still has the first: lists
/// keep their other items and items their other fields, those that are not known here included. `None` if nothing changes.
pub(crate) fn patch(old: &Object, new: &Object, part: Part, manager: &str) -> Result<Option<Call>, WriteError> {
    let reference = new.reference();
    let mut before = old.to_json().map_err(|e| refused(&reference, &e))?;
    let mut after = new.to_json().map_err(|e| refused(&reference, &e))?;
    match part {
        Part::Status => {
            keep(&mut before, &["status"]);
            keep(&mut after, &["status"]);
        }
        Part::Rest => {
            for value in [&mut before, &mut after] {
                if let Some(fields) = value.as_object_mut() {
                    fields.remove("status");
                }
                if let Some(metadata) = value.get_mut("metadata") {
                    keep(metadata, &["labels", "annotations", "finalizers", "ownerReferences"]);
                }
            }
        }
    }
    Ok(difference(&reference, old, &before, &after, part, manager))
}

/// The same between two values.
pub(crate) fn difference(
    reference: &ObjectRef,
    old: &Object,
    before: &Value,
    after: &Value,
    part: Part,
    manager: &str,
) -> Option<Call> {
    let changes = json_patch::diff(before, after);
    if changes.is_empty() {
        return None;
    }
    let version = old.metadata().resource_version.as_deref().unwrap_or_default();
    // Not a test: a version that does not hold any more is a conflict then, and not an invalid request.
    let mut body = vec![json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version})];
    if let Ok(Value::Array(changes)) = serde_json::to_value(changes) {
        body.extend(changes);
    }
    let subresource = if part == Part::Status { "/status" } else { "" };
    Some(Call {
        method: Method::PATCH,
        path: format!("{}{subresource}?fieldManager={}", url::object(reference), url::encoded(manager)),
        content_type: JSON_PATCH,
        body: body.into(),
        accept: JSON,
    })
}

/// Applies a part of a Workload's status under a manager's name, on the condition that the API server still has this version.
pub(crate) fn apply_status(reference: &ObjectRef, uid: &str, version: &str, status: &Value, manager: &str) -> Call {
    let mut metadata = json!({"name": reference.name, "uid": uid, "resourceVersion": version});
    if !reference.namespace.is_empty() {
        metadata["namespace"] = reference.namespace.as_ref().into();
    }
    Call {
        method: Method::PATCH,
        path: format!("{}/status?fieldManager={}&force=true", url::object(reference), url::encoded(manager)),
        content_type: APPLY_PATCH,
        body: json!({
            "apiVersion": reference.kind.api_version(),
            "kind": reference.kind.as_str(),
            "metadata": metadata,
            "status": status,
        }),
        accept: JSON,
    }
}

/// Leaves only some fields of an object.
fn keep(value: &mut Value, names: &[&str]) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| names.contains(&name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use slicegate_api::Kind;

    use super::*;

    fn job(value: Value) -> Object {
        Kind::Job.read(value).unwrap()
    }

    fn started(old: &Value) -> (Object, Object) {
        let mut new = old.clone();
        new["spec"]["suspend"] = false.into();
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "a"});
        new["metadata"]["annotations"] = json!({"a/b": "c"});
        new["metadata"]["resourceVersion"] = "8".into();
        (job(old.clone()), job(new))
    }

    #[test]
    fn an_update_sends_what_changes_and_nothing_else() {
        let old = json!({"metadata": {"name": "j", "namespace": "ns", "resourceVersion": "7"}, "spec": {
            "suspend": true, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            "status": {"active": 1}});
        let (old, new) = started(&old);
        let call = patch(&old, &new, Part::Rest, "kueue-job-controller").unwrap().unwrap();
        assert_eq!(call.path, "/apis/batch/v1/namespaces/ns/jobs/j?fieldManager=kueue-job-controller");
        assert_eq!(call.content_type, "application/json-patch+json");
        let ops: Vec<String> =
            call.body.as_array().unwrap().iter().map(|o| format!("{} {}", o["op"], o["path"])).collect();
        assert_eq!(ops[0], "\"replace\" \"/metadata/resourceVersion\"");
        assert_eq!(call.body[0]["value"], "7", "the version that the change is made to");
        assert!(ops.contains(&"\"replace\" \"/spec/suspend\"".to_owned()), "{ops:?}");
        assert!(ops.contains(&"\"add\" \"/metadata/annotations\"".to_owned()), "{ops:?}");
        assert!(ops.contains(&"\"add\" \"/spec/template/spec/nodeSelector\"".to_owned()), "{ops:?}");
        assert_eq!(ops.len(), 4, "{ops:?}");
        assert_eq!(patch(&old, &old, Part::Rest, "m").unwrap(), None);
        assert_eq!(patch(&old, &new, Part::Status, "m").unwrap(), None);
    }

    #[test]
    fn a_status_that_was_not_there_is_added() {
        let queue = |status: Value| {
            Kind::ClusterQueue
                .read(json!({"metadata": {"name": "q", "resourceVersion": "1"}, "status": status}))
                .unwrap()
        };
        let call =
            patch(&queue(json!({})), &queue(json!({"pendingWorkloads": 2})), Part::Status, "m").unwrap().unwrap();
        assert_eq!(call.path, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q/status?fieldManager=m");
        assert_eq!(call.body[1]["path"], "/status");
        assert_eq!(call.body[1]["op"], "add");
    }

    #[test]
    fn a_new_object_leaves_to_the_server_what_is_its_own() {
        let object = job(json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "7"}}));
        let call = create(&object, "kueue-admission").unwrap();
        assert_eq!(call.path, "/apis/batch/v1/namespaces/ns/jobs?fieldManager=kueue-admission");
        assert_eq!(call.body["metadata"], json!({"name": "j", "namespace": "ns"}));
        assert_eq!(call.body["apiVersion"], "batch/v1");
    }

    #[test]
    fn a_deletion_is_for_one_object_and_not_for_its_successor() {
        let reference = ObjectRef::new(Kind::Workload, "ns", "w");
        assert_eq!(delete(&reference, "u").body["preconditions"]["uid"], "u");
        assert_eq!(delete(&reference, "").body.get("preconditions"), None);
    }
}
