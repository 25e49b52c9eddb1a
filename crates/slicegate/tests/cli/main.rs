//! The program as a person runs it.

#[cfg(test)]
mod crds;
#[cfg(test)]
mod simulate;
