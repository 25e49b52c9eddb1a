//! One object alone.

use slicegate_api::ObjectRef;
use slicegate_workload::{Key, Timestamp};

use crate::controller::Controller;
use crate::io::Effects;

/// One pass over one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass<'a> {
    /// A job and its Workload.
    Job(&'a ObjectRef),
    /// A Workload by itself: conditions, checks, limits, retention.
    Workload(&'a Key),
    /// A Workload's ProvisioningRequests.
    Capacity(&'a Key),
    /// No object: only what follows from the outcomes of writes, such as Events.
    Outcomes,
}

impl Controller {
    /// Looks at one object alone, as Kueue's reconciler for it does in one pass: no scheduling cycle is run, and no other object
    /// is looked at. It is for tests of single rules and for a look at what one pass would write; [`Controller::reconcile`] does
    /// everything that is due.
    pub fn pass(&mut self, now: Timestamp, pass: Pass<'_>) -> Effects {
        while let Some(reference) = self.dirty.pop_first() {
            self.feed(now, &reference);
        }
        match pass {
            Pass::Job(reference) => self.reconcile_job(now, reference),
            Pass::Workload(key) => self.reconcile_workload(now, key),
            Pass::Outcomes => {}
            Pass::Capacity(key) => {
                if let Some(workload) = self.fed.workloads.get(key).cloned() {
                    self.reconcile_provisioning(now, &workload);
                }
            }
        }
        self.write_plans(now);
        std::mem::take(&mut self.out)
    }
}
