//! Live memory at a moment as folded stacks, one per line: `main (train.py:88);forward (model.py:12) 1048576`.
//! Flamegraph programs and speedscope.app read this format. For blocks whose name has no stack, the parts of the name
//! serve as frames.

use std::collections::BTreeMap;
use std::io::Write;

use super::error::ExportError;
use crate::model::{Category, Lab, NameId, Ranks, frames::FrameText, naming};
use crate::recording::RecordingError;
use crate::source::Whole;
use crate::units::{Bytes, DeviceIndex};

/// Writes the memory that is live after `end` events.
pub(super) fn write(
    whole: &Whole,
    end: u64,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    let mut ranks = Ranks::default();
    whole.each(0..end, |index, event| {
        progress(index, end);
        ranks.apply(event);
        Ok::<_, RecordingError>(())
    })?;
    let labs = || (0..ranks.len()).filter_map(|device| ranks.lab(DeviceIndex(u16::try_from(device).ok()?)));
    let several = labs().filter(|lab| lab.memory().reserved() > Bytes::ZERO).count() > 1;
    for (device, lab) in labs().enumerate() {
        let root = if several { format!("device {device};") } else { String::new() };
        for (stack, bytes) in folded(lab) {
            writeln!(out, "{root}{stack} {}", bytes.get())?;
        }
    }
    Ok(())
}

/// Live bytes by stack.
fn folded(lab: &Lab) -> BTreeMap<String, Bytes> {
    let mut by_name: BTreeMap<(NameId, Category), Bytes> = BTreeMap::new();
    for segment in lab.memory().segments() {
        for block in segment.blocks().filter(|block| !block.pending) {
            *by_name.entry((block.name, block.category)).or_default() += block.size;
        }
    }
    let mut folded: BTreeMap<String, Bytes> = BTreeMap::new();
    for ((name, category), bytes) in by_name {
        *folded.entry(stack(lab, name, category)).or_default() += bytes;
    }
    folded
}

/// Frames from the outermost to the innermost. For a name without a stack: the modules of its path, and the block's
/// use.
fn stack(lab: &Lab, name: NameId, category: Category) -> String {
    let text = lab.names().get(name);
    let frames: Vec<String> = match lab.stacks().frames(name) {
        [] if text.is_empty() => vec![category.label().to_owned()],
        [] if text.ends_with(')') => vec![text.to_owned()],
        [] => {
            let path = naming::place(text).split('.').filter(|part| !part.is_empty()).map(str::to_owned);
            path.chain([naming::thing(text).to_owned()]).collect()
        }
        frames => frames.iter().rev().map(|frame| words(lab.names().get(*frame))).collect(),
    };
    // Characters that separate frames or lines must not appear within them.
    let plain = |frame: &String| frame.replace([';', '\n', '\r'], " ");
    frames.iter().map(plain).collect::<Vec<_>>().join(";")
}

fn words(frame: &str) -> String {
    match FrameText::of(frame) {
        Some(FrameText { line: Some(line), function, .. }) => {
            let file = FrameText::of(frame).map_or("", |frame| frame.file_name());
            format!("{function} ({file}:{line})")
        }
        Some(FrameText { function, .. }) => function.to_owned(),
        None => frame.to_owned(),
    }
}
