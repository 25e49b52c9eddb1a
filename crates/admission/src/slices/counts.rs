//! Node pools as they are told to people.

use slicegate_workload::Key;

/// A node pool and what its slices are used for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolReport {
    /// Its name.
    pub name: Box<str>,
    /// The accelerator, as nodes are labelled.
    pub accelerator: Box<str>,
    /// The topology of its slices.
    pub topology: Box<str>,
    /// Nodes of a slice.
    pub hosts: u32,
    /// Slices that are there as a whole.
    pub whole: u32,
    /// Slices that are coming up or can be provisioned.
    pub coming: u32,
    /// Slices that are broken.
    pub broken: u32,
    /// Workloads that hold slices, and how many of this pool. Of several equal slices nobody knows which one a job will get
    /// before its pods run; this is one way in which all get theirs.
    pub holders: Vec<(Key, u32)>,
}
