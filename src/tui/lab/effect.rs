//! The measured effect of the last flip: medians before and after.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::Clock;
use super::pane::{self, Frame, put, put_right, span};
use crate::model::{Effect, Measurement};
use crate::tui::figures::{self, Unit};
use crate::tui::theme::{Theme, Token};

/// Rows that the pane wants, with its frame.
pub(crate) const WANTED_ROWS: u16 = 8;

/// One compared figure.
struct Row {
    label: &'static str,
    before: String,
    after: String,
    unit: String,
    change: Option<String>,
    verdict: Token,
}

/// Draws the pane. `loud`: it has just become known.
pub(crate) fn render(
    effect: Option<&Effect>,
    clock: Clock,
    items: &str,
    loud: bool,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let Some(effect) = effect else {
        let title = vec![span(theme, Token::Title, "measured effect")];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
        let text = "Flip a switch: what it does to memory and time is measured here, steps before against steps after.";
        let width = usize::from(inner.width.saturating_sub(2));
        for (y, line) in (0..inner.height).zip(pane::wrap(text, width)) {
            pane::put_at(inner, 1, y, vec![span(theme, Token::Dim, line)], buf);
        }
        return;
    };
    let border = theme.style(if loud { Token::Accent } else { Token::Border });
    let inner = pane::frame(Frame::Box, title(effect, loud, theme), border, area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let mut y = 0;
    if let Some(released) = effect.released {
        let line =
            vec![span(theme, Token::Text, "given back     "), span(theme, Token::Strong, figures::bytes(released))];
        put(inner, y, line, buf);
        y += 1;
    }
    if let (Some(before), Some(after)) = (&effect.before, &effect.after) {
        for row in rows(before, after, clock, items) {
            if y >= inner.height {
                break;
            }
            draw_row(&row, loud, theme, inner, y, buf);
            y += 1;
        }
    } else if y < inner.height {
        let text = if effect.before.is_none() {
            "No steps before the flip to compare with."
        } else {
            "The first steps after a flip are not counted."
        };
        for (y, line) in (y..inner.height).zip(pane::wrap(text, usize::from(inner.width))) {
            put(inner, y, vec![span(theme, Token::Dim, line)], buf);
        }
    }
}

fn progress(effect: &Effect) -> Option<String> {
    let (done, wanted) = effect.measured;
    (done < wanted).then(|| format!("{done}/{wanted} steps"))
}

fn title(effect: &Effect, loud: bool, theme: &Theme) -> Vec<Span<'static>> {
    let token = if loud { Token::Accent } else { Token::Title };
    let mut title =
        vec![span(theme, Token::Key, format!("{} ", effect.key)), span(theme, token, effect.title.to_string())];
    if let Some(progress) = progress(effect) {
        title.push(span(theme, Token::Dim, format!(" · measuring {progress}")));
    } else if effect.after.is_some() && effect.before.is_some() {
        let steps = figures::counted(effect.measured.0 as u64, "step");
        title.push(span(theme, Token::Dim, format!(" · after {steps}")));
    }
    title
}

fn rows(before: &Measurement, after: &Measurement, clock: Clock, items: &str) -> Vec<Row> {
    let unit = Unit::for_largest(before.peak_reserved.max(after.peak_reserved));
    let bytes = |label, a: crate::units::Bytes, b: crate::units::Bytes| Row {
        label,
        before: unit.figure(a),
        after: unit.figure(b),
        unit: unit.name().to_owned(),
        change: figures::change(a.get() as f64, b.get() as f64),
        verdict: verdict(a.get() as f64, b.get() as f64),
    };
    let mut rows = vec![
        bytes("peak allocated", before.peak_allocated, after.peak_allocated),
        bytes("peak reserved", before.peak_reserved, after.peak_reserved),
        bytes("stranded", before.stranded, after.stranded),
        Row {
            label: clock.of("step", "step, sim"),
            before: figures::milliseconds(before.step),
            after: figures::milliseconds(after.step),
            unit: "ms".to_owned(),
            change: figures::change(before.step.0 as f64, after.step.0 as f64),
            verdict: verdict(before.step.0 as f64, after.step.0 as f64),
        },
        Row {
            label: clock.of("throughput", "throughput, sim"),
            before: figures::short_count(before.throughput),
            after: figures::short_count(after.throughput),
            unit: items.to_owned(),
            change: figures::change(before.throughput, after.throughput),
            verdict: verdict(after.throughput, before.throughput),
        },
    ];
    if let (Some(before), Some(after)) = (before.loss, after.loss) {
        rows.push(Row {
            label: "loss",
            before: format!("{before:.3}"),
            after: format!("{after:.3}"),
            unit: String::new(),
            change: None,
            verdict: Token::Text,
        });
    }
    rows
}

/// Whether `after` being less than `before` is good news, bad news or noise (within 2 %).
fn verdict(before: f64, after: f64) -> Token {
    if after < before * 0.98 {
        Token::Ok
    } else if after > before * 1.02 {
        Token::Warn
    } else {
        Token::Dim
    }
}

fn draw_row(row: &Row, loud: bool, theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    let figure = if loud { Token::Strong } else { Token::Text };
    let line = vec![
        span(theme, Token::Dim, format!("{:<15}", row.label)),
        span(theme, Token::Text, format!("{:>6}", row.before)),
        span(theme, Token::Dim, " → "),
        span(theme, figure, format!("{:>6}", row.after)),
        span(theme, Token::Dim, format!(" {}", row.unit)),
    ];
    let end = put(area, y, line, buf);
    if let Some(change) = &row.change {
        let verdict = theme.style(row.verdict);
        let style = if loud { verdict.add_modifier(ratatui::style::Modifier::BOLD) } else { verdict };
        if usize::from(area.width.saturating_sub(end)) > change.chars().count() {
            put_right(area, y, vec![Span::styled(change.clone(), style)], buf);
        }
    }
}

/// Draws the effect in one line.
pub(crate) fn render_line(
    effect: Option<&Effect>,
    clock: Clock,
    loud: bool,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let Some(effect) = effect else {
        put(area, 0, vec![span(theme, Token::Dim, " flip a switch: its effect is measured here")], buf);
        return;
    };
    let token = if loud { Token::Accent } else { Token::Text };
    let mut line =
        vec![span(theme, Token::Key, format!(" {} ", effect.key)), span(theme, token, format!("{}: ", effect.title))];
    if let Some(released) = effect.released {
        line.push(span(theme, token, format!("{} given back  ", figures::bytes(released))));
    }
    if let (Some(before), Some(after)) = (&effect.before, &effect.after) {
        let all = rows(before, after, clock, "");
        for (index, name) in [(0, "allocated"), (1, "reserved"), (3, clock.of("step", "sim step"))] {
            if let Some(Row { change: Some(change), verdict, .. }) = all.get(index) {
                line.push(span(theme, Token::Dim, format!("{name} ")));
                line.push(span(theme, *verdict, format!("{change}  ")));
            }
        }
    }
    if let Some(progress) = progress(effect) {
        line.push(span(theme, Token::Dim, format!("measuring {progress}")));
    }
    put(area, 0, line, buf);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_good_news_and_noise_is_none() {
        assert_eq!(verdict(100.0, 70.0), Token::Ok);
        assert_eq!(verdict(100.0, 101.0), Token::Dim);
        assert_eq!(verdict(100.0, 130.0), Token::Warn);
    }
}
