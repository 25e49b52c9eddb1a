//! The topologies of all flavors, with what is used of them.

use slicegate_quota::{FlavorId, Names, ResourceId};
use slicegate_workload::{FlavorSpec, Toleration, TopologyAssignment, TopologyRequest, TopologySpec};

use crate::capacity::{Capacity, Change};
use crate::group::Work;
use crate::leaves::LeafLabels;
use crate::{Failure, Node, OtherPods, PlacementUsage, PodRequest, PodSetRequest, Reach, Tree};

/// What changes about decisions (Kueue's feature gates).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Requests without a level take domains with least room first (`TASProfileMixed`); otherwise as all others.
    pub mixed_profile: bool,
    /// Slices within slices (`TASMultiLayerTopology`); otherwise they are not looked at.
    pub multi_layer: bool,
    /// Flavors whose topologies end in hostnames see each other's usage of a node (`TASHandleOverlappingFlavors`).
    pub overlapping_flavors: bool,
    /// Pods that prefer a level are spread evenly (`TASBalancedPlacement`).
    pub balanced: bool,
    /// Node preferences of pods come before room (`TASRespectNodeAffinityPreferred`).
    pub preferred_affinity: bool,
    /// Elastic workloads keep the places of the pods they have (`ElasticJobsViaWorkloadSlicesWithTAS`).
    pub elastic: bool,
}

impl Default for Features {
    /// What is on by default in Kueue.
    fn default() -> Self {
        Self {
            mixed_profile: true,
            multi_layer: true,
            overlapping_flavors: true,
            balanced: false,
            preferred_affinity: false,
            elastic: false,
        }
    }
}

/// A flavor and its tree.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) flavor: FlavorId,
    pub(crate) name: Box<str>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) tree: Tree,
    pub(crate) labels: LeafLabels,
    pub(crate) capacity: Capacity,
}

/// A position in the undo journal. See [`Topologies::mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Mark(usize);

/// What came of one pod set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Its pods have places.
    Placed(TopologyAssignment),
    /// It, or one it is placed together with, has none.
    Failed(Failure),
    /// It was not tried: a group before it failed.
    Untried,
}

impl Placement {
    /// The assignment, if pods have places.
    pub const fn assignment(&self) -> Option<&TopologyAssignment> {
        match self {
            Self::Placed(assignment) => Some(assignment),
            Self::Failed(_) | Self::Untried => None,
        }
    }

    /// The reason, if there is no place.
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Placed(_) | Self::Untried => None,
        }
    }
}

/// The topologies of flavors, what placed pods and others use of their nodes, and the search for places.
///
/// Usage is changed in place; a what-if takes a [`mark`](Self::mark), changes usage and is undone by
/// [`rollback`](Self::rollback). A search allocates nothing by node: its scratch lives here.
#[derive(Clone, Debug, Default)]
pub struct Topologies {
    pub(crate) features: Features,
    /// In order of the flavors' names.
    pub(crate) entries: Vec<Entry>,
    journal: Vec<(u32, Change)>,
    recording: usize,
    pub(crate) work: Work,
}

impl Topologies {
    /// No topologies.
    pub fn new(features: Features) -> Self {
        Self { features, ..Self::default() }
    }

    /// Sets the topology of a flavor and its nodes; those that are not of the flavor, or not available, are left out.
    ///
    /// Usage of placed pods in the flavor is forgotten, and every [`Usage`](crate::Usage) made before becomes invalid: make them anew and add
    /// them again.
    pub fn set(
        &mut self,
        flavor: &FlavorSpec,
        topology: &TopologySpec,
        nodes: &[Node],
        others: &OtherPods,
        names: &mut Names,
    ) {
        let id = names.intern_flavor(&flavor.name);
        self.remove(id);
        let tree = Tree::new(flavor, topology, nodes);
        let representatives = tree.representatives().iter().map(|&i| &nodes[i]);
        let entry = Entry {
            flavor: id,
            name: flavor.name.clone(),
            tolerations: flavor.tolerations.clone(),
            labels: LeafLabels::new(representatives),
            capacity: Capacity::new(&tree, nodes, others, names),
            tree,
        };
        let position = self.entries.partition_point(|e| e.name < entry.name);
        self.entries.insert(position, entry);
    }

    /// Forgets a flavor. Every [`Usage`](crate::Usage) made before becomes invalid.
    pub fn remove(&mut self, flavor: FlavorId) {
        self.entries.retain(|e| e.flavor != flavor);
        self.journal.clear();
    }

    /// Forgets where placed pods are, in all flavors.
    pub fn clear_usage(&mut self) {
        self.journal.clear();
        self.entries.iter_mut().for_each(|e| e.capacity.forget_placed());
    }

    /// Whether no flavor has a topology.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tree of a flavor; `None` if the flavor has no topology that is known.
    pub fn tree(&self, flavor: FlavorId) -> Option<&Tree> {
        self.entry(flavor).map(|(_, e)| &e.tree)
    }

    /// Whether the topology of a flavor has every level that a pod set asks for; `None` if nothing is known of it.
    pub fn supports(&self, flavor: FlavorId, request: &TopologyRequest) -> Option<bool> {
        self.tree(flavor).map(|tree| tree.supports(request))
    }

    pub(crate) fn entry(&self, flavor: FlavorId) -> Option<(usize, &Entry)> {
        self.entries.iter().enumerate().find(|(_, e)| e.flavor == flavor)
    }

    // ----- what-if ---------------------------------------------------------------------------------------------------

    /// Starts recording changes of usage, to be undone by [`Topologies::rollback`] or kept by [`Topologies::keep`]. Marks nest.
    pub fn mark(&mut self) -> Mark {
        self.recording = self.recording.saturating_add(1);
        Mark(self.journal.len())
    }

    /// Undoes every change of usage since the mark.
    pub fn rollback(&mut self, mark: Mark) {
        self.undo(mark);
        self.recording = self.recording.saturating_sub(1);
    }

    /// Keeps the changes since the mark. They are still undone by an outer mark.
    pub fn keep(&mut self, _mark: Mark) {
        self.recording = self.recording.saturating_sub(1);
        if self.recording == 0 {
            self.journal.clear();
        }
    }

    fn undo(&mut self, mark: Mark) {
        while self.journal.len() > mark.0 {
            if let Some((position, change)) = self.journal.pop()
                && let Some(entry) = self.entries.get_mut(position as usize)
            {
                entry.capacity.restore(change);
            }
        }
    }

    /// Changes what is free on, or left of, a leaf of an entry; under a mark the old number is kept.
    pub(crate) fn change(
        &mut self,
        position: u32,
        usage: PlacementUsage,
        resource: ResourceId,
        leaf: u32,
        amount: i128,
    ) {
        let Some(entry) = self.entries.get_mut(position as usize) else { return };
        let change = entry.capacity.change(usage, resource, leaf, amount, entry.tree.leaf_count());
        if self.recording > 0
            && let Some(change) = change
        {
            self.journal.push((position, change));
        }
    }

    // ----- placing ---------------------------------------------------------------------------------------------------

    /// Finds places for the pod sets of one workload, in the order of the requests.
    ///
    /// Flavors come in order of their names, groups of a flavor in the order in which they appear; each sees what those before it
    /// took. In a flavor the first group that finds no place ends the search. Usage is left as it was.
    pub fn place(&mut self, requests: &[PodSetRequest<'_>], usage: PlacementUsage) -> Vec<Placement> {
        let mut placements = vec![Placement::Untried; requests.len()];
        for (placement, request) in placements.iter_mut().zip(requests) {
            if self.entry(request.flavor).is_none() {
                *placement = Placement::Failed(Failure::NoTopology);
            }
        }
        let mark = self.mark();
        for position in 0..self.entries.len() {
            self.place_flavor(position, requests, usage, &mut placements);
        }
        self.rollback(mark);
        placements
    }

    fn place_flavor(
        &mut self,
        position: usize,
        requests: &[PodSetRequest<'_>],
        usage: PlacementUsage,
        placements: &mut [Placement],
    ) {
        let Some(flavor) = self.entries.get(position).map(|e| e.flavor) else { return };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (i, request) in requests.iter().enumerate().filter(|(_, r)| r.flavor == flavor) {
            let same = |group: &&mut Vec<usize>| {
                let first = group.first().and_then(|&first| requests.get(first));
                request.group.is_some() && first.is_some_and(|first| first.group == request.group)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(i),
                None => groups.push(vec![i]),
            }
        }
        for group in groups {
            let results = self.place_group(position, requests, &group, usage);
            let failed = results.iter().any(|(_, result)| result.is_err());
            for (i, result) in results {
                if let (Ok(assignment), Some(request)) = (&result, requests.get(i)) {
                    self.assume(position, &assignment.added, request.pod_request, usage);
                }
                if let Some(placement) = placements.get_mut(i) {
                    *placement = match result {
                        Ok(assignment) => Placement::Placed(assignment.whole),
                        Err(failure) => Placement::Failed(failure),
                    };
                }
            }
            if failed {
                return;
            }
        }
    }

    /// Counts pods that were just placed, or that are to be thought of as placed.
    pub(crate) fn assume(
        &mut self,
        position: usize,
        assignment: &TopologyAssignment,
        request: &PodRequest,
        usage: PlacementUsage,
    ) {
        let Some(flavor) = self.entries.get(position).map(|e| e.flavor) else { return };
        let counted = self.usage(flavor, assignment, request);
        self.count(&counted, Reach::Node, usage, -1);
    }
}
