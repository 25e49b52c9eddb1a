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
