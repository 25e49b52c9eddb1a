//! Kubernetes objects as JSON to the types of `slicegate-workload`, by way of `slicegate-api`.
//!
//! Kueue's objects are of `kueue.x-k8s.io/v1beta2`. They need not have gone through defaulting: an absent field has the
//! default of its CRD. Unknown fields are ignored.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slicegate_api::{RuntimeClass, convert, kueue};
use slicegate_placement::Node;
use slicegate_workload::{
    Admission, ClusterQueueSpec, CohortSpec, Conditions, FlavorSpec, Key, LimitRange, LimitRangeItem, LocalQueueSpec,
    PodSpec, ReclaimablePods, Requests, ResourceList, Timestamp, TopologyAssignment, TopologySpec, Workload,
    WorkloadStatus,
};

/// An object that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ObjectError(String);

type Result<T> = std::result::Result<T, ObjectError>;

fn failed(problem: impl Into<String>) -> ObjectError {
    ObjectError(problem.into())
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T> {
    let completed = completed(value);
    T::deserialize(&completed).map_err(|e| failed(format!("{}: {e}", value["kind"].as_str().unwrap_or("object"))))
}

/// What an API server demands and cases leave out, put in; nothing is the same as left out.
fn completed(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), completed_field(k, v))).collect()
        }
        Value::Array(items) => items.iter().map(completed).collect(),
        other => other.clone(),
    }
}

fn completed_field(name: &str, value: &Value) -> Value {
    if name == "topologyAssignment" {
        let mut value = completed(value);
        if let Some(fields) = value.as_object_mut() {
            fields.entry("levels").or_insert_with(|| json!([]));
        }
        return value;
    }
    let (key, missing) = match name {
        "conditions" => ("lastTransitionTime", json!("0001-01-01T00:00:00Z")),
        "resourceGroups" => ("coveredResources", json!([])),
        "flavors" if value.is_array() => ("resources", json!([])),
        "topologyAssignment" => ("levels", json!([])),
        _ => return completed(value),
    };
    let mut value = completed(value);
    let objects = if let Value::Array(items) = &mut value {
        items.iter_mut()
    } else {
        std::slice::from_mut(&mut value).iter_mut()
    };
    for fields in objects.filter_map(Value::as_object_mut) {
        fields.entry(key).or_insert_with(|| missing.clone());
    }
    value
}

/// `metadata.name`.
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.namespace` and `metadata.name`.
pub fn key_of(object: &Value) -> Key {
    Key::new(object["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(object))
}

/// The objects of a kind, in order.
pub fn of_kind<'a>(objects: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> + 'a {
    objects.as_array().into_iter().flatten().filter(move |o| o["kind"] == kind)
}

/// A text as a point in time.
///
/// # Errors
/// If it is not an RFC 3339 time.
pub fn timestamp(value: &Value) -> Result<Timestamp> {
    Ok(convert::timestamp(&read(value)?))
}

/// A ResourceList.
///
/// # Errors
/// If it is not an object of quantities.
pub fn resource_list(value: &Value) -> Result<ResourceList> {
    if value.is_null() {
        return Ok(ResourceList::new());
    }
    convert::resource_list(&read(value)?).map_err(|e| failed(e.to_string()))
}

/// A Workload.
///
/// # Errors
/// If a field cannot be read.
pub fn workload(object: &Value) -> Result<Workload> {
    convert::workload(&read(object)?).map_err(|e| failed(e.to_string()))
}

/// The spec of a pod.
///
/// # Errors
/// If a field cannot be read.
pub fn pod_spec(value: &Value) -> Result<PodSpec> {
    convert::pod_spec(&read(value)?).map_err(|e| failed(e.to_string()))
}

/// A part of a Workload's status.
fn status(field: &str, value: &Value) -> Result<WorkloadStatus> {
    let status: kueue::WorkloadStatus = read(&json!({ field: value }))?;
    convert::status_from_api(&status).map_err(|e| failed(e.to_string()))
}

/// A list of conditions.
///
/// # Errors
/// If a field cannot be read.
pub fn conditions(value: &Value) -> Result<Conditions> {
    Ok(status("conditions", value)?.conditions)
}

/// `status.reclaimablePods`.
///
/// # Errors
/// If a field cannot be read.
pub fn reclaimable_pods(value: &Value) -> Result<Vec<ReclaimablePods>> {
    Ok(status("reclaimablePods", value)?.reclaimable_pods)
}

/// `status.admission`.
///
/// # Errors
/// If a field cannot be read.
pub fn admission(value: &Value) -> Result<Admission> {
    Ok(status("admission", value)?.admission.unwrap_or_default())
}

/// A topology assignment, decoded.
///
/// # Errors
/// If a field cannot be read or a list is too short.
pub fn topology_assignment(value: &Value) -> Result<TopologyAssignment> {
    convert::topology_assignment(&read(value)?).map_err(|e| failed(e.to_string()))
}

/// A ClusterQueue.
///
/// # Errors
/// If a field cannot be read.
pub fn cluster_queue(object: &Value) -> Result<ClusterQueueSpec> {
    convert::cluster_queue(&read(object)?).map_err(|e| failed(e.to_string()))
}

/// A Cohort.
///
/// # Errors
/// If a field cannot be read.
pub fn cohort(object: &Value) -> Result<CohortSpec> {
    convert::cohort(&read(object)?).map_err(|e| failed(e.to_string()))
}

/// A LocalQueue.
///
/// # Errors
/// If a field cannot be read.
pub fn local_queue(object: &Value) -> Result<LocalQueueSpec> {
    convert::local_queue(&read(object)?).map_err(|e| failed(e.to_string()))
}

/// A ResourceFlavor.
///
/// # Errors
/// If a field cannot be read.
pub fn flavor(object: &Value) -> Result<FlavorSpec> {
    convert::flavor(&read(object)?).map_err(|e| failed(e.to_string()))
}

/// A Topology.
///
/// # Errors
/// If a field cannot be read.
pub fn topology(object: &Value) -> Result<TopologySpec> {
    Ok(convert::topology(&read(object)?))
}

/// A Node.
///
/// # Errors
/// If its taints, its allocatable resources or its conditions cannot be read.
pub fn node(object: &Value) -> Result<Node> {
    let taints = json!({ "spec": { "nodeTaints": object["spec"]["taints"] } });
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    Ok(Node {
        name: name_of(object).into(),
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into())).collect(),
        taints: flavor(&taints)?.node_taints,
        ready: conditions(&object["status"]["conditions"])?.is_true(&"Ready".into()),
        unschedulable: object["spec"]["unschedulable"].as_bool().unwrap_or(false),
        allocatable: Requests::from(&resource_list(&object["status"]["allocatable"])?),
    })
}

/// A LimitRange.
///
/// # Errors
/// If a field cannot be read.
pub fn limit_range(object: &Value) -> Result<LimitRange> {
    convert::limit_range(&read(object)?).map_err(|e| failed(e.to_string()))
}

/// An item of a LimitRange.
///
/// # Errors
/// If a field cannot be read.
pub fn limit_range_item(value: &Value) -> Result<LimitRangeItem> {
    let range = limit_range(&json!({"kind": "LimitRange", "spec": {"limits": [value]}}))?;
    Ok(range.limits.into_iter().next().map(|(_, item)| item).unwrap_or_default())
}

/// The overheads by RuntimeClass name, of the RuntimeClass objects that have one.
///
/// # Errors
/// If a field cannot be read.
pub fn runtime_class_overheads(objects: &Value) -> Result<BTreeMap<Box<str>, ResourceList>> {
    of_kind(objects, "RuntimeClass")
        .map(|object| {
            let class: RuntimeClass = read(object)?;
            let fixed = class.overhead.and_then(|o| o.pod_fixed).unwrap_or_default();
            Ok((name_of(object).into(), convert::resource_list(&fixed).map_err(|e| failed(e.to_string()))?))
        })
        .collect()
}
