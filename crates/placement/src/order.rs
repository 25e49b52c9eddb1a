//! The orders in which domains are considered.

use std::cmp::Reverse;

use crate::Counts;

/// How domains are ordered and chosen among.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Domains with most room first, and the tightest one that takes all that is left.
    BestFit,
    /// Domains with least room first.
    LeastFreeCapacity,
}

/// The place of a domain in an order; smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    leaders: Reverse<i32>,
    affinity: Reverse<i64>,
    slices: i32,
    pods: i32,
    /// Domains of a level are numbered in the order of their values.
    pub(crate) domain: u32,
}

impl Key {
    /// By room: affinity, slices, pods (few first), values.
    pub(crate) fn plain(counts: &Counts, domain: u32, profile: Profile, affinity: bool) -> Self {
        Self::new(0, counts.affinity, [counts.slices, counts.pods], domain, profile, affinity)
    }

    /// By room beside a leader, domains that can take one first.
    pub(crate) fn with_leader(counts: &Counts, domain: u32, profile: Profile, affinity: bool) -> Self {
        let room = [counts.slices_with_leader, counts.pods_with_leader];
        Self::new(counts.leaders, counts.affinity, room, domain, profile, affinity)
    }

    fn new(leaders: i32, score: i64, [slices, pods]: [i32; 2], domain: u32, profile: Profile, affinity: bool) -> Self {
        Self {
            leaders: Reverse(leaders),
            affinity: Reverse(if affinity { score } else { 0 }),
            slices: if profile == Profile::BestFit { slices.saturating_neg() } else { slices },
            pods,
            domain,
        }
    }

    /// By a position that was given.
    fn at(position: usize, domain: u32) -> Self {
        let position = i32::try_from(position).unwrap_or(i32::MAX);
        Self { leaders: Reverse(0), affinity: Reverse(0), slices: position, pods: 0, domain }
    }
}

/// How many keys are sorted at a time, at least.
const STEP: usize = 512;

/// A list that is sorted only as far as it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    keys: Vec<Key>,
    sorted: usize,
}

impl Queue {
    /// Takes a new list.
    pub(crate) fn reset(&mut self, keys: impl Iterator<Item = Key>) {
        self.keys.clear();
        self.sorted = 0;
        self.keys.extend(keys);
    }

    /// Takes a new list whose order is given.
    pub(crate) fn reset_ordered(&mut self, domains: &[u32]) {
        self.reset(domains.iter().enumerate().map(|(i, d)| Key::at(i, *d)));
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The domain at a position.
    pub(crate) fn get(&mut self, position: usize) -> Option<u32> {
        while self.sorted <= position && self.sorted < self.keys.len() {
            let rest = self.keys.get_mut(self.sorted..)?;
            // Often only the first is of interest; if not, many are.
            let step = if self.sorted == 0 && rest.len() > STEP { 1 } else { self.sorted.max(STEP).min(rest.len()) };
            if step < rest.len() {
                rest.select_nth_unstable(step.saturating_sub(1));
            }
            rest.get_mut(..step)?.sort_unstable();
            self.sorted = self.sorted.saturating_add(step);
        }
        self.keys.get(position).map(|k| k.domain)
    }

    /// All domains from a position on, in no order.
    pub(crate) fn from(&self, position: usize) -> impl Iterator<Item = u32> + '_ {
        self.keys.get(position..).unwrap_or_default().iter().map(|k| k.domain)
    }

    /// The first domain, in order, that will do.
    pub(crate) fn first(&self, will_do: impl Fn(u32) -> bool) -> Option<u32> {
        self.keys.iter().filter(|k| will_do(k.domain)).min().map(|k| k.domain)
    }

    /// The last domain.
    pub(crate) fn last(&self) -> Option<u32> {
        self.keys.iter().max().map(|k| k.domain)
    }

    /// The domain from a position on with the smallest value, the first of several; those without a value are passed over. The
    /// domain at the position if none has one.
    pub(crate) fn tightest(&mut self, position: usize, value: impl Fn(u32) -> Option<i32>) -> Option<u32> {
        let first = self.get(position)?;
        let rest = self.keys.get(position..).unwrap_or_default();
        let best = rest.iter().filter_map(|k| value(k.domain).map(|v| (v, *k))).min();
        Some(best.map_or(first, |(_, key)| key.domain))
    }

    /// Moves a domain to the front.
    pub(crate) fn promote(&mut self, domain: u32) {
        self.sorted = 0;
        if let Some(key) = self.keys.iter_mut().find(|k| k.domain == domain) {
            key.leaders = Reverse(i32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(pods: i32, slices: i32) -> Counts {
        Counts { pods, slices, ..Counts::default() }
    }

    proptest! {
        #[test]
        fn reading_in_steps_gives_the_whole_order(all in prop::collection::vec((0..9_i32, 0..9_i32), 0..3000)) {
            let keys = |profile| {
                let key = move |(domain, &(pods, slices)): (u32, &(i32, i32))| {
                    Key::plain(&counts(pods, slices), domain, profile, false)
                };
                (0..).zip(&all).map(key).collect::<Vec<_>>()
            };
            for profile in [Profile::BestFit, Profile::LeastFreeCapacity] {
                let mut queue = Queue::default();
                queue.reset(keys(profile).into_iter());
                let got: Vec<u32> = (0..).map_while(|i| queue.get(i)).collect();
                let mut want = keys(profile);
                want.sort_unstable();
                prop_assert_eq!(got, want.iter().map(|k| k.domain).collect::<Vec<_>>());
                prop_assert_eq!(queue.last(), want.last().map(|k| k.domain));
            }
        }
    }

    #[test]
    fn a_promoted_domain_comes_first_and_wins_ties() {
        let mut queue = Queue::default();
        queue.reset_ordered(&[4, 9, 2]);
        queue.promote(2);
        assert_eq!((0..3).map(|i| queue.get(i)).collect::<Vec<_>>(), [Some(2), Some(4), Some(9)]);
        assert_eq!(queue.tightest(0, |_| Some(1)), Some(2));
        assert_eq!(queue.tightest(1, |d| (d == 9).then_some(7)), Some(9));
        assert_eq!(queue.tightest(1, |_| None), Some(4));
        assert_eq!(queue.first(|d| d != 2), Some(4));
    }
}
