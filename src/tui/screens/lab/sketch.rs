//! The curve of a step without figures, which may be shown while a question about them is open.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::step;
use crate::drawing::chart::areas;
use crate::drawing::legend::{legend_of, short_label};
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::model::Category;
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// Draws the shape of the last whole step at the pane's height, with the names of its colours and phases. Returns false
/// if no step has run.
pub(crate) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) -> bool {
    let Some(profile) = stage.picture.shown_step().filter(|profile| step::highest(profile) > Bytes::ZERO) else {
        return false;
    };
    let theme = stage.theme;
    let title =
        vec![span(theme, Token::Title, "shape of this step"), span(theme, Token::Dim, " · figures after your answer")];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let is_drawn =
        |category: &Category| profile.samples.iter().any(|sample| sample.by_category[*category as usize] > Bytes::ZERO);
    let name = |category: Category| {
        [legend_of(category, theme), span(theme, Token::Dim, format!(" {}  ", short_label(category)))]
    };
    let names: Vec<Span<'static>> = Category::STACKED.into_iter().filter(is_drawn).flat_map(name).collect();
    put(inner, 0, names, buf);
    // Below the names, and above the phases.
    let plot = Rect { y: inner.y + 1, height: inner.height.saturating_sub(2), ..inner };
    if !plot.is_empty() {
        areas(&step::stacks(profile, None, theme, plot.width), step::highest(profile), theme, plot, buf);
        step::phase_names(profile, theme, plot, buf);
    }
    true
}
