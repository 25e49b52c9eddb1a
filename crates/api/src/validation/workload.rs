//! Workloads, by their webhook.

use slicegate_quota::Quantity;

use super::job::{annotation, gated_by, is_elastic};
use super::{FindingKind, Findings, Rules, labels};
use crate::kueue;
use crate::path::Path;

const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";

pub(super) fn workload(workload: &kueue::Workload, rules: &Rules, out: &mut Findings) {
    let meta = &workload.metadata;
    let spec = &workload.spec;
    let path = Path::ROOT.field("spec");
    let sets = path.field("podSets");
    for (i, set) in spec.pod_sets.iter().enumerate() {
        pod_set(sets.index(i), set, rules, out);
    }
    let partial = spec.pod_sets.iter().filter(|s| s.min_count.is_some()).count();
    if partial > 1 {
        out.invalid(sets, "only one pod set can have minCount");
    }
    if partial > 0 && is_elastic(meta, rules) {
        out.invalid(sets, "an elastic workload cannot be admitted in part: remove minCount");
    }
    status(workload, out);
    if let Some(boost) = annotation(meta, PRIORITY_BOOST).filter(|_| rules.priority_boost) {
        // Zero is written out: an empty text is no number.
        if boost.parse::<i32>().is_err() {
            let path = Path::ROOT.field("metadata");
            let path = path.field("annotations");
            out.invalid(path.key(PRIORITY_BOOST), format!("{boost:?} is no whole number"));
        }
    }
    gated_by(meta, rules, out);
}

fn pod_set(path: Path<'_>, set: &kueue::PodSet, rules: &Rules, out: &mut Findings) {
    let template = path.field("template");
    if let Some(meta) = set.template.metadata.as_ref().filter(|_| rules.pod_set_metadata) {
        let path = template.field("metadata");
        if let Some(map) = &meta.labels {
            labels::labels(path.field("labels"), map, out);
        }
        if let Some(map) = &meta.annotations {
            labels::annotations(path.field("annotations"), map, out);
        }
    }
    if let Some(spec) = &set.template.spec {
        let path = template.field("spec");
        let init = spec.init_containers.as_deref().unwrap_or_default();
        for (field, containers) in [("initContainers", init), ("containers", &spec.containers)] {
            let path = path.field(field);
            for (i, container) in containers.iter().enumerate() {
                if let Some(resources) = &container.resources {
                    let path = path.index(i);
                    self::resources(path.field("resources"), resources, true, rules, out);
                }
            }
        }
        if let Some(resources) = &spec.resources {
            self::resources(path.field("resources"), resources, false, rules, out);
        }
    }
    if let Some(request) = set.topology_request.as_ref().filter(|_| rules.slice_size) {
        slices(path.field("topologyRequest"), request, out);
    }
}

fn resources(
    path: Path<'_>,
    resources: &k8s_openapi::api::core::v1::ResourceRequirements,
    of_container: bool,
    rules: &Rules,
    out: &mut Findings,
) {
    for (field, list) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        let path = path.field(field);
        for (name, quantity) in list.iter().flatten() {
            let path = path.key(name);
            if of_container && name == "pods" {
                out.invalid(path, "the number of pods is counted by itself and cannot be asked for");
            }
            let negative = quantity.0.parse::<Quantity>().is_ok_and(|q| q.nanos() < 0);
            if rules.non_negative_resources && negative {
                out.invalid(path, "must be 0 or more");
            }
        }
    }
}

fn slices(path: Path<'_>, request: &kueue::PodSetTopologyRequest, out: &mut Findings) {
    if let Some(size) = request.pod_set_slice_size {
        let path = path.field("podSetSliceSize");
        if request.pod_set_slice_required_topology.is_none() {
            out.forbidden(path, "may only be there with podSetSliceRequiredTopology");
        } else if size <= 0 {
            out.invalid(path, "must be more than 0");
        }
    } else if request.pod_set_slice_required_topology.is_some() {
        out.required(path.field("podSetSliceSize"), "must be there together with podSetSliceRequiredTopology");
    }
    let path = path.field("podsetSliceRequiredTopologyConstraints");
    for (i, layer) in request.pod_set_slice_required_topology_constraints.iter().enumerate() {
        if layer.size <= 0 {
            out.invalid(path.index(i).field("size"), "must be more than 0");
        }
    }
}

fn status(workload: &kueue::Workload, out: &mut Findings) {
    let status = &workload.status;
    let names: Vec<&str> = workload.spec.pod_sets.iter().map(|s| s.name.as_str()).collect();
    let path = Path::ROOT.field("status");
    if status.conditions.iter().any(|c| c.type_ == "QuotaReserved" && c.status == "True") {
        let path = path.field("admission");
        match &status.admission {
            None => out.required(path, "must be there while the condition QuotaReserved is true"),
            Some(admission) => {
                let path = path.field("podSetAssignments");
                for (i, assignment) in admission.pod_set_assignments.iter().enumerate() {
                    self::assignment(path.index(i), assignment, &names, out);
                }
            }
        }
    }
    let reclaimable = path.field("reclaimablePods");
    for pods in &status.reclaimable_pods {
        let path = reclaimable.key(&pods.name);
        match workload.spec.pod_sets.iter().find(|s| s.name == pods.name) {
            Some(set) if pods.count > set.count => {
                out.invalid(
                    path.field("count"),
                    format!("must not be more than the {} pods of the pod set", set.count),
                );
            }
            Some(_) => {}
            None => not_a_pod_set(path.field("name"), &pods.name, &names, out),
        }
    }
    let checks = path.field("admissionChecks");
    for (i, check) in status.admission_checks.iter().enumerate() {
        let path = checks.index(i);
        let path = path.field("podSetUpdates");
        for (j, update) in check.pod_set_updates.iter().enumerate() {
            let path = path.index(j);
            if !names.contains(&update.name.as_str()) {
                not_a_pod_set(path.field("name"), &update.name, &names, out);
            }
            labels::labels(path.field("labels"), &update.labels, out);
            labels::annotations(path.field("annotations"), &update.annotations, out);
            labels::labels(path.field("nodeSelector"), &update.node_selector, out);
            labels::tolerations(path.field("tolerations"), &update.tolerations, out);
        }
    }
}

fn not_a_pod_set(path: Path<'_>, name: &str, names: &[&str], out: &mut Findings) {
    let detail = format!("{name:?} is no pod set of this workload; it has {}", names.join(", "));
    out.add(path, FindingKind::NotSupported, detail);
}

fn assignment(path: Path<'_>, assignment: &kueue::PodSetAssignment, names: &[&str], out: &mut Findings) {
    if !names.contains(&assignment.name.as_str()) {
        let detail = format!("{:?} is no pod set of this workload; it has {}", assignment.name, names.join(", "));
        out.add(path.field("name"), FindingKind::NotFound, detail);
    }
    let Some(count) = assignment.count.filter(|c| *c > 0) else { return };
    let path = path.field("resourceUsage");
    for (resource, usage) in &assignment.resource_usage {
        let Ok(usage) = usage.0.parse::<Quantity>() else { continue };
        // Millis of cpu, whole units of everything else, rounded up.
        let unit: i128 = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
        let nanos = usage.nanos();
        let units = nanos.div_euclid(unit).saturating_add(i128::from(nanos.rem_euclid(unit) != 0));
        if units.rem_euclid(i128::from(count)) != 0 {
            out.invalid(path.key(resource), format!("must be a multiple of the pod set's {count} pods"));
        }
    }
}
