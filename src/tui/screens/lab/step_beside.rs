//! The last step of another rank beside that of the one shown, at the same scale.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

use super::step;
use crate::drawing::chart::{self, Ceiling, areas};
use crate::drawing::figures::ByteUnit;
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put_at, span};
use crate::drawing::theme::Token;
use crate::model::{Category, Profile};
use crate::source::RankFigures;
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// From this width on two curves fit side by side.
const LEAST_WIDTH: u16 = 100;

/// The rank whose step is drawn beside the one shown, if there is one and room for it.
fn other<'a>(stage: &Stage<'a>, area: Rect) -> Option<(&'a RankFigures, &'a Profile)> {
    let picture = stage.picture;
    let place = RankFigures::beside(&picture.ranks, picture.device.place).filter(|_| area.width >= LEAST_WIDTH)?;
    let of = &picture.ranks[place];
    Some((of, of.step.as_deref()?))
}

/// Draws the step of the rank shown, and another rank's beside it. Returns the plot of the first.
pub(super) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) -> Rect {
    let Some((of, profile)) = other(stage, area) else { return step::render(stage, kind, area, buf) };
    let [left, right] = Split::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let shown = stage.picture.shown_step();
    let largest = step::highest(profile).max(shown.map_or(Bytes::ZERO, step::highest));
    let plot = step::render_up_to(stage, kind, largest, left, buf);
    render_other(stage, kind, (of, profile, shown), largest, (right, plot), buf);
    plot
}

fn render_other(
    stage: &Stage<'_>,
    kind: Frame,
    (of, profile, shown): (&RankFigures, &Profile, Option<&Profile>),
    largest: Bytes,
    (area, beside): (Rect, Rect),
    buf: &mut Buffer,
) {
    let theme = stage.theme;
    let unit = step::unit(stage, largest);
    // Only the last step of another rank is known, so a user who looks back sees it beside an earlier one.
    let goes_on = stage.picture.is_live() && stage.picture.is_now();
    let is_other = !goes_on && shown.is_some_and(|shown| shown.step != profile.step);
    let when = if is_other { format!(" step {}", profile.step) } else { String::new() };
    let mut title = vec![
        span(theme, Token::Title, of.alike.words()),
        span(theme, Token::Text, when),
        span(theme, Token::Text, " peak "),
        span(theme, Token::Strong, unit.figure(step::highest(profile))),
        span(theme, Token::Dim, format!(" {}", unit.name())),
    ];
    let same = shown.filter(|_| !is_other);
    if let Some((category, words)) = same.and_then(|shown| difference(shown, profile, unit)) {
        title.extend([
            span(theme, Token::Text, " "),
            legend::legend_of(category, theme),
            span(theme, Token::Dim, format!(" {} {words}", legend::short_label(category))),
        ]);
    }
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    // Its rows are those of the chart beside it.
    let plot = Rect { y: beside.y, height: beside.height, ..chart::plot_in(inner, kind, 1) };
    if plot.is_empty() {
        put_at(inner, 0, 0, vec![span(theme, Token::Dim, unit.figure(step::highest(profile)))], buf);
        return;
    }
    let axis = Ceiling::axis(stage.ceiling(), unit, largest, plot.height);
    axis.draw(theme, inner, plot, buf);
    areas(&step::stacks(profile, None, theme, plot.width), axis.top, theme, plot, buf);
    if plot.bottom() < inner.bottom() {
        step::phases(profile, axis, theme, inner, plot, buf);
    }
}

/// The category in which the two differ most at their peaks, and by how much, if that is at least 1/1000 of the peak:
/// differences from rounding between stages and shards don't matter.
fn difference(shown: &Profile, other: &Profile, unit: ByteUnit) -> Option<(Category, String)> {
    let at = |profile: &Profile, category: Category| {
        profile.peak().map_or(Bytes::ZERO, |sample| sample.by_category[category as usize])
    };
    let category = Category::ALL.into_iter().max_by_key(|of| at(shown, *of).get().abs_diff(at(other, *of).get()))?;
    let [here, there] = [at(shown, category), at(other, category)];
    let (sign, by) = if there >= here { ("+", there - here) } else { ("−", here - there) };
    let is_news = by.get().saturating_mul(1000) >= step::highest(shown).get().max(1);
    is_news.then(|| (category, format!("{sign}{}", unit.or_smaller(by))))
}
