//! Amounts of quota: 64-bit integers with a value for "unlimited".

use std::fmt;

/// An amount of one resource: milli-units for cpu, whole units (bytes, chips, ...) for everything else.
///
/// The largest value stands for *unlimited*. Arithmetic never wraps and never panics:
///
/// | operation | result |
/// |---|---|
/// | unlimited + x | unlimited |
/// | unlimited - unlimited | 0 |
/// | unlimited - x | unlimited |
/// | x - unlimited | the smallest amount |
/// | otherwise | saturating; a sum that overflows is unlimited |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Amount(i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// No limit.
    pub const UNLIMITED: Self = Self(i64::MAX);
    /// The smallest amount: bounded minus unlimited.
    pub const MIN: Self = Self(i64::MIN);

    /// An amount of this many units. `i64::MAX` is [`Amount::UNLIMITED`].
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// The number of units; `i64::MAX` if unlimited.
    pub const fn value(self) -> i64 {
        self.0
    }

    /// Whether this is [`Amount::UNLIMITED`].
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// Sum, by the rules of the table above.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() { Self::UNLIMITED } else { Self(self.0.saturating_add(other.0)) }
    }

    /// Difference, by the rules of the table above.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self::MIN,
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
    }

    /// The larger of this and nothing.
    #[must_use]
    pub const fn or_zero(self) -> Self {
        if self.0 < 0 { Self::ZERO } else { self }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("<unlimited>") } else { self.0.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unlimited_absorbs() {
        let (u, one) = (Amount::UNLIMITED, Amount::new(1));
        assert_eq!(u.plus(one), u);
        assert_eq!(one.plus(u), u);
        assert_eq!(u.minus(u), Amount::ZERO);
        assert_eq!(u.minus(one), u);
        assert_eq!(one.minus(u), Amount::MIN);
        assert_eq!(Amount::new(i64::MAX - 1).plus(one), u, "a sum that overflows is unlimited");
        assert_eq!(Amount::MIN.minus(one), Amount::MIN);
        assert_eq!((u.to_string().as_str(), one.to_string().as_str()), ("<unlimited>", "1"));
    }

    proptest! {
        #[test]
        fn small_amounts_are_integers(a: i32, b: i32) {
            let (x, y) = (Amount::new(a.into()), Amount::new(b.into()));
            prop_assert_eq!(x.plus(y).value(), i64::from(a) + i64::from(b));
            prop_assert_eq!(x.minus(y).value(), i64::from(a) - i64::from(b));
            prop_assert_eq!(x.or_zero().value(), i64::from(a).max(0));
        }

        #[test]
        fn a_sum_never_moves_the_wrong_way(a: i64, b: i64, c: i64) {
            let (x, y, z) = (Amount::new(a), Amount::new(b), Amount::new(c));
            prop_assert_eq!(x.plus(y), y.plus(x));
            if x <= y {
                prop_assert!(x.plus(z) <= y.plus(z));
            }
        }
    }
}
