//! Names as a stream defines them, within bounds: a damaged stream may define anything.

use std::sync::Arc;

use thiserror::Error;

use super::event::NameId;
use super::view::{Names, Stacks};

/// The texts that were defined so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Dictionary {
    texts: Names,
    /// Bytes of all texts that were defined.
    bytes: usize,
    stacks: Stacks,
    /// Frames of all stacks.
    frames: usize,
}

/// Why a name is left out.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum NameRefusal {
    /// There are too many names, or their texts are too long.
    #[error("more names were defined than any run has; the last ones were left out")]
    TooMany,
    /// There are too many stacks, or they are too deep.
    #[error("more stacks than any run has; the last ones were left out")]
    TooManyStacks,
    /// The name before it is too far away.
    #[error("a name was defined as number {0}, far behind the others, and left out")]
    FarBehind(usize),
}

impl Dictionary {
    /// How far a name may be ahead of the last one.
    const GAP: usize = 1 << 16;
    /// The most names, and the most bytes of their texts: far more than any run has.
    const MOST: usize = 1 << 21;
    const MOST_BYTES: usize = 1 << 26;

    /// The most frames of all stacks.
    const MOST_FRAMES: usize = 1 << 23;

    /// The stacks.
    pub const fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Frames of all stacks.
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Gives `name` its stack; a later one replaces it.
    pub fn stack(&mut self, name: NameId, frames: &Arc<[NameId]>) -> Result<(), NameRefusal> {
        // A stack without frames also takes memory.
        let count = self.frames.saturating_add(frames.len().max(1));
        if count > Self::MOST_FRAMES {
            return Err(NameRefusal::TooManyStacks);
        }
        Arc::make_mut(&mut self.stacks.0).insert(name, Arc::clone(frames));
        self.frames = count;
        Ok(())
    }

    /// The texts.
    pub const fn texts(&self) -> &Names {
        &self.texts
    }

    /// Gives `id` its text; a later one replaces it.
    pub fn define(&mut self, id: NameId, text: &Arc<str>) -> Result<(), NameRefusal> {
        let index = id.0 as usize;
        let bytes = self.bytes.saturating_add(text.len());
        if index >= Self::MOST || bytes > Self::MOST_BYTES {
            return Err(NameRefusal::TooMany);
        }
        let texts = Arc::make_mut(&mut self.texts.0);
        if index > texts.len() + Self::GAP {
            return Err(NameRefusal::FarBehind(index));
        }
        if index >= texts.len() {
            texts.resize(index + 1, Arc::from(""));
        }
        texts[index] = Arc::clone(text);
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_stay_within_their_bounds() {
        let mut names = Dictionary::default();
        let frames: Arc<[NameId]> = [NameId(4), NameId(5)].into();
        assert_eq!(names.stack(NameId(3), &frames), Ok(()));
        assert_eq!((names.stacks().frames(NameId(3)), names.stacks().frames(NameId(4))), (&*frames, &[][..]));
        let deep: Arc<[NameId]> = vec![NameId(4); Dictionary::MOST_FRAMES - 3].into();
        assert_eq!(names.stack(NameId(3), &deep), Ok(()), "what it replaces counts too");
        assert_eq!(names.stack(NameId(6), &frames), Err(NameRefusal::TooManyStacks));
        assert_eq!(names.stack(NameId(7), &Arc::from([])), Ok(()));
        assert_eq!(names.stack(NameId(8), &Arc::from([])), Err(NameRefusal::TooManyStacks));
    }

    #[test]
    fn names_stay_within_their_bounds() {
        let mut names = Dictionary::default();
        let id = |index: usize| NameId(u32::try_from(index).unwrap());
        assert_eq!(names.define(id(3), &"fc".into()), Ok(()));
        assert_eq!((names.texts().get(id(3)), names.texts().get(id(2))), ("fc", ""));
        assert_eq!(names.define(id(3), &"fc2".into()), Ok(()));
        assert_eq!(names.texts().get(id(3)), "fc2");
        let far = 5 + Dictionary::GAP;
        assert_eq!(names.define(id(far), &"far".into()), Err(NameRefusal::FarBehind(far)));
        assert_eq!(names.define(id(Dictionary::MOST), &"last".into()), Err(NameRefusal::TooMany));
        let long: Arc<str> = "x".repeat(Dictionary::MOST_BYTES / 2).into();
        assert_eq!(names.define(id(4), &long), Ok(()));
        assert_eq!(names.define(id(5), &long), Err(NameRefusal::TooMany), "texts replaced count too");
        assert_eq!(names.define(id(5), &"short".into()), Ok(()));
    }
}
