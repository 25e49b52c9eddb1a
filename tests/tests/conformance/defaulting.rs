//! What is filled in in jobs, and which job of a chain of owners counts.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read fails")]

use std::path::Path;

use serde_json::Value;
use slicegate_api::defaulting::{
    JobPolicy, default_job, default_local_queue, default_priority_class, elastic_gate, must_suspend,
};
use slicegate_api::owner::{JOB_KINDS, OwnerError, managed_ancestor};
use slicegate_api::{Kind, Object, ObjectRef, kueue};

use crate::fixtures::{json, kind as kind_of, object, objects, same, selector};
use crate::report::{Outcome, Report};

/// What is told of a case about a kind that is not supported.
pub(crate) const OTHER_KIND: &str = "about a kind of job that is not supported";

/// The kinds of job by their names in the configuration.
const FRAMEWORKS: [(&str, Kind); 4] = [
    ("batch/job", Kind::Job),
    ("jobset.x-k8s.io/jobset", Kind::JobSet),
    ("ray.io/raycluster", Kind::RayCluster),
    ("ray.io/rayjob", Kind::RayJob),
];

fn policy(case: &Value) -> JobPolicy {
    let config = &case["config"];
    let mut policy = JobPolicy {
        manage_jobs_without_queue_name: config["manageJobsWithoutQueueName"] == true,
        managed_jobs_namespace_selector: selector(config["managedJobsNamespaceSelector"].as_str().unwrap_or_default()),
        ..JobPolicy::default()
    };
    if let Some(names) = config["enabledIntegrations"].as_array() {
        policy.frameworks =
            FRAMEWORKS.into_iter().filter(|(name, _)| names.iter().any(|n| n == name)).map(|(_, kind)| kind).collect();
    }
    let gate = |name: &str, default: bool| config["featureGates"][name].as_bool().unwrap_or(default);
    policy.priority_class_defaulting = gate("WorkloadPriorityClassDefaulting", true);
    policy.multi_kueue = gate("MultiKueue", true);
    policy.elastic_jobs = gate("ElasticJobsViaWorkloadSlices", true);
    policy.skip_ancestor_check_for_deleted = gate("SkipAncestorCheckForDeletedWorkloads", true);
    policy
}

/// Whether a case needs a kind of job that is not known here.
fn is_foreign(case: &Value) -> bool {
    let known = |kind: &Value| JOB_KINDS.iter().any(|k| kind == k.as_str());
    // A CronJob is no kind of job that could be managed; it only stands between.
    let owner = |o: &Value| known(&o["kind"]) || o["kind"] == "CronJob";
    let frameworks = case["config"]["enabledIntegrations"].as_array().into_iter().flatten();
    let all = case["objects"].as_array().into_iter().flatten().chain([&case["object"]]);
    frameworks.into_iter().any(|f| !FRAMEWORKS.iter().any(|(name, _)| f == name))
        || all.flat_map(|o| o["metadata"]["ownerReferences"].as_array().into_iter().flatten()).any(|o| !owner(o))
}

fn local_queue(name: &str, namespace: &str, cluster_queue: &str) -> Object {
    let mut queue = kueue::LocalQueue::default();
    queue.metadata.name = Some(name.to_owned());
    queue.metadata.namespace = Some(namespace.to_owned());
    cluster_queue.clone_into(&mut queue.spec.cluster_queue);
    queue.into()
}

/// The objects of a case, with those that its format only speaks of.
fn surroundings(case: &Value) -> Vec<Object> {
    let mut all = objects(case);
    let namespace = case["object"]["metadata"]["namespace"].as_str().unwrap_or_default();
    if case["config"]["defaultLocalQueueExists"] == true {
        all.push(local_queue("default", namespace, "cluster-queue"));
    }
    if case["config"]["featureGates"]["MultiKueue"] == true && case["id"].as_str().unwrap().starts_with("any-job") {
        all.push(local_queue("multikueue", namespace, "multikueue"));
        all.push(object(&serde_json::json!({"kind": "ClusterQueue", "metadata": {"name": "multikueue"}, "spec": {
            "admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}]}}})));
        all.push(object(&serde_json::json!({"kind": "AdmissionCheck", "metadata": {"name": "multikueue"},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}})));
    }
    all
}

fn with<T>(case: &Value, f: impl FnOnce(&mut Object, &JobPolicy, &dyn Fn(&ObjectRef) -> Option<Object>) -> T) -> T {
    let all = surroundings(case);
    let mut object = object(&case["object"]);
    // Objects of cases may lack names.
    let get = |reference: &ObjectRef| all.iter().find(|o| o.reference() == *reference).cloned();
    f(&mut object, &policy(case), &get)
}

fn label(object: &Object, key: &str) -> Value {
    object.metadata().labels.as_ref().and_then(|l| l.get(key)).map_or_else(|| "".into(), |v| v.as_str().into())
}

/// Runs the suites of the folder `jobs` about what is filled in and about owners.
pub(crate) fn of_jobs(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "should-be-suspended", |case| {
        with(case, |object, policy, get| {
            let tolerate = case["config"]["tolerateDeleting"] == true;
            let policy = JobPolicy {
                skip_ancestor_check_for_deleted: policy.skip_ancestor_check_for_deleted && tolerate,
                ..policy.clone()
            };
            match (must_suspend(object, &policy, get), case["expect"].get("error")) {
                (Ok(got), None) => same(&got.into(), &case["expect"]["suspend"]),
                (Err(error), Some(want)) => same(&error.to_string().into(), want),
                other => Err(format!("{other:?}")),
            }
        })
    });
    report.suite(corpus, kind, "default-local-queue", |case| {
        with(case, |object, policy, get| {
            // The namespace is looked at first, whatever else is filled in.
            let namespace = get(&ObjectRef::new(Kind::Namespace, "", object.namespace()));
            if policy.manages_namespace(object.namespace(), namespace.as_ref()) {
                default_local_queue(object, policy, get);
            }
            same(&label(object, "kueue.x-k8s.io/queue-name"), &case["expect"]["queueLabel"])
        })
    });
    report.suite(corpus, kind, "default-priority-class", |case| {
        with(case, |object, policy, get| {
            default_priority_class(object, policy, get);
            same(&label(object, "kueue.x-k8s.io/priority-class"), &case["expect"]["priorityClassLabel"])
        })
    });
    report.suite(corpus, kind, "find-ancestor", |case| {
        if is_foreign(case) {
            return Outcome::LeftOut(OTHER_KIND);
        }
        with(case, |object, policy, get| match (managed_ancestor(object, policy, get), case["expect"].get("error")) {
            (Ok(got), None) => {
                let name = got.map_or(Value::Null, |r| r.name.to_string().into());
                same(&name, &case["expect"]["ancestor"]["metadata"]["name"])
            }
            (Err(error), Some(want)) => same(&error.to_string().into(), want),
            other => Err(format!("{other:?}")),
        })
        .into()
    });
}

/// Runs the suites of the folder `validation` about what is filled in.
pub(crate) fn of_validation(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in ["any-job-default", "job-default", "jobset-default", "rayjob-default", "raycluster-default"] {
        report.suite(corpus, kind, suite, |case| {
            if is_foreign(case) {
                return Outcome::LeftOut(OTHER_KIND);
            }
            // Where a case does not say what is enabled, only its own kind is.
            let mut case = case.clone();
            let own = kind_of(&case["object"]);
            if case["config"]["enabledIntegrations"].is_null() {
                let names = FRAMEWORKS.iter().filter(|(_, kind)| Some(*kind) == own).map(|(name, _)| *name);
                case["config"]["enabledIntegrations"] = names.collect::<Vec<_>>().into();
            }
            with(&case, |object, policy, get| {
                let result: Result<(), OwnerError> = default_job(object, policy, get);
                match (result, case["expect"].get("error")) {
                    (Ok(()), None) => same(&json(object), &json(&self::object(&case["expect"]["object"]))),
                    (Err(error), Some(want)) => same(&error.to_string().into(), want),
                    other => Err(format!("{other:?}")),
                }
            })
            .into()
        });
    }
    report.suite(corpus, kind, "job-elastic-gate", |case| {
        with(case, |object, policy, _| {
            elastic_gate(object, policy);
            same(&json(object), &json(&self::object(&case["expect"]["object"])))
        })
    });
}
