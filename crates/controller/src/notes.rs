//! Decisions told to people.

use std::fmt::Write as _;

use slicegate_admission::lifecycle::EvictionStep;
use slicegate_admission::{
    Blocker, Cause, Entry, Eviction, Explanation, FlavorExplanation, Outcome, PreemptionReason, ResourceExplanation,
    ResourceLimit, SliceShortage, Verdict,
};
use slicegate_api::ObjectRef;
use slicegate_workload::{Admission, ConditionType, Key, Timestamp, Workload};

use crate::controller::Controller;
use crate::io::Note;

/// How many workloads in the way are named.
const MOST_NAMED: usize = 3;

impl Controller {
    fn tell(&mut self, workload: &Key, text: String, details: Vec<String>) {
        let job = self.job_of(workload);
        self.out.notes.push(Note { workload: workload.clone(), job, text, details });
    }

    /// What people call a workload: its job, if that is known.
    fn called(&self, workload: &Key) -> String {
        self.job_of(workload).map_or_else(|| format!("Workload {workload}"), |job| short(&job))
    }

    /// Tells what a cycle decided about a workload, unless that was told before.
    pub(crate) fn note_entry(&mut self, now: Timestamp, entry: &Entry, evictions: &[Eviction]) {
        let key = &entry.workload;
        let name = self.called(key);
        let mut text = match &entry.outcome {
            Outcome::Admitted { admission, admitted } => {
                let flavors = flavors(admission);
                let what = if *admitted { "is admitted" } else { "has quota reserved" };
                let queue = &admission.cluster_queue;
                let tail = if *admitted { "" } else { "; it starts once its admission checks pass" };
                format!("{name} {what} in ClusterQueue {queue} on {flavors}{tail}")
            }
            Outcome::Preempting { victims } => {
                for victim in victims {
                    let Some(eviction) = evictions.iter().find(|e| e.workload == victim.workload) else { continue };
                    let text = self.preempted(key, eviction, victim.reason);
                    self.tell(&victim.workload, text, Vec::new());
                }
                let names: Vec<String> = victims.iter().map(|v| self.called(&v.workload)).collect();
                format!(
                    "{name} waits in ClusterQueue {} until {} made room",
                    entry.cluster_queue,
                    list(&names, MOST_NAMED)
                )
            }
            Outcome::Evicted => {
                format!("{name} is evicted: a node that it lost cannot be replaced{}", lost(key, evictions))
            }
            Outcome::Migrating => format!("{name} waits until a less favourable variant of it is gone"),
            Outcome::Dropped => return,
            _ => waits(&name, entry),
        };
        let details = details(&entry.explanation);
        let told =
            std::iter::once(text.as_str()).chain(details.iter().map(String::as_str)).collect::<Vec<_>>().join("\n");
        // A scan that goes on where the last one ended looks only at flavors that a growing job may not use: that is no news.
        let explanation = &entry.explanation;
        let no_numbers = explanation.cause == Cause::WaitingForQuota && short_of(explanation).is_none();
        let known = explanation.grows.is_some() && no_numbers && self.told.contains_key(key);
        if known || self.told.get(key) == Some(&told) {
            return;
        }
        self.told.insert(key.clone(), told);
        if entry.explanation.cause == Cause::WaitingForQuota {
            let blockers = self.engine.why(now, key).map(|e| e.blockers).unwrap_or_default();
            let holders: Vec<String> = blockers
                .iter()
                .filter_map(|b| if let Blocker::Workload(key) = b { Some(self.called(key)) } else { None })
                .collect();
            if !holders.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(text, "; held by {}", list(&holders, MOST_NAMED));
            }
        }
        self.tell(key, text, details);
    }

    fn preempted(&self, preemptor: &Key, eviction: &Eviction, reason: PreemptionReason) -> String {
        let victim = self.called(&eviction.workload);
        let by = self.called(preemptor);
        let priority = |key: &Key| self.workload(key).map_or(0, |w| w.spec.priority);
        let (low, high) = (priority(&eviction.workload), priority(preemptor));
        match reason {
            PreemptionReason::InClusterQueue => {
                let why = if high > low {
                    format!("priority {low} is lower than {high}")
                } else {
                    format!("both have priority {low}, and it is newer")
                };
                format!("{victim} is preempted by {by} in the same ClusterQueue (policy withinClusterQueue): {why}")
            }
            PreemptionReason::InCohortReclamation => format!(
                "{victim} is preempted by {by}, whose ClusterQueue takes back quota that it had lent (policy reclaimWithinCohort)"
            ),
            PreemptionReason::InCohortFairSharing => {
                format!("{victim} is preempted by {by}: its ClusterQueue has more than its fair share of the cohort")
            }
            PreemptionReason::InCohortReclaimWhileBorrowing => format!(
                "{victim} is preempted by {by}, which borrows (policy borrowWithinCohort): priority {low} is lower than {high}"
            ),
        }
    }

    /// Tells that a workload is evicted for its own sake.
    pub(crate) fn note_evicted(&mut self, workload: &Workload, step: &EvictionStep) {
        let text = format!("{} is evicted: {}", self.called(&workload.key), step.message);
        self.told.remove(&workload.key);
        self.tell(&workload.key, text, Vec::new());
    }

    /// Tells that a workload competes again.
    pub(crate) fn note_requeued(&mut self, workload: &Workload) {
        let text = format!("{} is back in its queue", self.called(&workload.key));
        self.told.remove(&workload.key);
        self.tell(&workload.key, text, Vec::new());
    }

    /// Tells that the checks of a workload passed.
    pub(crate) fn note_admitted_after_checks(&mut self, workload: &Workload, waited: i64) {
        let flavors = workload.status.admission.as_ref().map(flavors).unwrap_or_default();
        let name = self.called(&workload.key);
        let text =
            format!("{name} is admitted on {flavors}: its admission checks passed {waited} s after quota was reserved");
        self.tell(&workload.key, text, Vec::new());
    }

    /// Tells of the state of a check.
    pub(crate) fn note_check(&mut self, workload: &Key, check: &str, state: &str, message: &str) {
        let tail = if message.is_empty() { String::new() } else { format!(": {message}") };
        let text = format!("{}: admission check {check} is {state}{tail}", self.called(workload));
        self.tell(workload, text, Vec::new());
    }
}

/// What a workload waits for, and who could change that.
fn waits(name: &str, entry: &Entry) -> String {
    let explanation = &entry.explanation;
    let reason = match &explanation.cause {
        Cause::Admitted => "is admitted".to_owned(),
        Cause::Queued { .. } => "waits in its queue".to_owned(),
        Cause::Preempting { victims } => format!("waits for {victims} preempted workload(s) to leave"),
        Cause::Deferred => "fits once the workloads that others preempt are gone".to_owned(),
        Cause::WaitingForQuota | Cause::Overtaken => short_of(explanation)
            .map_or_else(|| "waits for quota".to_owned(), |what| format!("waits for quota: {what}")),
        Cause::WaitingForPlaces => {
            with_words("has quota, but others are where its pods would have to go", written(entry).as_deref())
        }
        Cause::PlacesNotFreed { .. } => {
            "waits: preemption could free quota for it, but no place for its pods".to_owned()
        }
        Cause::ExceedsMaxQuota => short_of(explanation).or_else(|| written(entry)).map_or_else(
            || "asks for more than there is quota for".to_owned(),
            |what| format!("asks for more than there is quota for: {what}"),
        ),
        Cause::NoMatchingFlavor => mismatch(explanation).or_else(|| written(entry)).map_or_else(
            || "has no flavor that takes its pods".to_owned(),
            |why| format!("has no flavor that takes its pods: {why}"),
        ),
        Cause::TopologyPlacementFailed => {
            with_words("has quota, but its pods find no place together", written(entry).as_deref())
        }
        Cause::WholeSlicesMissing => slices_missing(explanation).map_or_else(
            || "waits for whole slices".to_owned(),
            |(flavor, shortage)| format!("waits for whole slices of {flavor}: {shortage}"),
        ),
        Cause::Gated => "would have to preempt, which a gate forbids".to_owned(),
        Cause::WaitingForPodsReady => "waits until the pods of others are ready".to_owned(),
        Cause::QueueInactive { name, why } => format!("waits: {name} {why}"),
        Cause::Invalid { why } => format!("cannot be admitted: {why}"),
        Cause::NotAdmissible => "is kept out of its queue".to_owned(),
        Cause::FailedChecks => "has failed admission checks".to_owned(),
        Cause::Backoff => "waits for the end of its back-off".to_owned(),
        Cause::Deactivated => "is deactivated".to_owned(),
    };
    let mut text = format!("{name} {reason}");
    if explanation.grows.is_some() {
        text.push_str("; an elastic job grows only on the flavor that it runs on");
    }
    let change = match explanation.verdict {
        Verdict::Admitted | Verdict::Wait => "",
        Verdict::Change => "; it must be changed by its owner",
        Verdict::AskAdmin => "; an admin must change queues, quota or flavors",
        Verdict::Never => "; it can never start as it is",
    };
    text.push_str(change);
    text
}

fn short(job: &ObjectRef) -> String {
    format!("{} {}", job.kind, job.name)
}

fn list(names: &[String], most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let mut text = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {more} more");
    }
    text
}

/// `google.com/tpu: vlp-24`, by pod set where there are several.
fn flavors(admission: &Admission) -> String {
    let several = admission.pod_set_assignments.len() > 1;
    let parts: Vec<String> = admission
        .pod_set_assignments
        .iter()
        .map(|p| {
            let mut names: Vec<&str> = p.flavors.values().map(|f| &**f).collect();
            names.dedup();
            let joined = if names.is_empty() { "no flavor".to_owned() } else { names.join("+") };
            if several { format!("{joined} ({})", p.name) } else { format!("flavor {joined}") }
        })
        .collect();
    parts.join(", ")
}

fn with_words(text: &str, words: Option<&str>) -> String {
    words.map_or_else(|| text.to_owned(), |words| format!("{text}: {words}"))
}

/// The nodes of an evicted workload that were to be replaced, in brackets, as the condition `Evicted` names them.
fn lost(key: &Key, evictions: &[Eviction]) -> String {
    let eviction = evictions.iter().find(|e| e.workload == *key);
    let condition = eviction.and_then(|e| e.status.conditions.get(&ConditionType::Evicted));
    let nodes = condition.and_then(|c| c.message.split_once("unhealthy node(s): "));
    nodes.map_or_else(String::new, |(_, nodes)| format!(" ({nodes})"))
}

/// What the status says.
fn written(entry: &Entry) -> Option<String> {
    let condition = entry.status.as_ref()?.conditions.get(&ConditionType::QuotaReserved)?;
    let text = &condition.message;
    // The wrapper says no more than the line it is put into.
    let inner = text.strip_prefix("couldn't assign flavors to pod set ").and_then(|t| t.split_once(": "));
    Some(inner.map_or_else(|| text.to_string(), |(_, why)| why.to_owned()))
}

/// The last flavor tried that is short of something, with numbers.
fn short_of(explanation: &Explanation) -> Option<String> {
    let tried = explanation.pod_sets.iter().flat_map(|p| &p.flavors).filter(|f| f.mismatch.is_none());
    tried.filter_map(shortages).next_back()
}

/// What a flavor has too little of.
fn shortages(flavor: &FlavorExplanation) -> Option<String> {
    let short: Vec<&ResourceExplanation> = flavor.resources.iter().filter(|r| r.limit != ResourceLimit::None).collect();
    let waits = short.iter().all(|r| matches!(r.limit, ResourceLimit::Quota { .. }));
    let [first, _, ..] = short.as_slice() else { return short.first().map(|r| shortage(flavor, r)) };
    if !waits {
        return Some(shortage(flavor, first));
    }
    // Accelerators first: they are what such a job is about.
    let (accelerators, others): (Vec<_>, Vec<_>) = short.into_iter().partition(|r| r.resource.contains('/'));
    let show = |r: &ResourceExplanation| {
        let name = &r.resource;
        format!("{} {name} ({} free)", r.needed.display(name), r.available.display(name))
    };
    let all: Vec<String> = accelerators.into_iter().chain(others).map(show).collect();
    let (last, rest) = all.split_last()?;
    Some(format!("needs {} and {last} of flavor {}", rest.join(", "), flavor.flavor))
}

fn shortage(flavor: &FlavorExplanation, resource: &ResourceExplanation) -> String {
    let name = &resource.resource;
    let show = |amount: slicegate_quota::Amount| amount.display(name).to_string();
    let mut text = format!(
        "needs {} {name} of flavor {}, {} free",
        show(resource.needed),
        flavor.flavor,
        show(resource.available)
    );
    match &resource.limit {
        ResourceLimit::MaximumQuota { node } | ResourceLimit::MaximumBorrowing { node } => {
            let _ = write!(text, ", never more than {} in {node}", show(resource.maximum));
        }
        ResourceLimit::Borrowing { node } => {
            let _ = write!(text, ", {node} may not borrow more");
        }
        ResourceLimit::Undeclared => {
            text = format!("{name} has no quota in flavor {}", flavor.flavor);
        }
        ResourceLimit::Quota { .. } | ResourceLimit::None => {}
    }
    text
}

/// The last flavor that has too few whole slices.
fn slices_missing(explanation: &Explanation) -> Option<(&str, &SliceShortage)> {
    let flavors = explanation.pod_sets.iter().flat_map(|p| &p.flavors);
    flavors.filter_map(|f| Some((&*f.flavor, f.slices.as_ref()?))).next_back()
}

fn mismatch(explanation: &Explanation) -> Option<String> {
    explanation.pod_sets.iter().flat_map(|p| &p.flavors).find_map(|f| f.mismatch.as_ref().map(ToString::to_string))
}

fn details(explanation: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    for pod_set in &explanation.pod_sets {
        for flavor in &pod_set.flavors {
            if let Some(why) = &flavor.mismatch {
                lines.push(format!("{}: flavor {} does not take its pods: {why}", pod_set.name, flavor.flavor));
                continue;
            }
            let parts: Vec<String> = flavor
                .resources
                .iter()
                .map(|r| {
                    let show = |amount: slicegate_quota::Amount| amount.display(&r.resource).to_string();
                    format!(
                        "{} {} needed, {} free of {} ({} used)",
                        r.resource,
                        show(r.needed),
                        show(r.available),
                        show(r.nominal),
                        show(r.used)
                    )
                })
                .chain(flavor.slices.iter().map(ToString::to_string))
                .collect();
            let mark = if flavor.chosen { "would take" } else { "tried" };
            lines.push(format!("{}: {mark} flavor {}: {}", pod_set.name, flavor.flavor, parts.join("; ")));
        }
    }
    lines
}
