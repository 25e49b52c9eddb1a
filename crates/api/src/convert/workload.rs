//! Workloads.

use slicegate_workload::{
    Admission, CheckState, CheckStatus, Condition, ConditionType, EvictionCount, GatePosition, Key, PodSet,
    PodSetAssignment, PodSetRequests, PodSetUpdate, PreemptionGate, ReclaimablePods, RequeueState, Status, Timestamp,
    Workload, WorkloadSpec, WorkloadStatus,
};

use super::pod::{pod_spec_at, resource_list_at, resource_list_to_api};
use super::scheduling::{toleration_to_api, tolerations_at};
use super::topology::{topology_assignment_at, topology_assignment_to_api, topology_request};
use super::{
    ConvertError, Result, boxed, boxed_optional, boxes, choose, pick, strings, time_to_api, timestamp, unboxed,
};
use crate::kueue;
use crate::path::Path;

const STATUSES: &[(&str, Status)] = &[("True", Status::True), ("False", Status::False), ("Unknown", Status::Unknown)];

const CHECK_STATES: &[(&str, CheckState)] = &[
    ("Pending", CheckState::Pending),
    ("Ready", CheckState::Ready),
    ("Retry", CheckState::Retry),
    ("Rejected", CheckState::Rejected),
];

const GATE_POSITIONS: &[(&str, GatePosition)] = &[("Closed", GatePosition::Closed), ("Open", GatePosition::Open)];

/// `true` is pending.
const DELAYED: &[(&str, bool)] = &[("Pending", true), ("Ready", false)];

/// A Workload, with the API's defaults.
///
/// # Errors
/// If a quantity or a word cannot be read.
pub fn workload(workload: &kueue::Workload) -> Result<Workload> {
    let meta = &workload.metadata;
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let read = || {
        Ok(Workload {
            key: key.clone(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, timestamp),
            generation: meta.generation.unwrap_or_default(),
            labels: boxed_optional(meta.labels.as_ref()),
            annotations: boxed_optional(meta.annotations.as_ref()),
            owned_by_pod: matches!(owners, [o] if o.kind == "Pod" && o.api_version == "v1"),
            variant_of: owners
                .iter()
                .find(|o| o.kind == "Workload" && o.controller == Some(true))
                .map(|o| o.uid.as_str().into()),
            deleting: meta.deletion_timestamp.is_some(),
            spec: spec_at(Path::ROOT.field("spec"), &workload.spec)?,
            status: status_at(Path::ROOT.field("status"), &workload.status)?,
        })
    };
    read().map_err(|e: ConvertError| e.of("Workload", &key.to_string()))
}

/// What a workload asks for, with the API's defaults.
///
/// # Errors
/// If a quantity or a word cannot be read. The path starts at the spec.
pub fn workload_spec(spec: &kueue::WorkloadSpec) -> Result<WorkloadSpec> {
    spec_at(Path::ROOT, spec)
}

fn spec_at(path: Path<'_>, spec: &kueue::WorkloadSpec) -> Result<WorkloadSpec> {
    let pod_sets = path.field("podSets");
    let class = spec.priority_class_ref.as_ref();
    Ok(WorkloadSpec {
        queue_name: spec.queue_name.as_str().into(),
        pod_sets: spec
            .pod_sets
            .iter()
            .enumerate()
            .map(|(i, p)| pod_set_at(pod_sets.index(i), p))
            .collect::<Result<_>>()?,
        priority: spec.priority.unwrap_or_default(),
        priority_class: class.map(|c| format!("{}/{}/{}", c.group, c.kind, c.name)).unwrap_or_default().into(),
        active: spec.active.unwrap_or(true),
        maximum_execution_time_seconds: spec.maximum_execution_time_seconds,
        preemption_gates: spec.preemption_gates.iter().map(|g| g.name.as_str().into()).collect(),
    })
}

/// A pod set.
///
/// # Errors
/// If its pod cannot be read. The path starts at the pod set.
pub fn pod_set(pod_set: &kueue::PodSet) -> Result<PodSet> {
    pod_set_at(Path::ROOT, pod_set)
}

fn pod_set_at(path: Path<'_>, pod_set: &kueue::PodSet) -> Result<PodSet> {
    let template = path.field("template");
    Ok(PodSet {
        name: pod_set.name.as_str().into(),
        count: pod_set.count,
        min_count: pod_set.min_count,
        pod: match &pod_set.template.spec {
            Some(spec) => pod_spec_at(template.field("spec"), spec)?,
            None => slicegate_workload::PodSpec::default(),
        },
        topology_request: pod_set.topology_request.as_ref().map(topology_request),
        pods_per_pool: None,
    })
}

/// How far a workload got.
///
/// # Errors
/// If a quantity or a word cannot be read. The path starts at the status.
pub fn status_from_api(status: &kueue::WorkloadStatus) -> Result<WorkloadStatus> {
    status_at(Path::ROOT, status)
}

fn each<T, U>(path: Path<'_>, list: &[T], read: impl Fn(Path<'_>, &T) -> Result<U>) -> Result<Vec<U>> {
    list.iter().enumerate().map(|(i, item)| read(path.index(i), item)).collect()
}

fn status_at(path: Path<'_>, status: &kueue::WorkloadStatus) -> Result<WorkloadStatus> {
    let admission = match &status.admission {
        None => None,
        Some(a) => {
            let path = path.field("admission");
            Some(Admission {
                cluster_queue: a.cluster_queue.as_str().into(),
                pod_set_assignments: each(path.field("podSetAssignments"), &a.pod_set_assignments, assignment_at)?,
            })
        }
    };
    Ok(WorkloadStatus {
        admission,
        conditions: each(path.field("conditions"), &status.conditions, condition_at)?.into_iter().collect(),
        admission_checks: each(path.field("admissionChecks"), &status.admission_checks, check_at)?,
        requeue_state: status
            .requeue_state
            .as_ref()
            .map(|s| RequeueState { count: s.count, requeue_at: s.requeue_at.as_ref().map(timestamp) }),
        reclaimable_pods: status
            .reclaimable_pods
            .iter()
            .map(|p| ReclaimablePods { name: p.name.as_str().into(), count: p.count })
            .collect(),
        resource_requests: each(path.field("resourceRequests"), &status.resource_requests, |path, r| {
            let resources = resource_list_at(path.field("resources"), &r.resources)?;
            Ok(PodSetRequests { name: r.name.as_str().into(), resources })
        })?,
        accumulated_past_execution_time_seconds: status.accumulated_past_execution_time_seconds,
        evictions: status
            .scheduling_stats
            .iter()
            .flat_map(|s| &s.evictions)
            .map(|e| EvictionCount {
                reason: e.reason.as_str().into(),
                underlying_cause: e.underlying_cause.as_str().into(),
                count: e.count,
            })
            .collect(),
        unhealthy_nodes: status.unhealthy_nodes.iter().map(|n| n.name.as_str().into()).collect(),
        cluster_name: status.cluster_name.as_deref().map(Into::into),
        nominated_cluster_names: boxes(&status.nominated_cluster_names),
        preemption_gates: each(path.field("preemptionGates"), &status.preemption_gates, |path, g| {
            Ok(PreemptionGate {
                name: g.name.as_str().into(),
                position: choose(path.field("position"), Some(&g.position), GATE_POSITIONS)?,
                last_transition: g.last_transition_time.as_ref().map_or(Timestamp::MIN, timestamp),
            })
        })?,
    })
}

fn assignment_at(path: Path<'_>, assignment: &kueue::PodSetAssignment) -> Result<PodSetAssignment> {
    let delayed = assignment.delayed_topology_request.as_deref().filter(|d| !d.is_empty());
    Ok(PodSetAssignment {
        name: assignment.name.as_str().into(),
        flavors: boxed(&assignment.flavors),
        resource_usage: resource_list_at(path.field("resourceUsage"), &assignment.resource_usage)?,
        count: assignment.count,
        topology_assignment: assignment
            .topology_assignment
            .as_ref()
            .map(|t| topology_assignment_at(path.field("topologyAssignment"), t))
            .transpose()?,
        delayed_topology_pending: delayed
            .map(|d| pick(path.field("delayedTopologyRequest"), d, DELAYED))
            .transpose()?,
    })
}

fn check_at(path: Path<'_>, check: &kueue::AdmissionCheckState) -> Result<CheckStatus> {
    let updates = each(path.field("podSetUpdates"), &check.pod_set_updates, |path, u| {
        Ok(PodSetUpdate {
            name: u.name.as_str().into(),
            labels: boxed(&u.labels),
            annotations: boxed(&u.annotations),
            node_selector: boxed(&u.node_selector),
            tolerations: tolerations_at(path.field("tolerations"), &u.tolerations)?,
        })
    });
    Ok(CheckStatus {
        name: check.name.as_str().into(),
        state: choose(path.field("state"), Some(&check.state), CHECK_STATES)?,
        last_transition: check.last_transition_time.as_ref().map_or(Timestamp::MIN, timestamp),
        message: check.message.as_str().into(),
        requeue_after_seconds: check.requeue_after_seconds,
        retry_count: check.retry_count,
        pod_set_updates: updates?,
    })
}

/// A condition.
///
/// # Errors
/// If the status is none of `True`, `False` and `Unknown`.
pub fn condition(condition: &crate::Condition) -> Result<Condition> {
    condition_at(Path::ROOT, condition)
}

fn condition_at(path: Path<'_>, condition: &crate::Condition) -> Result<Condition> {
    Ok(Condition {
        kind: ConditionType::from(condition.type_.as_str()),
        status: pick(path.field("status"), &condition.status, STATUSES)?,
        reason: condition.reason.as_str().into(),
        message: condition.message.as_str().into(),
        last_transition: timestamp(&condition.last_transition_time),
        observed_generation: condition.observed_generation.unwrap_or_default(),
    })
}

/// A condition for the API.
pub fn condition_to_api(condition: &Condition) -> crate::Condition {
    let status = match condition.status {
        Status::True => "True",
        Status::False => "False",
        Status::Unknown => "Unknown",
    };
    crate::Condition {
        type_: condition.kind.as_str().to_owned(),
        status: status.to_owned(),
        reason: condition.reason.to_string(),
        message: condition.message.to_string(),
        last_transition_time: time_to_api(condition.last_transition),
        observed_generation: (condition.observed_generation != 0).then_some(condition.observed_generation),
    }
}

fn optional_time(time: Timestamp) -> Option<crate::Time> {
    (time != Timestamp::MIN).then(|| time_to_api(time))
}

/// How far a workload got, for the API. Conditions, checks and gates of others stay as they are.
pub fn status_to_api(status: &WorkloadStatus) -> kueue::WorkloadStatus {
    kueue::WorkloadStatus {
        admission: status.admission.as_ref().map(|a| kueue::Admission {
            cluster_queue: a.cluster_queue.to_string(),
            pod_set_assignments: a.pod_set_assignments.iter().map(assignment_to_api).collect(),
        }),
        requeue_state: status
            .requeue_state
            .map(|s| kueue::RequeueState { count: s.count, requeue_at: s.requeue_at.map(time_to_api) }),
        conditions: status.conditions.iter().map(condition_to_api).collect(),
        reclaimable_pods: status
            .reclaimable_pods
            .iter()
            .map(|p| kueue::ReclaimablePod { name: p.name.to_string(), count: p.count })
            .collect(),
        admission_checks: status.admission_checks.iter().map(check_to_api).collect(),
        resource_requests: status
            .resource_requests
            .iter()
            .map(|r| kueue::PodSetRequest { name: r.name.to_string(), resources: resource_list_to_api(&r.resources) })
            .collect(),
        accumulated_past_execution_time_seconds: status.accumulated_past_execution_time_seconds,
        scheduling_stats: (!status.evictions.is_empty()).then(|| kueue::SchedulingStats {
            evictions: status
                .evictions
                .iter()
                .map(|e| kueue::EvictionCount {
                    reason: e.reason.to_string(),
                    underlying_cause: e.underlying_cause.to_string(),
                    count: e.count,
                })
                .collect(),
        }),
        nominated_cluster_names: strings(&status.nominated_cluster_names),
        cluster_name: status.cluster_name.as_ref().map(ToString::to_string),
        unhealthy_nodes: status.unhealthy_nodes.iter().map(|n| kueue::UnhealthyNode { name: n.to_string() }).collect(),
        preemption_gates: status
            .preemption_gates
            .iter()
            .map(|g| kueue::PreemptionGateState {
                name: g.name.to_string(),
                position: match g.position {
                    GatePosition::Closed => "Closed",
                    GatePosition::Open => "Open",
                }
                .to_owned(),
                last_transition_time: optional_time(g.last_transition),
            })
            .collect(),
    }
}

fn assignment_to_api(assignment: &PodSetAssignment) -> kueue::PodSetAssignment {
    kueue::PodSetAssignment {
        name: assignment.name.to_string(),
        flavors: unboxed(&assignment.flavors),
        resource_usage: resource_list_to_api(&assignment.resource_usage),
        count: assignment.count,
        topology_assignment: assignment.topology_assignment.as_ref().map(topology_assignment_to_api),
        delayed_topology_request: assignment
            .delayed_topology_pending
            .map(|pending| if pending { "Pending" } else { "Ready" }.to_owned()),
    }
}

fn check_to_api(check: &CheckStatus) -> kueue::AdmissionCheckState {
    kueue::AdmissionCheckState {
        name: check.name.to_string(),
        state: check.state.as_str().to_owned(),
        last_transition_time: optional_time(check.last_transition),
        message: check.message.to_string(),
        requeue_after_seconds: check.requeue_after_seconds,
        retry_count: check.retry_count,
        pod_set_updates: check
            .pod_set_updates
            .iter()
            .map(|u| kueue::PodSetUpdate {
                name: u.name.to_string(),
                labels: unboxed(&u.labels),
                annotations: unboxed(&u.annotations),
                node_selector: unboxed(&u.node_selector),
                tolerations: u.tolerations.iter().map(toleration_to_api).collect(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> kueue::Workload {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn absent_fields_have_the_api_defaults() {
        let w =
            workload(&read(json!({"metadata": {"name": "w", "namespace": "n"}, "spec": {"podSets": [{}]}}))).unwrap();
        assert!(w.spec.active && w.spec.priority == 0 && w.spec.priority_class.is_empty());
        assert_eq!((&*w.spec.pod_sets[0].name, w.spec.pod_sets[0].count), ("main", 1));
        assert_eq!(w.created, Timestamp::MIN);
    }

    #[test]
    fn the_spec_is_read_whole() {
        let w = workload(&read(json!({
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "x", "controller": true}]},
            "spec": {"queueName": "q", "priority": 5, "active": false, "maximumExecutionTimeSeconds": 60,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
                "preemptionGates": [{"name": "g"}],
                "podSets": [{"name": "a", "count": 2, "minCount": 1, "topologyRequest": {"required": "rack"}}]}})))
        .unwrap();
        assert!(w.owned_by_pod);
        assert_eq!(w.created, Timestamp::from_seconds(1_767_225_600));
        assert_eq!(&*w.spec.priority_class, "kueue.x-k8s.io/WorkloadPriorityClass/high");
        assert_eq!((w.spec.priority, w.spec.active, w.spec.maximum_execution_time_seconds), (5, false, Some(60)));
        assert_eq!(w.spec.preemption_gates, ["g".into()]);
        let set = &w.spec.pod_sets[0];
        assert_eq!((set.count, set.min_count), (2, Some(1)));
        assert_eq!(set.topology_request.as_ref().unwrap().required.as_deref(), Some("rack"));
    }

    #[test]
    fn an_error_names_object_and_field() {
        let w = json!({"metadata": {"name": "w", "namespace": "n"}, "spec": {"podSets": [{"template": {"spec":
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}}}]}});
        let e = workload(&read(w)).unwrap_err();
        assert_eq!(&*e.object, "Workload n/w");
        assert_eq!(&*e.path, "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]");
        let w = json!({"status": {"admissionChecks": [{"name": "a", "state": "Done"}]}});
        assert_eq!(&*workload(&read(w)).unwrap_err().path, "status.admissionChecks[0].state");
    }

    #[test]
    fn a_status_survives_a_round_trip() {
        let time = "2026-01-01T00:00:00Z";
        let status: kueue::WorkloadStatus = serde_json::from_value(json!({
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{
                "name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}, "count": 2,
                "topologyAssignment": {"levels": ["rack"], "slices": [{"domainCount": 1,
                    "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": 2}}]},
                "delayedTopologyRequest": "Pending"}]},
            "requeueState": {"count": 1, "requeueAt": time},
            "conditions": [
                {"type": "Evicted", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": time, "observedGeneration": 2},
                {"type": "example.com/Mine", "status": "Unknown", "reason": "r", "message": "", "lastTransitionTime": time}],
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [{"name": "a", "state": "Retry", "lastTransitionTime": time, "message": "m",
                "requeueAfterSeconds": 3, "retryCount": 2, "podSetUpdates": [{"name": "main", "labels": {"a": "b"},
                    "annotations": {"c": "d"}, "nodeSelector": {"e": "f"},
                    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]}]}],
            "resourceRequests": [{"name": "main", "resources": {"cpu": "2"}}],
            "accumulatedPastExecutionTimeSeconds": 9,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
            "nominatedClusterNames": ["x"], "clusterName": "y", "unhealthyNodes": [{"name": "n"}],
            "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": time}]}))
        .unwrap();
        assert_eq!(status_to_api(&status_from_api(&status).unwrap()), status);
    }

    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(status_to_api(&WorkloadStatus::default()), kueue::WorkloadStatus::default());
    }
}
