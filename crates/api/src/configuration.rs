//! `config.kueue.x-k8s.io`: the file that tells the controller how to work.
//!
//! Both versions are read into one type. Fields that only v1beta1 has are marked so; what it leaves out has other defaults, which
//! whoever reads the file must know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LabelSelector;

/// The API group.
pub const GROUP: &str = "config.kueue.x-k8s.io";
/// The older version.
pub const V1BETA1: &str = "config.kueue.x-k8s.io/v1beta1";
/// The newer version.
pub const V1BETA2: &str = "config.kueue.x-k8s.io/v1beta2";

macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name {
                $($(#[$field_doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
            }
        )*
    };
}

sections! {
    /// The file. Durations are written as in Go, such as `5m0s`.
    Configuration {
        /// Which version of the API the file is written in; filled in by whoever reads it.
        api_version: String,
        /// The namespace the controller runs in.
        namespace: String,
        /// Whether jobs without a queue are suspended too.
        manage_jobs_without_queue_name: bool,
        /// The namespaces whose jobs are managed.
        managed_jobs_namespace_selector: LabelSelector,
        /// The server of webhooks.
        webhook: Webhook,
        /// Leader election.
        leader_election: LeaderElection,
        /// Metrics.
        metrics: Metrics,
        /// Probes.
        health: Health,
        /// Where profiles are served.
        pprof_bind_address: String,
        /// Concurrency.
        controller: ControllerSection,
        /// TLS of the servers.
        tls: Tls,
        /// Certificates made by the controller itself.
        internal_cert_management: InternalCertManagement,
        /// Requests to the API server.
        client_connection: ClientConnection,
        /// What happens when pods do not become ready.
        wait_for_pods_ready: WaitForPodsReady,
        /// Which kinds of job are managed.
        integrations: Integrations,
        /// Other clusters.
        multi_kueue: serde_json::Value,
        /// Sharing by dominant resource share.
        fair_sharing: FairSharing,
        /// Sharing by past usage.
        admission_fair_sharing: AdmissionFairSharing,
        /// How resources are counted.
        resources: Resources,
        /// Features switched on or off.
        feature_gates: BTreeMap<String, bool>,
        /// How long objects are kept.
        object_retention_policies: ObjectRetentionPolicies,
        /// The server that lists pending workloads.
        visibility_server: VisibilityServer,
        /// v1beta1 only; means nothing any more.
        queue_visibility: serde_json::Value,
        /// What only Slicegate understands. Kueue refuses a file that has this.
        slicegate: Slicegate,
    }

    /// The server of webhooks.
    Webhook {
        /// Its port.
        port: u16,
        /// Its address.
        host: String,
        /// The folder with its certificate and key.
        cert_dir: String,
    }

    /// Leader election.
    LeaderElection {
        /// Whether there is one.
        leader_elect: bool,
        /// How long others wait for the leader.
        lease_duration: String,
        /// How long the leader tries to renew.
        renew_deadline: String,
        /// How often it tries.
        retry_period: String,
        /// The kind of lock; only `leases` is known.
        resource_lock: String,
        /// The name of the Lease.
        resource_name: String,
        /// Its namespace.
        resource_namespace: String,
        /// Whether the lead is given up at the end.
        leader_election_release_on_cancel: bool,
    }

    /// Metrics.
    Metrics {
        /// Where they are served; `0`: nowhere.
        bind_address: String,
        /// Whether quota and usage of ClusterQueues are among them.
        enable_cluster_queue_resources: bool,
        /// More labels.
        custom_labels: Vec<serde_json::Value>,
        /// Metrics of LocalQueues.
        local_queue_metrics: LocalQueueMetrics,
    }

    /// Metrics of LocalQueues.
    LocalQueueMetrics {
        /// Whether there are any.
        enable: bool,
        /// Of which.
        local_queue_selector: LabelSelector,
    }

    /// Probes.
    Health {
        /// Where they are served; `0`: nowhere.
        health_probe_bind_address: String,
        /// The name of the readiness probe.
        readiness_endpoint_name: String,
        /// The name of the liveness probe.
        liveness_endpoint_name: String,
    }

    /// Concurrency.
    ControllerSection {
        /// How many objects of a kind are worked on at once, by `Kind.group`.
        group_kind_concurrency: BTreeMap<String, i32>,
        /// How long the first look at everything may take.
        cache_sync_timeout: String,
    }

    /// TLS of the servers.
    Tls {
        /// The oldest version.
        min_version: String,
        /// The ciphers.
        cipher_suites: Vec<String>,
        /// The curves.
        curve_preferences: Vec<i64>,
    }

    /// Certificates made by the controller itself.
    InternalCertManagement {
        /// Whether it makes them.
        enable: bool,
        /// The service that they are for.
        webhook_service_name: String,
        /// The Secret that they are kept in.
        webhook_secret_name: String,
    }

    /// Requests to the API server.
    ClientConnection {
        /// So many a second.
        qps: f32,
        /// So many at once after a pause.
        burst: u32,
    }

    /// What happens when pods do not become ready.
    WaitForPodsReady {
        /// v1beta1 only: whether anything does.
        enable: bool,
        /// How long pods may take.
        timeout: String,
        /// Whether others wait until they are.
        block_admission: bool,
        /// How long a pod that was lost may take to come back.
        recovery_timeout: String,
        /// How workloads that took too long are put back.
        requeuing_strategy: RequeuingStrategy,
    }

    /// How workloads that took too long are put back.
    RequeuingStrategy {
        /// `Eviction` or `Creation`: by which time they are ordered.
        timestamp: String,
        /// How often.
        backoff_limit_count: i32,
        /// The first wait.
        backoff_base_seconds: i32,
        /// The longest wait.
        backoff_max_seconds: i32,
    }

    /// Which kinds of job are managed.
    Integrations {
        /// Those that are built in.
        frameworks: Vec<String>,
        /// Those that others manage.
        external_frameworks: Vec<String>,
        /// v1beta1 only; means nothing any more.
        pod_options: serde_json::Value,
        /// Labels of a job that its Workload gets too.
        label_keys_to_copy: Vec<String>,
    }

    /// Sharing by dominant resource share.
    FairSharing {
        /// v1beta1 only: whether it is on.
        enable: bool,
        /// When another may be preempted.
        preemption_strategies: Vec<String>,
    }

    /// Sharing by past usage.
    AdmissionFairSharing {
        /// After so long usage counts half.
        usage_half_life_time: String,
        /// How often usage is looked at.
        usage_sampling_interval: String,
        /// What a unit of a resource counts.
        resource_weights: BTreeMap<String, f64>,
    }

    /// What Slicegate can do beyond Kueue. All of it is off unless asked for.
    Slicegate {
        /// When an elastic job has grown, ProvisioningRequests ask only for the pods that were added.
        provision_only_added_pods: bool,
    }

    /// How resources are counted.
    Resources {
        /// `BlockUndeclared` or `IgnoreUndeclared`.
        quota_check_strategy: String,
        /// Resources that are not counted.
        exclude_resource_prefixes: Vec<String>,
        /// Resources that are counted as others.
        transformations: Vec<Transformation>,
        /// Devices that are counted.
        device_class_mappings: Vec<serde_json::Value>,
    }

    /// A resource that is counted as others.
    Transformation {
        /// The resource.
        input: String,
        /// `Retain` or `Replace`.
        strategy: String,
        /// The resource by whose amount outputs are multiplied.
        multiply_by: String,
        /// What one unit of it counts as.
        outputs: BTreeMap<String, crate::Quantity>,
    }

    /// How long objects are kept.
    ObjectRetentionPolicies {
        /// Workloads.
        workloads: WorkloadRetentionPolicy,
    }

    /// How long Workloads are kept.
    WorkloadRetentionPolicy {
        /// After they finished.
        after_finished: String,
        /// Their jobs, after they were deactivated.
        after_deactivated_by_kueue: String,
    }

    /// The server that lists pending workloads.
    VisibilityServer {
        /// Its address.
        bind_address: String,
        /// Its port.
        bind_port: u16,
    }
}
