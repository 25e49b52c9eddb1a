//! Places in a grid: coordinates, extents and boxes.
//!
//! Everything is three-dimensional. A 2D slice is a 3D one whose z extent is 1, which is also how the TPU runtime sees
//! it. Linear indices run with x fastest: `z * (Y * X) + y * X + x`.

use std::fmt;

/// A place in a grid of chips, hosts or cubes, counted from zero on each axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Coord {
    /// Position on the first axis.
    pub x: u16,
    /// Position on the second axis.
    pub y: u16,
    /// Position on the third axis; 0 in a 2D slice.
    pub z: u16,
}

impl Coord {
    /// The corner from which everything is counted.
    pub const ORIGIN: Self = Self { x: 0, y: 0, z: 0 };

    /// The coordinate `(x, y, z)`.
    pub const fn new(x: u16, y: u16, z: u16) -> Self {
        Self { x, y, z }
    }

    /// The position on one axis.
    pub const fn get(self, axis: Axis) -> u16 {
        match axis {
            Axis::X => self.x,
            Axis::Y => self.y,
            Axis::Z => self.z,
        }
    }

    pub(crate) const fn with(self, axis: Axis, value: u16) -> Self {
        match axis {
            Axis::X => Self { x: value, ..self },
            Axis::Y => Self { y: value, ..self },
            Axis::Z => Self { z: value, ..self },
        }
    }
}

impl fmt::Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{},{})", self.x, self.y, self.z)
    }
}

/// One of the three axes of a slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Axis {
    /// The first number of a topology.
    X,
    /// The second number of a topology.
    Y,
    /// The third number of a topology; of length 1 in a 2D slice.
    Z,
}

impl Axis {
    /// All three, in order.
    pub const ALL: [Self; 3] = [Self::X, Self::Y, Self::Z];
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X => "x",
            Self::Y => "y",
            Self::Z => "z",
        })
    }
}

/// The size of a grid or box on each axis; never zero on any, and at most 1024, so that a volume always fits in 32 bits.
///
/// It is written as the TPU runtime expects bounds in `TPU_HOST_BOUNDS` and `TPU_CHIPS_PER_HOST_BOUNDS`: `2,2,1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    x: u16,
    y: u16,
    z: u16,
}

impl Extent {
    /// The largest size of one axis.
    pub const MAX_DIM: u16 = 1024;

    /// A single cell.
    pub const UNIT: Self = Self { x: 1, y: 1, z: 1 };

    /// An extent of these sizes; `None` if one is zero or above [`Extent::MAX_DIM`].
    pub const fn new(x: u16, y: u16, z: u16) -> Option<Self> {
        const fn ok(dim: u16) -> bool {
            1 <= dim && dim <= Extent::MAX_DIM
        }
        if ok(x) && ok(y) && ok(z) { Some(Self { x, y, z }) } else { None }
    }

    /// For sizes known to be in range, such as quotients of a valid extent.
    pub(crate) const fn of(x: u16, y: u16, z: u16) -> Self {
        const fn clamp(dim: u16) -> u16 {
            if dim == 0 {
                1
            } else if dim > Extent::MAX_DIM {
                Extent::MAX_DIM
            } else {
                dim
            }
        }
        Self { x: clamp(x), y: clamp(y), z: clamp(z) }
    }

    /// The size on one axis.
    pub const fn get(self, axis: Axis) -> u16 {
        match axis {
            Axis::X => self.x,
            Axis::Y => self.y,
            Axis::Z => self.z,
        }
    }

    /// The three sizes, x first.
    pub const fn dims(self) -> [u16; 3] {
        [self.x, self.y, self.z]
    }

    /// The number of cells.
    pub const fn volume(self) -> u32 {
        (self.x as u32) * (self.y as u32) * (self.z as u32)
    }

    /// Whether a coordinate lies inside.
    pub const fn contains(self, at: Coord) -> bool {
        at.x < self.x && at.y < self.y && at.z < self.z
    }

    /// The linear index of a coordinate, x fastest; `None` outside.
    pub const fn index(self, at: Coord) -> Option<u32> {
        if !self.contains(at) {
            return None;
        }
        let (x, y, z) = (at.x as u32, at.y as u32, at.z as u32);
        Some((z * self.y as u32 + y) * self.x as u32 + x)
    }

    /// The coordinate with this linear index; `None` outside.
    pub const fn coord(self, index: u32) -> Option<Coord> {
        if index >= self.volume() {
            return None;
        }
        let (dim_x, dim_y) = (self.x as u32, self.y as u32);
        Some(Coord { x: axis(index % dim_x), y: axis(index / dim_x % dim_y), z: axis(index / (dim_x * dim_y)) })
    }

    /// All coordinates inside, in index order.
    pub const fn coords(self) -> Coords {
        Block { origin: Coord::ORIGIN, extent: self }.coords()
    }

    /// Whether copies of `tile`, none turned, fill this extent exactly.
    pub const fn is_tiled_by(self, tile: Self) -> bool {
        self.x.is_multiple_of(tile.x) && self.y.is_multiple_of(tile.y) && self.z.is_multiple_of(tile.z)
    }

    /// How many tiles go along each axis; `None` if they do not fill this extent exactly.
    pub const fn tiles(self, tile: Self) -> Option<Self> {
        if self.is_tiled_by(tile) {
            Some(Self { x: self.x / tile.x, y: self.y / tile.y, z: self.z / tile.z })
        } else {
            None
        }
    }

    /// The tile that holds a coordinate, as a coordinate in the grid of tiles.
    pub(crate) const fn tile_of(self, at: Coord) -> Coord {
        Coord { x: at.x / self.x, y: at.y / self.y, z: at.z / self.z }
    }

    /// The first cell of a tile of this extent. The caller has checked that the tile lies in a grid of valid size.
    pub(crate) const fn tile_origin(self, tile: Coord) -> Coord {
        Coord { x: tile.x.saturating_mul(self.x), y: tile.y.saturating_mul(self.y), z: tile.z.saturating_mul(self.z) }
    }
}

/// A position on an axis: a number known to be below [`Extent::MAX_DIM`].
const fn axis(value: u32) -> u16 {
    let [low, high, ..] = value.to_le_bytes();
    u16::from_le_bytes([low, high])
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.x, self.y, self.z)
    }
}

/// A box of cells inside a grid: its first corner and its extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Block {
    /// The corner nearest the origin.
    pub origin: Coord,
    /// The size on each axis.
    pub extent: Extent,
}

impl Block {
    /// Whether a coordinate lies inside.
    pub const fn contains(self, at: Coord) -> bool {
        const fn on_axis(at: u16, origin: u16, len: u16) -> bool {
            origin <= at && at - origin < len
        }
        on_axis(at.x, self.origin.x, self.extent.x)
            && on_axis(at.y, self.origin.y, self.extent.y)
            && on_axis(at.z, self.origin.z, self.extent.z)
    }

    /// All coordinates inside, x fastest.
    pub const fn coords(self) -> Coords {
        Coords { block: self, next: 0, end: self.extent.volume() }
    }
}

/// Iterator over the coordinates of a [`Block`], x fastest.
#[derive(Clone, Debug)]
pub struct Coords {
    block: Block,
    next: u32,
    end: u32,
}

impl Iterator for Coords {
    type Item = Coord;

    fn next(&mut self) -> Option<Coord> {
        if self.next >= self.end {
            return None;
        }
        let at = self.block.extent.coord(self.next)?;
        self.next += 1;
        let origin = self.block.origin;
        Some(Coord {
            x: origin.x.saturating_add(at.x),
            y: origin.y.saturating_add(at.y),
            z: origin.z.saturating_add(at.z),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Coords {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn extent()(x in 1u16..9, y in 1u16..9, z in 1u16..9) -> Extent {
            Extent::new(x, y, z).unwrap()
        }
    }

    #[test]
    fn zero_and_oversized_extents_do_not_exist() {
        assert_eq!(Extent::new(0, 1, 1), None);
        assert_eq!(Extent::new(1, 1025, 1), None);
        assert_eq!(Extent::new(1024, 1024, 1024).unwrap().volume(), 1 << 30);
    }

    #[test]
    fn x_runs_fastest() {
        let extent = Extent::new(2, 3, 1).unwrap();
        let order: Vec<_> = extent.coords().map(|c| (c.x, c.y)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]);
    }

    proptest! {
        #[test]
        fn index_and_coord_are_inverse(extent in extent(), index in 0u32..800) {
            match extent.coord(index) {
                Some(at) => prop_assert_eq!(extent.index(at), Some(index)),
                None => prop_assert!(index >= extent.volume()),
            }
        }

        #[test]
        fn iteration_visits_each_cell_once_in_index_order(extent in extent()) {
            prop_assert_eq!(extent.coords().len(), usize::try_from(extent.volume()).unwrap());
            for (index, at) in extent.coords().enumerate() {
                prop_assert_eq!(extent.index(at), u32::try_from(index).ok());
            }
        }

        #[test]
        fn a_block_contains_its_coordinates_and_no_others(extent in extent(), x in 0u16..9, y in 0u16..9, z in 0u16..9) {
            let block = Block { origin: Coord::new(x, y, z), extent };
            let inside: std::collections::BTreeSet<_> = block.coords().collect();
            for at in Extent::new(20, 20, 20).unwrap().coords() {
                prop_assert_eq!(block.contains(at), inside.contains(&at));
            }
        }

        #[test]
        fn any_coordinate_is_harmless(extent in extent(), x: u16, y: u16, z: u16) {
            let at = Coord::new(x, y, z);
            prop_assert_eq!(extent.index(at).is_some(), extent.contains(at));
            let block = Block { origin: at, extent };
            prop_assert!(block.contains(at));
            prop_assert_eq!(block.coords().next(), Some(at));
        }
    }
}
