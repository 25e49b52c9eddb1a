//! Metrics: Kueue's, those of JobSet and kube-state-metrics, and GKE's for the availability of JobSets.
//!
//! [`Metrics`] is told of the same changes as the controller and does no I/O: whoever serves `/metrics` renders a
//! [`Snapshot`] as text, and the simulator puts snapshots over simulated time into a [`Recording`]. Names, labels, types and
//! buckets are Kueue's, so that dashboards and alerts go on working.
//!
//! Not there are metrics of what Slicegate does not do (`MultiKueue`, groups of plain pods), and
//! `kueue_admission_attempt_duration_seconds`, which needs a clock: the shell that has one tells with
//! [`Metrics::record_attempt`].

mod family;
mod gauges;
mod jobset;
mod kueue;
mod text;

use std::collections::BTreeMap;

use slicegate_admission::{Outcome, Recomputation, Skip};
use slicegate_api::{Kind, Object};
use slicegate_workload::{Key, Timestamp};

pub use family::{Definition, Family, Histogram, LabelValues, MetricKind, Snapshot, Value};
pub use text::Recording;

use crate::controller::Controller;
use crate::io::Change;
use gauges::Which;
use kueue::Node;

/// The client library's usual bounds.
const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

static ATTEMPT_DURATION: Definition = Definition::histogram(
    "kueue_admission_attempt_duration_seconds",
    &["result", "replica_role"],
    DEFAULT_BUCKETS,
    "How long a scheduling cycle took.",
);
static BUILD_INFO: Definition = Definition::gauge(
    "kueue_build_info",
    &["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
    "Which version runs; always 1.",
);

/// Which metrics there are, and what they say of where they come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsOptions {
    /// The part that this replica has: `leader`, `follower` or `standalone`.
    pub replica_role: Box<str>,
    /// Metrics by LocalQueue too (gate `LocalQueueMetrics`).
    pub local_queues: bool,
    /// Quota and usage by ClusterQueue, flavor and resource (`enableClusterQueueResources`).
    pub cluster_queue_resources: bool,
    /// How long pods take to be ready (`waitForPodsReady`).
    pub wait_for_pods_ready: bool,
    /// The cluster's name, for GKE's metrics.
    pub cluster_name: Box<str>,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            replica_role: "standalone".into(),
            local_queues: false,
            cluster_queue_resources: false,
            wait_for_pods_ready: false,
            cluster_name: "".into(),
        }
    }
}

/// Counts what happens.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metrics {
    options: MetricsOptions,
    kueue: kueue::Kueue,
    jobsets: jobset::JobSets,
}

impl Metrics {
    /// Nothing is counted so far.
    pub fn new(options: MetricsOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes in that an object is there, changed or is gone, before or after the controller does. Times must not go back.
    pub fn observe(&mut self, now: Timestamp, change: &Change) {
        match change {
            Change::Applied(object) => self.apply(now, object),
            Change::Deleted(object) => self.forget(now, object),
        }
    }

    fn apply(&mut self, now: Timestamp, object: &Object) {
        match object {
            Object::Workload(workload) => {
                let MetricsOptions { replica_role, local_queues, wait_for_pods_ready, .. } = &self.options;
                self.kueue.workload(workload, replica_role, *local_queues, *wait_for_pods_ready);
            }
            Object::LocalQueue(queue) => {
                let name = queue.spec.cluster_queue.as_str();
                self.kueue.local_queues.insert(Key::new(object.namespace(), object.name()), name.into());
            }
            Object::ClusterQueue(queue) => {
                let node = Node::ClusterQueue(object.name().into());
                self.set_parent(node, queue.spec.cohort_name.as_deref());
            }
            Object::Cohort(cohort) => {
                let node = Node::Cohort(object.name().into());
                self.set_parent(node, cohort.spec.parent_name.as_deref());
            }
            Object::JobSet(jobset) => {
                self.kueue.job(object.metadata());
                self.jobsets.observe(now, jobset);
            }
            Object::Job(_) | Object::RayJob(_) | Object::RayCluster(_) => self.kueue.job(object.metadata()),
            _ => {}
        }
    }

    fn set_parent(&mut self, node: Node, parent: Option<&str>) {
        match parent.filter(|parent| !parent.is_empty()) {
            Some(parent) => _ = self.kueue.parents.insert(node, parent.into()),
            None => _ = self.kueue.parents.remove(&node),
        }
    }

    /// Series of an object that is gone go with it.
    fn forget(&mut self, now: Timestamp, object: &Object) {
        let name = object.name();
        match object {
            Object::Workload(workload) => self.kueue.workload_gone(workload),
            Object::LocalQueue(_) => {
                self.kueue.local_queues.remove(&Key::new(object.namespace(), name));
                self.kueue.counted.forget(&[("name", name), ("namespace", object.namespace())]);
            }
            Object::ClusterQueue(_) => {
                self.kueue.parents.remove(&Node::ClusterQueue(name.into()));
                self.kueue.counted.forget(&[("cluster_queue", name)]);
                self.kueue.counted.forget(&[("preempting_cluster_queue", name)]);
            }
            Object::Cohort(_) => {
                self.kueue.parents.remove(&Node::Cohort(name.into()));
                self.kueue.counted.forget(&[("cohort", name)]);
            }
            Object::JobSet(jobset) => {
                self.kueue.job_gone(object.metadata());
                self.jobsets.forget(now, jobset);
            }
            _ if matches!(object.kind(), Kind::Job | Kind::RayJob | Kind::RayCluster) => {
                self.kueue.job_gone(object.metadata());
            }
            _ => {}
        }
    }

    /// Takes in how long a scheduling cycle took, and whether it reserved quota for anything.
    pub fn record_attempt(&mut self, success: bool, seconds: f64) {
        let result = if success { "success" } else { "inadmissible" };
        self.kueue.counted.observe(&ATTEMPT_DURATION, &[result, &self.options.replica_role], seconds);
    }

    /// All metrics now. What GKE gives as distributions holds what came to them since the last call, as in GKE each sample
    /// stands for itself: there should be one reader, that calls once a minute.
    pub fn gather(&mut self, now: Timestamp, controller: Option<&Controller>) -> Snapshot {
        let mut snapshot = self.kueue.counted.clone();
        let role = &*self.options.replica_role;
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        snapshot.set(&BUILD_INFO, &[version, "", "", "", "rustc", &platform], 1.0);
        if let Some(controller) = controller {
            let which =
                Which { local_queues: self.options.local_queues, resources: self.options.cluster_queue_resources };
            controller.measure(&self.kueue, role, which, &mut snapshot);
        }
        self.jobsets.gather(now, &self.options.cluster_name, &mut snapshot);
        snapshot
    }
}

/// What came of scheduling cycles.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Attempts {
    /// Cycles that reserved quota for something.
    pub(crate) success: u64,
    /// Cycles that did not.
    pub(crate) inadmissible: u64,
    /// By ClusterQueue: entries of the last cycle that had targets to preempt but were passed over.
    pub(crate) skips: BTreeMap<Box<str>, u64>,
    /// By ClusterQueue and result: how often victims were looked for once more, since others preempt the first ones.
    pub(crate) recomputations: BTreeMap<Box<str>, BTreeMap<Recomputation, u64>>,
}

impl Attempts {
    /// Counts a cycle.
    pub(crate) fn count(&mut self, cycle: &slicegate_admission::Cycle) {
        let success = cycle.entries.iter().any(|entry| matches!(entry.outcome, Outcome::Admitted { .. }));
        let counter = if success { &mut self.success } else { &mut self.inadmissible };
        *counter = counter.saturating_add(1);
        for (queue, result) in &cycle.recomputed {
            let number = self.recomputations.entry(queue.clone()).or_default().entry(*result).or_default();
            *number = number.saturating_add(1);
        }
        self.skips.clear();
        for entry in &cycle.entries {
            if matches!(entry.outcome, Outcome::Skipped(Skip::OverlappingVictims)) {
                let skips = self.skips.entry(entry.cluster_queue.clone()).or_default();
                *skips = skips.saturating_add(1);
            }
        }
    }
}
