//! The figures of every configuration as bars, and the most that each phase of a step held.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::ComparisonFrame;
use super::bar;
use super::flips;
use super::metric::Metric;
use super::rows::{numbered, token_of, unit};
use crate::drawing::legend;
use crate::drawing::pane::{put, put_at, put_right, span};
use crate::drawing::theme::Token;
use crate::model::{Phase, Profile};
use crate::units::Bytes;

/// The width of a figure behind its bar.
const FIGURE: u16 = 9;
/// The width of a bar's label, if it stands before the bar.
const HEAD: u16 = 14;

/// Bars of one scale: one for each configuration that has the figure.
struct BarGroup {
    head: String,
    bars: Vec<Bar>,
    /// The value of a full bar; 0.0 if bars would say nothing.
    full: f64,
}

struct Bar {
    place: usize,
    value: f64,
    text: String,
}

/// The figures of the table. All bytes share one scale, so that any two bars can be compared.
fn figures(compared: &ComparisonFrame<'_>) -> Vec<BarGroup> {
    let unit = unit(compared);
    let group = |metric: Metric| {
        let figure = |(place, configuration)| {
            let figure = metric.of_configuration(configuration)?;
            Some(Bar { place, value: figure.median, text: metric.show(&figure, unit) })
        };
        let bars: Vec<Bar> = compared.all.iter().map(|one| &**one).enumerate().filter_map(figure).collect();
        let full = match metric {
            Metric::Allocated | Metric::Reserved | Metric::Stranded => most(compared),
            // The length of a single bar says nothing about a time or rate.
            _ if bars.len() < 2 => 0.0,
            _ => bars.iter().map(|bar| bar.value).fold(0.0, f64::max),
        };
        BarGroup { head: metric.head(compared.stage, unit), bars, full }
    };
    // A loss is not a cost, and a rate is the step's time again.
    let drawn = [Metric::Allocated, Metric::Reserved, Metric::Step, Metric::Stranded];
    drawn.map(group).into_iter().filter(|group| !group.bars.is_empty()).collect()
}

/// The most that was allocated in each phase of the step whose curve is drawn.
fn phases(compared: &ComparisonFrame<'_>) -> Vec<BarGroup> {
    let unit = unit(compared);
    let curve = |place: usize| -> Option<&Profile> { compared.all.get(place)?.curve.as_deref() };
    let highest: Vec<(usize, &[(Phase, Bytes)])> =
        (0..compared.all.len()).filter_map(|place| Some((place, curve(place)?.highest_by_phase()))).collect();
    let Some((_, order)) = highest.iter().find(|(place, _)| *place == compared.selected) else { return Vec::new() };
    let group = |phase: Phase| {
        let bar = |(place, of): &(usize, &[(Phase, Bytes)])| {
            // A phase without memory events has no maximum of its own.
            let (_, bytes) = of.iter().find(|(other, most)| *other == phase && *most > Bytes::ZERO)?;
            Some(Bar { place: *place, value: bytes.get() as f64, text: unit.figure(*bytes) })
        };
        let head = legend::phase_label(phase, usize::from(HEAD)).to_owned();
        BarGroup { head, bars: highest.iter().filter_map(bar).collect(), full: most(compared) }
    };
    order.iter().map(|(phase, _)| group(*phase)).filter(|group| !group.bars.is_empty()).collect()
}

/// The most bytes of any configuration: the value of a full bar of bytes.
fn most(compared: &ComparisonFrame<'_>) -> f64 {
    let reserved = compared.all.iter().filter_map(|one| Metric::Reserved.of_configuration(one));
    let curves = compared.all.iter().filter_map(|one| one.curve.as_deref()?.peak());
    let curves = curves.map(|sample| sample.allocated.get() as f64);
    reserved.map(|figure| figure.median).chain(curves).fold(0.0, f64::max)
}

/// Draws a group for each figure, then for each phase, as many as fit completely. Returns the rows used.
pub(super) fn render(compared: &ComparisonFrame<'_>, area: Rect, buf: &mut Buffer) -> u16 {
    let theme = compared.stage.theme;
    let mut y = 0;
    let unit = unit(compared).name();
    let highest =
        phases(compared).into_iter().map(|group| BarGroup { head: format!("peak in {}, {unit}", group.head), ..group });
    for group in figures(compared).into_iter().chain(highest) {
        let rows = u16::try_from(group.bars.len()).unwrap_or(u16::MAX).saturating_add(1);
        if y + rows > area.height {
            break;
        }
        put(area, y, vec![span(theme, Token::Dim, group.head)], buf);
        for (bar, row) in group.bars.iter().zip(y + 1..) {
            put(area, row, vec![numbered(bar.place, theme)], buf);
            draw(compared, bar, group.full, Rect { y: area.y + row, height: 1, ..area }, 2, buf);
        }
        // An empty row after it, if there is room.
        y += rows + 1;
    }
    y.min(area.height)
}

/// How many rows [`render_one`] takes; `None` if no phases are known.
pub(super) fn rows_of_one(compared: &ComparisonFrame<'_>) -> Option<u16> {
    let phases = phases(compared).len();
    let left = flips::wanted(compared).map_or_else(|| figures_with_bars(compared).len(), usize::from);
    let rows = left.max(phases + 1);
    (phases > 0).then(|| u16::try_from(rows).unwrap_or(u16::MAX))
}

/// The figures for which bars are of use.
fn figures_with_bars(compared: &ComparisonFrame<'_>) -> Vec<BarGroup> {
    figures(compared).into_iter().filter(|group| group.full > 0.0).collect()
}

/// For a single configuration: draws the effects of flips or its figures at the left, and its phases at the right, one row each.
pub(super) fn render_one(compared: &ComparisonFrame<'_>, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let half = area.width.saturating_sub(4) / 2;
    let left = Rect { width: half, ..area };
    let right = Rect { x: area.x + half + 4.min(area.width - half), width: half, ..area };
    let column = |groups: Vec<BarGroup>, from: u16, area: Rect, buf: &mut Buffer| {
        for (group, y) in groups.iter().zip(from..area.height) {
            let Some(bar) = group.bars.first() else { continue };
            put(area, y, vec![span(theme, Token::Dim, group.head.clone())], buf);
            draw(compared, bar, group.full, Rect { y: area.y + y, height: 1, ..area }, HEAD, buf);
        }
    };
    match flips::wanted(compared) {
        Some(_) => flips::render(compared, left, buf),
        None => column(figures_with_bars(compared), 0, left, buf),
    }
    let groups = phases(compared);
    if !groups.is_empty() {
        let head = format!("most allocated in each phase, {}", unit(compared).name());
        put(right, 0, vec![span(theme, Token::Dim, head)], buf);
        column(groups, 1, right, buf);
    }
}

/// Draws a bar from column `x` of a row on, and its figure at the right.
fn draw(compared: &ComparisonFrame<'_>, drawn: &Bar, full: f64, row: Rect, x: u16, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    put_right(row, 0, vec![span(theme, Token::Text, drawn.text.clone())], buf);
    let cells = row.width.saturating_sub(x + FIGURE);
    put_at(
        row,
        x,
        0,
        bar::bar(if full > 0.0 { drawn.value / full } else { 0.0 }, cells, theme, token_of(drawn.place)),
        buf,
    );
}
