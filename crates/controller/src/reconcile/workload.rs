//! The life of a Workload.

use std::sync::Arc;

use slicegate_admission::lifecycle::{
    self, At, CheckVerdict, DeactivationCause, EvictionStep, MaxExecutionTime, PodsReadyStep, Requeue, RequeueFacts,
    StopFacts, StopStep,
};
use slicegate_api::ObjectMeta;
use slicegate_workload::{
    ConditionType, Key, QueueingStrategy, Status, StopPolicy, Timestamp, Workload, WorkloadStatus,
};

use crate::controller::{Controller, event};
use crate::io::{EventType, Operation, field_manager};
use crate::priority::Classes as _;
use crate::store::{owner_ref, workload_ref};
use crate::writes::{Plan, Then};

/// How long a job that was never seen may yet appear.
const UNSEEN_JOB_SECONDS: i64 = 10;

/// The reason of a workload that gates keep out of its queue.
const GATED: &str = "AdmissionGated";

impl Controller {
    /// Takes the next step in the life of a Workload.
    pub(crate) fn reconcile_workload(&mut self, now: Timestamp, key: &Key) {
        let reference = workload_ref(key);
        if self.store.is_locked(&reference) {
            return;
        }
        let (Some(object), Some(workload)) = (self.store.workload(key).cloned(), self.fed.workloads.get(key).cloned())
        else {
            return;
        };
        if self.is_orphan(&object.metadata) {
            if self.may_have_a_job(now, key, &object.metadata) {
                return;
            }
            self.orphan(now, key);
            if !workload.is_finished() {
                return;
            }
        }
        if workload.is_finished() {
            self.retain(now, key, &workload, &object);
            self.reconcile_provisioning(now, &workload);
            return;
        }
        if workload.deleting || self.follow_class(&object) {
            return;
        }
        self.live(now, &workload, &object);
        if !self.store.is_locked(&reference) {
            self.reconcile_provisioning(now, &workload);
        }
    }

    /// Gives a Workload the value that its WorkloadPriorityClass has now. Returns whether that takes a write.
    fn follow_class(&mut self, object: &Arc<slicegate_api::kueue::Workload>) -> bool {
        let class = object.spec.priority_class_ref.as_ref().filter(|c| c.kind == "WorkloadPriorityClass");
        let Some(value) = class.and_then(|c| self.store.workload_priority_class(&c.name)) else { return false };
        if object.spec.priority == Some(value) {
            return false;
        }
        let mut new = (**object).clone();
        new.spec.priority = Some(value);
        self.write(field_manager::ADMISSION, Operation::Update(new.into()), Then::default());
        true
    }

    /// Whether the job of a Workload is gone.
    fn is_orphan(&self, metadata: &ObjectMeta) -> bool {
        let Some(owner) = slicegate_api::owner::controller_of(metadata) else {
            let had_job = crate::jobs::label(metadata, crate::keys::JOB_UID).is_some();
            return metadata.deletion_timestamp.is_some() || had_job && self.config.finish_orphaned_workloads;
        };
        // Jobs of kinds that are not known cannot be looked for.
        let Some(job) = owner_ref(metadata) else { return false };
        // Nor are those of kinds that are not managed; a Workload that is deleted must be let go all the same.
        if !self.config.frameworks.contains(&job.kind) {
            return metadata.deletion_timestamp.is_some();
        }
        self.store.get(&job).is_none_or(|o| o.uid() != owner.uid || o.metadata().deletion_timestamp.is_some())
    }

    /// Whether the job of a Workload may be there although it was never seen: watches of different kinds are not in step, and
    /// while controllers overlap another one may have made the Workload of a job that this one is not told of yet. After a
    /// while it may not.
    fn may_have_a_job(&mut self, now: Timestamp, key: &Key, metadata: &ObjectMeta) -> bool {
        let owner = slicegate_api::owner::controller_of(metadata);
        let certain = owner.is_none_or(|owner| {
            let there = owner_ref(metadata).and_then(|job| self.store.get(&job)).is_some_and(|o| o.uid() == owner.uid);
            there || self.store.is_gone(&owner.uid)
        });
        if certain || !self.begun {
            self.unseen_jobs.remove(key);
            return false;
        }
        let since = *self.unseen_jobs.entry(key.clone()).or_insert(now);
        let until = since.plus_seconds(UNSEEN_JOB_SECONDS);
        if until <= now {
            self.unseen_jobs.remove(key);
            return false;
        }
        self.wake(&workload_ref(key), until);
        true
    }

    /// Deletes a finished Workload when its time has come.
    fn retain(&mut self, now: Timestamp, key: &Key, workload: &Workload, object: &Arc<slicegate_api::kueue::Workload>) {
        let reference = workload_ref(key);
        let finished = workload.status.conditions.get(&ConditionType::Finished);
        if let (Some(seconds), Some(finished)) = (self.config.retention_after_finished_seconds, finished) {
            let due = finished.last_transition.plus_seconds(seconds);
            if due > now {
                self.wake(&reference, due);
            } else if self.store.is_locked(&reference) {
            } else if workload.deleting {
                self.drop_finalizer(object);
            } else {
                let note = "Deleted finished workload due to elapsed retention";
                let then = Then::event(event(&reference, EventType::Normal, "Deleted", note));
                let uid = workload.uid.clone();
                self.write(field_manager::ADMISSION, Operation::Delete { object: reference.clone(), uid }, then);
            }
        }
        // Its job lets it go, if it has one that is still managed; if it did not do so at once, nobody else may come to.
        let owned = slicegate_api::owner::controller_of(&object.metadata).is_some();
        let let_go = !owned || self.config.keep_finalizer_of_finished;
        if workload.deleting && let_go && !self.store.is_locked(&reference) {
            self.drop_finalizer(object);
        }
    }

    fn live(&mut self, now: Timestamp, workload: &Arc<Workload>, object: &Arc<slicegate_api::kueue::Workload>) {
        let key = &workload.key;
        let reference = workload_ref(key);
        let gates = self.config.engine.gates;
        let at = At { now, generation: workload.generation };
        if lifecycle::should_deactivate(workload) {
            let mut new = (**object).clone();
            new.spec.active = Some(false);
            self.write(field_manager::ADMISSION, Operation::Update(new.into()), Then::default());
            return;
        }
        let local_queue = self.local_queue_spec(&key.namespace, &workload.spec.queue_name).cloned();
        let led_to = local_queue.as_ref().map(|q| q.cluster_queue.clone());
        let counted_in = workload.status.admission.as_ref().map(|a| a.cluster_queue.clone()).or(led_to.clone());
        let queue = counted_in.and_then(|name| self.cluster_queue_spec(&name).cloned());
        let Some(plan) = self.plan(key) else { return };
        let before = plan.status.clone();
        if workload.spec.active && lifecycle::apply_retry_delay(&mut plan.status, now) {
            return;
        }
        if workload.spec.active && lifecycle::restart_late_checks(&mut plan.status, now) {
            return;
        }
        lifecycle::sync_preemption_gates(&workload.spec, &mut plan.status, now);
        if workload.is_on_hold() {
            return;
        }
        if !workload.spec.active {
            let (step, _) = lifecycle::deactivate(&mut plan.status, at);
            if let Some(step) = step {
                tell_eviction(plan, workload, &step);
                self.note_evicted(workload, &step);
                return;
            }
        } else if !workload.has_quota_reservation() {
            let facts = RequeueFacts {
                cluster_queue: queue.as_ref().map(|q| q.stop_policy),
                local_queue: local_queue.as_ref().map(|q| q.stop_policy),
            };
            match lifecycle::requeue(workload, &mut plan.status, facts, at, &gates) {
                Requeue::None => {}
                Requeue::Wait(until) => {
                    self.wake(&reference, until);
                    return;
                }
                Requeue::Changed => {
                    self.note_requeued(workload);
                    return;
                }
            }
        }
        if let Some(gate) = workload.admission_gated_by().filter(|_| gates.admission_gated_by)
            && workload.has_quota_reservation()
            && !workload.is_admitted()
        {
            let message = format!("Admission is gated by: {gate}");
            let Some(plan) = self.plan(key) else { return };
            plan.status.admission = None;
            lifecycle::set_pending(&mut plan.status, GATED, &message, at, &gates);
            tell_gate(plan, &reference, workload, None, Some(GATED));
            return;
        }
        let Some(plan) = self.plan(key) else { return };
        if plan.status != before && workload.spec.active {
            return;
        }
        let mut covered = true;
        if let Some(queue) = &queue {
            let mut required = lifecycle::required_checks(queue, workload.status.admission.as_ref());
            if !workload.has_quota_reservation() {
                // Kueue forgets a check for some flavors only as soon as quota is given back, and with it how often it was
                // tried: its limit is never reached then. Here the count stays as long as the workload waits.
                let tried = workload.status.admission_checks.iter().filter(|c| c.retry_count.unwrap_or(0) > 0);
                let known = |name: &str| queue.admission_checks.iter().any(|rule| *rule.name == *name);
                required.extend(tried.filter(|c| known(&c.name)).map(|c| c.name.clone()));
            }
            if lifecycle::sync_checks(&mut plan.status.admission_checks, &required, now) {
                return;
            }
            covered = lifecycle::checks_cover(&workload.status.admission_checks, &required);
        }
        // What is admitted stays so until it is evicted, whatever its checks say.
        let settled = workload.has_quota_reservation() && (workload.is_admitted() || !covered);
        if !settled && lifecycle::sync_admitted(&mut plan.status, at, &gates) {
            if plan.status.conditions.is_true(&ConditionType::Admitted) {
                let name = workload.status.admission.as_ref().map_or("", |a| &a.cluster_queue);
                let since = plan.status.conditions.get(&ConditionType::QuotaReserved).map(|c| c.last_transition);
                let waited = since.map_or(0, |t| now.seconds().saturating_sub(t.seconds()).max(0));
                let note = format!("Admitted by ClusterQueue {name}, wait time since reservation was {waited}s");
                plan.then.events.push(event(&reference, EventType::Normal, "Admitted", note));
                self.note_admitted_after_checks(workload, waited);
            }
            return;
        }
        if workload.has_quota_reservation() {
            self.reserved(now, workload, queue.as_ref().map(|q| (q.stop_policy, q.deleting)), local_queue.as_ref());
        } else {
            // It may have been rejected after its quota was given back.
            if let CheckVerdict::Rejected { message } = lifecycle::check_verdict(&workload.status) {
                return self.reject(workload, message, at);
            }
            let facts = self.engine.pending_facts(workload);
            let Some(plan) = self.plan(key) else { return };
            let old = reason_of_pending(&plan.status);
            if old.as_deref() == Some(GATED) && workload.admission_gated_by().is_none() {
                let message = "AdmissionGatedBy cleared, waiting for quota reservation";
                lifecycle::set_pending(&mut plan.status, "PendingEvaluation", message, at, &gates);
                tell_gate(plan, &reference, workload, old.as_deref(), Some("PendingEvaluation"));
            } else if lifecycle::sync_pending(workload, &mut plan.status, &facts, at, &gates) {
                let new = reason_of_pending(&plan.status);
                tell_gate(plan, &reference, workload, old.as_deref(), new.as_deref());
            }
            self.untold.insert(key.clone());
        }
    }

    /// Lets workloads that wait say what for, where cycles set them aside together with others just like them without looking
    /// at each. Kueue does so only for those that it happens to look at afterwards.
    pub(crate) fn tell_parked(&mut self, now: Timestamp) {
        let mut untold = std::mem::take(&mut self.untold);
        if std::mem::take(&mut self.parked) {
            untold.append(&mut self.silent);
        }
        for key in untold {
            let Some(workload) = self.fed.workloads.get(&key).cloned() else { continue };
            let facts = self.engine.pending_facts(&workload);
            if facts.parked_with.is_none() {
                if workload.status.conditions.get(&ConditionType::QuotaReserved).is_none()
                    && self.may_be_parked(&facts.cluster_queue_name)
                {
                    self.silent.insert(key);
                }
                continue;
            }
            let at = At { now, generation: workload.generation };
            let gates = self.config.engine.gates;
            let Some(plan) = self.plan(&key) else { continue };
            if !plan.status.conditions.is_true(&ConditionType::QuotaReserved) {
                lifecycle::sync_pending(&workload, &mut plan.status, &facts, at, &gates);
            }
        }
    }

    /// Whether a ClusterQueue sets workloads aside together with others just like them.
    fn may_be_parked(&self, cluster_queue: &str) -> bool {
        let queue = self.cluster_queue_spec(cluster_queue);
        self.config.engine.gates.scheduling_equivalence_hashing
            && queue.is_some_and(|q| q.queueing_strategy == QueueingStrategy::BestEffortFifo)
    }

    /// What can happen to a workload that holds quota.
    fn reserved(
        &mut self,
        now: Timestamp,
        workload: &Arc<Workload>,
        queue: Option<(StopPolicy, bool)>,
        local_queue: Option<&slicegate_workload::LocalQueueSpec>,
    ) {
        let key = &workload.key;
        let reference = workload_ref(key);
        let gates = self.config.engine.gates;
        let at = At { now, generation: workload.generation };
        let wait_for_pods = self.config.engine.wait_for_pods_ready.clone();
        let status = &workload.status;
        match lifecycle::check_verdict(status) {
            CheckVerdict::Rejected { message } if workload.spec.active => return self.reject(workload, message, at),
            CheckVerdict::Rejected { .. } => return,
            CheckVerdict::Retry { message } if !workload.is_evicted() => {
                let step =
                    EvictionStep { reason: lifecycle::EvictionReason::AdmissionCheck, cause: Box::default(), message };
                return self.evict(workload, &step, at);
            }
            CheckVerdict::None | CheckVerdict::Retry { .. } => {}
        }
        let policy = |deleting: bool, policy: StopPolicy| (!deleting).then_some(policy);
        let facts = StopFacts {
            local_queue: local_queue.and_then(|q| policy(q.deleting, q.stop_policy)),
            cluster_queue: queue.and_then(|(stop, deleting)| policy(deleting, stop)),
        };
        let granular = gates.unadmitted_workloads_observability;
        match lifecycle::stop_step(&workload.spec.queue_name, status, &facts, granular) {
            StopStep::None => {}
            StopStep::Release { reason, message } => {
                let Some(plan) = self.plan(key) else { return };
                plan.status.admission = None;
                lifecycle::set_pending(&mut plan.status, reason, &message, at, &gates);
                return;
            }
            StopStep::Evict(step) => return self.evict(workload, &step, at),
        }
        if self.watch_nodes(now, workload) {
            return;
        }
        match lifecycle::pods_ready_step(workload, wait_for_pods.as_ref(), now) {
            PodsReadyStep::None => {}
            PodsReadyStep::Wait(until) => self.wake(&reference, until),
            PodsReadyStep::Evict(step) => {
                if let (Some(plan), Some(config)) = (self.plan(key), &wait_for_pods) {
                    lifecycle::update_requeue_state(&mut plan.status, &workload.uid, config, now);
                }
                return self.evict(workload, &step, at);
            }
            PodsReadyStep::Deactivate(cause) => {
                if let Some(plan) = self.plan(key) {
                    lifecycle::set_deactivation_target(&mut plan.status, &cause, at);
                }
                return;
            }
        }
        match lifecycle::max_execution_time(workload, now) {
            MaxExecutionTime::None => {}
            MaxExecutionTime::Until(until) => self.wake(&reference, until),
            MaxExecutionTime::Exceeded { seconds } => {
                let Some(plan) = self.plan(key) else { return };
                let cause = DeactivationCause::MaximumExecutionTimeExceeded;
                if lifecycle::set_deactivation_target(&mut plan.status, &cause, at) {
                    let note = format!("The maximum execution time ({seconds}s) exceeded");
                    let reason = "MaximumExecutionTimeExceeded";
                    plan.then.events.push(event(&reference, EventType::Warning, reason, note));
                }
            }
        }
    }

    /// An admission check does not let a workload in.
    fn reject(&mut self, workload: &Workload, message: Box<str>, at: At) {
        let Some(plan) = self.plan(&workload.key) else { return };
        let note = format!("Deactivated due to {message}");
        let cause = DeactivationCause::AdmissionCheck { message };
        if lifecycle::set_deactivation_target(&mut plan.status, &cause, at) {
            let reference = workload_ref(&workload.key);
            plan.then.events.push(event(&reference, EventType::Warning, "AdmissionCheckRejected", note));
        }
    }

    pub(super) fn evict(&mut self, workload: &Workload, step: &EvictionStep, at: At) {
        let Some(plan) = self.plan(&workload.key) else { return };
        lifecycle::evict(&mut plan.status, step, at);
        tell_eviction(plan, workload, step);
        self.note_evicted(workload, step);
    }
}

fn tell_eviction(plan: &mut Plan, workload: &Workload, step: &EvictionStep) {
    // Who holds no quota loses nothing.
    if workload.status.admission.is_none() {
        return;
    }
    let told = lifecycle::eviction_event(workload, step);
    plan.then.events.push(event(&workload_ref(&workload.key), EventType::Normal, told.reason, told.note));
}

fn reason_of_pending(status: &WorkloadStatus) -> Option<String> {
    let condition = status.conditions.get(&ConditionType::QuotaReserved)?;
    (condition.status == Status::False).then(|| condition.reason.to_string())
}

/// Events about gates that keep a workload out of its queue.
fn tell_gate(
    plan: &mut Plan,
    reference: &slicegate_api::ObjectRef,
    workload: &Workload,
    old: Option<&str>,
    new: Option<&str>,
) {
    if new == Some(GATED)
        && let Some(gate) = workload.admission_gated_by()
    {
        let note = format!("Workload admission is gated by: {gate}");
        plan.then.events.push(event(reference, EventType::Normal, GATED, note));
    } else if old == Some(GATED) && new != Some(GATED) {
        let note = "Admission gate cleared, workload is now admissible";
        plan.then.events.push(event(reference, EventType::Normal, "AdmissionGateCleared", note));
    }
}
