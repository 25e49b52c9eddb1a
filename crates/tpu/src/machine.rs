//! The Compute Engine machine types that carry TPUs.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::accelerator::{Accelerator, Generation};
use crate::coord::Extent;
use crate::suggest;
use crate::topology::Topology;

/// A machine type with TPU chips. One VM of it is one host of a slice and one node of the cluster.
///
/// ```
/// use slicegate_tpu::{Accelerator, MachineType};
///
/// let machine: MachineType = "ct5lp-hightpu-4t".parse()?;
/// assert_eq!(machine.accelerator(), Accelerator::V5LitePodslice);
/// assert_eq!((machine.chips(), machine.vcpus(), machine.memory_gb()), (4, 112, 192));
///
/// let error = "ct5lp-highptu-4t".parse::<MachineType>().unwrap_err();
/// assert_eq!(error.suggestion, Some(machine));
/// # Ok::<(), slicegate_tpu::UnknownMachineType>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MachineType {
    /// `ct3-hightpu-4t`
    Ct3Hightpu4t,
    /// `ct3p-hightpu-4t`
    Ct3pHightpu4t,
    /// `ct4l-hightpu-4t`
    Ct4lHightpu4t,
    /// `ct4p-hightpu-4t`
    Ct4pHightpu4t,
    /// `ct5l-hightpu-1t`
    Ct5lHightpu1t,
    /// `ct5l-hightpu-4t`
    Ct5lHightpu4t,
    /// `ct5l-hightpu-8t`
    Ct5lHightpu8t,
    /// `ct5lp-hightpu-1t`
    Ct5lpHightpu1t,
    /// `ct5lp-hightpu-4t`
    Ct5lpHightpu4t,
    /// `ct5lp-hightpu-8t`
    Ct5lpHightpu8t,
    /// `ct5p-hightpu-4t`
    Ct5pHightpu4t,
    /// `ct6e-standard-1t`
    Ct6eStandard1t,
    /// `ct6e-standard-4t`
    Ct6eStandard4t,
    /// `ct6e-standard-8t`
    Ct6eStandard8t,
    /// `tpu7x-standard-1t`
    Tpu7xStandard1t,
    /// `tpu7x-standard-4t`
    Tpu7xStandard4t,
    /// `tpu7x-ultranet-4t`: as `tpu7x-standard-4t`, used only when a request names it.
    Tpu7xUltranet4t,
}

/// What is known about a machine type.
struct Spec {
    name: &'static str,
    accelerator: Accelerator,
    chips: ChipCount,
    vcpus: u32,
    memory_gb: u32,
    single_host: Option<Topology>,
    multi_host: bool,
    queued: bool,
}

#[derive(Clone, Copy)]
enum ChipCount {
    One,
    Four,
    Eight,
}

const fn spec(machine: MachineType) -> Spec {
    use ChipCount::{Eight, Four, One};
    const T1X1: Option<Topology> = Some(Topology::flat(1, 1));
    const T2X2: Option<Topology> = Some(Topology::flat(2, 2));
    const T2X4: Option<Topology> = Some(Topology::flat(2, 4));
    const T1X1X1: Option<Topology> = Some(Topology::solid(1, 1, 1));
    const T2X2X1: Option<Topology> = Some(Topology::solid(2, 2, 1));
    type Row = (
        &'static str,
        Accelerator,
        ChipCount,
        u32,
        u32,
        Option<Topology>,
        /* multi-host */ bool,
        /* queued */ bool,
    );
    let row: Row = match machine {
        MachineType::Ct3Hightpu4t => ("ct3-hightpu-4t", Accelerator::V3Device, Four, 96, 340, T2X2, false, false),
        MachineType::Ct3pHightpu4t => ("ct3p-hightpu-4t", Accelerator::V3Slice, Four, 48, 340, None, true, false),
        MachineType::Ct4lHightpu4t => ("ct4l-hightpu-4t", Accelerator::V4LiteDevice, Four, 48, 340, T2X2, false, false),
        MachineType::Ct4pHightpu4t => ("ct4p-hightpu-4t", Accelerator::V4Podslice, Four, 240, 407, T2X2X1, true, false),
        MachineType::Ct5lHightpu1t => ("ct5l-hightpu-1t", Accelerator::V5LiteDevice, One, 24, 48, T1X1, false, false),
        MachineType::Ct5lHightpu4t => {
            ("ct5l-hightpu-4t", Accelerator::V5LiteDevice, Four, 112, 192, T2X2, false, false)
        }
        MachineType::Ct5lHightpu8t => {
            ("ct5l-hightpu-8t", Accelerator::V5LiteDevice, Eight, 224, 384, T2X4, false, false)
        }
        MachineType::Ct5lpHightpu1t => {
            ("ct5lp-hightpu-1t", Accelerator::V5LitePodslice, One, 24, 48, T1X1, false, true)
        }
        MachineType::Ct5lpHightpu4t => {
            ("ct5lp-hightpu-4t", Accelerator::V5LitePodslice, Four, 112, 192, T2X2, true, true)
        }
        MachineType::Ct5lpHightpu8t => {
            ("ct5lp-hightpu-8t", Accelerator::V5LitePodslice, Eight, 224, 384, T2X4, false, true)
        }
        MachineType::Ct5pHightpu4t => ("ct5p-hightpu-4t", Accelerator::V5pSlice, Four, 208, 448, T2X2X1, true, true),
        MachineType::Ct6eStandard1t => ("ct6e-standard-1t", Accelerator::V6eSlice, One, 44, 176, T1X1, false, true),
        MachineType::Ct6eStandard4t => ("ct6e-standard-4t", Accelerator::V6eSlice, Four, 180, 720, T2X2, true, true),
        MachineType::Ct6eStandard8t => ("ct6e-standard-8t", Accelerator::V6eSlice, Eight, 180, 1440, T2X4, false, true),
        MachineType::Tpu7xStandard1t => ("tpu7x-standard-1t", Accelerator::Tpu7x, One, 56, 248, T1X1X1, false, true),
        // 992 GB in autoscaler sources, 960 in the product's pages.
        MachineType::Tpu7xStandard4t => ("tpu7x-standard-4t", Accelerator::Tpu7x, Four, 224, 960, T2X2X1, true, true),
        MachineType::Tpu7xUltranet4t => ("tpu7x-ultranet-4t", Accelerator::Tpu7x, Four, 224, 992, T2X2X1, true, true),
    };
    let (name, accelerator, chips, vcpus, memory_gb, single_host, multi_host, queued) = row;
    Spec { name, accelerator, chips, vcpus, memory_gb, single_host, multi_host, queued }
}

impl MachineType {
    /// Every machine type, oldest generation first.
    pub const ALL: [Self; 17] = [
        Self::Ct3Hightpu4t,
        Self::Ct3pHightpu4t,
        Self::Ct4lHightpu4t,
        Self::Ct4pHightpu4t,
        Self::Ct5lHightpu1t,
        Self::Ct5lHightpu4t,
        Self::Ct5lHightpu8t,
        Self::Ct5lpHightpu1t,
        Self::Ct5lpHightpu4t,
        Self::Ct5lpHightpu8t,
        Self::Ct5pHightpu4t,
        Self::Ct6eStandard1t,
        Self::Ct6eStandard4t,
        Self::Ct6eStandard8t,
        Self::Tpu7xStandard1t,
        Self::Tpu7xStandard4t,
        Self::Tpu7xUltranet4t,
    ];

    /// The name: `ct5lp-hightpu-4t`.
    pub const fn name(self) -> &'static str {
        spec(self).name
    }

    /// The accelerator it carries.
    pub const fn accelerator(self) -> Accelerator {
        spec(self).accelerator
    }

    /// The generation of its chips.
    pub const fn generation(self) -> Generation {
        self.accelerator().generation()
    }

    /// TPU chips in one VM: the node's `google.com/tpu`, which a pod must ask for in full.
    pub const fn chips(self) -> u32 {
        match spec(self).chips {
            ChipCount::One => 1,
            ChipCount::Four => 4,
            ChipCount::Eight => 8,
        }
    }

    /// Accepts a pod that asks for all the chips of a node, which is the only request for `google.com/tpu` that GKE
    /// schedules there.
    ///
    /// ```
    /// use slicegate_tpu::MachineType;
    ///
    /// assert!(MachineType::Ct6eStandard4t.check_request(4).is_ok());
    /// assert_eq!(
    ///     MachineType::Ct6eStandard4t.check_request(2).unwrap_err().to_string(),
    ///     "a pod on ct6e-standard-4t must ask for all 4 chips of its node, not for 2",
    /// );
    /// ```
    pub const fn check_request(self, chips: u32) -> Result<(), PartialNode> {
        if chips == self.chips() { Ok(()) } else { Err(PartialNode { machine_type: self, chips }) }
    }

    /// TensorCores in one VM.
    pub const fn cores(self) -> u32 {
        self.chips() * self.generation().cores_per_chip()
    }

    /// High-bandwidth memory of the chips of one VM in GB, as published: beside [`MachineType::memory_gb`], not part of it.
    pub const fn hbm_gb(self) -> u32 {
        self.chips() * self.generation().hbm_gb_per_chip()
    }

    /// How the chips of one VM lie: `1,1,1`, `2,2,1` or `2,4,1`. The runtime's `TPU_CHIPS_PER_HOST_BOUNDS`.
    pub const fn chip_bounds(self) -> Extent {
        match spec(self).chips {
            ChipCount::One => Extent::UNIT,
            ChipCount::Four => Extent::of(2, 2, 1),
            ChipCount::Eight => Extent::of(2, 4, 1),
        }
    }

    /// Virtual CPUs of one VM.
    pub const fn vcpus(self) -> u32 {
        spec(self).vcpus
    }

    /// Main memory of one VM in GB.
    ///
    /// Sources disagree about `tpu7x-standard-4t`: 992 or 960. This is the smaller.
    pub const fn memory_gb(self) -> u32 {
        spec(self).memory_gb
    }

    /// The topology of a slice that is one VM; `None` for `ct3p-hightpu-4t`, which is sold in larger slices only.
    pub const fn single_host_topology(self) -> Option<Topology> {
        spec(self).single_host
    }

    /// Whether several of these VMs can make up one slice.
    pub const fn makes_multi_host_slices(self) -> bool {
        spec(self).multi_host
    }

    /// Whether the Dynamic Workload Scheduler provisions it (flex-start and queued provisioning).
    pub const fn allows_flex_start(self) -> bool {
        spec(self).queued
    }

    /// Whether node auto-provisioning uses it only when a request names it.
    pub const fn is_explicit_only(self) -> bool {
        matches!(self, Self::Tpu7xUltranet4t)
    }
}

impl fmt::Display for MachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A pod that does not ask for exactly the chips of its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a pod on {machine_type} must ask for all {} chips of its node, not for {chips}", machine_type.chips())]
pub struct PartialNode {
    /// The machine type of the node.
    pub machine_type: MachineType,
    /// The chips asked for.
    pub chips: u32,
}

/// A name that is no TPU machine type's.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct UnknownMachineType {
    /// What was read, cut after 64 characters.
    pub name: String,
    /// The machine type with the most similar name, if any is similar.
    pub suggestion: Option<MachineType>,
}

impl fmt::Display for UnknownMachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a TPU machine type", self.name)?;
        match self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
            None => f.write_str("; their names look like ct6e-standard-4t"),
        }
    }
}

impl FromStr for MachineType {
    type Err = UnknownMachineType;

    fn from_str(name: &str) -> Result<Self, UnknownMachineType> {
        Self::ALL.into_iter().find(|machine| machine.name() == name).ok_or_else(|| UnknownMachineType {
            name: suggest::excerpt(name),
            suggestion: suggest::nearest(name, Self::ALL.into_iter().map(|machine| (machine, machine.name()))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_parse_back_and_end_in_the_chip_count() {
        for machine in MachineType::ALL {
            assert_eq!(machine.name().parse(), Ok(machine));
            assert!(machine.name().ends_with(&format!("-{}t", machine.chips())), "{machine}");
        }
    }

    #[test]
    fn a_host_holds_the_chips_of_its_bounds_and_of_its_own_topology() {
        for machine in MachineType::ALL {
            assert_eq!(machine.chip_bounds().volume(), machine.chips(), "{machine}");
            if let Some(topology) = machine.single_host_topology() {
                assert_eq!(topology.extent(), machine.chip_bounds(), "{machine}");
            }
            assert!(machine.single_host_topology().is_some() || machine.makes_multi_host_slices(), "{machine}");
        }
    }

    #[test]
    fn only_hosts_of_four_chips_join_into_slices() {
        for machine in MachineType::ALL {
            assert!(!machine.makes_multi_host_slices() || machine.chips() == 4, "{machine}");
        }
    }

    /// Name, chips, vCPUs, memory in GB, and whether the Dynamic Workload Scheduler provisions it.
    const PUBLISHED: &str = "\
        ct3-hightpu-4t    4  96  340 no
        ct3p-hightpu-4t   4  48  340 no
        ct4l-hightpu-4t   4  48  340 no
        ct4p-hightpu-4t   4 240  407 no
        ct5l-hightpu-1t   1  24   48 no
        ct5l-hightpu-4t   4 112  192 no
        ct5l-hightpu-8t   8 224  384 no
        ct5lp-hightpu-1t  1  24   48 yes
        ct5lp-hightpu-4t  4 112  192 yes
        ct5lp-hightpu-8t  8 224  384 yes
        ct5p-hightpu-4t   4 208  448 yes
        ct6e-standard-1t  1  44  176 yes
        ct6e-standard-4t  4 180  720 yes
        ct6e-standard-8t  8 180 1440 yes
        tpu7x-standard-1t 1  56  248 yes
        tpu7x-standard-4t 4 224  960 yes
        tpu7x-ultranet-4t 4 224  992 yes";

    #[test]
    fn sizes_are_the_published_ones() {
        assert_eq!(PUBLISHED.lines().count(), MachineType::ALL.len());
        for (line, machine) in PUBLISHED.lines().zip(MachineType::ALL) {
            let queued = if machine.allows_flex_start() { "yes" } else { "no" };
            let ours = format!("{machine} {} {} {} {queued}", machine.chips(), machine.vcpus(), machine.memory_gb());
            assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), ours);
        }
    }

    #[test]
    fn cores_are_counted_by_generation() {
        assert_eq!(MachineType::Ct6eStandard8t.cores(), 8);
        assert_eq!(MachineType::Ct5pHightpu4t.cores(), 8);
        assert_eq!(MachineType::Ct5lpHightpu1t.cores(), 1);
        assert_eq!(MachineType::Tpu7xStandard4t.hbm_gb(), 768);
    }

    #[test]
    fn errors_name_the_nearest() {
        let error = "ct6e-standart-4t".parse::<MachineType>().unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""ct6e-standart-4t" is not a TPU machine type; did you mean ct6e-standard-4t?"#
        );
        let error = "n2-standard-16".parse::<MachineType>().unwrap_err();
        assert_eq!(error.suggestion, None);
        assert_eq!(
            error.to_string(),
            r#""n2-standard-16" is not a TPU machine type; their names look like ct6e-standard-4t"#
        );
    }

    proptest! {
        #[test]
        fn any_text_is_harmless(text in "\\PC{0,80}|ct[0-9]l?p?-.{0,12}") {
            match text.parse::<MachineType>() {
                Ok(machine) => prop_assert_eq!(machine.name(), text),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn one_typing_error_is_forgiven(machine in proptest::sample::select(&MachineType::ALL[..]), at in 6usize..17) {
            let mut name = machine.name().to_owned();
            if at < name.len() {
                name.insert(at, '_');
                prop_assert_eq!(name.parse::<MachineType>().unwrap_err().suggestion, Some(machine));
            }
        }
    }
}
