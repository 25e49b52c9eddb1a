//! The topologies of all flavors, with what is used of them.

use slicegate_quota::{FlavorId, Names, ResourceId};
use slicegate_workload::{FlavorSpec, Toleration, TopologyAssignment, TopologyRequest, TopologySpec};

use crate::capacity::{Capacity, Change};
use crate::group::Work;
use crate::leaves::LeafLabels;
use crate::tree::index;
use crate::{Failure, Node, OtherPods, PlacementUsage, PodRequest, PodSetRequest, Tree};

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

/// Pods on leaves: an assignment in terms of the trees it was made for, ready to be counted.
///
/// It stays valid until a flavor is set anew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// What one pod takes.
    with_pod: Vec<(ResourceId, i64)>,
    bare: Vec<(ResourceId, i64)>,
    /// Entry, leaf and pods; those of the assignment's own flavor first.
    leaves: Vec<(u32, u32, i32)>,
    own: usize,
    /// Domains that are not there (any more).
    missing: Vec<Vec<Box<str>>>,
}

/// Whose capacity a change of usage touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The flavor's own: changes within a scheduling cycle. Other flavors over the same nodes do not see them. [quirk]
    Flavor,
    /// All flavors that share the node: changes that last.
    Node,
}

/// Why planned pods do not fit any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misfit {
    /// A domain is gone.
    #[error("the domain {0:?} is not there any more")]
    Missing(Vec<Box<str>>),
    /// A domain has less room than planned.
    #[error("the domain {values:?} takes {fit} of {needed} pods")]
    Short {
        /// The domain.
        values: Vec<Box<str>>,
        /// Pods that fit.
        fit: i32,
        /// Pods that were planned.
        needed: i32,
    },
}

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
    /// Usage of placed pods in the flavor is forgotten, and every [`Usage`] made before becomes invalid: make them anew and add
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

    /// Forgets a flavor. Every [`Usage`] made before becomes invalid.
    pub fn remove(&mut self, flavor: FlavorId) {
        self.entries.retain(|e| e.flavor != flavor);
        self.journal.clear();
    }

    /// Forgets where placed pods are, in all flavors.
    pub fn clear_usage(&mut self) {
        self.journal.clear();
        self.entries.iter_mut().for_each(|e| e.capacity.forget_placed());
    }

    /// The tree of a flavor; `None` if the flavor has no topology that is known.
    pub fn tree(&self, flavor: FlavorId) -> Option<&Tree> {
        self.entry(flavor).map(|(_, e)| &e.tree)
    }

    /// Whether the topology of a flavor has every level that a pod set asks for; `None` if nothing is known of it.
    pub fn supports(&self, flavor: FlavorId, request: &TopologyRequest) -> Option<bool> {
        self.tree(flavor).map(|tree| tree.supports(request))
    }

    fn entry(&self, flavor: FlavorId) -> Option<(usize, &Entry)> {
        self.entries.iter().enumerate().find(|(_, e)| e.flavor == flavor)
    }

    // ----- usage -----------------------------------------------------------------------------------------------------

    /// An assignment in a flavor, ready to be counted.
    pub fn usage(&self, flavor: FlavorId, assignment: &TopologyAssignment, request: &PodRequest) -> Usage {
        let mut usage = Usage { with_pod: request.with_pod.clone(), bare: request.bare.clone(), ..Usage::default() };
        let Some((own, entry)) = self.entry(flavor) else {
            usage.missing.extend(assignment.domains.iter().map(|d| d.values.clone()));
            return usage;
        };
        for domain in &assignment.domains {
            match entry.tree.find_leaf(&domain.values) {
                Some(leaf) => usage.leaves.push((index(own), leaf, domain.count)),
                None => usage.missing.push(domain.values.clone()),
            }
        }
        usage.own = usage.leaves.len();
        if self.features.overlapping_flavors && entry.tree.has_host_leaves() {
            for (position, other) in self.entries.iter().enumerate() {
                if position == own || !other.tree.has_host_leaves() {
                    continue;
                }
                let found = assignment.domains.iter().filter_map(|d| Some((other.tree.find_leaf(&d.values)?, d.count)));
                usage.leaves.extend(found.map(|(leaf, count)| (index(position), leaf, count)));
            }
        }
        usage
    }

    /// Counts pods. Domains that are not there are passed over.
    pub fn add(&mut self, usage: &Usage, reach: Reach) {
        self.count(usage, reach, PlacementUsage::Current, -1);
    }

    /// The inverse of [`Topologies::add`].
    pub fn take_away(&mut self, usage: &Usage, reach: Reach) {
        self.count(usage, reach, PlacementUsage::Current, 1);
    }

    /// Counts pods in what is `free` or left, with a sign.
    pub(crate) fn count(&mut self, usage: &Usage, reach: Reach, of: PlacementUsage, sign: i64) {
        let leaves = match reach {
            Reach::Flavor => usage.leaves.get(..usage.own).unwrap_or_default(),
            Reach::Node => &usage.leaves,
        };
        for &(position, leaf, count) in leaves {
            let Some(entry) = self.entries.get_mut(position as usize) else { continue };
            let leaf_count = entry.tree.leaf_count();
            for &(resource, amount) in &usage.with_pod {
                let amount = amount.saturating_mul(i64::from(count)).saturating_mul(sign);
                let change = entry.capacity.change(of, resource, leaf, amount, leaf_count);
                if self.recording > 0
                    && let Some(change) = change
                {
                    self.journal.push((position, change));
                }
            }
        }
    }

    /// Whether planned pods still fit beside those that are counted.
    ///
    /// Each domain of the plan is looked at alone, and the limit on the number of pods is not looked at; a pod that requests
    /// nothing never fits. [quirk]
    ///
    /// # Errors
    /// The first domain that is gone or has too little room.
    pub fn check(&self, usage: &Usage) -> Result<(), Misfit> {
        if let Some(values) = usage.missing.first() {
            return Err(Misfit::Missing(values.clone()));
        }
        for &(position, leaf, count) in usage.leaves.get(..usage.own).unwrap_or_default() {
            let Some(entry) = self.entries.get(position as usize) else { continue };
            let (fit, _) = entry.capacity.count_in(PlacementUsage::Current, &usage.bare, leaf);
            if fit < count {
                let values = entry.tree.assignment_values(entry.tree.leaf_domain(leaf));
                return Err(Misfit::Short { values, fit, needed: count });
            }
        }
        Ok(())
    }

    /// Counts a pod outside of topology-aware placement on its node, in all flavors of the node. No mark may be open: this is not
    /// undone.
    pub fn add_other(&mut self, node: &str, request: &PodRequest) {
        self.count_other(node, request, -1);
    }

    /// The inverse of [`Topologies::add_other`].
    pub fn remove_other(&mut self, node: &str, request: &PodRequest) {
        self.count_other(node, request, 1);
    }

    fn count_other(&mut self, node: &str, request: &PodRequest, sign: i64) {
        for entry in &mut self.entries {
            let Some(leaf) = entry.tree.leaf_of_node(node) else { continue };
            let leaves = entry.tree.leaf_count();
            for &(resource, amount) in &request.with_pod {
                entry.capacity.change_free(resource, leaf, amount.saturating_mul(sign), leaves);
            }
        }
    }

    /// How many pods would fit on a leaf beside those that are counted.
    pub fn room(&self, flavor: FlavorId, leaf: u32, request: &PodRequest, usage: PlacementUsage) -> i32 {
        let Some((_, entry)) = self.entry(flavor) else { return 0 };
        entry.capacity.count_in(usage, &request.with_pod, leaf).0
    }

    /// What is left of a resource on a leaf beside what is counted.
    pub fn left(&self, flavor: FlavorId, leaf: u32, resource: ResourceId) -> i64 {
        let Some((_, entry)) = self.entry(flavor) else { return 0 };
        let column = entry.capacity.column(PlacementUsage::Current, resource);
        column.get(leaf as usize).copied().unwrap_or(0)
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
