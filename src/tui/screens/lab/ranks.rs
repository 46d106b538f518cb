//! All ranks of a run: which one is shown, and which one needs most.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put_at, put_right, span};
use crate::drawing::theme::Token;
use crate::source::{RankFigures, RankState};
use crate::tui::action::Action;
use crate::tui::hold::Hold;
use crate::tui::stage::{Stage, TimeSource};
use crate::units::Bytes;

/// The most ranks with a row of their own.
const MOST: u16 = 8;
/// From this width on each rank has a bar.
const WITH_BAR: u16 = 84;
/// From this width on each rank has its step times.
const WITH_TIMES: u16 = 104;
/// The pane takes one row of this many below it.
const SHARE: u16 = 6;

/// How many rows the pane needs at the top of `area`, with its frame; 0 if the run has no ranks.
pub(crate) fn wanted_rows(stage: &Stage<'_>, area: Rect) -> u16 {
    match u16::try_from(stage.picture.ranks.len()).unwrap_or(u16::MAX) {
        0 => 0,
        ranks => ranks.min((area.height / SHARE).saturating_sub(2)).clamp(1, MOST) + 2,
    }
}

/// How many rows the line takes.
pub(crate) fn line_rows(stage: &Stage<'_>) -> u16 {
    u16::from(!stage.picture.ranks.is_empty())
}

/// The ranks in the order in which they get room. Of very many, first the one shown, then those that others wait for,
/// then the worst.
fn first(stage: &Stage<'_>, room: usize) -> Vec<usize> {
    let all = &stage.picture.ranks;
    let shown = Some(stage.picture.device.place).filter(|place| *place < all.len());
    let stops = |place: &usize| !matches!(all[*place].state, RankState::Trains | RankState::Waits);
    let stopping = (0..all.len()).filter(stops);
    let mut places: Vec<usize> = shown.into_iter().chain(stopping).chain(RankFigures::worst(all)).collect();
    places.extend(0..all.len());
    let mut kept: Vec<usize> = Vec::with_capacity(room);
    for place in places {
        if kept.len() < room && !kept.contains(&place) {
            kept.push(place);
        }
    }
    kept.sort_unstable();
    kept
}

fn unit(all: &[RankFigures]) -> ByteUnit {
    ByteUnit::for_largest(all.iter().map(|of| of.peak_reserved).max().unwrap_or_default())
}

/// A remark about a rank. If all are shown and equal, none is the worst.
fn remark(all: &[RankFigures], place: usize, unit: ByteUnit) -> Option<(Cow<'static, str>, Token)> {
    let state = match all[place].state {
        RankState::OutOfMemory => Some(("out of memory".into(), Token::Danger)),
        RankState::Failed => Some(("failed".into(), Token::Danger)),
        RankState::Lost => Some(("lost".into(), Token::Danger)),
        RankState::Silent(seconds) => Some((format!("silent {seconds} s").into(), Token::Warn)),
        RankState::Waits => Some(("waits".into(), Token::Dim)),
        RankState::Trains => None,
    };
    if state.is_some() {
        return state;
    }
    let shown = |of: &RankFigures| [of.peak_reserved, of.peak_allocated].map(|bytes| unit.figure(bytes));
    let stands_out = all.iter().any(|of| shown(of) != shown(&all[place]));
    (stands_out && RankFigures::worst(all) == Some(place)).then_some(("worst".into(), Token::Warn))
}

/// The times of a rank's last steps, and of their exchanges; empty if unknown, or if they are the answer to a question.
fn times(stage: &Stage<'_>, of: &RankFigures) -> Vec<Span<'static>> {
    if of.step_time.0 == 0 || stage.hold == Hold::Answer {
        return Vec::new();
    }
    let unit = match stage.clock() {
        TimeSource::Real => " ms",
        TimeSource::Simulated => " ms sim",
        TimeSource::Host => " ms host",
    };
    let figure = |micros, width| format!("{:>width$}", figures::milliseconds(micros));
    let mut line =
        vec![span(stage.theme, Token::Strong, figure(of.step_time, 9)), span(stage.theme, Token::Dim, unit.to_owned())];
    if of.exchange.0 > 0 {
        line.push(span(stage.theme, Token::Dim, ", comm"));
        line.push(span(stage.theme, Token::Strong, figure(of.exchange, 7)));
    }
    line
}

/// Draws the pane: a row for each rank that does work of its own.
pub(crate) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let (theme, all) = (stage.theme, &stage.picture.ranks);
    let unit = unit(all);
    let mut title = vec![span(theme, Token::Title, "ranks")];
    if let Some(of) = all.first() {
        let same = if of.alike.ranks.len() == of.alike.world as usize { ", all do the same" } else { "" };
        let way = of.alike.parallelism.map_or_else(String::new, |way| format!("{way} · "));
        title.push(span(theme, Token::Strong, format!(" {way}{}{same}", of.alike.world)));
    }
    let when = if stage.picture.is_now() { "now" } else { "here" };
    // In the colours of the bars.
    let words = [format!(" allocated {when}"), " its peak".to_owned(), format!(" peak of reserved, {}", unit.name())];
    title.push(span(theme, Token::Dim, " ·"));
    for ((glyph, token), word) in BARS.into_iter().zip(words) {
        title.extend([span(theme, token, format!(" {glyph}")), span(theme, Token::Dim, word)]);
    }
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let places = first(stage, usize::from(inner.height));
    let most = all.iter().map(|of| of.peak_reserved).max().unwrap_or_default();
    let label = all.iter().map(|of| of.alike.numbers().chars().count()).max().unwrap_or(0).clamp(1, 12);
    let width_of = |of| times(stage, of).iter().map(Span::width).sum::<usize>();
    let times_width = u16::try_from(all.iter().map(width_of).max().unwrap_or(0)).unwrap_or(u16::MAX);
    for (y, &place) in (0..inner.height).zip(&places) {
        let of = &all[place];
        let is_shown = place == stage.picture.device.place;
        let number = pane::cut(&of.alike.numbers(), label);
        let figure = |bytes: Bytes| span(theme, Token::Strong, format!("{:>9}", unit.figure(bytes)));
        let token = if is_shown { Token::Accent } else { Token::Text };
        let line = vec![
            span(theme, token, format!("{} {number:<label$}", if is_shown { "▶" } else { " " })),
            figure(of.allocated),
            figure(of.peak_allocated),
            figure(of.peak_reserved),
        ];
        let mut x = put_at(inner, 0, y, line, buf);
        if area.width >= WITH_TIMES {
            x = put_at(inner, x, y, times(stage, of), buf).max(x + times_width);
        }
        let x = x + 2;
        let told = remark(all, place, unit).map(|(word, token)| span(theme, token, word));
        put_right(inner, y, told.into_iter().collect(), buf);
        let bar = inner.width.saturating_sub(x + 15);
        if area.width >= WITH_BAR {
            put_at(inner, x, y, bar_of(stage, of, most, usize::from(bar)), buf);
        }
    }
    let more = all.len().saturating_sub(places.len());
    let more = (more > 0).then(|| figures::counted(more as u64, "more rank"));
    let next = (all.len() > 1).then(|| stage.keys.opens(Action::NextDevice, "next rank"));
    let way = stage.picture.is_live().then(|| stage.keys.opens(Action::NextWay, "another way"));
    let text: Vec<String> = [more, next, way].into_iter().flatten().filter(|text| !text.is_empty()).collect();
    if !text.is_empty() {
        pane::remark(span(theme, Token::Key, text.join(" · ")), area, buf);
    }
}

/// The parts of a bar: allocated bytes, those at the peak, and reserved bytes.
const BARS: [(&str, Token); 3] = [("█", Token::Allocated), ("▒", Token::Allocated), ("░", Token::Reserved)];

/// A bar with these parts, relative to the most that any rank has reserved.
fn bar_of(stage: &Stage<'_>, of: &RankFigures, most: Bytes, width: usize) -> Vec<Span<'static>> {
    let cells =
        |bytes: Bytes| (u128::from(bytes.get()) * width as u128).div_ceil(u128::from(most.get().max(1))) as usize;
    let ends = [of.allocated, of.peak_allocated, of.peak_reserved].map(cells);
    let mut x = 0;
    let mut line = Vec::with_capacity(ends.len());
    for ((glyph, token), end) in BARS.into_iter().zip(ends) {
        let end = end.min(width).max(x);
        line.push(Span::styled(glyph.repeat(end - x), Style::new().fg(stage.theme.color(token))));
        x = end;
    }
    line
}

/// Draws the ranks in one line, as many as fit, with allocated bytes if all fit with them.
pub(crate) fn render_line(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let fits = |line: &Vec<Span<'static>>| line.iter().map(Span::width).sum::<usize>() <= usize::from(area.width);
    let all = stage.picture.ranks.len();
    let shorter = (1..=all).rev().map(|room| line(stage, room, false));
    let mut lines = std::iter::once(line(stage, all, true)).chain(shorter);
    let line = lines.find(fits).unwrap_or_else(|| line(stage, 1, false));
    put_at(area, 0, 0, line, buf);
}

/// The line for `room` ranks.
fn line(stage: &Stage<'_>, room: usize, with_allocated: bool) -> Vec<Span<'static>> {
    let (theme, all) = (stage.theme, &stage.picture.ranks);
    let unit = unit(all);
    let heads = if with_allocated { " allocated/peak/reserved" } else { " peak/reserved" };
    let mut line = vec![span(theme, Token::Title, " ranks"), span(theme, Token::Dim, heads)];
    for place in first(stage, room) {
        let of = &all[place];
        let is_shown = place == stage.picture.device.place;
        let token = if is_shown { Token::Accent } else { Token::Text };
        let mark = if is_shown { "▶" } else { " " };
        let allocated = with_allocated.then_some(of.allocated);
        let figures = allocated.into_iter().chain([of.peak_allocated, of.peak_reserved]);
        let figures: Vec<String> = figures.map(|bytes| unit.figure(bytes)).collect();
        line.push(span(theme, token, format!(" {mark}{}", pane::cut(&of.alike.numbers(), 9))));
        line.push(span(theme, Token::Strong, format!(" {}", figures.join("/"))));
        // The rank that others wait for comes first.
        let told = remark(all, place, unit).filter(|_| of.state != RankState::Waits);
        line.extend(told.map(|(word, token)| span(theme, token, format!(" {word}"))));
    }
    if room < all.len() {
        line.push(span(theme, Token::Dim, format!("  {} more", all.len() - room)));
    }
    line.push(span(theme, Token::Dim, format!(" {}", unit.name())));
    line
}
