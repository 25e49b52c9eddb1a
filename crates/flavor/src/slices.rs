//! Why whole slices of TPUs cannot be had, with the numbers.

use std::fmt;

use slicegate_quota::ResourceId;

/// What stands between pods and whole slices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SliceShortage {
    /// The pods make no slice that exists.
    NoSlice {
        /// What is wrong, and what would be right.
        why: Box<str>,
    },
    /// No node pool is known whose slices would do.
    NoPool {
        /// The topology, if the pods or the flavor name one.
        topology: Option<Box<str>>,
        /// Chips that each pod asks for.
        chips_per_pod: u32,
    },
    /// Fewer slices are free than are needed.
    Short(SliceCounts),
}

/// Slices that pods could lie on, and what they are used for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SliceCounts {
    /// The topology of each.
    pub topology: Box<str>,
    /// Chips of each.
    pub chips: u32,
    /// How many the pods need.
    pub needed: u32,
    /// How many of them are free: whole, or not there yet and to be provisioned.
    pub free: u32,
    /// How many are given to others.
    pub in_use: u32,
    /// How many are broken and nobody's: a node is missing, not ready, cordoned or about to be taken away.
    pub broken: u32,
    /// How many there could be at most, were all whole.
    pub total: u32,
    /// The topology of the largest slice of the flavor that is free, if any is.
    pub largest_free: Option<Box<str>>,
}

/// The answer to whether whole slices can be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicesMissing {
    /// The resource that counts chips.
    pub resource: ResourceId,
    /// Whether they could be had if others left.
    pub if_others_left: bool,
    /// Why they cannot be had now.
    pub shortage: SliceShortage,
}

impl SliceCounts {
    /// Whether there would be too few even if all were whole and nobody else had any.
    pub fn exceeds_total(&self) -> bool {
        self.needed > self.total
    }
}

fn slices(n: u32) -> &'static str {
    if n == 1 { "slice" } else { "slices" }
}

impl fmt::Display for SliceCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topology, chips, needed, free, in_use, broken, total, largest_free } = self;
        let is = if *free == 1 { "is" } else { "are" };
        write!(f, "{free} {} of {topology} {is} free, {needed} needed", slices(*free))?;
        match total {
            _ if !self.exceeds_total() => {}
            0 => f.write_str("; there are none")?,
            1 => f.write_str("; there is 1 in all")?,
            _ => write!(f, "; there are {total} in all")?,
        }
        if *in_use > 0 {
            write!(f, "; {in_use} in use")?;
        }
        if *broken > 0 {
            let idle = u64::from(*broken).saturating_mul(u64::from(*chips));
            write!(f, "; {idle} chips are free, but on {broken} broken {}", slices(*broken))?;
        }
        match largest_free {
            Some(largest) if *free == 0 => write!(f, "; the largest free slice is {largest}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for SliceShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlice { why } => f.write_str(why),
            Self::NoPool { topology: Some(topology), chips_per_pod } => write!(
                f,
                "no node pool is known that has {topology} slices of hosts with {chips_per_pod} chips and takes the pods"
            ),
            Self::NoPool { topology: None, chips_per_pod } => {
                write!(f, "no node pool is known that has hosts with {chips_per_pod} chips and takes the pods")
            }
            Self::Short(counts) => counts.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(needed: u32, free: u32, in_use: u32, broken: u32) -> SliceCounts {
        SliceCounts {
            topology: "2x4".into(),
            chips: 8,
            needed,
            free,
            in_use,
            broken,
            total: free + in_use + broken,
            largest_free: None,
        }
    }

    #[test]
    fn the_numbers_are_told() {
        assert_eq!(
            counts(3, 1, 0, 2).to_string(),
            "1 slice of 2x4 is free, 3 needed; 16 chips are free, but on 2 broken slices"
        );
        assert_eq!(counts(3, 2, 1, 0).to_string(), "2 slices of 2x4 are free, 3 needed; 1 in use");
        assert_eq!(counts(4, 0, 3, 0).to_string(), "0 slices of 2x4 are free, 4 needed; there are 3 in all; 3 in use");
        let large = SliceCounts { topology: "4x4".into(), largest_free: Some("2x4".into()), ..counts(1, 0, 1, 0) };
        assert_eq!(large.to_string(), "0 slices of 4x4 are free, 1 needed; 1 in use; the largest free slice is 2x4");
    }
}
