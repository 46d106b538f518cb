//! How much memory a pickle may take, and how much work it may ask for.
//!
//! A pickle refers to its objects by number, so that two bytes can ask for an object of any size to be held, copied or
//! looked through once more. Both accounts therefore grow with the bytes read, and with nothing else.

use super::error::Problem;

/// Memory that any pickle may take, in bytes.
const BASE: u64 = 16 << 20;
/// Memory that each byte read adds. A snapshot needs between a third and four.
const FACTOR: u64 = 8;
/// Objects that may be looked at in any pickle once it is read.
const BASE_STEPS: u64 = 1 << 20;
/// Looks that each byte read adds. A snapshot needs about one.
const STEPS_FACTOR: u64 = 16;

/// Counts what the reader's tables hold and what is done with them, against allowances that grow with the input.
#[derive(Debug, Default)]
pub struct Budget {
    held: u64,
    steps: u64,
    read: u64,
}

impl Budget {
    /// Tells how many bytes have been read so far.
    pub const fn set_read(&mut self, read: u64) {
        self.read = read;
    }

    /// Takes `bytes` out of the memory that is left.
    ///
    /// # Errors
    /// [`Problem::TooBig`] when the pickle asks for more memory than one of its length can need.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Problem> {
        self.held = self.held.saturating_add(bytes as u64);
        if self.held > BASE + FACTOR * self.read { Err(Problem::TooBig) } else { Ok(()) }
    }

    /// Takes `bytes` out of the memory that is left, if there are so many: what a pickle can do without must not end its reading.
    pub const fn spare(&mut self, bytes: usize) -> bool {
        let held = self.held.saturating_add(bytes as u64);
        let spared = held <= BASE + FACTOR * self.read;
        if spared {
            self.held = held;
        }
        spared
    }

    /// Takes a look at `objects` objects.
    ///
    /// # Errors
    /// [`Problem::TooMuchWork`] when the pickle asks for more of them than one of its length can need.
    pub fn look(&mut self, objects: usize) -> Result<(), Problem> {
        self.steps = self.steps.saturating_add(objects as u64);
        if self.steps > BASE_STEPS + STEPS_FACTOR * self.read { Err(Problem::TooMuchWork) } else { Ok(()) }
    }
}
