//! A recorded history by itself: what was there when it began, and what became of memory entry by entry.
//!
//! A history rarely begins with the first allocation: recording was switched on later, or its ring buffer overflowed. What
//! was there before follows from the end, backwards: all that is given back without having been taken, and all that is
//! there at the end without having been taken, was there when the history began. As free neighbours are always one block,
//! that is all there is to know of where free memory lay.
//!
//! Nothing here asks an allocator: blocks lie where the recording has them, by any allocator's rules.
//!
//! * [`evidence`]: what entries and the end say of the time before.
//! * [`ranges`]: where the address ranges of expandable segments begin.
//! * [`sizes`]: how large a block is, which a history does not say.
//! * [`missing`]: what can't be known, in words.
//! * [`doubtful`]: where what a block does not use of its memory is told apart from free memory behind it.
//! * [`space`]: memory at a moment.
//! * [`story`]: the history, entry by entry.

mod beginning;
mod doubtful;
mod evidence;
mod intervals;
mod missing;
mod ranges;
mod sizes;
mod space;
mod story;

#[cfg(test)]
mod tests;

pub use beginning::Beginning;
pub use evidence::pool_of_segment;
pub use ranges::{NextRequest, Range, RangeIndex, nominal_page};
pub use space::{HeldBlock, Home, Space};
pub use story::Story;
