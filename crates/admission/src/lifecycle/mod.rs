//! The life cycle of one workload, as plain functions over its status.
//!
//! Each function changes a [`WorkloadStatus`] the way Kueue does at one step - reserving quota, admitting, evicting, putting
//! back, deactivating, finishing - or tells what the next step is and when. None of them keeps state of its own.

mod admitted;
mod checks;
mod deactivate;
mod evict;
mod execution;
mod finish;
mod nodes;
mod order;
mod pending;
mod pods_ready;
mod requeue;
mod reserve;
mod second_pass;
mod slices;
mod state;
mod stop;

use slicegate_workload::{Condition, ConditionType, Status, Timestamp, WorkloadStatus};

pub use admitted::sync_admitted;
pub use checks::{
    CheckVerdict, apply_retry_delay, check_verdict, checks_cover, latest_retry, required_checks, restart_late_checks,
    sync_checks,
};
pub use deactivate::{DeactivationCause, deactivate, set_deactivation_target, should_deactivate};
pub use evict::{EvictionReason, EvictionStep, evict, eviction_event, eviction_pending_latency, preempt, release};
pub use execution::{MaxExecutionTime, execution_seconds, max_execution_time};
pub use finish::{FinishReason, finish};
pub use nodes::{assigned_nodes, requests_topology};
pub use order::priority_changed;
pub use pending::{PendingFacts, QueueFact, set_pending, sync_pending};
pub use pods_ready::{PodsReadyCause, PodsReadyStep, pods_ready_step, pods_ready_timeout};
pub(crate) use requeue::may_compete;
pub use requeue::{
    Requeue, RequeueFacts, backoff_expired, backoff_micros, requeue, set_requeue_state, update_requeue_state,
};
pub use reserve::set_quota_reservation;
pub use second_pass::needs_second_pass;
pub use slices::{REPLACEMENT_ANNOTATION, SliceFinish, SliceNormalization, normalize_slices, replaced_slice};
pub use state::{JOB_UID_LABEL, sync_preemption_gates};
pub use stop::{StopFacts, StopStep, stop_step};

/// When a condition is set, and for which generation of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The time.
    pub now: Timestamp,
    /// The generation of the workload.
    pub generation: i64,
}

impl At {
    /// Sets a condition; returns whether anything but its transition time changed.
    pub fn set(
        self,
        status: &mut WorkloadStatus,
        kind: ConditionType,
        value: Status,
        reason: &str,
        message: &str,
    ) -> bool {
        status.conditions.set(Condition {
            kind,
            status: value,
            reason: reason.into(),
            message: crate::message::condition(message),
            last_transition: self.now.truncated(),
            observed_generation: self.generation,
        })
    }
}
