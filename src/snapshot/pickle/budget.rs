//! How much memory a pickle may take.

use super::Problem;

/// Memory that any pickle may take, in bytes.
const BASE: u64 = 64 << 20;
/// Memory that each byte read adds. A snapshot needs about one.
const FACTOR: u64 = 8;

/// Counts what the reader's tables hold, against an allowance that grows with the input.
#[derive(Debug, Default)]
pub struct Budget {
    used: u64,
    read: u64,
}

impl Budget {
    /// Tells how many bytes have been read so far.
    pub fn set_read(&mut self, read: u64) {
        self.read = read;
    }

    /// Takes `bytes` out of what is left.
    ///
    /// # Errors
    /// [`Problem::TooBig`] when the pickle asks for more memory than one of its length can need.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Problem> {
        self.used = self.used.saturating_add(bytes as u64);
        if self.used > BASE + FACTOR * self.read { Err(Problem::TooBig) } else { Ok(()) }
    }
}
