//! The Lab screen.
//!
//! ```text
//!  from 100×30 on                             smaller
//!  header                                     header
//!  ╭ memory ────────────╮╭ switches ─────╮    ─ memory ──────────
//!  │                    ││               │    chart
//!  ╰────────────────────╯╰───────────────╯    ─ blocks ──────────
//!  ╭ blocks ────────────╮╭ effect ───────╮    map
//!  │                    ││               │    switches
//!  │                    │╰───────────────╯    effect
//!  │                    │ step, loss, log     step
//!  ╰────────────────────╯                     why
//!  why                                        keys
//!  keys
//! ```
//!
//! On a GPU a pane between memory and blocks (smaller: a line below the step) shows it as its driver sees it.

mod block_map;
mod blocks;
mod chart;
mod effect;
mod footer;
mod gpu;
mod header;
mod ledger;
mod log;
mod loss;
mod memory;
pub(crate) mod pane;
mod steps;
mod switches;

pub(crate) use blocks::{account_marks, legend_of};

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

use self::pane::{Frame, span};
use super::app::{App, Layout};
use super::theme::Token;
use crate::session::{LabState, RunState};

/// Whose times a lab shows: every figure of a simulated clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// They were measured.
    Real,
    /// They are a model's.
    Simulated,
}

impl Clock {
    const fn of_lab(lab: &LabState) -> Self {
        if lab.simulated { Self::Simulated } else { Self::Real }
    }

    /// The word that fits.
    const fn of(self, real: &'static str, simulated: &'static str) -> &'static str {
        match self {
            Self::Real => real,
            Self::Simulated => simulated,
        }
    }
}

/// The smallest terminal that shows the lab.
pub(crate) const SMALLEST: (u16, u16) = (40, 12);
/// From this size on there is a column of panes at the right.
const TWO_COLUMNS: (u16, u16) = (100, 30);
/// Cells of that column: what the switches need, and more where there is plenty.
const RIGHT: u16 = 49;

/// Draws the screen; returns what clicks and keys need to know of it.
pub(crate) fn render(app: &App, area: Rect, buf: &mut Buffer) -> Layout {
    let mut layout = Layout::default();
    let rows = |header: u16, why: u16| {
        Split::vertical([
            Constraint::Length(header),
            Constraint::Min(0),
            Constraint::Length(why),
            Constraint::Length(1),
        ])
    };
    let wide = area.width >= TWO_COLUMNS.0 && area.height >= TWO_COLUMNS.1;
    let told = matches!(app.latest().run, RunState::Failed(_) | RunState::StepFailed(_) | RunState::Lost(_));
    let has_why = told || !app.latest().view.findings.is_empty();
    let why = if area.height >= 22 && area.width < 160 { 2 } else { u16::from(has_why || wide) };
    let [top, body, why, keys] = area.layout::<4>(&rows(header::rows(area.width), why));
    header::render(app.latest(), app.theme(), top, buf);
    if app.latest().run == RunState::Starting && app.latest().view.segments.is_empty() {
        building(app, body, buf);
    } else if wide {
        two_columns(app, body, buf, &mut layout);
    } else {
        one_column(app, body, buf, &mut layout);
    }
    footer::render_why(app.latest(), app.theme(), why, buf);
    footer::render_keys(app.latest(), app.notice(), app.theme(), keys, buf, &mut layout.targets);
    layout
}

fn building(app: &App, body: Rect, buf: &mut Buffer) {
    let name = if app.latest().workload.is_empty() { "the model" } else { &app.latest().workload };
    let text = format!("building {name} …");
    let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
    let middle = Rect { y: body.y + body.height / 2, height: 1.min(body.height), ..body };
    let x = body.width.saturating_sub(width) / 2;
    pane::put_at(middle, x, 0, vec![span(app.theme(), Token::Text, text)], buf);
}

fn two_columns(app: &App, body: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let right = (body.width / 3).clamp(RIGHT, 62);
    let [left, right] = body.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(right)]));
    // The map gets what its segments can use, the chart at least two fifths.
    let gpu = app.latest().view.gpu.as_deref();
    let gpu_rows = if gpu.is_some() { gpu::wanted_rows(left.width) } else { 0 };
    let memory_rows =
        Constraint::Ratio(42 * u32::from(left.height - gpu_rows.min(left.height)), 100 * u32::from(left.height).max(1));
    let [memory, middle, blocks] =
        left.layout::<3>(&Split::vertical([memory_rows, Constraint::Length(gpu_rows), Constraint::Min(0)]));
    draw_memory(app, Frame::Box, memory, buf, layout);
    if let Some(gpu) = gpu {
        gpu::render(gpu, app.theme(), middle, buf);
    }
    draw_blocks(app, Frame::Box, blocks, buf, layout);

    let (latest, theme) = (app.latest(), app.theme());
    let clock = Clock::of_lab(latest);
    let view = &latest.view;
    let mut rest = right;
    let mut take = |rows: u16| {
        let rows = rows.min(rest.height);
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        part
    };
    let releasable = app.shown().view.ledger.releasable;
    switches::render(latest, releasable, theme, take(switches::wanted_rows(latest)), buf, &mut layout.targets);
    let effect = view.effects.last();
    effect::render(effect, clock, latest.items, app.effect_is_loud(), theme, take(effect::WANTED_ROWS), buf);
    steps::render(&view.steps, clock, theme, take(steps::WANTED_ROWS), buf);
    let mut spare = rest.height;
    let mut take = |rows: u16| {
        let rows = rows.min(rest.height);
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        part
    };
    if spare >= 24 {
        ledger::render(&app.shown().view, theme, take(ledger::WANTED_ROWS), buf);
        spare -= ledger::WANTED_ROWS;
    }
    if spare >= 5 {
        loss::render(&view.steps, theme, take(if spare >= 18 { 8 } else { (spare / 2).max(5) }), buf);
    }
    let mut sample = view.generated.as_ref();
    if sample.is_some() && rest.height >= 9 {
        let rows = rest.height / 2;
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        log::render_sample(sample.take(), theme, part, buf);
    }
    if rest.height >= 3 {
        log::render(&view.log, sample, theme, rest, buf);
    }
}

fn one_column(app: &App, body: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let (latest, theme) = (app.latest(), app.theme());
    let clock = Clock::of_lab(latest);
    let switches = if body.width >= 120 { 2 } else { 3 };
    let below = switches + 2;
    let areas = Split::vertical([
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(switches.min(body.height / 4)),
        Constraint::Length(u16::from(body.height > below + 4)),
        Constraint::Length(u16::from(body.height > below + 6)),
        Constraint::Length(u16::from(latest.view.gpu.is_some() && body.height > below + 8)),
    ]);
    let [memory, blocks, switches, effect, steps, gpu] = body.layout::<6>(&areas);
    draw_memory(app, Frame::Rule, memory, buf, layout);
    draw_blocks(app, Frame::Rule, blocks, buf, layout);
    let releasable = app.shown().view.ledger.releasable;
    switches::render_compact(latest, releasable, theme, switches, buf, &mut layout.targets);
    effect::render_line(latest.view.effects.last(), clock, app.effect_is_loud(), theme, effect, buf);
    steps::render_line(&latest.view.steps, clock, theme, steps, buf);
    if let Some(reading) = latest.view.gpu.as_deref() {
        gpu::render_line(reading, theme, gpu, buf);
    }
}

fn draw_memory(app: &App, kind: Frame, area: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let (latest, shown) = (&app.latest().view, &app.shown().view);
    layout.chart_columns = memory::render(latest, shown, app.chart_level(), kind, app.theme(), area, buf);
}

fn draw_blocks(app: &App, kind: Frame, area: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let view = &app.shown().view;
    layout.block_rows = blocks::render(view, app.holds_fullest(), app.blocks_scroll(), kind, app.theme(), area, buf);
}
