//! The times of a step: its phases, and the copies beside them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::drawing::figures;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{CopiesView, Micros, Phase, StepsView};
use crate::tui::share;
use crate::tui::stage::TimeSource;

/// How many rows the pane needs for one device, with its frame: the phases and the copies.
pub(crate) const USUAL_ROWS: u16 = 8;

/// How many rows the pane needs. Ranks have one more, for exchanges.
pub(crate) fn wanted_rows(steps: &StepsView) -> u16 {
    let without =
        if steps.finished > 0 { parts(steps).iter().filter(|(.., time)| *time == Micros(0)).count() } else { 0 };
    USUAL_ROWS + u16::from(exchanges(steps)) - u16::try_from(without).unwrap_or(0)
}

/// The parts of a step's time: name, colour, time.
fn parts(steps: &StepsView) -> Vec<(&'static str, Token, Micros)> {
    let phases =
        Phase::ALL.into_iter().zip(steps.phases).map(|(phase, time)| (phase.label(), Token::from(phase), time));
    let exchange = exchanges(steps).then_some(("comm", Token::Communication, steps.exchange));
    phases.chain([("copy", Token::Copy, steps.copy)]).chain(exchange).collect()
}

/// True if there are other ranks to exchange data with.
fn exchanges(steps: &StepsView) -> bool {
    steps.exchange > Micros(0)
}

/// The width of a phase's name.
const LABEL: u16 = 10;
/// The width of its milliseconds and share.
const FIGURES: u16 = 16;

/// True if phases have times, or may have them because no step has ended yet.
pub(crate) fn are_timed(steps: &StepsView) -> bool {
    steps.finished == 0 || steps.phases.iter().any(|time| *time > Micros(0))
}

/// Draws the pane: a bar and milliseconds for each phase and for the copies, as medians of the last steps, which may
/// all be from before the last flip.
pub(crate) fn render(
    steps: &StepsView,
    before_flip: bool,
    clock: TimeSource,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let mut title = vec![span(theme, Token::Title, "step")];
    if steps.finished > 0 {
        title.push(span(theme, Token::Strong, format!(" {}", figures::milliseconds(steps.median))));
        let (unit, of) = match clock {
            TimeSource::Real => ("ms", "median of the last steps"),
            TimeSource::Simulated => ("ms simulated", "median"),
            TimeSource::Host => ("ms of the host", "median"),
        };
        title.push(span(theme, Token::Dim, format!(" {unit} · {}", if before_flip { "before the flip" } else { of })));
    }
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let mut rows = parts(steps);
    if !are_timed(steps) {
        put(inner, 0, vec![span(theme, Token::Dim, "phases unknown")], buf);
        return;
    }
    let longest =
        steps.phases.iter().chain([&steps.copy, &steps.exchange]).map(|time| time.0).max().unwrap_or(0).max(1);
    // If not all fit, the shortest are left out.
    while rows.len() > usize::from(inner.height) {
        let least = rows.iter().enumerate().min_by_key(|(place, (.., time))| (*time, std::cmp::Reverse(*place)));
        let Some((place, _)) = least else { break };
        rows.remove(place);
    }
    // Work on another stream is not part of the phases' time.
    let all: u64 = parts(steps).iter().map(|(.., time)| time.0).sum();
    let beside = all > steps.median.0 + steps.median.0 / 50;
    for (y, (label, token, time)) in (0..inner.height).zip(rows) {
        put(inner, y, vec![span(theme, Token::Dim, label)], buf);
        let bar = inner.width.saturating_sub(LABEL + FIGURES);
        let at = Rect { x: inner.x + LABEL, y: inner.y + y, width: bar, height: 1 };
        share::draw_plain(time.0, longest, token, theme, at, buf);
        if steps.finished > 0 {
            let share = if beside && matches!(token, Token::Copy | Token::Communication) {
                "beside".to_owned()
            } else {
                figures::percent(time.0, steps.median.0)
            };
            let figure = vec![
                span(theme, Token::Text, format!("{:>8}", figures::milliseconds(time))),
                span(theme, Token::Dim, format!("{share:>7}")),
            ];
            put_right(inner, y, figure, buf);
        }
    }
    if let Some(copies) = &steps.copies {
        pane::remark(span(theme, Token::Dim, speed(copies, clock)), area, buf);
    }
}

/// `copies 24.8 GB/s, pinned`.
fn speed(copies: &CopiesView, clock: TimeSource) -> String {
    let speed = copies.bytes_per_second / 1e9;
    let speed = if speed < 0.95 { format!("{:.0} MB/s", speed * 1e3) } else { format!("{speed:.1} GB/s") };
    format!("copies {speed}{}, {}", clock.of("", " sim"), copies.host.label())
}

/// A short name for a phase, for a line that must hold all of them, and a shorter one if that does not fit.
const fn short_label(phase: Phase, shorter: bool) -> &'static str {
    match (phase, shorter) {
        (Phase::Data, _) => "data",
        (Phase::Forward, false) => "forward",
        (Phase::Forward, true) => "forw",
        (Phase::Backward, false) => "backward",
        (Phase::Backward, true) => "backw",
        (Phase::Optimizer, _) => "optim",
        (Phase::ZeroGrad, _) => "zero",
    }
}

/// Draws the phases in one line: name and milliseconds, each in its colour.
pub(crate) fn render_line(steps: &StepsView, clock: TimeSource, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let figure = |name: &'static str, token: Token, time: Micros| {
        [
            Span::styled("▌", Style::new().fg(theme.color(token))),
            span(theme, Token::Dim, format!("{name} ")),
            span(theme, Token::Text, format!("{} ", figures::milliseconds(time))),
        ]
    };
    // Phases without time are left out if not all fit.
    let is_shown = |time: Micros, all: bool| all || time > Micros(0);
    let line = |shorter, all| {
        let mut line = vec![Span::raw(" ")];
        for (phase, time) in Phase::ALL.into_iter().zip(steps.phases).filter(|(_, time)| is_shown(*time, all)) {
            line.extend(figure(short_label(phase, shorter), phase.into(), time));
        }
        if is_shown(steps.copy, all) {
            line.extend(figure("copy", Token::Copy, steps.copy));
        }
        if exchanges(steps) {
            line.extend(figure("comm", Token::Communication, steps.exchange));
        }
        line.push(span(theme, Token::Dim, clock.of("ms", "ms sim")));
        line
    };
    let fits = |line: &Vec<Span<'_>>| line.iter().map(Span::width).sum::<usize>() <= usize::from(area.width);
    let longer = [line(false, true), line(true, true)].into_iter().find(fits);
    put(area, 0, longer.unwrap_or_else(|| line(true, false)), buf);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};

    #[test]
    fn the_line_of_phases_keeps_its_unit() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let times = [60, 58_000, 76_200, 180, 0].map(Micros);
        let steps = StepsView { phases: times, copy: Micros(2), ..StepsView::default() };
        let drawn = |width| {
            let area = Rect::new(0, 0, width, 1);
            let mut buffer = Buffer::empty(area);
            render_line(&steps, TimeSource::Simulated, &theme, area, &mut buffer);
            (0..width).map(|x| buffer[(x, 0)].symbol()).collect::<String>().trim_end().to_owned()
        };
        assert!(drawn(80).contains("▌forw 58.0") && drawn(80).ends_with("ms sim"), "{}", drawn(80));
        assert!(
            drawn(68).starts_with(" ▌data 0.06 ▌forw 58.0 ▌backw 76.2 ▌optim 0.18 ▌copy 0.002 ms sim"),
            "{}",
            drawn(68)
        );
        assert!(drawn(100).contains("▌forward 58.0") && drawn(100).ends_with("ms sim"), "{}", drawn(100));
    }
}
