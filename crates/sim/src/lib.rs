//! A discrete-event simulated GKE cluster that runs the Slicegate controller.
//!
//! [`Simulation`] plays documents (queues, node pools, JobSets, RayJobs, Jobs) against an in-memory API server, simulated
//! node pools with their autoscaler and the Dynamic Workload Scheduler, and the controllers of JobSet, Job and Ray. Any
//! controller that implements [`Admission`] can be driven; the same input gives the same output, byte for byte: there is no
//! clock, no randomness and no hash order.
//!
//! [`Outcome`] holds what happened as a timeline, every version of every object, and what became of each job. The
//! [`render`] module prints them as text, as kubectl's tables, or as JSON.

mod admission;
mod clock;
mod cluster;
mod defaults;
mod duration;
pub mod faults;
mod input;
mod names;
mod narrator;
mod plan;
mod play;
mod preflight;
pub mod render;
mod report;
mod sampler;
mod simulation;
mod store;
mod timeline;
mod verdict;
mod workloads;
mod world;

pub use admission::Admission;
pub use duration::{Elapsed, ParseDurationError, kubectl_age, parse_duration};
pub use input::{Files, Input, Item, ManifestFiles, NoFiles, Options, ScenarioError, scenario_errors};
pub use preflight::preflight;
pub use report::{ChipTime, Formable, JobTime, Report, Sample};
pub use simulation::{Outcome, RecordedEvent, Simulation, Violation};
pub use store::{History, Revision, Store};
pub use timeline::{Entry, EntryKind};
pub use verdict::{JobVerdict, Verdict};
