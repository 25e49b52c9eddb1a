//! Which flavors suit a pod, quota aside.

use slicegate_quota::FlavorId;
use slicegate_workload::{FlavorSpec, Labels, PodSpec, SelectorTerm, Taint, TaintEffect};

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
        let verdicts =
            flavors.iter().map(|(_, flavor)| flavor.map_or(Verdict::NotFound, |flavor| verdict(pod, flavor))).collect();
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

fn verdict(pod: &PodSpec, flavor: &FlavorSpec) -> Verdict {
    let tolerated = |taint: &Taint| {
        taint.effect == TaintEffect::PreferNoSchedule
            || pod.tolerations.iter().chain(&flavor.tolerations).any(|t| t.tolerates(taint))
    };
    if let Some(at) = flavor.node_taints.iter().position(|t| !tolerated(t)) {
        return Verdict::UntoleratedTaint(u32::try_from(at).unwrap_or(u32::MAX));
    }
    if accepts_labels(pod, &flavor.node_labels) { Verdict::Suits } else { Verdict::AffinityMismatch }
}

/// Whether the pod accepts nodes with these labels, as far as one can tell from them: requirements on other labels are left
/// out, for nodes of the flavor may or may not meet them. Alternatives of which nothing is left are met by anything.
fn accepts_labels(pod: &PodSpec, labels: &Labels) -> bool {
    let known = |key: &str| labels.contains_key(key);
    if !pod.node_selector.iter().filter(|(key, _)| known(key)).all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let Some(terms) = pod.node_affinity.as_ref().and_then(|a| a.required.as_ref()) else { return true };
    let concerns = |term: &SelectorTerm| term.match_expressions.iter().any(|r| known(&r.key));
    let accepts =
        |term: &SelectorTerm| term.match_expressions.iter().filter(|r| known(&r.key)).all(|r| r.matches(labels));
    terms.is_empty() || terms.iter().any(|t| !concerns(t) || accepts(t))
}
