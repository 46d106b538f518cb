//! The peaks and floors of every step. Nothing is overwritten, and every change is marked where it happened.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use crate::drawing::chart::{self, Axis, Ceiling, Curve, Ink, MARKS, Stack, areas, levels};
use crate::drawing::pane::{self, Frame, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Column, Evidence, MarkKind, Page};
use crate::source::Moment;
use crate::tui::beside;
use crate::tui::stage::Stage;
use crate::tui::states::cells_of_column;
use crate::tui::words;
use crate::units::Bytes;

/// A part of a column.
#[derive(Clone, Copy)]
pub(crate) enum ColumnPart {
    /// Allocated throughout the step.
    Floor,
    /// Allocated at some moment of the step.
    Peak,
    /// Reserved beyond that.
    Reserved,
}

impl ColumnPart {
    /// The ink of a part. Colours differ enough to tell parts apart; without colours dots do.
    pub(crate) fn ink(self, theme: &Theme) -> Ink {
        let (token, dots) = match self {
            Self::Floor => (Token::Allocated, MARKS[0]),
            Self::Peak => (Token::AllocatedSwing, MARKS[1]),
            Self::Reserved => (Token::Reserved, MARKS[2]),
        };
        Ink { token, fill: if theme.is_colorless() { dots } else { "█" } }
    }
}

/// How many cells a ghost's line continues behind the last step.
const BEYOND: usize = 3;
/// From this many rows on marks have a row of their own.
const LEAST: u16 = 5;

/// Draws the pane. Returns its plot, in which a click moves the cursor.
pub(crate) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) -> Rect {
    let theme = stage.theme;
    let history = &stage.picture.history;
    let width = area.width.saturating_sub(Axis::WIDTH + if kind == Frame::Box { 3 } else { 0 });
    let level = stage.states.lab.zoom.unwrap_or_else(|| history.level_of_run(usize::from(width)));
    let mut page = history.page(level, usize::from(width));
    // A step that has just begun would look like a dip, so it is left out while steps go by and nothing in it is looked at.
    let apart = |last: &Column| stage.view().autopsy.is_none() && stage.picture.place() <= last.position;
    if history.ends_in_part(level) && (stage.picture.goes_on() || page.columns.last().is_some_and(apart)) {
        page.columns.pop();
    }
    let cells = cells_of_column(stage.picture, page.columns.len(), usize::from(width));
    let ghost = repeated(&ghost_of(stage, &page, level), cells);
    page.columns = repeated(&page.columns, cells);
    page.marks.iter_mut().for_each(|(column, _)| *column *= cells);
    let largest = page.columns.iter().map(|column| column.reserved.max(column.peak)).max().unwrap_or_default();
    let aim = stage.aim.filter(|_| !page.columns.is_empty());
    let largest = ghost.iter().flatten().copied().chain(aim.map(|aim| aim.bytes)).fold(largest, Bytes::max);
    let inner = pane::inside(kind, area.intersection(buf.area));
    let legend = HistoryLegend::of(stage, (level, cells), Parts::All);
    let listed = legend.rows(area, inner);
    let all = inner;
    let inner = Rect { y: inner.y + listed, height: inner.height - listed, ..inner };
    let footer = if inner.height >= LEAST { 2 } else { u16::from(inner.height >= 3) };
    let plot = Rect {
        x: inner.x + Axis::WIDTH.min(inner.width),
        width: width.min(inner.width.saturating_sub(Axis::WIDTH)),
        height: inner.height.saturating_sub(footer),
        ..inner
    };
    let ceiling = stage.ceiling().map(|ceiling| ceiling.full_in(full_in(stage, ceiling)));
    // If the ghost's line coincides with the reserved bytes, they must end on a row, with one row above.
    let with_room = !ghost.is_empty() && plot.height > 2;
    let room = if with_room { largest.get() / u64::from(plot.height - 1) } else { 0 };
    let largest = Bytes(largest.get().saturating_add(room));
    let axis = if with_room {
        Axis::fitted(stage.unit(), largest, plot.height)
    } else {
        Ceiling::fitted(ceiling, stage.unit(), largest, plot.height)
    };
    let parts = Parts::of(&page.columns, axis, plot.height);
    let legend = if parts == Parts::All { legend } else { HistoryLegend::of(stage, (level, cells), parts) };
    pane::frame(kind, legend.title(listed, theme, area), theme.style(Token::Border), area, buf);
    legend.draw(listed, all, buf);
    if page.columns.is_empty() && !inner.is_empty() {
        put_at(inner, 1, inner.height / 2, vec![span(theme, Token::Dim, "no step has ended yet")], buf);
        return plot;
    }
    if plot.is_empty() {
        return plot;
    }
    axis.draw(theme, inner, plot, buf);
    if theme.is_colorless() {
        let heights = |column: &Column| [parts.floor(column), column.peak, column.reserved.max(column.peak)];
        levels(&page.columns.iter().map(heights).collect::<Vec<_>>(), axis.top, theme, plot, buf);
    } else {
        let stacks: Vec<Stack> = page.columns.iter().map(|column| stack(column, parts, theme)).collect();
        areas(&stacks, axis.top, theme, plot, buf);
    }
    // The line continues behind the last step, where it is visible next to what it undercuts, however small the difference.
    let on = ghost.last().into_iter().flat_map(|reserved| [*reserved; BEYOND]);
    let heights = ghost.iter().copied().chain(on).flat_map(|reserved| [reserved; Curve::COLUMNS as usize]);
    Curve::of_bytes(plot, axis, heights).draw(Token::Ghost, theme, buf);
    if let Some(aim) = aim {
        aim.line().draw(largest, axis, |_| Some(aim.bytes), theme, plot, buf);
    }
    if let Some(ceiling) = ceiling {
        // Past columns have the limit of that time; from the last step on the current limit counts.
        let height = |x: u16| {
            page.columns.get(usize::from(x)).map_or(Some(ceiling.height()), |column| {
                if stage.view().limit.is_some() { column.limit } else { Some(ceiling.height()) }
            })
        };
        if !ceiling.draw(largest, axis, height, theme, plot, buf) {
            ceiling.note(theme, plot, buf);
        }
    }
    cursor(stage, &page, plot, footer >= 1, buf);
    if footer >= 1 {
        steps(&page, axis, theme, inner, plot, buf);
    }
    if footer >= 2 {
        marks(stage, &page, plot, buf);
    }
    plot
}

/// In how many steps a leak fills the room below the ceiling, if steps go on.
fn full_in(stage: &Stage<'_>, ceiling: Ceiling) -> Option<u64> {
    let rise = stage.findings().iter().find_map(|finding| match finding.evidence {
        Evidence::Leak { rise, .. } if rise > Bytes::ZERO => Some(rise),
        _ => None,
    });
    let left = ceiling.height().saturating_sub(stage.picture.known().ledger.reserved());
    rise.filter(|_| stage.picture.goes_on()).map(|rise| left.get() / rise.get())
}

/// Repeats each column.
fn repeated<T: Clone>(columns: &[T], times: usize) -> Vec<T> {
    columns.iter().flat_map(|column| vec![column.clone(); times]).collect()
}

/// The most that the ghost reserved, column by column; nothing where it did not follow yet.
fn ghost_of(stage: &Stage<'_>, page: &Page, level: usize) -> Vec<Option<Bytes>> {
    let Some(ghost) = stage.picture.ghost.as_deref() else { return Vec::new() };
    let column = |x: usize| ghost.history.column(level, page.first + x as u64).map(|column| column.reserved);
    (0..page.columns.len()).map(|x| column(x).filter(|reserved| *reserved > Bytes::ZERO)).collect()
}

/// The parts of columns that are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Floor, peak and reserved.
    All,
    /// The floor extends to the peak. A leak lifts the floor through the rows of a chart, and a thin peak on it would
    /// be visible only where a row happens to end between the two.
    FloorToPeak,
}

impl Parts {
    /// The highest peak above its floor, in eighths of a row, that is left out.
    const THIN: u64 = 3;

    fn of(columns: &[Column], axis: Axis, rows: u16) -> Self {
        let most = columns.iter().map(|column| column.peak.saturating_sub(column.floor)).max().unwrap_or_default();
        let floors = || columns.iter().map(|column| column.floor);
        let climbed = floors().max().unwrap_or_default().saturating_sub(floors().min().unwrap_or_default());
        let rides = axis.eighths(climbed, rows) >= 8 && axis.eighths(most, rows) <= Self::THIN;
        if rides { Self::FloorToPeak } else { Self::All }
    }

    /// The drawn height of a column's floor.
    fn floor(self, column: &Column) -> Bytes {
        match self {
            Self::All => column.floor,
            Self::FloorToPeak => column.peak,
        }
    }
}

/// A step's areas, from its floor to the reserved bytes.
pub(crate) fn stack(column: &Column, parts: Parts, theme: &Theme) -> Stack {
    let mut stack = Stack::default();
    let floor = parts.floor(column);
    stack.add(floor, ColumnPart::Floor.ink(theme));
    stack.add(column.peak.saturating_sub(floor), ColumnPart::Peak.ink(theme));
    stack.add(column.reserved.saturating_sub(column.peak), ColumnPart::Reserved.ink(theme));
    stack
}

/// The legend with the figures of the step shown: in the title, or in rows.
struct HistoryLegend {
    entries: Vec<Vec<Span<'static>>>,
    unit: &'static str,
    scale: String,
}

impl HistoryLegend {
    fn of(stage: &Stage<'_>, (level, cells): (usize, usize), parts: Parts) -> Self {
        let theme = stage.theme;
        let step = shown(stage).unwrap_or_default();
        let unit = stage.unit();
        let entry = |(token, symbol): (Token, &str), label: &str, figure: String| {
            vec![
                span(theme, token, format!(" {symbol}")),
                span(theme, Token::Text, format!(" {label} ")),
                span(theme, Token::Strong, figure),
            ]
        };
        let part = |part: ColumnPart, label: &str, bytes: Bytes| {
            let ink = part.ink(theme);
            let symbol = if ink.fill == "█" { "■" } else { ink.fill };
            entry((ink.token, symbol), label, unit.or_smaller(bytes))
        };
        let (mut entries, mut named): (Vec<Vec<Span<'static>>>, _) = (Vec::new(), unit.name());
        if stage.picture.history.columns() > 0 {
            entries.push(part(ColumnPart::Reserved, "reserved", step.reserved));
            let peak = if parts == Parts::All { ColumnPart::Peak } else { ColumnPart::Floor };
            entries.push(part(peak, "peak", step.peak));
            // If the floor has a smaller unit, it names its own, and the common unit comes after the others.
            if unit.or_smaller(step.floor) != unit.figure(step.floor)
                && let Some(peak) = entries.last_mut()
            {
                peak.push(span(theme, Token::Dim, format!(" {}", std::mem::take(&mut named))));
            }
            // If both end in one row, they are one area, whose mark both have.
            entries.push(part(ColumnPart::Floor, "floor", step.floor));
            if let Some((step, _)) = stage.picture.ghost.as_deref().and_then(|ghost| ghost.step) {
                let figure = if named.is_empty() { unit.named(step.reserved) } else { unit.figure(step.reserved) };
                entries.push(entry((Token::Ghost, beside::MARK), "ghost", figure));
            }
        }
        let scale = match level {
            0 if cells > 1 => format!("{cells} columns per step"),
            0 => "one step per column".to_owned(),
            level => format!("{} steps per column", 1u64 << level.min(63)),
        };
        Self { entries, unit: named, scale }
    }

    /// How many rows it takes above a chart in `area`: none if the title has room for it. In few rows the last entries
    /// are left out, unless the title has room for the first.
    fn rows(&self, area: Rect, inner: Rect) -> u16 {
        let cells = |entries: &[Vec<Span<'_>>]| entries.iter().flatten().map(Span::width).sum::<usize>();
        let all = u16::try_from(self.entries.len()).unwrap_or(u16::MAX);
        let most = inner.height.saturating_sub(LEAST);
        let first = &self.entries[..self.entries.len().min(1)];
        if cells(&self.entries) <= Self::room(area) || most < all && cells(first) <= Self::room(area) {
            0
        } else {
            all.min(most)
        }
    }

    fn room(area: Rect) -> usize {
        usize::from(area.width.saturating_sub(14))
    }

    /// The title of a chart with the legend in `rows` rows of its own, or else beside its name.
    fn title(&self, rows: u16, theme: &Theme, area: Rect) -> Vec<Span<'static>> {
        let mut title = vec![span(theme, Token::Title, "history")];
        let mut room = Self::room(area);
        let mut push = |spans: Vec<Span<'static>>| {
            let cells: usize = spans.iter().map(Span::width).sum();
            if cells <= room {
                room -= cells;
                title.extend(spans);
            }
        };
        if rows == 0 {
            self.entries.iter().cloned().for_each(&mut push);
        }
        if !self.entries.is_empty() {
            if !self.unit.is_empty() {
                push(vec![span(theme, Token::Dim, format!(" {}", self.unit))]);
            }
            push(vec![span(theme, Token::Dim, format!(" · {}", self.scale))]);
        }
        title
    }

    /// Draws the legend in rows, with the figures aligned.
    fn draw(self, rows: u16, area: Rect, buf: &mut Buffer) {
        let width = |entry: &[Span<'_>]| entry.iter().map(Span::width).sum::<usize>();
        let widest = self.entries.iter().map(|entry| width(entry)).max().unwrap_or_default();
        for (row, mut entry) in (0..rows).zip(self.entries) {
            let air = " ".repeat(widest.saturating_sub(width(&entry)));
            entry.insert(2.min(entry.len()), Span::raw(air));
            put_at(area, 0, row, entry, buf);
        }
    }
}

/// The step of the moment shown, whose curve is below.
fn shown(stage: &Stage<'_>) -> Option<Column> {
    let history = &stage.picture.history;
    match stage.picture.moment() {
        // If memory ran out, the current step is the interesting one.
        Moment::Now if stage.view().autopsy.is_some() => history.page(0, 1).columns.pop(),
        Moment::Now => history.latest(),
        // "This step" is the step of the mark, which later steps may have followed.
        Moment::StepPeak | Moment::Cursor | Moment::RunPeak | Moment::Failure => history.around(stage.picture.place()),
    }
}

/// Draws a line where the cursor looks back, or at the mark of a run that is over.
fn cursor(stage: &Stage<'_>, page: &Page, plot: Rect, has_axis: bool, buf: &mut Buffer) {
    if matches!(stage.picture.moment(), Moment::Now | Moment::StepPeak) {
        return;
    }
    let position = stage.picture.place();
    let behind = page.columns.partition_point(|column| column.position <= position);
    let Some(x) = behind.checked_sub(1).and_then(|x| u16::try_from(x).ok()).filter(|x| *x < plot.width) else { return };
    chart::cursor(plot, x, has_axis.then(|| plot.bottom()), stage.theme, buf);
}

/// Writes the numbers of some steps below the columns in which they began.
fn steps(page: &Page, axis: Axis, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
    let row = plot.bottom() - inner.y;
    put_at(inner, 0, row, vec![span(theme, Token::Dim, format!("{:>4}", axis.unit.name()))], buf);
    let (Some(first), Some(last)) = (page.columns.first(), page.columns.last()) else { return };
    let each = (last.step.saturating_sub(first.step)) as f64 / page.columns.len() as f64;
    let every = nice_step((each * 12.0).ceil() as u64);
    let area = Rect { height: plot.height + 1, ..plot };
    let mut free_from = 0;
    let mut named = None;
    for (x, column) in (0..plot.width).zip(&page.columns) {
        // A column may hold several steps; the named step may be any of them.
        let next = page.columns.get(usize::from(x) + 1).map_or(column.step + 1, |next| next.step);
        let label = next.saturating_sub(1).max(column.step) / every * every;
        let label = if x == 0 { column.step } else { label };
        if label < column.step || named == Some(label) {
            continue;
        }
        named = Some(label);
        let text = if x == 0 { format!("step {label}") } else { label.to_string() };
        let width = u16::try_from(text.len()).unwrap_or(u16::MAX).saturating_add(1);
        // The foot of the cursor has precedence over a number.
        let is_free =
            (x..x + width).all(|x| buf.cell((plot.x + x, plot.bottom())).is_none_or(|cell| cell.symbol() == " "));
        if x < free_from || width > plot.width.saturating_sub(x) || !is_free {
            continue;
        }
        put_at(area, x, plot.height, vec![span(theme, Token::Dim, "╵"), span(theme, Token::Dim, text)], buf);
        free_from = x + width + 2;
    }
}

/// The smallest of 1, 2, 5, 10, 20, 50 … that is at least `n`.
fn nice_step(n: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            if power.saturating_mul(factor) >= n {
                return power.saturating_mul(factor);
            }
        }
        power = power.saturating_mul(10);
        if power == u64::MAX {
            return power;
        }
    }
}

/// The width of a mark and its key, with a blank behind them. Marks closer together are combined.
const MARK: u16 = 3;

/// Marks where something changed: with its text if there is room, otherwise its key, otherwise only the mark. Of
/// several marks in one place the keys are written, and a failure comes first.
fn marks(stage: &Stage<'_>, page: &Page, plot: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let area = Rect { height: plot.height + 2, ..plot };
    let mut shown: Vec<(u16, Vec<&MarkKind>)> = Vec::new();
    for (column, mark) in &page.marks {
        let Some(x) = u16::try_from(*column).ok().filter(|x| *x < plot.width) else { continue };
        let failed = mark.kind == MarkKind::OutOfMemory;
        match shown.last_mut().filter(|(first, _)| x - *first < MARK) {
            Some((_, kinds)) if failed => kinds.insert(0, &mark.kind),
            Some((_, kinds)) => kinds.push(&mark.kind),
            None => shown.push((x, vec![&mark.kind])),
        }
    }
    for (index, (x, kinds)) in shown.iter().enumerate() {
        let next = shown.get(index + 1).map_or(plot.width, |(x, _)| x.saturating_sub(1));
        let room = usize::from(next.saturating_sub(*x)).max(1);
        let token = if *kinds[0] == MarkKind::OutOfMemory { Token::Danger } else { Token::Accent };
        let named: Vec<_> = kinds.iter().map(|kind| words::mark(stage.keys, kind)).collect();
        if let Some(text) = mark_texts(&named).into_iter().find(|text| text.width() <= room) {
            put_at(area, *x, plot.height + 1, vec![span(theme, token, text)], buf);
        }
    }
}

/// The texts for marks in one place, by key and text, the longest first.
fn mark_texts<K: AsRef<str>, T: AsRef<str>>(named: &[(K, T)]) -> Vec<String> {
    let Some((key, text)) = named.first().map(|(key, text)| (key.as_ref(), text.as_ref())) else { return Vec::new() };
    let mut keys: Vec<&str> = Vec::new();
    for key in named.iter().map(|(key, _)| key.as_ref()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let more = if named.len() > 1 { format!(" +{}", named.len() - 1) } else { String::new() };
    let mut texts = vec![format!("▲{key} {text}{more}"), format!("▲{key}{more}"), format!("▲{key}"), "▲".to_owned()];
    // A failure is written in words.
    if keys.len() == named.len() && keys.len() > 1 && key != words::FAILED {
        texts.insert(0, format!("▲{}", keys.join(" ")));
        texts.insert(1, format!("▲{}", keys.concat()));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_in_one_place_are_called_by_their_keys() {
        assert_eq!(mark_texts(&[("m", "fp16")]), ["▲m fp16", "▲m", "▲m", "▲"]);
        assert_eq!(mark_texts(&[("m", "fp16"), ("c", "on"), ("a", "2")])[..2], ["▲m c a", "▲mca"]);
        assert_eq!(mark_texts(&[("r", "losses"), ("r", "graph")])[0], "▲r losses +1");
    }

    #[test]
    fn a_thin_peak_goes_with_the_floor_that_a_leak_lifts_in_all_columns_or_in_none() {
        let axis = Axis::new(crate::drawing::figures::ByteUnit::MiB, Bytes::mib(80), 8);
        // A row has ten MiB.
        let parts = |rise: u64, peak: u64| {
            let floor = |step: u64| Bytes::mib(5 + rise * step);
            let column =
                |step| Column { floor: floor(step), peak: floor(step) + Bytes::mib(peak), ..Column::default() };
            Parts::of(&(0..10).map(column).collect::<Vec<_>>(), axis, 8)
        };
        assert_eq!(parts(6, 3), Parts::FloorToPeak);
        assert_eq!(parts(6, 20), Parts::All, "a peak of two rows is seen wherever the floor ends");
        assert_eq!(parts(0, 3), Parts::All, "a floor that stays is even");
    }

    #[test]
    fn step_labels_are_round() {
        for (n, nice) in [(0, 1), (1, 1), (2, 2), (3, 5), (7, 10), (11, 20), (320, 500)] {
            assert_eq!(nice_step(n), nice);
        }
    }
}
