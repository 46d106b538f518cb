//! Turns labels into stacks, as PyTorch's tools show them for a block.

use std::collections::HashMap;
use std::io::{self, Write};

use super::pickle::{Memo, Pickler};
use crate::export::devices::{ExportedDevice, Label};
use crate::model::{Category, NameId, frames, naming};
use crate::units::DeviceIndex;

/// The stacks that were written, each once.
#[derive(Debug, Default)]
pub(super) struct Frames {
    written: HashMap<(DeviceIndex, Label), Memo>,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExportedFrame<'a> {
    name: &'a str,
    filename: &'a str,
    line: u32,
}

impl Frames {
    /// The most stacks that are kept for reuse: far more than a model has names and ops.
    const MOST: usize = 1 << 18;

    /// Forgets the names, because they meant something else in another run.
    pub fn forget(&mut self) {
        self.written.clear();
    }

    /// Writes the stack of a label, innermost frame first: the tensor, the op, the phase.
    pub fn write(
        &mut self,
        pickler: &mut Pickler<impl Write>,
        index: DeviceIndex,
        device: &ExportedDevice,
        label: Label,
    ) -> io::Result<()> {
        if let Some(memo) = self.written.get(&(index, label)) {
            return pickler.recall(*memo);
        }
        pickler.open_list()?;
        let kept = self.written.len() < Self::MOST;
        if kept {
            self.written.insert((index, label), pickler.memoize()?);
        }
        for frame in stack(device, label).chain(labels(device, label).into_iter().flatten()) {
            pickler.item()?;
            pickler.open_dict()?;
            pickler.shared("name")?;
            pickler.shared(frame.name)?;
            pickler.shared("filename")?;
            pickler.shared(frame.filename)?;
            pickler.shared("line")?;
            pickler.int(frame.line)?;
            pickler.close_dict()?;
        }
        pickler.close_list()
    }
}

/// The stack that the source recorded; empty if it recorded none.
fn stack<'a>(device: &'a ExportedDevice, label: Label) -> impl Iterator<Item = ExportedFrame<'a>> {
    device.stack(label.name).iter().filter_map(|frame| {
        let frame = frames::FrameText::of(device.name(*frame))?;
        Some(ExportedFrame { name: frame.function, filename: frame.file, line: frame.line.unwrap_or(0) })
    })
}

fn labels(device: &ExportedDevice, label: Label) -> [Option<ExportedFrame<'_>>; 3] {
    let place = |name, filename| Some(ExportedFrame { name, filename, line: 0 });
    // A guessed category is no frame of the program.
    let category = if device.guessed { Category::Other } else { label.category };
    let nobody_knows = [naming::BEFORE_RECORDING, naming::NOT_RECORDED].contains(&device.name(label.name));
    let asked = (label.name != NameId::NONE || category != Category::Other) && !nobody_knows;
    let tensor = (asked && device.stack(label.name).is_empty()).then(|| match (category, device.name(label.name)) {
        (Category::Other, name) => of_caller(name),
        (category, "") => ExportedFrame { name: category.label(), filename: category.label(), line: 0 },
        (category, name) => ExportedFrame { name, filename: category.label(), line: 0 },
    });
    let op = (label.op != NameId::NONE).then(|| device.name(label.op));
    let phase = label.phase.filter(|_| !device.pytorchs);
    [tensor, op.and_then(|op| place(op, "op")), phase.and_then(|phase| place(phase.label(), "phase"))]
}

/// The frame that `name (file.py:12)` describes: names of a snapshot's events have this form. Any other text is the
/// function's name.
fn of_caller(text: &str) -> ExportedFrame<'_> {
    let alone = ExportedFrame { name: text, filename: Category::Other.label(), line: 0 };
    let Some((name, place)) = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) else { return alone };
    match place.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((filename, Ok(line))) => ExportedFrame { name, filename, line },
        _ => ExportedFrame { name, filename: place, line: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_name_becomes_its_frame_again() {
        let frame = |name, filename, line| ExportedFrame { name, filename, line };
        assert_eq!(of_caller("gelu (model.py:88)"), frame("gelu", "model.py", 88));
        assert_eq!(of_caller("call (<eval_with_key>.1)"), frame("call", "<eval_with_key>.1", 0));
        assert_eq!(of_caller("operator() (a b.cpp:7)"), frame("operator()", "a b.cpp", 7));
        assert_eq!(of_caller("the batch"), frame("the batch", "other", 0));
    }
}
