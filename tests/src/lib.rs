//! What the cross-crate tests share.

pub mod objects;
pub mod drive;
