//! Describes a card for the stand-in's library, as lines of `key = value`; `library/card.rs` parses them.

use std::fmt::Write;
use std::path::Path;

use crate::device::sim::Card;
use crate::units::{Bytes, KIB};

/// Cards of one kind in one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Cards {
    /// The card.
    pub card: Card,
    /// The number of cards, from 1 to 64.
    pub count: usize,
    /// The memory of each card if it is not the card's own: a smaller card of the same kind.
    pub memory: Option<Bytes>,
}

/// Limits of a compute capability, from the CUDA programming guide.
struct Capability {
    /// Most threads on a multiprocessor.
    threads: u32,
    /// Most blocks on a multiprocessor.
    blocks: u32,
    /// KiB of shared memory of a multiprocessor.
    shared: u32,
    /// Most KiB of shared memory of one block.
    shared_block: u32,
}

/// The table "Technical Specifications per Compute Capability". A capability that is not in it has the limits of the
/// previous one.
const fn capability(version: u32) -> Capability {
    let (threads, blocks, shared, shared_block) = match version {
        ..75 => (2048, 32, 96, 96),
        75..80 => (1024, 16, 64, 64),
        80..86 => (2048, 32, 164, 163),
        86..89 => (1536, 16, 100, 99),
        89 => (1536, 24, 100, 99),
        90..120 => (2048, 32, 228, 227),
        120.. => (1536, 24, 100, 99),
    };
    Capability { threads, blocks, shared, shared_block }
}

/// The description, with the folder in which each process of the program writes its counts.
#[must_use]
pub fn described(cards: &Cards, counts: &Path) -> String {
    let Cards { card, count, memory } = cards;
    let of = capability(card.compute_capability);
    let memory = memory.unwrap_or(card.memory).min(card.memory);
    let context = card.context() + Bytes::kib(u64::from(card.chip.kernels_kib));
    let kib = |n: u32| u64::from(n) * KIB;
    let mut text = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{key} = {value}");
    };
    line("title", &one_line(&card.title));
    line("devices", count);
    line("memory", &memory.get());
    line("context", &context.get().min(memory.get().saturating_sub(1)));
    line("ranks", &kib(card.chip.ranks_kib));
    line("capability", &card.compute_capability);
    line("multiprocessors", &card.multiprocessors);
    line("threads", &of.threads);
    line("blocks", &of.blocks);
    line("shared", &kib(of.shared));
    line("shared_block", &kib(of.shared_block));
    line("l2", &kib(card.chip.l2_kib));
    line("clock", &(card.chip.clock_mhz * 1000));
    line("memory_clock", &(card.chip.memory_clock_mhz * 1000));
    line("bus", &card.chip.bus_bits);
    for (key, value) in rates(card) {
        line(key, &value);
    }
    line("counts", &one_line(&counts.to_string_lossy()));
    text
}

/// What determines the time of work: nanoseconds, MB/s, and the GFLOP/s that long products reach. Every rate is at
/// least 1.
fn rates(card: &Card) -> [(&'static str, u64); 8] {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates and times are positive, and saturate"
    )]
    let whole = |number: f64| (number * 1e3).round() as u64;
    let (peak, reached) = (card.peak, card.efficiency.gemm);
    let to_host = card.link.pinned.at(Bytes::mib(256));
    [
        ("op", whole(card.launch.op)),
        ("kernel", whole(card.launch.kernel)),
        ("bandwidth", whole(card.bandwidth * card.efficiency.elementwise).max(1)),
        ("link", whole(to_host).max(1)),
        ("peers", whole(card.link.peers.unwrap_or(to_host)).max(1)),
        ("fp32", whole(peak.fp32 * reached.fp32).max(1)),
        ("tf32", whole(peak.tf32 * reached.tf32).max(1)),
        ("half", whole(peak.fp16 * reached.fp16).max(1)),
    ]
}

/// A text on one line: a user's own card may have any name.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::CardCatalog;

    #[test]
    fn an_h200_is_described_as_its_driver_does() {
        let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
        let text = described(&Cards { card, count: 2, memory: None }, Path::new("/there"));
        // As cudaDeviceGetAttribute and cudaMemGetInfo answered on a real card.
        for line in [
            "title = NVIDIA H200",
            "devices = 2",
            "memory = 150109880320",
            "context = 648871936",
            "ranks = 1038286848",
            "capability = 90",
            "multiprocessors = 132",
            "threads = 2048",
            "blocks = 32",
            "shared = 233472",
            "shared_block = 232448",
            "l2 = 62914560",
            "clock = 1980000",
            "memory_clock = 3201000",
            "bus = 6016",
            "op = 28000",
            "bandwidth = 4320000",
            "peers = 450000",
            "half = 880566",
            "counts = /there",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn a_smaller_card_has_less_memory_and_never_more() {
        let card = CardCatalog::with_user_cards(None).card("t4").unwrap();
        let all = card.memory;
        let memory = |memory| described(&Cards { card: card.clone(), count: 1, memory }, Path::new("/there"));
        assert!(memory(Some(Bytes::gib(8))).contains("memory = 8589934592\n"));
        assert!(memory(Some(Bytes(u64::MAX))).contains(&format!("memory = {}\n", all.get())));
    }
}
