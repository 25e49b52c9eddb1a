//! The rules that Kueue checks when an object is created.

use std::fmt;

use crate::Object;

/// What sort of rule is broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FindingKind {
    /// The value is not allowed.
    Invalid,
    /// The field must be there.
    Required,
    /// The field must not be there.
    Forbidden,
    /// The value is there twice.
    Duplicate,
    /// The value is not one of those that are known.
    NotSupported,
    /// The list is too long.
    TooMany,
    /// The text is too long.
    TooLong,
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The field, such as `spec.resourceGroups[0].flavors[1].resources[2].nominalQuota`.
    pub path: String,
    /// What sort of rule.
    pub kind: FindingKind,
    /// What is wrong and what to write.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.detail)
    }
}

/// Checks an object as on creation.
pub fn validate(object: &Object) -> Vec<Finding> {
    let _ = object;
    Vec::new()
}
