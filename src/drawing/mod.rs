//! How memory is drawn: charts and the map of blocks in the cells of a terminal, in the colours of a theme.
//!
//! [`chart`] draws amounts over time, [`map`] shows where blocks lie. [`figures`] and [`legend`] write their numbers
//! and keys, [`pane`] puts text into rows, and [`wire`] sends changed cells to the terminal. Nothing here knows a
//! screen or a key binding.

pub mod chart;
pub mod figures;
pub mod legend;
pub mod map;
pub mod pane;
pub mod theme;
pub mod wire;

/// Streams of events for unit tests.
#[cfg(test)]
#[path = "../../tests/common/synthetic.rs"]
mod synthetic;
