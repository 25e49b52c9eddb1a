//! The interconnect of a slice: a grid of chips, some axes of which close into rings.

use crate::coord::{Axis, Coord, Extent};
use crate::slice::Wrap;

/// A mesh or torus of chips joined by ICI links.
///
/// A torus is taken as untwisted.
///
/// ```
/// use slicegate_tpu::{Coord, SliceShape};
///
/// let ici = SliceShape::parse("ct6e-standard-4t", "16x16")?.ici();
/// let corner: Vec<_> = ici.neighbors(Coord::ORIGIN).map(|chip| (chip.x, chip.y)).collect();
/// assert_eq!(corner, [(15, 0), (1, 0), (0, 15), (0, 1)]);
/// assert_eq!(ici.diameter(), 16);
/// assert_eq!(ici.bisection_links(), 32);
/// # Ok::<(), slicegate_tpu::SliceError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ici {
    extent: Extent,
    wrap: Wrap,
}

impl Ici {
    /// The links of a grid of chips. An axis of one or two chips has nothing to close, whatever `wrap` says: its first
    /// chip is already next to its last.
    pub const fn new(extent: Extent, wrap: Wrap) -> Self {
        Self { extent, wrap }
    }

    /// The grid.
    pub const fn extent(self) -> Extent {
        self.extent
    }

    /// Whether an axis closes into a ring of three or more chips.
    pub const fn is_ring(self, axis: Axis) -> bool {
        self.wrap.get(axis) && self.extent.get(axis) > 2
    }

    /// The chips one link away, without duplicates: along x, y, then z, the lower one first. None if the chip is not in
    /// the grid.
    pub fn neighbors(self, chip: Coord) -> impl Iterator<Item = Coord> {
        let axes = if self.extent.contains(chip) { Axis::ALL.as_slice() } else { &[] };
        axes.iter().flat_map(move |&axis| {
            let (at, last) = (chip.get(axis), self.extent.get(axis) - 1);
            let ring = self.is_ring(axis);
            let before = if at > 0 { Some(at - 1) } else { ring.then_some(last) };
            let after = if at < last { Some(at + 1) } else { ring.then_some(0) };
            [before, after].into_iter().flatten().map(move |at| chip.with(axis, at))
        })
    }

    /// The number of links at a chip; 0 outside the grid.
    pub const fn degree(self, chip: Coord) -> u32 {
        if !self.extent.contains(chip) {
            return 0;
        }
        self.degree_on(Axis::X, chip) + self.degree_on(Axis::Y, chip) + self.degree_on(Axis::Z, chip)
    }

    const fn degree_on(self, axis: Axis, chip: Coord) -> u32 {
        let (at, last) = (chip.get(axis), self.extent.get(axis) - 1);
        if self.is_ring(axis) { 2 } else { (at > 0) as u32 + (at < last) as u32 }
    }

    /// The number of links in all.
    pub const fn links(self) -> u32 {
        self.links_on(Axis::X) + self.links_on(Axis::Y) + self.links_on(Axis::Z)
    }

    const fn links_on(self, axis: Axis) -> u32 {
        let len = self.extent.get(axis) as u32;
        let links_a_line = if self.is_ring(axis) { len } else { len - 1 };
        self.extent.volume() / len * links_a_line
    }

    /// The fewest links that a plane across one axis cuts when it halves the grid (as evenly as an odd length allows):
    /// what limits an exchange of everything with everybody. 0 for a single chip.
    ///
    /// On every slice that is sold no other way of halving the chips cuts fewer links.
    pub const fn bisection_links(self) -> u32 {
        let (x, y, z) = (self.cut_across(Axis::X), self.cut_across(Axis::Y), self.cut_across(Axis::Z));
        let least = if x < y { x } else { y };
        let least = if least < z { least } else { z };
        if least == u32::MAX { 0 } else { least }
    }

    /// The links that a plane in the middle of an axis cuts; the largest number where there is no middle.
    const fn cut_across(self, axis: Axis) -> u32 {
        let len = self.extent.get(axis) as u32;
        let cuts = if self.is_ring(axis) { 2 } else { 1 };
        if len > 1 { self.extent.volume() / len * cuts } else { u32::MAX }
    }

    /// The number of links on a shortest way between two chips; `None` if one is not in the grid.
    pub const fn distance(self, from: Coord, to: Coord) -> Option<u32> {
        if !self.extent.contains(from) || !self.extent.contains(to) {
            return None;
        }
        Some(
            self.distance_on(Axis::X, from, to)
                + self.distance_on(Axis::Y, from, to)
                + self.distance_on(Axis::Z, from, to),
        )
    }

    const fn distance_on(self, axis: Axis, from: Coord, to: Coord) -> u32 {
        let direct = from.get(axis).abs_diff(to.get(axis));
        let around = self.extent.get(axis) - direct;
        (if self.is_ring(axis) && around < direct { around } else { direct }) as u32
    }

    /// The longest of all shortest ways, in links.
    pub const fn diameter(self) -> u32 {
        self.diameter_on(Axis::X) + self.diameter_on(Axis::Y) + self.diameter_on(Axis::Z)
    }

    const fn diameter_on(self, axis: Axis) -> u32 {
        let len = self.extent.get(axis);
        (if self.is_ring(axis) { len / 2 } else { len - 1 }) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::tests::{all_slices, any_slice};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    prop_compose! {
        fn any_ici()(x in 1u16..6, y in 1u16..6, z in 1u16..6, wrap: [bool; 3]) -> Ici {
            Ici::new(Extent::new(x, y, z).unwrap(), Wrap { x: wrap[0], y: wrap[1], z: wrap[2] })
        }
    }

    /// Distances from a chip by walking the links.
    fn walk(ici: Ici, from: Coord) -> BTreeMap<Coord, u32> {
        let mut distances = BTreeMap::from([(from, 0)]);
        let mut queue = VecDeque::from([from]);
        while let Some(chip) = queue.pop_front() {
            let distance = distances[&chip];
            for next in ici.neighbors(chip) {
                distances.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    distance + 1
                });
            }
        }
        distances
    }

    #[test]
    fn a_cube_of_a_torus() {
        let ici = Ici::new(Extent::new(4, 4, 4).unwrap(), Wrap::ALL);
        assert!(ici.extent().coords().all(|chip| ici.degree(chip) == 6));
        assert_eq!((ici.links(), ici.diameter(), ici.bisection_links()), (192, 6, 32));
    }

    #[test]
    fn a_mesh_below_a_cube() {
        let ici = Ici::new(Extent::new(2, 2, 4).unwrap(), Wrap::NONE);
        assert_eq!((ici.links(), ici.diameter(), ici.bisection_links()), (8 + 8 + 12, 5, 4));
        assert_eq!(Ici::new(Extent::UNIT, Wrap::NONE).bisection_links(), 0);
    }

    /// The fewest links between any half of the chips and the other half, by trying every half that holds the first chip.
    fn thinnest_half(ici: Ici) -> u32 {
        let n_chips = ici.extent().volume();
        let links: Vec<(u32, u32)> = ici
            .extent()
            .coords()
            .flat_map(|chip| ici.neighbors(chip).map(move |next| (chip, next)))
            .map(|(chip, next)| (ici.extent().index(chip).unwrap(), ici.extent().index(next).unwrap()))
            .filter(|(chip, next)| chip < next)
            .collect();
        let cut = |half: u32| links.iter().filter(|&&(a, b)| (half >> a & 1) != (half >> b & 1)).count();
        let halves = (1u32..1 << n_chips).step_by(2).filter(|half| half.count_ones() == n_chips / 2);
        halves.map(cut).min().map_or(0, |links| u32::try_from(links).unwrap())
    }

    #[test]
    fn no_half_of_a_small_slice_is_joined_by_fewer_links_than_the_bisection() {
        let mut tried = BTreeSet::new();
        for slice in all_slices().filter(|slice| (2..=16).contains(&slice.chips())) {
            if tried.insert(slice.ici()) {
                assert_eq!(slice.ici().bisection_links(), thinnest_half(slice.ici()), "{slice}");
            }
        }
        // No slice this small closes a ring, so rings of four are tried beside them.
        for wrap in [Wrap::ALL, Wrap { x: true, ..Wrap::NONE }] {
            for extent in [Extent::of(4, 4, 1), Extent::of(4, 2, 2), Extent::of(4, 1, 1)] {
                let ici = Ici::new(extent, wrap);
                assert_eq!(ici.bisection_links(), thinnest_half(ici), "{extent} {wrap}");
            }
        }
        assert_eq!(tried.len(), 5);
    }

    proptest! {
        #[test]
        fn neighbors_are_symmetric_distinct_and_inside(ici in any_ici()) {
            for chip in ici.extent().coords() {
                let neighbors: Vec<_> = ici.neighbors(chip).collect();
                prop_assert_eq!(neighbors.iter().collect::<BTreeSet<_>>().len(), neighbors.len());
                for &next in &neighbors {
                    prop_assert!(ici.extent().contains(next) && next != chip);
                    prop_assert!(ici.neighbors(next).any(|back| back == chip));
                    prop_assert_eq!(ici.distance(chip, next), Some(1));
                }
            }
        }

        #[test]
        fn degrees_and_links_agree_with_the_neighbors(ici in any_ici()) {
            let mut n_ends = 0;
            for chip in ici.extent().coords() {
                let n_neighbors = u32::try_from(ici.neighbors(chip).count()).unwrap();
                prop_assert_eq!(ici.degree(chip), n_neighbors);
                n_ends += n_neighbors;
            }
            prop_assert_eq!(n_ends, 2 * ici.links());
        }

        #[test]
        fn distances_agree_with_a_walk(ici in any_ici(), pick: proptest::sample::Index) {
            let chips: Vec<_> = ici.extent().coords().collect();
            let from = *pick.get(&chips);
            let walked = walk(ici, from);
            prop_assert_eq!(walked.len(), chips.len());
            for (&to, &distance) in &walked {
                prop_assert_eq!(ici.distance(from, to), Some(distance));
                prop_assert!(distance <= ici.diameter());
            }
        }

        #[test]
        fn some_pair_is_a_diameter_apart(ici in any_ici()) {
            let longest = ici.extent().coords().flat_map(|from| walk(ici, from).into_values()).max();
            prop_assert_eq!(longest, Some(ici.diameter()));
        }

        #[test]
        fn the_bisection_is_the_thinnest_middle_cut(ici in any_ici()) {
            let chips: Vec<_> = ici.extent().coords().collect();
            let cut = |axis: Axis| {
                let half = ici.extent().get(axis) / 2;
                let low = |chip: Coord| chip.get(axis) < half;
                let links = chips.iter().filter(|&&chip| low(chip))
                    .flat_map(|&chip| ici.neighbors(chip)).filter(|&next| !low(next)).count();
                u32::try_from(links).unwrap()
            };
            let thinnest = Axis::ALL.into_iter().filter(|&axis| ici.extent().get(axis) > 1).map(cut).min();
            prop_assert_eq!(ici.bisection_links(), thinnest.unwrap_or(0));
        }

        #[test]
        fn a_chip_has_no_more_links_than_its_generation_has_ports(slice in any_slice(), x: u16, y: u16, z: u16) {
            let ports = if slice.generation().is_3d() { 6 } else { 4 };
            let ici = slice.ici();
            let [dx, dy, dz] = ici.extent().dims();
            prop_assert!(ici.degree(Coord::new(x % dx, y % dy, z % dz)) <= ports);
            prop_assert_eq!(ici.degree(Coord::new(x, y, z)) == 0,
                slice.chips() == 1 || !ici.extent().contains(Coord::new(x, y, z)));
        }
    }
}
