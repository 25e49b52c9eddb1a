//! Packing slices into a pod of cubes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::accelerator::Accelerator;
use crate::coord::{Axis, Block, Coord, Extent};
use crate::ici::Ici;
use crate::slice::Wrap;
use crate::topology::Topology;

/// A pod of 4x4x4 cubes from which slices are taken and to which they are given back.
///
/// Only slices of whole cubes are placed; a smaller slice lies inside one cube, which
/// [`SubSlices`](crate::SubSlices) cuts.
///
/// ```
/// use slicegate_tpu::{Accelerator, Extent, Superpod, Wiring, Wrap};
///
/// let grid = Extent::new(2, 2, 2).unwrap();
/// let mut pod = Superpod::new(Accelerator::V4Podslice, grid, Wiring::Contiguous(Wrap::NONE))?;
/// let half = pod.allocate("4x8x8".parse()?)?;
/// let cube = pod.allocate("4x4x4".parse()?)?;
/// assert_eq!(pod.free_cubes(), 3);
/// assert_eq!(pod.largest_fit(), Some("4x4x8".parse()?));
///
/// let error = pod.allocate("4x8x8".parse()?).unwrap_err();
/// assert_eq!(error.to_string(), "no room for 4x8x8: it needs 4 cubes and 3 are free; 4x4x8 is the largest that fits");
///
/// pod.release(half);
/// pod.release(cube);
/// assert_eq!(pod.largest_fit(), Some("8x8x8".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superpod {
    accelerator: Accelerator,
    grid: Extent,
    wiring: Wiring,
    free: Cubes,
    slices: BTreeMap<PodSliceId, Cubes>,
    next_id: u64,
}

/// Which cubes can make up one slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wiring {
    /// Optical switches join any cubes, wherever they stand.
    Switched,
    /// Only cubes that form a box, turned in any way, on a grid that closes on these axes.
    Contiguous(Wrap),
}

/// A slice that was taken from a [`Superpod`]. Ids are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodSliceId(u64);

/// What a cube is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CubeState {
    /// Nothing.
    Free,
    /// It is set aside: broken, or being maintained.
    Unavailable,
    /// It is part of a slice.
    InSlice(PodSliceId),
}

/// Why a pod cannot be described.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SuperpodError {
    /// The accelerator's slices are not made of cubes.
    #[error("{accelerator} slices are not made of 4x4x4 cubes")]
    NoCubes {
        /// The accelerator.
        accelerator: Accelerator,
    },
    /// The grid is larger than any pod.
    #[error("a grid of {cubes} cubes is larger than any pod; {} is the limit", Superpod::MAX_CUBES)]
    TooLarge {
        /// Cubes in the grid.
        cubes: u32,
    },
}

/// A slice for which a pod has no room now, or never has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct NoRoom {
    /// The shape asked for.
    pub topology: Topology,
    /// Why it does not fit.
    pub problem: NoRoomProblem,
    /// The largest slice that does fit now.
    pub largest: Option<Topology>,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no room for {}: {}", self.topology, self.problem)?;
        match self.largest {
            Some(largest) => write!(f, "; {largest} is the largest that fits"),
            None => f.write_str("; nothing fits"),
        }
    }
}

/// Why a slice does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NoRoomProblem {
    /// No slice of the pod's accelerator has this shape, or it is smaller than a cube.
    #[error("it is not a slice of whole cubes")]
    NotCubes,
    /// It would not fit into the empty pod either.
    #[error("the pod is too small")]
    PodTooSmall,
    /// Fewer cubes are free than it needs.
    #[error("it needs {needed} cubes and {free} are free")]
    NotEnoughFree {
        /// Cubes it needs.
        needed: u32,
        /// Cubes that are free.
        free: u32,
    },
    /// Enough cubes are free, but they do not form its box.
    #[error("{free} cubes are free, but no {needed} of them form its box")]
    Fragmented {
        /// Cubes it needs.
        needed: u32,
        /// Cubes that are free.
        free: u32,
    },
}

/// How well the free cubes of a pod hang together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragmentation {
    /// Cubes that are free.
    pub free: u32,
    /// Cubes of the largest slice that fits into them.
    pub largest: u32,
}

/// The outcome of [`Superpod::pack`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packing {
    /// They all fit. One set of cube numbers for each slice, in the order asked for.
    Packed(Vec<Vec<u32>>),
    /// They do not fit together, however they are placed.
    Impossible,
    /// The search was given up.
    Undecided,
}

impl Superpod {
    /// The most cubes in a pod. The largest that is built has 144.
    pub const MAX_CUBES: u32 = Cubes::LEN;

    /// An empty pod with so many cubes along each axis.
    pub fn new(accelerator: Accelerator, grid: Extent, wiring: Wiring) -> Result<Self, SuperpodError> {
        if !accelerator.is_3d() {
            return Err(SuperpodError::NoCubes { accelerator });
        }
        let cubes = grid.volume();
        if cubes > Self::MAX_CUBES {
            return Err(SuperpodError::TooLarge { cubes });
        }
        let mut free = Cubes::NONE;
        for cube in 0..cubes {
            free.insert(cube);
        }
        Ok(Self { accelerator, grid, wiring, free, slices: BTreeMap::new(), next_id: 0 })
    }

    /// How many cubes stand along each axis. Cubes are numbered with x fastest.
    pub const fn grid(&self) -> Extent {
        self.grid
    }

    /// Which cubes can make up one slice.
    pub const fn wiring(&self) -> Wiring {
        self.wiring
    }

    /// The number of free cubes.
    pub fn free_cubes(&self) -> u32 {
        self.free.count()
    }

    /// What a cube is used for; `None` if there is no such cube.
    pub fn state(&self, cube: u32) -> Option<CubeState> {
        if cube >= self.grid.volume() {
            return None;
        }
        if self.free.contains(cube) {
            return Some(CubeState::Free);
        }
        let owner = self.slices.iter().find(|(_, cubes)| cubes.contains(cube));
        Some(owner.map_or(CubeState::Unavailable, |(&id, _)| CubeState::InSlice(id)))
    }

    /// The cubes of a slice, in order; none once it is released.
    pub fn cubes_of(&self, slice: PodSliceId) -> impl Iterator<Item = u32> {
        self.slices.get(&slice).copied().unwrap_or(Cubes::NONE).iter()
    }

    /// Takes free cubes for a slice.
    ///
    /// Where there is a choice, the cubes are taken that have the fewest free neighbours, so that the rest hangs
    /// together; of equally good ones the first.
    pub fn allocate(&mut self, topology: Topology) -> Result<PodSliceId, NoRoom> {
        let cubes = self.find(topology)?;
        let id = PodSliceId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        self.free = self.free.without(cubes);
        self.slices.insert(id, cubes);
        Ok(id)
    }

    /// Gives the cubes of a slice back and says how many they were: 0 if it was released before.
    pub fn release(&mut self, slice: PodSliceId) -> u32 {
        let cubes = self.slices.remove(&slice).unwrap_or(Cubes::NONE);
        self.free = self.free.with(cubes);
        cubes.count()
    }

    /// Sets a free cube aside and returns its state, which is [`CubeState::Unavailable`] unless it is part of a slice:
    /// a slice is whole or absent, so it must be released first. `None` if there is no such cube.
    pub fn disable(&mut self, cube: u32) -> Option<CubeState> {
        if self.free.contains(cube) {
            self.free.remove(cube);
        }
        self.state(cube)
    }

    /// Puts a cube that was set aside back to use and returns its state; `None` if there is no such cube.
    pub fn enable(&mut self, cube: u32) -> Option<CubeState> {
        if self.state(cube) == Some(CubeState::Unavailable) {
            self.free.insert(cube);
        }
        self.state(cube)
    }

    /// Whether a slice of this shape fits now.
    pub fn check(&self, topology: Topology) -> Result<(), NoRoom> {
        match self.grid_of(topology) {
            Some(grid) if self.fits(grid) => Ok(()),
            grid => Err(self.no_room(topology, grid)),
        }
    }

    /// The largest slice that fits now; of several, the one nearest to a cube.
    pub fn largest_fit(&self) -> Option<Topology> {
        let sum_of_sizes = |topology: Topology| topology.extent().dims().into_iter().map(u32::from).sum::<u32>();
        let mut best: Option<(u32, Reverse<u32>, Topology)> = None;
        for topology in self.accelerator.topologies() {
            let Some(grid) = topology.cube_grid() else { continue };
            let rank = (grid.volume(), Reverse(sum_of_sizes(topology)));
            let improves = best.is_none_or(|(cubes, sum, _)| rank > (cubes, sum));
            if improves && self.fits(grid) {
                best = Some((rank.0, rank.1, topology));
            }
        }
        best.map(|(_, _, topology)| topology)
    }

    /// How much of the free space one slice could use.
    pub fn fragmentation(&self) -> Fragmentation {
        let largest = self.largest_fit().and_then(Topology::cubes).unwrap_or(0);
        Fragmentation { free: self.free_cubes(), largest }
    }

    /// Whether all these slices fit into the free cubes together, and where. Nothing is taken.
    ///
    /// The answer is exact unless it is [`Packing::Undecided`], which means that more than `max_steps` placements were
    /// tried: their number can grow exponentially with the number of slices. With switches only the number of cubes
    /// counts, and nothing is tried.
    pub fn pack(&self, wanted: &[Topology], max_steps: u64) -> Packing {
        let mut items = Vec::with_capacity(wanted.len());
        for (position, &topology) in wanted.iter().enumerate() {
            match self.grid_of(topology) {
                Some(grid) => items.push((position, grid)),
                None => return Packing::Impossible,
            }
        }
        // The largest first, and equal ones side by side.
        items.sort_by_key(|&(position, grid)| (Reverse(grid.volume()), grid, position));
        let mut boxes: BTreeMap<Extent, Vec<Cubes>> = BTreeMap::new();
        if self.wiring != Wiring::Switched {
            for &(_, shape) in &items {
                let free_boxes = || self.boxes(shape).filter(|cubes| cubes.is_within(self.free)).collect();
                boxes.entry(shape).or_insert_with(free_boxes);
            }
        }
        let wiring = self.wiring;
        let placed = vec![Cubes::NONE; wanted.len()];
        let mut search = Search { wiring, items: &items, boxes: &boxes, placed, steps_left: max_steps };
        match search.place_from(0, self.free, None) {
            Some(true) => Packing::Packed(search.placed.iter().map(|cubes| cubes.iter().collect()).collect()),
            Some(false) => Packing::Impossible,
            None => Packing::Undecided,
        }
    }

    /// The size in cubes of a shape that the accelerator is sold in.
    fn grid_of(&self, topology: Topology) -> Option<Extent> {
        topology.cube_grid().filter(|_| self.accelerator.supports(topology))
    }

    /// The cubes that [`Superpod::allocate`] would take.
    fn find(&self, topology: Topology) -> Result<Cubes, NoRoom> {
        let grid = self.grid_of(topology);
        grid.and_then(|grid| self.place(grid)).ok_or_else(|| self.no_room(topology, grid))
    }

    fn no_room(&self, topology: Topology, grid: Option<Extent>) -> NoRoom {
        let problem = grid.map_or(NoRoomProblem::NotCubes, |grid| self.why_not(grid));
        NoRoom { topology, problem, largest: self.largest_fit() }
    }

    fn why_not(&self, shape: Extent) -> NoRoomProblem {
        let (needed, free) = (shape.volume(), self.free_cubes());
        let fits_when_empty = match self.wiring {
            Wiring::Switched => needed <= self.grid.volume(),
            Wiring::Contiguous(_) => self.boxes(shape).next().is_some(),
        };
        if !fits_when_empty {
            NoRoomProblem::PodTooSmall
        } else if needed > free {
            NoRoomProblem::NotEnoughFree { needed, free }
        } else {
            NoRoomProblem::Fragmented { needed, free }
        }
    }

    /// Whether free cubes make up a slice of so many cubes along each axis.
    fn fits(&self, shape: Extent) -> bool {
        shape.volume() <= self.free_cubes()
            && match self.wiring {
                Wiring::Switched => true,
                Wiring::Contiguous(_) => self.boxes(shape).any(|cubes| cubes.is_within(self.free)),
            }
    }

    /// The best free cubes for such a slice.
    fn place(&self, shape: Extent) -> Option<Cubes> {
        if shape.volume() > self.free_cubes() {
            return None;
        }
        match self.wiring {
            Wiring::Switched => Some(self.free.first(shape.volume())),
            Wiring::Contiguous(_) => {
                let mut best: Option<(u32, Cubes)> = None;
                for cubes in self.boxes(shape).filter(|cubes| cubes.is_within(self.free)) {
                    let n_neighbors = self.free_neighbors(cubes);
                    if best.is_none_or(|(least, _)| n_neighbors < least) {
                        best = Some((n_neighbors, cubes));
                    }
                }
                best.map(|(_, cubes)| cubes)
            }
        }
    }

    /// The number of links between these cubes and other free ones.
    fn free_neighbors(&self, cubes: Cubes) -> u32 {
        let links = Ici::new(self.grid, self.wrap());
        let others = self.free.without(cubes);
        cubes
            .iter()
            .filter_map(|cube| self.grid.coord(cube))
            .flat_map(|at| links.neighbors(at))
            .filter_map(|next| self.grid.index(next))
            .filter(|&next| others.contains(next))
            .fold(0, |n, _| n + 1)
    }

    fn wrap(&self) -> Wrap {
        match self.wiring {
            Wiring::Switched => Wrap::NONE,
            Wiring::Contiguous(wrap) => wrap,
        }
    }

    /// Every box of this shape in the grid, turned in every way, without regard to what is free. Each box comes once.
    fn boxes(&self, shape: Extent) -> impl Iterator<Item = Cubes> {
        let (grid, wrap) = (self.grid, self.wrap());
        turns(shape).filter_map(move |extent| starts(grid, wrap, extent).map(|starts| (extent, starts))).flat_map(
            move |(extent, starts)| starts.coords().filter_map(move |origin| Cubes::of_box(grid, origin, extent)),
        )
    }
}

/// A shape turned in every way, each different one once.
fn turns(shape: Extent) -> impl Iterator<Item = Extent> {
    let [x, y, z] = shape.dims();
    let all = [[x, y, z], [x, z, y], [y, x, z], [y, z, x], [z, x, y], [z, y, x]];
    (0..all.len())
        .filter_map(move |i| {
            let turned = *all.get(i)?;
            (!all.iter().take(i).any(|earlier| *earlier == turned)).then_some(turned)
        })
        .filter_map(|[x, y, z]| Extent::new(x, y, z))
}

/// Where a box may start so that it lies in the grid, across the edges where the grid closes; `None` if it is too long.
fn starts(grid: Extent, wrap: Wrap, extent: Extent) -> Option<Block> {
    let along = |axis: Axis| {
        let (whole, part) = (grid.get(axis), extent.get(axis));
        match whole.checked_sub(part)? {
            // A full ring is the same wherever it starts.
            0 => Some(1),
            _ if wrap.get(axis) => Some(whole),
            room => Some(room + 1),
        }
    };
    let extent = Extent::new(along(Axis::X)?, along(Axis::Y)?, along(Axis::Z)?)?;
    Some(Block { origin: Coord::ORIGIN, extent })
}

/// An exhaustive search for places of several slices.
struct Search<'a> {
    wiring: Wiring,
    /// Position in the caller's list and size in cubes, largest first.
    items: &'a [(usize, Extent)],
    /// The boxes of free cubes of each size, where only boxes will do.
    boxes: &'a BTreeMap<Extent, Vec<Cubes>>,
    /// By position in the caller's list.
    placed: Vec<Cubes>,
    steps_left: u64,
}

impl Search<'_> {
    /// Places the items from this one on; `None` when out of steps. `after` is the number of the place of the item
    /// before, if that has the same shape: equal slices are placed in ascending order, since exchanging them changes
    /// nothing.
    fn place_from(&mut self, index: usize, free: Cubes, after: Option<usize>) -> Option<bool> {
        let Some(&(position, shape)) = self.items.get(index) else { return Some(true) };
        let needed = |items: &[(usize, Extent)]| items.iter().map(|(_, grid)| u64::from(grid.volume())).sum::<u64>();
        if self.items.get(index..).map_or(0, needed) > u64::from(free.count()) {
            return Some(false);
        }
        if self.wiring == Wiring::Switched {
            let cubes = free.first(shape.volume());
            self.set(position, cubes);
            return self.place_from(index + 1, free.without(cubes), None);
        }
        let next_is_equal = self.items.get(index + 1).is_some_and(|&(_, next)| next == shape);
        let first = after.map_or(0, |place| place + 1);
        let boxes = self.boxes;
        for (place, &cubes) in boxes.get(&shape).into_iter().flatten().enumerate().skip(first) {
            if !cubes.is_within(free) {
                continue;
            }
            self.steps_left = self.steps_left.checked_sub(1)?;
            self.set(position, cubes);
            if self.place_from(index + 1, free.without(cubes), next_is_equal.then_some(place))? {
                return Some(true);
            }
        }
        Some(false)
    }

    fn set(&mut self, position: usize, cubes: Cubes) {
        if let Some(entry) = self.placed.get_mut(position) {
            *entry = cubes;
        }
    }
}

/// A set of cube numbers below [`Cubes::LEN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cubes([u64; 4]);

impl Cubes {
    const LEN: u32 = 256;
    const NONE: Self = Self([0; 4]);

    /// The cubes of a box; `None` if it runs out of the grid. A box that passes the end of an axis goes on at its
    /// start.
    fn of_box(grid: Extent, origin: Coord, extent: Extent) -> Option<Self> {
        let mut cubes = Self::NONE;
        for offset in extent.coords() {
            let along = |axis: Axis| origin.get(axis).saturating_add(offset.get(axis)) % grid.get(axis);
            let at = Coord::new(along(Axis::X), along(Axis::Y), along(Axis::Z));
            cubes.insert(grid.index(at)?);
        }
        Some(cubes)
    }

    fn bit(cube: u32) -> (usize, u64) {
        (usize::try_from(cube / 64).unwrap_or(usize::MAX), 1 << (cube % 64))
    }

    fn contains(self, cube: u32) -> bool {
        let (word, bit) = Self::bit(cube);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn insert(&mut self, cube: u32) {
        let (word, bit) = Self::bit(cube);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn remove(&mut self, cube: u32) {
        let (word, bit) = Self::bit(cube);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word = op(*word, other);
        }
        Self(words)
    }

    fn with(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    fn is_within(self, other: Self) -> bool {
        self.without(other) == Self::NONE
    }

    fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::LEN).filter(move |&cube| self.contains(cube))
    }

    /// The lowest so many of these.
    fn first(self, n: u32) -> Self {
        let mut cubes = Self::NONE;
        for cube in self.iter().take(usize::try_from(n).unwrap_or(usize::MAX)) {
            cubes.insert(cube);
        }
        cubes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn any_wiring() -> impl Strategy<Value = Wiring> {
        prop_oneof![
            1 => Just(Wiring::Switched),
            4 => any::<[bool; 3]>().prop_map(|[x, y, z]| Wiring::Contiguous(Wrap { x, y, z })),
        ]
    }

    prop_compose! {
        /// A pod of at most 3x3x3 cubes, some of them set aside.
        fn small_pod()(x in 1u16..4, y in 1u16..4, z in 1u16..4, wiring in any_wiring(),
                       disabled in proptest::collection::vec(0u32..27, 0..6)) -> Superpod {
            let mut pod = Superpod::new(Accelerator::V4Podslice, Extent::new(x, y, z).unwrap(), wiring).unwrap();
            for cube in disabled {
                pod.disable(cube);
            }
            pod
        }
    }

    fn any_shape() -> impl Strategy<Value = Topology> {
        (1u16..4, 1u16..4, 1u16..4).prop_map(|(x, y, z)| Topology::solid(4 * x, 4 * y, 4 * z).sorted())
    }

    /// Every set of free cubes that is a box of this shape, found cell by cell.
    fn slow_boxes(pod: &Superpod, shape: Extent) -> BTreeSet<BTreeSet<u32>> {
        let mut found = BTreeSet::new();
        let grid = pod.grid().dims();
        let [a, b, c] = shape.dims();
        for dims in [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
            'origin: for origin in pod.grid().coords() {
                let mut cells = BTreeSet::new();
                for dx in 0..dims[0] {
                    for dy in 0..dims[1] {
                        for dz in 0..dims[2] {
                            let mut at = [origin.x + dx, origin.y + dy, origin.z + dz];
                            for axis in 0..3 {
                                if at[axis] >= grid[axis] {
                                    if !pod.wrap().get(Axis::ALL[axis]) || dims[axis] > grid[axis] {
                                        continue 'origin;
                                    }
                                    at[axis] -= grid[axis];
                                }
                            }
                            let cube = pod.grid().index(Coord::new(at[0], at[1], at[2])).unwrap();
                            if pod.state(cube) != Some(CubeState::Free) {
                                continue 'origin;
                            }
                            cells.insert(cube);
                        }
                    }
                }
                found.insert(cells);
            }
        }
        found
    }

    fn is_possible(pod: &Superpod, shape: Extent) -> bool {
        match pod.wiring() {
            Wiring::Switched => shape.volume() <= pod.free_cubes(),
            Wiring::Contiguous(_) => !slow_boxes(pod, shape).is_empty(),
        }
    }

    /// Whether the shapes fit together: each in turn in every place, by actually taking it.
    fn slow_pack(pod: &Superpod, wanted: &[Topology]) -> bool {
        let Some((first, rest)) = wanted.split_first() else { return true };
        let shape = first.cube_grid().unwrap();
        if pod.wiring() == Wiring::Switched {
            return wanted.iter().map(|topology| topology.cubes().unwrap()).sum::<u32>() <= pod.free_cubes();
        }
        slow_boxes(pod, shape).into_iter().any(|cells| {
            let mut pod = pod.clone();
            for cube in cells {
                pod.disable(cube);
            }
            slow_pack(&pod, rest)
        })
    }

    #[track_caller]
    fn pod(x: u16, y: u16, z: u16, wiring: Wiring) -> Superpod {
        Superpod::new(Accelerator::Tpu7x, Extent::new(x, y, z).unwrap(), wiring).unwrap()
    }

    fn shape(text: &str) -> Topology {
        text.parse().unwrap()
    }

    #[test]
    fn only_pods_of_cubes_exist() {
        assert_eq!(
            Superpod::new(Accelerator::V6eSlice, Extent::UNIT, Wiring::Switched).unwrap_err().to_string(),
            "tpu-v6e-slice slices are not made of 4x4x4 cubes"
        );
        assert_eq!(
            Superpod::new(Accelerator::V5pSlice, Extent::new(8, 8, 8).unwrap(), Wiring::Switched).unwrap_err(),
            SuperpodError::TooLarge { cubes: 512 }
        );
    }

    #[test]
    fn switches_use_what_contiguity_cannot() {
        // Two free cubes in opposite corners.
        let occupy = |wiring| {
            let mut pod = pod(2, 2, 1, wiring);
            pod.disable(1);
            pod.disable(2);
            pod
        };
        let contiguous = occupy(Wiring::Contiguous(Wrap::NONE));
        assert_eq!(contiguous.fragmentation(), Fragmentation { free: 2, largest: 1 });
        assert_eq!(
            contiguous.check(shape("4x4x8")).unwrap_err().to_string(),
            "no room for 4x4x8: 2 cubes are free, but no 2 of them form its box; 4x4x4 is the largest that fits"
        );
        let switched = occupy(Wiring::Switched);
        assert_eq!(switched.fragmentation(), Fragmentation { free: 2, largest: 2 });
        assert_eq!(switched.check(shape("4x4x8")), Ok(()));
    }

    #[test]
    fn a_ring_makes_room_across_its_seam() {
        let occupy = |wrap| {
            let mut pod = pod(4, 1, 1, Wiring::Contiguous(wrap));
            pod.disable(1);
            pod.disable(2);
            pod
        };
        assert!(occupy(Wrap::NONE).check(shape("4x4x8")).is_err());
        let mut ring = occupy(Wrap { x: true, ..Wrap::NONE });
        let slice = ring.allocate(shape("4x4x8")).unwrap();
        assert_eq!(ring.cubes_of(slice).collect::<Vec<_>>(), [0, 3]);
    }

    #[test]
    fn problems_are_told_apart() {
        let mut pod = pod(2, 2, 1, Wiring::Contiguous(Wrap::NONE));
        let problem = |pod: &Superpod, text| pod.check(shape(text)).unwrap_err().problem;
        assert_eq!(problem(&pod, "2x4x4"), NoRoomProblem::NotCubes);
        assert_eq!(problem(&pod, "8x4x4"), NoRoomProblem::NotCubes);
        assert_eq!(problem(&pod, "4x4x12"), NoRoomProblem::PodTooSmall);
        pod.allocate(shape("4x4x8")).unwrap();
        assert_eq!(problem(&pod, "4x8x8"), NoRoomProblem::NotEnoughFree { needed: 4, free: 2 });
    }

    #[test]
    fn slices_keep_their_cubes_until_released() {
        let mut pod = pod(2, 2, 1, Wiring::Switched);
        let slice = pod.allocate(shape("4x4x8")).unwrap();
        assert_eq!(pod.disable(0), Some(CubeState::InSlice(slice)));
        assert_eq!(pod.disable(4), None);
        assert_eq!(pod.release(slice), 2);
        assert_eq!(pod.release(slice), 0);
        assert_eq!(pod.disable(0), Some(CubeState::Unavailable));
        assert_eq!(pod.enable(0), Some(CubeState::Free));
        assert_eq!(pod.free_cubes(), 4);
    }

    #[test]
    fn slices_are_placed_where_they_break_up_the_least() {
        let mut pod = pod(5, 1, 1, Wiring::Contiguous(Wrap::NONE));
        pod.disable(2);
        pod.disable(3);
        let slice = pod.allocate(shape("4x4x4")).unwrap();
        assert_eq!(pod.cubes_of(slice).collect::<Vec<_>>(), [4]);
        assert_eq!(pod.check(shape("4x4x8")), Ok(()));
    }

    #[test]
    fn of_equally_large_slices_the_one_nearest_to_a_cube_is_named() {
        assert_eq!(pod(2, 2, 1, Wiring::Switched).largest_fit(), Some(shape("4x8x8")));
        assert_eq!(pod(2, 2, 1, Wiring::Contiguous(Wrap::NONE)).largest_fit(), Some(shape("4x8x8")));
        assert_eq!(pod(4, 1, 1, Wiring::Contiguous(Wrap::NONE)).largest_fit(), Some(shape("4x4x16")));
    }

    #[test]
    fn equal_slices_are_packed_side_by_side() {
        let pod = pod(3, 1, 1, Wiring::Contiguous(Wrap::NONE));
        let cube = Topology::CUBE;
        assert_eq!(pod.pack(&[cube; 3], 10), Packing::Packed(vec![vec![0], vec![1], vec![2]]));
        assert_eq!(pod.pack(&[cube; 4], 10), Packing::Impossible);
    }

    #[test]
    fn a_search_without_steps_decides_nothing() {
        let pod = pod(2, 2, 2, Wiring::Contiguous(Wrap::NONE));
        let wanted = [shape("4x8x8"), shape("4x4x8"), shape("4x4x8")];
        assert_eq!(pod.pack(&wanted, 1), Packing::Undecided);
        assert!(matches!(pod.pack(&wanted, 1000), Packing::Packed(_)));
        assert_eq!(pod.pack(&[shape("4x4x12")], 1000), Packing::Impossible);
    }

    proptest! {
        #[test]
        fn boxes_are_all_boxes_and_each_once(pod in small_pod(), topology in any_shape()) {
            let grid = topology.cube_grid().unwrap();
            let fast: Vec<BTreeSet<u32>> =
                pod.boxes(grid).filter(|cubes| cubes.is_within(pod.free)).map(|cubes| cubes.iter().collect()).collect();
            let distinct: BTreeSet<_> = fast.iter().cloned().collect();
            prop_assert_eq!(distinct.len(), fast.len());
            if pod.wiring() != Wiring::Switched {
                prop_assert_eq!(distinct, slow_boxes(&pod, grid));
            }
        }

        #[test]
        fn a_slice_is_placed_exactly_when_there_is_room(pod in small_pod(), topology in any_shape()) {
            let shape = topology.cube_grid().unwrap();
            let mut after = pod.clone();
            match after.allocate(topology) {
                Ok(slice) => {
                    prop_assert_eq!(pod.check(topology), Ok(()));
                    let cubes: BTreeSet<_> = after.cubes_of(slice).collect();
                    prop_assert_eq!(cubes.len(), usize::try_from(shape.volume()).unwrap());
                    if pod.wiring() != Wiring::Switched {
                        prop_assert!(slow_boxes(&pod, shape).contains(&cubes));
                    }
                    for cube in cubes {
                        prop_assert_eq!(pod.state(cube), Some(CubeState::Free));
                        prop_assert_eq!(after.state(cube), Some(CubeState::InSlice(slice)));
                    }
                    prop_assert_eq!(after.free_cubes() + shape.volume(), pod.free_cubes());
                    after.release(slice);
                    prop_assert_eq!(after.free, pod.free);
                }
                Err(error) => {
                    prop_assert!(!is_possible(&pod, shape));
                    prop_assert_eq!(&after, &pod);
                    prop_assert_eq!(pod.check(topology), Err(error));
                    if let Some(largest) = error.largest {
                        prop_assert_eq!(after.check(largest), Ok(()));
                    }
                }
            }
        }

        #[test]
        fn nothing_larger_than_the_largest_fits(pod in small_pod()) {
            let brute = pod.accelerator.topologies().filter_map(Topology::cube_grid)
                .filter(|&shape| shape.volume() <= 27 && is_possible(&pod, shape)).map(Extent::volume).max();
            prop_assert_eq!(pod.largest_fit().and_then(Topology::cubes), brute);
            let fragmentation = pod.fragmentation();
            prop_assert!(fragmentation.largest <= fragmentation.free);
            prop_assert_eq!(fragmentation.free == 0, fragmentation.largest == 0);
        }

        #[test]
        fn cubes_are_in_at_most_one_slice(
            mut pod in small_pod(),
            steps in proptest::collection::vec((any::<bool>(), any_shape(), 0u32..8), 0..20),
        ) {
            let free_at_first = pod.free_cubes();
            let mut taken: Vec<PodSliceId> = Vec::new();
            for (take, topology, which) in steps {
                if take {
                    taken.extend(pod.allocate(topology));
                } else if let Some(&slice) = taken.get(usize::try_from(which).unwrap()) {
                    pod.release(slice);
                }
                let mut seen = BTreeSet::new();
                for &slice in &taken {
                    prop_assert!(pod.cubes_of(slice).all(|cube| seen.insert(cube)));
                }
                prop_assert_eq!(seen.len() + usize::try_from(pod.free_cubes()).unwrap(), usize::try_from(free_at_first).unwrap());
            }
            for slice in taken {
                pod.release(slice);
            }
            prop_assert_eq!(pod.free_cubes(), free_at_first);
        }

        #[test]
        fn packing_agrees_with_trying_everything(
            pod in small_pod(), wanted in proptest::collection::vec(any_shape(), 0..4),
        ) {
            match pod.pack(&wanted, u64::MAX) {
                Packing::Packed(places) => {
                    let mut seen = BTreeSet::new();
                    for (topology, cubes) in wanted.iter().zip(&places) {
                        prop_assert_eq!(topology.cubes(), u32::try_from(cubes.len()).ok());
                        prop_assert!(cubes.iter().all(|&cube| seen.insert(cube)));
                        prop_assert!(cubes.iter().all(|&cube| pod.state(cube) == Some(CubeState::Free)));
                        if pod.wiring() != Wiring::Switched {
                            let cubes: BTreeSet<_> = cubes.iter().copied().collect();
                            prop_assert!(slow_boxes(&pod, topology.cube_grid().unwrap()).contains(&cubes));
                        }
                    }
                    prop_assert_eq!(places.len(), wanted.len());
                }
                Packing::Impossible => prop_assert!(!slow_pack(&pod, &wanted)),
                Packing::Undecided => prop_assert!(false),
            }
        }
    }
}
