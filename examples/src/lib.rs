//! Programs that use single crates.
