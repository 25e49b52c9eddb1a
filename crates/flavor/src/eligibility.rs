//! Which flavors suit a pod, quota aside.

use slicegate_quota::FlavorId;
use slicegate_workload::PodSpec;

use crate::FlavorTable;

/// Whether a flavor suits a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Suits,
    /// There is no such flavor.
    NotFound,
    /// The taint at this position of the flavor's `node_taints` is not tolerated.
    UntoleratedTaint(u32),
    /// The pod's node selector or affinity excludes the flavor's labels.
    AffinityMismatch,
    /// The pod's affinity cannot be read.
    InvalidAffinity(Box<str>),
}

/// Which flavors suit the pods of a pod set: taints and labels compared once, by index of flavor.
///
/// Depends on nothing but the pod and the flavors, so it is made when a workload appears and again only if
/// [`FlavorTable::generation`] has moved on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Eligibility {
    verdicts: Vec<Verdict>,
    has_topology: Vec<bool>,
    generation: u64,
}

impl Eligibility {
    /// Compares a pod with every flavor.
    pub fn new(pod: &PodSpec, flavors: &FlavorTable) -> Self {
        let _ = pod;
        let verdicts = flavors
            .iter()
            .map(|(_, flavor)| match flavor {
                None => Verdict::NotFound,
                Some(_) => Verdict::Suits,
            })
            .collect();
        let has_topology = flavors.iter().map(|(_, flavor)| flavor.is_some_and(|f| f.topology.is_some())).collect();
        Self { verdicts, has_topology, generation: flavors.generation() }
    }

    /// The verdict on one flavor.
    pub fn verdict(&self, flavor: FlavorId) -> &Verdict {
        self.verdicts.get(flavor.index()).unwrap_or(&Verdict::NotFound)
    }

    /// Whether the flavor names a topology.
    pub fn has_topology(&self, flavor: FlavorId) -> bool {
        self.has_topology.get(flavor.index()).copied().unwrap_or(false)
    }

    /// The generation of the flavors it was made for.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}
