//! Partial sums that tasks compute separately and that are added in the tasks' order, so that results do not depend on
//! threads.

use std::sync::{Mutex, PoisonError};

use crate::cpu::real::Real;

/// One row of partial sums per block, handed to that block's task.
pub(crate) struct SumsOfBlocks<'a, R>(Vec<Mutex<&'a mut [R]>>);

impl<'a, R: Real> SumsOfBlocks<'a, R> {
    pub(crate) fn new(sums: &'a mut [R], width: usize) -> Self {
        Self(sums.chunks_exact_mut(width).map(Mutex::new).collect())
    }

    #[inline(always)]
    pub(crate) fn with(&self, block: usize, body: impl FnOnce(&mut [R])) {
        body(&mut self.0[block].lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The sum over all blocks, in their order.
    pub(crate) fn total(self, blocks: usize) -> &'a mut [R] {
        let mut sums = self.0;
        sums.truncate(blocks);
        Self(sums).joined(1).pop().unwrap_or_default()
    }

    /// The sums over every `groups`-th block: one for each of the first `groups` blocks.
    pub(crate) fn joined(self, groups: usize) -> Vec<&'a mut [R]> {
        let mut rows = self.0.into_iter().map(|sums| sums.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut totals: Vec<&'a mut [R]> = rows.by_ref().take(groups).collect();
        for (i, row) in rows.enumerate() {
            totals[i % groups].iter_mut().zip(row.iter()).for_each(|(sum, &x)| *sum += x);
        }
        totals
    }
}
