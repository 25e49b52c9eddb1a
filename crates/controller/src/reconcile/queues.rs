//! The status of queues and of admission checks.

use std::sync::Arc;

use slicegate_admission::{Activity, FlavorUsage};
use slicegate_api::{Condition, Kind, Object, ObjectRef, convert, kueue};
use slicegate_quota::request_quantity;
use slicegate_workload::{ResourceList, Timestamp};

use crate::controller::Controller;
use crate::io::{Operation, field_manager};
use crate::keys;
use crate::store::key_of;
use crate::writes::Then;

/// Sets a condition of an API object; its transition time moves only if its status changes.
fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

fn active(activity: &Activity, generation: Option<i64>, now: Timestamp) -> Condition {
    Condition {
        type_: "Active".to_owned(),
        status: if activity.active { "True" } else { "False" }.to_owned(),
        reason: activity.reason.to_owned(),
        message: activity.message.to_string(),
        last_transition_time: convert::time_to_api(now.truncated()),
        observed_generation: generation,
    }
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn usage(list: &[FlavorUsage], borrowed: bool) -> Vec<kueue::FlavorUsage> {
    let mut all: Vec<kueue::FlavorUsage> = Vec::new();
    for item in list {
        let quantity = |amount: slicegate_quota::Amount| {
            convert::quantity_to_api(request_quantity(&item.resource, amount.value()))
        };
        let resource = kueue::ResourceUsage {
            name: item.resource.to_string(),
            total: quantity(item.total),
            borrowed: borrowed.then(|| quantity(item.borrowed)),
        };
        match all.iter_mut().find(|f| f.name == *item.flavor) {
            // A flavor may be named twice, where nobody refused that.
            Some(flavor) if flavor.resources.iter().any(|r| r.name == resource.name) => {}
            Some(flavor) => flavor.resources.push(resource),
            None => all.push(kueue::FlavorUsage { name: item.flavor.to_string(), resources: vec![resource] }),
        }
    }
    all
}

/// Past usage of a LocalQueue, as its status keeps it for admission fair sharing.
fn past_usage((consumed, sampled): &(ResourceList, Timestamp)) -> kueue::FairSharingStatus {
    kueue::FairSharingStatus {
        weighted_share: 0,
        admission_fair_sharing_status: Some(kueue::AdmissionFairSharingStatus {
            consumed_resources: convert::resource_list_to_api(consumed),
            last_update: Some(convert::time_to_api(sampled.truncated())),
        }),
    }
}

/// The share of a queue or Cohort, as its status keeps it.
fn share(weighted_share: i64) -> kueue::FairSharingStatus {
    kueue::FairSharingStatus { weighted_share, admission_fair_sharing_status: None }
}

impl Controller {
    /// Writes the statuses of queues and Cohorts that changed.
    pub(crate) fn sync_queues(&mut self, now: Timestamp) {
        if self.held_back.until.is_some_and(|until| until <= now) {
            self.held_back.until = None;
            let held = std::mem::take(&mut self.held_back.queues);
            self.stale.cluster_queues.extend(held.cluster_queues);
            self.stale.local_queues.extend(held.local_queues);
        }
        let stale = std::mem::take(&mut self.stale);
        if !stale.all && stale.cluster_queues.is_empty() && stale.local_queues.is_empty() {
            return;
        }
        // Shares depend on what others of the cohort use.
        let all = stale.all || self.config.engine.fair_sharing.is_some();
        let (cluster_queues, local_queues): (Vec<ObjectRef>, Vec<ObjectRef>) = if all {
            let each = |kind| self.store.all(kind).map(Object::reference).collect();
            (each(Kind::ClusterQueue), each(Kind::LocalQueue))
        } else {
            let queues = stale.cluster_queues.into_iter().map(|name| ObjectRef::new(Kind::ClusterQueue, "", name));
            let local = stale.local_queues.into_iter();
            let local = local.map(|key| ObjectRef::new(Kind::LocalQueue, key.namespace, key.name));
            (queues.collect(), local.collect())
        };
        let mut writes: Vec<Object> = Vec::new();
        for reference in &cluster_queues {
            writes.extend(self.sync_cluster_queue(now, reference));
        }
        for reference in &local_queues {
            writes.extend(self.sync_local_queue(now, reference));
        }
        if self.config.engine.fair_sharing.is_some() {
            writes.extend(self.sync_cohorts());
        }
        for object in writes {
            if self.config.queue_status_interval_micros > 0 {
                self.held_back.written.insert(object.reference(), now);
            }
            self.write(field_manager::ADMISSION, Operation::UpdateStatus(object), Then::default());
        }
    }

    /// A ClusterQueue with the status that it should have; `None` if there is nothing to write now.
    fn sync_cluster_queue(&mut self, now: Timestamp, reference: &ObjectRef) -> Option<Object> {
        let Some(Object::ClusterQueue(queue)) = self.store.get(reference) else {
            self.synced.cluster_queues.remove(&reference.name);
            self.held_back.written.remove(reference);
            return None;
        };
        if self.store.is_locked(reference) {
            return None;
        }
        let report = self.engine.cluster_queue(&reference.name)?;
        let before = self.synced.cluster_queues.get(&reference.name);
        if before.is_some_and(|(object, told)| Arc::ptr_eq(object, queue) && *told == report) {
            return None;
        }
        let mut status = queue.status.clone();
        set_condition(&mut status.conditions, active(&report.activity, queue.metadata.generation, now));
        status.flavors_reservation = usage(&report.reservation, true);
        status.flavors_usage = usage(&report.usage, true);
        status.pending_workloads = count(report.pending);
        status.reserving_workloads = count(report.reserving);
        status.admitted_workloads = count(report.admitted);
        status.fair_sharing = self.config.engine.fair_sharing.as_ref().map(|_| share(report.weighted_share.0));
        if status == queue.status {
            self.synced.cluster_queues.insert(reference.name.clone(), (queue.clone(), report));
            return None;
        }
        if let Some(until) = self.too_soon(reference, now, status.conditions == queue.status.conditions) {
            self.held_back.queues.cluster_queues.insert(reference.name.clone());
            self.held_back.look_at(until);
            return None;
        }
        Some(kueue::ClusterQueue { status, ..(**queue).clone() }.into())
    }

    /// A LocalQueue with the status that it should have; `None` if there is nothing to write now.
    fn sync_local_queue(&mut self, now: Timestamp, reference: &ObjectRef) -> Option<Object> {
        let key = key_of(reference);
        let Some(Object::LocalQueue(queue)) = self.store.get(reference) else {
            self.synced.local_queues.remove(&key);
            self.held_back.written.remove(reference);
            return None;
        };
        if self.store.is_locked(reference) {
            return None;
        }
        let report = self.engine.local_queue(&key)?;
        let before = self.synced.local_queues.get(&key);
        if before.is_some_and(|(object, told)| Arc::ptr_eq(object, queue) && *told == report) {
            return None;
        }
        let mut status = queue.status.clone();
        set_condition(&mut status.conditions, active(&report.activity, queue.metadata.generation, now));
        status.flavors_reservation = usage(&report.reservation, false);
        status.flavors_usage = usage(&report.usage, false);
        status.pending_workloads = count(report.pending);
        status.reserving_workloads = count(report.reserving);
        status.admitted_workloads = count(report.admitted);
        status.fair_sharing = report.consumed.as_ref().map(past_usage);
        if status == queue.status {
            self.synced.local_queues.insert(key, (queue.clone(), report));
            return None;
        }
        if let Some(until) = self.too_soon(reference, now, status.conditions == queue.status.conditions) {
            self.held_back.queues.local_queues.insert(key);
            self.held_back.look_at(until);
            return None;
        }
        Some(kueue::LocalQueue { status, ..(**queue).clone() }.into())
    }

    /// The Cohorts whose share has changed, with the status that they should have.
    fn sync_cohorts(&self) -> Vec<Object> {
        let one = |object: &Object| {
            let Object::Cohort(cohort) = object else { return None };
            if self.store.is_locked(&object.reference()) {
                return None;
            }
            let report = self.engine.cohort(object.name())?;
            let status = kueue::CohortStatus { fair_sharing: Some(share(report.weighted_share.0)) };
            (status != cohort.status).then(|| kueue::Cohort { status, ..(**cohort).clone() }.into())
        };
        self.store.all(Kind::Cohort).filter_map(one).collect()
    }

    /// Until when the status of a queue is held back of which only figures changed; `None` if it may be written.
    fn too_soon(&self, queue: &ObjectRef, now: Timestamp, only_figures: bool) -> Option<Timestamp> {
        let until = self.held_back.written.get(queue)?.plus_micros(self.config.queue_status_interval_micros);
        (only_figures && until > now).then_some(until)
    }

    /// Keeps objects that others use from vanishing: each gets a finalizer, which goes when it is deleted and not used any
    /// more. Returns whether some could not be written yet.
    pub(crate) fn sync_finalizers(&mut self) -> bool {
        let mut writes: Vec<Object> = Vec::new();
        let mut left = false;
        for kind in [Kind::ClusterQueue, Kind::ResourceFlavor, Kind::AdmissionCheck, Kind::Topology] {
            for object in self.store.all(kind) {
                let metadata = object.metadata();
                let has = metadata.finalizers.iter().flatten().any(|f| f == keys::RESOURCE_IN_USE);
                let deleting = metadata.deletion_timestamp.is_some();
                let changes = if deleting { has && !self.is_in_use(object) } else { !has };
                if !changes {
                    continue;
                }
                if self.store.is_locked(&object.reference()) {
                    left = true;
                    continue;
                }
                let mut new = object.clone();
                let finalizers = &mut new.metadata_mut().finalizers;
                if deleting {
                    if let Some(list) = finalizers {
                        list.retain(|f| f != keys::RESOURCE_IN_USE);
                    }
                    if finalizers.as_ref().is_some_and(Vec::is_empty) {
                        *finalizers = None;
                    }
                } else {
                    finalizers.get_or_insert_default().push(keys::RESOURCE_IN_USE.to_owned());
                }
                writes.push(new);
            }
        }
        for object in writes {
            self.write(field_manager::ADMISSION, Operation::Update(object), Then::default());
        }
        left
    }

    /// Whether a ClusterQueue has workloads, or anything names the object.
    fn is_in_use(&self, object: &Object) -> bool {
        let name = object.name();
        let queues = || {
            self.store.all(Kind::ClusterQueue).filter_map(|o| match o {
                Object::ClusterQueue(q) => Some(&q.spec),
                _ => None,
            })
        };
        match object.kind() {
            Kind::ClusterQueue => self.engine.cluster_queue(name).is_some_and(|r| r.reserving > 0),
            Kind::ResourceFlavor => {
                queues().any(|q| q.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| f.name == name))
            }
            Kind::AdmissionCheck => queues().any(|q| {
                q.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks).any(|rule| rule.name == name)
            }),
            Kind::Topology => self.store.all(Kind::ResourceFlavor).any(|o| match o {
                Object::ResourceFlavor(f) => f.spec.topology_name.as_deref() == Some(name),
                _ => false,
            }),
            _ => false,
        }
    }

    /// Writes whether an admission check for capacity can be used.
    pub(crate) fn reconcile_check(&mut self, now: Timestamp, name: &str) {
        let Some(check) = self.store.check(name).cloned() else { return };
        let object = Object::AdmissionCheck(check.clone());
        if check.spec.controller_name != keys::PROVISIONING_CONTROLLER || self.store.is_locked(&object.reference()) {
            return;
        }
        let condition = self.provisioning_active(&check, now);
        let mut status = check.status.clone();
        set_condition(&mut status.conditions, condition);
        if status != check.status {
            let new = kueue::AdmissionCheck { status, ..(*check).clone() };
            self.write(field_manager::PROVISIONING, Operation::UpdateStatus(new.into()), Then::default());
        }
    }
}
