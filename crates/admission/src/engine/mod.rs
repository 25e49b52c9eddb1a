//! The engine.

use std::collections::BTreeMap;

use slicegate_workload::{
    ClusterQueueSpec, CohortSpec, FlavorSpec, Key, LocalQueueSpec, ResourceList, Timestamp, TopologySpec, Workload,
};

use crate::{ClusterQueueReport, CohortReport, Config, Cycle, Explanation, LocalQueueReport, PendingWorkload, Written};

/// An admission check as the engine sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckSpec {
    /// Its name.
    pub name: Box<str>,
    /// The controller that decides it.
    pub controller: Box<str>,
    /// Whether that controller is at work: the condition `Active` of the check.
    pub active: bool,
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// Parents of Cohorts that form a circle. The edge is stored all the same; nothing in or below the circle is admitted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Cohort {cohort:?} is in a cycle of parents; give one of them another parent")]
pub struct CohortCycle {
    /// The Cohort.
    pub cohort: Box<str>,
}

/// Queues, quota and decisions. See the [crate documentation](crate).
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ----- objects -------------------------------------------------------------------------------------------------

    /// Adds or updates a ClusterQueue.
    pub fn set_cluster_queue(&mut self, now: Timestamp, spec: ClusterQueueSpec) {
        let _ = (now, spec);
    }

    /// Removes a ClusterQueue.
    pub fn remove_cluster_queue(&mut self, now: Timestamp, name: &str) {
        let _ = (now, name);
    }

    /// Adds or updates a Cohort.
    pub fn set_cohort(&mut self, now: Timestamp, spec: CohortSpec) -> Result<(), CohortCycle> {
        let _ = (now, spec);
        Ok(())
    }

    /// Removes a Cohort.
    pub fn remove_cohort(&mut self, now: Timestamp, name: &str) {
        let _ = (now, name);
    }

    /// Adds or updates a LocalQueue.
    pub fn set_local_queue(&mut self, now: Timestamp, spec: LocalQueueSpec) {
        let _ = (now, spec);
    }

    /// Removes a LocalQueue. Workloads that run keep running.
    pub fn remove_local_queue(&mut self, now: Timestamp, key: &Key) {
        let _ = (now, key);
    }

    /// Adds or updates a ResourceFlavor.
    pub fn set_flavor(&mut self, now: Timestamp, spec: FlavorSpec) {
        let _ = (now, spec);
    }

    /// Removes a ResourceFlavor.
    pub fn remove_flavor(&mut self, now: Timestamp, name: &str) {
        let _ = (now, name);
    }

    /// Adds or updates a Topology.
    pub fn set_topology(&mut self, now: Timestamp, spec: TopologySpec) {
        let _ = (now, spec);
    }

    /// Removes a Topology.
    pub fn remove_topology(&mut self, now: Timestamp, name: &str) {
        let _ = (now, name);
    }

    /// Adds or updates an admission check.
    pub fn set_admission_check(&mut self, now: Timestamp, spec: CheckSpec) {
        let _ = (now, spec);
    }

    /// Removes an admission check.
    pub fn remove_admission_check(&mut self, now: Timestamp, name: &str) {
        let _ = (now, name);
    }

    /// Adds a namespace or sets its labels.
    pub fn set_namespace(&mut self, now: Timestamp, name: &str, labels: BTreeMap<Box<str>, Box<str>>) {
        let _ = (now, name, labels);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, now: Timestamp, name: &str) {
        let _ = (now, name);
    }

    /// Sets the pod overhead of a RuntimeClass; `None` removes the class.
    pub fn set_runtime_class(&mut self, now: Timestamp, name: &str, overhead: Option<ResourceList>) {
        let _ = (now, name, overhead);
    }

    /// Takes in a workload as it now stands in the API: new, changed, admitted, evicted, finished.
    pub fn set_workload(&mut self, now: Timestamp, workload: Workload) {
        let _ = (now, workload);
    }

    /// Forgets a workload that is gone from the API.
    pub fn remove_workload(&mut self, now: Timestamp, key: &Key) {
        let _ = (now, key);
    }

    // ----- time and cycles -----------------------------------------------------------------------------------------

    /// Lets parked workloads that something changed for compete again now, without waiting for the batch.
    pub fn flush(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// When something happens by itself next: a batch of parked workloads comes back, a second look is due.
    pub fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    /// Whether a cycle has anything to do.
    pub fn has_heads(&mut self, now: Timestamp) -> bool {
        let _ = now;
        false
    }

    /// Runs one scheduling cycle.
    pub fn cycle(&mut self, now: Timestamp) -> Cycle {
        let _ = now;
        Cycle::default()
    }

    // ----- write results -------------------------------------------------------------------------------------------

    /// Reports how the write of an [`Outcome::Admitted`](crate::Outcome::Admitted) ended. Without success the workload loses
    /// its quota again and competes anew, unless it is gone.
    pub fn admission_written(&mut self, now: Timestamp, workload: &Key, result: Written) {
        let _ = (now, workload, result);
    }

    /// Reports how the write of an [`Eviction`](crate::Eviction) ended. Without success it is tried again.
    pub fn eviction_written(&mut self, now: Timestamp, workload: &Key, result: Written) {
        let _ = (now, workload, result);
    }

    // ----- questions -----------------------------------------------------------------------------------------------

    /// A ClusterQueue now.
    pub fn cluster_queue(&self, name: &str) -> Option<ClusterQueueReport> {
        let _ = name;
        None
    }

    /// A LocalQueue now.
    pub fn local_queue(&self, key: &Key) -> Option<LocalQueueReport> {
        let _ = key;
        None
    }

    /// A Cohort now.
    pub fn cohort(&self, name: &str) -> Option<CohortReport> {
        let _ = name;
        None
    }

    /// The workloads that wait in a ClusterQueue, in the order in which they are served, parked ones included.
    pub fn pending(&self, cluster_queue: &str) -> Vec<PendingWorkload> {
        let _ = cluster_queue;
        Vec::new()
    }

    /// Why a workload waits: what a cycle would decide about it alone, now. `None` if it is not known.
    pub fn why(&mut self, now: Timestamp, workload: &Key) -> Option<Explanation> {
        let _ = (now, workload);
        None
    }

    /// What the engine knows about a workload that waits, for [`lifecycle::sync_pending`](crate::lifecycle::sync_pending).
    pub fn pending_facts(&self, workload: &Workload) -> crate::lifecycle::PendingFacts {
        let _ = workload;
        crate::lifecycle::PendingFacts::default()
    }

    /// Checks every invariant.
    pub fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}
