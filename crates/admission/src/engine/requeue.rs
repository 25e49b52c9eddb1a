//! Ending a cycle for one entry: counting what it was given, or putting it back.

use slicegate_flavor::LastTried;
use slicegate_workload::{ConditionType, QueueingStrategy, Status, Timestamp};

use super::Engine;
use super::cycle::{Candidate, Requeue, Step};
use super::ids::WorkloadId;
use super::process::second_pass_failed;
use super::queue::{Place, PreemptorRecord};
use super::record::Holding;
use crate::lifecycle::{At, set_pending};
use crate::{Cycle, Entry, Event, EventType, message};

impl Engine {
    /// Counts what an entry was given, or puts it back, and writes down what became of it.
    pub(super) fn conclude(&mut self, now: Timestamp, c: &mut Candidate, cycle: &mut Cycle) {
        let explanation = self.explain(c);
        let Some(record) = self.state.records.get(c.id) else { return };
        let mut entry = Entry {
            workload: record.key.clone(),
            cluster_queue: self.state.forest.name(c.node).into(),
            outcome: std::mem::replace(&mut c.outcome, crate::Outcome::Dropped),
            status: None,
            events: Vec::new(),
            then: None,
            explanation,
        };
        match c.step {
            Step::Assumed => self.assume(c, &mut entry),
            Step::Dropped | Step::Evicted => {
                if self.places.get(c.id) == Place::InFlight {
                    self.places.set(c.id, Place::Nowhere);
                }
            }
            Step::Postponed => self.put_back(now, c),
            Step::NotNominated | Step::Skipped | Step::Gated => self.decline(now, c, &mut entry),
        }
        cycle.entries.push(entry);
    }

    fn assume(&mut self, c: &mut Candidate, entry: &mut Entry) {
        let (Some(admitted), Some(assignment)) = (c.admitted.take(), c.assignment.as_ref()) else { return };
        let usage = Self::whole_usage(assignment);
        self.places.set(c.id, Place::Nowhere);
        self.forget_preemptor(c.id);
        let Some(record) = self.state.records.get_mut(c.id) else { return };
        let queue = record.queue;
        let conditions = &admitted.status.conditions;
        let before = record.holding.as_mut().and_then(|h| h.assumed.take());
        let shown = std::mem::replace(&mut record.status, admitted.status.clone().into());
        let places = self.held_places(c.id);
        let slices = self.held_slices(c.id);
        let holding = Holding {
            node: c.node,
            queue,
            position: 0,
            usage,
            places,
            slices,
            reserved_at: conditions.get(&ConditionType::QuotaReserved).map(|c| c.last_transition),
            admitted: conditions.is_true(&ConditionType::Admitted),
            pods_ready: conditions.is_true(&ConditionType::PodsReady),
            assumed: Some(before.unwrap_or_else(|| Box::new(shown))),
        };
        self.state.hold(c.id, holding);
        if c.second_pass.is_none() {
            self.charge(c.id);
        }
        entry.status = Some(admitted.status);
        entry.events = admitted.events;
        entry.then = admitted.then;
    }

    /// Puts an entry back and says why.
    fn decline(&mut self, now: Timestamp, c: &mut Candidate, entry: &mut Entry) {
        if let Some(iteration) = c.second_pass {
            if self.state.records.get(c.id).is_some_and(|r| r.second_pass) {
                self.look_again(now, c.id, iteration);
                entry.outcome = crate::Outcome::SecondPassFailed;
                entry.events.push(second_pass_failed(&entry.workload, &c.message));
            }
            return;
        }
        self.put_back(now, c);
        let gates = self.config.gates;
        let Some(record) = self.state.records.get(c.id) else { return };
        let mut status = record.status.whole();
        let at = At { now, generation: record.generation };
        let reason = match c.reason {
            reason if gates.unadmitted_workloads_observability => reason,
            "WaitingForPodsReady" => "Waiting",
            _ => "Pending",
        };
        if c.step == Step::Gated {
            at.set(&mut status, ConditionType::BlockedOnPreemptionGates, Status::True, "PreemptionGated", &c.message);
        }
        set_pending(&mut status, reason, &c.message, at, &gates);
        status.resource_requests =
            self.shapes.get(record.shape).map(super::shape::Shape::shown_requests).unwrap_or_default();
        entry.status = Some(status);
        entry.events.push(Event {
            object: entry.workload.clone(),
            kind: EventType::Warning,
            reason: reason.into(),
            note: message::note(&c.message),
        });
    }

    /// Puts an entry back into its queue: among those that compete, or parked until something changes.
    fn put_back(&mut self, now: Timestamp, c: &Candidate) {
        let id = c.id;
        if self.places.get(id) != Place::InFlight {
            return;
        }
        self.places.set(id, Place::Nowhere);
        let keeps = self.config.gates.flavor_fungibility_preserve_scan_progress;
        let Some(record) = self.state.records.get_mut(id) else { return };
        if c.step == Step::Skipped && !keeps {
            record.last = None;
        }
        if !record.admissible {
            return;
        }
        let (class, local_queue, generation) = (record.class, record.queue, record.generation);
        let expired = record.status.backoff_expired(now);
        let pending_flavors = record.last.as_deref().is_some_and(LastTried::has_pending);
        let Some(node) = self.state.local_queue(local_queue).and_then(|q| q.target) else { return };
        let is_strict =
            self.state.queue(node).is_some_and(|q| q.spec.queueing_strategy == QueueingStrategy::StrictFifo);
        let waits_for_victims = matches!(c.requeue, Requeue::PendingPreemption | Requeue::PendingMigration);
        let immediate = c.requeue == Requeue::AtOnce
            || if is_strict {
                c.requeue != Requeue::NamespaceMismatch
            } else {
                // Whoever was chosen or passed over is tried again at once.
                waits_for_victims || (c.requeue == Requeue::Generic && c.step != Step::NotNominated)
            };
        if waits_for_victims {
            self.remember_preemptor(node, PreemptorRecord { workload: id, generation, sticky: !is_strict });
        }
        let knows_classes = self.knows_classes(node);
        if c.resumed && !immediate && self.cut_short.last() != Some(&id) {
            self.cut_short.push(id);
        }
        self.with_queue(node, |queue, places, order| {
            if expired && (immediate || queue.flush_cycle >= queue.pop_cycle || pending_flavors) {
                queue.insert(id, class, local_queue, true, places, order);
                return;
            }
            if expired {
                queue.insert(id, class, local_queue, false, places, order);
            } else {
                queue.wait(id, places);
            }
            if knows_classes && matches!(c.requeue, Requeue::NoFit | Requeue::NoCandidates) {
                queue.blocked.insert(class, c.reason.into());
                queue.park_class(class, places, order);
            }
        });
    }

    /// Puts a workload back that lost its quota because the write failed.
    pub(super) fn put_back_after_failure(&mut self, now: Timestamp, id: WorkloadId) {
        let Some(record) = self.state.records.get(id) else { return };
        if !record.admissible || self.places.get(id) != Place::Nowhere {
            return;
        }
        let (class, local_queue) = (record.class, record.queue);
        let expired = record.status.backoff_expired(now);
        let Some(node) = self.state.local_queue(local_queue).and_then(|q| q.target) else { return };
        self.with_queue(node, |queue, places, order| {
            if expired {
                queue.insert(id, class, local_queue, true, places, order);
            } else {
                queue.wait(id, places);
            }
        });
    }
}
