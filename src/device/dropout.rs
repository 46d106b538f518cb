//! Which elements dropout drops.

/// The elements that one dropout call drops. The call's number determines them, equally on every device, so that the
/// second run of a checkpoint, and backward, drop the same elements as forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropoutMask {
    call: u64,
    share: f64,
}

impl DropoutMask {
    /// The mask of the call with this number, which drops a `share` of the elements: at least 0 and below 1.
    #[must_use]
    pub const fn new(call: u64, share: f64) -> Self {
        Self { call, share }
    }

    /// The start of the call's random draws. An element's draw is SplitMix64 of its index plus this.
    #[must_use]
    pub const fn seed(self) -> u64 {
        self.call.wrapping_mul(0xD1B5_4A32_D192_ED03)
    }

    /// An element is dropped if the upper 53 bits of its draw are below this.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is below 1")]
    pub fn threshold(self) -> u64 {
        (self.share * (1_u64 << 53) as f64).ceil() as u64
    }

    /// The factor on elements that are kept: f32, as in PyTorch.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
    pub fn factor(self) -> f32 {
        (1.0 / (1.0 - self.share)) as f32
    }

    /// True if the element with this index after a [`Self::seed`] is dropped.
    #[must_use]
    pub const fn leaves_out(seed: u64, threshold: u64, index: u64) -> bool {
        let mut x = seed.wrapping_add(index).wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) >> 11 < threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_elements_is_left_out_and_each_call_draws_anew() {
        let left_out = |call: u64, share: f64| {
            let mask = DropoutMask::new(call, share);
            let (seed, threshold) = (mask.seed(), mask.threshold());
            (0..100_000).map(move |index| DropoutMask::leaves_out(seed, threshold, index))
        };
        let count = |call, share| left_out(call, share).filter(|out| *out).count();
        assert!((9_500..10_500).contains(&count(0, 0.1)) && (9_500..10_500).contains(&count(7, 0.1)));
        assert_eq!(count(3, 0.0), 0);
        let alike = left_out(0, 0.5).zip(left_out(1, 0.5)).filter(|(one, other)| one == other).count();
        assert!((47_000..53_000).contains(&alike), "{alike}");
    }
}
