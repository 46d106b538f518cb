//! The Lab: the peaks of every step, the curve of one step, every block of every segment, and the switches.
//!
//! ```text
//!  from 100×30 on                             smaller
//!  ╭ history ───────────╮╭ switches ─────╮    ─ history ─ this step ─────────
//!  ╰────────────────────╯│               │
//!  ╭ this step ─────────╮╰───────────────╯
//!  │                    │                     ─ blocks ──────────────────────
//!  ╰────────────────────╯╭ effect ───────╮    switches
//!  ╭ blocks ────────────╮╰───────────────╯    effect
//!  │                    │╭ why ──────────╮    why
//!  ╰────────────────────╯╰───────────────╯
//! ```

mod blocks;
mod earlier;
mod effect;
mod ghost;
mod gpu;
mod history;
mod ledger;
mod log;
mod loss;
mod ranks;
mod reading;
mod sketch;
mod step;
mod step_beside;
mod step_legend;
mod steps;
mod switches;
mod why;

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};

pub(crate) use blocks::render as block_map;
pub(crate) use history::{ColumnPart, Parts, stack as column_stack};
pub(crate) use sketch::render as step_sketch;
pub(crate) use step::render as step_curve;

use crate::drawing::pane::Frame;
use crate::model::{Autopsy, Evidence, RunState};
use crate::source::SourceKind;
use crate::tui::action::{Action, Binding, Key, KeyGroup};
use crate::tui::autopsy;
use crate::tui::copied;
use crate::tui::hold::Hold;
use crate::tui::holders;
use crate::tui::large::Large;
use crate::tui::panel::Panel;
use crate::tui::screens::entry::Screen;
use crate::tui::stage::{Chart, FrameLayout, Stage};
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
/// From this height on a second finding has room.
const TWO_FINDINGS: u16 = 45;
/// The width of that column: as much as the switches need, and more if there is plenty.
const RIGHT: u16 = 49;

/// Rows of the history with its frame while nothing changes from step to step, and the fewest rows after a change.
const STRIP: u16 = 6;
/// From this width on, and below this height, the history is beside the step, because both then have more rows. It
/// takes these cells of the width: more after a change.
const SIDE_BY_SIDE: (u16, u16) = (72, 34);
const BESIDE: [u16; 2] = [18, 32];
/// A lower body in one column has no words below the history.
const STRIP_WITH_AXIS: u16 = 26;
const NEWS: u16 = 8;

/// The fewest rows of a useful pane, with its frame.
const LEAST_ROWS: u16 = 4;
/// A body with fewer rows has one readable chart instead of two; with fewer rows than the second constant, no map.
const TWO_CHARTS: u16 = 19;
/// The same while the user steps from op to op, which a history without changes does not show.
const TWO_CHARTS_STEPPED: u16 = 30;
const WITH_MAP: u16 = 14;
/// The same in a body below which there is a lesson.
const WITH_MAP_IN_LESSON: u16 = 8;
/// In fewer cells a sentence takes one more row, at the expense of the least used switches.
const NARROW: u16 = 50;

fn bindings() -> Vec<Binding> {
    let (plain, named) = (Key::plain, Key::named);
    let own = |action| Action::Own(ScreenAction::Lab(action));
    let view = |keys: &[Key], label, action, hint, help| Binding::new(keys, label, action, KeyGroup::View, hint, help);
    vec![
        view(&[plain(']'), plain('+')], "] +", own(LabAction::ZoomIn), "", "history: zoom in on the last steps"),
        view(
            &[plain('['), plain('-')],
            "[ -",
            own(LabAction::ZoomOut),
            "",
            "history: zoom out, until all steps are seen",
        )
        .brief("history: zoom out"),
        view(&[plain('G')], "G", Action::Ghost, "ghost", "ghost: other allocator settings, predicted beside the run")
            .brief("ghost: predict other allocator settings"),
        view(&[named(KeyCode::Down), plain('j')], "↓ j", Action::Scroll(1), "", "scroll the blocks down"),
        view(&[named(KeyCode::Up), plain('k')], "↑ k", Action::Scroll(-1), "", "scroll the blocks up"),
        view(&[plain('J')], "J", Action::ScrollPage(1), "", "next page of blocks"),
        view(&[plain('K')], "K", Action::ScrollPage(-1), "", "previous page of blocks"),
    ]
}

fn draw(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let mut layout = FrameLayout::default();
    if area.width >= TWO_COLUMNS.0 && area.height >= TWO_COLUMNS.1 {
        two_columns(stage, area, buf, &mut layout);
    } else {
        one_column(stage, area, buf, &mut layout);
    }
    layout
}

fn two_columns(stage: &Stage<'_>, body: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    let ranks = Rect { height: ranks::wanted_rows(stage, body), ..body };
    if !ranks.is_empty() {
        ranks::render(stage, ranks, buf);
        layout.panels.push((ranks, Panel::Ranks));
    }
    let body = Rect { y: body.y + ranks.height, height: body.height - ranks.height, ..body };
    let right = (body.width / 3).clamp(RIGHT, 62);
    let [left, right] = body.layout::<2>(&Split::horizontal([Constraint::Min(0), Constraint::Length(right)]));
    let gpu = stage.view().gpu.as_deref();
    let gpu_rows = if gpu.is_some() { gpu::wanted_rows(left.width) } else { 0 };
    let rest = left.height.saturating_sub(gpu_rows);
    // The ghost's line is below the chart that has its curve.
    let ghost_rows = ghost::wanted_rows(stage);
    let (above, below) = if is_snapshot(stage) { (0, ghost_rows) } else { (ghost_rows, 0) };
    let steps_are_shown = has_steps(stage) && !failed_at_once(stage);
    // The curve of one step is most important. The peaks of all steps are a strip above it until they change.
    let history_rows = match (steps_are_shown, has_news(stage)) {
        (false, _) => 0,
        (true, true) => (rest / 4).max(NEWS).min(rest / 3),
        (true, false) => STRIP.min(rest / 4),
    };
    let [history, ghost, step, ghost_below, middle, map] = left.layout::<6>(&Split::vertical([
        Constraint::Length(history_rows),
        Constraint::Length(above),
        Constraint::Length((rest - history_rows) * 3 / 5),
        Constraint::Length(below),
        Constraint::Length(gpu_rows),
        Constraint::Min(0),
    ]));
    ghost::render_line(stage, if above > 0 { ghost } else { ghost_below }, buf);
    if steps_are_shown {
        charts(stage, Frame::Box, history, step, buf, layout);
    } else {
        only_chart(stage, Frame::Box, step, buf, layout);
    }
    if let Some(gpu) = gpu {
        gpu::render(gpu, stage.theme, middle, buf);
        layout.panels.push((middle, Panel::Gpu));
    }
    blocks::render(stage, Frame::Box, map, buf, layout);
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
    // Panes that a lesson switches off leave their rows to the lesson's subject.
    let led = stage.hold > Hold::Goal;
    if !led {
        let part = take(switches::wanted_rows(stage, right.width));
        switches::render(stage, part, buf, &mut layout.targets);
        layout.panels.push((part, Panel::Switches));
    }
    let theme = stage.theme;
    let view = stage.view();
    if let Some(autopsy) = &stage.picture.autopsy() {
        // The failure replaces everything else that could be said.
        failure(stage, autopsy, rest, buf, layout);
        return;
    }
    // A goal replaces remarks about the run, which could be the way to it.
    let taught = stage.hold > Hold::Nothing;
    if !taught || effect::is_known(stage) {
        let part = take(effect::wanted_rows(stage));
        effect::render(stage, part, buf);
        layout.panels.push((part, Panel::Effect));
    }
    let why = why::wanted_rows(stage, right.width, why::FRAMED, findings_in(body.height)).clamp(5, 12) + 2;
    // A pane with nothing but a title is of no use.
    let known = stage.picture.known();
    let steps = &known.steps;
    let before_flip =
        known.effects.last().is_some_and(|effect| !effect.flips.is_empty() && effect.step == steps.finished);
    let wanted = steps::wanted_rows(steps);
    let why = match rest.height.checked_sub(why) {
        // The row of exchanges with other ranks is worth a row of the findings.
        Some(left) if wanted > steps::USUAL_ROWS && (LEAST_ROWS..wanted).contains(&left) => why - 1,
        // So are the holders, if they lack only a row or two.
        Some(left) if (wanted + 2..wanted + LEAST_ROWS).contains(&left) && holders::are_shown(stage) => {
            why - (wanted + LEAST_ROWS - left)
        }
        Some(left) if left >= LEAST_ROWS => why,
        _ => rest.height,
    };
    // Rows that no pane below needs are for more findings.
    let timed = steps::are_timed(steps) && (steps.finished > 0 || body.height >= 40);
    let below = if timed { wanted } else { 0 };
    let unused = rest.height.saturating_sub(why + below);
    let why = if unused < 22 && stage.log().is_empty() && view.generated.is_none() && holders::are_shown(stage) {
        let all = why::wanted_rows(stage, right.width, why::FRAMED, usize::MAX).saturating_add(2);
        why.max(all.min(why + unused.saturating_sub(holders::most_rows(stage).max(LEAST_ROWS))))
    } else {
        why
    };
    // The rows left below are for a useful pane, or for the findings.
    let left = rest.height.saturating_sub(why + below);
    let why = if left < LEAST_ROWS && (left < LEAST_ROWS - 1 || stage.log().is_empty()) { why + left } else { why };
    let mut take = |rows: u16| {
        let rows = rows.min(rest.height);
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        (part, rest.height)
    };
    if !taught {
        let (part, _) = take(why);
        why::render(stage, part, buf);
        layout.panels.push((part, Panel::Why));
    }
    if timed && take(0).1 >= LEAST_ROWS {
        let (part, _) = take(wanted);
        steps::render(steps, before_flip, stage.clock(), theme, part, buf);
        layout.panels.push((part, Panel::StepTimes));
    }
    let (_, left) = take(0);
    if left >= 22 {
        let (part, _) = take(ledger::WANTED_ROWS);
        ledger::render(stage, part, buf);
        layout.panels.push((part, Panel::Accounts));
    }
    let (_, left) = take(0);
    if left >= 12 && !view.steps.losses.is_empty() {
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
    // As many rows of the log as it needs; the rest is for the holders of the memory shown.
    let (_, left) = take(0);
    let said = stage.log().len() + usize::from(sample.is_some());
    let wanted = u16::try_from(2 * said + 2).unwrap_or(u16::MAX).clamp(3, 14);
    // The model's text alone does not take room from the holders.
    let both = left >= wanted + LEAST_ROWS + 2 || !stage.log().is_empty() || !holders::are_shown(stage);
    if left >= 3 && said > 0 && both {
        let (part, _) = take(if left < wanted + LEAST_ROWS + 2 { left } else { wanted });
        log::render(stage.log(), sample, false, theme, part, buf);
        layout.panels.push((part, Panel::Log));
    }
    let (_, left) = take(0);
    if left >= LEAST_ROWS && holders::are_shown(stage) {
        let (part, _) = take(left);
        holders::render(stage, Frame::Box, part, buf);
        layout.panels.push((part, Panel::Alive));
    }
}

/// Draws why a request failed, and below it the holders if there is room.
fn failure(stage: &Stage<'_>, autopsy: &Autopsy, area: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    let wanted = autopsy::wanted_rows(stage, autopsy, area.width);
    let held = area.height.saturating_sub(wanted);
    let held = if held >= LEAST_ROWS + 2 && holders::are_shown(stage) { held } else { 0 };
    let [why, held] = area.layout::<2>(&Split::vertical([Constraint::Min(0), Constraint::Length(held)]));
    autopsy::render(stage, autopsy, why, buf);
    layout.panels.push((why, Panel::Why));
    if !held.is_empty() {
        holders::render(stage, Frame::Box, held, buf);
        layout.panels.push((held, Panel::Alive));
    }
}

/// True if something changed from step to step, so that the peaks of all steps deserve more than a strip.
fn has_news(stage: &Stage<'_>) -> bool {
    is_looked_at(stage) || stage.picture.history.marks().next().is_some() || leaks(stage)
}

/// True if the user looks at the peaks of all steps more closely, or there is a ghost.
fn is_looked_at(stage: &Stage<'_>) -> bool {
    stage.states.lab.zoom.is_some() || stage.picture.ghost.is_some()
}

/// True for a run that failed in its first step, in which there is nothing to compare.
fn failed_at_once(stage: &Stage<'_>) -> bool {
    stage.view().steps.finished == 0 && stage.picture.autopsy().is_some()
}

fn leaks(stage: &Stage<'_>) -> bool {
    stage.findings().iter().any(|finding| matches!(finding.evidence, Evidence::Leak { .. }))
}

/// How many findings fit in a column of `rows`.
const fn findings_in(rows: u16) -> usize {
    if rows < TWO_FINDINGS { 1 } else { 2 }
}

/// True for memory over time without training: neither steps nor switches.
fn is_snapshot(stage: &Stage<'_>) -> bool {
    matches!(stage.picture.kind, SourceKind::Snapshot(_))
}

/// True if there is a chart of steps: for a snapshot, if it has more than one.
pub(super) fn has_steps(stage: &Stage<'_>) -> bool {
    !is_snapshot(stage) || stage.picture.history.columns() > 1 && stage.view().steps.finished > 1
}

fn beside_a_snapshot(stage: &Stage<'_>, right: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    let view = stage.view();
    let why = why::wanted_rows(stage, right.width, why::FRAMED, findings_in(right.height)).clamp(3, 12) + 2;
    // Messages while it was read, if there were any; the rest is for the holders of the memory shown.
    let said = if view.log.is_empty() { 0 } else { log::wanted_rows(&view.log, right.width).min(8) };
    let rows = [ledger::WANTED_ROWS, why, said].map(Constraint::Length);
    let rows = Split::vertical([rows[0], rows[1], rows[2], Constraint::Min(0)]);
    let [accounts, why, said, rest] = right.layout::<4>(&rows);
    ledger::render(stage, accounts, buf);
    layout.panels.push((accounts, Panel::Accounts));
    if let Some(autopsy) = &stage.picture.autopsy() {
        let whole = why.union(said).union(rest);
        failure(stage, autopsy, whole, buf, layout);
        return;
    }
    why::render(stage, why, buf);
    layout.panels.push((why, Panel::Why));
    if !said.is_empty() {
        log::render(&view.log, None, true, stage.theme, said, buf);
        layout.panels.push((said, Panel::Log));
    }
    if rest.height >= LEAST_ROWS && holders::are_shown(stage) {
        holders::render(stage, Frame::Box, rest, buf);
        layout.panels.push((rest, Panel::Alive));
    }
}

fn one_column(stage: &Stage<'_>, body: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    let ranks = Rect { height: ranks::line_rows(stage).min(body.height), ..body };
    if !ranks.is_empty() {
        ranks::render_line(stage, ranks, buf);
        layout.panels.push((ranks, Panel::Ranks));
    }
    let body = Rect { y: body.y + ranks.height, height: body.height - ranks.height, ..body };
    let switches = match body.width {
        _ if switches::are_a_line(stage) => 1,
        120.. => 2,
        70.. => 3,
        _ => 4,
    };
    // Switches that a lesson holds back leave their rows to the lesson's subject: reserved bytes are shown in the map.
    let led = stage.hold > Hold::Goal;
    let trains = !is_snapshot(stage);
    let map = body.height >= if led { WITH_MAP_IN_LESSON } else { WITH_MAP };
    let autopsy = stage.picture.autopsy();
    let autopsy = autopsy.as_deref();
    // The failure replaces everything else that could be said.
    let told = u16::from(autopsy.is_none() && trains);
    // A user who goes from op to op watches the blocks, so panes that change only with steps make room.
    let paused = stage.picture.run == RunState::Paused && stage.picture.is_now();
    let stepped = paused && autopsy.is_none() && !stage.hold.asks();
    // A history beside the step takes none of these rows.
    let beside = body.width >= SIDE_BY_SIDE.0 && body.height < SIDE_BY_SIDE.1;
    let least = if stepped && !has_news(stage) && !beside { TWO_CHARTS_STEPPED } else { TWO_CHARTS };
    let climbs = is_looked_at(stage) || leaks(stage);
    let two_charts = body.height >= least && has_steps(stage) && !failed_at_once(stage);
    let side_by_side = two_charts && beside;
    // In few rows remedies come before measurements.
    let hints = !effect::is_known(stage);
    let hinted =
        !stepped && stage.hold == Hold::Nothing && (body.height >= STRIP_WITH_AXIS || stage.findings().is_empty());
    let effect = if hints && !hinted { 0 } else { told };
    let findings = why::wanted_rows(stage, body.width, why::BEHIND_WORD, 1) + why::rows_of_op(stage, body.width);
    let why = match (autopsy, body.height) {
        (Some(autopsy), height) => autopsy::rows(stage, autopsy, body.width, (height * 2 / 5).max(1)),
        // The lesson gives the reason.
        (None, _) if stage.hold > Hold::Nothing => 0,
        (None, STRIP_WITH_AXIS..) => findings.min(5),
        (None, WITH_MAP..) => findings.min(3),
        (None, _) if body.width < NARROW => findings.min(4 - 2 * effect),
        (None, _) => findings.min(3 - effect),
    };
    let switches = if body.width < NARROW && why > 3 { 2 } else { switches };
    let areas = Split::vertical([
        match (two_charts && !side_by_side, has_news(stage)) {
            (false, _) => Constraint::Length(0),
            (true, true) if body.height >= STRIP_WITH_AXIS || climbs => Constraint::Fill(4),
            // Two of its rows, and those of the words below it, go to the step.
            (true, _) if body.height < STRIP_WITH_AXIS => Constraint::Length(STRIP - 3),
            (true, _) => Constraint::Length(STRIP - 2),
        },
        Constraint::Length(ghost::wanted_rows(stage)),
        Constraint::Fill(match (side_by_side, two_charts) {
            (true, _) => 9,
            (false, true) => 6,
            (false, false) => 8,
        }),
        if map { Constraint::Fill(if stepped || led { 8 } else { 4 }) } else { Constraint::Length(0) },
        Constraint::Length(if trains && !led { switches.min(body.height / 3) } else { 0 }),
        Constraint::Length(effect),
        Constraint::Length(if two_charts && !stepped && steps::are_timed(&stage.picture.known().steps) {
            told
        } else {
            0
        }),
        Constraint::Length(u16::from(stage.view().gpu.is_some() && body.height > 20)),
        Constraint::Length(why),
    ]);
    let [history, ghost, step, blocks, switches, effect, times, gpu, why] = body.layout::<9>(&areas);
    ghost::render_line(stage, ghost, buf);
    if side_by_side {
        let wide = BESIDE[usize::from(climbs)] * body.width / SIDE_BY_SIDE.0;
        let halves = Split::horizontal([Constraint::Length(wide), Constraint::Min(0)]).spacing(1);
        let [history, step] = step.layout::<2>(&halves);
        charts(stage, Frame::Rule, history, step, buf, layout);
    } else if two_charts {
        charts(stage, Frame::Rule, history, step, buf, layout);
    } else {
        only_chart(stage, Frame::Rule, step, buf, layout);
    }
    if map {
        blocks::render(stage, Frame::Rule, blocks, buf, layout);
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
    steps::render_line(&stage.picture.known().steps, stage.clock(), stage.theme, times, buf);
    if let Some(reading) = stage.view().gpu.as_deref() {
        gpu::render_line(reading, stage.theme, gpu, buf);
    }
    match autopsy {
        Some(autopsy) => autopsy::render_lines(stage, autopsy, why, buf),
        None => why::render_lines(stage, why, buf),
    }
}

fn charts(stage: &Stage<'_>, kind: Frame, history: Rect, step: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    let plot = history::render(stage, kind, history, buf);
    layout.history_columns = usize::from(plot.width);
    layout.charts.push((plot, Chart::History));
    layout.charts.push((step_beside::render(stage, kind, step, buf), Chart::Step));
    layout.panels.extend([(history, Panel::History), (step, Panel::StepCurve)]);
}

/// If only one chart fits, draws the step's curve, unless the interesting change is from step to step: a leak, or peaks
/// that the user looks at more closely.
fn only_chart(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer, layout: &mut FrameLayout) {
    if has_steps(stage) && (stage.states.lab.zoom.is_some() || leaks(stage)) {
        let plot = history::render(stage, kind, area, buf);
        layout.history_columns = usize::from(plot.width);
        layout.charts.push((plot, Chart::History));
        layout.panels.push((area, Panel::History));
    } else {
        layout.history_columns = usize::from(area.width);
        layout.charts.push((step_beside::render(stage, kind, area, buf), Chart::Step));
        layout.panels.push((area, Panel::StepCurve));
    }
}
