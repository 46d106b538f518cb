//! Shares and changes in per cent.

use super::columns::{Cell, Tone};

/// How much more or less than `before`, in per cent; empty where it is the same.
pub(super) fn change(before: u64, after: u64) -> String {
    if before == after || before == 0 {
        return String::new();
    }
    let percent = (after as f64 / before as f64 - 1.0) * 100.0;
    let sign = if percent < 0.0 { '−' } else { '+' };
    format!("{sign}{:.1} %", percent.abs())
}

/// The same as a cell: less is better.
pub(super) fn changed(before: u64, after: u64) -> Cell {
    let tone = if after < before { Tone::Good } else { Tone::Bad };
    Cell::toned(change(before, after), tone)
}

/// A part of a whole in per cent, or nothing of nothing.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}
