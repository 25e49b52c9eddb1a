//! Past usage of LocalQueues, for admission fair sharing.

use std::collections::BTreeMap;
use std::time::Duration;

use slicegate_quota::Weight;
use slicegate_workload::{ResourceList, Timestamp, decayed_usage, entry_penalty, weighted_usage};

use super::ids::WorkloadId;
use crate::AdmissionFairSharing;

/// What a LocalQueue used.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Decayed usage up to `last_update`.
    pub(super) consumed: ResourceList,
    /// When usage was last sampled; `None` if never.
    pub(super) last_update: Option<Timestamp>,
    /// Whether what the status said after a restart is part of `consumed`.
    pub(super) restored: bool,
    /// What workloads are charged until a sample sees them.
    pub(super) penalties: BTreeMap<WorkloadId, ResourceList>,
    /// The figure by which the LocalQueue is ordered.
    pub(super) usage: f64,
}

impl Ledger {
    /// Takes usage up to now into account.
    pub(super) fn sample(&mut self, current: &ResourceList, now: Timestamp, config: &AdmissionFairSharing) {
        let half_life = seconds(config.half_life_seconds);
        if half_life.is_zero() {
            self.consumed.clear();
        } else {
            let since = self.last_update.map_or(0, |last| now.micros_since(last).max(0));
            let elapsed = Duration::from_micros(u64::try_from(since).unwrap_or(0));
            self.consumed = decayed_usage(&self.consumed, current, elapsed, half_life);
        }
        self.last_update = Some(now);
    }

    /// Adds what was consumed before a restart.
    pub(super) fn restore(&mut self, consumed: &ResourceList, at: Timestamp) {
        if self.restored {
            return;
        }
        add(&mut self.consumed, consumed);
        self.last_update.get_or_insert(at);
        self.restored = true;
    }

    /// Charges a workload for entering.
    pub(super) fn charge(&mut self, id: WorkloadId, requests: &ResourceList, config: &AdmissionFairSharing) {
        let penalty =
            entry_penalty(requests, seconds(config.sampling_interval_seconds), seconds(config.half_life_seconds));
        self.penalties.insert(id, penalty);
    }

    /// Turns the charge of a workload into usage.
    pub(super) fn settle(&mut self, id: WorkloadId) {
        let Some(penalty) = self.penalties.remove(&id) else { return };
        add(&mut self.consumed, &penalty);
    }

    /// Computes the figure by which the LocalQueue is ordered. Returns whether it changed.
    pub(super) fn weigh(&mut self, weight: Weight, config: &AdmissionFairSharing) -> bool {
        let mut charged = ResourceList::new();
        for penalty in self.penalties.values() {
            add(&mut charged, penalty);
        }
        let usage = weighted_usage(&self.consumed, &charged, &config.resource_weights, weight);
        let changed = usage.total_cmp(&self.usage).is_ne();
        self.usage = usage;
        changed
    }
}

fn add(sum: &mut ResourceList, list: &ResourceList) {
    for (resource, quantity) in list {
        let total = sum.entry(resource.clone()).or_default();
        *total = total.plus(*quantity);
    }
}

pub(super) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
