//! Lists of numbers in few bytes: small ones take one byte each, however large the largest is.

/// A list of numbers under construction.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    /// An empty list with room for this many.
    pub fn with_capacity(numbers: usize) -> Self {
        Self(Vec::with_capacity(numbers))
    }

    /// Adds a number.
    pub fn push(&mut self, number: u64) {
        self.0.push(number);
    }

    /// Adds the way from one number to another. It is small if they are neighbours, in either direction.
    pub fn push_step(&mut self, from: u64, to: u64) {
        let step = to.wrapping_sub(from).cast_signed();
        self.push(((step << 1) ^ (step >> 63)).cast_unsigned());
    }

    /// The list in few bytes.
    pub fn pack(&self) -> Box<[u8]> {
        // A list in memory can't fail to be written into memory.
        postcard::to_stdvec(&self.0).unwrap_or_default().into()
    }
}

/// Reads what [`Numbers::pack`] wrote. Behind the last number there are zeros.
#[derive(Debug)]
pub(crate) struct PackedNumbers(std::vec::IntoIter<u64>);

impl PackedNumbers {
    pub fn of(bytes: &[u8]) -> Self {
        Self(postcard::from_bytes::<Vec<u64>>(bytes).unwrap_or_default().into_iter())
    }

    /// True behind the last number.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The next number.
    pub fn take(&mut self) -> u64 {
        self.0.next().unwrap_or_default()
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
        let mut packed = PackedNumbers::of(&numbers.pack());
        for (from, to) in ends.iter().flat_map(|from| ends.map(|to| (*from, to))) {
            assert_eq!((packed.take(), packed.take_step(from)), (to, to));
        }
        assert!(packed.is_empty() && packed.take() == 0);
        let mut steps = Numbers::default();
        (0..100).for_each(|n| steps.push_step(u64::MAX - n, u64::MAX - n + n % 3 - 1));
        assert_eq!(steps.pack().len(), 101, "with the list's length");
    }
}
