//! Several equal slices that one job joins over the data-center network.

use std::fmt;
use std::num::NonZeroU32;

use thiserror::Error;

use crate::accelerator::Generation;
use crate::slice::SliceShape;

/// Equal multi-host slices that talk to each other over the data-center network (DCN): one Job each of a JobSet.
///
/// ```
/// use slicegate_tpu::{Multislice, SliceShape};
///
/// let slice = SliceShape::parse("ct5lp-hightpu-4t", "2x4")?;
/// let job = Multislice::new(slice, 3)?;
/// assert_eq!((job.chips(), job.hosts()), (24, 6));
/// assert_eq!(job.locate(5), Some((2, 1))); // process 5 is worker 1 of slice 2
///
/// let error = Multislice::new(SliceShape::parse("ct5lp-hightpu-8t", "2x4")?, 3).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "2x4 on ct5lp-hightpu-8t is a single host, and multislice joins multi-host slices only; use 2x4 on ct5lp-hightpu-4t",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Multislice {
    slice: SliceShape,
    slices: NonZeroU32,
}

/// Why slices cannot be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MultisliceError {
    /// There is no slice.
    #[error("a multislice job needs at least one slice")]
    NoSlices,
    /// The generation has no multislice.
    #[error("{} has no multislice", .slice.generation())]
    Generation {
        /// The slice.
        slice: SliceShape,
    },
    /// The slice is one host.
    #[error(
        "{} on {} is a single host, and multislice joins multi-host slices only{}",
        .slice.topology(), .slice.machine_type(), Advice(*.suggestion)
    )]
    SingleHost {
        /// The slice.
        slice: SliceShape,
        /// A multi-host slice of the same accelerator with at least as many chips.
        suggestion: Option<SliceShape>,
    },
    /// There are more chips than the generation joins.
    #[error("{chips} chips are more than the {limit} that multislice joins on {}; at most {} slices fit",
        .slice.generation(), limit / u64::from(.slice.chips()))]
    TooManyChips {
        /// The slice.
        slice: SliceShape,
        /// Chips asked for, over all slices.
        chips: u64,
        /// The most chips.
        limit: u64,
    },
}

struct Advice(Option<SliceShape>);

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(slice) => write!(f, "; use {} on {}", slice.topology(), slice.machine_type()),
            None => Ok(()),
        }
    }
}

impl Multislice {
    /// So many slices of this shape.
    ///
    /// v3 has no multislice, single-host slices have none on any generation, and v5p joins at most 18432 chips.
    pub fn new(slice: SliceShape, slices: u32) -> Result<Self, MultisliceError> {
        let slices = NonZeroU32::new(slices).ok_or(MultisliceError::NoSlices)?;
        if slice.generation() == Generation::V3 {
            return Err(MultisliceError::Generation { slice });
        }
        if !slice.is_multi_host() {
            return Err(MultisliceError::SingleHost { slice, suggestion: multi_host_like(slice) });
        }
        let multislice = Self { slice, slices };
        match chip_limit(slice.generation()) {
            Some(limit) if multislice.chips() > limit => {
                Err(MultisliceError::TooManyChips { slice, chips: multislice.chips(), limit })
            }
            _ => Ok(multislice),
        }
    }

    /// The shape of each slice.
    pub const fn slice(self) -> SliceShape {
        self.slice
    }

    /// The number of slices: `replicas` of the JobSet's replicated job.
    pub const fn slices(self) -> u32 {
        self.slices.get()
    }

    /// Chips in all slices.
    pub const fn chips(self) -> u64 {
        self.slice.chips() as u64 * self.slices.get() as u64
    }

    /// Hosts in all slices.
    pub const fn hosts(self) -> u64 {
        self.slice.hosts() as u64 * self.slices.get() as u64
    }

    /// The number of a worker among all workers, slice by slice; `None` if there is no such slice or worker.
    pub fn process(self, slice: u32, worker: u32) -> Option<u64> {
        let hosts = self.slice.hosts();
        (slice < self.slices() && worker < hosts).then(|| u64::from(slice) * u64::from(hosts) + u64::from(worker))
    }

    /// The slice and the worker in it that a number among all workers stands for. Inverse of [`Multislice::process`].
    pub fn locate(self, process: u64) -> Option<(u32, u32)> {
        let hosts = u64::from(self.slice.hosts());
        let slice = u32::try_from(process / hosts).ok().filter(|&slice| slice < self.slices())?;
        let worker = u32::try_from(process % hosts).ok()?;
        Some((slice, worker))
    }
}

/// The most chips that multislice joins, where a limit is published.
const fn chip_limit(generation: Generation) -> Option<u64> {
    match generation {
        Generation::V5p => Some(18_432),
        Generation::V3 | Generation::V4 | Generation::V5e | Generation::V6e | Generation::Tpu7x => None,
    }
}

/// The smallest multi-host slice of the same accelerator with at least as many chips.
fn multi_host_like(slice: SliceShape) -> Option<SliceShape> {
    slice
        .accelerator()
        .topologies()
        .filter(|topology| topology.chips() >= slice.chips())
        .flat_map(|topology| SliceShape::candidates(slice.accelerator(), topology))
        .filter(|other| other.is_multi_host() && !other.machine_type().is_explicit_only())
        .min_by_key(|other| other.chips())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::tests::any_slice;
    use proptest::prelude::*;

    #[track_caller]
    fn check_error(machine: &str, topology: &str, slices: u32, message: &str) {
        let slice = SliceShape::parse(machine, topology).unwrap();
        assert_eq!(Multislice::new(slice, slices).unwrap_err().to_string(), message);
    }

    #[test]
    fn errors() {
        check_error("ct5lp-hightpu-4t", "2x4", 0, "a multislice job needs at least one slice");
        check_error("ct3p-hightpu-4t", "4x4", 2, "v3 has no multislice");
        check_error(
            "ct5p-hightpu-4t",
            "2x2x1",
            2,
            "2x2x1 on ct5p-hightpu-4t is a single host, and multislice joins multi-host slices only; use 2x2x2 on \
             ct5p-hightpu-4t",
        );
        check_error(
            "ct5l-hightpu-8t",
            "2x4",
            2,
            "2x4 on ct5l-hightpu-8t is a single host, and multislice joins multi-host slices only",
        );
        check_error(
            "ct5p-hightpu-4t",
            "16x16x24",
            4,
            "24576 chips are more than the 18432 that multislice joins on v5p; at most 3 slices fit",
        );
    }

    proptest! {
        #[test]
        fn processes_and_workers_are_a_bijection(slice in any_slice(), slices: u32, process: u64, worker: u32) {
            match Multislice::new(slice, slices) {
                Ok(job) => {
                    let process = process % (2 * job.hosts());
                    match job.locate(process) {
                        Some((slice, worker)) => prop_assert_eq!(job.process(slice, worker), Some(process)),
                        None => prop_assert!(process >= job.hosts()),
                    }
                    prop_assert_eq!(job.process(slices, 0), None);
                    prop_assert_eq!(job.process(0, worker).is_some(), worker < slice.hosts());
                }
                Err(MultisliceError::SingleHost { suggestion: Some(other), .. }) => {
                    prop_assert!(Multislice::new(other, 1).is_ok());
                    prop_assert!(other.chips() >= slice.chips());
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn small_jobs_of_multi_host_slices_are_accepted(slice in any_slice(), slices in 1u32..4) {
            prop_assume!(slice.is_multi_host() && slice.generation() != Generation::V3);
            prop_assume!(slice.chips() <= 4096);
            let job = Multislice::new(slice, slices).unwrap();
            for process in 0..job.hosts() {
                let (slice, worker) = job.locate(process).unwrap();
                prop_assert_eq!(job.process(slice, worker), Some(process));
            }
        }
    }
}
