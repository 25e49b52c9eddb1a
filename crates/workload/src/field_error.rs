//! Fields of a workload whose resources contradict each other.

use std::fmt;

use crate::{LimitRangeSummary, Requests, Resources, WorkloadSpec};

/// What is wrong with the resources of a container or pod.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FieldProblem {
    /// More is requested than the limits allow.
    AboveLimits,
    /// Requests or limits are above the maximum of a limit range.
    AboveLimitRangeMax,
    /// Requests or limits are below the minimum of a limit range.
    BelowLimitRangeMin,
}

impl FieldProblem {
    /// The sentence, as Kueue words it.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::AboveLimits => "requests must not exceed its limits",
            Self::AboveLimitRangeMax => "requests must not be above the limitRange max",
            Self::BelowLimitRangeMin => "requests must not be below the limitRange min",
        }
    }
}

/// A field with resources that are not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: Invalid value: {resources:?}: {}", .problem.detail())]
pub struct FieldError {
    /// The path of the container or pod spec.
    pub field: Box<str>,
    /// The resources, in order of name.
    pub resources: Vec<Box<str>>,
    /// What is wrong with them.
    pub problem: FieldProblem,
}

impl FieldError {
    pub(crate) fn push_if_any(errors: &mut Vec<Self>, field: &str, resources: &[&str], problem: FieldProblem) {
        if !resources.is_empty() {
            let resources = resources.iter().map(|&r| r.into()).collect();
            errors.push(Self { field: field.into(), resources, problem });
        }
    }
}

/// Several field errors as one text: alone as it is, more in brackets.
#[derive(Clone, Copy, Debug)]
pub struct FieldErrors<'a>(pub &'a [FieldError]);

impl fmt::Display for FieldErrors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0 {
            return only.fmt(f);
        }
        f.write_str("[")?;
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            error.fmt(f)?;
        }
        f.write_str("]")
    }
}

fn pod_path(pod_set: usize) -> String {
    format!("spec.podSets[{pod_set}].template.spec")
}

/// Where requests are above limits: of init containers, containers and pods as a whole, for resources that have both.
pub fn validate_resources(spec: &WorkloadSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |resources: &Resources, path: &str| {
        let (requests, limits) = (Requests::from(&resources.requests), Requests::from(&resources.limits));
        FieldError::push_if_any(&mut errors, path, &requests.greater_keys(&limits), FieldProblem::AboveLimits);
    };
    for (index, pod_set) in spec.pod_sets.iter().enumerate() {
        let path = pod_path(index);
        for (i, container) in pod_set.pod.init_containers.iter().enumerate() {
            check(&container.resources, &format!("{path}.initContainers[{i}]"));
        }
        for (i, container) in pod_set.pod.containers.iter().enumerate() {
            check(&container.resources, &format!("{path}.containers[{i}]"));
        }
        if let Some(resources) = &pod_set.pod.resources {
            check(resources, &format!("{path}.resources"));
        }
    }
    errors
}

/// Where pods break the bounds of the namespace's limit ranges.
pub fn validate_limit_range(spec: &WorkloadSpec, limit_ranges: &LimitRangeSummary) -> Vec<FieldError> {
    let pods = spec.pod_sets.iter().enumerate();
    pods.flat_map(|(index, pod_set)| limit_ranges.validate(&pod_set.pod, &pod_path(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Container, PodSet, PodSpec, ResourceList};

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|&(r, q)| (r.into(), q.parse().unwrap())).collect()
    }

    #[test]
    fn every_place_where_requests_exceed_limits_is_named() {
        let bad = || Resources {
            requests: list(&[("memory", "2"), ("cpu", "2"), ("pods", "1")]),
            limits: list(&[("cpu", "1"), ("memory", "1"), ("other", "0")]),
        };
        let container = || Container { resources: bad(), ..Container::default() };
        let pod = PodSpec {
            init_containers: vec![Container::default(), container()],
            containers: vec![container()],
            resources: Some(bad()),
            ..PodSpec::default()
        };
        let pod_sets = vec![PodSet::default(), PodSet { pod, ..PodSet::default() }];
        let errors = validate_resources(&WorkloadSpec { pod_sets, ..WorkloadSpec::default() });
        let fields: Vec<&str> = errors.iter().map(|e| &*e.field).collect();
        let base = "spec.podSets[1].template.spec";
        let want = ["initContainers[1]", "containers[0]", "resources"].map(|part| format!("{base}.{part}"));
        assert_eq!(fields, want);
        let text =
            format!("{base}.resources: Invalid value: [\"cpu\", \"memory\"]: requests must not exceed its limits");
        assert_eq!(errors[2].to_string(), text);
        assert_eq!(FieldErrors(&errors[2..]).to_string(), text);
        let both = FieldErrors(&errors[1..]).to_string();
        assert!(both.starts_with('[') && both.ends_with(&format!(", {text}]")), "{both}");
    }
}
