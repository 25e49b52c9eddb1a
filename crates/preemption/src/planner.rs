//! The entry points.

use slicegate_quota::{Amount, FlavorResourceId};

use crate::classical::Classical;
use crate::fair::Fair;
use crate::{Config, Possibility, Preemptor, Request, Simulation, Target, World};

/// Chooses victims. Holds buffers, so that a planner that is kept allocates only while it grows.
#[derive(Debug, Default)]
pub struct Planner {
    targets: Vec<Target>,
    classical: Classical,
    fair: Fair,
}

impl Planner {
    /// A planner with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The victims that make room for the request, the last of which completes it; empty if no set of victims does. The
    /// world is left as it was.
    pub fn targets<W: World + ?Sized>(&mut self, world: &mut W, config: &Config, request: &Request<'_>) -> &[Target] {
        self.targets.clear();
        match &config.fair_sharing {
            None => self.classical.search(world, request, &mut self.targets),
            Some(fair) => self.fair.search(world, fair, request, &mut self.targets),
        }
        &self.targets
    }

    /// What [`Planner::targets`] found last, also if [`Planner::simulate`] asked it.
    pub fn last(&self) -> &[Target] {
        &self.targets
    }

    /// What preemption could do for one pair alone: what [`Planner::targets`] finds for `amount` of it, without places.
    pub fn simulate<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        config: &Config,
        preemptor: &Preemptor,
        pair: FlavorResourceId,
        amount: Amount,
    ) -> Simulation {
        self.simulate_request(world, config, preemptor, pair, amount, false)
    }

    /// As [`Planner::simulate`], with places: victims are of use only if [`World::places`] holds without them.
    pub fn simulate_placed<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        config: &Config,
        preemptor: &Preemptor,
        pair: FlavorResourceId,
        amount: Amount,
    ) -> Simulation {
        self.simulate_request(world, config, preemptor, pair, amount, true)
    }

    fn simulate_request<W: World + ?Sized>(
        &mut self,
        world: &mut W,
        config: &Config,
        preemptor: &Preemptor,
        pair: FlavorResourceId,
        amount: Amount,
        placed: bool,
    ) -> Simulation {
        let needed = [(pair, amount)];
        let preempting = [pair];
        let request = Request { preemptor: *preemptor, needed: &needed, preempting: &preempting, placed };
        self.targets(world, config, &request);
        let own = preemptor.cluster_queue;
        let mut possibility = Possibility::NoCandidates;
        let checkpoint = world.checkpoint();
        for target in &self.targets {
            let in_own = world.workload(target.workload).cluster_queue == own;
            possibility = match possibility {
                Possibility::Preempt => Possibility::Preempt,
                _ if in_own => Possibility::Preempt,
                _ => Possibility::Reclaim,
            };
            world.remove(target.workload);
        }
        let (level, _) = world.forest().level(own, pair, amount);
        world.rollback(checkpoint);
        Simulation { possibility, level }
    }
}
