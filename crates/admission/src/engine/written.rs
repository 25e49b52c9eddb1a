//! Hearing how writes ended.

use slicegate_workload::{ConditionType, Key, Timestamp};

use super::Engine;
use crate::Written;

impl Engine {
    /// Reports how the write of an [`Outcome::Admitted`](crate::Outcome::Admitted) ended. Without success the workload loses
    /// its quota again and competes anew, unless it is gone.
    pub fn admission_written(&mut self, now: Timestamp, workload: &Key, result: Written) {
        self.state.now = now;
        let Some(id) = self.state.records.find(workload) else { return };
        let Some(record) = self.state.records.get_mut(id) else { return };
        let is_assumed = record.holding.as_ref().is_some_and(|h| h.assumed.is_some());
        if result == Written::Ok {
            record.eviction_expected = false;
            return;
        }
        if !is_assumed {
            let conditions = &mut record.status.conditions;
            if record.holding.is_none() && conditions.is_true(&ConditionType::QuotaReserved) {
                // The ClusterQueue went before the write failed.
                conditions.remove(&ConditionType::QuotaReserved);
                conditions.remove(&ConditionType::Admitted);
                record.last = None;
                if result == Written::Failed {
                    self.put_back_after_failure(now, id);
                }
            }
            return;
        }
        let Some(mut holding) = self.state.release(id) else { return };
        let before = holding.assumed.take();
        if let (Some(before), Some(record)) = (before, self.state.records.get_mut(id)) {
            record.status = *before;
        }
        let record = self.state.records.get(id);
        if let Some(usage) = record.and_then(|r| self.usage_of(&self.rebuild(r))) {
            // It was looked at again, and holds what it held before.
            self.hold(id, &usage);
            self.look_again(now, id, 1);
            return;
        }
        self.drop_charge(id);
        // The flavor was not found wanting: it is the first to be tried again.
        self.forget_progress(id);
        // Others may have been turned away for its sake.
        self.request_flush(now, holding.node);
        self.places_left(now, &holding);
        self.wake_for_slices(now);
        if result == Written::Failed {
            self.put_back_after_failure(now, id);
        }
    }

    /// Reports how the write of why a workload waits ended: the status of an [`Entry`](crate::Entry) that was not admitted.
    /// Without success the workload is looked at again by a later cycle, which says anew what keeps it waiting.
    pub fn decline_written(&mut self, now: Timestamp, workload: &Key, result: Written) {
        self.state.now = now;
        if result != Written::Failed {
            return;
        }
        if let Some(id) = self.state.records.find(workload) {
            self.unpark(id);
        }
    }

    /// Reports how the write of an [`Eviction`](crate::Eviction) ended. Without success it is decided anew by a later cycle.
    pub fn eviction_written(&mut self, now: Timestamp, workload: &Key, result: Written) {
        self.state.now = now;
        if result == Written::Ok {
            return;
        }
        let Some(id) = self.state.records.find(workload) else { return };
        if let Some(record) = self.state.records.get_mut(id) {
            record.eviction_expected = false;
        }
        self.forget_victim(id);
    }
}
