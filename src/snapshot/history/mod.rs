//! A recorded history without an allocator: what existed when it began, and what happened to memory entry by entry.
//!
//! A history rarely begins with the first allocation: recording was switched on later, or its ring buffer overflowed.
//! What existed before follows backwards from the end: a block or segment that is freed, or still exists at the end,
//! without having been allocated existed when the history began. As free neighbours are always one block, this
//! determines where all free memory lay.
//!
//! Nothing here asks an allocator. Blocks lie where the recording has them, whatever the allocator's rules.
//!
//! * [`evidence`]: what the entries and the end reveal about the time before.
//! * [`ranges`]: where the address ranges of expandable segments begin.
//! * [`sizes`]: how large a block is, which a history does not record.
//! * [`missing`]: what can't be known, in words.
//! * [`doubtful`]: tells a block's unused memory from free memory behind it.
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
