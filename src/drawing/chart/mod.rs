//! Charts of bytes: stacked areas in eighths of a cell, axes, ceilings, thin curves, and the cursor. In every theme,
//! areas are as high as their bytes, to an eighth of a cell.

mod axis;
mod ceiling;
mod cursor;
mod curve;
mod dots;
mod ink;
mod kept;
mod row;
mod scale;
mod shown;
mod stack;
mod steady;
mod thin;

pub use axis::{Axis, Shares, plot_in};
pub use ceiling::Ceiling;
pub use cursor::cursor;
pub use curve::Curve;
pub use dots::{MARKS, levels};
pub use ink::Ink;
pub use kept::KeptAreas;
pub use shown::EIGHTHS;
pub use stack::{Areas, Stack, areas, name_within};
