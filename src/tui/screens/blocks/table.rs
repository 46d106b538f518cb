//! A table of the segments in the map's order; with a filter, of the largest matching blocks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::detail::named;
use super::story::BlockStory;
use crate::allocator::PoolKind;
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend::legend_of;
use crate::drawing::map::{Survey, stream_name};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::Token;
use crate::model::{Hole, SegmentPart, SegmentView};
use crate::tui::stage::Stage;
use crate::tui::states::SelectedPart;
use crate::units::Bytes;

/// Draws the table.
pub(super) fn render(stage: &Stage<'_>, survey: &Survey, picked: Option<SelectedPart>, area: Rect, buf: &mut Buffer) {
    if area.height < 4 {
        return;
    }
    let theme = stage.theme;
    let (title, words) = if survey.is_filtered() {
        ("largest matches", String::new())
    } else {
        ("segments", format!(" · {}", stage.states.blocks.order.label()))
    };
    let title = vec![span(theme, Token::Title, title), span(theme, Token::Dim, words)];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    if survey.is_filtered() {
        matches(stage, survey, picked, inner, buf);
    } else {
        segments(stage, survey, picked, inner, buf);
        let hidden = stage.shown.segments.len().saturating_sub(usize::from(inner.height.saturating_sub(1)));
        if hidden > 0 {
            pane::remark(
                span(theme, Token::Dim, format!("{} more", figures::counted(hidden as u64, "segment"))),
                area,
                buf,
            );
        }
    }
}

const COLUMNS: [(&str, usize); 9] = [
    ("segment", 16),
    ("pool", 7),
    ("stream", 7),
    ("size", 9),
    ("in use", 9),
    ("stranded", 10),
    ("releasable", 11),
    ("blocks", 8),
    ("largest hole", 13),
];

fn segments(stage: &Stage<'_>, survey: &Survey, picked: Option<SelectedPart>, area: Rect, buf: &mut Buffer) {
    let (theme, view) = (stage.theme, stage.shown);
    let order = stage.states.blocks.ordered(view, survey);
    let unit = ByteUnit::for_largest(view.segments.iter().map(|segment| segment.size).max().unwrap_or_default());
    let seen = usize::from(area.height).saturating_sub(1);
    // The selected row stays visible.
    let at = picked.and_then(|picked| order.iter().position(|index| *index == picked.segment));
    let first = at.map_or(0, |at| (at + 1).saturating_sub(seen));
    let line = |words: [String; COLUMNS.len()]| -> String {
        let cells = words.iter().zip(COLUMNS).enumerate();
        cells
            .map(
                |(index, (word, (_, width)))| {
                    if index < 2 { format!("{word:<width$}") } else { format!("{word:>width$}") }
                },
            )
            .collect()
    };
    let head = line(COLUMNS.map(|(name, _)| name.to_owned()));
    put(area, 0, vec![span(theme, Token::Dim, format!("  {head} {}", unit.name()))], buf);
    for (y, index) in (1..area.height).zip(order.iter().skip(first)) {
        let (Some(segment), Some(sum)) = (view.segments.get(*index), survey.sum(*index)) else { continue };
        let hole = segment.holes().map(|hole: Hole| hole.stranded()).max().unwrap_or_default();
        let figure = |bytes: Bytes| if bytes == Bytes::ZERO { "·".to_owned() } else { unit.or_smaller(bytes) };
        let words = [
            segment.address.to_string(),
            pool(segment).to_owned(),
            stream_name(segment.stream),
            figure(segment.size),
            figure(sum.held),
            figure(sum.stranded),
            figure(sum.releasable),
            sum.blocks.to_string(),
            figure(hole),
        ];
        let selected = picked.is_some_and(|picked| picked.segment == *index);
        let (mark, token) = if selected { ("▸ ", Token::Strong) } else { ("  ", Token::Text) };
        put(area, y, vec![span(theme, Token::Key, mark), span(theme, token, line(words))], buf);
    }
}

fn pool(segment: &SegmentView) -> &'static str {
    match (segment.pool, segment.expandable) {
        (PoolKind::Small, false) => "small",
        (PoolKind::Large, false) => "large",
        (PoolKind::Small, true) => "small+",
        (PoolKind::Large, true) => "large+",
    }
}

fn matches(stage: &Stage<'_>, survey: &Survey, picked: Option<SelectedPart>, area: Rect, buf: &mut Buffer) {
    let (theme, view) = (stage.theme, stage.shown);
    let seen = usize::from(area.height).saturating_sub(1);
    let mut largest = BinaryHeap::with_capacity(seen + 1);
    for (index, segment) in view.segments.iter().enumerate() {
        if survey.sum(index).is_none_or(|sum| sum.matched == 0) {
            continue;
        }
        for (at, block) in segment.blocks.iter().enumerate().filter(|(_, block)| survey.accepts(block)) {
            largest.push(Reverse((block.size, Reverse((index, at)))));
            if largest.len() > seen {
                largest.pop();
            }
        }
    }
    let story = BlockStory::new(stage);
    let unit = ByteUnit::for_largest(largest.iter().map(|Reverse((size, _))| *size).max().unwrap_or_default());
    let name = usize::from(area.width).saturating_sub(56).clamp(16, 60);
    let head = format!("  {:>9}   {:<name$} {:<18} born", unit.name(), "block", "at");
    put(area, 0, vec![span(theme, Token::Dim, head)], buf);
    for (y, Reverse((size, Reverse((index, at))))) in (1..area.height).zip(largest.into_sorted_vec()) {
        let Some(segment) = view.segments.get(index) else { continue };
        let Some(block) = segment.blocks.get(at) else { continue };
        let selected =
            picked.is_some_and(|picked| (picked.segment, picked.part) == (index, Some(SegmentPart::Block(at))));
        let (mark, token) = if selected { ("▸ ", Token::Strong) } else { ("  ", Token::Text) };
        let figure = vec![
            span(theme, Token::Key, mark),
            span(theme, Token::Strong, format!("{:>9} ", unit.figure(size))),
            legend_of(block.category, theme),
        ];
        let x = put(area, y, figure, buf);
        let words = format!(
            " {:<name$} {:<18} {}",
            pane::cut(&named(view, block), name),
            segment.address.offset(block.offset).to_string(),
            story.born(block)
        );
        put_at(area, x, y, vec![span(theme, token, words)], buf);
    }
    if survey.total().matched == 0 {
        let text = format!("none of {} matches the filter", figures::counted(survey.total().blocks, "block"));
        put(area, 1, vec![span(theme, Token::Dim, format!("  {text}"))], buf);
    }
}
