//! Charts of bytes: stacked areas in eighths of a cell, axes, ceilings, thin curves, and the cursor. What is drawn is as high as
//! its bytes, to an eighth of a cell, in every theme.

mod axis;
mod ceiling;
mod cursor;
mod curve;
mod dots;
mod ink;
mod row;
mod shown;
mod stack;

pub(crate) use axis::{Axis, plot_in};
pub(crate) use ceiling::Ceiling;
pub(crate) use cursor::cursor;
pub(crate) use curve::Curve;
pub(crate) use dots::{MARKS, levels};
pub(crate) use ink::Ink;
pub(crate) use stack::{Areas, Stack, areas};
