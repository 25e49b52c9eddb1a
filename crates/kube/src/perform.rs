//! Performing writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusCause;
use kube::{Client, Error};
use serde_json::Value;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::{Operation, Write, WriteError};

use crate::call::{self, Call, Part};
use crate::connect::root_cause;
use crate::failpoint::Failpoint;
use crate::health::Health;
use crate::{ownership, url};

/// What is known when a write is made.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The object as it was last seen.
    pub(crate) object: Option<Object>,
    /// The checks that ProvisioningRequests answer.
    pub(crate) provisioning: BTreeSet<String>,
}

/// Whoever sends requests for objects.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) health: Health,
    pub(crate) failpoint: Arc<Failpoint>,
}

/// Makes a write. The object as it is then; `None` if it is gone.
pub(crate) async fn perform(
    api: &Caller,
    write: &Write,
    seen: &Seen,
    timeout: Duration,
) -> Result<Option<Object>, WriteError> {
    let reference = write.operation.object();
    match tokio::time::timeout(timeout, attempt(api, write, seen)).await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Unavailable {
            object: reference,
            why: format!("no answer within {} s", timeout.as_secs_f32()),
        }),
    }
}

async fn attempt(api: &Caller, write: &Write, seen: &Seen) -> Result<Option<Object>, WriteError> {
    let reference = write.operation.object();
    match &write.operation {
        Operation::Create(object) => send(api, &reference, &call::create(object, write.manager)?).await.map(Some),
        Operation::Delete { uid, .. } => match request(api, &reference, &call::delete(&reference, uid)).await {
            // An object that went at once is answered with a word of success.
            Ok(value) if value["kind"] == "Status" => Ok(None),
            Ok(value) => {
                let object = object(reference.kind, value).map_err(|why| unreadable(&reference, why))?;
                Ok(object.metadata().deletion_timestamp.is_some().then_some(object))
            }
            // Its uid is another: the object that was meant is gone.
            Err(WriteError::Conflict(_)) => Err(WriteError::NotFound(reference)),
            Err(error) => Err(error),
        },
        Operation::Update(new) => {
            let old = base(seen, new)?;
            match call::patch(old, new, Part::Rest, write.manager)? {
                Some(call) => patched(api, old, &call).await.map(Some),
                None => Ok(Some(old.clone())),
            }
        }
        Operation::UpdateStatus(new) if reference.kind == Kind::Workload => {
            let old = base(seen, new)?;
            workload_status(api, old, new, write.manager, &seen.provisioning).await.map(Some)
        }
        Operation::UpdateStatus(new) => {
            let old = base(seen, new)?;
            match call::patch(old, new, Part::Status, write.manager)? {
                Some(call) => patched(api, old, &call).await.map(Some),
                None => Ok(Some(old.clone())),
            }
        }
    }
}

/// The object that a write starts from: if another version was seen by now, the write would be refused.
fn base<'a>(seen: &'a Seen, new: &Object) -> Result<&'a Object, WriteError> {
    let reference = || new.reference();
    let old = seen.object.as_ref().ok_or_else(|| WriteError::NotFound(reference()))?;
    if old.metadata().resource_version != new.metadata().resource_version {
        return Err(WriteError::Conflict(reference()));
    }
    Ok(old)
}

/// The status of a Workload.
fn status_of(object: &Object) -> Result<Value, WriteError> {
    match object {
        Object::Workload(workload) => serde_json::to_value(&workload.status)
            .map_err(|e| WriteError::Invalid { object: object.reference(), why: e.to_string() }),
        _ => Ok(Value::Object(serde_json::Map::new())),
    }
}

/// Applies the parts of a Workload's status that change, each under the name of its owner.
async fn workload_status(
    api: &Caller,
    old: &Object,
    new: &Object,
    writer: &'static str,
    provisioning: &BTreeSet<String>,
) -> Result<Object, WriteError> {
    let reference = new.reference();
    let (mut before, after) = (status_of(old)?, status_of(new)?);
    let whole = |status: &Value| serde_json::json!({ "status": status });
    let mut now = old.clone();
    if let Some(kept) = ownership::without_gone_checks(&before, &after)
        && let Some(call) = call::difference(&reference, &now, &whole(&before), &whole(&kept), Part::Status, writer)
    {
        now = patched(api, &now, &call).await?;
        before = kept;
    }
    for manager in ownership::changing(&before, &after, writer, provisioning) {
        let part = ownership::part(manager, &after, provisioning);
        let version = now.metadata().resource_version.clone().unwrap_or_default();
        let call = call::apply_status(&reference, new.uid(), &version, &part, manager);
        now = send(api, &reference, &call).await?;
    }
    // What somebody else owns too does not go when one of the owners lets go of it.
    let left = status_of(&now)?;
    if sorted(&left) == sorted(&after) {
        return Ok(now);
    }
    match call::difference(&reference, &now, &whole(&left), &whole(&in_order(&after, &left)), Part::Status, writer) {
        Some(call) => patched(api, &now, &call).await,
        None => Ok(now),
    }
}

const LISTS: [(&str, &str); 6] = [
    ("conditions", "type"),
    ("admissionChecks", "name"),
    ("reclaimablePods", "name"),
    ("resourceRequests", "name"),
    ("unhealthyNodes", "name"),
    ("preemptionGates", "name"),
];

/// A status whose lists are in order of their items' names, as far as order means nothing.
fn sorted(status: &Value) -> Value {
    let mut status = status.clone();
    for (list, key) in LISTS {
        if let Some(items) = status.get_mut(list).and_then(Value::as_array_mut) {
            items.sort_by(|a, b| a[key].as_str().cmp(&b[key].as_str()));
        }
    }
    status
}

/// A status whose lists have the order of another's, as far as order means nothing.
fn in_order(status: &Value, like: &Value) -> Value {
    let mut status = status.clone();
    for (list, key) in LISTS {
        let order: Vec<&str> =
            like[list].as_array().into_iter().flatten().filter_map(|item| item[key].as_str()).collect();
        if let Some(items) = status.get_mut(list).and_then(Value::as_array_mut) {
            let place = |item: &Value| {
                let name = item[key].as_str().unwrap_or_default();
                order.iter().position(|n| *n == name).unwrap_or(order.len())
            };
            items.sort_by_key(place);
        }
    }
    status
}

/// Sends a patch that holds for one version only.
async fn patched(api: &Caller, old: &Object, call: &Call) -> Result<Object, WriteError> {
    let reference = old.reference();
    match send(api, &reference, call).await {
        // A patch that cannot be made to what is there now, or a refusal of what it leads to: only a look can tell.
        Err(WriteError::Invalid { object, why }) => {
            let now = read(api, &reference).await?;
            if now.metadata().resource_version == old.metadata().resource_version {
                Err(WriteError::Invalid { object, why })
            } else {
                Err(WriteError::Conflict(object))
            }
        }
        result => result,
    }
}

pub(crate) async fn read(api: &Caller, reference: &ObjectRef) -> Result<Object, WriteError> {
    send(api, reference, &Call::get(url::object(reference))).await
}

async fn request(api: &Caller, reference: &ObjectRef, call: &Call) -> Result<Value, WriteError> {
    let invalid = |why: String| WriteError::Invalid { object: reference.clone(), why };
    let request = call.request().map_err(invalid)?;
    let changes = call.method != http::Method::GET;
    let number = if changes { api.failpoint.begin().await } else { 0 };
    let result = api.client.request(request).await;
    if changes {
        api.failpoint.end(number);
    }
    let code = match &result {
        Ok(_) if call.method == http::Method::POST => 201,
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(_) => 0,
    };
    api.health.count_request(call.method.as_str(), code);
    result.map_err(|e| error(reference, e))
}

async fn send(api: &Caller, reference: &ObjectRef, call: &Call) -> Result<Object, WriteError> {
    let value = request(api, reference, call).await?;
    object(reference.kind, value).map_err(|why| unreadable(reference, why))
}

/// The write happened, but its result cannot be read.
fn unreadable(reference: &ObjectRef, why: String) -> WriteError {
    WriteError::Unavailable { object: reference.clone(), why }
}

/// Reads what the API server sent.
pub(crate) fn object(kind: Kind, mut value: Value) -> Result<Object, String> {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    kind.read(pruned(kind, value)).map_err(|e| e.to_string())
}

/// An object without what nothing looks at and nothing writes: a pod tells at length what its containers do.
pub(crate) fn pruned(kind: Kind, mut value: Value) -> Value {
    const OF_POD: [&str; 2] = ["volumes", "imagePullSecrets"];
    const OF_CONTAINER: [&str; 9] = [
        "args",
        "command",
        "env",
        "envFrom",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "volumeMounts",
    ];
    if kind == Kind::Pod
        && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.retain(|field, _| !OF_POD.contains(&field.as_str()));
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                container.retain(|field, _| !OF_CONTAINER.contains(&field.as_str()));
            }
        }
    }
    value
}

/// Whether something was refused only because its namespace is being deleted.
pub(crate) fn namespace_ends(status: &Status) -> bool {
    let ends = |cause: &StatusCause| cause.reason == "NamespaceTerminating";
    status.details.iter().flat_map(|details| &details.causes).any(ends)
}

fn error(reference: &ObjectRef, error: Error) -> WriteError {
    let object = reference.clone();
    match error {
        Error::Api(status) => match (status.code, status.reason.as_str()) {
            (409, "AlreadyExists") => WriteError::AlreadyExists(object),
            (409, _) => WriteError::Conflict(object),
            (404 | 410, _) => WriteError::NotFound(object),
            _ if namespace_ends(&status) => WriteError::NamespaceTerminating(object),
            (408 | 429 | 500.., _) => WriteError::Unavailable { object, why: status.message },
            _ => WriteError::Invalid { object, why: status.message },
        },
        error => WriteError::Unavailable { object, why: root_cause(&error) },
    }
}
