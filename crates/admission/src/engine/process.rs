//! Deciding one entry after another.

use std::fmt::Write as _;

use slicegate_flavor::{Assignment, DelayedTopology, Mode};
use slicegate_placement::Reach;
use slicegate_preemption::{Message, Target, World as _, path};
use slicegate_quota::{Amount, FlavorResourceId, NodeId, request_quantity};
use slicegate_workload::{Admission, ConditionType, Key, PodSetAssignment, ReclaimPolicy, Status, Timestamp};

use super::Engine;
use super::assign::Nominated;
use super::cycle::{Admitted, Candidate, Requeue, Step};
use super::ids::WorkloadId;
use super::placing::leaving;
use crate::lifecycle::{
    At, EvictionReason, EvictionStep, FinishReason, checks_cover, evict, finish, preempt, required_checks,
    set_quota_reservation, sync_admitted,
};
use crate::{Cycle, Event, EventType, Eviction, Outcome, Recomputation, Skip, StatusWrite, Victim, message};

/// Whether an entry still fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    Enough,
    /// Quota is short.
    NoQuota,
    /// Quota suffices, but nodes are full.
    NoPlaces,
    /// Quota suffices, but whole slices are taken.
    NoSlices,
}

impl Engine {
    /// Decides what becomes of an entry, given what was decided before in the same cycle.
    pub(super) fn process(&mut self, now: Timestamp, c: &mut Candidate, cycle: &mut Cycle) {
        if c.step == Step::Dropped {
            return;
        }
        if self.waits_for_pods && c.second_pass.is_none() {
            c.step = Step::Postponed;
            c.requeue = Requeue::AtOnce;
            c.outcome = Outcome::Postponed;
            // The flavor was not found wanting: it is the first to be tried again.
            self.forget_progress(c.id);
            return;
        }
        if self.config.gates.concurrent_admission && self.better_variant_runs(c) {
            return skip(
                c,
                Skip::FavorableVariantAdmitted,
                "PendingEvaluation",
                "A more favorable variant is already admitted",
            );
        }
        if self.other_slice_holds_quota(c) {
            let text = "Another workload of the same elastic job holds quota";
            return skip(c, Skip::OtherSliceHoldsQuota, "PendingEvaluation", text);
        }
        let mut room = self.room(c);
        let gates = self.config.gates;
        let overlaps = gates.recompute_assignment_upon_preemption_targets_overlap && self.overlaps(c);
        if overlaps || (gates.tas_recompute_assignment_within_scheduling_cycle && room == Room::NoPlaces) {
            self.evaluate_again(c, overlaps);
            room = self.room(c);
            if overlaps {
                let result = match c.mode() {
                    Mode::DeferredFit => Recomputation::DeferredFit,
                    Mode::Preempt if !c.targets.is_empty() && !self.overlaps(c) => Recomputation::NewTargets,
                    _ => Recomputation::Skipped,
                };
                cycle.recomputed.push((self.state.forest.name(c.node).into(), result));
            }
        }
        if self.replaces_failed_node(c) && c.mode() != Mode::Fit {
            return self.evict_for_failed_node(now, c, cycle);
        }
        match c.mode() {
            Mode::NoFit => {
                c.requeue = Requeue::NoFit;
                c.outcome = Outcome::NoFit;
                // Kueue leaves the reason empty, which the API server refuses, if one resource fits and another is not
                // covered at all.
                c.reason = c.assignment.as_ref().and_then(|a| a.no_fit).map_or("NoMatchingFlavor", |r| r.as_str());
                return;
            }
            Mode::Preempt if c.targets.is_empty() => {
                c.requeue = Requeue::NoCandidates;
                c.outcome = Outcome::NoCandidates;
                c.reason = "WaitingForQuota";
                self.reserve(c);
                return;
            }
            Mode::Preempt if self.is_gated(c.id) => {
                c.step = Step::Gated;
                c.outcome = Outcome::Gated;
                c.reason = "AdmissionGated";
                "Workload requires preemption, but it's gated".clone_into(&mut c.message);
                self.forget_progress(c.id);
                return;
            }
            Mode::DeferredFit => {
                c.requeue = Requeue::PendingPreemption;
                c.outcome = Outcome::Deferred;
                c.reason = "WaitingForPreemptedWorkloads";
                "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete"
                    .clone_into(&mut c.message);
                self.forget_progress(c.id);
                self.keep_all_free(c);
                return;
            }
            Mode::Preempt | Mode::Fit => {}
        }
        if self.overlaps(c) {
            let text = "Workload has overlapping preemption targets with another workload";
            return skip(c, Skip::OverlappingVictims, "WaitingForQuota", text);
        }
        if room != Room::Enough {
            return skip(c, Skip::NoLongerFits, "WaitingForQuota", message::NO_LONGER_FITS);
        }
        for target in &c.targets {
            self.state.claim(target.workload);
        }
        if let Some(slice) = c.slice {
            self.state.claim(slice);
        }
        if c.mode() == Mode::Preempt {
            self.keep_all_free(c);
            return self.issue(now, c, cycle);
        }
        if !self.fits_beside_victims(c) {
            self.keep_all_free(c);
            c.requeue = Requeue::PendingPreemption;
            c.outcome = Outcome::Deferred;
            c.reason = "WaitingForPreemptedWorkloads";
            "Workload will fit after the preemptions for other workloads complete".clone_into(&mut c.message);
            self.forget_progress(c.id);
            return;
        }
        if !self.fits_on_nodes(c) {
            return skip(c, Skip::NoLongerFits, "WaitingForQuota", message::NO_LONGER_FITS);
        }
        self.add(c.node, c.usage());
        self.state.add_places(&c.places);
        self.state.inventory.take(&c.slices);
        if c.second_pass.is_none()
            && self.config.wait_for_pods_ready.as_ref().is_some_and(|w| w.block_admission)
            && (self.has_pods_that_are_not_ready() || self.admitted_in_cycle > 0)
        {
            self.waits_for_pods = true;
            c.requeue = Requeue::AtOnce;
            c.outcome = Outcome::WaitingForPodsReady;
            c.reason = "WaitingForPodsReady";
            "waiting for all admitted workloads to be in PodsReady condition".clone_into(&mut c.message);
            self.note_all_kept_free(c);
            // The flavor was not found wanting: it is the first to be tried again.
            self.forget_progress(c.id);
            return;
        }
        if self.config.gates.concurrent_admission && self.migrate(now, c, cycle) {
            self.note_all_kept_free(c);
            return;
        }
        self.admit(now, c);
        self.given_places.extend_from_slice(&c.places);
        if self.is_elastic(c.id) {
            self.given_slices.push(c.id);
        }
        self.admitted_in_cycle = self.admitted_in_cycle.saturating_add(1);
        cycle.progressed = true;
    }

    /// Whether the entry fits once everything that was given away in this cycle and its own victims are gone.
    fn room(&mut self, c: &Candidate) -> Room {
        let state = &mut self.state;
        let mark = state.checkpoint();
        state.remove_claimed(c.node);
        for workload in leaving(&c.targets, c.slice) {
            if !state.is_claimed(workload) {
                state.remove(workload);
            }
        }
        let has_quota = c.usage().iter().all(|&(pair, amount)| state.forest.available(c.node, pair) >= amount);
        let room = if !has_quota {
            Room::NoQuota
        } else if !state.has_places(&c.places) {
            Room::NoPlaces
        } else if !state.inventory.fits(&c.slices) {
            Room::NoSlices
        } else {
            Room::Enough
        };
        state.rollback(mark);
        room
    }

    /// Whether another entry of this cycle preempts one of the entry's victims.
    fn overlaps(&self, c: &Candidate) -> bool {
        leaving(&c.targets, c.slice).any(|w| self.state.is_claimed(w))
    }

    /// Looks at the entry once more, with the flavors chosen before; if its victims overlap with those of others, without the
    /// workloads that are given away already.
    fn evaluate_again(&mut self, c: &mut Candidate, overlaps: bool) {
        let nominated = nominated(c.assignment.as_ref(), self.pod_sets(c.id).len());
        self.forget_progress(c.id);
        if !overlaps {
            return self.evaluate(c, Some(&nominated));
        }
        let hidden = self.state.hide_claims(c.node);
        self.evaluate(c, Some(&nominated));
        self.state.show(hidden);
        if let Some(assignment) = &mut c.assignment
            && assignment.mode == Mode::Fit
        {
            assignment.mode = Mode::DeferredFit;
        }
    }

    fn add(&mut self, node: NodeId, usage: &[(FlavorResourceId, Amount)]) {
        for &(pair, amount) in usage {
            self.state.forest.add_usage(node, pair, amount);
        }
    }

    /// Keeps others from taking what an entry waits for, as far as its ClusterQueue could not take it back.
    fn reserve(&mut self, c: &Candidate) {
        let Some(queue) = self.state.queue(c.node) else { return };
        let prioritized = self.config.gates.prioritize_preemptor_workloads && c.is_preemptor;
        if queue.spec.preemption.reclaim_within_cohort == ReclaimPolicy::Any && !prioritized {
            return;
        }
        let forest = &self.state.forest;
        let reserved: Vec<(FlavorResourceId, Amount)> = c
            .usage()
            .iter()
            .map(|&(pair, amount)| {
                let limits = forest.limits(c.node, pair);
                let used = forest.usage(c.node, pair);
                let amount = if c.borrowing() > 0 {
                    match limits.borrowing {
                        None => amount,
                        Some(limit) => amount.min(limits.nominal.plus(limit).minus(used)),
                    }
                } else {
                    amount.min(limits.nominal.minus(used)).or_zero()
                };
                (pair, amount)
            })
            .collect();
        self.keep_free(c.node, &reserved);
        self.keep_places_free(c);
    }

    /// Keeps what an entry is to get free for the rest of the cycle.
    fn keep_all_free(&mut self, c: &Candidate) {
        self.keep_free(c.node, c.usage());
        self.keep_places_free(c);
    }

    fn keep_places_free(&mut self, c: &Candidate) {
        self.state.add_places(&c.places);
        self.state.inventory.take(&c.slices);
        self.kept_places.extend_from_slice(&c.places);
        self.kept_slices.extend_from_slice(&c.slices);
    }

    /// Keeps quota free for the rest of the cycle.
    fn keep_free(&mut self, node: NodeId, usage: &[(FlavorResourceId, Amount)]) {
        self.add(node, usage);
        self.note_kept_free(node, usage);
    }

    /// Notes that what was added is only kept free.
    fn note_kept_free(&mut self, node: NodeId, usage: &[(FlavorResourceId, Amount)]) {
        self.kept_free.extend(usage.iter().map(|&(pair, amount)| (node, pair, amount)));
    }

    fn note_all_kept_free(&mut self, c: &Candidate) {
        self.note_kept_free(c.node, c.usage());
        self.kept_places.extend_from_slice(&c.places);
        self.kept_slices.extend_from_slice(&c.slices);
    }

    /// Whether an entry fits beside everything that holds quota, workloads that are to leave included.
    ///
    /// Kueue does not ask this: it admits such an entry at once, on quota that victims of this cycle still hold.
    fn fits_beside_victims(&mut self, c: &Candidate) -> bool {
        if self.state.claims.is_empty() {
            return true;
        }
        let state = &mut self.state;
        let mark = state.checkpoint();
        for &(node, pair, amount) in self.kept_free.iter().rev() {
            state.forest.remove_usage(node, pair, amount);
        }
        state.take_places_away(&self.kept_places);
        state.inventory.give_back(&self.kept_slices);
        if let Some(slice) = c.slice {
            // It takes over places and slices of hardware.
            state.leave_places(slice);
            state.leave_slices(slice);
        }
        let has_quota = c.usage().iter().all(|&(pair, amount)| state.forest.available(c.node, pair) >= amount);
        let fits = has_quota && state.has_places(&c.places) && state.inventory.fits(&c.slices);
        state.rollback(mark);
        fits
    }

    /// Whether nodes have room for an entry beside everything that lies there and that was given places in this cycle, in other
    /// flavors of the same nodes too, with all its pod sets and the limit on pods.
    ///
    /// Kueue looks at each domain of each pod set alone, and within a cycle at its own flavor only, so that nodes can be given
    /// more pods than they take.
    fn fits_on_nodes(&mut self, c: &Candidate) -> bool {
        if !self.config.node_guard
            || c.places.is_empty()
            || (self.given_places.is_empty() && self.state.claims.is_empty())
        {
            return true;
        }
        let state = &mut self.state;
        let mark = state.checkpoint();
        state.take_places_away(&self.kept_places);
        for usage in &self.given_places {
            state.topologies.take_away(usage, Reach::Flavor);
            state.topologies.add(usage, Reach::Node);
        }
        if let Some(slice) = c.slice {
            state.leave_places(slice);
        }
        let fits = state.topologies.has_room(&c.places);
        state.rollback(mark);
        fits
    }

    pub(super) fn forget_progress(&mut self, id: WorkloadId) {
        if let Some(record) = self.state.records.get_mut(id) {
            record.last = None;
        }
    }

    fn is_gated(&self, id: WorkloadId) -> bool {
        let gates = &self.config.gates;
        (gates.concurrent_admission || gates.multi_kueue_orchestrated_preemption)
            && self.state.records.get(id).is_some_and(|r| r.closed_gate)
    }

    /// Whether a workload of the same elastic job holds quota and the entry does not replace it: it is to end first. A job that
    /// changed its size while its first workload was being made may have two that know nothing of each other.
    ///
    /// Kueue does not ask this: its only controller makes one after the other.
    fn other_slice_holds_quota(&self, c: &Candidate) -> bool {
        if c.second_pass.is_some() || !self.is_elastic(c.id) {
            return false;
        }
        let Some(record) = self.state.records.get(c.id).filter(|r| r.job_uid.is_some()) else { return false };
        let replaces = record.extras.as_deref().and_then(|e| e.replaces.as_ref());
        let holders = self.state.queues.iter().flatten().flat_map(|q| q.holders.iter());
        let holders = holders.map(|w| WorkloadId::from_index(w.index()));
        let others = holders.chain(self.given_slices.iter().copied()).filter_map(|id| self.state.records.get(id));
        others.filter(|other| other.job_uid == record.job_uid).any(|other| {
            other.key != record.key && other.key.namespace == record.key.namespace && replaces != Some(&other.key)
        })
    }

    /// Whether a workload is a slice of an elastic job.
    fn is_elastic(&self, id: WorkloadId) -> bool {
        self.config.gates.elastic_jobs_via_workload_slices
            && self.state.records.get(id).and_then(|r| r.extras.as_deref()).is_some_and(|e| e.elastic)
    }

    // ----- preemption ----------------------------------------------------------------------------------------------

    /// Evicts the victims of an entry. Those that are leaving already are not written again.
    fn issue(&mut self, now: Timestamp, c: &mut Candidate, cycle: &mut Cycle) {
        c.reason = "WaitingForPreemptedWorkloads";
        c.requeue = Requeue::PendingPreemption;
        self.forget_progress(c.id);
        let mut victims = Vec::with_capacity(c.targets.len());
        for i in 0..c.targets.len() {
            let target = c.targets[i];
            victims.extend(self.evict_target(now, c.id, c.node, target, cycle));
        }
        let _ = write!(c.message, ". Pending the preemption of {} workload(s)", victims.len());
        c.outcome = Outcome::Preempting { victims };
    }

    fn evict_target(
        &mut self,
        now: Timestamp,
        preemptor: WorkloadId,
        node: NodeId,
        target: Target,
        cycle: &mut Cycle,
    ) -> Option<Victim> {
        let id = WorkloadId::from_index(target.workload.index());
        let victim = self.state.records.get(id)?;
        let victim_node = victim.holding.as_ref()?.node;
        let told = Victim {
            workload: victim.key.clone(),
            cluster_queue: self.state.forest.name(victim_node).into(),
            reason: target.reason,
        };
        if victim.is_evicted() || victim.eviction_expected {
            return Some(told);
        }
        let by = self.state.records.get(preemptor)?;
        let text = Message {
            preemptor_uid: &by.uid,
            preemptor_job_uid: by.job_uid.as_deref().unwrap_or_default(),
            reason: Some(target.reason),
            preemptor_path: &path(&self.state.forest, node),
            preemptee_path: &path(&self.state.forest, victim_node),
        }
        .to_string();
        let mut status = victim.status.whole();
        preempt(&mut status, target.reason, &text, At { now, generation: victim.generation });
        let priorities = format!(
            "; preemptor effective priority: {} (base: {}, boost: {}); preemptee effective priority: {} (base: {}, boost: {})",
            by.priority(),
            by.base_priority,
            by.priority_boost,
            victim.priority(),
            victim.base_priority,
            victim.priority_boost,
        );
        let uid = if victim.uid.is_empty() { "UNKNOWN" } else { &victim.uid };
        let event = |object: &Key, reason: &str, note: &str| Event {
            object: object.clone(),
            kind: EventType::Normal,
            reason: reason.into(),
            note: message::note(note),
        };
        let events = vec![
            event(&victim.key, "EvictedDueToPreempted", &text),
            event(&victim.key, "Preempted", &format!("{text}{priorities}")),
            event(
                &by.key,
                "PreemptedWorkload",
                &format!(
                    "Preempted workload {} (UID: {uid}) in ClusterQueue {}{priorities}",
                    victim.key, told.cluster_queue
                ),
            ),
        ];
        cycle.evictions.push(Eviction {
            workload: victim.key.clone(),
            status,
            reason: EvictionReason::Preempted.as_str().into(),
            preemptor: Some((by.key.clone(), target.reason)),
            events,
            failed: None,
        });
        cycle.progressed = true;
        if let Some(victim) = self.state.records.get_mut(id) {
            victim.eviction_expected = true;
        }
        self.remember_victim(preemptor, node, id);
        Some(told)
    }

    fn evict_plainly(&mut self, now: Timestamp, id: WorkloadId, step: &EvictionStep, cycle: &mut Cycle) {
        let Some(record) = self.state.records.get_mut(id) else { return };
        let mut status = record.status.whole();
        evict(&mut status, step, At { now, generation: record.generation });
        record.eviction_expected = true;
        cycle.evictions.push(Eviction {
            workload: record.key.clone(),
            status,
            reason: step.condition_reason().into(),
            preemptor: None,
            events: vec![Event {
                object: record.key.clone(),
                kind: EventType::Normal,
                reason: format!("EvictedDueTo{}", step.condition_reason()).into(),
                note: message::note(&step.message),
            }],
            failed: None,
        });
        cycle.progressed = true;
    }

    // ----- a second look -------------------------------------------------------------------------------------------

    fn replaces_failed_node(&self, c: &Candidate) -> bool {
        self.config.gates.tas_failed_node_replacement_fail_fast
            && c.second_pass.is_some()
            && self.state.records.get(c.id).is_some_and(|r| !r.status.rest().unhealthy_nodes.is_empty())
    }

    fn evict_for_failed_node(&mut self, now: Timestamp, c: &mut Candidate, cycle: &mut Cycle) {
        let nodes = self.state.records.get(c.id).map(|r| r.status.rest().unhealthy_nodes.join(",")).unwrap_or_default();
        let step = EvictionStep {
            reason: EvictionReason::NodeFailures,
            cause: Box::default(),
            message: format!("Workload was evicted as there was no replacement for unhealthy node(s): {nodes}").into(),
        };
        let leaves = self.state.records.get(c.id).is_some_and(|r| r.is_evicted() || r.eviction_expected);
        if !leaves {
            self.evict_plainly(now, c.id, &step, cycle);
            if let Some(eviction) = cycle.evictions.last_mut() {
                eviction.failed = Some(second_pass_failed(&eviction.workload, &c.message));
            }
        }
        if let Some(iteration) = c.second_pass {
            // Should the write fail, it is looked at again.
            self.look_again(now, c.id, iteration);
        }
        c.step = Step::Evicted;
        c.outcome = Outcome::Evicted;
    }

    // ----- variants of one job -------------------------------------------------------------------------------------

    /// The position, in the first resource group, of the flavor that a variant is for.
    fn variant_rank(&self, id: WorkloadId, node: NodeId) -> Option<usize> {
        let flavors = self.state.records.get(id)?.extras.as_ref()?.allowed_flavors.as_ref()?;
        self.flavor_rank(node, flavors.split(',').next()?.trim())
    }

    fn flavor_rank(&self, node: NodeId, flavor: &str) -> Option<usize> {
        let group = self.state.queue(node)?.spec.resource_groups.first()?;
        group.flavors.iter().position(|f| *f.name == *flavor)
    }

    /// Other variants of the same job that hold quota of the ClusterQueue, with their ranks.
    fn running_variants(&self, c: &Candidate) -> Vec<(WorkloadId, usize)> {
        let parent = |id: WorkloadId| self.state.records.get(id)?.extras.as_ref()?.variant_of.as_ref();
        let Some(own) = parent(c.id) else { return Vec::new() };
        let holders = self.state.queue(c.node).map(|q| q.holders.as_slice()).unwrap_or_default();
        holders
            .iter()
            .map(|w| WorkloadId::from_index(w.index()))
            .filter(|&id| id != c.id && parent(id) == Some(own))
            .filter_map(|id| Some((id, self.variant_rank(id, c.node)?)))
            .collect()
    }

    fn better_variant_runs(&self, c: &Candidate) -> bool {
        let Some(rank) = self.variant_rank(c.id, c.node) else { return false };
        self.running_variants(c).iter().any(|(_, other)| *other < rank)
    }

    /// Makes a worse variant give way. Returns whether that decides the entry.
    fn migrate(&mut self, now: Timestamp, c: &mut Candidate, cycle: &mut Cycle) -> bool {
        let Some(rank) = self.variant_rank(c.id, c.node) else { return false };
        let Some((worse, _)) = self.running_variants(c).into_iter().find(|(_, other)| *other > rank) else {
            return false;
        };
        let last = self.state.queue(c.node).and_then(|q| q.spec.concurrent_admission.clone().flatten());
        if let Some(last) = last.and_then(|flavor| self.flavor_rank(c.node, &flavor))
            && rank > last
        {
            let text = "Target flavor is below LastAcceptableFlavorName";
            skip(c, Skip::BelowLastAcceptableFlavor, "PendingEvaluation", text);
            return true;
        }
        let uid = self.state.records.get(c.id).map(|r| r.uid.clone()).unwrap_or_default();
        let step = EvictionStep {
            reason: EvictionReason::FlavorMigration,
            cause: Box::default(),
            message: format!(
                "Evicted to accommodate a workload (UID: {uid}) due to migration to more favorable resource flavor"
            )
            .into(),
        };
        let leaves = self.state.records.get(worse).is_some_and(|r| r.is_evicted() || r.eviction_expected);
        if !leaves {
            self.evict_plainly(now, worse, &step, cycle);
        }
        c.message.push_str(". Pending the migration of 1 workload(s)");
        c.requeue = Requeue::PendingMigration;
        c.reason = "WaitingForPreemptedWorkloads";
        c.outcome = Outcome::Migrating;
        true
    }

    // ----- admission -----------------------------------------------------------------------------------------------

    fn admit(&mut self, now: Timestamp, c: &mut Candidate) {
        let (Some(assignment), Some(record), Some(queue)) =
            (c.assignment.as_ref(), self.state.records.get(c.id), self.state.queue(c.node))
        else {
            return;
        };
        let name = &queue.spec.name;
        let admission = self.admission(c.id, name, assignment);
        let at = At { now, generation: record.generation };
        let mut status = record.status.whole();
        let was_admitted = status.conditions.is_true(&ConditionType::Admitted);
        status.unhealthy_nodes.clear();
        if let Some(slice) = c.slice.and_then(|s| self.state.records.get(WorkloadId::from_index(s.index()))) {
            status.cluster_name.clone_from(&slice.status.rest().cluster_name);
        }
        set_quota_reservation(&mut status, admission.clone(), at);
        if checks_cover(&status.admission_checks, &required_checks(&queue.spec, Some(&admission))) {
            sync_admitted(&mut status, at, &self.config.gates);
            if was_admitted && status.conditions.is_true(&ConditionType::Admitted) {
                // Said anew after a second look, as the reservation is.
                at.set(&mut status, ConditionType::Admitted, Status::True, "Admitted", "The workload is admitted");
            }
        }
        let admitted = status.conditions.is_true(&ConditionType::Admitted);

        let mut events = Vec::with_capacity(2);
        let mut text = String::with_capacity(128);
        let mut tell = |reason: &str, note: &str| {
            events.push(Event {
                object: record.key.clone(),
                kind: EventType::Normal,
                reason: reason.into(),
                note: message::note(note),
            });
        };
        if c.second_pass.is_none() {
            let requeued = record.status.conditions.get(&ConditionType::Requeued);
            let since = requeued.map_or(record.created, |c| c.last_transition);
            let seconds = now.micros_since(since).saturating_add(500_000).max(0) / 1_000_000;
            text.clear();
            let _ = write!(text, "Quota reserved in ClusterQueue {name}, wait time since queued was {seconds}s");
            let considered = self.catalogue().attempts(assignment, |i| self.pod_set_name(c.id, i));
            if !considered.is_empty() {
                text.push_str("; Flavors considered: ");
                text.push_str(&considered);
            }
            tell("QuotaReserved", &text);
        }
        if admitted && !was_admitted {
            let reserved = status.conditions.get(&ConditionType::QuotaReserved).map(|c| c.last_transition);
            let seconds = reserved.map_or(0, |t| now.micros_since(t).max(0) / 1_000_000);
            text.clear();
            let _ = write!(text, "Admitted by ClusterQueue {name}, wait time since reservation was {seconds}s");
            tell("Admitted", &text);
        }
        let then = c.slice.and_then(|slice| {
            let old = self.state.records.get(WorkloadId::from_index(slice.index()))?;
            let job = record.job_uid.as_deref().unwrap_or_default();
            let text = format!(
                "Replaced to accommodate a workload (UID: {}, JobUID: {job}) due to workload slice aggregation",
                record.uid
            );
            let mut status = old.status.whole();
            let at = At { now, generation: old.generation };
            let reason = FinishReason::WorkloadSliceReplaced;
            finish(&mut status, reason, &text, at).then(|| StatusWrite {
                workload: old.key.clone(),
                status,
                events: vec![Event {
                    object: old.key.clone(),
                    kind: EventType::Normal,
                    reason: reason.as_str().into(),
                    note: message::note(&text),
                }],
            })
        });
        c.outcome = Outcome::Admitted { admission, admitted };
        c.step = Step::Assumed;
        c.admitted = Some(Box::new(Admitted { status, events, then }));
    }

    fn admission(&self, id: WorkloadId, cluster_queue: &str, assignment: &Assignment) -> Admission {
        let names = &self.state.names;
        let pod_sets = assignment.pod_sets.iter().map(|result| {
            let mut given = PodSetAssignment {
                name: self.pod_set_name(id, result.pod_set).into(),
                count: Some(result.count),
                topology_assignment: result.topology.clone(),
                delayed_topology_pending: result.delayed.map(|d| d == DelayedTopology::Pending),
                ..PodSetAssignment::default()
            };
            for &(resource, amount) in &result.requests {
                let Some(choice) = result.flavor(resource) else { continue };
                let resource = names.resource_name(resource);
                given.flavors.insert(resource.into(), names.flavor_name(choice.flavor).into());
                given.resource_usage.insert(resource.into(), request_quantity(resource, amount));
            }
            given
        });
        Admission { cluster_queue: cluster_queue.into(), pod_set_assignments: pod_sets.collect() }
    }

    /// What a workload uses once it holds what it was assigned.
    pub(super) fn whole_usage(assignment: &Assignment) -> Vec<(FlavorResourceId, Amount)> {
        let mut usage: Vec<(FlavorResourceId, Amount)> = Vec::new();
        for result in &assignment.pod_sets {
            for &(resource, amount) in &result.requests {
                let Some(choice) = result.flavor(resource) else { continue };
                let amount = Amount::new(amount);
                match usage.binary_search_by_key(&choice.pair, |u| u.0) {
                    Ok(at) => usage[at].1 = usage[at].1.plus(amount),
                    Err(at) => usage.insert(at, (choice.pair, amount)),
                }
            }
        }
        usage
    }
}

fn skip(c: &mut Candidate, why: Skip, reason: &'static str, text: &str) {
    c.step = Step::Skipped;
    c.outcome = Outcome::Skipped(why);
    c.reason = reason;
    text.clone_into(&mut c.message);
}

/// The event that a second look did not place a workload.
pub(super) fn second_pass_failed(workload: &Key, text: &str) -> Event {
    Event {
        object: workload.clone(),
        kind: EventType::Warning,
        reason: "SecondPassFailed".into(),
        note: message::note(text),
    }
}

/// The flavors that were chosen, by pod set.
fn nominated(assignment: Option<&Assignment>, pod_sets: usize) -> Nominated {
    let mut nominated = vec![Vec::new(); pod_sets];
    for result in assignment.iter().flat_map(|a| &a.pod_sets) {
        if let Some(slot) = nominated.get_mut(result.pod_set) {
            *slot = result.flavors.iter().map(|f| (f.resource, f.flavor)).collect();
        }
    }
    nominated
}
