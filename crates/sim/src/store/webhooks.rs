//! What an API server does with an object before it keeps it: webhooks fill in what is absent, schemas and webhooks refuse what
//! is wrong.

use slicegate_api::defaulting::{DEFAULT, JobPolicy, default_job};
use slicegate_api::validation::{Finding, Rules, validate, validate_update, validate_update_by_webhook};
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::WriteError;

use super::{Store, immutable};

/// Which jobs are managed, and which rules hold.
#[derive(Clone, Debug)]
pub(crate) struct Webhooks {
    pub(crate) policy: JobPolicy,
    pub(crate) rules: Rules,
}

impl Default for Webhooks {
    /// Those of Kueue, but that the pods of elastic jobs are not gated: whoever does not lift the gates again could not run them.
    fn default() -> Self {
        Self { policy: JobPolicy { elastic_jobs: false, ..JobPolicy::default() }, rules: Rules::default() }
    }
}

fn refused(key: &ObjectRef, findings: &[Finding]) -> Result<(), WriteError> {
    if findings.is_empty() {
        return Ok(());
    }
    let why: Vec<String> = findings.iter().map(ToString::to_string).collect();
    Err(WriteError::Invalid { object: key.clone(), why: why.join("; ") })
}

impl Store {
    /// Says which jobs are managed, and which rules hold, from now on.
    pub(crate) fn set_webhooks(&mut self, webhooks: Webhooks) {
        self.webhooks = webhooks;
    }

    /// Fills in what Kueue's webhooks do in a new job.
    pub(super) fn fill_in(&self, object: &mut Object) -> Result<(), WriteError> {
        let key = object.reference();
        default_job(object, &self.webhooks.policy, &|reference| self.objects.get(reference).cloned())
            .map_err(|error| WriteError::Invalid { object: key, why: error.to_string().replace('\n', ": ") })
    }

    /// Refuses a new object that is wrong.
    pub(super) fn admit_new(&self, object: &Object) -> Result<(), WriteError> {
        refused(&object.reference(), &validate(object, &self.webhooks.rules))
    }

    /// What happens on an update of all but the status: defaults are filled in, and what may not change or breaks a rule is
    /// refused. A rule that the object broke before is not held against it.
    pub(super) fn admit_update(&self, live: &Object, object: &mut Object) -> Result<(), WriteError> {
        if let Object::JobSet(jobset) = object {
            crate::defaults::default_jobset(std::sync::Arc::make_mut(jobset));
        }
        let key = live.reference();
        if let Some(field) = immutable::changed(live, object) {
            return Err(WriteError::Invalid { object: key, why: format!("{field}: cannot be changed") });
        }
        let rules = &self.webhooks.rules;
        let default_queue = self.objects.contains_key(&ObjectRef::new(Kind::LocalQueue, live.namespace(), DEFAULT));
        let mut found = validate_update(live, object, rules, default_queue);
        if !found.is_empty() {
            let before = validate(live, rules);
            found.retain(|finding| !before.contains(finding));
        }
        refused(&key, &found)
    }

    /// What happens on an update of the status, which only the webhook for Workloads looks at.
    pub(super) fn admit_status(&self, live: &Object, object: &Object) -> Result<(), WriteError> {
        if live.kind() != Kind::Workload {
            return Ok(());
        }
        refused(&live.reference(), &validate_update_by_webhook(live, object, &self.webhooks.rules, false))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slicegate_controller::Operation;

    use super::*;

    fn read(kind: Kind, value: serde_json::Value) -> Object {
        kind.read(value).unwrap()
    }

    fn queue(name: &str) -> Object {
        read(
            Kind::LocalQueue,
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": "c"}}),
        )
    }

    fn job(queue: Option<&str>) -> Object {
        let labels = queue.map(|queue| json!({"kueue.x-k8s.io/queue-name": queue}));
        read(
            Kind::Job,
            json!({"metadata": {"name": "a", "namespace": "default", "labels": labels},
                "spec": {"suspend": false, "parallelism": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}}),
        )
    }

    #[test]
    fn a_new_job_is_put_into_the_default_queue_and_suspended() {
        let mut store = Store::new(true);
        store.create(queue("default")).unwrap();
        let made = store.create(job(None)).unwrap().to_json().unwrap();
        assert_eq!(made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "default");
        assert_eq!(made["spec"]["suspend"], true);
    }

    #[test]
    fn an_update_is_refused_as_a_webhook_would() {
        let mut store = Store::new(true);
        store.create(queue("q")).unwrap();
        let made = store.create(job(Some("q"))).unwrap();
        let mut running = made.clone();
        if let Object::Job(job) = &mut running {
            std::sync::Arc::make_mut(job).spec.get_or_insert_default().suspend = Some(false);
        }
        let mut running = store.write(Operation::Update(running)).unwrap().unwrap();
        running.metadata_mut().labels = None;
        let error = store.write(Operation::Update(running)).unwrap_err().to_string();
        assert!(error.contains("metadata.labels[kueue.x-k8s.io/queue-name]: cannot be changed"), "{error}");
    }

    #[test]
    fn what_was_wrong_before_does_not_stop_other_changes() {
        let mut store = Store::new(true);
        let bad = json!({"metadata": {"name": "q"}, "spec": {"queueingStrategy": "Random"}});
        let mut queue = store.create(read(Kind::ClusterQueue, bad)).unwrap();
        queue.metadata_mut().labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert!(store.write(Operation::Update(queue)).is_ok());
    }

    #[test]
    fn a_status_of_a_workload_that_contradicts_itself_is_refused() {
        let mut store = Store::new(true);
        let workload = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}});
        let mut workload = store.create(read(Kind::Workload, workload)).unwrap();
        if let Object::Workload(w) = &mut workload {
            let condition = json!({"type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            std::sync::Arc::make_mut(w).status.conditions = vec![serde_json::from_value(condition).unwrap()];
        }
        let error = store.write(Operation::UpdateStatus(workload)).unwrap_err().to_string();
        assert!(error.contains("status.admission"), "{error}");
    }
}
