//! The curves of one step of each configuration, laid over each other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

use super::ComparisonFrame;
use super::metric::Metric;
use super::rows::{numbered, token_of};
use crate::drawing::chart::{Axis, Curve, EIGHTHS};
use crate::drawing::figures::ByteUnit;
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::Profile;
use crate::units::Bytes;

/// A curve carries its number in every column of this distance.
const EVERY: usize = 16;
/// From this many rows on many lines can be told apart.
const ROWS_FOR_ALL: u16 = 8;
/// The highest contrast of a background on which the lines of all configurations are visible.
const FAINT: f64 = 2.0;

/// Draws the pane.
pub(super) fn render(compared: &ComparisonFrame<'_>, kind: Frame, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let steps = compared.all.iter().any(|one| !one.knows_no_steps());
    let each = match (steps, compared.is_one()) {
        (true, true) => "allocated through a step",
        (true, false) => "allocated through a step of each",
        (false, _) => "allocated through the recording",
    };
    let mut title = vec![span(theme, Token::Title, each)];
    if !compared.is_one() {
        title.push(span(theme, Token::Dim, " · filled: "));
        title.push(span(theme, token_of(compared.selected), (compared.selected + 1).to_string()));
    }
    let lines = lines(compared, pane::inside(kind, area).height);
    if lines.len() + 1 < compared.all.len() {
        title.push(span(theme, Token::Dim, if lines.len() == 1 { " · line: " } else { " · lines: " }));
        title.extend(lines.iter().map(|place| numbered(*place, theme)));
    }
    let alike = alike(compared);
    if !alike.is_empty() {
        title.push(span(theme, Token::Dim, " · the same: "));
        title.extend(alike.iter().map(|place| numbered(*place, theme)));
    }
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let margin = u16::from(kind == Frame::Box);
    let footer = u16::from(inner.height >= 4);
    let plot = Rect {
        x: inner.x + Axis::WIDTH.min(inner.width),
        width: inner.width.saturating_sub(Axis::WIDTH + margin),
        height: inner.height.saturating_sub(footer),
        ..inner
    };
    let curves: Vec<(usize, &Profile)> = compared
        .all
        .iter()
        .enumerate()
        .filter_map(|(place, configuration)| Some((place, configuration.curve.as_deref()?)))
        .collect();
    let highest = |profile: &Profile| profile.peak().map_or(Bytes::ZERO, |sample| sample.allocated);
    let Some(top) = curves.iter().map(|(_, profile)| highest(profile)).max().filter(|_| !plot.is_empty()) else {
        return;
    };
    let axis = Axis::new(ByteUnit::for_largest(top), top, plot.height);
    axis.draw(theme, inner, plot, buf);
    // The selected configuration is drawn last, so that it has the colour of cells that lines share.
    let (others, selected): (Vec<_>, Vec<_>) = curves.into_iter().partition(|(place, _)| *place != compared.selected);
    let others: Vec<_> = others.into_iter().filter(|(place, _)| lines.contains(place)).collect();
    let line = |(place, profile): &(usize, &Profile)| {
        let heights = profile.in_columns(plot.width * Curve::COLUMNS).map(|sample| Some(sample.allocated));
        // Lines are identified by their colours, and the fill is faint.
        (*place, Curve::of_bytes(plot, axis, heights).in_its_colour())
    };
    // It is drawn as an area faint enough for the other lines to be visible on it. If no faint colour is available, it
    // is a line like the others, with the space below it shaded.
    let faint = faint(compared.selected, theme);
    let outlined = selected.iter().filter(|_| faint.is_none());
    let drawn: Vec<(usize, Curve)> = others.iter().chain(outlined).map(line).collect();
    let filled = selected.first().zip(faint);
    if let Some(((_, profile), faint)) = filled {
        fill(profile, axis, faint, plot, buf);
    }
    for (place, line) in &drawn {
        line.draw(token_of(*place), theme, buf);
    }
    if let Some(((place, profile), faint)) = filled {
        numbers_in_area(*place, profile, axis, faint, theme, plot, buf);
    }
    for (place, line) in &drawn {
        numbers(*place, line, theme, plot, buf);
    }
    if let Some((place, line)) = drawn.iter().find(|(place, _)| *place == compared.selected) {
        shade(*place, line, theme, plot, buf);
    }
    if footer > 0 {
        if let Some((_, profile)) = selected.first() {
            phases(profile, theme, plot, buf);
        }
        let unit = axis.unit.name();
        put(Rect { y: plot.bottom(), height: 1, ..inner }, 0, vec![span(theme, Token::Dim, format!("{unit:>4}"))], buf);
    }
}

/// The configurations whose lines are drawn with the selected one's: all, or in few rows, where lines would cover each
/// other, the baseline and the one that needs least memory.
fn lines(compared: &ComparisonFrame<'_>, rows: u16) -> Vec<usize> {
    let all = 0..compared.all.len();
    let others = all.filter(|place| *place != compared.selected);
    if rows >= ROWS_FOR_ALL || compared.all.len() <= 3 {
        return others.collect();
    }
    let least = Metric::Allocated.best(&compared.all);
    others.filter(|place| *place == compared.baseline || least.first() == Some(place)).collect()
}

/// Configurations whose step is like that of the filled one: their lines are hidden by it.
fn alike(compared: &ComparisonFrame<'_>) -> Vec<usize> {
    let curve = |place: usize| compared.all.get(place).and_then(|one| one.curve.as_deref());
    let heights = |profile: &Profile| -> Vec<Bytes> {
        profile.in_columns(Profile::SAMPLES as u16).map(|sample| sample.allocated).collect()
    };
    let Some(selected) = curve(compared.selected).map(heights) else { return Vec::new() };
    let others = (0..compared.all.len()).filter(|place| *place != compared.selected);
    others.filter(|place| curve(*place).is_some_and(|curve| heights(curve) == selected)).collect()
}

/// Writes the number of a configuration on its line in some columns. Each configuration has its own columns, so that
/// numbers don't hide each other.
fn numbers(place: usize, line: &Curve, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    for x in (0..plot.width).filter(|x| is_numbered(place, *x)) {
        let Some(y) = line.row_at(x) else { continue };
        let cell = &mut buf[(plot.x + x, plot.y + y)];
        // Where the line is interrupted by an edge, no number is written.
        if cell.symbol().chars().all(|symbol| ('\u{2800}'..='\u{28ff}').contains(&symbol)) {
            cell.set_char(number_of(place)).set_fg(theme.color(token_of(place)));
        }
    }
}

fn number_of(place: usize) -> char {
    char::from_digit(u32::try_from(place + 1).unwrap_or(0) % 10, 10).unwrap_or(' ')
}

fn is_numbered(place: usize, x: u16) -> bool {
    usize::from(x) % EVERY == (place * 3 + 2) % EVERY
}

/// A faint version of a configuration's colour, or if colours can't be mixed the borders' colour, if that is faint.
fn faint(place: usize, theme: &Theme) -> Option<Color> {
    let is_faint = || theme.contrast(Token::Border, Token::Surface).is_some_and(|contrast| contrast < FAINT);
    theme.faint(token_of(place)).or_else(|| is_faint().then(|| theme.color(Token::Border)))
}

/// The height of a curve in each column, in eighths of a row; at least one if there is anything.
fn eighths(profile: &Profile, axis: Axis, plot: Rect) -> impl Iterator<Item = (u16, u16)> {
    let heights = profile.in_columns(plot.width).map(move |sample| match sample.allocated {
        Bytes::ZERO => 0,
        bytes => u16::try_from(axis.eighths(bytes, plot.height)).unwrap_or(u16::MAX).clamp(1, 8 * plot.height),
    });
    (plot.left()..plot.right()).zip(heights)
}

/// Fills the area below a curve.
fn fill(profile: &Profile, axis: Axis, faint: Color, plot: Rect, buf: &mut Buffer) {
    for (x, height) in eighths(profile, axis, plot) {
        for (row, y) in (0..).zip((plot.top()..plot.bottom()).rev()) {
            let inside = height.saturating_sub(8 * row).min(8);
            if inside > 0 {
                buf[(x, y)].set_symbol(EIGHTHS[usize::from(inside)]).set_style(Style::new().fg(faint));
            }
        }
    }
}

/// Writes the number of the configuration along its area's upper edge, in some columns.
fn numbers_in_area(
    place: usize,
    profile: &Profile,
    axis: Axis,
    faint: Color,
    theme: &Theme,
    plot: Rect,
    buf: &mut Buffer,
) {
    for (x, height) in eighths(profile, axis, plot).filter(|(x, _)| is_numbered(place, *x - plot.x)) {
        // The highest row that belongs to it alone.
        let Some(row) = (height / 8).checked_sub(1) else { continue };
        let cell = &mut buf[(x, plot.bottom() - 1 - row)];
        if cell.symbol() == "█" {
            cell.set_char(number_of(place)).set_fg(theme.color(token_of(place))).set_bg(faint);
        }
    }
}

/// Shades the area below a line where nothing else does.
fn shade(place: usize, line: &Curve, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let border = theme.color(Token::Border);
    for x in 0..plot.width {
        let Some(outline) = line.row_at(x) else { continue };
        for y in outline + 1..plot.height {
            let cell = &mut buf[(plot.x + x, plot.y + y)];
            if cell.symbol() == " " || (cell.symbol() == "▁" && cell.fg == border) {
                cell.set_symbol("░").set_fg(theme.color(token_of(place)));
            }
        }
    }
}

fn phases(profile: &Profile, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let below = Rect { height: plot.height + 1, ..plot };
    let column = |event: u64| Profile::column_of(event, profile.events, usize::from(plot.width));
    let (mut end, mut named) = (0, false);
    for (index, (phase, event)) in profile.phases.iter().enumerate() {
        let x = column(*event);
        let next = profile.phases.get(index + 1).map_or(usize::from(plot.width), |(_, event)| column(*event));
        let room = next.saturating_sub(x);
        let x = u16::try_from(x).unwrap_or(u16::MAX);
        if room < 2 || x < end {
            continue;
        }
        let name = phase.map_or("", |phase| legend::phase_label(phase, room - 1));
        // Borders between unnamed parts are of no use.
        let ends = std::mem::replace(&mut named, !name.is_empty());
        if name.is_empty() && !ends {
            continue;
        }
        let token = phase.map_or(Token::Dim, Token::from);
        end = put_at(below, x, plot.height, vec![span(theme, token, format!("│{name}"))], buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};
    use crate::model::Sample;

    #[test]
    fn what_is_filled_is_as_high_as_its_curve() {
        let catalog = ThemeCatalog::default();
        let peaks: Vec<Bytes> = (0..60).map(|x| Bytes(x * 997 % 1000)).collect();
        let samples = peaks.iter().map(|bytes| Sample { allocated: *bytes, ..Sample::default() }).collect();
        let mut profile = Profile::default();
        profile.samples = samples;
        for name in ["dark", "light", "nord"] {
            let (theme, _) = catalog.load(name, ColorTier::True).unwrap();
            let faint = faint(1, &theme).unwrap();
            for rows in [3, 7, 20] {
                let plot = Rect::new(0, 0, 60, rows);
                let axis = Axis::new(ByteUnit::KiB, Bytes(1000), rows);
                let mut buf = Buffer::empty(plot);
                fill(&profile, axis, faint, plot, &mut buf);
                for (x, sample) in (0..60).zip(profile.in_columns(60)) {
                    let eighths = |y: u16| EIGHTHS.iter().position(|glyph| *glyph == buf[(x, y)].symbol()).unwrap();
                    let filled: usize = (0..rows).map(eighths).sum();
                    let wanted = sample.allocated.get() as f64 / axis.top.get() as f64 * 8.0 * f64::from(rows);
                    assert!((filled as f64 - wanted).abs() <= 1.0, "{name}, {rows} rows, {x}: {filled} for {wanted}");
                }
            }
        }
    }
}
