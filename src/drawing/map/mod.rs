//! The map of blocks: segments become rows on one scale, bytes become half cells, and blocks become tones.

mod bar;
mod cell;
mod coloring;
mod filter;
mod kept;
mod key;
mod order;
mod plan;
mod sheet;
mod strip;
mod survey;

pub use bar::stream_name;
pub use cell::{Cell, largest};
pub use coloring::{Coloring, Tone};
pub use kept::{KeptPlans, KeptStrips};
pub use key::{KeyEntry, account_entries, lines, lines_of_most, seen_entries, touched_entries};
pub use plan::{FINEST, Plan};
pub use sheet::{Sheet, cells};
pub use survey::Survey;
