//! Dominant resource shares: how much of what a Cohort can lend a member has borrowed.

use std::cmp::Ordering;

use super::{Forest, Weight};
use crate::wide::Wide;
use crate::{Amount, FlavorResourceId, Names, NodeId, ResourceId};

const NANOS: u128 = 1_000_000_000;

/// The dominant resource share of a node: the largest part that it has borrowed of any resource, over its weight.
///
/// Shares are exact ratios and totally ordered. A node of weight 0 that borrows anything has more than any node with a weight;
/// two such nodes compare as if their weights were equal. Two shares are equal if neither is more than the other, whatever
/// resource they are of.
///
/// ```
/// use slicegate_quota::{Share, Weight};
///
/// let one = Weight::default();
/// let half = Weight::from_nanos(500_000_000);
/// let share = |borrowed, weight| Share::of(borrowed, 10, weight);
/// assert_eq!(share(1, half), share(2, one));
/// assert_eq!(share(1, half).rounded(), 200);
/// assert!(share(1, Weight::from_nanos(0)) > share(9, one));
/// assert_eq!(share(0, Weight::from_nanos(0)).rounded(), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Units borrowed of the dominant resource, and units that can be lent of it. Both 0 and 1 if nothing counts.
    borrowed: u64,
    lendable: u64,
    weight: Weight,
    resource: Option<ResourceId>,
    is_borrowing: bool,
}

impl Share {
    /// A share of this many borrowed units out of so many that can be lent; none if nothing can be lent.
    pub fn of(borrowed: u64, lendable: u64, weight: Weight) -> Self {
        let counts = borrowed > 0 && lendable > 0;
        let (numerator, denominator) = if counts { (borrowed, lendable) } else { (0, 1) };
        Self { borrowed: numerator, lendable: denominator, weight, resource: None, is_borrowing: borrowed > 0 }
    }

    /// A share of nothing.
    pub fn none(weight: Weight) -> Self {
        Self::of(0, 1, weight)
    }

    /// The resource of which the node has borrowed the largest part; none if it has borrowed nothing that can be lent.
    pub const fn resource(&self) -> Option<ResourceId> {
        self.resource
    }

    /// Whether the node has borrowed anything, even of what nobody can lend.
    pub const fn is_borrowing(&self) -> bool {
        self.is_borrowing
    }

    /// Units that the node has borrowed of the dominant resource, and units of it that can be lent.
    pub const fn ratio(&self) -> (u64, u64) {
        (self.borrowed, self.lendable)
    }

    /// The weight of the node.
    pub const fn weight(&self) -> Weight {
        self.weight
    }

    /// Whether nothing is borrowed that counts.
    pub const fn is_zero(&self) -> bool {
        self.borrowed == 0
    }

    /// Whether the node has no weight but borrows: more than any share.
    pub const fn is_infinite(&self) -> bool {
        self.weight.nanos() == 0 && !self.is_zero()
    }

    /// The share in thousandths, rounded up, as it is reported; `i64::MAX` if it is infinite.
    pub fn rounded(&self) -> i64 {
        if self.is_zero() {
            return 0;
        }
        // Below 2^64 * 2^40.
        let numerator = u128::from(self.borrowed) * 1000 * NANOS;
        let denominator = u128::from(self.lendable) * u128::from(self.weight.nanos());
        let rounded = if denominator == 0 { u128::MAX } else { numerator.div_ceil(denominator) };
        i64::try_from(rounded).unwrap_or(i64::MAX)
    }

    /// The share in thousandths as a floating-point number, for metrics; infinite if it is.
    pub fn weighted(&self) -> f64 {
        let float = |n: u64| crate::Quantity::from_nanos(i128::from(n).saturating_mul(1_000_000_000)).to_f64();
        if self.is_zero() {
            return 0.0;
        }
        float(self.borrowed) * 1000.0 / float(self.lendable) / (float(self.weight.nanos()) / 1e9)
    }

    fn order_by_ratio(&self, other: &Self) -> Ordering {
        let cross = |a: u64, b: u64| u128::from(a) * u128::from(b);
        cross(self.borrowed, other.lendable).cmp(&cross(other.borrowed, self.lendable))
    }

    fn order_by_weighted(&self, other: &Self) -> Ordering {
        // A share of 0 is 0 whatever its weight.
        let weight = |share: &Self| if share.is_zero() { 1 } else { share.weight.nanos() };
        let cross = |a: &Self, b: &Self| Wide::product(a.borrowed.into(), b.lendable.into()).times(weight(b));
        cross(self, other).cmp(&cross(other, self))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.order_by_ratio(other),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.order_by_weighted(other),
        }
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

fn units(amount: Amount) -> u64 {
    u64::try_from(amount.value()).unwrap_or(0)
}

/// What is asked for of a pair, in a short list.
fn extra_of(extra: &[(FlavorResourceId, Amount)], pair: FlavorResourceId) -> Amount {
    extra.iter().filter(|(p, _)| *p == pair).fold(Amount::ZERO, |sum, &(_, amount)| sum.plus(amount))
}

impl Forest {
    /// The pairs of which a node uses more than the quota of its subtree with `extra` more, and how much more. None at a node
    /// without a parent, which has nobody to borrow from.
    pub fn borrowed<'a>(
        &'a self,
        id: NodeId,
        extra: &'a [(FlavorResourceId, Amount)],
    ) -> impl Iterator<Item = (FlavorResourceId, Amount)> + 'a {
        let cells = self.parent(id).map(|_| self.known_cells(id)).into_iter().flatten();
        cells
            .map(|(pair, cell)| (pair, extra_of(extra, pair).plus(cell.usage).minus(cell.subtree)))
            .filter(|&(_, over)| over > Amount::ZERO)
    }

    /// Whether a node borrows any of the pairs that are requested in an amount above 0.
    pub fn is_borrowing_on(&self, id: NodeId, requested: &[(FlavorResourceId, Amount)]) -> bool {
        self.borrowed(id, &[]).any(|(pair, _)| extra_of(requested, pair) > Amount::ZERO)
    }

    /// What the tree can lend to the members of a Cohort, of all flavors of a resource together, with nothing running.
    pub fn lendable(&self, cohort: NodeId, resource: ResourceId, names: &Names) -> Amount {
        self.known_cells(self.root(cohort))
            .filter(|&(pair, _)| names.flavor_resource(pair).1 == resource)
            .fold(Amount::ZERO, |sum, (pair, _)| sum.plus(self.potential(cohort, pair)))
    }

    /// The dominant resource share of a node with `extra` more in use: of what its parent can lend, the largest part that it has
    /// borrowed of any resource, all flavors together. Of resources with equal parts the alphabetically first counts.
    ///
    /// `names` tells which resource a pair is of; it must be the table that the pairs of the forest are of.
    pub fn share(&self, id: NodeId, extra: &[(FlavorResourceId, Amount)], names: &Names) -> Share {
        let none = Share::none(self.weight(id));
        let Some(parent) = self.parent(id) else { return none };
        let resource_of = |pair| names.flavor_resource(pair).1;
        let mut best = none;
        for (pair, _) in self.borrowed(id, extra) {
            best.is_borrowing = true;
            let resource = resource_of(pair);
            let mut same = self.borrowed(id, extra).filter(|&(p, _)| resource_of(p) == resource);
            let Some((first, amount)) = same.next() else { continue };
            // Each resource once: when its first pair comes.
            if first != pair {
                continue;
            }
            let borrowed = same.fold(amount, |sum, (_, over)| sum.plus(over));
            let lendable = self.lendable(parent, resource, names);
            let share = Share { resource: Some(resource), ..Share::of(units(borrowed), units(lendable), none.weight) };
            let is_larger = match share.order_by_ratio(&best) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => {
                    best.resource.is_some_and(|b| names.resource_name(resource) < names.resource_name(b))
                }
            };
            if is_larger {
                best = share;
            }
        }
        best
    }
}
