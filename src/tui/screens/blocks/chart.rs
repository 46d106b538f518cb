//! The map: all segments at one scale, with a key to its colours, and the filter.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures;
use crate::drawing::legend;
use crate::drawing::map::{self, KeyEntry, Plan, Sheet, Survey};
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::tui::stage::{FrameLayout, Stage};
use crate::tui::states::SelectedPart;
use crate::units::Bytes;

/// Draws the map, and notes its cells and rows in the layout.
pub(super) fn render(
    stage: &Stage<'_>,
    survey: &Survey,
    picked: Option<SelectedPart>,
    kind: Frame,
    area: Rect,
    buf: &mut Buffer,
    layout: &mut FrameLayout,
) {
    let (theme, view, state) = (stage.theme, stage.shown, &stage.states.blocks);
    let (margin, edges) = if kind == Frame::Box { (4, 2) } else { (2, 1) };
    let inside = area.height.saturating_sub(edges);
    let wide = area.width.saturating_sub(margin);
    let most = usize::from(inside.saturating_sub(1) / 3);
    let mut below = key(stage, survey, (kind == Frame::Box, most), usize::from(wide));
    below.truncate(most);
    if survey.is_filtered() {
        below.insert(0, found(survey, &state.filter, theme));
    }
    let seen = usize::from(inside).saturating_sub(below.len());
    let width = map::cells(Rect { width: wide, ..area }).width;
    let plan = state.plan(view, stage.ghost, survey, (usize::from(width), seen));
    let room = usize::from(area.width.saturating_sub(6));
    let title = title(stage, &plan, room);
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let rows = Rect { height: u16::try_from(seen).unwrap_or(inner.height).min(inner.height), ..inner };
    let first = stage.scroll.min(plan.rows.saturating_sub(seen));
    if kind == Frame::Box {
        let hidden = plan.rows > seen;
        let mut words = Vec::new();
        if hidden {
            words.push(format!("rows {}–{} of {}", first + 1, (first + seen).min(plan.rows), plan.rows));
        }
        if !words.is_empty() {
            pane::remark(span(theme, Token::Dim, words.join(" · ")), area, buf);
        }
    }
    let (segments, coloring) = (view.segments.as_slice(), state.coloring);
    let picked = picked.map(|picked| (picked.segment, picked.bytes(segments)));
    let sheet = Sheet { segments, plan: &plan, coloring, touched: stage.touched(), picked, theme };
    sheet.draw(first, |segments, of, cells| survey.strip(segments, of, cells), rows, buf);
    for (y, line) in (rows.height..inner.height).zip(below) {
        put(inner, y, line, buf);
    }
    if segments.is_empty() && rows.height > 0 {
        put(rows, 0, vec![span(theme, Token::Dim, "no segments yet")], buf);
    }
    layout.map = Some(map::cells(rows));
    layout.rows = (plan.rows, seen);
}

/// The title with as much as fits: the colouring, the bytes lost in holes, the number of segments.
fn title(stage: &Stage<'_>, plan: &Plan, room: usize) -> Vec<Span<'static>> {
    let (theme, view, state) = (stage.theme, stage.shown, &stage.states.blocks);
    let ledger = &view.ledger;
    let alarm = if ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Text };
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let scale = if plan.scale > 0 { format!("1 cell = {}", figures::scale(Bytes(plan.scale))) } else { String::new() };
    let words = [
        (Token::Text, scale),
        (Token::Text, format!("by {}", state.coloring.label())),
        (Token::Warn, legend::guessed(view).unwrap_or_default().to_owned()),
        (alarm, format!("stranded {} ({share})", figures::bytes(ledger.stranded))),
        (Token::Text, format!("largest hole {}", figures::bytes(view.largest_hole))),
        (Token::Dim, state.order.label().to_owned()),
        (Token::Dim, figures::counted(view.segments.len() as u64, "segment")),
    ];
    let whose = if stage.picture.ghost.is_some() { "blocks of the run" } else { "blocks" };
    pane::title(whose, words, room, theme)
}

/// The filter, and how many bytes match it.
fn found(survey: &Survey, text: &str, theme: &Theme) -> Vec<Span<'static>> {
    let total = survey.total();
    let blocks = format!("  {} of {} · ", total.matched, figures::counted(total.blocks, "block"));
    vec![
        span(theme, Token::Key, "/"),
        span(theme, Token::Strong, text),
        span(theme, Token::Text, blocks),
        span(theme, Token::Strong, figures::bytes(total.matched_bytes)),
        span(theme, Token::Dim, "  Esc: all"),
    ]
}

/// The key to the colours, with bytes. If it has rows to spare, all entries; otherwise at most `most` lines with the
/// entries that have more than a cell or two, or those with most bytes. Empty entries are left out.
fn key(stage: &Stage<'_>, survey: &Survey, (is_free, most): (bool, usize), width: usize) -> Vec<Vec<Span<'static>>> {
    let (theme, view, coloring) = (stage.theme, stage.shown, stage.states.blocks.coloring);
    let ledger = &view.ledger;
    let unit = stage.unit();
    let mut entries: Vec<KeyEntry> = Vec::new();
    for (tone, label, bytes) in survey.legend().into_iter().filter(|(_, _, bytes)| *bytes > Bytes::ZERO) {
        entries.push(KeyEntry::new(coloring.mark(tone, theme), label, bytes));
    }
    entries.extend(map::account_entries(ledger, stage.touched(), theme));
    let whole = map::lines(entries.clone(), Some(unit), theme, width);
    if is_free || whole.len() <= most {
        return whole;
    }
    let words = map::lines(entries.clone(), None, theme, width);
    let seen = map::lines(map::seen_entries(&entries, ledger.reserved()), Some(unit), theme, width);
    if seen.len() <= words.len() {
        return seen;
    }
    let with_most = |count: usize| map::lines_of_most(entries.clone(), count, unit, theme, width);
    [6, 4, 2].into_iter().map(with_most).find(|lines| lines.len() <= words.len()).unwrap_or(words)
}
