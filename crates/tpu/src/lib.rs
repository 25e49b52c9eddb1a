//! TPU shapes.

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
mod superslice;
mod topology;

pub use accelerator::{Accelerator, Generation, UnknownAccelerator};
pub use accelerator_type::{AcceleratorType, AcceleratorTypeProblem, ParseAcceleratorTypeError};
pub use coord::{Axis, Block, Coord, Coords, Extent};
pub use ici::Ici;
pub use legal::{IllegalTopology, Topologies, TopologyError};
pub use machine::{MachineType, UnknownMachineType};
pub use multislice::{Multislice, MultisliceError};
pub use names::{RESOURCE, Taint, annotation, env, label, node_labels, taint};
pub use slice::{NoSuchNode, NotOnMachine, SliceError, SliceShape, Wrap};
pub use subslice::{IllegalSubSlice, SubSliceProblem, SubSlices};
pub use superslice::{IllegalSuperSlice, SuperSlice, SuperSliceProblem};
pub use topology::{ParseTopologyError, Rank, Topology, TopologyProblem};
