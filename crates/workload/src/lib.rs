//! The shared words of TPU scheduling.
//!
//! Everything that the layers above exchange is named here once: pod sets and what one pod asks for, taints and
//! tolerations, selectors and affinity, topology requests and assignments, priorities, conditions and timestamps. The
//! types are plain data with public fields; nothing here knows Kubernetes clients, does I/O or reads a clock.
//!
//! # What a pod asks for
//!
//! [`PodSpec::requests`] counts as Kubernetes does: containers and sidecars together, init containers one after another,
//! pod-level requests, overhead. [`adjust_requests`] applies before that what the cluster adds: overhead of the RuntimeClass,
//! defaults of limit ranges, limits as requests.
//!
//! ```
//! use slicegate_workload::{Container, PodSpec, Resources};
//!
//! let asks = |cpu: &str| Container {
//!     resources: Resources { requests: [("cpu".into(), cpu.parse().unwrap())].into(), ..Resources::default() },
//!     ..Container::default()
//! };
//! let pod = PodSpec {
//!     init_containers: vec![Container { restart_always: true, ..asks("500m") }, asks("2")],
//!     containers: vec![asks("1"), asks("1")],
//!     ..PodSpec::default()
//! };
//! assert_eq!(pod.requests()["cpu"].to_string(), "2500m");
//! ```
//!
//! # What a workload counts as
//!
//! [`Workload::totals`] multiplies by pod counts, drops excluded resources, turns resources into others by rule and leaves out pods
//! that will not run again. The result is [`Requests`]: integers, in the order in which messages name resources.
//!
//! ```
//! use slicegate_workload::{PodSet, PodSpec, RequestOptions, Resources, Container, Transformation, Workload};
//!
//! let mut workload = Workload::default();
//! let requests = [("nvidia.com/mig-1g.5gb".into(), "2".parse()?)].into();
//! let container = Container { resources: Resources { requests, ..Resources::default() }, ..Container::default() };
//! let pod = PodSpec { containers: vec![container], ..PodSpec::default() };
//! workload.spec.pod_sets = vec![PodSet { name: "main".into(), count: 3, pod, ..PodSet::default() }];
//!
//! let rule = Transformation { outputs: [("example.com/gpu-memory".into(), "5".parse()?)].into(), ..Transformation::default() };
//! let options = RequestOptions {
//!     transformations: [("nvidia.com/mig-1g.5gb".into(), rule)].into(),
//!     ..RequestOptions::default()
//! };
//! let totals = workload.totals(&options);
//! assert_eq!(totals[0].requests.get("example.com/gpu-memory"), Some(30));
//! # Ok::<(), slicegate_quota::ParseQuantityError>(())
//! ```
//!
//! # Where it may run and where it stands
//!
//! [`first_untolerated`], [`PodSpec::accepts_node`] and [`LabelSelector::matches`] match as Kubernetes does.
//! [`Workload::is_admissible`], [`Workload::effective_priority`] and [`Workload::queue_order_timestamp`] say whether a workload
//! may queue and where in the queue; a [`SchedulingKey`] tells which workloads the scheduler cannot tell apart.

mod condition;
mod config;
mod equivalence;
mod fair_usage;
mod field_error;
mod key;
mod limit_range;
mod matching;
mod pod;
mod pod_requests;
mod requests;
mod scheduling;
mod status;
mod timestamp;
mod topology;
mod topology_encoding;
mod totals;
mod workload;

pub use condition::{Condition, ConditionType, Conditions, Status};
pub use config::{
    AdmissionCheckRule, BorrowWithinCohort, ClusterQueueSpec, CohortSpec, FairSharingStrategy, FlavorFungibility,
    FlavorQuotas, FlavorSpec, FungibilityPolicy, FungibilityPreference, LocalQueueSpec, PreemptionPolicy,
    QueueingStrategy, ReclaimPolicy, ResourceGroup, ResourceQuota, StopPolicy, TopologySpec, WithinClusterQueuePolicy,
};
pub use equivalence::{EquivalenceOptions, SchedulingKey};
pub use fair_usage::{decay_fraction, decayed_usage, entry_penalty, scale_resources, weighted_usage};
pub use field_error::{FieldError, FieldErrors, FieldProblem, validate_limit_range, validate_resources};
pub use key::Key;
pub use limit_range::{LimitRange, LimitRangeItem, LimitRangeSummary, LimitType};
pub use matching::{Labels, first_untolerated, selector_matches};
pub use pod::{Container, PodSpec, PodSpecOpaque, ResourceList, Resources, merge_resources};
pub use pod_requests::{MissingRuntimeClass, adjust_requests};
pub use requests::{Fit, Requests, vector_hash, vector_order};
pub use scheduling::{
    LabelSelector, NodeAffinity, Operator, PreferredTerm, Requirement, SelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};
pub use status::{ADMISSION_GATED_BY, ALLOWED_FLAVORS, PRIORITY_BOOST, QueueOrder, RequeuingTimestamp, Stage};
pub use timestamp::Timestamp;
pub use topology::{TopologyAssignment, TopologyConstraint, TopologyDomain, TopologyRequest};
pub use topology_encoding::{DecodeError, EncodedAssignment, EncodedCounts, EncodedSlice, EncodedValues};
pub use totals::{
    DeviceRequests, DomainUsage, PodSetTotals, RequestOptions, TopologyUsage, TransformStrategy, Transformation,
    WorkloadUsage, limit_reclaimable_pods, propagate_requests,
};
pub use workload::{
    Admission, CheckState, CheckStatus, EvictionCount, GatePosition, PodSet, PodSetAssignment, PodSetRequests,
    PodSetUpdate, PreemptionGate, ReclaimablePods, RequeueState, Workload, WorkloadSpec, WorkloadStatus,
};
