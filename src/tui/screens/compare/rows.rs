//! The table: a row for each configuration, and above it which of them is best.

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::ComparisonFrame;
use super::differences::only_allocator;
use super::metric::Metric;
use super::notes::notes;
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put, put_at, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Configuration, Figure, Micros};
use crate::source::SourceKind;
use crate::tui::action::Action;
use crate::tui::compared::{change, verdict};
use crate::tui::copied::{self, Clipping};
use crate::tui::stage::{Stage, Targets};
use crate::tui::states::{CompareAction, ScreenAction};
use crate::units::Bytes;

/// The inner width of a table with one line per row.
const ONE_LINE: u16 = 107;
/// The least and the greatest width of names in it. Less important columns are dropped in favour of names.
const NAME: (u16, u16) = (20, 36);
/// The width before the name, for the mark of the selection and the number.
const MARGIN: u16 = 5;
/// The width between the longest name and the figures, for the number of steps.
const BETWEEN: u16 = 10;
/// The width before the figures if they are below the name.
const INDENT: u16 = 3;
/// Marks the best of a column.
const BEST: &str = "✓";

/// The colour of a configuration's number and curve.
pub(super) fn token_of(place: usize) -> Token {
    const COLOURS: [Token; 7] = [
        Token::Activations,
        Token::Optimizer,
        Token::Temporaries,
        Token::Gradients,
        Token::Inputs,
        Token::Workspaces,
        Token::Parameters,
    ];
    COLOURS[place % COLOURS.len()]
}

/// A column of the table.
struct MetricColumn {
    metric: Metric,
    /// The indices of the best configurations by this column.
    best: Vec<usize>,
    /// The width of its figures, with the mark of the best.
    figure: usize,
    /// The width of its changes, with the blank before them.
    change: usize,
}

impl MetricColumn {
    /// The width between two columns.
    const GAP: usize = 2;

    /// A column as wide as its content.
    fn of(metric: Metric, compared: &ComparisonFrame<'_>, unit: ByteUnit, one_line: bool) -> Self {
        let best = metric.best(&compared.all);
        let cells = |(place, one): (usize, &Arc<Configuration>)| {
            let text = figure(metric, &metric.of_configuration(one)?, unit, one_line);
            Some(text.width() + 2 * usize::from(best.contains(&place)))
        };
        let figures = compared.all.iter().enumerate().filter_map(cells).max().unwrap_or(1);
        let head = metric.head(compared.stage, unit).width();
        let changes = (0..compared.all.len()).filter_map(|place| Some(changed(metric, compared, place)?.0.width() + 1));
        let change = changes.max().unwrap_or(0);
        // A heading may extend over the changes.
        Self { metric, figure: figures.max(head.saturating_sub(change)).max(7), change, best }
    }

    fn cells(&self) -> usize {
        self.figure + self.change + Self::GAP
    }
}

/// A figure, in words.
fn figure(metric: Metric, figure: &Figure, unit: ByteUnit, one_line: bool) -> String {
    let spread = figures::milliseconds(Micros(figure.spread() as u64));
    match metric {
        Metric::Step if one_line && spread != "0.0" => format!("{} ±{spread}", metric.show(figure, unit)),
        _ => metric.show(figure, unit),
    }
}

/// How a configuration differs from the baseline, in words, and whether that is good news; `None` if it is not mentioned.
fn changed(metric: Metric, compared: &ComparisonFrame<'_>, place: usize) -> Option<(String, Token)> {
    let less = metric.less_is_good().filter(|_| metric.has_change() && !compared.is_one())?;
    let base = metric.of_configuration(&compared.all[compared.baseline])?;
    let figure = metric.of_configuration(compared.all.get(place)?)?;
    if place == compared.baseline {
        return Some(("base".to_owned(), Token::Dim));
    }
    let words = change(&base, &figure).split(" ±").next().unwrap_or_default().to_owned();
    Some((words, verdict(&base, &figure, less)))
}

/// The width of the longest name, within its bounds.
fn longest_name(compared: &ComparisonFrame<'_>) -> u16 {
    let cells = |place| compared.name(place).chars().count();
    let longest = (0..compared.all.len()).map(cells).max().unwrap_or(0);
    u16::try_from(longest).unwrap_or(u16::MAX).clamp(NAME.0, NAME.1)
}

/// The width of the longest name with its remark.
fn whole_names(compared: &ComparisonFrame<'_>) -> u16 {
    let failed = compared.all.iter().any(|one| one.out_of_memory);
    let longest = (0..compared.all.len()).map(|place| compared.name(place).chars().count()).max().unwrap_or(0);
    u16::try_from(longest).unwrap_or(u16::MAX - 64).clamp(NAME.0, u16::MAX - 64) + if failed { 6 } else { 0 }
}

/// The columns that fit, among those known for any configuration.
fn columns(compared: &ComparisonFrame<'_>, width: u16, one_line: bool) -> Vec<MetricColumn> {
    let unit = unit(compared);
    let mut room =
        usize::from(width.saturating_sub(if one_line { MARGIN + longest_name(compared) + 9 } else { INDENT }));
    let fits = |column: &MetricColumn| {
        let left = (room + MetricColumn::GAP).checked_sub(column.cells());
        room = left.map_or(room, |left| left.saturating_sub(MetricColumn::GAP));
        left.is_some()
    };
    let known = |metric: &Metric| compared.all.iter().any(|one| metric.of_configuration(one).is_some());
    let column = |metric| MetricColumn::of(metric, compared, unit, one_line);
    Metric::ALL.into_iter().filter(known).map(column).filter(fits).collect()
}

fn inside(kind: Frame, width: u16) -> u16 {
    width.saturating_sub(if kind == Frame::Box { 4 } else { 1 })
}

/// How many rows the table needs, with its frame.
pub(super) fn wanted_rows(compared: &ComparisonFrame<'_>, kind: Frame, width: u16) -> u16 {
    let inside = inside(kind, width);
    let each = if inside >= ONE_LINE { 1 } else { 2 };
    let rows =
        headline(compared, inside).len() + 1 + each * compared.all.len() + if kind == Frame::Box { 2 } else { 1 };
    u16::try_from(rows).unwrap_or(u16::MAX)
}

pub(super) fn unit(compared: &ComparisonFrame<'_>) -> ByteUnit {
    let measured = compared.all.iter().filter_map(|configuration| configuration.measured.as_ref());
    let largest = measured.map(|(_, measured)| measured.peak_reserved.bytes()).max().unwrap_or(Bytes::ZERO);
    ByteUnit::for_largest(largest)
}

/// Which configuration is best, in words: a line for each figure.
fn headline(compared: &ComparisonFrame<'_>, width: u16) -> Vec<Vec<Span<'static>>> {
    let theme = compared.stage.theme;
    let width = usize::from(width);
    if compared.is_one() {
        let adds = compared.stage.keys.key_of(Action::CompareFile);
        let text = match compared.stage.picture.kind {
            SourceKind::Live => "Flip a switch: its steps are listed here as a second configuration.".to_owned(),
            _ => format!("Nothing to compare with yet: {adds} adds another file as a second configuration."),
        };
        let text = format!("{text} {}", notes(compared).join(" "));
        return pane::wrap(&text, width).into_iter().map(|line| vec![span(theme, Token::Dim, line)]).collect();
    }
    let unit = unit(compared);
    let line = |words: &str, metric: Metric, then: Metric| {
        let mut line = vec![span(theme, Token::Dim, format!("{words:<13}"))];
        let mut best = metric.best(&compared.all);
        // Of several best ones, the one that is better in another figure comes first.
        let otherwise = |place: &usize| then.of_configuration(&compared.all[*place]).map_or(f64::MAX, |of| of.median);
        best.sort_by(|a, b| otherwise(a).total_cmp(&otherwise(b)));
        let Some((first, others)) = best.split_first() else {
            line.push(span(theme, Token::Text, "no difference beyond noise"));
            return line;
        };
        line.push(span(theme, Token::Ok, format!("{BEST} ")));
        line.push(numbered(*first, theme));
        let name = compared.name(*first);
        let Some(figure) = metric.of_configuration(&compared.all[*first]) else { return line };
        let shown = match metric {
            Metric::Step => format!(": {} ms", metric.show(&figure, unit)),
            Metric::Reserved => format!(": reserved {} {}", metric.show(&figure, unit), unit.name()),
            _ => format!(": peak {} {}", metric.show(&figure, unit), unit.name()),
        };
        let mut told = vec![span(theme, Token::Text, shown)];
        let baseline = metric.of_configuration(&compared.all[compared.baseline]);
        if let Some(base) = baseline.filter(|_| !best.contains(&compared.baseline)) {
            let change = change(&base, &figure);
            told.push(span(theme, Token::Ok, format!(", {}", change.split(" ±").next().unwrap_or_default())));
        }
        let taken: usize = line.iter().chain(&told).map(Span::width).sum();
        line.push(span(theme, Token::Strong, pane::cut(&name, width.saturating_sub(taken + 1).max(12))));
        line.extend(told);
        if !others.is_empty() {
            let mut as_good = vec![span(theme, Token::Dim, "; as good: ")];
            as_good.extend(others.iter().map(|place| numbered(*place, theme)));
            let cells: usize = line.iter().chain(&as_good).map(Span::width).sum();
            if cells <= width {
                line.extend(as_good);
            }
        }
        line
    };
    let known = |metric: &Metric| compared.all.iter().any(|one| metric.of_configuration(one).is_some());
    // An allocator setting changes only the reserved bytes.
    let memory = if only_allocator(&compared.all) { Metric::Reserved } else { Metric::Allocated };
    let lines = [("least memory", memory, Metric::Step), ("fastest", Metric::Step, Metric::Allocated)];
    lines.into_iter().filter(|(_, metric, _)| known(metric)).map(|(words, of, then)| line(words, of, then)).collect()
}

/// A configuration's number, as in its row.
pub(super) fn numbered(place: usize, theme: &Theme) -> Span<'static> {
    let style = Style::new().fg(theme.color(token_of(place))).add_modifier(Modifier::BOLD);
    Span::styled(format!("{} ", place + 1), style)
}

/// Draws the pane. Returns the number of rows, and how many are visible.
pub(super) fn render(
    compared: &ComparisonFrame<'_>,
    kind: Frame,
    area: Rect,
    buf: &mut Buffer,
    targets: &mut Targets,
) -> (usize, usize) {
    let theme = compared.stage.theme;
    let mut title = vec![span(theme, Token::Title, "configurations")];
    if !compared.is_one() {
        title.push(span(theme, Token::Dim, format!(" · {BEST} best of its column · changes against ")));
        title.push(numbered(compared.baseline, theme));
    }
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let left = u16::from(kind == Frame::Box).min(inner.width);
    let inner = Rect { x: inner.x + left, width: inner.width.saturating_sub(left + 1), ..inner }.intersection(buf.area);
    let one_line = inner.width >= ONE_LINE;
    let columns = columns(compared, inner.width, one_line);
    let unit = unit(compared);
    let mut y = 0;
    for line in headline(compared, inside(kind, area.width)) {
        put_at(inner, u16::from(kind == Frame::Rule), y, line, buf);
        y += 1;
    }
    let taken = columns.iter().map(MetricColumn::cells).sum::<usize>().saturating_sub(MetricColumn::GAP);
    let begin = inner.width.saturating_sub(u16::try_from(taken).unwrap_or(u16::MAX));
    // Figures are close to the names, because the eye loses the row across a gap.
    let begin = begin.min(if one_line { MARGIN + whole_names(compared) + BETWEEN } else { INDENT });
    let mut x = usize::from(begin);
    if one_line {
        put_at(inner, begin.saturating_sub(7), y, vec![span(theme, Token::Dim, " steps")], buf);
    }
    for column in &columns {
        let head = format!("{:>width$}", column.metric.head(compared.stage, unit), width = column.figure);
        put_at(inner, u16::try_from(x).unwrap_or(u16::MAX), y, vec![span(theme, Token::Dim, head)], buf);
        x += column.cells();
    }
    y += 1;
    let each = if one_line { 1 } else { 2 };
    let seen = usize::from(inner.height.saturating_sub(y) / each).max(1);
    let first = (compared.selected + 1).saturating_sub(seen).min(compared.all.len().saturating_sub(seen));
    for (place, configuration) in compared.all.iter().enumerate().skip(first).take(seen) {
        let row = Rect { y: inner.y + y, height: each.min(inner.height.saturating_sub(y)), ..inner };
        if row.is_empty() {
            break;
        }
        let room = if one_line { begin.saturating_sub(8) } else { inner.width };
        name(compared, place, configuration, one_line, Rect { width: room, ..row }, buf);
        if one_line {
            let steps = if configuration.knows_no_steps() {
                "–".to_owned()
            } else {
                figures::short_count(configuration.steps as f64)
            };
            let steps = format!("{steps:>6}");
            put_at(row, begin.saturating_sub(7), 0, vec![span(theme, Token::Dim, steps)], buf);
        }
        let figures = Rect { y: row.y + each - 1, height: row.height.saturating_sub(each - 1), ..row };
        row_of_figures(compared, place, &columns, one_line, begin, figures, buf);
        targets.push((row, Action::Own(ScreenAction::Compare(CompareAction::Select(place)))));
        y += each;
    }
    (compared.all.len(), seen)
}

/// The first line of a row: the number, the name, and a remark.
fn name(
    compared: &ComparisonFrame<'_>,
    place: usize,
    configuration: &Configuration,
    one_line: bool,
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = compared.stage.theme;
    let selected = place == compared.selected;
    let mark = span(theme, Token::Key, if selected { "▸ " } else { "  " });
    let style = theme.style(if selected { Token::Strong } else { Token::Text });
    let style = if selected { style.add_modifier(Modifier::BOLD) } else { style };
    let mut end = Vec::new();
    if configuration.out_of_memory && configuration.measured.is_some() {
        end.push(span(theme, Token::Danger, if one_line { "! oom" } else { "! ran out of memory" }));
    }
    if !one_line && !configuration.knows_no_steps() {
        end.push(span(theme, Token::Dim, format!("  {}", figures::counted(configuration.steps, "step"))));
    }
    let taken: usize = end.iter().map(Span::width).sum();
    let room = usize::from(area.width.saturating_sub(MARGIN)).saturating_sub(taken + 1);
    let text = pane::cut(&compared.name(place), room);
    put(area, 0, vec![mark, numbered(place, theme), Span::raw(" "), Span::styled(text, style)], buf);
    put_right(Rect { height: 1.min(area.height), ..area }, 0, end, buf);
}

/// The selected configuration as text: a line for each figure, with its change from the baseline.
pub(super) fn copied(stage: &Stage<'_>) -> Clipping {
    let Some(compared) = ComparisonFrame::of(stage) else { return copied::moment(stage) };
    let (all, unit) = (&compared.all, unit(&compared));
    let (selected, baseline) = (&all[compared.selected], &all[compared.baseline]);
    let name = compared.name(compared.selected);
    let steps = match selected.knows_no_steps() {
        true => "all that was recorded".to_owned(),
        false => figures::counted(selected.steps, "step"),
    };
    let mut text = format!("{name}: {steps} of {}", copied::whose(stage));
    for metric in Metric::ALL {
        let Some(figure) = metric.of_configuration(selected) else { continue };
        let head = metric.head(stage, unit).trim().to_owned();
        text.push_str(&format!("\n{head}: {}", metric.show(&figure, unit)));
        if let Some(base) = metric.of_configuration(baseline).filter(|_| compared.selected != compared.baseline) {
            let than = compared.name(compared.baseline);
            text.push_str(&format!(" ({} against {than})", change(&base, &figure)));
        }
    }
    if selected.out_of_memory {
        text.push_str("\nit ran out of memory");
    }
    Clipping::new("figures", &text)
}

fn row_of_figures(
    compared: &ComparisonFrame<'_>,
    place: usize,
    columns: &[MetricColumn],
    one_line: bool,
    begin: u16,
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = compared.stage.theme;
    let unit = unit(compared);
    let configuration = &compared.all[place];
    if configuration.measured.is_none() {
        let text = if configuration.out_of_memory { "! out of memory in its first step" } else { "not measured" };
        put_at(area, begin + 2, 0, vec![span(theme, Token::Danger, text)], buf);
        return;
    }
    let mut x = usize::from(begin);
    for column in columns {
        let (metric, width) = (column.metric, column.figure);
        let at = u16::try_from(x).unwrap_or(u16::MAX);
        x += column.cells();
        let Some(told) = metric.of_configuration(configuration) else {
            put_at(area, at, 0, vec![span(theme, Token::Dim, format!("{:>width$}", "–"))], buf);
            continue;
        };
        let text = figure(metric, &told, unit, one_line);
        let is_best = column.best.contains(&place);
        let style = theme.style(if is_best { Token::Ok } else { Token::Text });
        let style = if is_best { style.add_modifier(Modifier::BOLD) } else { style };
        // The mark is before the figure, because the change is behind it.
        let text = if is_best { format!("{BEST} {text}") } else { text };
        let mut line = vec![Span::styled(format!("{text:>width$} "), style)];
        if let Some((words, token)) = changed(metric, compared, place) {
            line.push(span(theme, token, words));
        }
        put_at(area, at, 0, line, buf);
    }
}
