//! The settings, and their defaults.

use crate::units::{Bytes, GIB, MIB};
use crate::version::TorchVersion;

/// Intervals of the roundup table: below 2 MiB, [2, 4) MiB … [16, 32) GiB, from 32 GiB on.
pub(super) const INTERVALS: usize = 16;

/// `roundup_power2_divisions`: into how many steps each power-of-two interval of sizes is divided; 0: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundupTable(pub(super) [u64; INTERVALS]);

impl RoundupTable {
    /// The divisions that apply to a request of `requested` bytes.
    #[must_use]
    pub const fn divisions(&self, requested: Bytes) -> u64 {
        let Some(log) = requested.0.checked_ilog2() else { return self.0[0] };
        let interval = log.saturating_sub(MIB.ilog2()) as usize;
        self.0[if interval < INTERVALS { interval } else { INTERVALS - 1 }]
    }

    /// The entries in order: interval `i` serves sizes from 2^i MiB on (the first also all below).
    #[must_use]
    pub const fn entries(&self) -> &[u64; INTERVALS] {
        &self.0
    }
}

/// `expandable_segments_reserve`: how much address space a new expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserve {
    /// This share of the device's memory.
    Share(f64),
    /// So many GiB.
    Gibibytes(f64),
}

impl Reserve {
    /// Reads `0.5` or `40G`; `None` for anything that is not a number above zero.
    pub(super) fn read(word: &str) -> Option<Self> {
        let (number, unit): (&str, fn(f64) -> Self) = match word.strip_suffix(['G', 'g']) {
            Some(number) => (number, Self::Gibibytes),
            None => (word, Self::Share),
        };
        number.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0).map(unit)
    }

    /// The bytes to reserve on a device with `total` bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "PyTorch computes it in floating point and cuts it off"
    )]
    #[must_use]
    pub fn bytes(self, total: Bytes) -> Bytes {
        Bytes(match self {
            Self::Share(share) => share * total.0 as f64,
            Self::Gibibytes(number) => number * GIB as f64,
        } as u64)
    }
}

/// The allocator's settings. [`Settings::apply`] reads PyTorch's configuration string.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Segment size for rounded sizes between 1 and 10 MiB, and page size of large expandable segments.
    pub large_segment_size: Bytes,
    /// Blocks of this size or larger are oversize: never split, and used only for oversize requests.
    pub max_split_size: Bytes,
    /// Slack allowed when an oversize request reuses a block.
    pub max_non_split_rounding: Bytes,
    /// Share of the memory limit above which unused cached segments are given back; 0: off.
    pub garbage_collection_threshold: f64,
    /// How requests are rounded.
    pub roundup_power2_divisions: RoundupTable,
    /// Grow segments by mapping pages into a reserved range.
    pub expandable_segments: bool,
    /// Share of the device's memory that may be held; read when the allocator is created.
    pub per_process_memory_fraction: f64,
    /// No effect on decisions.
    pub release_lock_on_cudamalloc: bool,
    /// No effect without graph capture.
    pub graph_capture_record_stream_reuse: bool,
    /// Host allocator: page-lock ordinary memory instead of asking the driver for locked memory.
    pub pinned_use_cuda_host_register: bool,
    /// Host allocator: threads that touch memory before it is page-locked.
    pub pinned_num_register_threads: u64,
    /// Host allocator: look for finished events on a thread of its own.
    pub pinned_use_background_threads: bool,
    /// Host allocator: page-locked memory taken in advance and cut into blocks.
    pub pinned_reserve_segment_size: Bytes,
    /// Refuse requests that would need more than `per_process_memory_fraction` of the device before the driver is asked (2.12).
    pub throw_on_cudamalloc_oom: bool,
    /// Address space of a new expandable segment; `None`: nine eighths of the device's memory (2.15).
    pub expandable_segments_reserve: Option<Reserve>,
    /// Host allocator: no effect here (2.12).
    pub pinned_free_catch_all: bool,
    /// Host allocator: no effect here (2.13).
    pub pinned_max_round_threshold: Option<Bytes>,
    /// Host allocator: no effect here (2.13).
    pub pinned_max_cached_size: Option<Bytes>,
    pub(super) text: String,
    pub(super) torch: TorchVersion,
}

impl Default for Settings {
    fn default() -> Self {
        let large_segment_size = Bytes::mib(20);
        Self {
            large_segment_size,
            max_split_size: Self::UNLIMITED,
            max_non_split_rounding: large_segment_size,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: RoundupTable::default(),
            expandable_segments: false,
            per_process_memory_fraction: 1.0,
            release_lock_on_cudamalloc: false,
            graph_capture_record_stream_reuse: false,
            pinned_use_cuda_host_register: false,
            pinned_num_register_threads: 1,
            pinned_use_background_threads: false,
            pinned_reserve_segment_size: Bytes::ZERO,
            throw_on_cudamalloc_oom: false,
            expandable_segments_reserve: None,
            pinned_free_catch_all: false,
            pinned_max_round_threshold: None,
            pinned_max_cached_size: None,
            text: String::new(),
            torch: TorchVersion::default(),
        }
    }
}

impl Settings {
    /// The value of `max_split_size` when there is no limit.
    pub const UNLIMITED: Bytes = Bytes(u64::MAX);

    /// The configuration string that was last read, verbatim, even if it was refused.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same configuration string with expandable segments on; `None` if they are on already or would be refused.
    #[must_use]
    pub fn with_expandable_segments(&self) -> Option<String> {
        const KEY: &str = "expandable_segments";
        if self.expandable_segments {
            return None;
        }
        let others = super::tokens::setting_entries(&self.text).map(str::trim);
        let others = others.filter(|entry| entry.split(':').next().is_none_or(|key| key.trim() != KEY));
        let text =
            std::iter::once(format!("{KEY}:True")).chain(others.map(str::to_owned)).collect::<Vec<_>>().join(",");
        Self::parse_for(self.torch, &text).is_ok().then_some(text)
    }

    /// The version of PyTorch whose keys and rules these settings follow.
    #[must_use]
    pub const fn torch(&self) -> TorchVersion {
        self.torch
    }
}
