//! Admission checks.

mod provisioning;
