//! Kueue's metrics of what is true at one moment, asked of the controller.

use std::collections::BTreeMap;

use slicegate_admission::{FlavorUsage, Recomputation};
use slicegate_api::{Kind, Object};
use slicegate_quota::{Amount, Quantity, request_quantity};
use slicegate_workload::Key;

use super::family::{Definition, Snapshot};
use super::kueue::{Kueue, Node};
use super::text::count_to_f64;
use crate::controller::Controller;

const QUEUE: &[&str] = &["cluster_queue", "replica_role"];
const QUEUE_STATUS: &[&str] = &["cluster_queue", "status", "replica_role"];
const RESOURCE: &[&str] = &["cohort", "cluster_queue", "flavor", "resource", "replica_role"];
const COHORT: &[&str] = &["cohort", "replica_role"];
const COHORT_RESOURCE: &[&str] = &["cohort", "flavor", "resource", "replica_role"];
const LOCAL: &[&str] = &["name", "namespace", "replica_role"];
const LOCAL_RESOURCE: &[&str] = &["name", "namespace", "flavor", "resource", "replica_role"];

static ATTEMPTS: Definition = Definition::counter(
    "kueue_admission_attempts_total",
    &["result", "replica_role"],
    "Scheduling cycles, by whether they reserved quota for a workload.",
);
static SKIPS: Definition = Definition::gauge(
    "kueue_admission_cycle_preemption_skips",
    QUEUE,
    "Workloads of the last cycle that had preemption targets but were passed over for others.",
);
static RECOMPUTATIONS: Definition = Definition::counter(
    "kueue_preemption_target_recomputations_total",
    &["cluster_queue", "result", "replica_role"],
    "How often victims were looked for once more because others of the cycle preempted the first ones, by what came of it.",
);
static PENDING: Definition =
    Definition::gauge("kueue_pending_workloads", QUEUE_STATUS, "Workloads that wait in a ClusterQueue.");
static RESERVING: Definition = Definition::gauge(
    "kueue_reserving_active_workloads",
    QUEUE,
    "Workloads that have quota reserved in a ClusterQueue and are not finished.",
);
static ADMITTED: Definition = Definition::gauge(
    "kueue_admitted_active_workloads",
    QUEUE,
    "Workloads that a ClusterQueue has admitted and that are not finished.",
);
static FINISHED: Definition =
    Definition::gauge("kueue_finished_workloads", QUEUE, "Finished workloads of a ClusterQueue that are still there.");
static UNADMITTED: Definition = Definition::gauge(
    "kueue_unadmitted_workloads",
    &["cluster_queue", "reason", "underlying_cause", "replica_role"],
    "Workloads that are not admitted, by the reasons in their conditions Admitted and QuotaReserved.",
);
static STATUS: Definition =
    Definition::gauge("kueue_cluster_queue_status", QUEUE_STATUS, "The status of a ClusterQueue: one is 1.");
static QUEUE_INFO: Definition = Definition::gauge(
    "kueue_cluster_queue_info",
    &["cluster_queue", "parent_cohort", "root_cohort", "replica_role"],
    "Where a ClusterQueue is in the tree of Cohorts; always 1.",
);
static QUEUE_PENDING: Definition = Definition::gauge(
    "kueue_cluster_queue_resource_pending",
    &["cluster_queue", "resource", "replica_role"],
    "What the workloads that wait in a ClusterQueue ask for.",
);
static RESERVATION: Definition =
    Definition::gauge("kueue_cluster_queue_resource_reservation", RESOURCE, "Quota that is reserved.");
static USAGE: Definition =
    Definition::gauge("kueue_cluster_queue_resource_usage", RESOURCE, "Quota that admitted workloads use.");
static NOMINAL: Definition = Definition::gauge("kueue_cluster_queue_nominal_quota", RESOURCE, "Nominal quota.");
static BORROWING: Definition =
    Definition::gauge("kueue_cluster_queue_borrowing_limit", RESOURCE, "How much may be borrowed.");
static LENDING: Definition = Definition::gauge("kueue_cluster_queue_lending_limit", RESOURCE, "How much is lent.");
static SHARE: Definition = Definition::gauge(
    "kueue_cluster_queue_weighted_share",
    &["cluster_queue", "cohort", "replica_role"],
    "The largest share of borrowed quota in what the Cohort can lend, by weight.",
);
static COHORT_INFO: Definition = Definition::gauge(
    "kueue_cohort_info",
    &["cohort", "parent_cohort", "root_cohort", "replica_role"],
    "Where a Cohort is in the tree of Cohorts; always 1.",
);
static COHORT_QUOTA: Definition =
    Definition::gauge("kueue_cohort_subtree_quota", COHORT_RESOURCE, "Quota of a Cohort and those below it.");
static COHORT_RESERVATIONS: Definition = Definition::gauge(
    "kueue_cohort_subtree_resource_reservations",
    COHORT_RESOURCE,
    "Quota of a Cohort and those below it that is reserved.",
);
static COHORT_ADMITTED: Definition = Definition::gauge(
    "kueue_cohort_subtree_admitted_active_workloads",
    COHORT,
    "Workloads admitted in a Cohort and those below it that are not finished.",
);
static COHORT_SHARE: Definition = Definition::gauge(
    "kueue_cohort_weighted_share",
    COHORT,
    "The largest share of borrowed quota in what the Cohort above can lend, by weight.",
);
static LOCAL_PENDING: Definition = Definition::gauge(
    "kueue_local_queue_pending_workloads",
    &["name", "namespace", "status", "replica_role"],
    "Workloads of a LocalQueue that wait.",
);
static LOCAL_RESERVING: Definition = Definition::gauge(
    "kueue_local_queue_reserving_active_workloads",
    LOCAL,
    "Workloads of a LocalQueue that have quota reserved and are not finished.",
);
static LOCAL_ADMITTED: Definition = Definition::gauge(
    "kueue_local_queue_admitted_active_workloads",
    LOCAL,
    "Workloads of a LocalQueue that are admitted and not finished.",
);
static LOCAL_FINISHED: Definition = Definition::gauge(
    "kueue_local_queue_finished_workloads",
    LOCAL,
    "Finished workloads of a LocalQueue that are still there.",
);
static LOCAL_UNADMITTED: Definition = Definition::gauge(
    "kueue_local_queue_unadmitted_workloads",
    &["name", "namespace", "cluster_queue", "reason", "underlying_cause", "replica_role"],
    "Workloads of a LocalQueue that are not admitted, by the reasons in their conditions Admitted and QuotaReserved.",
);
static LOCAL_STATUS: Definition = Definition::gauge(
    "kueue_local_queue_status",
    &["name", "namespace", "active", "replica_role"],
    "Whether a LocalQueue is active: one is 1.",
);
static LOCAL_RESERVATION: Definition = Definition::gauge(
    "kueue_local_queue_resource_reservation",
    LOCAL_RESOURCE,
    "Quota that is reserved for workloads of a LocalQueue.",
);
static LOCAL_USAGE: Definition = Definition::gauge(
    "kueue_local_queue_resource_usage",
    LOCAL_RESOURCE,
    "Quota that admitted workloads of a LocalQueue use.",
);
static LOCAL_FAIR: Definition = Definition::gauge(
    "kueue_local_queue_admission_fair_sharing_usage",
    &["name", "namespace", "cluster_queue", "replica_role"],
    "Past usage of a LocalQueue, as admission fair sharing counts it.",
);

fn amount(resource: &str, amount: Amount) -> f64 {
    if amount == Amount::UNLIMITED { f64::INFINITY } else { request_quantity(resource, amount.value()).to_f64() }
}

fn limit(limit: Option<Quantity>) -> f64 {
    limit.map_or(f64::INFINITY, Quantity::to_f64)
}

fn count(n: usize) -> f64 {
    count_to_f64(u64::try_from(n).unwrap_or(u64::MAX))
}

/// Which of Kueue's optional metrics there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Which {
    pub(super) local_queues: bool,
    pub(super) resources: bool,
}

impl Controller {
    /// Puts what is true now into a snapshot.
    pub(super) fn measure(&self, kueue: &Kueue, role: &str, which: Which, snapshot: &mut Snapshot) {
        for (result, number) in [("success", self.attempts.success), ("inadmissible", self.attempts.inadmissible)] {
            snapshot.set(&ATTEMPTS, &[result, role], count_to_f64(number));
        }
        let mut finished: BTreeMap<&str, usize> = BTreeMap::new();
        let mut local_finished: BTreeMap<&Key, usize> = BTreeMap::new();
        for seen in kueue.workloads.values() {
            if seen.finished {
                if !seen.cluster_queue.is_empty() {
                    *finished.entry(&seen.cluster_queue).or_default() += 1;
                }
                *local_finished.entry(&seen.queue).or_default() += 1;
            }
            if let Some((reason, cause)) = &seen.unadmitted {
                let queue = kueue.local_queues.get(&seen.queue).map_or("", |queue| queue);
                snapshot.add(&UNADMITTED, &[queue, reason, cause, role], 1.0);
                if which.local_queues {
                    let labels = [&*seen.queue.name, &*seen.queue.namespace, queue, reason, cause, role];
                    snapshot.add(&LOCAL_UNADMITTED, &labels, 1.0);
                }
            }
        }
        let mut admitted_below: BTreeMap<Box<str>, usize> = BTreeMap::new();
        for name in self.fed.cluster_queues.keys() {
            self.measure_cluster_queue(name, kueue, role, which, snapshot);
            let number = finished.get(&**name).copied().unwrap_or(0);
            snapshot.set(&FINISHED, &[name, role], count(number));
            let admitted = self.engine.cluster_queue(name).map_or(0, |report| report.admitted);
            for cohort in kueue.cohorts_above(Node::ClusterQueue(name.clone())) {
                *admitted_below.entry(cohort).or_default() += admitted;
            }
        }
        self.measure_cohorts(kueue, role, &admitted_below, snapshot);
        if which.local_queues {
            for (key, spec) in &self.fed.local_queues {
                let number = local_finished.get(key).copied().unwrap_or(0);
                snapshot.set(&LOCAL_FINISHED, &[&key.name, &key.namespace, role], count(number));
                self.measure_local_queue(key, &spec.cluster_queue, role, snapshot);
            }
        }
    }

    fn measure_cluster_queue(&self, name: &str, kueue: &Kueue, role: &str, which: Which, snapshot: &mut Snapshot) {
        let (Some(spec), Some(report)) = (self.fed.cluster_queues.get(name), self.engine.cluster_queue(name)) else {
            return;
        };
        // In a queue that is not active nothing can be admitted.
        let inadmissible = if report.activity.active { report.inadmissible } else { report.pending };
        let waiting = report.pending.saturating_sub(inadmissible);
        snapshot.set(&PENDING, &[name, "active", role], count(waiting));
        snapshot.set(&PENDING, &[name, "inadmissible", role], count(inadmissible));
        snapshot.set(&RESERVING, &[name, role], count(report.reserving));
        snapshot.set(&ADMITTED, &[name, role], count(report.admitted));
        let skips = self.attempts.skips.get(name).copied().unwrap_or(0);
        snapshot.set(&SKIPS, &[name, role], count_to_f64(skips));
        for (result, number) in self.attempts.recomputations.get(name).into_iter().flatten() {
            let result = match result {
                Recomputation::NewTargets => "new_targets",
                Recomputation::DeferredFit => "deferred_fit",
                Recomputation::Skipped => "skipped",
            };
            snapshot.set(&RECOMPUTATIONS, &[name, result, role], count_to_f64(*number));
        }
        let status = match (spec.deleting, report.activity.active) {
            (true, _) => "terminating",
            (false, true) => "active",
            (false, false) => "pending",
        };
        for other in ["pending", "active", "terminating"] {
            snapshot.set(&STATUS, &[name, other, role], f64::from(u8::from(other == status)));
        }
        let above = kueue.cohorts_above(Node::ClusterQueue(name.into()));
        let (parent, root) = (above.first().map_or("", |c| c), above.last().map_or("", |c| c));
        snapshot.set(&QUEUE_INFO, &[name, parent, root, role], 1.0);
        if self.config.engine.fair_sharing.is_some() {
            snapshot.set(&SHARE, &[name, parent, role], share(report.weighted_share.0));
        }
        self.measure_pending(name, role, which, snapshot);
        if !which.resources {
            return;
        }
        for (definition, usage) in [(&RESERVATION, &report.reservation), (&USAGE, &report.usage)] {
            for item in usage {
                let labels = [parent, name, &item.flavor, &item.resource, role];
                snapshot.set(definition, &labels, amount(&item.resource, item.total));
            }
        }
        for flavor in spec.resource_groups.iter().flat_map(|group| &group.flavors) {
            for (resource, quota) in &flavor.resources {
                let labels = [parent, name, &flavor.name, resource, role];
                snapshot.set(&NOMINAL, &labels, quota.nominal.to_f64());
                snapshot.set(&BORROWING, &labels, limit(quota.borrowing_limit));
                snapshot.set(&LENDING, &labels, limit(quota.lending_limit));
            }
        }
    }

    /// What waits, by resource and by LocalQueue.
    fn measure_pending(&self, name: &str, role: &str, which: Which, snapshot: &mut Snapshot) {
        for (resource, value) in self.engine.pending_requests(name).iter() {
            snapshot.set(&QUEUE_PENDING, &[name, resource, role], request_quantity(resource, value).to_f64());
        }
        if !which.local_queues {
            return;
        }
        let active = self.engine.cluster_queue(name).is_some_and(|report| report.activity.active);
        for pending in self.engine.pending(name) {
            let status = if pending.parked || !active { "inadmissible" } else { "active" };
            let queue = &pending.local_queue;
            snapshot.add(&LOCAL_PENDING, &[&queue.name, &queue.namespace, status, role], 1.0);
        }
    }

    fn measure_cohorts(
        &self,
        kueue: &Kueue,
        role: &str,
        admitted: &BTreeMap<Box<str>, usize>,
        snapshot: &mut Snapshot,
    ) {
        let named = kueue.parents.iter().flat_map(|(node, parent)| {
            let own = if let Node::Cohort(name) = node { Some(name.clone()) } else { None };
            own.into_iter().chain([parent.clone()])
        });
        let objects = self.store.all(Kind::Cohort).filter_map(|object| match object {
            Object::Cohort(cohort) => cohort.metadata.name.as_deref().map(Into::into),
            _ => None,
        });
        let mut names: Vec<Box<str>> = named.chain(objects).collect();
        names.sort();
        names.dedup();
        for name in names {
            let Some(report) = self.engine.cohort(&name) else { continue };
            let above = kueue.cohorts_above(Node::Cohort(name.clone()));
            let (parent, root) = (above.first().map_or("", |c| c), above.last().map_or(&*name, |c| c));
            snapshot.set(&COHORT_INFO, &[&name, parent, root, role], 1.0);
            let below = admitted.get(&name).copied().unwrap_or(0);
            snapshot.set(&COHORT_ADMITTED, &[&name, role], count(below));
            if self.config.engine.fair_sharing.is_some() {
                snapshot.set(&COHORT_SHARE, &[&name, role], share(report.weighted_share.0));
            }
            for (FlavorUsage { flavor, resource, total, .. }, quota) in &report.subtree {
                let labels = [&*name, &**flavor, &**resource, role];
                snapshot.set(&COHORT_RESERVATIONS, &labels, amount(resource, *total));
                snapshot.set(&COHORT_QUOTA, &labels, amount(resource, *quota));
            }
        }
    }

    fn measure_local_queue(&self, key: &Key, cluster_queue: &str, role: &str, snapshot: &mut Snapshot) {
        let Some(report) = self.engine.local_queue(key) else { return };
        let (name, namespace) = (&*key.name, &*key.namespace);
        for status in ["active", "inadmissible"] {
            snapshot.add(&LOCAL_PENDING, &[name, namespace, status, role], 0.0);
        }
        snapshot.set(&LOCAL_RESERVING, &[name, namespace, role], count(report.reserving));
        snapshot.set(&LOCAL_ADMITTED, &[name, namespace, role], count(report.admitted));
        for active in ["True", "False", "Unknown"] {
            let is = if report.activity.active { active == "True" } else { active == "False" };
            snapshot.set(&LOCAL_STATUS, &[name, namespace, active, role], f64::from(u8::from(is)));
        }
        for (definition, usage) in [(&LOCAL_RESERVATION, &report.reservation), (&LOCAL_USAGE, &report.usage)] {
            for item in usage {
                let labels = [name, namespace, &item.flavor, &item.resource, role];
                snapshot.set(definition, &labels, amount(&item.resource, item.total));
            }
        }
        if let Some(usage) = report.fair_sharing_usage {
            snapshot.set(&LOCAL_FAIR, &[name, namespace, cluster_queue, role], usage);
        }
    }
}

/// A share as a float; of whoever borrows at a weight of zero it is no number, as Kueue's.
#[expect(clippy::cast_precision_loss, reason = "shares are small, or none for all that matters")]
const fn share(share: i64) -> f64 {
    if share == i64::MAX { f64::NAN } else { share as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_borrows_at_a_weight_of_zero_has_no_share() {
        assert!(share(i64::MAX).is_nan());
        assert!((share(250) - 250.0).abs() < f64::EPSILON);
    }
}
