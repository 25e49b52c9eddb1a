//! The steps of a placement one by one, over counts that are given: to look at, to test, and to compare with other
//! implementations. [`Topologies::place`](crate::Topologies::place) takes all of them in a row.

use crate::balanced::Balance;
use crate::order::Queue;
use crate::request::Plan;
use crate::search::{Need, Search};
use crate::{Counts, Profile, Tree};

/// What a step is to reckon with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The order of domains.
    pub profile: Profile,
    /// Whether node preferences come before room.
    pub affinity: bool,
    /// The level that is searched.
    pub level: usize,
    /// The level of slices.
    pub slice_level: usize,
    /// Pods a slice.
    pub slice_size: i32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { profile: Profile::BestFit, affinity: false, level: 0, slice_level: 0, slice_size: 1 }
    }
}

/// A tree with counts of its domains. Domains are known by their numbers: level by level, in the order of their values.
#[derive(Clone, Debug)]
pub struct Board<'t> {
    tree: &'t Tree,
    parameters: Parameters,
    /// The counts by number of the domain.
    pub counts: Vec<Counts>,
}

impl<'t> Board<'t> {
    /// A board with counts of 0.
    pub fn new(tree: &'t Tree, parameters: Parameters) -> Self {
        Self { tree, parameters, counts: vec![Counts::default(); tree.domain_count()] }
    }

    /// The number of the domain with these values from the top.
    pub fn domain(&self, values: &[&str]) -> Option<usize> {
        self.tree.find_domain(values).map(|d| d as usize)
    }

    pub(crate) fn search<T>(&mut self, step: impl FnOnce(&mut Search<'_>) -> T) -> T {
        self.counts.resize(self.tree.domain_count(), Counts::default());
        let Parameters { profile, affinity, level, slice_level, slice_size } = self.parameters;
        let plan = Plan {
            level: level.min(self.tree.lowest()),
            required: false,
            unconstrained: profile == Profile::LeastFreeCapacity,
            slice_level: slice_level.min(self.tree.lowest()),
            slice_size: slice_size.max(1),
            inner: vec![0; self.tree.levels().len()],
            layers: Vec::new(),
        };
        let mut queue = Queue::default();
        step(&mut Search {
            tree: self.tree,
            plan: &plan,
            profile,
            affinity,
            counts: &mut self.counts,
            queue: &mut queue,
        })
    }

    /// The domains of a level in the order in which workers are placed; first those, if there is a leader to place, that take it.
    pub fn sorted(&mut self, level: usize, with_leader: bool) -> Vec<usize> {
        let domains = self.tree.level_range(level);
        self.search(|search| {
            if with_leader {
                search.queue_with_leader(domains.clone());
            } else {
                search.queue_plain(domains.clone());
            }
            (0..domains.len()).map_while(|i| search.queue.get(i)).map(|d| d as usize).collect()
        })
    }

    /// Balanced placement: the threshold, the siblings to choose from and how many of them are needed.
    pub fn find_balance(&mut self, pods: i32, leaders: i32) -> Option<(i32, Vec<usize>, i32)> {
        let found = self.search(|search| search.find_balance(Need { pods, leaders }));
        found.map(|Balance { siblings, threshold, domains }| {
            (threshold, siblings.map(|d| d as usize).collect(), domains)
        })
    }

    /// Balanced placement: removes domains that hold fewer slices than the threshold, below the level searched.
    pub fn prune(&mut self, threshold: i32, leader_requested: bool) {
        let level = self.parameters.level.min(self.tree.lowest());
        let domains = self.tree.level_range(level);
        self.search(|search| search.prune(&domains, level, threshold, leader_requested));
    }

    /// Balanced placement: the set of domains of a level with just enough room.
    pub fn select(&mut self, level: usize, slices: i32, leaders: i32, by_evenness: bool) -> Option<Vec<usize>> {
        let domains: Vec<u32> = self.tree.level_range(level).collect();
        let found = self.search(|search| search.select(&domains, slices, leaders, by_evenness));
        found.map(|all| all.into_iter().map(|d| d as usize).collect())
    }

    /// Balanced placement: domains of a level in order of the evenness of their children.
    pub fn by_evenness(&mut self, level: usize) -> Vec<usize> {
        let domains: Vec<u32> = self.tree.level_range(level).collect();
        self.search(|search| search.by_evenness(&domains)).into_iter().map(|d| d as usize).collect()
    }

    /// Balanced placement: gives each domain of the best set of a level its share. The domains; their counts are the shares.
    pub fn distribute(&mut self, level: usize, slices: i32, leaders: i32, threshold: i32) -> Option<Vec<usize>> {
        let domains: Vec<u32> = self.tree.level_range(level).collect();
        let found = self.search(|search| search.distribute(&domains, slices, leaders, threshold));
        found.map(|all| all.into_iter().map(|d| d as usize).collect())
    }
}
