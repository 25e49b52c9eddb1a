//! What scenarios do to the cluster, beside applying documents.

mod capacity;
mod drain;
mod scale;

use serde_json::Value;
use slicegate_api::{Kind, Object, ObjectRef};
use slicegate_controller::WriteError;

use crate::plan::{Action, Propagation, Target};
use crate::store::Applied;
use crate::timeline::EntryKind;
use crate::verdict::{JobVerdict, Verdict, verdict_on};
use crate::world::World;

/// The longest patch that is shown.
const MOST_SHOWN: usize = 160;

impl World {
    /// Does what the scenario says.
    pub(crate) fn play(&mut self, action: Action) {
        match action {
            Action::Patch { target, status, merge } => self.play_patch(&target, status, &merge),
            Action::Scale { job, part, size } => self.play_scale(&job, part.as_deref(), size),
            Action::ScalePool { pool, min, max } => self.play_scale_pool(&pool, min, max),
            Action::Delete { target, propagation } => self.play_delete(&target, propagation),
            Action::Fail(failure) => self.fail_host(&failure),
            Action::EvictNode { nodes, count, lasts } => self.play_drain(&nodes, count, lasts),
            Action::Restore { nodes } => self.play_restore(&nodes),
            Action::Dws { object, outcome, reason, message } => self.play_dws(&object, outcome, reason, message),
            Action::Apply(_) => {}
        }
    }

    /// The object that is meant; of a job's Workloads the one that counts. If there is none, that is said.
    fn resolve(&mut self, target: &Target) -> Option<ObjectRef> {
        match target {
            Target::Object(object) => Some(object.clone()),
            Target::WorkloadOf(job) => {
                let found = self.workload_of(job);
                if found.is_none() {
                    self.refuse(job, format!("{job} has no Workload"));
                }
                found
            }
            Target::NodePool(_) => None,
        }
    }

    /// The Workload of a job that counts: one that is not finished before one that is, and the newest of those.
    fn workload_of(&self, job: &ObjectRef) -> Option<ObjectRef> {
        let uid = self.store.get(job)?.uid();
        let all = self.store.owned_by(uid).filter_map(|key| match self.store.get(key) {
            Some(Object::Workload(workload)) => Some((key, workload)),
            _ => None,
        });
        all.max_by_key(|(_, workload)| {
            let finished = workload.status.conditions.iter().any(|c| c.type_ == "Finished" && c.status == "True");
            let version = workload.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
            (!finished, workload.metadata.creation_timestamp.clone(), version)
        })
        .map(|(key, _)| key.clone())
    }

    fn refuse(&mut self, object: &ObjectRef, why: impl Into<String>) {
        self.say(Some(object.clone()), EntryKind::Refused, why.into());
    }

    fn play_patch(&mut self, target: &Target, status: bool, merge: &Value) {
        let Some(key) = self.resolve(target) else { return };
        let result = self.store.patch(&key, status, merge);
        let text = format!("patched{}: {}", if status { " in its status" } else { "" }, shown(merge));
        self.tell_write(&key, EntryKind::Patched, text, result);
    }

    /// Tells how a user's write fared.
    fn tell_write(&mut self, key: &ObjectRef, kind: EntryKind, text: String, result: Result<Applied, WriteError>) {
        match result {
            Ok(Applied::Unchanged) => self.say(Some(key.clone()), kind, format!("{text} (unchanged)")),
            Ok(_) => self.say(Some(key.clone()), kind, text),
            Err(error) => self.refuse(key, error.to_string()),
        }
    }

    fn play_delete(&mut self, target: &Target, propagation: Propagation) {
        let Some(key) = self.resolve(target) else { return };
        let how = match propagation {
            Propagation::Background => "deleted",
            Propagation::Foreground => "deleted after what it owns",
            Propagation::Orphan => "deleted; what it owns stays",
        };
        let verdict = verdict_on(self, &key);
        if !self.store.delete_as(&key, propagation) {
            self.refuse(&key, WriteError::NotFound(key.clone()).to_string());
            return;
        }
        if let Some(before) = verdict {
            let over = matches!(before.verdict, Verdict::Finished { .. } | Verdict::Failed);
            let deleted = JobVerdict { job: key.clone(), verdict: Verdict::Deleted { at: self.now }, why: None };
            self.expired.insert(key.clone(), if over { before } else { deleted });
        }
        let left = self.store.get(&key).is_some_and(|o| o.metadata().deletion_timestamp.is_some());
        let held = self.store.get(&key).and_then(|o| o.metadata().finalizers.clone()).unwrap_or_default();
        let text = if left && key.kind != Kind::Pod && !held.is_empty() {
            format!("{how}: it goes once its finalizers are done ({})", held.join(", "))
        } else {
            how.to_owned()
        };
        self.say(Some(key), EntryKind::Deleted, text);
    }
}

/// A patch in one line, cut short if it is long.
fn shown(merge: &Value) -> String {
    let text = merge.to_string();
    if text.chars().count() <= MOST_SHOWN {
        return text;
    }
    let cut: String = text.chars().take(MOST_SHOWN).collect();
    format!("{cut}...")
}
