//! Limit ranges: defaults and bounds that a namespace sets for containers and pods.

use std::collections::BTreeMap;

use crate::{FieldError, FieldProblem, PodSpec, Requests, ResourceList, merge_resources};

/// What a limit range item is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LimitType {
    /// Each container.
    Container,
    /// A pod as a whole.
    Pod,
    /// Something else, such as volume claims: kept, never read.
    Other(Box<str>),
}

/// One item of a limit range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitRangeItem {
    /// The most that may be asked for.
    pub max: ResourceList,
    /// The least that must be asked for.
    pub min: ResourceList,
    /// Limits for those who state none.
    pub default: ResourceList,
    /// Requests for those who state none.
    pub default_request: ResourceList,
    /// The largest ratio of limit to request: kept, never checked.
    pub max_limit_request_ratio: ResourceList,
}

/// A LimitRange of a namespace: its items in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitRange {
    /// The items.
    pub limits: Vec<(LimitType, LimitRangeItem)>,
}

/// All limit ranges of a namespace taken together: of a type, the lowest maximum, the highest minimum and the first default of
/// each resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitRangeSummary(BTreeMap<LimitType, LimitRangeItem>);

impl LimitRangeSummary {
    /// Adds one item.
    pub fn add(&mut self, kind: LimitType, item: &LimitRangeItem) {
        let sum = self.0.entry(kind).or_default();
        merge_resources(&mut sum.max, &item.max, Ord::min);
        merge_resources(&mut sum.min, &item.min, Ord::max);
        merge_resources(&mut sum.default, &item.default, |first, _| first);
        merge_resources(&mut sum.default_request, &item.default_request, |first, _| first);
        merge_resources(&mut sum.max_limit_request_ratio, &item.max_limit_request_ratio, Ord::min);
    }

    /// The item of a type.
    pub fn get(&self, kind: &LimitType) -> Option<&LimitRangeItem> {
        self.0.get(kind)
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = (&LimitType, &LimitRangeItem)> {
        self.0.iter()
    }

    /// Where a pod breaks the bounds, `path` being that of its spec. Only resources that both the pod and the bound name are
    /// compared: a minimum for what a container does not mention is not enforced, an explicit zero is.
    pub fn validate(&self, pod: &PodSpec, path: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(bounds) = self.get(&LimitType::Container) {
            let lists = [("initContainers", &pod.init_containers), ("containers", &pod.containers)];
            for (list, containers) in lists {
                for (i, container) in containers.iter().enumerate() {
                    let (mut least, mut most) =
                        (container.resources.requests.clone(), container.resources.requests.clone());
                    merge_resources(&mut least, &container.resources.limits, Ord::min);
                    merge_resources(&mut most, &container.resources.limits, Ord::max);
                    check(&least, &most, bounds, &format!("{path}.{list}[{i}]"), &mut errors);
                }
            }
        }
        if let Some(bounds) = self.get(&LimitType::Pod) {
            let total = pod.requests();
            check(&total, &total, bounds, path, &mut errors);
        }
        errors
    }
}

fn check(least: &ResourceList, most: &ResourceList, bounds: &LimitRangeItem, path: &str, errors: &mut Vec<FieldError>) {
    let requests = |list| Requests::from(list);
    let (min, max) = (requests(&bounds.min), requests(&bounds.max));
    FieldError::push_if_any(errors, path, &requests(most).greater_keys(&max), FieldProblem::AboveLimitRangeMax);
    FieldError::push_if_any(errors, path, &min.greater_keys(&requests(least)), FieldProblem::BelowLimitRangeMin);
}

impl<'a> FromIterator<&'a LimitRange> for LimitRangeSummary {
    fn from_iter<I: IntoIterator<Item = &'a LimitRange>>(ranges: I) -> Self {
        let mut summary = Self::default();
        for (kind, item) in ranges.into_iter().flat_map(|range| &range.limits) {
            summary.add(kind.clone(), item);
        }
        summary
    }
}

impl FromIterator<(LimitType, LimitRangeItem)> for LimitRangeSummary {
    fn from_iter<I: IntoIterator<Item = (LimitType, LimitRangeItem)>>(items: I) -> Self {
        let mut summary = Self::default();
        for (kind, item) in items {
            summary.add(kind, &item);
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Container, Resources};

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|&(r, q)| (r.into(), q.parse().unwrap())).collect()
    }

    #[test]
    fn the_tightest_bounds_and_the_first_defaults_win() {
        let item = |cpu: &str| LimitRangeItem {
            max: list(&[("cpu", cpu)]),
            min: list(&[("cpu", cpu)]),
            default: list(&[("cpu", cpu)]),
            default_request: list(&[("cpu", cpu)]),
            max_limit_request_ratio: list(&[("cpu", cpu)]),
        };
        let range = LimitRange { limits: ["2", "1", "3"].map(|cpu| (LimitType::Container, item(cpu))).into() };
        let summary: LimitRangeSummary = [&range].into_iter().collect();
        let got = summary.get(&LimitType::Container).unwrap();
        assert_eq!(got.max, list(&[("cpu", "1")]));
        assert_eq!(got.min, list(&[("cpu", "3")]));
        assert_eq!(got.default, list(&[("cpu", "2")]));
        assert_eq!(got.default_request, list(&[("cpu", "2")]));
        assert_eq!(got.max_limit_request_ratio, list(&[("cpu", "1")]));
        assert_eq!(summary.get(&LimitType::Pod), None);
    }

    #[test]
    fn limits_are_held_against_the_maximum_and_requests_against_the_minimum() {
        let bounds =
            LimitRangeItem { max: list(&[("cpu", "2")]), min: list(&[("cpu", "1")]), ..LimitRangeItem::default() };
        let summary: LimitRangeSummary = [(LimitType::Container, bounds)].into_iter().collect();
        let pod = |requests, limits| PodSpec {
            containers: vec![Container { resources: Resources { requests, limits }, ..Container::default() }],
            ..PodSpec::default()
        };
        assert!(summary.validate(&pod(list(&[]), list(&[])), "p").is_empty(), "nothing named, nothing checked");
        let errors = summary.validate(&pod(list(&[("cpu", "500m")]), list(&[("cpu", "3")])), "p");
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                r#"p.containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max"#,
                r#"p.containers[0]: Invalid value: ["cpu"]: requests must not be below the limitRange min"#,
            ]
        );
    }
}
