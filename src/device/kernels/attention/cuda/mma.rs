//! Attention on tensor cores, for 16-bit elements from sm_80 on.

use super::problem::Problem;
use crate::DType;
use crate::cuda::queue::{Grid, Queue, Refusal, blocks_of};
use vramlab_allocator::units::Address;

const WARPS: usize = 4;

/// Rows of a fragment of the result.
const STRIP: usize = 16;

/// Elements that are copied at once.
const VECTOR: usize = 8;

/// The kernels for heads of up to `width` elements.
struct MmaVariant {
    width: usize,
    forward: &'static str,
    key_gradients: &'static str,
    query_gradients: &'static str,
}

/// From narrow to wide.
const VARIANTS: [MmaVariant; 4] = [
    MmaVariant {
        width: 32,
        forward: "attention_mma_32",
        key_gradients: "attention_mma_key_gradients_32",
        query_gradients: "attention_mma_query_gradients_32",
    },
    MmaVariant {
        width: 64,
        forward: "attention_mma_64",
        key_gradients: "attention_mma_key_gradients_64",
        query_gradients: "attention_mma_query_gradients_64",
    },
    MmaVariant {
        width: 80,
        forward: "attention_mma_80",
        key_gradients: "attention_mma_key_gradients_80",
        query_gradients: "attention_mma_query_gradients_80",
    },
    MmaVariant {
        width: 128,
        forward: "attention_mma_128",
        key_gradients: "attention_mma_key_gradients_128",
        query_gradients: "attention_mma_query_gradients_128",
    },
];

/// The tiles of one block, as in attention_mma.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MmaTile {
    /// Rows of the result that the block computes, over all warps.
    own: usize,
    /// Rows of the other side that are in shared memory at the same time.
    passing: usize,
}

impl MmaTile {
    const fn new(strips: usize, passing: usize) -> Self {
        Self { own: WARPS * STRIP * strips, passing }
    }

    const fn forward(width: usize) -> Self {
        Self::new(2, if width <= 64 { 64 } else { 32 })
    }

    const fn key_gradients(width: usize) -> Self {
        Self::new(if width <= 64 { 2 } else { 1 }, if width <= 64 { 64 } else { 32 })
    }

    const fn query_gradients(width: usize) -> Self {
        Self::new(if width <= 64 { 2 } else { 1 }, if width <= 80 { 64 } else { 32 })
    }

    /// Bytes of shared memory for `factors` matrices of the block's own rows, and for two double-buffered matrices of
    /// the other side's rows.
    const fn bytes(self, width: usize, factors: usize) -> usize {
        2 * (width + 8) * (factors * self.own + 2 * 2 * self.passing)
    }

    /// The same, and two numbers for each row of the other side, double-buffered.
    const fn bytes_with_sums(self, width: usize) -> usize {
        self.bytes(width, 2) + 2 * 2 * size_of::<f32>() * self.passing
    }
}

/// The variant for a problem, if there is one.
pub(super) struct Mma(&'static MmaVariant);

impl Mma {
    /// `None` if the device or the problem requires the kernels without tensor cores. Only those support dropout.
    pub fn choose(queue: &Queue<'_>, problem: &Problem<'_>) -> Option<Self> {
        let fits = queue.capability() >= 80 && problem.dtype != DType::F32 && problem.shape.dropout.is_none();
        let variant = VARIANTS.iter().find(|variant| problem.shape.widest() <= variant.width);
        variant.filter(|_| fits).map(Self)
    }

    /// One block for every `own` of the `rows` of each head.
    fn grid(problem: &Problem<'_>, rows: usize, tile: MmaTile, bytes: usize) -> Grid {
        let blocks = blocks_of(problem.heads() * rows.div_ceil(tile.own), 1);
        Grid::row(blocks, 32 * WARPS as u32).with_shared(bytes as u32)
    }

    pub fn forward(&self, queue: &mut Queue<'_>, problem: &Problem<'_>) -> Result<(), Refusal> {
        let tile = MmaTile::forward(self.0.width);
        let grid = Self::grid(problem, problem.shape.rows, tile, tile.bytes(self.0.width, 1));
        queue.launch(self.0.forward, &[problem.dtype], grid, &mut problem.arguments(VECTOR, None))
    }

    pub fn backward(&self, queue: &mut Queue<'_>, problem: &Problem<'_>, delta: Address) -> Result<(), Refusal> {
        let (width, types) = (self.0.width, [problem.dtype]);
        let mut arguments = problem.arguments(VECTOR, Some(delta));

        let tile = MmaTile::key_gradients(width);
        let keys = Self::grid(problem, problem.keys, tile, tile.bytes_with_sums(width));
        queue.launch(self.0.key_gradients, &types, keys, &mut arguments)?;

        let tile = MmaTile::query_gradients(width);
        let queries = Self::grid(problem, problem.shape.rows, tile, tile.bytes(width, 2));
        queue.launch(self.0.query_gradients, &types, queries, &mut arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_shared_memory() {
        for MmaVariant { width, .. } in VARIANTS {
            let forward = MmaTile::forward(width).bytes(width, 1);
            let of_keys = MmaTile::key_gradients(width).bytes_with_sums(width);
            let of_queries = MmaTile::query_gradients(width).bytes(width, 2);
            assert!([forward, of_keys, of_queries].iter().all(|&bytes| bytes <= 99 << 10), "{width}");
        }
    }
}
