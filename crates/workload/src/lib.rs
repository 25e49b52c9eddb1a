//! The shared words of TPU scheduling.
//!
//! Everything that the layers above exchange is named here once: pod sets and what one pod asks for, taints and
//! tolerations, selectors and affinity, topology requests and assignments, priorities, conditions and timestamps. The
//! types are plain data with public fields; nothing here knows Kubernetes clients, does I/O or reads a clock.

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
