//! The end of a workload.

use slicegate_workload::{ConditionType, Status, WorkloadStatus};

use super::At;

/// How a workload ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FinishReason {
    /// Its job succeeded.
    Succeeded,
    /// Its job failed.
    Failed,
    /// Its job changed under it.
    OutOfSync,
    /// Its job is gone.
    OwnerNotFound,
    /// Its job could not be started.
    FailedToStart,
    /// Another slice of the same job took its place.
    WorkloadSliceReplaced,
}

impl FinishReason {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::OutOfSync => "OutOfSync",
            Self::OwnerNotFound => "OwnerNotFound",
            Self::FailedToStart => "FailedToStart",
            Self::WorkloadSliceReplaced => "WorkloadSliceReplaced",
        }
    }
}

/// Marks the workload as finished. Returns whether anything changed; a finished workload stays as it is.
pub fn finish(status: &mut WorkloadStatus, reason: FinishReason, message: &str, at: At) -> bool {
    if status.conditions.is_true(&ConditionType::Finished) {
        return false;
    }
    at.set(status, ConditionType::Finished, Status::True, reason.as_str(), message)
}
