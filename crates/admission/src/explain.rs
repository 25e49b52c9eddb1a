//! Why a workload waits, as data, and the text for it.

use std::fmt;

use slicegate_flavor::SliceShortage;
use slicegate_placement::HOSTNAME_LABEL;
use slicegate_quota::Amount;
use slicegate_workload::Key;

/// Who can change that a workload waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Verdict {
    /// Nobody needs to: it was admitted.
    #[default]
    Admitted,
    /// Time: it starts once others make room.
    Wait,
    /// Its owner: another request, toleration, selector or queue would do.
    Change,
    /// An admin: a limit, a missing flavor, a failed check or a stopped queue stands in its way.
    AskAdmin,
    /// It asks for more than everything that is configured together.
    Never,
}

/// The reason, with its numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// It was admitted.
    #[default]
    Admitted,
    /// It fits and waits for its turn, with so many before it.
    Queued {
        /// How many of its ClusterQueue are served first.
        ahead: usize,
    },
    /// It makes room by preemption, or would if it were its turn: so many victims leave.
    Preempting {
        /// How many.
        victims: usize,
    },
    /// It fits once those that others preempt are gone.
    Deferred,
    /// Quota is short now.
    WaitingForQuota,
    /// Quota is free, but others are where its pods would have to go.
    WaitingForPlaces,
    /// Preemption could free quota, but no place for its pods.
    PlacesNotFreed {
        /// The label of the level that they have to share a domain of, if they ask for one.
        level: Option<Box<str>>,
    },
    /// It asks for more than it could ever have.
    ExceedsMaxQuota,
    /// No flavor takes its pods, or none has the resource.
    NoMatchingFlavor,
    /// Quota is free, but its pods find no place together.
    TopologyPlacementFailed,
    /// Quota is free or could be freed, but there are not enough whole slices. [`FlavorExplanation::slices`] has the numbers.
    WholeSlicesMissing,
    /// Another workload that was decided before it took the room or keeps it free, or took the victims.
    Overtaken,
    /// It needs preemption, which a gate forbids.
    Gated,
    /// It is kept out of its queue by whoever the annotation names, or waits for replacement pods.
    NotAdmissible,
    /// Pods of others must become ready first.
    WaitingForPodsReady,
    /// Its LocalQueue or ClusterQueue is stopped, missing or misconfigured.
    QueueInactive {
        /// Which one.
        name: Box<str>,
        /// What is wrong with it.
        why: Box<str>,
    },
    /// The namespace, its limits or the workload's own limits forbid it.
    Invalid {
        /// What is wrong.
        why: Box<str>,
    },
    /// An admission check failed and was not reset yet.
    FailedChecks,
    /// Its back-off is not over.
    Backoff,
    /// It is not active.
    Deactivated,
}

/// Something that stands in the way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Blocker {
    /// A workload that holds quota in the way.
    Workload(Key),
    /// A limit of a ClusterQueue or Cohort.
    Limit {
        /// The ClusterQueue or Cohort.
        node: Box<str>,
        /// The flavor.
        flavor: Box<str>,
        /// The resource.
        resource: Box<str>,
    },
    /// A ClusterQueue or LocalQueue.
    Queue(Box<str>),
}

/// What a request meets first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceLimit {
    /// It fits.
    None,
    /// The quota of a whole tree is in use.
    Quota {
        /// The root.
        node: Box<str>,
    },
    /// A node may not borrow more.
    Borrowing {
        /// The ClusterQueue or Cohort.
        node: Box<str>,
    },
    /// It is more than the quota of a whole tree.
    MaximumQuota {
        /// The root.
        node: Box<str>,
    },
    /// It is more than a node may ever borrow.
    MaximumBorrowing {
        /// The ClusterQueue or Cohort.
        node: Box<str>,
    },
    /// The ClusterQueue has no quota for the resource.
    Undeclared,
}

/// One resource in one flavor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceExplanation {
    /// The resource.
    pub resource: Box<str>,
    /// What is needed: by the pod set, and by those before it that use the same flavor.
    pub needed: Amount,
    /// What is free, borrowing included.
    pub available: Amount,
    /// What could be free if nothing ran.
    pub maximum: Amount,
    /// The ClusterQueue's own quota.
    pub nominal: Amount,
    /// What the ClusterQueue uses.
    pub used: Amount,
    /// What of that is beyond its own quota.
    pub borrowed: Amount,
    /// What stands in the way.
    pub limit: ResourceLimit,
}

/// One flavor that was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlavorExplanation {
    /// The flavor.
    pub flavor: Box<str>,
    /// Whether it was chosen, to fit or by preemption.
    pub chosen: bool,
    /// Why its nodes do not take the pods, if they do not.
    pub mismatch: Option<Box<str>>,
    /// What is missing of whole slices, if the flavor asks for those and too few can be had.
    pub slices: Option<SliceShortage>,
    /// Its quota.
    pub resources: Vec<ResourceExplanation>,
}

/// One pod set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodSetExplanation {
    /// The pod set.
    pub name: Box<str>,
    /// The flavors that were tried, in that order.
    pub flavors: Vec<FlavorExplanation>,
    /// Why its pods find no place, if quota is free for them.
    pub places: Option<Box<str>>,
}

/// Why a workload waits, or that it does not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// Who can change it.
    pub verdict: Verdict,
    /// The reason.
    pub cause: Cause,
    /// The numbers.
    pub pod_sets: Vec<PodSetExplanation>,
    /// What stands in the way.
    pub blockers: Vec<Blocker>,
    /// The slice of an elastic job that this one replaces as soon as it is admitted. The numbers are then about what is asked for
    /// beyond that slice, on its flavors: an elastic job does not change flavors while it runs.
    pub grows: Option<Key>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted => f.write_str("It was admitted."),
            Self::Queued { ahead: 0 } => f.write_str("It fits and is next in its ClusterQueue."),
            Self::Queued { ahead } => write!(f, "It fits, but {ahead} workload(s) of its ClusterQueue are before it."),
            Self::Preempting { victims } => write!(f, "It waits for {victims} workload(s) that it preempts."),
            Self::Deferred => f.write_str("It waits for workloads that others preempt; then it fits."),
            Self::WaitingForQuota => f.write_str("Quota is short now."),
            Self::WaitingForPlaces => f.write_str("Quota is free, but others are where its pods would have to go."),
            Self::PlacesNotFreed { level: Some(level) } if **level == *HOSTNAME_LABEL => {
                f.write_str("Quota can be freed by preemption, but no single node could then hold its pods.")
            }
            Self::PlacesNotFreed { level: Some(level) } => {
                write!(f, "Quota can be freed by preemption, but no single {level} could then hold its pods.")
            }
            Self::PlacesNotFreed { level: None } => {
                f.write_str("Quota can be freed by preemption, but its pods would find no place then.")
            }
            Self::ExceedsMaxQuota => f.write_str("It asks for more than its ClusterQueue could ever have."),
            Self::NoMatchingFlavor => f.write_str("No flavor of its ClusterQueue suits it."),
            Self::TopologyPlacementFailed => f.write_str("Quota is free, but its pods find no place together."),
            Self::WholeSlicesMissing => f.write_str("Too few whole slices can be had."),
            Self::Overtaken => {
                f.write_str("It fits alone, but a workload that is decided before it takes the room or keeps it free; it is tried again at once.")
            }
            Self::Gated => f.write_str("It needs preemption, which a preemption gate forbids."),
            Self::NotAdmissible => f.write_str("It is kept out of its queue."),
            Self::WaitingForPodsReady => {
                f.write_str("Pods of workloads that were admitted before must become ready first.")
            }
            Self::QueueInactive { name, why } => write!(f, "{name} {why}."),
            Self::Invalid { why } => write!(f, "It cannot be admitted as it is: {why}."),
            Self::FailedChecks => f.write_str("An admission check failed."),
            Self::Backoff => f.write_str("It waits before it is tried again."),
            Self::Deactivated => f.write_str("It is not active."),
        }
    }
}

impl fmt::Display for ResourceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Quota { node } => write!(f, "; the quota of {node} is in use"),
            Self::Borrowing { node } => write!(f, "; {node} is at its borrowing limit"),
            Self::MaximumQuota { node } => write!(f, "; more than all the quota of {node}"),
            Self::MaximumBorrowing { node } => write!(f, "; more than the borrowing limit of {node} ever allows"),
            Self::Undeclared => f.write_str("; the ClusterQueue has no quota for it"),
        }
    }
}

impl fmt::Display for ResourceExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, needed, available, maximum, nominal, used, borrowed, limit } = self;
        let show = |amount: Amount| amount.display(resource).to_string();
        write!(
            f,
            "{resource}: {} needed, {} free, {} at most; own quota {}, {} used",
            show(*needed),
            show(*available),
            show(*maximum),
            show(*nominal),
            show(*used)
        )?;
        if *borrowed > Amount::ZERO {
            write!(f, ", {} of it borrowed", show(*borrowed))?;
        }
        limit.fmt(f)
    }
}

impl fmt::Display for Explanation {
    /// The reason, then a line for each flavor and resource, then what stands in the way.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        for pod_set in &self.pod_sets {
            for flavor in &pod_set.flavors {
                if let Some(mismatch) = &flavor.mismatch {
                    write!(f, "\n  {} in {}: {mismatch}", pod_set.name, flavor.flavor)?;
                }
                if let Some(shortage) = &flavor.slices {
                    write!(f, "\n  {} in {}: {shortage}", pod_set.name, flavor.flavor)?;
                }
                for resource in &flavor.resources {
                    write!(f, "\n  {} in {}: {resource}", pod_set.name, flavor.flavor)?;
                }
            }
            if let Some(places) = &pod_set.places {
                write!(f, "\n  {}: {places}", pod_set.name)?;
            }
        }
        let holders: Vec<String> = self
            .blockers
            .iter()
            .filter_map(|b| match b {
                Blocker::Workload(key) => Some(key.to_string()),
                Blocker::Limit { .. } | Blocker::Queue(_) => None,
            })
            .collect();
        if !holders.is_empty() {
            write!(f, "\n  in the way: {}", holders.join(", "))?;
        }
        if self.grows.is_some() {
            f.write_str("\n  An elastic job grows only on the flavors that it runs on.")?;
        }
        match self.verdict {
            Verdict::Admitted => Ok(()),
            Verdict::Wait => f.write_str("\n  Wait."),
            Verdict::Change => f.write_str("\n  Change the request, or choose another queue."),
            Verdict::AskAdmin => f.write_str("\n  Ask an admin."),
            Verdict::Never => f.write_str("\n  Ask for less: nothing that is configured holds this."),
        }
    }
}
