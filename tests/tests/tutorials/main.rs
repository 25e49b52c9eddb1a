//! The two tutorials, from their own files: what their text says happens in the simulated cluster, and what happened on a
//! real control plane happens too.
//!
//! The files are found through the environment variable `SLICEGATE_SHARED`; without it these tests say that they are skipped.

#[cfg(test)]
mod common;
#[cfg(test)]
mod dws;
#[cfg(test)]
mod multislice;
#[cfg(test)]
mod recordings;
