//! What work takes on the card, in nanoseconds: by the card's rates where its size is known, by a rule elsewhere.

use crate::card::Card;

/// What a kernel of a library takes, of which nothing is known, and one of a graph.
pub const UNKNOWN: u64 = 10_000;
/// A convolution, or an attention by cuDNN.
pub const PLANNED: u64 = 100_000;
/// What the host takes to load a module's code, before its first kernel.
pub const LOADING: u64 = 10_000_000;
/// Bytes that a thread moves: 16 that it loads at once, and 16 that it stores.
const BYTES_OF_THREAD: u64 = 32;
/// Bytes that a block moves that works on a list of tensors: 64 Ki elements, read twice and written once.
const BYTES_OF_CHUNK: u64 = (64 << 10) * 12;
/// A collective's start on all ranks, and what it takes to reach them.
const COLLECTIVE: u64 = 15_000;

/// What the host spends on an op, whose kernel this is.
pub fn enqueue() -> u64 {
    Card::get().map_or(0, |card| card.op)
}

/// Bytes over a rate in MB/s.
fn over(bytes: u64, rate: u64) -> u64 {
    bytes.saturating_mul(1000).checked_div(rate).unwrap_or(0)
}

/// A kernel that moves so many bytes of the card's memory.
pub fn moves(bytes: u64) -> u64 {
    Card::get().map_or(0, |card| card.kernel + over(bytes, card.bandwidth))
}

/// A kernel of so many threads.
pub fn of_threads(threads: u64) -> u64 {
    moves(threads.saturating_mul(BYTES_OF_THREAD))
}

/// A kernel of so many blocks, each of which works on its part of a list of tensors.
pub fn of_chunks(blocks: u64) -> u64 {
    moves(blocks.saturating_mul(BYTES_OF_CHUNK))
}

/// A copy between the card and its host.
pub fn crosses(bytes: u64) -> u64 {
    Card::get().map_or(0, |card| card.kernel + over(bytes, card.link))
}

/// A collective that sends so many bytes to another card.
pub fn is_sent(bytes: u64) -> u64 {
    Card::get().map_or(0, |card| COLLECTIVE + over(bytes, if card.peers > 0 { card.peers } else { card.link }))
}

/// The factors of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// f32, or what is no faster.
    Fp32,
    /// f32 rounded to TensorFloat-32.
    Tf32,
    /// 16 bits, or fewer.
    Half,
}

impl Factors {
    /// Of cudaDataType_t.
    pub fn of(kind: i32, tf32: bool) -> Self {
        match kind {
            2 | 14 | 28 | 29 | 3 => Self::Half,
            _ if tf32 => Self::Tf32,
            _ => Self::Fp32,
        }
    }
}

/// A product of so many multiplications.
pub fn multiplies(count: u64, factors: Factors) -> u64 {
    Card::get().map_or(0, |card| {
        let rate = match factors {
            Factors::Fp32 => card.fp32,
            Factors::Tf32 => card.tf32,
            Factors::Half => card.half,
        };
        // The rate is in GFLOP/s, and a multiplication comes with a sum.
        card.kernel + count.saturating_mul(2).checked_div(rate).unwrap_or(0)
    })
}
