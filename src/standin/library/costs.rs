//! How long work takes on the card, in nanoseconds: from the card's rates if the work's size is known, else by a rule.

use crate::card::Card;

/// The time of a library's kernel about which nothing is known, and of a kernel in a graph.
pub const UNKNOWN: u64 = 10_000;
/// The time of a convolution, or of an attention by cuDNN.
pub const PLANNED: u64 = 100_000;
/// The time in which the host loads a module's code, before its first kernel.
pub const LOADING: u64 = 10_000_000;
/// Bytes that a thread moves: it loads 16 at once and stores 16.
const BYTES_OF_THREAD: u64 = 32;
/// Bytes that a block moves if it works on a list of tensors: 64 Ki elements, read twice and written once.
const BYTES_OF_CHUNK: u64 = (64 << 10) * 12;
/// The time in which a collective starts on all ranks and reaches them.
const COLLECTIVE: u64 = 15_000;

/// The host's time for an op that launches a kernel.
pub fn enqueue() -> u64 {
    Card::get().map_or(0, |card| card.op)
}

/// The time of bytes at a rate in MB/s.
fn over(bytes: u64, rate: u64) -> u64 {
    bytes.saturating_mul(1000).checked_div(rate).unwrap_or(0)
}

/// The time of a kernel that moves this many bytes of the card's memory.
pub fn moves(bytes: u64) -> u64 {
    Card::get().map_or(0, |card| card.kernel + over(bytes, card.bandwidth))
}

/// The time of a kernel with this many threads.
pub fn of_threads(threads: u64) -> u64 {
    moves(threads.saturating_mul(BYTES_OF_THREAD))
}

/// The time of a kernel with this many blocks, each of which works on its part of a list of tensors.
pub fn of_chunks(blocks: u64) -> u64 {
    moves(blocks.saturating_mul(BYTES_OF_CHUNK))
}

/// The time of a copy between the card and its host.
pub fn crosses(bytes: u64) -> u64 {
    Card::get().map_or(0, |card| card.kernel + over(bytes, card.link))
}

/// The time of a collective that sends this many bytes to another card.
pub fn is_sent(bytes: u64) -> u64 {
    Card::get().map_or(0, |card| COLLECTIVE + over(bytes, if card.peers > 0 { card.peers } else { card.link }))
}

/// The type of a product's factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// f32, or a type that is no faster.
    Fp32,
    /// f32 rounded to TensorFloat-32.
    Tf32,
    /// 16 bits, or fewer.
    Half,
}

impl Factors {
    /// The type for a cudaDataType_t.
    pub fn of(kind: i32, tf32: bool) -> Self {
        match kind {
            2 | 14 | 28 | 29 | 3 => Self::Half,
            _ if tf32 => Self::Tf32,
            _ => Self::Fp32,
        }
    }
}

/// The time of a product with this many multiplications.
pub fn multiplies(count: u64, factors: Factors) -> u64 {
    Card::get().map_or(0, |card| {
        let rate = match factors {
            Factors::Fp32 => card.fp32,
            Factors::Tf32 => card.tf32,
            Factors::Half => card.half,
        };
        // The rate is in GFLOP/s, and an addition comes with each multiplication.
        card.kernel + count.saturating_mul(2).checked_div(rate).unwrap_or(0)
    })
}
