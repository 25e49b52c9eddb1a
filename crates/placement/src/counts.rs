//! Phase one: how many pods and slices fit in each domain.

use std::ops::Range;

use slicegate_quota::ResourceId;

use crate::capacity::{Capacity, fit};
use crate::leaves::Filter;
use crate::request::Plan;
use crate::{Exclusions, PlacementUsage, PodRequest, Tree};

/// How much fits in a domain, and later how much of that is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Pods.
    pub pods: i32,
    /// Pods beside a leader.
    pub pods_with_leader: i32,
    /// Slices; 0 in domains below the level of slices.
    pub slices: i32,
    /// Slices beside a leader.
    pub slices_with_leader: i32,
    /// Leaders, 0 or 1.
    pub leaders: i32,
    /// The sum of the weights of node preferences met.
    pub affinity: i64,
}

/// A request with the columns it is compared to.
struct Columns<'a>(Vec<(&'a [i128], i64)>);

impl<'a> Columns<'a> {
    fn new(capacity: &'a Capacity, usage: PlacementUsage, request: &[(ResourceId, i64)]) -> Self {
        Self(request.iter().map(|&(resource, amount)| (capacity.column(usage, resource), amount)).collect())
    }

    fn how_many(&self, leaf: usize) -> (i32, usize) {
        let mut least = (i32::MAX, 0);
        for (position, &(column, amount)) in self.0.iter().enumerate() {
            let count = fit(column.get(leaf).copied().unwrap_or(0), amount);
            if count < least.0 {
                least = (count, position);
            }
        }
        least
    }
}

/// How often a request fits after others have taken their part.
fn how_many_after(leaf: usize, request: &Columns<'_>, ids: &[(ResourceId, i64)], taken: &[(ResourceId, i64)]) -> i32 {
    let amounts = request.0.iter().zip(ids).map(|(&(column, amount), (resource, _))| {
        let taken = taken.iter().find(|(r, _)| r == resource).map_or(0, |&(_, amount)| amount);
        fit(column.get(leaf).copied().unwrap_or(0).saturating_sub(taken.into()), amount)
    });
    amounts.min().unwrap_or(0)
}

/// What phase one looks at.
pub(crate) struct Question<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) capacity: &'a Capacity,
    pub(crate) usage: PlacementUsage,
    pub(crate) plan: &'a Plan,
    pub(crate) workers: &'a PodRequest,
    pub(crate) leader: Option<&'a PodRequest>,
    /// `None` if every leaf will do: leaves that are not single nodes are not filtered.
    pub(crate) filter: Option<&'a Filter<'a>>,
    /// The leaves that a replacement must stay in.
    pub(crate) within: Option<Range<u32>>,
}

/// Fills the counts of all domains.
pub(crate) fn fill(question: &Question<'_>, counts: &mut Vec<Counts>) -> Exclusions {
    let Question { tree, capacity, usage, plan, workers, leader, filter, within } = question;
    counts.clear();
    counts.resize(tree.domain_count(), Counts::default());
    let mut excluded = Exclusions { nodes: tree.leaf_count(), ..Exclusions::default() };
    let mut short = vec![0_usize; workers.with_pod.len()];
    let of_workers = Columns::new(capacity, *usage, &workers.with_pod);
    let of_leader = leader.map(|l| (Columns::new(capacity, *usage, &l.with_pod), &l.with_pod));
    let slices_are_leaves = plan.slice_level == tree.lowest();
    let leaves = counts.get_mut(tree.leaf_offset()..).unwrap_or_default();
    for (leaf, counts) in leaves.iter_mut().enumerate() {
        if let Some(filter) = filter {
            if !filter.accepts(leaf, &mut excluded) {
                continue;
            }
            counts.affinity = filter.score(leaf);
        }
        if within.as_ref().is_some_and(|w| !(w.start as usize..w.end as usize).contains(&leaf)) {
            excluded.topology_domain = excluded.topology_domain.saturating_add(1);
            counts.affinity = 0;
            continue;
        }
        let (pods, position) = of_workers.how_many(leaf);
        if pods == 0
            && let Some(n) = short.get_mut(position)
        {
            *n = n.saturating_add(1);
        }
        (counts.pods, counts.pods_with_leader) = (pods, pods);
        if let Some((columns, request)) = &of_leader
            && columns.how_many(leaf).0 > 0
        {
            counts.leaders = 1;
            counts.pods_with_leader = how_many_after(leaf, &of_workers, &workers.with_pod, request);
        }
        if slices_are_leaves {
            counts.slices = plan.slices(counts.pods);
            counts.slices_with_leader = plan.slices(counts.pods_with_leader);
        }
    }
    let named = short.into_iter().zip(&workers.names).filter(|(n, _)| *n > 0);
    excluded.resources = named.map(|(n, name)| (name.clone(), n)).collect();
    for level in (0..tree.lowest()).rev() {
        for domain in tree.level_range(level) {
            counts[domain as usize] = sum_up(tree, plan, counts, domain, level, leader.is_some());
        }
    }
    excluded
}

/// The counts of a domain above the leaves, from those of its children.
///
/// A leader costs as much as it does in the child where it costs least. Pods of slices within slices count only in whole ones.
pub(crate) fn sum_up(
    tree: &Tree,
    plan: &Plan,
    counts: &[Counts],
    domain: u32,
    level: usize,
    leader_requested: bool,
) -> Counts {
    let size = plan.inner_size(level.saturating_add(1)).max(1);
    let whole = |pods: i32| pods.saturating_sub(pods.checked_rem(size).unwrap_or(0));
    let mut sum = Counts::default();
    // The least that a leader costs, in pods and in slices.
    let mut cost: Option<(i32, i32)> = None;
    for child in tree.children(domain) {
        let Some(child) = counts.get(child as usize) else { continue };
        let pods = whole(child.pods);
        sum.pods = sum.pods.saturating_add(pods);
        sum.slices = sum.slices.saturating_add(child.slices);
        sum.leaders = sum.leaders.max(child.leaders);
        sum.affinity = sum.affinity.saturating_add(child.affinity);
        if !leader_requested || child.leaders > 0 {
            let (of_pods, of_slices) = cost.unwrap_or((i32::MAX, i32::MAX));
            cost = Some((
                of_pods.min(pods.saturating_sub(whole(child.pods_with_leader))),
                of_slices.min(child.slices.saturating_sub(child.slices_with_leader)),
            ));
        }
    }
    if let Some((pods, slices)) = cost {
        sum.pods_with_leader = sum.pods.saturating_sub(pods);
        sum.slices_with_leader = sum.slices.saturating_sub(slices);
    }
    if level == plan.slice_level {
        sum.slices = plan.slices(sum.pods);
        sum.slices_with_leader = plan.slices(sum.pods_with_leader);
    }
    sum
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{FlavorSpec, TopologySpec};

    use super::*;
    use crate::Node;

    /// A rack with so many hosts.
    fn rack(hosts: usize) -> Tree {
        let levels = ["rack", "host"].map(Into::into).to_vec();
        let labels = |i: usize| [("rack".into(), "r".into()), ("host".into(), format!("h{i}").into())].into();
        let node = |i| Node { name: format!("h{i}").into(), labels: labels(i), ready: true, ..Node::default() };
        let nodes: Vec<Node> = (0..hosts).map(node).collect();
        Tree::new(&FlavorSpec::default(), &TopologySpec { name: "t".into(), levels }, &nodes)
    }

    fn plan(slice_level: usize, slice_size: i32, inner: i32) -> Plan {
        Plan {
            level: 0,
            required: true,
            unconstrained: false,
            slice_level,
            slice_size,
            inner: vec![0, inner],
            layers: vec![(slice_level, slice_size)],
        }
    }

    fn child(pods: i32, beside_leader: i32, leaders: i32) -> Counts {
        Counts { pods, pods_with_leader: beside_leader, leaders, affinity: 1, ..Counts::default() }
    }

    #[test]
    fn pods_count_in_whole_inner_slices_and_slices_in_whole_ones() {
        let counts = [Counts::default(), child(3, 3, 0), child(5, 5, 0)];
        let sum = sum_up(&rack(2), &plan(0, 4, 2), &counts, 0, 0, false);
        assert_eq!((sum.pods, sum.slices, sum.affinity), (6, 1, 2));
        let sum = sum_up(&rack(2), &plan(0, 4, 0), &counts, 0, 0, false);
        assert_eq!((sum.pods, sum.slices, sum.slices_with_leader), (8, 2, 2));
    }

    #[test]
    fn a_leader_costs_what_it_costs_in_the_best_child_that_takes_one() {
        let counts = [Counts::default(), child(5, 3, 1), child(6, 5, 1), child(9, 9, 0)];
        let sum = sum_up(&rack(3), &plan(0, 2, 0), &counts, 0, 0, true);
        assert_eq!((sum.pods, sum.pods_with_leader, sum.leaders), (20, 19, 1));
        assert_eq!((sum.slices, sum.slices_with_leader), (10, 9));
        let none = [Counts::default(), child(5, 5, 0), child(6, 6, 0), child(9, 9, 0)];
        let sum = sum_up(&rack(3), &plan(0, 2, 0), &none, 0, 0, true);
        assert_eq!((sum.pods, sum.pods_with_leader, sum.leaders), (20, 0, 0));
    }

    #[test]
    fn slices_below_their_level_are_added_up() {
        let whole = |slices| Counts { slices, slices_with_leader: slices, ..child(slices * 2 + 1, slices * 2 + 1, 0) };
        let sum = sum_up(&rack(2), &plan(1, 2, 0), &[Counts::default(), whole(1), whole(2)], 0, 0, false);
        assert_eq!((sum.pods, sum.slices), (8, 3), "not the 4 that 8 pods would make");
    }
}
