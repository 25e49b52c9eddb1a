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
        Self { edges, capacities }
    }

    /// The groups that a demand could be met from.
    pub(super) fn groups_of(&self, demand: usize) -> &[u32] {
        self.edges.get(demand).map_or(&[], Vec::as_slice)
    }

    /// Deals slices out, as many as can be.
    pub(super) fn deal(&self, needs: &[u32]) -> Dealt {
        let mut dealt = Dealt {
            flows: self.edges.iter().map(|groups| vec![0; groups.len()]).collect(),
            left: self.capacities.clone(),
            met: 0,
        };
        for (demand, &need) in needs.iter().enumerate() {
            self.meet(&mut dealt, demand, need);
        }
        dealt
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
                    if other == start || gives.get(other).is_none_or(Option::is_some) || flow(dealt, other, at) == 0 {
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
