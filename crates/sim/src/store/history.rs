//! Every version of every object, so that any moment can be looked at afterwards.

use std::collections::BTreeMap;

use slicegate_api::{Object, ObjectRef};
use slicegate_controller::Change;
use slicegate_workload::Timestamp;

/// A version of an object, as a watcher saw it.
#[derive(Clone, PartialEq, Debug)]
pub struct Revision {
    /// When.
    pub time: Timestamp,
    /// What.
    pub change: Change,
}

/// All versions, in order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    revisions: Vec<Revision>,
}

impl History {
    pub(super) fn push(&mut self, time: Timestamp, change: Change) {
        self.revisions.push(Revision { time, change });
    }

    /// All versions, in order.
    pub fn revisions(&self) -> &[Revision] {
        &self.revisions
    }

    /// The objects as they were at a time, the changes of that very moment included.
    pub fn at(&self, time: Timestamp) -> BTreeMap<ObjectRef, Object> {
        let mut objects = BTreeMap::new();
        for revision in &self.revisions[..self.revisions.partition_point(|revision| revision.time <= time)] {
            match &revision.change {
                Change::Applied(object) => {
                    objects.insert(object.reference(), object.clone());
                }
                Change::Deleted(object) => {
                    objects.remove(&object.reference());
                }
            }
        }
        objects
    }
}
