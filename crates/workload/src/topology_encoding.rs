//! The compact form in which the API keeps topology assignments.

use crate::{TopologyAssignment, TopologyDomain};

/// Values of one level for the domains of a slice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EncodedValues {
    /// The same value for all.
    Universal(Box<str>),
    /// One value each: prefix, root, suffix.
    Individual {
        /// What every value begins with; may be empty.
        prefix: Box<str>,
        /// What every value ends with; may be empty.
        suffix: Box<str>,
        /// What stands between, a domain.
        roots: Vec<Box<str>>,
    },
}

impl EncodedValues {
    fn get(&self, domain: usize) -> Option<Box<str>> {
        match self {
            Self::Universal(value) => Some(value.clone()),
            Self::Individual { prefix, suffix, roots } => {
                roots.get(domain).map(|root| format!("{prefix}{root}{suffix}").into())
            }
        }
    }
}

/// Pods of the domains of a slice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EncodedCounts {
    /// The same number in all.
    Universal(i32),
    /// One number each.
    Individual(Vec<i32>),
}

/// A run of domains that are written together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EncodedSlice {
    /// How many domains.
    pub domain_count: i32,
    /// Their values, a level each.
    pub values_per_level: Vec<EncodedValues>,
    /// Their pods.
    pub pod_counts: EncodedCounts,
}

/// A topology assignment as the API keeps it (`v1beta2`). Two encodings that decode to the same are the same assignment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EncodedAssignment {
    /// Node labels, coarsest first.
    pub levels: Vec<Box<str>>,
    /// Runs of domains.
    pub slices: Vec<EncodedSlice>,
}

/// A list of an encoded assignment that is shorter than its slice has domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "slices[{slice}] has {domains} domains, but a list of values or pod counts that is shorter; give each domain one"
)]
pub struct DecodeError {
    /// The index of the slice.
    pub slice: usize,
    /// Its number of domains.
    pub domains: i32,
}

impl EncodedAssignment {
    /// The domains, in the order of the slices. Any encoding is accepted.
    ///
    /// # Errors
    /// If a slice has more domains than values or counts.
    pub fn decode(&self) -> Result<TopologyAssignment, DecodeError> {
        let mut domains = Vec::new();
        for (index, slice) in self.slices.iter().enumerate() {
            let error = DecodeError { slice: index, domains: slice.domain_count };
            for i in 0..usize::try_from(slice.domain_count).unwrap_or(0) {
                let values = slice.values_per_level.iter().map(|v| v.get(i)).collect::<Option<_>>().ok_or(error)?;
                let count = match &slice.pod_counts {
                    EncodedCounts::Universal(count) => *count,
                    EncodedCounts::Individual(counts) => *counts.get(i).ok_or(error)?,
                };
                domains.push(TopologyDomain { values, count });
            }
        }
        Ok(TopologyAssignment { levels: self.levels.clone(), domains })
    }
}
