//! Every quantity of an object must be one, and one that its place allows.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use slicegate_quota::Quantity;

use super::Findings;
use crate::path::Path;
use crate::{JobTemplateSpec, Object, PodSpec, PodTemplateSpec, kueue, ray};

pub(super) fn check(object: &Object, out: &mut Findings) {
    let spec = Path::ROOT.field("spec");
    match object {
        Object::ClusterQueue(o) => {
            groups(spec.field("resourceGroups"), &o.spec.resource_groups, out);
            sharing(spec, o.spec.fair_sharing.as_ref(), out);
        }
        Object::Cohort(o) => {
            groups(spec.field("resourceGroups"), &o.spec.resource_groups, out);
            sharing(spec, o.spec.fair_sharing.as_ref(), out);
        }
        Object::LocalQueue(o) => sharing(spec, o.spec.fair_sharing.as_ref(), out),
        Object::Workload(o) => workload(o, out),
        Object::Pod(o) => {
            if let Some(pod) = &o.spec {
                pod_spec(spec, pod, out);
            }
        }
        Object::PodTemplate(o) => {
            if let Some(t) = &o.template {
                template(Path::ROOT.field("template"), t, out);
            }
        }
        Object::Job(o) => {
            if let Some(job) = &o.spec {
                template(spec.field("template"), &job.template, out);
            }
        }
        Object::JobSet(o) => {
            let path = spec.field("replicatedJobs");
            for (i, replicated) in o.spec.replicated_jobs.iter().enumerate() {
                let path = path.index(i);
                job_template(path.field("template"), &replicated.template, out);
            }
        }
        Object::RayCluster(o) => cluster(spec, &o.spec, out),
        Object::RayJob(o) => {
            if let Some(c) = &o.spec.ray_cluster_spec {
                cluster(spec.field("rayClusterSpec"), c, out);
            }
            if let Some(t) = &o.spec.submitter_pod_template {
                template(spec.field("submitterPodTemplate"), t, out);
            }
        }
        Object::LimitRange(o) => {
            let path = spec.field("limits");
            for (i, item) in o.spec.iter().flat_map(|s| &s.limits).enumerate() {
                let path = path.index(i);
                let lists = [
                    ("default", &item.default),
                    ("defaultRequest", &item.default_request),
                    ("max", &item.max),
                    ("maxLimitRequestRatio", &item.max_limit_request_ratio),
                    ("min", &item.min),
                ];
                for (field, l) in lists {
                    optional(path.field(field), l.as_ref(), out);
                }
            }
        }
        Object::Node(o) => {
            if let Some(status) = &o.status {
                let path = Path::ROOT.field("status");
                optional(path.field("capacity"), status.capacity.as_ref(), out);
                optional(path.field("allocatable"), status.allocatable.as_ref(), out);
            }
        }
        Object::RuntimeClass(o) => {
            let fixed = o.overhead.as_ref().and_then(|v| v.pod_fixed.as_ref());
            optional(Path::ROOT.field("overhead").field("podFixed"), fixed, out);
        }
        _ => {}
    }
}

fn one(path: Path<'_>, quantity: &crate::Quantity, out: &mut Findings) {
    if let Err(error) = quantity.0.parse::<Quantity>() {
        out.invalid(path, error.to_string());
    }
}

fn list(path: Path<'_>, list: &BTreeMap<String, crate::Quantity>, out: &mut Findings) {
    for (name, quantity) in list {
        one(path.key(name), quantity, out);
    }
}

fn optional(path: Path<'_>, quantities: Option<&BTreeMap<String, crate::Quantity>>, out: &mut Findings) {
    if let Some(quantities) = quantities {
        list(path, quantities, out);
    }
}

fn groups(path: Path<'_>, groups: &[kueue::ResourceGroup], out: &mut Findings) {
    for (i, group) in groups.iter().enumerate() {
        let path = path.index(i);
        let path = path.field("flavors");
        for (j, flavor) in group.flavors.iter().enumerate() {
            let path = path.index(j);
            let path = path.field("resources");
            for (k, quota) in flavor.resources.iter().enumerate() {
                let path = path.index(k);
                one(path.field("nominalQuota"), &quota.nominal_quota, out);
                let limits = [("borrowingLimit", &quota.borrowing_limit), ("lendingLimit", &quota.lending_limit)];
                for (field, limit) in limits {
                    if let Some(limit) = limit {
                        one(path.field(field), limit, out);
                    }
                }
            }
        }
    }
}

fn sharing(path: Path<'_>, sharing: Option<&kueue::FairSharing>, out: &mut Findings) {
    if let Some(weight) = sharing.and_then(|s| s.weight.as_ref()) {
        one(path.field("fairSharing").field("weight"), weight, out);
    }
}

fn workload(workload: &kueue::Workload, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let path = path.field("podSets");
    for (i, set) in workload.spec.pod_sets.iter().enumerate() {
        let path = path.index(i);
        template(path.field("template"), &set.template, out);
    }
    let status = Path::ROOT.field("status");
    let path = status.field("admission");
    let path = path.field("podSetAssignments");
    for (i, a) in workload.status.admission.iter().flat_map(|a| &a.pod_set_assignments).enumerate() {
        list(path.index(i).field("resourceUsage"), &a.resource_usage, out);
    }
    let path = status.field("resourceRequests");
    for (i, r) in workload.status.resource_requests.iter().enumerate() {
        list(path.index(i).field("resources"), &r.resources, out);
    }
}

fn cluster(path: Path<'_>, cluster: &ray::RayClusterSpec, out: &mut Findings) {
    if let Some(r) = cluster.autoscaler_options.as_ref().and_then(|a| a.resources.as_ref()) {
        let path = path.field("autoscalerOptions");
        resources(path.field("resources"), r, out);
    }
    let head = path.field("headGroupSpec");
    template(head.field("template"), &cluster.head_group_spec.template, out);
    let path = path.field("workerGroupSpecs");
    for (i, group) in cluster.worker_group_specs.iter().enumerate() {
        let path = path.index(i);
        template(path.field("template"), &group.template, out);
    }
}

fn job_template(path: Path<'_>, job: &JobTemplateSpec, out: &mut Findings) {
    if let Some(spec) = &job.spec {
        let path = path.field("spec");
        template(path.field("template"), &spec.template, out);
    }
}

fn template(path: Path<'_>, template: &PodTemplateSpec, out: &mut Findings) {
    if let Some(spec) = &template.spec {
        pod_spec(path.field("spec"), spec, out);
    }
}

fn pod_spec(path: Path<'_>, spec: &PodSpec, out: &mut Findings) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (field, containers) in [("initContainers", init), ("containers", &spec.containers)] {
        let path = path.field(field);
        for (i, container) in containers.iter().enumerate() {
            if let Some(r) = &container.resources {
                let path = path.index(i);
                resources(path.field("resources"), r, out);
            }
        }
    }
    if let Some(r) = &spec.resources {
        resources(path.field("resources"), r, out);
    }
    optional(path.field("overhead"), spec.overhead.as_ref(), out);
}

fn resources(path: Path<'_>, resources: &core::ResourceRequirements, out: &mut Findings) {
    for (field, of) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        optional(path.field(field), of.as_ref(), out);
        for (name, quantity) in of.iter().flatten() {
            amount(path.field(field).key(name), name, quantity, out);
        }
    }
}

/// What a container may ask for: nothing negative, and extended resources, such as chips, whole.
fn amount(path: Path<'_>, name: &str, quantity: &crate::Quantity, out: &mut Findings) {
    let Ok(quantity) = quantity.0.parse::<Quantity>() else { return };
    if quantity < Quantity::default() {
        out.invalid(path, format!("{quantity} of {name} cannot be asked for: it must be 0 or more"));
    } else if name.contains('/') && Quantity::from_units(quantity.value()) != quantity {
        out.invalid(path, format!("{quantity} of {name} cannot be asked for: it comes in whole numbers only"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Kind;
    use crate::validation::{Rules, validate};

    #[test]
    fn containers_ask_for_what_can_be_given() {
        let found = |resource: &str, quantity: &str| {
            let container = json!({"name": "c", "resources": {"limits": {resource: quantity}}});
            let spec = json!({"template": {"spec": {"containers": [container]}}});
            let job = Kind::Job.read(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
            validate(&job, &Rules::default()).len()
        };
        assert_eq!((found("google.com/tpu", "4"), found("google.com/tpu", "4k"), found("cpu", "500m")), (0, 0, 0));
        assert_eq!((found("google.com/tpu", "-4"), found("google.com/tpu", "4500m"), found("cpu", "-1")), (1, 1, 1));
    }
}
