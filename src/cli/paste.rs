//! Lines to paste for allocator settings: what the program's PyTorch reads, and any code that the settings need.

use crate::allocator::{Settings, TorchVersion};
use crate::units::Bytes;
use crate::whatif::{Conditions, RecordedRun};

/// Lines to paste; text after a line says where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paste {
    /// Lines for the shell.
    pub shell: String,
    /// Lines for the program, before it allocates memory, if the settings need them.
    pub program: Option<String>,
}

/// The lines that produce `conditions` for a run of a PyTorch that may be as old as `oldest`.
pub(super) fn paste(conditions: &Conditions, run: &RecordedRun, oldest: TorchVersion) -> Paste {
    let variable = oldest.settings_variable();
    let shell = match conditions.text() {
        "" => format!("unset {variable}"),
        text if text.contains(['[', '>']) => format!("export {variable}='{text}'"),
        text => format!("export {variable}={text}"),
    };
    // PyTorch collects garbage only if the process has a limit.
    let needs_limit = collects(&conditions.settings) && !run.facts.conditions.bounds_memory();
    Paste { shell, program: conditions.limit.filter(|_| needs_limit).map(fraction) }
}

/// Settings as text in a sentence: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
pub(super) fn in_words(text: &str, oldest: TorchVersion) -> String {
    let variable = oldest.settings_variable();
    if text.is_empty() { format!("no {variable}") } else { format!("{variable}={text}") }
}

/// A limit for this process, in PyTorch's form.
fn fraction(limit: Bytes) -> String {
    format!("torch.cuda.set_per_process_memory_fraction({} / torch.cuda.mem_get_info()[1])", limit.get())
}

fn collects(settings: &Settings) -> bool {
    settings.garbage_collection_threshold > 0.0
}
