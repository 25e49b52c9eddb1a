//! When objects are to be looked at again.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_api::ObjectRef;
use slicegate_workload::Timestamp;

/// At most one timer for each object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    at: BTreeMap<ObjectRef, Timestamp>,
    order: BTreeSet<(Timestamp, ObjectRef)>,
}

impl Timers {
    /// Sets the timer of an object, unless it rings before.
    pub(crate) fn set(&mut self, reference: &ObjectRef, at: Timestamp) {
        if let Some(&old) = self.at.get(reference) {
            if old <= at {
                return;
            }
            self.order.remove(&(old, reference.clone()));
        }
        self.at.insert(reference.clone(), at);
        self.order.insert((at, reference.clone()));
    }

    /// Stops the timer of an object.
    pub(crate) fn clear(&mut self, reference: &ObjectRef) {
        if let Some(at) = self.at.remove(reference) {
            self.order.remove(&(at, reference.clone()));
        }
    }

    /// When the next one rings.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out an object whose timer has rung.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<ObjectRef> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        let (_, reference) = self.order.pop_first()?;
        self.at.remove(&reference);
        Some(reference)
    }
}

#[cfg(test)]
mod tests {
    use slicegate_api::Kind;

    use super::*;

    #[test]
    fn each_object_has_the_earliest_timer_that_was_set() {
        let (a, b) = (ObjectRef::new(Kind::Job, "n", "a"), ObjectRef::new(Kind::Job, "n", "b"));
        let at = Timestamp::from_micros;
        let mut timers = Timers::default();
        timers.set(&a, at(3));
        timers.set(&b, at(2));
        timers.set(&a, at(1));
        timers.set(&a, at(4));
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!((timers.pop_due(at(0)), timers.pop_due(at(1))), (None, Some(a.clone())));
        timers.set(&a, at(5));
        timers.clear(&b);
        assert_eq!((timers.pop_due(at(4)), timers.next()), (None, Some(at(5))));
    }
}
