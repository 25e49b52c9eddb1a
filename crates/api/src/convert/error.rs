//! Why an object cannot be used.

use std::fmt;

use slicegate_quota::ParseQuantityError;

use crate::path::Path;

/// A field of an object that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ConvertError {
    /// The object as `Kind name`; empty if a part of one was converted by itself.
    pub object: Box<str>,
    /// The field, such as `spec.resourceGroups[0].flavors[1].resources[2].nominalQuota`.
    pub path: Box<str>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] ParseQuantityError),
    /// Not one of the words that are allowed.
    #[error("{value:?} is not known; write one of {}", allowed.join(", "))]
    NotOneOf {
        /// What is there.
        value: Box<str>,
        /// What may be.
        allowed: Vec<&'static str>,
    },
    /// A number below zero.
    #[error("{value} is negative; write 0 or more")]
    Negative {
        /// The number.
        value: Box<str>,
    },
    /// A list whose length does not match.
    #[error("has {found} entries where {expected} are needed")]
    Length {
        /// How many there are.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// A list that is too long.
    #[error("has {found} entries; at most {most} are allowed")]
    TooMany {
        /// How many there are.
        found: i64,
        /// How many there may be.
        most: i64,
    },
    /// Exactly one of two fields must be there.
    #[error("write exactly one of `universal` and `individual`")]
    OneOfUniversalIndividual,
}

impl ConvertError {
    pub(crate) fn new(path: Path<'_>, problem: Problem) -> Self {
        Self { object: Box::default(), path: path.to_string().into(), problem }
    }

    pub(crate) fn of(self, kind: &str, name: &str) -> Self {
        Self { object: format!("{kind} {name}").into(), ..self }
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        self.problem.fmt(f)
    }
}
