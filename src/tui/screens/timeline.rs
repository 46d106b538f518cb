//! The timeline of a step: live memory, stacked by groups, with reserved memory and segments below.
//!
//! ```text
//!  from 100 columns on                        smaller
//!  ╭ step 41 ────────────╮╭ at the cursor ╮   ─ step 41 ─────────
//!  │                     ││               │   ─ reserved ────────
//!  ╰─────────────────────╯│               │   at the cursor
//!  ╭ reserved ───────────╮│               │
//!  ╰─────────────────────╯╰───────────────╯
//! ```

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::text::Span;

use crate::drawing::chart::{self, Areas, Axis, Ceiling, Curve, Ink, Stack};
use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend::{self, Account};
use crate::drawing::pane::{self, Frame, put, put_at, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Grouping, MarkKind, OutlineMoment, Profile, Study, StudyGroup, Survivor};
use crate::source::{Picture, SourceKind, StudyRequest, Window};
use crate::tui::action::{Action, Binding, Key, KeyGroup};
use crate::tui::asked::RefusedRequest;
use crate::tui::copied;
use crate::tui::large::Large;
use crate::tui::moments::Columns;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::stage::{Chart, FrameLayout, Stage};
use crate::tui::states::{ScreenAction, ScreenStates, TimelineAction};
use crate::units::Bytes;

pub(crate) const SCREEN: Screen = Screen {
    key: '3',
    title: "Step",
    draw,
    wants,
    copied: copied::moment,
    large: &[Large::Allocated, Large::Peak],
    bindings,
};

/// From this width on the legend is at the right.
const TWO_COLUMNS: u16 = 100;
/// The width of the legend.
const LEGEND: u16 = 44;

fn bindings() -> Vec<Binding> {
    let plain = Key::plain;
    let own = |action| Action::Own(ScreenAction::Timeline(action));
    let view =
        |keys: &[Key], label, action, hint, help| Binding::new(keys, label, own(action), KeyGroup::View, hint, help);
    use TimelineAction::{Grouping, Peak, Window, ZoomIn, ZoomOut};
    vec![
        view(&[plain('v')], "v", Grouping, "by", "group memory by category, module, tensor or pool")
            .brief("group by category, module, tensor or pool"),
        view(&[plain('+'), plain(']')], "+ ]", ZoomIn, "zoom in", "zoom in: half as many events, around the cursor")
            .brief("zoom in around the cursor"),
        view(&[plain('-'), plain('[')], "- [", ZoomOut, "zoom out", "zoom out, until the whole run is seen"),
        view(&[plain('0')], "0", Window, "step or run", "the step around the cursor, or the whole run")
            .brief("this step, or the whole run"),
        view(&[plain('^')], "^", Peak, "peak", "move the cursor to the peak of the window"),
    ]
}

fn wants(states: &mut ScreenStates, picture: &Picture) -> Option<StudyRequest> {
    Some(states.timeline.wanted(picture))
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    let theme = stage.theme;
    let reading = stage.picture.reading.as_ref();
    let Some(study) = stage.picture.study.as_deref().filter(|_| reading.is_none()) else {
        let text = match (reading, stage.picture.studying) {
            (Some(reading), _) => format!("{}: the curve stands here when all of it is known", reading.words()),
            (None, Some(part)) => format!("reading the events … {:.0} %", 100.0 * part),
            (None, None) => "no step has begun yet".to_owned(),
        };
        put(
            Rect { y: area.y + area.height / 2, height: 1, ..area },
            0,
            vec![span(theme, Token::Dim, format!("  {text}"))],
            buf,
        );
        return layout;
    };
    let shown = TimelineView { stage, study, cursor: cursor(stage, study) };
    if area.width >= TWO_COLUMNS && area.height >= 12 {
        let [left, right] = area.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(LEGEND)]));
        let [chart, under] = left.layout::<2>(&Split::vertical([Constraint::Fill(5), Constraint::Fill(2)]));
        let (plot, areas) = shown.areas(Frame::Box, chart, buf);
        layout.charts.push((plot, Chart::Window));
        layout.charts.push((shown.held(Frame::Box, under, buf), Chart::Window));
        shown.legend(areas.as_deref(), right, buf);
        layout.panels.extend([(chart, Panel::Stacked), (under, Panel::Reserved), (right, Panel::AtCursor)]);
    } else {
        let lines = shown.words(None, area.width).len().clamp(1, usize::from(area.height / 4)) as u16;
        let under = if area.height >= 20 { area.height / 4 } else { 0 };
        let parts = [Constraint::Min(0), Constraint::Length(under), Constraint::Length(lines)];
        let [chart, under, words] = area.layout::<3>(&Split::vertical(parts));
        let (plot, areas) = shown.areas(Frame::Rule, chart, buf);
        layout.charts.push((plot, Chart::Window));
        if !under.is_empty() {
            layout.charts.push((shown.held(Frame::Rule, under, buf), Chart::Window));
        }
        layout.panels.extend([(chart, Panel::Stacked), (under, Panel::Reserved), (words, Panel::AtCursor)]);
        for (y, line) in (0..words.height).zip(shown.words(areas.as_deref(), words.width)) {
            put(words, y, line, buf);
        }
    }
    layout
}

/// The moment whose figures are shown: at the cursor, or for a running lab the fullest.
fn cursor(stage: &Stage<'_>, study: &Study) -> Option<usize> {
    let inside = stage.position().filter(|position| (study.begin..=study.end).contains(position));
    inside.and_then(|position| study.moment_at(position))
}

/// The content of the screen.
struct TimelineView<'a> {
    stage: &'a Stage<'a>,
    study: &'a Study,
    /// The index of the moment at the cursor.
    cursor: Option<usize>,
}

impl TimelineView<'_> {
    fn theme(&self) -> &Theme {
        self.stage.theme
    }

    /// The index of the moment that the legend shows.
    fn told(&self) -> Option<usize> {
        let fullest = || {
            let peak = self.study.peak?;
            self.study.moments.iter().position(|moment| moment.position == peak.position)
        };
        self.cursor.or_else(fullest)
    }

    /// The heading of the legend's figures.
    fn heading(&self) -> &'static str {
        match (self.cursor, self.study.stride) {
            (None, _) => "at the peak",
            (Some(_), 1) => "at the cursor",
            // A moment stands for several events and shows the fullest of them.
            (Some(_), _) => "around the cursor",
        }
    }

    /// The name of the window.
    fn name(&self) -> String {
        let (study, picture) = (self.study, self.stage.picture);
        let range = || match (study.steps.first(), study.steps.last()) {
            (Some(first), Some(last)) if first.what != last.what => format!("steps {}–{}", first.what, last.what),
            _ => {
                let step = study.steps.first().map_or(picture.view.steps.finished, |step| step.what);
                if matches!(self.stage.states.timeline.window, Window::Range(..)) {
                    format!("part of step {step}")
                } else {
                    format!("step {step}")
                }
            }
        };
        match (&picture.kind, self.stage.states.timeline.window) {
            (SourceKind::Snapshot(_), Window::Run) => "recorded".to_owned(),
            // Not every snapshot has steps.
            (SourceKind::Snapshot(_), Window::Step) if study.steps.is_empty() => "recorded".to_owned(),
            (SourceKind::Snapshot(_), Window::Range(..)) if study.steps.len() != 1 => {
                "part of what was recorded".to_owned()
            }
            (_, Window::Run) => format!("whole run, {}", range()),
            _ => range(),
        }
    }

    fn title(&self, width: u16) -> Vec<Span<'static>> {
        let (theme, study) = (self.theme(), self.study);
        let mut title = vec![
            span(theme, Token::Title, self.name()),
            span(theme, Token::Dim, format!(" by {}", study.grouping.label())),
        ];
        if let Some(guessed) = legend::guessed(self.stage.view()).filter(|_| study.grouping == Grouping::Category) {
            title.push(span(theme, Token::Warn, format!(" · {guessed}")));
        }
        let mut push = |spans: Vec<Span<'static>>| {
            let cells: usize = title.iter().chain(&spans).map(Span::width).sum();
            if cells + 6 <= usize::from(width) {
                title.extend(spans);
            }
        };
        if let Some(pinned) = self.pinned() {
            let word = span(theme, Token::Dim, format!(" step {}", pinned.step));
            push(vec![span(theme, Token::Dim, " ·"), span(theme, Token::Ghost, " ⠒⠒"), word]);
        }
        if let Some(peak) = study.peak {
            let unit = self.stage.unit().of_part(peak.allocated);
            push(vec![span(theme, Token::Text, " · peak "), span(theme, Token::Strong, unit.named(peak.allocated))]);
            if let Some(asked) = RefusedRequest::among(self.stage, &(study.begin..=study.end)) {
                let bytes = span(theme, Token::Danger, unit.or_smaller(asked.bytes));
                push(vec![span(theme, Token::Text, ", asked "), bytes]);
            }
            let op = study.op_at(peak.position.saturating_sub(1)).map(|run| study.names.get(run.name).to_owned());
            if let Some(phase) = study.phase_at(peak.position) {
                push(vec![span(theme, Token::Dim, format!(" in {}", phase.label()))]);
            }
            if let Some(op) = op.filter(|op| !op.is_empty()) {
                push(vec![span(theme, Token::Dim, format!(", {op}"))]);
            }
        }
        if let Some(part) = self.stage.picture.studying.filter(|_| self.stage.is_still()) {
            push(vec![span(theme, Token::Warn, format!(" · reading {:.0} %", 100.0 * part))]);
        }
        title
    }

    /// The pinned step, drawn as a line over a single step. A longer window has other columns.
    fn pinned(&self) -> Option<&Profile> {
        let pinned = self.stage.picture.pinned.as_deref().filter(|_| self.study.steps.len() <= 1);
        pinned.map(|pinned| &*pinned.step)
    }

    /// Draws the stacked areas. Returns the plot, and the areas in it.
    fn areas(&self, kind: Frame, area: Rect, buf: &mut Buffer) -> (Rect, Option<Arc<Areas>>) {
        let (theme, study) = (self.theme(), self.study);
        let inner = pane::frame(kind, self.title(area.width), theme.style(Token::Border), area, buf);
        let plot = chart::plot_in(inner, kind, 1);
        if plot.is_empty() || study.moments.is_empty() {
            return (plot, None);
        }
        let highest = study.moments.iter().map(|moment| moment.allocated).max().unwrap_or_default();
        let pinned = self.pinned();
        let asked = RefusedRequest::among(self.stage, &(study.begin..=study.end));
        let highest = highest.max(asked.map_or(Bytes::ZERO, RefusedRequest::top));
        let highest = highest.max(pinned.and_then(Profile::peak).map_or(Bytes::ZERO, |sample| sample.allocated));
        let ceiling = self.stage.ceiling();
        let axis = Ceiling::axis(ceiling, self.stage.unit().of_part(highest), highest, plot.height);
        axis.draw(theme, inner, plot, buf);
        let inks: Vec<Ink> =
            (0..).zip(&study.groups).map(|(index, group)| ink(study.grouping, index, group, theme)).collect();
        let stack = |x| {
            let index = study.fullest_in(usize::from(x), usize::from(plot.width));
            let mut stack = Stack::default();
            for (group, ink) in study.groups.iter().zip(&inks) {
                stack.add(group.bytes.get(index).copied().unwrap_or_default(), *ink);
            }
            stack
        };
        let stacks: Vec<Stack> = (0..plot.width).map(stack).collect();
        let inside = plot.intersection(buf.area);
        let areas = self.stage.states.areas.areas(stacks, axis.top, theme, (inside.width, inside.height));
        areas.draw(theme, inside, buf);
        if let Some((asked, autopsy)) = asked.zip(self.stage.picture.autopsy()) {
            let x = self.columns(plot).column_of(study.moment_of(autopsy.position));
            asked.draw(axis, x, theme, plot, buf);
        }
        // Before the names of lines, which avoid the marks.
        self.marks(plot, buf);
        if let Some(aim) = self.stage.aim {
            aim.line().draw(highest, axis, |_| Some(aim.bytes), theme, plot, buf);
        }
        if let Some(ceiling) = ceiling
            && !ceiling.draw(highest, axis, |_| Some(ceiling.height()), theme, plot, buf)
        {
            ceiling.note(theme, plot, buf);
        }
        if let Some(pinned) = pinned {
            let dots = plot.width * Curve::COLUMNS;
            let heights: Vec<Bytes> = pinned.in_columns(dots).map(|sample| sample.allocated).collect();
            let fullest = |dot| study.moments.get(study.fullest_in(usize::from(dot), usize::from(dots)));
            let drawn: Vec<Bytes> = (0..dots).filter_map(|dot| Some(fullest(dot)?.allocated)).collect();
            Curve::apart(plot, axis, &heights, &drawn).draw(Token::Ghost, theme, buf);
        }
        self.axis_of_time(axis, inner, plot, buf);
        self.cursor_line(plot, Some(plot.bottom()), buf);
        (plot, Some(areas))
    }

    /// Draws reserved bytes, with their live and stranded parts, and returns the plot.
    fn held(&self, kind: Frame, area: Rect, buf: &mut Buffer) -> Rect {
        let (theme, study) = (self.theme(), self.study);
        let last = self.told().and_then(|index| study.moments.get(index));
        let mut title = vec![span(theme, Token::Title, "reserved")];
        if let Some(moment) = last {
            title.push(span(theme, Token::Strong, format!(" {}", figures::bytes(moment.reserved))));
            let room = usize::from(area.width).saturating_sub(6);
            if area.width >= 70 {
                title.extend(self.accounts(
                    moment,
                    area.height,
                    room.saturating_sub(title.iter().map(Span::width).sum()),
                ));
            }
            let segments = format!(" in {}", figures::counted(u64::from(moment.segments), "segment"));
            if title.iter().map(Span::width).sum::<usize>() + segments.len() <= room {
                title.insert(2, span(theme, Token::Dim, segments));
            }
        }
        let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
        let plot = chart::plot_in(inner, kind, 0);
        if plot.is_empty() || study.moments.is_empty() {
            return plot;
        }
        let highest = study.moments.iter().map(|moment| moment.reserved).max().unwrap_or_default();
        let ceiling = self.stage.ceiling();
        let axis = Ceiling::fitted(ceiling, self.stage.unit().of_part(highest), highest, plot.height);
        axis.draw(theme, inner, plot, buf);
        let stack = |x| {
            let mut stack = Stack::default();
            for account in legend::accounts(
                &study.moments[study.fullest_in(usize::from(x), usize::from(plot.width))].ledger,
                theme,
            ) {
                stack.add(account.bytes, account.ink);
            }
            stack
        };
        let stacks: Vec<Stack> = (0..plot.width).map(stack).collect();
        chart::areas(&stacks, axis.top, theme, plot, buf);
        if let Some(ceiling) = ceiling {
            ceiling.draw(highest, axis, |_| Some(ceiling.height()), theme, plot, buf);
        }
        if let Some(aim) = self.stage.aim {
            aim.line().draw(highest, axis, |_| Some(aim.bytes), theme, plot, buf);
        }
        self.cursor_line(plot, None, buf);
        plot
    }

    /// The accounts that are visible anywhere in a strip of this many rows, with their marks and names, and their bytes
    /// at `moment` if there is room.
    fn accounts(&self, moment: &OutlineMoment, rows: u16, room: usize) -> Vec<Span<'static>> {
        let theme = self.theme();
        let highest = |place: usize| {
            let bytes = |moment: &OutlineMoment| legend::accounts(&moment.ledger, theme)[place].bytes;
            self.study.moments.iter().map(bytes).max().unwrap_or_default()
        };
        let accounts = legend::accounts(&moment.ledger, theme);
        // Half an eighth of a row is drawn.
        let halves = 16 * u64::from(rows.max(1));
        let seen = |place: &usize| highest(*place).get().saturating_mul(halves) >= moment.reserved.get().max(1);
        // The most important first, then the large ones.
        let places: Vec<usize> = [4, 0, 3, 1, 2].into_iter().filter(seen).collect();
        let name = |place: usize| {
            let Account { name, ink, .. } = accounts[place];
            [Span::raw(" "), legend::mark(ink, theme), span(theme, Token::Dim, format!(" {name}"))]
        };
        let cells = |spans: &[Span<'static>]| spans.iter().map(Span::width).sum::<usize>();
        let unit = ByteUnit::for_largest(moment.reserved);
        let (mut left, names) = (room, places.iter().map(|place| cells(&name(*place))).sum());
        let mut spare = room.saturating_sub(names);
        let mut line = Vec::new();
        for place in places {
            let mut entry = name(place).to_vec();
            let figure = span(theme, Token::Text, format!(" {}", unit.or_smaller(accounts[place].bytes)));
            if accounts[place].bytes > Bytes::ZERO && figure.width() <= spare {
                spare -= figure.width();
                entry.push(figure);
            }
            let Some(rest) = left.checked_sub(cells(&entry)) else { continue };
            left = rest;
            line.extend(entry);
        }
        line
    }

    /// Draws flips, empty_cache and out of memory at their places.
    fn marks(&self, plot: Rect, buf: &mut Buffer) {
        let theme = self.theme();
        for mark in &self.study.marks {
            let (symbol, token) = match mark.what {
                MarkKind::OutOfMemory => ("!", Token::Danger),
                MarkKind::EmptyCache { .. } => ("e", Token::Key),
                MarkKind::Flip { .. } => ("▾", Token::Key),
            };
            let x = self.columns(plot).column_of(self.study.moment_of(mark.event));
            put_at(plot, x, 0, vec![span(theme, token, symbol)], buf);
        }
    }

    fn cursor_line(&self, plot: Rect, below: Option<u16>, buf: &mut Buffer) {
        if let Some(cursor) = self.cursor {
            chart::cursor(plot, self.columns(plot).column_of(cursor), below, self.theme(), buf);
        }
    }

    /// The columns of a plot.
    fn columns(&self, plot: Rect) -> Columns<'_> {
        Columns::new(self.study, plot.width)
    }

    /// Draws the chart's unit, and the phases or steps below it.
    fn axis_of_time(&self, axis: Axis, inner: Rect, plot: Rect, buf: &mut Buffer) {
        let theme = self.theme();
        let unit = format!("{:>4}", axis.unit.name());
        put_at(inner, 0, plot.height, vec![span(theme, Token::Dim, unit)], buf);
        let below = Rect { height: plot.height + 1, ..plot };
        self.columns(plot).axis_of_time(theme, below, plot.height, buf);
    }

    /// Draws the sums of the groups, at the cursor and at the peak.
    fn legend(&self, areas: Option<&Areas>, area: Rect, buf: &mut Buffer) {
        let (theme, study) = (self.theme(), self.study);
        let at = self.heading();
        let inner = pane::frame(Frame::Box, vec![span(theme, Token::Title, at)], theme.style(Token::Border), area, buf);
        let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
        let Some(index) = self.told() else { return };
        let moment = study.moments[index];
        let peak = study.peak.map_or(Bytes::ZERO, |peak| peak.allocated);
        let unit = self.stage.unit().of_part(peak);
        // At the peak itself the two columns would be equal.
        let beside_peak = self.cursor.is_some() && study.peak.is_none_or(|peak| peak.position != moment.position);
        let head = if beside_peak {
            format!("{:>9} {:>9}", unit.name(), "at peak")
        } else {
            format!("{:>9} {:>9}", unit.name(), "of it")
        };
        put_right(inner, 0, vec![span(theme, Token::Dim, head)], buf);
        let some = |bytes: Bytes| if bytes == Bytes::ZERO { "·".to_owned() } else { unit.or_smaller(bytes) };
        let figures = |bytes: Bytes, at_peak: Bytes| {
            let second =
                if beside_peak { some(at_peak) } else { figures::percent(bytes.get(), moment.allocated.get()) };
            format!("{:>9} {second:>9}", some(bytes))
        };
        let mut y = 1;
        // In the order in which the chart stacks them.
        for (number, group) in study.groups.iter().enumerate().rev() {
            let bytes = group.bytes.get(index).copied().unwrap_or_default();
            if y + 4 >= inner.height {
                break;
            }
            // Groups without bytes here that are visible nowhere.
            let own = ink(study.grouping, number, group, theme);
            if bytes.max(group.at_peak) == Bytes::ZERO && areas.is_some_and(|areas| areas.drawn_as(own) != Some(own)) {
                continue;
            }
            let room = usize::from(inner.width.saturating_sub(22));
            let name = format!(" {}", pane::cut_front(&group.name, room));
            put(inner, y, vec![self.mark(number, group, areas), span(theme, Token::Text, name)], buf);
            put_right(inner, y, vec![span(theme, Token::Strong, figures(bytes, group.at_peak))], buf);
            y += 1;
        }
        let total = vec![span(theme, Token::Strong, figures(moment.allocated, peak))];
        put(inner, y, vec![span(theme, Token::Text, "allocated")], buf);
        put_right(inner, y, total, buf);
        y += 2;
        for line in self.told_lines(usize::from(inner.width)) {
            if y >= inner.height {
                break;
            }
            put(inner, y, vec![span(theme, Token::Dim, line)], buf);
            y += 1;
        }
        self.largest(Rect { y: inner.y + y, height: inner.height.saturating_sub(y), ..inner }, unit, buf);
    }

    /// The mark of a group, in its own colour or in the joint one; a dot if nothing of it is drawn.
    fn mark(&self, number: usize, group: &StudyGroup, areas: Option<&Areas>) -> Span<'static> {
        let own = ink(self.study.grouping, number, group, self.theme());
        match areas.map_or(Some(own), |areas| areas.drawn_as(own)) {
            Some(drawn) => legend::mark(drawn, self.theme()),
            None => legend::unseen(own, self.theme()),
        }
    }

    /// Lists the names that hold most at the moment shown.
    fn largest(&self, area: Rect, unit: ByteUnit, buf: &mut Buffer) {
        let (theme, study) = (self.theme(), self.study);
        if area.height < 4 || study.grouping == Grouping::Name {
            return;
        }
        let here;
        let names = match self.cursor {
            Some(_) => {
                here = study.alive_at(self.stage.shown.position);
                &here
            }
            None => &study.at_peak,
        };
        put(area, 1, vec![span(theme, Token::Text, "largest")], buf);
        // Counts are as wide as the widest of them; the rest is for names.
        let count = |survivor: &Survivor| {
            if survivor.blocks > 1 { format!(" {}×", survivor.blocks) } else { String::new() }
        };
        let seen = names.iter().take(usize::from(area.height));
        let counts = seen.map(|survivor| count(survivor).chars().count()).max().unwrap_or(0);
        let room = usize::from(area.width.saturating_sub(12)).saturating_sub(counts);
        for (y, survivor) in (2..area.height).zip(names) {
            let line = vec![
                legend::legend_of(survivor.category, theme),
                span(theme, Token::Text, format!(" {}", pane::cut_name(&survivor.name, room))),
            ];
            put(area, y, line, buf);
            let figures = [
                span(theme, Token::Dim, count(survivor)),
                span(theme, Token::Strong, format!("{:>9}", unit.or_smaller(survivor.bytes))),
            ];
            put_right(area, y, figures.into(), buf);
        }
    }

    /// The op and phase in progress at the moment shown, and the name of the window.
    fn told_lines(&self, width: usize) -> Vec<String> {
        let study = self.study;
        let mut lines = Vec::new();
        if let Some(moment) = self.told().and_then(|index| study.moments.get(index)) {
            let position = self.cursor.map_or(moment.position, |_| self.stage.shown.position);
            if let Some(phase) = study.phase_at(position) {
                lines.push(phase.label().to_owned());
            }
            if let Some(run) = study.op_at(position.saturating_sub(1)) {
                lines.extend(pane::wrap(study.names.get(run.name), width));
            }
        }
        lines.push(String::new());
        lines.push(format!("{} memory events", study.events));
        if study.cut {
            lines.extend(pane::wrap("too many blocks to show each: zoom in for their lives", width));
        }
        lines
    }

    /// The legend in a few lines.
    fn words(&self, areas: Option<&Areas>, width: u16) -> Vec<Vec<Span<'static>>> {
        let (theme, study) = (self.theme(), self.study);
        let Some(index) = self.told() else { return Vec::new() };
        let moment = study.moments[index];
        let peak = study.peak.map_or(moment.allocated, |peak| peak.allocated);
        let unit = self.stage.unit().of_part(peak);
        let at = self.heading();
        let mut line = vec![
            span(theme, Token::Dim, format!(" {at} ")),
            span(theme, Token::Strong, unit.figure(moment.allocated)),
            span(theme, Token::Dim, format!(" {}", unit.name())),
        ];
        let mut lines = Vec::new();
        let mut order: Vec<(usize, &StudyGroup)> = study.groups.iter().enumerate().collect();
        order.sort_by_key(|(_, group)| std::cmp::Reverse(group.bytes.get(index).copied().unwrap_or_default()));
        for (number, group) in order {
            let bytes = group.bytes.get(index).copied().unwrap_or_default();
            // A group that can't be visible is not worth a word.
            if bytes.get().saturating_mul(400) < peak.get() {
                continue;
            }
            let entry = [
                Span::raw("  "),
                self.mark(number, group, areas),
                span(theme, Token::Dim, format!(" {} ", pane::cut(&group.name, 24))),
                span(theme, Token::Text, unit.or_smaller(bytes)),
            ];
            let cells: usize = line.iter().chain(&entry).map(Span::width).sum();
            if cells > usize::from(width) {
                lines.push(std::mem::take(&mut line));
            }
            line.extend(entry);
        }
        lines.push(line);
        lines
    }
}

/// The ink of a group's area. Categories have their own colours; other groups use the colours in turn.
fn ink(grouping: Grouping, index: usize, group: &StudyGroup, theme: &Theme) -> Ink {
    const LETTERS: [&str; 16] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    if grouping == Grouping::Category {
        return legend::ink(group.category, theme);
    }
    if group.rest {
        return Ink { token: Token::Dim, fill: if theme.is_colorless() { "z" } else { "█" } };
    }
    let colours = crate::model::Category::ALL;
    let fill = if theme.is_colorless() { LETTERS[index % LETTERS.len()] } else { "█" };
    Ink { token: colours[index % (colours.len() - 1)].into(), fill }
}
