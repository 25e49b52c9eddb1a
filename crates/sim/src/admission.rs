//! What the simulator asks of the controller it runs.

use slicegate_controller::{Change, Controller, Effects, WriteOutcome};
use slicegate_workload::Timestamp;

/// A controller that admits jobs: told of changes and of the outcomes of its writes, it answers with writes.
///
/// Slicegate's own controller implements it; tests bring simpler ones.
pub trait Admission {
    /// An object was made, changed or deleted.
    fn observe(&mut self, now: Timestamp, change: Change);

    /// A write was performed, or failed.
    fn complete(&mut self, now: Timestamp, outcome: WriteOutcome);

    /// What follows from what it knows by now. Called until there are no writes left.
    fn reconcile(&mut self, now: Timestamp) -> Effects;

    /// Slicegate's controller, if it is that; metrics ask it about queues.
    fn controller(&self) -> Option<&Controller> {
        None
    }
}

impl Admission for Controller {
    fn observe(&mut self, now: Timestamp, change: Change) {
        Self::observe(self, now, change);
    }

    fn complete(&mut self, now: Timestamp, outcome: WriteOutcome) {
        Self::complete(self, now, outcome);
    }

    fn reconcile(&mut self, now: Timestamp) -> Effects {
        Self::reconcile(self, now)
    }

    fn controller(&self) -> Option<&Controller> {
        Some(self)
    }
}
