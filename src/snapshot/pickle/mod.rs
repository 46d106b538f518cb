//! A restricted reader for Python pickles that executes nothing.
//!
//! It reads the data opcodes of protocols 0 to 5 (what dictionaries, lists, tuples, texts and numbers are made of)
//! and refuses everything that would import or call something.
//!
//! Existing crates were not an option: they build a full tree of values and clone what the pickle shares through
//! its memo, so that a few kilobytes of a hostile file become gigabytes, and an honest snapshot of 750 MB becomes
//! several times that. Here objects live in an [`arena::Arena`] and are referred to by small ids, shared objects
//! stay shared, and what a snapshot has millions of (trace entries, frames, stacks) is folded into compact
//! records as soon as its dictionary is complete; [`glance`] reads most of them without making a dictionary at all. Nothing recurses, and all that is held or looked at is charged against
//! a [`budget::Budget`] that grows with the bytes read.

pub mod arena;
pub mod budget;
mod error;
mod glance;
mod input;
mod machine;
mod memo;
mod opcode;
pub mod packed;
pub mod records;
mod runs;
mod value;

pub use arena::Arena;
pub use error::{PickleError, Problem};
pub use input::{PickleSource, Plain};
pub use value::Value;

/// Who is shown what was read so far.
pub trait PickleListener {
    /// Trace entries have come since the last time, and values were appended to the list on top of the `stack`, on which what
    /// is not complete yet waits.
    ///
    /// # Errors
    /// [`Problem`]: reading ends with it.
    fn hear(&mut self, arena: &mut Arena, stack: &[Value]) -> Result<(), Problem>;
}

/// Reads one pickle from `source`: the arena that holds its objects, its top value, and where it ends.
///
/// # Errors
/// [`PickleError`] names the byte offset and what was wrong there.
pub fn read(
    source: &mut dyn PickleSource,
    listener: &mut impl PickleListener,
) -> Result<(Arena, Value, u64), PickleError> {
    machine::Machine::new(source, listener).run()
}

#[cfg(test)]
mod tests;
