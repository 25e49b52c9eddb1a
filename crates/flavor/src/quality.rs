//! Which of two flavors is better.

use slicegate_workload::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};

use crate::Mode;

/// How good a flavor is for one resource, worst first: [`Mode`] with what preemption could do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GranularMode {
    /// Not at all.
    NoFit,
    /// Preemption is allowed, but no set of victims makes room.
    NoPreemptionCandidates,
    /// Victims would be of the own ClusterQueue too.
    Preempt,
    /// Victims would all be of other ClusterQueues.
    Reclaim,
    /// It fits.
    Fit,
}

impl GranularMode {
    /// The mode without the detail.
    pub const fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoPreemptionCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }
}

/// How good a flavor is: what has to be done to get it, and from how far it is borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quality {
    /// What has to be done.
    pub mode: GranularMode,
    /// How far up the cohort tree it borrows: 0 for not at all.
    pub borrow: u32,
}

impl Quality {
    /// It fits without borrowing.
    pub const BEST: Self = Self { mode: GranularMode::Fit, borrow: 0 };
    /// It cannot be had.
    pub const WORST: Self = Self { mode: GranularMode::NoFit, borrow: u32::MAX };

    /// Whether this is strictly better than the other.
    ///
    /// What cannot be had is never better. Where preemption was tried and finds no victims, anything viable is better,
    /// whatever the preference: it is no more than a hope.
    pub fn is_preferred_over(self, other: Self, preference: FungibilityPreference) -> bool {
        if self.mode == GranularMode::NoFit {
            return false;
        }
        if other.mode == GranularMode::NoFit {
            return true;
        }
        let hopeless = |q: Self| q.mode == GranularMode::NoPreemptionCandidates;
        if hopeless(self) != hopeless(other) {
            return hopeless(other);
        }
        match preference {
            FungibilityPreference::BorrowingOverPreemption => {
                self.mode > other.mode || (self.mode == other.mode && self.borrow < other.borrow)
            }
            FungibilityPreference::PreemptionOverBorrowing => {
                self.borrow < other.borrow || (self.borrow == other.borrow && self.mode > other.mode)
            }
        }
    }

    /// Whether the next flavor is to be looked at before this one is taken.
    pub fn is_worth_trying_next(self, fungibility: &FlavorFungibility) -> bool {
        let try_next = |policy| policy == FungibilityPolicy::TryNextFlavor;
        match self.mode {
            GranularMode::NoFit | GranularMode::NoPreemptionCandidates => true,
            GranularMode::Preempt | GranularMode::Reclaim if try_next(fungibility.when_can_preempt) => true,
            _ => self.borrow != 0 && try_next(fungibility.when_can_borrow),
        }
    }
}
