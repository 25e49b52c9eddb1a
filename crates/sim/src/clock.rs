//! The event queue: what happens next, ties in order of scheduling.

use std::collections::BTreeMap;

use slicegate_workload::Timestamp;

/// Events by time.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue<E> {
    events: BTreeMap<(Timestamp, u64), E>,
    scheduled: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), scheduled: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Schedules an event.
    pub(crate) fn schedule(&mut self, at: Timestamp, event: E) {
        self.events.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<(Timestamp, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }

    /// When the next event is, and which.
    pub(crate) fn peek(&self) -> Option<(Timestamp, &E)> {
        self.events.first_key_value().map(|((at, _), event)| (*at, event))
    }

    /// All events, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.events.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_keep_the_order_of_scheduling() {
        let mut queue = EventQueue::default();
        let at = Timestamp::from_seconds;
        queue.schedule(at(5), 'c');
        queue.schedule(at(1), 'a');
        queue.schedule(at(5), 'd');
        queue.schedule(at(1), 'b');
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, "abcd");
    }
}
