//! Detects leaks: steps that leave memory behind.

use vramlab_allocator::units::Bytes;

/// Allocated bytes at the end of steps, as long as they keep rising.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    last: Option<Bytes>,
    /// The last rise.
    rise: Bytes,
    /// The number of consecutive steps that ended with more than the step before, and the sum of their rises.
    steps: usize,
    risen: Bytes,
}

impl Growth {
    /// Fewer consecutive rises can be optimizer state, workspaces, or a cache that fills.
    const SUSPICIOUS: usize = 4;

    /// A step ended with `allocated` bytes.
    pub(super) fn end_step(&mut self, allocated: Bytes) {
        let rise = self.last.map_or(Bytes::ZERO, |last| allocated.saturating_sub(last));
        (self.steps, self.risen) =
            if rise > Bytes::ZERO { (self.steps + 1, self.risen + rise) } else { (0, Bytes::ZERO) };
        self.rise = rise;
        self.last = Some(allocated);
    }

    /// Starts again, because a switch was flipped.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Bytes that each step leaves behind, and for how many steps it has done so; `None` if there is no leak.
    pub(super) fn leak(&self) -> Option<(Bytes, usize)> {
        (self.steps >= Self::SUSPICIOUS).then_some((self.rise, self.steps))
    }

    /// The sum of what those steps left behind.
    pub(super) const fn risen(&self) -> Bytes {
        self.risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rises_again_and_again_is_a_leak() {
        let mut growth = Growth::default();
        for step in 0..5 {
            assert_eq!(growth.leak(), None, "{step}");
            growth.end_step(Bytes(1000 + 512 * step));
        }
        assert_eq!((growth.leak(), growth.risen()), (Some((Bytes(512), 4)), Bytes(4 * 512)));
        growth.end_step(Bytes(1000 + 512 * 4));
        assert_eq!(growth.leak(), None, "the step left nothing behind");
    }
}
