//! Cutting a slice into equal parts.

use std::fmt;

use thiserror::Error;

use crate::coord::{Block, Coord, Extent};
use crate::slice::SliceShape;
use crate::topology::Topology;

/// The shapes a slice may be cut into, smallest first.
const PARTS: [Topology; 13] = [
    Topology::flat(1, 1),
    Topology::flat(2, 2),
    Topology::flat(2, 4),
    Topology::flat(4, 4),
    Topology::flat(4, 8),
    Topology::flat(8, 8),
    Topology::flat(8, 16),
    Topology::flat(16, 16),
    Topology::solid(2, 2, 1),
    Topology::solid(2, 2, 2),
    Topology::solid(2, 2, 4),
    Topology::solid(2, 4, 4),
    Topology::solid(4, 4, 4),
];

/// A slice cut into sub-slices of one shape, which fill it exactly.
///
/// Sub-slices are numbered as workers are, with x fastest, and are never turned: a 2x4 part has 2 chips along x. A
/// part may be the whole slice. Parts that are smaller than a host (1x1 on hosts of four) exist only where chips of one
/// node can be handed to several pods, as dynamic resource allocation does; [`SubSlices::is_host_aligned`] tells.
///
/// ```
/// use slicegate_tpu::{Coord, SliceShape, SubSlices};
///
/// let slice = SliceShape::parse("ct6e-standard-4t", "4x8")?;
/// let parts = SubSlices::new(slice, "2x4".parse()?)?;
/// assert_eq!(parts.count(), 4);
/// assert_eq!(parts.chips_of(3).unwrap().origin, Coord::new(2, 4, 0));
/// assert_eq!(parts.workers_of(3).collect::<Vec<_>>(), [5, 7]);
///
/// let error = SubSlices::new(slice, "4x2".parse()?).unwrap_err();
/// assert_eq!(error.to_string(), "a 4x8 slice cannot be cut into 4x2 parts: there are no 4x2 sub-slices; did you mean 2x4?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubSlices {
    slice: SliceShape,
    part: Topology,
    grid: Extent,
}

/// A shape that a slice cannot be cut into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct IllegalSubSlice {
    /// The slice.
    pub slice: SliceShape,
    /// The shape asked for.
    pub part: Topology,
    /// What is wrong with it.
    pub problem: SubSliceProblem,
    /// The smallest part with at least as many chips that does fill the slice.
    pub suggestion: Option<Topology>,
}

impl fmt::Display for IllegalSubSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slice, part) = (self.slice.topology(), self.part);
        write!(f, "a {slice} slice cannot be cut into {part} parts: ")?;
        match self.problem {
            SubSliceProblem::NoSuchShape => write!(f, "there are no {part} sub-slices")?,
            SubSliceProblem::DoesNotTile => f.write_str("they do not fill it evenly")?,
        }
        match self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
            None => f.write_str("; it has no sub-slices"),
        }
    }
}

/// Why a slice cannot be cut into a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubSliceProblem {
    /// No slice is cut into this shape.
    NoSuchShape,
    /// Copies of this shape do not fill the slice, or it has another number of axes.
    DoesNotTile,
}

impl SubSlices {
    /// The parts of a slice that have this shape.
    pub fn new(slice: SliceShape, part: Topology) -> Result<Self, IllegalSubSlice> {
        let problem = match (PARTS.contains(&part), tiles(slice, part)) {
            (true, Some(grid)) => return Ok(Self { slice, part, grid }),
            (true, None) => SubSliceProblem::DoesNotTile,
            (false, _) => SubSliceProblem::NoSuchShape,
        };
        let mut largest = None;
        let mut suggestion = None;
        for legal in Self::shapes_of(slice) {
            largest = Some(legal);
            if suggestion.is_none() && legal.chips() >= part.chips() {
                suggestion = largest;
            }
        }
        Err(IllegalSubSlice { slice, part, problem, suggestion: suggestion.or(largest) })
    }

    /// Every shape that a slice can be cut into, smallest first.
    pub fn shapes_of(slice: SliceShape) -> impl Iterator<Item = Topology> {
        PARTS.into_iter().filter(move |&part| tiles(slice, part).is_some())
    }

    /// The slice that is cut.
    pub const fn slice(self) -> SliceShape {
        self.slice
    }

    /// The shape of each part.
    pub const fn part(self) -> Topology {
        self.part
    }

    /// How many parts go along each axis.
    pub const fn grid(self) -> Extent {
        self.grid
    }

    /// The number of parts.
    pub const fn count(self) -> u32 {
        self.grid.volume()
    }

    /// The chips of a part; `None` if there is no part of this number.
    pub fn chips_of(self, part: u32) -> Option<Block> {
        let extent = self.part.extent();
        Some(Block { origin: extent.tile_origin(self.grid.coord(part)?), extent })
    }

    /// The number of the part that holds a chip; `None` outside the slice.
    pub const fn part_of_chip(self, chip: Coord) -> Option<u32> {
        self.grid.index(self.part.extent().tile_of(chip))
    }

    /// The number of the part whose first chip this is; `None` if no part starts there.
    pub fn part_at(self, origin: Coord) -> Option<u32> {
        self.part_of_chip(origin).filter(|&part| self.chips_of(part).is_some_and(|block| block.origin == origin))
    }

    /// Whether each part is made of whole hosts.
    pub const fn is_host_aligned(self) -> bool {
        self.part.extent().is_tiled_by(self.slice.chip_bounds())
    }

    /// The workers that hold chips of a part, in order; none if there is no part of this number. Where parts are
    /// smaller than hosts, a worker is in several parts.
    pub fn workers_of(self, part: u32) -> impl Iterator<Item = u32> {
        let host = self.slice.chip_bounds();
        let block = self.chips_of(part);
        let hosts = block.map(|block| {
            let first = host.tile_of(block.origin);
            let [x, y, z] = block.extent.dims();
            let [dx, dy, dz] = host.dims();
            Block { origin: first, extent: Extent::of(x.div_ceil(dx), y.div_ceil(dy), z.div_ceil(dz)) }
        });
        hosts.into_iter().flat_map(Block::coords).filter_map(move |host| self.slice.worker_at_host(host))
    }
}

fn tiles(slice: SliceShape, part: Topology) -> Option<Extent> {
    let whole = slice.topology();
    if whole.rank() == part.rank() { whole.extent().tiles(part.extent()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::tests::any_slice;
    use proptest::prelude::*;

    fn any_cut() -> impl Strategy<Value = SubSlices> {
        (any_slice(), any::<proptest::sample::Index>()).prop_filter_map("has no sub-slices", |(slice, pick)| {
            let shapes: Vec<_> = SubSlices::shapes_of(slice).collect();
            if shapes.is_empty() { None } else { SubSlices::new(slice, *pick.get(&shapes)).ok() }
        })
    }

    fn shapes(machine: &str, topology: &str) -> Vec<String> {
        SubSlices::shapes_of(SliceShape::parse(machine, topology).unwrap()).map(|part| part.to_string()).collect()
    }

    #[test]
    fn shapes_of_some_slices() {
        assert_eq!(shapes("ct6e-standard-4t", "4x8"), ["1x1", "2x2", "2x4", "4x4", "4x8"]);
        assert_eq!(shapes("tpu7x-standard-4t", "4x4x4"), ["2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"]);
        assert_eq!(shapes("tpu7x-standard-1t", "1x1x1"), [""; 0]);
    }

    #[test]
    fn errors_tell_shape_from_size() {
        let slice = SliceShape::parse("ct5lp-hightpu-4t", "2x4").unwrap();
        let error = SubSlices::new(slice, Topology::flat(4, 4)).unwrap_err();
        assert_eq!(error.problem, SubSliceProblem::DoesNotTile);
        assert_eq!(error.suggestion, Some(Topology::flat(2, 4)));
        let error = SubSlices::new(slice, Topology::solid(2, 2, 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a 2x4 slice cannot be cut into 2x2x1 parts: they do not fill it evenly; did you mean 2x2?"
        );
    }

    #[test]
    fn parts_below_a_host_share_their_worker() {
        let slice = SliceShape::parse("ct6e-standard-4t", "4x4").unwrap();
        let parts = SubSlices::new(slice, Topology::flat(1, 1)).unwrap();
        assert!(!parts.is_host_aligned());
        let workers: Vec<_> = (0..parts.count()).flat_map(|part| parts.workers_of(part)).collect();
        assert_eq!(workers, [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]);
    }

    proptest! {
        #[test]
        fn parts_tile_the_slice(parts in any_cut()) {
            prop_assert_eq!(parts.count() * parts.part().chips(), parts.slice().chips());
            let mut n_chips = vec![0u32; usize::try_from(parts.count()).unwrap()];
            for chip in parts.slice().chip_coords() {
                let part = parts.part_of_chip(chip).unwrap();
                prop_assert!(parts.chips_of(part).unwrap().contains(chip));
                n_chips[usize::try_from(part).unwrap()] += 1;
            }
            prop_assert!(n_chips.iter().all(|&n| n == parts.part().chips()));
        }

        #[test]
        fn part_ids_and_offsets_are_a_bijection(parts in any_cut(), x: u16, y: u16, z: u16) {
            for part in 0..parts.count() {
                prop_assert_eq!(parts.part_at(parts.chips_of(part).unwrap().origin), Some(part));
            }
            prop_assert_eq!(parts.chips_of(parts.count()), None);
            let at = Coord::new(x, y, z);
            if let Some(part) = parts.part_at(at) {
                prop_assert_eq!(parts.chips_of(part).unwrap().origin, at);
            }
        }

        #[test]
        fn workers_of_a_part_are_those_of_its_chips(parts in any_cut(), pick: u32) {
            let part = pick % parts.count();
            let slice = parts.slice();
            let mut expected: Vec<_> =
                parts.chips_of(part).unwrap().coords().map(|chip| slice.worker_of_chip(chip).unwrap()).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(parts.workers_of(part).collect::<Vec<_>>(), expected);
            prop_assert_eq!(parts.workers_of(parts.count()).count(), 0);
        }

        #[test]
        fn suggested_parts_exist(slice in any_slice(), x in 1u16..20, y in 1u16..20, z in 0u16..20) {
            let part = Topology::new_3d(x, y, z).or(Topology::new_2d(x, y)).unwrap();
            if let Err(error) = SubSlices::new(slice, part) {
                if let Some(suggestion) = error.suggestion { prop_assert!(SubSlices::new(slice, suggestion).is_ok()) } else { prop_assert_eq!(SubSlices::shapes_of(slice).count(), 0) }
            }
        }
    }
}
