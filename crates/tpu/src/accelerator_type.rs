//! Accelerator types: the names by which Compute Engine and the runtime call a slice, such as `v5p-128`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::accelerator::Accelerator;
use crate::suggest;
use crate::topology::Topology;

/// A generation and a size in one name: `v5litepod-16`, `v6e-16`, `v5p-128`, `tpu7x-128`.
///
/// The number counts TensorCores on v3, v4, v5p and TPU7x, and chips on v5e and v6e (which have one core a chip). It says
/// how many chips there are but not their shape; [`AcceleratorType::topology`] gives the default one. A value of this
/// type is always the name of a slice that exists.
///
/// ```
/// use slicegate_tpu::{AcceleratorType, Topology};
///
/// let name: AcceleratorType = "v5p-128".parse()?;
/// assert_eq!(name.chips(), 64);
/// assert_eq!(name.topology(), Topology::CUBE);
///
/// let error = "v5p-100".parse::<AcceleratorType>().unwrap_err();
/// assert_eq!(error.to_string(), "\"v5p-100\" is not an accelerator type: no v5p slice has that size; did you mean v5p-128?");
/// # Ok::<(), slicegate_tpu::ParseAcceleratorTypeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AcceleratorType {
    accelerator: Accelerator,
    topology: Topology,
}

impl AcceleratorType {
    /// The name for slices of this accelerator with this many chips; `None` if there are none.
    pub fn with_chips(accelerator: Accelerator, chips: u32) -> Option<Self> {
        Some(Self { accelerator, topology: accelerator.default_topology(chips)? })
    }

    /// The name of a slice that is known to exist.
    pub(crate) fn of(accelerator: Accelerator, topology: Topology) -> Self {
        Self { accelerator, topology: accelerator.default_topology(topology.chips()).unwrap_or(topology) }
    }

    /// The accelerator. `v3-8` is read as a device, since no v3 slice is that small.
    pub const fn accelerator(self) -> Accelerator {
        self.accelerator
    }

    /// The number of chips.
    pub const fn chips(self) -> u32 {
        self.topology.chips()
    }

    /// The number in the name.
    pub const fn size(self) -> u32 {
        self.chips() * self.accelerator.type_units_per_chip()
    }

    /// The shape the name stands for where it is not stated: [`Accelerator::default_topology`].
    pub const fn topology(self) -> Topology {
        self.topology
    }
}

impl fmt::Display for AcceleratorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.accelerator.type_prefix(), self.size())
    }
}

/// A text that is not the name of an accelerator type.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct ParseAcceleratorTypeError {
    /// What was read, cut after 64 characters.
    pub input: String,
    /// What is wrong with it.
    pub problem: AcceleratorTypeProblem,
    /// The accelerator type most likely meant: the next larger size, or the largest.
    pub suggestion: Option<AcceleratorType>,
}

impl fmt::Display for ParseAcceleratorTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an accelerator type: {}", self.input, self.problem)?;
        match self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
            None => f.write_str("; the names look like v5p-128"),
        }
    }
}

/// Why a text is not the name of an accelerator type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AcceleratorTypeProblem {
    /// There is no dash with a plain decimal number behind it.
    #[error("it does not end in a dash and a size")]
    NoSize,
    /// What stands before the size names no TPU.
    #[error("no TPU is called so")]
    UnknownPrefix,
    /// There are slices of this accelerator, but none of this size.
    #[error("no {} slice has that size", accelerator.generation())]
    NoSuchSize {
        /// The accelerator.
        accelerator: Accelerator,
        /// The number read.
        size: u32,
    },
}

impl FromStr for AcceleratorType {
    type Err = ParseAcceleratorTypeError;

    fn from_str(text: &str) -> Result<Self, ParseAcceleratorTypeError> {
        let error =
            |problem, suggestion| ParseAcceleratorTypeError { input: suggest::excerpt(text), problem, suggestion };
        let parts = text.rsplit_once('-').and_then(|(prefix, digits)| Some((prefix, parse_size(digits)?)));
        let Some((prefix, size)) = parts else { return Err(error(AcceleratorTypeProblem::NoSize, None)) };
        // Two accelerators share the prefix `v3`; the sizes tell them apart.
        let exact = named(prefix).find_map(|accelerator| with_size(accelerator, size));
        if let Some(name) = exact {
            return Ok(name);
        }
        let near = named(prefix)
            .map(|accelerator| near_size(accelerator, size))
            .min_by_key(|name| (name.size() < size, name.size().abs_diff(size)));
        if let Some(name) = near {
            return Err(error(AcceleratorTypeProblem::NoSuchSize { accelerator: name.accelerator, size }, near));
        }
        let prefixes = Accelerator::ALL.into_iter().map(|accelerator| (accelerator, accelerator.type_prefix()));
        let accelerator = Accelerator::from_common_name(prefix).or_else(|| suggest::nearest(prefix, prefixes));
        let suggestion = accelerator.map(|accelerator| near_size(accelerator, size));
        Err(error(AcceleratorTypeProblem::UnknownPrefix, suggestion))
    }
}

/// The accelerators whose accelerator types start with this word.
fn named(prefix: &str) -> impl Iterator<Item = Accelerator> {
    Accelerator::ALL.into_iter().filter(move |accelerator| accelerator.type_prefix() == prefix)
}

fn parse_size(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

fn with_size(accelerator: Accelerator, size: u32) -> Option<AcceleratorType> {
    let units = accelerator.type_units_per_chip();
    if size.is_multiple_of(units) { AcceleratorType::with_chips(accelerator, size / units) } else { None }
}

/// The smallest slice of at least this size, or the largest there is.
fn near_size(accelerator: Accelerator, size: u32) -> AcceleratorType {
    let chips = size.div_ceil(accelerator.type_units_per_chip());
    let topology = accelerator.smallest_with(chips).unwrap_or_else(|| accelerator.largest());
    AcceleratorType::of(accelerator, topology)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::tests::all_slices;
    use proptest::prelude::*;

    #[track_caller]
    fn check(name: &str, accelerator: Accelerator, topology: &str) {
        let parsed: AcceleratorType = name.parse().unwrap();
        assert_eq!((parsed.accelerator(), parsed.topology().to_string().as_str()), (accelerator, topology));
        assert_eq!(parsed.to_string(), name);
    }

    #[test]
    fn known_names() {
        check("v3-8", Accelerator::V3Device, "2x2");
        check("v3-32", Accelerator::V3Slice, "4x4");
        check("v3-2048", Accelerator::V3Slice, "32x32");
        check("v4lite-4", Accelerator::V4LiteDevice, "2x2");
        check("v4-8", Accelerator::V4Podslice, "2x2x1");
        check("v4-4096", Accelerator::V4Podslice, "8x16x16");
        check("v5lite-8", Accelerator::V5LiteDevice, "2x4");
        check("v5litepod-16", Accelerator::V5LitePodslice, "4x4");
        check("v5p-128", Accelerator::V5pSlice, "4x4x4");
        check("v5p-12288", Accelerator::V5pSlice, "16x16x24");
        check("v6e-16", Accelerator::V6eSlice, "4x4");
        check("tpu7x-128", Accelerator::Tpu7x, "4x4x4");
    }

    #[test]
    fn names_of_all_slices_round_trip() {
        for slice in all_slices() {
            let name = slice.accelerator_type();
            assert_eq!(name.chips(), slice.chips());
            assert_eq!(name.to_string().parse(), Ok(name));
            assert!(slice.accelerator().supports(name.topology()));
        }
    }

    #[track_caller]
    fn check_error(name: &str, message: &str) {
        assert_eq!(name.parse::<AcceleratorType>().unwrap_err().to_string(), message);
    }

    #[test]
    fn errors_name_the_next_size_up() {
        check_error("v3-9", r#""v3-9" is not an accelerator type: no v3 slice has that size; did you mean v3-32?"#);
        check_error(
            "v6e-016",
            r#""v6e-016" is not an accelerator type: it does not end in a dash and a size; the names look like v5p-128"#,
        );
        check_error(
            "v6e-17",
            r#""v6e-17" is not an accelerator type: no v6e slice has that size; did you mean v6e-32?"#,
        );
        check_error(
            "v6e-512",
            r#""v6e-512" is not an accelerator type: no v6e slice has that size; did you mean v6e-256?"#,
        );
        check_error("v5p-9", r#""v5p-9" is not an accelerator type: no v5p slice has that size; did you mean v5p-16?"#);
        check_error(
            "v5e-16",
            r#""v5e-16" is not an accelerator type: no TPU is called so; did you mean v5litepod-16?"#,
        );
        check_error("v7x-128", r#""v7x-128" is not an accelerator type: no TPU is called so; did you mean tpu7x-128?"#);
        check_error(
            "a100-8",
            r#""a100-8" is not an accelerator type: no TPU is called so; the names look like v5p-128"#,
        );
        check_error(
            "v5p",
            r#""v5p" is not an accelerator type: it does not end in a dash and a size; the names look like v5p-128"#,
        );
        check_error(
            "v5p-+8",
            r#""v5p-+8" is not an accelerator type: it does not end in a dash and a size; the names look like v5p-128"#,
        );
    }

    proptest! {
        #[test]
        fn any_text_is_harmless_and_suggestions_are_names(text in "(v3|v4|v5p|v5e|v6e|tpu7x|v5litepod)-[0-9]{0,6}|\\PC{0,30}") {
            match text.parse::<AcceleratorType>() {
                Ok(name) => prop_assert_eq!(name.to_string(), text),
                Err(error) => if let Some(suggestion) = error.suggestion {
                    prop_assert_eq!(suggestion.to_string().parse::<AcceleratorType>(), Ok(suggestion));
                },
            }
        }
    }
}
