//! What may be changed in an object that exists: what the schemas of Kueue's kinds say about old and new together, and what
//! Kueue's webhooks say.

use super::{Finding, Findings, Rules, cluster_queue, counts, foreign, job, quantities, schema, slice, workload};
use crate::path::Path;
use crate::{Object, ObjectMeta, kueue};

/// The old and the new metadata of a job, and what else its rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct JobChange<'a> {
    /// Before.
    pub old: &'a ObjectMeta,
    /// After.
    pub new: &'a ObjectMeta,
    /// Whether it was suspended.
    pub was_suspended: bool,
    /// Whether it is suspended now.
    pub is_suspended: bool,
    /// Whether its namespace has a LocalQueue `default`.
    pub default_queue: bool,
}

/// Checks a change of an object by all rules: those that hold for every object of the kind, and those about old and new
/// together. `default_queue` says whether the object's namespace has a LocalQueue `default`. Objects of different kinds are not
/// compared.
pub fn validate_update(old: &Object, new: &Object, rules: &Rules, default_queue: bool) -> Vec<Finding> {
    let mut out = Findings::default();
    schema::check(new, &mut out);
    quantities::check(new, &mut out);
    counts::check(new, &mut out);
    foreign::check(new, &mut out);
    transition(old, new, &mut out);
    by_webhook(old, new, rules, default_queue, &mut out);
    out.0
}

/// Checks a change of an object as Kueue's webhooks do, without the rules of the schemas.
pub fn validate_update_by_webhook(old: &Object, new: &Object, rules: &Rules, default_queue: bool) -> Vec<Finding> {
    let mut out = Findings::default();
    by_webhook(old, new, rules, default_queue, &mut out);
    out.0
}

/// Checks what changes of jobs of every kind have in common.
pub fn job_metadata_update(change: &JobChange<'_>, rules: &Rules) -> Vec<Finding> {
    let mut out = Findings::default();
    job::prebuilt(change.new, rules, &mut out);
    job::metadata_update(change, rules, &mut out);
    out.0
}

fn by_webhook(old: &Object, new: &Object, rules: &Rules, default_queue: bool, out: &mut Findings) {
    match (old, new) {
        (Object::ClusterQueue(a), Object::ClusterQueue(b)) => cluster_queue::cluster_queue_update(a, b, rules, out),
        (Object::Cohort(_), Object::Cohort(_)) | (Object::ResourceFlavor(_), Object::ResourceFlavor(_)) => {
            super::check_by_webhook(new, rules, out);
        }
        (Object::Workload(a), Object::Workload(b)) => workload::workload_update(a, b, rules, out),
        (Object::Job(a), Object::Job(b)) => job::job_update(a, b, rules, default_queue, out),
        (Object::JobSet(a), Object::JobSet(b)) => job::job_set_update(a, b, rules, default_queue, out),
        (Object::RayJob(a), Object::RayJob(b)) => job::ray_job_update(a, b, rules, default_queue, out),
        (Object::RayCluster(a), Object::RayCluster(b)) => job::ray_cluster_update(a, b, rules, default_queue, out),
        _ => {}
    }
}

/// What the schemas say about old and new.
fn transition(old: &Object, new: &Object, out: &mut Findings) {
    let spec = Path::ROOT.field("spec");
    match (old, new) {
        (Object::LocalQueue(a), Object::LocalQueue(b)) if a.spec.cluster_queue != b.spec.cluster_queue => {
            out.immutable(spec.field("clusterQueue"));
        }
        (Object::AdmissionCheck(a), Object::AdmissionCheck(b)) if a.spec.controller_name != b.spec.controller_name => {
            out.immutable(spec.field("controllerName"));
        }
        (Object::ResourceFlavor(a), Object::ResourceFlavor(b))
            if a.spec.topology_name.is_some() && a.spec.topology_name != b.spec.topology_name =>
        {
            out.immutable(spec.field("topologyName"));
        }
        (Object::Topology(a), Object::Topology(b)) if a.spec.levels != b.spec.levels => {
            let by_host = |t: &kueue::Topology| {
                t.spec.levels.last().is_some_and(|level| level.node_label == "kubernetes.io/hostname")
            };
            if !by_host(a) || !by_host(b) {
                out.invalid(
                    spec.field("levels"),
                    "may only be changed if kubernetes.io/hostname is the last level before and after",
                );
            }
        }
        (Object::Slice(a), Object::Slice(b)) => slice::transition(a, b, out),
        (Object::Workload(a), Object::Workload(b)) => workload_transition(a, b, out),
        _ => {}
    }
}

fn workload_transition(old: &kueue::Workload, new: &kueue::Workload, out: &mut Findings) {
    let path = Path::ROOT.field("spec");
    let both = |condition| workload::is_true(old, condition) && workload::is_true(new, condition);
    if workload::is_true(old, "QuotaReserved") {
        let class = path.field("priorityClassRef");
        match (&old.spec.priority_class_ref, &new.spec.priority_class_ref) {
            (None, None) => {}
            (Some(a), Some(b)) => {
                for (field, same) in [("group", a.group == b.group), ("kind", a.kind == b.kind)] {
                    if !same {
                        out.immutable(class.field(field));
                    }
                }
                if a.kind == "PriorityClass" && a.name != b.name {
                    out.immutable(class.field("name"));
                }
            }
            _ => out.immutable(class),
        }
    }
    if both("QuotaReserved") && old.spec.queue_name != new.spec.queue_name {
        out.immutable(path.field("queueName"));
    }
    if both("Admitted") && old.spec.maximum_execution_time_seconds != new.spec.maximum_execution_time_seconds {
        out.immutable(path.field("maximumExecutionTimeSeconds"));
    }
    if let (Some(a), Some(b)) = (&old.status.cluster_name, &new.status.cluster_name)
        && a != b
    {
        out.immutable(Path::ROOT.field("status").field("clusterName"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Kind;
    use crate::validation::{Rules, validate_update};

    fn found(kind: Kind, old: &Value, new: &Value) -> Vec<String> {
        let read = |value: &Value| {
            let mut value = value.clone();
            value["metadata"]["name"] = "a".into();
            kind.read(value).unwrap()
        };
        let all = validate_update(&read(old), &read(new), &Rules::default(), false);
        all.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn what_a_schema_fixes_stays() {
        let queue = |name| json!({"spec": {"clusterQueue": name}});
        assert_eq!(found(Kind::LocalQueue, &queue("x"), &queue("y")), ["spec.clusterQueue"]);
        assert!(found(Kind::LocalQueue, &queue("x"), &queue("x")).is_empty());
        let check = |name| json!({"spec": {"controllerName": name}});
        assert_eq!(found(Kind::AdmissionCheck, &check("x"), &check("y")), ["spec.controllerName"]);
        let flavor = |name: Value| json!({"spec": {"nodeLabels": {"a": "b"}, "topologyName": name}});
        assert_eq!(found(Kind::ResourceFlavor, &flavor("x".into()), &flavor("y".into())), ["spec.topologyName"]);
        assert!(found(Kind::ResourceFlavor, &flavor(Value::Null), &flavor("y".into())).is_empty());
        let topology = |levels: &[&str]| {
            let levels: Vec<Value> = levels.iter().map(|level| json!({"nodeLabel": level})).collect();
            json!({"spec": {"levels": levels}})
        };
        let host = "kubernetes.io/hostname";
        assert_eq!(found(Kind::Topology, &topology(&["a"]), &topology(&["b"])), ["spec.levels"]);
        assert!(found(Kind::Topology, &topology(&["a", host]), &topology(&["b", host])).is_empty());
    }

    #[test]
    fn a_job_can_run_with_no_more_than_its_fewest_pods() {
        let job = |suspend: bool, parallelism: i32, stopping: bool| {
            let mut annotations = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
            if stopping {
                annotations["kueue.x-k8s.io/stopping"] = "true".into();
            }
            json!({"metadata": {"annotations": annotations}, "spec": {"suspend": suspend, "parallelism": parallelism,
                "template": {"spec": {"containers": []}}}})
        };
        let change = |old: &Value, new: &Value| found(Kind::Job, old, new);
        let (waits, runs, stops) = (job(true, 3, false), job(false, 2, false), job(true, 2, true));
        for (old, new) in [(&waits, &runs), (&runs, &runs), (&runs, &stops), (&stops, &stops), (&stops, &waits)] {
            assert!(change(old, new).is_empty(), "{old} -> {new}");
        }
        let at = "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]";
        assert_eq!(change(&waits, &job(true, 2, false)), [at], "a user leaves room for less");
        assert_eq!(change(&waits, &job(false, 1, false)), [at]);
    }

    #[test]
    fn a_workload_that_holds_quota_keeps_its_queue_and_class() {
        let workload = |queue: &str, class: Value, conditions: &[&str]| {
            let conditions: Vec<Value> = conditions
                .iter()
                .map(|c| {
                    json!({"type": c, "status": "True", "reason": "R", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"})
                })
                .collect();
            let pod = json!({"spec": {"containers": []}});
            json!({
                "spec": {"queueName": queue, "priority": 1, "priorityClassRef": class,
                    "podSets": [{"name": "main", "count": 1, "template": pod}]},
                "status": {"conditions": conditions, "admission": {"clusterQueue": "c",
                    "podSetAssignments": [{"name": "main"}]}}
            })
        };
        let ours = |name: &str| json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name});
        let theirs = |name: &str| json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name});
        let held = ["QuotaReserved"];
        let class = "spec.priorityClassRef";
        let change = |a: &Value, b: &Value| found(Kind::Workload, a, b);
        assert_eq!(
            change(&workload("a", ours("x"), &held), &workload("b", ours("y"), &held)),
            ["spec.queueName"],
            "the name of a WorkloadPriorityClass may change"
        );
        assert!(change(&workload("a", ours("x"), &[]), &workload("b", theirs("y"), &[])).is_empty());
        assert_eq!(
            change(&workload("a", theirs("x"), &held), &workload("a", theirs("y"), &held)),
            [format!("{class}.name")]
        );
        assert_eq!(
            change(&workload("a", theirs("x"), &held), &workload("a", ours("x"), &held)),
            [format!("{class}.group"), format!("{class}.kind")]
        );
        assert_eq!(change(&workload("a", Value::Null, &held), &workload("a", ours("x"), &held)), [class]);
    }
}
