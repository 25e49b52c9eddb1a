//! What is wrong with objects, told once.

use slicegate_api::validation::{Finding, Rules, validate_by_webhook};
use slicegate_api::{Object, ObjectRef};

use crate::controller::{Controller, event};
use crate::io::EventType;
use crate::writes::Part;

/// The reason of Events about a spec, label or annotation that breaks a rule.
pub(crate) const INVALID: &str = "Invalid";

/// The reason of Events about a write that is refused, and what was being done to the object.
fn refusal(written: Option<Part>) -> (&'static str, &'static str) {
    match written {
        Some(Part::All) => ("FailedUpdate", "updating"),
        Some(Part::Status) => ("FailedStatusUpdate", "updating the status of"),
        None => ("FailedDelete", "deleting"),
    }
}

impl Controller {
    /// Records an Event about something that is wrong with an object, unless the last one for this reason said just that.
    pub(crate) fn complain(&mut self, about: &ObjectRef, reason: &'static str, note: String) {
        let told = self.complaints.entry(about.clone()).or_default();
        if told.get(reason) == Some(&note) {
            return;
        }
        told.insert(reason, note.clone());
        self.out.events.push(event(about, EventType::Warning, reason, note));
    }

    /// What was wrong is not any more: it is told again if it comes back.
    pub(crate) fn settle_complaint(&mut self, about: &ObjectRef, reason: &'static str) {
        if let Some(told) = self.complaints.get_mut(about) {
            told.remove(reason);
            if told.is_empty() {
                self.complaints.remove(about);
            }
        }
    }

    /// Says that the API server refuses a write of an object that is there, for a policy's sake say: meanwhile its job does not start
    /// or stop. `written` is `None` for a deletion.
    pub(crate) fn complain_of_refusal(&mut self, about: &ObjectRef, written: Option<Part>, why: &str) {
        if self.store.get(about).is_none() {
            return;
        }
        let (reason, doing) = refusal(written);
        self.complain(about, reason, format!("Error {doing} {about}: {why}"));
    }

    /// Such a write was taken.
    pub(crate) fn settle_refusal(&mut self, about: &ObjectRef, written: Option<Part>) {
        self.settle_complaint(about, refusal(written).0);
    }

    /// The rules that an object breaks, in one text: Kueue's webhooks would have refused it.
    pub(crate) fn broken_rules(&self, object: &Object) -> Option<String> {
        let gates = &self.config.engine.gates;
        let mut rules = Rules::default();
        rules.manage_jobs_without_queue_name = self.policy.manage_jobs_without_queue_name;
        rules.topology_aware_scheduling = gates.topology_aware_scheduling;
        rules.multi_layer_topology = gates.tas_multi_layer_topology;
        rules.elastic_jobs = gates.elastic_jobs_via_workload_slices;
        rules.admission_gated_by = gates.admission_gated_by;
        let findings: Vec<String> = validate_by_webhook(object, &rules).iter().map(Finding::to_string).collect();
        (!findings.is_empty()).then(|| findings.join("; "))
    }

    /// Says which rules an object breaks, if it does.
    pub(crate) fn complain_of_rules(&mut self, object: &Object) {
        let about = object.reference();
        match self.broken_rules(object) {
            Some(broken) => self.complain(&about, INVALID, format!("{about}: {broken}")),
            None => self.settle_complaint(&about, INVALID),
        }
    }
}
