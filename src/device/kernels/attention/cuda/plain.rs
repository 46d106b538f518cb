//! Attention in f32 without tensor cores, for elements of any type.

use super::problem::{Problem, WIDEST};
use crate::DType;
use crate::cuda::queue::{Grid, Queue, Refusal, blocks_of};
use vramlab_allocator::units::Address;

const THREADS: u32 = 128;

/// Elements that are copied at once.
const VECTOR: usize = 4;

/// The kernels for heads of up to `width` elements.
struct PlainVariant {
    width: usize,
    forward: &'static str,
    key_gradients: &'static str,
    query_gradients: &'static str,
}

/// From narrow to wide.
const VARIANTS: [PlainVariant; 5] = [
    PlainVariant {
        width: 32,
        forward: "attention_32",
        key_gradients: "attention_key_gradients_32",
        query_gradients: "attention_query_gradients_32",
    },
    PlainVariant {
        width: 64,
        forward: "attention_64",
        key_gradients: "attention_key_gradients_64",
        query_gradients: "attention_query_gradients_64",
    },
    PlainVariant {
        width: 80,
        forward: "attention_80",
        key_gradients: "attention_key_gradients_80",
        query_gradients: "attention_query_gradients_80",
    },
    PlainVariant {
        width: 128,
        forward: "attention_128",
        key_gradients: "attention_key_gradients_128",
        query_gradients: "attention_query_gradients_128",
    },
    PlainVariant {
        width: WIDEST,
        forward: "attention_256",
        key_gradients: "attention_key_gradients_256",
        query_gradients: "attention_query_gradients_256",
    },
];

/// The variant for a problem. From sm_80 on, 16-bit elements have only the widest variant: tensor cores compute the
/// narrower ones, except with dropout.
fn variant(queue: &Queue<'_>, problem: &Problem<'_>) -> &'static PlainVariant {
    let [.., widest] = &VARIANTS;
    if queue.capability() >= 80 && problem.dtype != DType::F32 {
        return widest;
    }
    VARIANTS.iter().find(|variant| problem.shape.widest() <= variant.width).unwrap_or(widest)
}

/// Queries and keys that are in shared memory at the same time, as in attention.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlainTile {
    queries: usize,
    keys: usize,
}

/// Elements of a row of `width` in shared memory.
const fn pitch(width: usize) -> usize {
    width + 4
}

impl PlainTile {
    /// Chips before sm_80 have 64 KiB of shared memory per block.
    const fn forward(width: usize, large: bool) -> Self {
        if width > 128 {
            return Self { queries: if large { 32 } else { 16 }, keys: 16 };
        }
        Self { queries: if width <= 80 || large { 64 } else { 32 }, keys: if width <= 80 { 64 } else { 32 } }
    }

    const fn key_gradients(width: usize, large: bool) -> Self {
        if width > 128 {
            return Self { queries: if large { 16 } else { 8 }, keys: 16 };
        }
        Self { queries: if large { 32 } else { 16 }, keys: if width <= 80 { 64 } else { 32 } }
    }

    const fn query_gradients(width: usize, large: bool) -> Self {
        if width > 128 {
            return Self { queries: if large { 16 } else { 8 }, keys: 16 };
        }
        let narrow = width <= if large { 80 } else { 64 };
        Self { queries: if narrow { 64 } else { 32 }, keys: if width <= 80 || large { 32 } else { 16 } }
    }

    /// The number of floats for scores.
    const fn scores(self) -> usize {
        self.queries * pitch(self.keys)
    }

    /// The number of floats for queries, keys and values; the exponents overwrite the keys.
    const fn forward_floats(self, width: usize) -> usize {
        let (keys, scores) = (self.keys * pitch(width), self.scores());
        self.queries * pitch(width) + keys + if keys > scores { keys } else { scores }
    }

    /// The number of floats for queries, keys, values, gradients and `scores` matrices of scores.
    const fn backward_floats(self, width: usize, scores: usize) -> usize {
        2 * (self.queries + self.keys) * pitch(width) + scores * self.scores()
    }
}

/// One block for every `unit` of the `rows` of each head.
fn grid(problem: &Problem<'_>, rows: usize, unit: usize, floats: usize) -> Grid {
    let blocks = blocks_of(problem.heads() * rows.div_ceil(unit), 1);
    Grid::row(blocks, THREADS).with_shared((floats * size_of::<f32>()) as u32)
}

pub(super) fn forward(queue: &mut Queue<'_>, problem: &Problem<'_>) -> Result<(), Refusal> {
    let variant = variant(queue, problem);
    let tile = PlainTile::forward(variant.width, queue.capability() >= 80);
    let grid = grid(problem, problem.shape.rows, tile.queries, tile.forward_floats(variant.width));
    queue.launch(variant.forward, &[problem.dtype], grid, &mut problem.arguments(VECTOR, None))
}

/// Writes each row's sum of gradient times result to `delta`.
pub(super) fn delta(queue: &mut Queue<'_>, problem: &Problem<'_>, delta: Address) -> Result<(), Refusal> {
    const ROWS: usize = 32;
    let blocks = blocks_of(problem.heads() * problem.shape.rows.div_ceil(ROWS), 1);
    let mut arguments = problem.arguments(VECTOR, Some(delta));
    queue.launch("attention_delta", &[problem.dtype], Grid::row(blocks, 8 * ROWS as u32), &mut arguments)
}

pub(super) fn backward(queue: &mut Queue<'_>, problem: &Problem<'_>, delta: Address) -> Result<(), Refusal> {
    let variant = variant(queue, problem);
    let (large, types) = (queue.capability() >= 80, [problem.dtype]);
    let mut arguments = problem.arguments(VECTOR, Some(delta));

    let tile = PlainTile::key_gradients(variant.width, large);
    let keys = grid(problem, problem.keys, tile.keys, tile.backward_floats(variant.width, 2));
    queue.launch(variant.key_gradients, &types, keys, &mut arguments)?;

    let tile = PlainTile::query_gradients(variant.width, large);
    let queries = grid(problem, problem.shape.rows, tile.queries, tile.backward_floats(variant.width, 1));
    queue.launch(variant.query_gradients, &types, queries, &mut arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_shared_memory() {
        for PlainVariant { width, .. } in VARIANTS {
            for (large, bytes) in [(false, 64 << 10), (true, 99 << 10)] {
                let forward = PlainTile::forward(width, large).forward_floats(width);
                let of_keys = PlainTile::key_gradients(width, large).backward_floats(width, 2);
                let of_queries = PlainTile::query_gradients(width, large).backward_floats(width, 1);
                let most = [forward, of_keys, of_queries].into_iter().max();
                assert!(most.is_some_and(|floats| 4 * floats <= bytes), "{width}, {large}");
            }
        }
    }
}
