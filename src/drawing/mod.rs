//! How memory is drawn: charts and the map of blocks in the cells of a terminal, in the colours of a theme.
//!
//! [`chart`] draws amounts over time, [`map`] where blocks lie. [`figures`] and [`legend`] say what stands in them, [`pane`]
//! puts lines in rows, and [`wire`] sends what has changed to the terminal. Nothing here knows a screen or a key.

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
