//! Topology requests and assignments.

/// A slice of pods that must lie within one domain of a level.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopologyConstraint {
    /// The level's node label.
    pub topology: Box<str>,
    /// Pods a slice.
    pub size: i32,
}

/// How the pods of a pod set are to lie to one another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TopologyRequest {
    /// All pods in one domain of this level.
    pub required: Option<Box<str>>,
    /// All pods in one domain of this level if possible, else as near as possible.
    pub preferred: Option<Box<str>>,
    /// Anywhere.
    pub unconstrained: Option<bool>,
    /// The label that holds a pod's index.
    pub pod_index_label: Option<Box<str>>,
    /// The label that holds the index of the sub-group a pod belongs to.
    pub sub_group_index_label: Option<Box<str>>,
    /// How many sub-groups there are.
    pub sub_group_count: Option<i32>,
    /// Pod sets of one group are placed together.
    pub pod_set_group_name: Option<Box<str>>,
    /// The level in which a slice of pods must lie together.
    pub slice_required_topology: Option<Box<str>>,
    /// Pods a slice.
    pub slice_size: Option<i32>,
    /// Slices within slices, outermost first.
    pub slice_constraints: Vec<TopologyConstraint>,
}

/// A domain and how many pods lie in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopologyDomain {
    /// A value a level.
    pub values: Vec<Box<str>>,
    /// Pods.
    pub count: i32,
}

/// Where the pods of a pod set lie.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TopologyAssignment {
    /// Node labels, coarsest first.
    pub levels: Vec<Box<str>>,
    /// Domains in order of their values.
    pub domains: Vec<TopologyDomain>,
}
