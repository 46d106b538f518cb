//! The descendants of the zoomed node, a row each: bytes, share, blocks.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::staying::{leaking, leaks};
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::Node;
use crate::tui::action::Action;
use crate::tui::share;
use crate::tui::stage::{Stage, Targets};
use crate::tui::states::{ScreenAction, StackRow, StackTree, StacksAction};
use crate::units::Bytes;

/// The width of the figures: bytes, share, blocks.
const FIGURES: u16 = 25;
/// From this width on there are bars, which are wider in a wider table.
const BARS: u16 = 90;
/// The width of one indentation.
const STEP: usize = 2;
/// The deepest indentation.
const STEPS: usize = 12;

/// Draws the table. Returns the number of rows, and how many are visible.
pub(super) fn render(
    stage: &Stage<'_>,
    looked: &StackTree,
    kind: Frame,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) -> (usize, usize) {
    let theme = stage.theme;
    let flame = &looked.flame;
    let Some(zoom) = flame.get(looked.zoom) else { return (0, 0) };
    let unit = ByteUnit::for_largest(zoom.bytes);
    let title = vec![
        span(theme, Token::Title, if zoom.parent.is_none() { "all".to_owned() } else { zoom.label.to_string() }),
        span(theme, Token::Dim, format!(" and its parts · {}", unit.name())),
    ];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    if inner.height < 2 {
        return (looked.rows.len(), usize::from(inner.height));
    }
    let bar = if inner.width >= BARS { (inner.width - BARS + 16).min(48) } else { 0 };
    let head = format!("{:>9}{:>7}{:>9}{:>bar$}", "bytes", "of all", "blocks", "", bar = usize::from(bar));
    put(inner, 0, vec![span(theme, Token::Dim, "who asked")], buf);
    put_right(inner, 0, vec![span(theme, Token::Dim, head)], buf);
    let body = Rect { y: inner.y + 1, height: inner.height - 1, ..inner };
    let seen = usize::from(body.height);
    let first = stage.scroll.min(looked.rows.len().saturating_sub(seen));
    let names = usize::from(body.width.saturating_sub(FIGURES + bar + 1));
    let leaking = leaking(stage);
    for (y, row) in (0..body.height).zip(&looked.rows[first..]) {
        let Some(node) = node_of(looked, *row) else { continue };
        let line = Rect { y: body.y + y, height: 1, ..body };
        put(line, 0, label(theme, &node, node.depth - zoom.depth, leaks(&node, &leaking), names), buf);
        let figures = vec![
            span(theme, Token::Strong, format!("{:>9}", unit.or_smaller(node.bytes))),
            span(theme, Token::Dim, format!("{:>7}", figures::percent(node.bytes.get(), flame.total.get()))),
            span(theme, Token::Text, format!("{:>9}", node.blocks)),
        ];
        let figures_at = Rect { width: line.width - bar, ..line };
        put_right(figures_at, 0, figures, buf);
        if bar > 1 {
            let at = Rect { x: line.right() - bar + 1, width: bar - 1, ..line };
            share::draw(&node.by_category, zoom.bytes, theme, at, buf);
        }
        if *row == StackRow::Node(looked.selected) {
            let style = theme.style(Token::Dim).add_modifier(Modifier::REVERSED);
            buf.set_style(Rect { width: figures_at.width, ..line }.intersection(buf.area), style);
        }
        // The summed nodes are visible once their parent is zoomed.
        let (StackRow::Node(index) | StackRow::Rest { of: index, .. }) = *row;
        if let Ok(place) = u32::try_from(index) {
            targets.push((line, Action::Own(ScreenAction::Stacks(StacksAction::Pick(place)))));
        }
    }
    (looked.rows.len(), seen)
}

/// The node of a row, or the sum of several nodes as one.
fn node_of(looked: &StackTree, row: StackRow) -> Option<Cow<'_, Node>> {
    let flame = &looked.flame;
    match row {
        StackRow::Node(index) => flame.get(index).map(Cow::Borrowed),
        StackRow::Rest { of, shown } => {
            let parts = &flame.get(of)?.children;
            let mut rest = flame.sum(of, shown..parts.len())?;
            if let (Some(first), true) = (flame.get(*parts.first()?), looked.has_layers_alike(of)) {
                rest.label = format!("{} more like {}", parts.len() - shown, first.label).into();
            }
            Some(Cow::Owned(rest))
        }
    }
}

/// A node's mark and label, indented by its depth.
fn label(theme: &Theme, node: &Node, depth: usize, leaks: Option<Bytes>, room: usize) -> Vec<Span<'static>> {
    let indent = " ".repeat(depth.min(STEPS) * STEP);
    let more = match node.chain.len() {
        0 => String::new(),
        frames => format!(" +{}", frames - 1),
    };
    let leak = leaks.map_or_else(String::new, |rise| format!(" ▲ +{} a step", figures::short_bytes(rise)));
    let room = room.saturating_sub(indent.len() + 2 + more.len() + leak.chars().count());
    let token = if node.others > 0 { Token::Dim } else { Token::Text };
    vec![
        Span::raw(indent),
        legend::legend_of(node.category(), theme),
        span(theme, token, format!(" {}", pane::cut_name(&node.label, room))),
        span(theme, Token::Dim, more),
        span(theme, Token::Warn, leak),
    ]
}
