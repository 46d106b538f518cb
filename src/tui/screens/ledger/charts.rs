//! Two charts over time: the five accounts stacked up to reserved, and the share that is lost in holes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::chart::{self, Ceiling, Ink, Shares, Stack};
use crate::drawing::figures;
use crate::drawing::legend::{accounts, mark};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Ledger, OutlineMoment, Study};
use crate::source::SourceKind;
use crate::tui::moments::Columns;
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// The value that stands for a share of one.
const WHOLE: f64 = 1e6;
/// From this many rows on the largest hole is distinguished from the others.
const ROWS_OF_PARTS: u16 = 4;

/// Draws both charts. Returns their plots, in which a click moves the cursor.
pub(super) fn render(stage: &Stage<'_>, kind: Frame, upper: Rect, lower: Rect, buf: &mut Buffer) -> Vec<Rect> {
    let theme = stage.theme;
    let reading = stage.picture.reading.as_ref();
    let study = stage.picture.study.as_deref().filter(|study| reading.is_none() && !study.moments.is_empty());
    let Some(study) = study else {
        let text = match (reading, stage.picture.studying) {
            (Some(reading), _) => format!("{}: the figures beside are of the end", reading.words()),
            (None, Some(part)) => format!("reading the events … {:.0} %", 100.0 * part),
            (None, None) => "no step has begun yet".to_owned(),
        };
        let title = vec![span(theme, Token::Title, "ledger")];
        let inner = pane::frame(kind, title, theme.style(Token::Border), upper, buf);
        put(inner, inner.height / 2, vec![span(theme, Token::Dim, format!("  {text}"))], buf);
        if !lower.is_empty() {
            pane::frame(kind, vec![span(theme, Token::Title, "fragmentation")], theme.style(Token::Border), lower, buf);
        }
        return Vec::new();
    };
    let mut plots = vec![held(stage, study, kind, !lower.is_empty(), upper, buf)];
    if !lower.is_empty() {
        plots.push(lost(stage, study, kind, lower, buf));
    }
    plots
}

/// The index of the moment at the cursor, if nothing moves.
fn cursor(stage: &Stage<'_>, study: &Study) -> Option<usize> {
    let inside = stage.position().filter(|position| (study.begin..=study.end).contains(position));
    inside.and_then(|position| study.moment_at(position))
}

/// The name of the window.
fn window(stage: &Stage<'_>, study: &Study) -> String {
    let first = study.steps.first().map_or(stage.view().steps.finished, |step| step.what);
    let last = study.steps.last().map_or(first, |step| step.what);
    match &stage.picture.kind {
        // Not every snapshot has steps.
        SourceKind::Snapshot(_) if stage.states.ledger.whole || study.steps.is_empty() => "of the recording".to_owned(),
        _ if stage.states.ledger.whole && first != last => format!("of the whole run, steps {first}–{last}"),
        _ => format!("of step {first}"),
    }
}

/// A title that takes as many spans as fit.
struct Title {
    line: Vec<Span<'static>>,
    room: usize,
}

impl Title {
    fn new(theme: &Theme, name: &'static str, width: u16) -> Self {
        let line = vec![span(theme, Token::Title, name)];
        Self { room: usize::from(width).saturating_sub(6 + name.len()), line }
    }

    /// Adds these spans if there is room for all of them. Returns whether there was.
    fn push(&mut self, spans: Vec<Span<'static>>) -> bool {
        let cells: usize = spans.iter().map(Span::width).sum();
        let left = self.room.checked_sub(cells);
        if let Some(left) = left {
            self.room = left;
            self.line.extend(spans);
        }
        left.is_some()
    }
}

/// Draws the stacked accounts and returns the plot. Without a strip below that shows the stranded share, the title has it.
fn held(stage: &Stage<'_>, study: &Study, kind: Frame, with_strip: bool, area: Rect, buf: &mut Buffer) -> Rect {
    let theme = stage.theme;
    let highest = study.moments.iter().map(|moment| moment.reserved).max().unwrap_or_default();
    let mut title = Title::new(theme, "ledger", area.width);
    title.push(vec![span(theme, Token::Dim, format!(" {}", window(stage, study)))]);
    title.push(vec![
        span(theme, Token::Text, " · reserved up to "),
        span(theme, Token::Strong, figures::bytes(highest)),
    ]);
    if !with_strip {
        let worst = study.moments.iter().map(fragmentation).fold(0.0, f64::max);
        let part = |words: &'static str| {
            let share = span(theme, alarm(worst), format!("{:.0} %", 100.0 * worst));
            vec![span(theme, Token::Text, " · "), mark(stranded(theme), theme), span(theme, Token::Text, words), share]
        };
        if !title.push(part(" stranded up to ")) {
            title.push(part(" "));
        }
    }
    if let Some(part) = stage.picture.studying.filter(|_| stage.is_still()) {
        title.push(vec![span(theme, Token::Warn, format!(" · reading {:.0} %", 100.0 * part))]);
    }
    let inner = pane::frame(kind, title.line, theme.style(Token::Border), area, buf);
    let plot = chart::plot_in(inner, kind, 1);
    if plot.is_empty() {
        return plot;
    }
    let ceiling = stage.ceiling();
    let axis = Ceiling::fitted(ceiling, stage.unit().of_part(highest), highest, plot.height);
    axis.draw(theme, inner, plot, buf);
    let columns = Columns::new(study, plot.width);
    let most = |x| columns.most(x, |moment| (moment.reserved, moment.allocated)).copied().unwrap_or_default();
    let moments: Vec<OutlineMoment> = (0..plot.width).map(most).collect();
    let stack = |moment: &OutlineMoment| {
        let mut stack = Stack::default();
        for account in accounts(&moment.ledger, theme) {
            stack.add(account.bytes, account.ink);
        }
        stack
    };
    let stacks: Vec<Stack> = moments.iter().map(stack).collect();
    chart::areas(&stacks, axis.top, theme, plot, buf);
    if let Some(ceiling) = ceiling
        && !ceiling.draw(highest, axis, |_| Some(ceiling.height()), theme, plot, buf)
    {
        ceiling.note(theme, plot, buf);
    }
    put_at(inner, 0, plot.height, vec![span(theme, Token::Dim, format!("{:>4}", axis.unit.name()))], buf);
    columns.axis_of_time(theme, Rect { height: plot.height + 1, ..plot }, plot.height, buf);
    cursor_line(stage, study, plot, Some(plot.bottom()), buf);
    plot
}

fn cursor_line(stage: &Stage<'_>, study: &Study, plot: Rect, below: Option<u16>, buf: &mut Buffer) {
    if let Some(cursor) = cursor(stage, study) {
        chart::cursor(plot, Columns::new(study, plot.width).column_of(cursor), below, stage.theme, buf);
    }
}

/// The stranded share of reserved at a moment. A moment of many events had at least this share at one of them.
fn fragmentation(moment: &OutlineMoment) -> f64 {
    share(moment.stranded, moment.reserved).max(moment.ledger.fragmentation())
}

/// The token for such a share.
fn alarm(share: f64) -> Token {
    if share >= 0.25 { Token::Warn } else { Token::Strong }
}

/// The ink of stranded bytes, as in charts of accounts.
fn stranded(theme: &Theme) -> Ink {
    let [.., stranded] = accounts(&Ledger::default(), theme);
    stranded.ink
}

fn share(part: Bytes, whole: Bytes) -> f64 {
    if whole == Bytes::ZERO { 0.0 } else { part.get() as f64 / whole.get() as f64 }
}

/// Draws the stranded share of reserved, with the largest hole below the others, and returns the plot.
fn lost(stage: &Stage<'_>, study: &Study, kind: Frame, area: Rect, buf: &mut Buffer) -> Rect {
    let theme = stage.theme;
    let worst = study.moments.iter().map(fragmentation).fold(0.0, f64::max);
    let largest_hole = study.moments.iter().map(|moment| moment.largest_hole).max().unwrap_or_default();
    let ink = |token, density| Ink { token, fill: if theme.is_colorless() { density } else { "█" } };
    let inside = pane::inside(kind, area.intersection(buf.area));
    // In few rows the two parts would come and go, so the lost share is drawn as one.
    let parts = chart::plot_in(inside, kind, 0).height >= ROWS_OF_PARTS;
    let (hole, rest) = (ink(Token::Stranded, "▓"), ink(Token::Ghost, "░"));
    let mut title = Title::new(theme, "fragmentation", area.width);
    title.push(vec![
        span(theme, Token::Text, " up to "),
        span(theme, alarm(worst), format!("{:.0} %  ", 100.0 * worst)),
    ]);
    if !parts {
        title.push(vec![span(theme, Token::Dim, "of reserved · ")]);
    }
    title.push(vec![
        if parts { mark(hole, theme) } else { Span::raw("") },
        span(theme, Token::Dim, if parts { " largest hole up to " } else { "largest hole up to " }),
        span(theme, Token::Strong, figures::bytes(largest_hole)),
    ]);
    if parts {
        title.push(vec![Span::raw("  "), mark(rest, theme), span(theme, Token::Dim, " others")]);
        title.push(vec![span(theme, Token::Dim, " · of reserved")]);
    }
    let inner = pane::frame(kind, title.line, theme.style(Token::Border), area, buf);
    let plot = chart::plot_in(inner, kind, 0);
    if plot.is_empty() {
        return plot;
    }
    let shares = Shares::new(worst, plot.height);
    shares.draw(theme, inner, plot, buf);
    let columns = Columns::new(study, plot.width);
    let stack = |x| {
        let moment = columns.most(x, fragmentation).copied().unwrap_or_default();
        let lost = fragmentation(&moment);
        let of_hole = if parts { share(moment.largest_hole, moment.reserved).min(lost) } else { lost };
        let mut stack = Stack::default();
        stack.add(Bytes((of_hole * WHOLE) as u64), hole);
        stack.add(Bytes(((lost - of_hole) * WHOLE) as u64), rest);
        stack
    };
    let stacks: Vec<Stack> = (0..plot.width).map(stack).collect();
    chart::areas(&stacks, Bytes((shares.top() * WHOLE) as u64), theme, plot, buf);
    cursor_line(stage, study, plot, None, buf);
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_lost_is_the_worst_that_is_known_of_a_moment() {
        let ledger = Ledger { live: Bytes(90), stranded: Bytes(10), ..Ledger::default() };
        let moment = OutlineMoment { ledger, reserved: Bytes(100), stranded: Bytes(40), ..OutlineMoment::default() };
        assert_eq!(fragmentation(&moment), 0.4);
        assert_eq!(fragmentation(&OutlineMoment { stranded: Bytes(10), reserved: Bytes(200), ..moment }), 0.1);
        assert_eq!(fragmentation(&OutlineMoment::default()), 0.0);
    }
}
