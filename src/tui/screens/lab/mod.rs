//! The Lab: peaks of every step, the curve of one, every block of every segment, and what can be flipped.
//!
//! ```text
//!  from 100×30 on                             smaller
//!  ╭ history ───────────╮╭ switches ─────╮    ─ history ─────────
//!  ╰────────────────────╯│               │    ─ this step ───────
//!  ╭ this step ─────────╮╰───────────────╯    ─ blocks ──────────
//!  ╰────────────────────╯╭ effect ───────╮    switches
//!  ╭ blocks ────────────╮╰───────────────╯    effect
//!  │                    │╭ why ──────────╮    why
//!  ╰────────────────────╯╰───────────────╯
//! ```

mod blocks;
mod effect;
mod ghost;
mod gpu;
mod history;
mod ledger;
mod log;
mod loss;
mod reading;
mod step;
mod steps;
mod switches;
mod why;

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

use crate::model::{Evidence, Finding};
use crate::source::Kind;
use crate::tui::action::{Action, Binding, Group, Key};
use crate::tui::autopsy;
use crate::tui::copied;
use crate::tui::large::Large;
use crate::tui::pane::Frame;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::stage::{Chart, Layout, Stage};
use crate::tui::states::{LabAction, ScreenAction};

pub(crate) const SCREEN: Screen = Screen {
    key: '1',
    title: "Lab",
    draw,
    wants: |_, _| None,
    copied: copied::moment,
    large: &[Large::Allocated, Large::Reserved, Large::StepTime, Large::Effect],
    bindings,
};

/// From this size on there is a column of panes at the right.
const TWO_COLUMNS: (u16, u16) = (100, 27);
/// Cells of that column: what the switches need, and more where there is plenty.
const RIGHT: u16 = 49;

/// Rows of the smallest pane that says something, with its frame.
const LEAST_ROWS: u16 = 4;
/// A body of fewer rows has one chart that can be read instead of two that can't; of fewer than the second, no map.
const TWO_CHARTS: u16 = 19;
const WITH_MAP: u16 = 14;

fn bindings() -> Vec<Binding> {
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Lab(action));
    let view = |keys: &[Key], label, action, hint, help| Binding::new(keys, label, action, Group::View, hint, help);
    vec![
        view(
            &[plain(']'), plain('+'), plain('=')],
            "] +",
            own(LabAction::ZoomIn),
            "",
            "history: look closer at the last steps",
        ),
        view(
            &[plain('['), plain('-')],
            "[ -",
            own(LabAction::ZoomOut),
            "",
            "history: see more steps, at last all of them",
        ),
        view(
            &[plain('G')],
            "G",
            Action::Ghost,
            "ghost",
            "a ghost: what another allocator setting would have come to, predicted beside the run",
        ),
        view(&[named(KeyCode::Down), plain('j')], "↓ j", Action::Scroll(1), "", "scroll the blocks"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", Action::Scroll(-1), "", "scroll the blocks back"),
        view(&[plain('J')], "J", Action::ScrollPage(1), "", "next page of blocks"),
        view(&[plain('K')], "K", Action::ScrollPage(-1), "", "previous page of blocks"),
    ]
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> Layout {
    let mut layout = Layout::default();
    if area.width >= TWO_COLUMNS.0 && area.height >= TWO_COLUMNS.1 {
        two_columns(stage, area, buf, &mut layout);
    } else {
        one_column(stage, area, buf, &mut layout);
    }
    layout
}

fn two_columns(stage: &Stage<'_>, body: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let right = (body.width / 3).clamp(RIGHT, 62);
    let [left, right] = body.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(right)]));
    let gpu = stage.view().gpu.as_deref();
    let gpu_rows = if gpu.is_some() { gpu::wanted_rows(left.width) } else { 0 };
    let rest = left.height.saturating_sub(gpu_rows);
    // The line of a ghost stands below the chart that has its curve.
    let ghost_rows = ghost::wanted_rows(stage);
    let (above, below) = if is_snapshot(stage) { (0, ghost_rows) } else { (ghost_rows, 0) };
    let [history, ghost, step, ghost_below, middle, map] = left.layout::<6>(&Split::vertical([
        Constraint::Length(rest * 30 / 100),
        Constraint::Length(above),
        Constraint::Length(rest * 32 / 100),
        Constraint::Length(below),
        Constraint::Length(gpu_rows),
        Constraint::Min(0),
    ]));
    ghost::render_line(stage, if above > 0 { ghost } else { ghost_below }, buf);
    if is_snapshot(stage) {
        only_chart(stage, Frame::Box, history.union(step), buf, layout);
    } else {
        charts(stage, Frame::Box, history, step, buf, layout);
    }
    if let Some(gpu) = gpu {
        gpu::render(gpu, stage.theme, middle, buf);
        layout.panels.push((middle, Panel::Gpu));
    }
    layout.rows = blocks::render(stage, Frame::Box, map, buf);
    layout.panels.push((map, Panel::Map));
    if is_snapshot(stage) {
        beside_a_snapshot(stage, right, buf, layout);
        return;
    }

    let mut rest = right;
    let mut take = |rows: u16| {
        let rows = rows.min(rest.height);
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        part
    };
    let part = take(switches::wanted_rows(stage));
    switches::render(stage, part, buf, &mut layout.targets);
    layout.panels.push((part, Panel::Switches));
    let theme = stage.theme;
    let view = stage.view();
    if let Some(autopsy) = &view.autopsy {
        // It takes the place of everything else that could be said.
        autopsy::render(stage, autopsy, rest, buf);
        layout.panels.push((rest, Panel::Why));
        return;
    }
    let part = take(effect::WANTED_ROWS);
    effect::render(stage, part, buf);
    layout.panels.push((part, Panel::Effect));
    let why = why::wanted_rows(stage, right.width).clamp(3, 8) + 2;
    // A pane of no more than a title says nothing.
    let why = if rest.height < why + LEAST_ROWS { rest.height } else { why };
    let mut take = |rows: u16| {
        let rows = rows.min(rest.height);
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        (part, rest.height)
    };
    let (part, _) = take(why);
    why::render(stage, part, buf);
    layout.panels.push((part, Panel::Why));
    if take(0).1 >= LEAST_ROWS && (view.steps.finished > 0 || body.height >= 40) {
        let (part, _) = take(steps::WANTED_ROWS);
        steps::render(&view.steps, stage.clock(), theme, part, buf);
        layout.panels.push((part, Panel::StepTimes));
    }
    let (_, left) = take(0);
    if left >= 22 {
        let (part, _) = take(ledger::WANTED_ROWS);
        ledger::render(stage, part, buf);
        layout.panels.push((part, Panel::Accounts));
    }
    let (_, left) = take(0);
    if left >= 12 {
        let (part, _) = take(7);
        loss::render(&view.steps, theme, part, buf);
        layout.panels.push((part, Panel::Loss));
    }
    let (_, left) = take(0);
    let mut sample = view.generated.as_ref();
    if sample.is_some() && left >= 10 {
        let (part, _) = take(left / 2);
        log::render_sample(sample.take(), theme, part, buf);
        layout.panels.push((part, Panel::Log));
    }
    let (_, left) = take(0);
    if left >= 3 {
        let (part, _) = take(left);
        log::render(&view.log, sample, theme, part, buf);
        layout.panels.push((part, Panel::Log));
    }
}

/// Memory over time, and nothing that trains: neither steps nor switches.
fn is_snapshot(stage: &Stage<'_>) -> bool {
    matches!(stage.picture.kind, Kind::Snapshot(_))
}

fn beside_a_snapshot(stage: &Stage<'_>, right: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let view = stage.view();
    let why = why::wanted_rows(stage, right.width).clamp(3, 12) + 2;
    let rows = [Constraint::Length(ledger::WANTED_ROWS), Constraint::Length(why), Constraint::Min(0)];
    let [accounts, why, rest] = right.layout::<3>(&Split::vertical(rows));
    ledger::render(stage, accounts, buf);
    let panels = [(accounts, Panel::Accounts), (why, Panel::Why), (rest, Panel::Log)];
    layout.panels.extend(panels);
    if let Some(autopsy) = &view.autopsy {
        autopsy::render(stage, autopsy, why.union(rest), buf);
        return;
    }
    why::render(stage, why, buf);
    log::render(&view.log, None, stage.theme, rest, buf);
}

fn one_column(stage: &Stage<'_>, body: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let switches = match body.width {
        120.. => 2,
        70.. => 3,
        _ => 4,
    };
    let trains = !is_snapshot(stage);
    let (two_charts, map) = (body.height >= TWO_CHARTS && trains, body.height >= WITH_MAP);
    let autopsy = stage.view().autopsy.as_ref();
    // What it says takes the place of everything else that could be said.
    let told = u16::from(autopsy.is_none() && trains);
    let why = match (autopsy, body.height) {
        (Some(_), height) => (height * 2 / 5).max(1),
        (None, 20..) => why::wanted_rows(stage, body.width).min(5),
        (None, WITH_MAP..) => why::wanted_rows(stage, body.width).min(3),
        (None, _) => why::wanted_rows(stage, body.width).min(2),
    };
    let areas = Split::vertical([
        if two_charts { Constraint::Fill(5) } else { Constraint::Length(0) },
        Constraint::Length(ghost::wanted_rows(stage)),
        Constraint::Fill(if two_charts { 5 } else { 8 }),
        if map { Constraint::Fill(4) } else { Constraint::Length(0) },
        Constraint::Length(if trains { switches.min(body.height / 3) } else { 0 }),
        Constraint::Length(told),
        Constraint::Length(if two_charts { told } else { 0 }),
        Constraint::Length(u16::from(stage.view().gpu.is_some() && body.height > 20)),
        Constraint::Length(why),
    ]);
    let [history, ghost, step, blocks, switches, effect, times, gpu, why] = body.layout::<9>(&areas);
    ghost::render_line(stage, ghost, buf);
    if two_charts {
        charts(stage, Frame::Rule, history, step, buf, layout);
    } else {
        only_chart(stage, Frame::Rule, step, buf, layout);
    }
    if map {
        layout.rows = blocks::render(stage, Frame::Rule, blocks, buf);
        layout.panels.push((blocks, Panel::Map));
    }
    layout.panels.extend([
        (switches, Panel::Switches),
        (effect, Panel::Effect),
        (times, Panel::StepTimes),
        (gpu, Panel::Gpu),
        (why, Panel::Why),
    ]);
    switches::render_compact(stage, switches, buf, &mut layout.targets);
    effect::render_line(stage, effect, buf);
    steps::render_line(&stage.view().steps, stage.clock(), stage.theme, times, buf);
    if let Some(reading) = stage.view().gpu.as_deref() {
        gpu::render_line(reading, stage.theme, gpu, buf);
    }
    match autopsy {
        Some(autopsy) => autopsy::render_lines(stage, autopsy, why, buf),
        None => why::render_lines(stage, why, buf),
    }
}

fn charts(stage: &Stage<'_>, kind: Frame, history: Rect, step: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let plot = history::render(stage, kind, history, buf);
    layout.history_columns = usize::from(plot.width);
    layout.charts.push((plot, Chart::History));
    layout.charts.push((step::render(stage, kind, step, buf), Chart::Step));
    layout.panels.extend([(history, Panel::History), (step, Panel::StepCurve)]);
}

/// Where only one chart has room it is the curve of the step, unless what is to be seen happens from step to step: a leak, or
/// what somebody looks closer at.
fn only_chart(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer, layout: &mut Layout) {
    let leaks = |finding: &Finding| matches!(finding.evidence, Evidence::Leak { .. });
    if !is_snapshot(stage) && (stage.states.lab.zoom.is_some() || stage.view().findings.iter().any(leaks)) {
        let plot = history::render(stage, kind, area, buf);
        layout.history_columns = usize::from(plot.width);
        layout.charts.push((plot, Chart::History));
        layout.panels.push((area, Panel::History));
    } else {
        layout.history_columns = usize::from(area.width);
        layout.charts.push((step::render(stage, kind, area, buf), Chart::Step));
        layout.panels.push((area, Panel::StepCurve));
    }
}
