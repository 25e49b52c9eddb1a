//! Whether a request fits now.

use slicegate_quota::Amount;

use crate::{Request, WorkloadRef, World};

/// Whether quota and places suffice for the request.
pub(crate) fn fits<W: World + ?Sized>(world: &mut W, request: &Request<'_>, allow_borrowing: bool) -> bool {
    let own = request.preemptor.cluster_queue;
    let forest = world.forest();
    let quota = request.needed.iter().all(|&(pair, amount)| {
        (allow_borrowing || !forest.is_borrowing_with(own, pair, amount)) && amount <= forest.available(own, pair)
    });
    quota && (!request.placed || world.places())
}

/// Adds what the request needs to its ClusterQueue's usage.
pub(crate) fn add<W: World + ?Sized>(world: &mut W, request: &Request<'_>) {
    let own = request.preemptor.cluster_queue;
    for &(pair, amount) in request.needed {
        world.forest_mut().add_usage(own, pair, amount);
    }
}

/// Undoes [`add`].
pub(crate) fn take_off<W: World + ?Sized>(world: &mut W, request: &Request<'_>) {
    let own = request.preemptor.cluster_queue;
    for &(pair, amount) in request.needed {
        world.forest_mut().remove_usage(own, pair, amount);
    }
}

/// [`fits`] with borrowing, for a world in which the request's own usage counts already.
pub(crate) fn fits_in_addition<W: World + ?Sized>(world: &mut W, request: &Request<'_>) -> bool {
    take_off(world, request);
    let result = fits(world, request, true);
    add(world, request);
    result
}

/// How much has to be freed at the least before a request can fit.
///
/// What a victim gives up makes no more than that available, so there is no point in asking [`fits`] before the victims together
/// have given up what is missing.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// What is missing, in the order of [`Request::needed`].
    missing: Vec<i64>,
}

impl Shortage {
    /// Starts from the world as it is, without the request's own usage.
    pub(crate) fn reset<W: World + ?Sized>(&mut self, world: &W, request: &Request<'_>) {
        let own = request.preemptor.cluster_queue;
        let missing = |&(pair, amount): &(_, Amount)| amount.minus(world.forest().available(own, pair)).value();
        self.missing.clear();
        self.missing.extend(request.needed.iter().map(missing));
    }

    /// Notes a victim; whether the request may fit now.
    pub(crate) fn is_covered_with<W: World + ?Sized>(
        &mut self,
        world: &W,
        request: &Request<'_>,
        victim: WorkloadRef,
    ) -> bool {
        for &(pair, amount) in world.workload(victim).usage {
            let needed = request.needed.iter().zip(&mut self.missing);
            for (_, missing) in needed.filter(|((p, _), _)| *p == pair) {
                *missing = missing.saturating_sub(amount.value());
            }
        }
        self.missing.iter().all(|&m| m <= 0)
    }
}
