//! Dense numbers for what the engine keeps.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(super) struct $name(u32);

        impl $name {
            pub(super) fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            pub(super) const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A workload. The same number is its [`slicegate_preemption::WorkloadRef`].
    WorkloadId
);
id!(
    /// A LocalQueue, one that workloads name but that does not exist included.
    LocalQueueId
);
id!(
    /// Workloads of one shape, priority and LocalQueue that wait together.
    GroupId
);
id!(
    /// A distinct list of pod sets with what they ask for.
    ShapeId
);
id!(
    /// Everything that makes two workloads equal for scheduling.
    ClassId
);

/// Values at dense numbers that are used again.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> usize {
        self.len = self.len.saturating_add(1);
        while let Some(free) = self.free.pop() {
            let index = free as usize;
            if let Some(slot) = self.items.get_mut(index)
                && slot.is_none()
            {
                *slot = Some(value);
                return index;
            }
        }
        self.items.push(Some(value));
        self.items.len().saturating_sub(1)
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.items.get_mut(index)?.take()?;
        self.len = self.len.saturating_sub(1);
        if let Ok(free) = u32::try_from(index) {
            self.free.push(free);
        }
        Some(value)
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.items.get_mut(index)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> + '_ {
        self.items.iter().enumerate().filter_map(|(i, item)| Some((i, item.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> + '_ {
        self.items.iter_mut().enumerate().filter_map(|(i, item)| Some((i, item.as_mut()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_used_again() {
        let mut slab = Slab::default();
        assert_eq!((slab.insert('a'), slab.insert('b')), (0, 1));
        assert_eq!(slab.remove(0), Some('a'));
        assert_eq!(slab.remove(0), None);
        assert_eq!(slab.insert('c'), 0);
        assert_eq!(slab.insert('d'), 2);
        assert_eq!(slab.len(), 3);
        assert_eq!(slab.iter().map(|(_, c)| *c).collect::<String>(), "cbd");
    }
}
