//! Everything that can be done or gone to, found by a few letters.
//!
//! `index` lists what a picture offers, `written` what only a query names (a step, a value), and `score` ranks both.

mod index;
mod offer;
mod score;
mod written;

pub(crate) use index::Index;
pub(crate) use offer::{Offer, OnEnter};
