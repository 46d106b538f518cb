//! Who asked for a block, in words.

use crate::frames;
use crate::types::{Frame, Snapshot, StackId, TextId};

impl Snapshot {
    /// Who asked: what the program attached, else the innermost function and the line that tells most
    /// ([`frames::telling`]): `gelu (model.py:88)`. `None` when nothing was recorded.
    #[must_use]
    pub fn caller(&self, stack: StackId, metadata: TextId) -> Option<String> {
        let metadata = self.texts.get(metadata);
        if !metadata.is_empty() {
            return Some(metadata.to_owned());
        }
        let told = || self.program_frames(stack).map(|frame| self.told(frame));
        let innermost = told().next()?;
        let place = told().nth(frames::telling(told().map(|frame| frame.origin()))).unwrap_or(innermost);
        let (name, file) = (innermost.function, place.file_name());
        Some(place.line.map_or_else(|| format!("{name} ({file})"), |line| format!("{name} ({file}:{line})")))
    }

    /// The frames of a stack, innermost first, but for those of what watches the program.
    pub fn program_frames(&self, stack: StackId) -> impl Iterator<Item = Frame> + '_ {
        self.stacks.frames(stack).filter(|frame| !self.told(*frame).is_watching())
    }

    /// A frame with its texts.
    #[must_use]
    pub fn told(&self, frame: Frame) -> frames::Frame<'_> {
        let line = (frame.line > 0).then_some(frame.line);
        frames::Frame { file: self.texts.get(frame.filename), line, function: self.texts.get(frame.name) }
    }
}
