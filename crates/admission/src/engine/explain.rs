//! Saying why.

use super::Engine;
use super::cycle::Candidate;
use crate::{Blocker, Cause, Explanation, Inadmissible, Outcome, Verdict};

impl Engine {
    /// Why an entry came out as it did.
    pub(super) fn explain(&self, c: &Candidate) -> Explanation {
        let (verdict, cause) = verdict(&c.outcome, c.reason);
        let blockers = match &c.outcome {
            Outcome::Preempting { victims } => victims.iter().map(|v| Blocker::Workload(v.workload.clone())).collect(),
            Outcome::Inadmissible(
                Inadmissible::ClusterQueueInactive { cluster_queue }
                | Inadmissible::ClusterQueueMissing { cluster_queue },
            ) => vec![Blocker::Queue(cluster_queue.clone())],
            _ => Vec::new(),
        };
        Explanation { verdict, cause, pod_sets: Vec::new(), blockers }
    }
}

fn verdict(outcome: &Outcome, reason: &str) -> (Verdict, Cause) {
    match outcome {
        Outcome::Admitted { .. } => (Verdict::Admitted, Cause::Admitted),
        Outcome::Preempting { victims } => (Verdict::Wait, Cause::Preempting(victims.len())),
        Outcome::Deferred => (Verdict::Wait, Cause::Deferred),
        Outcome::NoFit => match reason {
            "ExceedsMaxQuota" => (Verdict::AskAdmin, Cause::ExceedsMaxQuota),
            "NoMatchingFlavor" => (Verdict::Change, Cause::NoMatchingFlavor),
            "TopologyPlacementFailed" => (Verdict::Wait, Cause::TopologyPlacementFailed),
            _ => (Verdict::Wait, Cause::WaitingForQuota),
        },
        Outcome::NoCandidates => (Verdict::Wait, Cause::WaitingForQuota),
        Outcome::Skipped(_) | Outcome::Migrating | Outcome::SecondPassFailed => {
            (Verdict::Wait, Cause::OvertakenInCycle)
        }
        Outcome::Inadmissible(why) => match why {
            Inadmissible::FailedChecks => (Verdict::Wait, Cause::Queued),
            Inadmissible::ClusterQueueInactive { cluster_queue } => {
                (Verdict::AskAdmin, Cause::QueueInactive { name: cluster_queue.clone(), why: "is inactive".into() })
            }
            Inadmissible::ClusterQueueMissing { cluster_queue } => {
                (Verdict::AskAdmin, Cause::QueueInactive { name: cluster_queue.clone(), why: "not found".into() })
            }
            Inadmissible::NamespaceMissing { namespace } => {
                (Verdict::AskAdmin, Cause::Invalid { why: format!("namespace {namespace} does not exist").into() })
            }
            Inadmissible::NamespaceMismatch => {
                (Verdict::AskAdmin, Cause::Invalid { why: "the ClusterQueue does not serve the namespace".into() })
            }
            Inadmissible::Resources { message } => (Verdict::Change, Cause::Invalid { why: message.clone() }),
        },
        Outcome::Gated => (Verdict::Wait, Cause::Gated),
        Outcome::WaitingForPodsReady | Outcome::Postponed => (Verdict::Wait, Cause::WaitingForPodsReady),
        Outcome::Evicted | Outcome::Dropped => (Verdict::Wait, Cause::Queued),
    }
}
