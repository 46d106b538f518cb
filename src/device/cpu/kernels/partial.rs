//! Sums that tasks make apart and that are added in their order, so that results do not depend on threads.

use std::sync::{Mutex, PoisonError};

use crate::device::cpu::real::Real;

/// One row of partial sums for each block, handed to the task of that block.
pub(super) struct SumsOfBlocks<'a, R>(Vec<Mutex<&'a mut [R]>>);

impl<'a, R: Real> SumsOfBlocks<'a, R> {
    pub(super) fn new(sums: &'a mut [R], width: usize) -> Self {
        Self(sums.chunks_exact_mut(width).map(Mutex::new).collect())
    }

    #[inline(always)]
    pub(super) fn with(&self, block: usize, body: impl FnOnce(&mut [R])) {
        body(&mut self.0[block].lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The sum over blocks, in their order.
    pub(super) fn total(self, blocks: usize) -> &'a mut [R] {
        let mut rows =
            self.0.into_iter().take(blocks).map(|sums| sums.into_inner().unwrap_or_else(PoisonError::into_inner));
        let Some(total) = rows.next() else { return &mut [] };
        for row in rows {
            total.iter_mut().zip(row.iter()).for_each(|(sum, &x)| *sum += x);
        }
        total
    }
}
