//! A small seeded generator: windows of text, sampled bytes.

/// SplitMix64 (Steele, Lea, Flood 2014): every seed gives a sequence of its own, the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `[0, n)`; 0 where `n` is 0.
    pub const fn below(&mut self, n: usize) -> usize {
        // The bias of the multiply-shift is below n / 2^64.
        ((self.bits() as u128 * n as u128) >> 64) as usize
    }

    /// A number in `[0, 1)`.
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_bound_and_seeds_differ() {
        let (mut a, mut b) = (Random::new(1), Random::new(2));
        assert_ne!(a.bits(), b.bits());
        assert!((0..1000).all(|_| a.below(7) < 7));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&a.unit())));
        assert_eq!(a.below(0), 0);
    }
}
