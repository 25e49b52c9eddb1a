//! Phase two: which domains to take, and how much of each.

use std::ops::Range;

use crate::order::{Key, Queue};
use crate::request::Plan;
use crate::{Counts, Profile, Tree};

/// A number of pods and what is placed with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Pods.
    pub(crate) pods: i32,
    /// Leaders, 0 or 1.
    pub(crate) leaders: i32,
}

/// Why no domains were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// The level has no domains.
    NoDomains { level: usize },
    /// So many slices (or leaders, if those are short) would fit.
    Fits(i32),
}

/// Where the pods go: leaves, with their counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    pub(crate) workers: Vec<(u32, i32)>,
    pub(crate) leaders: Vec<(u32, i32)>,
}

/// A search over the counts of phase one. It uses them up.
pub(crate) struct Search<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) plan: &'a Plan,
    pub(crate) profile: Profile,
    /// Whether node preferences come before room.
    pub(crate) affinity: bool,
    pub(crate) counts: &'a mut Vec<Counts>,
    pub(crate) queue: &'a mut Queue,
}

/// Whether amounts are slices or single pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Slices(i32),
    Pods,
}

impl By {
    const fn size(self) -> i32 {
        match self {
            Self::Slices(size) => size,
            Self::Pods => 1,
        }
    }

    fn amount(self, pods: i32) -> i32 {
        pods.checked_div(self.size()).unwrap_or(0)
    }

    const fn room(self, counts: &Counts) -> i32 {
        match self {
            Self::Slices(_) => counts.slices,
            Self::Pods => counts.pods,
        }
    }

    const fn room_with_leader(self, counts: &Counts) -> i32 {
        match self {
            Self::Slices(_) => counts.slices_with_leader,
            Self::Pods => counts.pods_with_leader,
        }
    }
}

impl Search<'_> {
    /// Finds places for all pods.
    pub(crate) fn run(&mut self, need: Need, balance: bool) -> Result<Found, Shortage> {
        if balance && let Some((level, domains)) = self.balance(need) {
            let leaves = self.descend(domains, level, need, true)?;
            return Ok(self.found(&leaves));
        }
        let (level, chosen) = self.choose(need)?;
        self.queue.reset_ordered(&chosen);
        let mut taken = Vec::new();
        self.take(need, By::Slices(self.plan.slice_size), &mut taken)?;
        let leaves = self.descend(taken, level, need, false)?;
        Ok(self.found(&leaves))
    }

    pub(crate) fn at(&self, domain: u32) -> Counts {
        self.counts.get(domain as usize).copied().unwrap_or_default()
    }

    pub(crate) fn queue_plain(&mut self, domains: impl Iterator<Item = u32>) {
        let (counts, profile, affinity) = (&*self.counts, self.profile, self.affinity);
        self.queue.reset(domains.map(|d| Key::plain(&counts[d as usize], d, profile, affinity)));
    }

    pub(crate) fn queue_with_leader(&mut self, domains: impl Iterator<Item = u32>) {
        let (counts, profile, affinity) = (&*self.counts, self.profile, self.affinity);
        self.queue.reset(domains.map(|d| Key::with_leader(&counts[d as usize], d, profile, affinity)));
    }

    /// The domain from a position on that has just enough room; the one at the position if none has enough.
    fn best_fit(&mut self, position: usize, needed: i32, leaders: i32, by: By) -> Option<u32> {
        let counts = &*self.counts;
        self.queue.tightest(position, |domain| {
            let of = &counts[domain as usize];
            let room = if leaders > 0 { by.room_with_leader(of) } else { by.room(of) };
            (of.leaders >= leaders && room >= needed).then_some(room)
        })
    }

    /// Puts the first domain in front that can take the leader and leaves room for all workers, here and elsewhere.
    fn leader_first(&mut self, need: Need, by: By) {
        if need.leaders == 0 || self.queue.len() < 2 {
            return;
        }
        let needed = i64::from(by.amount(need.pods));
        let counts = &*self.counts;
        let total: i64 = self.queue.from(0).map(|d| i64::from(by.room(&counts[d as usize]))).sum();
        let first = self.queue.first(|domain| {
            let of = &counts[domain as usize];
            let cost = i64::from(by.room(of)).saturating_sub(i64::from(by.room_with_leader(of)));
            of.leaders >= need.leaders && total.saturating_sub(cost) >= needed
        });
        if let Some(domain) = first {
            self.queue.promote(domain);
        }
    }

    /// The domains to take pods from: one of the level asked for, or of a level above it, or several.
    fn choose(&mut self, need: Need) -> Result<(usize, Vec<u32>), Shortage> {
        let needed = self.plan.slices(need.pods);
        let mut level = self.plan.level;
        loop {
            let domains = self.tree.level_range(level);
            self.queue_with_leader(domains.clone());
            let Some(mut top) = self.queue.get(0) else { return Err(Shortage::NoDomains { level }) };
            let by = By::Slices(self.plan.slice_size);
            match self.profile {
                Profile::BestFit => {
                    if self.plan.required && self.affinity {
                        // The most preferred domain may be too small: then one that is not is taken.
                        let all = self.queue.first(|d| self.takes_all(d, needed, need.leaders));
                        top = all.unwrap_or(top);
                    }
                    if self.takes_all(top, needed, need.leaders) {
                        top = self.best_fit(0, needed, need.leaders, by).unwrap_or(top);
                    }
                }
                Profile::LeastFreeCapacity => {
                    let counts = &*self.counts;
                    let found = self.queue.first(|domain| {
                        let of = &counts[domain as usize];
                        let room = if need.leaders > 0 { of.slices_with_leader } else { of.slices };
                        of.leaders >= need.leaders && room >= needed
                    });
                    if let Some(domain) = found {
                        return Ok((level, vec![domain]));
                    }
                    if self.plan.required {
                        return Err(Shortage::Fits(self.queue.last().map_or(0, |d| self.at(d).pods)));
                    }
                }
            }
            if self.takes_all(top, needed, need.leaders) {
                return Ok((level, vec![top]));
            }
            if self.plan.required {
                return Err(Shortage::Fits(self.at(top).slices));
            }
            if level == 0 || self.plan.unconstrained {
                return self.spread(domains, needed, need).map(|chosen| (level, chosen));
            }
            level = level.saturating_sub(1);
        }
    }

    fn takes_all(&self, domain: u32, needed: i32, leaders: i32) -> bool {
        let of = self.at(domain);
        of.slices_with_leader >= needed && of.leaders >= leaders
    }

    /// Several domains that together have room: first one for the leader, then others, until all are placed.
    fn spread(&mut self, domains: Range<u32>, needed: i32, need: Need) -> Result<Vec<u32>, Shortage> {
        let by = By::Slices(self.plan.slice_size);
        self.leader_first(need, by);
        let (mut left, mut leaders) = (needed, need.leaders);
        let mut chosen = Vec::new();
        let mut position = 0;
        while leaders > 0
            && let Some(mut domain) = self.queue.get(position)
            && self.at(domain).leaders > 0
        {
            if self.profile == Profile::BestFit && self.at(domain).slices_with_leader >= left {
                domain = self.best_fit(position, left, leaders, by).unwrap_or(domain);
            }
            left = left.saturating_sub(self.at(domain).slices_with_leader);
            leaders = leaders.saturating_sub(self.at(domain).leaders);
            chosen.push(domain);
            position = position.saturating_add(1);
        }
        if leaders > 0 {
            return Err(Shortage::Fits(need.leaders.saturating_sub(leaders)));
        }
        let taken = chosen.clone();
        self.queue_plain(domains.filter(|d| !taken.contains(d)));
        let mut position = 0;
        while left > 0
            && let Some(mut domain) = self.queue.get(position)
        {
            if self.profile == Profile::BestFit && self.at(domain).slices >= left {
                domain = self.best_fit(position, left, 0, by).unwrap_or(domain);
            }
            left = left.saturating_sub(self.at(domain).slices);
            chosen.push(domain);
            position = position.saturating_add(1);
        }
        if left > 0 { Err(Shortage::Fits(needed.saturating_sub(left))) } else { Ok(chosen) }
    }

    /// Takes pods from the domains of the queue, from as few as possible, and notes in their counts how many.
    fn take(&mut self, need: Need, by: By, taken: &mut Vec<u32>) -> Result<(), Shortage> {
        self.leader_first(need, by);
        let needed = by.amount(need.pods);
        let (mut left, mut leaders) = (needed, need.leaders);
        let mut position = 0;
        while let Some(mut domain) = self.queue.get(position) {
            let mut of = self.at(domain);
            let best_fit = self.profile == Profile::BestFit;
            let all = |of: &Counts, leaders: i32| {
                if leaders > 0 { by.room_with_leader(of) >= left && of.leaders >= leaders } else { by.room(of) >= left }
            };
            if best_fit && all(&of, leaders) {
                domain = self.best_fit(position, left, leaders, by).unwrap_or(domain);
                of = self.at(domain);
            }
            let last = all(&of, leaders);
            let room = if leaders > 0 { by.room_with_leader(&of) } else { by.room(&of) };
            let amount = room.min(left);
            of.leaders = if last { leaders } else { of.leaders.min(leaders) };
            of.pods = amount.saturating_mul(by.size());
            if by != By::Pods && (leaders > 0 || last) {
                of.slices = amount;
            }
            leaders = leaders.saturating_sub(of.leaders);
            left = left.saturating_sub(amount);
            self.counts[domain as usize] = of;
            taken.push(domain);
            if last {
                return Ok(());
            }
            position = position.saturating_add(1);
        }
        // The counts promised more room than there is.
        Err(Shortage::Fits(needed.saturating_sub(left)))
    }

    /// Goes down from the domains taken to leaves.
    ///
    /// Above the level of slices the children of all domains are looked at together, and what each domain was to take is
    /// forgotten, unless the pods were balanced over the domains. Below, each domain keeps its share.
    fn descend(
        &mut self,
        mut current: Vec<u32>,
        mut level: usize,
        need: Need,
        balanced: bool,
    ) -> Result<Vec<u32>, Shortage> {
        let lowest = self.tree.lowest();
        let mut next = Vec::new();
        while !balanced && level < lowest.min(self.plan.slice_level) {
            let tree = self.tree;
            self.queue_plain(current.iter().flat_map(|d| tree.children(*d)));
            self.take(need, By::Slices(self.plan.slice_size), &mut next)?;
            (current, next) = (next, current);
            next.clear();
            level = level.saturating_add(1);
        }
        while level < lowest {
            let within_slices = level >= self.plan.slice_level;
            let size =
                if within_slices { self.plan.inner_size(level.saturating_add(1)).max(1) } else { self.plan.slice_size };
            for domain in &current {
                let children = self.tree.children(*domain);
                self.queue_plain(children.clone());
                if size > 1 && within_slices {
                    // The order is that of whole children; what is taken are slices within slices.
                    for child in self.counts.get_mut(children.start as usize..children.end as usize).unwrap_or_default()
                    {
                        child.slices = child.pods.checked_div(size).unwrap_or(0);
                        child.slices_with_leader = child.pods_with_leader.checked_div(size).unwrap_or(0);
                    }
                }
                let of = self.at(*domain);
                let share = Need { pods: of.pods, leaders: of.leaders };
                self.take(share, if size > 1 { By::Slices(size) } else { By::Pods }, &mut next)?;
            }
            (current, next) = (next, current);
            next.clear();
            level = level.saturating_add(1);
        }
        Ok(current)
    }

    /// What was taken of leaves, in order of their values.
    fn found(&self, leaves: &[u32]) -> Found {
        let mut leaves = leaves.to_vec();
        leaves.sort_unstable();
        let with = |count: fn(&Counts) -> i32| {
            leaves.iter().map(|d| (*d, count(&self.at(*d)))).filter(|(_, n)| *n > 0).collect()
        };
        Found { workers: with(|c| c.pods), leaders: with(|c| c.leaders) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Board, Parameters};
    use crate::{Node, Tree};
    use slicegate_workload::{FlavorSpec, TopologySpec};

    fn tree() -> Tree {
        let levels = ["rack", "host"].map(Into::into).to_vec();
        let labels =
            |i: usize| [("rack".into(), format!("r{}", i / 2).into()), ("host".into(), format!("h{i}").into())];
        let node = |i| Node { name: format!("h{i}").into(), labels: labels(i).into(), ready: true, ..Node::default() };
        let nodes: Vec<Node> = (0..4).map(node).collect();
        Tree::new(&FlavorSpec::default(), &TopologySpec { name: "t".into(), levels }, &nodes)
    }

    /// Racks, then hosts: pods that fit.
    fn run(pods: [i32; 6], need: i32, level: usize, profile: Profile) -> Result<Vec<(u32, i32)>, Shortage> {
        let tree = tree();
        let mut board = Board::new(&tree, Parameters { level, slice_level: 1, profile, ..Parameters::default() });
        for (counts, pods) in board.counts.iter_mut().zip(pods) {
            (counts.pods, counts.pods_with_leader) = (pods, pods);
            (counts.slices, counts.slices_with_leader) = (pods, pods);
        }
        let found = board.search(|search| search.run(Need { pods: need, leaders: 0 }, false));
        found.map(|f| f.workers)
    }

    #[test]
    fn the_tightest_domain_that_takes_all_is_chosen() {
        assert_eq!(run([7, 5, 3, 4, 1, 4], 4, 0, Profile::BestFit), Ok(vec![(5, 4)]));
        assert_eq!(run([7, 5, 3, 4, 1, 4], 4, 1, Profile::LeastFreeCapacity), Ok(vec![(3, 4)]));
    }

    #[test]
    fn several_are_chosen_largest_or_smallest_first() {
        assert_eq!(run([7, 6, 3, 4, 2, 4], 9, 1, Profile::BestFit), Ok(vec![(3, 4), (4, 1), (5, 4)]));
        assert_eq!(run([7, 6, 3, 4, 2, 4], 8, 1, Profile::LeastFreeCapacity), Ok(vec![(2, 3), (3, 3), (4, 2)]));
        assert_eq!(run([7, 6, 3, 4, 2, 4], 14, 1, Profile::BestFit), Err(Shortage::Fits(13)));
    }

    #[test]
    fn counts_that_promise_too_much_are_a_shortage() {
        assert_eq!(run([9, 1, 3, 4, 1, 0], 8, 0, Profile::BestFit), Err(Shortage::Fits(7)));
    }
}
