//! Where every byte of every segment is drawn: segments to rows on one scale, bytes to half cells, blocks to tones.

mod bar;
mod cell;
mod coloring;
mod filter;
mod kept;
mod key;
mod plan;
mod sheet;
mod strip;
mod survey;

pub(crate) use bar::stream_name;
pub(crate) use cell::{Cell, largest};
pub(crate) use coloring::{Coloring, Tone};
pub(crate) use kept::{KeptPlans, KeptStrips};
pub(crate) use key::{Entry, account_entries, lines, lines_of_most, touched_entries};
pub(crate) use plan::{FINEST, Plan};
pub(crate) use sheet::{Sheet, cells};
pub(crate) use survey::Survey;
