//! Workloads, by their webhook.

use slicegate_quota::Quantity;

use super::job::{annotation, gated_by, gated_by_update, is_elastic};
use super::{FindingKind, Findings, Rules, labels};
use crate::kueue;
use crate::path::Path;

/// The condition of a workload that holds quota.
const RESERVED: &str = "QuotaReserved";
/// Names the workload that an elastic one takes the place of.
const REPLACES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";

pub(super) fn workload(workload: &kueue::Workload, rules: &Rules, out: &mut Findings) {
    checked(workload, None, rules, out);
}

/// A change of a workload: it must be right as it is now, but for what was wrong before and does no more harm now, and what was
/// decided stays.
pub(super) fn workload_update(old: &kueue::Workload, new: &kueue::Workload, rules: &Rules, out: &mut Findings) {
    checked(new, Some(old), rules, out);
    let reserved = is_true(old, RESERVED);
    if reserved {
        pod_sets_update(old, new, rules, out);
    }
    let path = Path::ROOT.field("status");
    if reserved && is_true(new, RESERVED) {
        reclaimable_update(path.field("reclaimablePods"), old, new, rules, out);
    }
    if let (Some(a), Some(b)) = (&old.status.admission, &new.status.admission)
        && !same_admission(a, b, rules)
    {
        out.immutable(path.field("admission"));
    }
    let checks = path.field("admissionChecks");
    for (i, check) in new.status.admission_checks.iter().enumerate() {
        let before = old.status.admission_checks.iter().find(|c| c.name == check.name);
        let decided = |check: &kueue::AdmissionCheckState| check.state == "Ready";
        if before.is_some_and(|b| decided(b) && decided(check) && b.pod_set_updates != check.pod_set_updates) {
            out.immutable(checks.index(i).field("podSetUpdates"));
        }
    }
    if let Some(name) = &new.status.cluster_name
        && old.status.cluster_name.is_none()
        && !old.status.nominated_cluster_names.contains(name)
        && !(rules.elastic_jobs && annotation(&new.metadata, REPLACES).is_some())
    {
        out.invalid(path.field("clusterName"), format!("{name:?} is none of status.nominatedClusterNames"));
    }
    gated_by_update(&old.metadata, &new.metadata, rules, out);
}

/// Whether a condition is true.
pub(super) fn is_true(workload: &kueue::Workload, condition: &str) -> bool {
    workload.status.conditions.iter().any(|c| c.type_ == condition && c.status == "True")
}

/// What a workload asks for stays while it holds quota; an elastic one may shrink.
fn pod_sets_update(old: &kueue::Workload, new: &kueue::Workload, rules: &Rules, out: &mut Findings) {
    let (old, new) = (&old.spec.pod_sets, &new.spec.pod_sets);
    let path = Path::ROOT.field("spec");
    let path = path.field("podSets");
    if old.len() != new.len() {
        out.immutable(path);
        return;
    }
    for (i, (a, b)) in old.iter().zip(new).enumerate() {
        let may_shrink = rules.elastic_jobs && b.count < a.count;
        let same = a == b || may_shrink && *a == kueue::PodSet { count: a.count, ..b.clone() };
        if !same {
            out.immutable(path.field(&i.to_string()));
        }
    }
}

/// Pods that were given back do not come back while the quota is held, but for pods that an elastic workload no longer has.
fn reclaimable_update(path: Path<'_>, old: &kueue::Workload, new: &kueue::Workload, rules: &Rules, out: &mut Findings) {
    for before in &old.status.reclaimable_pods {
        let path = path.key(&before.name);
        let count = |w: &kueue::Workload| w.spec.pod_sets.iter().find(|s| s.name == before.name).map(|s| s.count);
        let admitted = old
            .status
            .admission
            .as_ref()
            .and_then(|a| a.pod_set_assignments.iter().find(|s| s.name == before.name).and_then(|s| s.count));
        let shrank = is_elastic(&new.metadata, rules) && count(new) < count(old).max(admitted);
        match new.status.reclaimable_pods.iter().find(|p| p.name == before.name) {
            _ if shrank => {}
            None => out.required(path, "cannot be removed while the workload holds quota"),
            Some(after) if after.count < before.count => {
                out.invalid(path.field("count"), format!("cannot be less than {} as before", before.count));
            }
            Some(_) => {}
        }
    }
}

/// Whether two admissions are the same, but for where the pods are placed, and for pods that an elastic workload gave up.
fn same_admission(old: &kueue::Admission, new: &kueue::Admission, rules: &Rules) -> bool {
    let same = |a: &kueue::PodSetAssignment, b: &kueue::PodSetAssignment| {
        let mut b = b.clone();
        if rules.topology_aware_scheduling {
            b.topology_assignment.clone_from(&a.topology_assignment);
            b.delayed_topology_request.clone_from(&a.delayed_topology_request);
        }
        if rules.elastic_jobs && b.count < a.count {
            b.count = a.count;
            b.resource_usage.clone_from(&a.resource_usage);
        }
        *a == b
    };
    old.cluster_queue == new.cluster_queue
        && old.pod_set_assignments.len() == new.pod_set_assignments.len()
        && old.pod_set_assignments.iter().zip(&new.pod_set_assignments).all(|(a, b)| same(a, b))
}

/// What must be so now. With `old`, what was wrong in the same way before is let pass where an object could not be changed or
/// removed otherwise.
fn checked(workload: &kueue::Workload, old: Option<&kueue::Workload>, rules: &Rules, out: &mut Findings) {
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
    status(workload, old, rules, out);
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

fn status(workload: &kueue::Workload, old: Option<&kueue::Workload>, rules: &Rules, out: &mut Findings) {
    let status = &workload.status;
    let names: Vec<&str> = workload.spec.pod_sets.iter().map(|s| s.name.as_str()).collect();
    let path = Path::ROOT.field("status");
    if is_true(workload, RESERVED) {
        let path = path.field("admission");
        match &status.admission {
            None if old.is_some_and(|o| is_true(o, RESERVED) && o.status.admission.is_none()) => {}
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
                let unchanged = old.is_some_and(|o| o.status.reclaimable_pods.contains(pods));
                if unchanged && is_elastic(&workload.metadata, rules) {
                    continue;
                }
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
