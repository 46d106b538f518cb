//! Who takes part, and how the work is shared.

use std::num::NonZeroUsize;

use thiserror::Error;
use vramlab_model::Parallelism;

/// One rank's place among all: its rank is below the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    size: NonZeroUsize,
    rank: usize,
}

impl World {
    /// Rank `rank` of `size`; `None` where there is no such rank.
    #[must_use]
    pub const fn new(size: usize, rank: usize) -> Option<Self> {
        match NonZeroUsize::new(size) {
            Some(size) if rank < size.get() => Some(Self { size, rank }),
            _ => None,
        }
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn size(self) -> usize {
        self.size.get()
    }

    /// The index of this rank, from 0 on.
    #[must_use]
    pub const fn rank(self) -> usize {
        self.rank
    }

    /// How many of `items` this rank gets: each rank gets as many as the first, and the last ones what is left
    /// (`torch.chunk`).
    #[must_use]
    pub const fn chunk(self, items: usize) -> usize {
        let each = items.div_ceil(self.size());
        let before = each.saturating_mul(self.rank);
        let left = items.saturating_sub(before);
        if left < each { left } else { each }
    }
}

/// A rank, and how it shares the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// How the work is shared.
    pub parallelism: Parallelism,
    /// The rank's place.
    pub world: World,
}

/// Something can't be divided equally among the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{count} {what} can't be split over {ranks} ranks; {remedy}")]
pub struct UnevenSplit {
    /// How many things there are.
    pub count: usize,
    /// What they are.
    pub what: &'static str,
    /// The size of the world.
    pub ranks: usize,
    /// What to do.
    pub remedy: String,
}

impl Member {
    /// Samples of a batch of `batch` that this rank works on.
    ///
    /// # Errors
    /// [`UnevenSplit`].
    pub fn samples(&self, batch: usize) -> Result<usize, UnevenSplit> {
        let ranks = self.world.size();
        if !self.parallelism.splits_batch() {
            return Ok(batch);
        }
        if !batch.is_multiple_of(ranks) {
            let remedy = format!("give --batch {} or another multiple", batch.next_multiple_of(ranks));
            return Err(UnevenSplit { count: batch, what: "samples", ranks, remedy });
        }
        Ok(batch / ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_torchs() {
        let chunks = |items, size| -> Vec<usize> {
            (0..size).map(|rank| World::new(size, rank).unwrap().chunk(items)).collect()
        };
        assert_eq!(chunks(50_257, 2), [25_129, 25_128]);
        assert_eq!(chunks(5, 4), [2, 2, 1, 0]);
        assert_eq!(chunks(1, 3), [1, 0, 0]);
        assert_eq!(World::new(2, 2), None);
        assert_eq!(World::new(0, 0), None);
    }
}
