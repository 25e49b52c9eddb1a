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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::from(text.parse::<Quantity>().unwrap())
    }

    #[test]
    fn nothing_is_rounded_before_the_end() {
        // A third of a billionth three times is a billionth, not three.
        let tiny = decimal("1n").times(decimal("333333333n"));
        let sum = tiny.plus(tiny).plus(tiny);
        assert_eq!(sum.to_quantity().nanos(), 1);
        let exact = tiny.plus(tiny).plus(tiny).plus(decimal("1n").times(decimal("1n")));
        assert_eq!(exact.to_quantity().nanos(), 1, "999999999 + 1 parts of 10^18 are a billionth exactly");
        assert_eq!(tiny.to_quantity().nanos(), 1, "rounded away from zero");
        assert_eq!(decimal("-1n").times(decimal("500m")).to_quantity().nanos(), -1);
    }

    #[test]
    fn what_is_too_long_saturates_or_loses_its_last_digits() {
        let huge = decimal("123456789123456789E");
        assert_eq!(huge.times(huge).to_quantity().nanos(), i128::MAX);
        assert_eq!(huge.times(decimal("-1")).times(huge).to_quantity().nanos(), i128::MIN);
        let long = decimal("1.000000001");
        let mut product = long;
        for _ in 0..5 {
            product = product.times(long);
        }
        assert_eq!(product.to_quantity().nanos(), 1_000_000_007, "six and a bit, rounded away from zero");
        assert!(decimal("-1").is_negative() && !Decimal::ZERO.is_negative());
    }

    proptest! {
        #[test]
        fn sums_and_products_agree_with_integers(a in -1_000_000_000..1_000_000_000_i64, b: i32, c in -1000..1000_i64) {
            let decimal = |n: i64| Decimal::from(Quantity::from_nanos(n.into()));
            let (x, y) = (decimal(a), decimal(b.into()));
            prop_assert_eq!(x.plus(y).to_quantity().nanos(), i128::from(a) + i128::from(b));
            prop_assert_eq!(y.plus(x).to_quantity(), x.plus(y).to_quantity());
            let z = Decimal::from(Quantity::from_units(c));
            prop_assert_eq!(x.times(z).to_quantity().nanos(), i128::from(a) * i128::from(c));
            let left = x.plus(y).times(z).to_quantity();
            let right = x.times(z).plus(y.times(z)).to_quantity();
            prop_assert_eq!(left, right);
        }

        #[test]
        fn anything_goes(a: i128, b: i128, c: i128) {
            let decimal = |n| Decimal::from(Quantity::from_nanos(n));
            let _ = decimal(a).times(decimal(b)).plus(decimal(c).times(decimal(a))).to_quantity();
        }
    }
}
