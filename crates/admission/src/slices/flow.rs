//! Whether demands can be dealt out over groups of slices.

/// Demands and the groups of equal slices that each could be met from.
///
/// The answer is a maximum flow: demands are met from groups in turn, and a demand that finds its groups used up makes others
/// move to further groups of theirs, along shortest chains.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// By demand: the groups that it could be met from, ascending.
    edges: Vec<Vec<u32>>,
    /// By group: how many slices it has.
    capacities: Vec<u32>,
    /// By demand: if each of what it needs is a group of its own, with at least so many slices.
    whole: Vec<Option<u32>>,
}

/// Who was given how much of what.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Dealt {
    /// By demand, beside the groups of [`Network::groups_of`].
    pub(super) flows: Vec<Vec<u32>>,
    /// By group: what is left.
    pub(super) left: Vec<u32>,
    /// What of all demands could be met.
    pub(super) met: u64,
}

impl Network {
    pub(super) fn new(edges: Vec<Vec<u32>>, capacities: Vec<u32>) -> Self {
        let whole = vec![None; edges.len()];
        Self { edges, capacities, whole }
    }

    /// Lets demands take groups as a whole that are not shared with others.
    pub(super) fn with_whole(self, whole: Vec<Option<u32>>) -> Self {
        Self { whole, ..self }
    }

    fn takes_whole(&self, demand: usize) -> Option<u32> {
        self.whole.get(demand).copied().flatten()
    }

    /// What of the demands that share groups was met, and of those that do not.
    fn met(&self, dealt: &Dealt) -> (u64, u64) {
        let (mut shared, mut whole) = (0u64, 0u64);
        for (demand, flows) in dealt.flows.iter().enumerate() {
            let sum = if self.takes_whole(demand).is_some() { &mut whole } else { &mut shared };
            *sum = flows.iter().fold(*sum, |sum, n| sum.saturating_add(u64::from(*n)));
        }
        (shared, whole)
    }

    /// Whether all that is asked can be had without that anybody gets less of `needs`.
    pub(super) fn fits_beside(&self, ask: &[(usize, u32)], needs: &[u32]) -> bool {
        let concerns = |demand: usize| self.takes_whole(demand).is_some();
        let any_whole = ask.iter().any(|&(demand, _)| concerns(demand))
            || needs.iter().enumerate().any(|(demand, &need)| need > 0 && concerns(demand));
        let before = self.deal(needs);
        if !any_whole {
            let mut dealt = before;
            return ask.iter().all(|&(demand, n)| self.meet(&mut dealt, demand, n) == n);
        }
        let mut all = needs.to_vec();
        let (mut shared, mut whole) = self.met(&before);
        for &(demand, n) in ask {
            let Some(need) = all.get_mut(demand) else { return n == 0 };
            *need = need.saturating_add(n);
            let sum = if concerns(demand) { &mut whole } else { &mut shared };
            *sum = sum.saturating_add(u64::from(n));
        }
        let after = self.met(&self.deal(&all));
        after.0 >= shared && after.1 >= whole
    }

    /// The groups that a demand could be met from.
    pub(super) fn groups_of(&self, demand: usize) -> &[u32] {
        self.edges.get(demand).map_or(&[], Vec::as_slice)
    }

    /// Where a group is among those of a demand.
    fn position(&self, demand: usize, group: usize) -> Option<usize> {
        self.groups_of(demand).binary_search(&u32::try_from(group).ok()?).ok()
    }

    /// Deals slices out, as many as can be.
    ///
    /// Demands for whole groups come first, and take as many as can be; which ones leaves most to the others is a hard question
    /// in general, so it is the better of two answers: groups that few others could use, and groups that are small.
    pub(super) fn deal(&self, needs: &[u32]) -> Dealt {
        let whole = |(demand, &need): (usize, &u32)| need > 0 && self.takes_whole(demand).is_some();
        if !needs.iter().enumerate().any(whole) {
            return self.deal_by(needs, &[]);
        }
        let mut rivals = vec![0u32; self.capacities.len()];
        for (demand, groups) in self.edges.iter().enumerate() {
            if self.takes_whole(demand).is_none() && needs.get(demand).is_some_and(|&need| need > 0) {
                for &group in groups {
                    if let Some(n) = rivals.get_mut(group as usize) {
                        *n = n.saturating_add(1);
                    }
                }
            }
        }
        let size = |group: usize| self.capacities.get(group).copied().unwrap_or(0);
        let wanted = |group: usize| rivals.get(group).copied().unwrap_or(0);
        let mut small: Vec<usize> = (0..self.capacities.len()).collect();
        let mut quiet = small.clone();
        small.sort_by_key(|&g| (size(g), wanted(g)));
        quiet.sort_by_key(|&g| (wanted(g), size(g)));
        let (small, quiet) = (self.deal_by(needs, &small), self.deal_by(needs, &quiet));
        if small.met >= quiet.met { small } else { quiet }
    }

    /// Deals out; demands for whole groups prefer them in this order.
    fn deal_by(&self, needs: &[u32], order: &[usize]) -> Dealt {
        let mut dealt = Dealt {
            flows: self.edges.iter().map(|groups| vec![0; groups.len()]).collect(),
            left: self.capacities.clone(),
            met: 0,
        };
        let mut owners: Vec<Option<usize>> = vec![None; self.capacities.len()];
        for (demand, &need) in needs.iter().enumerate() {
            for _ in 0..if self.takes_whole(demand).is_some() { need } else { 0 } {
                if !self.claim(&mut owners, demand, order) {
                    break;
                }
            }
        }
        for (group, owner) in owners.iter().enumerate() {
            let Some(demand) = *owner else { continue };
            if let Some(i) = self.position(demand, group) {
                add(&mut dealt, demand, i, 1);
            }
            if let Some(left) = dealt.left.get_mut(group) {
                *left = 0;
            }
            dealt.met = dealt.met.saturating_add(1);
        }
        for (demand, &need) in needs.iter().enumerate() {
            if self.takes_whole(demand).is_none() {
                self.meet(&mut dealt, demand, need);
            }
        }
        dealt
    }

    /// Gives a demand one more whole group; owners move over along a shortest chain where that is needed.
    fn claim(&self, owners: &mut [Option<usize>], demand: usize, order: &[usize]) -> bool {
        let fits = |demand: usize, group: usize| {
            let enough =
                self.takes_whole(demand).is_some_and(|n| self.capacities.get(group).is_some_and(|&c| c >= n.max(1)));
            enough && self.position(demand, group).is_some()
        };
        // For each group that was reached: who would take it, and which group that one would give up.
        let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; self.capacities.len()];
        let mut queue = std::collections::VecDeque::from([(demand, None)]);
        while let Some((taker, gives)) = queue.pop_front() {
            for &group in order {
                let Some(slot) = reached.get_mut(group).filter(|slot| slot.is_none()) else { continue };
                if !fits(taker, group) {
                    continue;
                }
                *slot = Some((taker, gives));
                if let Some(owner) = owners.get(group).copied().flatten() {
                    queue.push_back((owner, Some(group)));
                    continue;
                }
                let mut at = Some(group);
                while let Some((taker, gives)) = at.and_then(|g| reached.get(g).copied().flatten()) {
                    if let Some(owner) = at.and_then(|g| owners.get_mut(g)) {
                        *owner = Some(taker);
                    }
                    at = gives;
                }
                return true;
            }
        }
        false
    }

    /// Deals out more for one demand; what could be had of it. What others have stays as much as it is.
    pub(super) fn meet(&self, dealt: &mut Dealt, demand: usize, need: u32) -> u32 {
        let mut open = need;
        for (i, &group) in self.groups_of(demand).iter().enumerate() {
            let Some(left) = dealt.left.get_mut(group as usize) else { continue };
            let take = open.min(*left);
            *left -= take;
            open -= take;
            add(dealt, demand, i, i64::from(take));
        }
        while open > 0 {
            let moved = self.augment(dealt, demand, open);
            if moved == 0 {
                break;
            }
            open -= moved;
        }
        dealt.met = dealt.met.saturating_add(u64::from(need - open));
        need - open
    }

    /// Finds a shortest chain of demands that give way to one another until a group with slices left, and moves as much as it
    /// bears.
    fn augment(&self, dealt: &mut Dealt, start: usize, most: u32) -> u32 {
        // For each group that was reached: the demand that would take it, and the position of the group with that demand.
        let mut reached: Vec<Option<(usize, usize)>> = vec![None; self.capacities.len()];
        // For each demand that was reached: the group it would give up, and the position of that group with the demand.
        let mut gives: Vec<Option<(u32, usize)>> = vec![None; self.edges.len()];
        let mut queue = std::collections::VecDeque::from([start]);
        let mut end = None;
        'search: while let Some(demand) = queue.pop_front() {
            for (i, &group) in self.groups_of(demand).iter().enumerate() {
                let Some(slot) = reached.get_mut(group as usize).filter(|slot| slot.is_none()) else { continue };
                *slot = Some((demand, i));
                if dealt.left.get(group as usize).is_some_and(|&left| left > 0) {
                    end = Some(group);
                    break 'search;
                }
                for other in 0..self.edges.len() {
                    let Some(at) = self.groups_of(other).iter().position(|g| *g == group) else { continue };
                    if self.takes_whole(other).is_some()
                        || other == start
                        || gives.get(other).is_none_or(Option::is_some)
                        || flow(dealt, other, at) == 0
                    {
                        continue;
                    }
                    if let Some(slot) = gives.get_mut(other) {
                        *slot = Some((group, at));
                    }
                    queue.push_back(other);
                }
            }
        }
        let Some(end) = end else { return 0 };
        // What the chain bears.
        let mut amount = most.min(dealt.left.get(end as usize).copied().unwrap_or(0));
        let mut group = end;
        while let Some((demand, _)) = reached.get(group as usize).copied().flatten() {
            let Some((given, at)) = gives.get(demand).copied().flatten() else { break };
            amount = amount.min(flow(dealt, demand, at));
            group = given;
        }
        if let Some(left) = dealt.left.get_mut(end as usize) {
            *left -= amount;
        }
        let mut group = end;
        while let Some((demand, i)) = reached.get(group as usize).copied().flatten() {
            add(dealt, demand, i, i64::from(amount));
            let Some((given, at)) = gives.get(demand).copied().flatten() else { break };
            add(dealt, demand, at, -i64::from(amount));
            group = given;
        }
        amount
    }
}

fn flow(dealt: &Dealt, demand: usize, at: usize) -> u32 {
    dealt.flows.get(demand).and_then(|f| f.get(at)).copied().unwrap_or(0)
}

fn add(dealt: &mut Dealt, demand: usize, at: usize, amount: i64) {
    if let Some(flow) = dealt.flows.get_mut(demand).and_then(|f| f.get_mut(at)) {
        *flow = u32::try_from(i64::from(*flow).saturating_add(amount)).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most that can be met, by Hall's theorem in its deficiency form: over every set of demands, what they lack.
    fn brute(edges: &[Vec<u32>], capacities: &[u32], needs: &[u32]) -> u64 {
        let total: u64 = needs.iter().map(|&n| u64::from(n)).sum();
        let mut worst = 0;
        for set in 0u32..1 << needs.len() {
            let chosen = |d: &usize| set >> d & 1 == 1;
            let need: u64 = (0..needs.len()).filter(chosen).map(|d| u64::from(needs[d])).sum();
            let groups: std::collections::BTreeSet<u32> =
                (0..needs.len()).filter(chosen).flat_map(|d| edges[d].iter().copied()).collect();
            let have: u64 = groups.iter().map(|&g| u64::from(capacities[g as usize])).sum();
            worst = worst.max(need.saturating_sub(have));
        }
        total - worst
    }

    #[test]
    fn others_move_over_to_make_room() {
        // The first demand may lie on either group, the second on the first group only.
        let network = Network::new(vec![vec![0, 1], vec![0]], vec![2, 1]);
        let mut dealt = network.deal(&[2, 0]);
        assert_eq!(dealt.left, [0, 1]);
        assert_eq!(network.meet(&mut dealt, 1, 2), 1, "one of the two can move");
        assert_eq!(dealt.flows, [vec![1, 1], vec![1]]);
    }

    proptest! {
        #[test]
        fn as_much_is_met_as_can_be(
            masks in proptest::collection::vec(0u32..16, 1..6),
            capacities in proptest::collection::vec(0u32..5, 4),
            needs in proptest::collection::vec(0u32..6, 5),
        ) {
            let edges: Vec<Vec<u32>> = masks.iter().map(|m| (0..4).filter(|g| m >> g & 1 == 1).collect()).collect();
            let needs = &needs[..edges.len()];
            let network = Network::new(edges.clone(), capacities.clone());
            let dealt = network.deal(needs);
            prop_assert_eq!(dealt.met, brute(&edges, &capacities, needs));
            // No group gives more than it has, and no demand gets more than it needs.
            let mut given = [0; 4];
            for (demand, groups) in edges.iter().enumerate() {
                prop_assert!(dealt.flows[demand].iter().sum::<u32>() <= needs[demand]);
                for (i, &group) in groups.iter().enumerate() {
                    given[group as usize] += dealt.flows[demand][i];
                }
            }
            for group in 0..4 {
                prop_assert_eq!(given[group] + dealt.left[group], capacities[group]);
            }
        }

        #[test]
        fn groups_that_are_taken_whole_are_shared_with_nobody(
            masks in proptest::collection::vec(0u32..16, 1..6),
            capacities in proptest::collection::vec(0u32..5, 4),
            needs in proptest::collection::vec(0u32..4, 5),
            whole in proptest::collection::vec(proptest::option::of(0u32..4), 5),
            ask in 0u32..4,
        ) {
            let edges: Vec<Vec<u32>> = masks.iter().map(|m| (0..4).filter(|g| m >> g & 1 == 1).collect()).collect();
            let needs = &needs[..edges.len()];
            let whole = &whole[..edges.len()];
            let network = Network::new(edges.clone(), capacities.clone()).with_whole(whole.to_vec());
            let dealt = network.deal(needs);
            let mut used: Vec<Vec<usize>> = vec![Vec::new(); 4];
            let mut given = [0; 4];
            for (demand, groups) in edges.iter().enumerate() {
                prop_assert!(dealt.flows[demand].iter().sum::<u32>() <= needs[demand]);
                for (i, &group) in groups.iter().enumerate() {
                    let flow = dealt.flows[demand][i];
                    if flow > 0 {
                        used[group as usize].push(demand);
                        given[group as usize] += flow;
                        if let Some(least) = whole[demand] {
                            prop_assert!(flow == 1 && capacities[group as usize] >= least.max(1));
                        }
                    }
                }
            }
            for group in 0..4 {
                if used[group].iter().any(|&d| whole[d].is_some()) {
                    prop_assert_eq!(used[group].len(), 1);
                    prop_assert_eq!(dealt.left[group], 0);
                } else {
                    prop_assert_eq!(given[group] + dealt.left[group], capacities[group]);
                }
            }
            // Of whole groups as many are given as can be: by Hall, as if each were one slice.
            let adequate: Vec<Vec<u32>> = edges.iter().zip(whole).map(|(groups, least)| match least {
                Some(least) => groups.iter().copied().filter(|&g| capacities[g as usize] >= (*least).max(1)).collect(),
                None => Vec::new(),
            }).collect();
            let wanted: Vec<u32> = needs.iter().zip(whole).map(|(&n, w)| if w.is_some() { n } else { 0 }).collect();
            prop_assert_eq!(network.met(&dealt).1, brute(&adequate, &[1; 4], &wanted));
            // Whatever fits leaves to others what they have.
            if network.fits_beside(&[(0, ask)], needs) {
                let mut all = needs.to_vec();
                all[0] += ask;
                prop_assert_eq!(network.deal(&all).met, dealt.met + u64::from(ask));
            }
        }

        #[test]
        fn one_demand_more_takes_nothing_from_others(
            masks in proptest::collection::vec(0u32..16, 2..6),
            capacities in proptest::collection::vec(0u32..5, 4),
            needs in proptest::collection::vec(0u32..6, 5),
        ) {
            let edges: Vec<Vec<u32>> = masks.iter().map(|m| (0..4).filter(|g| m >> g & 1 == 1).collect()).collect();
            let last = edges.len() - 1;
            let before: Vec<u32> = (0..edges.len()).map(|d| if d == last { 0 } else { needs[d] }).collect();
            let network = Network::new(edges, capacities);
            let mut dealt = network.deal(&before);
            let had: Vec<u32> = dealt.flows.iter().map(|f| f.iter().sum()).collect();
            let got = network.meet(&mut dealt, last, needs[last]);
            for (demand, had) in had.iter().enumerate().take(last) {
                prop_assert_eq!(dealt.flows[demand].iter().sum::<u32>(), *had);
            }
            let mut all = before;
            all[last] = needs[last];
            prop_assert_eq!(dealt.met, network.deal(&all).met);
            prop_assert!(got <= needs[last]);
        }
    }
}
