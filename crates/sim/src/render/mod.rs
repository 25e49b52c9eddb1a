//! Text and JSON for people and programs.
//!
//! [`timeline`] prints what happened, [`table`] what `kubectl get` would print at a time, [`summary`] what became of each job,
//! [`chips`] how well the chips were used, and [`json`] everything for programs.

mod json;
mod kubectl;
mod report;
mod table;
mod text;

pub use json::{json, recording};
pub use kubectl::{Resource, TableOptions, table};
pub use report::chips;
pub use table::Table;
pub use text::{TextOptions, summary, timeline};
