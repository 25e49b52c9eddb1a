//! Exact products of quantities.

use crate::Quantity;
use crate::quantity::div_away_from_zero;

/// An exact decimal number `mantissa * 10^exponent`: sums and products of quantities that must not be rounded until the end.
///
/// Exact as long as the digits fit 127 bits; beyond that the last digits are rounded away from zero. The exponent of what
/// quantities are multiplied into is small, so it never runs out.
///
/// ```
/// use slicegate_quota::{Decimal, Quantity};
///
/// let third: Quantity = "333333333n".parse()?;
/// let product = Decimal::from(third).times(Decimal::from(third));
/// assert_eq!(product.to_quantity().to_string(), "111111111n");
/// # Ok::<(), slicegate_quota::ParseQuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Decimal {
    mantissa: i128,
    exponent: i32,
}

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0 };

    /// `mantissa * 10^exponent`, without trailing zeros in the mantissa.
    fn normal(mut mantissa: i128, mut exponent: i32) -> Self {
        if mantissa == 0 {
            return Self::ZERO;
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.saturating_add(1);
        }
        Self { mantissa, exponent }
    }

    /// One digit fewer, rounded away from zero.
    fn shortened(self) -> Self {
        Self { mantissa: div_away_from_zero(self.mantissa, 10), exponent: self.exponent.saturating_add(1) }
    }

    /// Product.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let (mut a, mut b) = (self, other);
        loop {
            if let Some(mantissa) = a.mantissa.checked_mul(b.mantissa) {
                return Self::normal(mantissa, a.exponent.saturating_add(b.exponent));
            }
            if a.mantissa.unsigned_abs() >= b.mantissa.unsigned_abs() {
                a = a.shortened();
            } else {
                b = b.shortened();
            }
        }
    }

    /// Sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if self.mantissa == 0 {
            return other;
        }
        if other.mantissa == 0 {
            return self;
        }
        let (mut high, mut low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        loop {
            if high.exponent == low.exponent {
                if let Some(mantissa) = high.mantissa.checked_add(low.mantissa) {
                    return Self::normal(mantissa, high.exponent);
                }
                (high, low) = (high.shortened(), low.shortened());
            } else if let Some(mantissa) = high.mantissa.checked_mul(10) {
                high = Self { mantissa, exponent: high.exponent.saturating_sub(1) };
            } else {
                low = low.shortened();
            }
        }
    }

    /// The nearest quantity away from zero.
    pub fn to_quantity(self) -> Quantity {
        let Self { mut mantissa, mut exponent } = self;
        while exponent < -9 && mantissa != 0 {
            let short = Self { mantissa, exponent }.shortened();
            // Below one billionth nothing gets smaller by being shortened again.
            if short.mantissa == mantissa {
                break;
            }
            (mantissa, exponent) = (short.mantissa, short.exponent);
        }
        while exponent > -9 && mantissa != 0 && mantissa != i128::MAX && mantissa != i128::MIN {
            mantissa = mantissa.saturating_mul(10);
            exponent = exponent.saturating_sub(1);
        }
        Quantity::from_nanos(mantissa)
    }
}

impl From<Quantity> for Decimal {
    fn from(quantity: Quantity) -> Self {
        Self::normal(quantity.nanos(), -9)
    }
}
