//! Exports: a recording or snapshot as a file for another program, at a moment of the user's choice.
//!
//! [`write()`] writes one of the [`Format`]s from the events of a [`Whole`] file. All formats are written in one pass:
//! none holds more than the compressed events and the memory of one moment. The output goes to an [`AtomicFile`], which
//! appears under its name only when it is complete.

mod cast;
mod csv;
mod devices;
mod error;
mod file;
mod folded;
mod format;
mod json;
mod kept;
mod moment;
mod perfetto;
mod pytorch;
mod stats;

use std::io::Write;

use crate::source::Whole;
use crate::user_input::SafeWriter;

pub use cast::Cast;
pub use error::ExportError;
pub use file::AtomicFile;
pub use format::Format;
pub use json::{Words, finding, modules, out_of_memory};
pub use moment::{ExportMoment, MomentError};
pub use stats::{Stats, stats};

/// Writes the first `end` events to `out`. `progress` receives the number of events read so far and the total.
///
/// # Errors
/// [`ExportError`]: the output is incomplete then.
pub fn write(
    whole: &Whole,
    format: Format,
    end: u64,
    words: &Words,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    // No text of a file may reach a terminal with an escape sequence in it. In JSON, escaping keeps the meaning.
    match format {
        Format::Pytorch => pytorch::write(whole, end, out, progress)?,
        Format::Perfetto => perfetto::write(whole, end, out, progress)?,
        Format::Folded => folded::write(whole, end, &mut SafeWriter::new(&mut *out), progress)?,
        Format::Csv => csv::write(whole, end, &mut SafeWriter::new(&mut *out), progress)?,
        Format::Json => json::write(whole, end, words, &mut SafeWriter::new(&mut *out), progress)?,
    }
    Ok(out.flush()?)
}
