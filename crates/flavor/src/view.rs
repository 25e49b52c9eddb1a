//! What the assigner knows of flavors and ClusterQueues, resolved once for a configuration.

use slicegate_quota::{FlavorId, FlavorResourceId, Names, NodeId, ResourceId};
use slicegate_workload::{ClusterQueueSpec, FlavorFungibility, FlavorSpec};

/// The ResourceFlavors that exist, by [`FlavorId`].
#[derive(Clone, Debug, Default)]
pub struct FlavorTable {
    flavors: Vec<Option<FlavorSpec>>,
    generation: u64,
}

impl FlavorTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a flavor or replaces it.
    pub fn set(&mut self, id: FlavorId, flavor: FlavorSpec) {
        if self.flavors.len() <= id.index() {
            self.flavors.resize_with(id.index().saturating_add(1), || None);
        }
        if let Some(slot) = self.flavors.get_mut(id.index()) {
            *slot = Some(flavor);
            self.generation = self.generation.saturating_add(1);
        }
    }

    /// Removes a flavor.
    pub fn remove(&mut self, id: FlavorId) {
        if let Some(slot) = self.flavors.get_mut(id.index()) {
            *slot = None;
            self.generation = self.generation.saturating_add(1);
        }
    }

    /// A flavor, if it exists.
    pub fn get(&self, id: FlavorId) -> Option<&FlavorSpec> {
        self.flavors.get(id.index())?.as_ref()
    }

    /// Flavors by index, absent ones included.
    pub fn iter(&self) -> impl Iterator<Item = (FlavorId, Option<&FlavorSpec>)> + '_ {
        self.flavors.iter().enumerate().map(|(i, f)| (FlavorId::from_index(i), f.as_ref()))
    }

    /// Grows with every change: an [`Eligibility`](crate::Eligibility) is good for one value of it.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// What becomes of a resource that no resource group of the ClusterQueue covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UndeclaredResources {
    /// A workload that asks for it cannot be admitted (Kueue's `BlockUndeclared`).
    #[default]
    Block,
    /// It is not counted (Kueue's `IgnoreUndeclared`).
    Ignore,
}

/// A flavor of a resource group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupFlavor {
    /// The flavor.
    pub flavor: FlavorId,
    /// Its pairs, in the order of [`GroupView::resources`].
    pub pairs: Vec<FlavorResourceId>,
}

/// A resource group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupView {
    /// The resources it covers.
    pub resources: Vec<ResourceId>,
    /// The flavors to try, in order.
    pub flavors: Vec<GroupFlavor>,
}

/// A ClusterQueue as the assigner sees it: names are ids, pairs are looked up. Built once whenever its spec changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterQueueView {
    /// The leaf of the quota forest.
    pub node: NodeId,
    /// The resource groups.
    pub groups: Vec<GroupView>,
    /// How a flavor is chosen.
    pub fungibility: FlavorFungibility,
    /// Whether a workload may preempt even where it would borrow: `borrowWithinCohort` allows it, or fair sharing does.
    pub preempts_while_borrowing: bool,
    /// What becomes of resources that no group covers.
    pub undeclared: UndeclaredResources,
    /// The resource `pods`, if a group covers it: every pod then counts as one.
    pub pods: Option<ResourceId>,
    /// The group and the position in it, by index of resource.
    places: Vec<Option<(u32, u32)>>,
}

impl ClusterQueueView {
    /// Resolves a spec. Names that were not known are interned.
    pub fn new(
        node: NodeId,
        spec: &ClusterQueueSpec,
        undeclared: UndeclaredResources,
        fair_sharing: bool,
        names: &mut Names,
    ) -> Self {
        let mut groups = Vec::with_capacity(spec.resource_groups.len());
        for group in &spec.resource_groups {
            let resources: Vec<ResourceId> =
                group.covered_resources.iter().map(|name| names.intern_resource(name)).collect();
            let flavors = group
                .flavors
                .iter()
                .map(|f| {
                    let flavor = names.intern_flavor(&f.name);
                    GroupFlavor { flavor, pairs: resources.iter().map(|&r| names.intern_pair(flavor, r)).collect() }
                })
                .collect();
            groups.push(GroupView { resources, flavors });
        }
        let preemption = spec.preemption;
        let preempts_while_borrowing = preemption.borrow_within_cohort.is_some_and(|b| b.lower_priority)
            || (fair_sharing && preemption.reclaim_within_cohort != slicegate_workload::ReclaimPolicy::Never);
        Self::from_groups(node, groups, spec.flavor_fungibility, preempts_while_borrowing, undeclared, names)
    }

    /// A view of resolved groups.
    pub fn from_groups(
        node: NodeId,
        groups: Vec<GroupView>,
        fungibility: FlavorFungibility,
        preempts_while_borrowing: bool,
        undeclared: UndeclaredResources,
        names: &Names,
    ) -> Self {
        let mut places = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            for (i, resource) in group.resources.iter().enumerate() {
                if places.len() <= resource.index() {
                    places.resize(resource.index().saturating_add(1), None);
                }
                if let (Ok(g), Ok(i), Some(slot)) =
                    (u32::try_from(g), u32::try_from(i), places.get_mut(resource.index()))
                {
                    // A resource belongs to one group only; should it not, the first one counts.
                    slot.get_or_insert((g, i));
                }
            }
        }
        let covered = |r: &ResourceId| places.get(r.index()).is_some_and(Option::is_some);
        let pods = names.resource("pods").filter(covered);
        Self { node, groups, fungibility, preempts_while_borrowing, undeclared, pods, places }
    }

    /// The group that covers a resource, and the resource's position in it.
    pub fn place(&self, resource: ResourceId) -> Option<(usize, usize)> {
        let (group, position) = (*self.places.get(resource.index())?)?;
        Some((usize::try_from(group).ok()?, usize::try_from(position).ok()?))
    }

    /// The position of a resource in a group, which need not be the first group that covers it.
    pub fn position_in(&self, group: usize, resource: ResourceId) -> Option<usize> {
        match self.place(resource)? {
            (first, position) if first == group => Some(position),
            _ => self.groups.get(group)?.resources.iter().position(|r| *r == resource),
        }
    }
}
