//! Scheduling cycles, and what follows from their decisions.

use std::collections::BTreeMap;

use slicegate_admission::{Cycle, Entry, Event, Eviction, Outcome};
use slicegate_workload::{ConditionType, Key, Timestamp};

use crate::controller::{Controller, event};
use crate::io::{EventRecord, EventType, field_manager};
use crate::store::workload_ref;
use crate::writes::{Report, Then};

/// How often a head's scan of flavors comes to an end before it is known to find nothing: the first may have begun in the
/// middle.
const WHOLE_SCANS: u8 = 2;

fn record(told: &Event) -> EventRecord {
    let kind = match told.kind {
        slicegate_admission::EventType::Normal => EventType::Normal,
        slicegate_admission::EventType::Warning => EventType::Warning,
    };
    event(&workload_ref(&told.object), kind, told.reason.clone(), told.note.clone())
}

impl Controller {
    /// Runs cycles until they decide nothing new, if anything changed since the last ones.
    pub(crate) fn run_cycles(&mut self, now: Timestamp, most: u32) {
        let due = self.engine.next_wake().is_some_and(|t| t <= now);
        if !std::mem::take(&mut self.touched) && !due {
            return;
        }
        self.engine.flush(now);
        // Heads that were looked at since the last one that made a difference, and how often their scans of flavors came to
        // an end since: once each was looked at with all of its flavors, to look again would change nothing.
        let mut seen: BTreeMap<Key, u8> = BTreeMap::new();
        let mut reconsidered = false;
        for _ in 0..most {
            if !self.engine.has_heads(now) {
                if std::mem::replace(&mut reconsidered, true) || !self.engine.reconsider_cut_short() {
                    break;
                }
                seen.clear();
            }
            let cycle = self.engine.cycle(now);
            let heads: Vec<Key> = cycle.entries.iter().map(|e| e.workload.clone()).collect();
            let progressed = cycle.progressed;
            self.attempts.count(&cycle);
            self.take_decisions(now, cycle);
            if progressed {
                seen.clear();
                reconsidered = false;
                continue;
            }
            let mut news = false;
            for head in heads {
                let ended = !self.engine.has_flavors_left(&head);
                let scans = seen.entry(head).or_insert(0);
                *scans = scans.saturating_add(u8::from(ended));
                news |= *scans < WHOLE_SCANS;
            }
            if !news {
                if std::mem::replace(&mut reconsidered, true) || !self.engine.reconsider_cut_short() {
                    break;
                }
                seen.clear();
            }
        }
    }

    fn take_decisions(&mut self, now: Timestamp, cycle: Cycle) {
        for entry in &cycle.entries {
            self.note_entry(now, entry, &cycle.evictions);
        }
        for entry in cycle.entries {
            self.take_entry(entry);
        }
        for eviction in &cycle.evictions {
            self.take_eviction(eviction);
        }
    }

    fn take_entry(&mut self, entry: Entry) {
        let admitted = matches!(entry.outcome, Outcome::Admitted { .. });
        self.parked |= matches!(entry.outcome, Outcome::NoFit | Outcome::NoCandidates);
        self.mark_stale(&entry.workload);
        // The slice that this one replaces ends once the admission is written.
        let ends = entry.then.and_then(|next| {
            let finished = next.status.conditions.get(&ConditionType::Finished)?.clone();
            Some((next.workload, finished, next.events.iter().map(record).collect()))
        });
        if let Some(status) = &entry.status {
            let then = Then {
                events: entry.events.iter().map(record).collect(),
                reports: vec![if admitted { Report::Admission } else { Report::Decline }],
                ends: ends.into_iter().collect(),
                ..Then::default()
            };
            self.plan_status(&entry.workload, field_manager::ADMISSION, status, then);
        }
    }

    fn take_eviction(&mut self, eviction: &Eviction) {
        let then = Then {
            events: eviction.events.iter().map(record).collect(),
            reports: vec![Report::Eviction],
            ..Then::default()
        };
        self.plan_status(&eviction.workload, field_manager::ADMISSION, &eviction.status, then);
    }
}
