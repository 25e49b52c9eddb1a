//! Whether a request fits now.

use crate::{Request, World};

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
