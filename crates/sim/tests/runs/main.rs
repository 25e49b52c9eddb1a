//! Whole runs: single ones with known outcomes, and laws that hold for every input.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up fails")]

mod cluster;
mod common;
mod dynamic;
mod edges;
mod events;
mod failures;
mod faults;
mod laws;
mod report;
mod slices;
mod waits;
