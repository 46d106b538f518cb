//! Text to train on: a file of any size, or vramlab's own source.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::random::Random;
use crate::train::{BatchSource, TrainError};

/// Parts of vramlab's source, long enough that a small model does not learn them by heart in a minute.
const SOURCE: [&str; 14] = [
    include_str!("../units.rs"),
    include_str!("../model/event.rs"),
    include_str!("../model/view.rs"),
    include_str!("../model/finding.rs"),
    include_str!("../allocator/mod.rs"),
    include_str!("../allocator/caching.rs"),
    include_str!("../allocator/expandable.rs"),
    include_str!("../allocator/reclaim.rs"),
    include_str!("../allocator/statistics.rs"),
    include_str!("../device/mod.rs"),
    include_str!("../device/kernel.rs"),
    include_str!("../session/command.rs"),
    include_str!("../session/gate.rs"),
    include_str!("random.rs"),
];

/// Text as bytes; clones share it.
#[derive(Clone, Debug)]
pub enum Text {
    /// In memory.
    Embedded(Arc<[u8]>),
    /// A file; the system reads the parts that are used.
    Mapped(Arc<Mmap>),
}

impl Text {
    /// vramlab's own source.
    #[must_use]
    pub fn source() -> Self {
        Self::Embedded(SOURCE.concat().into_bytes().into())
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// [`TrainError::Data`] when it can't be opened or mapped.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let refused = |error: std::io::Error| TrainError::Data(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(refused)?;
        if !file.metadata().map_err(refused)?.is_file() {
            return Err(TrainError::Data(format!("{} is no file", path.display())));
        }
        // SAFETY: the map is only read. Another program that truncates the file meanwhile ends this one with a bus
        // error, as it would end every program that maps files.
        #[expect(unsafe_code, reason = "mapping a file has no safe form")]
        let map = unsafe { Mmap::map(&file) }.map_err(refused)?;
        Ok(Self::Mapped(Arc::new(map)))
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Embedded(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

/// Windows of `seq + 1` bytes at random places: all but the last byte are the input, all but the first the target.
#[derive(Debug)]
pub(super) struct Windows {
    text: Text,
    seq: usize,
    random: Random,
}

impl Windows {
    /// # Errors
    /// [`TrainError::Data`] when the text is shorter than one window.
    pub fn new(text: Text, seq: usize, seed: u64) -> Result<Self, TrainError> {
        let len = text.bytes().len();
        if len <= seq {
            return Err(TrainError::Data(format!("{len} bytes of text are too few for sequences of {seq}")));
        }
        Ok(Self { text, seq, random: Random::new(seed) })
    }
}

impl BatchSource for Windows {
    fn fill(&mut self, input: &mut [u8], target: &mut [u8]) -> Result<(), String> {
        let text = self.text.bytes();
        let rows = input.chunks_exact_mut(8 * self.seq).zip(target.chunks_exact_mut(8 * self.seq));
        for (input, target) in rows {
            let start = self.random.below(text.len() - self.seq);
            let window = &text[start..=start + self.seq];
            let tokens = input.chunks_exact_mut(8).zip(target.chunks_exact_mut(8));
            for ((input, target), pair) in tokens.zip(window.windows(2)) {
                input.copy_from_slice(&i64::from(pair[0]).to_le_bytes());
                target.copy_from_slice(&i64::from(pair[1]).to_le_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_inputs_one_byte_later() {
        let mut windows = Windows::new(Text::source(), 16, 7).unwrap();
        let (mut input, mut target) = (vec![0; 8 * 16 * 3], vec![0; 8 * 16 * 3]);
        windows.fill(&mut input, &mut target).unwrap();
        for row in 0..3 {
            let (start, end) = (8 * 16 * row, 8 * 16 * (row + 1));
            assert_eq!(input[start + 8..end], target[start..end - 8]);
        }
        assert_ne!(input[..128], input[128..256]);
    }

    #[test]
    fn text_shorter_than_a_window_is_refused() {
        let text = Text::Embedded(b"short".as_slice().into());
        assert!(Windows::new(text, 16, 1).is_err());
    }

    #[test]
    fn the_embedded_text_is_long_enough_to_learn_from() {
        assert!(Text::source().bytes().len() > 60_000, "{}", Text::source().bytes().len());
    }

    #[test]
    fn a_file_is_mapped_and_a_folder_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "hello").unwrap();
        assert_eq!(Text::open(&path).unwrap().bytes(), b"hello");
        assert!(Text::open(folder.path()).is_err());
        assert!(Text::open(&folder.path().join("missing")).is_err());
    }
}
