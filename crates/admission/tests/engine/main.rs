//! The engine from outside: whole clusters in memory, with every invariant checked after every event.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod abuse;
mod behaviour;
mod cluster;
mod guard;
mod laws;
mod random;
mod reported;
mod slices;
mod topology;
mod waiting;
