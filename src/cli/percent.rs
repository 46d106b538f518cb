//! Shares and changes in per cent.

use super::columns::{Cell, Tone};

/// The change from `before` to `after` in per cent; empty if they are equal.
pub(super) fn change(before: u64, after: u64) -> String {
    if before == after || before == 0 {
        return String::new();
    }
    let percent = (after as f64 / before as f64 - 1.0) * 100.0;
    let sign = if percent < 0.0 { '−' } else { '+' };
    format!("{sign}{:.1} %", percent.abs())
}

/// The change as a cell: less is better.
pub(super) fn changed(before: u64, after: u64) -> Cell {
    let tone = if after < before { Tone::Good } else { Tone::Bad };
    Cell::toned(change(before, after), tone)
}

/// A part of a whole in per cent; empty if the whole is 0.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}
