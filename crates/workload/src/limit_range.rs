//! Limit ranges: defaults and bounds that a namespace sets for containers and pods.

use std::collections::BTreeMap;

use crate::ResourceList;

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

/// All limit ranges of a namespace taken together, one item a type.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitRangeSummary(BTreeMap<LimitType, LimitRangeItem>);
