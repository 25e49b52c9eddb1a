//! Which topologies an accelerator is sold in.
//!
//! 2D accelerators have a short list each. 3D ones have four shapes below a cube (2x2x1, 2x2x2, 2x2x4, 2x4x4) and above
//! it every box of whole 4x4x4 cubes whose sizes do not decrease, up to a largest number of chips.

use std::cmp::Reverse;
use std::fmt;

use thiserror::Error;

use crate::accelerator::{Accelerator, MAX_CUBES_PER_AXIS, Shapes};
use crate::topology::{ParseTopologyError, Rank, Topology};

/// A topology that an accelerator is not sold in.
///
/// ```
/// use slicegate_tpu::{Accelerator, Topology};
///
/// let error = Accelerator::V5LitePodslice.check("4x6".parse()?).unwrap_err();
/// assert_eq!(error.suggestion.to_string(), "4x8");
/// assert_eq!(error.to_string(), "4x6 is not a v5e topology; did you mean 4x8?");
/// # Ok::<(), slicegate_tpu::ParseTopologyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub struct IllegalTopology {
    /// The accelerator.
    pub accelerator: Accelerator,
    /// The shape asked for.
    pub topology: Topology,
    /// The legal topology nearest to it.
    pub suggestion: Topology,
}

impl fmt::Display for IllegalTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accelerator, topology, suggestion } = self;
        let name = accelerator.short_name();
        let largest = accelerator.largest();
        if topology.chips() > largest.chips() {
            write!(
                f,
                "{topology} is larger than any {name} slice: {largest} is the largest; did you mean {suggestion}?"
            )
        } else {
            write!(f, "{topology} is not a {name} topology; did you mean {suggestion}?")
        }
    }
}

/// A text that is not a topology of an accelerator.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TopologyError {
    /// It is not a topology at all.
    #[error(transparent)]
    Parse(#[from] ParseTopologyError),
    /// It is a topology, but not one of this accelerator.
    #[error(transparent)]
    Illegal(#[from] IllegalTopology),
}

impl TopologyError {
    /// What was most likely meant: a topology legal for the accelerator that was asked.
    pub fn suggestion(&self) -> Option<Topology> {
        match self {
            Self::Parse(error) => error.suggestion,
            Self::Illegal(error) => Some(error.suggestion),
        }
    }
}

impl Accelerator {
    /// Whether slices of this shape exist.
    ///
    /// ```
    /// use slicegate_tpu::{Accelerator, Topology};
    ///
    /// const SHAPE: Topology = Topology::new_2d(4, 8).unwrap();
    /// const _: () = assert!(Accelerator::V6eSlice.supports(SHAPE)); // decided while compiling
    /// ```
    pub const fn supports(self, topology: Topology) -> bool {
        match self.shapes() {
            Shapes::Listed(list) => is_listed(list, topology),
            Shapes::Cubes { small, max_cubes } => {
                if is_listed(small, topology) {
                    return true;
                }
                let Some(grid) = topology.cube_grid() else { return false };
                let [x, y, z] = grid.dims();
                x <= y && y <= z && z <= MAX_CUBES_PER_AXIS && grid.volume() <= max_cubes
            }
        }
    }

    /// Accepts a shape this accelerator is sold in and names the nearest such shape otherwise.
    pub fn check(self, topology: Topology) -> Result<Topology, IllegalTopology> {
        if self.supports(topology) {
            Ok(topology)
        } else {
            Err(IllegalTopology { accelerator: self, topology, suggestion: self.nearest_topology(topology) })
        }
    }

    /// Reads a topology and checks that this accelerator is sold in it. Every suggestion in an error is legal.
    pub fn parse_topology(self, text: &str) -> Result<Topology, TopologyError> {
        let topology = text.parse::<Topology>().map_err(|mut error| {
            error.suggestion = error.suggestion.map(|topology| self.nearest_topology(topology));
            error
        })?;
        Ok(self.check(topology)?)
    }

    /// Every shape this accelerator is sold in: those below a cube first, then in order of their first, second and
    /// third sizes.
    ///
    /// ```
    /// use slicegate_tpu::Accelerator;
    ///
    /// let v6e: Vec<_> = Accelerator::V6eSlice.topologies().map(|t| t.to_string()).collect();
    /// assert_eq!(v6e, ["1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"]);
    /// ```
    pub fn topologies(self) -> Topologies {
        match self.shapes() {
            Shapes::Listed(list) => Topologies { listed: list.iter(), next: None, max_cubes: 0 },
            Shapes::Cubes { small, max_cubes } => Topologies { listed: small.iter(), next: Some([1, 1, 1]), max_cubes },
        }
    }

    /// The shape that a bare chip count stands for, as in the accelerator type `v5p-512`; `None` if no slice has this
    /// many chips.
    ///
    /// Of several shapes it is the one nearest to a cube: the smallest sum of sizes. This yields exactly the shapes
    /// that xpk lists as defaults, and goes on by the same rule where that list has holes.
    ///
    /// ```
    /// use slicegate_tpu::{Accelerator, Topology};
    ///
    /// assert_eq!(Accelerator::V5pSlice.default_topology(256), Topology::new_3d(4, 8, 8)); // not 4x4x16
    /// assert_eq!(Accelerator::V5pSlice.default_topology(100), None);
    /// ```
    pub fn default_topology(self, chips: u32) -> Option<Topology> {
        let (Shapes::Listed(small) | Shapes::Cubes { small, .. }) = self.shapes();
        if let Some(&topology) = small.iter().find(|topology| topology.chips() == chips) {
            return Some(topology);
        }
        let Shapes::Cubes { max_cubes, .. } = self.shapes() else { return None };
        let cubes =
            if chips.is_multiple_of(Topology::CUBE.chips()) { chips / Topology::CUBE.chips() } else { return None };
        if cubes == 0 || cubes > max_cubes { None } else { most_cubic(cubes) }
    }

    /// The smallest slice with at least this many chips, in its default shape; `None` if none is large enough.
    pub fn smallest_with(self, chips: u32) -> Option<Topology> {
        let (Shapes::Listed(small) | Shapes::Cubes { small, .. }) = self.shapes();
        if let Some(&topology) = small.iter().find(|topology| topology.chips() >= chips) {
            return Some(topology);
        }
        let Shapes::Cubes { max_cubes, .. } = self.shapes() else { return None };
        (chips.div_ceil(Topology::CUBE.chips()).max(1)..=max_cubes).find_map(most_cubic)
    }

    /// The slice with the most chips; of several, the one nearest to a cube.
    ///
    /// Where sources disagree this is the smaller: v4 ends at 12x16x16 in GKE's pages but at 16x16x16 in other
    /// validators, v5p at 16x16x24 but at 8960 chips in xpk. TPU7x's 9216 chips are 2304 hosts, more than the 2000 VMs of
    /// one Compute Engine instance group; no source says how such a slice becomes a node pool.
    pub fn largest(self) -> Topology {
        match self.shapes() {
            Shapes::Listed(list) => list.last().copied().unwrap_or(Topology::CUBE),
            Shapes::Cubes { max_cubes, .. } => (1..=max_cubes).rev().find_map(most_cubic).unwrap_or(Topology::CUBE),
        }
    }

    /// The legal shape nearest to any shape: itself if legal, itself turned if that is legal, otherwise the one whose
    /// sizes differ least; of equally near ones the larger, since a job that does not fit is no help. A shape of the
    /// wrong rank or of more chips than any slice has leads to the shape with as many chips, or a few more.
    pub fn nearest_topology(self, topology: Topology) -> Topology {
        if self.supports(topology) {
            return topology;
        }
        let turned = topology.sorted();
        if self.supports(turned) {
            return turned;
        }
        let wanted_rank = if self.is_3d() { Rank::Three } else { Rank::Two };
        if topology.rank() != wanted_rank || topology.chips() > self.largest().chips() {
            return self.smallest_with(topology.chips()).unwrap_or_else(|| self.largest());
        }
        let difference = |legal: &Topology| -> u32 {
            let (wanted, legal) = (turned.extent().dims(), legal.sorted().extent().dims());
            wanted.into_iter().zip(legal).map(|(a, b)| u32::from(a.abs_diff(b))).sum()
        };
        self.topologies()
            .min_by_key(|legal| (difference(legal), Reverse(legal.chips())))
            .unwrap_or_else(|| self.largest())
    }

    pub(crate) const fn is_3d(self) -> bool {
        matches!(self.shapes(), Shapes::Cubes { .. })
    }
}

const fn is_listed(mut list: &[Topology], topology: Topology) -> bool {
    while let [first, rest @ ..] = list {
        if first.is(topology) {
            return true;
        }
        list = rest;
    }
    false
}

/// The box of this many cubes with the smallest sum of sizes; ties go to the shortest longest side.
fn most_cubic(cubes: u32) -> Option<Topology> {
    let mut best: Option<((u32, u32), Topology)> = None;
    for x in (1..).take_while(|x| x * x * x <= cubes).filter(|&x| cubes.is_multiple_of(x)) {
        let face = cubes / x;
        for y in (x..).take_while(|y| y * y <= face).filter(|&y| face.is_multiple_of(y)) {
            let z = face / y;
            if z > u32::from(MAX_CUBES_PER_AXIS) {
                continue;
            }
            let side = |cubes: u32| u16::try_from(4 * cubes).ok();
            let (Some(a), Some(b), Some(c)) = (side(x), side(y), side(z)) else { continue };
            let key = (x + y + z, z);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, Topology::solid(a, b, c)));
            }
        }
    }
    best.map(|(_, topology)| topology)
}

/// Iterator over the shapes of an accelerator; made by [`Accelerator::topologies`].
#[derive(Clone, Debug)]
pub struct Topologies {
    listed: std::slice::Iter<'static, Topology>,
    /// The next box, in cubes.
    next: Option<[u16; 3]>,
    max_cubes: u32,
}

impl Iterator for Topologies {
    type Item = Topology;

    fn next(&mut self) -> Option<Topology> {
        if let Some(&topology) = self.listed.next() {
            return Some(topology);
        }
        let [x, y, z] = self.next?;
        let fits = |x: u16, y: u16, z: u16| {
            z <= MAX_CUBES_PER_AXIS && u32::from(x) * u32::from(y) * u32::from(z) <= self.max_cubes
        };
        // The least box that starts with a given size has all sides equal, or its last two.
        self.next =
            [[x, y, z + 1], [x, y + 1, y + 1], [x + 1, x + 1, x + 1]].into_iter().find(|&[x, y, z]| fits(x, y, z));
        Some(Topology::solid(4 * x, 4 * y, 4 * z))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_accelerator() -> impl Strategy<Value = Accelerator> {
        proptest::sample::select(&Accelerator::ALL[..])
    }

    fn any_topology() -> impl Strategy<Value = Topology> {
        let dim = || prop_oneof![1u16..=40, 1u16..=Topology::MAX_DIM];
        prop_oneof![
            (dim(), dim()).prop_map(|(x, y)| Topology::new_2d(x, y).unwrap()),
            (dim(), dim(), dim()).prop_map(|(x, y, z)| Topology::new_3d(x, y, z).unwrap()),
        ]
    }

    #[test]
    fn the_number_of_shapes_is_known() {
        let n_topologies = |accelerator: Accelerator| accelerator.topologies().count();
        assert_eq!(n_topologies(Accelerator::V3Slice), 7);
        assert_eq!(n_topologies(Accelerator::V5LitePodslice), 8);
        assert_eq!(n_topologies(Accelerator::V6eSlice), 8);
        // 126, 274 and 428 boxes of cubes, and the shapes below a cube.
        assert_eq!(n_topologies(Accelerator::V4Podslice), 126 + 4);
        assert_eq!(n_topologies(Accelerator::V5pSlice), 274 + 4);
        assert_eq!(n_topologies(Accelerator::Tpu7x), 428 + 5);
    }

    #[test]
    fn the_generator_agrees_with_the_check_over_every_small_shape() {
        for accelerator in Accelerator::ALL {
            let listed: std::collections::BTreeSet<_> = accelerator.topologies().collect();
            assert_eq!(listed.len(), accelerator.topologies().count(), "{accelerator} lists a shape twice");
            let mut n_legal = 0;
            for x in 1..=40 {
                for y in 1..=40 {
                    let flat = Topology::flat(x, y);
                    assert_eq!(accelerator.supports(flat), listed.contains(&flat), "{accelerator} {flat}");
                    n_legal += usize::from(accelerator.supports(flat));
                    for z in 1..=260 {
                        let solid = Topology::solid(x, y, z);
                        assert_eq!(accelerator.supports(solid), listed.contains(&solid), "{accelerator} {solid}");
                        n_legal += usize::from(accelerator.supports(solid));
                    }
                }
            }
            let outside = listed.iter().filter(|t| t.extent().dims()[1] > 40).count();
            assert_eq!(n_legal + outside, listed.len(), "{accelerator}");
        }
    }

    #[test]
    fn largest_slices() {
        let largest: Vec<_> =
            Accelerator::ALL.into_iter().map(|a| format!("{} {}", a.short_name(), a.largest())).collect();
        assert_eq!(
            largest,
            [
                "v3 device 2x2",
                "v3 32x32",
                "v4 lite 2x2",
                "v4 12x16x16",
                "v5e device 2x4",
                "v5e 16x16",
                "v5p 16x16x24",
                "v6e 16x16",
                "TPU7x 16x24x24"
            ]
        );
        for accelerator in Accelerator::ALL {
            let most = accelerator.topologies().map(Topology::chips).max();
            assert_eq!(Some(accelerator.largest().chips()), most);
            assert!(accelerator.largest().chips() <= accelerator.generation().pod_chips());
        }
    }

    /// The default shapes that xpk publishes, as shape and number of four-chip hosts.
    const DEFAULTS: &str = "2x2x1:1 2x2x2:2 2x2x4:4 2x4x4:8 4x4x4:16 4x4x8:32 4x4x12:48 4x8x8:64 4x4x20:80 4x8x12:96 \
        4x4x28:112 8x8x8:128 4x12x12:144 4x8x20:160 4x4x44:176 8x8x12:192 4x4x52:208 4x8x28:224 4x12x20:240 8x8x16:256 \
        4x4x68:272 8x12x12:288 4x4x76:304 8x8x20:320 4x12x28:336 4x8x44:352 4x4x92:368 8x12x16:384 4x20x20:400 \
        4x8x52:416 12x12x12:432 8x8x28:448 4x4x116:464 8x12x20:480 4x4x124:496 8x16x16:512 4x12x44:528 4x8x68:544 \
        4x20x28:560 12x12x16:576 4x4x148:592 4x8x76:608 4x12x52:624 8x16x20:640 4x4x164:656 8x12x28:672 4x4x172:688 \
        8x8x44:704 12x12x20:720 4x8x92:736 4x4x188:752 12x16x16:768 4x28x28:784 8x20x20:800 4x12x68:816 8x8x52:832 \
        4x4x212:848 12x12x24:864 4x20x44:880 8x16x28:896 4x12x76:912 4x8x116:928 4x4x236:944 12x16x20:960 4x4x244:976 \
        4x8x124:992 12x12x28:1008 16x16x16:1024 4x20x52:1040 8x12x44:1056 8x8x68:1088 4x12x92:1104 8x20x28:1120 \
        12x16x24:1152 4x8x148:1184 12x20x20:1200 8x8x76:1216 4x28x44:1232 8x12x52:1248 16x16x20:1280 12x12x36:1296 \
        4x8x164:1312 12x16x28:1344 4x20x68:1360 4x8x172:1376 4x12x116:1392 8x16x44:1408 12x20x24:1440 4x28x52:1456 \
        8x8x92:1472 4x12x124:1488 4x8x188:1504 4x20x76:1520 16x16x24:1536 12x24x24:1728 16x16x32:2048 16x20x28:2240 \
        16x24x24:2304";

    #[test]
    fn default_shapes_are_the_published_ones() {
        let mut n_v5p = 0;
        for entry in DEFAULTS.split_whitespace() {
            let (shape, hosts) = entry.split_once(':').unwrap();
            let (shape, hosts): (Topology, u32) = (shape.parse().unwrap(), hosts.parse().unwrap());
            assert_eq!(shape.chips(), 4 * hosts);
            assert_eq!(Accelerator::Tpu7x.default_topology(shape.chips()), Some(shape));
            if shape.chips() <= 6144 {
                n_v5p += 1;
                assert_eq!(Accelerator::V5pSlice.default_topology(shape.chips()), Some(shape));
            } else {
                assert_eq!(Accelerator::V5pSlice.default_topology(shape.chips()), None);
            }
        }
        // Up to its largest slice, v5p has a default for exactly the listed sizes.
        assert_eq!((1..=6144).filter(|&chips| Accelerator::V5pSlice.default_topology(chips).is_some()).count(), n_v5p);
    }

    #[test]
    fn default_shapes_of_v4_are_the_published_ones() {
        let published = [
            (8, "2x2x1"),
            (16, "2x2x2"),
            (32, "2x2x4"),
            (64, "2x4x4"),
            (128, "4x4x4"),
            (256, "4x4x8"),
            (512, "4x8x8"),
            (1024, "8x8x8"),
            (1536, "8x8x12"),
            (2048, "8x8x16"),
            (4096, "8x16x16"),
        ];
        for (cores, shape) in published {
            assert_eq!(Accelerator::V4Podslice.default_topology(cores / 2), Some(shape.parse().unwrap()), "v4-{cores}");
        }
    }

    #[track_caller]
    fn check_suggestion(accelerator: Accelerator, shape: &str, suggestion: &str) {
        assert_eq!(accelerator.check(shape.parse().unwrap()).unwrap_err().suggestion.to_string(), suggestion);
    }

    #[test]
    fn suggestions_are_the_nearest_shapes() {
        check_suggestion(Accelerator::V5LitePodslice, "4x6", "4x8");
        check_suggestion(Accelerator::V5LitePodslice, "4x2", "2x4");
        check_suggestion(Accelerator::V6eSlice, "3x3", "4x4");
        check_suggestion(Accelerator::V6eSlice, "2x8", "4x8");
        check_suggestion(Accelerator::V6eSlice, "4x4x4", "8x8");
        check_suggestion(Accelerator::V6eSlice, "32x32", "16x16");
        check_suggestion(Accelerator::V3Slice, "2x2", "4x4");
        check_suggestion(Accelerator::V3Device, "4x4", "2x2");
        check_suggestion(Accelerator::V5pSlice, "4x4", "2x2x4");
        check_suggestion(Accelerator::V5pSlice, "8x4x4", "4x4x8");
        check_suggestion(Accelerator::V5pSlice, "4x4x6", "4x4x8");
        check_suggestion(Accelerator::V5pSlice, "1x1x1", "2x2x1");
        check_suggestion(Accelerator::V4Podslice, "16x16x16", "12x16x16");
    }

    #[test]
    fn errors_name_the_limit_that_was_passed() {
        assert_eq!(
            Accelerator::V4Podslice.parse_topology("16x16x16").unwrap_err().to_string(),
            "16x16x16 is larger than any v4 slice: 12x16x16 is the largest; did you mean 12x16x16?"
        );
        assert_eq!(
            Accelerator::V6eSlice.parse_topology("4X6").unwrap_err().to_string(),
            r#""4X6" is not a topology: its x size is not a plain decimal number; did you mean 4x8?"#
        );
    }

    #[test]
    fn every_legal_shape_parses_back() {
        for accelerator in Accelerator::ALL {
            for topology in accelerator.topologies() {
                assert_eq!(accelerator.parse_topology(&topology.to_string()), Ok(topology));
            }
        }
    }

    proptest! {
        #[test]
        fn suggestions_are_legal(accelerator in any_accelerator(), topology in any_topology()) {
            match accelerator.check(topology) {
                Ok(same) => prop_assert_eq!(same, topology),
                Err(error) => {
                    prop_assert!(accelerator.supports(error.suggestion));
                    prop_assert_ne!(error.suggestion, topology);
                }
            }
        }

        #[test]
        fn no_legal_shape_is_nearer_than_the_suggestion(x in 1u16..24, y in 1u16..24, z in 1u16..24) {
            let accelerator = Accelerator::V5pSlice;
            let topology = Topology::new_3d(x, y, z).unwrap();
            prop_assume!(topology.chips() <= accelerator.largest().chips());
            let difference = |legal: Topology| -> i32 {
                let (mut a, mut b) = ([x, y, z], legal.extent().dims());
                a.sort_unstable();
                b.sort_unstable();
                a.iter().zip(b).map(|(&a, b)| (i32::from(a) - i32::from(b)).abs()).sum()
            };
            let suggested = difference(accelerator.nearest_topology(topology));
            prop_assert!(accelerator.topologies().all(|legal| difference(legal) >= suggested));
        }

        #[test]
        fn arbitrary_text_is_harmless(accelerator in any_accelerator(), text in "[0-9xX*, ]{0,10}|\\PC{0,20}") {
            match accelerator.parse_topology(&text) {
                Ok(topology) => prop_assert!(accelerator.supports(topology)),
                Err(error) => {
                    prop_assert!(error.suggestion().is_none_or(|topology| accelerator.supports(topology)));
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }

        #[test]
        fn the_smallest_slice_with_enough_chips(accelerator in any_accelerator(), chips in 0u32..10_000) {
            let brute = accelerator.topologies().map(Topology::chips).filter(|&c| c >= chips).min();
            let found = accelerator.smallest_with(chips);
            prop_assert_eq!(found.map(Topology::chips), brute);
            prop_assert!(found.is_none_or(|topology| accelerator.supports(topology)));
            let exact = accelerator.default_topology(chips);
            prop_assert_eq!(exact.is_some(), brute == Some(chips));
            prop_assert!(exact.is_none_or(|topology| accelerator.supports(topology) && topology.chips() == chips));
        }
    }
}
