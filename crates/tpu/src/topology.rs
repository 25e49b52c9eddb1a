//! The shape of a slice in chips, as the `cloud.google.com/gke-tpu-topology` label writes it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::coord::{Axis, Extent};

/// A 2D or 3D shape in chips, such as `4x8` or `4x4x8`.
///
/// Any sizes from 1 to [`Topology::MAX_DIM`] make a topology; whether an accelerator can be bought in that shape is
/// [`Accelerator::check`](crate::Accelerator::check)'s question. Two topologies are equal when they are written alike:
/// `2x2` and `2x2x1` differ, as their labels do.
///
/// ```
/// use slicegate_tpu::Topology;
///
/// let topology: Topology = "4x4x8".parse()?;
/// assert_eq!(topology, Topology::new_3d(4, 4, 8).unwrap());
/// assert_eq!(topology.chips(), 128);
/// assert_eq!(topology.to_string(), "4x4x8");
/// # Ok::<(), slicegate_tpu::ParseTopologyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Topology {
    rank: Rank,
    extent: Extent,
}

/// How many numbers a topology is written with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rank {
    /// `AxB`: v3, v4 lite, v5e, v6e.
    Two,
    /// `AxBxC`: v4, v5p, TPU7x.
    Three,
}

impl Topology {
    /// The largest number in a topology. It is far above what is sold; it keeps every product inside 32 bits.
    pub const MAX_DIM: u16 = Extent::MAX_DIM;

    /// The shape `x`x`y`; `None` if a number is zero or above [`Topology::MAX_DIM`].
    pub const fn new_2d(x: u16, y: u16) -> Option<Self> {
        match Extent::new(x, y, 1) {
            Some(extent) => Some(Self { rank: Rank::Two, extent }),
            None => None,
        }
    }

    /// The shape `x`x`y`x`z`; `None` if a number is zero or above [`Topology::MAX_DIM`].
    pub const fn new_3d(x: u16, y: u16, z: u16) -> Option<Self> {
        match Extent::new(x, y, z) {
            Some(extent) => Some(Self { rank: Rank::Three, extent }),
            None => None,
        }
    }

    pub(crate) const fn flat(x: u16, y: u16) -> Self {
        Self { rank: Rank::Two, extent: Extent::of(x, y, 1) }
    }

    pub(crate) const fn solid(x: u16, y: u16, z: u16) -> Self {
        Self { rank: Rank::Three, extent: Extent::of(x, y, z) }
    }

    /// Equality where a trait cannot be called.
    pub(crate) const fn is(self, other: Self) -> bool {
        let (left, right) = (self.extent, other.extent);
        left.get(Axis::X) == right.get(Axis::X)
            && left.get(Axis::Y) == right.get(Axis::Y)
            && left.get(Axis::Z) == right.get(Axis::Z)
            && matches!(self.rank, Rank::Two) == matches!(other.rank, Rank::Two)
    }

    /// Whether this is written with two numbers or with three.
    pub const fn rank(self) -> Rank {
        self.rank
    }

    /// The sizes on the three axes; z is 1 for a 2D topology.
    pub const fn extent(self) -> Extent {
        self.extent
    }

    /// The number of chips: the product of the sizes.
    pub const fn chips(self) -> u32 {
        self.extent.volume()
    }

    /// The same shape turned so that its sizes do not decrease.
    #[must_use]
    pub fn sorted(self) -> Self {
        let [x, y, z] = self.extent.dims();
        match self.rank {
            Rank::Two => Self::flat(x.min(y), x.max(y)),
            Rank::Three => {
                let mut dims = [x, y, z];
                dims.sort_unstable();
                Self::solid(dims[0], dims[1], dims[2])
            }
        }
    }

    /// The number of 4x4x4 cubes, if this shape is made of whole ones.
    pub const fn cubes(self) -> Option<u32> {
        match self.cube_grid() {
            Some(grid) => Some(grid.volume()),
            None => None,
        }
    }

    /// How many 4x4x4 cubes go along each axis, if this shape is made of whole ones.
    pub const fn cube_grid(self) -> Option<Extent> {
        match self.rank {
            Rank::Two => None,
            Rank::Three => self.extent.tiles(Self::CUBE.extent),
        }
    }

    /// One cube: the unit that optical switches connect into larger slices.
    pub const CUBE: Self = Self::solid(4, 4, 4);
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.extent.dims();
        match self.rank {
            Rank::Two => f.pad(&Text::of(format_args!("{x}x{y}"))),
            Rank::Three => f.pad(&Text::of(format_args!("{x}x{y}x{z}"))),
        }
    }
}

/// A short text on the stack, so that padding (`{:>9}`) works without allocating.
struct Text {
    bytes: [u8; 16],
    len: usize,
}

impl Text {
    fn of(args: fmt::Arguments<'_>) -> Self {
        let mut text = Self { bytes: [0; 16], len: 0 };
        // Four digits, three times, and two `x`: 14 bytes at most.
        let _ = fmt::write(&mut text, args);
        text
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len + s.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// A text that is not a topology.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct ParseTopologyError {
    /// What was read, cut after 64 characters.
    pub input: String,
    /// What is wrong with it.
    pub problem: TopologyProblem,
    /// What the text most likely meant. It parses; no accelerator is known here, so it may still not be for sale.
    pub suggestion: Option<Topology>,
}

impl fmt::Display for ParseTopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a topology: {}", self.input, self.problem)?;
        match self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
            None => f.write_str("; write it as AxB or AxBxC, such as 4x8 or 4x4x8"),
        }
    }
}

/// Why a text is not a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TopologyProblem {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It has neither two nor three parts.
    #[error("it has {parts} parts where 2 or 3 are needed")]
    Parts {
        /// The number of parts between `x`.
        parts: usize,
    },
    /// A part is not written as a plain decimal number.
    #[error("its {axis} size is not a plain decimal number")]
    NotANumber {
        /// Which part.
        axis: Axis,
    },
    /// A part is zero.
    #[error("its {axis} size is 0")]
    Zero {
        /// Which part.
        axis: Axis,
    },
    /// A part is above [`Topology::MAX_DIM`].
    #[error("its {axis} size is above {}", Topology::MAX_DIM)]
    TooLarge {
        /// Which part.
        axis: Axis,
    },
}

impl FromStr for Topology {
    type Err = ParseTopologyError;

    /// Reads `AxB` or `AxBxC`: lower-case `x`, decimal numbers without sign, blank or leading zero. GKE compares label
    /// values byte by byte, so a shape written otherwise would match no node.
    fn from_str(text: &str) -> Result<Self, ParseTopologyError> {
        parse(text).map_err(|problem| ParseTopologyError {
            input: crate::suggest::excerpt(text),
            problem,
            suggestion: guess(text),
        })
    }
}

fn parse(text: &str) -> Result<Topology, TopologyProblem> {
    if text.is_empty() {
        return Err(TopologyProblem::Empty);
    }
    let mut dims = [1u16; 3];
    let mut parts = 0usize;
    for part in text.split('x') {
        if let (Some(dim), Some(&axis)) = (dims.get_mut(parts), Axis::ALL.get(parts)) {
            *dim = parse_dim(part, axis)?;
        }
        parts = parts.saturating_add(1);
    }
    let [x, y, z] = dims;
    match parts {
        2 => Ok(Topology::flat(x, y)),
        3 => Ok(Topology::solid(x, y, z)),
        _ => Err(TopologyProblem::Parts { parts }),
    }
}

fn parse_dim(part: &str, axis: Axis) -> Result<u16, TopologyProblem> {
    if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) || (part.len() > 1 && part.starts_with('0')) {
        return Err(TopologyProblem::NotANumber { axis });
    }
    match part.parse::<u16>() {
        Ok(0) => Err(TopologyProblem::Zero { axis }),
        Ok(dim) if dim <= Topology::MAX_DIM => Ok(dim),
        _ => Err(TopologyProblem::TooLarge { axis }),
    }
}

/// The topology whose numbers stand in the text, whatever stands between them: `4X8`, `4 x 8`, `4*8`, `4,8`, `04x8`.
fn guess(text: &str) -> Option<Topology> {
    let mut dims = [1u16; 3];
    let mut n_dims = 0usize;
    for number in text.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty()) {
        *dims.get_mut(n_dims)? = number.parse().ok()?;
        n_dims += 1;
    }
    let [x, y, z] = dims;
    match n_dims {
        2 => Topology::new_2d(x, y),
        3 => Topology::new_3d(x, y, z),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_error(text: &str, message: &str) {
        assert_eq!(text.parse::<Topology>().unwrap_err().to_string(), message);
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_was_meant() {
        check_error("", r#""" is not a topology: it is empty; write it as AxB or AxBxC, such as 4x8 or 4x4x8"#);
        check_error("4X8", r#""4X8" is not a topology: its x size is not a plain decimal number; did you mean 4x8?"#);
        check_error("4x04", r#""4x04" is not a topology: its y size is not a plain decimal number; did you mean 4x4?"#);
        check_error(
            "16",
            r#""16" is not a topology: it has 1 parts where 2 or 3 are needed; write it as AxB or AxBxC, such as 4x8 or 4x4x8"#,
        );
        check_error(
            "4x4x0",
            r#""4x4x0" is not a topology: its z size is 0; write it as AxB or AxBxC, such as 4x8 or 4x4x8"#,
        );
        check_error(
            "4x1025",
            r#""4x1025" is not a topology: its y size is above 1024; write it as AxB or AxBxC, such as 4x8 or 4x4x8"#,
        );
    }

    #[test]
    fn padding_works() {
        assert_eq!(format!("[{:>6}]", Topology::flat(4, 8)), "[   4x8]");
        assert_eq!(format!("{}", Topology::solid(1024, 1024, 1024)), "1024x1024x1024");
    }

    #[test]
    fn rank_matters_to_equality_but_not_to_chips() {
        let (flat, solid) = (Topology::flat(2, 2), Topology::solid(2, 2, 1));
        assert_ne!(flat, solid);
        assert_eq!(flat.chips(), solid.chips());
    }

    #[test]
    fn only_whole_cubes_count() {
        assert_eq!(Topology::solid(8, 8, 12).cubes(), Some(12));
        assert_eq!(Topology::solid(2, 4, 4).cubes(), None);
        assert_eq!(Topology::flat(4, 4).cubes(), None);
    }

    proptest! {
        #[test]
        fn display_parses_back(x in 1u16..=1024, y in 1u16..=1024, z in proptest::option::of(1u16..=1024)) {
            let topology = match z {
                Some(z) => Topology::new_3d(x, y, z),
                None => Topology::new_2d(x, y),
            }.unwrap();
            prop_assert_eq!(topology.to_string().parse::<Topology>(), Ok(topology));
        }

        #[test]
        fn nothing_panics_and_what_parses_is_written_back_alike(text in "[0-9xX ,*-]{0,12}|\\PC{0,80}") {
            match text.parse::<Topology>() {
                Ok(topology) => prop_assert_eq!(topology.to_string(), text),
                Err(error) => if let Some(suggestion) = error.suggestion {
                    prop_assert_eq!(suggestion.to_string().parse::<Topology>(), Ok(suggestion));
                },
            }
        }
    }
}
