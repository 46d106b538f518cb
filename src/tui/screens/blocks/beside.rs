//! The map of a ghost: the same blocks as the other allocator placed them, at the scale of the run's own map.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::figures;
use crate::drawing::map::{Sheet, Survey};
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::model::{Occupancy, SegmentView};
use crate::tui::beside;
use crate::tui::ghost_table;
use crate::tui::stage::Stage;
use crate::tui::states::SelectedPart;

/// From this width on the largest blocks are listed beside the figures.
const ABREAST: u16 = 160;
/// The fewest rows worth a list of the largest blocks.
const LEAST_MOVES: u16 = 3;

/// Draws the ghost's map beside a map of `cells`, which shows the run at the same scale.
pub(super) fn render(
    stage: &Stage<'_>,
    survey: &Survey,
    picked: Option<SelectedPart>,
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
        let waits = beside::waits(ghost);
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
}

fn segments(occupancy: &Occupancy) -> String {
    figures::counted(occupancy.segments.len() as u64, "segment")
}

/// Draws below the maps: the ghost's figures beside the run's, and where the largest blocks are in both.
pub(super) fn render_table(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let Some(ghost) = stage.picture.ghost.as_deref() else { return };
    let mut words = vec![(Token::Dim, beside::certainty(ghost).to_owned())];
    if let Some(figures) = ghost.figures.filter(|figures| figures.ooms > 0) {
        words.push((Token::Danger, figures::counted(figures.ooms, "failed request")));
    }
    let title = pane::title("run and ghost", words, usize::from(area.width.saturating_sub(6)), theme);
    let inner = pane::frame(Frame::Rule, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    // Side by side if there is room, otherwise one below the other.
    let (table, moves) = if inner.width >= ABREAST {
        let left = inner.width / 2;
        let right = Rect { x: inner.x + left + 2, width: inner.width - left - 2, ..inner };
        (Rect { width: left, ..inner }, right)
    } else {
        let taken = (ghost_table::ROWS + 1).min(inner.height);
        (inner, Rect { y: inner.y + taken, height: inner.height - taken, ..inner })
    };
    ghost_table::render(stage, table, buf);
    if let Some(other) = stage.ghost.filter(|_| moves.height >= LEAST_MOVES) {
        ghost_table::render_moves(stage, other, moves, buf);
    }
}

/// The ghost's bytes of the block that is selected in the run: both were allocated at the same event.
fn counterpart(
    picked: SelectedPart,
    run: &[SegmentView],
    ghost: &[SegmentView],
) -> Option<(usize, std::ops::Range<u64>)> {
    let born = picked.block(run)?.born;
    ghost.iter().enumerate().find_map(|(index, segment)| {
        let block = segment.blocks.iter().find(|block| block.born == born && born > 0)?;
        Some((index, block.offset.get()..block.end().get()))
    })
}
