//! The map of a ghost: the same blocks as another allocator has them, on the scale of the run's own map.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures;
use crate::drawing::map::{Sheet, Survey};
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Ledger, Occupancy, SegmentView};
use crate::source::Ghost;
use crate::tui::beside;
use crate::tui::stage::Stage;
use crate::tui::states::Picked;
use crate::whatif::Starting;

/// Draws it beside a map of so many `cells`, which shows the run on the same scale.
pub(super) fn render(
    stage: &Stage<'_>,
    survey: &Survey,
    picked: Option<Picked>,
    (kind, cells): (Frame, Rect),
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = stage.theme;
    let Some(ghost) = stage.picture.ghost.as_deref() else { return };
    let words =
        [(Token::Ghost, ghost.conditions.to_string()), (Token::Dim, stage.ghost.map_or_else(String::new, segments))];
    let name = if beside::is_estimate(ghost) { "ghost, start estimated" } else { "ghost, predicted" };
    let title = pane::title(name, words, usize::from(area.width.saturating_sub(6)), theme);
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let Some(occupancy) = stage.ghost else {
        let waits = beside::waits(ghost).unwrap_or_default();
        put(inner, 0, vec![span(theme, Token::Dim, format!("the ghost {waits}"))], buf);
        return;
    };
    let rows = Rect { height: cells.height.min(inner.height), ..inner };
    let state = &stage.states.blocks;
    let seen = (usize::from(cells.width), usize::from(cells.height));
    let plan = state.plan_beside(stage.shown, occupancy, survey, seen);
    let picked = picked.and_then(|picked| counterpart(picked, &stage.shown.segments, &occupancy.segments));
    let sheet =
        Sheet { segments: &occupancy.segments, plan: &plan, coloring: state.coloring, touched: &[], picked, theme };
    let first = stage.scroll.min(plan.rows.saturating_sub(seen.1));
    sheet.draw(first, |segments, of, cells| survey.strip_beside(segments, of, cells), rows, buf);
    if occupancy.segments.is_empty() {
        put(rows, 0, vec![span(theme, Token::Dim, "no segments yet")], buf);
    }
    let rest = Rect { y: inner.y + rows.height, height: inner.height - rows.height, ..inner };
    pane::flow(compared(ghost, occupancy, stage, theme), rest, rest, buf);
}

fn segments(occupancy: &Occupancy) -> String {
    figures::counted(occupancy.segments.len() as u64, "segment")
}

/// Its figures, each with the run's own.
fn compared(ghost: &Ghost, occupancy: &Occupancy, stage: &Stage<'_>, theme: &Theme) -> Vec<Vec<Span<'static>>> {
    let (view, own) = (stage.shown, &stage.shown.ledger);
    let lost = |ledger: &Ledger| {
        let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
        format!("{} ({share})", figures::short_bytes(ledger.stranded))
    };
    let theirs = &occupancy.ledger;
    let short = figures::short_bytes;
    let figure = |word: &'static str, theirs: String, ours: &str| {
        vec![
            span(theme, Token::Dim, format!("{word} ")),
            span(theme, Token::Strong, theirs),
            span(theme, Token::Dim, format!(" run {ours}")),
        ]
    };
    let mut all = vec![
        figure("reserved", short(theirs.reserved()), &short(own.reserved())),
        figure("stranded", lost(theirs), &lost(own)),
        figure("largest hole", short(occupancy.largest_hole), &short(view.largest_hole)),
    ];
    if ghost.starting != Starting::Empty {
        all.push(vec![span(theme, Token::Dim, beside::certainty(ghost))]);
    }
    if let Some(figures) = ghost.figures.filter(|figures| figures.ooms > 0) {
        all.push(vec![span(theme, Token::Danger, figures::counted(figures.ooms, "failed request"))]);
    }
    all
}

/// The bytes that the block has there which is selected in the run: both were taken at the same event.
fn counterpart(picked: Picked, run: &[SegmentView], ghost: &[SegmentView]) -> Option<(usize, std::ops::Range<u64>)> {
    let born = picked.block(run)?.born;
    ghost.iter().enumerate().find_map(|(index, segment)| {
        let block = segment.blocks.iter().find(|block| block.born == born && born > 0)?;
        Some((index, block.offset.get()..block.end().get()))
    })
}
