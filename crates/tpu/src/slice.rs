//! A slice: hosts of one machine type whose chips share one interconnect.

use std::fmt;

use thiserror::Error;

use crate::accelerator::{Accelerator, Generation, UnknownAccelerator};
use crate::accelerator_type::AcceleratorType;
use crate::coord::{Axis, Block, Coord, Coords, Extent};
use crate::ici::Ici;
use crate::legal::{IllegalTopology, TopologyError};
use crate::machine::{MachineType, UnknownMachineType};
use crate::topology::{ParseTopologyError, Rank, Topology};

/// The shape of a slice: a machine type and a topology that GKE makes of it.
///
/// A value of this type is always legal, so everything about it can be computed without errors.
///
/// ```
/// use slicegate_tpu::SliceShape;
///
/// let slice = SliceShape::parse("ct5p-hightpu-4t", "4x4x8")?;
/// assert_eq!(slice.chips(), 128);
/// assert_eq!(slice.hosts(), 32);
/// assert_eq!(slice.chips_per_host(), 4);
/// assert_eq!(slice.host_bounds().to_string(), "2,2,8");
/// assert_eq!(slice.wrap().to_string(), "true,true,true");
/// assert_eq!(slice.accelerator_type().to_string(), "v5p-256");
/// # Ok::<(), slicegate_tpu::SliceError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SliceShape {
    machine_type: MachineType,
    topology: Topology,
}

/// Why a machine type and a topology make no slice.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SliceError {
    /// There is no such machine type.
    #[error(transparent)]
    MachineType(#[from] UnknownMachineType),
    /// There is no such accelerator.
    #[error(transparent)]
    Accelerator(#[from] UnknownAccelerator),
    /// The text is not a topology.
    #[error(transparent)]
    Parse(#[from] ParseTopologyError),
    /// The accelerator is not sold in this topology.
    #[error(transparent)]
    Topology(#[from] IllegalTopology),
    /// The accelerator is sold in this topology, but not on this machine type.
    #[error(transparent)]
    NotOnMachine(#[from] NotOnMachine),
    /// No machine type with this many chips makes this topology.
    #[error(transparent)]
    NoSuchNode(#[from] NoSuchNode),
}

impl From<TopologyError> for SliceError {
    fn from(error: TopologyError) -> Self {
        match error {
            TopologyError::Parse(error) => Self::Parse(error),
            TopologyError::Illegal(error) => Self::Topology(error),
        }
    }
}

/// A topology that other machine types of the same accelerator make, but not this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{machine_type} does not make {topology} slices; {suggestion} does")]
pub struct NotOnMachine {
    /// The machine type asked for.
    pub machine_type: MachineType,
    /// The topology asked for.
    pub topology: Topology,
    /// A machine type that makes it.
    pub suggestion: MachineType,
}

/// A number of chips a node that no machine type has that makes this topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "no machine type makes {topology} slices of {accelerator} from nodes with {chips_per_node} chips; {suggestion} has \
     {}: ask for that many google.com/tpu in each pod",
    suggestion.chips()
)]
pub struct NoSuchNode {
    /// The accelerator.
    pub accelerator: Accelerator,
    /// The topology asked for.
    pub topology: Topology,
    /// The number of chips asked for on each node.
    pub chips_per_node: u32,
    /// A machine type that makes the topology.
    pub suggestion: MachineType,
}

impl SliceShape {
    /// The slice of this topology made of this machine type.
    ///
    /// ```
    /// use slicegate_tpu::{MachineType, SliceShape};
    ///
    /// let error = SliceShape::new(MachineType::Ct5lpHightpu8t, "4x4".parse()?).unwrap_err();
    /// assert_eq!(error.to_string(), "ct5lp-hightpu-8t does not make 4x4 slices; ct5lp-hightpu-4t does");
    /// # Ok::<(), slicegate_tpu::ParseTopologyError>(())
    /// ```
    pub fn new(machine_type: MachineType, topology: Topology) -> Result<Self, SliceError> {
        let accelerator = machine_type.accelerator();
        accelerator.check(topology)?;
        if makes(machine_type, topology) {
            return Ok(Self { machine_type, topology });
        }
        let suggestion = accelerator
            .machine_types()
            .iter()
            .copied()
            .find(|&machine| makes(machine, topology))
            .unwrap_or(machine_type);
        Err(NotOnMachine { machine_type, topology, suggestion }.into())
    }

    /// As [`SliceShape::new`], from the texts of a node pool: `ct5lp-hightpu-4t` and `2x4`.
    pub fn parse(machine_type: &str, topology: &str) -> Result<Self, SliceError> {
        let machine_type: MachineType = machine_type.parse()?;
        let topology = machine_type.accelerator().parse_topology(topology)?;
        Self::new(machine_type, topology)
    }

    /// For a topology known to be made of this machine type.
    pub(crate) const fn legal(machine_type: MachineType, topology: Topology) -> Self {
        Self { machine_type, topology }
    }

    /// The slices with this accelerator label and this topology label, one for each machine type that makes them,
    /// fewest chips a host first.
    ///
    /// ```
    /// use slicegate_tpu::{Accelerator, SliceShape, Topology};
    ///
    /// let topology = Topology::new_2d(2, 4).unwrap();
    /// let hosts: Vec<_> = SliceShape::candidates(Accelerator::V5LitePodslice, topology)
    ///     .map(|slice| (slice.machine_type().name(), slice.hosts()))
    ///     .collect();
    /// assert_eq!(hosts, [("ct5lp-hightpu-4t", 2), ("ct5lp-hightpu-8t", 1)]);
    /// ```
    pub fn candidates(accelerator: Accelerator, topology: Topology) -> impl Iterator<Item = Self> {
        let machines: &'static [MachineType] =
            if accelerator.supports(topology) { accelerator.machine_types() } else { &[] };
        machines
            .iter()
            .filter(move |&&machine| makes(machine, topology))
            .map(move |&machine_type| Self { machine_type, topology })
    }

    /// The slice that GKE makes for pods that select this accelerator and this topology and each ask for
    /// `chips_per_node` of `google.com/tpu`.
    ///
    /// A pod takes all the chips of its node, so its request decides the machine type: with `2x4`, 4 chips mean two
    /// hosts of four and 8 chips mean one of eight. Without a request the choice is the fewest hosts. Machine types
    /// that are used only on explicit request ([`MachineType::is_explicit_only`]) are never chosen here.
    pub fn pick(accelerator: Accelerator, topology: Topology, chips_per_node: Option<u32>) -> Result<Self, SliceError> {
        accelerator.check(topology)?;
        let offered = || Self::candidates(accelerator, topology).filter(|slice| !slice.machine_type.is_explicit_only());
        // Every legal topology is made by a machine type that needs no naming; a test goes through them all.
        let fewest_hosts = || offered().min_by_key(|slice| slice.hosts());
        let suggestion = fewest_hosts().map_or(MachineType::Ct5lpHightpu4t, Self::machine_type);
        let found = match chips_per_node {
            Some(chips) => offered().find(|slice| slice.chips_per_host() == chips),
            None => fewest_hosts(),
        };
        found.ok_or_else(|| {
            let chips_per_node = chips_per_node.unwrap_or_default();
            NoSuchNode { accelerator, topology, chips_per_node, suggestion }.into()
        })
    }

    /// As [`SliceShape::pick`], from the values of a pod's node selector.
    pub fn from_selector(accelerator: &str, topology: &str, chips_per_node: Option<u32>) -> Result<Self, SliceError> {
        let accelerator: Accelerator = accelerator.parse()?;
        Self::pick(accelerator, accelerator.parse_topology(topology)?, chips_per_node)
    }

    /// The machine type of every host.
    pub const fn machine_type(self) -> MachineType {
        self.machine_type
    }

    /// The shape in chips.
    pub const fn topology(self) -> Topology {
        self.topology
    }

    /// The accelerator, as node labels name it.
    pub const fn accelerator(self) -> Accelerator {
        self.machine_type.accelerator()
    }

    /// The generation of the chips.
    pub const fn generation(self) -> Generation {
        self.accelerator().generation()
    }

    /// The accelerator type's name, such as `v5litepod-16`.
    pub fn accelerator_type(self) -> AcceleratorType {
        AcceleratorType::of(self.accelerator(), self.topology)
    }

    /// Chips in the slice: [`SliceShape::hosts`] times [`SliceShape::chips_per_host`].
    pub const fn chips(self) -> u32 {
        self.topology.chips()
    }

    /// TensorCores in the slice.
    pub const fn cores(self) -> u32 {
        self.chips() * self.generation().cores_per_chip()
    }

    /// High-bandwidth memory of all chips in GB, as published.
    pub const fn hbm_gb(self) -> u32 {
        self.chips() * self.generation().hbm_gb_per_chip()
    }

    /// Hosts in the slice: VMs, nodes, and pods of the job that fills it.
    pub const fn hosts(self) -> u32 {
        self.host_bounds().volume()
    }

    /// Chips on each host.
    pub const fn chips_per_host(self) -> u32 {
        self.machine_type.chips()
    }

    /// How the chips of one host lie. The runtime's `TPU_CHIPS_PER_HOST_BOUNDS`.
    pub const fn chip_bounds(self) -> Extent {
        self.machine_type.chip_bounds()
    }

    /// How many hosts go along each axis. The runtime's `TPU_HOST_BOUNDS`.
    pub const fn host_bounds(self) -> Extent {
        match self.topology.extent().tiles(self.chip_bounds()) {
            Some(hosts) => hosts,
            // Unreachable: `makes` accepts only topologies that hosts tile.
            None => Extent::UNIT,
        }
    }

    /// Whether the slice has more chips than one host. A pool of multi-host slices has all of its nodes or none; the
    /// nodes of a single-host pool are slices of their own and come and go one by one.
    pub const fn is_multi_host(self) -> bool {
        self.topology.chips() != self.machine_type.chips()
    }

    /// The axes on which the last chip is linked to the first. The runtime's `TPU_TOPOLOGY_WRAP`.
    ///
    /// v5e and v6e wrap each axis that spans the pod's full 16 chips. v4, v5p and TPU7x wrap all axes from one cube
    /// up, and none below. v3 never wraps here: its pages promise a torus, but the runtime is told otherwise, and a
    /// scheduler must not promise links that may not be there.
    pub const fn wrap(self) -> Wrap {
        let [x, y, z] = self.topology.extent().dims();
        match self.generation() {
            Generation::V3 => Wrap::NONE,
            Generation::V5e | Generation::V6e => Wrap { x: x == 16, y: y == 16, z: z == 16 },
            Generation::V4 | Generation::V5p | Generation::Tpu7x => {
                let wraps = x >= 4 && y >= 4 && z >= 4;
                Wrap { x: wraps, y: wraps, z: wraps }
            }
        }
    }

    /// Whether the slice may be wired as a twisted torus, which shortens its longest ways.
    ///
    /// v4 twists cuboids of the forms A x A x 2A and A x 2A x 2A with A a multiple of 4. For v5p the four named ones
    /// count: 4x4x8, 4x8x8, 8x8x16, 8x16x16. For TPU7x no source promises it.
    pub const fn supports_twist(self) -> bool {
        let [a, b, c] = self.topology.extent().dims();
        let doubled = c == 2 * a && (b == a || b == c) && self.topology.cubes().is_some();
        match self.generation() {
            Generation::V4 => doubled,
            Generation::V5p => doubled && (a == 4 || a == 8),
            Generation::V3 | Generation::V5e | Generation::V6e | Generation::Tpu7x => false,
        }
    }

    /// The interconnect: which chip is linked to which.
    pub const fn ici(self) -> Ici {
        Ici::new(self.topology.extent(), self.wrap())
    }

    /// Where a worker's host stands in the grid of hosts; `None` if the slice has no such worker.
    ///
    /// Workers are numbered with x fastest. The order of the axes is the one that Ray assumes; it has not been
    /// confirmed on hardware.
    ///
    /// ```
    /// use slicegate_tpu::{Coord, SliceShape};
    ///
    /// let slice = SliceShape::parse("ct6e-standard-4t", "4x4")?;
    /// assert_eq!(slice.host_of_worker(1), Some(Coord::new(1, 0, 0)));
    /// assert_eq!(slice.chips_of_worker(1).unwrap().origin, Coord::new(2, 0, 0));
    /// assert_eq!(slice.worker_of_chip(Coord::new(3, 1, 0)), Some(1));
    /// # Ok::<(), slicegate_tpu::SliceError>(())
    /// ```
    pub const fn host_of_worker(self, worker: u32) -> Option<Coord> {
        self.host_bounds().coord(worker)
    }

    /// The id of the worker on a host; `None` outside the slice. Inverse of [`SliceShape::host_of_worker`].
    pub const fn worker_at_host(self, host: Coord) -> Option<u32> {
        self.host_bounds().index(host)
    }

    /// The box of chips on a worker's host.
    pub const fn chips_of_worker(self, worker: u32) -> Option<Block> {
        match self.host_of_worker(worker) {
            Some(host) => Some(Block { origin: self.chip_bounds().tile_origin(host), extent: self.chip_bounds() }),
            None => None,
        }
    }

    /// The worker whose host holds a chip; `None` outside the slice.
    pub const fn worker_of_chip(self, chip: Coord) -> Option<u32> {
        if self.topology.extent().contains(chip) { self.worker_at_host(self.chip_bounds().tile_of(chip)) } else { None }
    }

    /// The coordinates of all chips, x fastest.
    pub const fn chip_coords(self) -> Coords {
        self.topology.extent().coords()
    }
}

impl fmt::Display for SliceShape {
    /// Accelerator, topology and hosts: `tpu-v5-lite-podslice 2x4 (2 x ct5lp-hightpu-4t)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({} x {})", self.accelerator(), self.topology, self.hosts(), self.machine_type)
    }
}

/// Whether slices of this topology, which is legal for the accelerator, are made of this machine type.
fn makes(machine: MachineType, topology: Topology) -> bool {
    machine.single_host_topology() == Some(topology)
        || (machine.makes_multi_host_slices() && topology.extent().is_tiled_by(machine.chip_bounds()))
}

impl MachineType {
    /// Every topology that slices of this machine type come in.
    pub fn topologies(self) -> impl Iterator<Item = Topology> {
        self.accelerator().topologies().filter(move |&topology| makes(self, topology))
    }
}

/// On which axes a slice closes into a ring.
///
/// It is written as the TPU runtime expects it in `TPU_TOPOLOGY_WRAP`: `true,true,false`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wrap {
    /// On the first axis.
    pub x: bool,
    /// On the second axis.
    pub y: bool,
    /// On the third axis.
    pub z: bool,
}

impl Wrap {
    /// A plain mesh.
    pub const NONE: Self = Self { x: false, y: false, z: false };
    /// A torus.
    pub const ALL: Self = Self { x: true, y: true, z: true };

    /// Whether one axis closes.
    pub const fn get(self, axis: Axis) -> bool {
        match axis {
            Axis::X => self.x,
            Axis::Y => self.y,
            Axis::Z => self.z,
        }
    }

    /// What the axes make of a shape: a mesh, a torus, or something between.
    pub const fn describe(self, rank: Rank) -> &'static str {
        let z = match rank {
            Rank::Two => self.x,
            Rank::Three => self.z,
        };
        match (self.x && self.y && z, self.x || self.y || z) {
            (true, _) => "torus",
            (false, true) => "cylinder",
            (false, false) => "mesh",
        }
    }
}

impl fmt::Display for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.x, self.y, self.z)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every slice there is.
    pub(crate) fn all_slices() -> impl Iterator<Item = SliceShape> {
        MachineType::ALL.into_iter().flat_map(|machine_type| {
            machine_type.topologies().map(move |topology| SliceShape { machine_type, topology })
        })
    }

    /// Any slice, small ones more often.
    pub(crate) fn any_slice() -> impl Strategy<Value = SliceShape> {
        let small: Vec<_> = all_slices().filter(|slice| slice.chips() <= 256).collect();
        let all: Vec<_> = all_slices().collect();
        prop_oneof![3 => proptest::sample::select(small), 1 => proptest::sample::select(all)]
    }

    #[track_caller]
    fn slice(machine_type: &str, topology: &str) -> SliceShape {
        SliceShape::parse(machine_type, topology).unwrap()
    }

    #[test]
    fn chips_are_hosts_times_chips_a_host() {
        let mut n_slices = 0;
        for slice in all_slices() {
            n_slices += 1;
            assert_eq!(slice.chips(), slice.hosts() * slice.chips_per_host(), "{slice}");
            assert_eq!(slice.is_multi_host(), slice.hosts() > 1, "{slice}");
            assert_eq!(SliceShape::new(slice.machine_type(), slice.topology()), Ok(slice));
        }
        assert!(n_slices > 1000);
    }

    #[test]
    fn every_legal_topology_has_a_machine_that_needs_no_naming() {
        for accelerator in Accelerator::ALL {
            for topology in accelerator.topologies() {
                let slice = SliceShape::pick(accelerator, topology, None).unwrap();
                assert!(!slice.machine_type().is_explicit_only());
                assert_eq!((slice.accelerator(), slice.topology()), (accelerator, topology));
                assert!(SliceShape::candidates(accelerator, topology).all(|other| other.hosts() >= slice.hosts()));
            }
        }
    }

    #[test]
    fn two_d_slices_have_the_published_host_counts() {
        let hosts = |machine: &str| -> Vec<(String, u32)> {
            let machine: MachineType = machine.parse().unwrap();
            machine.topologies().map(|t| (t.to_string(), SliceShape::new(machine, t).unwrap().hosts())).collect()
        };
        let expect = |list: &[(&str, u32)]| -> Vec<(String, u32)> {
            list.iter().map(|&(shape, hosts)| (shape.to_owned(), hosts)).collect()
        };
        for family in ["ct5lp-hightpu", "ct6e-standard"] {
            assert_eq!(hosts(&format!("{family}-1t")), expect(&[("1x1", 1)]));
            assert_eq!(hosts(&format!("{family}-8t")), expect(&[("2x4", 1)]));
            assert_eq!(
                hosts(&format!("{family}-4t")),
                expect(&[("2x2", 1), ("2x4", 2), ("4x4", 4), ("4x8", 8), ("8x8", 16), ("8x16", 32), ("16x16", 64)])
            );
        }
        assert_eq!(
            hosts("ct3p-hightpu-4t"),
            expect(&[("4x4", 4), ("4x8", 8), ("8x8", 16), ("8x16", 32), ("16x16", 64), ("16x32", 128), ("32x32", 256)])
        );
    }

    #[test]
    fn the_request_of_a_pod_decides_the_machine() {
        let pick = |chips| SliceShape::from_selector("tpu-v5-lite-podslice", "2x4", chips);
        assert_eq!(pick(Some(4)).unwrap().machine_type(), MachineType::Ct5lpHightpu4t);
        assert_eq!(pick(Some(8)).unwrap().machine_type(), MachineType::Ct5lpHightpu8t);
        assert_eq!(pick(None).unwrap().machine_type(), MachineType::Ct5lpHightpu8t);
        assert_eq!(
            pick(Some(2)).unwrap_err().to_string(),
            "no machine type makes 2x4 slices of tpu-v5-lite-podslice from nodes with 2 chips; ct5lp-hightpu-8t has 8: \
             ask for that many google.com/tpu in each pod"
        );
        assert_eq!(
            SliceShape::from_selector("tpu7x", "4x4x4", Some(4)).unwrap().machine_type(),
            MachineType::Tpu7xStandard4t
        );
    }

    #[test]
    fn bounds_are_what_the_runtime_is_told() {
        let bounds = |machine, topology| {
            let slice = slice(machine, topology);
            format!("{} / {}", slice.host_bounds(), slice.chip_bounds())
        };
        assert_eq!(bounds("ct5lp-hightpu-4t", "2x4"), "1,2,1 / 2,2,1");
        assert_eq!(bounds("ct5lp-hightpu-8t", "2x4"), "1,1,1 / 2,4,1");
        assert_eq!(bounds("ct6e-standard-4t", "4x4"), "2,2,1 / 2,2,1");
        assert_eq!(bounds("ct5p-hightpu-4t", "4x4x4"), "2,2,4 / 2,2,1");
        assert_eq!(bounds("tpu7x-standard-1t", "1x1x1"), "1,1,1 / 1,1,1");
    }

    #[test]
    fn wrap_follows_the_generation() {
        let wrap = |machine, topology| slice(machine, topology).wrap().to_string();
        assert_eq!(wrap("ct5lp-hightpu-4t", "8x8"), "false,false,false");
        assert_eq!(wrap("ct5lp-hightpu-4t", "8x16"), "false,true,false");
        assert_eq!(wrap("ct6e-standard-4t", "16x16"), "true,true,false");
        assert_eq!(wrap("ct3p-hightpu-4t", "32x32"), "false,false,false");
        assert_eq!(wrap("ct4p-hightpu-4t", "2x4x4"), "false,false,false");
        assert_eq!(wrap("ct4p-hightpu-4t", "4x4x4"), "true,true,true");
        assert_eq!(wrap("tpu7x-standard-4t", "4x4x12"), "true,true,true");
        let words = |machine, topology| {
            let slice = slice(machine, topology);
            slice.wrap().describe(slice.topology().rank())
        };
        assert_eq!(words("ct6e-standard-4t", "16x16"), "torus");
        assert_eq!(words("ct6e-standard-4t", "8x16"), "cylinder");
        assert_eq!(words("ct5p-hightpu-4t", "2x4x4"), "mesh");
    }

    #[test]
    fn twistable_shapes() {
        let twistable = |machine: MachineType| -> Vec<String> {
            let slices = machine.topologies().map(|t| SliceShape::new(machine, t).unwrap());
            slices.filter(|s| s.supports_twist()).map(|s| s.topology().to_string()).collect()
        };
        assert_eq!(twistable(MachineType::Ct4pHightpu4t), ["4x4x8", "4x8x8", "8x8x16", "8x16x16"]);
        assert_eq!(twistable(MachineType::Ct5pHightpu4t), ["4x4x8", "4x8x8", "8x8x16", "8x16x16"]);
        assert_eq!(twistable(MachineType::Tpu7xStandard4t), [""; 0]);
    }

    #[test]
    fn workers_of_a_4x4_slice() {
        let slice = slice("ct6e-standard-4t", "4x4");
        let origins: Vec<_> = (0..4).map(|w| slice.chips_of_worker(w).unwrap().origin).map(|c| (c.x, c.y)).collect();
        assert_eq!(origins, [(0, 0), (2, 0), (0, 2), (2, 2)]);
        assert_eq!(slice.chips_of_worker(4), None);
    }

    #[test]
    fn errors_come_with_advice() {
        let error = |machine, topology| SliceShape::parse(machine, topology).unwrap_err().to_string();
        assert_eq!(error("ct5lp-hightpu-4t", "4x6"), "4x6 is not a v5e topology; did you mean 4x8?");
        assert_eq!(
            error("ct5lp-hightpu-4t", "1x1"),
            "ct5lp-hightpu-4t does not make 1x1 slices; ct5lp-hightpu-1t does"
        );
        assert_eq!(error("ct3p-hightpu-4t", "2x2"), "2x2 is not a v3 topology; did you mean 4x4?");
        assert_eq!(
            error("ct5lp-hightpu-4", "2x4"),
            r#""ct5lp-hightpu-4" is not a TPU machine type; did you mean ct5lp-hightpu-4t?"#
        );
    }

    proptest! {
        #[test]
        fn worker_ids_and_hosts_are_a_bijection(slice in any_slice(), pick: u32) {
            let worker = pick % slice.hosts();
            let host = slice.host_of_worker(worker).unwrap();
            prop_assert_eq!(slice.worker_at_host(host), Some(worker));
            prop_assert_eq!(slice.host_of_worker(slice.hosts()), None);
            let block = slice.chips_of_worker(worker).unwrap();
            prop_assert_eq!(block.extent.volume(), slice.chips_per_host());
            for chip in block.coords() {
                prop_assert_eq!(slice.worker_of_chip(chip), Some(worker));
            }
        }

        #[test]
        fn every_chip_has_exactly_one_worker(slice in any_slice()) {
            let mut n_chips = vec![0u32; usize::try_from(slice.hosts()).unwrap()];
            for chip in slice.chip_coords() {
                let worker = slice.worker_of_chip(chip).unwrap();
                prop_assert!(slice.chips_of_worker(worker).unwrap().contains(chip));
                n_chips[usize::try_from(worker).unwrap()] += 1;
            }
            prop_assert!(n_chips.iter().all(|&n| n == slice.chips_per_host()));
        }

        #[test]
        fn any_worker_and_chip_is_harmless(slice in any_slice(), worker: u32, x: u16, y: u16, z: u16) {
            prop_assert_eq!(slice.host_of_worker(worker).is_some(), worker < slice.hosts());
            let chip = Coord::new(x, y, z);
            prop_assert_eq!(slice.worker_of_chip(chip).is_some(), slice.topology().extent().contains(chip));
        }

        #[test]
        fn suggested_machines_and_topologies_make_slices(
            machine in proptest::sample::select(&MachineType::ALL[..]), x in 1u16..40, y in 1u16..40, z in 0u16..40,
        ) {
            let topology = Topology::new_3d(x, y, z).or(Topology::new_2d(x, y)).unwrap();
            match SliceShape::new(machine, topology) {
                Ok(slice) => prop_assert_eq!((slice.machine_type(), slice.topology()), (machine, topology)),
                Err(SliceError::NotOnMachine(error)) => {
                    prop_assert!(SliceShape::new(error.suggestion, topology).is_ok());
                }
                Err(SliceError::Topology(error)) => {
                    prop_assert!(SliceShape::pick(error.accelerator, error.suggestion, None).is_ok());
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }

        #[test]
        fn picked_nodes_have_the_chips_asked_for(
            accelerator in proptest::sample::select(&Accelerator::ALL[..]), pick: proptest::sample::Index, chips in 0u32..10,
        ) {
            let all: Vec<_> = accelerator.topologies().collect();
            let topology = *pick.get(&all);
            match SliceShape::pick(accelerator, topology, Some(chips)) {
                Ok(slice) => prop_assert_eq!(slice.chips_per_host(), chips),
                Err(SliceError::NoSuchNode(error)) => {
                    let advised = SliceShape::pick(accelerator, topology, Some(error.suggestion.chips()));
                    prop_assert_eq!(advised.map(SliceShape::machine_type), Ok(error.suggestion));
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
