//! What admins configure: flavors, ClusterQueues, Cohorts, LocalQueues, topologies.

use std::collections::BTreeMap;

use slicegate_quota::{Amount, Limits, Names, NodeQuota, Quantity, Weight};

use crate::{LabelSelector, Taint, Toleration};

/// The order in which a ClusterQueue is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueingStrategy {
    /// Workloads behind one that does not fit may go first.
    #[default]
    BestEffortFifo,
    /// They may not.
    StrictFifo,
}

/// Whether a queue is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopPolicy {
    /// It is not.
    #[default]
    None,
    /// Nothing new is admitted.
    Hold,
    /// Nothing new is admitted and what runs is evicted.
    HoldAndDrain,
}

/// What to do on meeting a flavor that fits only by borrowing or preempting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FungibilityPolicy {
    /// Take it.
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
}

/// Which of two flavors is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FungibilityPreference {
    /// One that needs no preemption.
    #[default]
    BorrowingOverPreemption,
    /// One that needs no borrowing.
    PreemptionOverBorrowing,
}

/// How a flavor is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlavorFungibility {
    /// On borrowing.
    pub when_can_borrow: FungibilityPolicy,
    /// On preempting.
    pub when_can_preempt: FungibilityPolicy,
    /// Between the two.
    pub preference: FungibilityPreference,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FungibilityPolicy::MayStopSearch,
            when_can_preempt: FungibilityPolicy::TryNextFlavor,
            preference: FungibilityPreference::default(),
        }
    }
}

/// Whom a workload may preempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReclaimPolicy {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of any priority.
    Any,
}

/// Whom a workload may preempt in its own ClusterQueue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WithinClusterQueuePolicy {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Those, and newer ones of the same priority.
    LowerOrNewerEqualPriority,
}

/// Preemption by a workload that borrows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BorrowWithinCohort {
    /// Whether workloads of lower priority may be preempted (`LowerPriority`) or none (`false`).
    pub lower_priority: bool,
    /// The highest priority that may be.
    pub max_priority_threshold: Option<i32>,
}

/// When a ClusterQueue's workloads preempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PreemptionPolicy {
    /// In other ClusterQueues of the cohort.
    pub reclaim_within_cohort: ReclaimPolicy,
    /// In its own.
    pub within_cluster_queue: WithinClusterQueuePolicy,
    /// While borrowing.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

/// The quota of one resource in one flavor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResourceQuota {
    /// The queue's own.
    pub nominal: Quantity,
    /// What it may borrow.
    pub borrowing_limit: Option<Quantity>,
    /// What it lends.
    pub lending_limit: Option<Quantity>,
}

/// The quotas of one flavor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlavorQuotas {
    /// The flavor.
    pub name: Box<str>,
    /// Quotas by resource, in the order of the group's covered resources.
    pub resources: Vec<(Box<str>, ResourceQuota)>,
}

/// Resources that always come from the same flavor, and the flavors to try, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceGroup {
    /// The resources.
    pub covered_resources: Vec<Box<str>>,
    /// The flavors.
    pub flavors: Vec<FlavorQuotas>,
}

/// An admission check of a ClusterQueue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdmissionCheckRule {
    /// The check.
    pub name: Box<str>,
    /// The flavors it is for; empty for all.
    pub on_flavors: Vec<Box<str>>,
}

/// A ClusterQueue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterQueueSpec {
    /// Its name.
    pub name: Box<str>,
    /// Its quotas.
    pub resource_groups: Vec<ResourceGroup>,
    /// The Cohort it belongs to.
    pub cohort: Option<Box<str>>,
    /// The order in which it is served.
    pub queueing_strategy: QueueingStrategy,
    /// The namespaces it serves; `None` for none.
    pub namespace_selector: Option<LabelSelector>,
    /// How flavors are chosen.
    pub flavor_fungibility: FlavorFungibility,
    /// When its workloads preempt.
    pub preemption: PreemptionPolicy,
    /// Checks that its workloads must pass.
    pub admission_checks: Vec<AdmissionCheckRule>,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Its weight for fair sharing.
    pub fair_weight: Weight,
    /// Whether LocalQueues that used less go first.
    pub usage_based_fair_sharing: bool,
    /// The last flavor a running workload may be kept on while better ones are tried (concurrent admission); `None`: off.
    pub concurrent_admission: Option<Option<Box<str>>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What is wrong with it, where nobody refused it: it admits nothing then.
    pub invalid: Option<Box<str>>,
    /// The generation of the spec.
    pub generation: i64,
}

/// A Cohort.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CohortSpec {
    /// Its name.
    pub name: Box<str>,
    /// The Cohort above.
    pub parent: Option<Box<str>>,
    /// Quotas of its own.
    pub resource_groups: Vec<ResourceGroup>,
    /// Its weight for fair sharing.
    pub fair_weight: Weight,
}

/// A LocalQueue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalQueueSpec {
    /// Namespace and name.
    pub key: crate::Key,
    /// The ClusterQueue it leads to.
    pub cluster_queue: Box<str>,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Its weight for admission fair sharing.
    pub fair_weight: Weight,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A ResourceFlavor: a kind of capacity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlavorSpec {
    /// Its name.
    pub name: Box<str>,
    /// Labels of its nodes.
    pub node_labels: BTreeMap<Box<str>, Box<str>>,
    /// Taints of its nodes.
    pub node_taints: Vec<Taint>,
    /// Tolerations that its pods are given.
    pub tolerations: Vec<Toleration>,
    /// The Topology of its nodes.
    pub topology: Option<Box<str>>,
    /// Whether TPU workloads are admitted to it only when whole slices are free or can be provisioned. Kueue has no such
    /// thing: it counts chips.
    pub whole_slices: bool,
}

/// A Topology: node labels, coarsest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopologySpec {
    /// Its name.
    pub name: Box<str>,
    /// Its levels.
    pub levels: Vec<Box<str>>,
}

/// When fair sharing may preempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FairSharingStrategy {
    /// If the preemptor's share afterwards is not above the victim's share afterwards.
    LessThanOrEqualToFinalShare,
    /// If the preemptor's share afterwards is below the victim's share before.
    LessThanInitialShare,
}

fn node_quota(groups: &[ResourceGroup], parent: Option<&str>, weight: Weight, names: &mut Names) -> NodeQuota {
    let mut limits = BTreeMap::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        for (resource, quota) in &flavor.resources {
            let amount = |quantity| Amount::from_quantity(resource, quantity);
            let pair = names.intern(&flavor.name, resource);
            limits.insert(
                pair,
                Limits {
                    nominal: amount(quota.nominal),
                    borrowing: quota.borrowing_limit.map(amount),
                    lending: quota.lending_limit.map(amount),
                },
            );
        }
    }
    NodeQuota { parent: parent.map(Into::into), limits, weight }
}

impl ClusterQueueSpec {
    /// The queue as a node of the quota forest.
    pub fn node_quota(&self, names: &mut Names) -> NodeQuota {
        node_quota(&self.resource_groups, self.cohort.as_deref(), self.fair_weight, names)
    }
}

impl CohortSpec {
    /// The cohort as a node of the quota forest.
    pub fn node_quota(&self, names: &mut Names) -> NodeQuota {
        node_quota(&self.resource_groups, self.parent.as_deref(), self.fair_weight, names)
    }
}
