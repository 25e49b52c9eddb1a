//! TPU shapes.

mod accelerator;
mod accelerator_type;
mod coord;
mod ici;
mod legal;
mod machine;
mod names;
mod slice;
mod suggest;
mod topology;

pub use accelerator::{Accelerator, Generation, UnknownAccelerator};
pub use accelerator_type::{AcceleratorType, AcceleratorTypeProblem, ParseAcceleratorTypeError};
pub use coord::{Axis, Block, Coord, Coords, Extent};
pub use ici::Ici;
pub use legal::{IllegalTopology, Topologies, TopologyError};
pub use machine::{MachineType, UnknownMachineType};
pub use names::{RESOURCE, Taint, annotation, env, label, node_labels, taint};
pub use slice::{NoSuchNode, NotOnMachine, SliceError, SliceShape, Wrap};
pub use topology::{ParseTopologyError, Rank, Topology, TopologyProblem};
