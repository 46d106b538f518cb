//! A remedy for a finding, as a value. Screens word it with a key, the command line with a flag, snapshots with a setting.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Flip a switch.
    Flip {
        /// Its word (`ckpt`).
        switch: Cow<'static, str>,
        /// The value (`on`).
        value: Cow<'static, str>,
    },
    /// Use a smaller batch.
    SmallerBatch {
        /// The number of samples that fit; 0 if none were tried.
        batch: u64,
    },
    /// Call `empty_cache`.
    EmptyCache,
    /// Raise the limit.
    HigherLimit,
    /// Change the program: keep numbers (`loss.item()`) instead of tensors.
    KeepNumbers,
    /// Change the program: detach the kept tensors from their graph (`detach()`).
    Detach,
    /// Change the program: release the kept objects, or bound their number.
    LetGo,
    /// Change the program: avoid reference cycles of objects that hold tensors, or call the garbage collector.
    BreakCycles,
    /// Change the program: each process chooses its GPU before it uses any, and loads onto that GPU only.
    ChooseGpu,
}

impl Remedy {
    /// Allocator settings that let free pages merge and remainders be split off.
    pub const EXPANDABLE: Self = Self::flip("alloc-conf", "expandable_segments:True");

    /// A remedy that sets the allocator's settings to this text.
    #[must_use]
    pub const fn settings(text: String) -> Self {
        Self::Flip { switch: Cow::Borrowed("alloc-conf"), value: Cow::Owned(text) }
    }

    /// A remedy that flips `switch` to `value`.
    #[must_use]
    pub const fn flip(switch: &'static str, value: &'static str) -> Self {
        Self::Flip { switch: Cow::Borrowed(switch), value: Cow::Borrowed(value) }
    }
}
