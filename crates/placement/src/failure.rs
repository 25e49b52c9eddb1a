//! Why there is no place, as data and as text.

use std::fmt;

use slicegate_workload::{Taint, TaintEffect};

/// What is counted: pods, or slices of several pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Single pods.
    Pod,
    /// Slices.
    Slice,
}

impl Unit {
    /// The word in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Slice => "slice",
        }
    }
}

/// How many leaves were looked at, and why some of them could not take a single pod. A leaf is counted under the first reason
/// that holds: taints, node selector, node affinity, the domain that a replacement must stay in, resources.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exclusions {
    /// Leaves of the topology.
    pub nodes: usize,
    /// Leaves with a taint that is not tolerated, by taint.
    pub taints: Vec<(Taint, usize)>,
    /// Leaves that lack labels of the node selector.
    pub node_selector: usize,
    /// Leaves that the required node affinity rules out.
    pub affinity: usize,
    /// Leaves outside of the domain that a replacement must stay in.
    pub topology_domain: usize,
    /// Leaves without room, by the resource that is short; the alphabetically first of several.
    pub resources: Vec<(Box<str>, usize)>,
}

impl fmt::Display for Exclusions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        let plain = [
            ("affinity", self.affinity),
            ("nodeSelector", self.node_selector),
            ("topologyDomain", self.topology_domain),
        ];
        parts.extend(plain.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name}: {n}")));
        parts.extend(self.resources.iter().map(|(resource, n)| format!("resource {resource:?}: {n}")));
        parts.extend(self.taints.iter().map(|(taint, n)| format!("taint \"{}\": {n}", TaintText(taint))));
        if parts.is_empty() {
            return Ok(());
        }
        parts.sort();
        write!(f, ". Total nodes: {}; excluded: {}", self.nodes, parts.join(", "))
    }
}

/// A taint as `key=value:Effect`.
struct TaintText<'a>(&'a Taint);

impl fmt::Display for TaintText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taint { key, value, effect } = self.0;
        let effect = match effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        };
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

/// How many slices of one layer fit in the best domain of the level searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerFit {
    /// The level whose domains must hold whole slices.
    pub level: Box<str>,
    /// Slices that fit.
    pub fit: i64,
    /// Slices that are needed.
    pub needed: i32,
}

struct LayerFits<'a>(&'a [LayerFit]);

impl fmt::Display for LayerFits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|l| write!(f, "; {}/{} slice(s) fit on level {}", l.fit, l.needed, l.level))
    }
}

struct HowMany(i64, i32, Unit);

impl fmt::Display for HowMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fit, needed, unit) = self;
        if *fit == 0 {
            write!(f, "doesn't allow to fit any of {needed} {}(s)", unit.as_str())
        } else {
            write!(f, "allows to fit only {fit} out of {needed} {}(s)", unit.as_str())
        }
    }
}

/// Why pods have no place. As text it is what users see as the reason of a pending workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The flavor has no topology, or nothing is known of it.
    #[error("there is no topology for the flavor")]
    NoTopology,
    /// Slices without a size.
    #[error("slice topology requested, but slice size not provided")]
    NoSliceSize,
    /// A request without any level.
    #[error("topology level not specified")]
    NothingRequested,
    /// The level asked for does not exist.
    #[error("no requested topology level: {0}")]
    NoLevel(Box<str>),
    /// The level asked for slices does not exist.
    #[error("no requested topology level for slices: {0}")]
    NoSliceLevel(Box<str>),
    /// Slices that are to lie in larger domains than the pod set itself.
    #[error("podset slice topology {slice} is above the podset topology {level}")]
    SliceAboveLevel {
        /// The level of slices.
        slice: Box<str>,
        /// The level of the pod set.
        level: Box<str>,
    },
    /// The level asked for slices within slices does not exist.
    #[error("no requested topology level for additional slice layer: {0}")]
    NoLayerLevel(Box<str>),
    /// Slices within slices that are not to lie in smaller domains.
    #[error("additional slice layer topology {layer} must be at a lower level than {above}")]
    LayerNotLower {
        /// The level of the inner slices.
        layer: Box<str>,
        /// The level of the slices around them.
        above: Box<str>,
    },
    /// Slices that cannot be cut into whole inner slices.
    #[error("additional slice layer size {size} must evenly divide parent layer size {above}")]
    LayerDoesNotDivide {
        /// Pods of an inner slice.
        size: i32,
        /// Pods of the slice around it.
        above: i32,
    },
    /// Updates by admission checks that contradict the pod or each other.
    #[error(
        "invalid podSetUpdate for PodSet {pod_set}, error: invalid admission check PodSetUpdate: conflict for {field}: \
         conflict for key={key}, value1={}, value2={}", .values[0], .values[1]
    )]
    ConflictingUpdate {
        /// The pod set.
        pod_set: Box<str>,
        /// What is updated.
        field: &'static str,
        /// The key with two values.
        key: Box<str>,
        /// The values.
        values: [Box<str>; 2],
    },
    /// There are no nodes.
    #[error("no topology domains at level: {0}")]
    NoDomains(Box<str>),
    /// The pods do not fit.
    #[error("topology {topology:?} {}{excluded}", HowMany(*fit, *needed, *unit))]
    NoFit {
        /// The topology.
        topology: Box<str>,
        /// How many would fit.
        fit: i64,
        /// How many are needed.
        needed: i32,
        /// Of what.
        unit: Unit,
        /// Why leaves were left out.
        excluded: Exclusions,
    },
    /// Slices within slices do not fit.
    #[error("topology {topology:?} doesn't allow to fit{}{excluded}", LayerFits(layers))]
    NoLayersFit {
        /// The topology.
        topology: Box<str>,
        /// By layer, outermost first.
        layers: Vec<LayerFit>,
        /// Why leaves were left out.
        excluded: Exclusions,
    },
    /// A failed node cannot be replaced because other nodes of the assignment are gone too.
    #[error(
        "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {0}"
    )]
    StaleAssignment(Box<str>),
    /// A failed node carries none of the pods that are to be placed anew.
    #[error("cannot find replacement assignment for unhealthy node: {0}")]
    NoReplacement(Box<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_as_text() {
        let taint = |value: &str| Taint { key: "k".into(), value: value.into(), effect: TaintEffect::NoExecute };
        let excluded = Exclusions {
            nodes: 9,
            taints: vec![(taint("v"), 1), (taint(""), 2)],
            node_selector: 3,
            affinity: 1,
            topology_domain: 1,
            resources: vec![("cpu".into(), 1)],
        };
        assert_eq!(
            excluded.to_string(),
            ". Total nodes: 9; excluded: affinity: 1, nodeSelector: 3, resource \"cpu\": 1, \
             taint \"k:NoExecute\": 2, taint \"k=v:NoExecute\": 1, topologyDomain: 1"
        );
        assert_eq!(Exclusions { nodes: 9, ..Exclusions::default() }.to_string(), "");
    }

    #[test]
    fn layers_are_told_one_after_another() {
        let layer = |level: &str, fit| LayerFit { level: level.into(), fit, needed: 2 };
        let layers = vec![layer("rack", 1), layer("host", 0)];
        let failure = Failure::NoLayersFit { topology: "t".into(), layers, excluded: Exclusions::default() };
        assert_eq!(
            failure.to_string(),
            "topology \"t\" doesn't allow to fit; 1/2 slice(s) fit on level rack; 0/2 slice(s) fit on level host"
        );
    }
}
