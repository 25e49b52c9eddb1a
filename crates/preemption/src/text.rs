//! The words in which preemptions are told.

use std::fmt;

use slicegate_quota::{Forest, NodeId};

use crate::Reason;

impl Reason {
    /// The reason of the condition `Preempted`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortFairSharing => "InCohortFairSharing",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    /// The reason within a sentence.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::InClusterQueue => "prioritization in the ClusterQueue",
            Self::InCohortReclamation => "reclamation within the cohort",
            Self::InCohortFairSharing => "Fair Sharing within the cohort",
            Self::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
        }
    }
}

/// The message of a victim's conditions `Evicted` and `Preempted`. Parts that are empty or not given read `UNKNOWN`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message<'a> {
    /// The preemptor's unique id.
    pub preemptor_uid: &'a str,
    /// The unique id of the preemptor's job: its label `kueue.x-k8s.io/job-uid`.
    pub preemptor_job_uid: &'a str,
    /// Why.
    pub reason: Option<Reason>,
    /// Where the preemptor wants to run; see [`path`].
    pub preemptor_path: &'a str,
    /// Where the victim ran.
    pub preemptee_path: &'a str,
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |text: &'_ str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
        write!(
            f,
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
            known(self.preemptor_uid),
            known(self.preemptor_job_uid),
            self.reason.map_or("UNKNOWN", Reason::phrase),
            known(self.preemptor_path),
            known(self.preemptee_path),
        )
    }
}

/// A node's place in the forest, from the root: `/all/cohort/cluster-queue`.
pub fn path(forest: &Forest, node: NodeId) -> String {
    let mut parts: Vec<&str> = vec![forest.name(node)];
    parts.extend(forest.ancestors(node).map(|n| forest.name(n)));
    parts.iter().rev().fold(String::new(), |mut text, part| {
        text.push('/');
        text.push_str(part);
        text
    })
}
