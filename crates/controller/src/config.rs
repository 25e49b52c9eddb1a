//! What the controller is told once, at the start.

use std::collections::BTreeSet;

use slicegate_api::Kind;
use slicegate_api::defaulting::JobPolicy;
use slicegate_api::validation::Rules;
use slicegate_workload::LabelSelector;

/// The configuration of a [`Controller`](crate::Controller). The names are those of Kueue's configuration file.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// Of the engine: fair sharing, waiting for pods, transformations, feature gates.
    pub engine: slicegate_admission::Config,
    /// Whether jobs without a queue are suspended too.
    pub manage_jobs_without_queue_name: bool,
    /// The namespaces whose jobs are managed.
    pub managed_jobs_namespace_selector: LabelSelector,
    /// The kinds of job that are managed.
    pub frameworks: BTreeSet<Kind>,
    /// A job without a priority class gets the one named `default` (gate `WorkloadPriorityClassDefaulting`).
    pub priority_class_defaulting: bool,
    /// Labels of a job that its Workload gets too.
    pub label_keys_to_copy: Vec<Box<str>>,
    /// A finished Workload is deleted after so many seconds; `None`: never.
    pub retention_after_finished_seconds: Option<i64>,
    /// The job of a Workload that was deactivated for a cause is deleted after so many seconds; `None`: never.
    pub retention_after_deactivated_seconds: Option<i64>,
    /// Pods get labels with their queues (gate `AssignQueueLabelsForPods`).
    pub assign_queue_labels_for_pods: bool,
    /// Names of Workloads fit into a label (gate `ShortWorkloadNames`).
    pub short_workload_names: bool,
    /// Names of Workloads are made without the job's uid, as before Kueue 0.7: those that the tutorials show.
    pub legacy_names: bool,
    /// ProvisioningRequests of an evicted Workload are deleted (gate `CleanupProvisioningRequestsOnEviction`).
    pub cleanup_provisioning_requests_on_eviction: bool,
    /// When an elastic job has grown, ProvisioningRequests ask only for the pods that were added, since capacity for the others
    /// is there. Kueue asks for all of them, and so does this by default.
    pub provision_only_added_pods: bool,
    /// A finished Workload keeps its finalizer until it is deleted or its job is gone, which saves a write for every job. Kueue
    /// removes it at once.
    pub keep_finalizer_of_finished: bool,
    /// What queues hold, use and wait for is written to their statuses at most this often, in microseconds; whether they are
    /// active at once. 0: whenever it changes.
    pub queue_status_interval_micros: i64,
    /// A Workload whose job is gone is finished before it goes too (gate `FinishOrphanedWorkloads`).
    pub finish_orphaned_workloads: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        let jobs = JobPolicy::default();
        Self {
            engine: slicegate_admission::Config::new(),
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: jobs.managed_jobs_namespace_selector,
            frameworks: jobs.frameworks,
            priority_class_defaulting: jobs.priority_class_defaulting,
            label_keys_to_copy: Vec::new(),
            retention_after_finished_seconds: None,
            retention_after_deactivated_seconds: None,
            assign_queue_labels_for_pods: true,
            short_workload_names: false,
            legacy_names: false,
            cleanup_provisioning_requests_on_eviction: true,
            provision_only_added_pods: false,
            keep_finalizer_of_finished: false,
            queue_status_interval_micros: 0,
            finish_orphaned_workloads: true,
        }
    }
}

impl Configuration {
    /// Which jobs are managed, and what is filled in in them.
    pub fn job_policy(&self) -> JobPolicy {
        JobPolicy {
            manage_jobs_without_queue_name: self.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: self.managed_jobs_namespace_selector.clone(),
            frameworks: self.frameworks.clone(),
            priority_class_defaulting: self.priority_class_defaulting,
            elastic_jobs: self.engine.gates.elastic_jobs_via_workload_slices,
            ..JobPolicy::default()
        }
    }

    /// Which rules hold for objects that are made and changed.
    pub fn rules(&self) -> Rules {
        let gates = &self.engine.gates;
        let mut rules = Rules::default();
        rules.manage_jobs_without_queue_name = self.manage_jobs_without_queue_name;
        rules.topology_aware_scheduling = gates.topology_aware_scheduling;
        rules.multi_layer_topology = gates.tas_multi_layer_topology;
        rules.elastic_jobs = gates.elastic_jobs_via_workload_slices;
        rules.admission_gated_by = gates.admission_gated_by;
        rules.priority_boost = gates.priority_boost;
        rules
    }
}
