//! The program as a person runs it.

#[cfg(test)]
mod metrics;
mod simulate;
