//! The figures of another allocator in one line: predicted, beside the run's own.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures;
use crate::drawing::pane::{self, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::source::Ghost;
use crate::tui::beside::{self, MARK};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// The least width of its name, if it is shown.
const NAME: usize = 10;

/// The parts of a comparing entry: label, figure, and difference from the run's own.
const COMPARED: usize = 3;

/// How many rows the line takes.
pub(crate) fn wanted_rows(stage: &Stage<'_>) -> u16 {
    u16::from(stage.picture.ghost.is_some())
}

/// Draws the line, if there is a ghost.
pub(crate) fn render_line(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let Some(ghost) = stage.picture.ghost.as_deref() else { return };
    let theme = stage.theme;
    let room = usize::from(area.width);
    let entries = entries(stage, ghost);
    let cells = |spans: &[Span<'static>]| spans.iter().map(Span::width).sum::<usize>();
    let mark = vec![span(theme, Token::Ghost, format!(" {MARK} ")), span(theme, Token::Title, "ghost ")];
    // The name is shortened in favour of the two most important figures.
    let figures: usize = entries.iter().take(2).map(|entry| cells(entry)).sum();
    let left = room.saturating_sub(cells(&mark) + figures);
    let mut line = mark;
    if left >= NAME || entries.len() < 2 {
        line.push(span(theme, Token::Text, pane::cut(&ghost.conditions.to_string(), left.max(NAME))));
    }
    for mut entry in entries {
        // The difference is dropped before the figure.
        if cells(&line) + cells(&entry) > room && entry.len() == COMPARED {
            entry.pop();
        }
        if cells(&line) + cells(&entry) <= room {
            line.extend(entry);
        }
    }
    put(area, 0, line, buf);
}

/// The entries, the most important first.
fn entries(stage: &Stage<'_>, ghost: &Ghost) -> Vec<Vec<Span<'static>>> {
    let theme = stage.theme;
    let dim = |text: String| vec![span(theme, Token::Dim, text)];
    if let Some(share) = ghost.catching_up {
        return vec![dim(format!("  catches up with the run, {:.0} %", share * 100.0))];
    }
    let (Some(figures), Some((other, own))) = (ghost.figures, ghost.step) else {
        return vec![dim("  starts at the next step".to_owned())];
    };
    let view = stage.view();
    let mut entries = vec![compared(theme, "reserved", other.reserved, own.reserved, Change::Share)];
    if beside::is_estimate(ghost) {
        entries.push(dim("  start estimated".to_owned()));
    }
    if figures.ooms > 0 {
        let requests = if figures.ooms == 1 { "request fails" } else { "requests fail" };
        entries.push(vec![span(theme, Token::Danger, format!("  {} {requests}", figures.ooms))]);
    }
    if figures.served > 0 {
        let failed = if figures.served == 1 { "failed request fits" } else { "failed requests fit" };
        entries.push(vec![span(theme, Token::Ok, format!("  {} {failed}", figures.served))]);
    }
    // The figures at the moment shown, if the ghost is known there. While all panels show a step's peak, those at that
    // step's end, which is mentioned.
    let marked = stage.picture.marked.is_some();
    if ghost.ended || marked && stage.picture.is_now() {
        entries.push(compared(theme, "stranded after", other.stranded, own.stranded, Change::Bytes));
    } else if stage.picture.is_now() {
        entries.push(compared(theme, "stranded", figures.stranded, view.ledger.stranded, Change::Bytes));
    } else if let Some(then) = stage.ghost {
        let (theirs, ours) = (then.ledger.stranded, stage.shown.ledger.stranded);
        entries.push(compared(theme, "stranded", theirs, ours, Change::Bytes));
    }
    if stage.picture.is_now() && !marked {
        let (theirs, ours) = (figures.segments, view.segments.len() as u64);
        let change = match theirs.cmp(&ours) {
            std::cmp::Ordering::Less => format!(" (−{})", ours - theirs),
            std::cmp::Ordering::Equal => String::new(),
            std::cmp::Ordering::Greater => format!(" (+{})", theirs - ours),
        };
        entries.push(vec![
            span(theme, Token::Dim, "  segments "),
            span(theme, Token::Text, theirs.to_string()),
            span(theme, verdict(theirs, ours), change),
        ]);
    }
    entries.push(dim(format!("  {}", beside::certainty(ghost))));
    if ghost.since > 0 {
        entries.push(dim(format!(" since step {}", ghost.since)));
    }
    entries
}

/// How a difference is written.
#[derive(Clone, Copy)]
enum Change {
    Share,
    Bytes,
}

/// A figure and its difference from the run's own.
fn compared(theme: &Theme, label: &str, other: Bytes, own: Bytes, change: Change) -> Vec<Span<'static>> {
    let sign = if other < own { "−" } else { "+" };
    let by = Bytes(other.get().abs_diff(own.get()));
    let text = match change {
        _ if by == Bytes::ZERO => " (same)".to_owned(),
        Change::Share if own > Bytes::ZERO => {
            let percent = by.get() as f64 / own.get() as f64 * 100.0;
            let digits = if percent < 9.95 { 1 } else { 0 };
            format!(" ({sign}{percent:.digits$} %)")
        }
        Change::Share | Change::Bytes => format!(" ({sign}{})", figures::short_bytes(by)),
    };
    vec![
        span(theme, Token::Dim, format!("  {label} ")),
        span(theme, Token::Strong, figures::bytes(other)),
        span(theme, verdict(other.get(), own.get()), text),
    ]
}

/// Less memory is good news.
const fn verdict(other: u64, own: u64) -> Token {
    if other < own {
        Token::Ok
    } else if other > own {
        Token::Warn
    } else {
        Token::Dim
    }
}
