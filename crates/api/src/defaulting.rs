//! What Kueue's webhooks fill in when a job is made: its queue, its priority class, that it starts suspended, who manages it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodSchedulingGate;
use slicegate_workload::{LabelSelector, Operator, Requirement};
use std::sync::Arc;

use crate::owner::{JOB_KINDS, OwnerError, controller_of, managed_ancestor, owner_kind};
use crate::{Kind, Object, ObjectMeta, ObjectRef, PodTemplateSpec};

const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// The gate that holds the pods of an elastic job until their quota is there.
const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";
const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";
/// The name of the LocalQueue and of the WorkloadPriorityClass of jobs that name none.
pub const DEFAULT: &str = "default";
/// What `managedBy` says if a kind's own controller manages it.
pub const OWN_CONTROLLERS: [&str; 3] =
    ["kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller", "ray.io/kuberay-operator"];

/// Which jobs are managed, and what is filled in in them. The default is that of Kueue's manager, with every kind of job that is
/// known here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPolicy {
    /// Whether jobs without a queue are managed too.
    pub manage_jobs_without_queue_name: bool,
    /// The namespaces whose jobs are managed.
    pub managed_jobs_namespace_selector: LabelSelector,
    /// The kinds of job that are managed.
    pub frameworks: BTreeSet<Kind>,
    /// `WorkloadPriorityClassDefaulting`
    pub priority_class_defaulting: bool,
    /// `MultiKueue`
    pub multi_kueue: bool,
    /// `ElasticJobsViaWorkloadSlices`
    pub elastic_jobs: bool,
    /// `SkipAncestorCheckForDeletedWorkloads`: a missing owner of a job that is being deleted is no error.
    pub skip_ancestor_check_for_deleted: bool,
}

impl Default for JobPolicy {
    fn default() -> Self {
        Self {
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: LabelSelector {
                match_expressions: vec![Requirement {
                    key: "kubernetes.io/metadata.name".into(),
                    operator: Operator::NotIn,
                    values: vec!["kube-system".into(), "kueue-system".into()],
                }],
                ..LabelSelector::default()
            },
            frameworks: JOB_KINDS.into_iter().collect(),
            priority_class_defaulting: true,
            multi_kueue: true,
            elastic_jobs: true,
            skip_ancestor_check_for_deleted: true,
        }
    }
}

impl JobPolicy {
    /// Whether jobs of a namespace are managed. One that is not known has its name as its only label.
    pub fn manages_namespace(&self, name: &str, namespace: Option<&Object>) -> bool {
        let mut labels: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
        for (key, value) in namespace.into_iter().flat_map(|n| n.metadata().labels.iter().flatten()) {
            labels.insert(key.as_str().into(), value.as_str().into());
        }
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
        self.managed_jobs_namespace_selector.matches(&labels)
    }

    /// Whether an object is controlled by a job of a kind that is managed, so that whatever it needs comes from there.
    pub fn has_managed_owner(&self, metadata: &ObjectMeta) -> bool {
        controller_of(metadata).and_then(owner_kind).is_some_and(|kind| self.frameworks.contains(&kind))
    }
}

/// Finds an object by name.
pub type Get<'a> = &'a dyn Fn(&ObjectRef) -> Option<Object>;

/// Whether an object names a queue.
pub fn has_queue(metadata: &ObjectMeta) -> bool {
    label(metadata, QUEUE_NAME).is_some()
}

/// A label that is not empty.
fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// Fills in what a job does not say itself. Objects of other kinds, and jobs in namespaces that are not managed, stay as they
/// are.
///
/// # Errors
/// If it cannot be said whether an owner of the job is managed; nothing is changed then that depends on it.
pub fn default_job(object: &mut Object, policy: &JobPolicy, get: Get<'_>) -> Result<(), OwnerError> {
    if !policy.frameworks.contains(&object.kind()) || !JOB_KINDS.contains(&object.kind()) {
        return Ok(());
    }
    let namespace = get(&ObjectRef::new(Kind::Namespace, "", object.namespace()));
    if !policy.manages_namespace(object.namespace(), namespace.as_ref()) {
        return Ok(());
    }
    default_local_queue(object, policy, get);
    default_priority_class(object, policy, get);
    if must_suspend(object, policy, get)? {
        suspend(object);
    }
    elastic_gate(object, policy);
    default_managed_by(object, policy, get);
    Ok(())
}

/// Puts a job without a queue into the LocalQueue `default` of its namespace, if there is one and the job is not another's.
pub fn default_local_queue(object: &mut Object, policy: &JobPolicy, get: Get<'_>) {
    if has_queue(object.metadata()) || policy.has_managed_owner(object.metadata()) {
        return;
    }
    if get(&ObjectRef::new(Kind::LocalQueue, object.namespace(), DEFAULT)).is_some() {
        set_label(object, QUEUE_NAME);
    }
}

/// Gives a job without a priority class the WorkloadPriorityClass `default`, if there is one and the job is not another's.
pub fn default_priority_class(object: &mut Object, policy: &JobPolicy, get: Get<'_>) {
    let metadata = object.metadata();
    if !policy.priority_class_defaulting
        || label(metadata, PRIORITY_CLASS).is_some()
        || policy.has_managed_owner(metadata)
    {
        return;
    }
    if get(&ObjectRef::new(Kind::WorkloadPriorityClass, "", DEFAULT)).is_some() {
        set_label(object, PRIORITY_CLASS);
    }
}

fn set_label(object: &mut Object, key: &str) {
    object.metadata_mut().labels.get_or_insert_default().insert(key.to_owned(), DEFAULT.to_owned());
}

/// Whether a job must start suspended: it has a queue, or needs none, and no owner of it is managed.
///
/// # Errors
/// If its owners cannot be followed.
pub fn must_suspend(object: &Object, policy: &JobPolicy, get: Get<'_>) -> Result<bool, OwnerError> {
    match managed_ancestor(object, policy, get) {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(false),
        // Its owner went first.
        Err(OwnerError::Missing(_))
            if policy.skip_ancestor_check_for_deleted && object.metadata().deletion_timestamp.is_some() =>
        {
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    if has_queue(object.metadata()) {
        return Ok(true);
    }
    if !policy.manage_jobs_without_queue_name {
        return Ok(false);
    }
    let namespace = get(&ObjectRef::new(Kind::Namespace, "", object.namespace()));
    Ok(policy.manages_namespace(object.namespace(), namespace.as_ref()))
}

fn suspend(object: &mut Object) {
    match object {
        Object::Job(o) => Arc::make_mut(o).spec.get_or_insert_default().suspend = Some(true),
        Object::JobSet(o) => Arc::make_mut(o).spec.suspend = Some(true),
        Object::RayJob(o) => Arc::make_mut(o).spec.suspend = Some(true),
        Object::RayCluster(o) => Arc::make_mut(o).spec.suspend = Some(true),
        _ => {}
    }
}

/// Gives the pods of an elastic Job or RayCluster the gate that holds them until their quota is there.
pub fn elastic_gate(object: &mut Object, policy: &JobPolicy) {
    let annotations = object.metadata().annotations.as_ref();
    let elastic = annotations.and_then(|a| a.get(ELASTIC_JOB)).is_some_and(|value| value == "true");
    if !policy.elastic_jobs || !elastic {
        return;
    }
    match object {
        Object::Job(o) => gate(&mut Arc::make_mut(o).spec.get_or_insert_default().template),
        Object::RayCluster(o) => {
            let spec = &mut Arc::make_mut(o).spec;
            gate(&mut spec.head_group_spec.template);
            spec.worker_group_specs.iter_mut().for_each(|group| gate(&mut group.template));
        }
        _ => {}
    }
}

fn gate(template: &mut PodTemplateSpec) {
    let gates = template.spec.get_or_insert_default().scheduling_gates.get_or_insert_default();
    if !gates.iter().any(|gate| gate.name == ELASTIC_GATE) {
        gates.push(PodSchedulingGate { name: ELASTIC_GATE.to_owned() });
    }
}

/// Leaves a job to MultiKueue if its ClusterQueue has a check of that kind and nobody else manages the job.
pub fn default_managed_by(object: &mut Object, policy: &JobPolicy, get: Get<'_>) {
    if !policy.multi_kueue {
        return;
    }
    let Some(queue) = label(object.metadata(), QUEUE_NAME) else { return };
    let Some(Object::LocalQueue(queue)) = get(&ObjectRef::new(Kind::LocalQueue, object.namespace(), queue)) else {
        return;
    };
    let cluster_queue = ObjectRef::new(Kind::ClusterQueue, "", queue.spec.cluster_queue.as_str());
    let Some(Object::ClusterQueue(cluster_queue)) = get(&cluster_queue) else { return };
    let checks = cluster_queue.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
    let multi = checks.into_iter().any(|rule| {
        matches!(
            get(&ObjectRef::new(Kind::AdmissionCheck, "", rule.name.as_str())),
            Some(Object::AdmissionCheck(check)) if check.spec.controller_name == MULTI_KUEUE
        )
    });
    if !multi {
        return;
    }
    let field = match object {
        Object::Job(o) => &mut Arc::make_mut(o).spec.get_or_insert_default().managed_by,
        Object::JobSet(o) => &mut Arc::make_mut(o).spec.managed_by,
        Object::RayJob(o) => &mut Arc::make_mut(o).spec.managed_by,
        Object::RayCluster(o) => &mut Arc::make_mut(o).spec.managed_by,
        _ => return,
    };
    if field.as_deref().is_none_or(|by| OWN_CONTROLLERS.contains(&by)) {
        *field = Some(MULTI_KUEUE.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn defaulted(kind: Kind, mut job: Value, policy: &JobPolicy, there: &[(Kind, Value)]) -> Value {
        job["metadata"]["namespace"] = "ns".into();
        let objects: Vec<Object> = there.iter().map(|(kind, value)| kind.read(value.clone()).unwrap()).collect();
        let get = |reference: &ObjectRef| objects.iter().find(|o| o.reference() == *reference).cloned();
        let mut object = kind.read(job).unwrap();
        default_job(&mut object, policy, &get).unwrap();
        object.to_json().unwrap()
    }

    fn queue() -> (Kind, Value) {
        (Kind::LocalQueue, json!({"metadata": {"name": "default", "namespace": "ns"}, "spec": {"clusterQueue": "c"}}))
    }

    #[test]
    fn a_job_without_a_queue_gets_the_default_one_and_is_suspended() {
        let class = (Kind::WorkloadPriorityClass, json!({"metadata": {"name": "default"}, "value": 5}));
        for kind in JOB_KINDS {
            let spec = if kind == Kind::Job { json!({"template": {}}) } else { json!({}) };
            let job = json!({"metadata": {"name": "a"}, "spec": spec});
            let got = defaulted(kind, job.clone(), &JobPolicy::default(), &[queue(), class.clone()]);
            let labels = json!({"kueue.x-k8s.io/queue-name": "default", "kueue.x-k8s.io/priority-class": "default"});
            assert_eq!(got["metadata"]["labels"], labels, "{kind}");
            assert_eq!(got["spec"]["suspend"], true, "{kind}");
            let got = defaulted(kind, job, &JobPolicy::default(), &[]);
            assert_eq!((&got["metadata"]["labels"], &got["spec"]["suspend"]), (&Value::Null, &Value::Null), "{kind}");
        }
    }

    #[test]
    fn jobs_of_excluded_namespaces_and_of_managed_owners_are_left_alone() {
        let policy = JobPolicy {
            manage_jobs_without_queue_name: true,
            managed_jobs_namespace_selector: LabelSelector {
                match_labels: BTreeMap::from([("team".into(), "a".into())]),
                ..LabelSelector::default()
            },
            ..JobPolicy::default()
        };
        let namespace = (Kind::Namespace, json!({"metadata": {"name": "ns", "labels": {"team": "a"}}}));
        let job = json!({"metadata": {"name": "a"}, "spec": {"template": {}}});
        let untouched = defaulted(Kind::Job, job.clone(), &policy, &[queue()]);
        assert_eq!((&untouched["metadata"]["labels"], &untouched["spec"]["suspend"]), (&Value::Null, &Value::Null));
        let managed = defaulted(Kind::Job, job, &policy, &[queue(), namespace.clone()]);
        assert_eq!(managed["spec"]["suspend"], true);
        let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "o", "uid": "u",
            "controller": true});
        let child = json!({"metadata": {"name": "a", "ownerReferences": [owner]}, "spec": {"template": {}}});
        let jobset = (Kind::JobSet, json!({"metadata": {"name": "o", "namespace": "ns", "uid": "u"}, "spec": {}}));
        let child = defaulted(Kind::Job, child, &policy, &[queue(), namespace, jobset]);
        assert_eq!((&child["metadata"]["labels"], &child["spec"]["suspend"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn the_pods_of_an_elastic_cluster_are_gated_once() {
        let meta = json!({"name": "a", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
        let gated = json!({"spec": {"containers": [], "schedulingGates": [{"name": ELASTIC_GATE}]}});
        let cluster = json!({"metadata": meta, "spec": {"headGroupSpec": {"template": gated},
            "workerGroupSpecs": [{"groupName": "w", "template": {"spec": {"containers": []}}}]}});
        let got = defaulted(Kind::RayCluster, cluster, &JobPolicy::default(), &[]);
        assert_eq!(got["spec"]["headGroupSpec"]["template"], gated);
        assert_eq!(got["spec"]["workerGroupSpecs"][0]["template"], gated);
    }
}
