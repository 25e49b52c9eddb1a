//! Topology requests of pod sets, from the annotations of their pod templates.

use slicegate_api::PodTemplateSpec;
use slicegate_api::kueue::{PodSetTopologyRequest, SliceTopologyConstraint};

use crate::keys;

/// How the pods of an integration are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PodIndex<'a> {
    /// The label with a pod's index.
    pub label: Option<&'a str>,
    /// The label with the index of its sub-group, and how many of those there are.
    pub sub_group: Option<(&'a str, i32)>,
}

/// An annotation that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopologyRequestError {
    /// It is not a number, truth value or list.
    #[error("annotation {annotation} is {value:?}, which is not {wanted}")]
    Value {
        /// The annotation.
        annotation: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// There are too many or too few constraints.
    #[error("topology constraints must contain between 1 and 3 entries: got {0}")]
    Constraints(usize),
}

/// The request of a pod template; `None` if it asks for nothing and its pods have no index.
pub fn topology_request(
    template: &PodTemplateSpec,
    index: PodIndex<'_>,
    multi_layer: bool,
) -> Result<Option<PodSetTopologyRequest>, TopologyRequestError> {
    let annotations = template.metadata.as_ref().and_then(|m| m.annotations.as_ref());
    let get = |key: &str| annotations.and_then(|a| a.get(key));
    let mut request = PodSetTopologyRequest::default();
    let mut asked = false;
    if let Some(level) = get(keys::REQUIRED_TOPOLOGY) {
        request.required = Some(level.clone());
        asked = true;
    } else if let Some(level) = get(keys::PREFERRED_TOPOLOGY) {
        request.preferred = Some(level.clone());
        asked = true;
    } else if let Some(value) = get(keys::UNCONSTRAINED_TOPOLOGY) {
        request.unconstrained = Some(parse_bool(value).ok_or_else(|| TopologyRequestError::Value {
            annotation: keys::UNCONSTRAINED_TOPOLOGY,
            value: value.clone(),
            wanted: "true or false",
        })?);
        asked = true;
    }
    if let Some(value) = get(keys::SLICE_CONSTRAINTS).filter(|_| multi_layer) {
        let constraints: Vec<SliceTopologyConstraint> =
            serde_json::from_str(value).map_err(|_| TopologyRequestError::Value {
                annotation: keys::SLICE_CONSTRAINTS,
                value: value.clone(),
                wanted: "a JSON list of {\"topology\": label, \"size\": number}",
            })?;
        if constraints.is_empty() || constraints.len() > 3 {
            return Err(TopologyRequestError::Constraints(constraints.len()));
        }
        request.pod_set_slice_required_topology_constraints = constraints;
        asked = true;
    } else if let (Some(level), Some(size)) = (get(keys::SLICE_REQUIRED_TOPOLOGY), get(keys::SLICE_SIZE)) {
        request.pod_set_slice_size = Some(size.parse().map_err(|_| TopologyRequestError::Value {
            annotation: keys::SLICE_SIZE,
            value: size.clone(),
            wanted: "a number",
        })?);
        request.pod_set_slice_required_topology = Some(level.clone());
        asked = true;
    }
    if let Some(label) = index.label {
        request.pod_index_label = Some(label.to_owned());
        asked = true;
    }
    if let Some((label, count)) = index.sub_group {
        request.sub_group_index_label = Some(label.to_owned());
        request.sub_group_count = Some(count);
    }
    if request.required.is_some() || request.preferred.is_some() {
        request.pod_set_group_name = get(keys::POD_SET_GROUP).cloned();
    }
    Ok(asked.then_some(request))
}

/// The spellings of a truth value that Go takes.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
