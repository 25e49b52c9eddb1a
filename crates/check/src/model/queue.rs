//! ClusterQueues, flavors, and how much can be had at most.

use slicegate_api::{convert, kueue};
use slicegate_flavor::{Eligibility, FlavorTable, Verdict};
use slicegate_manifest::Document;
use slicegate_quota::{FlavorId, Forest, Names};
use slicegate_tpu::{SliceShape, label};
use slicegate_workload::{ClusterQueueSpec, FlavorSpec, PodSpec};

use super::Doc;

/// Quotas from here on are meant to be no limit. The largest pods have fewer than 10,000 chips, the largest clusters 65,000
/// nodes.
const ENDLESS: i64 = 100_000;

/// Whether a number of chips is meant to be no limit: larger than there are, or one such as 9999 or 10000 that people write
/// for it.
pub(crate) fn is_endless(chips: i64) -> bool {
    let digits = chips.to_string();
    let made_up = digits.trim_end_matches('9').is_empty() || digits.trim_end_matches('0') == "1";
    chips >= ENDLESS || chips >= 9_999 && made_up
}

/// A ClusterQueue.
pub(crate) struct Queue<'a> {
    pub(crate) document: &'a Document,
    pub(crate) object: &'a kueue::ClusterQueue,
    /// The same in plain types; empty if it cannot be converted.
    pub(crate) spec: ClusterQueueSpec,
    /// Its jobs, as indices.
    pub(crate) jobs: Vec<usize>,
    /// How many LocalQueues lead to it.
    pub(crate) local_queues: usize,
    /// Whether there are several of its name, so that its quotas change.
    pub(crate) redefined: bool,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(document: &'a Document, object: &'a kueue::ClusterQueue) -> Self {
        let spec = convert::cluster_queue(object).unwrap_or_default();
        Self { document, object, spec, jobs: Vec::new(), local_queues: 0, redefined: false }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'a str {
        super::name(&self.object.metadata)
    }

    /// Its Cohort, if it is in one.
    pub(crate) fn cohort(&self) -> Option<&str> {
        self.spec.cohort.as_deref()
    }

    /// The resource group that covers a resource, with its index.
    pub(crate) fn group_of(&self, resource: &str) -> Option<(usize, &slicegate_workload::ResourceGroup)> {
        self.spec.resource_groups.iter().enumerate().find(|(_, g)| g.covered_resources.iter().any(|r| **r == *resource))
    }

    /// Every quota: the indices of group, flavor and resource, the flavor, the resource and the quota.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = (String, &str, &str, &slicegate_workload::ResourceQuota)> {
        self.spec.resource_groups.iter().enumerate().flat_map(|(g, group)| {
            group.flavors.iter().enumerate().flat_map(move |(f, flavor)| {
                flavor.resources.iter().enumerate().map(move |(r, (resource, quota))| {
                    let path = format!("spec.resourceGroups[{g}].flavors[{f}].resources[{r}]");
                    (path, &*flavor.name, &**resource, quota)
                })
            })
        })
    }

    /// Whether an admission check of the queue is for a flavor.
    pub(crate) fn checks_of<'q>(&'q self, flavor: &'q str) -> impl Iterator<Item = &'q str> {
        let for_it = move |rule: &&slicegate_workload::AdmissionCheckRule| {
            rule.on_flavors.is_empty() || rule.on_flavors.iter().any(|f| **f == *flavor)
        };
        self.spec.admission_checks.iter().filter(for_it).map(|rule| &*rule.name)
    }
}

/// A ResourceFlavor.
pub(crate) struct Flavor<'a> {
    pub(crate) document: &'a Document,
    pub(crate) object: &'a kueue::ResourceFlavor,
    /// The same in plain types.
    pub(crate) spec: FlavorSpec,
    table: FlavorTable,
}

impl<'a> Flavor<'a> {
    pub(crate) fn new(document: &'a Document, object: &'a kueue::ResourceFlavor) -> Self {
        let spec = convert::flavor(object).unwrap_or_default();
        let mut table = FlavorTable::new();
        table.set(FlavorId::from_index(0), spec.clone());
        Self { document, object, spec, table }
    }

    /// Whether pods can be given the flavor, quota aside.
    pub(crate) fn suits(&self, pod: &PodSpec) -> Verdict {
        Eligibility::new(pod, &self.table).verdict(FlavorId::from_index(0)).clone()
    }

    /// A label of its nodes.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.spec.node_labels.get(key).map(|v| &**v)
    }

    /// The slices that its labels speak of; several if machine types are left open.
    pub(crate) fn shapes(&self) -> Vec<SliceShape> {
        let (Some(accelerator), Some(topology)) = (self.label(label::ACCELERATOR), self.label(label::TOPOLOGY)) else {
            return Vec::new();
        };
        let accelerator = accelerator.parse::<slicegate_tpu::Accelerator>();
        let topology = accelerator.as_ref().ok().and_then(|a| a.parse_topology(topology).ok());
        let (Ok(accelerator), Some(topology)) = (accelerator, topology) else { return Vec::new() };
        SliceShape::candidates(accelerator, topology).collect()
    }
}

/// How much each ClusterQueue could have if nothing ran.
#[derive(Default)]
pub(crate) struct Potential {
    forest: Forest,
    names: Names,
}

impl Potential {
    pub(crate) fn new(queues: &[Queue<'_>], cohorts: &[Doc<'_, kueue::Cohort>]) -> Self {
        let mut names = Names::new();
        let mut forest = Forest::new();
        forest.configure(|forest| {
            for queue in queues.iter().filter(|q| !q.spec.name.is_empty()) {
                forest.set_cluster_queue(&queue.spec.name, queue.spec.node_quota(&mut names));
            }
            for cohort in cohorts.iter().filter_map(|c| convert::cohort(c.object).ok()) {
                forest.set_cohort(&cohort.name, cohort.node_quota(&mut names));
            }
        });
        Self { forest, names }
    }

    /// What a ClusterQueue could have of a resource in a flavor, in the unit of requests; `None` if that is not limited.
    pub(crate) fn of(&self, queue: &str, flavor: &str, resource: &str) -> Option<i64> {
        let (id, pair) = self.find(queue, flavor, resource)?;
        let amount = self.forest.potential(id, pair);
        (!amount.is_unlimited()).then(|| amount.value())
    }

    /// All quota of a resource in a flavor in the tree of a ClusterQueue.
    pub(crate) fn of_tree(&self, queue: &str, flavor: &str, resource: &str) -> Option<i64> {
        let (id, pair) = self.find(queue, flavor, resource)?;
        let amount = self.forest.subtree_quota(self.forest.root(id), pair);
        (!amount.is_unlimited()).then(|| amount.value())
    }

    /// Whether a Cohort is part of a cycle or below one.
    pub(crate) fn is_cyclic(&self, cohort: &str) -> bool {
        self.forest.cohort(cohort).is_some_and(|id| self.forest.is_cyclic(id))
    }

    fn find(
        &self,
        queue: &str,
        flavor: &str,
        resource: &str,
    ) -> Option<(slicegate_quota::NodeId, slicegate_quota::FlavorResourceId)> {
        let id = self.forest.cluster_queue(queue)?;
        let pair = self.names.pair(self.names.flavor(flavor)?, self.names.resource(resource)?)?;
        Some((id, pair))
    }
}

#[cfg(test)]
mod tests {
    use super::is_endless;

    #[test]
    fn made_up_numbers_of_chips_are_no_limit() {
        for chips in [9_999, 10_000, 99_999, 100_000, 123_456, 1_000_000_000] {
            assert!(is_endless(chips), "{chips}");
        }
        for chips in [-1, 0, 9, 10, 999, 1_000, 8_960, 9_216, 10_240, 10_009, 19_999, 90_000, 99_996] {
            assert!(!is_endless(chips), "{chips}");
        }
    }
}
