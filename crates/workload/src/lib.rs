//! The shared words of TPU scheduling.
//!
//! Everything that the layers above exchange is named here once: pod sets and what one pod asks for, taints and
//! tolerations, selectors and affinity, topology requests and assignments, priorities, conditions and timestamps. The
//! types are plain data with public fields; nothing here knows Kubernetes clients, does I/O or reads a clock.

mod condition;
mod config;
mod key;
mod limit_range;
mod pod;
mod scheduling;
mod timestamp;
mod topology;
mod topology_encoding;
mod workload;

pub use condition::{Condition, ConditionType, Conditions, Status};
pub use config::{
    AdmissionCheckRule, BorrowWithinCohort, ClusterQueueSpec, CohortSpec, FairSharingStrategy, FlavorFungibility,
    FlavorQuotas, FlavorSpec, FungibilityPolicy, FungibilityPreference, LocalQueueSpec, PreemptionPolicy,
    QueueingStrategy, ReclaimPolicy, ResourceGroup, ResourceQuota, StopPolicy, TopologySpec, WithinClusterQueuePolicy,
};
pub use key::Key;
pub use limit_range::{LimitRange, LimitRangeItem, LimitRangeSummary, LimitType};
pub use pod::{Container, PodSpec, PodSpecOpaque, ResourceList, Resources};
pub use scheduling::{
    LabelSelector, NodeAffinity, Operator, PreferredTerm, Requirement, SelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};
pub use timestamp::Timestamp;
pub use topology::{TopologyAssignment, TopologyConstraint, TopologyDomain, TopologyRequest};
pub use topology_encoding::{DecodeError, EncodedAssignment, EncodedCounts, EncodedSlice, EncodedValues};
pub use workload::{
    Admission, CheckState, CheckStatus, EvictionCount, GatePosition, PodSet, PodSetAssignment, PodSetRequests,
    PodSetUpdate, PreemptionGate, ReclaimablePods, RequeueState, Workload, WorkloadSpec, WorkloadStatus,
};
