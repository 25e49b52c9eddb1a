//! Any object, and how to name it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ObjectMeta, jobset, kueue, provisioning, ray, slice};

macro_rules! objects {
    ($($variant:ident: $type:ty = $version:expr, $plural:literal, $scope:ident;)*) => {
        /// The kinds of object that Slicegate knows.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $(#[doc = concat!("`", stringify!($variant), "`")] $variant,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in manifests, such as `JobSet`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// The group and version in which objects of the kind are held.
            pub const fn api_version(self) -> &'static str {
                match self { $(Self::$variant => $version,)* }
            }

            /// The API group; empty for the kinds of Kubernetes' core.
            pub fn group(self) -> &'static str {
                self.api_version().split_once('/').map_or("", |(group, _)| group)
            }

            /// The name in URLs and on the command line, such as `jobsets`.
            pub const fn plural(self) -> &'static str {
                match self { $(Self::$variant => $plural,)* }
            }

            /// Whether objects of the kind are in a namespace.
            pub const fn is_namespaced(self) -> bool {
                match self { $(Self::$variant => scope!($scope),)* }
            }

            /// Reads an object of the kind, already in the version in which it is held.
            ///
            /// # Errors
            /// If a field has a wrong type or a required one is missing.
            pub fn deserialize<'de, D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Object, D::Error> {
                match self {
                    $(Self::$variant => Ok(Object::$variant(Arc::new(Deserialize::deserialize(deserializer)?))),)*
                }
            }

            /// Reads an object of the kind, already in the version in which it is held, from JSON.
            ///
            /// # Errors
            /// If a field has a wrong type or a required one is missing.
            pub fn read(self, value: Value) -> Result<Object, serde_json::Error> {
                self.deserialize(value)
            }
        }

        /// An object of any kind. Clones share it.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Object {
            $(#[doc = concat!("A `", stringify!($variant), "`.")] $variant(Arc<$type>),)*
        }

        impl Object {
            /// Its kind.
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$variant(_) => Kind::$variant,)* }
            }

            /// Its metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$variant(o) => &o.metadata,)* }
            }

            /// Its metadata, to be changed; the object is copied first if it is shared.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$variant(o) => &mut Arc::make_mut(o).metadata,)* }
            }

            /// It as JSON, with `apiVersion` and `kind`.
            ///
            /// # Errors
            /// Never in practice: every kind can be written as JSON.
            pub fn to_json(&self) -> Result<Value, serde_json::Error> {
                match self { $(Self::$variant(o) => with_type(self.kind(), o.as_ref()),)* }
            }
        }

        $(impl From<$type> for Object {
            fn from(object: $type) -> Self {
                Self::$variant(Arc::new(object))
            }
        })*
    };
}

macro_rules! scope {
    (Namespaced) => {
        true
    };
    (Cluster) => {
        false
    };
}

objects! {
    AdmissionCheck: kueue::AdmissionCheck = kueue::API_VERSION, "admissionchecks", Cluster;
    ClusterQueue: kueue::ClusterQueue = kueue::API_VERSION, "clusterqueues", Cluster;
    Cohort: kueue::Cohort = kueue::API_VERSION, "cohorts", Cluster;
    ConfigMap: crate::ConfigMap = "v1", "configmaps", Namespaced;
    Job: crate::Job = "batch/v1", "jobs", Namespaced;
    JobSet: jobset::JobSet = jobset::API_VERSION, "jobsets", Namespaced;
    LimitRange: crate::LimitRange = "v1", "limitranges", Namespaced;
    LocalQueue: kueue::LocalQueue = kueue::API_VERSION, "localqueues", Namespaced;
    Namespace: crate::Namespace = "v1", "namespaces", Cluster;
    Node: crate::Node = "v1", "nodes", Cluster;
    Pod: crate::Pod = "v1", "pods", Namespaced;
    PodTemplate: crate::PodTemplate = "v1", "podtemplates", Namespaced;
    PriorityClass: crate::PriorityClass = "scheduling.k8s.io/v1", "priorityclasses", Cluster;
    ProvisioningRequest: provisioning::ProvisioningRequest = provisioning::API_VERSION, "provisioningrequests", Namespaced;
    ProvisioningRequestConfig: kueue::ProvisioningRequestConfig = kueue::API_VERSION, "provisioningrequestconfigs", Cluster;
    RayCluster: ray::RayCluster = ray::API_VERSION, "rayclusters", Namespaced;
    RayJob: ray::RayJob = ray::API_VERSION, "rayjobs", Namespaced;
    ResourceFlavor: kueue::ResourceFlavor = kueue::API_VERSION, "resourceflavors", Cluster;
    RuntimeClass: crate::RuntimeClass = "node.k8s.io/v1", "runtimeclasses", Cluster;
    Secret: crate::Secret = "v1", "secrets", Namespaced;
    Slice: slice::Slice = slice::API_VERSION, "slices", Cluster;
    Topology: kueue::Topology = kueue::API_VERSION, "topologies", Cluster;
    Workload: kueue::Workload = kueue::API_VERSION, "workloads", Namespaced;
    WorkloadPriorityClass: kueue::WorkloadPriorityClass = kueue::API_VERSION, "workloadpriorityclasses", Cluster;
}

fn with_type<T: Serialize>(kind: Kind, object: &T) -> Result<Value, serde_json::Error> {
    let mut all = serde_json::Map::new();
    all.insert("apiVersion".to_owned(), kind.api_version().into());
    all.insert("kind".to_owned(), kind.as_str().into());
    if let Value::Object(fields) = serde_json::to_value(object)? {
        all.extend(fields.into_iter().filter(|(k, _)| k != "apiVersion" && k != "kind"));
    }
    Ok(Value::Object(all))
}

impl Object {
    /// What names it.
    pub fn reference(&self) -> ObjectRef {
        let meta = self.metadata();
        ObjectRef {
            kind: self.kind(),
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// Its name, empty if it has none.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// Its namespace, empty if it has none.
    pub fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    /// Its uid, empty if it has none.
    pub fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }
}

/// Kind, namespace and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for kinds that have none.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl ObjectRef {
    /// A reference of these parts.
    pub fn new(kind: Kind, namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind.as_str(), self.name)
        } else {
            write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
