//! What the cross-crate tests share.

pub mod drive;
pub mod objects;
