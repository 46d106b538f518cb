//! Stacks by the bytes that encode them.
//!
//! A pickle encodes a stack as a run of references to frames that it stored before, so the same stack has the same
//! bytes. A program that repeats itself, as training does, allocates from the same places in the same order, so the
//! next run is usually known before it is read.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::budget::Budget;
use super::error::Problem;
use super::opcode as op;
use crate::types::StackId;

/// Bytes of runs that are kept. Further stacks are decoded each time they come.
const KEPT: usize = 16 << 20;

/// A run of references to stored values, including the opcode that ends it.
#[derive(Clone, Copy, Debug)]
struct ReferenceRun {
    start: usize,
    end: usize,
    stack: StackId,
    /// The index of the run that followed this one last time.
    next: usize,
}

/// The runs read so far.
#[derive(Debug, Default)]
pub struct Runs {
    /// The bytes of all runs, one after the other.
    bytes: Vec<u8>,
    runs: Vec<ReferenceRun>,
    by_hash: HashMap<u64, usize>,
    last: usize,
}

/// What a sequence of bytes begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPrefix {
    /// A known run: its stack and its length in bytes.
    Known(StackId, usize),
    /// A new run of this length.
    New(usize),
    /// A run that continues beyond the bytes.
    Short,
    /// Something else.
    Other,
}

impl Runs {
    /// What `bytes` begin with.
    #[inline]
    pub fn find(&mut self, bytes: &[u8]) -> RunPrefix {
        if let Some(guess) = self.runs.get(self.last).map(|last| last.next)
            && let Some(run) = self.runs.get(guess)
            && bytes.starts_with(&self.bytes[run.start..run.end])
        {
            self.last = guess;
            return RunPrefix::Known(run.stack, run.end - run.start);
        }
        let length = match length(bytes) {
            Ok(length) => length,
            Err(other) => return other,
        };
        let Some(&found) = self.by_hash.get(&hash(&bytes[..length])) else { return RunPrefix::New(length) };
        let run = self.runs[found];
        if self.bytes[run.start..run.end] != bytes[..length] {
            return RunPrefix::New(length);
        }
        self.follow(found);
        RunPrefix::Known(run.stack, length)
    }

    /// Remembers a run, if there is room for it.
    ///
    /// # Errors
    /// [`Problem`] when the budget is used up.
    pub fn insert(&mut self, run: &[u8], stack: StackId, budget: &mut Budget) -> Result<(), Problem> {
        if self.bytes.len() + run.len() > KEPT {
            return Ok(());
        }
        budget.charge(run.len() + size_of::<ReferenceRun>() + 4 * size_of::<u64>())?;
        let index = self.runs.len();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(run);
        self.runs.push(ReferenceRun { start, end: self.bytes.len(), stack, next: 0 });
        self.by_hash.insert(hash(run), index);
        self.follow(index);
        Ok(())
    }

    fn follow(&mut self, index: usize) {
        if let Some(last) = self.runs.get_mut(self.last) {
            last.next = index;
        }
        self.last = index;
    }
}

fn hash(run: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(run)
}

/// The length of the run that `bytes` begin with.
fn length(bytes: &[u8]) -> Result<usize, RunPrefix> {
    let mut at = 0;
    loop {
        match bytes.get(at) {
            Some(&op::LONG_BINGET) => at += 5,
            Some(&op::BINGET) => at += 2,
            Some(&op::APPENDS) => return Ok(at + 1),
            Some(_) => return Err(RunPrefix::Other),
            None => return Err(RunPrefix::Short),
        }
    }
}

/// The numbers of the stored values that a run refers to.
pub fn references(run: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let mut rest = run;
    std::iter::from_fn(move || {
        let (index, after) = match rest {
            [op::LONG_BINGET, a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), after),
            [op::BINGET, index, after @ ..] => (u32::from(*index), after),
            _ => return None,
        };
        rest = after;
        Some(u64::from(index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_wherever_they_come() {
        let (first, second) = (&b"h\x01j\x00\x00\x01\x00e"[..], &b"h\x01h\x02e"[..]);
        let mut runs = Runs::default();
        let mut budget = Budget::default();
        assert_eq!(runs.find(first), RunPrefix::New(8));
        runs.insert(first, StackId(1), &mut budget).unwrap();
        runs.insert(second, StackId(2), &mut budget).unwrap();
        for (run, stack) in [(first, 1), (second, 2), (second, 2), (first, 1), (first, 1), (second, 2)] {
            let bytes = [run, b"and more"].concat();
            assert_eq!(runs.find(&bytes), RunPrefix::Known(StackId(stack), run.len()));
        }
        assert_eq!(runs.find(b"h\x01h\x03e"), RunPrefix::New(5));
        for end in 0..first.len() {
            assert_eq!(runs.find(&first[..end]), RunPrefix::Short, "{end}");
        }
        assert_eq!(runs.find(b"h\x01}"), RunPrefix::Other);
        assert_eq!(references(first).collect::<Vec<_>>(), [1, 65_536]);
    }

    #[test]
    fn runs_beyond_the_bound_are_not_kept() {
        let mut runs = Runs::default();
        let mut budget = Budget::default();
        budget.set_read(1 << 30);
        for index in 0..u32::try_from(KEPT / 1000).unwrap() + 10 {
            let run = [&[op::LONG_BINGET][..], &index.to_le_bytes(), &b"h\x00".repeat(500), b"e"].concat();
            assert_eq!(runs.find(&run), RunPrefix::New(run.len()));
            runs.insert(&run, StackId(index), &mut budget).unwrap();
        }
        assert!(runs.bytes.len() <= KEPT && runs.bytes.len() > KEPT - 2000);
    }
}
