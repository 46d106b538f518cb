//! What people take away: a recording or snapshot as a file of another program, at the moment that they choose.
//!
//! [`write()`] writes one of the [`Format`]s from the events of a [`Whole`] file. All are written as they go: none holds more
//! than the events, compressed, and the memory of one moment. [`AtomicFile`] is where they go: nothing is there under its name
//! before all of it is.

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

/// Writes what happened before `end` (so many events) to `out`. `progress` hears how many events of how many have been
/// looked at.
///
/// # Errors
/// [`ExportError`]: what was written before is no whole file.
pub fn write(
    whole: &Whole,
    format: Format,
    end: u64,
    words: &Words,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    // No text of a file reaches a terminal with an escape sequence in it; JSON means the same with it spelt out.
    match format {
        Format::Pytorch => pytorch::write(whole, end, out, progress)?,
        Format::Perfetto => perfetto::write(whole, end, out, progress)?,
        Format::Folded => folded::write(whole, end, &mut SafeWriter::new(&mut *out), progress)?,
        Format::Csv => csv::write(whole, end, &mut SafeWriter::new(&mut *out), progress)?,
        Format::Json => json::write(whole, end, words, &mut SafeWriter::new(&mut *out), progress)?,
    }
    Ok(out.flush()?)
}
