//! The allocator's settings, as `PYTORCH_ALLOC_CONF` writes them.

mod parser;
mod tokens;

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::units::{Bytes, MIB};

/// Intervals of the roundup table: below 2 MiB, [2, 4) MiB … [16, 32) GiB, from 32 GiB on.
const INTERVALS: usize = 16;

/// `roundup_power2_divisions`: into how many steps each power-of-two interval of sizes is divided; 0: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundupTable([u64; INTERVALS]);

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

/// What can be configured. [`Settings::apply`] reads PyTorch's configuration string.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Segment for rounded sizes between 1 and 10 MiB, and page size of large expandable segments.
    pub large_segment_size: Bytes,
    /// From this size on blocks are oversize: never split, and used only for oversize requests.
    pub max_split_size: Bytes,
    /// Slack allowed when an oversize request reuses a block.
    pub max_non_split_rounding: Bytes,
    /// Share of the memory limit above which unused cached segments are collected; 0: off.
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
    text: String,
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
            text: String::new(),
        }
    }
}

/// Variables that hold the configuration string, the first one set wins; the flag tells whether keys that only the
/// CUDA allocator knows are read from it.
const VARIABLES: [(&str, bool); 3] =
    [("PYTORCH_CUDA_ALLOC_CONF", true), ("PYTORCH_HIP_ALLOC_CONF", false), ("PYTORCH_ALLOC_CONF", true)];

impl Settings {
    /// `max_split_size` when there is no limit.
    pub const UNLIMITED: Bytes = Bytes(u64::MAX);

    /// The defaults with `text` applied.
    ///
    /// # Errors
    /// [`SettingsError`]: PyTorch would refuse the text too.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        settings.apply(text)?;
        Ok(settings)
    }

    /// The defaults with the environment's configuration string applied: `PYTORCH_CUDA_ALLOC_CONF`, or
    /// `PYTORCH_HIP_ALLOC_CONF` (keys of all back ends only), or `PYTORCH_ALLOC_CONF`. A variable set to nothing counts.
    ///
    /// # Errors
    /// [`SettingsError`], as [`Settings::parse`].
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        if let Some((text, cuda_keys)) = VARIABLES.iter().find_map(|&(name, cuda)| Some((variable(name)?, cuda))) {
            parser::apply_common(&mut settings, &text)?;
            if cuda_keys {
                parser::apply_cuda(&mut settings, &text)?;
            }
        }
        Ok(settings)
    }

    /// Reads a configuration string at run time (`torch.cuda.memory._set_allocator_settings`).
    ///
    /// As in PyTorch this is not a transaction: `max_split_size`, `max_non_split_rounding`, the roundup table and the
    /// threshold start from their defaults, everything else keeps its value unless named, and what was read before an
    /// error stays.
    ///
    /// # Errors
    /// [`SettingsError`] names the key and what is allowed.
    pub fn apply(&mut self, text: &str) -> Result<(), SettingsError> {
        parser::apply_common(self, text)?;
        parser::apply_cuda(self, text)
    }

    /// The configuration string that was read last, verbatim, even if it was refused.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The exception that PyTorch throws for a configuration error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// `ValueError`: a bad key or value.
    Value,
    /// `IndexError`: a number of more than 64 bits.
    Index,
    /// `RuntimeError` (internal assertion): the text is not of the form `key:value,key:value`.
    Runtime,
}

/// A configuration string that PyTorch refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// No such key.
    #[error("allocator setting {key:?} does not exist; the keys are {}", parser::KEYS.join(", "))]
    UnknownKey {
        /// What stands where a key belongs.
        key: String,
    },
    /// The value lies outside what the key allows.
    #[error("allocator setting {key} can't be {value:?}; it takes {allowed}")]
    Refused {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What the key takes.
        allowed: String,
    },
    /// An integer that does not fit 64 bits.
    #[error("allocator setting {key} can't be {value:?}: the number is too large; it takes {allowed}")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What the key takes.
        allowed: String,
    },
    /// The text ends where a value should stand.
    #[error("allocator setting {key} has no value; write key:value, with commas between settings")]
    MissingValue {
        /// The key.
        key: String,
    },
    /// A list without its end.
    #[error("the list of allocator setting {key} has no end; close it with ]")]
    UnclosedList {
        /// The key.
        key: String,
    },
    /// An allocator other than the one that runs.
    #[error("allocator setting backend can't be {value:?} here; this allocator is native")]
    OtherBackend {
        /// The back end asked for.
        value: String,
    },
}

impl SettingsError {
    /// The exception that PyTorch throws for it.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::UnknownKey { .. } | Self::Refused { .. } => ErrorClass::Value,
            Self::TooLarge { .. } => ErrorClass::Index,
            Self::MissingValue { .. } | Self::UnclosedList { .. } | Self::OtherBackend { .. } => ErrorClass::Runtime,
        }
    }
}
