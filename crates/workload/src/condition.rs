//! Conditions of a workload.

use crate::Timestamp;

/// The value of a condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It cannot be told.
    Unknown,
}

/// The condition types that Slicegate itself sets or reads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConditionType {
    /// `Admitted`
    Admitted,
    /// `BlockedOnPreemptionGates`
    BlockedOnPreemptionGates,
    /// `DeactivationTarget`
    DeactivationTarget,
    /// `Evicted`
    Evicted,
    /// `Finished`
    Finished,
    /// `PodsReady`
    PodsReady,
    /// `Preempted`
    Preempted,
    /// `QuotaReserved`
    QuotaReserved,
    /// `Requeued`
    Requeued,
    /// `WaitingForReplacementPods`
    WaitingForReplacementPods,
    /// A condition of somebody else, kept as it is.
    Other(Box<str>),
}

impl ConditionType {
    /// The name in the API.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Admitted => "Admitted",
            Self::BlockedOnPreemptionGates => "BlockedOnPreemptionGates",
            Self::DeactivationTarget => "DeactivationTarget",
            Self::Evicted => "Evicted",
            Self::Finished => "Finished",
            Self::PodsReady => "PodsReady",
            Self::Preempted => "Preempted",
            Self::QuotaReserved => "QuotaReserved",
            Self::Requeued => "Requeued",
            Self::WaitingForReplacementPods => "WaitingForReplacementPods",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for ConditionType {
    fn from(name: &str) -> Self {
        match name {
            "Admitted" => Self::Admitted,
            "BlockedOnPreemptionGates" => Self::BlockedOnPreemptionGates,
            "DeactivationTarget" => Self::DeactivationTarget,
            "Evicted" => Self::Evicted,
            "Finished" => Self::Finished,
            "PodsReady" => Self::PodsReady,
            "Preempted" => Self::Preempted,
            "QuotaReserved" => Self::QuotaReserved,
            "Requeued" => Self::Requeued,
            "WaitingForReplacementPods" => Self::WaitingForReplacementPods,
            other => Self::Other(other.into()),
        }
    }
}

/// One condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// What it is about.
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: Status,
    /// A word for machines.
    pub reason: Box<str>,
    /// A sentence for people.
    pub message: Box<str>,
    /// When `status` last changed.
    pub last_transition: Timestamp,
    /// The generation of the object it was set for.
    pub observed_generation: i64,
}

/// The conditions of an object, at most one of a type, in the order in which they first appeared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// The condition of a type.
    pub fn get(&self, kind: &ConditionType) -> Option<&Condition> {
        self.0.iter().find(|c| c.kind == *kind)
    }

    /// Whether the condition is present and true.
    pub fn is_true(&self, kind: &ConditionType) -> bool {
        self.get(kind).is_some_and(|c| c.status == Status::True)
    }

    /// Whether the condition is present and false.
    pub fn is_false(&self, kind: &ConditionType) -> bool {
        self.get(kind).is_some_and(|c| c.status == Status::False)
    }

    /// Sets a condition; the transition time of an existing one moves only if its status changes. Returns whether anything
    /// but the transition time changed.
    pub fn set(&mut self, new: Condition) -> bool {
        let Some(old) = self.0.iter_mut().find(|c| c.kind == new.kind) else {
            self.0.push(new);
            return true;
        };
        let changed = old.status != new.status
            || old.reason != new.reason
            || old.message != new.message
            || old.observed_generation != new.observed_generation;
        let last_transition = if old.status == new.status { old.last_transition } else { new.last_transition };
        *old = Condition { last_transition, ..new };
        changed
    }

    /// Removes the condition of a type; returns whether it was there.
    pub fn remove(&mut self, kind: &ConditionType) -> bool {
        let before = self.0.len();
        self.0.retain(|c| c.kind != *kind);
        self.0.len() != before
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Condition> {
        self.0.iter()
    }
}

impl FromIterator<Condition> for Conditions {
    fn from_iter<I: IntoIterator<Item = Condition>>(iter: I) -> Self {
        let mut all = Self::default();
        for c in iter {
            all.set(c);
        }
        all
    }
}

impl<'a> IntoIterator for &'a Conditions {
    type Item = &'a Condition;
    type IntoIter = std::slice::Iter<'a, Condition>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
