//! TPU generations and the accelerators that GKE sells of them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::machine::MachineType;
use crate::suggest;
use crate::topology::Topology;

/// A TPU generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Generation {
    /// TPU v3.
    V3,
    /// TPU v4.
    V4,
    /// TPU v5e.
    V5e,
    /// TPU v5p.
    V5p,
    /// TPU v6e, Trillium.
    V6e,
    /// TPU7x, Ironwood.
    Tpu7x,
}

impl Generation {
    /// Every generation, oldest first.
    pub const ALL: [Self; 6] = [Self::V3, Self::V4, Self::V5e, Self::V5p, Self::V6e, Self::Tpu7x];

    /// The generation's name: `v5e`, `TPU7x`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V3 => "v3",
            Self::V4 => "v4",
            Self::V5e => "v5e",
            Self::V5p => "v5p",
            Self::V6e => "v6e",
            Self::Tpu7x => "TPU7x",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|generation| generation.name().eq_ignore_ascii_case(name))
    }

    /// TensorCores in one chip.
    pub const fn cores_per_chip(self) -> u32 {
        match self {
            Self::V3 | Self::V4 | Self::V5p | Self::Tpu7x => 2,
            Self::V5e | Self::V6e => 1,
        }
    }

    /// High-bandwidth memory of one chip in GB, as published. A program sees a little less: 31.25 of a v6e's 32.
    pub const fn hbm_gb_per_chip(self) -> u32 {
        match self {
            Self::V3 | Self::V4 | Self::V6e => 32,
            Self::V5e => 16,
            Self::V5p => 95,
            Self::Tpu7x => 192,
        }
    }

    /// Chips in one full pod. Not all of them can be one slice: see [`Accelerator::largest`].
    pub const fn pod_chips(self) -> u32 {
        match self {
            Self::V3 => 1024,
            Self::V4 => 4096,
            Self::V5e | Self::V6e => 256,
            Self::V5p => 8960,
            Self::Tpu7x => 9216,
        }
    }

    /// Whether chips form a 2D or a 3D grid.
    pub const fn is_3d(self) -> bool {
        matches!(self, Self::V4 | Self::V5p | Self::Tpu7x)
    }

    /// The accelerator of this generation that makes slices of several hosts.
    pub const fn slice_accelerator(self) -> Accelerator {
        match self {
            Self::V3 => Accelerator::V3Slice,
            Self::V4 => Accelerator::V4Podslice,
            Self::V5e => Accelerator::V5LitePodslice,
            Self::V5p => Accelerator::V5pSlice,
            Self::V6e => Accelerator::V6eSlice,
            Self::Tpu7x => Accelerator::Tpu7x,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An accelerator as GKE sells it: the value of a node's `cloud.google.com/gke-tpu-accelerator` label.
///
/// A generation may be sold twice, as a *device* (one VM is all there is) and as a *slice* (several VMs may share one
/// interconnect). `tpu7`, which appears in autoscaler sources but in no product page, is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Accelerator {
    /// `tpu-v3-device`: one v3 host.
    V3Device,
    /// `tpu-v3-slice`: v3 slices of several hosts.
    V3Slice,
    /// `tpu-v4-lite-device`: one host of v4 lite.
    V4LiteDevice,
    /// `tpu-v4-podslice`: v4 slices.
    V4Podslice,
    /// `tpu-v5-lite-device`: one v5e host, outside of any pod.
    V5LiteDevice,
    /// `tpu-v5-lite-podslice`: v5e slices.
    V5LitePodslice,
    /// `tpu-v5p-slice`: v5p slices.
    V5pSlice,
    /// `tpu-v6e-slice`: v6e slices.
    V6eSlice,
    /// `tpu7x`: TPU7x slices.
    Tpu7x,
}

/// What is known about an accelerator.
struct Spec {
    label: &'static str,
    short_name: &'static str,
    generation: Generation,
    type_prefix: &'static str,
    /// What one chip adds to the number in an accelerator type's name.
    type_units_per_chip: u32,
    shapes: Shapes,
    machines: &'static [MachineType],
}

/// The legal topologies of an accelerator.
#[derive(Clone, Copy)]
pub(crate) enum Shapes {
    /// These, in order of size.
    Listed(&'static [Topology]),
    /// Those listed, which are smaller than a cube, and every box of at most `max_cubes` cubes with sizes that do not
    /// decrease and are at most [`MAX_CUBES_PER_AXIS`] cubes.
    Cubes { small: &'static [Topology], max_cubes: u32 },
}

/// No axis of a 3D slice is longer than 256 chips.
pub(crate) const MAX_CUBES_PER_AXIS: u16 = 64;

const DEVICE_4: &[Topology] = &[Topology::flat(2, 2)];
const DEVICE_8: &[Topology] = &[Topology::flat(1, 1), Topology::flat(2, 2), Topology::flat(2, 4)];
const V3_SLICES: &[Topology] = &[
    Topology::flat(4, 4),
    Topology::flat(4, 8),
    Topology::flat(8, 8),
    Topology::flat(8, 16),
    Topology::flat(16, 16),
    Topology::flat(16, 32),
    Topology::flat(32, 32),
];
const LITE_SLICES: &[Topology] = &[
    Topology::flat(1, 1),
    Topology::flat(2, 2),
    Topology::flat(2, 4),
    Topology::flat(4, 4),
    Topology::flat(4, 8),
    Topology::flat(8, 8),
    Topology::flat(8, 16),
    Topology::flat(16, 16),
];
const BELOW_CUBE: &[Topology] =
    &[Topology::solid(2, 2, 1), Topology::solid(2, 2, 2), Topology::solid(2, 2, 4), Topology::solid(2, 4, 4)];
const BELOW_CUBE_TPU7X: &[Topology] = &[
    Topology::solid(1, 1, 1),
    Topology::solid(2, 2, 1),
    Topology::solid(2, 2, 2),
    Topology::solid(2, 2, 4),
    Topology::solid(2, 4, 4),
];

static V3_DEVICE: Spec = Spec {
    label: "tpu-v3-device",
    short_name: "v3 device",
    generation: Generation::V3,
    type_prefix: "v3",
    type_units_per_chip: 2,
    shapes: Shapes::Listed(DEVICE_4),
    machines: &[MachineType::Ct3Hightpu4t],
};
static V3_SLICE: Spec = Spec {
    label: "tpu-v3-slice",
    short_name: "v3",
    generation: Generation::V3,
    type_prefix: "v3",
    type_units_per_chip: 2,
    shapes: Shapes::Listed(V3_SLICES),
    machines: &[MachineType::Ct3pHightpu4t],
};
static V4_LITE_DEVICE: Spec = Spec {
    label: "tpu-v4-lite-device",
    short_name: "v4 lite",
    generation: Generation::V4,
    type_prefix: "v4lite",
    // A chip has two cores, but the device plugin's names count every lite chip once.
    type_units_per_chip: 1,
    shapes: Shapes::Listed(DEVICE_4),
    machines: &[MachineType::Ct4lHightpu4t],
};
static V4_PODSLICE: Spec = Spec {
    label: "tpu-v4-podslice",
    short_name: "v4",
    generation: Generation::V4,
    type_prefix: "v4",
    type_units_per_chip: 2,
    // GKE's page ends at 12x16x16; other validators go on to a full pod of 64 cubes.
    shapes: Shapes::Cubes { small: BELOW_CUBE, max_cubes: 48 },
    machines: &[MachineType::Ct4pHightpu4t],
};
static V5_LITE_DEVICE: Spec = Spec {
    label: "tpu-v5-lite-device",
    short_name: "v5e device",
    generation: Generation::V5e,
    type_prefix: "v5lite",
    type_units_per_chip: 1,
    shapes: Shapes::Listed(DEVICE_8),
    machines: &[MachineType::Ct5lHightpu1t, MachineType::Ct5lHightpu4t, MachineType::Ct5lHightpu8t],
};
static V5_LITE_PODSLICE: Spec = Spec {
    label: "tpu-v5-lite-podslice",
    short_name: "v5e",
    generation: Generation::V5e,
    type_prefix: "v5litepod",
    type_units_per_chip: 1,
    shapes: Shapes::Listed(LITE_SLICES),
    machines: &[MachineType::Ct5lpHightpu1t, MachineType::Ct5lpHightpu4t, MachineType::Ct5lpHightpu8t],
};
static V5P_SLICE: Spec = Spec {
    label: "tpu-v5p-slice",
    short_name: "v5p",
    generation: Generation::V5p,
    type_prefix: "v5p",
    type_units_per_chip: 2,
    // GKE's page ends at 16x16x24; xpk goes on to a full pod of 140 cubes.
    shapes: Shapes::Cubes { small: BELOW_CUBE, max_cubes: 96 },
    machines: &[MachineType::Ct5pHightpu4t],
};
static V6E_SLICE: Spec = Spec {
    label: "tpu-v6e-slice",
    short_name: "v6e",
    generation: Generation::V6e,
    type_prefix: "v6e",
    type_units_per_chip: 1,
    shapes: Shapes::Listed(LITE_SLICES),
    machines: &[MachineType::Ct6eStandard1t, MachineType::Ct6eStandard4t, MachineType::Ct6eStandard8t],
};
static TPU7X: Spec = Spec {
    label: "tpu7x",
    short_name: "TPU7x",
    generation: Generation::Tpu7x,
    type_prefix: "tpu7x",
    type_units_per_chip: 2,
    shapes: Shapes::Cubes { small: BELOW_CUBE_TPU7X, max_cubes: 144 },
    machines: &[MachineType::Tpu7xStandard1t, MachineType::Tpu7xStandard4t, MachineType::Tpu7xUltranet4t],
};

impl Accelerator {
    /// Every accelerator, oldest generation first.
    pub const ALL: [Self; 9] = [
        Self::V3Device,
        Self::V3Slice,
        Self::V4LiteDevice,
        Self::V4Podslice,
        Self::V5LiteDevice,
        Self::V5LitePodslice,
        Self::V5pSlice,
        Self::V6eSlice,
        Self::Tpu7x,
    ];

    const fn spec(self) -> &'static Spec {
        match self {
            Self::V3Device => &V3_DEVICE,
            Self::V3Slice => &V3_SLICE,
            Self::V4LiteDevice => &V4_LITE_DEVICE,
            Self::V4Podslice => &V4_PODSLICE,
            Self::V5LiteDevice => &V5_LITE_DEVICE,
            Self::V5LitePodslice => &V5_LITE_PODSLICE,
            Self::V5pSlice => &V5P_SLICE,
            Self::V6eSlice => &V6E_SLICE,
            Self::Tpu7x => &TPU7X,
        }
    }

    /// The value of the node label `cloud.google.com/gke-tpu-accelerator`.
    pub const fn label(self) -> &'static str {
        self.spec().label
    }

    /// A short name for messages: `v5e`, `v5e device`, `TPU7x`.
    pub const fn short_name(self) -> &'static str {
        self.spec().short_name
    }

    /// The generation its chips are of.
    pub const fn generation(self) -> Generation {
        self.spec().generation
    }

    /// The machine types that carry this accelerator, smallest first; the last ones are used only when named.
    pub const fn machine_types(self) -> &'static [MachineType] {
        self.spec().machines
    }

    /// The word before the number in an accelerator type's name: `v5litepod` in `v5litepod-16`.
    pub const fn type_prefix(self) -> &'static str {
        self.spec().type_prefix
    }

    pub(crate) const fn type_units_per_chip(self) -> u32 {
        self.spec().type_units_per_chip
    }

    pub(crate) const fn shapes(self) -> Shapes {
        self.spec().shapes
    }

    /// Whether slices of several hosts exist.
    pub fn has_multi_host_slices(self) -> bool {
        self.machine_types().iter().any(|machine| machine.makes_multi_host_slices())
    }
}

impl fmt::Display for Accelerator {
    /// The label value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// A name that is no accelerator's.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct UnknownAccelerator {
    /// What was read, cut after 64 characters.
    pub name: String,
    /// The accelerator with the most similar name, if any is similar.
    pub suggestion: Option<Accelerator>,
}

impl fmt::Display for UnknownAccelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a TPU accelerator", self.name)?;
        if let Some(suggestion) = self.suggestion {
            write!(f, "; did you mean {suggestion}?")
        } else {
            f.write_str("; the accelerators are ")?;
            for (i, accelerator) in Accelerator::ALL.into_iter().enumerate() {
                write!(f, "{}{accelerator}", if i == 0 { "" } else { ", " })?;
            }
            Ok(())
        }
    }
}

impl FromStr for Accelerator {
    type Err = UnknownAccelerator;

    /// Reads a label value, exactly as nodes carry it. The names people use instead (`v5e`, `v6e`, `Trillium`) lead to
    /// a suggestion; [`Accelerator::from_common_name`] accepts them.
    fn from_str(name: &str) -> Result<Self, UnknownAccelerator> {
        if let Some(accelerator) = Self::ALL.into_iter().find(|accelerator| accelerator.label() == name) {
            return Ok(accelerator);
        }
        let suggestion = Self::from_common_name(name).or_else(|| {
            // A generation that is spelt right outweighs the similarity of the rest.
            let generation = name.split('-').find_map(Generation::from_name);
            let candidates = Self::ALL.into_iter().filter(|a| generation.is_none_or(|g| a.generation() == g));
            suggest::nearest(name, candidates.map(|a| (a, a.label()))).or(generation.map(Generation::slice_accelerator))
        });
        Err(UnknownAccelerator { name: suggest::excerpt(name), suggestion })
    }
}

impl Accelerator {
    /// The accelerator that a label value, a generation (`v5e`), an accelerator type's prefix (`v5litepod`) or a code
    /// name (`Trillium`, `Ironwood`) stands for. Case does not count. A generation means the accelerator that makes
    /// slices of several hosts.
    ///
    /// ```
    /// use slicegate_tpu::Accelerator;
    ///
    /// assert_eq!(Accelerator::from_common_name("trillium"), Some(Accelerator::V6eSlice));
    /// assert_eq!(Accelerator::from_common_name("v5e"), Some(Accelerator::V5LitePodslice));
    /// assert_eq!(Accelerator::from_common_name("gpu"), None);
    /// ```
    pub fn from_common_name(name: &str) -> Option<Self> {
        let is = |other: &str| other.eq_ignore_ascii_case(name);
        let by_generation = || Generation::from_name(name).map(Generation::slice_accelerator);
        let by_code_name = || {
            const NICKNAMES: [(&str, Accelerator); 5] = [
                ("trillium", Accelerator::V6eSlice),
                ("ironwood", Accelerator::Tpu7x),
                ("v7x", Accelerator::Tpu7x),
                ("v5litepod", Accelerator::V5LitePodslice),
                ("v5lite", Accelerator::V5LiteDevice),
            ];
            NICKNAMES.into_iter().find(|&(nickname, _)| is(nickname)).map(|(_, accelerator)| accelerator)
        };
        Self::ALL.into_iter().find(|accelerator| is(accelerator.label())).or_else(by_generation).or_else(by_code_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_parse_back_and_are_distinct() {
        for accelerator in Accelerator::ALL {
            assert_eq!(accelerator.label().parse(), Ok(accelerator));
            assert_eq!(accelerator.to_string(), accelerator.label());
        }
    }

    #[test]
    fn machines_and_accelerators_name_each_other() {
        for accelerator in Accelerator::ALL {
            assert!(!accelerator.machine_types().is_empty());
            for machine in accelerator.machine_types() {
                assert_eq!(machine.accelerator(), accelerator);
            }
        }
        for machine in MachineType::ALL {
            assert!(machine.accelerator().machine_types().contains(&machine));
        }
    }

    #[test]
    fn generations_have_the_published_sizes() {
        let sizes: Vec<_> = Generation::ALL
            .into_iter()
            .map(|g| (g.name(), g.cores_per_chip(), g.hbm_gb_per_chip(), g.pod_chips(), g.is_3d()))
            .collect();
        assert_eq!(
            sizes,
            [
                ("v3", 2, 32, 1024, false),
                ("v4", 2, 32, 4096, true),
                ("v5e", 1, 16, 256, false),
                ("v5p", 2, 95, 8960, true),
                ("v6e", 1, 32, 256, false),
                ("TPU7x", 2, 192, 9216, true),
            ]
        );
    }

    #[test]
    fn devices_are_single_host_and_slices_are_not() {
        let single: Vec<_> = Accelerator::ALL.into_iter().filter(|a| !a.has_multi_host_slices()).collect();
        assert_eq!(single, [Accelerator::V3Device, Accelerator::V4LiteDevice, Accelerator::V5LiteDevice]);
        for generation in Generation::ALL {
            assert_eq!(generation.slice_accelerator().generation(), generation);
            assert!(generation.slice_accelerator().has_multi_host_slices());
        }
    }

    #[track_caller]
    fn check_error(name: &str, message: &str) {
        assert_eq!(name.parse::<Accelerator>().unwrap_err().to_string(), message);
    }

    #[test]
    fn errors_suggest_the_label() {
        check_error("v5e", r#""v5e" is not a TPU accelerator; did you mean tpu-v5-lite-podslice?"#);
        check_error("tpu-v6e-podslice", r#""tpu-v6e-podslice" is not a TPU accelerator; did you mean tpu-v6e-slice?"#);
        check_error("tpu-v3-devise", r#""tpu-v3-devise" is not a TPU accelerator; did you mean tpu-v3-device?"#);
        check_error("v6e-tpu", r#""v6e-tpu" is not a TPU accelerator; did you mean tpu-v6e-slice?"#);
        check_error("TPU7X", r#""TPU7X" is not a TPU accelerator; did you mean tpu7x?"#);
        check_error(
            "nvidia-h100-80gb",
            "\"nvidia-h100-80gb\" is not a TPU accelerator; the accelerators are tpu-v3-device, tpu-v3-slice, \
             tpu-v4-lite-device, tpu-v4-podslice, tpu-v5-lite-device, tpu-v5-lite-podslice, tpu-v5p-slice, \
             tpu-v6e-slice, tpu7x",
        );
    }

    proptest! {
        #[test]
        fn any_text_is_harmless(text in "\\PC{0,40}|tpu-?v?[0-9]?.{0,12}") {
            match text.parse::<Accelerator>() {
                Ok(accelerator) => prop_assert_eq!(accelerator.label(), text),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
