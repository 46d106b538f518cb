//! The curves of one step of each configuration, laid over each other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Compared;
use super::rows::token_of;
use crate::model::Profile;
use crate::tui::chart::{Axis, Curve};
use crate::tui::figures::Unit;
use crate::tui::legend;
use crate::tui::pane::{self, Frame, put, put_at, span};
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// A curve bears its number every so many columns.
const EVERY: usize = 16;
/// Contrast up to which a ground lets lines of all configurations be seen.
const FAINT: f64 = 2.0;

/// Draws the pane.
pub(super) fn render(compared: &Compared<'_>, kind: Frame, area: Rect, buf: &mut Buffer) {
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
    let axis = Axis::new(Unit::for_largest(top), top, plot.height);
    axis.draw(theme, inner, plot, buf);
    // The selected one is drawn last: where lines share a cell, it has the colour.
    let (others, selected): (Vec<_>, Vec<_>) = curves.into_iter().partition(|(place, _)| *place != compared.selected);
    let line = |(place, profile): &(usize, &Profile)| {
        let heights = profile.in_columns(plot.width * Curve::COLUMNS).map(|sample| Some(sample.allocated));
        (*place, Curve::of_bytes(plot, axis, heights))
    };
    let lines: Vec<(usize, Curve)> = others.iter().chain(&selected).map(line).collect();
    for (place, line) in &lines {
        line.draw(token_of(*place), theme, buf);
    }
    for (place, line) in &lines {
        numbers(*place, line, theme, plot, buf);
    }
    if let Some((place, line)) = lines.last().filter(|(place, _)| *place == compared.selected) {
        fill(*place, line, theme, plot, buf);
    }
    if footer > 0 {
        if let Some((_, profile)) = selected.first() {
            phases(profile, theme, plot, buf);
        }
        let unit = axis.unit.name();
        put(Rect { y: plot.bottom(), height: 1, ..inner }, 0, vec![span(theme, Token::Dim, format!("{unit:>4}"))], buf);
    }
}

/// The number of a configuration in its line, now and then; each has its own columns, so that they do not hide each other.
fn numbers(place: usize, line: &Curve, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let number = char::from_digit(u32::try_from(place + 1).unwrap_or(0) % 10, 10).unwrap_or(' ');
    for x in (0..plot.width).filter(|x| usize::from(*x) % EVERY == (place * 3 + 2) % EVERY) {
        if let Some(y) = line.row_at(x) {
            buf[(plot.x + x, plot.y + y)].set_char(number).set_fg(theme.color(token_of(place)));
        }
    }
}

/// Shades what lies below a line, faintly, so that other lines stay what they are in it. Where the theme's
/// borders are faint it is a ground behind them, a byte a cell; a shade takes three.
fn fill(place: usize, line: &Curve, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let border = theme.color(Token::Border);
    let as_ground = theme.contrast(Token::Border, Token::Surface).is_some_and(|contrast| contrast < FAINT);
    for x in 0..plot.width {
        let Some(outline) = line.row_at(x) else { continue };
        // A ground takes whole cells: it ends below the line, so that a flat line has a flat edge.
        for y in outline + 1..plot.height {
            let cell = &mut buf[(plot.x + x, plot.y + y)];
            let bare = cell.symbol() == " " || (cell.symbol() == "▁" && cell.fg == border);
            match (as_ground, bare) {
                (true, true) => _ = cell.set_symbol(" ").set_bg(border),
                (true, false) => _ = cell.set_bg(border),
                (false, true) => _ = cell.set_symbol("░").set_fg(theme.color(token_of(place))),
                (false, false) => {}
            }
        }
    }
}

fn phases(profile: &Profile, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let below = Rect { height: plot.height + 1, ..plot };
    let column = |event: u64| Profile::column_of(event, profile.events, usize::from(plot.width));
    let mut end = 0;
    for (index, (phase, event)) in profile.phases.iter().enumerate() {
        let x = column(*event);
        let next = profile.phases.get(index + 1).map_or(usize::from(plot.width), |(_, event)| column(*event));
        let room = next.saturating_sub(x);
        let x = u16::try_from(x).unwrap_or(u16::MAX);
        if room < 2 || x < end {
            continue;
        }
        let name = phase.map_or("", |phase| legend::phase_label(phase, room - 1));
        let token = phase.map_or(Token::Dim, Token::from);
        end = put_at(below, x, plot.height, vec![span(theme, token, format!("│{name}"))], buf);
    }
}
