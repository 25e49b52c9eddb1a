//! Emptying a cluster between tests.

use std::time::Duration;

use futures_util::future::join_all;
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::api::{self, Resource, is_not_found};
use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// What tests make, those that make others first.
const KINDS: [Resource; 22] = [
    api::MUTATING_BINDINGS,
    api::MUTATING_POLICIES,
    api::RAY_JOBS,
    api::RAY_CLUSTERS,
    api::JOB_SETS,
    api::JOBS,
    api::WORKLOADS,
    api::PODS,
    api::PROVISIONING_REQUESTS,
    api::POD_TEMPLATES,
    api::LOCAL_QUEUES,
    api::CLUSTER_QUEUES,
    api::COHORTS,
    api::ADMISSION_CHECKS,
    api::PROVISIONING_CONFIGS,
    api::RESOURCE_FLAVORS,
    api::PRIORITY,
    api::TOPOLOGIES,
    api::PRIORITY_CLASSES,
    api::NODES,
    api::LEASES,
    api::EVENTS,
];

/// What is Kubernetes' own, or goes with what it belongs to.
fn is_kept(kind: Resource, namespace: &str, name: &str) -> bool {
    match kind {
        api::PRIORITY_CLASSES => name.starts_with("system-"),
        api::LEASES => namespace == "kube-system",
        _ => false,
    }
}

impl Cluster {
    /// Deletes what tests have made, finalizers or not, and waits until it is gone. To be called when no controller under test
    /// runs.
    ///
    /// # Errors
    /// If something is still there after half a minute.
    pub async fn clean(&self) -> Result<()> {
        let last = Instant::now() + Duration::from_secs(30);
        loop {
            // Controllers make anew what they find missing: again until all is gone.
            let mut left = Vec::new();
            for kind in KINDS {
                left.extend(delete_all(&self.client, kind).await?);
            }
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > last {
                return Err(Error::new(format!("these could not be deleted: {}", left.join(", "))));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Deletes all objects of a kind and says which there were.
async fn delete_all(client: &Client, kind: Resource) -> Result<Vec<String>> {
    let list = match kind.all(client).list(&ListParams::default()).await {
        Err(error) if is_not_found(&error) => return Ok(Vec::new()),
        // A kind that nobody has asked for yet is made ready first.
        Err(kube::Error::Api(status)) if status.code == 429 => return Ok(vec![kind.plural.to_owned()]),
        other => other?,
    };
    let delete = list.items.iter().map(|object| async move {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        if is_kept(kind, namespace, name) {
            return None;
        }
        let api = kind.within(client, namespace);
        if object.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty()) {
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            // Whoever was quicker.
            let _ = api.patch(name, &PatchParams::default(), &none).await;
        }
        let _ = api.delete(name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() }).await;
        Some(format!("{} {namespace}/{name}", kind.plural))
    });
    Ok(join_all(delete).await.into_iter().flatten().collect())
}
