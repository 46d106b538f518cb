//! The sums of each pool of each stream.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::allocator::PoolKind;
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::PoolTotals;
use crate::units::{Bytes, StreamId};

/// A column of figures: its heading, its cells, and the width from which on it is shown.
struct PoolColumn {
    head: &'static str,
    width: usize,
    figure: fn(&PoolTotals, ByteUnit) -> String,
    from: u16,
}

const COLUMNS: &[PoolColumn] = &[
    PoolColumn { head: "segments", width: 9, figure: |row, _| row.segments.to_string(), from: 0 },
    PoolColumn { head: "reserved", width: 10, figure: |row, unit| unit.or_smaller(row.reserved), from: 0 },
    PoolColumn { head: "live", width: 9, figure: |row, unit| unit.or_smaller(row.live), from: 0 },
    PoolColumn { head: "rounding", width: 10, figure: |row, unit| unit.or_smaller(row.rounding), from: 80 },
    PoolColumn { head: "pending", width: 9, figure: |row, unit| unit.or_smaller(row.pending), from: 89 },
    PoolColumn { head: "free", width: 9, figure: |row, unit| unit.or_smaller(row.free), from: 0 },
    PoolColumn { head: "largest free", width: 13, figure: |row, unit| unit.or_smaller(row.largest_free), from: 62 },
    PoolColumn { head: "used", width: 6, figure: |row, _| used(row), from: 68 },
];

/// The width of a pool's name.
const NAME: u16 = 14;

fn used(row: &PoolTotals) -> String {
    figures::percent(row.reserved.saturating_sub(row.free).get(), row.reserved.get())
}

fn name(row: &PoolTotals) -> String {
    let pool = match row.pool {
        PoolKind::Small => "small",
        PoolKind::Large => "large",
    };
    let kind = if row.expandable { " exp." } else { "" };
    match row.stream {
        StreamId::DEFAULT => format!("{pool}{kind}"),
        StreamId(stream) => format!("{pool}{kind} str. {stream}"),
    }
}

/// How many rows the table needs, with its heading, without its frame.
pub(super) fn wanted_rows(pools: &[PoolTotals]) -> u16 {
    u16::try_from(pools.len().max(1) + 1).unwrap_or(u16::MAX)
}

/// Draws the pane.
pub(super) fn render(pools: &[PoolTotals], theme: &Theme, kind: Frame, area: Rect, buf: &mut Buffer) {
    let unit = ByteUnit::for_largest(pools.iter().map(|row| row.reserved).max().unwrap_or(Bytes::ZERO));
    let title = vec![
        span(theme, Token::Title, "pools"),
        span(theme, Token::Dim, format!(" · by pool and stream · {}", unit.name())),
    ];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    if pools.is_empty() {
        put(inner, 0, vec![span(theme, Token::Dim, "no segments yet")], buf);
        return;
    }
    let columns: Vec<&PoolColumn> = COLUMNS.iter().filter(|column| inner.width >= column.from).collect();
    let mut x = NAME;
    for column in &columns {
        put_at(inner, x, 0, vec![span(theme, Token::Dim, format!("{:>1$}", column.head, column.width))], buf);
        x += u16::try_from(column.width).unwrap_or(0);
    }
    // If there are more pools than rows, the last row says so.
    let rows = usize::from(inner.height.saturating_sub(1));
    let shown = if pools.len() > rows { rows.saturating_sub(1) } else { pools.len() };
    for (y, row) in (1..inner.height).zip(&pools[..shown]) {
        put(inner, y, vec![span(theme, Token::Text, pane::cut(&name(row), usize::from(NAME)))], buf);
        let mut x = NAME;
        for column in &columns {
            let figure = (column.figure)(row, unit);
            let zero = matches!(figure.as_str(), "0" | "0.0" | "0.00" | "0 B" | "0 %");
            let (token, figure) = if zero { (Token::Dim, "·".to_owned()) } else { (Token::Strong, figure) };
            put_at(inner, x, y, vec![span(theme, token, format!("{figure:>0$}", column.width))], buf);
            x += u16::try_from(column.width).unwrap_or(0);
        }
    }
    if shown < pools.len() && rows > 0 {
        let more = format!("and {} more", pools.len() - shown);
        put(inner, inner.height - 1, vec![span(theme, Token::Dim, more)], buf);
    }
}
