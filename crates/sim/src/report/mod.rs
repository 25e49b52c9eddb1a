//! How well the chips of a cluster were used, over time.
//!
//! *Available* are the chips of nodes that are there, ready, and not part of a broken slice. *Running* are those under pods that
//! run. *Productive* are those under running pods of jobs that run as a whole: all Jobs of a JobSet, all pods of a Job, the head
//! and all workers of a Ray cluster; a slice that waits for another produces nothing. Scheduling goodput is productive chip-time
//! divided by available chip-time: the part of the capacity that scheduling turned into training.
//!
//! Productive chip-time is *useful* once its job has ended well, and *lost* when the job starts again, is evicted or fails: a
//! simulated program has no checkpoints and starts from its beginning. What is neither yet is *unfinished*. A program runs for its
//! time from its own start, whether other Jobs of its JobSet run or not: while one waits for its node, those that run use up
//! time in which nothing is produced, and end the earlier.
//!
//! A *free* chip is available and no pod has it. It is *formable* if it is part of a whole free slice: a multi-host node pool
//! without a pod, a node of a single-host pool, a whole cube of a dynamic-slicing pool. Fragmentation is the part of the free
//! chips that is not formable.

mod space;
mod usage;

use std::collections::BTreeMap;

use slicegate_api::ObjectRef;
use slicegate_tpu::{Accelerator, Topology};
use slicegate_workload::Timestamp;

pub(crate) use usage::Gauge;

/// Chip-time, in chip-microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChipTime {
    /// Of nodes that could have run pods.
    pub available: i128,
    /// The available part that no pod had.
    pub free: i128,
    /// The free part that was in no whole slice.
    pub stranded: i128,
    /// Under pods that ran.
    pub running: i128,
    /// Under pods of jobs that ran as a whole.
    pub productive: i128,
    /// The productive part that counted in the end.
    pub useful: i128,
    /// The productive part that had to be done again, or for nothing.
    pub lost: i128,
    /// The productive part of jobs that had not ended.
    pub unfinished: i128,
}

impl ChipTime {
    /// Productive by available chip-time, from 0 to 1; `None` if there were never any chips.
    pub fn scheduling_goodput(&self) -> Option<f64> {
        ratio(self.productive, self.available)
    }

    /// Stranded by free chip-time, from 0 to 1; `None` if no chip was ever free.
    pub fn fragmentation(&self) -> Option<f64> {
        ratio(self.stranded, self.free)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is shown, nothing is decided by it")]
fn ratio(part: i128, whole: i128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What became of the chip-time of one job, in chip-microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobTime {
    /// What counted in the end.
    pub useful: i128,
    /// What had to be done again, or was done for nothing.
    pub lost: i128,
    /// What was neither yet.
    pub unfinished: i128,
}

/// A slice that could be formed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Formable {
    /// Its chips.
    pub chips: u32,
    /// Of which kind.
    pub accelerator: Accelerator,
    /// Its shape.
    pub topology: Topology,
}

/// The cluster from one moment to the next sample. All numbers are chips.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// From when.
    pub time: Timestamp,
    /// Available chips.
    pub available: i64,
    /// Chips under running pods.
    pub running: i64,
    /// Chips under running pods of jobs that run as a whole.
    pub productive: i64,
    /// Available chips that no pod has.
    pub free: i64,
    /// Free chips that are part of whole free slices.
    pub formable: i64,
    /// The largest slice that could be formed.
    pub largest: Option<Formable>,
}

impl Sample {
    /// The part of the free chips that no whole slice can be formed of, from 0 to 1; 0 if none is free.
    pub fn fragmentation(&self) -> f64 {
        ratio(i128::from(self.free.saturating_sub(self.formable)), i128::from(self.free)).unwrap_or(0.0)
    }
}

/// How well the chips of a cluster were used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// All jobs together.
    pub totals: ChipTime,
    /// By job, of those whose pods had chips.
    pub jobs: BTreeMap<ObjectRef, JobTime>,
    /// Over time: a sample for every moment at which a number changed.
    pub samples: Vec<Sample>,
}
