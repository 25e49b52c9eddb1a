//! What must be true when nothing happens any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;
use slicegate_api::kueue::Workload;
use slicegate_api::{Condition, Kind, Object, ObjectRef};
use slicegate_controller::{Change, Controller, Operation};

use super::actors;
use super::replica::describe_write;
use super::rules;
use super::run::Run;
use super::setup::{CAPACITY, POOL, RESOURCE};

impl Run {
    /// What must be true when nothing happens any more.
    pub(super) fn at_rest(&mut self) -> Result<(), String> {
        self.decides_the_same()?;
        let jobs = actors::jobs(&self.server);
        let uids: BTreeSet<&str> = jobs.iter().map(Object::uid).collect();
        for workload in self.server.workloads() {
            let object = Object::Workload(workload.clone());
            let reference = object.reference();
            if rules::is_finished(workload) {
                continue;
            }
            let owner = crate::store::controller_of(&object).map(|o| o.uid.as_str());
            if owner.is_none_or(|uid| !uids.contains(uid)) {
                return Err(format!("{reference} has no job"));
            }
            if rules::is_true(&workload.status.conditions, "Evicted") && workload.status.admission.is_some() {
                return Err(format!("{reference} is evicted and keeps its quota"));
            }
            if workload.metadata.deletion_timestamp.is_some() {
                return Err(format!("{reference} is deleted and does not go"));
            }
        }
        for job in jobs.iter().filter(|j| !actors::job_is_finished(j)) {
            self.job_at_rest(job)?;
        }
        self.everything_that_fits_runs()
    }

    /// Whether a write changes nothing but the words in which a workload is told why it waits.
    fn tells_only(&self, operation: &Operation) -> bool {
        let Operation::UpdateStatus(Object::Workload(new)) = operation else { return false };
        let reference = Object::Workload(new.clone()).reference();
        let Some(Object::Workload(old)) = self.server.store.get(&reference) else { return false };
        let silent = |w: &Workload| {
            let mut status = w.status.clone();
            status.resource_requests.clear();
            let waits = |c: &&mut Condition| matches!(&*c.type_, "QuotaReserved" | "Admitted") && c.status == "False";
            for c in status.conditions.iter_mut().filter(waits) {
                c.message.clear();
                c.reason.clear();
                c.observed_generation = None;
            }
            status
        };
        silent(new) == silent(old)
    }

    /// What a write of a status changes of it.
    fn differences(&self, operation: &Operation) -> Vec<String> {
        let Operation::UpdateStatus(new) = operation else { return Vec::new() };
        let Some(old) = self.server.store.get(&new.reference()) else { return Vec::new() };
        let (Ok(old), Ok(new)) = (old.to_json(), new.to_json()) else { return Vec::new() };
        let mut all = Vec::new();
        compare("status", &old["status"], &new["status"], &mut all);
        all
    }

    /// Whether a write evicts a workload to make room for another.
    fn preempts(&self, operation: &Operation) -> bool {
        let Operation::UpdateStatus(Object::Workload(new)) = operation else { return false };
        let Some(Object::Workload(old)) = self.server.store.get(&Object::Workload(new.clone()).reference()) else {
            return false;
        };
        let is = |w: &Workload| rules::is_true(&w.status.conditions, "Preempted");
        is(new) && !is(old) && new.status.admission == old.status.admission
    }

    /// A controller that starts now agrees with everything. As in Kueue a workload that waits is not looked at again just
    /// because somebody was admitted whom it could preempt, and nobody preempts the same workload twice while nothing else
    /// changes; a controller that starts looks at everything and has no memory of that. So whom it preempts the old one must
    /// preempt, too, once it has to look at everything anew.
    fn decides_the_same(&self) -> Result<(), String> {
        let mut fresh = self.fresh();
        let mut effects = fresh.reconcile(self.server.now);
        // How much is missing is told as of the last time that somebody looked.
        effects.writes.retain(|w| !self.tells_only(&w.operation));
        let preempts = effects.writes.iter().any(|w| self.preempts(&w.operation));
        effects.writes.retain(|w| !self.preempts(&w.operation));
        if !effects.writes.is_empty() {
            let text = |w: &slicegate_controller::Write| {
                format!("{} (changes {})", describe_write(w), self.differences(&w.operation).join(", "))
            };
            let texts: Vec<String> = effects.writes.iter().map(text).collect();
            return Err(format!("a controller that starts now wants more: {}", texts.join("; ")));
        }
        let Some(leader) = self.replicas.first() else { return Ok(()) };
        if !preempts {
            return differs(&leader.controller, &fresh).map_or(Ok(()), Err);
        }
        let (old, new) = (self.decisions(leader.controller.clone()), self.decisions(self.fresh()));
        if old != new {
            return Err(format!("a controller that starts now decides {new:?}, and the one that is there {old:?}"));
        }
        Ok(())
    }

    /// A controller that knows of everything and has not decided yet.
    fn fresh(&self) -> Controller {
        let mut fresh = Controller::new(self.setup.configuration());
        for (_, object) in self.server.store.iter() {
            fresh.observe(self.server.now, Change::Applied(object.clone()));
        }
        fresh
    }

    /// What a controller decides of workloads when it has to look at all of them: the selectors of ClusterQueues change, and
    /// select what they did before.
    fn decisions(&self, mut controller: Controller) -> BTreeSet<String> {
        for (_, object) in self.server.store.of_kind(Kind::ClusterQueue) {
            let mut new = object.clone();
            let metadata = new.metadata_mut();
            metadata.resource_version = metadata.resource_version.as_deref().map(|version| format!("{version}0"));
            if let Object::ClusterQueue(queue) = &mut new {
                let any = LabelSelectorRequirement {
                    key: "kubernetes.io/metadata.name".to_owned(),
                    operator: "Exists".to_owned(),
                    values: None,
                };
                Arc::make_mut(queue).spec.namespace_selector =
                    Some(LabelSelector { match_expressions: Some(vec![any]), match_labels: None });
            }
            controller.observe(self.server.now, Change::Applied(new));
        }
        let effects = controller.reconcile(self.server.now);
        let decides =
            |operation: &Operation| matches!(operation.object().kind, Kind::Workload) && !self.tells_only(operation);
        effects.writes.iter().filter(|w| decides(&w.operation)).map(|w| decision(&w.operation)).collect()
    }

    /// A job runs exactly if its workload is admitted, and where that says.
    fn job_at_rest(&self, job: &Object) -> Result<(), String> {
        let reference = job.reference();
        let workloads: Vec<_> = self
            .server
            .store
            .owned_by(job.uid())
            .filter_map(|r| match self.server.store.get(r) {
                Some(Object::Workload(w)) if !rules::is_finished(w) => Some(w),
                _ => None,
            })
            .collect();
        if workloads.is_empty() {
            return Err(format!("{reference} has no workload"));
        }
        let admitted: Vec<_> = workloads.iter().filter(|w| rules::is_true(&w.status.conditions, "Admitted")).collect();
        if admitted.len() > 1 || workloads.len() > 2 || (workloads.len() > 1 && !self.setup.elastic) {
            return Err(format!("{reference} has {} workloads, {} admitted", workloads.len(), admitted.len()));
        }
        let runs = !actors::is_suspended(job);
        // Before whoever makes its pods took notice that it is suspended, it is not started.
        if runs == admitted.is_empty() && !actors::is_unnoticed(job) {
            return Err(format!("{reference} runs: {runs}, and {} of its workloads are admitted", admitted.len()));
        }
        let selector = match job {
            Object::Job(j) => j.spec.as_ref().and_then(|s| s.template.spec.as_ref()?.node_selector.clone()),
            Object::JobSet(j) => j
                .spec
                .replicated_jobs
                .first()
                .and_then(|r| r.template.spec.as_ref()?.template.spec.as_ref()?.node_selector.clone()),
            _ => None,
        };
        let pool = selector.and_then(|s| s.get(POOL).cloned());
        let given = admitted
            .first()
            .and_then(|w| w.status.admission.as_ref()?.pod_set_assignments.first()?.flavors.get(RESOURCE).cloned());
        // Who starts a job by hand must know where.
        if pool != given && !self.by_hand.contains(&reference) {
            return Err(format!("the pods of {reference} go to {pool:?}, and it is admitted to {given:?}"));
        }
        Ok(())
    }

    /// What waits does not fit into what is left, as far as that can be told by adding up.
    fn everything_that_fits_runs(&self) -> Result<(), String> {
        let capacity = rules::capacity(self.server.store.of_kind(Kind::ClusterQueue).map(|(_, o)| o));
        let used = rules::used(&self.server);
        let free = |queue: &str, flavor: &str| {
            let key = (queue.to_owned(), flavor.to_owned());
            capacity.get(&key).map_or(0, |c| c.0) - used.get(&key).copied().unwrap_or(0)
        };
        let flavors = |queue: &str| -> Vec<String> {
            capacity.keys().filter(|(q, _)| q == queue).map(|(_, f)| f.clone()).collect()
        };
        for workload in self.server.workloads() {
            let queue = workload.spec.queue_name.as_str();
            // A queue that is deleted while it is in use takes nobody any more.
            let there = self.server.store.get(&ObjectRef::new(Kind::ClusterQueue, "", queue));
            let open = there.is_some_and(|q| q.metadata().deletion_timestamp.is_none());
            let waits = open && workload.status.admission.is_none() && !rules::is_finished(workload);
            if !waits || rules::replaced(workload).is_some() || self.setup.strict && queue != "b" {
                continue;
            }
            let wants: i64 = workload.spec.pod_sets.iter().map(|p| i64::from(p.count)).sum();
            for flavor in flavors(queue) {
                let alone = free(queue, &flavor);
                let together = if queue == "c" { alone } else { free("a", &flavor) + free("b", &flavor) };
                if wants <= alone && wants <= together {
                    return Err(format!(
                        "{} waits for {wants} in {queue}, and {alone} of flavor {flavor} are free",
                        workload.metadata.name.as_deref().unwrap_or_default()
                    ));
                }
            }
        }
        Ok(())
    }

    /// When every job has come to its end nothing is used and nothing is left over.
    pub(super) fn at_end(&self) -> Result<(), String> {
        for workload in self.server.workloads() {
            if !rules::is_finished(workload) {
                return Err(format!("{:?} is not finished", workload.metadata.name));
            }
        }
        for (_, object) in self.server.store.of_kind(Kind::ClusterQueue) {
            let Object::ClusterQueue(queue) = object else { continue };
            let status = &queue.status;
            let zero = |usage: &[slicegate_api::kueue::FlavorUsage]| {
                usage.iter().flat_map(|f| &f.resources).all(|r| r.total.0 == "0")
            };
            if !zero(&status.flavors_reservation)
                || !zero(&status.flavors_usage)
                || (status.reserving_workloads, status.pending_workloads, status.admitted_workloads) != (0, 0, 0)
            {
                return Err(format!("{} is not empty: {status:?}", object.reference()));
            }
        }
        let left = self.server.store.of_kind(Kind::ProvisioningRequest).count();
        if left > 0 {
            return Err(format!("{left} requests for {CAPACITY} are left"));
        }
        Ok(())
    }
}

/// A decision without what is said about it.
fn decision(operation: &Operation) -> String {
    let reference = operation.object();
    match operation {
        Operation::UpdateStatus(Object::Workload(w)) => {
            let conditions: Vec<(&str, &str)> =
                w.status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
            format!("{reference} {:?} {conditions:?}", w.status.admission)
        }
        _ => format!("{reference} {operation:?}"),
    }
}

/// Where two documents differ.
fn compare(path: &str, old: &Value, new: &Value, all: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                compare(&format!("{path}.{key}"), &old[key.as_str()], &new[key.as_str()], all);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{i}]"), a, b, all);
            }
        }
        _ if old != new => all.push(format!("{path} from {old} to {new}")),
        _ => {}
    }
}

/// In what a controller knows something else than one that has just started.
fn differs(old: &Controller, fresh: &Controller) -> Option<String> {
    let known: Vec<_> = old.workloads().collect();
    let told: Vec<_> = fresh.workloads().collect();
    if known != told {
        return Some("a controller that starts now knows other workloads".to_owned());
    }
    for queue in super::setup::QUOTAS.iter().map(|(name, _)| *name) {
        let (a, b) = (old.engine().cluster_queue(queue), fresh.engine().cluster_queue(queue));
        if a != b {
            return Some(format!("ClusterQueue {queue} is {a:?}, and for a controller that starts now {b:?}"));
        }
    }
    None
}
