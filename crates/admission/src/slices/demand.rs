//! What pods need: so many slices of a shape, of pools that take them.

use slicegate_flavor::SliceShortage;
use slicegate_tpu::{RESOURCE, SliceShape, label, taint};
use slicegate_workload::{
    FlavorSpec, Labels, NodeAffinity, PodSpec, Taint, Toleration, TolerationOperator, first_untolerated,
    selector_matches,
};

use super::pool::{Pool, Shape};

/// Names a [`Demand`] of a [`Inventory`](super::Inventory).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DemandId(pub(super) u32);

impl DemandId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Pods that are to be put on whole slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlicePods<'a> {
    /// One of them.
    pub(crate) pod: &'a PodSpec,
    /// How many.
    pub(crate) count: i32,
    /// The flavor whose nodes they are to use.
    pub(crate) flavor: &'a FlavorSpec,
}

/// Which slices will do. Pods with the same demand compete for the same slices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Demand {
    pub(super) shape: Shape,
    terms: Terms,
}

/// What pods ask of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// Of the pods and of the flavor, which its pods are given.
    selector: Labels,
    affinity: Option<NodeAffinity>,
    tolerations: Vec<Toleration>,
}

impl Terms {
    fn take(&self, labels: &Labels, taints: &[Taint]) -> bool {
        selector_matches(&self.selector, labels)
            && self.affinity.as_ref().is_none_or(|a| a.required_matches(labels, None))
            && first_untolerated(taints, &[&self.tolerations]).is_none()
    }

    /// The topology that is asked for.
    pub(super) fn topology(&self) -> Option<&str> {
        self.selector.get(label::TOPOLOGY).map(|topology| &**topology)
    }

    /// Whether pods can be put on nodes of a pool.
    pub(super) fn match_pool(&self, pool: &Pool) -> bool {
        let (labels, taints) = pool.facts();
        self.take(labels, taints)
    }
}

impl Demand {
    pub(super) fn new(shape: Shape, terms: Terms) -> Self {
        Self { shape, terms }
    }

    /// Whether slices of a pool will do.
    pub(super) fn accepts(&self, pool: &Pool) -> bool {
        self.shape == pool.shape && self.terms.match_pool(pool)
    }
}

impl SlicePods<'_> {
    /// Chips that each pod asks for; 0 if it uses none.
    pub(crate) fn chips_per_pod(&self) -> i64 {
        self.pod.requests().get(RESOURCE).map_or(0, |q| q.value())
    }

    pub(super) fn terms(&self) -> Terms {
        let mut selector = self.pod.node_selector.clone();
        selector.extend(self.flavor.node_labels.iter().map(|(k, v)| (k.clone(), v.clone())));
        let mut tolerations = self.pod.tolerations.clone();
        tolerations.extend(self.flavor.tolerations.iter().cloned());
        // GKE gives it to every pod that asks for chips.
        tolerations.push(Toleration {
            key: taint::TPU.key.into(),
            operator: TolerationOperator::Exists,
            value: Box::default(),
            effect: None,
            seconds: None,
        });
        Terms { selector, affinity: self.pod.node_affinity.clone(), tolerations }
    }

    /// The shape that pods and flavor name; `None` if they leave it open.
    pub(super) fn shape(&self, terms: &Terms) -> Result<Option<Shape>, SliceShortage> {
        let chips = u32::try_from(self.chips_per_pod()).unwrap_or(u32::MAX);
        let get = |key: &str| terms.selector.get(key);
        let (Some(accelerator), Some(topology)) = (get(label::ACCELERATOR), get(label::TOPOLOGY)) else {
            return Ok(None);
        };
        match SliceShape::from_selector(accelerator, topology, Some(chips)) {
            Ok(slice) => Ok(Some(slice.into())),
            Err(error) => Err(SliceShortage::NoSlice { why: error.to_string().into() }),
        }
    }

    /// How many slices of a shape the pods fill or begin to fill.
    pub(super) fn slices_of(&self, shape: Shape) -> u32 {
        u32::try_from(self.count).unwrap_or(0).div_ceil(shape.hosts.max(1))
    }
}
