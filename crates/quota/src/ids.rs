//! Dense identifiers. Names are interned once; hot paths index arrays by these.

use std::collections::BTreeMap;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(u32);

        impl $name {
            /// The identifier with this index.
            ///
            /// # Panics
            /// Never in practice: 2^32 names do not fit in memory before this saturates.
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            /// The position in arrays indexed by this identifier.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A node of the quota forest: a ClusterQueue or a Cohort.
    NodeId
);
id!(
    /// An interned ResourceFlavor name.
    FlavorId
);
id!(
    /// An interned resource name, such as `google.com/tpu`.
    ResourceId
);
id!(
    /// An interned (flavor, resource) pair: the unit in which quota is counted.
    FlavorResourceId
);

/// The names behind [`FlavorId`], [`ResourceId`] and [`FlavorResourceId`].
///
/// Names are never forgotten: an identifier stays valid for the life of its table.
#[derive(Clone, Debug, Default)]
pub struct Names {
    flavors: Vec<Box<str>>,
    resources: Vec<Box<str>>,
    pairs: Vec<(FlavorId, ResourceId)>,
    flavor_index: BTreeMap<Box<str>, FlavorId>,
    resource_index: BTreeMap<Box<str>, ResourceId>,
    /// `pair_index[flavor][resource]`.
    pair_index: Vec<Vec<Option<FlavorResourceId>>>,
}

impl Names {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The identifier of a flavor name, new if it was not known.
    pub fn intern_flavor(&mut self, name: &str) -> FlavorId {
        if let Some(&id) = self.flavor_index.get(name) {
            return id;
        }
        let id = FlavorId::from_index(self.flavors.len());
        self.flavors.push(name.into());
        self.flavor_index.insert(name.into(), id);
        self.pair_index.push(Vec::new());
        id
    }

    /// The identifier of a resource name, new if it was not known.
    pub fn intern_resource(&mut self, name: &str) -> ResourceId {
        if let Some(&id) = self.resource_index.get(name) {
            return id;
        }
        let id = ResourceId::from_index(self.resources.len());
        self.resources.push(name.into());
        self.resource_index.insert(name.into(), id);
        id
    }

    /// The identifier of a pair, new if it was not known.
    pub fn intern_pair(&mut self, flavor: FlavorId, resource: ResourceId) -> FlavorResourceId {
        if let Some(id) = self.pair(flavor, resource) {
            return id;
        }
        let id = FlavorResourceId::from_index(self.pairs.len());
        self.pairs.push((flavor, resource));
        if let Some(row) = self.pair_index.get_mut(flavor.index()) {
            if row.len() <= resource.index() {
                row.resize(resource.index().saturating_add(1), None);
            }
            if let Some(slot) = row.get_mut(resource.index()) {
                *slot = Some(id);
            }
        }
        id
    }

    /// Interns both names and their pair.
    pub fn intern(&mut self, flavor: &str, resource: &str) -> FlavorResourceId {
        let flavor = self.intern_flavor(flavor);
        let resource = self.intern_resource(resource);
        self.intern_pair(flavor, resource)
    }

    /// A known flavor.
    pub fn flavor(&self, name: &str) -> Option<FlavorId> {
        self.flavor_index.get(name).copied()
    }

    /// A known resource.
    pub fn resource(&self, name: &str) -> Option<ResourceId> {
        self.resource_index.get(name).copied()
    }

    /// A known pair.
    pub fn pair(&self, flavor: FlavorId, resource: ResourceId) -> Option<FlavorResourceId> {
        self.pair_index.get(flavor.index())?.get(resource.index()).copied().flatten()
    }

    /// The name of a flavor.
    pub fn flavor_name(&self, id: FlavorId) -> &str {
        self.flavors.get(id.index()).map_or("", |n| n)
    }

    /// The name of a resource.
    pub fn resource_name(&self, id: ResourceId) -> &str {
        self.resources.get(id.index()).map_or("", |n| n)
    }

    /// The flavor and the resource of a pair.
    ///
    /// # Panics
    /// If the pair is of another table.
    pub fn flavor_resource(&self, id: FlavorResourceId) -> (FlavorId, ResourceId) {
        self.pairs[id.index()]
    }

    /// How many pairs are known; every [`FlavorResourceId::index`] is below it.
    pub fn pair_count(&self) -> usize {
        self.pairs.len()
    }

    /// How many resources are known.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
    }

    /// How many flavors are known.
    pub fn flavor_count(&self) -> usize {
        self.flavors.len()
    }
}
