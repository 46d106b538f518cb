//! Text to train on: a file of any size, or vramlab's own source.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::random::Random;
use vramlab_train::{BatchLayout, BatchSource, TrainError};
use vramlab_user_input::{FileError, open_file};

/// Source files of vramlab's models: long enough that a small model does not memorise them in a minute.
const SOURCE: [&str; 14] = [
    include_str!("transformer.rs"),
    include_str!("gpt.rs"),
    include_str!("bert.rs"),
    include_str!("resnet.rs"),
    include_str!("vit.rs"),
    include_str!("dcgan.rs"),
    include_str!("sizes.rs"),
    include_str!("entry.rs"),
    include_str!("loading.rs"),
    include_str!("own.rs"),
    include_str!("churn.rs"),
    include_str!("modules.rs"),
    include_str!("image_modules.rs"),
    include_str!("random.rs"),
];

/// Text as bytes; clones share it.
#[derive(Clone, Debug)]
pub enum Text {
    /// In memory.
    Embedded(Arc<[u8]>),
    /// In a file that is read as needed. (It is not mapped: shortening a mapped file kills its readers.)
    File(Arc<TextFile>),
}

/// A file, and its length when it was opened.
#[derive(Debug)]
pub struct TextFile {
    path: PathBuf,
    file: File,
    len: usize,
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
    /// [`FileError`] if it is no file, or can't be opened.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let (file, metadata) = open_file(path)?;
        let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        Ok(Self::File(Arc::new(TextFile { path: path.to_owned(), file, len })))
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Embedded(bytes) => bytes.len(),
            Self::File(file) => file.len,
        }
    }

    /// It has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `to` with the bytes from `start` on.
    ///
    /// # Errors
    /// A sentence if they are gone: the file was shortened after it was opened.
    fn read(&self, start: usize, to: &mut [u8]) -> Result<(), String> {
        match self {
            Self::Embedded(bytes) => {
                let window = start.checked_add(to.len()).and_then(|end| bytes.get(start..end));
                to.copy_from_slice(window.ok_or("the text has ended")?);
                Ok(())
            }
            Self::File(text) => text.file.read_exact_at(to, start as u64).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => format!("{} has become shorter", text.path.display()),
                _ => format!("{} can't be read any more ({error})", text.path.display()),
            }),
        }
    }
}

/// Windows of `seq + 1` bytes at random places: all but the last byte are the input, all but the first the target.
#[derive(Debug)]
pub(super) struct TextWindows {
    text: Text,
    window: Vec<u8>,
    random: Random,
}

impl TextWindows {
    /// # Errors
    /// [`TrainError::Data`] when the text is shorter than one window.
    pub fn new(text: Text, seq: usize, seed: u64) -> Result<Self, TrainError> {
        let len = text.len();
        if len <= seq {
            return Err(TrainError::Data(format!("{len} bytes of text are too few for sequences of {seq}")));
        }
        Ok(Self { text, window: vec![0; seq + 1], random: Random::new(seed) })
    }
}

impl BatchSource for TextWindows {
    fn fill(&mut self, _: &BatchLayout, input: &mut [u8], target: &mut [u8]) -> Result<(), String> {
        let seq = self.window.len() - 1;
        let rows = input.chunks_exact_mut(8 * seq).zip(target.chunks_exact_mut(8 * seq));
        for (input, target) in rows {
            let start = self.random.below(self.text.len() - seq);
            self.text.read(start, &mut self.window)?;
            let tokens = input.chunks_exact_mut(8).zip(target.chunks_exact_mut(8));
            for ((input, target), pair) in tokens.zip(self.window.windows(2)) {
                input.copy_from_slice(&i64::from(pair[0]).to_le_bytes());
                target.copy_from_slice(&i64::from(pair[1]).to_le_bytes());
            }
        }
        Ok(())
    }

    fn skip(&mut self, batches: u64, layout: &BatchLayout) {
        let rows = layout.input.0.dims().first().copied().unwrap_or(1) as u64;
        for _ in 0..batches * rows {
            self.random.below(self.text.len() - (self.window.len() - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_device::DType;
    use vramlab_train::Shape;

    /// Of windows, which have their own length.
    const LAYOUT: BatchLayout = BatchLayout::new((Shape::new(&[16]), DType::I64), (Shape::new(&[16]), DType::I64));

    #[test]
    fn targets_are_inputs_one_byte_later() {
        let mut windows = TextWindows::new(Text::source(), 16, 7).unwrap();
        let (mut input, mut target) = (vec![0; 8 * 16 * 3], vec![0; 8 * 16 * 3]);
        windows.fill(&LAYOUT, &mut input, &mut target).unwrap();
        for row in 0..3 {
            let (start, end) = (8 * 16 * row, 8 * 16 * (row + 1));
            assert_eq!(input[start + 8..end], target[start..end - 8]);
        }
        assert_ne!(input[..128], input[128..256]);
    }

    #[test]
    fn text_shorter_than_a_window_is_refused() {
        let text = Text::Embedded(b"short".as_slice().into());
        assert!(TextWindows::new(text, 16, 1).is_err());
    }

    #[test]
    fn the_embedded_text_is_long_enough_to_learn_from() {
        assert!(Text::source().len() > 60_000, "{}", Text::source().len());
    }

    #[test]
    fn a_file_gives_the_windows_that_its_text_in_memory_gives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        std::fs::write(&path, &bytes).unwrap();
        let batch = |text| {
            let (mut input, mut target) = (vec![0; 8 * 16 * 9], vec![0; 8 * 16 * 9]);
            TextWindows::new(text, 16, 7).unwrap().fill(&LAYOUT, &mut input, &mut target).unwrap();
            (input, target)
        };
        assert_eq!(batch(Text::open(&path).unwrap()), batch(Text::Embedded(bytes.into())));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Text::open(folder.path()).is_err());
        assert!(Text::open(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn a_file_that_becomes_shorter_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, [b'x'; 1000]).unwrap();
        let mut windows = TextWindows::new(Text::open(&path).unwrap(), 16, 7).unwrap();
        let (mut input, mut target) = (vec![0; 8 * 16], vec![0; 8 * 16]);
        windows.fill(&LAYOUT, &mut input, &mut target).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        let told = windows.fill(&LAYOUT, &mut input, &mut target).unwrap_err();
        assert!(told.ends_with("text has become shorter"), "{told}");
    }
}
