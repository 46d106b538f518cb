//! The curves of one step of each configuration, laid over each other.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Compared;
use super::rows::token_of;
use crate::model::Profile;
use crate::tui::chart::{self, Axis, Ink, Stack};
use crate::tui::figures::Unit;
use crate::tui::pane::{self, Frame, put, put_at, span};
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// A curve bears its number every so many columns.
const EVERY: usize = 16;

/// Draws the pane.
pub(super) fn render(compared: &Compared<'_>, kind: Frame, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let steps = compared.all.iter().any(|one| !one.knows_no_steps());
    let each = if steps { "allocated through a step of each" } else { "allocated through what was recorded" };
    let title =
        vec![span(theme, Token::Title, each), span(theme, Token::Dim, format!(" · filled: {}", compared.selected + 1))];
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
    let axis = Axis::new(top, plot.height);
    axis.draw(theme, inner, plot, buf);
    if let Some((_, profile)) = curves.iter().find(|(place, _)| *place == compared.selected) {
        filled(profile, axis, theme, plot, buf);
        if footer > 0 {
            phases(profile, theme, plot, buf);
        }
    }
    if footer > 0 {
        let unit = Unit::for_largest(axis.top).name();
        put(Rect { y: plot.bottom(), height: 1, ..inner }, 0, vec![span(theme, Token::Dim, format!("{unit:>4}"))], buf);
    }
    for (place, profile) in curves.iter().filter(|(place, _)| *place != compared.selected) {
        outline(*place, profile, axis, theme, plot, buf);
    }
}

fn filled(profile: &Profile, axis: Axis, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let fill = if theme.is_colorless() { "░" } else { "█" };
    let ink = Ink { token: Token::Allocated, fill };
    let stack = |sample: crate::model::Sample| {
        let mut stack = Stack::default();
        stack.add(sample.allocated, ink);
        stack
    };
    let stacks: Vec<Stack> = profile.in_columns(plot.width).map(stack).collect();
    chart::areas(&stacks, axis.top, theme, plot, buf);
}

/// A line through the heights of all columns; its number stands in it now and then.
fn outline(place: usize, profile: &Profile, axis: Axis, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let number = char::from_digit(u32::try_from(place + 1).unwrap_or(0) % 10, 10).unwrap_or(' ');
    let color = theme.color(token_of(place));
    let mut put = |x: u16, row: u16, symbol: char| {
        let cell = &mut buf[(plot.x + x, plot.bottom() - 1 - row)];
        let filled = cell.symbol() == "█";
        let behind = if filled { cell.fg } else { cell.bg };
        cell.set_char(symbol).set_fg(color).set_bg(behind);
    };
    let mut before = None;
    for (x, sample) in (0..plot.width).zip(profile.in_columns(plot.width)) {
        let row = axis.row(sample.allocated, plot.height);
        let from = before.replace(row).unwrap_or(row);
        for between in from.min(row) + 1..from.max(row) {
            put(x, between, '│');
        }
        let (leaves, arrives) = match row.cmp(&from) {
            Ordering::Greater => ('╯', '╭'),
            Ordering::Less => ('╮', '╰'),
            Ordering::Equal => ('─', '─'),
        };
        put(x, from, leaves);
        // Each its own columns, so that numbers do not hide each other.
        let bears = (usize::from(x) + EVERY - (place * 3 + 2) % EVERY).is_multiple_of(EVERY);
        put(x, row, if bears { number } else { arrives });
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
        let text = format!("│{}", phase.label().chars().take(room - 1).collect::<String>());
        end = put_at(below, x, plot.height, vec![span(theme, Token::from(*phase), text)], buf);
    }
}
