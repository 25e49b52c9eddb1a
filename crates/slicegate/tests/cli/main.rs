//! The program as a person runs it.

#[cfg(test)]
mod simulate;
