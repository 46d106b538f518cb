//! The last steps of the only configuration, side by side: what there is to compare while there is no other.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::ComparisonFrame;
use super::rows::unit;
use crate::drawing::chart::{self, Axis, Stack};
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Column, History, Micros};
use crate::tui::screens::lab::{ColumnPart, Parts, column_stack};
use crate::units::{Bytes, GIB};

/// Cells of what a row is called.
const HEAD: u16 = 12;
/// The width of a step, and its width if there are few steps.
const STEP: u16 = 8;
const WIDE_STEP: u16 = 24;
/// The width between bars.
const GAP: u16 = 2;
/// From this many rows on there are bars.
const ROWS_FOR_BARS: u16 = 24;
/// How many steps back the step shown is searched for.
const FURTHEST: u64 = 256;

/// A step, and what is known of its end; or several consecutive steps whose figures are all equal, up to the last of them.
struct ComparedStep {
    column: Column,
    /// The last of the equal steps.
    last: u64,
    has_ended: bool,
    took: Option<Micros>,
    /// By how much its lowest allocated bytes exceed those of the step before.
    grew: Option<i64>,
}

impl ComparedStep {
    /// The figures that a person would compare.
    fn figures(&self, unit: ByteUnit) -> [String; 4] {
        [self.column.peak, self.column.reserved, self.column.stranded, self.column.floor].map(|of| unit.figure(of))
    }

    fn name(&self) -> String {
        let first = self.column.step;
        if self.last > first { format!("{first}–{}", self.last) } else { first.to_string() }
    }
}

/// A row: its name, and a step's figure.
type StepRow = (&'static str, fn(&ComparedStep, ByteUnit) -> Option<String>);

/// The rows, in the order in which they are dropped.
const ROWS: [StepRow; 6] = [
    ("allocated", |step, unit| Some(unit.figure(step.column.peak))),
    ("reserved", |step, unit| Some(unit.figure(step.column.reserved))),
    ("stranded after", |step, unit| step.has_ended.then(|| unit.figure(step.column.stranded))),
    ("floor", |step, unit| Some(unit.figure(step.column.floor))),
    ("grows", |step, unit| step.grew.filter(|_| step.has_ended).map(|by| grown(by, unit))),
    ("ms", |step, _| step.took.map(figures::milliseconds)),
];

/// The row of bytes that each step leaves behind, which exists if steps do so.
const GROWS: usize = 4;
/// This many consecutive steps that each leave something behind are not chance.
const GROWING: usize = 3;

/// The bytes that a step left behind, with a mark if they are more than zero.
fn grown(by: i64, unit: ByteUnit) -> String {
    let bytes = unit.figure(Bytes(by.unsigned_abs()));
    match by {
        0 => "0".to_owned(),
        1.. => format!("+{bytes} ▲"),
        _ => format!("−{bytes}"),
    }
}

/// True if each of the last steps left something behind.
fn grows(steps: &[ComparedStep]) -> bool {
    let ended = steps.iter().rev().filter(|step| step.has_ended).take(GROWING);
    let (mut all, mut growing) = (0, 0);
    for step in ended {
        all += 1;
        growing += usize::from(step.last == step.column.step && step.grew.is_some_and(|by| by > 0));
    }
    all == GROWING && growing == GROWING
}

/// Combines consecutive steps whose figures are all equal.
fn grouped(steps: Vec<ComparedStep>, unit: ByteUnit) -> Vec<ComparedStep> {
    let mut groups: Vec<ComparedStep> = Vec::new();
    for step in steps {
        match groups.last_mut() {
            Some(last) if last.has_ended && step.has_ended && last.figures(unit) == step.figures(unit) => {
                (last.last, last.took) = (step.last, step.took.or(last.took));
            }
            _ => groups.push(step),
        }
    }
    groups
}

/// How many of `rows` the band takes, with its frame: for the figures, and for bars below them if there is plenty of
/// room; `None` if there is at most one step.
pub(super) fn wanted(compared: &ComparisonFrame<'_>, kind: Frame, rows: u16) -> Option<u16> {
    let frame = if kind == Frame::Box { 2 } else { 1 };
    let bars = if rows >= ROWS_FOR_BARS { rows / 4 } else { 0 };
    (compared.is_one() && compared.stage.picture.history.columns() > 1).then_some(frame + 1 + ROWS.len() as u16 + bars)
}

/// The last `room` steps, or those from the one at `position` on if that is earlier; including the current one if `under_way`.
fn shown(history: &History, position: u64, room: u64, under_way: bool) -> Vec<ComparedStep> {
    let known = |index: &u64| history.column(0, *index).filter(|column| under_way || !history.is_under_way(column));
    let all = history.columns();
    let mut first = all.saturating_sub(room);
    while first > 0 && all - first < FURTHEST && known(&first).is_some_and(|column| column.position > position) {
        first -= 1;
    }
    let steps = (first..all.min(first + room)).filter_map(|index| {
        let column = known(&index)?;
        let next = history.column(0, index + 1).filter(|next| next.position > column.position);
        let took = next.and_then(|next| next.time.0.checked_sub(column.time.0)).map(Micros);
        let before = index.checked_sub(1).and_then(|before| known(&before));
        let grew = before.map(|before| column.floor.get().wrapping_sub(before.floor.get()) as i64);
        Some(ComparedStep { column, last: column.step, has_ended: !history.is_under_way(&column), took, grew })
    });
    steps.collect()
}

/// The unit for what a step leaves behind when steps are side by side: MiB up to a few GiB.
fn fine_unit(unit: ByteUnit, history: &History) -> ByteUnit {
    let run = history.column(history.level_of_run(1), 0);
    let is_small = run.is_some_and(|run| run.reserved.max(run.peak) < Bytes(4 * GIB));
    if is_small && unit == ByteUnit::GiB { ByteUnit::MiB } else { unit }
}

/// Draws the steps; `area` has the rows that [`wanted`] returned, or fewer.
pub(super) fn render(compared: &ComparisonFrame<'_>, kind: Frame, area: Rect, buf: &mut Buffer) {
    let (stage, unit) = (compared.stage, fine_unit(unit(compared), &compared.stage.picture.history));
    let (theme, picture) = (stage.theme, stage.picture);
    let room = usize::from(area.width.saturating_sub(HEAD + 4) / STEP);
    let position = picture.place();
    // A failed step is compared as well, and an interrupted one if it is looked at.
    let cut = !picture.goes_on()
        && picture.history.around(position).is_some_and(|column| picture.history.is_under_way(&column));
    let steps = grouped(shown(&picture.history, position, FURTHEST, cut || picture.view.autopsy.is_some()), unit);
    let at = steps.iter().rposition(|step| step.column.position <= position);
    let first = steps.len().saturating_sub(room).min(at.unwrap_or(usize::MAX));
    let steps: Vec<ComparedStep> = steps.into_iter().skip(first).take(room).collect();
    let rows: Vec<&StepRow> =
        ROWS.iter().enumerate().filter(|(row, _)| *row != GROWS || grows(&steps)).map(|(_, row)| row).collect();
    let mut title =
        vec![span(theme, Token::Title, "steps"), span(theme, Token::Dim, format!(" side by side · {}", unit.name()))];
    let figures = u16::try_from(1 + rows.len()).unwrap_or(u16::MAX);
    if pane::inside(kind, area).height > figures {
        let parts = [(ColumnPart::Reserved, " reserved"), (ColumnPart::Peak, " peak"), (ColumnPart::Floor, " floor")];
        for (part, name) in parts {
            title.extend([Span::raw("  "), legend::mark(part.ink(theme), theme), span(theme, Token::Dim, name)]);
        }
    }
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let at = steps.iter().rposition(|step| step.column.position <= position);
    let count = u16::try_from(steps.len()).unwrap_or(u16::MAX).max(1);
    let each = (inner.width.saturating_sub(HEAD) / count).clamp(STEP, WIDE_STEP);
    let cell = |number: usize, y: u16, text: &str, token: Token, buf: &mut Buffer| {
        let end = HEAD + each * u16::try_from(number + 1).unwrap_or(u16::MAX / each - 2);
        let width = u16::try_from(text.width()).unwrap_or(u16::MAX);
        put_at(inner, end.saturating_sub(width), y, vec![span(theme, token, text)], buf);
    };
    put(inner, 0, vec![span(theme, Token::Dim, "step")], buf);
    for (number, step) in steps.iter().enumerate() {
        let (mark, token) = if at == Some(number) { ("▼ ", Token::Accent) } else { ("", Token::Dim) };
        let part = if cut && !step.has_ended { "part of " } else { "" };
        cell(number, 0, &format!("{mark}{part}{}", step.name()), token, buf);
    }
    let usual = steps.iter().rev().filter(|step| step.has_ended).find_map(|step| step.grew).map(|by| 4 * by);
    for ((name, figure), y) in rows.into_iter().zip(1..inner.height) {
        put(inner, y, vec![span(theme, Token::Dim, *name)], buf);
        for (number, step) in steps.iter().enumerate() {
            let text = figure(step, unit).unwrap_or_else(|| "·".to_owned());
            // What the first steps keep for good is not a leak.
            let text = if step.grew > usual { text.trim_end_matches(" ▲").to_owned() } else { text };
            let token = match text.ends_with('▲') {
                true => Token::Warn,
                false if at == Some(number) => Token::Strong,
                false => Token::Text,
            };
            cell(number, y, &text, token, buf);
        }
    }
    // One blank row below the figures.
    let below = figures + 1;
    let below = Rect { y: inner.y + below, height: inner.height.saturating_sub(below), ..inner };
    bars(&steps, each, unit, theme, below, buf);
}

/// Draws a bar below the figures of each step, in `each` cells: its floor, its peak, and the reserved bytes.
fn bars(steps: &[ComparedStep], each: u16, unit: ByteUnit, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let Some(highest) = steps.iter().map(|step| step.column.reserved.max(step.column.peak)).max() else { return };
    let width = each.saturating_mul(u16::try_from(steps.len()).unwrap_or(u16::MAX));
    let plot = Rect { x: area.x + HEAD, width: width.min(area.width.saturating_sub(HEAD)), ..area };
    if plot.is_empty() {
        return;
    }
    let axis = Axis::fitted(unit, highest, plot.height);
    axis.draw(theme, Rect { x: plot.x - Axis::WIDTH, width: plot.width + Axis::WIDTH, ..plot }, plot, buf);
    let bar = |x: u16| {
        let step = steps.get(usize::from(x / each)).filter(|_| x % each >= GAP);
        step.map_or_else(Stack::default, |step| column_stack(&step.column, Parts::All, theme))
    };
    let stacks: Vec<Stack> = (0..plot.width).map(bar).collect();
    chart::areas(&stacks, axis.top, theme, plot, buf);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(steps: u64) -> History {
        let mut history = History::default();
        for step in 0..steps {
            history.begin(Column { step, position: 10 * step, peak: Bytes(step), ..Column::default() });
            history.end(Bytes::ZERO);
        }
        history
    }

    #[test]
    fn the_last_steps_are_shown_or_those_from_the_one_looked_at_on() {
        let steps = |position, room| -> Vec<u64> {
            shown(&history(20), position, room, false).iter().map(|step| step.column.step).collect()
        };
        assert_eq!(steps(u64::MAX, 3), [17, 18, 19]);
        assert_eq!(steps(55, 3), [5, 6, 7]);
        assert_eq!(steps(0, 2), [0, 1]);
    }

    #[test]
    fn a_step_under_way_is_none_to_compare() {
        let mut history = history(2);
        history.begin(Column { step: 2, position: 20, ..Column::default() });
        let shown = |under_way| shown(&history, u64::MAX, 8, under_way).len();
        assert_eq!((shown(false), shown(true)), (2, 3), "but where it failed");
    }

    #[test]
    fn steps_that_are_the_same_are_one_and_those_that_leave_something_behind_say_so() {
        let history = |floors: &[u64]| {
            let mut history = History::default();
            for (step, floor) in (0..).zip(floors) {
                let column = Column { step, position: 10 * step, floor: Bytes::mib(*floor), ..Column::default() };
                history.begin(Column { peak: column.floor, reserved: column.floor, ..column });
                history.end(Bytes::ZERO);
            }
            grouped(shown(&history, u64::MAX, FURTHEST, false), ByteUnit::MiB)
        };
        let steady = history(&[3, 5, 5, 5, 5]);
        assert_eq!(steady.iter().map(ComparedStep::name).collect::<Vec<_>>(), ["0", "1–4"]);
        assert!(!grows(&steady));
        let leaks = history(&[3, 5, 8, 11]);
        assert!(grows(&leaks) && leaks.len() == 4);
        assert_eq!(
            leaks.last().and_then(|step| step.grew).map(|by| grown(by, ByteUnit::MiB)).as_deref(),
            Some("+3.0 ▲")
        );
        assert_eq!(grown(-1024 * 1024, ByteUnit::MiB), "−1.0");
    }
}
