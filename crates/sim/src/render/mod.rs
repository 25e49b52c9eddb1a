//! Text and JSON for people and programs.

mod table;

pub use table::Table;
