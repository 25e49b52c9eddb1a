//! Text and JSON for people and programs.
//!
//! [`timeline`] prints what happened, [`table`] what `kubectl get` would print at a time, [`summary`] what became of each job,
//! and [`json`] everything for programs.

mod json;
mod kubectl;
mod table;
mod text;

pub use json::{json, recording};
pub use kubectl::{Resource, TableOptions, table};
pub use table::Table;
pub use text::{TextOptions, summary, timeline};
