//! Objects of any kind, as JSON, and the API that serves them.

use std::path::Path;

use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::error::{Context as _, Error, Result};

/// A kind that the API server serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Its name in addresses.
    pub plural: &'static str,
    /// Whether objects of it are in namespaces.
    pub namespaced: bool,
}

macro_rules! resources {
    ($($name:ident = $group:literal $version:literal $kind:literal $plural:literal $namespaced:literal;)*) => {$(
        #[doc = concat!($kind, ", ", $version)]
        pub const $name: Resource =
            Resource { group: $group, version: $version, kind: $kind, plural: $plural, namespaced: $namespaced };
    )*};
}

resources! {
    PODS = "" "v1" "Pod" "pods" true;
    NODES = "" "v1" "Node" "nodes" false;
    NAMESPACES = "" "v1" "Namespace" "namespaces" false;
    SECRETS = "" "v1" "Secret" "secrets" true;
    CONFIG_MAPS = "" "v1" "ConfigMap" "configmaps" true;
    POD_TEMPLATES = "" "v1" "PodTemplate" "podtemplates" true;
    EVENTS = "" "v1" "Event" "events" true;
    LEASES = "coordination.k8s.io" "v1" "Lease" "leases" true;
    JOBS = "batch" "v1" "Job" "jobs" true;
    PRIORITY_CLASSES = "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" false;
    CRDS = "apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions" false;
    CLUSTER_ROLES = "rbac.authorization.k8s.io" "v1" "ClusterRole" "clusterroles" false;
    MUTATING_WEBHOOKS = "admissionregistration.k8s.io" "v1" "MutatingWebhookConfiguration" "mutatingwebhookconfigurations" false;
    VALIDATING_WEBHOOKS = "admissionregistration.k8s.io" "v1" "ValidatingWebhookConfiguration" "validatingwebhookconfigurations" false;
    MUTATING_POLICIES = "admissionregistration.k8s.io" "v1" "MutatingAdmissionPolicy" "mutatingadmissionpolicies" false;
    MUTATING_BINDINGS = "admissionregistration.k8s.io" "v1" "MutatingAdmissionPolicyBinding" "mutatingadmissionpolicybindings" false;
    JOB_SETS = "jobset.x-k8s.io" "v1alpha2" "JobSet" "jobsets" true;
    RAY_JOBS = "ray.io" "v1" "RayJob" "rayjobs" true;
    RAY_CLUSTERS = "ray.io" "v1" "RayCluster" "rayclusters" true;
    PROVISIONING_REQUESTS = "autoscaling.x-k8s.io" "v1" "ProvisioningRequest" "provisioningrequests" true;
    WORKLOADS = "kueue.x-k8s.io" "v1beta2" "Workload" "workloads" true;
    CLUSTER_QUEUES = "kueue.x-k8s.io" "v1beta2" "ClusterQueue" "clusterqueues" false;
    LOCAL_QUEUES = "kueue.x-k8s.io" "v1beta2" "LocalQueue" "localqueues" true;
    COHORTS = "kueue.x-k8s.io" "v1beta2" "Cohort" "cohorts" false;
    RESOURCE_FLAVORS = "kueue.x-k8s.io" "v1beta2" "ResourceFlavor" "resourceflavors" false;
    ADMISSION_CHECKS = "kueue.x-k8s.io" "v1beta2" "AdmissionCheck" "admissionchecks" false;
    PROVISIONING_CONFIGS = "kueue.x-k8s.io" "v1beta2" "ProvisioningRequestConfig" "provisioningrequestconfigs" false;
    PRIORITY = "kueue.x-k8s.io" "v1beta2" "WorkloadPriorityClass" "workloadpriorityclasses" false;
    TOPOLOGIES = "kueue.x-k8s.io" "v1beta2" "Topology" "topologies" false;
}

impl Resource {
    /// What kube needs to know of it.
    pub fn api_resource(&self) -> ApiResource {
        let api_version =
            if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) };
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version,
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Its objects everywhere.
    pub fn all(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.api_resource())
    }

    /// Its objects in a namespace, or everywhere if the namespace is empty.
    pub fn within(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() || !self.namespaced {
            self.all(client)
        } else {
            Api::namespaced_with(client.clone(), namespace, &self.api_resource())
        }
    }

    /// One object; `None` if it is not there.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn get(&self, client: &Client, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found = self.within(client, namespace).get_opt(name).await;
        found.doing(format!("get {} {namespace}/{name}", self.plural))?.map(value).transpose()
    }

    /// All objects in a namespace, or everywhere if the namespace is empty.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn list(&self, client: &Client, namespace: &str) -> Result<Vec<Value>> {
        let list = self.within(client, namespace).list(&ListParams::default()).await;
        list.doing(format!("list {}", self.plural))?.items.into_iter().map(value).collect()
    }

    /// Makes an object, or makes it so by server-side apply.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn apply(&self, client: &Client, object: &Value) -> Result<Value> {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let params = PatchParams::apply("e2e").force();
        let done = self.within(client, namespace).patch(name, &params, &Patch::Apply(object)).await;
        value(done.doing(format!("apply {} {namespace}/{name}", self.plural))?)
    }

    /// Changes an object by a merge patch.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn patch(&self, client: &Client, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        let done = self.within(client, namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        value(done.doing(format!("patch {} {namespace}/{name}", self.plural))?)
    }

    /// Changes an object's status by a merge patch.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn patch_status(&self, client: &Client, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        let api = self.within(client, namespace);
        let done = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        value(done.doing(format!("patch the status of {} {namespace}/{name}", self.plural))?)
    }

    /// Deletes an object, if it is there.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn delete(&self, client: &Client, namespace: &str, name: &str) -> Result<()> {
        match self.within(client, namespace).delete(name, &kube::api::DeleteParams::background()).await {
            Err(error) if !is_not_found(&error) => {
                Err(Error::new(format!("delete {} {namespace}/{name}: {error}", self.plural)))
            }
            _ => Ok(()),
        }
    }
}

/// Whether an object or a kind is not there.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// An object as JSON.
///
/// # Errors
/// Does not happen: all objects are JSON.
pub fn value(object: DynamicObject) -> Result<Value> {
    Ok(serde_json::to_value(object)?)
}

/// The text at a JSON pointer, or an empty one.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// A list at a JSON pointer, or an empty one.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|c| text(c, "/type") == kind)
}

/// Whether a condition of an object is `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| text(c, "/status") == "True")
}

/// A client for who a kubeconfig says. It does not try again by itself: what fails is to be seen.
///
/// # Errors
/// If the kubeconfig cannot be read.
pub async fn client(kubeconfig: &Path, user_agent: &'static str) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(user_agent)));
    Ok(Client::try_from(config)?)
}
