//! Unsigned integers of 256 bits: just what exact ratios and products need.

use std::cmp::Ordering;

/// A number of 256 bits, the least significant 64 first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wide([u64; 4]);

const fn low(n: u128) -> u64 {
    (n & 0xffff_ffff_ffff_ffff) as u64
}

impl Wide {
    /// The product of two numbers, exact.
    pub(crate) fn product(a: u128, b: u128) -> Self {
        let (a, b) = ([low(a), low(a >> 64)], [low(b), low(b >> 64)]);
        let mut limbs = [0_u64; 4];
        for (i, &x) in a.iter().enumerate() {
            let mut carry = 0_u128;
            for (j, &y) in b.iter().enumerate() {
                // At most (2^64-1)^2 + 2 (2^64-1), which is 2^128-1.
                let sum = u128::from(x) * u128::from(y) + u128::from(limbs[i + j]) + carry;
                limbs[i + j] = low(sum);
                carry = sum >> 64;
            }
            limbs[i + 2] = low(carry);
        }
        Self(limbs)
    }

    /// Times a small number; the largest number if that overflows.
    pub(crate) fn times(self, factor: u64) -> Self {
        let mut limbs = self.0;
        let mut carry = 0_u128;
        for limb in &mut limbs {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = low(product);
            carry = product >> 64;
        }
        if carry == 0 { Self(limbs) } else { Self([u64::MAX; 4]) }
    }

    /// Divided by a small number that is not zero, fractions cut off.
    pub(crate) fn divided_by(self, divisor: u64) -> Self {
        let mut limbs = self.0;
        let mut rest = 0_u128;
        for limb in limbs.iter_mut().rev() {
            let n = (rest << 64) | u128::from(*limb);
            *limb = low(n.checked_div(u128::from(divisor)).unwrap_or(n));
            rest = n.checked_rem(u128::from(divisor)).unwrap_or(0);
        }
        Self(limbs)
    }

    /// The number in 128 bits; their largest if it does not fit.
    pub(crate) fn saturating_u128(self) -> u128 {
        let [a, b, c, d] = self.0;
        if c == 0 && d == 0 { u128::from(a) | (u128::from(b) << 64) } else { u128::MAX }
    }
}

impl PartialOrd for Wide {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wide {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_product_is_exact() {
        // (2^128-1)^2 = 2^256 - 2^129 + 1
        assert_eq!(Wide::product(u128::MAX, u128::MAX), Wide([1, 0, u64::MAX - 1, u64::MAX]));
        assert_eq!(Wide::product(u128::MAX, u128::MAX).times(2), Wide([u64::MAX; 4]));
        assert_eq!(Wide::product(u128::MAX, 2).saturating_u128(), u128::MAX);
    }

    proptest! {
        #[test]
        fn small_products_agree_with_the_machine(a: u64, b: u64, c in 1_u32..) {
            let product = u128::from(a) * u128::from(b);
            prop_assert_eq!(Wide::product(a.into(), b.into()).saturating_u128(), product);
            let tall = Wide::product(product, c.into());
            prop_assert_eq!(tall, Wide::product(c.into(), product));
            prop_assert_eq!(tall, Wide::product(product, 1).times(c.into()));
            prop_assert_eq!(tall.divided_by(c.into()).saturating_u128(), product);
        }

        #[test]
        fn products_keep_the_order(a: u128, b: u128, c in 1_u128..) {
            prop_assert_eq!(Wide::product(a, c).cmp(&Wide::product(b, c)), a.cmp(&b));
        }
    }
}
