//! Exact decimal quantities as Kubernetes writes them.

use std::fmt;
use std::str::FromStr;

/// An exact quantity such as `500m`, `16Gi` or `1e3`, kept in billionths.
///
/// Kubernetes quantities have at most nine digits after the point; finer ones are rounded up (away from zero).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Quantity {
    nanos: i128,
}

/// Why a text is not a quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a quantity; write a number with an optional suffix, such as 500m, 4, 16Gi or 1e3")]
pub struct ParseQuantityError {
    /// The text.
    pub text: String,
}

impl Quantity {
    /// A whole number.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: (units as i128).saturating_mul(1_000_000_000) }
    }

    /// A number of billionths.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self { nanos }
    }

    /// The number of billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let fail = || ParseQuantityError { text: text.to_owned() };
        text.parse::<i64>().map(Self::from_units).map_err(|_| fail())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.nanos / 1_000_000_000).fmt(f)
    }
}
