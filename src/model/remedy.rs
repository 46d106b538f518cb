//! What can be done about a finding, as a value: a screen words the key, the command line the flag, a snapshot the setting.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Something to do.
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
    /// Take a smaller batch.
    SmallerBatch {
        /// Samples that fit; 0 where none were tried.
        batch: u64,
    },
    /// Call `empty_cache`.
    EmptyCache,
    /// Allow more memory.
    HigherLimit,
    /// Change the program: keep numbers (`loss.item()`) instead of tensors.
    KeepNumbers,
    /// Change the program: cut what is kept off its graph (`detach()`).
    Detach,
    /// Change the program: let go of what is kept, or bound it.
    LetGo,
    /// Change the program: no object that holds tensors reaches itself, or the garbage collector is called.
    BreakCycles,
    /// Change the program: each process chooses its GPU before it uses any, and loads onto none but that.
    ChooseGpu,
}

impl Remedy {
    /// Allocator settings that let free pages grow together and split rests off.
    pub const EXPANDABLE: Self = Self::flip("alloc-conf", "expandable_segments:True");

    /// Sets the allocator's settings to this text.
    #[must_use]
    pub const fn settings(text: String) -> Self {
        Self::Flip { switch: Cow::Borrowed("alloc-conf"), value: Cow::Owned(text) }
    }

    /// Flips `switch` to `value`.
    #[must_use]
    pub const fn flip(switch: &'static str, value: &'static str) -> Self {
        Self::Flip { switch: Cow::Borrowed(switch), value: Cow::Borrowed(value) }
    }
}
