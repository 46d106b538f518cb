//! Whether steps leave memory behind: a leak.

use vramlab_allocator::units::Bytes;

/// Bytes allocated at the end of steps, as long as they have been rising.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    last: Option<Bytes>,
    /// What the last rise was.
    rise: Bytes,
    /// Steps in a row that ended with more than the one before, and what they left in all.
    steps: usize,
    risen: Bytes,
}

impl Growth {
    /// Fewer steps in a row can be optimizer state, workspaces, a cache that fills.
    const SUSPICIOUS: usize = 4;

    /// A step ended with `allocated` bytes.
    pub(super) fn end_step(&mut self, allocated: Bytes) {
        let rise = self.last.map_or(Bytes::ZERO, |last| allocated.saturating_sub(last));
        (self.steps, self.risen) =
            if rise > Bytes::ZERO { (self.steps + 1, self.risen + rise) } else { (0, Bytes::ZERO) };
        self.rise = rise;
        self.last = Some(allocated);
    }

    /// A switch was flipped: what rises now is another thing.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Bytes that each step leaves behind, and for how many steps it has been so.
    pub(super) fn leak(&self) -> Option<(Bytes, usize)> {
        (self.steps >= Self::SUSPICIOUS).then_some((self.rise, self.steps))
    }

    /// What those steps left in all.
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
