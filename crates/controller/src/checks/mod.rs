//! Admission checks.

mod provisioning;

pub use provisioning::{Entry, MissingAssignment, entries, is_needed};
