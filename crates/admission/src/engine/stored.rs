//! Statuses as the engine keeps them.

use std::sync::LazyLock;

use slicegate_workload::{Conditions, Timestamp, WorkloadStatus};

static NOTHING: LazyLock<WorkloadStatus> = LazyLock::new(WorkloadStatus::default);

/// A status, small for a workload that waits: it has conditions and seldom anything else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stored {
    pub(super) conditions: Conditions,
    /// The status without conditions, if anything is in it.
    rest: Option<Box<WorkloadStatus>>,
}

impl Stored {
    /// The status without its conditions.
    pub(super) fn rest(&self) -> &WorkloadStatus {
        self.rest.as_deref().unwrap_or(&NOTHING)
    }

    /// The whole status.
    pub(super) fn whole(&self) -> WorkloadStatus {
        WorkloadStatus { conditions: self.conditions.clone(), ..self.rest().clone() }
    }

    /// Whether the workload may compete, as far as its back-off is concerned.
    pub(super) fn backoff_expired(&self, now: Timestamp) -> bool {
        crate::lifecycle::may_compete(&self.conditions, self.rest().requeue_state, now)
    }
}

impl From<WorkloadStatus> for Stored {
    fn from(mut status: WorkloadStatus) -> Self {
        let conditions = std::mem::take(&mut status.conditions);
        let rest = (status != *NOTHING).then(|| Box::new(status));
        Self { conditions, rest }
    }
}
