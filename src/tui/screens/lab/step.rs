//! The curve of one whole step, stacked by category, with its phases below, the cursor, and the step before the last flip.

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::earlier::Earlier;
use super::reading;
use super::step_legend::StepLegend;
use crate::drawing::chart::{self, Areas, Axis, Ceiling, Curve, Ink, Stack};
use crate::drawing::figures::ByteUnit;
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_at, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Category, Profile, Sample, View};
use crate::source::SourceKind;
use crate::tui::asked::RefusedRequest;
use crate::tui::stage::Stage;
use crate::tui::when;
use crate::units::Bytes;

/// The fewest rows in which a step is readable beside a much higher one, and how many times higher that may be.
const ROWS_FOR_BOTH: u16 = 6;
const MOST_TIMES: u64 = 2;
/// From this width on a title has room for a second peak; below it, "this" is dropped in favour of the names of colours.
const WIDE: u16 = 60;

/// The word before the step that this one is like.
const AS: &str = " as ";

/// Draws the pane. Returns its plot, in which a click moves the cursor.
pub(crate) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) -> Rect {
    render_up_to(stage, kind, Bytes::ZERO, area, buf)
}

/// Like [`render`], with an axis that reaches at least to `least`.
pub(crate) fn render_up_to(stage: &Stage<'_>, kind: Frame, least: Bytes, area: Rect, buf: &mut Buffer) -> Rect {
    let theme = stage.theme;
    if let Some(reading) = &stage.picture.reading {
        reading::render(reading, theme, kind, area, buf);
        return Rect::ZERO;
    }
    let profile = stage.picture.shown_step();
    let asked = profile.and_then(|profile| RefusedRequest::of(stage, profile));
    let earlier = profile.and_then(|profile| Earlier::of(stage, profile, area.height));
    let inside = pane::inside(kind, area.intersection(buf.area));
    // Without phases the row below has the unit and the events, if that leaves enough rows for the curve.
    let below = profile.is_none_or(has_phases) || inside.height > ROWS_FOR_BOTH;
    let whole = chart::plot_in(inside, kind, u16::from(below));
    let ceiling = stage.ceiling();
    let beside = compared(stage).filter(|_| !whole.is_empty());
    let scaled = |plot: Rect| {
        let profile = profile.filter(|_| !plot.is_empty())?;
        // In few rows, or beside a step that would leave it few, the scale is the step's own, and the other step is cut.
        let own = highest(profile);
        let before = beside
            .as_ref()
            .map(|(before, _)| highest(before))
            .filter(|before| plot.height >= ROWS_FOR_BOTH && before.get() / MOST_TIMES <= own.get());
        let asked = asked.map_or(Bytes::ZERO, RefusedRequest::top);
        let aim = stage.aim.map_or(Bytes::ZERO, |aim| aim.bytes);
        let largest = own.max(before.unwrap_or_default()).max(asked).max(least).max(aim);
        let axis = Ceiling::axis(ceiling, unit(stage, largest), largest, plot.height);
        let plot = plot.intersection(buf.area);
        let stacks = stacks(profile, earlier.as_ref(), theme, plot.width);
        let areas = stage.states.areas.areas(stacks, axis.top, theme, (plot.width, plot.height));
        Some(PlottedStep { profile, largest, axis, areas })
    };
    let below_legend = |rows: u16| Rect { y: whole.y + rows, height: whole.height - rows, ..whole };
    let legend_of = |areas: Option<&Areas>| legend(stage, (profile?, earlier.as_ref()), areas, area);
    let rows_of = |legend: &StepLegend| legend.rows(area, inside, whole.height, theme);
    // What is drawn as one has one entry, which is known only once it is drawn; most often that takes as many rows.
    let mut legend_rows = legend_of(None).as_ref().map_or(0, rows_of);
    let mut drawn = scaled(below_legend(legend_rows));
    let mut again = 2;
    let legend = loop {
        // In other rows other parts are drawn as one.
        let legend = legend_of(drawn.as_ref().map(|drawn| &*drawn.areas));
        let rows = legend.as_ref().map_or(0, rows_of);
        if rows == legend_rows || again == 0 {
            break legend;
        }
        again -= 1;
        (legend_rows, drawn) = (rows, scaled(below_legend(rows)));
    };
    let plot = below_legend(legend_rows);
    // In few rows a line that nobody asked for would be in pieces, so its peak is written.
    let pinned = stage.picture.pinned.is_some();
    let beside_line = beside.as_ref().filter(|_| pinned || plot.height >= ROWS_FOR_BOTH);
    // A rise of less than two rows is written as a figure too.
    let has_height = |axis: Axis, before: &Profile| axis.eighths(highest(before), plot.height) >= 16;
    let seen = drawn.as_ref().zip(beside_line).filter(|(drawn, (before, _))| has_height(drawn.axis, before));
    let line = seen.map(|(drawn, (before, _))| {
        let columns = |profile: &Profile| -> Vec<Bytes> {
            profile.in_columns(plot.width * Curve::COLUMNS).map(|sample| sample.allocated).collect()
        };
        let line = Curve::apart(plot, drawn.axis, &columns(before), &columns(drawn.profile));
        (line, highest(before) > drawn.axis.top)
    });
    let plot = plot.intersection(buf.area);
    let in_title = legend.as_ref().filter(|_| legend_rows == 0);
    let Some(PlottedStep { profile, largest, axis, areas }) = drawn else {
        let title = title(stage, profile, asked, None, in_title, area);
        let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
        let text = match stage.picture.kind {
            SourceKind::Snapshot(_) => "this snapshot has no history",
            _ => "no step has begun yet",
        };
        if profile.is_none() {
            put_at(inner, 1, inner.height / 2, vec![span(theme, Token::Dim, text)], buf);
        }
        return plot;
    };
    axis.draw(theme, inside, plot, buf);
    areas.draw(theme, plot, buf);
    // A line that areas hide is not promised in the title.
    let line = line.filter(|(line, _)| line.draw(Token::Ghost, theme, buf) || line.is_empty());
    let title = title(stage, Some(profile), asked, line.as_ref(), in_title, area);
    let inner = pane::frame(kind, title.clone(), theme.style(Token::Border), area, buf);
    if let Some(legend) = legend.as_ref().filter(|_| legend_rows > 0) {
        legend.draw(inner, legend_rows, theme, buf);
    }
    if let Some(legend) = legend.filter(|_| legend_rows == 0) {
        legend.name_areas(&title, theme, plot, buf);
    }
    let has_axis = plot.bottom() < inner.bottom();
    if has_axis {
        phases(profile, axis, theme, inner, plot, buf);
        if stage.picture.autopsy().is_some() {
            stopped_phase(profile, theme, plot, buf);
        }
    }
    cursor(stage, profile, plot, has_axis, buf);
    if let Some(asked) = asked {
        asked.draw(axis, plot.width.saturating_sub(1), theme, plot, buf);
    }
    if let Some(aim) = stage.aim {
        aim.line().draw(largest, axis, |_| Some(aim.bytes), theme, plot, buf);
    }
    // Its words avoid what is drawn, and the mark of the moment.
    if let Some(ceiling) = ceiling {
        let is_seen = ceiling.draw(largest, axis, |_| Some(ceiling.height()), theme, plot, buf);
        // If there is a chart of steps, that one notes how far away the ceiling is.
        if !is_seen && !super::has_steps(stage) {
            ceiling.note(theme, plot, buf);
        }
    }
    plot
}

/// A step in a plot.
struct PlottedStep<'a> {
    profile: &'a Profile,
    largest: Bytes,
    axis: Axis,
    areas: Arc<Areas>,
}

/// The legend, with figures at the peak, or where the user has stopped.
fn legend(
    stage: &Stage<'_>,
    (profile, earlier): (&Profile, Option<&Earlier>),
    areas: Option<&Areas>,
    area: Rect,
) -> Option<StepLegend> {
    let peak = profile.peak()?;
    let unit = unit(stage, peak.allocated);
    let here = stopped_below(stage, peak);
    Some(StepLegend::of((profile, peak), earlier, here, unit, areas, area.height, stage.theme))
}

/// The step that is drawn as a line over this one: the pinned step, or else the last one before the last flip.
fn compared<'a>(stage: &'a Stage<'_>) -> Option<(&'a Profile, String)> {
    let pinned = stage.picture.pinned.as_ref().map(|pinned| (&*pinned.step, format!("step {}", pinned.step.step)));
    pinned.or_else(|| Some((stage.picture.known().profiles.before.as_deref()?, "before".to_owned())))
}

/// The unit for a step whose highest value is `largest`: that of the other charts, if it suits.
pub(super) fn unit(stage: &Stage<'_>, largest: Bytes) -> ByteUnit {
    stage.unit().of_part(largest)
}

/// The most that was allocated in the step.
pub(super) fn highest(profile: &Profile) -> Bytes {
    profile.peak().map_or(Bytes::ZERO, |sample| sample.allocated)
}

/// A stack of categories for each column. What earlier steps left is below the step's temporary memory.
pub(super) fn stacks(profile: &Profile, earlier: Option<&Earlier>, theme: &Theme, width: u16) -> Vec<Stack> {
    let inks = Category::STACKED.map(|category| (category, legend::ink(category, theme)));
    profile.in_columns(width).map(|sample| stack(&sample, earlier, &inks)).collect()
}

fn stack(sample: &Sample, earlier: Option<&Earlier>, inks: &[(Category, Ink)]) -> Stack {
    let mut stack = Stack::default();
    for (category, ink) in inks {
        if let Some(earlier) = earlier.filter(|_| *category == Category::Activation) {
            stack.add(earlier.bytes(), earlier.ink);
        }
        let own = earlier.map(|earlier| earlier.beyond(sample.by_category, *category));
        stack.add(own.unwrap_or(sample.by_category[*category as usize]), *ink);
    }
    stack
}

/// The title. `line` names the step that this one is compared with, and whether it is cut at the top.
fn title(
    stage: &Stage<'_>,
    profile: Option<&Profile>,
    asked: Option<RefusedRequest>,
    line: Option<&(Curve, bool)>,
    legend: Option<&StepLegend>,
    area: Rect,
) -> Vec<Span<'static>> {
    let theme = stage.theme;
    // Not every snapshot has steps.
    let window = matches!(stage.picture.kind, SourceKind::Snapshot(_)) && stage.view().steps.finished == 0;
    let mut title = vec![span(theme, Token::Title, if window { "recorded" } else { "this step" })];
    let Some(peak) = profile.and_then(Profile::peak) else { return title };
    let unit = unit(stage, peak.allocated);
    if let Some(here) = stopped_below(stage, peak) {
        title.extend([
            span(theme, Token::Text, " here "),
            span(theme, Token::Strong, unit.or_smaller(here.ledger.allocated())),
            span(theme, Token::Text, ","),
        ]);
    }
    title.extend([
        span(theme, Token::Text, " peak "),
        span(theme, Token::Strong, unit.figure(peak.allocated)),
        span(theme, Token::Dim, format!(" {}", unit.name())),
    ]);
    if let Some(asked) = asked {
        title.extend([span(theme, Token::Text, ", asked "), span(theme, Token::Danger, unit.or_smaller(asked.bytes))]);
    }
    // Every colour gets its name before one gets a figure, and before words about a line that is not drawn.
    let all = usize::from(area.width.saturating_sub(5));
    let cells = |spans: &[Span<'static>]| spans.iter().map(Span::width).sum::<usize>();
    let names = legend.map_or(0, |legend| legend.names(theme));
    let said = |bytes: Bytes| unit.figure(bytes);
    let figure =
        compared(stage).map(|(before, _)| said(highest(before))).filter(|said| *said != unit.figure(peak.allocated));
    if let (None, Some((_, word)), Some(figure)) = (line, compared(stage), &figure)
        && cells(&title) + names + word.len() + figure.len() + 2 <= all
    {
        title.extend([span(theme, Token::Dim, format!(" {word} ")), span(theme, Token::Text, figure.clone())]);
    }
    if let (Some((line, cut)), Some((before, word))) = (line, compared(stage)) {
        match line.is_empty() && !cut {
            true => title.push(span(theme, Token::Dim, format!("{AS}{word}"))),
            false => title.extend([span(theme, Token::Ghost, " ⠒⠒"), span(theme, Token::Dim, format!(" {word}"))]),
        }
        if *cut {
            title.push(span(theme, Token::Text, format!(" {} ↑", said(highest(before)))));
        } else if let Some(figure) = figure.filter(|figure| cells(&title) + names + figure.len() < all) {
            title.push(span(theme, Token::Text, format!(" {figure}")));
        }
    }
    // A user who pinned a step wants to see that.
    if cells(&title) + names > all && stage.picture.pinned.is_none() {
        title.retain(|span| !span.content.starts_with(AS));
    }
    let figures = legend.map_or(0, |legend| legend.whole(theme));
    if cells(&title) + figures > all && area.width < WIDE && !window {
        title[0] = span(theme, Token::Title, "step");
    }
    let room = all.saturating_sub(cells(&title));
    title.extend(legend.map(|legend| legend.in_title(room, theme)).unwrap_or_default());
    title
}

/// Memory where the user has stopped, if not at the peak; more bytes than the peak would belong to another step.
fn stopped_below<'a>(stage: &'a Stage<'_>, peak: &Sample) -> Option<&'a View> {
    stopped(stage).filter(|here| here.ledger.allocated() < peak.allocated)
}

/// Memory where the user has stopped or gone to; `None` while the mark, or a run that goes on, is shown.
fn stopped<'a>(stage: &'a Stage<'_>) -> Option<&'a View> {
    (stage.position().is_some() && stage.picture.marked.is_none()).then_some(stage.shown)
}

/// Draws the picture's position in the step. While the curve is that of the last whole step, the line is as far in it
/// as the current step has come.
fn cursor(stage: &Stage<'_>, profile: &Profile, plot: Rect, has_axis: bool, buf: &mut Buffer) {
    let theme = stage.theme;
    let Some(x) = column(stage, profile, plot.width) else { return };
    // The mark must not cover an area's edge.
    let free = buf
        .cell((plot.x + x, plot.y))
        .is_some_and(|cell| matches!(cell.symbol(), " " | "▁" | "─") && theme.is_ground(cell.bg));
    chart::cursor(plot, x, has_axis.then(|| plot.bottom()), theme, buf);
    if stage.picture.marked.is_some() && free {
        put_at(plot, x, 0, vec![span(theme, Token::Key, when::MARK)], buf);
    }
}

/// The column of the picture's position, if it is in the step.
fn column(stage: &Stage<'_>, profile: &Profile, width: u16) -> Option<u16> {
    let view = stage.shown;
    stage.position()?;
    let inside = view.position > profile.position
        && profile.samples.last().is_some_and(|last| view.position <= last.position + profile.stride() * 8);
    let under_way = &view.profiles.under_way;
    let x = if inside {
        let behind = profile.samples.partition_point(|sample| sample.position < view.position);
        // The last of the columns that show this sample.
        let count = profile.samples.len().max(1);
        (behind.max(1) * usize::from(width)).div_ceil(count).saturating_sub(1)
    } else if stage.picture.is_now() && under_way.events > 0 && under_way.step == profile.step + 1 {
        Profile::column_of(under_way.events - 1, profile.events, usize::from(width))
    } else {
        return None;
    };
    u16::try_from(x).ok().filter(|x| *x < width)
}

/// True if the step has phases; most snapshots have none.
fn has_phases(profile: &Profile) -> bool {
    profile.phases.iter().any(|(phase, from)| phase.is_some() && *from < profile.events)
}

/// Draws the phases, each below its part of the curve, and the axis's unit.
pub(super) fn phases(profile: &Profile, axis: Axis, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
    put_at(inner, 0, plot.bottom() - inner.y, vec![span(theme, Token::Dim, format!("{:>4}", axis.unit.name()))], buf);
    phase_names(profile, theme, plot, buf);
}

/// The phases alone.
pub(super) fn phase_names(profile: &Profile, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let row = plot.height;
    let area = Rect { height: plot.height + 1, ..plot };
    let width = usize::from(plot.width);
    let column = |event: u64| Profile::column_of(event, profile.events, width);
    // A phase behind the last event has no column.
    let begun = profile.phases.iter().filter(|(phase, from)| phase.is_some() || *from < profile.events);
    let begun: Vec<_> = begun.collect();
    // Borders between unnamed parts are of no use.
    let mut named_before = false;
    let mut named = false;
    for (index, (phase, from)) in begun.iter().enumerate() {
        let to = begun.get(index + 1).map_or(width, |(_, to)| column(*to));
        let from = column(*from);
        let Some(cells) = to.checked_sub(from).filter(|cells| *cells > 0) else { continue };
        let Ok(x) = u16::try_from(from) else { continue };
        let label = phase.map_or("", |phase| legend::phase_label(phase, cells - 1));
        named |= !label.is_empty();
        let ends = std::mem::replace(&mut named_before, !label.is_empty());
        let Some(phase) = phase.filter(|_| !label.is_empty()) else {
            if ends && cells > 1 {
                put_at(area, x, row, vec![span(theme, Token::Dim, "│")], buf);
            }
            continue;
        };
        let mut text = String::from("│");
        text.push_str(label);
        while text.chars().count() < cells {
            text.push('─');
        }
        let style = Style::new().fg(theme.color(phase.into()));
        put_at(area, x, row, vec![Span::styled(text.chars().take(cells).collect::<String>(), style)], buf);
    }
    if !named {
        let below = Rect { y: plot.bottom(), height: 1, ..plot };
        let first = profile.position;
        let last = profile.samples.last().map_or(first, |sample| sample.position);
        put(below, 0, vec![span(theme, Token::Dim, format!("│event {first}"))], buf);
        put_right(below, 0, vec![span(theme, Token::Dim, format!("{last} │"))], buf);
    }
}

/// Writes the name of the phase in which a step stopped, left of its end if the phase is too short for it.
fn stopped_phase(profile: &Profile, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let width = usize::from(plot.width);
    let Some((Some(phase), from)) = profile.phases.last().copied() else { return };
    let from = Profile::column_of(from, profile.events, width);
    let label = format!("{}│", legend::phase_label(phase, width));
    if from + 1 < width {
        return;
    }
    if let Some(x) = (from + 1).checked_sub(label.chars().count()).and_then(|x| u16::try_from(x).ok()) {
        let style = Style::new().fg(theme.color(phase.into()));
        put_at(Rect { height: plot.height + 1, ..plot }, x, plot.height, vec![Span::styled(label, style)], buf);
    }
}
