//! Lists of numbers in few bytes: small ones take one byte each, however large the largest is.

/// A list of numbers under construction.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<u8>);

impl Numbers {
    /// The most bytes of a number.
    const MOST: usize = 10;

    /// Adds a number.
    pub fn push(&mut self, number: u64) {
        // It always fits.
        if let Ok(bytes) = postcard::to_slice(&number, &mut [0; Self::MOST]) {
            self.0.extend_from_slice(bytes);
        }
    }

    /// Adds the way from one number to another. It is small if they are neighbours, in either direction.
    pub fn push_step(&mut self, from: u64, to: u64) {
        let step = to.wrapping_sub(from).cast_signed();
        self.push(((step << 1) ^ (step >> 63)).cast_unsigned());
    }

    /// The list.
    pub fn pack(self) -> Box<[u8]> {
        self.0.into()
    }
}

/// Reads what [`Numbers::pack`] returned. Behind the last number there are zeros.
#[derive(Debug)]
pub(crate) struct PackedNumbers<'a>(&'a [u8]);

impl<'a> PackedNumbers<'a> {
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// True behind the last number.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next number.
    pub fn take(&mut self) -> u64 {
        let (number, rest) = postcard::take_from_bytes(self.0).unwrap_or_default();
        self.0 = rest;
        number
    }

    /// The number that is reached from `from` by the next step.
    pub fn take_step(&mut self, from: u64) -> u64 {
        let step = self.take();
        from.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_come_back_and_neighbours_take_a_byte() {
        let ends = [0, 1, 63, 64, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let mut numbers = Numbers::default();
        for (from, to) in ends.iter().flat_map(|from| ends.map(|to| (*from, to))) {
            numbers.push(to);
            numbers.push_step(from, to);
        }
        let bytes = numbers.pack();
        let mut packed = PackedNumbers::of(&bytes);
        for (from, to) in ends.iter().flat_map(|from| ends.map(|to| (*from, to))) {
            assert_eq!((packed.take(), packed.take_step(from)), (to, to));
        }
        assert!(packed.is_empty() && packed.take() == 0);
        let mut steps = Numbers::default();
        (0..100).for_each(|n| steps.push_step(u64::MAX - n, u64::MAX - n + n % 3 - 1));
        assert_eq!(steps.pack().len(), 100);
    }
}
