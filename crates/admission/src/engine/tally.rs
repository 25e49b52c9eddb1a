//! Sums of what workloads hold, kept up to date as they come and go.

use std::collections::BTreeMap;

use slicegate_quota::{Amount, FlavorResourceId};

use super::record::Holding;

/// What a group of workloads holds of one ClusterQueue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// How many there are.
    pub(super) reserving: usize,
    /// How many of them may run.
    pub(super) admitted: usize,
    /// What all of them use, and what those use that may run. Wide enough to be exact: each is at most [`Amount::UNLIMITED`].
    sums: BTreeMap<FlavorResourceId, (i128, i128)>,
}

impl Tally {
    /// Counts a workload.
    pub(super) fn add(&mut self, holding: &Holding) {
        self.reserving = self.reserving.saturating_add(1);
        self.admitted = self.admitted.saturating_add(usize::from(holding.admitted));
        self.change(holding, 1);
    }

    /// Counts a workload no more.
    pub(super) fn take(&mut self, holding: &Holding) {
        self.reserving = self.reserving.saturating_sub(1);
        self.admitted = self.admitted.saturating_sub(usize::from(holding.admitted));
        self.change(holding, -1);
    }

    fn change(&mut self, holding: &Holding, sign: i128) {
        for &(pair, amount) in &holding.usage {
            let (all, running) = self.sums.entry(pair).or_default();
            let change = sign.saturating_mul(i128::from(amount.value()));
            *all = all.saturating_add(change);
            if holding.admitted {
                *running = running.saturating_add(change);
            }
            if (*all, *running) == (0, 0) {
                self.sums.remove(&pair);
            }
        }
    }

    /// What all of them use of a pair.
    pub(super) fn reserved(&self, pair: FlavorResourceId) -> Amount {
        self.sums.get(&pair).map_or(Amount::ZERO, |(all, _)| clamped(*all))
    }

    /// What those that may run use of a pair.
    pub(super) fn used(&self, pair: FlavorResourceId) -> Amount {
        self.sums.get(&pair).map_or(Amount::ZERO, |(_, running)| clamped(*running))
    }
}

fn clamped(sum: i128) -> Amount {
    Amount::new(i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use slicegate_quota::NodeId;

    use super::super::ids::LocalQueueId;
    use super::*;

    #[test]
    fn what_is_unlimited_leaves_no_trace() {
        let pair = FlavorResourceId::from_index(0);
        let holding = |amount, admitted| Holding {
            node: NodeId::from_index(0),
            queue: LocalQueueId::from_index(0),
            position: 0,
            places: Vec::new(),
            slices: Vec::new(),
            usage: vec![(pair, amount)],
            reserved_at: None,
            admitted,
            pods_ready: false,
            assumed: None,
        };
        let (some, all) = (holding(Amount::new(3), true), holding(Amount::UNLIMITED, false));
        let mut tally = Tally::default();
        tally.add(&some);
        tally.add(&all);
        assert_eq!((tally.reserving, tally.admitted), (2, 1));
        assert_eq!((tally.reserved(pair), tally.used(pair)), (Amount::UNLIMITED, Amount::new(3)));
        tally.take(&all);
        assert_eq!(tally.reserved(pair), Amount::new(3));
        tally.take(&some);
        assert_eq!(tally, Tally::default());
    }
}
