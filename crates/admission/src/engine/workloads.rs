//! Taking in workloads.

use std::collections::BTreeMap;

use slicegate_quota::{Amount, FlavorResourceId};
use slicegate_workload::{
    ALLOWED_FLAVORS, CheckState, ConditionType, Key, LimitRangeSummary, PRIORITY_BOOST, QueueOrder, Stage, Status,
    Timestamp, Workload, WorkloadSpec, WorkloadUsage,
};

use super::Engine;
use super::ids::{ClassId, LocalQueueId, ShapeId, WorkloadId};
use super::queue::Place;
use super::record::{Extras, Holding, Record};
use super::shape::ShapeContext;
use super::stored::Stored;
use crate::lifecycle::{JOB_UID_LABEL, needs_second_pass, priority_changed, replaced_slice};

/// The annotation that marks the workloads of an elastic job.
const ELASTIC_ANNOTATION: &str = "kueue.x-k8s.io/elastic-job";

/// Where a workload was before it was taken in again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// In no queue.
    Nowhere,
    /// Among those that compete.
    Active,
    /// Parked, and nothing changed that it was waiting for.
    Parked,
}

impl Engine {
    /// Takes in a workload as it now stands in the API: new, changed, admitted, evicted, finished.
    pub fn set_workload(&mut self, now: Timestamp, workload: Workload) {
        self.state.now = now;
        let known = self.state.records.find(&workload.key);
        if let Some(id) = known
            && self.state.records.get(id).is_some_and(|r| r.uid != workload.uid)
        {
            // Another object under the same name: the old one must have been deleted.
            self.remove(now, id);
            self.create(now, workload);
        } else if let Some(id) = known {
            self.update(now, id, workload);
        } else {
            self.create(now, workload);
        }
    }

    /// Forgets a workload that is gone from the API.
    pub fn remove_workload(&mut self, now: Timestamp, key: &Key) {
        self.state.now = now;
        if let Some(id) = self.state.records.find(key) {
            self.remove(now, id);
        }
    }

    fn remove(&mut self, now: Timestamp, id: WorkloadId) {
        self.dequeue(id);
        self.forget_preemptor(id);
        if let Some(holding) = self.state.release(id) {
            self.changed_from_outside(holding.node);
            // Its LocalQueue may be gone; what it held is free all the same.
            self.request_flush(now, holding.node);
            self.flush_for(now, id);
            self.places_left(now, &holding);
        }
        self.drop_charge(id);
        self.second_pass.remove(&id);
        self.wake_for_slices(now);
        let Some(record) = self.state.records.remove(id) else { return };
        self.leave_local_queue(id, record.queue, record.queue_position);
        self.shapes.release(record.shape);
        self.places.set(id, Place::Nowhere);
    }

    fn create(&mut self, now: Timestamp, mut workload: Workload) {
        let usage = self.usage_of(&workload);
        let mut record = self.record_of(&mut workload);
        self.serials = self.serials.saturating_add(1);
        record.serial = self.serials;
        let queue = record.queue;
        let id = self.state.records.insert(record);
        self.join_local_queue(id, queue);
        if let Some(usage) = usage {
            self.hold(id, &usage);
        } else if self.state.records.get(id).is_some_and(|r| r.admissible) {
            self.enqueue(now, id, Before::Nowhere);
        }
        self.look_again(now, id, 0);
    }

    fn update(&mut self, now: Timestamp, id: WorkloadId, mut workload: Workload) {
        let usage = self.usage_of(&workload);
        let mut new = self.record_of(&mut workload);
        let Some(old) = self.state.records.get(id) else { return };

        // Given quota already, but the API does not show it yet: it stays counted.
        let assumed = old.holding.as_ref().and_then(|h| h.assumed.as_deref());
        let stays_assumed = usage.is_none()
            && new.phase == Stage::Pending
            && new.active
            && assumed.is_some_and(|before| !evicted_since(before, &new.status));
        let place = self.places.get(id);
        let node = self.state.local_queue(old.queue).and_then(|q| q.target);
        let pending = node.and_then(|n| self.pending.get(n.index())).and_then(Option::as_ref);
        let same_queue = old.queue == new.queue;
        let before = match pending {
            Some(q) if same_queue && q.is_active(place) => Before::Active,
            // Who only waited for the end of a back-off competes once that is over.
            Some(_) if matches!(place, Place::Waiting(_)) && new.status.backoff_expired(now) => Before::Nowhere,
            Some(q) if same_queue && q.is_parked(place) && !self.unparks(old, &new) => Before::Parked,
            _ => Before::Nowhere,
        };
        let (old_phase, old_queue, old_position) = (old.phase, old.queue, old.queue_position);
        let gone = new.phase == Stage::Finished || !new.active;
        // Kueue lets others have what is freed only of workloads that are admitted; one whose checks are not answered yet may
        // have pods that somebody else started.
        let keeps = matches!(old_phase, Stage::QuotaReserved | Stage::Admitted)
            && matches!(new.phase, Stage::QuotaReserved | Stage::Admitted);
        let shrinks = keeps
            && (old.status.rest().reclaimable_pods != new.status.rest().reclaimable_pods
                || self.scaled_down(old, &new)
                || class_changed(old, &new));
        let newly_admitted = old_phase != Stage::Admitted && new.phase == Stage::Admitted;

        new.evaluated_generation = old.evaluated_generation;
        new.queue_position = old.queue_position;
        new.serial = old.serial;
        new.evictor = old.evictor;
        if old.generation == new.generation && old.priority() == new.priority() {
            new.preempted.clone_from(&old.preempted);
        }
        let yields = new.phase == Stage::Pending
            && new.status.conditions.get(&ConditionType::Evicted).is_some_and(|c| *c.reason == *"Preempted");
        new.eviction_expected = old.eviction_expected && new.phase != Stage::Pending && !new.is_evicted();
        // A workload that held quota starts over with its flavors once it is back, and so does one in another queue.
        let waited = old.holding.is_none() || stays_assumed;
        let keeps_progress = self.config.gates.flavor_fungibility_preserve_scan_progress
            && old.class == new.class
            && same_queue
            && waited;

        self.dequeue(id);
        if !same_queue {
            self.forget_preemptor(id);
            self.drop_charge(id);
        }
        let Some(old) = self.state.records.get_mut(id) else { return };
        if keeps_progress {
            new.last = old.last.take();
        }
        let old_shape = old.shape;
        if stays_assumed {
            // What is counted was decided for the object as it was; its spec may have moved on.
            new.holding = old.holding.take();
            if let Some(holding) = &mut new.holding {
                let shown = std::mem::replace(&mut new.status, old.status.clone());
                holding.assumed = Some(Box::new(shown));
            }
        } else {
            new.holding = old.holding.take();
        }
        let new_queue = new.queue;
        *old = new;
        self.shapes.release(old_shape);
        if !same_queue {
            self.leave_local_queue(id, old_queue, old_position);
            self.join_local_queue(id, new_queue);
            self.state.follow_queue(id);
        }
        if stays_assumed {
            return;
        }

        let released = self.state.release(id);
        let held_in = released.as_ref().map(|h| h.node);
        let held = held_in.is_some();
        if let Some(holding) = released.filter(|_| gone || usage.is_none()) {
            self.places_left(now, &holding);
        }
        if let Some(node) = held_in
            && (gone || shrinks || (usage.is_none() && !yields))
        {
            self.changed_from_outside(node);
        }
        if let Some(node) = held_in.filter(|_| gone || shrinks || usage.is_none()) {
            self.request_flush(now, node);
        }
        if gone {
            self.forget_preemptor(id);
            self.drop_charge(id);
            self.flush_for(now, id);
        } else if let Some(usage) = usage {
            self.forget_preemptor(id);
            self.hold(id, &usage);
            if newly_admitted {
                self.settle_charge(now, id);
            }
            if shrinks {
                self.flush_for(now, id);
            }
        } else {
            if held {
                self.drop_charge(id);
                self.flush_for(now, id);
            }
            if self.state.records.get(id).is_some_and(|r| r.admissible) {
                self.enqueue(now, id, before);
            } else {
                self.forget_preemptor(id);
            }
        }
        self.look_again(now, id, 0);
        self.wake_for_slices(now);
    }

    /// Whether an update of a parked workload lets it compete again.
    fn unparks(&self, old: &Record, new: &Record) -> bool {
        let condition = |r: &Record, kind: &ConditionType| r.status.conditions.get(kind).cloned();
        let differs = |kind: &ConditionType| condition(old, kind) != condition(new, kind);
        let raw = |r: &Record| self.shapes.get(r.shape).map(|s| &s.raw);
        (old.evaluated_generation != 0 && new.generation != old.evaluated_generation)
            || old.base_priority != new.base_priority
            || old.priority_boost != new.priority_boost
            || old.active != new.active
            || old.extras != new.extras
            || (old.shape != new.shape && raw(old) != raw(new))
            || old.status.rest().reclaimable_pods != new.status.rest().reclaimable_pods
            || differs(&ConditionType::Evicted)
            || differs(&ConditionType::Requeued)
            || (has_failed_checks(&old.status) && !has_failed_checks(&new.status))
            || old.closed_gate != new.closed_gate
    }

    fn scaled_down(&self, old: &Record, new: &Record) -> bool {
        let counts = |r: &Record| self.shapes.get(r.shape).map(|s| s.raw.iter().map(|p| p.count).collect::<Vec<_>>());
        self.config.gates.elastic_jobs_via_workload_slices
            && match (counts(old), counts(new)) {
                (Some(old), Some(new)) => new.iter().zip(&old).any(|(n, o)| n < o),
                _ => false,
            }
    }

    // ----- records -------------------------------------------------------------------------------------------------

    /// What the workload uses and where, if it holds quota.
    pub(super) fn usage_of(&self, workload: &Workload) -> Option<WorkloadUsage> {
        workload.has_active_quota_reservation().then(|| WorkloadUsage::of(&workload.admitted_totals(&self.requests)))
    }

    /// A record of the workload, whose pod sets are filled in on the way.
    fn record_of(&mut self, workload: &mut Workload) -> Record {
        let gates = self.config.gates;
        let queue =
            self.state.intern_local_queue(&Key::new(workload.key.namespace.clone(), workload.spec.queue_name.clone()));
        let boost = workload.effective_priority(gates.priority_boost).saturating_sub(workload.spec.priority.into());
        let queued_at = workload.queue_order_timestamp(QueueOrder {
            requeuing_timestamp: self.config.requeuing_timestamp(),
            priority_sorting_within_cohort: gates.priority_sorting_within_cohort,
        });
        let annotation = |name: &str| workload.annotations.get(name).cloned();
        let extras = Extras {
            replaces: replaced_slice(workload),
            allowed_flavors: annotation(ALLOWED_FLAVORS),
            variant_of: workload.variant_of.clone(),
            priority_class: workload.spec.priority_class.clone(),
            maximum_execution_time_seconds: workload.spec.maximum_execution_time_seconds,
            preemption_gates: workload.spec.preemption_gates.clone(),
            elastic: annotation(ELASTIC_ANNOTATION).is_some_and(|v| *v == *"true"),
        };
        let phase = workload.stage();
        let admissible = workload.is_admissible(gates.admission_gated_by);
        let closed_gate = workload.has_closed_preemption_gate();
        let second_pass = needs_second_pass(workload);
        let (shape, class) = self.intern_shape(workload);
        // What a waiting workload shows as its requests is part of its shape.
        let mut status = std::mem::take(&mut workload.status);
        status.resource_requests = Vec::new();
        Record {
            key: workload.key.clone(),
            uid: workload.uid.clone(),
            created: workload.created,
            generation: workload.generation,
            evaluated_generation: 0,
            queue,
            queue_position: 0,
            shape,
            class,
            base_priority: workload.spec.priority,
            priority_boost: i32::try_from(boost).unwrap_or(0),
            queued_at,
            phase,
            active: workload.spec.active,
            admissible,
            closed_gate,
            owned_by_pod: workload.owned_by_pod,
            second_pass,
            eviction_expected: false,
            evictor: None,
            status: status.into(),
            job_uid: workload.labels.get(JOB_UID_LABEL).cloned(),
            extras: (extras != Extras::default()).then(|| Box::new(extras)),
            holding: None,
            serial: 0,
            preempted: None,
            last: None,
        }
    }

    fn intern_shape(&mut self, workload: &mut Workload) -> (ShapeId, ClassId) {
        let none = LimitRangeSummary::default();
        let limits = self.state.namespaces.get(&workload.key.namespace).map_or(&none, |n| &n.limits);
        let mut context = ShapeContext {
            names: &mut self.state.names,
            order: &mut self.order,
            overheads: &self.overheads,
            limits,
            requests: &self.requests,
            equivalence: self.equivalence,
        };
        self.shapes.intern(workload, &mut context)
    }

    /// The workload as far as it is known here: enough for what it asks for and for what it holds.
    pub(super) fn rebuild(&self, record: &Record) -> Workload {
        let mut annotations = BTreeMap::new();
        if let Some(flavors) = record.extras.as_ref().and_then(|e| e.allowed_flavors.clone()) {
            annotations.insert(ALLOWED_FLAVORS.into(), flavors);
        }
        if record.priority_boost != 0 {
            annotations.insert(PRIORITY_BOOST.into(), record.priority_boost.to_string().into());
        }
        Workload {
            key: record.key.clone(),
            uid: record.uid.clone(),
            created: record.created,
            generation: record.generation,
            owned_by_pod: record.owned_by_pod,
            annotations,
            spec: WorkloadSpec {
                queue_name: self.state.local_queue(record.queue).map(|q| q.key.name.clone()).unwrap_or_default(),
                pod_sets: self.shapes.get(record.shape).map(|s| s.raw.clone()).unwrap_or_default(),
                priority: record.base_priority,
                active: record.active,
                ..WorkloadSpec::default()
            },
            status: record.status.whole(),
            ..Workload::default()
        }
    }

    /// Fills in defaults anew, after those of the namespace or of a RuntimeClass changed. A waiting workload that asks for
    /// something else now competes again.
    pub(super) fn readjust(&mut self, now: Timestamp, id: WorkloadId) {
        let Some(record) = self.state.records.get(id) else { return };
        if record.phase != Stage::Pending || record.holding.is_some() {
            return;
        }
        let (old_shape, old_class) = (record.shape, record.class);
        let mut workload = self.rebuild(record);
        let (shape, class) = self.intern_shape(&mut workload);
        self.shapes.release(old_shape);
        if shape == old_shape {
            return;
        }
        let place = self.places.get(id);
        let in_queue = place != Place::Nowhere;
        self.dequeue(id);
        if let Some(record) = self.state.records.get_mut(id) {
            record.shape = shape;
            record.class = class;
            if class != old_class {
                record.last = None;
            }
        }
        if in_queue {
            self.enqueue(now, id, Before::Nowhere);
        }
    }

    // ----- membership ----------------------------------------------------------------------------------------------

    fn join_local_queue(&mut self, id: WorkloadId, queue: LocalQueueId) {
        let Some(q) = self.state.local_queues.get_mut(queue.index()) else { return };
        let position = u32::try_from(q.members.len()).unwrap_or(u32::MAX);
        q.members.push(id);
        if let Some(record) = self.state.records.get_mut(id) {
            record.queue_position = position;
        }
    }

    fn leave_local_queue(&mut self, id: WorkloadId, queue: LocalQueueId, position: u32) {
        let Some(q) = self.state.local_queues.get_mut(queue.index()) else { return };
        let at = position as usize;
        if q.members.get(at) != Some(&id) {
            return;
        }
        q.members.swap_remove(at);
        if let Some(&moved) = q.members.get(at)
            && let Some(record) = self.state.records.get_mut(moved)
        {
            record.queue_position = position;
        }
    }

    /// Counts the workload's quota, if its ClusterQueue exists.
    pub(super) fn hold(&mut self, id: WorkloadId, usage: &WorkloadUsage) {
        let Some(record) = self.state.records.get(id) else { return };
        let Some(admission) = &record.status.rest().admission else { return };
        let Some(node) = self.state.forest.cluster_queue(&admission.cluster_queue) else { return };
        let conditions = &record.status.conditions;
        let reserved = conditions.get(&ConditionType::QuotaReserved).filter(|c| c.status == Status::True);
        let mut holding = Holding {
            node,
            queue: record.queue,
            position: 0,
            usage: Vec::new(),
            places: Vec::new(),
            slices: Vec::new(),
            reserved_at: reserved.map(|c| c.last_transition),
            admitted: conditions.is_true(&ConditionType::Admitted),
            pods_ready: conditions.is_true(&ConditionType::PodsReady),
            assumed: None,
        };
        holding.usage = self.resolve_usage(usage);
        holding.places = self.held_places(id);
        holding.slices = self.held_slices(id);
        self.state.hold(id, holding);
    }

    fn resolve_usage(&mut self, usage: &WorkloadUsage) -> Vec<(FlavorResourceId, Amount)> {
        let names = &mut self.state.names;
        let mut resolved: Vec<(FlavorResourceId, Amount)> = usage
            .assigned
            .iter()
            .map(|((flavor, resource), &amount)| (names.intern(flavor, resource), Amount::new(amount)))
            .collect();
        resolved.sort_unstable_by_key(|(pair, _)| *pair);
        self.order.extend(&self.state.names);
        resolved
    }

    /// Counts the quota of every workload that holds some of a ClusterQueue that has just appeared.
    pub(super) fn hold_all(&mut self, cluster_queue: &str) {
        let holds = |r: &Record| {
            r.holding.is_none()
                && r.active
                && r.status.conditions.is_true(&ConditionType::QuotaReserved)
                && !r.status.conditions.is_true(&ConditionType::Finished)
                && r.status.rest().admission.as_ref().is_some_and(|a| *a.cluster_queue == *cluster_queue)
        };
        let ids: Vec<WorkloadId> = self.state.records.iter().filter(|(_, r)| holds(r)).map(|(id, _)| id).collect();
        for id in ids {
            let Some(record) = self.state.records.get(id) else { continue };
            if let Some(usage) = self.usage_of(&self.rebuild(record)) {
                self.hold(id, &usage);
            }
        }
    }
}

/// Whether a workload that was given quota after `before` lost it again: it may be seen next only after it was evicted.
fn evicted_since(before: &Stored, shown: &Stored) -> bool {
    let evicted = |s: &Stored| s.conditions.get(&ConditionType::Evicted).filter(|c| c.status == Status::True).cloned();
    evicted(shown).is_some_and(|c| evicted(before) != Some(c))
}

/// Whether an admission check of a workload keeps it from being considered.
pub(super) fn has_failed_checks(status: &Stored) -> bool {
    let failed = |state: CheckState| matches!(state, CheckState::Retry | CheckState::Rejected);
    status.rest().admission_checks.iter().any(|check| failed(check.state))
}

/// Whether a change of priority lets parked workloads be looked at again.
fn class_changed(old: &Record, new: &Record) -> bool {
    let class = |r: &Record| r.extras.as_ref().map(|e| e.priority_class.clone()).unwrap_or_default();
    priority_changed((&class(old), old.priority()), (&class(new), new.priority()))
        || old.priority_boost != new.priority_boost
}
