//! The key of a map: what its colours mean, in as many lines as it takes.

use ratatui::text::Span;

use crate::figures::ByteUnit;
use crate::legend::{account_marks, touched_marks};
use crate::pane::span;
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;
use vramlab_model::{Ledger, TouchedBlock};

/// An entry of the key: a mark, its meaning, and its bytes.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The mark, as the map draws it.
    pub mark: Span<'static>,
    /// What the mark stands for.
    pub label: String,
    /// The bytes that it stands for.
    pub bytes: Bytes,
    /// True for blocks that the current op allocated or freed.
    pub touched: bool,
}

impl KeyEntry {
    /// An entry for `bytes`.
    #[must_use]
    pub fn new(mark: Span<'static>, label: impl Into<String>, bytes: Bytes) -> Self {
        Self { mark, label: label.into(), bytes, touched: false }
    }
}

/// Entries for the accounts that hold any bytes, and for blocks that the current op allocated and freed.
pub fn account_entries(ledger: &Ledger, touched: &[TouchedBlock], theme: &Theme) -> Vec<KeyEntry> {
    let accounts = [ledger.stranded, ledger.releasable, ledger.rounding, ledger.pending];
    let marks = account_marks(theme).into_iter().zip(accounts);
    marks.filter_map(|marked| entry(marked, false)).chain(touched_entries(touched, theme)).collect()
}

/// Entries for blocks that the current op allocated and freed.
pub fn touched_entries(touched: &[TouchedBlock], theme: &Theme) -> Vec<KeyEntry> {
    let sum =
        |taken| touched.iter().filter(|block| block.taken.is_some() == taken).map(|block| block.size).sum::<Bytes>();
    let largest = touched.iter().filter(|block| block.taken.is_some()).max_by_key(|block| block.size);
    let marks = touched_marks(largest.and_then(|block| block.taken), theme);
    marks.into_iter().zip([sum(true), sum(false)]).filter_map(|marked| entry(marked, true)).collect()
}

fn entry(((mark, label), bytes): ((Span<'static>, &'static str), Bytes), touched: bool) -> Option<KeyEntry> {
    (bytes > Bytes::ZERO).then(|| KeyEntry { touched, ..KeyEntry::new(mark, label, bytes) })
}

/// The entries with at least 1/200 of the reserved bytes, and those of the current op. The others have hardly a cell.
#[must_use]
pub fn seen_entries(all: &[KeyEntry], reserved: Bytes) -> Vec<KeyEntry> {
    all.iter().filter(|entry| entry.touched || entry.bytes.get() >= reserved.get() / 200).cloned().collect()
}

/// The entries in lines of `width` cells. With a `unit`, they show their bytes, and the unit comes before all of them.
pub fn lines(entries: Vec<KeyEntry>, unit: Option<ByteUnit>, theme: &Theme, width: usize) -> Vec<Vec<Span<'static>>> {
    lines_above(entries, unit, Bytes::ZERO, theme, width)
}

/// Like [`lines`], with bytes only for the `count` entries that have most.
pub fn lines_of_most(
    entries: Vec<KeyEntry>,
    count: usize,
    unit: ByteUnit,
    theme: &Theme,
    width: usize,
) -> Vec<Vec<Span<'static>>> {
    let mut bytes: Vec<Bytes> = entries.iter().map(|entry| entry.bytes).collect();
    bytes.sort_by_key(|bytes| std::cmp::Reverse(*bytes));
    let least = count.checked_sub(1).and_then(|last| bytes.get(last)).copied().unwrap_or_default();
    lines_above(entries, (count > 0).then_some(unit), least, theme, width)
}

fn lines_above(
    entries: Vec<KeyEntry>,
    unit: Option<ByteUnit>,
    least: Bytes,
    theme: &Theme,
    width: usize,
) -> Vec<Vec<Span<'static>>> {
    let named = unit.map(|unit| span(theme, Token::Dim, format!("{} ", unit.name())));
    let indent = named.as_ref().map_or(0, Span::width);
    let mut used = indent;
    let mut lines: Vec<Vec<Span<'static>>> = vec![named.into_iter().collect()];
    for KeyEntry { mark, label, bytes, .. } in entries {
        let mut entry = vec![mark, span(theme, Token::Dim, format!(" {label} "))];
        if let Some(unit) = unit.filter(|_| bytes >= least) {
            entry.push(span(theme, Token::Text, format!("{:>5} ", unit.or_smaller(bytes))));
        }
        let cells: usize = entry.iter().map(Span::width).sum();
        let air = usize::from(used > indent && unit.is_some());
        // A line's last space may be cut.
        if used + air + cells > width + 1 && used > indent {
            lines.push(vec![Span::raw(" ".repeat(indent))]);
            used = indent;
        } else if air > 0 {
            entry.insert(0, Span::raw(" "));
        }
        used += entry.iter().map(Span::width).sum::<usize>();
        if let Some(line) = lines.last_mut() {
            line.extend(entry);
        }
    }
    lines
}
