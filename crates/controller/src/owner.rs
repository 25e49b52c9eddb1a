//! Which job of a chain of owners is the one that is managed.

use slicegate_api::{Object, ObjectRef};

use crate::jobs::{self, label};
use crate::keys;
use crate::store::{Store, controller_of, owner_kind};

/// The longest chain of owners that is followed.
const LONGEST_CHAIN: usize = 10;

/// A chain of owners that cannot be followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum OwnerError {
    /// An owner is not there.
    #[error("workload owner not found\n{0} not found")]
    Missing(ObjectRef),
    /// The chain is too long.
    #[error("managed owner chain limit reached")]
    TooLong,
    /// The chain ends where it began.
    #[error("cyclic ownership")]
    Cycle,
}

/// Whether a job has a queue or needs none.
pub(crate) fn is_queued(object: &Object, without_queue: bool) -> bool {
    without_queue || label(object.metadata(), keys::QUEUE_NAME).is_some_and(|q| !q.is_empty())
}

/// The topmost owner of an object that is a job and queued itself; `None` if there is none.
pub(crate) fn managed_ancestor(
    store: &Store,
    object: &Object,
    without_queue: bool,
) -> Result<Option<ObjectRef>, OwnerError> {
    let mut seen = vec![object.uid().to_owned()];
    let mut current = object.clone();
    let mut ancestor = None;
    while let Some(owner) = controller_of(current.metadata()) {
        let Some(kind) = owner_kind(owner).filter(|k| jobs::KINDS.contains(k)) else { break };
        if !owner.uid.is_empty() && seen.contains(&owner.uid) {
            return Err(OwnerError::Cycle);
        }
        if seen.len() > LONGEST_CHAIN {
            return Err(OwnerError::TooLong);
        }
        let reference = ObjectRef::new(kind, object.namespace(), owner.name.as_str());
        let Some(parent) = store.get(&reference) else { return Err(OwnerError::Missing(reference)) };
        if parent.uid() != owner.uid {
            break;
        }
        if is_queued(parent, without_queue) {
            ancestor = Some(reference);
        }
        seen.push(owner.uid.clone());
        current = parent.clone();
    }
    Ok(ancestor)
}
