//! What can happen in a run.

use std::fmt;

use super::dice::Dice;

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident = $weight:literal $kind:ident,)*) => {
        /// What can happen.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Action {
            $($(#[$doc])* $action,)*
        }

        impl Action {
            /// All of them, with how often they are drawn.
            const WEIGHTS: &'static [(Self, u64)] = &[$((Self::$action, $weight),)*];

            /// Whether it is something going wrong, and not the course of things.
            pub fn is_fault(self) -> bool {
                match self { $(Self::$action => actions!(@$kind),)* }
            }

            /// The action of a name.
            fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($action) => Some(Self::$action),)*
                    _ => None,
                }
            }
        }
    };
    (@course) => { false };
    (@fault) => { true };
}

actions! {
    // ----- between the API server and a controller -----
    /// The controller is told of one change.
    Deliver = 260 course,
    /// It is told of all changes of one kind.
    DeliverKind = 60 course,
    /// It is told of everything.
    DeliverAll = 16 course,
    /// It is told of a change once more.
    Repeat = 12 fault,
    /// A watch breaks and starts again from a list, which may be older than the present.
    Relist = 6 fault,
    /// It decides what to write.
    Reconcile = 120 course,
    /// One of its writes reaches the API server.
    Perform = 190 course,
    /// All of its writes do.
    PerformAll = 24 course,
    /// It learns how one of its writes fared.
    Answer = 190 course,
    /// Somebody else changes the object first, so that a write conflicts.
    Conflict = 6 fault,
    /// A write does not reach the API server.
    Fail = 8 fault,
    /// A write succeeds and its answer is lost.
    LoseAnswer = 10 fault,
    /// The API server refuses a write this once.
    Refuse = 2 fault,
    /// The controller dies and another starts from a list.
    Crash = 5 fault,
    /// Another controller takes over while writes of this one are still on their way.
    Overlap = 3 fault,
    /// The one that was taken over from acts no more.
    Depose = 8 course,
    /// The controllers change places: the next actions are those of the other.
    Turn = 30 course,
    /// The clock of a controller jumps ahead.
    ClockAhead = 2 fault,
    /// It steps back.
    ClockBack = 2 fault,
    // ----- time -----
    /// Some seconds pass.
    Wait = 24 course,
    /// Time passes until the controller wants to be called.
    Sleep = 12 course,
    // ----- users -----
    /// A Job is made.
    Submit = 14 course,
    /// A JobSet is made.
    SubmitJobSet = 6 course,
    /// A job is deleted.
    Withdraw = 5 course,
    /// The size of a Job changes.
    Resize = 5 course,
    /// A job gets another priority class.
    Reprioritize = 3 course,
    /// A priority class gets another value.
    ChangeClass = 1 course,
    /// A suspended job is started by hand, or a running one suspended.
    Toggle = 2 course,
    /// A workload is deactivated.
    Deactivate = 3 course,
    /// A workload is activated again.
    Reactivate = 5 course,
    /// A workload is deleted.
    DeleteWorkload = 2 course,
    /// A job moves to another LocalQueue.
    Move = 2 course,
    /// A job leaves its LocalQueue, or comes back.
    LeaveQueue = 2 course,
    // ----- admins -----
    /// The stop policy of a ClusterQueue changes.
    StopClusterQueue = 3 course,
    /// The stop policy of a LocalQueue changes.
    StopLocalQueue = 3 course,
    /// A quota changes.
    ChangeQuota = 2 course,
    /// A LocalQueue is deleted, or made again.
    DropLocalQueue = 1 course,
    /// A ClusterQueue is deleted, or made again.
    DropClusterQueue = 1 course,
    /// A flavor is deleted, or made again.
    DropFlavor = 1 course,
    /// An admission check becomes active or inactive.
    SwitchCheck = 1 course,
    // ----- controllers of jobs -----
    /// Pods of a job come, or go once it is suspended.
    Pods = 40 course,
    /// The pods of a job become ready.
    Ready = 14 course,
    /// A pod of a job fails.
    PodFails = 4 course,
    /// A pod of a job is done.
    PodDone = 6 course,
    /// A job ends.
    Finish = 10 course,
    // ----- those who decide on checks -----
    /// An admission check is answered.
    AnswerCheck = 16 course,
    /// A ProvisioningRequest is answered.
    AnswerRequest = 16 course,
    /// A ProvisioningRequest is deleted.
    DropRequest = 1 course,
    /// Somebody writes into the status of a workload what no run would leave there.
    Meddle = 2 fault,
}

impl Action {
    /// Everything that is something going wrong.
    pub const FAULTS: [Self; 11] = [
        Self::Repeat,
        Self::Relist,
        Self::Conflict,
        Self::Fail,
        Self::LoseAnswer,
        Self::Refuse,
        Self::Crash,
        Self::Overlap,
        Self::ClockAhead,
        Self::ClockBack,
        Self::Meddle,
    ];
}

/// One thing that happens. The numbers choose what it happens to; if there is nothing of the sort it does nothing, so that any
/// step can be left out of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What.
    pub action: Action,
    /// To which.
    pub which: u16,
    /// How.
    pub how: u16,
}

impl Step {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let total: u64 = Action::WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = dice.below(total);
        let mut action = Action::Reconcile;
        for (candidate, weight) in Action::WEIGHTS {
            if left < *weight {
                action = *candidate;
                break;
            }
            left -= weight;
        }
        let number = |dice: &mut Dice| u16::try_from(dice.below(1 << 16)).unwrap_or(0);
        Self { action, which: number(dice), how: number(dice) }
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split_whitespace();
        let action = Action::named(parts.next()?)?;
        let mut number = || parts.next()?.parse().ok();
        Some(Self { action, which: number()?, how: number()? })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.action, self.which, self.how)
    }
}
