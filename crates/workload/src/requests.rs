//! Integer requests by resource, in a fixed order.

use std::cmp::Ordering;

use slicegate_quota::{request_quantity, request_value};

use crate::ResourceList;

/// The FNV-1a hash (64 bits) of a resource name, by which request vectors are ordered.
pub fn vector_hash(resource: &str) -> u64 {
    resource.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The order of resources in request vectors: by hash, then by name. It shows in which resource a message names first.
pub fn vector_order(a: &str, b: &str) -> Ordering {
    vector_hash(a).cmp(&vector_hash(b)).then_with(|| a.cmp(b))
}

/// How many times a request fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fit<'a> {
    /// How many times.
    pub count: i32,
    /// The resource that runs out first, the alphabetically first of several; none if nothing is requested.
    pub limiting: Option<&'a str>,
}

/// Amounts by resource: thousandths for cpu, whole units for everything else. Iterates in [`vector_order`].
///
/// All arithmetic saturates. A resource with amount 0 is not the same as an absent one.
///
/// ```
/// use slicegate_workload::Requests;
///
/// let requests: Requests = [("cpu", 2000), ("google.com/tpu", 4)].into_iter().collect();
/// let capacity: Requests = [("cpu", 9000), ("google.com/tpu", 8)].into_iter().collect();
/// let fit = requests.count_in(&capacity);
/// assert_eq!((fit.count, fit.limiting), (2, Some("google.com/tpu")));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Requests(Vec<(u64, Box<str>, i64)>);

impl Requests {
    /// No requests.
    pub fn new() -> Self {
        Self::default()
    }

    fn find(&self, resource: &str) -> Result<usize, usize> {
        let hash = vector_hash(resource);
        self.0.binary_search_by(|(h, name, _)| h.cmp(&hash).then_with(|| (**name).cmp(resource)))
    }

    /// The amount of a resource.
    pub fn get(&self, resource: &str) -> Option<i64> {
        self.find(resource).ok().and_then(|i| self.0.get(i)).map(|&(_, _, amount)| amount)
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, resource: &str, amount: i64) {
        match self.find(resource) {
            Ok(i) => {
                if let Some(entry) = self.0.get_mut(i) {
                    entry.2 = amount;
                }
            }
            Err(i) => self.0.insert(i, (vector_hash(resource), resource.into(), amount)),
        }
    }

    /// Removes a resource; its amount if it was there.
    pub fn remove(&mut self, resource: &str) -> Option<i64> {
        self.find(resource).ok().map(|i| self.0.remove(i).2)
    }

    /// Adds to the amount of a resource.
    pub fn add(&mut self, resource: &str, amount: i64) {
        self.set(resource, self.get(resource).unwrap_or(0).saturating_add(amount));
    }

    /// Adds every amount of another.
    pub fn add_all(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            self.add(resource, amount);
        }
    }

    /// Subtracts every amount of another. A resource that is absent here becomes negative.
    pub fn subtract_all(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            self.set(resource, self.get(resource).unwrap_or(0).saturating_sub(amount));
        }
    }

    /// So many times as much.
    #[must_use]
    pub fn times(&self, factor: i64) -> Self {
        self.map(|amount| amount.saturating_mul(factor))
    }

    /// Divided by a count, fractions cut off. By zero it stays as it is.
    #[must_use]
    pub fn divided_by(&self, divisor: i64) -> Self {
        self.map(|amount| amount.checked_div(divisor).unwrap_or(amount))
    }

    /// With negative amounts raised to 0.
    #[must_use]
    pub fn or_zero(&self) -> Self {
        self.map(|amount| amount.max(0))
    }

    fn map(&self, f: impl Fn(i64) -> i64) -> Self {
        Self(self.0.iter().map(|(hash, name, amount)| (*hash, name.clone(), f(*amount))).collect())
    }

    /// How many times this fits into a capacity: 0 if nothing is requested, and no more than `i32::MAX`. A resource requested in
    /// the amount 0 always fits; what the capacity lacks, or has less than none of, does not.
    pub fn count_in(&self, capacity: &Self) -> Fit<'_> {
        self.iter()
            .map(|(resource, amount)| {
                let count = if amount == 0 {
                    i32::MAX
                } else {
                    let fit = capacity.get(resource).unwrap_or(0).checked_div(amount).unwrap_or(i64::MAX);
                    i32::try_from(fit.max(0)).unwrap_or(i32::MAX)
                };
                Fit { count, limiting: Some(resource) }
            })
            .min_by_key(|fit| (fit.count, fit.limiting))
            .unwrap_or(Fit { count: 0, limiting: None })
    }

    /// The resources that both have and of which this has more, in order of name.
    pub fn greater_keys<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let mut keys: Vec<&str> =
            self.iter().filter(|&(r, amount)| other.get(r).is_some_and(|o| amount > o)).map(|(r, _)| r).collect();
        keys.sort_unstable();
        keys
    }

    /// Resources and amounts, in vector order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, i64)> + '_ {
        self.0.iter().map(|(_, name, amount)| (&**name, *amount))
    }

    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many resources are requested.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The requests as quantities, as statuses show them.
    pub fn to_quantities(&self) -> ResourceList {
        self.iter().map(|(resource, amount)| (resource.into(), request_quantity(resource, amount))).collect()
    }
}

impl From<&ResourceList> for Requests {
    /// Integers from quantities, by [`request_value`].
    fn from(list: &ResourceList) -> Self {
        list.iter().map(|(resource, &quantity)| (&**resource, request_value(resource, quantity))).collect()
    }
}

impl<'a> FromIterator<(&'a str, i64)> for Requests {
    fn from_iter<I: IntoIterator<Item = (&'a str, i64)>>(iter: I) -> Self {
        let mut all = Self::default();
        for (resource, amount) in iter {
            all.set(resource, amount);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vectors_are_ordered_by_hash() {
        let mut names = [
            "cpu",
            "memory",
            "pods",
            "gpu",
            "google.com/tpu",
            "nvidia.com/gpu",
            "amd.com/gpu",
            "example.com/gpu",
            "ephemeral-storage",
            "hugepages-2Mi",
            "cpu_credits",
        ];
        names.sort_by(|a, b| vector_order(a, b));
        assert_eq!(
            names,
            [
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
            ]
        );
        let requests: Requests = names.iter().rev().map(|&n| (n, 1)).collect();
        assert!(requests.iter().map(|(n, _)| n).eq(names));
    }

    #[test]
    fn an_absent_resource_is_not_zero() {
        let mut requests = Requests::new();
        assert_eq!(requests.get("cpu"), None);
        requests.add("cpu", 0);
        assert_eq!(requests.get("cpu"), Some(0));
        assert_eq!(requests.remove("cpu"), Some(0));
        assert!(requests.is_empty());
    }

    #[test]
    fn arithmetic_saturates() {
        let big: Requests = [("cpu", i64::MAX), ("memory", i64::MIN)].into_iter().collect();
        let mut sum = big.clone();
        sum.add_all(&big);
        assert_eq!(sum, big);
        assert_eq!(big.times(2), big);
        let mut difference = Requests::new();
        difference.subtract_all(&big);
        assert_eq!(difference.get("memory"), Some(i64::MAX));
        assert_eq!(big.divided_by(0), big);
        assert_eq!(big.divided_by(-1).get("memory"), Some(i64::MIN), "the one quotient that overflows is left alone");
    }

    #[test]
    fn nothing_requested_fits_no_times_and_zero_requested_any_number_of_times() {
        let capacity: Requests = [("cpu", 5)].into_iter().collect();
        assert_eq!(Requests::new().count_in(&capacity), Fit { count: 0, limiting: None });
        let zero: Requests = [("memory", 0)].into_iter().collect();
        assert_eq!(zero.count_in(&capacity).count, i32::MAX);
    }

    proptest! {
        #[test]
        fn one_more_than_fits_does_not_fit(
            asked in proptest::collection::btree_map("[abc]", 0..10_i64, 1..4),
            there in proptest::collection::btree_map("[abc]", -5..100_i64, 0..4),
        ) {
            let requests: Requests = asked.iter().map(|(r, &n)| (r.as_str(), n)).collect();
            let capacity: Requests = there.iter().map(|(r, &n)| (r.as_str(), n)).collect();
            let fits = |times: i64| {
                let wanted = requests.times(times);
                wanted.iter().all(|(r, n)| n == 0 || n <= capacity.get(r).unwrap_or(0))
            };
            let fit = requests.count_in(&capacity);
            if fit.count == i32::MAX {
                prop_assert!(asked.values().all(|&n| n == 0));
            } else {
                prop_assert!(fits(fit.count.into()));
                prop_assert!(!fits(i64::from(fit.count) + 1));
                // The resource named is one that stops it.
                let limiting = fit.limiting.unwrap();
                let needed = asked[limiting] * (i64::from(fit.count) + 1);
                prop_assert!(needed > there.get(limiting).copied().unwrap_or(0));
            }
        }

        #[test]
        fn adding_and_subtracting_cancel(
            a in proptest::collection::btree_map("[a-e]", -100..100_i64, 0..5),
            b in proptest::collection::btree_map("[a-e]", -100..100_i64, 0..5),
        ) {
            let list = |m: &std::collections::BTreeMap<String, i64>| -> Requests { m.iter().map(|(r, &n)| (r.as_str(), n)).collect() };
            let (a, b) = (list(&a), list(&b));
            let mut sum = a.clone();
            sum.add_all(&b);
            let mut other = b.clone();
            other.add_all(&a);
            prop_assert_eq!(&sum, &other);
            sum.subtract_all(&b);
            for (resource, amount) in sum.iter() {
                prop_assert_eq!(amount, a.get(resource).unwrap_or(0));
            }
            let order: Vec<&str> = sum.iter().map(|(r, _)| r).collect();
            prop_assert!(order.is_sorted_by(|x, y| vector_order(x, y).is_lt()));
        }
    }
}
