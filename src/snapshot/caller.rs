//! Who asked for a block, in words.

use crate::frames::{self, NativeCode};
use crate::types::{Frame, Snapshot, StackId, TextId};

/// A frame as `function (file:line)`.
fn place(frame: &frames::FrameText<'_>, function: &str) -> String {
    let file = frame.file_name();
    frame.line.map_or_else(|| format!("{function} ({file})"), |line| format!("{function} ({file}:{line})"))
}

impl Snapshot {
    /// Names the caller that asked for a block: the metadata that the program attached, or else the innermost function
    /// with the most telling line ([`frames::telling`]), as in `gelu (model.py:88)`. Frames of machine code count only
    /// where no Python frame is recorded: PyTorch's autograd engine runs on threads of its own, and there the node that
    /// it ran (`AddmmBackward0`) or the operator (`mm`) names the caller. `None` if nothing was recorded.
    #[must_use]
    pub fn caller(&self, stack: StackId, metadata: TextId) -> Option<String> {
        let metadata = self.texts.get(metadata);
        if !metadata.is_empty() {
            return Some(metadata.to_owned());
        }
        let all = || self.program_frames(stack).map(|frame| self.told(frame));
        let told = || all().filter(|frame| !frame.is_compiled());
        let Some(innermost) = told().next() else {
            let frame = all().next()?;
            let node = all().find_map(|frame| frame.runs().filter(|runs| matches!(runs, NativeCode::Node(_))));
            let name = match node.or_else(|| all().find_map(|frame| frame.runs())) {
                Some(NativeCode::Node(name) | NativeCode::Operator(name)) => name.to_owned(),
                None => place(&frame, frame.function),
            };
            return Some(name);
        };
        let telling = told().nth(frames::telling(told().map(|frame| frame.origin()))).unwrap_or(innermost);
        Some(place(&telling, innermost.function))
    }

    /// The frames of a stack, innermost first, without frames of the watching code and frames that say nothing about
    /// the program ([`frames::FrameText::is_machinery`]).
    pub fn program_frames(&self, stack: StackId) -> impl Iterator<Item = Frame> + '_ {
        self.stacks.frames(stack).filter(|frame| {
            let told = self.told(*frame);
            !told.is_watching() && !told.is_machinery()
        })
    }

    /// The texts of a frame.
    #[must_use]
    pub fn told(&self, frame: Frame) -> frames::FrameText<'_> {
        let line = (frame.line > 0).then_some(frame.line);
        frames::FrameText { file: self.texts.get(frame.filename), line, function: self.texts.get(frame.name) }
    }
}
