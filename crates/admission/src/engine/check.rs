//! The invariants, as code.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_placement::Reach;
use slicegate_quota::{Amount, FlavorId, FlavorResourceId, Forest, NodeId, NodeKind, ResourceId};

use super::Engine;
use super::Violation;
use super::ids::{LocalQueueId, WorkloadId};
use super::queue::Place;
use super::tally::Tally;

impl Engine {
    /// Checks every invariant: that usage is the sum of what workloads hold, that Cohorts follow from their members, that no
    /// workload is in two places, that the queues are in order, and that every host is in one slice at most. For tests: it looks at everything.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_holders()?;
        self.check_usage()?;
        self.check_places()?;
        self.check_queues()?;
        self.check_members()?;
        self.check_slices()
    }

    fn check_slices(&self) -> Result<(), Violation> {
        let holdings = self.state.records.iter().filter_map(|(_, r)| r.holding.as_deref());
        let held: Vec<_> = holdings.flat_map(|h| &h.slices).copied().collect();
        self.state.inventory.check(&held).map_err(Violation)
    }

    /// Where more is used than quota and limits allow, by ClusterQueue, flavor and resource. An admission never adds to it; a
    /// cut of quota may.
    pub fn overcommitted(&self) -> Vec<(Box<str>, Box<str>, Box<str>)> {
        let forest = &self.state.forest;
        let mut all = Vec::new();
        for node in forest.nodes().filter(|&n| forest.kind(n) == NodeKind::ClusterQueue && !forest.is_cyclic(n)) {
            for pair in forest.pairs(node) {
                if forest.available_limit(node, pair).amount < Amount::ZERO {
                    let (flavor, resource) = self.state.names.flavor_resource(pair);
                    let names = &self.state.names;
                    all.push((
                        forest.name(node).into(),
                        names.flavor_name(flavor).into(),
                        names.resource_name(resource).into(),
                    ));
                }
            }
        }
        all
    }

    fn check_holders(&self) -> Result<(), Violation> {
        for (id, record) in self.state.records.iter() {
            let Some(holding) = &record.holding else { continue };
            let queue = self.state.queue(holding.node);
            let listed = queue.and_then(|q| q.holders.get(holding.position as usize)).map(|w| w.index());
            if listed != Some(id.index()) {
                return violation(format!("{} holds quota, but its ClusterQueue does not list it there", record.key));
            }
            if self.places.get(id) != Place::Nowhere {
                return violation(format!("{} holds quota and is queued", record.key));
            }
        }
        for (index, queue) in self.state.queues.iter().enumerate() {
            let Some(queue) = queue else { continue };
            let node = NodeId::from_index(index);
            let holdings: Vec<_> = queue
                .holders
                .iter()
                .filter_map(|w| self.state.records.get(WorkloadId::from_index(w.index()))?.holding.as_deref())
                .filter(|h| h.node == node)
                .collect();
            if holdings.len() != queue.holders.len() {
                return violation(format!("ClusterQueue {} lists workloads that hold nothing there", queue.spec.name));
            }
            let not_ready = holdings.iter().filter(|h| !h.pods_ready).count();
            let mut tally = Tally::default();
            for holding in &holdings {
                tally.add(holding);
            }
            if not_ready != queue.not_ready || tally != queue.tally {
                return violation(format!("counts of ClusterQueue {} are wrong", queue.spec.name));
            }
        }
        for (index, queue) in self.state.local_queues.iter().enumerate() {
            let mut tallies: BTreeMap<NodeId, Tally> = BTreeMap::new();
            let records = queue.members.iter().filter_map(|&m| self.state.records.get(m));
            for holding in records.filter_map(|r| r.holding.as_deref()) {
                tallies.entry(holding.node).or_default().add(holding);
            }
            let of_queue = |id: WorkloadId| self.state.records.get(id).is_some_and(|r| r.queue.index() == index);
            let id = LocalQueueId::from_index(index);
            let counted = queue.target.and_then(|n| self.pending_queue(n)).map_or(0, |p| p.count_of(id, of_queue));
            let waiting = queue.members.iter().filter(|&&m| self.places.get(m) != Place::Nowhere).count();
            if tallies != queue.tallies || counted != waiting {
                return violation(format!("counts of LocalQueue {} are wrong", queue.key));
            }
        }
        Ok(())
    }

    fn check_usage(&self) -> Result<(), Violation> {
        let forest = &self.state.forest;
        for node in forest.nodes() {
            if forest.is_cyclic(node) {
                continue;
            }
            for &pair in forest.tree_pairs(node) {
                let expected = match forest.kind(node) {
                    NodeKind::ClusterQueue => self.state.held_in(node, pair),
                    NodeKind::Cohort => passed_up(forest, node, pair),
                };
                let usage = forest.usage(node, pair);
                if usage != expected {
                    let (flavor, resource) = self.state.names.flavor_resource(pair);
                    return violation(format!(
                        "{} uses {usage} of {} in {}, but its members use {expected}",
                        forest.name(node),
                        self.state.names.resource_name(resource),
                        self.state.names.flavor_name(flavor),
                    ));
                }
            }
        }
        Ok(())
    }

    /// What is left of nodes is what is allocatable less what other pods and workloads use, and what a workload holds is what its
    /// admission says.
    fn check_places(&self) -> Result<(), Violation> {
        let topologies = &self.state.topologies;
        if topologies.is_empty() {
            return Ok(());
        }
        let mut anew = topologies.clone();
        anew.clear_usage();
        for (_, record) in self.state.records.iter() {
            let Some(holding) = &record.holding else { continue };
            let given = record.status.rest().admission.iter().flat_map(|a| &a.pod_set_assignments);
            let given: BTreeSet<_> = given.filter_map(|p| p.topology_assignment.as_ref()).collect();
            if holding.places.iter().any(|held| !given.contains(&held.assignment)) {
                return violation(format!("{} holds places that its admission does not name", record.key));
            }
            for held in &holding.places {
                anew.add(&anew.usage(held.flavor, &held.assignment, &held.request), Reach::Node);
            }
        }
        if let Some((flavor, leaf, resource)) = topologies.difference(&anew) {
            let names = &self.state.names;
            return violation(format!(
                "{} of node {} in flavor {} is not counted as workloads use it",
                names.resource_name(resource),
                leaf.join("/"),
                names.flavor_name(flavor),
            ));
        }
        Ok(())
    }

    /// Where nodes hold more pods than they take: flavor, node (or other domain of the lowest level) and resource. An admission
    /// never adds to it; nodes that shrink and other pods may.
    pub fn overcommitted_nodes(&mut self) -> Vec<(Box<str>, Box<str>, Box<str>)> {
        self.settle_topologies();
        let names = &self.state.names;
        let told = |(flavor, leaf, resource): (FlavorId, Vec<Box<str>>, ResourceId)| {
            (names.flavor_name(flavor).into(), leaf.join("/").into(), names.resource_name(resource).into())
        };
        self.state.topologies.overcommitted().into_iter().map(told).collect()
    }

    fn check_queues(&self) -> Result<(), Violation> {
        let mut queued = 0;
        for (index, queue) in self.pending.iter().enumerate() {
            let Some(queue) = queue else { continue };
            let node = NodeId::from_index(index);
            if let Err(fault) = queue.check(&self.places, &self.service_order(node)) {
                return violation(format!("queue of {}: {fault}", self.state.forest.name(node)));
            }
            for id in queue.active().chain(queue.parked()) {
                queued += 1;
                let Some(record) = self.state.records.get(id) else {
                    return violation(format!(
                        "queue of {} holds a workload that is gone",
                        self.state.forest.name(node)
                    ));
                };
                if !record.admissible {
                    return violation(format!("{} is queued although it may not be admitted", record.key));
                }
                if self.state.local_queue(record.queue).and_then(|q| q.target) != Some(node) {
                    return violation(format!("{} is queued where its LocalQueue does not lead", record.key));
                }
            }
        }
        let placed = self.state.records.iter().filter(|(id, _)| self.places.get(*id) != Place::Nowhere).count();
        if placed != queued {
            return violation(format!("{placed} workloads have a place in a queue, but queues hold {queued}"));
        }
        Ok(())
    }

    fn check_members(&self) -> Result<(), Violation> {
        let mut members = 0;
        for (index, queue) in self.state.local_queues.iter().enumerate() {
            for (position, &id) in queue.members.iter().enumerate() {
                members += 1;
                let fits = self.state.records.get(id).is_some_and(|r| {
                    r.queue == LocalQueueId::from_index(index) && r.queue_position as usize == position
                });
                if !fits {
                    return violation(format!("LocalQueue {} lists a workload of another", queue.key));
                }
            }
        }
        if members != self.state.records.len() {
            return violation(format!("LocalQueues list {members} of {} workloads", self.state.records.len()));
        }
        Ok(())
    }
}

/// What the members of a Cohort use beyond what they keep for themselves.
fn passed_up(forest: &Forest, cohort: NodeId, pair: FlavorResourceId) -> Amount {
    forest
        .nodes()
        .filter(|&n| forest.parent(n) == Some(cohort))
        .map(|n| {
            let kept = match forest.limits(n, pair).lending {
                Some(lending) => forest.subtree_quota(n, pair).minus(lending).or_zero(),
                None => Amount::ZERO,
            };
            forest.usage(n, pair).minus(kept).or_zero()
        })
        .fold(Amount::ZERO, Amount::plus)
}

fn violation(text: String) -> Result<(), Violation> {
    Err(Violation(text))
}
