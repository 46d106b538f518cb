//! How much memory a pickle may take, and how much work it may cause.
//!
//! A pickle refers to its objects by number, so two bytes can cause an object of any size to be held, copied or
//! searched once more. Both budgets therefore grow only with the bytes read.

use super::error::Problem;

/// Bytes of memory that any pickle may take.
const BASE: u64 = 16 << 20;
/// Bytes of memory for each byte read. A snapshot needs between a third and four.
const FACTOR: u64 = 8;
/// Objects that may be visited in any pickle.
const BASE_STEPS: u64 = 1 << 20;
/// Visits for each byte read. A snapshot needs about one.
const STEPS_FACTOR: u64 = 16;

/// Counts the memory of the reader's tables and the work done on them, against allowances that grow with the input.
#[derive(Debug, Default)]
pub struct Budget {
    held: u64,
    steps: u64,
    read: u64,
}

impl Budget {
    /// Sets how many bytes have been read so far.
    pub const fn set_read(&mut self, read: u64) {
        self.read = read;
    }

    /// Takes `bytes` from the remaining memory.
    ///
    /// # Errors
    /// [`Problem::TooBig`] if the pickle needs more memory than one of its length can need.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Problem> {
        self.held = self.held.saturating_add(bytes as u64);
        if self.held > BASE + FACTOR * self.read { Err(Problem::TooBig) } else { Ok(()) }
    }

    /// Takes `bytes` from the remaining memory if that much is left. For memory that reading can do without.
    pub const fn spare(&mut self, bytes: usize) -> bool {
        let held = self.held.saturating_add(bytes as u64);
        let spared = held <= BASE + FACTOR * self.read;
        if spared {
            self.held = held;
        }
        spared
    }

    /// Counts a visit to `objects` objects.
    ///
    /// # Errors
    /// [`Problem::TooMuchWork`] if the pickle causes more visits than one of its length can need.
    pub fn look(&mut self, objects: usize) -> Result<(), Problem> {
        self.steps = self.steps.saturating_add(objects as u64);
        if self.steps > BASE_STEPS + STEPS_FACTOR * self.read { Err(Problem::TooMuchWork) } else { Ok(()) }
    }
}
