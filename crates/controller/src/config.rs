//! What the controller is told once, at the start.

use slicegate_workload::{LabelSelector, Operator, Requirement};

/// The configuration of a [`Controller`](crate::Controller). The names are those of Kueue's configuration file.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// Of the engine: fair sharing, waiting for pods, transformations, feature gates.
    pub engine: slicegate_admission::Config,
    /// Whether jobs without a queue are suspended too.
    pub manage_jobs_without_queue_name: bool,
    /// The namespaces whose jobs are managed.
    pub managed_jobs_namespace_selector: LabelSelector,
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
    /// A Workload whose job is gone is finished before it goes too (gate `FinishOrphanedWorkloads`).
    pub finish_orphaned_workloads: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            engine: slicegate_admission::Config::new(),
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: LabelSelector {
                match_expressions: vec![Requirement {
                    key: "kubernetes.io/metadata.name".into(),
                    operator: Operator::NotIn,
                    values: vec!["kube-system".into(), "kueue-system".into()],
                }],
                ..LabelSelector::default()
            },
            label_keys_to_copy: Vec::new(),
            retention_after_finished_seconds: None,
            retention_after_deactivated_seconds: None,
            assign_queue_labels_for_pods: true,
            short_workload_names: false,
            legacy_names: false,
            cleanup_provisioning_requests_on_eviction: true,
            provision_only_added_pods: false,
            finish_orphaned_workloads: true,
        }
    }
}
