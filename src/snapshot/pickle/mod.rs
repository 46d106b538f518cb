//! A restricted reader for Python pickles that executes nothing.
//!
//! It reads the data opcodes of protocols 0 to 5, which build dictionaries, lists, tuples, texts and numbers, and
//! refuses all opcodes that would import or call something.
//!
//! Existing crates were not an option: they build a full tree of values and clone the objects that the pickle shares
//! through its memo, so that a few kilobytes of a hostile file become gigabytes, and an honest snapshot of 750 MB
//! becomes several times that. Here objects live in an [`arena::Arena`] and are referred to by small ids, and shared
//! objects stay shared. The records that a snapshot has millions of (trace entries, frames, stacks) become compact as
//! soon as their dictionary is complete; [`glance`] reads most of them without making a dictionary at all. Nothing
//! recurses, and everything held or visited is charged to a [`budget::Budget`] that grows with the bytes read.

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

/// A listener that sees what has been read so far.
pub trait PickleListener {
    /// Called when trace entries have been read since the last call, and values were appended to the list on top of the
    /// `stack`, which holds the values that are not complete yet.
    ///
    /// # Errors
    /// [`Problem`]: reading ends with it.
    fn hear(&mut self, arena: &mut Arena, stack: &[Value]) -> Result<(), Problem>;
}

/// Reads one pickle from `source`. Returns the arena with its objects, its top value, and the offset where it ends.
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
