//! What RayJobs and RayClusters have in common: a head and groups of workers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use slicegate_admission::Gates;
use slicegate_api::ray::{RayCluster, RayClusterSpec, WorkerGroupSpec};
use slicegate_api::{PodTemplateSpec, Quantity, kueue};

use super::{JobContext, JobError, expect_infos};
use crate::podset::{self, PodSetInfo};
use crate::topology_request::{PodIndex, topology_request};

/// The pod set of the head; no worker group may have this name.
pub(crate) const HEAD: &str = "head";
/// The annotation that makes the head survive a restart, as the field `gcsFaultToleranceOptions` does.
const FAULT_TOLERANCE: &str = "ray.io/ft-enabled";

/// Requests by resource, each as much in the limits too if `limits`.
pub(crate) fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
    let list = |values: &[(&str, &str)]| {
        let map: BTreeMap<String, Quantity> =
            values.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
        (!map.is_empty()).then_some(map)
    };
    ResourceRequirements { requests: list(requests), limits: list(limits), ..ResourceRequirements::default() }
}

/// The pods of a worker group: a replica of a multi-host group is a whole slice.
fn count(group: &WorkerGroupSpec) -> i32 {
    let replicas = group.replicas.unwrap_or(1);
    match group.num_of_hosts {
        Some(hosts) if hosts > 1 => replicas.saturating_mul(hosts),
        _ => replicas,
    }
}

/// The pod sets of a cluster. What KubeRay itself adds to the head is counted: the autoscaler beside it, and the least that
/// a cleanup of Redis asks for.
pub fn pod_sets(
    spec: &RayClusterSpec,
    annotations: Option<&BTreeMap<String, String>>,
    gates: &Gates,
) -> Result<Vec<kueue::PodSet>, JobError> {
    let mut all = Vec::with_capacity(spec.worker_group_specs.len().saturating_add(1));
    let mut head = spec.head_group_spec.template.clone();
    let request = request_of(&head, gates)?;
    let fault_tolerant = spec.gcs_fault_tolerance_options.is_some()
        || annotations.and_then(|a| a.get(FAULT_TOLERANCE)).is_some_and(|v| v == "true");
    let pod = head.spec.get_or_insert_default();
    if fault_tolerant {
        let container = pod.containers.first_mut().ok_or(JobError::NoHeadContainer)?;
        raise(container, "cpu", "200m");
        raise(container, "memory", "256Mi");
    }
    if spec.enable_in_tree_autoscaling == Some(true) {
        let own = spec.autoscaler_options.as_ref().and_then(|o| o.resources.clone());
        let default = [("cpu", "500m"), ("memory", "512Mi")];
        pod.containers.push(Container {
            name: "autoscaler".to_owned(),
            resources: Some(own.unwrap_or_else(|| resources(&default, &default))),
            ..Container::default()
        });
    }
    all.push(kueue::PodSet {
        name: HEAD.to_owned(),
        template: head,
        count: 1,
        min_count: None,
        topology_request: request,
    });
    for group in &spec.worker_group_specs {
        all.push(kueue::PodSet {
            name: group.group_name.to_lowercase(),
            template: group.template.clone(),
            count: count(group),
            min_count: None,
            topology_request: request_of(&group.template, gates)?,
        });
    }
    Ok(all)
}

/// The topology request of a pod template of Ray, whose pods have no index.
pub(crate) fn request_of(
    template: &PodTemplateSpec,
    gates: &Gates,
) -> Result<Option<kueue::PodSetTopologyRequest>, JobError> {
    if !gates.topology_aware_scheduling {
        return Ok(None);
    }
    Ok(topology_request(template, PodIndex::default(), gates.tas_multi_layer_topology)?)
}

/// Raises a request of a container to at least `least`.
fn raise(container: &mut Container, resource: &str, least: &str) {
    let resources = container.resources.get_or_insert_default();
    let limit = resources.limits.as_ref().and_then(|l| l.get(resource)).cloned();
    let requests = resources.requests.get_or_insert_default();
    let current = requests.get(resource).cloned().or(limit);
    let amount = |text: &str| text.parse::<slicegate_quota::Quantity>().ok();
    let enough = current.and_then(|c| amount(&c.0)).zip(amount(least)).is_some_and(|(c, l)| c >= l);
    if !enough {
        requests.insert(resource.to_owned(), Quantity(least.to_owned()));
    }
}

/// Puts `infos` into head and workers.
pub fn run(spec: &mut RayClusterSpec, infos: &[PodSetInfo], gates: &Gates) -> Result<(), JobError> {
    expect_infos(spec.worker_group_specs.len().saturating_add(1), infos)?;
    let elastic = gates.elastic_jobs_via_workload_slices;
    let templates = std::iter::once(&mut spec.head_group_spec.template)
        .chain(spec.worker_group_specs.iter_mut().map(|g| &mut g.template));
    for (template, info) in templates.zip(infos) {
        podset::merge_into(template, info, elastic)?;
    }
    Ok(())
}

/// Takes them out again. Returns whether anything changed.
pub fn restore(spec: &mut RayClusterSpec, infos: &[PodSetInfo]) -> bool {
    if infos.len() != spec.worker_group_specs.len().saturating_add(1) {
        return false;
    }
    let mut changed = false;
    let templates = std::iter::once(&mut spec.head_group_spec.template)
        .chain(spec.worker_group_specs.iter_mut().map(|g| &mut g.template));
    for (template, info) in templates.zip(infos) {
        changed |= podset::restore(template, info);
    }
    changed
}

/// Sets the counts of an elastic job's pod sets to those of the cluster that Ray's autoscaler changes.
pub fn follow_cluster(
    pod_sets: &mut [kueue::PodSet],
    job: &str,
    cluster_name: &str,
    context: &JobContext<'_>,
) -> Result<(), JobError> {
    if cluster_name.is_empty() {
        return Ok(());
    }
    let Some(cluster) = (context.ray_cluster)(cluster_name) else { return Ok(()) };
    for group in &cluster.spec.worker_group_specs {
        let name = group.group_name.to_lowercase();
        let pod_set = pod_sets.iter_mut().find(|p| p.name == name).ok_or_else(|| JobError::UnknownWorkerGroup {
            cluster: cluster_name.to_owned(),
            group: group.group_name.clone(),
            job: job.to_owned(),
        })?;
        pod_set.count = count(group);
    }
    Ok(())
}

/// Whether pods of the cluster run or may be running.
pub(crate) fn cluster_is_active(cluster: &RayCluster) -> bool {
    let status = &cluster.status;
    let head = status.other.get("head").and_then(|h| h.get("podName")).and_then(|n| n.as_str());
    match status.state.as_deref() {
        Some("ready") => true,
        Some("suspended") => status.available_worker_replicas.unwrap_or(0) > 0,
        _ => status.available_worker_replicas.unwrap_or(0) > 0 || head.is_some_and(|n| !n.is_empty()),
    }
}
