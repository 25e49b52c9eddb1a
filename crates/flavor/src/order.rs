//! The order in which the resources of a request are looked at.

use std::cmp::Ordering;

use slicegate_quota::{Names, ResourceId};
use slicegate_workload::vector_hash;

/// The order of resources within a request: by a hash of the name, then by name.
///
/// It looks arbitrary, but shows: the first resource group that cannot be satisfied is the only one a message mentions.
/// `[quirk]` Kueue iterates requests in ascending order of the 64-bit FNV-1a hash of the resource's name.
#[derive(Clone, Debug, Default)]
pub struct ResourceOrder {
    /// By index of resource.
    keys: Vec<(u64, Box<str>)>,
}

impl ResourceOrder {
    /// The order of the resources known so far.
    pub fn new(names: &Names) -> Self {
        let mut order = Self::default();
        order.extend(names);
        order
    }

    /// Takes in resources that were named since.
    pub fn extend(&mut self, names: &Names) {
        for i in self.keys.len()..names.resource_count() {
            let name = names.resource_name(ResourceId::from_index(i));
            self.keys.push((vector_hash(name), name.into()));
        }
    }

    /// Compares two resources. One that is not known comes after all that are.
    pub fn compare(&self, a: ResourceId, b: ResourceId) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        match (self.keys.get(a.index()), self.keys.get(b.index())) {
            (Some(x), Some(y)) => x.cmp(y),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.cmp(&b),
        }
    }

    /// Sorts a request into this order.
    pub fn sort<T>(&self, request: &mut [(ResourceId, T)]) {
        request.sort_unstable_by(|a, b| self.compare(a.0, b.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_resources_come_in_hash_order() {
        let expected = [
            "ephemeral-storage",
            "amd.com/gpu",
            "memory",
            "nvidia.com/gpu",
            "pods",
            "example.com/gpu",
            "hugepages-2Mi",
            "google.com/tpu",
            "gpu",
            "cpu_credits",
            "cpu",
        ];
        let mut names = Names::new();
        let mut request: Vec<(ResourceId, ())> =
            expected.iter().rev().map(|name| (names.intern_resource(name), ())).collect();
        ResourceOrder::new(&names).sort(&mut request);
        let sorted: Vec<&str> = request.iter().map(|&(r, ())| names.resource_name(r)).collect();
        assert_eq!(sorted, expected);
    }
}
