//! The holders of the memory shown: names with their bytes, the largest first. For a program with stacks, also what its
//! lines call, if there is room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::stage::Stage;
use super::when;
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::model::{Category, Flame};
use crate::units::Bytes;

/// A part of less than one in this many of all bytes gets no row of its own.
const SMALLEST: u64 = 200;

/// The most blocks that can be summed in each frame. With more, the pane is left out; screen 7 shows the holders.
const MOST: usize = 20_000;

/// True if the pane can be drawn without delaying the frame.
pub(crate) fn are_shown(stage: &Stage<'_>) -> bool {
    stage.shown.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>() <= MOST
}

/// The most rows that the pane can use, with its frame.
pub(crate) fn most_rows(stage: &Stage<'_>) -> u16 {
    let flame = stage.states.stacks.flame(stage.shown);
    let rows = if flame.stacks { usize::MAX } else { flame.names.len().saturating_add(2) };
    u16::try_from(rows).unwrap_or(u16::MAX)
}

/// Draws the pane.
pub(crate) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let flame = stage.states.stacks.flame(stage.shown);
    let root = flame.root();
    let unit = ByteUnit::for_largest(root.bytes);
    let title = vec![
        span(theme, Token::Title, "held"),
        span(theme, Token::Dim, format!(" {} · {}", when::words(stage.picture), unit.name())),
    ];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let row = |indent: usize, category, label: &str, blocks: u64, bytes: Bytes| HolderRow {
        indent,
        category,
        label: label.to_owned(),
        bytes: unit.or_smaller(bytes),
        count: if blocks > 1 { format!(" {blocks}×") } else { String::new() },
        share: figures::percent(bytes.get(), flame.total.get()),
    };
    let height = usize::from(inner.height);
    let rows: Vec<HolderRow> = if flame.stacks {
        let nodes = opened(&flame, height);
        let nodes = nodes.iter().filter_map(|index| flame.get(*index)).take(height);
        nodes.map(|node| row(2 * node.depth.saturating_sub(1), node.category(), &node.label, 1, node.bytes)).collect()
    } else {
        let names = flame.names.iter().take(height);
        names.map(|held| row(0, held.category, &held.name, held.blocks, held.bytes)).collect()
    };
    // Figures are as wide as the widest of them; the rest is for names.
    let widest = |of: fn(&HolderRow) -> &String| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (bytes, counts) = (widest(|row| &row.bytes), widest(|row| &row.count));
    for (y, row) in (0..inner.height).zip(&rows) {
        // The style changes twice per row, because each change costs as many bytes as a word.
        let figures = vec![
            span(theme, Token::Text, format!("{:>bytes$}", row.bytes)),
            span(theme, Token::Dim, format!("{:>counts$}{:>6}", row.count, row.share)),
        ];
        let left = put_right(inner, y, figures, buf);
        let room = usize::from(left.saturating_sub(3)).saturating_sub(row.indent);
        let name = span(theme, Token::Text, format!(" {}", pane::cut_name(&row.label, room)));
        put(inner, y, vec![Span::raw(" ".repeat(row.indent)), legend::legend_of(row.category, theme), name], buf);
    }
}

/// A holder as it is written.
struct HolderRow {
    indent: usize,
    category: Category,
    label: String,
    bytes: String,
    count: String,
    share: String,
}

/// The nodes for `most` rows, parts below their wholes: opens the largest node that can still be opened, again and
/// again, as long as its parts fit.
fn opened(flame: &Flame, most: usize) -> Vec<usize> {
    let least = flame.root().bytes.get() / SMALLEST;
    let parts = |index: usize| {
        let children = flame.get(index).map_or(&[][..], |node| &node.children);
        children.iter().copied().filter(|child| flame.get(*child).is_some_and(|node| node.bytes.get() >= least))
    };
    let bytes = |index: usize| flame.get(index).map_or(0, |node| node.bytes.get());
    let mut rows: Vec<usize> = flame.root().children.clone();
    rows.sort_by_key(|index| std::cmp::Reverse(bytes(*index)));
    // The rows not examined yet, in the order of their bytes.
    let mut closed = rows.clone();
    while let Some(largest) = (0..closed.len()).max_by_key(|at| bytes(closed[*at])) {
        let index = closed.swap_remove(largest);
        let parts: Vec<usize> = parts(index).collect();
        if parts.is_empty() || rows.len() + parts.len() > most {
            continue;
        }
        if let Some(at) = rows.iter().position(|row| *row == index) {
            rows.splice(at + 1..at + 1, parts.iter().copied());
            closed.extend(parts);
        }
    }
    rows
}
