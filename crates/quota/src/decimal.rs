//! Exact products of quantities.

use crate::Quantity;
use crate::quantity::div_away_from_zero;
use crate::wide::Wide;

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

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.mantissa < 0
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

/// A number times the shortest decimal form of a factor that is not negative, rounded down; the largest number if it does not
/// fit.
pub(crate) fn scale_down(number: u128, factor: f64) -> u128 {
    if !factor.is_finite() {
        return if factor.is_infinite() && number > 0 { u128::MAX } else { 0 };
    }
    let text = factor.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    // At most 17 digits are not zero; those at the end are powers of ten.
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let Ok(mantissa) = (if significant.is_empty() { "0" } else { significant }).parse::<u64>() else {
        return u128::MAX;
    };
    let mut exponent = digits.len().saturating_sub(significant.len());
    let mut decimals = fraction.len();
    (exponent, decimals) = (exponent.saturating_sub(decimals), decimals.saturating_sub(exponent));
    let mut product = Wide::product(number, mantissa.into());
    for _ in 0..exponent {
        product = product.times(10);
    }
    while decimals > 0 && product != Wide::product(0, 0) {
        let step = decimals.min(18);
        product = product.divided_by(10_u64.pow(u32::try_from(step).unwrap_or(0)));
        decimals -= step;
    }
    product.saturating_u128()
}
