//! Pools, slices, and who needs how many of them.

use std::collections::BTreeMap;

use slicegate_flavor::{SliceCounts, SliceShortage};
use slicegate_placement::Node;
use slicegate_workload::{FlavorSpec, Key, selector_matches};

use super::counts::PoolReport;
use super::demand::{Demand, DemandId, SlicePods, Terms};
use super::flow::{Dealt, Network};
use super::pool::{Change, NodePool, Pool, Seen, Shape};

/// More demands than this, and those that nobody holds are forgotten.
const MOST_IDLE_DEMANDS: usize = 64;

/// A pool, and the demands that its slices will do for.
#[derive(Clone, Debug)]
struct Entry {
    pool: Pool,
    demands: Vec<u32>,
}

/// A demand, and how much of it there is.
#[derive(Clone, Debug)]
struct Account {
    demand: Demand,
    /// Slices that are needed, what-ifs included.
    need: u32,
    /// Slices that are held for good.
    held: u32,
    /// How many were when it was last asked whether any became free.
    seen: u32,
}

/// A state of a [`Inventory`] within a what-if.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InventoryMark(usize);

/// What is known of slices and what they are used for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    entries: Vec<Option<Entry>>,
    by_name: BTreeMap<Box<str>, usize>,
    /// The pool of each node.
    nodes: BTreeMap<Box<str>, usize>,
    accounts: Vec<Account>,
    /// What was taken and given back in the what-if that is running.
    journal: Vec<(DemandId, i64)>,
    network: Option<Network>,
    /// By group of the network: its pools.
    groups: Vec<Vec<usize>>,
}

impl Inventory {
    // ----- pools and nodes -----------------------------------------------------------------------------------------

    /// Adds or updates what is configured of a pool. Answers whether that changed anything.
    pub(crate) fn set_pool(&mut self, pool: NodePool) -> bool {
        let at = self.entry(&pool.name, pool.shape.into());
        let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { return false };
        if entry.pool.config() == Some(&pool) {
            return false;
        }
        entry.pool.configure(Some(pool));
        self.match_anew(at);
        true
    }

    /// Forgets what was configured of a pool; its nodes stay known.
    pub(crate) fn remove_pool(&mut self, name: &str) -> bool {
        let Some(&at) = self.by_name.get(name) else { return false };
        let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { return false };
        if entry.pool.config().is_none() {
            return false;
        }
        entry.pool.configure(None);
        self.match_anew(at);
        self.tidy(at);
        true
    }

    /// Adds or updates a node. Answers whether that changed a slice.
    pub(crate) fn set_node(&mut self, node: &Node) -> bool {
        let Some(seen) = Seen::of(node) else { return self.remove_node(&node.name) };
        let before = self.nodes.get(&node.name).copied();
        let at = self.entry(&seen.pool, seen.shape);
        let moved = before.is_some_and(|before| before != at);
        if moved {
            self.remove_node(&node.name);
        }
        let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { return moved };
        let change = entry.pool.set_host(node, seen.shape);
        if moved || before.is_none() {
            self.nodes.insert(node.name.clone(), at);
        }
        match change {
            Change::Nothing => return moved,
            Change::Counts => self.network = None,
            Change::Facts => self.match_anew(at),
        }
        true
    }

    /// Removes a node. Answers whether that changed a slice.
    pub(crate) fn remove_node(&mut self, name: &str) -> bool {
        let Some(at) = self.nodes.remove(name) else { return false };
        let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { return false };
        match entry.pool.remove_host(name) {
            Change::Nothing => return false,
            Change::Counts => self.network = None,
            Change::Facts => self.match_anew(at),
        }
        self.tidy(at);
        true
    }

    fn entry(&mut self, name: &str, shape: Shape) -> usize {
        if let Some(&at) = self.by_name.get(name) {
            return at;
        }
        let at = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        let entry = Some(Entry { pool: Pool::new(name.into(), shape), demands: Vec::new() });
        match self.entries.get_mut(at) {
            Some(slot) => *slot = entry,
            None => self.entries.push(entry),
        }
        self.by_name.insert(name.into(), at);
        at
    }

    /// Forgets a pool of which nothing is known any more.
    fn tidy(&mut self, at: usize) {
        if let Some(slot) = self.entries.get_mut(at)
            && slot.as_ref().is_some_and(|e| e.pool.is_empty())
            && let Some(entry) = slot.take()
        {
            self.by_name.remove(&entry.pool.name);
            self.network = None;
        }
    }

    /// Finds anew which demands a pool will do for.
    fn match_anew(&mut self, at: usize) {
        self.network = None;
        let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { return };
        let accounts = self.accounts.iter().enumerate();
        entry.demands = accounts
            .filter(|(_, account)| account.demand.accepts(&entry.pool))
            .map(|(i, _)| DemandId::from_index(i).0)
            .collect();
    }

    // ----- demands -------------------------------------------------------------------------------------------------

    /// How many slices pods need, and which will do. `None` for pods that use no chips.
    pub(crate) fn demand(&mut self, pods: &SlicePods<'_>) -> Result<Option<(DemandId, u32)>, SliceShortage> {
        let chips = pods.chips_per_pod();
        if chips <= 0 || pods.count <= 0 {
            return Ok(None);
        }
        let terms = pods.terms();
        if let Some(shape) = pods.shape(&terms)? {
            let needed = pods.slices_of(shape);
            return Ok(Some((self.intern(Demand::new(shape, terms)), needed)));
        }
        // Any shape will do, but it must be one: slices of a job are equal. The smallest that has room is taken.
        let shapes = self.shapes_for(&terms, chips);
        for &shape in &shapes {
            let ask = (self.intern(Demand::new(shape, terms.clone())), pods.slices_of(shape));
            if self.fits(&[ask]) {
                return Ok(Some(ask));
            }
        }
        match shapes.last() {
            Some(&shape) => Ok(Some((self.intern(Demand::new(shape, terms)), pods.slices_of(shape)))),
            None => Err(no_pool(pods, &terms)),
        }
    }

    /// The shapes of pools that take pods, smallest first.
    fn shapes_for(&self, terms: &Terms, chips: i64) -> Vec<Shape> {
        let pools = self.pools().filter(|p| i64::from(p.shape.chips_per_host) == chips && terms.match_pool(p));
        let mut shapes: Vec<Shape> = pools.map(|p| p.shape).collect();
        shapes.sort_unstable_by_key(|s| (s.chips(), *s));
        shapes.dedup();
        shapes
    }

    fn intern(&mut self, demand: Demand) -> DemandId {
        if let Some(at) = self.accounts.iter().position(|a| a.demand == demand) {
            return DemandId::from_index(at);
        }
        let id = DemandId::from_index(self.accounts.len());
        for entry in self.entries.iter_mut().flatten() {
            if demand.accepts(&entry.pool) {
                entry.demands.push(id.0);
            }
        }
        self.accounts.push(Account { demand, need: 0, held: 0, seen: 0 });
        self.network = None;
        id
    }

    /// Forgets demands at the end that nobody has, if there are many. Ids of demands that are not held end here.
    pub(crate) fn settle(&mut self) {
        if self.accounts.len() <= MOST_IDLE_DEMANDS {
            return;
        }
        while self.accounts.len() > MOST_IDLE_DEMANDS && self.accounts.last().is_some_and(|a| a.held == 0) {
            self.accounts.pop();
        }
        let left = self.accounts.len();
        for entry in self.entries.iter_mut().flatten() {
            entry.demands.retain(|&d| (d as usize) < left);
        }
        self.network = None;
    }

    // ----- who needs what ------------------------------------------------------------------------------------------

    /// Counts slices that are given for good.
    pub(crate) fn hold(&mut self, slices: &[(DemandId, u32)]) {
        self.journal.clear();
        for &(id, n) in slices {
            if let Some(account) = self.accounts.get_mut(id.index()) {
                account.held = account.held.saturating_add(n);
                account.need = account.need.saturating_add(n);
            }
        }
    }

    /// Stops counting slices that were given for good.
    pub(crate) fn release(&mut self, slices: &[(DemandId, u32)]) {
        self.journal.clear();
        for &(id, n) in slices {
            if let Some(account) = self.accounts.get_mut(id.index()) {
                account.held = account.held.saturating_sub(n);
                account.need = account.need.saturating_sub(n);
            }
        }
    }

    /// Whether fewer slices of some demand are held than when this was asked last.
    pub(crate) fn take_freed(&mut self) -> bool {
        let mut freed = false;
        for account in &mut self.accounts {
            freed |= account.held < account.seen;
            account.seen = account.held;
        }
        freed
    }

    /// Gives slices within a what-if.
    pub(crate) fn take(&mut self, slices: &[(DemandId, u32)]) {
        self.change(slices, 1);
    }

    /// Takes slices back within a what-if.
    pub(crate) fn give_back(&mut self, slices: &[(DemandId, u32)]) {
        self.change(slices, -1);
    }

    fn change(&mut self, slices: &[(DemandId, u32)], sign: i64) {
        for &(id, n) in slices {
            let Some(account) = self.accounts.get_mut(id.index()) else { continue };
            let delta = i64::from(n).saturating_mul(sign);
            let need = u32::try_from(i64::from(account.need).saturating_add(delta)).unwrap_or(0);
            self.journal.push((id, i64::from(need).saturating_sub(i64::from(account.need))));
            account.need = need;
        }
    }

    /// The present state of the what-if.
    pub(crate) fn mark(&self) -> InventoryMark {
        InventoryMark(self.journal.len())
    }

    /// Goes back to a state of the what-if.
    pub(crate) fn rollback(&mut self, mark: InventoryMark) {
        while self.journal.len() > mark.0
            && let Some((id, delta)) = self.journal.pop()
        {
            if let Some(account) = self.accounts.get_mut(id.index()) {
                account.need = u32::try_from(i64::from(account.need).saturating_sub(delta)).unwrap_or(0);
            }
        }
    }

    // ----- questions -----------------------------------------------------------------------------------------------

    /// Whether slices can be had beside everything that is needed.
    pub(crate) fn fits(&mut self, ask: &[(DemandId, u32)]) -> bool {
        if ask.is_empty() {
            return true;
        }
        let needs: Vec<u32> = self.accounts.iter().map(|a| a.need).collect();
        self.fit_beside(ask, &needs)
    }

    /// Whether slices could be had if nobody else had any.
    pub(crate) fn fits_alone(&mut self, ask: &[(DemandId, u32)]) -> bool {
        self.fit_beside(ask, &vec![0; self.accounts.len()])
    }

    fn fit_beside(&mut self, ask: &[(DemandId, u32)], needs: &[u32]) -> bool {
        let network = self.network();
        let mut dealt = network.deal(needs);
        ask.iter().all(|&(id, n)| network.meet(&mut dealt, id.index(), n) == n)
    }

    /// Why slices cannot be had, as far as the first that is short is concerned; `None` if they can.
    pub(crate) fn shortage(
        &mut self,
        ask: &[(DemandId, u32)],
        pods: &SlicePods<'_>,
        flavor: &FlavorSpec,
    ) -> Option<SliceShortage> {
        let needs: Vec<u32> = self.accounts.iter().map(|a| a.need).collect();
        let network = self.network().clone();
        let mut dealt = network.deal(&needs);
        let before = dealt.clone();
        let (id, needed) = ask.iter().copied().find(|&(id, n)| network.meet(&mut dealt, id.index(), n) < n)?;
        let demand = &self.accounts.get(id.index())?.demand;
        let entries = || self.entries.iter().flatten().filter(|e| e.demands.contains(&id.0));
        if entries().next().is_none() {
            return Some(no_pool(pods, &pods.terms()));
        }
        let (mut usable, mut broken) = (0u32, 0u32);
        for entry in entries() {
            let states = entry.pool.states();
            usable = usable.saturating_add(states.usable());
            broken = broken.saturating_add(states.broken);
        }
        // What the demand could still be met from, pretending that nobody needs it but this one.
        let mut most = before.clone();
        let earlier = ask.iter().take_while(|(other, _)| *other != id);
        for &(other, n) in earlier {
            network.meet(&mut most, other.index(), n);
        }
        let free = network.meet(&mut most, id.index(), u32::MAX);
        let unmet = unmet(&network, &before, &needs, id);
        Some(SliceShortage::Short(SliceCounts {
            topology: demand.shape.topology.to_string().into(),
            chips: demand.shape.chips(),
            needed,
            free,
            in_use: usable.saturating_sub(free),
            broken: broken.saturating_sub(unmet),
            total: usable.saturating_add(broken),
            largest_free: self.largest_free(&before, flavor).map(|shape| shape.topology.to_string().into()),
        }))
    }

    /// The largest slice of a flavor that is free.
    fn largest_free(&self, dealt: &Dealt, flavor: &FlavorSpec) -> Option<Shape> {
        let of_flavor = |pool: &Pool| selector_matches(&flavor.node_labels, pool.facts().0);
        let mut largest: Option<Shape> = None;
        let mut consider = |pool: &Pool| {
            if of_flavor(pool) && largest.is_none_or(|shape| pool.shape.chips() > shape.chips()) {
                largest = Some(pool.shape);
            }
        };
        for (group, pools) in self.groups.iter().enumerate() {
            if dealt.left.get(group).is_some_and(|&left| left > 0) {
                pools.iter().filter_map(|&at| self.entries.get(at)?.as_ref()).for_each(|e| consider(&e.pool));
            }
        }
        // Pools that nobody asked for are in no group.
        let idle = self.entries.iter().flatten().filter(|e| e.demands.is_empty() && e.pool.states().usable() > 0);
        idle.for_each(|e| consider(&e.pool));
        largest
    }

    /// Pools of equal use, and the demands that each could meet.
    fn network(&mut self) -> &Network {
        if self.network.is_none() {
            let mut index: BTreeMap<&[u32], usize> = BTreeMap::new();
            let mut capacities: Vec<u32> = Vec::new();
            let mut groups: Vec<Vec<usize>> = Vec::new();
            let mut edges: Vec<Vec<u32>> = vec![Vec::new(); self.accounts.len()];
            for (at, entry) in self.entries.iter().enumerate() {
                let Some(entry) = entry.as_ref().filter(|e| !e.demands.is_empty()) else { continue };
                let group = *index.entry(&entry.demands).or_insert_with(|| {
                    for &demand in &entry.demands {
                        if let Some(edges) = edges.get_mut(demand as usize) {
                            edges.push(u32::try_from(groups.len()).unwrap_or(u32::MAX));
                        }
                    }
                    groups.push(Vec::new());
                    capacities.push(0);
                    groups.len().saturating_sub(1)
                });
                if let (Some(pools), Some(capacity)) = (groups.get_mut(group), capacities.get_mut(group)) {
                    pools.push(at);
                    *capacity = capacity.saturating_add(entry.pool.states().usable());
                }
            }
            self.groups = groups;
            self.network = Some(Network::new(edges, capacities));
        }
        self.network.get_or_insert_default()
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.entries.iter().flatten().map(|e| &e.pool)
    }

    /// Every pool that is known, by name, with who holds how much of it: a way to deal out what `holders` hold, in their order.
    /// `name` names them by their position.
    pub(crate) fn deal_out<'k>(
        &mut self,
        holders: &[&[(DemandId, u32)]],
        name: impl Fn(usize) -> Option<&'k Key>,
    ) -> Vec<PoolReport> {
        let mut needs = vec![0u32; self.accounts.len()];
        for &(id, n) in holders.iter().copied().flatten() {
            if let Some(need) = needs.get_mut(id.index()) {
                *need = need.saturating_add(n);
            }
        }
        let network = self.network().clone();
        let mut dealt = network.deal(&needs);
        // By pool: what is left of it, and who has it.
        let mut left: Vec<u32> =
            self.entries.iter().map(|e| e.as_ref().map_or(0, |e| e.pool.states().usable())).collect();
        let mut given: Vec<Vec<(Key, u32)>> = vec![Vec::new(); self.entries.len()];
        for (holder, slices) in holders.iter().enumerate() {
            for &(id, n) in *slices {
                let mut open = n;
                for (i, &group) in network.groups_of(id.index()).iter().enumerate() {
                    let Some(flow) = dealt.flows.get_mut(id.index()).and_then(|f| f.get_mut(i)) else { continue };
                    for &at in self.groups.get(group as usize).into_iter().flatten() {
                        let Some(room) = left.get_mut(at) else { continue };
                        let take = open.min(*flow).min(*room);
                        if take == 0 {
                            continue;
                        }
                        open -= take;
                        *flow -= take;
                        *room -= take;
                        if let (Some(list), Some(key)) = (given.get_mut(at), name(holder)) {
                            list.push((key.clone(), take));
                        }
                    }
                }
            }
        }
        let pools = self.by_name.values().filter_map(|&at| {
            let pool = &self.entries.get(at)?.as_ref()?.pool;
            let states = pool.states();
            Some(PoolReport {
                name: pool.name.clone(),
                accelerator: pool.shape.accelerator.label().into(),
                topology: pool.shape.topology.to_string().into(),
                hosts: pool.shape.hosts,
                whole: states.whole,
                coming: states.coming,
                broken: states.broken,
                holders: given.get_mut(at).map(std::mem::take).unwrap_or_default(),
            })
        });
        pools.collect()
    }

    /// Slices that are held although there are not so many whole ones: hardware broke, or pools were taken away.
    pub(crate) fn overcommitted(&mut self) -> u64 {
        let needs: Vec<u32> = self.accounts.iter().map(|a| a.held).collect();
        let total: u64 = needs.iter().map(|&n| u64::from(n)).sum();
        total.saturating_sub(self.network().deal(&needs).met)
    }

    /// Checks that every node is in one pool, that counts are right, and that what is needed is what is held.
    pub(crate) fn check(&self, held: &[(DemandId, u32)]) -> Result<(), String> {
        let mut n_hosts = 0usize;
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            entry.pool.check()?;
            for name in entry.pool.hosts() {
                n_hosts = n_hosts.saturating_add(1);
                if self.nodes.get(name) != Some(&at) {
                    return Err(format!("node {name} is in pool {} and in another", entry.pool.name));
                }
            }
        }
        if n_hosts != self.nodes.len() {
            return Err(format!("pools have {n_hosts} nodes of {}", self.nodes.len()));
        }
        for (i, account) in self.accounts.iter().enumerate() {
            let sum = held.iter().filter(|(id, _)| id.index() == i).fold(0u32, |sum, (_, n)| sum.saturating_add(*n));
            if account.held != sum || account.need != sum {
                let Account { need, held, demand, .. } = account;
                return Err(format!(
                    "{held} slices of {} are held and {need} needed, but workloads hold {sum}",
                    demand.shape.topology
                ));
            }
        }
        Ok(())
    }
}

fn no_pool(pods: &SlicePods<'_>, terms: &Terms) -> SliceShortage {
    SliceShortage::NoPool {
        topology: terms.topology().map(Into::into),
        chips_per_pod: u32::try_from(pods.chips_per_pod()).unwrap_or(u32::MAX),
    }
}

/// Slices that others need of the same pools and do not get: they sit on broken ones.
fn unmet(network: &Network, dealt: &Dealt, needs: &[u32], id: DemandId) -> u32 {
    let groups = network.groups_of(id.index());
    let shares = |other: usize| network.groups_of(other).iter().any(|g| groups.contains(g));
    let others = needs.iter().enumerate().filter(|&(other, _)| shares(other) || other == id.index());
    others.fold(0, |sum: u32, (other, &need)| {
        let met = dealt.flows.get(other).map_or(0, |f| f.iter().fold(0u32, |sum, n| sum.saturating_add(*n)));
        sum.saturating_add(need.saturating_sub(met))
    })
}
