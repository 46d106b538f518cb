//! Who asked for a block, in words.

use crate::frames::{self, NativeCode};
use crate::types::{Frame, Snapshot, StackId, TextId};

/// A function, and the line that it was called from.
fn place(frame: &frames::FrameText<'_>, function: &str) -> String {
    let file = frame.file_name();
    frame.line.map_or_else(|| format!("{function} ({file})"), |line| format!("{function} ({file}:{line})"))
}

impl Snapshot {
    /// Who asked: what the program attached, else the innermost function and the line that tells most
    /// ([`frames::telling`]): `gelu (model.py:88)`. Frames of machine code count where there is no Python: PyTorch's engine of
    /// autograd runs on threads of its own, and the node that it ran (`AddmmBackward0`) or the operator (`mm`) says who asked. `None`
    /// when nothing was recorded.
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

    /// The frames of a stack, innermost first, but for those of what watches the program, and those that say nothing of it
    /// ([`frames::FrameText::is_machinery`]).
    pub fn program_frames(&self, stack: StackId) -> impl Iterator<Item = Frame> + '_ {
        self.stacks.frames(stack).filter(|frame| {
            let told = self.told(*frame);
            !told.is_watching() && !told.is_machinery()
        })
    }

    /// A frame with its texts.
    #[must_use]
    pub fn told(&self, frame: Frame) -> frames::FrameText<'_> {
        let line = (frame.line > 0).then_some(frame.line);
        frames::FrameText { file: self.texts.get(frame.filename), line, function: self.texts.get(frame.name) }
    }
}
