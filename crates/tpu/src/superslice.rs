//! Dynamic slices: 4x4x4 cubes of TPU7x that optical switches join on demand.

use std::fmt;

use thiserror::Error;

use crate::accelerator::Accelerator;
use crate::coord::{Block, Coord, Extent};
use crate::machine::MachineType;
use crate::slice::SliceShape;
use crate::topology::Topology;

/// A dynamic slice of one or more whole cubes, closed into a torus on every axis.
///
/// Pools of 16 `tpu7x-standard-4t` nodes are provisioned cube by cube; a Slice object then names the cubes to join. A
/// dynamic slice *below* a cube is a part of one: see [`SubSlices`](crate::SubSlices) of a 4x4x4 slice.
///
/// Sources disagree about the largest: 9216 chips, or 32 cubes (2048 chips). The smaller limit holds here;
/// [`SliceShape`] allows 9216 chips for slices that are provisioned whole.
///
/// ```
/// use slicegate_tpu::SuperSlice;
///
/// let slice = SuperSlice::new("4x8x8".parse()?)?;
/// assert_eq!(slice.cubes(), 4);
/// assert_eq!(slice.shape().hosts(), 64);
/// assert_eq!(slice.shape().wrap().to_string(), "true,true,true");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SuperSlice {
    topology: Topology,
    grid: Extent,
}

/// A shape that no dynamic slice of whole cubes has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct IllegalSuperSlice {
    /// The shape asked for.
    pub topology: Topology,
    /// What is wrong with it.
    pub problem: SuperSliceProblem,
    /// A legal shape near to it.
    pub suggestion: Topology,
}

impl fmt::Display for IllegalSuperSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topology, problem, suggestion } = self;
        write!(f, "no dynamic slice is {topology}: {problem}; did you mean {suggestion}?")
    }
}

/// Why no dynamic slice has a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SuperSliceProblem {
    /// A size is not a multiple of 4, or there are not three.
    #[error("it is not made of whole 4x4x4 cubes")]
    NotCubes,
    /// Its sizes decrease.
    #[error("its sizes must not decrease")]
    Order,
    /// It has too many cubes.
    #[error("it has {cubes} cubes, and {} is the limit", SuperSlice::MAX_CUBES)]
    TooManyCubes {
        /// How many.
        cubes: u32,
    },
}

impl SuperSlice {
    /// The most cubes that one dynamic slice joins.
    pub const MAX_CUBES: u32 = 32;
    /// Hosts in one cube.
    pub const HOSTS_PER_CUBE: u32 = 16;

    /// The dynamic slice of this shape.
    pub fn new(topology: Topology) -> Result<Self, IllegalSuperSlice> {
        let error = |problem| IllegalSuperSlice { topology, problem, suggestion: nearest(topology) };
        let Some(grid) = topology.cube_grid() else { return Err(error(SuperSliceProblem::NotCubes)) };
        let cubes = grid.volume();
        if topology != topology.sorted() {
            Err(error(SuperSliceProblem::Order))
        } else if cubes > Self::MAX_CUBES {
            Err(error(SuperSliceProblem::TooManyCubes { cubes }))
        } else {
            Ok(Self { topology, grid })
        }
    }

    /// What a dynamic slice of any size is formed of: the shape of its partitions, which has a label on nodes
    /// ([`label::partition_id`](crate::label::partition_id)), and their number. From a cube on these are whole cubes; below it
    /// is one part of a cube.
    ///
    /// ```
    /// use slicegate_tpu::{SuperSlice, Topology};
    ///
    /// assert_eq!(SuperSlice::partitions_of("4x4x8".parse()?)?, (Topology::CUBE, 2));
    /// assert_eq!(SuperSlice::partitions_of("2x2x4".parse()?)?, ("2x2x4".parse()?, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn partitions_of(topology: Topology) -> Result<(Topology, u32), IllegalSuperSlice> {
        if topology != Topology::CUBE && crate::label::partition_id(topology).is_some() {
            return Ok((topology, 1));
        }
        Self::new(topology).map(|slice| (Topology::CUBE, slice.cubes()))
    }

    /// Every dynamic slice of whole cubes, in order of first, second and third size.
    pub fn all() -> impl Iterator<Item = Self> {
        Accelerator::Tpu7x.topologies().filter_map(|topology| Self::new(topology).ok())
    }

    /// The shape in chips.
    pub const fn topology(self) -> Topology {
        self.topology
    }

    /// The slice it becomes once it is formed.
    pub const fn shape(self) -> SliceShape {
        SliceShape::legal(MachineType::Tpu7xStandard4t, self.topology)
    }

    /// How many cubes go along each axis.
    pub const fn cube_grid(self) -> Extent {
        self.grid
    }

    /// The number of cubes: of `partitionIds` in a Slice object.
    pub const fn cubes(self) -> u32 {
        self.grid.volume()
    }

    /// The chips of a cube, counted with x fastest; `None` if there is no such cube.
    pub fn chips_of_cube(self, cube: u32) -> Option<Block> {
        let extent = Topology::CUBE.extent();
        Some(Block { origin: extent.tile_origin(self.grid.coord(cube)?), extent })
    }

    /// The cube that holds a chip; `None` outside the slice.
    pub const fn cube_of_chip(self, chip: Coord) -> Option<u32> {
        self.grid.index(Topology::CUBE.extent().tile_of(chip))
    }

    /// The cube that holds a worker's host; `None` if the slice has no such worker. Workers are numbered over the whole
    /// slice, so those of one cube do not follow one another.
    pub fn cube_of_worker(self, worker: u32) -> Option<u32> {
        self.cube_of_chip(self.shape().chips_of_worker(worker)?.origin)
    }
}

/// A legal shape near any shape: turned and rounded up to whole cubes, or failing that one with as many cubes.
fn nearest(topology: Topology) -> Topology {
    let [x, y, z] = topology.sorted().extent().dims();
    let up = |dim: u16| dim.next_multiple_of(4);
    let rounded = Topology::solid(up(x), up(y), up(z)).sorted();
    let rounded = match topology.rank() {
        crate::topology::Rank::Three => rounded,
        crate::topology::Rank::Two => Accelerator::Tpu7x.smallest_with(topology.chips().max(64)).unwrap_or(rounded),
    };
    match rounded.cubes() {
        Some(cubes) if cubes <= SuperSlice::MAX_CUBES => rounded,
        _ => Accelerator::Tpu7x
            .default_topology(SuperSlice::MAX_CUBES * Topology::CUBE.chips())
            .unwrap_or(Topology::CUBE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_are_74_dynamic_slices() {
        assert_eq!(SuperSlice::all().count(), 74);
        for slice in SuperSlice::all() {
            assert_eq!(slice.shape().hosts(), slice.cubes() * SuperSlice::HOSTS_PER_CUBE);
            assert_eq!(SliceShape::new(MachineType::Tpu7xStandard4t, slice.topology()), Ok(slice.shape()));
            assert!(slice.shape().wrap() == crate::Wrap::ALL);
        }
    }

    #[track_caller]
    fn check_error(shape: &str, message: &str) {
        assert_eq!(SuperSlice::new(shape.parse().unwrap()).unwrap_err().to_string(), message);
    }

    #[test]
    fn errors() {
        check_error("2x4x4", "no dynamic slice is 2x4x4: it is not made of whole 4x4x4 cubes; did you mean 4x4x4?");
        check_error("8x8", "no dynamic slice is 8x8: it is not made of whole 4x4x4 cubes; did you mean 4x4x4?");
        check_error("8x4x4", "no dynamic slice is 8x4x4: its sizes must not decrease; did you mean 4x4x8?");
        check_error(
            "12x12x16",
            "no dynamic slice is 12x12x16: it has 36 cubes, and 32 is the limit; did you mean 8x16x16?",
        );
    }

    #[test]
    fn partitions_make_up_the_slice() {
        for slice in SuperSlice::all() {
            assert_eq!(SuperSlice::partitions_of(slice.topology()), Ok((Topology::CUBE, slice.cubes())));
        }
        for shape in ["2x2x1", "2x2x2", "2x2x4", "2x4x4"] {
            let topology: Topology = shape.parse().unwrap();
            assert_eq!(SuperSlice::partitions_of(topology), Ok((topology, 1)));
        }
        for shape in ["1x1x1", "2x4", "4x2x2", "2x2x8", "8x4x4"] {
            assert!(SuperSlice::partitions_of(shape.parse().unwrap()).is_err(), "{shape}");
        }
    }

    #[test]
    fn cubes_hold_sixteen_workers_each() {
        for slice in SuperSlice::all() {
            let mut n_workers = vec![0; usize::try_from(slice.cubes()).unwrap()];
            for worker in 0..slice.shape().hosts() {
                n_workers[usize::try_from(slice.cube_of_worker(worker).unwrap()).unwrap()] += 1;
            }
            assert!(n_workers.iter().all(|&n| n == SuperSlice::HOSTS_PER_CUBE));
        }
    }

    proptest! {
        #[test]
        fn suggestions_are_dynamic_slices(x in 1u16..=1024, y in 1u16..40, z in 0u16..40) {
            let topology = Topology::new_3d(x, y, z).or(Topology::new_2d(x, y)).unwrap();
            if let Err(error) = SuperSlice::new(topology) {
                prop_assert!(SuperSlice::new(error.suggestion).is_ok());
            }
        }

        #[test]
        fn any_cube_and_chip_is_harmless(cube: u32, x: u16, y: u16, z: u16) {
            let slice = SuperSlice::new(Topology::solid(4, 8, 16)).unwrap();
            prop_assert_eq!(slice.chips_of_cube(cube).is_some(), cube < slice.cubes());
            let chip = Coord::new(x, y, z);
            prop_assert_eq!(slice.cube_of_chip(chip).is_some(), slice.topology().extent().contains(chip));
            if let Some(cube) = slice.cube_of_chip(chip) {
                prop_assert!(slice.chips_of_cube(cube).unwrap().contains(chip));
            }
            prop_assert_eq!(slice.cube_of_worker(cube).is_some(), cube < slice.shape().hosts());
        }
    }
}
