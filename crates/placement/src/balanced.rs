//! Balanced placement: pods spread evenly over few domains (Kueue's alpha gate `TASBalancedPlacement`).
//!
//! The share of a domain is at least a threshold. Among sets of siblings the one is taken that allows the highest threshold,
//! and of that no more domains than needed, with as little room as possible.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::Counts;
use crate::counts::sum_up;
use crate::search::{Need, Search};

/// How many partial sets are looked at before balancing is given up.
const MAX_SETS: usize = 1 << 20;

/// How domains would be taken one after another, the largest first.
#[derive(Clone, Copy, Debug)]
struct Greedy {
    domains: i32,
    last_with_leader: Option<u32>,
    last: Option<u32>,
}

/// Siblings that pods can be spread over evenly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Balance {
    pub(crate) siblings: Range<u32>,
    /// The slices that every domain takes at least.
    pub(crate) threshold: i32,
    /// How many of the siblings are needed.
    pub(crate) domains: i32,
}

/// A set of domains that is being put together.
struct Partial {
    domain: u32,
    before: Option<usize>,
}

impl Search<'_> {
    /// Spreads the pods evenly: the level and the domains that were taken. `None`, with counts as they were, if that is not
    /// possible.
    pub(crate) fn balance(&mut self, need: Need) -> Option<(usize, Vec<u32>)> {
        let best = self.find_balance(need)?;
        let saved = self.save(&best.siblings);
        self.prune(&best.siblings, self.plan.level, best.threshold, need.leaders > 0);
        let needed = self.plan.slices(need.pods);
        let result = (|| {
            if self.plan.level >= self.plan.slice_level {
                let all: Vec<u32> = best.siblings.clone().collect();
                return Some((self.plan.level, self.distribute(&all, needed, need.leaders, best.threshold)?));
            }
            let all: Vec<u32> = best.siblings.clone().collect();
            let selected = self.select(&all, needed, need.leaders, true)?;
            let children: Vec<u32> = selected.iter().flat_map(|d| self.tree.children(*d)).collect();
            let placed = self.distribute(&children, needed, need.leaders, best.threshold)?;
            Some((self.plan.level.saturating_add(1), placed))
        })();
        if result.is_none() {
            self.restore(&best.siblings, &saved);
        }
        result
    }

    /// The siblings with the highest threshold; of several, those of which the fewest are needed. Counts are left as they were.
    pub(crate) fn find_balance(&mut self, need: Need) -> Option<Balance> {
        let tree = self.tree;
        let sets: Vec<Range<u32>> = match self.plan.level.checked_sub(1) {
            None => vec![tree.level_range(0)],
            Some(above) => tree.level_range(above).map(|d| tree.children(d)).collect(),
        };
        let mut best: Option<Balance> = None;
        for siblings in sets {
            let Some((threshold, domains)) = self.threshold(&siblings, need) else { continue };
            let better =
                best.as_ref().is_none_or(|b| (Reverse(threshold), domains) < (Reverse(b.threshold), b.domains));
            if better {
                best = Some(Balance { siblings, threshold, domains });
            }
        }
        best
    }

    /// The highest threshold that siblings allow, and how many of them are needed then.
    fn threshold(&mut self, siblings: &Range<u32>, need: Need) -> Option<(i32, i32)> {
        let needed = self.plan.slices(need.pods);
        let level = self.plan.level;
        let compared =
            if level < self.plan.slice_level { self.tree.below(siblings.clone(), 1) } else { siblings.clone() };
        let greedy = self.greedy(compared, needed, need.leaders)?;
        let mut threshold = needed.checked_div(greedy.domains)?;
        if let Some(domain) = greedy.last_with_leader {
            threshold = threshold.min(self.at(domain).slices_with_leader);
        }
        if let Some(domain) = greedy.last {
            threshold = threshold.min(self.at(domain).slices);
        }
        let lower = greedy.last.filter(|_| need.leaders > 0).map(|d| self.at(d).slices_with_leader);
        let second = lower.filter(|lower| *lower < threshold);
        for threshold in [Some(threshold), second].into_iter().flatten().filter(|t| *t > 0) {
            let saved = self.save(siblings);
            self.prune(siblings, level, threshold, need.leaders > 0);
            let fits = self.greedy(siblings.clone(), needed, need.leaders);
            self.restore(siblings, &saved);
            if let Some(greedy) = fits {
                return Some((threshold, greedy.domains));
            }
        }
        None
    }

    /// Takes the domains with most room until all slices and leaders are placed.
    fn greedy(&mut self, domains: impl Iterator<Item = u32> + Clone, needed: i32, leaders: i32) -> Option<Greedy> {
        let mut result = Greedy { domains: 0, last_with_leader: None, last: None };
        let (mut left, mut leaders) = (needed, leaders);
        self.queue_with_leader(domains.clone());
        let mut taken = Vec::new();
        while leaders > 0 {
            let domain = self.queue.get(taken.len())?;
            let of = self.at(domain);
            if of.leaders <= 0 {
                return None;
            }
            left = left.saturating_sub(of.slices_with_leader);
            leaders = leaders.saturating_sub(of.leaders);
            result.domains = result.domains.saturating_add(1);
            result.last_with_leader = Some(domain);
            taken.push(domain);
        }
        self.queue_plain(domains.filter(|d| !taken.contains(d)));
        let mut position = 0;
        while left > 0 {
            let domain = self.queue.get(position)?;
            left = left.saturating_sub(self.at(domain).slices);
            result.domains = result.domains.saturating_add(1);
            result.last = Some(domain);
            position = position.saturating_add(1);
        }
        Some(result)
    }

    /// Empties domains that hold fewer slices than the threshold, and lets those take no leader that hold fewer beside one.
    ///
    /// What is compared are the children of the siblings, whose counts are summed up anew; or the siblings themselves if they
    /// are of the level of slices.
    pub(crate) fn prune(&mut self, siblings: &Range<u32>, level: usize, threshold: i32, leader_requested: bool) {
        let (compared, compared_level) = if level < self.plan.slice_level {
            (self.tree.below(siblings.clone(), 1), level.saturating_add(1))
        } else {
            (siblings.clone(), level)
        };
        for domain in compared.clone() {
            let of = self.at(domain);
            if of.slices < threshold {
                self.clear(domain, compared_level, |c| *c = Counts { affinity: c.affinity, ..Counts::default() });
            } else if leader_requested && of.slices_with_leader < threshold {
                self.clear(domain, compared_level, |c| {
                    (c.leaders, c.pods_with_leader, c.slices_with_leader) = (0, 0, 0);
                });
            }
        }
        if level >= self.plan.slice_level {
            return;
        }
        self.recount(compared, compared_level, leader_requested);
        for domain in siblings.clone() {
            self.counts[domain as usize] = sum_up(self.tree, self.plan, self.counts, domain, level, leader_requested);
        }
    }

    /// Changes the counts of a domain and of all domains below it.
    fn clear(&mut self, domain: u32, level: usize, change: impl Fn(&mut Counts)) {
        for deeper in level..=self.tree.lowest() {
            let below = self.tree.below(domain..domain.saturating_add(1), deeper.saturating_sub(level));
            self.counts
                .get_mut(below.start as usize..below.end as usize)
                .unwrap_or_default()
                .iter_mut()
                .for_each(&change);
        }
    }

    /// Sums the counts of neighbours up anew, from the leaves, whose slices follow from their pods.
    fn recount(&mut self, domains: Range<u32>, level: usize, leader_requested: bool) {
        for deeper in (level..=self.tree.lowest()).rev() {
            for domain in self.tree.below(domains.clone(), deeper.saturating_sub(level)) {
                if deeper < self.tree.lowest() {
                    self.counts[domain as usize] =
                        sum_up(self.tree, self.plan, self.counts, domain, deeper, leader_requested);
                } else if deeper == self.plan.slice_level {
                    let mut of = self.at(domain);
                    of.slices = self.plan.slices(of.pods);
                    of.slices_with_leader = self.plan.slices(of.pods_with_leader);
                    self.counts[domain as usize] = of;
                }
            }
        }
    }

    /// The counts of siblings of the level searched and of everything below them.
    fn save(&self, siblings: &Range<u32>) -> Vec<Counts> {
        let ranges = self.subtree(siblings);
        ranges.iter().flat_map(|r| self.counts.get(r.clone()).unwrap_or_default()).copied().collect()
    }

    fn restore(&mut self, siblings: &Range<u32>, saved: &[Counts]) {
        let mut saved = saved;
        for range in self.subtree(siblings) {
            let (part, rest) = saved.split_at(range.len().min(saved.len()));
            if let Some(counts) = self.counts.get_mut(range).filter(|c| c.len() == part.len()) {
                counts.copy_from_slice(part);
            }
            saved = rest;
        }
    }

    fn subtree(&self, siblings: &Range<u32>) -> Vec<Range<usize>> {
        let levels = self.tree.lowest().saturating_sub(self.plan.level);
        let below = |n| self.tree.below(siblings.clone(), n);
        (0..=levels).map(below).map(|r| r.start as usize..r.end as usize).collect()
    }

    /// As many domains as are needed if the largest are taken, with the least room that is enough; of several such sets the one
    /// whose domains come first. `None` if they do not fit.
    ///
    /// With `by_evenness` those domains come first that take a leader, have more room beside it, and whose children have more
    /// even room; else the order is that of their values.
    pub(crate) fn select(&mut self, domains: &[u32], needed: i32, leaders: i32, by_evenness: bool) -> Option<Vec<u32>> {
        let greedy = self.greedy(domains.iter().copied(), needed, leaders)?;
        let size = usize::try_from(greedy.domains).ok()?;
        let ordered = if by_evenness { self.by_evenness(domains) } else { domains.to_vec() };

        // By number of domains: for leaders and slices that are left, the set that was found first.
        let mut arena: Vec<Partial> = Vec::new();
        let mut found: Vec<BTreeMap<(i32, i32), Option<usize>>> = vec![BTreeMap::new(); size.saturating_add(1)];
        found.first_mut()?.insert((leaders, needed), None);
        let mut alike: BTreeMap<(i32, i32, i32), usize> = BTreeMap::new();
        for domain in ordered {
            let of = self.at(domain);
            let same = alike.entry((of.leaders, of.slices, of.slices_with_leader)).or_default();
            *same = same.saturating_add(1);
            // More domains that are alike than can be taken add nothing; neither do empty ones.
            if *same > size || of.slices.max(of.slices_with_leader) <= 0 {
                continue;
            }
            for count in (0..size).rev() {
                // Sets without a leader first, so that of equal sets the one is found whose last domain takes it.
                let states: Vec<((i32, i32), Option<usize>)> =
                    found.get(count)?.iter().rev().map(|(state, set)| (*state, *set)).collect();
                for ((leaders, left), before) in states {
                    let with_leader = (leaders > 0 && of.leaders > 0)
                        .then(|| (leaders.saturating_sub(of.leaders), left.saturating_sub(of.slices_with_leader)));
                    for state in [with_leader, Some((leaders, left.saturating_sub(of.slices)))].into_iter().flatten() {
                        let next = found.get_mut(count.saturating_add(1))?;
                        next.entry(state).or_insert_with(|| {
                            arena.push(Partial { domain, before });
                            Some(arena.len().saturating_sub(1))
                        });
                    }
                }
                if arena.len() > MAX_SETS {
                    return None;
                }
            }
        }
        let enough = found.last()?.iter().filter(|((leaders, left), _)| *leaders <= 0 && *left <= 0);
        let (_, best) = enough.max_by_key(|((_, left), _)| *left)?;
        let mut chosen = Vec::with_capacity(size);
        let mut next = *best;
        while let Some(partial) = next.and_then(|i| arena.get(i)) {
            chosen.push(partial.domain);
            next = partial.before;
        }
        chosen.sort_unstable();
        Some(chosen)
    }

    /// Domains in the order of: taking a leader, room beside it, evenness of the room of their children, values.
    pub(crate) fn by_evenness(&self, domains: &[u32]) -> Vec<u32> {
        let mut keyed: Vec<(Reverse<i32>, Reverse<i32>, f64, u32)> = domains
            .iter()
            .map(|&domain| {
                let of = self.at(domain);
                (Reverse(of.leaders), Reverse(of.slices_with_leader), self.evenness(domain), domain)
            })
            .collect();
        keyed.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(b.2.total_cmp(&a.2)).then(a.3.cmp(&b.3)));
        keyed.into_iter().map(|(_, _, _, domain)| domain).collect()
    }

    /// The entropy of the pods of a domain's children, in bits. The rule itself is one of real numbers; summing in order of size
    /// makes it the same for children in any order.
    fn evenness(&self, domain: u32) -> f64 {
        let mut pods: Vec<i32> = self.tree.children(domain).map(|c| self.at(c).pods).filter(|p| *p > 0).collect();
        pods.sort_unstable();
        let total: f64 = pods.iter().map(|p| f64::from(*p)).sum();
        let share = |p: &i32| f64::from(*p) / total;
        pods.iter().map(|p| -share(p) * share(p).log2()).sum()
    }

    /// Gives every domain of the best set the threshold, and what is left to those with most room. The domains, with their
    /// counts reduced to their shares; `None` if it does not come out even.
    pub(crate) fn distribute(
        &mut self,
        domains: &[u32],
        needed: i32,
        leaders: i32,
        threshold: i32,
    ) -> Option<Vec<u32>> {
        let selected = self.select(domains, needed, leaders, false)?;
        let count = i32::try_from(selected.len()).ok()?;
        let mut extra = needed.checked_sub(threshold.checked_mul(count)?).filter(|e| *e >= 0)?;
        let mut leaders = leaders;
        self.queue_with_leader(selected.iter().copied());
        let ordered: Vec<u32> = (0..selected.len()).map_while(|i| self.queue.get(i)).collect();
        let mut shares = Vec::with_capacity(ordered.len());
        for domain in ordered {
            let of = self.at(domain);
            let leader = of.leaders.min(leaders);
            let room = if leader > 0 { of.slices_with_leader } else { of.slices };
            let more = extra.min(room.checked_sub(threshold).filter(|m| *m >= 0)?);
            (extra, leaders) = (extra.saturating_sub(more), leaders.saturating_sub(leader));
            let slices = threshold.saturating_add(more);
            let pods = slices.saturating_mul(self.plan.slice_size);
            let share = Counts {
                pods,
                pods_with_leader: pods,
                slices,
                slices_with_leader: slices,
                leaders: leader,
                affinity: of.affinity,
            };
            shares.push((domain, share));
        }
        if extra > 0 || leaders > 0 {
            return None;
        }
        for (domain, share) in &shares {
            self.counts[*domain as usize] = *share;
        }
        Some(shares.into_iter().map(|(domain, _)| domain).collect())
    }
}

#[cfg(test)]
mod tests {
    use slicegate_workload::{FlavorSpec, TopologySpec};

    use super::*;
    use crate::steps::{Board, Parameters};
    use crate::{Node, Tree};

    /// Racks with so many hosts each.
    fn tree(racks: &[usize]) -> Tree {
        let levels = ["rack", "host"].map(Into::into).to_vec();
        let mut nodes = Vec::new();
        for (rack, hosts) in racks.iter().enumerate() {
            for host in 0..*hosts {
                let name: Box<str> = format!("r{rack}h{host}").into();
                let labels = [("rack".into(), format!("r{rack}").into()), ("host".into(), name.clone())];
                nodes.push(Node { name, labels: labels.into(), ready: true, ..Node::default() });
            }
        }
        Tree::new(&FlavorSpec::default(), &TopologySpec { name: "t".into(), levels }, &nodes)
    }

    /// A board whose hosts take so many pods; racks are summed up.
    fn board<'t>(tree: &'t Tree, level: usize, pods: &[i32]) -> Board<'t> {
        let mut board = Board::new(tree, Parameters { level, slice_level: 1, ..Parameters::default() });
        let first = tree.leaf_offset();
        for (counts, pods) in board.counts.iter_mut().skip(first).zip(pods) {
            *counts = Counts {
                pods: *pods,
                pods_with_leader: pods - 1,
                slices: *pods,
                slices_with_leader: pods - 1,
                leaders: 1,
                affinity: 0,
            };
        }
        board.prune(1, true);
        board
    }

    /// A domain with its slices and leaders.
    type Share = (u32, i32, i32);

    fn shares(board: &mut Board<'_>, pods: i32, leaders: i32) -> Option<(usize, Vec<Share>)> {
        let found = board.search(|s| s.balance(Need { pods, leaders }));
        found.map(|(level, domains)| {
            let of = |d: u32| (d, board.counts[d as usize].slices, board.counts[d as usize].leaders);
            (level, domains.into_iter().map(of).collect())
        })
    }

    #[test]
    fn hosts_of_the_tightest_rack_share_evenly() {
        let tree = tree(&[3, 2]);
        let mut b = board(&tree, 0, &[9, 9, 9, 6, 6]);
        assert_eq!(b.find_balance(11, 0), Some((5, vec![0, 1], 1)), "two hosts are enough, 5 each");
        let mut b = board(&tree, 0, &[6, 6, 6, 6, 6]);
        assert_eq!(shares(&mut b, 11, 0), Some((1, vec![(5, 6, 0), (6, 5, 0)])));
        assert_eq!(shares(&mut board(&tree, 0, &[6, 6, 6, 6, 6]), 11, 1), Some((1, vec![(5, 5, 1), (6, 6, 0)])));
    }

    #[test]
    fn the_highest_threshold_wins_then_the_fewest_domains() {
        let tree = tree(&[2, 2]);
        assert_eq!(board(&tree, 1, &[4, 4, 7, 1]).find_balance(8, 0), Some((4, vec![2, 3], 2)));
        assert_eq!(board(&tree, 1, &[4, 4, 8, 1]).find_balance(8, 0), Some((8, vec![4, 5], 1)));
        assert_eq!(board(&tree, 1, &[4, 4, 5, 5]).find_balance(11, 0), None);
    }

    #[test]
    fn what_is_not_balanced_leaves_no_trace() {
        let tree = tree(&[2, 2]);
        let mut b = board(&tree, 1, &[4, 4, 5, 5]);
        let before = b.counts.clone();
        assert_eq!(shares(&mut b, 11, 0), None);
        assert_eq!(b.counts, before);
        b.find_balance(9, 1);
        assert_eq!(b.counts, before, "looking changes nothing either");
    }

    #[test]
    fn of_equal_sets_the_first_is_chosen() {
        let tree = tree(&[4]);
        let mut b = board(&tree, 1, &[3, 3, 3, 3]);
        assert_eq!(b.select(1, 5, 0, false), Some(vec![1, 2]));
        assert_eq!(b.select(1, 12, 0, true), Some(vec![1, 2, 3, 4]));
        assert_eq!(b.select(1, 13, 0, true), None);
        let mut b = board(&tree, 1, &[9, 2, 5, 4]);
        assert_eq!(b.select(1, 11, 0, false), Some(vec![1, 2]), "9 and 2 are just enough");
        assert_eq!(b.select(1, 11, 1, false), Some(vec![1, 4]), "one of them loses a pod to the leader");
    }

    #[test]
    fn evenness_is_entropy() {
        let tree = tree(&[2, 3, 2]);
        let mut b = board(&tree, 0, &[3, 3, 2, 2, 2, 1, 5]);
        assert_eq!(b.by_evenness(0), [1, 0, 2]);
    }
}
