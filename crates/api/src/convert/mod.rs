//! Between objects of the API and the plain types that decisions are made on.
//!
//! Reading applies the API's defaults to absent fields, so an object that never went through an API server means the same.
//! Writing leaves out what is empty. Reading back what was written gives the same value.

mod config;
mod error;
mod node;
mod pod;
mod scheduling;
mod time;
mod topology;
mod workload;

pub use config::{cluster_queue, cohort, flavor, limit_range, local_queue, topology};
pub use error::{ConvertError, Problem};
pub use node::{node, node_ready, pod_requests};
pub use pod::{pod_spec, quantity, quantity_to_api, resource_list, resource_list_to_api};
pub use scheduling::{label_selector, taint, taint_to_api, toleration, toleration_to_api};
pub use time::{time_to_api, timestamp};
pub use topology::{topology_assignment, topology_assignment_to_api, topology_request, topology_request_to_api};
pub use workload::{condition, condition_to_api, pod_set, status_from_api, status_to_api, workload, workload_spec};

use crate::path::Path;

type Result<T> = std::result::Result<T, ConvertError>;
type StringMap = std::collections::BTreeMap<String, String>;
type BoxMap = std::collections::BTreeMap<Box<str>, Box<str>>;

fn boxed(map: &StringMap) -> BoxMap {
    map.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect()
}

fn boxed_optional(map: Option<&StringMap>) -> BoxMap {
    map.map(boxed).unwrap_or_default()
}

fn unboxed(map: &BoxMap) -> StringMap {
    map.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn boxes(list: &[String]) -> Vec<Box<str>> {
    list.iter().map(|s| s.as_str().into()).collect()
}

fn strings(list: &[Box<str>]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Absent and empty mean the same for names.
fn name(text: Option<&str>) -> Option<Box<str>> {
    text.filter(|t| !t.is_empty()).map(Into::into)
}

/// Finds the value that a word stands for. An empty word stands for the default, as it does to Kubernetes.
fn choose<T: Copy + Default>(path: Path<'_>, word: Option<&str>, words: &'static [(&'static str, T)]) -> Result<T> {
    match word {
        None | Some("") => Ok(T::default()),
        Some(word) => pick(path, word, words),
    }
}

fn pick<T: Copy>(path: Path<'_>, word: &str, words: &'static [(&'static str, T)]) -> Result<T> {
    words.iter().find(|(w, _)| *w == word).map(|(_, value)| *value).ok_or_else(|| {
        let allowed = words.iter().map(|(w, _)| *w).collect();
        ConvertError::new(path, Problem::NotOneOf { value: word.into(), allowed })
    })
}
