//! TPU shapes: which slices exist, what hosts they are made of, and how their chips are joined.
//!
//! A scheduler, a simulator or a linter that handles TPUs on Google Kubernetes Engine keeps meeting the same questions.
//! Is `4x6` a topology? How many nodes is a `4x4x8`? Which machine type does a node selector lead to? Which chips does
//! worker 5 hold, and which of its links wrap around? This crate answers them from tables and arithmetic: it does no
//! I/O, allocates only for error messages and label values, and never panics.
//!
//! Everything about a shape that is known to exist can be computed in constants:
//!
//! ```
//! use slicegate_tpu::{Coord, Extent, Ici, Topology, Wrap};
//!
//! const CUBE: Ici = Ici::new(Topology::CUBE.extent(), Wrap::ALL);
//! const _: () = assert!(CUBE.diameter() == 6 && CUBE.bisection_links() == 32);
//! const LAST: Option<Coord> = Extent::new(2, 2, 4).unwrap().coord(15);
//! # assert_eq!(LAST, Some(Coord::new(1, 1, 3)));
//! ```
//!
//! # From a node pool to a slice
//!
//! A [`SliceShape`] is a [`MachineType`] and a [`Topology`] that GKE makes of it. It cannot be illegal, so the rest
//! follows without errors:
//!
//! ```
//! use slicegate_tpu::SliceShape;
//!
//! let slice = SliceShape::parse("ct5lp-hightpu-4t", "2x4")?;
//! assert_eq!(slice.chips(), 8);
//! assert_eq!(slice.hosts(), 2); // a pool of this shape has 2 nodes or none
//! assert!(slice.is_multi_host());
//!
//! // The same shape on hosts of eight chips: one node, and each node of the pool is a slice of its own.
//! assert!(!SliceShape::parse("ct5lp-hightpu-8t", "2x4")?.is_multi_host());
//! # Ok::<(), slicegate_tpu::SliceError>(())
//! ```
//!
//! # Errors that help
//!
//! Every error is a type that holds what was asked for and what would have been right. Suggestions are values, and are
//! themselves legal:
//!
//! ```
//! use slicegate_tpu::{Accelerator, MachineType, SliceShape};
//!
//! let error = SliceShape::parse("ct5lp-hightpu-4t", "4x6").unwrap_err();
//! assert_eq!(error.to_string(), "4x6 is not a v5e topology; did you mean 4x8?");
//!
//! let error = Accelerator::V5pSlice.parse_topology("8x4x4").unwrap_err();
//! assert_eq!(error.suggestion(), Some("4x4x8".parse()?));
//!
//! let error = "ct6e-standart-4t".parse::<MachineType>().unwrap_err();
//! assert_eq!(error.suggestion, Some(MachineType::Ct6eStandard4t));
//! # Ok::<(), slicegate_tpu::ParseTopologyError>(())
//! ```
//!
//! # From a pod to a slice
//!
//! A pod names an accelerator and a topology in its node selector, and its request for `google.com/tpu` is all the chips
//! of a node. Together they determine the machine type:
//!
//! ```
//! use slicegate_tpu::{MachineType, SliceShape, label, node_labels, taint};
//!
//! let slice = SliceShape::from_selector("tpu-v6e-slice", "4x4", Some(4))?;
//! assert_eq!(slice.machine_type(), MachineType::Ct6eStandard4t);
//! assert_eq!(slice.hosts(), 4);
//!
//! assert!(node_labels(slice, "pool-1").any(|(key, value)| key == label::TOPOLOGY && value == "4x4"));
//! assert_eq!(taint::TPU.to_string(), "google.com/tpu=present:NoSchedule");
//! # Ok::<(), slicegate_tpu::SliceError>(())
//! ```
//!
//! # Workers, chips and links
//!
//! Workers are numbered with x fastest. [`Ici`] knows the links between chips:
//!
//! ```
//! use slicegate_tpu::{Coord, SliceShape};
//!
//! let slice = SliceShape::parse("ct5p-hightpu-4t", "4x4x4")?;
//! assert_eq!(slice.host_bounds().to_string(), "2,2,4");
//! assert_eq!(slice.host_of_worker(5), Some(Coord::new(1, 0, 1)));
//! assert_eq!(slice.chips_of_worker(5).unwrap().origin, Coord::new(2, 0, 1));
//!
//! let ici = slice.ici();
//! assert_eq!(ici.degree(Coord::ORIGIN), 6); // one cube is already a torus
//! assert_eq!(ici.distance(Coord::ORIGIN, Coord::new(3, 3, 3)), Some(3));
//! assert_eq!((ici.diameter(), ici.bisection_links()), (6, 32));
//! # Ok::<(), slicegate_tpu::SliceError>(())
//! ```
//!
//! # Smaller and larger
//!
//! [`SubSlices`] cuts a slice into equal parts, [`SuperSlice`] joins 4x4x4 cubes into a dynamic slice, [`Multislice`]
//! joins equal slices over the data-center network, and [`AcceleratorType`] reads and writes names such as `v5p-128`.
//!
//! ```
//! use slicegate_tpu::{AcceleratorType, SliceShape, SubSlices};
//!
//! let name: AcceleratorType = "tpu7x-128".parse()?;
//! let cube = SliceShape::pick(name.accelerator(), name.topology(), None)?;
//! let parts: Vec<_> = SubSlices::shapes_of(cube).map(|part| part.to_string()).collect();
//! assert_eq!(parts, ["2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Packing a pod
//!
//! A [`Superpod`] hands out whole cubes: any that are free where optical switches join them, or boxes of adjacent ones.
//! It says what no longer fits and why, and [`Superpod::pack`] decides exactly whether several slices fit together.
//!
//! ```
//! use slicegate_tpu::{Accelerator, Extent, Packing, Superpod, Wiring, Wrap};
//!
//! let grid = Extent::new(3, 3, 1).unwrap();
//! let pod = Superpod::new(Accelerator::V5pSlice, grid, Wiring::Contiguous(Wrap::NONE))?;
//! let wanted = ["4x8x8".parse()?, "4x4x12".parse()?, "4x4x8".parse()?];
//! assert!(matches!(pod.pack(&wanted, 10_000), Packing::Packed(_)));
//! assert_eq!(pod.pack(&[wanted[0], wanted[0]], 10_000), Packing::Impossible); // two squares of 2x2 in a 3x3
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where sources disagree
//!
//! Google's pages, its autoscaler, its device driver and its tools do not always agree. The stricter statement holds
//! here, and each such place says so. The ones that matter most are
//!
//! | question | here | elsewhere |
//! |---|---|---|
//! | largest v4 slice | 12x16x16 | 16x16x16 |
//! | largest v5p slice | 16x16x24 (6144 chips) | 8960 chips |
//! | order of sizes above a cube | never decreasing | free on v4 |
//! | largest dynamic TPU7x slice | 32 cubes | 9216 chips |
//! | 2x8 on v5e and v6e | no | listed by Ray |
//! | wrap of v3 slices | none | a torus in its pages |
//! | memory of tpu7x-standard-4t | 960 GB | 992 GB |
//! | TPU7x slices of more than 2000 hosts | sold | above one Compute Engine instance group |
//! | order of host axes | x fastest, as Ray has it | not confirmed on hardware |
//! | `tpu7` (without x) | not a product, left out | in the sources of GKE's autoscaler and of xpk |

mod accelerator;
mod accelerator_type;
mod coord;
mod ici;
mod legal;
mod machine;
mod multislice;
mod names;
mod slice;
mod subslice;
mod suggest;
mod superpod;
mod superslice;
mod topology;

pub use accelerator::{Accelerator, Generation, UnknownAccelerator};
pub use accelerator_type::{AcceleratorType, AcceleratorTypeProblem, ParseAcceleratorTypeError};
pub use coord::{Axis, Block, Coord, Coords, Extent};
pub use ici::Ici;
pub use legal::{IllegalTopology, Topologies, TopologyError};
pub use machine::{MachineType, PartialNode, UnknownMachineType};
pub use multislice::{Multislice, MultisliceError};
pub use names::{RESOURCE, Taint, annotation, env, label, node_labels, taint};
pub use slice::{NoSuchNode, NotOnMachine, SliceError, SliceShape, Wrap};
pub use subslice::{IllegalSubSlice, SubSliceProblem, SubSlices};
pub use superpod::{
    CubeState, Fragmentation, NoRoom, NoRoomProblem, Packing, PodSliceId, Superpod, SuperpodError, Wiring,
};
pub use superslice::{IllegalSuperSlice, SuperSlice, SuperSliceProblem};
pub use topology::{ParseTopologyError, Rank, Topology, TopologyProblem};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
