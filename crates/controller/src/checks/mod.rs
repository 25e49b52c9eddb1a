//! Admission checks.

mod provisioning;

#[cfg(test)]
pub(crate) use provisioning::entries;
