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

#[cfg(test)]
mod tests {
    use super::*;
    use GranularMode::{Fit, NoFit, NoPreemptionCandidates, Preempt, Reclaim};

    const BORROW: FungibilityPreference = FungibilityPreference::BorrowingOverPreemption;
    const PREEMPT: FungibilityPreference = FungibilityPreference::PreemptionOverBorrowing;

    fn quality(mode: GranularMode, borrow: u32) -> Quality {
        Quality { mode, borrow }
    }

    #[test]
    fn what_is_better_depends_on_the_preference() {
        for (a, b, with_borrow, with_preempt) in [
            (quality(Fit, 2), quality(Preempt, 0), true, false),
            (quality(Preempt, 0), quality(Fit, 2), false, true),
            (quality(Fit, 1), quality(Fit, 2), true, true),
            (quality(Reclaim, 1), quality(Preempt, 1), true, true),
            (quality(Preempt, 0), quality(Reclaim, 1), false, true),
            // Hopeless ones come last, whatever the preference.
            (quality(NoPreemptionCandidates, 0), quality(Fit, 9), false, false),
            (quality(Preempt, 9), quality(NoPreemptionCandidates, 0), true, true),
            (quality(NoPreemptionCandidates, 0), quality(NoPreemptionCandidates, 1), true, true),
            (quality(NoPreemptionCandidates, 9), quality(NoFit, 0), true, true),
            (quality(NoFit, 0), quality(NoFit, 9), false, false),
            (quality(Fit, 0), quality(Fit, 0), false, false),
        ] {
            assert_eq!(a.is_preferred_over(b, BORROW), with_borrow, "{a:?} {b:?}");
            assert_eq!(a.is_preferred_over(b, PREEMPT), with_preempt, "{a:?} {b:?}");
        }
    }

    #[test]
    fn policies_say_when_to_look_on() {
        let policies = |borrow, preempt| FlavorFungibility {
            when_can_borrow: borrow,
            when_can_preempt: preempt,
            preference: BORROW,
        };
        let (next, stop) = (FungibilityPolicy::TryNextFlavor, FungibilityPolicy::MayStopSearch);
        for (quality, borrow, preempt, want) in [
            (quality(NoFit, 0), stop, stop, true),
            (quality(NoPreemptionCandidates, 0), stop, stop, true),
            (quality(Preempt, 0), next, stop, false),
            (quality(Preempt, 0), stop, next, true),
            (quality(Reclaim, 1), next, stop, true),
            (quality(Reclaim, 1), stop, stop, false),
            (quality(Fit, 1), next, stop, true),
            (quality(Fit, 1), stop, next, false),
            (quality(Fit, 0), next, next, false),
        ] {
            assert_eq!(quality.is_worth_trying_next(&policies(borrow, preempt)), want, "{quality:?}");
        }
    }
}
