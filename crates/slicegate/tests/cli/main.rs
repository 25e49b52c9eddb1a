//! The program as a person runs it.

#[cfg(test)]
mod check;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod controller;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod simulate;
