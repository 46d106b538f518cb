//! Compares every configuration of a run: the figures of its steps, how they differ, and which is best.
//!
//! ```text
//!  ╭ configurations ─────────────────────────╮
//!  │ which is best                           │
//!  │ a row each                              │
//!  ╰─────────────────────────────────────────╯
//!  ╭ one step of each ─────╮╭ the selected ──╮
//!  │                       ││ one's switches │   (from 110 columns on)
//!  ╰───────────────────────╯╰────────────────╯
//! ```
//! For a single configuration there is no right pane. Its step is drawn by category, and a band over the whole width
//! shows its phases if they are known, or else its last steps side by side.

mod bar;
mod bars;
mod curves;
mod differences;
mod flips;
mod metric;
mod notes;
mod rows;
mod steps;
mod switches;

use std::sync::Arc;

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::model::Configuration;
use crate::source::SourceKind;
use crate::tui::action::{Action, Binding, Key, KeyGroup};
use crate::tui::large::Large;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::screens::lab;
use crate::tui::stage::{Chart, FrameLayout, Stage};
use crate::tui::states::{CompareAction, ScreenAction};

pub(crate) const SCREEN: Screen = Screen {
    key: '5',
    title: "Compare",
    draw,
    wants: |_, _| None,
    copied: rows::copied,
    large: &[Large::StepTime, Large::Effect],
    bindings,
};

/// From this size on panes have boxes, and the selected configuration's switches have a pane.
const BOXES: (u16, u16) = (110, 24);
/// The width of that pane.
const RIGHT: u16 = 44;
/// From this many rows below the table on, a band of phases or of steps leaves enough for the curve.
const ROWS_FOR_PHASES: u16 = 20;
/// The fewest rows of a chart below the flips, with its title.
const LEAST_CHART: u16 = 6;
const ROWS_FOR_STEPS: u16 = 14;
/// The same for steps above a band of flips.
const ROWS_FOR_BOTH: u16 = 24;

fn bindings() -> Vec<Binding> {
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Compare(action));
    let view =
        |keys: &[Key], label, action, hint, help| Binding::new(keys, label, own(action), KeyGroup::View, hint, help);
    use CompareAction::{Baseline, Go, Row};
    vec![
        view(&[named(KeyCode::Down), plain('j')], "↓ j", Row(1), "select", "select the next configuration"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", Row(-1), "", "select the previous configuration"),
        view(&[plain('d')], "d", Baseline, "baseline", "compare all others with the one selected"),
        view(
            &[named(KeyCode::Enter)],
            "Enter",
            Go,
            "its steps",
            "move the cursor to the first step of the one selected",
        )
        .brief("go to the first step of the one selected"),
        Binding::new(
            &[plain('+')],
            "+",
            Action::CompareFile,
            KeyGroup::View,
            "add a file",
            "add a recording, a PyTorch snapshot or the output of run --json",
        )
        .brief("add a recording, a snapshot or JSON of run"),
        view(&[plain('-')], "-", CompareAction::TakeAway, "", "remove the file of the one selected"),
    ]
}

/// What all parts of the screen are drawn from.
struct ComparisonFrame<'a> {
    stage: &'a Stage<'a>,
    all: Vec<Arc<Configuration>>,
    /// The file of each configuration that is not the run's.
    files: Vec<Option<Arc<str>>>,
    selected: usize,
    baseline: usize,
}

impl<'a> ComparisonFrame<'a> {
    /// `None` if there is no configuration yet.
    fn of(stage: &'a Stage<'a>) -> Option<Self> {
        // While steps go by, the figures are those of the mark, so that they change no more often than they can be read.
        let marked = stage.picture.marked.as_ref().filter(|_| stage.picture.goes_on());
        let own = marked.map_or(&*stage.picture.configurations, |marked| &*marked.view.configurations);
        let state = &stage.states.compare;
        let (files, all) = state.all(own).into_iter().unzip();
        Some(Self { stage, all, files, selected: state.selected(own)?, baseline: state.baseline(own)? })
    }

    /// True if there is nothing to compare with, so that changes are not mentioned.
    fn is_one(&self) -> bool {
        self.all.len() < 2
    }

    /// The name of a configuration: its file, unless it is one of several of a run, and how it differs from the first of all.
    fn name(&self, place: usize) -> String {
        let picture = self.stage.picture;
        let own = match &picture.kind {
            // Each device of several files has its own name.
            SourceKind::Snapshot(_) if picture.device.of > 1 => Some(&picture.view.about.workload),
            SourceKind::Snapshot(name) => Some(name),
            _ => None,
        };
        match self.files.get(place).and_then(Option::as_ref).or(own) {
            // A device of several is named without its file's extension, and so are the others.
            Some(file) => match differences::differences(&self.all, place).as_str() {
                "" if picture.device.of > 1 => without_kind(file).to_owned(),
                differences if picture.device.of > 1 => format!("{}: {differences}", without_kind(file)),
                "" => file.to_string(),
                differences => format!("{file}: {differences}"),
            },
            None => differences::name(&self.all, place),
        }
    }
}

/// A snapshot file's name without its extension.
fn without_kind(file: &str) -> &str {
    let plain = file.strip_suffix(".xz").unwrap_or(file);
    plain.strip_suffix(".pickle").unwrap_or(plain)
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    let Some(compared) = ComparisonFrame::of(stage) else {
        let text = match stage.picture.kind {
            SourceKind::Snapshot(_) => "no history here, so no peaks to compare",
            SourceKind::Watched(_) => "a watched program has no switches: nothing to compare",
            SourceKind::Live | SourceKind::Recording(_) => "no step has ended yet",
        };
        let middle = Rect { y: area.y + area.height / 2, height: 2.min(area.height), ..area };
        for (y, line) in (0..).zip(pane::wrap(text, usize::from(area.width.saturating_sub(2)))) {
            put(middle, y, vec![span(stage.theme, Token::Dim, format!(" {line}"))], buf);
        }
        return layout;
    };
    let boxes = area.width >= BOXES.0 && area.height >= BOXES.1;
    let kind = if boxes { Frame::Box } else { Frame::Rule };
    let wanted = rows::wanted_rows(&compared, kind, area.width);
    let [table, below] = area.layout::<2>(&Split::vertical([
        Constraint::Length(wanted.min(area.height.saturating_sub(area.height / 3))),
        Constraint::Min(0),
    ]));
    layout.rows = rows::render(&compared, kind, table, buf, &mut layout.targets);
    if compared.is_one() {
        let phases = switches::band_rows(&compared).filter(|_| boxes && below.height >= ROWS_FOR_PHASES);
        let steps = steps::wanted(&compared, kind, below.height).filter(|_| below.height >= ROWS_FOR_STEPS);
        // The steps of somebody's program differ more than those of an untouched lab.
        let phases = phases.filter(|_| steps.is_none() || !matches!(stage.picture.kind, SourceKind::Snapshot(_)));
        let rows = phases.or(steps).unwrap_or(0);
        // Without boxes the flips have a band of their own.
        let flips = flips::wanted(&compared).filter(|_| !boxes && below.height >= ROWS_FOR_STEPS);
        let rows = if flips.is_some() && below.height < ROWS_FOR_BOTH { 0 } else { rows };
        // The step is on the Lab too.
        let most = below.height.saturating_sub(rows + LEAST_CHART).max(below.height / 2);
        let flip_rows = flips.map_or(0, |rows| rows + 1).min(most);
        let [band, would, chart] = below.layout::<3>(&Split::vertical([
            Constraint::Length(rows),
            Constraint::Length(flip_rows),
            Constraint::Min(0),
        ]));
        if !would.is_empty() {
            let title = vec![span(stage.theme, Token::Title, "flips")];
            let inner = pane::frame(kind, title, stage.theme.style(Token::Border), would, buf);
            flips::render(&compared, Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }, buf);
        }
        match (band.is_empty(), phases) {
            (true, _) => {}
            (false, Some(_)) => switches::render_band(&compared, band, buf),
            (false, None) => steps::render(&compared, kind, band, buf),
        }
        curve_of_each(stage, &compared, kind, chart, buf, &mut layout);
    } else if boxes {
        let [chart, right] = below.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(RIGHT)]));
        curve_of_each(stage, &compared, kind, chart, buf, &mut layout);
        switches::render(&compared, right, buf);
        layout.panels.push((right, Panel::Switches));
    } else {
        curve_of_each(stage, &compared, kind, below, buf, &mut layout);
    }
    layout.panels.push((table, Panel::Configurations));
    layout
}

/// Draws the curves. For a single configuration, or before there are any curves, draws the step shown by category; if
/// the first step failed, that shows how far it got.
fn curve_of_each(
    stage: &Stage<'_>,
    compared: &ComparisonFrame<'_>,
    kind: Frame,
    area: Rect,
    buf: &mut Buffer,
    layout: &mut FrameLayout,
) {
    let curves = !compared.is_one() && compared.all.iter().any(|one| one.curve.is_some());
    if curves || stage.picture.shown_step().is_none() {
        curves::render(compared, kind, area, buf);
        layout.panels.push((area, Panel::Curves));
    } else {
        layout.charts.push((lab::step_curve(stage, kind, area, buf), Chart::Step));
        layout.panels.push((area, Panel::StepCurve));
    }
}
