//! What placed pods, and others, use of leaves.

use slicegate_quota::{FlavorId, ResourceId};
use slicegate_workload::TopologyAssignment;

use crate::capacity::narrow;
use crate::tree::index;
use crate::{PlacementUsage, PodRequest, Topologies};

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
    /// The flavor's own: changes within a scheduling cycle. Other flavors over the same nodes do not see them.
    // [quirk] As Kueue does.
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

impl Topologies {
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
    pub(crate) fn count(&mut self, usage: &Usage, reach: Reach, of: PlacementUsage, sign: i128) {
        let leaves = match reach {
            Reach::Flavor => usage.leaves.get(..usage.own).unwrap_or_default(),
            Reach::Node => &usage.leaves,
        };
        for &(position, leaf, count) in leaves {
            for &(resource, amount) in &usage.with_pod {
                let amount = i128::from(amount).saturating_mul(count.into()).saturating_mul(sign);
                self.change(position, of, resource, leaf, amount);
            }
        }
    }

    /// Whether planned pods still fit beside those that are counted.
    ///
    /// Each domain of the plan is looked at alone, and the limit on the number of pods is not looked at; a pod that requests
    /// nothing never fits.
    ///
    /// # Errors
    /// The first domain that is gone or has too little room.
    // [quirk] As Kueue does.
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

    /// Whether pods fit together, beside everything that is counted, in all flavors of their nodes, the limit on the number of
    /// pods included: exactly, unlike [`Topologies::check`].
    pub fn has_room(&mut self, all: &[Usage]) -> bool {
        let mark = self.mark();
        for usage in all {
            self.add(usage, Reach::Node);
        }
        let fits = all.iter().all(|usage| {
            let taken = |entry: u32, resource: ResourceId, leaf: u32| {
                let column =
                    self.entries.get(entry as usize).map(|e| e.capacity.column(PlacementUsage::Current, resource));
                column.and_then(|c| c.get(leaf as usize)).copied().unwrap_or(0)
            };
            usage.leaves.iter().filter(|(.., count)| *count > 0).all(|&(entry, leaf, _)| {
                usage.with_pod.iter().all(|&(resource, amount)| amount <= 0 || taken(entry, resource, leaf) >= 0)
            })
        });
        self.rollback(mark);
        fits
    }

    /// Leaves that hold more than they have: flavor, values of the leaf, resource. Placing never adds to it; nodes that shrink and
    /// other pods may.
    pub fn overcommitted(&self) -> Vec<(FlavorId, Vec<Box<str>>, ResourceId)> {
        let mut all = Vec::new();
        for entry in &self.entries {
            for (resource, leaf) in entry.capacity.overcommitted() {
                all.push((entry.flavor, entry.tree.assignment_values(entry.tree.leaf_domain(leaf)), resource));
            }
        }
        all
    }

    /// The first leaf and resource of which another state of the same topologies has more or less left. For tests: it looks at
    /// everything.
    pub fn difference(&self, other: &Self) -> Option<(FlavorId, Vec<Box<str>>, ResourceId)> {
        self.entries.iter().zip(&other.entries).find_map(|(a, b)| {
            let (resource, leaf) = a.capacity.difference(&b.capacity)?;
            Some((a.flavor, a.tree.assignment_values(a.tree.leaf_domain(leaf)), resource))
        })
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

    fn count_other(&mut self, node: &str, request: &PodRequest, sign: i128) {
        for entry in &mut self.entries {
            let Some(leaf) = entry.tree.leaf_of_node(node) else { continue };
            let leaves = entry.tree.leaf_count();
            for &(resource, amount) in &request.with_pod {
                entry.capacity.change_free(resource, leaf, i128::from(amount).saturating_mul(sign), leaves);
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
        narrow(column.get(leaf as usize).copied().unwrap_or(0))
    }
}
