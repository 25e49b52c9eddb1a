//! What a scheduling cycle decides.

use slicegate_workload::{Admission, Key, WorkloadStatus};

use crate::{Explanation, PreemptionReason};

/// One scheduling cycle.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cycle {
    /// Counts the cycles of this engine, from 1.
    pub number: u64,
    /// What became of every head, in the order in which they were decided.
    pub entries: Vec<Entry>,
    /// Workloads to evict.
    pub evictions: Vec<Eviction>,
    /// Whether something was admitted or evicted, so that the next cycle should follow at once.
    pub progressed: bool,
    /// Where victims were looked for once more, since others of the cycle preempt the first ones: the ClusterQueue, and what
    /// came of it.
    pub recomputed: Vec<(Box<str>, Recomputation)>,
}

/// What came of looking for other victims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Recomputation {
    /// Others were found.
    NewTargets,
    /// None are needed once those of the others are gone.
    DeferredFit,
    /// Neither.
    Skipped,
}

/// What became of one workload in a cycle.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The workload.
    pub workload: Key,
    /// The ClusterQueue whose head it was.
    pub cluster_queue: Box<str>,
    /// What was decided.
    pub outcome: Outcome,
    /// The whole status to write, if it is to be written.
    pub status: Option<WorkloadStatus>,
    /// Events to send once the status is written.
    pub events: Vec<Event>,
    /// What is to be written after the status was: the workload slice that this one replaces is finished.
    pub then: Option<StatusWrite>,
    /// The reasons, as data.
    pub explanation: Explanation,
}

/// The outcome for one workload.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Quota is reserved. Report the write with [`Engine::admission_written`](crate::Engine::admission_written).
    Admitted {
        /// What it got.
        admission: Admission,
        /// Whether it may start: no admission checks are outstanding.
        admitted: bool,
    },
    /// Room is being made for it.
    Preempting {
        /// Who leaves; those that were leaving already are among them.
        victims: Vec<Victim>,
    },
    /// It will fit once workloads that others preempt in this cycle are gone.
    Deferred,
    /// No flavor has room, and preemption cannot help.
    NoFit,
    /// Only preemption could help, and there is nobody to preempt.
    NoCandidates,
    /// It would fit alone, but not after what this cycle decided before.
    Skipped(Skip),
    /// It could not be considered.
    Inadmissible(Inadmissible),
    /// It needs preemption, which a gate forbids.
    Gated,
    /// Quota is free for it, but pods of others are not ready yet.
    WaitingForPodsReady,
    /// It was not looked at, since admission waits for pods of others.
    Postponed,
    /// It runs and is evicted, since a node it lost cannot be replaced.
    Evicted,
    /// It waits for a less favourable variant of itself to be evicted.
    Migrating,
    /// A second look at a workload that holds quota did not place it.
    SecondPassFailed,
    /// It was already counted or is gone; nothing is written.
    Dropped,
}

/// Why a workload was passed over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Skip {
    /// What was decided before took the room.
    NoLongerFits,
    /// It wants to preempt workloads that another one preempts.
    OverlappingVictims,
    /// A better variant of the same job runs.
    FavorableVariantAdmitted,
    /// The running variant may not be given up for this one.
    BelowLastAcceptableFlavor,
    /// Another workload of the same elastic job, which it does not replace, holds quota.
    OtherSliceHoldsQuota,
    /// It could not be counted (its ClusterQueue vanished, say).
    Failed,
}

/// Why a workload could not be considered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inadmissible {
    /// An admission check failed and was not reset yet.
    FailedChecks,
    /// The ClusterQueue cannot admit.
    ClusterQueueInactive {
        /// Its name.
        cluster_queue: Box<str>,
    },
    /// There is no such ClusterQueue.
    ClusterQueueMissing {
        /// Its name.
        cluster_queue: Box<str>,
    },
    /// There is no such namespace.
    NamespaceMissing {
        /// Its name.
        namespace: Box<str>,
    },
    /// The ClusterQueue does not serve the namespace.
    NamespaceMismatch,
    /// A container asks for more than it may use, or a LimitRange forbids what it asks for.
    Resources {
        /// The field errors, as one text.
        message: Box<str>,
    },
}

/// A workload that makes room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The workload.
    pub workload: Key,
    /// Its ClusterQueue.
    pub cluster_queue: Box<str>,
    /// Why it may be preempted.
    pub reason: PreemptionReason,
}

/// A workload to evict. Report the write with [`Engine::eviction_written`](crate::Engine::eviction_written).
#[derive(Clone, PartialEq, Debug)]
pub struct Eviction {
    /// The workload.
    pub workload: Key,
    /// The whole status to write.
    pub status: WorkloadStatus,
    /// The reason of the condition `Evicted`.
    pub reason: Box<str>,
    /// For whom, and on what ground; `None` if nobody's gain.
    pub preemptor: Option<(Key, PreemptionReason)>,
    /// Events to send once the status is written.
    pub events: Vec<Event>,
    /// The event to send if the write fails and the workload is not gone.
    pub failed: Option<Event>,
}

/// Another status to write.
#[derive(Clone, PartialEq, Debug)]
pub struct StatusWrite {
    /// The workload.
    pub workload: Key,
    /// Its whole status.
    pub status: WorkloadStatus,
    /// Events to send once it is written.
    pub events: Vec<Event>,
}

/// The weight of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may want to act.
    Warning,
}

impl EventType {
    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event about a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The workload.
    pub object: Key,
    /// Its weight.
    pub kind: EventType,
    /// A word for machines.
    pub reason: Box<str>,
    /// A sentence for people, at most 1024 bytes.
    pub note: Box<str>,
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Written {
    /// It was accepted.
    Ok,
    /// The object is gone.
    NotFound,
    /// It failed and may be tried again.
    Failed,
}
