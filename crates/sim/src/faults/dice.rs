//! Numbers that look random and are the same each time.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `sides`; 0 if there are none.
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.next().checked_rem(sides).unwrap_or(0)
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }
}

/// The place in a list of `length` that a number stands for.
pub(super) fn place(number: u16, length: usize) -> usize {
    usize::from(number).checked_rem(length).unwrap_or(0)
}
