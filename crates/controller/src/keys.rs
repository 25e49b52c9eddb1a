//! Labels, annotations, gates and finalizers, by their names in the API.

/// On a job: the LocalQueue.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// On a job: the WorkloadPriorityClass.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// On a job: how many seconds it may run.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// On a job: a Workload that exists already.
pub const PREBUILT_WORKLOAD: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// On a JobSet or the template of a replicated job: the label whose values its Jobs do not share.
pub const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// On a job or pod: its size may change while it runs.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// On a job, copied to its Workload: gates that keep it out of its queue.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// On a batch Job: the fewest pods that are of use.
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// On a batch Job: completions follow parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// On a batch Job: it is being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// On a pod template: one domain of this level.
pub const REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// On a pod template: one domain of this level if possible.
pub const PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// On a pod template: anywhere, but counted by topology.
pub const UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// On a pod template: the level in which a slice of pods lies together.
pub const SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// On a pod template: pods a slice.
pub const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// On a pod template: slices within slices, as JSON.
pub const SLICE_CONSTRAINTS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// On a pod template: pod sets placed together.
pub const POD_SET_GROUP: &str = "kueue.x-k8s.io/podset-group-name";
/// On a pod: the gate that topology-aware placement removes.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// On a pod: the gate that holds the pods of an elastic job until their slice is admitted.
pub const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";
/// On a pod: how far its index is ahead of its place among the pods of its pod set.
pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// On a pod template: its Workload.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// On a pod template: its pod set.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// On a pod: its LocalQueue.
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// On a pod: its ClusterQueue.
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
/// On objects that belong to Kueue.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// On a Workload: the uid of its job.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// On a Workload and its pods: the first Workload of an elastic job.
pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// On a Workload: the slice it replaces, as `namespace/name`.
pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// On a Workload: the generation of the RayCluster its sizes were read from.
pub const RAY_CLUSTER_GENERATION: &str = "kueue.x-k8s.io/raycluster-generation";
/// The finalizer of objects in use.
pub const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
/// The controller of admission checks that ask for capacity.
pub const PROVISIONING_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// What annotations begin with that become parameters of a ProvisioningRequest.
pub const PROVISIONING_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// On a pod: the ProvisioningRequest whose capacity it uses.
pub const CONSUME_PROVISIONING_REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// On a pod: the class of that request.
pub const PROVISIONING_CLASS_NAME: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// The label with the index of a pod in its Job.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The label with the index of a Job in its replicated job.
pub const JOBSET_JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
