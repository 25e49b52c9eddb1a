//! A sequence that is sorted only as far as it is read.

use std::cmp::Ordering;

/// Items in ascending order, of which only those are sorted that are looked at: most searches stop after a few of many.
///
/// The comparison is passed in on every use; it must be the same one each time. One that is not a total order gives some
/// order, the same on every run.
#[derive(Clone, Debug)]
pub(crate) struct Lazy<T> {
    /// The items looked at, in order.
    sorted: Vec<T>,
    /// The rest, as a binary heap with the smallest item first.
    heap: Vec<T>,
    heaped: bool,
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self { sorted: Vec::new(), heap: Vec::new(), heaped: false }
    }
}

impl<T: Copy> Lazy<T> {
    pub(crate) fn clear(&mut self) {
        self.sorted.clear();
        self.heap.clear();
        self.heaped = false;
    }

    /// Adds an item; only before the first one is looked at.
    pub(crate) fn push(&mut self, item: T) {
        self.heap.push(item);
        self.heaped = false;
    }

    /// Whether no item was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.heap.is_empty()
    }

    /// All items, in no order.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.sorted.iter().chain(&self.heap)
    }

    /// The item at a position.
    pub(crate) fn get(&mut self, position: usize, compare: impl Fn(&T, &T) -> Ordering) -> Option<T> {
        while self.sorted.len() <= position {
            let next = self.pop(&compare)?;
            self.sorted.push(next);
        }
        self.sorted.get(position).copied()
    }

    fn pop(&mut self, compare: impl Fn(&T, &T) -> Ordering) -> Option<T> {
        if !self.heaped {
            for i in (0..self.heap.len() / 2).rev() {
                self.sift_down(i, &compare);
            }
            self.heaped = true;
        }
        if self.heap.is_empty() {
            return None;
        }
        let first = self.heap.swap_remove(0);
        self.sift_down(0, &compare);
        Some(first)
    }

    fn sift_down(&mut self, mut at: usize, compare: impl Fn(&T, &T) -> Ordering) {
        loop {
            let mut smallest = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if let (Some(c), Some(s)) = (self.heap.get(child), self.heap.get(smallest))
                    && compare(c, s).is_lt()
                {
                    smallest = child;
                }
            }
            if smallest == at {
                return;
            }
            self.heap.swap(at, smallest);
            at = smallest;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_in_order(items in proptest::collection::vec(0_u8..50, 0..60)) {
            let mut lazy = Lazy::default();
            for &i in &items {
                lazy.push(i);
            }
            let mut expected = items;
            expected.sort_unstable();
            for (i, &e) in expected.iter().enumerate() {
                prop_assert_eq!(lazy.get(i, Ord::cmp), Some(e));
            }
            prop_assert_eq!(lazy.get(expected.len(), Ord::cmp), None);
            // What was read stays readable.
            prop_assert_eq!(lazy.get(0, Ord::cmp), expected.first().copied());
        }
    }
}
