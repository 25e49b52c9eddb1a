//! What goes into the controller and what comes out of it.

use slicegate_api::{Object, ObjectRef};
use slicegate_workload::{Key, Timestamp};

/// Something that happened to an object in the API server.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// It was created or changed, or is there at start.
    Applied(Object),
    /// It is gone; this is its last state.
    Deleted(Object),
}

/// Names a write, so that its outcome finds its way back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub u64);

/// The field managers under which Slicegate writes: Kueue's, so that a cluster can move from one to the other.
pub mod field_manager {
    /// Admission and most conditions of Workloads.
    pub const ADMISSION: &str = "kueue-admission";
    /// `PodsReady`, and everything written to jobs.
    pub const JOB: &str = "kueue-job-controller";
    /// Reclaimable pods.
    pub const RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";
    /// The ProvisioningRequest check.
    pub const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";
}

/// A change that the controller wants in the API server.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// Its name.
    pub id: WriteId,
    /// Under whose name it is made.
    pub manager: &'static str,
    /// What is to be done.
    pub operation: Operation,
}

/// What is to be done.
///
/// Objects carry the `resourceVersion` that the controller read; if the API server has another by then the write fails with
/// [`WriteError::Conflict`] and the controller, which will have seen the newer object, decides anew.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// The object is made.
    Create(Object),
    /// Metadata and spec become those of the object.
    Update(Object),
    /// The status becomes that of the object.
    UpdateStatus(Object),
    /// The object goes, if it still has this uid (any, if empty).
    Delete {
        /// The object.
        object: ObjectRef,
        /// Its uid.
        uid: Box<str>,
    },
}

impl Operation {
    /// The object concerned.
    pub fn object(&self) -> ObjectRef {
        match self {
            Self::Create(o) | Self::Update(o) | Self::UpdateStatus(o) => o.reference(),
            Self::Delete { object, .. } => object.clone(),
        }
    }
}

/// How a write fared.
#[derive(Clone, PartialEq, Debug)]
pub struct WriteOutcome {
    /// The write.
    pub id: WriteId,
    /// The object as it is now (`None` once deleted), or why nothing changed.
    pub result: Result<Option<Object>, WriteError>,
}

/// Why a write changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else changed the object in between.
    #[error("{0} was changed by somebody else in the meantime")]
    Conflict(ObjectRef),
    /// There is no such object.
    #[error("{0} does not exist")]
    NotFound(ObjectRef),
    /// There is one already.
    #[error("{0} exists already")]
    AlreadyExists(ObjectRef),
    /// Nothing new is taken by its namespace.
    #[error("{0} cannot be made: its namespace is being deleted")]
    NamespaceTerminating(ObjectRef),
    /// The API server refuses the object.
    #[error("{object} was refused: {why}")]
    Invalid {
        /// The object.
        object: ObjectRef,
        /// The API server's words.
        why: String,
    },
    /// It is not known whether the write happened.
    #[error("no answer about {object}: {why}")]
    Unavailable {
        /// The object.
        object: ObjectRef,
        /// What is known.
        why: String,
    },
}

/// The two types of Kubernetes Events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

/// A Kubernetes Event to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRecord {
    /// What it is about.
    pub object: ObjectRef,
    /// Its type.
    pub kind: EventType,
    /// A word for machines.
    pub reason: Box<str>,
    /// A sentence for people.
    pub note: Box<str>,
}

/// A decision told to people, beyond what Events say: who preempted whom and under which policy, what a workload waits for
/// and what could change that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The workload that it is about.
    pub workload: Key,
    /// The job behind the workload.
    pub job: Option<ObjectRef>,
    /// One line.
    pub text: String,
    /// More lines: flavor by flavor, with numbers.
    pub details: Vec<String>,
}

/// What follows from what the controller knows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effects {
    /// Writes, to be performed in this order for each object; those of different objects may run side by side.
    pub writes: Vec<Write>,
    /// Events to record.
    pub events: Vec<EventRecord>,
    /// Decisions told to people.
    pub notes: Vec<Note>,
    /// When to call again if nothing happens before.
    pub wake_at: Option<Timestamp>,
}
