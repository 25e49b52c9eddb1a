//! Replacing a node that failed.

use std::ops::Range;

use slicegate_workload::TopologyAssignment;

use crate::group::{Placed, assignment, joined};
use crate::request::Plan;
use crate::{Failure, PlacementUsage, PodSetRequest, Replacement, Topologies, Tree};

impl Topologies {
    /// Moves the pods of the failed node, for each member of a group alone.
    pub(crate) fn replace_nodes(
        &mut self,
        position: usize,
        requests: &[PodSetRequest<'_>],
        group: &[usize],
        usage: PlacementUsage,
    ) -> Vec<(usize, Result<Placed, Failure>)> {
        let mark = self.mark();
        let mut results = Vec::new();
        for &i in group {
            let Some(request) = requests.get(i) else { continue };
            let Some(replacement) = request.replacement else { continue };
            let result = self.replace_node(position, request, replacement, usage);
            if let Ok(placed) = &result {
                self.assume(position, &placed.added, request.pod_request, usage);
            }
            let failed = result.is_err();
            results.push((i, result));
            if failed {
                break;
            }
        }
        self.rollback(mark);
        results
    }

    fn replace_node(
        &mut self,
        position: usize,
        request: &PodSetRequest<'_>,
        replacement: Replacement<'_>,
        usage: PlacementUsage,
    ) -> Result<Placed, Failure> {
        let Replacement { node, existing, keep } = replacement;
        if keep {
            return Ok(Placed { whole: existing.clone(), added: TopologyAssignment::default() });
        }
        let Some(entry) = self.entries.get(position) else { return Err(Failure::NoTopology) };
        let tree = &entry.tree;
        let mut remaining = existing.clone();
        let mut moved = 0_i32;
        remaining.domains.retain(|domain| {
            let failed = domain.values.last().is_some_and(|host| **host == *node);
            if failed {
                moved = moved.saturating_add(domain.count);
            }
            !failed
        });
        if let Some(stale) = tree.stale_domain(&remaining) {
            return Err(Failure::StaleAssignment(stale.first().cloned().unwrap_or_default()));
        }
        let mut plan = self.plan(position, request)?;
        let broken = !plan.layers.is_empty() && moved.checked_rem(plan.slice_size) != Some(0);
        let within = required_domain(tree, &plan, &remaining, moved, broken);
        if broken && within.is_some() {
            // Only the innermost layer that the pods fill is kept; with three layers the middle one may break. [quirk]
            let whole = plan.layers.iter().rev().find(|(_, size)| moved.checked_rem(*size) == Some(0)).copied();
            plan = plan.with_slices(whole, tree.lowest());
        }
        let found = self.find(position, request, moved, None, &plan, within, usage)?;
        let tree = &self.entries[position].tree;
        let added = assignment(tree, &found.workers);
        if added.domains.is_empty() {
            return Err(Failure::NoReplacement(node.into()));
        }
        Ok(Placed { whole: joined(tree, &remaining, &found.workers), added })
    }
}

/// The leaves that the moved pods must stay in; `None` if any will do.
///
/// Pods of a slice that is no longer whole go where the rest of it is: to the domain of the innermost layer that they do not fill
/// by themselves, in which they make slices whole again. Otherwise pods that require one domain go to where the others are.
fn required_domain(
    tree: &Tree,
    plan: &Plan,
    remaining: &TopologyAssignment,
    moved: i32,
    broken: bool,
) -> Option<Range<u32>> {
    let lowest = tree.lowest();
    let leaf = |values: &[Box<str>]| tree.find_leaf(values).map(|l| tree.leaf_domain(l));
    let first = remaining.domains.first().and_then(|d| leaf(&d.values))?;
    let leaves = |domain: u32, level: usize| {
        let below = tree.below(domain..domain.saturating_add(1), lowest.saturating_sub(level));
        tree.leaf_of(below.start)..tree.leaf_of(below.end)
    };
    if broken {
        let (level, size) = plan.layers.iter().rev().find(|(_, size)| moved.checked_rem(*size) != Some(0)).copied()?;
        let mut domains: Vec<(u32, i32)> = remaining
            .domains
            .iter()
            .filter_map(|d| Some((tree.ancestor(leaf(&d.values)?, lowest, level), d.count)))
            .collect();
        domains.sort_unstable();
        let incomplete = domains.chunk_by(|a, b| a.0 == b.0).find(|same| {
            let pods = same.iter().fold(moved, |sum, (_, count)| sum.saturating_add(*count));
            pods.checked_rem(size) == Some(0)
        });
        if let Some((domain, _)) = incomplete.and_then(<[_]>::first) {
            return Some(leaves(*domain, level));
        }
    }
    plan.required.then(|| leaves(tree.ancestor(first, lowest, plan.level), plan.level))
}
