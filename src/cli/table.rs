//! Tables of text: the first column to the left, the others to the right.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// Between two columns.
const GAP: &str = "  ";

/// Prints lines of cells, as wide as the widest of each column.
pub(super) fn print(out: &mut impl Write, lines: &[Vec<String>]) -> io::Result<()> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |line: &Vec<String>, column: usize| line.get(column).map_or(0, |text| text.width());
    let widths: Vec<usize> =
        (0..columns).map(|column| lines.iter().map(|line| cell(line, column)).max().unwrap_or(0)).collect();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.width());
            if column == 0 {
                text += &format!("{cell}{pad}");
            } else {
                text += &format!("{GAP}{pad}{cell}");
            }
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// Cells of a line.
pub(super) fn line<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// How much more or less than `before`, in per cent; empty where it is the same.
pub(super) fn change(before: u64, after: u64) -> String {
    if before == after || before == 0 {
        return String::new();
    }
    let percent = (after as f64 / before as f64 - 1.0) * 100.0;
    let sign = if percent < 0.0 { '−' } else { '+' };
    format!("{sign}{:.1} %", percent.abs())
}

/// A part of a whole in per cent, or nothing of nothing.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}
