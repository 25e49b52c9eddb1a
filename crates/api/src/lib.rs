//! The Kubernetes API types that Slicegate reads and writes.
//!
//! Kueue's kinds are held in their `v1beta2` form ([`kueue`]); `v1beta1` is converted at the border. JobSet,
//! Ray and ProvisioningRequest objects are held as far as they are used, and keep every other field as it came. Objects of
//! Kubernetes itself are those of the `k8s-openapi` crate.

pub mod configuration;
pub mod convert;
pub mod crd;
pub mod defaulting;
pub mod extension;
pub mod jobset;
pub mod kueue;
pub mod nodepool;
pub mod object;
pub mod owner;
mod path;
pub mod provisioning;
pub mod ray;
pub mod scenario;
pub mod slice;
pub mod v1beta1;
pub mod validation;

pub use object::{Kind, Object, ObjectRef};

/// Fields that a type does not name, kept as they came.
pub type Other = std::collections::BTreeMap<String, serde_json::Value>;

pub use k8s_openapi::api::batch::v1::{Job, JobSpec, JobTemplateSpec};
pub use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, Namespace, Node, Pod, PodSpec, PodTemplate, PodTemplateSpec, Secret, Service, Taint,
    Toleration,
};
pub use k8s_openapi::api::node::v1::RuntimeClass;
pub use k8s_openapi::api::scheduling::v1::PriorityClass;
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time,
};
