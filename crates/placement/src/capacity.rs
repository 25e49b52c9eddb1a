//! What is free on leaves, by resource.

use slicegate_quota::{Names, ResourceId};
use slicegate_workload::Requests;

use crate::node::OtherPods;
use crate::{Node, Tree};

/// Which workloads count when places are sought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementUsage {
    /// Those that have places now.
    Current,
    /// None: what could be had by preempting them all. Pods outside of topology-aware placement still count.
    Empty,
}

/// A number before it was changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    usage: PlacementUsage,
    resource: u32,
    leaf: u32,
    before: i128,
}

/// A column a resource, a number a leaf. A resource that no node has is an empty column.
///
/// Numbers are wide enough for whatever is added up, so that taking the same away again always leaves what was there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capacity {
    /// What is allocatable less what other pods use.
    free: Vec<Vec<i128>>,
    /// What of that placed workloads leave.
    left: Vec<Vec<i128>>,
}

impl Capacity {
    pub(crate) fn new(tree: &Tree, nodes: &[Node], others: &OtherPods, names: &mut Names) -> Self {
        let mut capacity = Self::default();
        let leaves = tree.leaf_count();
        for (index, leaf) in tree.members() {
            let Some(node) = nodes.get(index) else { continue };
            for (resource, amount) in node.allocatable.iter() {
                capacity.add_free(names.intern_resource(resource), leaf, amount.into(), leaves);
            }
            for (resource, amount) in others.usage(&node.name).into_iter().flat_map(Requests::iter) {
                capacity.add_free(names.intern_resource(resource), leaf, -i128::from(amount), leaves);
            }
        }
        capacity.left.clone_from(&capacity.free);
        capacity
    }

    fn add_free(&mut self, resource: ResourceId, leaf: u32, amount: i128, leaves: usize) {
        add(&mut self.free, resource.index(), leaf, amount, leaves);
    }

    /// What pods outside of topology-aware placement leave and take.
    pub(crate) fn change_free(&mut self, resource: ResourceId, leaf: u32, amount: i128, leaves: usize) {
        add(&mut self.free, resource.index(), leaf, amount, leaves);
        add(&mut self.left, resource.index(), leaf, amount, leaves);
    }

    /// What placed pods leave (or, with a negative amount, take) of a leaf. The old number, for the journal.
    pub(crate) fn change(
        &mut self,
        usage: PlacementUsage,
        resource: ResourceId,
        leaf: u32,
        amount: i128,
        leaves: usize,
    ) -> Option<Change> {
        let columns = self.columns_mut(usage);
        let before = add(columns, resource.index(), leaf, amount, leaves)?;
        Some(Change { usage, resource: crate::tree::index(resource.index()), leaf, before })
    }

    pub(crate) fn restore(&mut self, change: Change) {
        let column = self.columns_mut(change.usage).get_mut(change.resource as usize);
        if let Some(cell) = column.and_then(|c| c.get_mut(change.leaf as usize)) {
            *cell = change.before;
        }
    }

    /// Nothing is placed any more.
    pub(crate) fn forget_placed(&mut self) {
        self.left.clone_from(&self.free);
    }

    fn columns_mut(&mut self, usage: PlacementUsage) -> &mut Vec<Vec<i128>> {
        match usage {
            PlacementUsage::Current => &mut self.left,
            PlacementUsage::Empty => &mut self.free,
        }
    }

    /// A number a leaf; empty if no node has the resource.
    pub(crate) fn column(&self, usage: PlacementUsage, resource: ResourceId) -> &[i128] {
        let columns = match usage {
            PlacementUsage::Current => &self.left,
            PlacementUsage::Empty => &self.free,
        };
        columns.get(resource.index()).map_or(&[], Vec::as_slice)
    }

    /// Leaves of which less than nothing is left, by resource.
    pub(crate) fn overcommitted(&self) -> impl Iterator<Item = (ResourceId, u32)> + '_ {
        self.left.iter().enumerate().flat_map(|(resource, column)| {
            let short = column.iter().enumerate().filter(|(_, left)| **left < 0);
            short.map(move |(leaf, _)| (ResourceId::from_index(resource), crate::tree::index(leaf)))
        })
    }

    /// The first resource and leaf of which another has more or less left.
    pub(crate) fn difference(&self, other: &Self) -> Option<(ResourceId, u32)> {
        let columns = self.left.len().max(other.left.len());
        (0..columns).map(ResourceId::from_index).find_map(|resource| {
            let (a, b) =
                (self.column(PlacementUsage::Current, resource), other.column(PlacementUsage::Current, resource));
            let at = |column: &[i128], leaf: usize| column.get(leaf).copied().unwrap_or(0);
            let leaf = (0..a.len().max(b.len())).find(|&leaf| at(a, leaf) != at(b, leaf))?;
            Some((resource, crate::tree::index(leaf)))
        })
    }

    /// How many times a request fits on a leaf, and the position of the resource that is short. A request for nothing fits no
    /// times.
    // [quirk] As Kueue does.
    pub(crate) fn count_in(
        &self,
        usage: PlacementUsage,
        request: &[(ResourceId, i64)],
        leaf: u32,
    ) -> (i32, Option<usize>) {
        let amounts = request
            .iter()
            .map(|&(resource, amount)| (self.column(usage, resource).get(leaf as usize).copied().unwrap_or(0), amount));
        how_many(amounts)
    }
}

fn add(columns: &mut Vec<Vec<i128>>, resource: usize, leaf: u32, amount: i128, leaves: usize) -> Option<i128> {
    if columns.len() <= resource {
        columns.resize(resource.saturating_add(1), Vec::new());
    }
    let column = columns.get_mut(resource)?;
    if column.is_empty() {
        column.resize(leaves, 0);
    }
    let cell = column.get_mut(leaf as usize)?;
    let before = *cell;
    *cell = before.saturating_add(amount);
    Some(before)
}

/// The nearest number that is not so wide.
pub(crate) fn narrow(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

/// How many times an amount fits. An amount of 0 always fits; nothing fits into less than nothing.
pub(crate) fn fit(capacity: i128, amount: i64) -> i32 {
    let capacity = narrow(capacity);
    match amount {
        0 => i32::MAX,
        1 => i32::try_from(capacity.max(0)).unwrap_or(i32::MAX),
        _ if amount > 0 && capacity < amount => 0,
        _ => i32::try_from(capacity.checked_div(amount).unwrap_or(i64::MAX).max(0)).unwrap_or(i32::MAX),
    }
}

/// How many times all of the (capacity, amount) fit together, and which is short: the first of several.
pub(crate) fn how_many(amounts: impl Iterator<Item = (i128, i64)>) -> (i32, Option<usize>) {
    let mut least = (0, None);
    for (position, (capacity, amount)) in amounts.enumerate() {
        let count = fit(capacity, amount);
        if least.1.is_none() || count < least.0 {
            least = (count, Some(position));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counting_agrees_with_requests(
            amounts in prop::collection::btree_map("[a-d]", (-3..4_i64, -9..30_i64), 0..4),
        ) {
            let request: Requests = amounts.iter().map(|(name, &(amount, _))| (name.as_str(), amount)).collect();
            let capacity: Requests = amounts.iter().map(|(name, &(_, capacity))| (name.as_str(), capacity)).collect();
            let want = request.count_in(&capacity);
            let (count, limiting) = how_many(amounts.values().map(|&(amount, capacity)| (capacity.into(), amount)));
            let limiting = limiting.and_then(|i| amounts.keys().nth(i)).map(String::as_str);
            prop_assert_eq!((count, limiting), (want.count, want.limiting));
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
        assert_eq!(fit(most, 1), i32::MAX);
        assert_eq!(fit(least, -1), i32::MAX);
        assert_eq!(fit(least, 1), 0);
        assert_eq!(fit(most, i64::MAX), 1);
        assert_eq!((fit(i128::MAX, 1), fit(i128::MIN, 1)), (i32::MAX, 0));
    }
}
