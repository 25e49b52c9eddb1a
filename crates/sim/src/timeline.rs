//! What happened, for people: one line an event.

use slicegate_api::ObjectRef;
use slicegate_workload::Timestamp;

/// What kind of thing happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKind {
    /// A user applied a document.
    Applied,
    /// A Workload was made for a job.
    WorkloadCreated,
    /// A workload waits, and for what.
    Waiting,
    /// A workload has quota but waits for admission checks.
    QuotaReserved,
    /// A workload was admitted.
    Admitted,
    /// A workload was preempted by another.
    Preempted,
    /// A workload was evicted for another reason.
    Evicted,
    /// A workload is back in its queue.
    Requeued,
    /// A workload was deactivated.
    Deactivated,
    /// An admission check changed.
    Check,
    /// Something about a ProvisioningRequest.
    ProvisioningRequest,
    /// Something about a Slice.
    Slice,
    /// A node pool grows.
    ScaleUp,
    /// Nodes came.
    NodesReady,
    /// A node pool shrinks.
    ScaleDown,
    /// A host or a program broke.
    HostFailed,
    /// Nodes of a broken host are gone.
    NodesLost,
    /// The pods of a job find no node.
    Unschedulable,
    /// The pods of a job wait for nodes.
    Scheduling,
    /// A job runs.
    Running,
    /// A job starts again after a failure.
    Restarted,
    /// A Ray program ended, in the words of its submitter.
    Submitter,
    /// A job ended well.
    Finished,
    /// A job failed.
    Failed,
    /// The controller explains a decision.
    Note,
    /// A user changed an object.
    Patched,
    /// A user or Ray's autoscaler gave a job or a node pool another size.
    Scaled,
    /// A user deleted an object.
    Deleted,
    /// Nodes were drained.
    Drained,
    /// The API server refused something.
    Refused,
}

impl EntryKind {
    /// A word for machines, in camel case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::WorkloadCreated => "workloadCreated",
            Self::Waiting => "waiting",
            Self::QuotaReserved => "quotaReserved",
            Self::Admitted => "admitted",
            Self::Preempted => "preempted",
            Self::Evicted => "evicted",
            Self::Requeued => "requeued",
            Self::Deactivated => "deactivated",
            Self::Check => "check",
            Self::ProvisioningRequest => "provisioningRequest",
            Self::Slice => "slice",
            Self::ScaleUp => "scaleUp",
            Self::NodesReady => "nodesReady",
            Self::ScaleDown => "scaleDown",
            Self::HostFailed => "hostFailed",
            Self::NodesLost => "nodesLost",
            Self::Unschedulable => "unschedulable",
            Self::Scheduling => "scheduling",
            Self::Running => "running",
            Self::Restarted => "restarted",
            Self::Submitter => "submitter",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Note => "note",
            Self::Patched => "patched",
            Self::Scaled => "scaled",
            Self::Deleted => "deleted",
            Self::Drained => "drained",
            Self::Refused => "refused",
        }
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When.
    pub time: Timestamp,
    /// To which object; `None` if to the cluster.
    pub object: Option<ObjectRef>,
    /// What kind of thing.
    pub kind: EntryKind,
    /// One line.
    pub text: String,
    /// More lines.
    pub details: Vec<String>,
}
